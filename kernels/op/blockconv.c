#include "kernels/op/blockconv.h"
#include "kernels/base/check.h"

pl_tensor pl_blockconv(pl_ctx *ctx, pl_tensor x, pl_tensor kernel, pl_tensor base, int side, int block, int group) {
    PL_CHECK(x.rank == 2 && kernel.rank == 2 && base.rank == 1 && (side == 0 || side == 1) && block > 0 && group > 0 &&
                 x.dim[1] % group == 0 && x.dim[0] % block == 0 && kernel.dim[0] == x.dim[0],
             "blockconv: %lld rows of %lld in groups of %d and blocks of %d, side %d", (long long)x.dim[0],
             (long long)x.dim[1], group, block, side);
    int64_t taps = base.dim[0] / (2 * x.dim[1]);
    PL_CHECK(taps >= 1 && taps <= block && base.dim[0] == 2 * taps * x.dim[1] &&
                 kernel.dim[1] == 2 * taps * (x.dim[1] / group),
             "blockconv: base of %lld, kernels of %lld for %lld channels in groups of %d", (long long)base.dim[0],
             (long long)kernel.dim[1], (long long)x.dim[1], group);
    PL_CHECK(x.dtype == ctx->be->real && kernel.dtype == ctx->be->real && base.dtype == ctx->be->real,
             "blockconv: x %s, kernels %s, base %s", pl_dtype_name(x.dtype), pl_dtype_name(kernel.dtype),
             pl_dtype_name(base.dtype));
    pl_blockconv_args a = {
        .x = x, .kernel = kernel, .base = base, .side = side, .block = block, .group = group, .taps = (int)taps};
    a.y = pl_ctx_out(ctx, x.dim[0], x.dim[1], x.grad || kernel.grad || base.grad);
    pl_run(ctx, PL_OP_BLOCKCONV, &a, sizeof a);
    return a.y;
}
