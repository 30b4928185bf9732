// Concatenation of columns.
//   y[m, :] = [a[m, :], b[m, :]]                        da += dy[:, :ca], db += dy[:, ca:]
// Exact. a may have a narrower type if it has no gradient (a frozen weight next to a trained one): it is widened.
#ifndef PL_OP_CONCAT_H
#define PL_OP_CONCAT_H
#include "kernels/backend.h"

typedef struct pl_concat_args {
    pl_tensor y;    // [M, ca + cb]
    pl_tensor a, b; // [M, ca], [M, cb]
} pl_concat_args;

pl_tensor pl_concat(pl_ctx *ctx, pl_tensor x, pl_tensor z); // a = x, b = z
#endif
