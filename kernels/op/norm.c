#include "kernels/op/norm.h"
#include "kernels/base/check.h"

static void check_shapes(const pl_ctx *ctx, const pl_tensor *x, const pl_tensor *g) {
    PL_CHECK(x->rank == 2 && g->rank == 1 && x->dim[1] == g->dim[0], "rmsnorm: x [%lld, %lld], g [%lld]",
             (long long)x->dim[0], (long long)x->dim[1], (long long)g->dim[0]);
    PL_CHECK(x->dtype == ctx->be->real && g->dtype == ctx->be->real, "rmsnorm: x %s, g %s", pl_dtype_name(x->dtype),
             pl_dtype_name(g->dtype));
}

pl_tensor pl_rmsnorm(pl_ctx *ctx, pl_tensor x, pl_tensor g, double eps) {
    check_shapes(ctx, &x, &g);
    pl_rmsnorm_args a = {.x = x, .g = g, .eps = eps};
    a.y = pl_ctx_out(ctx, x.dim[0], x.dim[1], x.grad || g.grad);
    a.rstd = pl_ctx_const_1d(ctx, x.dim[0]);
    pl_run(ctx, PL_OP_RMSNORM, &a, sizeof a);
    return a.y;
}

// y.data NULL: a new tensor.
static pl_tensor add_and_norm(pl_ctx *ctx, pl_tensor y, pl_tensor *h, pl_tensor r, pl_tensor g, double eps) {
    check_shapes(ctx, h, &g);
    PL_CHECK(r.rank == 2 && r.dim[0] == h->dim[0] && r.dim[1] == h->dim[1] && r.dtype == h->dtype,
             "rmsnorm: h [%lld, %lld], r [%lld, %lld]", (long long)h->dim[0], (long long)h->dim[1], (long long)r.dim[0],
             (long long)r.dim[1]);
    PL_CHECK(!y.data || (y.rank == 2 && y.dim[0] == h->dim[0] && y.dim[1] == h->dim[1] && y.dtype == h->dtype),
             "rmsnorm: y [%lld, %lld] for h [%lld, %lld]", (long long)y.dim[0], (long long)y.dim[1],
             (long long)h->dim[0], (long long)h->dim[1]);
    pl_rmsnorm_args a = {.y = y, .x = *h, .r = r, .g = g, .eps = eps};
    bool            carries = h->grad || r.grad;
    a.h = pl_ctx_out(ctx, h->dim[0], h->dim[1], carries);
    if (!y.data) a.y = pl_ctx_out(ctx, h->dim[0], h->dim[1], carries || g.grad);
    a.rstd = pl_ctx_const_1d(ctx, h->dim[0]);
    pl_run(ctx, PL_OP_RMSNORM, &a, sizeof a);
    *h = a.h;
    return a.y;
}

pl_tensor pl_rmsnorm_residual(pl_ctx *ctx, pl_tensor *h, pl_tensor r, pl_tensor g, double eps) {
    return add_and_norm(ctx, (pl_tensor){0}, h, r, g, eps);
}

void pl_rmsnorm_residual_into(pl_ctx *ctx, pl_tensor y, pl_tensor *h, pl_tensor r, pl_tensor g, double eps) {
    PL_CHECK(y.data, "rmsnorm: no place for y %d", y.rank);
    add_and_norm(ctx, y, h, r, g, eps);
}

pl_tensor pl_headnorm(pl_ctx *ctx, pl_tensor x, pl_tensor gq, pl_tensor gk, int nq, int nk, double eps) {
    int64_t hd = gq.dim[0];
    PL_CHECK(x.rank == 2 && gq.rank == 1 && gk.rank == 1 && gk.dim[0] == hd && nq >= 0 && nk >= 0 && hd >= 1 &&
                 x.dim[1] % hd == 0 && (nq + nk) * hd <= x.dim[1],
             "headnorm: x [%lld, %lld], g [%lld] and [%lld], %d and %d heads", (long long)x.dim[0], (long long)x.dim[1],
             (long long)hd, (long long)gk.dim[0], nq, nk);
    PL_CHECK(x.dtype == ctx->be->real && gq.dtype == ctx->be->real && gk.dtype == ctx->be->real,
             "headnorm: x %s, g %s and %s", pl_dtype_name(x.dtype), pl_dtype_name(gq.dtype), pl_dtype_name(gk.dtype));
    pl_headnorm_args a = {.x = x, .gq = gq, .gk = gk, .nq = nq, .nk = nk, .hd = (int)hd, .eps = eps};
    a.y = pl_ctx_out(ctx, x.dim[0], x.dim[1], x.grad || gq.grad || gk.grad);
    a.rstd = pl_ctx_const_1d(ctx, x.dim[0] * (nq + nk));
    pl_run(ctx, PL_OP_HEADNORM, &a, sizeof a);
    return a.y;
}
