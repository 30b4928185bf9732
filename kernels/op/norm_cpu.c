// RMSNorm on vectors. Every row is summed the same way (four accumulators over 16 lanes, then one tree; a head in two
// accumulators), so its bits depend on the row alone.
#include "kernels/cpu/rows.h"
#include "kernels/op/norm.h"
#include <math.h>

// acc[0..3] over strides of 64, the rest into acc[0], acc[1], ...: term(i, n) gives lanes i..i+n-1, zero past n.
#define SUM_OVER_ROW(sum, d, term)                                                                                     \
    do {                                                                                                               \
        pl_vf   acc_0 = pl_vf_zero(), acc_1 = acc_0, acc_2 = acc_0, acc_3 = acc_0;                                     \
        int64_t at = 0;                                                                                                \
        for (; at + 4 * PL_VL <= (d); at += 4 * PL_VL) {                                                               \
            term(acc_0, at, PL_VL);                                                                                    \
            term(acc_1, at + PL_VL, PL_VL);                                                                            \
            term(acc_2, at + 2 * PL_VL, PL_VL);                                                                        \
            term(acc_3, at + 3 * PL_VL, PL_VL);                                                                        \
        }                                                                                                              \
        for (; at < (d); at += PL_VL) {                                                                                \
            int64_t left = (d)-at < PL_VL ? (d)-at : PL_VL;                                                            \
            term(acc_0, at, left);                                                                                     \
        }                                                                                                              \
        (sum) = pl_vf_hsum(pl_vf_add(pl_vf_add(acc_0, acc_1), pl_vf_add(acc_2, acc_3)));                               \
    } while (0)

static void fwd_row(const pl_rmsnorm_args *a, int64_t m, int64_t d) {
    const float *x = pl_f32(&a->x) + m * d, *g = pl_f32(&a->g), *h = x;
    float       *y = pl_f32(&a->y) + m * d;
    if (a->r.data) {
        const float *r = pl_f32(&a->r) + m * d;
        float       *sum = pl_f32(&a->h) + m * d;
        for (int64_t i = 0; i < d; i += PL_VL) {
            int64_t n = pl_vf_lanes(i, d);
            pl_vf_put(sum + i, pl_vf_add(pl_vf_get(x + i, n), pl_vf_get(r + i, n)), n);
        }
        h = sum;
    }
    float square;
#define TERM(acc, i, n)                                                                                                \
    do {                                                                                                               \
        pl_vf hv = pl_vf_get(h + (i), n);                                                                              \
        acc = pl_vf_fma(hv, hv, acc);                                                                                  \
    } while (0)
    SUM_OVER_ROW(square, d, TERM);
#undef TERM
    float rstd = 1.0f / sqrtf(square / (float)d + (float)a->eps);
    if (a->rstd.data) pl_f32(&a->rstd)[m] = rstd;
    pl_vf scale = pl_vf_set1(rstd);
    for (int64_t i = 0; i < d; i += PL_VL) {
        int64_t n = pl_vf_lanes(i, d);
        pl_vf_put(y + i, pl_vf_mul(pl_vf_mul(pl_vf_get(h + i, n), scale), pl_vf_get(g + i, n)), n);
    }
}

static void fwd_part(void *arg, int part, int parts) {
    const pl_rmsnorm_args *a = arg;
    int64_t                d = pl_tensor_cols(&a->x);
    long                   lo, hi;
    pl_range(pl_tensor_rows(&a->x), 1, part, parts, &lo, &hi);
    for (int64_t m = lo; m < hi; m++)
        fwd_row(a, m, d);
}

void PL_CPU(rmsnorm_fwd)(pl_ctx *ctx, const void *args) {
    PL_OP_SKIP_IF_MEASURING(ctx);
    pl_rmsnorm_args a = *(const pl_rmsnorm_args *)args;
    int64_t         rows = pl_tensor_rows(&a.x);
    pl_parallel(ctx->pool, pl_cpu_parts(ctx, rows, 4.0 * (double)pl_tensor_count(&a.x)), fwd_part, &a);
}

