// A step's gradients over a rank's slots and over the ranks: the sum that pl_slots and pl_comm make, with its bits.
//
// Where a task's tape tells which gradients are complete (pl_task.tape) and the ranks can (kernels/comm/summing.h), the
// sum goes on beside the backward of a rank's last slot: what backward is done with takes in the slots before, and
// goes. Otherwise all of it follows the last slot.
#ifndef PL_TRAIN_REDUCE_H
#define PL_TRAIN_REDUCE_H

#include "kernels/comm/summing.h"
#include "kernels/tape.h"
#include "train/loop/block.h"
#include "train/loop/slots.h"

typedef struct pl_reduce {
    pl_slots        slots; // this rank's share
    pl_param_block *block; // borrowed
    pl_comm        *comm;
    pl_tape        *tape;    // borrowed; NULL: nobody tells
    pl_summing     *summing; // NULL: after the last slot
    pl_tape_ready   ready;
    size_t         *at; // of it
} pl_reduce;

// tape: of the slots; NULL where they have none that tells. PL_E_MEMORY.
pl_status pl_reduce_init(pl_reduce *r, int n_slots, pl_param_block *block, pl_comm *comm, pl_tape *tape,
                         const pl_backend *be, pl_err *err);
void      pl_reduce_fini(pl_reduce *r);

void      pl_reduce_begin(pl_reduce *r); // of a step
// Before each slot of this rank's, its gradient being zero; and after it: `slot` is how it ended, which is returned.
// After the last one the block's gradient is the sum over all slots of all ranks (of a sharded block this rank's piece
// of it), and sums those over this rank's slots. In order with the ops of ctx.
void      pl_reduce_open(pl_reduce *r);
pl_status pl_reduce_add(pl_reduce *r, pl_ctx *ctx, double *sums, pl_status slot, pl_err *err);

#endif
