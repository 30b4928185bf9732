// Soft cap on vectors; the tail of the last one runs the same arithmetic on padded lanes.
#include "kernels/cpu/rows.h"
#include "kernels/op/elementwise.h"

enum { TANH_FLOPS = 30 };

static void part(void *arg, int index, int parts) {
    const pl_softcap_args *a = arg;
    int64_t                n = pl_tensor_count(&a->x);
    pl_vf                  cap = pl_vf_set1((float)a->cap);
    float                 *x = pl_f32(&a->x);
    long                   lo, hi;
    pl_range((n + PL_VL - 1) / PL_VL, 1, index, parts, &lo, &hi);
    for (int64_t i = lo * PL_VL; i < hi * PL_VL; i += PL_VL) {
        int64_t lanes = pl_vf_lanes(i, n);
        pl_vf_put(x + i, pl_vf_mul(cap, pl_vf_tanh(pl_vf_div(pl_vf_get(x + i, lanes), cap))), lanes);
    }
}

void PL_CPU(softcap_fwd)(pl_ctx *ctx, const void *args) {
    PL_OP_SKIP_IF_MEASURING(ctx);
    pl_softcap_args a = *(const pl_softcap_args *)args;
    int64_t         n = pl_tensor_count(&a.x);
    pl_parallel(ctx->pool, pl_cpu_parts(ctx, (n + PL_VL - 1) / PL_VL, TANH_FLOPS * (double)n), part, &a);
}
