#include "kernels/op/round.h"
#include "kernels/base/check.h"

pl_tensor pl_round(pl_ctx *ctx, pl_tensor x) {
    PL_CHECK(x.rank == 2 && x.dtype == ctx->be->real, "round: rank %d, %s", x.rank, pl_dtype_name(x.dtype));
    pl_round_args a = {.x = x, .y = pl_ctx_out(ctx, x.dim[0], x.dim[1], x.grad)};
    pl_run(ctx, PL_OP_ROUND, &a, sizeof a);
    return a.y;
}
