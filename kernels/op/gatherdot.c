#include "kernels/op/gatherdot.h"
#include "kernels/base/check.h"

pl_tensor pl_gatherdot(pl_ctx *ctx, pl_tensor x, pl_tensor w, const int32_t *id, int64_t n) {
    PL_CHECK(x.rank == 2 && w.rank == 2 && x.dtype == ctx->be->real && x.layout == PL_ROWMAJOR && x.dim[1] == w.dim[1],
             "gatherdot: x %s [%lld, %lld], w [%lld, %lld]", pl_dtype_name(x.dtype), (long long)x.dim[0],
             (long long)x.dim[1], (long long)w.dim[0], (long long)w.dim[1]);
    PL_CHECK(w.layout == PL_ROWMAJOR || w.dtype == PL_F32 || w.dtype == PL_BF16, "gatherdot: panels of %s",
             pl_dtype_name(w.dtype));
    bool grad = x.grad || w.grad;
    PL_CHECK(!grad || !pl_ctx_recording(ctx) || w.layout == PL_ROWMAJOR, "gatherdot: gradients of panels");
    pl_gatherdot_args a = {.x = x, .w = w, .id = id, .y = pl_ctx_out(ctx, x.dim[0], n, grad)};
    pl_run(ctx, PL_OP_GATHERDOT, &a, sizeof a);
    return a.y;
}
