// Packing shared by the GEMM and the panel product: rows become k-slow columns.
#ifndef PL_CPU_PACK_H
#define PL_CPU_PACK_H

#include "kernels/cpu/simd.h"

// Floats that may be written past the end of a packed block.
#define PL_PACK_SLACK PL_VN_LANES

// dst[k * stride + r] = src[r * ld + k] for r < rows (at most PL_VN_LANES) and k < kc; for r from rows up to
// min(stride, PL_VN_LANES) zeros. Whole vectors are stored in the order of k: when stride is less than a vector the
// next k overwrites what was too much, and the last one spills over the end of the block (PL_PACK_SLACK).
static inline void pl_pack_transposed(float *dst, int64_t stride, const float *src, int64_t ld, int64_t rows,
                                      int64_t kc) {
    int64_t k = 0;
    for (; k + PL_VN_LANES <= kc; k += PL_VN_LANES) {
        pl_vn t[PL_VN_LANES];
        if (rows == PL_VN_LANES) {
#pragma GCC unroll 16
            for (int r = 0; r < PL_VN_LANES; r++)
                t[r] = pl_vn_loadu(src + r * ld + k);
        } else {
#pragma GCC unroll 16
            for (int r = 0; r < PL_VN_LANES; r++)
                t[r] = r < rows ? pl_vn_loadu(src + r * ld + k) : pl_vn_set1(0.0f);
        }
        pl_vn_transpose(t);
#pragma GCC unroll 16
        for (int r = 0; r < PL_VN_LANES; r++)
            pl_vn_storeu(dst + (k + r) * stride, t[r]);
    }
    int64_t width = stride < PL_VN_LANES ? stride : PL_VN_LANES;
    for (; k < kc; k++)
        for (int64_t r = 0; r < width; r++)
            dst[k * stride + r] = r < rows ? src[r * ld + k] : 0.0f;
}

#endif
