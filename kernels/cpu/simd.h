// Vectors for the cpu backend: 16 floats, whatever the machine. Sources that include this file are compiled once per
// ISA (PL_ISA is a level's name) and name their public functions PL_CPU(name).
//
// pl_vf holds 16 lanes in PL_VF_PARTS machine vectors (1 zmm, 2 ymm, or 4 16-byte vectors). It is a struct of machine
// vectors, not one wide vector_size(64): compilers keep a vector wider than the machine's registers in memory. Because
// every ISA sees 16 lanes and reductions follow one fixed tree, AVX2 and AVX-512 give the same bits; portable does too
// where the target contracts a*b+c into a fused multiply-add.
// Arrays of pl_vf indexed in a loop (register tiles) stay in memory for the same reason: such code uses arrays of
// pl_vn. This file and tiles.h are the only ones that know about instruction sets.
#ifndef PL_CPU_SIMD_H
#define PL_CPU_SIMD_H

#include "kernels/base/dtype.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>
#if defined(__AVX512F__) || defined(__AVX2__)
#include <immintrin.h>
#elif defined(__SSE__)
#include <xmmintrin.h>
#endif

#define PL_CPU_JOIN2(name, isa) pl_##name##_##isa
#define PL_CPU_JOIN(name, isa) PL_CPU_JOIN2(name, isa)
#define PL_CPU(name) PL_CPU_JOIN(name, PL_ISA)

#define PL_VL 16 // lanes of a pl_vf
#define PL_INLINE static inline __attribute__((always_inline))

// The machine vector pl_vn, its integer twin, and the register blocking that its register file allows:
//   PL_MR_PANEL  rows of x that one pass over a weight panel in fp32 serves; R rows by G panels are in registers
//                together while R * G <= PL_MR_PANEL
//   PL_CHAINS    sums of a pass over a panel in bf16 with fma that are in registers together
//   PL_MR, PL_NV rows and pl_vn columns of the training GEMM's micro-tile
#if defined(__AVX512F__)
#define PL_VN_LANES 16
#define PL_VF_PARTS 1
#define PL_MR_PANEL 6
#define PL_CHAINS 24
#define PL_MR 14
#define PL_NV 2
#elif defined(__AVX2__)
#define PL_VN_LANES 8
#define PL_VF_PARTS 2
#define PL_MR_PANEL 1
#define PL_CHAINS 12
#define PL_MR 6
#define PL_NV 2
#else
#define PL_VN_LANES 4
#define PL_VF_PARTS 4
#define PL_MR_PANEL 1
#define PL_CHAINS 8
#define PL_MR 4
#define PL_NV 3
#endif
typedef float    pl_vn __attribute__((vector_size(PL_VN_LANES * 4)));
typedef int32_t  pl_vni __attribute__((vector_size(PL_VN_LANES * 4)));
typedef uint32_t pl_vnu __attribute__((vector_size(PL_VN_LANES * 4)));

typedef struct pl_vf {
    pl_vn p[PL_VF_PARTS];
} pl_vf;

// r.p[i] = expr for every part; `i` is the part's index inside expr. Parts are always moved one by one, never as a
// whole struct: a memcpy of the struct would pin it to memory.
#define PL_VF_EACH(r, expr) _Pragma("GCC unroll 4") for (int i = 0; i < PL_VF_PARTS; i++)(r).p[i] = (expr)

// ---- machine vectors ----

PL_INLINE pl_vn pl_vn_set1(float x) {
#if defined(__AVX512F__)
    return (pl_vn)_mm512_set1_ps(x);
#elif defined(__AVX2__)
    return (pl_vn)_mm256_set1_ps(x);
#else
    return (pl_vn){x, x, x, x};
#endif
}

PL_INLINE pl_vn pl_vn_loadu(const float *p) {
    pl_vn r;
    memcpy(&r, p, sizeof r); // NOLINT(clang-analyzer-core.NonNullParamChecker): a kind of row loads what it has
    return r;
}

// The same from an address aligned to the vector.
PL_INLINE pl_vn pl_vn_load(const float *p) {
    return pl_vn_loadu((const float *)__builtin_assume_aligned(p, sizeof(pl_vn)));
}

PL_INLINE void pl_vn_storeu(float *p, pl_vn v) {
    memcpy(p, &v, sizeof v);
}