static void bwd_row(const pl_rmsnorm_args *a, int64_t m, int64_t d) {
    const float *h = (a->r.data ? pl_f32(&a->h) : pl_f32(&a->x)) + m * d;
    const float *dy = (const float *)a->y.grad + m * d, *g = pl_f32(&a->g);
    const float *dh = a->r.data && a->h.grad ? (const float *)a->h.grad + m * d : NULL;
    float       *dx = a->x.grad ? (float *)a->x.grad + m * d : NULL;
    float       *dr = a->r.data && a->r.grad ? (float *)a->r.grad + m * d : NULL;
    float        rstd = pl_f32(&a->rstd)[m], th;
#define TERM(acc, i, n)                                                                                                \
    acc = pl_vf_fma(pl_vf_mul(pl_vf_get(dy + (i), n), pl_vf_get(g + (i), n)), pl_vf_get(h + (i), n), acc)
    SUM_OVER_ROW(th, d, TERM);
#undef TERM
    pl_vf c = pl_vf_set1(th / (float)d * rstd * rstd), scale = pl_vf_set1(rstd);
    for (int64_t i = 0; i < d; i += PL_VL) {
        int64_t n = pl_vf_lanes(i, d);
        pl_vf   t = pl_vf_mul(pl_vf_get(dy + i, n), pl_vf_get(g + i, n));
        pl_vf   e = pl_vf_mul(scale, pl_vf_fnma(pl_vf_get(h + i, n), c, t));
        if (dh) e = pl_vf_add(pl_vf_get(dh + i, n), e);
        if (dx) pl_vf_put(dx + i, pl_vf_add(pl_vf_get(dx + i, n), e), n);
        if (dr) pl_vf_put(dr + i, pl_vf_add(pl_vf_get(dr + i, n), e), n);
    }
}

static void bwd_rows_part(void *arg, int part, int parts) {
    const pl_rmsnorm_args *a = arg;
    int64_t                d = pl_tensor_cols(&a->x);
    long                   lo, hi;
    pl_range(pl_tensor_rows(&a->x), 1, part, parts, &lo, &hi);
    for (int64_t m = lo; m < hi; m++)
        bwd_row(a, m, d);
}

// Column by column over all rows, so that dg is one sum in order of m, for any number of threads.
static void bwd_gain_part(void *arg, int part, int parts) {
    const pl_rmsnorm_args *a = arg;
    int64_t                d = pl_tensor_cols(&a->x), rows = pl_tensor_rows(&a->x);
    const float           *h = a->r.data ? pl_f32(&a->h) : pl_f32(&a->x);
    const float           *dy = a->y.grad, *rstd = pl_f32(&a->rstd);
    float                 *dg = a->g.grad;
    long                   lo, hi;
    pl_range(d, 4 * PL_VL, part, parts, &lo, &hi);
    int64_t i = lo;
    for (; i + 4 * PL_VL <= hi; i += 4 * PL_VL) {
        pl_vf s0 = pl_vf_zero(), s1 = s0, s2 = s0, s3 = s0;
        for (int64_t m = 0; m < rows; m++) {
            const float *hm = h + m * d + i, *ym = dy + m * d + i;
            pl_vf        scale = pl_vf_set1(rstd[m]);
            s0 = pl_vf_fma(pl_vf_mul(pl_vf_loadu(ym), pl_vf_loadu(hm)), scale, s0);
            s1 = pl_vf_fma(pl_vf_mul(pl_vf_loadu(ym + 16), pl_vf_loadu(hm + 16)), scale, s1);
            s2 = pl_vf_fma(pl_vf_mul(pl_vf_loadu(ym + 32), pl_vf_loadu(hm + 32)), scale, s2);
            s3 = pl_vf_fma(pl_vf_mul(pl_vf_loadu(ym + 48), pl_vf_loadu(hm + 48)), scale, s3);
        }
        pl_vf_storeu(dg + i, pl_vf_add(pl_vf_loadu(dg + i), s0));
        pl_vf_storeu(dg + i + 16, pl_vf_add(pl_vf_loadu(dg + i + 16), s1));
        pl_vf_storeu(dg + i + 32, pl_vf_add(pl_vf_loadu(dg + i + 32), s2));
        pl_vf_storeu(dg + i + 48, pl_vf_add(pl_vf_loadu(dg + i + 48), s3));
    }
    for (; i < hi; i += PL_VL) {
        int64_t n = pl_vf_lanes(i, hi);
        pl_vf   s = pl_vf_zero();
        for (int64_t m = 0; m < rows; m++)
            s = pl_vf_fma(pl_vf_mul(pl_vf_get(dy + m * d + i, n), pl_vf_get(h + m * d + i, n)), pl_vf_set1(rstd[m]), s);
        pl_vf_put(dg + i, pl_vf_add(pl_vf_get(dg + i, n), s), n);
    }
}

