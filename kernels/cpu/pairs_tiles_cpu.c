// Passes over panels of bf16 with a matrix unit: 16 or 32 rows by 64 or 32 columns are tiles of sums.
#include "kernels/cpu/pairs.h"

#ifdef PL_TILES
_Thread_local int PL_CPU(tiles_high);
#ifdef PL_TILES_EMULATED
_Thread_local pl_tile PL_CPU(tile)[8];
#endif

enum { X_TILE = PL_TILE_ROWS * PL_PANEL_BLOCK }; // bf16 values of a whole tile of x

PL_INLINE void fetch_ahead(const pl_pass *p, const char *at, const size_t step) {
    const char *next[PL_TRIES];
    pl_find_ahead(next, 1, pl_ahead_once, p, at, (p->kc + 1) / 2 * (int64_t)step - (at - p->w));
    for (size_t i = 0; i < PL_BLOCK_PAIRS * step; i += 64)
        __builtin_prefetch(next[0] + i);
}

// Keeps both units of a core awake. On a Xeon with AMX (family 6 model 167) a core that has multiplied no vectors for
// 0.5 us takes 300 ns over its next store of a tile, 4 ns when awake; after 0.5 us without products of tiles the next
// one takes as long. A pass over a panel of K = 256 waits 1.1 us for its weights.
PL_INLINE void keep_awake(void) {
    pl_vn v = pl_vn_set1(0.0f);
    __asm__ volatile("" : "+m"(v));
    v *= v;
    __asm__ volatile("" ::"m"(v));
}

// A walk over the blocks: `body` sees x and w of each.
#define OVER_BLOCKS(x_rows, body)                                                                                      \
    do {                                                                                                               \
        const uint16_t *x = p->x;                                                                                      \
        const char     *at = p->w;                                                                                     \
        for (int64_t k = 0; k < p->kc;                                                                                 \
             k += PL_PANEL_BLOCK, x += (x_rows)*PL_PANEL_BLOCK, at += PL_BLOCK_PAIRS * step) {                         \
            const char *w = at;                                                                                        \
            if (p->kc - k < PL_PANEL_BLOCK) w = pl_fill_up(tail, at, (int)(p->kc - k + 1) / 2, step);                  \
            if (ahead) fetch_ahead(p, at, step);                                                                       \
            for (int i = 0; i < lines && soon < soon_end; i++, soon += 64)                                             \
                __builtin_prefetch(soon, 0, 2);                                                                        \
            keep_awake();                                                                                              \
            body                                                                                                       \
        }                                                                                                              \
    } while (0)

// Where a tile of sums lies: in y, or where rows or columns of it are not there in a place of its own.
typedef struct place {
    float  *at;
    size_t  stride; // bytes
    float  *own;
    int64_t rows, cols; // of y, where it has a place of its own
} place;

PL_INLINE place place_of(const pl_pass *p, int rows, int high, int r, int j, float *own) {
    int64_t there = rows - r < high ? rows - r : high;
    int64_t wide = p->cols - j < PL_TILE_ROWS ? p->cols - j : PL_TILE_ROWS;
    float  *y = p->y + r * p->ldy + j;
    place   s = {.at = y, .stride = (size_t)p->ldy * sizeof *y};
    if (there == high && wide == PL_TILE_ROWS) return s;
    s.own = own;
    s.rows = there;
    s.cols = wide > 0 ? wide : 0;
    if (!p->resume) return s;
    memset(own, 0, PL_TILE_ROWS * PL_TILE_ROWS * sizeof *own);
    for (int64_t i = 0; i < s.rows; i++)
        memcpy(own + i * PL_TILE_ROWS, y + i * p->ldy, (size_t)s.cols * sizeof *own);
    return s;
}

PL_INLINE void settle(const place *s) {
    for (int64_t i = 0; s->own && i < s->rows; i++)
        memcpy((char *)s->at + (size_t)i * s->stride, s->own + i * PL_TILE_ROWS, (size_t)s->cols * sizeof *s->own);
}

// Tiles 0 to 3 are sums.
#define SUM(t, DO)                                                                                                     \
    DO(t, sums[t].own ? (void *)sums[t].own : (void *)sums[t].at,                                                      \
       sums[t].own ? PL_TILE_ROWS * sizeof(float) : sums[t].stride)

static void take_sums(const place sums[4], bool resume) {
    pl_tile_zero(0);
    pl_tile_zero(1);
    pl_tile_zero(2);
    pl_tile_zero(3);
    if (!resume) return;
    SUM(0, pl_tile_load);
    SUM(1, pl_tile_load);
    SUM(2, pl_tile_load);
    SUM(3, pl_tile_load);
}

static void leave_sums(const place sums[4]) {
    SUM(0, pl_tile_store);
    SUM(1, pl_tile_store);
    SUM(2, pl_tile_store);
    SUM(3, pl_tile_store);
    for (int t = 0; t < 4; t++)
        settle(&sums[t]);
}

void pl_tiles_pass(int rows, int width, const pl_pass *p) {
    const size_t       step = (size_t)width * 4;
    _Alignas(64) char  tail[PL_BLOCK_PAIRS * PL_PANEL * 4];
    _Alignas(64) float own[4][PL_TILE_ROWS * PL_TILE_ROWS];
    const bool         ahead = pl_fetch_ahead() && rows <= PL_TILE_ROWS && !p->soon && !p->here;
    place              sums[4];
    const int          high = rows < PL_TILE_ROWS && !p->among ? rows : PL_TILE_ROWS;
    // Of `soon` so many lines with each block. What 32 rows multiply has been brought to the second-level cache so, or
    // by the 16 before them (pl_rows_begin).
    const int64_t      walks = rows > PL_TILE_ROWS ? width / (2 * PL_TILE_ROWS) : 1;
    const int64_t      times = (p->kc + PL_PANEL_BLOCK - 1) / PL_PANEL_BLOCK * walks;
    const int          lines = (int)((p->soon_lines + times - 1) / times);
    const char *soon = p->soon, *const soon_end = soon + 64 * p->soon_lines;
    pl_tiles_high(high);
    if (rows <= PL_TILE_ROWS) {
        // Of half a panel tiles 2 and 3 stay zero, and lie past its columns.
        for (int t = 0; t < 4; t++)
            sums[t] = place_of(p, rows, high, 0, t * PL_TILE_ROWS, own[t]);
        take_sums(sums, p->resume);
        if (width == PL_PANEL)
            OVER_BLOCKS(high, {
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
            OVER_BLOCKS(high, {
                pl_tile_load(4, x, 64);
                pl_tile_load(5, w, step);
                pl_tile_product(0, 4, 5);
                pl_tile_load(6, w + 64, step);
                pl_tile_product(1, 4, 6);
            });
        leave_sums(sums);
        return;
    }
    for (int j = 0; j < width; j += 2 * PL_TILE_ROWS) {
        for (int t = 0; t < 4; t++)
            sums[t] = place_of(p, rows, high, t / 2 * PL_TILE_ROWS, j + t % 2 * PL_TILE_ROWS, own[t]);
        take_sums(sums, p->resume);
        OVER_BLOCKS(2 * PL_TILE_ROWS, {
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

#ifndef PL_TILES_EMULATED
double pl_unit_run(int times) {
    pl_tiles_high(PL_TILE_ROWS); // all zero: the unit takes as long
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
