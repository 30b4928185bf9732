#include "kernels/op/rmsnorm.h"
#include "kernels/ref.h"
#include <tgmath.h>

void PL_REF(rmsnorm_fwd)(pl_ctx *ctx, const void *args) {
    const pl_rmsnorm_args *a = args;
    PL_OP_SKIP_IF_MEASURING(ctx);
    int64_t        rows = a->y.dim[0], d = a->y.dim[1];
    const pl_real *g = a->g.data;
    for (int64_t m = 0; m < rows; m++) {
        const pl_real *h = (const pl_real *)a->x.data + m * d;
        pl_real       *y = (pl_real *)a->y.data + m * d;
        if (a->r.data) {
            const pl_real *r = (const pl_real *)a->r.data + m * d;
            pl_real       *sum = (pl_real *)a->h.data + m * d;
            for (int64_t i = 0; i < d; i++)
                sum[i] = h[i] + r[i];
            h = sum;
        }
        pl_real square = 0;
        for (int64_t i = 0; i < d; i++)
            square += h[i] * h[i];
        pl_real rstd = 1 / sqrt(square / (pl_real)d + (pl_real)a->eps);
        for (int64_t i = 0; i < d; i++)
            y[i] = h[i] * rstd * g[i];
        ((pl_real *)a->rstd.data)[m] = rstd;
    }
}

void PL_REF(rmsnorm_bwd)(pl_ctx *ctx, const void *args) {
    const pl_rmsnorm_args *a = args;
    PL_OP_SKIP_IF_MEASURING(ctx);
    if (!a->y.grad) return;
    int64_t        rows = a->y.dim[0], d = a->y.dim[1];
    const pl_real *g = a->g.data;
    pl_real       *dg = a->g.grad;
    for (int64_t m = 0; m < rows; m++) {
        const pl_real *h = (const pl_real *)(a->r.data ? a->h.data : a->x.data) + m * d;
        const pl_real *dy = (const pl_real *)a->y.grad + m * d;
        // The gradient that later uses of h have left goes on to x and r together with this norm's share.
        const pl_real *dh = a->r.data && a->h.grad ? (const pl_real *)a->h.grad + m * d : NULL;
        pl_real       *dx = a->x.grad ? (pl_real *)a->x.grad + m * d : NULL;
        pl_real       *dr = a->r.grad ? (pl_real *)a->r.grad + m * d : NULL;
        pl_real        rstd = ((const pl_real *)a->rstd.data)[m], dot = 0;
        for (int64_t i = 0; i < d; i++)
            dot += dy[i] * g[i] * h[i];
        pl_real c = dot / (pl_real)d * rstd * rstd;
        for (int64_t i = 0; i < d; i++) {
            pl_real v = rstd * (dy[i] * g[i] - h[i] * c) + (dh ? dh[i] : 0);
            if (dx) dx[i] += v;
            if (dr) dr[i] += v;
            if (dg) dg[i] += dy[i] * h[i] * rstd;
        }
    }
}
