// Element types and the conversions between them.
#ifndef PL_DTYPE_H
#define PL_DTYPE_H

#include <stddef.h>
#include <stdint.h>
#include <string.h>

typedef enum pl_dtype {
    PL_F32,
    PL_BF16,
    PL_F64,
    PL_F16,
    PL_I32,
    PL_I64,
    PL_U8,
    PL_BOOL,
    PL_I8,
    PL_F8_E4M3, // 4 exponent bits of bias 7, 3 of mantissa; no infinities, 0x7f and 0xff are NaN (arXiv:2209.05433)
    PL_F8_E8M0, // 2^(byte - 127), 255 is NaN (Open Compute Project, Microscaling Formats 1.0)
    PL_DTYPE_COUNT
} pl_dtype;

size_t      pl_dtype_size(pl_dtype t);
const char *pl_dtype_name(pl_dtype t); // "F32", "BF16", ... as safetensors spells them

// bf16 is the upper half of an fp32.
static inline float pl_bf16_to_f32(uint16_t b) {
    uint32_t u = (uint32_t)b << 16;
    float    f;
    memcpy(&f, &u, 4);
    return f;
}

// Round to nearest, ties to even; NaN stays a (quiet) NaN.
static inline uint16_t pl_f32_to_bf16(float f) {
    uint32_t u;
    memcpy(&u, &f, 4);
    if ((u & 0x7fffffffu) > 0x7f800000u) return (uint16_t)((u >> 16) | 0x0040u);
    return (uint16_t)((u + 0x7fffu + ((u >> 16) & 1u)) >> 16);
}

// The nearest bf16, as a float: what a bf16 working copy computes with.
static inline float pl_round_bf16(float f) {
    return pl_bf16_to_f32(pl_f32_to_bf16(f));
}

float pl_f16_to_f32(uint16_t h);
float pl_f8_e4m3_to_f32(uint8_t b);
float pl_f8_e8m0_to_f32(uint8_t b);

// n elements of any float type (F32, BF16, F16, F64, F8_E4M3, F8_E8M0) to float. src need not be aligned (a map).
void pl_to_f32(float *dst, const void *src, pl_dtype t, size_t n);
// n floats to F32, BF16 or F64.
void pl_from_f32(void *dst, pl_dtype t, const float *src, size_t n);

#endif