// So many numbers in fp16, from any address.
PL_INLINE pl_vn pl_vn_from_f16(const char *p) {
#if defined(__AVX512F__)
    return (pl_vn)_mm512_cvtph_ps(_mm256_loadu_si256((const __m256i *)(const void *)p));
#elif defined(__AVX2__)
    return (pl_vn)_mm256_cvtph_ps(_mm_loadu_si128((const __m128i *)(const void *)p));
#else
    float t[PL_VN_LANES];
    pl_to_f32(t, p, PL_F16, PL_VN_LANES);
    return pl_vn_loadu(t);
#endif
}

// a * b + c, one rounding wherever the ISA has it (elsewhere as the target contracts it).
PL_INLINE pl_vn pl_vn_fma(pl_vn a, pl_vn b, pl_vn c) {
#if defined(__AVX512F__)
    return (pl_vn)_mm512_fmadd_ps((__m512)a, (__m512)b, (__m512)c);
#elif defined(__AVX2__)
    return (pl_vn)_mm256_fmadd_ps((__m256)a, (__m256)b, (__m256)c);
#else
    return a * b + c;
#endif
}

// Returns the vector and hides its origin from the compiler, which then contracts no product into an fma.
PL_INLINE pl_vn pl_vn_opaque(pl_vn a) {
#if defined(__AVX512F__)
    __asm__("" : "+v"(a));
#elif defined(__SSE__)
    __asm__("" : "+x"(a));
#elif defined(__aarch64__)
    __asm__("" : "+w"(a));
#else
    __asm__("" : "+m"(a));
#endif
    return a;
}

// As vmaxps/vminps: the second operand where either is NaN.
PL_INLINE pl_vn pl_vn_max(pl_vn a, pl_vn b) {
#if defined(__AVX512F__)
    return (pl_vn)_mm512_max_ps((__m512)a, (__m512)b);
#elif defined(__AVX2__)
    return (pl_vn)_mm256_max_ps((__m256)a, (__m256)b);
#else
    pl_vni m = (pl_vni)(a > b);
    return (pl_vn)(((pl_vni)a & m) | ((pl_vni)b & ~m));
#endif
}

PL_INLINE pl_vn pl_vn_min(pl_vn a, pl_vn b) {
#if defined(__AVX512F__)
    return (pl_vn)_mm512_min_ps((__m512)a, (__m512)b);
#elif defined(__AVX2__)
    return (pl_vn)_mm256_min_ps((__m256)a, (__m256)b);
#else
    pl_vni m = (pl_vni)(a < b);
    return (pl_vn)(((pl_vni)a & m) | ((pl_vni)b & ~m));
#endif
}

// a > b ? x : y, lane by lane; false where a or b is NaN.
PL_INLINE pl_vn pl_vn_select_gt(pl_vn a, pl_vn b, pl_vn x, pl_vn y) {
#if defined(__AVX512F__)
    return (pl_vn)_mm512_mask_blend_ps(_mm512_cmp_ps_mask((__m512)a, (__m512)b, _CMP_GT_OQ), (__m512)y, (__m512)x);
#elif defined(__AVX2__)
    return (pl_vn)_mm256_blendv_ps((__m256)y, (__m256)x, _mm256_cmp_ps((__m256)a, (__m256)b, _CMP_GT_OQ));
#else
    pl_vni m = (pl_vni)(a > b);
    return (pl_vn)(((pl_vni)x & m) | ((pl_vni)y & ~m));
#endif
}

// ---- load, store, broadcast ----

PL_INLINE pl_vf pl_vf_set1(float x) {
    pl_vf r;
    PL_VF_EACH(r, pl_vn_set1(x));
    return r;
}

PL_INLINE pl_vf pl_vf_zero(void) {
    return pl_vf_set1(0.0f);
}

// 16 floats from any address.
PL_INLINE pl_vf pl_vf_loadu(const float *p) {
    pl_vf r;
    PL_VF_EACH(r, pl_vn_loadu(p + i * PL_VN_LANES));
    return r;
}

PL_INLINE void pl_vf_storeu(float *p, pl_vf v) {
    memcpy(p, &v, sizeof v);
}

// The same for 64-byte aligned addresses.
PL_INLINE pl_vf pl_vf_load(const float *p) {
    return pl_vf_loadu((const float *)__builtin_assume_aligned(p, 64));
}

PL_INLINE void pl_vf_store(float *p, pl_vf v) {
    pl_vf_storeu((float *)__builtin_assume_aligned(p, 64), v);
}

