// SiLU (Elfwing, Uchibe, Doya 2018; "swish").
//   y = x s,  s = 1 / (1 + exp(-x))                     dx += dy s (1 + x (1 - s))
// Element-wise: bits do not depend on neighbours.
#ifndef PL_OP_SILU_H
#define PL_OP_SILU_H
#include "kernels/backend.h"

typedef struct pl_silu_args {
    pl_tensor y, x; // [M, n]
} pl_silu_args;

pl_tensor pl_silu(pl_ctx *ctx, pl_tensor x);
#endif
