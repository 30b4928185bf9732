#include "kernels/op/gather.h"
#include "kernels/base/check.h"

pl_tensor pl_gather(pl_ctx *ctx, pl_tensor x, const int32_t *index, int64_t n) {
    pl_tensor y = pl_ctx_out(ctx, n, x.dim[1], x.grad);
    pl_gather_to(ctx, y, x, index);
    return y;
}

void pl_gather_to(pl_ctx *ctx, pl_tensor y, pl_tensor x, const int32_t *index) {
    PL_CHECK(x.rank == 2 && x.dtype == ctx->be->real, "gather: rank %d, %s", x.rank, pl_dtype_name(x.dtype));
    PL_CHECK(y.rank == 2 && y.dtype == x.dtype && y.dim[1] == x.dim[1], "gather: %lld columns to %lld",
             (long long)x.dim[1], (long long)y.dim[1]);
    pl_gather_args a = {.x = x, .index = index, .y = y};
    pl_run(ctx, PL_OP_GATHER, &a, sizeof a);
}
