// SwiGLU (Shazeer 2020) on fused gate and up.
//   y[m, i] = silu(g) * u,  g = gu[m, i], u = gu[m, I + i],  silu(z) = z / (1 + exp(-z))
//   dg += dy u s (1 + g (1 - s)),  du += dy g s,  s = 1 / (1 + exp(-g))
// Element-wise: bits do not depend on neighbours. exp: relative error below 2^-22 on every backend.
#ifndef PL_OP_SWIGLU_H
#define PL_OP_SWIGLU_H
#include "kernels/backend.h"

typedef struct pl_swiglu_args {
    pl_tensor y;  // [M, I]
    pl_tensor gu; // [M, 2I]: gate then up
} pl_swiglu_args;

pl_tensor pl_swiglu(pl_ctx *ctx, pl_tensor gu);
#endif
