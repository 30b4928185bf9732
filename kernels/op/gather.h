// Rows by index.
//   y[i, :] = x[index[i], :]                            dx[index[i], :] += dy[i, :]  (i ascending)
// index[i] < 0 gives zeros and no gradient. x [M, d], y [n, d]. Exact.
#ifndef PL_OP_GATHER_H
#define PL_OP_GATHER_H
#include "kernels/backend.h"

typedef struct pl_gather_args {
    pl_tensor      y;
    pl_tensor      x;
    const int32_t *index; // [n]; borrowed until replay
} pl_gather_args;

pl_tensor pl_gather(pl_ctx *ctx, pl_tensor x, const int32_t *index, int64_t n);
#endif