// The first n (0 to 16) floats; the other lanes are `fill`. Nothing past p[n - 1] is touched.
PL_INLINE pl_vf pl_vf_load_n(const float *p, int64_t n, float fill) {
#if defined(__AVX512F__)
    __mmask16 m = (__mmask16)((1u << n) - 1u);
    return (pl_vf){{(pl_vn)_mm512_mask_loadu_ps(_mm512_set1_ps(fill), m, p)}};
#elif defined(__AVX2__)
    static const int32_t some[2 * PL_VL] = {-1, -1, -1, -1, -1, -1, -1, -1, -1, -1, -1, -1, -1, -1, -1, -1};
    pl_vf                r;
#pragma GCC unroll 2
    for (int i = 0; i < PL_VF_PARTS; i++) {
        __m256i m;
        memcpy(&m, some + PL_VL - n + i * PL_VN_LANES, sizeof m);
        __m256 v = _mm256_maskload_ps(p + i * PL_VN_LANES, m);
        r.p[i] = (pl_vn)_mm256_blendv_ps(_mm256_set1_ps(fill), v, (__m256)m);
    }
    return r;
#else
    float t[PL_VL];
    for (int j = 0; j < PL_VL; j++)
        t[j] = j < n ? p[j] : fill;
    return pl_vf_loadu(t);
#endif
}

PL_INLINE void pl_vf_store_n(float *p, pl_vf v, int64_t n) {
#if defined(__AVX512F__)
    _mm512_mask_storeu_ps(p, (__mmask16)((1u << n) - 1u), (__m512)v.p[0]);
#else
    float t[PL_VL];
    pl_vf_storeu(t, v);
    memcpy(p, t, (size_t)n * sizeof(float));
#endif
}

// ---- arithmetic ----

PL_INLINE pl_vf pl_vf_add(pl_vf a, pl_vf b) {
    pl_vf r;
    PL_VF_EACH(r, a.p[i] + b.p[i]);
    return r;
}

PL_INLINE pl_vf pl_vf_sub(pl_vf a, pl_vf b) {
    pl_vf r;
    PL_VF_EACH(r, a.p[i] - b.p[i]);
    return r;
}

PL_INLINE pl_vf pl_vf_mul(pl_vf a, pl_vf b) {
    pl_vf r;
    PL_VF_EACH(r, a.p[i] * b.p[i]);
    return r;
}

PL_INLINE pl_vf pl_vf_div(pl_vf a, pl_vf b) {
    pl_vf r;
    PL_VF_EACH(r, a.p[i] / b.p[i]);
    return r;
}

// a * b + c
PL_INLINE pl_vf pl_vf_fma(pl_vf a, pl_vf b, pl_vf c) {
    pl_vf r;
    PL_VF_EACH(r, pl_vn_fma(a.p[i], b.p[i], c.p[i]));
    return r;
}

// c - a * b
PL_INLINE pl_vf pl_vf_fnma(pl_vf a, pl_vf b, pl_vf c) {
    pl_vf r;
    PL_VF_EACH(r, pl_vn_fma(-a.p[i], b.p[i], c.p[i]));
    return r;
}

// The second operand where either is NaN.
PL_INLINE pl_vf pl_vf_max(pl_vf a, pl_vf b) {
    pl_vf r;
    PL_VF_EACH(r, pl_vn_max(a.p[i], b.p[i]));
    return r;
}

PL_INLINE pl_vf pl_vf_min(pl_vf a, pl_vf b) {
    pl_vf r;
    PL_VF_EACH(r, pl_vn_min(a.p[i], b.p[i]));
    return r;
}

// a > b ? x : y
PL_INLINE pl_vf pl_vf_select_gt(pl_vf a, pl_vf b, pl_vf x, pl_vf y) {
    pl_vf r;
    PL_VF_EACH(r, pl_vn_select_gt(a.p[i], b.p[i], x.p[i], y.p[i]));
    return r;
}

// Bit j: lane j of a is above lane j of b.
PL_INLINE uint32_t pl_vf_above(pl_vf a, pl_vf b) {
#if defined(__AVX512F__)
    return _mm512_cmp_ps_mask((__m512)a.p[0], (__m512)b.p[0], _CMP_GT_OQ);
#else
    uint32_t mask = 0;
    for (int i = 0; i < PL_VF_PARTS; i++) {
#if defined(__AVX2__)
        __m256 above = _mm256_cmp_ps((__m256)a.p[i], (__m256)b.p[i], _CMP_GT_OQ);
        mask |= (uint32_t)_mm256_movemask_ps(above) << i * PL_VN_LANES;
#else
        for (int j = 0; j < PL_VN_LANES; j++)
            mask |= (uint32_t)(a.p[i][j] > b.p[i][j]) << (i * PL_VN_LANES + j);
#endif
    }
    return mask;
#endif
}

