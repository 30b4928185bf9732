// What the row-wise cpu ops share: how they split work over the pool, and vectors at the end of a row.
#ifndef PL_CPU_ROWS_H
#define PL_CPU_ROWS_H

#include "kernels/backend.h"
#include "kernels/cpu/simd.h"

// Below this much work (flops, or bytes for copying ops) waking the pool costs more than it saves.
#define PL_CPU_SMALL 100000.0

// One even part per thread, at most `items`; 1 for small work. No result may depend on it.
static inline int pl_cpu_parts(const pl_ctx *ctx, int64_t items, double work) {
    int threads = pl_pool_threads(ctx->pool);
    if (work < PL_CPU_SMALL || items <= 1) return 1;
    return items < threads ? (int)items : threads;
}

// Lanes of the vector at element i of a row of n.
PL_INLINE int64_t pl_vf_lanes(int64_t i, int64_t n) {
    return n - i < PL_VL ? n - i : PL_VL;
}

// As loadu and storeu, for 1 to 16 lanes; missing lanes load as zero.
PL_INLINE pl_vf pl_vf_get(const float *p, int64_t lanes) {
    return lanes == PL_VL ? pl_vf_loadu(p) : pl_vf_load_n(p, lanes, 0.0f);
}

// The same of bf16, as floats.
PL_INLINE pl_vf pl_vf_widen(const uint16_t *p, int64_t lanes) {
    typedef uint16_t half __attribute__((vector_size(PL_VN_LANES * 2)));
    uint16_t         some[PL_VL] = {0};
    pl_vf            r;
    if (lanes < PL_VL) p = memcpy(some, p, (size_t)lanes * sizeof *p);
#pragma GCC unroll 4
    for (int i = 0; i < PL_VF_PARTS; i++) {
        half h;
        memcpy(&h, p + i * PL_VN_LANES, sizeof h);
        r.p[i] = (pl_vn)(__builtin_convertvector(h, pl_vnu) << 16);
    }
    return r;
}

PL_INLINE void pl_vf_put(float *p, pl_vf v, int64_t lanes) {
    if (lanes == PL_VL)
        pl_vf_storeu(p, v);
    else
        pl_vf_store_n(p, v, lanes);
}

#endif
