// SwiGLU on vectors. The tail of a row runs the same arithmetic on padded lanes, so an element's bits do not depend on
// its column.
#include "kernels/op/swiglu_cpu.h"
#include "kernels/cpu/rows.h"
#include "kernels/op/swiglu.h"

enum { EXP_FLOPS = 20 };

// 1 / (1 + exp(-z))
PL_INLINE pl_vf sigmoid(pl_vf z) {
    const pl_vf one = pl_vf_set1(1.0f);
    return pl_vf_div(one, pl_vf_add(one, pl_vf_exp(pl_vf_sub(pl_vf_zero(), z))));
}

// 2 sqrt(2 / pi) (g + 0.044715 g^3)
PL_INLINE pl_vf gelu_angle(pl_vf g) {
    pl_vf cubic = pl_vf_fma(pl_vf_mul(pl_vf_mul(g, g), pl_vf_set1((float)PL_GELU_TANH_CUBE)), g, g);
    return pl_vf_mul(pl_vf_set1((float)PL_GELU_TANH_TWICE), cubic);
}

PL_INLINE pl_vf at_most(pl_vf x, pl_vf most) {
    return pl_vf_select_gt(x, most, most, x); // NaN passes
}

PL_INLINE pl_vf clamped(pl_vf g, pl_vf u) {
    const pl_vf most = pl_vf_set1((float)PL_CLAMPED_LIMIT), alpha = pl_vf_set1((float)PL_CLAMPED_ALPHA);
    g = at_most(g, most);
    u = pl_vf_max(pl_vf_sub(pl_vf_zero(), most), at_most(u, most));
    return pl_vf_mul(pl_vf_mul(g, sigmoid(pl_vf_mul(alpha, g))), pl_vf_add(u, pl_vf_set1(1.0f)));
}

PL_INLINE pl_vf gated(const pl_gate gate, pl_vf g, pl_vf u) {
    if (gate == PL_GATE_CLAMPED) return clamped(g, u);
    if (gate == PL_GATE_GELU_TANH) return pl_vf_mul(pl_vf_mul(g, sigmoid(gelu_angle(g))), u);
    pl_vf below = pl_vf_add(pl_vf_set1(1.0f), pl_vf_exp(pl_vf_sub(pl_vf_zero(), g)));
    return pl_vf_mul(pl_vf_div(g, below), u);
}

PL_INLINE void gate_rows(const pl_gate gate, float *y, int64_t ldy, const float *g, int64_t ld, int64_t up,
                         int64_t rows, int64_t n) {
    for (int64_t r = 0; r < rows; r++, y += ldy, g += ld) {
        int64_t i = 0;
        for (; i + PL_VL <= n; i += PL_VL)
            pl_vf_storeu(y + i, gated(gate, pl_vf_loadu(g + i), pl_vf_loadu(g + up + i)));
        if (i < n) pl_vf_put(y + i, gated(gate, pl_vf_get(g + i, n - i), pl_vf_get(g + up + i, n - i)), n - i);
    }
}

void pl_gate_rows(pl_gate gate, float *y, int64_t ldy, const float *g, int64_t ld, int64_t up, int64_t rows,
                  int64_t n) {
    switch (gate) {
    case PL_GATE_SILU: gate_rows(PL_GATE_SILU, y, ldy, g, ld, up, rows, n); break;
    case PL_GATE_GELU_TANH: gate_rows(PL_GATE_GELU_TANH, y, ldy, g, ld, up, rows, n); break;
    case PL_GATE_CLAMPED: gate_rows(PL_GATE_CLAMPED, y, ldy, g, ld, up, rows, n); break;
    }
}

static void fwd_part(void *arg, int part, int parts) {
    const pl_swiglu_args *a = arg;
    int64_t               width = pl_tensor_cols(&a->y), rows = pl_tensor_rows(&a->y);
    // Ranges of whole vectors of the [rows, width] matrix: one wide row is split as well as many narrow ones.
    int64_t               per_row = (width + PL_VL - 1) / PL_VL;
    long                  lo, hi;
    pl_range(rows * per_row, 1, part, parts, &lo, &hi);
    for (int64_t v = lo, end; v < hi; v = end) {
        int64_t m = v / per_row, i = (v - m * per_row) * PL_VL;
        end = (m + 1) * per_row < hi ? (m + 1) * per_row : hi;
        int64_t n = (end - v) * PL_VL < width - i ? (end - v) * PL_VL : width - i;
        pl_gate_rows(a->gate, pl_f32(&a->y) + m * width + i, 0, pl_f32(&a->gu) + m * 2 * width + i, 0, width, 1, n);
    }
}

void PL_CPU(swiglu_fwd)(pl_ctx *ctx, const void *args) {
    PL_OP_SKIP_IF_MEASURING(ctx);
    pl_swiglu_args a = *(const pl_swiglu_args *)args;
    int64_t        n = pl_tensor_count(&a.y);
    pl_parallel(ctx->pool, pl_cpu_parts(ctx, n, EXP_FLOPS * (double)n), fwd_part, &a);
}

// s + g s' of GELU's tanh form.
PL_INLINE pl_vf gelu_slope(pl_vf g, pl_vf s) {
    const pl_vf one = pl_vf_set1(1.0f), cube = pl_vf_set1((float)(3 * PL_GELU_TANH_CUBE));
    pl_vf       angle = pl_vf_mul(pl_vf_set1((float)PL_GELU_TANH_TWICE), pl_vf_fma(pl_vf_mul(g, g), cube, one));
    return pl_vf_mul(s, pl_vf_fma(pl_vf_mul(g, pl_vf_sub(one, s)), angle, one));
}

static void bwd_part(void *arg, int part, int parts) {
    const pl_swiglu_args *a = arg;
    int64_t               width = pl_tensor_cols(&a->y);
    const pl_vf           one = pl_vf_set1(1.0f);
    bool                  gelu = a->gate == PL_GATE_GELU_TANH;
    long                  lo, hi;
    pl_range(pl_tensor_rows(&a->y), 1, part, parts, &lo, &hi);
    for (int64_t m = lo; m < hi; m++) {
        const float *g = pl_f32(&a->gu) + m * 2 * width, *u = g + width, *dy = (const float *)a->y.grad + m * width;
        float       *dg = (float *)a->gu.grad + m * 2 * width, *du = dg + width;
        for (int64_t i = 0; i < width; i += PL_VL) {
            int64_t n = pl_vf_lanes(i, width);
            pl_vf   gv = pl_vf_get(g + i, n), dyv = pl_vf_get(dy + i, n), s = sigmoid(gelu ? gelu_angle(gv) : gv);
            pl_vf   slope = gelu ? gelu_slope(gv, s) : pl_vf_mul(s, pl_vf_fma(gv, pl_vf_sub(one, s), one));
            pl_vf_put(dg + i, pl_vf_fma(pl_vf_mul(dyv, pl_vf_get(u + i, n)), slope, pl_vf_get(dg + i, n)), n);
            pl_vf_put(du + i, pl_vf_fma(pl_vf_mul(dyv, gv), s, pl_vf_get(du + i, n)), n);
        }
    }
}

void PL_CPU(swiglu_bwd)(pl_ctx *ctx, const void *args) {
    PL_OP_SKIP_IF_MEASURING(ctx);
    pl_swiglu_args a = *(const pl_swiglu_args *)args;
    if (!a.y.grad || !a.gu.grad) return;
    int64_t n = pl_tensor_count(&a.y);
    pl_parallel(ctx->pool, pl_cpu_parts(ctx, pl_tensor_rows(&a.y), EXP_FLOPS * (double)n), bwd_part, &a);
}
