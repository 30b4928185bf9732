// Included first by every kernels/op/*_ref.c. These files are compiled with -DPL_REF_SUFFIX=ref32 -DPL_REF_REAL=float
// and, for tests, once more with -DPL_REF_SUFFIX=ref64 -DPL_REF_REAL=double; both with -ffp-contract=off, so that the
// operations are those of the source. They are the oracle: plain loops, no cleverness, one thread.
#ifndef PL_REF_H
#define PL_REF_H

#include "kernels/backend.h"
#include "kernels/base/check.h"
#include "kernels/codes.h"
#include "kernels/panels.h"
#include "kernels/segments.h"

#include <float.h>
#include <tgmath.h>

typedef PL_REF_REAL pl_real;

#define PL_REF_JOIN_2(name, suffix) pl_##name##_##suffix
#define PL_REF_JOIN(name, suffix) PL_REF_JOIN_2(name, suffix)
#define PL_REF(name) PL_REF_JOIN(name, PL_REF_SUFFIX) // PL_REF(linear_fwd) is pl_linear_fwd_ref32
#define PL_REAL_DTYPE (sizeof(pl_real) == sizeof(float) ? PL_F32 : PL_F64)

#define PL_REF_BWD_0(name)
#define PL_REF_BWD_1(name) void PL_REF(name##_bwd)(pl_ctx * ctx, const void *args);
#define X(NAME, name, backward)                                                                                        \
    void PL_REF(name##_fwd)(pl_ctx * ctx, const void *args);                                                           \
    PL_REF_BWD_##backward(name)
#include "kernels/ops.def"
#undef X

// Element i of an array of any float type; the array may be unaligned (a mapped file).
static inline pl_real pl_ref_load(const void *p, pl_dtype t, int64_t i) {
    float    f;
    double   d;
    uint16_t h;
    switch (t) {
    case PL_F32: memcpy(&f, (const char *)p + i * 4, 4); return (pl_real)f;
    case PL_F64: memcpy(&d, (const char *)p + i * 8, 8); return (pl_real)d;
    case PL_BF16: memcpy(&h, (const char *)p + i * 2, 2); return (pl_real)pl_bf16_to_f32(h);
    default: PL_CHECK(0, "no reference arithmetic on %s", pl_dtype_name(t));
    }
    return 0;
}

// W[n, k] of a matrix in any layout.
static inline pl_real pl_ref_weight(const pl_tensor *w, int64_t n, int64_t k) {
    if (w->layout == PL_SEGMENTS) {
        int64_t  segment = 0;
        pl_panel p = pl_panel_of(w, n, &segment);
        return pl_ref_load((const char *)w->data + p.at, w->dtype,
                           (int64_t)pl_panel_place(w->dtype, n - p.first, k, p.width));
    }
    if (w->layout == PL_GATED) n = pl_gated_place(n, w->dim[0]);
    if (w->code) return (pl_real)pl_codes_at(w->data, w->code, n, k, w->dim[1]);
    if (w->layout == PL_PANELS || w->layout == PL_GATED)
        return (pl_real)pl_panels_at(w->data, w->dtype, n, k, w->dim[1]);
    return pl_ref_load(w->data, w->dtype, n * w->dim[1] + k);
}

// As matrix units have it in fp32: what is less than the least normal number is zero.
static inline pl_real pl_ref_flush(pl_real v) {
    return fabs(v) < (pl_real)FLT_MIN ? copysign((pl_real)0, v) : v;
}

// sum_k x[k] W[n, k] in the order that inference's products keep on every cpu, to the bit (kernels/cpu/panels.h).
static inline pl_real pl_ref_dot(const pl_tensor *w, int64_t n, const pl_real *x) {
    int64_t K = w->dim[1];
    pl_real sum = 0;
    if (w->dtype != PL_BF16) {
        for (int64_t k = 0; k < K; k++)
            sum = fma(x[k], pl_ref_weight(w, n, k), sum);
        return sum;
    }
    for (int64_t k0 = 0; k0 < K; k0 += 32) {
        pl_real part[2] = {0, 0};
        for (int64_t k = k0; k < k0 + 32; k++) {
            pl_real a = k < K ? (pl_real)pl_round_bf16((float)x[k]) : 0, b = k < K ? pl_ref_weight(w, n, k) : 0;
            part[k % 2] = pl_ref_flush(fma(pl_ref_flush(a), pl_ref_flush(b), part[k % 2]));
        }
        sum = pl_ref_flush(sum + pl_ref_flush(part[0] + part[1]));
    }
    return sum;
}

#endif
