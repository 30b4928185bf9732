// `train`: trains by a recipe, in one call.
#ifndef PL_TRAIN_RUN_H
#define PL_TRAIN_RUN_H

#include "infer/cli/env.h"
#include "infer/model/llama.h"

// Refuses with one line a recipe that lacks a key which training needs or gives one that is not read, or whose head
// does not fit the target.
pl_status pl_train_check(const pl_recipe *r, pl_err *err);
// Refuses further, for the only drafter of a recipe: shared keys of other kinds of heads, and a missing start (the run
// may make the starts of a list).
pl_status pl_train_check_alone(const pl_recipe *r, pl_err *err);
// Returns PL_OK if all files in out_dir with names that training writes are a run's products, of this or an earlier
// build, and the recipe reads none of them. PL_E_INPUT names the first other one. Call it before training writes.
pl_status pl_train_spares(const pl_recipe *r, const char *out_dir, pl_err *err);
// Trains by `kind` into out_dir (see train/loop/trainer.h, train/task/target.c, train/task/drafter.h); continues where
// an earlier call stopped and returns at once if nothing is left to do. Writes the effective recipe to
// out_dir/recipe.yaml. PL_E_INTERRUPTED: stopped on request with its state saved.
pl_status pl_train_run(const pl_recipe *r, const char *out_dir, const pl_env *env, pl_err *err);
// Trains as pl_train_run does, and stops as if interrupted after step `stop_after`; 0: never. For tests of resuming.
pl_status pl_train_run_until(const pl_recipe *r, const char *out_dir, const pl_env *env, int64_t stop_after,
                             pl_err *err);

// ---- several ranks (kernels/comm/comm.h) ----
// Rank 0 runs the command as a single process would; pl_train_run, pl_ranks_generate and pl_ranks_eval also assign
// their work to the other ranks, which do nothing else. Each rank uses the recipe and the folder of its own command
// line, and fails if rank 0's differ.

// Runs pl_generate_run on all ranks of env.
pl_status pl_ranks_generate(const pl_recipe *r, const pl_taps *taps, const char *out_dir, const pl_env *env,
                            pl_err *err);

// Runs pl_pipeline_eval on all ranks of env.
pl_status pl_ranks_eval(const pl_recipe *r, const char *out_dir, const pl_env *env, pl_err *err);

// Called by rank 0: ends pl_ranks_serve of the other ranks.
pl_status pl_ranks_end(const pl_env *env, pl_err *err);
// Kinds of work, as bits.
typedef enum pl_ranks_work { PL_RANKS_TRAIN = 1, PL_RANKS_GENERATE = 2, PL_RANKS_EVAL = 4 } pl_ranks_work;
// The message by which rank 0 assigns work to the other ranks. They take recipe and folder from their own command lines
// and compare these hashes: no rank runs, opens or writes text from another one.
typedef struct pl_job {
    int32_t what;                    // one pl_ranks_work; 0: no more work
    pl_taps taps;                    // of a dataset
    char    recipe[17], out_dir[17]; // pl_recipe_hash of all keys; the hash of the folder's path
} pl_job;
// The command line of a rank.
typedef struct pl_ranks_own {
    unsigned         works;    // bits of pl_ranks_work: the kinds of work in its command
    bool             drafters; // its command works on each of the recipe's `drafters` too, in that one's folder
    const pl_recipe *recipe;   // borrowed, as is out_dir
    const char      *out_dir;
    int64_t          stop_after; // of training, see pl_train_run_until
} pl_ranks_own;
// Called by the other ranks: executes the jobs of rank 0 until it ends. PL_E_USAGE: work, a folder or a recipe that
// differs from this rank's command line; PL_E_IO: an invalid job.
pl_status pl_ranks_serve(const pl_env *env, const pl_ranks_own *own, pl_err *err);

// Returns a rank's share of `threads` threads, at least one.
int pl_ranks_threads(int threads, int ranks);

#endif
