// The training loop, the same for every model: slots, gradient tree, update, metrics, evaluation, checkpoints, resume.
//
// What is trained is a task: a parameter block and a few functions. Everything that a task does at a step is a pure
// function of (its identity, step, slot, its cursor), so a run resumed from a checkpoint is the uninterrupted run bit
// for bit, whatever had been written after the checkpoint.
//
// In a run's directory:
//   checkpoints/     what a run goes on from (train/loop/checkpoint.h)
//   metrics.jsonl    a line per logged step, a line per evaluation
//   skipped.jsonl    a line per step that did not count (train/loop/guard.h): why, and what each slot read
//
// Ranks (kernels/comm/comm.h) each work on their share of a step's slots and then hold the same sum, bit for bit that
// of one process, and make the same update. Rank 0 alone writes, evaluates and says anything; a stop asked of any rank
// stops all. A state holds nothing of ranks: a run goes on with any number of them.
#ifndef PL_TRAIN_TRAINER_H
#define PL_TRAIN_TRAINER_H

#include "kernels/comm/comm.h"
#include "train/loop/block.h"
#include "train/loop/guard.h"
#include "train/loop/metrics.h"
#include "train/loop/optim.h"
#include "train/loop/reduce.h"
#include "train/loop/schedule.h"
#include "train/loop/slots.h"
#include "train/loop/watch.h"

// The scalars that every slot adds up; a task's own follow.
enum { PL_SUM_LOSS, PL_SUM_WEIGHT, PL_SUM_TOKENS, PL_SUM_OWN };

typedef struct pl_task pl_task;
struct pl_task {
    const char       *name; // of the stage in metrics: "target", "eagle3"
    pl_param_block   *block;
    const pl_backend *backend;
    pl_pool          *pool;
    pl_comm          *comm; // the ranks that share each step's slots; NULL: one
    int               n_slots;
    char              identity[128]; // what must agree between a state and the run that resumes from it
    // What backward of a slot runs on, where it runs once and is all that changes the block's gradients: then they can
    // be on their way to the other ranks while the rest of it runs. NULL: several, or none.
    pl_tape          *tape;
    double            waited; // seconds so far in which a slot had no data: they were read or made
    int64_t          *cursor; // position in the data, where the step does not give it; saved and put back
    int               n_cursor;

    // Before the slots of a step, on every rank: what the ranks must do together for it. May be NULL.
    pl_status (*begin)(pl_task *t, int64_t step, pl_err *err);
    // One slot of a step (both from 1 and 0): forward and backward, gradients accumulated into the block's (zero at
    // call). sums[PL_SUM_LOSS]: loss summed with the weights whose sum is sums[PL_SUM_WEIGHT]; sums[PL_SUM_TOKENS]:
    // rows worked on; sums[PL_SUM_OWN...]: the task's own. All zero at call.
    pl_status (*slot)(pl_task *t, int64_t step, int slot, double *sums, pl_err *err);
    // Moves the cursor as that slot would, and does nothing else: the slot is another rank's. NULL: nothing to move.
    pl_status (*skip)(pl_task *t, int64_t step, int slot, pl_err *err);
    // More to say about a step, from the sums over all slots. May be NULL.
    void (*report)(pl_task *t, const double *sums, pl_metrics *m);
    // What a slot of a step read, as members of an open object; the cursor stood at `from` before it and at `to` after
    // it. NULL: the cursors themselves.
    void (*place)(pl_task *t, int64_t step, int slot, const int64_t *from, const int64_t *to, pl_json_out *o);
    // Held-out evaluation after a step, for the metrics line. *score: higher is better. NULL: no evaluation.
    pl_status (*evaluate)(pl_task *t, int64_t step, pl_metrics *m, double *score, pl_err *err);
    // The model's files into dir, which exists.
    pl_status (*save_model)(pl_task *t, const char *dir, pl_err *err);
};

typedef struct pl_trainer_options {
    const char      *out_dir; // made where missing
    pl_schedule      schedule;
    pl_optim_options optim;
    pl_guard_options guard;
    int64_t          keep;               // checkpoints to go on from: the last one and those before it, >= 1
    int64_t          steps;              // 0: the task's model as it is, evaluated and written
    int64_t          checkpoint_every;   // steps; 0: only at the end and when stopped
    double           checkpoint_minutes; // and when this much time has passed since the last one; 0: never for time
    int64_t          eval_every;         // steps; 0: only at the end
    int64_t          log_every;          // steps between metrics lines, >= 1
    bool             any_arithmetic;     // go on from a state that was computed in another (pl_backend)
    int64_t          stop_after;         // stop as if asked to, once this step is done; 0: no
} pl_trainer_options;

// Trains to options->steps from the newest whole checkpoint where there is one, else from the block as it is. Returns
// at once when that is done already. PL_E_INTERRUPTED when the process was asked to stop: then last/ holds the state.
// PL_E_INPUT when it belongs to another run (identity) or was computed in another arithmetic, when all are damaged, or
// when steps do not count, as the guard has it.
pl_status pl_trainer_run(pl_task *t, const pl_trainer_options *o, pl_err *err);

// One step and its update, as pl_trainer_run does them: all slots, their sum, the optimizer. reduce (of as many slots
// as this rank's share) and optim are over the task's block; guard NULL: what is not finite is PL_E_INPUT. step counts
// from 1; seconds: of the whole.
typedef struct pl_step_result {
    double loss, lr, grad_norm, tokens, seconds;
    double sums[PL_SLOT_SUMS];
    double own[PL_WATCH_MEMORY]; // this rank's figures (train/loop/watch.h)
    bool   counts;               // the weights were updated
    char   skipped[160];         // why not
} pl_step_result;
pl_status pl_trainer_step(pl_task *t, pl_reduce *reduce, pl_optim *optim, pl_guard *guard, int64_t step, double lr,
                          pl_step_result *r, pl_err *err);

// The step of the newest whole checkpoint; 0 where there is none.
pl_status pl_trainer_done_steps(const char *out_dir, int64_t *step, pl_err *err);

#endif
