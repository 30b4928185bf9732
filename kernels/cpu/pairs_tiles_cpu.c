// Passes over panels of bf16 with a matrix unit: 16 or 32 rows by 64 or 32 columns are tiles of sums.
#include "kernels/cpu/pairs.h"

#ifdef PL_TILES
#ifdef PL_TILES_EMULATED
_Thread_local pl_tile PL_CPU(tile)[8];
#endif

enum { X_TILE = PL_TILE_ROWS * PL_PANEL_BLOCK }; // bf16 values of a tile of x

PL_INLINE void fetch_block(const char *const *next, const size_t step) {
    for (size_t i = 0; i < PL_BLOCK_PAIRS * step; i += 64)
        __builtin_prefetch(next[0] + i);
}

// A walk over the blocks: `body` sees x and w of each.
#define OVER_BLOCKS(x_tiles, fetch, body)                                                                              \
    do {                                                                                                               \
        const uint16_t *x = p->x;                                                                                      \
        const char     *at = p->w;                                                                                     \
        int64_t         left = (p->kc + 1) / 2 * (int64_t)step;                                                        \
        for (int64_t k = 0; k < p->kc; k += PL_PANEL_BLOCK, x += (x_tiles)*X_TILE, at += PL_BLOCK_PAIRS * step) {      \
            const char *next[PL_TRIES], *w = at;                                                                       \
            pl_find_ahead(next, 1, pl_ahead_once, p, at, left);                                                        \
            left -= PL_BLOCK_PAIRS * (int64_t)step;                                                                    \
            if (p->kc - k < PL_PANEL_BLOCK)                                                                            \
                w = pl_fill_up(tail, at, (int)(p->kc - k + 1) / 2, step);                                              \
            else if ((fetch) && ahead)                                                                                 \
                fetch_block(next, step);                                                                               \
            body                                                                                                       \
        }                                                                                                              \
    } while (0)

// Tiles 0 to 3 are sums, whose places are rows of PL_PANEL floats.
enum { SUM_ROW = PL_PANEL * sizeof(float) };

static void take_sums(float *const at[4], bool resume) {
    pl_tile_zero(0);
    pl_tile_zero(1);
    pl_tile_zero(2);
    pl_tile_zero(3);
    if (!resume) return;
    pl_tile_load(0, at[0], SUM_ROW);
    pl_tile_load(1, at[1], SUM_ROW);
    pl_tile_load(2, at[2], SUM_ROW);
    pl_tile_load(3, at[3], SUM_ROW);
}

static void leave_sums(float *const at[4]) {
    pl_tile_store(0, at[0], SUM_ROW);
    pl_tile_store(1, at[1], SUM_ROW);
    pl_tile_store(2, at[2], SUM_ROW);
    pl_tile_store(3, at[3], SUM_ROW);
}

void pl_tiles_pass(int rows, int width, const pl_pass *p) {
    const size_t       step = (size_t)width * 4;
    const bool         ahead = pl_fetch_ahead();
    _Alignas(64) char  tail[PL_BLOCK_PAIRS * PL_PANEL * 4];
    // Sums on their way between y, of which a panel's columns and these rows may not all be there, and tiles.
    _Alignas(64) float y[PL_TILE_ROWS_MOST][PL_PANEL];
    if (p->resume) {
        memset(y, 0, sizeof y);
        pl_take_edge(y[0], PL_PANEL, rows, p);
    }
    if (rows <= PL_TILE_ROWS) {
        float *const sums[4] = {&y[0][0], &y[0][16], &y[0][32], &y[0][48]};
        take_sums(sums, p->resume);
        if (width == PL_PANEL)
            OVER_BLOCKS(1, true, {
                pl_tile_load(4, x, 64);
                pl_tile_load(5, w, step);
                pl_tile_product(0, 4, 5);
                pl_tile_load(6, w + 64, step);
                pl_tile_product(1, 4, 6);
                pl_tile_load(7, w + 128, step);
                pl_tile_product(2, 4, 7);
                pl_tile_load(5, w + 192, step);
                pl_tile_product(3, 4, 5);
            });
        else
            OVER_BLOCKS(1, true, {
                pl_tile_load(4, x, 64);
                pl_tile_load(5, w, step);
                pl_tile_product(0, 4, 5);
                pl_tile_load(6, w + 64, step);
                pl_tile_product(1, 4, 6);
            });
        leave_sums(sums);
    } else {
        for (int j = 0; j < width; j += 2 * PL_TILE_ROWS) {
            float *const sums[4] = {&y[0][j], &y[0][j + 16], &y[16][j], &y[16][j + 16]};
            take_sums(sums, p->resume);
            OVER_BLOCKS(2, j == 0, {
                pl_tile_load(4, x, 64);
                pl_tile_load(6, w + (size_t)j * 4, step);
                pl_tile_load(5, x + X_TILE, 64);
                pl_tile_load(7, w + (size_t)j * 4 + 64, step);
                pl_tile_product(0, 4, 6);
                pl_tile_product(2, 5, 6);
                pl_tile_product(1, 4, 7);
                pl_tile_product(3, 5, 7);
            });
            leave_sums(sums);
        }
    }
    pl_leave_edge(y[0], PL_PANEL, rows, p);
}

#ifndef PL_TILES_EMULATED
double pl_unit_run(int times) {
    pl_tiles_begin(); // all zero: the unit takes as long
    for (int i = 0; i < times; i++) {
        pl_tile_product(0, 4, 6);
        pl_tile_product(1, 4, 7);
        pl_tile_product(2, 5, 6);
        pl_tile_product(3, 5, 7);
    }
    pl_tiles_end();
    return 4.0 * 2 * PL_TILE_ROWS * PL_TILE_ROWS * PL_PANEL_BLOCK * times;
}
#endif
#else
void pl_tiles_pass(int rows, int width, const pl_pass *p) { // never asked
    (void)rows, (void)width, (void)p;
}
#endif
