// The matrix unit: tiles of 16 rows of 64 bytes, and products of bf16 tiles summed in fp32 (Intel SDM vol. 2,
// TDPBF16PS). Where PL_TILES is defined a pass over panels in bf16 may take it; kernels/cpu/panels.h has the
// arithmetic, which is the same with and without. PL_TILES_EMULATED: the instructions as the manual's pseudo-code has
// them, in C, so that what uses them is tested on any machine (PACELINE_ISA=units-emulated).
//
// A thread says how high its tiles are before it uses them (pl_tiles_high) and releases them before it waits: a
// processor with live tiles cannot sleep deeply, and the kernel saves 8 KB at each switch. Tiles 0 to 4, sums and rows
// of x, are as high as was said: few rows are fewer lines to fetch and to store, and a product takes a cycle a row.
// Tiles 5 to 7 have 16 rows; where 32 rows are multiplied all are 16 high, and tiles 4 and 5 are those of x.
#ifndef PL_CPU_TILES_H
#define PL_CPU_TILES_H

#include "kernels/cpu/simd.h"

#define PL_TILE_ROWS 16 // of a tile

#if defined(PL_TILES_EMULATED) || (defined(__AMX_BF16__) && defined(__AMX_TILE__))
#define PL_TILES 1
extern _Thread_local int PL_CPU(tiles_high); // of this thread, 0 while it has none; kernels/cpu/pairs_tiles_cpu.c
#endif

#if defined(PL_TILES_EMULATED)
#include <math.h>

typedef union pl_tile {
    float    f[PL_TILE_ROWS][PL_TILE_ROWS];
    uint32_t u[PL_TILE_ROWS][PL_TILE_ROWS];
} pl_tile;

extern _Thread_local pl_tile PL_CPU(tile)[8]; // kernels/cpu/pairs_tiles_cpu.c

PL_INLINE void pl_tiles_set(int high) {
    (void)high;
    memset(PL_CPU(tile), 0, sizeof PL_CPU(tile));
}
PL_INLINE void pl_tiles_release(void) {
    memset(PL_CPU(tile), 0xff, sizeof PL_CPU(tile)); // NaN: what is read after it shows
}
PL_INLINE int pl_tile_height(int t) {
    return t <= 4 ? PL_CPU(tiles_high) : PL_TILE_ROWS;
}
PL_INLINE void pl_tile_zero(int t) {
    memset(&PL_CPU(tile)[t], 0, sizeof(pl_tile));
}
PL_INLINE void pl_tile_load(int t, const void *from, size_t stride) {
    memset(&PL_CPU(tile)[t], 0, sizeof(pl_tile));
    for (int r = 0; r < pl_tile_height(t); r++)
        memcpy(PL_CPU(tile)[t].u[r], (const char *)from + (size_t)r * stride, 64);
}
PL_INLINE void pl_tile_store(int t, void *to, size_t stride) {
    for (int r = 0; r < pl_tile_height(t); r++)
        memcpy((char *)to + (size_t)r * stride, PL_CPU(tile)[t].u[r], 64);
}
PL_INLINE float pl_tile_half(uint32_t word, int odd) {
    float f;
    word = odd ? word & 0xffff0000u : word << 16;
    memcpy(&f, &word, sizeof f);
    return f;
}
// The caller has set the mode for denormals.
static inline void pl_tile_product(int d, int a, int b) {
    pl_tile *t = PL_CPU(tile);
    for (int m = 0; m < pl_tile_height(d); m++)
        for (int n = 0; n < PL_TILE_ROWS; n++) {
            float even = 0, odd = 0;
            for (int k = 0; k < PL_TILE_ROWS; k++) {
                even = fmaf(pl_tile_half(t[a].u[m][k], 0), pl_tile_half(t[b].u[k][n], 0), even);
                odd = fmaf(pl_tile_half(t[a].u[m][k], 1), pl_tile_half(t[b].u[k][n], 1), odd);
            }
            t[d].f[m][n] += even + odd;
        }
}

#elif defined(PL_TILES)

// Constant: compilers tell of 8 bytes read only, so that stores before it could vanish.
typedef struct pl_tile_config {
    uint8_t  palette, start, reserved[14];
    uint16_t row_bytes[16];
    uint8_t  rows[16];
} pl_tile_config;
#define OF_HEIGHT(n)                                                                                                   \
    [n] = {.palette = 1, .row_bytes = {64, 64, 64, 64, 64, 64, 64, 64}, .rows = {n, n, n, n, n, 16, 16, 16}}
static const _Alignas(64) pl_tile_config pl_tiles_of[PL_TILE_ROWS + 1] = {
    OF_HEIGHT(1),  OF_HEIGHT(2),  OF_HEIGHT(3),  OF_HEIGHT(4),  OF_HEIGHT(5),  OF_HEIGHT(6),
    OF_HEIGHT(7),  OF_HEIGHT(8),  OF_HEIGHT(9),  OF_HEIGHT(10), OF_HEIGHT(11), OF_HEIGHT(12),
    OF_HEIGHT(13), OF_HEIGHT(14), OF_HEIGHT(15), OF_HEIGHT(16),
};
#undef OF_HEIGHT

#define pl_tiles_set(high) _tile_loadconfig(&pl_tiles_of[high])
#define pl_tiles_release() _tile_release()
// Tiles are named by literals. A load does not tell the compiler what it reads: stores before it are made first.
#define pl_tile_zero(t) _tile_zero(t)
#define pl_tile_load(t, from, stride)                                                                                  \
    do {                                                                                                               \
        __asm__ volatile("" ::: "memory");                                                                             \
        _tile_loadd(t, from, stride);                                                                                  \
    } while (0)
#define pl_tile_store(t, to, stride) _tile_stored(t, to, stride)
#define pl_tile_product(d, a, b) _tile_dpbf16ps(d, a, b)
#endif

#ifdef PL_TILES
PL_INLINE void pl_tiles_high(int rows) {
    if (PL_CPU(tiles_high) == rows) return;
    PL_CPU(tiles_high) = rows;
    pl_tiles_set(rows);
}
PL_INLINE void pl_tiles_end(void) {
    if (PL_CPU(tiles_high) == 0) return;
    PL_CPU(tiles_high) = 0;
    pl_tiles_release();
}
#endif

// Past the caches, to whole lines in the end; p is aligned to the vector. pl_stream_end before another thread is told.
PL_INLINE void pl_vn_stream(float *p, pl_vn v) {
#if defined(__AVX512F__)
    _mm512_stream_ps(p, (__m512)v);
#elif defined(__AVX2__)
    _mm256_stream_ps(p, (__m256)v);
#elif defined(__SSE__)
    _mm_stream_ps(p, (__m128)v);
#else
    memcpy(p, &v, sizeof v);
#endif
}
PL_INLINE void pl_stream_end(void) {
#if defined(__SSE__)
    _mm_sfence();
#endif
}

#endif
