// Weighted sum of the outputs of a mixture's experts, per row (kernels/op/experts.h).
//   y[m, :] = sum_j weight[m, j] x[slot[m, j], :]          j ascending, from 0
//
// x [P, d], weight [M, k] and y [M, d] in be->real; slot [M, k] in 0 .. P - 1. No gradient. Products and sums are
// rounded separately; a row's bits depend on nothing else.
#ifndef PL_OP_COMBINE_H
#define PL_OP_COMBINE_H
#include "kernels/backend.h"

typedef struct pl_combine_args {
    pl_tensor      y, x, weight;
    const int32_t *slot; // borrowed
} pl_combine_args;

pl_tensor pl_combine(pl_ctx *ctx, pl_tensor x, pl_tensor weight, const int32_t *slot);
#endif
