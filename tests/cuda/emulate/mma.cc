// Tensor cores, as they were found to sum (arXiv 2511.10909, arXiv 2512.07004): products are exact; they and what is
// added to are aligned to the largest exponent among them and cut off `fraction` bits below it, their sum is exact and
// cut off to fp32. sm_80 takes 8 products at a time and keeps 24 bits, sm_90 and sm_100 take 16 and keep 25.
#include "tests/cuda/emulate/mma.h"
#include <cmath>
#include <string.h>

extern "C" {
#include "kernels/base/dtype.h"
}

namespace {
typedef float    floats __attribute__((vector_size(32))); // the 8 columns of a product
typedef int32_t  ints __attribute__((vector_size(32)));
typedef uint32_t words __attribute__((vector_size(32)));

constexpr int ROWS = 16, COLUMNS = 8, DEPTH = 16;

struct factors {
    float  a[ROWS][DEPTH], a_power[ROWS][DEPTH]; // values and 2^exponent, 0 for 0
    floats b[DEPTH], b_power[DEPTH];
    bool   some[ROWS]; // values other than 0
};

#define INLINE inline __attribute__((always_inline)) // into the copy for wider vectors too

INLINE uint32_t bits_of(float f) {
    uint32_t u;
    memcpy(&u, &f, 4);
    return u;
}

INLINE float float_of(uint32_t u) {
    float f;
    memcpy(&f, &u, 4);
    return f;
}

// An ordinary number whose products with others like it, and sums of those, stay far from fp32's ends.
INLINE bool plain(float f) {
    uint32_t e = bits_of(f) >> 23 & 255;
    return (e - (127 - 59) < 2 * 59 + 1) | (bits_of(f) << 1 == 0);
}

// One output with any numbers in it, slowly.
float sum_any(float c, const float *a, const floats *b, int column, int products, int fraction) {
    int    most = -126, e;
    double kept = 0, scale;
    bool   finite = std::isfinite(c);
    for (int k = 0; k < products; k++)
        finite &= std::isfinite(a[k]) && std::isfinite(b[k][column]);
    if (!finite) {
        for (int k = 0; k < products; k++)
            c += a[k] * b[k][column];
        return c;
    }
    if (c != 0 && (e = std::ilogb(c)) > most) most = e;
    for (int k = 0; k < products; k++)
        if (a[k] != 0 && b[k][column] != 0 && (e = std::ilogb(a[k]) + std::ilogb(b[k][column])) > most) most = e;
    scale = std::ldexp(1.0, fraction - most);
    for (int k = 0; k < products; k++)
        kept += std::trunc((double)a[k] * b[k][column] * scale);
    kept = (kept + std::trunc(c * scale)) / scale;
    float out = (float)kept;
    return std::fabs((double)out) > std::fabs(kept) ? std::nextafterf(out, 0) : out;
}

// A row of outputs whose numbers are all plain: each a sum in integers of 2^(exponent - fraction).
INLINE floats sum_row(floats c, const float *a, const float *a_power, const floats *b, const floats *b_power,
                      int products, int fraction) {
    floats most = (floats)((words)c & 0x7f800000u), p[DEPTH];
    for (int k = 0; k < products; k++) {
        floats e = a_power[k] * b_power[k];
        p[k] = a[k] * b[k];
        most = e > most ? e : most;
    }
    most = most > 0x1p-120f ? most : floats{} + 0x1p-120f; // all are zero
    floats scale = (floats)((words)(ints{} + ((254 + fraction) << 23)) - (words)most);
    ints   low = {}, high = {}; // 8 of less than 4 each, so that 25 bits below fit
    for (int k = 0; k < products / 2; k++) {
        low += __builtin_convertvector(p[k] * scale, ints);
        high += __builtin_convertvector(p[products / 2 + k] * scale, ints);
    }
    const double unit = fraction == 24 ? 0x1p-24 : 0x1p-25;
    ints         own = __builtin_convertvector(c * scale, ints);
    floats       out;
    for (int n = 0; n < COLUMNS; n++) {
        double   sum = (double)((int64_t)low[n] + high[n] + own[n]) * ((double)most[n] * unit);
        uint64_t u;
        memcpy(&u, &sum, 8);
        u &= ~(uint64_t)0x1fffffff; // toward zero
        memcpy(&sum, &u, 8);
        out[n] = (float)sum;
    }
    return out;
}

INLINE void multiply(pl_emu_fragments *lane, int sm) {
    const int fraction = sm < 90 ? 24 : 25, at_once = sm < 90 ? 8 : 16;
    factors   f;
    bool      ordinary = true;
    for (int i = 0; i < 32; i++) { // d = A B + d: lane 4g + t has what device.cuh says
        const int g = i / 4, t = i % 4;
        for (int w = 0; w < 6; w++)
            for (int half = 0; half < 2; half++) {
                const int   k = 2 * t + half + (w < 4 ? w / 2 : w - 4) * 8;
                const float value = pl_bf16_to_f32((uint16_t)(lane[i].factor[w] >> (16 * half)));
                if (w < 4)
                    f.a[g + w % 2 * 8][k] = value;
                else
                    f.b[k][g] = value;
            }
    }
    for (int row = 0; row < ROWS; row++) {
        f.some[row] = false;
        for (int k = 0; k < DEPTH; k++) {
            f.a_power[row][k] = float_of(bits_of(f.a[row][k]) & 0x7f800000u);
            ordinary &= plain(f.a[row][k]);
            f.some[row] |= f.a[row][k] != 0;
        }
    }
    for (int k = 0; k < DEPTH; k++) {
        f.b_power[k] = (floats)((words)f.b[k] & 0x7f800000u);
        for (int n = 0; n < COLUMNS; n++)
            ordinary &= plain(f.b[k][n]);
    }
    for (int row = 0; row < ROWS; row++) {
        if (!f.some[row] && ordinary) continue; // padding: nothing is added
        floats c;
        for (int n = 0; n < COLUMNS; n++)
            c[n] = lane[row % 8 * 4 + n / 2].d[row / 8 * 2 + n % 2];
        bool fast = ordinary;
        for (int n = 0; n < COLUMNS; n++)
            fast &= plain(c[n]);
        for (int k = 0; k < DEPTH; k += at_once)
            if (fast)
                c = sum_row(c, f.a[row] + k, f.a_power[row] + k, f.b + k, f.b_power + k, at_once, fraction);
            else
                for (int n = 0; n < COLUMNS; n++)
                    c[n] = sum_any(c[n], f.a[row] + k, f.b + k, n, at_once, fraction);
        for (int n = 0; n < COLUMNS; n++)
            lane[row % 8 * 4 + n / 2].d[row / 8 * 2 + n % 2] = c[n];
    }
}

#if defined(__x86_64__)
__attribute__((target("avx2"))) void multiply_avx2(pl_emu_fragments *lane, int sm) {
    multiply(lane, sm);
}
#endif
} // namespace

void pl_emu_multiply(pl_emu_fragments *lane, int sm) {
#if defined(__x86_64__)
    static const bool wide = __builtin_cpu_supports("avx2");
    if (wide) {
        multiply_avx2(lane, sm);
        return;
    }
#endif
    multiply(lane, sm);
}
