#include "kernels/op/squash.h"
#include "kernels/base/check.h"

pl_tensor pl_squash(pl_ctx *ctx, pl_squash_kind kind, pl_tensor x, int64_t from, int64_t n, pl_tensor y) {
    PL_CHECK(x.rank == 2 && x.dtype == ctx->be->real && from >= 0 && n >= 1 && from + n <= x.dim[1],
             "squash: columns %lld and %lld behind it of [%lld, %lld] %s", (long long)from, (long long)n,
             (long long)x.dim[0], (long long)x.dim[1], pl_dtype_name(x.dtype));
    if (!y.data) y = pl_ctx_out(ctx, x.dim[0], n, x.grad);
    PL_CHECK(y.rank == 2 && y.dim[0] == x.dim[0] && y.dim[1] == n && y.dtype == x.dtype, "squash: to [%lld, %lld] %s",
             (long long)y.dim[0], (long long)y.dim[1], pl_dtype_name(y.dtype));
    pl_squash_args a = {.y = y, .x = x, .from = from, .kind = kind};
    pl_run(ctx, PL_OP_SQUASH, &a, sizeof a);
    return y;
}
