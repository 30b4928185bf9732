#include "kernels/base/dtype.h"
#include "kernels/base/check.h"

#include <math.h>

static const struct {
    const char *name;
    size_t      size;
} types[PL_DTYPE_COUNT] = {
    [PL_F32] = {"F32", 4}, [PL_BF16] = {"BF16", 2},       [PL_F64] = {"F64", 8},         [PL_F16] = {"F16", 2},
    [PL_I32] = {"I32", 4}, [PL_I64] = {"I64", 8},         [PL_U8] = {"U8", 1},           [PL_BOOL] = {"BOOL", 1},
    [PL_I8] = {"I8", 1},   [PL_F8_E4M3] = {"F8_E4M3", 1}, [PL_F8_E8M0] = {"F8_E8M0", 1},
};

size_t pl_dtype_size(pl_dtype t) {
    PL_CHECK((unsigned)t < PL_DTYPE_COUNT, "dtype %d", (int)t);
    return types[t].size;
}

const char *pl_dtype_name(pl_dtype t) {
    PL_CHECK((unsigned)t < PL_DTYPE_COUNT, "dtype %d", (int)t);
    return types[t].name;
}

float pl_f16_to_f32(uint16_t h) {
    uint32_t sign = (uint32_t)(h & 0x8000u) << 16, exp = (h >> 10) & 31u, man = h & 0x3ffu;
    uint32_t u;
    float    f;
    if (exp == 0) {
        // Zero and subnormals: man * 2^-24 is exact in fp32.
        f = (float)man * 0x1p-24f;
        memcpy(&u, &f, 4);
        u |= sign;
    } else if (exp == 31) {
        u = sign | 0x7f800000u | (man << 13) | (man ? 0x00400000u : 0); // a NaN comes out quiet
    } else {
        u = sign | ((exp + 112) << 23) | (man << 13);
    }
    memcpy(&f, &u, 4);
    return f;
}

float pl_f8_e4m3_to_f32(uint8_t b) {
    uint32_t exp = b >> 3 & 15u, man = b & 7u;
    float f = exp == 15 && man == 7 ? NAN : exp == 0 ? ldexpf((float)man, -9) : ldexpf((float)(8 + man), (int)exp - 10);
    return b & 0x80u ? -f : f;
}

float pl_f8_e8m0_to_f32(uint8_t b) {
    return b == 255 ? NAN : ldexpf(1, b - 127);
}

void pl_to_f32(float *dst, const void *src, pl_dtype t, size_t n) {
    const uint8_t *s = src;
    if (n == 0) return;
    switch (t) {
    case PL_F32: memcpy(dst, src, n * sizeof *dst); return;
    case PL_BF16:
        for (size_t i = 0; i < n; i++) {
            uint16_t b;
            memcpy(&b, s + 2 * i, 2);
            dst[i] = pl_bf16_to_f32(b);
        }
        return;
    case PL_F16:
        for (size_t i = 0; i < n; i++) {
            uint16_t h;
            memcpy(&h, s + 2 * i, 2);
            dst[i] = pl_f16_to_f32(h);
        }
        return;
    case PL_F64:
        for (size_t i = 0; i < n; i++) {
            double d;
            memcpy(&d, s + 8 * i, 8);
            dst[i] = (float)d;
        }
        return;
    case PL_F8_E4M3:
        for (size_t i = 0; i < n; i++)
            dst[i] = pl_f8_e4m3_to_f32(s[i]);
        return;
    case PL_F8_E8M0:
        for (size_t i = 0; i < n; i++)
            dst[i] = pl_f8_e8m0_to_f32(s[i]);
        return;
    default: PL_CHECK(0, "no conversion from dtype %d to F32", (int)t);
    }
}

// To nearest, ties to even; beyond the largest finite half: infinity.
static uint16_t f32_to_f16(float f) {
    uint32_t u, sign;
    memcpy(&u, &f, 4);
    sign = u >> 16 & 0x8000u;
    u &= 0x7fffffffu;
    if (u > 0x7f800000u) return (uint16_t)(sign | 0x7e00u | (u >> 13 & 0x1ffu)); // a NaN comes out quiet
    if (u >= 0x47800000u) return (uint16_t)(sign | 0x7c00u);
    if (u < 0x38800000u) { // a subnormal half: a multiple of 2^-24, as fp32's own rounding finds it
        float    size;
        uint32_t whole;
        memcpy(&size, &u, 4);
        size += 0.5f; // whose last place is 2^-24
        memcpy(&whole, &size, 4);
        return (uint16_t)(sign | (whole - 0x3f000000u));
    }
    u += 0xfffu + (u >> 13 & 1); // into the 13 bits that go
    return (uint16_t)(sign | ((u - 0x38000000u) >> 13));
}

void pl_from_f32(void *dst, pl_dtype t, const float *src, size_t n) {
    uint8_t *d = dst;
    if (n == 0) return;
    switch (t) {
    case PL_F32: memcpy(dst, src, n * sizeof *src); return;
    case PL_BF16:
        for (size_t i = 0; i < n; i++) {
            uint16_t b = pl_f32_to_bf16(src[i]);
            memcpy(d + 2 * i, &b, 2);
        }
        return;
    case PL_F16:
        for (size_t i = 0; i < n; i++) {
            uint16_t h = f32_to_f16(src[i]);
            memcpy(d + 2 * i, &h, 2);
        }
        return;
    case PL_F64:
        for (size_t i = 0; i < n; i++) {
            double x = src[i];
            memcpy(d + 8 * i, &x, 8);
        }
        return;
    default: PL_CHECK(0, "no conversion from F32 to dtype %d", (int)t);
    }
}