void PL_CPU(rmsnorm_bwd)(pl_ctx *ctx, const void *args) {
    PL_OP_SKIP_IF_MEASURING(ctx);
    pl_rmsnorm_args a = *(const pl_rmsnorm_args *)args;
    if (!a.y.grad) return;
    int64_t rows = pl_tensor_rows(&a.x), d = pl_tensor_cols(&a.x);
    double  work = 8.0 * (double)rows * (double)d;
    if (a.x.grad || a.r.grad) pl_parallel(ctx->pool, pl_cpu_parts(ctx, rows, work), bwd_rows_part, &a);
    if (a.g.grad) pl_parallel(ctx->pool, pl_cpu_parts(ctx, (d + 4 * PL_VL - 1) / (4 * PL_VL), work), bwd_gain_part, &a);
}

// ---- heads: backward is the reference's, as queries and keys are normed in few models -------------------------------

static float norm_head(float *y, const float *x, const float *g, int64_t hd, float eps) {
    pl_vf sum0 = pl_vf_zero(), sum1 = sum0;
    for (int64_t i = 0; i < hd; i += 2 * PL_VL) {
        pl_vf a = pl_vf_get(x + i, pl_vf_lanes(i, hd));
        sum0 = pl_vf_fma(a, a, sum0);
        if (i + PL_VL >= hd) break;
        pl_vf b = pl_vf_get(x + i + PL_VL, pl_vf_lanes(i + PL_VL, hd));
        sum1 = pl_vf_fma(b, b, sum1);
    }
    float rstd = 1.0f / sqrtf(pl_vf_hsum(pl_vf_add(sum0, sum1)) / (float)hd + eps);
    pl_vf scale = pl_vf_set1(rstd);
    for (int64_t i = 0; i < hd; i += PL_VL) {
        int64_t n = pl_vf_lanes(i, hd);
        pl_vf_put(y + i, pl_vf_mul(pl_vf_mul(pl_vf_get(x + i, n), scale), pl_vf_get(g + i, n)), n);
    }
    return rstd;
}

static void heads_part(void *arg, int part, int parts) {
    const pl_headnorm_args *a = arg;
    int64_t                 hd = a->hd, width = pl_tensor_cols(&a->x), normed = a->nq + a->nk;
    long                    lo, hi;
    pl_range(pl_tensor_rows(&a->x), 1, part, parts, &lo, &hi);
    for (int64_t m = lo; m < hi; m++) {
        const float *x = pl_f32(&a->x) + m * width;
        float       *y = pl_f32(&a->y) + m * width, *rstd = pl_f32(&a->rstd) + m * normed;
        for (int64_t j = 0; j < normed; j++)
            rstd[j] = norm_head(y + j * hd, x + j * hd, pl_f32(j < a->nq ? &a->gq : &a->gk), hd, (float)a->eps);
        memcpy(y + normed * hd, x + normed * hd, (size_t)(width - normed * hd) * sizeof *y);
    }
}

void PL_CPU(headnorm_fwd)(pl_ctx *ctx, const void *args) {
    PL_OP_SKIP_IF_MEASURING(ctx);
    pl_headnorm_args a = *(const pl_headnorm_args *)args;
    pl_parallel(ctx->pool, pl_cpu_parts(ctx, pl_tensor_rows(&a.x), 4.0 * (double)pl_tensor_count(&a.x)), heads_part,
                &a);
}
