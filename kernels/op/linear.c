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

// Where element (n, k) lies in a packed matrix, in elements.
static size_t panel_index(pl_dtype t, int64_t n, int64_t k, int64_t cols) {
    size_t line = ((size_t)n / PL_PANEL * (size_t)cols + (size_t)k) * PL_PANEL;
    return line + pl_panel_place(t, n % PL_PANEL, PL_PANEL);
}

size_t pl_panels_bytes(int64_t n, int64_t k, pl_dtype t) {
    PL_CHECK(n >= 0 && k >= 0 && (t == PL_F32 || t == PL_BF16), "panels of [%lld, %lld] %s", (long long)n, (long long)k,
             pl_dtype_name(t));
    return pl_size_mul(((size_t)n + PL_PANEL - 1) / PL_PANEL * PL_PANEL, (size_t)k, pl_dtype_size(t));
}

void pl_panels_pack(void *dst, pl_dtype t, int64_t n0, int64_t count, int64_t n, int64_t k, const float *src) {
    PL_CHECK(t == PL_F32 || t == PL_BF16, "panels of %s", pl_dtype_name(t));
    PL_CHECK(n0 >= 0 && count >= 0 && n0 + count <= n, "rows %lld..%lld of %lld", (long long)n0,
             (long long)(n0 + count), (long long)n);
    for (int64_t from = n0; from < n0 + count;) {
        int64_t to = (from / PL_PANEL + 1) * PL_PANEL;
        if (to > n0 + count) to = n0 + count;
        uint8_t *panel = (uint8_t *)dst + panel_index(t, from / PL_PANEL * PL_PANEL, 0, k) * pl_dtype_size(t);
        pl_panel_pack(panel, t, PL_PANEL, from % PL_PANEL, to - from, k, src + (from - n0) * k);
        from = to;
    }
}

// A transposition: blocks of BLOCK columns, so that the lines written stay in the first-level cache.
void pl_panel_pack(void *panel, pl_dtype t, int width, int64_t row0, int64_t count, int64_t k, const float *src) {
    enum { BLOCK = 16 };
    for (int64_t k0 = 0; k0 < k; k0 += BLOCK) {
        int64_t columns = k - k0 < BLOCK ? k - k0 : BLOCK;
        for (int64_t row = 0; row < count; row++) {
            const float *s = src + row * k + k0;
            size_t       at = (size_t)k0 * (size_t)width + pl_panel_place(t, row0 + row, width);
            for (int64_t i = 0; i < columns; i++, at += (size_t)width) {
                if (t == PL_F32)
                    ((float *)panel)[at] = s[i];
                else
                    ((uint16_t *)panel)[at] = pl_f32_to_bf16(s[i]);
            }
        }
    }
}

float pl_panels_at(const void *panels, pl_dtype t, int64_t n, int64_t k, int64_t cols) {
    size_t at = panel_index(t, n, k, cols);
    return t == PL_F32 ? ((const float *)panels)[at] : pl_bf16_to_f32(((const uint16_t *)panels)[at]);
}

void pl_panels_row(float *dst, const void *panels, pl_dtype t, int64_t n, int64_t cols) {
    for (int64_t k = 0; k < cols; k++)
        dst[k] = pl_panels_at(panels, t, n, k, cols);
}
