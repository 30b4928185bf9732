// One update of a parameter block: the gradient's norm, clipping by it, AdamW (kernels/op/adamw.h) over the decayed and
// the undecayed stretch.
#ifndef PL_TRAIN_OPTIM_H
#define PL_TRAIN_OPTIM_H

#include "train/loop/block.h"

typedef struct pl_optim_options {
    double beta1, beta2, eps, decay;
    double clip; // largest norm of the gradient; 0: no clipping
} pl_optim_options;

typedef struct pl_optim {
    pl_ctx           ctx;   // its own: scratch of the two ops
    pl_param_block  *block; // borrowed
    pl_optim_options o;
} pl_optim;

pl_status pl_optim_init(pl_optim *op, const pl_backend *be, pl_pool *pool, pl_param_block *block,
                        const pl_optim_options *o, pl_err *err);
void      pl_optim_fini(pl_optim *op);

// The block's grad holds a sum that grad_scale turns into the gradient (1 / the global count of what was summed). step
// counts from 1. *grad_norm is the norm before clipping. A gradient that is not finite is PL_E_INPUT and changes
// nothing.
pl_status pl_optim_step(pl_optim *op, double lr, double grad_scale, int64_t step, double *grad_norm, pl_err *err);

#endif
