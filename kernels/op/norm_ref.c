#include "kernels/op/norm.h"
#include "kernels/ref.h"

// Writes y = x rstd g and returns rstd.
static pl_real norm(pl_real *y, const pl_real *x, const pl_real *g, int64_t n, double eps) {
    pl_real square = 0;
    for (int64_t i = 0; i < n; i++)
        square += x[i] * x[i];
    pl_real rstd = 1 / sqrt(square / (pl_real)n + (pl_real)eps);
    for (int64_t i = 0; i < n; i++)
        y[i] = x[i] * rstd * g[i];
    return rstd;
}

// Adds the gradient of norm's x to dx and dr, with dh, which later uses of x have left, and that of g to dg. dh, dx, dr
// and dg may be NULL.
static void norm_bwd(pl_real *dx, pl_real *dr, pl_real *dg, const pl_real *dy, const pl_real *dh, const pl_real *x,
                     const pl_real *g, pl_real rstd, int64_t n) {
    pl_real dot = 0;
    for (int64_t i = 0; i < n; i++)
        dot += dy[i] * g[i] * x[i];
    pl_real c = dot / (pl_real)n * rstd * rstd;
    for (int64_t i = 0; i < n; i++) {
        pl_real v = rstd * (dy[i] * g[i] - x[i] * c) + (dh ? dh[i] : 0);
        if (dx) dx[i] += v;
        if (dr) dr[i] += v;
        if (dg) dg[i] += dy[i] * x[i] * rstd;
    }
}

void PL_REF(rmsnorm_fwd)(pl_ctx *ctx, const void *args) {
    const pl_rmsnorm_args *a = args;
    PL_OP_SKIP_IF_MEASURING(ctx);
    int64_t rows = a->y.dim[0], d = a->y.dim[1];
    for (int64_t m = 0; m < rows; m++) {
        const pl_real *h = (const pl_real *)a->x.data + m * d;
        if (a->r.data) {
            const pl_real *r = (const pl_real *)a->r.data + m * d;
            pl_real       *sum = (pl_real *)a->h.data + m * d;
            for (int64_t i = 0; i < d; i++)
                sum[i] = h[i] + r[i];
            h = sum;
        }
        ((pl_real *)a->rstd.data)[m] = norm((pl_real *)a->y.data + m * d, h, a->g.data, d, a->eps);
    }
}

static pl_real *at(void *p, int64_t i) {
    return p ? (pl_real *)p + i : NULL;
}

void PL_REF(rmsnorm_bwd)(pl_ctx *ctx, const void *args) {
    const pl_rmsnorm_args *a = args;
    PL_OP_SKIP_IF_MEASURING(ctx);
    if (!a->y.grad) return;
    int64_t rows = a->y.dim[0], d = a->y.dim[1];
    for (int64_t i = 0; i < rows * d; i += d)
        norm_bwd(at(a->x.grad, i), at(a->r.grad, i), a->g.grad, at(a->y.grad, i), a->r.data ? at(a->h.grad, i) : NULL,
                 at(a->r.data ? a->h.data : a->x.data, i), a->g.data, ((const pl_real *)a->rstd.data)[i / d], d);
}

void PL_REF(headnorm_fwd)(pl_ctx *ctx, const void *args) {
    const pl_headnorm_args *a = args;
    PL_OP_SKIP_IF_MEASURING(ctx);
    int64_t  hd = a->hd, heads = a->y.dim[1] / hd, normed = a->nq + a->nk;
    pl_real *rstd = a->rstd.data;
    for (int64_t m = 0; m < a->y.dim[0]; m++)
        for (int64_t j = 0; j < heads; j++) {
            const pl_real *x = at(a->x.data, (m * heads + j) * hd);
            pl_real       *y = at(a->y.data, (m * heads + j) * hd);
            if (j < normed)
                rstd[m * normed + j] = norm(y, x, j < a->nq ? a->gq.data : a->gk.data, hd, a->eps);
            else
                memcpy(y, x, (size_t)hd * sizeof *y);
        }
}

void PL_REF(headnorm_bwd)(pl_ctx *ctx, const void *args) {
    const pl_headnorm_args *a = args;
    PL_OP_SKIP_IF_MEASURING(ctx);
    if (!a->y.grad) return;
    int64_t        hd = a->hd, heads = a->y.dim[1] / hd, normed = a->nq + a->nk;
    const pl_real *rstd = a->rstd.data;
    for (int64_t m = 0; m < a->y.dim[0]; m++)
        for (int64_t j = 0; j < heads; j++) {
            int64_t          i = (m * heads + j) * hd;
            const pl_tensor *g = j < a->nq ? &a->gq : &a->gk;
            const pl_real   *dy = at(a->y.grad, i);
            pl_real         *dx = at(a->x.grad, i);
            if (j < normed) norm_bwd(dx, NULL, g->grad, dy, NULL, at(a->x.data, i), g->data, rstd[m * normed + j], hd);
            for (int64_t k = 0; dx && j >= normed && k < hd; k++)
                dx[k] += dy[k];
        }
}
