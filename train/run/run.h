// `train`: what a recipe asks for, in one call.
#ifndef PL_TRAIN_RUN_H
#define PL_TRAIN_RUN_H

#include "infer/cli/env.h"
#include "infer/model/llama.h"

// Refuses with one line a recipe that lacks a key which training needs or gives one that is not read, or whose head
// cannot be made for the target.
pl_status pl_train_check(const pl_recipe *r, pl_err *err);
// Further, where the drafter is the recipe's only one: shared keys of other kinds of heads, and a start that is not
// there (those of a list may be made by the run).
pl_status pl_train_check_alone(const pl_recipe *r, pl_err *err);
// Trains by `kind` into out_dir (see train/loop/trainer.h, train/task/target.h, train/task/drafter.h); goes on where an
// earlier call stopped and returns at once when nothing is left to do. The effective recipe is written to
// out_dir/recipe.yaml. PL_E_INTERRUPTED: stopped on request with its state saved.
pl_status pl_train_run(const pl_recipe *r, const char *out_dir, const pl_env *env, pl_err *err);
// The same, stopping as if asked to once step `stop_after` is done; 0: no. For tests of resuming.
pl_status pl_train_run_until(const pl_recipe *r, const char *out_dir, const pl_env *env, int64_t stop_after,
                             pl_err *err);

// ---- several ranks (kernels/comm/comm.h) ----
// Rank 0 walks through the command as a single process would; pl_train_run, pl_ranks_generate and pl_ranks_eval hand
// their work to the others too, which do nothing else. A rank works with the recipe and in the folder that it was
// started with itself, and ends where rank 0's are others.

// pl_generate_run by all ranks of env.
pl_status pl_ranks_generate(const pl_recipe *r, const pl_taps *taps, const char *out_dir, const pl_env *env,
                            pl_err *err);

// pl_pipeline_eval by all ranks of env.
pl_status pl_ranks_eval(const pl_recipe *r, const char *out_dir, const pl_env *env, pl_err *err);

// Rank 0: there is nothing more to do.
pl_status pl_ranks_end(const pl_env *env, pl_err *err);
// Kinds of work, as bits.
typedef enum pl_ranks_work { PL_RANKS_TRAIN = 1, PL_RANKS_GENERATE = 2, PL_RANKS_EVAL = 4 } pl_ranks_work;
// What a rank was started with.
typedef struct pl_ranks_own {
    unsigned         works;    // pl_ranks_work that its command comes to
    bool             drafters; // its command works on each of the recipe's `drafters` too, in that one's folder
    const pl_recipe *recipe;   // borrowed, as is out_dir
    const char      *out_dir;
    int64_t          stop_after; // of training, see pl_train_run_until
} pl_ranks_own;
// The others: do what rank 0 hands out until it ends. PL_E_USAGE: work, a folder or a recipe that this rank was not
// started with; PL_E_IO: a job that is none.
pl_status pl_ranks_serve(const pl_env *env, const pl_ranks_own *own, pl_err *err);

// The threads that a rank works with, of `threads` for all of them: at least one.
int pl_ranks_threads(int threads, int ranks);

#endif