// Lane j of a where bit j is set, of b elsewhere.
PL_INLINE pl_vf pl_vf_pick(uint32_t bits, pl_vf a, pl_vf b) {
#if defined(__AVX512F__)
    return (pl_vf){{(pl_vn)_mm512_mask_blend_ps((__mmask16)bits, (__m512)b.p[0], (__m512)a.p[0])}};
#else
    float x[PL_VL], y[PL_VL];
    pl_vf_storeu(x, a);
    pl_vf_storeu(y, b);
    for (int j = 0; j < PL_VL; j++)
        x[j] = bits >> j & 1 ? x[j] : y[j];
    return pl_vf_loadu(x);
#endif
}

// ---- reductions: lane j meets lane j + 8, then + 4, + 2, + 1 ----

#if defined(__AVX512F__) || defined(__AVX2__)
PL_INLINE __m256 pl_vf_fold_ps(pl_vf v, int want_max) {
#if defined(__AVX512F__)
    __m256 lo = _mm512_castps512_ps256((__m512)v.p[0]), hi = _mm512_extractf32x8_ps((__m512)v.p[0], 1);
#else
    __m256 lo = (__m256)v.p[0], hi = (__m256)v.p[1];
#endif
    return want_max ? _mm256_max_ps(lo, hi) : _mm256_add_ps(lo, hi);
}

PL_INLINE float pl_vf_hsum(pl_vf v) {
    __m256 e = pl_vf_fold_ps(v, 0);
    __m128 q = _mm_add_ps(_mm256_castps256_ps128(e), _mm256_extractf128_ps(e, 1));
    q = _mm_add_ps(q, _mm_movehl_ps(q, q));
    return _mm_cvtss_f32(_mm_add_ss(q, _mm_movehdup_ps(q)));
}

PL_INLINE float pl_vf_hmax(pl_vf v) {
    __m256 e = pl_vf_fold_ps(v, 1);
    __m128 q = _mm_max_ps(_mm256_castps256_ps128(e), _mm256_extractf128_ps(e, 1));
    q = _mm_max_ps(q, _mm_movehl_ps(q, q));
    return _mm_cvtss_f32(_mm_max_ss(q, _mm_movehdup_ps(q)));
}
#else
PL_INLINE float pl_vf_hsum(pl_vf v) {
    pl_vn q = (v.p[0] + v.p[2]) + (v.p[1] + v.p[3]);
    return (q[0] + q[2]) + (q[1] + q[3]);
}

PL_INLINE float pl_vf_hmax(pl_vf v) {
    pl_vn q = pl_vn_max(pl_vn_max(v.p[0], v.p[2]), pl_vn_max(v.p[1], v.p[3]));
    float a = q[0] > q[2] ? q[0] : q[2], b = q[1] > q[3] ? q[1] : q[3];
    return a > b ? a : b;
}
#endif

// ---- bf16 ----

// Rounded to the nearest bf16, ties to even, as pl_round_bf16 does; NaN stays a quiet NaN.
PL_INLINE pl_vn pl_vn_round_bf16(pl_vn x) {
    pl_vnu u = (pl_vnu)x, nan = (pl_vnu)(x != x), near = u + 0x7fffu + (u >> 16 & 1u);
    return (pl_vn)(((nan & (u | 0x400000u)) | (~nan & near)) & 0xffff0000u);
}

#if defined(__AVX512BF16__)
// Whether rounding takes a lane from the denormals to the least normal number. VCVTNE2PS2BF16 takes denormals as zero,
// as products do; in these, the 2^15 largest of them, alone that shows.
PL_INLINE bool pl_vn_rounds_to_normal(pl_vn a, pl_vn b) {
    const pl_vnu least = (pl_vnu){0} + 0x007f8000u;
    pl_vnu       u = ((pl_vnu)a & 0x7fffffffu) - least, v = ((pl_vnu)b & 0x7fffffffu) - least;
    return _mm512_cmplt_epu32_mask(_mm512_min_epu32((__m512i)u, (__m512i)v), _mm512_set1_epi32(0x8000)) != 0;
}
#endif

// Words of bf16, as panels have them: `low` rounded in the low halves, `high` in the high ones. No value is a denormal.
PL_INLINE pl_vnu pl_vn_words_normal(pl_vn low, pl_vn high) {
#if defined(__AVX512BF16__)
    const pl_vnu                       both = (pl_vnu)_mm512_cvtne2ps_pbh((__m512)high, (__m512)low);
    static const _Alignas(64) uint16_t turn[32] = {0, 16, 1, 17, 2,  18, 3,  19, 4,  20, 5,  21, 6,  22, 7,  23,
                                                   8, 24, 9, 25, 10, 26, 11, 27, 12, 28, 13, 29, 14, 30, 15, 31};
    return (pl_vnu)_mm512_permutexvar_epi16(_mm512_load_si512(turn), (__m512i)both);
#else
    return (pl_vnu)pl_vn_round_bf16(low) >> 16 | (pl_vnu)pl_vn_round_bf16(high);
#endif
}

