#include "kernels/op/bias.h"
#include "kernels/base/check.h"

pl_tensor pl_bias(pl_ctx *ctx, pl_tensor x, pl_tensor b) {
    PL_CHECK(x.rank == 2 && b.rank == 1 && x.dim[1] == b.dim[0], "bias: x [%lld, %lld], b [%lld]", (long long)x.dim[0],
             (long long)x.dim[1], (long long)b.dim[0]);
    PL_CHECK(x.dtype == ctx->be->real && b.dtype == ctx->be->real, "bias: x %s, b %s", pl_dtype_name(x.dtype),
             pl_dtype_name(b.dtype));
    pl_bias_args a = {.x = x, .b = b, .y = pl_ctx_out(ctx, x.dim[0], x.dim[1], x.grad || b.grad)};
    pl_run(ctx, PL_OP_BIAS, &a, sizeof a);
    return a.y;
}
