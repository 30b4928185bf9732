// Passes over panels of bf16, by whichever way the level has for so many rows; here that with fma.
//
// Of a block of 32 k, 4 KB of a panel, a group of columns at a time: its even and odd chains for all rows are in
// registers, so that as many are under way as fma takes to finish; y, in the first-level cache, takes their sums once a
// block.
#include "kernels/cpu/pairs.h"

enum { COLUMNS_MOST = 4 }; // vectors of columns of a group

uint64_t pl_panels_begin(bool bf16) {
    return bf16 ? pl_flush_denormals() : 0;
}

void pl_panels_end(bool bf16, uint64_t mode) {
    if (!bf16) return;
    pl_flush_end(mode);
#ifdef PL_TILES
    pl_tiles_end();
#endif
}

typedef void (*pass_fn)(const pl_pass *p);

PL_INLINE void run_pass(const int R, const int C, const int W, const int tries, const pl_pass *p) {
    const int     width = W * PL_VN_LANES;
    const size_t  step = (size_t)width * 4; // bytes of a pair of k
    const bool    whole = p->cols == width;
    float         edge[PL_MR_BF16 * PL_PANEL];
    float        *to = whole ? p->y : edge;
    const int64_t ld = whole ? p->ldy : width;
    const float  *x = p->x;
    const char   *w = p->w;
    bool          first = !p->resume;
    if (!first && !whole) pl_take_edge(edge, width, R, p);

    int64_t left = (p->kc + 1) / 2 * (int64_t)step;
    for (int64_t k = 0; k < p->kc; k += PL_PANEL_BLOCK, first = false) {
        const int   pairs = p->kc - k < PL_PANEL_BLOCK ? (int)(p->kc - k + 1) / 2 : PL_BLOCK_PAIRS;
        const char *next[PL_TRIES];
        pl_find_ahead(next, tries, tries > 1 ? pl_ahead_near : pl_ahead_once, p, w, left);
        for (int v0 = 0; v0 < W; v0 += C) {
            const size_t at = (size_t)v0 * sizeof(pl_vn);
            pl_vn        even[PL_MR_BF16][COLUMNS_MOST], odd[PL_MR_BF16][COLUMNS_MOST];
#pragma GCC unroll 12
            for (int r = 0; r < R; r++)
#pragma GCC unroll 4
                for (int c = 0; c < C; c++)
                    even[r][c] = odd[r][c] = pl_vn_set1(0.0f);
            for (int q = 0; q < pairs; q++) {
                const size_t here = (size_t)q * step + at;
                const float *xq = x + (int64_t)q * 2 * R;
                for (int t = 0; t < tries && v0 == 0; t++) // all of a pair: one stream, however columns are grouped
                    for (size_t line = 0; line < step; line += 64)
                        __builtin_prefetch(next[t] + here + line);
#pragma GCC unroll 4
                for (int c = 0; c < C; c++) {
                    pl_vnu words;
                    memcpy(&words, w + here + (size_t)c * sizeof words, sizeof words);
                    pl_vn lo = (pl_vn)(words << 16), hi = (pl_vn)(words & 0xffff0000u);
#pragma GCC unroll 12
                    for (int r = 0; r < R; r++) {
                        even[r][c] = pl_vn_fma_bf16(pl_vn_set1(xq[r]), lo, even[r][c]);
                        odd[r][c] = pl_vn_fma_bf16(pl_vn_set1(xq[R + r]), hi, odd[r][c]);
                    }
                }
            }
            const pl_vn zero = pl_vn_set1(0.0f);
#pragma GCC unroll 12
            for (int r = 0; r < R; r++)
#pragma GCC unroll 4
                for (int c = 0; c < C; c++) {
                    float *sum = to + r * ld + (v0 + c) * PL_VN_LANES;
                    // The products of zeros that a short block ends with change the sign of a zero at most.
                    if (pairs < PL_BLOCK_PAIRS) even[r][c] += zero, odd[r][c] += zero;
                    pl_vn_storeu(sum, (first ? zero : pl_vn_loadu(sum)) + (even[r][c] + odd[r][c]));
                }
        }
        x += (int64_t)pairs * 2 * R;
        w += (size_t)pairs * step;
        left -= pairs * (int64_t)step;
    }
    if (!whole) pl_leave_edge(edge, width, R, p);
}

// As many columns as the chains of R rows leave room for; rows that are never called shrink to nothing.
#define FIT(R) ((R) <= PL_FMA_ROWS ? (R) : 1)
#define GROUP(R) (8 * FIT(R) <= PL_CHAINS ? 4 : 4 * FIT(R) <= PL_CHAINS ? 2 : 1)
enum { WIDE = PL_PANEL / PL_VN_LANES, HALF = PL_HALF_PANEL / PL_VN_LANES };
#define PASS(R, T)                                                                                                     \
    static void pass_##R##_##T(const pl_pass *p) {                                                                     \
        run_pass(FIT(R), GROUP(R), WIDE, T, p);                                                                        \
    }
#define HALF_PASS(R, T)                                                                                                \
    static void half_##R##_##T(const pl_pass *p) {                                                                     \
        run_pass(FIT(R), GROUP(R) < HALF ? GROUP(R) : HALF, HALF, T, p);                                               \
    }
#define ROWS(X, T) X(1, T) X(2, T) X(3, T) X(4, T) X(5, T) X(6, T) X(7, T) X(8, T) X(9, T) X(10, T) X(11, T) X(12, T)
#define ALL(X) ROWS(X, 0) ROWS(X, 1)
#define NEAR(X) X(1, 3) X(2, 3) X(3, 3)
ALL(PASS)
ALL(HALF_PASS)
NEAR(PASS)

#define PASS_OF(R, T) [T][R] = pass_##R##_##T,
#define HALF_OF(R, T) [T][R] = half_##R##_##T,
static const pass_fn passes[PL_TRIES + 1][13] = {ALL(PASS_OF) NEAR(PASS_OF)};
static const pass_fn halves[2][13] = {ALL(HALF_OF)};

static void fma_pass(int rows, int width, const pl_pass *p) {
    const int tries = p->far && rows <= 2 && !pl_fetch_ahead_far() ? 0 : pl_tries(rows <= 3 && !p->far);
    if (width == PL_HALF_PANEL)
        halves[tries > 0][rows](p);
    else
        passes[tries][rows](p);
}

void pl_pairs_pass(int rows, int width, const pl_pass *p) {
    if (rows > PL_FEW_ROWS)
        pl_tiles_pass(rows, width, p);
    else if (PL_DOT_ROWS > 0)
        pl_dots_pass(rows, width, p);
    else
        fma_pass(rows, width, p);
}

#if !defined(PL_DOTS) && !defined(PL_TILES) || defined(PL_TILES_EMULATED)
double pl_unit_run(int times) { // there is none
    (void)times;
    return 0;
}
#endif
