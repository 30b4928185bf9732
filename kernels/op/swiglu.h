// Gated linear units on fused gate and up (Shazeer 2020, arXiv 2002.05202): SwiGLU, and GEGLU with GELU's tanh form
// (Hendrycks & Gimpel 2016, arXiv 1606.08415; PyTorch's gelu of approximate "tanh").
//   y[m, i] = a(g) * u,  g = gu[m, i], u = gu[m, I + i],  a(z) = z s(z)
//   SILU       s(z) = 1 / (1 + exp(-z))
//   GELU_TANH  a(z) = z (1 + tanh(t)) / 2,  t = sqrt(2 / pi) (z + 0.044715 z^3);  so s(z) = 1 / (1 + exp(-2 t))
//   CLAMPED    y = g' s(A g') (u' + 1),  g' = min(g, L),  u' = max(min(u, L), -L),  s SILU's, A = 1.702, L = 7:
//              GPT-OSS's (arXiv 2508.10925); no gradient, and not on a device
//   dg += dy u (s + g s'),  du += dy g s,  s' = s (1 - s)  or  s (1 - s) 2 sqrt(2 / pi) (1 + 3 0.044715 g^2)
// Element-wise: bits do not depend on neighbours. exp: relative error below 2^-22 on every backend.
#ifndef PL_OP_SWIGLU_H
#define PL_OP_SWIGLU_H
#include "kernels/backend.h"

typedef enum pl_gate { PL_GATE_SILU, PL_GATE_GELU_TANH, PL_GATE_CLAMPED } pl_gate;

#define PL_GELU_TANH_TWICE 1.5957691216057308 // 2 sqrt(2 / pi)
#define PL_GELU_TANH_CUBE 0.044715
#define PL_CLAMPED_ALPHA 1.702
#define PL_CLAMPED_LIMIT 7.0

typedef struct pl_swiglu_args {
    pl_tensor y;  // [M, I]
    pl_tensor gu; // [M, 2I]: gate then up
    pl_gate   gate;
} pl_swiglu_args;

pl_tensor pl_gated(pl_ctx *ctx, pl_tensor gu, pl_gate gate);
#endif
