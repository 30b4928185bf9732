// A run's checkpoints, in OUT/checkpoints:
//
//   last/       the newest: the model's files and `training_state` (checkpoints/state.h)
//   step-N/     the ones before it, of step N; with it `keep` in all
//   best/       the model's files at the best evaluation
// Each appears whole, and the newest takes its place by pl_path_succeed: a process killed at any instant loses none. A
// checkpoint whose state is damaged is passed over for the one before, and goes when the next one is there.
//
// A state has the parts of the parameter block in the block's order, whoever holds them: nothing of ranks. They go
// through rank 0 piece by piece, when a block's pieces lie on several ranks (pl_shard) as well as when all is here.
#ifndef PL_TRAIN_CHECKPOINT_H
#define PL_TRAIN_CHECKPOINT_H

#include "train/loop/guard.h"
#include "train/loop/trainer.h"

// Where a run stands, beside the task's weights and cursor.
typedef struct pl_run_state {
    int64_t  step;       // done
    double   best_score; // NAN before the first evaluation
    int64_t  best_step;
    pl_guard guard;
} pl_run_state;

typedef struct pl_checkpoints {
    pl_task *t;
    char    *out, *dir, *last, *best;
    int64_t  keep;
    bool     any_arithmetic;
    int64_t  saved;   // step of the newest whole one; -1: there is none
    bool     damaged; // last/ is not it
} pl_checkpoints;

pl_status pl_checkpoints_init(pl_checkpoints *c, pl_task *t, const pl_trainer_options *o, pl_err *err);
void      pl_checkpoints_fini(pl_checkpoints *c);

// What the folder of checkpoints holds, as pl_dir_spares has it.
extern const char *const pl_checkpoint_kinds[];
// Before a run's first byte. PL_OK: what stands in out_dir's checkpoints may be replaced by checkpoints. PL_E_INPUT:
// one holds another file than a checkpoint's, or best/ may be another run's, as neither a state nor the recipe that a
// run began with is beside it, or as it is a link to another model than last/ has.
pl_status                pl_checkpoints_spare(const char *out_dir, pl_err *err);
// All ranks: the newest whole checkpoint into the task and *s on each of them, read by rank 0 alone; without one all
// stays as it is. Rank 0 removes what runs before this one left undone. PL_E_INPUT: all are damaged, or the newest is
// another run's or arithmetic's.
pl_status                pl_checkpoints_resume(pl_checkpoints *c, pl_run_state *s, pl_err *err);
// A new last/, unless it is of this step. Rank 0; all ranks where each holds a piece of the block.
pl_status                pl_checkpoints_save(pl_checkpoints *c, const pl_run_state *s, pl_err *err);
// Rank 0: a new best/.
pl_status                pl_checkpoints_save_best(pl_checkpoints *c, pl_err *err);

#endif
