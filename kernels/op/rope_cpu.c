// Rotary embedding: plain loops over the two halves of a head, written so that the compiler makes vectors of them.
#include "kernels/base/check.h"
#include "kernels/cpu/rows.h"
#include "kernels/op/rope.h"

typedef struct rope_job {
    pl_rope_args a;
    float       *x;
    float        sign; // of the angle: 1 forward, -1 backward
} rope_job;

static void rotate(float *restrict lo, float *restrict hi, const float *restrict c, const float *restrict s, int half,
                   float sign) {
    for (int i = 0; i < half; i++) {
        float a = lo[i], b = hi[i], si = sign * s[i];
        lo[i] = a * c[i] - b * si;
        hi[i] = b * c[i] + a * si;
    }
}

static void part(void *arg, int index, int parts) {
    const rope_job     *j = arg;
    const pl_rope_args *a = &j->a;
    int64_t             width = pl_tensor_cols(&a->qkv), half = pl_tensor_cols(&a->cos);
    long                lo, hi;
    pl_range(pl_tensor_rows(&a->qkv), 1, index, parts, &lo, &hi);
    for (int64_t m = lo; m < hi; m++) {
        int64_t pos = (int64_t)a->pos[m] + a->offset;
        PL_CHECK(pos >= 0 && pos < a->cos.dim[0], "rope: position %lld of %lld", (long long)pos,
                 (long long)a->cos.dim[0]);
        const float *c = pl_f32(&a->cos) + pos * half, *s = pl_f32(&a->sin) + pos * half;
        float       *v = j->x + m * width;
        for (int h = 0; h < a->n_rot; h++, v += a->hd)
            rotate(v, v + half, c, s, (int)half, j->sign);
        const int64_t kv = j->x + (m + 1) * width - v; // the rest are values
        if (a->row && j->sign > 0) pl_rope_keep(&a->row[m], v - kv, kv, PL_F32);
    }
}

static void run(pl_ctx *ctx, const pl_rope_args *a, void *x, float sign) {
    rope_job j = {.a = *a, .x = x, .sign = sign};
    int64_t  rows = pl_tensor_rows(&a->qkv);
    if (!x) return;
    pl_parallel(ctx->pool, pl_cpu_parts(ctx, rows, 3.0 * (double)rows * a->n_rot * a->hd), part, &j);
}

void PL_CPU(rope_fwd)(pl_ctx *ctx, const void *args) {
    PL_OP_SKIP_IF_MEASURING(ctx);
    const pl_rope_args *a = args;
    run(ctx, a, a->qkv.data, 1.0f);
}

void PL_CPU(rope_bwd)(pl_ctx *ctx, const void *args) {
    PL_OP_SKIP_IF_MEASURING(ctx);
    const pl_rope_args *a = args;
    run(ctx, a, a->qkv.grad, -1.0f);
}
