// Products of groups of rows, each with its own weight: the experts of a mixture (kernels/op/experts.h).
//   y[p, :] = x[p, :] W_e^T (+ b_e)          first[e] <= p < first[e + 1]
//
// x [P, K] and y [P, N] in be->real; W_e [N, K]: PL_PANELS, all of one type; b_e [N] in F32. first[0] = 0, first[n] =
// P, ascending; groups may be empty, their weights are not read. No gradient. Bits: y[p, :] equals `linear` for that
// row and weight, plus the bias, for any other rows and any number of threads. Cost: 2 P N K flops; N K size(W) bytes
// of each group that is not empty.
#ifndef PL_OP_GROUPED_H
#define PL_OP_GROUPED_H
#include "kernels/backend.h"

typedef struct pl_grouped_args {
    pl_tensor        y, x;
    const pl_tensor *w;     // [n]; borrowed
    const pl_tensor *b;     // [n] or NULL; borrowed
    const int32_t   *first; // [n + 1]; borrowed
    int64_t          n;
} pl_grouped_args;

// b: NULL for none.
pl_tensor pl_grouped(pl_ctx *ctx, pl_tensor x, const pl_tensor *w, const pl_tensor *b, const int32_t *first, int64_t n);
#endif
