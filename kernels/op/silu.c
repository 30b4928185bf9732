#include "kernels/op/silu.h"
#include "kernels/base/check.h"

pl_tensor pl_silu(pl_ctx *ctx, pl_tensor x) {
    PL_CHECK(x.rank == 2 && x.dtype == ctx->be->real, "silu: [%lld, %lld] %s", (long long)x.dim[0], (long long)x.dim[1],
             pl_dtype_name(x.dtype));
    pl_silu_args a = {.x = x, .y = pl_ctx_out(ctx, x.dim[0], x.dim[1], x.grad)};
    pl_run(ctx, PL_OP_SILU, &a, sizeof a);
    return a.y;
}
