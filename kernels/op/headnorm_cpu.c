// Heads on vectors: each is one sum in two accumulators, then one tree, so a row's bits depend on the row alone.
// Backward is the reference's: drafters are trained, and targets' queries and keys are normed in few models.
#include "kernels/cpu/rows.h"
#include "kernels/op/headnorm.h"
#include <math.h>

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

static void fwd_part(void *arg, int part, int parts) {
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
    pl_parallel(ctx->pool, pl_cpu_parts(ctx, pl_tensor_rows(&a.x), 4.0 * (double)pl_tensor_count(&a.x)), fwd_part, &a);
}
