#include "kernels/op/headnorm.h"
#include "kernels/ref.h"
#include <tgmath.h>

void PL_REF(headnorm_fwd)(pl_ctx *ctx, const void *args) {
    const pl_headnorm_args *a = args;
    PL_OP_SKIP_IF_MEASURING(ctx);
    int64_t  hd = a->hd, heads = a->y.dim[1] / hd, normed = a->nq + a->nk;
    pl_real *rstd = a->rstd.data;
    for (int64_t m = 0; m < a->y.dim[0]; m++)
        for (int64_t j = 0; j < heads; j++) {
            const pl_real *x = (const pl_real *)a->x.data + (m * heads + j) * hd;
            pl_real       *y = (pl_real *)a->y.data + (m * heads + j) * hd, square = 0;
            if (j >= normed) {
                for (int64_t i = 0; i < hd; i++)
                    y[i] = x[i];
                continue;
            }
            const pl_real *g = j < a->nq ? a->gq.data : a->gk.data;
            for (int64_t i = 0; i < hd; i++)
                square += x[i] * x[i];
            pl_real s = rstd[m * normed + j] = 1 / sqrt(square / (pl_real)hd + (pl_real)a->eps);
            for (int64_t i = 0; i < hd; i++)
                y[i] = x[i] * s * g[i];
        }
}

void PL_REF(headnorm_bwd)(pl_ctx *ctx, const void *args) {
    const pl_headnorm_args *a = args;
    PL_OP_SKIP_IF_MEASURING(ctx);
    if (!a->y.grad) return;
    int64_t hd = a->hd, heads = a->y.dim[1] / hd, normed = a->nq + a->nk;
    for (int64_t m = 0; m < a->y.dim[0]; m++)
        for (int64_t j = 0; j < heads; j++) {
            int64_t        at = (m * heads + j) * hd;
            const pl_real *x = (const pl_real *)a->x.data + at, *dy = (const pl_real *)a->y.grad + at;
            pl_real       *dx = a->x.grad ? (pl_real *)a->x.grad + at : NULL;
            if (j >= normed) {
                for (int64_t i = 0; dx && i < hd; i++)
                    dx[i] += dy[i];
                continue;
            }
            const pl_tensor *gain = j < a->nq ? &a->gq : &a->gk;
            const pl_real   *g = gain->data;
            pl_real         *dg = gain->grad, s = ((const pl_real *)a->rstd.data)[m * normed + j], dot = 0;
            for (int64_t i = 0; i < hd; i++)
                dot += dy[i] * g[i] * x[i];
            pl_real c = dot / (pl_real)hd * s * s;
            for (int64_t i = 0; i < hd; i++) {
                if (dx) dx[i] += s * (dy[i] * g[i] - x[i] * c);
                if (dg) dg[i] += dy[i] * x[i] * s;
            }
        }
}
