// The training loop, the same for every model: slots, gradient tree, update, metrics, evaluation, checkpoints, resume.
//
// A task is what is trained: a parameter block and a few functions. Everything that a task does at a step is a pure
// function of (its identity, step, slot, its cursor), so a run resumed from a checkpoint is the uninterrupted run bit
// for bit, whatever had been written after the checkpoint.
//
// In a run's directory:
//   checkpoints/     states to resume from (train/loop/checkpoint.h)
//   metrics.jsonl    a line per logged step, a line per evaluation
//   skipped.jsonl    a line per step that did not count (train/loop/guard.h): the reason, and each slot's data
//
// Ranks (kernels/comm/comm.h) each work on their share of a step's slots, then hold the same sum, bit for bit that of
// one process, and make the same update. Rank 0 alone writes, evaluates and logs; a stop requested of any rank stops
// all. A state is independent of ranks: a run resumes with any number of them.
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

#define PL_ARITHMETIC_ROOM 32 // bytes of a backend's arithmetic (pl_backend) in a state, its end included

// The scalars that every slot adds up; the task's own follow.
enum { PL_SUM_LOSS, PL_SUM_WEIGHT, PL_SUM_TOKENS, PL_SUM_SUPERVISED, PL_SUM_OWN };

typedef struct pl_task pl_task;
struct pl_task {
    const char       *name; // the stage's name in metrics: "target", "eagle3"
    pl_param_block   *block;
    const pl_backend *backend;
    pl_pool          *pool;
    pl_comm          *comm; // the ranks that share each step's slots; NULL: one
    int               n_slots;
    char              identity[128]; // must be equal in a state and in the run that resumes from it
    // The tape of a slot's backward, if that runs once and is all that changes the block's gradients: complete ones can
    // then be sent to the other ranks while the rest of it runs. NULL: several, or none.
    pl_tape          *tape;
    double            waited; // seconds so far of begin and skip, and in which a slot waited for data
    // True: rows without a weight are left out. States save and restore it. NULL: the task has no such choice.
    bool             *supervised;
    int64_t          *cursor; // position in the data, unless the step determines it; saved and restored
    int               n_cursor;

    // Runs before the slots of a step, on every rank: the task's collective work. May be NULL.
    pl_status (*begin)(pl_task *t, int64_t step, pl_err *err);
    // One slot of a step (step counts from 1, slot from 0): forward and backward, gradients accumulated into the
    // block's (zero at call). sums[PL_SUM_LOSS]: loss summed with the weights whose sum is sums[PL_SUM_WEIGHT];
    // sums[PL_SUM_TOKENS]: rows worked on; sums[PL_SUM_SUPERVISED]: those with a weight at some step, of tasks with
    // `supervised`; sums[PL_SUM_OWN...]: the task's own. All zero at call.
    pl_status (*slot)(pl_task *t, int64_t step, int slot, double *sums, pl_err *err);
    // Moves the cursor as that slot would, and does nothing else: another rank runs the slot. NULL: nothing to move.
    pl_status (*skip)(pl_task *t, int64_t step, int slot, pl_err *err);
    // Adds figures of a step, from the sums over all slots. May be NULL.
    void (*report)(pl_task *t, const double *sums, pl_metrics *m);
    // Writes the data that a slot of a step read, as members of an open object; the cursor was `from` before it and
    // `to` after it. NULL: the cursors themselves.
    void (*place)(pl_task *t, int64_t step, int slot, const int64_t *from, const int64_t *to, pl_json_out *o);
    // Evaluates held-out data after a step, for the metrics line. *score: higher is better. NULL: no evaluation.
    pl_status (*evaluate)(pl_task *t, int64_t step, pl_metrics *m, double *score, pl_err *err);
    // Writes the model's files into dir, which exists.
    pl_status (*save_model)(pl_task *t, const char *dir, pl_err *err);
};

typedef struct pl_trainer_options {
    const char      *out_dir; // created if missing
    pl_schedule      schedule;
    pl_optim_options optim;
    pl_guard_options guard;
    int64_t          keep;               // checkpoints to keep: the last one and those before it, >= 1
    int64_t          steps;              // 0: the task's model is evaluated and written unchanged
    int64_t          checkpoint_every;   // steps; 0: only at the end and when stopped
    double           checkpoint_minutes; // and this long after the last one; 0: never by time
    int64_t          eval_every;         // steps; 0: only at the end
    int64_t          log_every;          // steps between metrics lines, >= 1
    bool             any_arithmetic;     // allow resuming from a state of another arithmetic (pl_backend)
    int64_t          stop_after;         // stop, as if requested, after this step; 0: never
} pl_trainer_options;

// Trains to options->steps from the newest whole checkpoint, or from the block as it is. Returns at once if that step
// has been reached. PL_E_INTERRUPTED when the process was asked to stop: then last/ holds the state. PL_E_INPUT when
// the state belongs to another run (identity) or arithmetic, when all are damaged, or when the guard ends the run.
pl_status pl_trainer_run(pl_task *t, const pl_trainer_options *o, pl_err *err);

// One step and its update, as in pl_trainer_run: all slots, their sum, the optimizer. reduce (of as many slots as this
// rank's share) and optim are over the task's block; guard NULL: a step that is not finite is PL_E_INPUT. step counts
// from 1; seconds: of the whole.
typedef struct pl_step_result {
    double loss, lr, grad_norm, tokens, seconds;
    double sums[PL_SLOT_SUMS];
    double own[PL_WATCH_MEMORY]; // this rank's figures (train/loop/watch.h)
    bool   counts;               // the weights were updated
    char   skipped[160];         // the reason otherwise
} pl_step_result;
pl_status pl_trainer_step(pl_task *t, pl_reduce *reduce, pl_optim *optim, pl_guard *guard, int64_t step, double lr,
                          pl_step_result *r, pl_err *err);

// Writes the arithmetic (pl_backend) of the newest whole checkpoint, empty if there is none or none is whole. Changes
// nothing in the folder.
void      pl_trainer_arithmetic(char arithmetic[PL_ARITHMETIC_ROOM], const char *out_dir);
// Returns the step of the newest whole checkpoint; 0 if there is none.
pl_status pl_trainer_done_steps(const char *out_dir, int64_t *step, pl_err *err);

#endif
