// Tensor cores of the emulated device, as tests ask them.
#ifndef PL_CUDA_EMULATE_MMA_H
#define PL_CUDA_EMULATE_MMA_H

#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

// What a lane brings to a product (kernels/cuda/device.cuh, pl_mma_bf16): a and b; d, which becomes the sum.
typedef struct pl_emu_fragments {
    uint32_t factor[6];
    float    d[4], unused[6];
} pl_emu_fragments;

// d += A B of a warp, summed as the tensor cores of sm_80, or of sm_90 and sm_100, do.
void pl_emu_multiply(pl_emu_fragments lane[32], int sm);

// What n such sums in a chain may be off by, relative to the largest sum of magnitudes on the way: each cuts off its
// addends below 2^-24 (sm_80, 9 of them, twice) or 2^-25 (17) of the largest, and itself to fp32. Always toward zero,
// so this grows with n where rounding grows with its root.
static inline double pl_emu_multiply_error(int sm, int n) {
    return n * (sm < 90 ? 2 * (9 * 0x1p-24 + 0x1p-23) : 17 * 0x1p-25 + 0x1p-23);
}

#ifdef __cplusplus
}
#endif

#endif
