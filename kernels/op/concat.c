#include "kernels/op/concat.h"
#include "kernels/base/check.h"

pl_tensor pl_concat(pl_ctx *ctx, pl_tensor x, pl_tensor z) {
    PL_CHECK(x.rank == 2 && z.rank == 2 && x.dim[0] == z.dim[0], "concat: %lld and %lld rows", (long long)x.dim[0],
             (long long)z.dim[0]);
    PL_CHECK((x.dtype == ctx->be->real || ((x.dtype == PL_BF16 || x.dtype == PL_F32) && !x.grad)) &&
                 z.dtype == ctx->be->real && x.layout == PL_ROWMAJOR,
             "concat: %s and %s", pl_dtype_name(x.dtype), pl_dtype_name(z.dtype));
    pl_concat_args a = {.a = x, .b = z, .y = pl_ctx_out(ctx, x.dim[0], x.dim[1] + z.dim[1], x.grad || z.grad)};
    pl_run(ctx, PL_OP_CONCAT, &a, sizeof a);
    return a.y;
}
