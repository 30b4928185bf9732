#include "kernels/op/linear.h"
#include "kernels/base/check.h"

static void check_shapes(const pl_ctx *ctx, const pl_tensor *x, const pl_tensor *w) {
    PL_CHECK(x->rank == 2 && w->rank == 2 && x->dim[1] == w->dim[1], "linear: x [%lld, %lld], W [%lld, %lld]",
             (long long)x->dim[0], (long long)x->dim[1], (long long)w->dim[0], (long long)w->dim[1]);
    PL_CHECK(x->dtype == ctx->be->real && x->layout == PL_ROWMAJOR, "linear: x is %s, layout %d",
             pl_dtype_name(x->dtype), (int)x->layout);
    PL_CHECK(w->layout != PL_SEGMENTS, "linear: a weight that is packed by segments is read by headtopk and gatherdot");
    PL_CHECK(w->layout == PL_ROWMAJOR || w->dtype == PL_F32 || w->dtype == PL_BF16, "linear: panels of %s",
             pl_dtype_name(w->dtype));
    PL_CHECK(!w->grad || (w->layout == PL_ROWMAJOR && w->dtype == ctx->be->real),
             "linear: a gradient needs a row-major weight in %s", pl_dtype_name(ctx->be->real));
    PL_CHECK(w->layout == PL_ROWMAJOR || !x->grad || !pl_ctx_recording(ctx),
             "linear: packed weights are for inference, no gradient goes through %s panels", pl_dtype_name(w->dtype));
}

pl_tensor pl_linear(pl_ctx *ctx, pl_tensor x, pl_tensor w) {
    check_shapes(ctx, &x, &w);
    pl_linear_args a = {.x = x, .w = w, .y = pl_ctx_out(ctx, x.dim[0], w.dim[0], x.grad || w.grad)};
    pl_run(ctx, PL_OP_LINEAR, &a, sizeof a);
    return a.y;
}

void pl_linear_into(pl_ctx *ctx, pl_tensor y, pl_tensor x, pl_tensor w) {
    check_shapes(ctx, &x, &w);
    PL_CHECK(y.rank == 2 && y.dim[0] == x.dim[0] && y.dim[1] == w.dim[0] && y.dtype == ctx->be->real,
             "linear: y [%lld, %lld] %s for [%lld, %lld]", (long long)y.dim[0], (long long)y.dim[1],
             pl_dtype_name(y.dtype), (long long)x.dim[0], (long long)w.dim[0]);
    pl_linear_args a = {.x = x, .w = w, .y = y};
    pl_run(ctx, PL_OP_LINEAR, &a, sizeof a);
}

pl_cost pl_linear_cost(int64_t m, const pl_tensor *w) {
    double n = (double)w->dim[0], k = (double)w->dim[1], rows = (double)m;
    return (pl_cost){.bytes = n * k * (double)pl_dtype_size(w->dtype) + rows * (k + n) * 4, .flops = 2 * rows * n * k};
}
