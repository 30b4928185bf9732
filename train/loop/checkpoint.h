// A run's checkpoints, in OUT/checkpoints:
//
//   last/       the newest: the model's files and `training_state` (checkpoints/state.h)
//   step-N/     the ones before it, of step N; with it `keep` in all
//   best/       the model's files at the best evaluation
// Each appears as a whole, and the newest replaces the previous one by pl_path_succeed: a process killed at any instant
// loses none. If a checkpoint's state is damaged the previous one is used, and the damaged one is removed when the next
// is written.
//
// A state has the parts of the parameter block in the block's order, independent of the number of ranks. They go
// through rank 0 piece by piece, also if a block's pieces lie on several ranks (pl_shard).
#ifndef PL_TRAIN_CHECKPOINT_H
#define PL_TRAIN_CHECKPOINT_H

#include "train/loop/guard.h"
#include "train/loop/trainer.h"

// Progress of a run, besides the task's weights and cursor.
typedef struct pl_run_state {
    int64_t  step;       // steps done
    double   best_score; // NAN before the first evaluation
    int64_t  best_step;
    pl_guard guard;
} pl_run_state;

typedef struct pl_checkpoints {
    pl_task    *t;
    const char *out; // borrowed
    char       *dir, *last, *best;
    int64_t     keep;
    bool        any_arithmetic;
    int64_t     saved;   // step of the newest whole checkpoint; -1: none
    bool        damaged; // last/ is damaged
} pl_checkpoints;

pl_status pl_checkpoints_init(pl_checkpoints *c, pl_task *t, const pl_trainer_options *o, pl_err *err);
void      pl_checkpoints_fini(pl_checkpoints *c);

// Names of the folder's entries, in pl_dir_spares' form.
extern const char *const pl_checkpoint_kinds[];
// Call before a run writes its first byte. PL_OK: the contents of out_dir's checkpoints may be replaced. PL_E_INPUT:
// one holds a foreign file, or best/ may be another run's: it has neither a state nor the run's recipe beside it, or it
// is a link to another model than last/ has.
pl_status                pl_checkpoints_spare(const char *out_dir, pl_err *err);
// All ranks: loads the newest whole checkpoint into the task and *s on each of them, read by rank 0 alone; without one
// nothing changes. Rank 0 removes leftovers of earlier runs. PL_E_INPUT: all are damaged, or the newest belongs to
// another run or arithmetic.
pl_status                pl_checkpoints_resume(pl_checkpoints *c, pl_run_state *s, pl_err *err);
// Writes a new last/, unless it is of this step. Rank 0; all ranks if each holds a piece of the block.
pl_status                pl_checkpoints_save(pl_checkpoints *c, const pl_run_state *s, pl_err *err);
// Rank 0: writes a new best/.
pl_status                pl_checkpoints_save_best(pl_checkpoints *c, pl_err *err);

#endif