// The same of any values. Denormals that stay so may become zero: for products that is one.
PL_INLINE pl_vnu pl_vn_words(pl_vn low, pl_vn high) {
#if defined(__AVX512BF16__)
    if (__builtin_expect(!pl_vn_rounds_to_normal(low, high), 1)) return pl_vn_words_normal(low, high);
#endif
    return (pl_vnu)pl_vn_round_bf16(low) >> 16 | (pl_vnu)pl_vn_round_bf16(high);
}

// The same of floats that follow each other, a and then b: neighbours share a word.
PL_INLINE pl_vnu pl_vn_words_of(pl_vn a, pl_vn b) {
#if defined(__AVX512BF16__)
    if (__builtin_expect(!pl_vn_rounds_to_normal(a, b), 1)) return (pl_vnu)_mm512_cvtne2ps_pbh((__m512)b, (__m512)a);
#endif
#if PL_VN_LANES == 16
    return pl_vn_words(__builtin_shufflevector(a, b, 0, 2, 4, 6, 8, 10, 12, 14, 16, 18, 20, 22, 24, 26, 28, 30),
                       __builtin_shufflevector(a, b, 1, 3, 5, 7, 9, 11, 13, 15, 17, 19, 21, 23, 25, 27, 29, 31));
#elif PL_VN_LANES == 8
    return pl_vn_words(__builtin_shufflevector(a, b, 0, 2, 4, 6, 8, 10, 12, 14),
                       __builtin_shufflevector(a, b, 1, 3, 5, 7, 9, 11, 13, 15));
#else
    return pl_vn_words(__builtin_shufflevector(a, b, 0, 2, 4, 6), __builtin_shufflevector(a, b, 1, 3, 5, 7));
#endif
}

// Of every four that follow each other the first in the high half with the third, the second with the fourth.
PL_INLINE pl_vnu pl_vn_chain_words_of(pl_vn a, pl_vn b) {
#if PL_VN_LANES == 16
    return pl_vn_words(__builtin_shufflevector(a, b, 2, 3, 6, 7, 10, 11, 14, 15, 18, 19, 22, 23, 26, 27, 30, 31),
                       __builtin_shufflevector(a, b, 0, 1, 4, 5, 8, 9, 12, 13, 16, 17, 20, 21, 24, 25, 28, 29));
#elif PL_VN_LANES == 8
    return pl_vn_words(__builtin_shufflevector(a, b, 2, 3, 6, 7, 10, 11, 14, 15),
                       __builtin_shufflevector(a, b, 0, 1, 4, 5, 8, 9, 12, 13));
#else
    return pl_vn_words(__builtin_shufflevector(a, b, 2, 3, 6, 7), __builtin_shufflevector(a, b, 0, 1, 4, 5));
#endif
}

// a * b + c with one rounding, of a and b that are values of bf16: their product is exact in fp32 but for its range, so
// that where fma is not an instruction double does it (a sum of two fp32 in double, rounded to fp32, is rounded once in
// effect; Figueroa, "When is double rounding innocuous?", 1995).
PL_INLINE pl_vn pl_vn_fma_bf16(pl_vn a, pl_vn b, pl_vn c) {
#if defined(__AVX512F__) || defined(__AVX2__) || defined(__FP_FAST_FMAF)
    return pl_vn_fma(a, b, c);
#else
    typedef double vd __attribute__((vector_size(PL_VN_LANES * 8)));
    return __builtin_convertvector(
        __builtin_convertvector(a, vd) * __builtin_convertvector(b, vd) + __builtin_convertvector(c, vd), pl_vn);
#endif
}

// ---- products of pairs (AVX512-BF16's VDPBF16PS) ----

