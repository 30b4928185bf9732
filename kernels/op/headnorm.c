#include "kernels/op/headnorm.h"
#include "kernels/base/check.h"

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
