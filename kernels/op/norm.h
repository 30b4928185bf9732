// RMSNorm of rows, and of the heads in rows. A row's bits do not depend on the others. Sums in fp32, fixed order. rstd
// is kept for backward.
#ifndef PL_OP_NORM_H
#define PL_OP_NORM_H
#include "kernels/backend.h"

// ---- rows -----------------------------------------------------------------------------------------------------------

// RMSNorm with residual (Zhang & Sennrich 2019; the pre-norm block of Llama).
//   h[m, :] = x[m, :] + r[m, :]                         (r.data NULL: h = x, not written, h.data may be NULL)
//   y[m, i] = h[m, i] * rstd[m] * g[i],                 rstd[m] = 1 / sqrt(mean_i h[m, i]^2 + eps)
// Backward: with dy and (from later uses of h) dh given,
//   t[m, i]  = dy[m, i] g[i];  c[m] = mean_i(t h) rstd^2
//   dh[m, i] += rstd (t - h c);  dx += dh, dr += dh;  dg[i] += sum_m dy h rstd   (m ascending; GPU: in chunks of 64)
// y may not alias x, r or h. Cost: 4*M*d*size bytes with residual.

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

// ---- heads ----------------------------------------------------------------------------------------------------------

// RMSNorm of each head of queries and keys before rotation (QK-norm, Henry et al. 2020, arXiv 2010.04245, with Qwen3's
// RMSNorm: arXiv 2505.09388, section 2).
//   row m of x is heads of hd elements: nq of queries, nk of keys, then those of values
//   y[m, j, i] = x[m, j, i] rstd[m, j] g[i],     rstd[m, j] = 1 / sqrt(mean_i x[m, j, i]^2 + eps)
//   with g the queries' for j < nq and the keys' for nq <= j < nq + nk; values are copied
// Backward: t[i] = dy[i] g[i], c = mean_i(t x) rstd^2;  dx += rstd (t - x c), for values dx += dy;
//   dg[i] += sum_{m, j} dy x rstd   (m ascending, in it j; GPU: in chunks of 64)
// y may not alias x.

typedef struct pl_headnorm_args {
    pl_tensor y, x;   // [M, heads * hd]
    pl_tensor gq, gk; // [hd] in be->real
    pl_tensor rstd;   // [M, nq + nk] in be->real, no gradient
    int       nq, nk, hd;
    double    eps;
} pl_headnorm_args;

pl_tensor pl_headnorm(pl_ctx *ctx, pl_tensor x, pl_tensor gq, pl_tensor gk, int nq, int nk, double eps);
#endif