// Where PL_DOTS is defined: words hold two bf16 each, and to every lane of `sum` the product of the high halves is
// added and then that of the low ones, each with one rounding, denormals as zero whatever the thread's mode.
// PL_DOTS_EMULATED: in C, for tests; the caller has set the mode for denormals.
// A level with a matrix unit goes without: Intel's does half of what fma does.
#if (defined(__AVX512BF16__) && !defined(__AMX_BF16__)) || defined(PL_DOTS_EMULATED)
#define PL_DOTS 1
PL_INLINE pl_vn pl_vn_dot(pl_vn sum, pl_vnu a, pl_vnu b) {
#if defined(PL_DOTS_EMULATED)
    sum = pl_vn_fma_bf16((pl_vn)(a & 0xffff0000u), (pl_vn)(b & 0xffff0000u), sum);
    return pl_vn_fma_bf16((pl_vn)(a << 16), (pl_vn)(b << 16), sum);
#else
    return (pl_vn)_mm512_dpbf16_ps((__m512)sum, (__m512bh)a, (__m512bh)b);
#endif
}

// Words into a register, once and in this order: left to itself the compiler makes two masked loads of each, in an
// order that no processor foresees (1 and 2 rows: 1.4 and 2 times the time).
PL_INLINE pl_vnu pl_vn_take_words(const char *p) {
    pl_vnu words;
    memcpy(&words, p, sizeof words);
#if !defined(PL_DOTS_EMULATED)
    __asm__ volatile("" : "+v"(words));
#endif
    return words;
}

// Of the words of two pairs of k, k and k + 1 in one, k + 2 and k + 3 in the other: those of k + 2 below k, and of
// k + 3 below k + 1, so that a product of pairs is two steps of the chain of even k, or of odd.
PL_INLINE void pl_vn_chain_words(pl_vnu a, pl_vnu b, pl_vnu *even, pl_vnu *odd) {
#if defined(PL_DOTS_EMULATED)
    *even = a << 16 | (b & 0xffffu);
    *odd = (a & 0xffff0000u) | b >> 16;
#else // one operation less than and, or: 225 against 208 GFLOP/s in the loop that uses it
    *even = (pl_vnu)_mm512_mask_blend_epi16(0x55555555u, (__m512i)(a << 16), (__m512i)b);
    *odd = (pl_vnu)_mm512_mask_blend_epi16(0xaaaaaaaau, (__m512i)(b >> 16), (__m512i)a);
#endif
}
#endif

// Denormals as zero, in operands and results, as matrix units have them whatever the thread's mode: between these two.
PL_INLINE uint64_t pl_flush_denormals(void) {
    uint64_t mode = 0;
#if defined(__SSE__)
    mode = _mm_getcsr();
    _mm_setcsr((uint32_t)mode | 0x8040u); // FTZ, DAZ
#elif defined(__aarch64__)
    __asm__ volatile("mrs %0, fpcr" : "=r"(mode));
    __asm__ volatile("msr fpcr, %0" : : "r"(mode | 1u << 24) : "memory");
#endif
    return mode;
}
PL_INLINE void pl_flush_end(uint64_t mode) {
#if defined(__SSE__)
    _mm_setcsr((uint32_t)mode);
#elif defined(__aarch64__)
    __asm__ volatile("msr fpcr, %0" : : "r"(mode) : "memory");
#else
    (void)mode;
#endif
}

// ---- exp ----

// e^x with relative error below 2^-22 (Cephes expf: x = n ln2 + r with ln2 in two constants, degree-6 polynomial in r).
// +inf above 88.72, gradual underflow to 0 below -87.3, 0 at -inf, NaN stays NaN.
PL_INLINE pl_vf pl_vf_exp(pl_vf x) {
    const pl_vf magic = pl_vf_set1(12582912.0f); // 1.5 * 2^23: adding it rounds to an integer held in the low bits
    x = pl_vf_max(pl_vf_set1(-104.0f), x);       // in this order NaN passes both clamps
    x = pl_vf_min(pl_vf_set1(89.0f), x);
    pl_vf t = pl_vf_fma(x, pl_vf_set1(1.44269504088896341f), magic);
    pl_vf n = pl_vf_sub(t, magic);
    pl_vf r = pl_vf_fnma(n, pl_vf_set1(0.693359375f), x); // exact: the constant has 9 bits
    r = pl_vf_fnma(n, pl_vf_set1(-2.12194440e-4f), r);
    pl_vf p = pl_vf_set1(1.9875691500e-4f);
    p = pl_vf_fma(p, r, pl_vf_set1(1.3981999507e-3f));
    p = pl_vf_fma(p, r, pl_vf_set1(8.3334519073e-3f));
    p = pl_vf_fma(p, r, pl_vf_set1(4.1665795894e-2f));
    p = pl_vf_fma(p, r, pl_vf_set1(1.6666665459e-1f));
    p = pl_vf_fma(p, r, pl_vf_set1(5.0000001201e-1f));
    p = pl_vf_fma(p, pl_vf_mul(r, r), r);
    p = pl_vf_add(p, pl_vf_set1(1.0f));
    // 2^n as two factors, so that the ends of the range (n = 128, n < -126) round and overflow as they should.
    pl_vf out;
#pragma GCC unroll 4
    for (int j = 0; j < PL_VF_PARTS; j++) {
        pl_vni k = (pl_vni)t.p[j] - (pl_vni)magic.p[j];
        pl_vni h = k >> 1;
        pl_vn  s1 = (pl_vn)((h + 127) << 23), s2 = (pl_vn)((k - h + 127) << 23);
        out.p[j] = p.p[j] * s1 * s2;
    }
    return out;
}

