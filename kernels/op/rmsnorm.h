// RMSNorm with residual (Zhang & Sennrich 2019; the pre-norm block of Llama).
//   h[m, :] = x[m, :] + r[m, :]                         (r.data NULL: h = x, not written, h.data may be NULL)
//   y[m, i] = h[m, i] * rstd[m] * g[i],                 rstd[m] = 1 / sqrt(mean_i h[m, i]^2 + eps)
// Backward: with dy and (from later uses of h) dh given,
//   t[m, i]  = dy[m, i] g[i];  c[m] = mean_i(t h) rstd^2
//   dh[m, i] += rstd (t - h c);  dx += dh, dr += dh;  dg[i] += sum_m dy h rstd   (m ascending; GPU: in chunks of 64)
// Row-wise: a row's bits do not depend on the others. Sums in fp32, fixed order. rstd is kept for backward.
// y may not alias x, r or h. Cost: 4*M*d*size bytes with residual.
#ifndef PL_OP_RMSNORM_H
#define PL_OP_RMSNORM_H
#include "kernels/backend.h"

typedef struct pl_rmsnorm_args {
    pl_tensor y;    // [M, d]
    pl_tensor h;    // [M, d] the new residual stream; .data NULL without r
    pl_tensor x, r; // [M, d]; r.data NULL: no residual
    pl_tensor g;    // [d] in be->real
    pl_tensor rstd; // [M] in be->real, no gradient
    double    eps;
} pl_rmsnorm_args;

pl_tensor pl_rmsnorm(pl_ctx *ctx, pl_tensor x, pl_tensor g, double eps);
// Sets *h to *h + r (a new tensor); returns norm(*h).
pl_tensor pl_rmsnorm_residual(pl_ctx *ctx, pl_tensor *h, pl_tensor r, pl_tensor g, double eps);
// pl_rmsnorm_residual with y given (a slice of a larger tensor).
void      pl_rmsnorm_residual_into(pl_ctx *ctx, pl_tensor y, pl_tensor *h, pl_tensor r, pl_tensor g, double eps);
#endif
