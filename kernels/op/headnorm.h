// RMSNorm of each head of queries and keys before rotation (QK-norm, Henry et al. 2020, arXiv 2010.04245, with Qwen3's
// RMSNorm: arXiv 2505.09388, section 2).
//   row m of x is heads of hd elements: nq of queries, nk of keys, then those of values
//   y[m, j, i] = x[m, j, i] rstd[m, j] g[i],     rstd[m, j] = 1 / sqrt(mean_i x[m, j, i]^2 + eps)
//   with g the queries' for j < nq and the keys' for nq <= j < nq + nk; values are copied
// Backward: t[i] = dy[i] g[i], c = mean_i(t x) rstd^2;  dx += rstd (t - x c), for values dx += dy;
//   dg[i] += sum_{m, j} dy x rstd   (m ascending, in it j; GPU: in chunks of 64)
// A row's bits do not depend on the others. Sums in fp32, fixed order. rstd is kept for backward. y may not alias x.
#ifndef PL_OP_HEADNORM_H
#define PL_OP_HEADNORM_H
#include "kernels/backend.h"

typedef struct pl_headnorm_args {
    pl_tensor y, x;   // [M, heads * hd]
    pl_tensor gq, gk; // [hd] in be->real
    pl_tensor rstd;   // [M, nq + nk] in be->real, no gradient
    int       nq, nk, hd;
    double    eps;
} pl_headnorm_args;

pl_tensor pl_headnorm(pl_ctx *ctx, pl_tensor x, pl_tensor gq, pl_tensor gk, int nq, int nk, double eps);
#endif