// log(1 + x) for x in [0, 1], relative error below 2^-22 (Cephes logf on [sqrt(1/2), sqrt(2)]).
PL_INLINE pl_vf pl_vf_log1p_unit(pl_vf x) {
    const pl_vf sqrt2 = pl_vf_set1(0.41421356f), half = pl_vf_set1(0.5f);
    pl_vf       f = pl_vf_select_gt(x, sqrt2, pl_vf_mul(half, pl_vf_sub(x, pl_vf_set1(1.0f))), x); // (1 + x) / 2 - 1
    pl_vf       ln2 = pl_vf_select_gt(x, sqrt2, pl_vf_set1(0.693147181f), pl_vf_zero());
    pl_vf       p = pl_vf_set1(7.0376836292e-2f), f2 = pl_vf_mul(f, f);
    p = pl_vf_fma(p, f, pl_vf_set1(-1.1514610310e-1f));
    p = pl_vf_fma(p, f, pl_vf_set1(1.1676998740e-1f));
    p = pl_vf_fma(p, f, pl_vf_set1(-1.2420140846e-1f));
    p = pl_vf_fma(p, f, pl_vf_set1(1.4249322787e-1f));
    p = pl_vf_fma(p, f, pl_vf_set1(-1.6668057665e-1f));
    p = pl_vf_fma(p, f, pl_vf_set1(2.0000714765e-1f));
    p = pl_vf_fma(p, f, pl_vf_set1(-2.4999993993e-1f));
    p = pl_vf_fma(p, f, pl_vf_set1(3.3333331174e-1f));
    p = pl_vf_fma(pl_vf_mul(p, f), f2, pl_vf_mul(pl_vf_set1(-0.5f), f2));
    return pl_vf_add(pl_vf_add(f, p), ln2);
}

// tanh(x), relative error below 2^-22: near 0 a polynomial in x^2, else 1 - 2 / (exp(2 |x|) + 1) with the sign of x.
PL_INLINE pl_vf pl_vf_tanh(pl_vf x) {
    const pl_vf one = pl_vf_set1(1.0f), two = pl_vf_set1(2.0f), minus = pl_vf_sub(pl_vf_zero(), x);
    pl_vf       size = pl_vf_max(minus, x), z = pl_vf_mul(x, x), p = pl_vf_set1(-5.70498872745e-3f);
    p = pl_vf_fma(p, z, pl_vf_set1(2.06390887954e-2f));
    p = pl_vf_fma(p, z, pl_vf_set1(-5.37397155531e-2f));
    p = pl_vf_fma(p, z, pl_vf_set1(1.33314422036e-1f));
    p = pl_vf_fma(p, z, pl_vf_set1(-3.33332819422e-1f));
    p = pl_vf_fma(pl_vf_mul(p, z), x, x);
    pl_vf far = pl_vf_sub(one, pl_vf_div(two, pl_vf_add(pl_vf_exp(pl_vf_mul(two, size)), one)));
    far = pl_vf_select_gt(minus, x, pl_vf_sub(pl_vf_zero(), far), far);
    return pl_vf_select_gt(size, pl_vf_set1(0.625f), far, p);
}

// ---- lanes of several vectors ----

