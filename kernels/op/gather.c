#include "kernels/op/gather.h"
#include "kernels/base/check.h"

pl_tensor pl_gather(pl_ctx *ctx, pl_tensor x, const int32_t *index, int64_t n) {
    PL_CHECK(x.rank == 2 && x.dtype == ctx->be->real, "gather: rank %d, %s", x.rank, pl_dtype_name(x.dtype));
    pl_gather_args a = {.x = x, .index = index, .y = pl_ctx_out(ctx, n, x.dim[1], x.grad)};
    pl_run(ctx, PL_OP_GATHER, &a, sizeof a);
    return a.y;
}
