// Matrix product with a weight.
//   y[m, n] = sum_k x[m, k] W[n, k]                     dx += dy W,  dW += dy^T x
// x [M, K] and y [M, N] in be->real; W [N, K]: PL_PANELS in F32 or BF16 (inference, no gradient) or PL_ROWMAJOR in
// F32/BF16/F64 (training; F64 is for ref only). y must not overlap x.
//
// Batch invariance (PL_PANELS): each y[m, n] is summed in an order that K alone fixes, whatever M is and however the
// work is split: a row's bits do not depend on its neighbours or on the number of threads. On a CPU
// (kernels/cpu/panels.h):
//   F32   one accumulator takes fma(x[m, k], W[n, k]) for k = 0, 1, ...; the same bits on AVX2 and later, and portable
//         where the compiler's fmaf is a real fma
//   BF16  x rounded to bf16 as it enters, sums in fp32 in the order of the matrix unit: the same bits at every level
// Row-major products (training's) are computed in the weight's numbers, as packed ones are: where its values are those
// of BF16 (dtype, or a working copy that has them as `bf16`), x and dy are rounded to bf16 as they enter and products
// summed in fp32; so what was trained meets the roundings it will be decoded with. On a CPU y then has packed weights'
// bits; in fp32, and on a GPU, they promise only to be the same for any number of threads, and on the same machine for
// the same shapes. ref rounds packed BF16 alone: with row-major weights it is what the others are held to.
// Cost: 2*M*N*K flops; N*K*size(W) + M*(K+N)*4 bytes.
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
// Into a given y (e.g. logits that outlive the frame); not recorded with a gradient unless y.grad is set.
void      pl_linear_into(pl_ctx *ctx, pl_tensor y, pl_tensor x, pl_tensor w);
pl_cost   pl_linear_cost(int64_t m, const pl_tensor *w);

// A product that ends in the gated linear unit of its sums (kernels/op/swiglu.h), and may go on to the next product:
//   z[m, i] = a(g) u,  g = sum_k x[m, k] W[i, k],  u = sum_k x[m, k] W[I + i, k];  y = z, or y = z Wdown^T
// to the bits of pl_gated(pl_linear(x, W)) and pl_linear(z, Wdown), without [M, 2I] sums on their way to memory and
// back, and with z as the second product reads it. x [M, K] and y, [M, I] or with Wdown [M, N], in be->real;
// W [2I, K]: PL_PANELS, or (cpu, ref) PL_GATED; Wdown [N, I]: PL_PANELS, of W's type. No gradient.
typedef struct pl_gatedlinear_args {
    pl_tensor y;
    pl_tensor x;
    pl_tensor w;
    pl_tensor down; // .data NULL: there is none
    pl_gate   gate;
} pl_gatedlinear_args;

// One op where the weights are packed and the backend has it, else the ops that it stands for, which a tape records.
pl_tensor pl_linear_gated(pl_ctx *ctx, pl_tensor x, pl_tensor w, pl_gate gate);
// A gated MLP: both products.
pl_tensor pl_mlp(pl_ctx *ctx, pl_tensor x, pl_tensor w, pl_tensor down, pl_gate gate);
// The op by the backend's own others, what lies between them in scratch.
void      pl_gatedlinear_by_parts(pl_ctx *ctx, const pl_gatedlinear_args *a);
#endif