// In place, PL_VN_LANES x PL_VN_LANES.
PL_INLINE void pl_vn_transpose(pl_vn r[PL_VN_LANES]) {
#define PL_LANES(...) __VA_ARGS__
#define PL_SWAP(step, lo, hi)                                                                                          \
    for (int a = 0; a < PL_VN_LANES; a++)                                                                              \
        if (!(a & (step))) {                                                                                           \
            pl_vn x = r[a], y = r[a + (step)];                                                                         \
            r[a] = __builtin_shufflevector(x, y, PL_LANES lo);                                                         \
            r[a + (step)] = __builtin_shufflevector(x, y, PL_LANES hi);                                                \
        }
#if PL_VN_LANES == 16
    PL_SWAP(1, (0, 16, 2, 18, 4, 20, 6, 22, 8, 24, 10, 26, 12, 28, 14, 30),
            (1, 17, 3, 19, 5, 21, 7, 23, 9, 25, 11, 27, 13, 29, 15, 31))
    PL_SWAP(2, (0, 1, 16, 17, 4, 5, 20, 21, 8, 9, 24, 25, 12, 13, 28, 29),
            (2, 3, 18, 19, 6, 7, 22, 23, 10, 11, 26, 27, 14, 15, 30, 31))
    PL_SWAP(4, (0, 1, 2, 3, 16, 17, 18, 19, 8, 9, 10, 11, 24, 25, 26, 27),
            (4, 5, 6, 7, 20, 21, 22, 23, 12, 13, 14, 15, 28, 29, 30, 31))
    PL_SWAP(8, (0, 1, 2, 3, 4, 5, 6, 7, 16, 17, 18, 19, 20, 21, 22, 23),
            (8, 9, 10, 11, 12, 13, 14, 15, 24, 25, 26, 27, 28, 29, 30, 31))
#elif PL_VN_LANES == 8
    PL_SWAP(1, (0, 8, 2, 10, 4, 12, 6, 14), (1, 9, 3, 11, 5, 13, 7, 15))
    PL_SWAP(2, (0, 1, 8, 9, 4, 5, 12, 13), (2, 3, 10, 11, 6, 7, 14, 15))
    PL_SWAP(4, (0, 1, 2, 3, 8, 9, 10, 11), (4, 5, 6, 7, 12, 13, 14, 15))
#else
    PL_SWAP(1, (0, 4, 2, 6), (1, 5, 3, 7))
    PL_SWAP(2, (0, 1, 4, 5), (2, 3, 6, 7))
#endif
#undef PL_LANES
#undef PL_SWAP
}

// Lane j: the sum over the lanes of t[j], l with l + PL_VN_LANES / 2, and so on down to neighbours. As a transpose and
// a tree of sums, whose bits it has, with half of their shuffles: two vectors are halved, and the halves share one.
PL_INLINE pl_vn pl_vn_lane_sums(pl_vn t[PL_VN_LANES]) {
#define PL_LANES(...) __VA_ARGS__
#define PL_HALVE(half, stay, turn)                                                                                     \
    for (int r = 0; r < (half); r++)                                                                                   \
        t[r] = __builtin_shufflevector(t[r], t[r + (half)], PL_LANES stay) +                                           \
               __builtin_shufflevector(t[r], t[r + (half)], PL_LANES turn);
#if PL_VN_LANES == 16
    PL_HALVE(8, (0, 1, 2, 3, 4, 5, 6, 7, 24, 25, 26, 27, 28, 29, 30, 31),
             (8, 9, 10, 11, 12, 13, 14, 15, 16, 17, 18, 19, 20, 21, 22, 23))
    PL_HALVE(4, (0, 1, 2, 3, 20, 21, 22, 23, 8, 9, 10, 11, 28, 29, 30, 31),
             (4, 5, 6, 7, 16, 17, 18, 19, 12, 13, 14, 15, 24, 25, 26, 27))
    PL_HALVE(2, (0, 1, 18, 19, 4, 5, 22, 23, 8, 9, 26, 27, 12, 13, 30, 31),
             (2, 3, 16, 17, 6, 7, 20, 21, 10, 11, 24, 25, 14, 15, 28, 29))
    PL_HALVE(1, (0, 17, 2, 19, 4, 21, 6, 23, 8, 25, 10, 27, 12, 29, 14, 31),
             (1, 16, 3, 18, 5, 20, 7, 22, 9, 24, 11, 26, 13, 28, 15, 30))
#elif PL_VN_LANES == 8
    PL_HALVE(4, (0, 1, 2, 3, 12, 13, 14, 15), (4, 5, 6, 7, 8, 9, 10, 11))
    PL_HALVE(2, (0, 1, 10, 11, 4, 5, 14, 15), (2, 3, 8, 9, 6, 7, 12, 13))
    PL_HALVE(1, (0, 9, 2, 11, 4, 13, 6, 15), (1, 8, 3, 10, 5, 12, 7, 14))
#else
    PL_HALVE(2, (0, 1, 6, 7), (2, 3, 4, 5))
    PL_HALVE(1, (0, 5, 2, 7), (1, 4, 3, 6))
#endif
#undef PL_LANES
#undef PL_HALVE
    return t[0];
}

#endif
