// What the passes over panels in bf16 share: who takes how many rows, and what is fetched ahead. The arithmetic is in
// panels.h. Three ways to the same bits:
//
//   fma (pairs_cpu.c)           any processor: halves of words widened to fp32
//   dots (pairs_dots_cpu.c)     AVX512-BF16: two steps of a chain at once
//   tiles (pairs_tiles_cpu.c)   AMX: 16 rows by 16 columns by 32 k at once
#ifndef PL_CPU_PAIRS_H
#define PL_CPU_PAIRS_H

#include "kernels/base/probe.h"
#include "kernels/cpu/panels.h"
#include "kernels/cpu/tiles.h"

enum {
    PL_BLOCK_PAIRS = PL_PANEL_BLOCK / 2,
// Rows of a pass at most, by each way; 0 where the level goes without it.
#if defined(PL_TILES_EMULATED)
    PL_FMA_ROWS = 0,
    PL_DOT_ROWS = 10, // (tiles are in use too)
#elif defined(PL_TILES)
    PL_FMA_ROWS = 2, // Intel's VDPBF16PS does half of what its fma does
    PL_DOT_ROWS = 0,
#elif defined(PL_DOTS)
    PL_FMA_ROWS = 0,
    PL_DOT_ROWS = 30,
#else
    PL_FMA_ROWS = PL_PASS_ROWS,
    PL_DOT_ROWS = 0,
#endif
#ifdef PL_TILES
    PL_TILE_ROWS_MOST = 2 * PL_TILE_ROWS,
#else
    PL_TILE_ROWS_MOST = 0,
#endif
    PL_FEW_ROWS = PL_FMA_ROWS > PL_DOT_ROWS ? PL_FMA_ROWS : PL_DOT_ROWS, // without tiles
    PL_MOST_ROWS = PL_TILE_ROWS_MOST > 0 ? PL_TILE_ROWS_MOST : PL_FEW_ROWS,
};
_Static_assert(PL_MOST_ROWS <= PL_PASS_ROWS && PL_MR_PANEL <= PL_PASS_ROWS, "what callers have room for");

#define pl_dots_pass PL_CPU(dots_pass)
#define pl_tiles_pass PL_CPU(tiles_pass)

void pl_dots_pass(int rows, int width, const pl_pass *p);
void pl_tiles_pass(int rows, int width, const pl_pass *p);

// How many bytes ahead of its use a line is prefetched: panels_cpu.c has the reasons.
enum { PL_TRIES = 3 };
static const int64_t pl_ahead_near[PL_TRIES] = {PL_PANELS_AHEAD, 17408, 10240};
static const int64_t pl_ahead_once[1] = {16384};

// What the tries of a block at w fetch, `left` bytes before the end of the panel: past that end it is what comes after.
PL_INLINE void pl_find_ahead(const char **from, int tries, const int64_t *ahead, const pl_pass *p, const char *w,
                             int64_t left) {
    for (int t = 0; t < tries; t++) {
        bool past = p->after && ahead[t] >= left;
        from[t] = (const char *)((uintptr_t)(past ? p->after : w) + (uintptr_t)(past ? ahead[t] - left : ahead[t]));
    }
}

// Sums in a place of their own, rows of `width` floats, where the columns of a panel are not all there.
PL_INLINE void pl_take_edge(float *edge, int width, int rows, const pl_pass *p) {
    for (int r = 0; r < rows; r++, edge += width) {
        memcpy(edge, p->y + r * p->ldy, (size_t)p->cols * sizeof *edge);
        memset(edge + p->cols, 0, (size_t)(width - p->cols) * sizeof *edge);
    }
}
PL_INLINE void pl_leave_edge(const float *edge, int width, int rows, const pl_pass *p) {
    for (int r = 0; r < rows; r++)
        memcpy(p->y + r * p->ldy, edge + (size_t)r * (size_t)width, (size_t)p->cols * sizeof *edge);
}

// The weights of a block that is not whole, continued with zeros.
PL_INLINE const char *pl_fill_up(char *to, const char *w, int pairs, size_t step) {
    memset(to, 0, PL_BLOCK_PAIRS * step);
    memcpy(to, w, (size_t)pairs * step);
    return to;
}

#endif
