#include "kernels/op/mul.h"
#include "kernels/base/check.h"

pl_tensor pl_mul(pl_ctx *ctx, pl_tensor a, pl_tensor b) {
    PL_CHECK(a.rank == 2 && b.rank == 2 && a.dim[0] == b.dim[0] && a.dim[1] == b.dim[1] && a.dtype == ctx->be->real &&
                 b.dtype == ctx->be->real,
             "mul: [%lld, %lld] %s by [%lld, %lld] %s", (long long)a.dim[0], (long long)a.dim[1],
             pl_dtype_name(a.dtype), (long long)b.dim[0], (long long)b.dim[1], pl_dtype_name(b.dtype));
    pl_mul_args args = {.a = a, .b = b, .y = pl_ctx_out(ctx, a.dim[0], a.dim[1], a.grad || b.grad)};
    pl_run(ctx, PL_OP_MUL, &args, sizeof args);
    return args.y;
}
