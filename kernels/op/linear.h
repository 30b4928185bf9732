// Matrix product with a weight.
//   y[m, n] = sum_k x[m, k] W[n, k]                     dx += dy W,  dW += dy^T x
// x [M, K] and y [M, N] in be->real; W [N, K]: PL_PANELS in F32 or BF16 (inference, no gradient) or PL_ROWMAJOR in
// F32/BF16/F64 (training; F64 is for ref only). y must not overlap x.
//
// Batch invariance (PL_PANELS): each y[m, n] is summed in an order that K alone fixes, for any M and any division of
// the work: a row's bits do not depend on its neighbours or on the number of threads. On a CPU (kernels/cpu/panels.h):
//   F32   one accumulator takes fma(x[m, k], W[n, k]) for k = 0, 1, ...; the same bits on AVX2 and later, and on
//         portable if the compiler's fmaf is a real fma
//   BF16  x is rounded to bf16 on input, sums in fp32 in the order of the matrix unit: the same bits at every level
// Row-major products (training's) use the weight's numbers, as packed ones do: if its values are BF16 (dtype, or a
// working copy that has them as `bf16`), x and dy are rounded to bf16 on input and products summed in fp32, so that
// training has the roundings of decoding. On a CPU y then has packed weights' bits; in fp32, and on a GPU, results are
// the same for any number of threads, and on the same machine for the same shapes. ref rounds packed BF16 alone: with
// row-major weights it is the exact reference for the others. Cost: 2*M*N*K flops; N*K*size(W) + M*(K+N)*4 bytes.
#ifndef PL_OP_LINEAR_H
#define PL_OP_LINEAR_H
#include "kernels/backend.h"
#include "kernels/op/swiglu.h"
#include "kernels/panels.h"

typedef struct pl_linear_args {
    pl_tensor y;
    pl_tensor x;
    pl_tensor w;
} pl_linear_args;

pl_tensor pl_linear(pl_ctx *ctx, pl_tensor x, pl_tensor w);
// Writes into a given y (e.g. logits that outlive the frame); recorded with a gradient only if y.grad is set.
void      pl_linear_into(pl_ctx *ctx, pl_tensor y, pl_tensor x, pl_tensor w);
pl_cost   pl_linear_cost(int64_t m, const pl_tensor *w);

// A product followed by the gated linear unit of its sums (kernels/op/swiglu.h), and optionally by the next product:
//   z[m, i] = a(g) u,  g = sum_k x[m, k] W[i, k],  u = sum_k x[m, k] W[I + i, k];  y = z, or y = z Wdown^T
// with the bits of pl_gated(pl_linear(x, W)) and pl_linear(z, Wdown), without writing the [M, 2I] sums to memory, and
// with z in the second product's input form. x [M, K] and y, [M, I] or with Wdown [M, N], in be->real; W [2I, K]:
// PL_PANELS, or (cpu, ref) PL_GATED; Wdown [N, I]: PL_PANELS, of W's type. No gradient.
typedef struct pl_gatedlinear_args {
    pl_tensor y;
    pl_tensor x;
    pl_tensor w;
    pl_tensor down; // .data NULL: no second product
    pl_gate   gate;
} pl_gatedlinear_args;

// Runs one op if the weights are packed and the backend has it, else the separate ops, which a tape records.
pl_tensor pl_linear_gated(pl_ctx *ctx, pl_tensor x, pl_tensor w, pl_gate gate);
// A gated MLP: both products.
pl_tensor pl_mlp(pl_ctx *ctx, pl_tensor x, pl_tensor w, pl_tensor down, pl_gate gate);
// Runs the op as the backend's separate ops, with intermediate results in scratch.
void      pl_gatedlinear_by_parts(pl_ctx *ctx, const pl_gatedlinear_args *a);
#endif
