#include "kernels/op/linear.h"
#include "kernels/base/check.h"
#include "kernels/codes.h"

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

static void check_plain(const pl_ctx *ctx, const pl_tensor *x, const pl_tensor *w) {
    PL_CHECK(w->layout != PL_GATED, "linear: a weight with a gate beside up is pl_linear_gated's");
    check_shapes(ctx, x, w);
}

pl_tensor pl_linear(pl_ctx *ctx, pl_tensor x, pl_tensor w) {
    check_plain(ctx, &x, &w);
    pl_linear_args a = {.x = x, .w = w, .y = pl_ctx_out(ctx, x.dim[0], w.dim[0], x.grad || w.grad)};
    pl_run(ctx, PL_OP_LINEAR, &a, sizeof a);
    return a.y;
}

void pl_linear_into(pl_ctx *ctx, pl_tensor y, pl_tensor x, pl_tensor w) {
    check_plain(ctx, &x, &w);
    PL_CHECK(y.rank == 2 && y.dim[0] == x.dim[0] && y.dim[1] == w.dim[0] && y.dtype == ctx->be->real,
             "linear: y [%lld, %lld] %s for [%lld, %lld]", (long long)y.dim[0], (long long)y.dim[1],
             pl_dtype_name(y.dtype), (long long)x.dim[0], (long long)w.dim[0]);
    pl_linear_args a = {.x = x, .w = w, .y = y};
    pl_run(ctx, PL_OP_LINEAR, &a, sizeof a);
}

pl_cost pl_linear_cost(int64_t m, const pl_tensor *w) {
    double n = (double)w->dim[0], k = (double)w->dim[1], rows = (double)m;
    double weights = w->code ? (double)pl_codes_bytes(w->dim[0], w->dim[1], w->code)
                             : n * k * (double)pl_dtype_size(w->dtype);
    return (pl_cost){.bytes = weights + rows * (k + n) * 4, .flops = 2 * rows * n * k};
}

// Returns true if the product of a packed weight and its gate are one op on this backend.
static bool in_one(const pl_ctx *ctx, const pl_tensor *w) {
    return (w->layout == PL_PANELS || w->layout == PL_GATED) && ctx->be->fwd[PL_OP_GATEDLINEAR];
}

static pl_tensor gated(pl_ctx *ctx, pl_tensor x, pl_tensor w, pl_tensor down, pl_gate gate) {
    check_shapes(ctx, &x, &w);
    PL_CHECK(w.dim[0] % 2 == 0, "linear: a gate and up of %lld rows", (long long)w.dim[0]);
    int64_t             n = down.data ? down.dim[0] : w.dim[0] / 2;
    pl_gatedlinear_args a = {.x = x, .w = w, .down = down, .gate = gate, .y = pl_ctx_out(ctx, x.dim[0], n, false)};
    pl_run(ctx, PL_OP_GATEDLINEAR, &a, sizeof a);
    return a.y;
}

pl_tensor pl_linear_gated(pl_ctx *ctx, pl_tensor x, pl_tensor w, pl_gate gate) {
    if (in_one(ctx, &w)) return gated(ctx, x, w, (pl_tensor){0}, gate);
    return pl_gated(ctx, pl_linear(ctx, x, w), gate);
}

pl_tensor pl_mlp(pl_ctx *ctx, pl_tensor x, pl_tensor w, pl_tensor down, pl_gate gate) {
    if (!in_one(ctx, &w) || down.layout != PL_PANELS || down.dtype != w.dtype)
        return pl_linear(ctx, pl_linear_gated(ctx, x, w, gate), down);
    PL_CHECK(down.rank == 2 && w.dim[0] == 2 * down.dim[1], "mlp: gate and up of %lld rows, down of %lld columns",
             (long long)w.dim[0], (long long)down.dim[1]);
    return gated(ctx, x, w, down, gate);
}

// A matrix in scratch between two ops.
static pl_tensor between(pl_ctx *ctx, int64_t rows, int64_t cols) {
    pl_dtype t = ctx->be->real;
    size_t   bytes = pl_size_mul((size_t)rows, (size_t)cols, pl_dtype_size(t));
    return pl_tensor_2d(pl_arena_alloc(&ctx->scratch, bytes), t, rows, cols);
}

void pl_gatedlinear_by_parts(pl_ctx *ctx, const pl_gatedlinear_args *a) {
    size_t    mark = pl_arena_mark(&ctx->scratch);
    int64_t   m = a->x.dim[0], n = a->w.dim[0];
    pl_tensor sums = between(ctx, m, n), z = a->down.data ? between(ctx, m, n / 2) : a->y;
    ctx->be->fwd[PL_OP_LINEAR](ctx, &(pl_linear_args){.x = a->x, .w = a->w, .y = sums});
    ctx->be->fwd[PL_OP_SWIGLU](ctx, &(pl_swiglu_args){.gu = sums, .gate = a->gate, .y = z});
    if (a->down.data) ctx->be->fwd[PL_OP_LINEAR](ctx, &(pl_linear_args){.x = z, .w = a->down, .y = a->y});
    pl_arena_release(&ctx->scratch, mark);
}
