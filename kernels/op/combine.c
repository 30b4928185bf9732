#include "kernels/op/combine.h"
#include "kernels/base/check.h"

pl_tensor pl_combine(pl_ctx *ctx, pl_tensor x, pl_tensor weight, const int32_t *slot) {
    PL_CHECK(x.rank == 2 && weight.rank == 2 && x.dtype == ctx->be->real && weight.dtype == ctx->be->real,
             "combine: x %s of rank %d, weight %s of rank %d", pl_dtype_name(x.dtype), x.rank,
             pl_dtype_name(weight.dtype), weight.rank);
    pl_combine_args a = {.x = x, .weight = weight, .slot = slot, .y = pl_ctx_const(ctx, weight.dim[0], x.dim[1])};
    pl_run(ctx, PL_OP_COMBINE, &a, sizeof a);
    return a.y;
}
