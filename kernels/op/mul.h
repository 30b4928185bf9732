// Product of two tensors of one shape, element by element.
//   y = a b                                             da += dy b, db += dy a
// Element-wise, one rounding. Bytes: 3*M*n*size.
#ifndef PL_OP_MUL_H
#define PL_OP_MUL_H
#include "kernels/backend.h"

typedef struct pl_mul_args {
    pl_tensor y, a, b; // [M, n]
} pl_mul_args;

pl_tensor pl_mul(pl_ctx *ctx, pl_tensor a, pl_tensor b);
#endif
