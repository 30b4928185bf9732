// A vector added to every row.
//   y[m, :] = x[m, :] + b[:]                            dx += dy,  db[i] += sum_m dy[m, i]  (m ascending; on
//                                                     a GPU in chunks of 64, chunks ascending)
// Row-wise, one rounding.
#ifndef PL_OP_BIAS_H
#define PL_OP_BIAS_H
#include "kernels/backend.h"

typedef struct pl_bias_args {
    pl_tensor y, x; // [M, n]
    pl_tensor b;    // [n] in be->real
} pl_bias_args;

pl_tensor pl_bias(pl_ctx *ctx, pl_tensor x, pl_tensor b);
#endif
