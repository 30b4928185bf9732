// A step's gradients over a rank's slots and over the ranks: the sum of pl_slots and pl_comm, with its bits.
//
// If a task's tape reports complete gradients (pl_task.tape) and the ranks support it (kernels/comm/summing.h), the sum
// overlaps with the backward of a rank's last slot: a complete gradient is added to the earlier slots' and sent.
// Otherwise the sum follows the last slot.
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
    pl_tape        *tape;    // borrowed; NULL: gradients complete with the slot
    pl_summing     *summing; // NULL: sums after the last slot
    pl_tape_ready   ready;
    size_t         *at; // ready.at, owned
} pl_reduce;

// tape: the slots' tape; NULL if it reports no complete gradients. PL_E_MEMORY.
pl_status pl_reduce_init(pl_reduce *r, int n_slots, pl_param_block *block, pl_comm *comm, pl_tape *tape,
                         const pl_backend *be, pl_err *err);
void      pl_reduce_fini(pl_reduce *r);

// Begin a step with pl_slots_begin(&r->slots). Call open before each slot of this rank, with zero gradients, and add
// after it: `slot` is its status, which is returned. After the last one the block's gradient is the sum over all slots
// of all ranks (in a sharded block this rank's piece of it), and `sums` those over this rank's slots. Ordered with the
// ops of ctx.
void      pl_reduce_open(pl_reduce *r);
pl_status pl_reduce_add(pl_reduce *r, pl_ctx *ctx, double *sums, pl_status slot, pl_err *err);

#endif
