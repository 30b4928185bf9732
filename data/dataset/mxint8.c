#include "data/dataset/mxint8.h"

#include "kernels/base/dtype.h"

#include <math.h>
#include <string.h>

enum { BYTES = PL_MXINT8_BLOCK + 1, NOT_FINITE = 255, MOST = 127 };

size_t pl_mxint8_bytes(int64_t d) {
    return (size_t)((d + PL_MXINT8_BLOCK - 1) / PL_MXINT8_BLOCK) * BYTES;
}

// A 64th of a scale.
static double step(int scale) {
    return ldexp(1, scale - 127 - 6);
}

static void encode_block(uint8_t *to, const uint16_t *x, int64_t n) {
    int scale = 0;
    for (int64_t i = 0; i < n; i++) {
        int exponent = x[i] >> 7 & 0xFF;
        if (exponent > scale) scale = exponent;
    }
    memset(to, 0, BYTES);
    to[0] = (uint8_t)scale;
    if (scale == NOT_FINITE) return;
    double per = 1 / step(scale);
    for (int64_t i = 0; i < n; i++) {
        double q = nearbyint((double)pl_bf16_to_f32(x[i]) * per);
        int8_t of = (int8_t)(q > MOST ? MOST : q < -MOST ? -MOST : q);
        memcpy(to + 1 + i, &of, 1);
    }
}

static void decode_block(uint16_t *x, const uint8_t *from, int64_t n) {
    double of = from[0] == NOT_FINITE ? NAN : step(from[0]);
    for (int64_t i = 0; i < n; i++) {
        int8_t q;
        memcpy(&q, from + 1 + i, 1);
        x[i] = pl_f32_to_bf16((float)(q * of));
    }
}

void pl_mxint8_encode(uint8_t *to, const uint16_t *bf16, int64_t d) {
    for (int64_t i = 0; i < d; i += PL_MXINT8_BLOCK, to += BYTES)
        encode_block(to, bf16 + i, d - i < PL_MXINT8_BLOCK ? d - i : PL_MXINT8_BLOCK);
}

void pl_mxint8_decode(uint16_t *bf16, const uint8_t *from, int64_t d) {
    for (int64_t i = 0; i < d; i += PL_MXINT8_BLOCK, from += BYTES)
        decode_block(bf16 + i, from, d - i < PL_MXINT8_BLOCK ? d - i : PL_MXINT8_BLOCK);
}
