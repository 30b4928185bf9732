// AdamW and the squared norm: bound by memory, so plain loops that the compiler vectorises, on every thread.
#include "kernels/cpu/rows.h"
#include "kernels/op/adamw.h"
#include <math.h>

typedef struct adamw_job {
    const pl_adamw_args *a;
    float                lr, b1, b2, b1c, b2c, c1, c2, eps, decay, scale; // b1c = 1 - b1
} adamw_job;

// As pl_round_bf16, but without a branch, so that the loop around it can be vectorised.
PL_INLINE float round_bf16(float f) {
    uint32_t u, nan, r;
    memcpy(&u, &f, 4);
    nan = (u & 0x7fffffffu) > 0x7f800000u ? 0xffffffffu : 0u;
    r = (((u + 0x7fffu + ((u >> 16) & 1u)) & ~nan) | ((u | 0x00400000u) & nan)) & 0xffff0000u;
    memcpy(&f, &r, 4);
    return f;
}

typedef enum work_kind { WORK_IS_W, WORK_COPY, WORK_BF16 } work_kind;

PL_INLINE void update(const adamw_job *j, float *restrict w, float *restrict m, float *restrict v, float *restrict work,
                      const float *restrict grad, int64_t n, work_kind kind) {
    const adamw_job k = *j;
    for (int64_t i = 0; i < n; i++) {
        float g = grad[i] * k.scale;
        float mi = k.b1 * m[i] + k.b1c * g;
        float vi = k.b2 * v[i] + k.b2c * g * g;
        float wi = w[i] - k.lr * ((mi / k.c1) / (sqrtf(vi / k.c2) + k.eps) + k.decay * w[i]);
        m[i] = mi;
        v[i] = vi;
        w[i] = wi;
        if (kind != WORK_IS_W) work[i] = kind == WORK_BF16 ? round_bf16(wi) : wi;
    }
}

static void adamw_part(void *arg, int part, int parts) {
    const adamw_job     *j = arg;
    const pl_adamw_args *a = j->a;
    long                 lo, hi;
    pl_range(a->n, 1024, part, parts, &lo, &hi);
    float *w = (float *)a->w + lo, *m = (float *)a->m + lo, *v = (float *)a->v + lo, *work = (float *)a->work + lo;
    const float *grad = (const float *)a->grad + lo;
    // A call with a constant for each kind keeps the choice out of the loop.
    if (a->round_to == PL_BF16)
        update(j, w, m, v, work, grad, hi - lo, WORK_BF16);
    else if (work == w)
        update(j, w, m, v, NULL, grad, hi - lo, WORK_IS_W);
    else
        update(j, w, m, v, work, grad, hi - lo, WORK_COPY);
    for (long i = 0; i < hi - lo && a->work16; i++)
        a->work16[lo + i] = pl_f32_to_bf16(work[i]);
}

void PL_CPU(adamw_fwd)(pl_ctx *ctx, const void *args) {
    PL_OP_SKIP_IF_MEASURING(ctx);
    const pl_adamw_args *a = args;
    adamw_job            j = {.a = a,
                              .lr = (float)a->lr,
                              .b1 = (float)a->beta1,
                              .b2 = (float)a->beta2,
                              .b1c = (float)(1.0 - a->beta1),
                              .b2c = (float)(1.0 - a->beta2),
                              .c1 = (float)(1.0 - pow(a->beta1, (double)a->step)),
                              .c2 = (float)(1.0 - pow(a->beta2, (double)a->step)),
                              .eps = (float)a->eps,
                              .decay = (float)a->decay,
                              .scale = (float)a->grad_scale};
    pl_parallel(ctx->pool, pl_cpu_parts(ctx, (a->n + 1023) / 1024, 16.0 * (double)a->n), adamw_part, &j);
}

typedef struct sumsq_job {
    const float *x;
    double      *chunk;
    int64_t      n, chunks;
} sumsq_job;

static double chunk_sum(const float *x, int64_t n) {
    double  lane[PL_VL] = {0};
    int64_t i = 0;
    for (; i + PL_VL <= n; i += PL_VL)
        for (int k = 0; k < PL_VL; k++)
            lane[k] += (double)x[i + k] * (double)x[i + k];
    for (int k = 0; i < n; i++, k++)
        lane[k] += (double)x[i] * (double)x[i];
    for (int step = PL_VL / 2; step > 0; step /= 2)
        for (int k = 0; k < step; k++)
            lane[k] += lane[k + step];
    return lane[0];
}

static void sumsq_part(void *arg, int part, int parts) {
    sumsq_job *j = arg;
    long       lo, hi;
    pl_range(j->chunks, 1, part, parts, &lo, &hi);
    for (int64_t c = lo; c < hi; c++) {
        int64_t at = c * PL_SUMSQ_CHUNK, left = j->n - at;
        j->chunk[c] = chunk_sum(j->x + at, left < PL_SUMSQ_CHUNK ? left : PL_SUMSQ_CHUNK);
    }
}

void PL_CPU(sumsq_fwd)(pl_ctx *ctx, const void *args) {
    const pl_sumsq_args *a = args;
    int64_t              chunks = pl_sumsq_chunks(a->n);
    size_t               mark = pl_arena_mark(&ctx->scratch);
    sumsq_job            j = {.x = a->x, .n = a->n, .chunks = chunks};
    j.chunk = a->chunks ? a->chunks : pl_arena_alloc(&ctx->scratch, (size_t)(chunks + 1) * sizeof(double));
    if (!ctx->measuring) {
        pl_parallel(ctx->pool, pl_cpu_parts(ctx, chunks, 2.0 * (double)a->n), sumsq_part, &j);
        if (!a->chunks) *a->out = pl_sumsq_tree(j.chunk, chunks);
    }
    pl_arena_release(&ctx->scratch, mark);
}
