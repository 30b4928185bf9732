// One update of a parameter block: the gradient's norm, clipping by it, AdamW (kernels/op/adamw.h) over the decayed and
// the undecayed region.
//
// If the block's masters are sharded (pl_shard), each rank has the gradient's sum of its piece, adds its chunks of the
// norm to the one tree over all chunks, updates its piece and sends the result to the others: all ranks get the bits of
// a whole block.
#ifndef PL_TRAIN_OPTIM_H
#define PL_TRAIN_OPTIM_H

#include "kernels/comm/comm.h"
#include "train/loop/block.h"

typedef struct pl_optim_options {
    double   beta1, beta2, eps, decay;
    double   clip; // largest norm of the gradient; 0: no clipping
    pl_comm *comm; // the ranks that hold the pieces of a sharded block; otherwise unused
} pl_optim_options;

typedef struct pl_optim {
    pl_ctx           ctx;   // own context: scratch of the two ops
    pl_param_block  *block; // borrowed
    pl_optim_options o;
    double          *chunks; // sharded block: partial sums of the norm
} pl_optim;

pl_status pl_optim_init(pl_optim *op, const pl_backend *be, pl_pool *pool, pl_param_block *block,
                        const pl_optim_options *o, pl_err *err);
void      pl_optim_fini(pl_optim *op);

// The block's grad holds a sum that grad_scale turns into the gradient (1 / the global count of summed terms), or this
// rank's piece of it in a sharded block. *norm is the gradient's before clipping, and may be no number.
pl_status pl_optim_norm(pl_optim *op, double grad_scale, double *norm, pl_err *err);
// Updates with that norm. step counts updates from 1.
pl_status pl_optim_update(pl_optim *op, double lr, double grad_scale, double norm, int64_t step, pl_err *err);

#endif
