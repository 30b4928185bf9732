// Passes over panels of bf16, by whichever way the level has for so many rows; here that with fma.
//
// A pass multiplies a block of 32 k (4 KB of a panel) by all of its rows while the block is in the first-level cache,
// and adds the sums to y once a block. A group is up to three rows by as many vectors of columns as registers hold: it
// has enough even and odd chains to hide fma's latency, and makes more products than it loads operands.
#include "kernels/cpu/pairs.h"

enum {
    ROWS = 3,    // of a group at most
    COLUMNS = 4, // vectors of columns of a group at most
    DIRECT = 8,  // rows whose sums are in y: more, powers of two apart, would share the sets of a cache
};

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

// A block: `pairs` pairs of k, of x's rows `ldx` apart by pair.
typedef struct block {
    const char  *w;
    const float *x;
    int64_t      ldx;
    float       *y;
    int64_t      ld;
    int          pairs;
    bool         first; // sums start from zero
    const char  *next;  // the block to fetch meanwhile; unset without
} block;

// One step of the chains of one kind.
PL_INLINE void add_half(pl_vn sum[ROWS][COLUMNS], const int R, const int C, const bool odd, const char *w,
                        const float *x) {
    pl_vn part[COLUMNS];
#pragma GCC unroll 4
    for (int c = 0; c < C; c++) {
        pl_vnu words;
        memcpy(&words, w + (size_t)c * sizeof words, sizeof words);
        part[c] = odd ? (pl_vn)(words & 0xffff0000u) : (pl_vn)(words << 16);
    }
#pragma GCC unroll 3
    for (int r = 0; r < R; r++) {
        const pl_vn xr = pl_vn_set1(x[r]);
#pragma GCC unroll 4
        for (int c = 0; c < C; c++)
            sum[r][c] = pl_vn_fma_bf16(xr, part[c], sum[r][c]);
    }
}

// R rows over W vectors, C at a time. Words are loaded for each kind of chains: the compiler would rather keep both
// halves, and sums in memory. What is fetched meanwhile is shared out over all columns, in the order of memory.
PL_INLINE void run_rows(const int R, const int C, const int W, const bool ahead, const block *b) {
    const size_t  step = W * sizeof(pl_vn), share = step * (size_t)C / (size_t)W; // bytes of a pair of k
    const int64_t ldx = b->ldx;
    for (int v0 = 0; v0 < W; v0 += C) {
        const char  *w = b->w + (size_t)v0 * sizeof(pl_vn);
        const float *x = b->x;
        pl_vn        even[ROWS][COLUMNS], odd[ROWS][COLUMNS];
#pragma GCC unroll 3
        for (int r = 0; r < R; r++)
#pragma GCC unroll 4
            for (int c = 0; c < C; c++)
                even[r][c] = odd[r][c] = pl_vn_set1(0.0f);
        for (int q = 0; q < b->pairs; q++, w += step, x += ldx) {
            const size_t next = (size_t)(v0 / C * PL_BLOCK_PAIRS + q) * share;
            for (size_t line = 0; line < share && ahead; line += 64)
                __builtin_prefetch(b->next + next + line);
            add_half(even, R, C, false, w, x);
            if (2 * R * C >= PL_CHAINS) __asm__ volatile("" ::: "memory");
            add_half(odd, R, C, true, w, x + ldx / 2);
        }
        const pl_vn zero = pl_vn_set1(0.0f);
#pragma GCC unroll 3
        for (int r = 0; r < R; r++)
#pragma GCC unroll 4
            for (int c = 0; c < C; c++) {
                float *sum = b->y + r * b->ld + (v0 + c) * PL_VN_LANES;
                // The products of zeros that a short block ends with change the sign of a zero at most.
                if (b->pairs < PL_BLOCK_PAIRS) even[r][c] += zero, odd[r][c] += zero;
                pl_vn_storeu(sum, (b->first ? zero : pl_vn_loadu(sum)) + (even[r][c] + odd[r][c]));
            }
    }
}

// As many of W columns as the chains of R rows leave room for.
#define FIT(R) (8 * (R) <= PL_CHAINS ? 4 : 4 * (R) <= PL_CHAINS ? 2 : 1)
#define GROUP(R, W) (FIT(R) < (W) ? FIT(R) : (W))
enum { WIDE = PL_PANEL / PL_VN_LANES, HALF = PL_HALF_PANEL / PL_VN_LANES };

typedef void (*rows_fn)(const block *b);

// Functions of their own: inlined into one the compiler keeps some of their sums in memory.
#define TAKE(R, T)                                                                                                     \
    static __attribute__((noinline)) void wide_##R##_##T(const block *b) {                                             \
        run_rows(R, GROUP(R, WIDE), WIDE, T, b);                                                                       \
    }                                                                                                                  \
    static __attribute__((noinline)) void half_##R##_##T(const block *b) {                                             \
        run_rows(R, GROUP(R, HALF), HALF, T, b);                                                                       \
    }
#define ALL(X) X(1, 0) X(2, 0) X(3, 0) X(1, 1) X(2, 1) X(3, 1)
ALL(TAKE)
#define WIDE_OF(R, T) [T][R] = wide_##R##_##T,
#define HALF_OF(R, T) [T][R] = half_##R##_##T,
static const rows_fn wide[2][ROWS + 1] = {ALL(WIDE_OF)}, half[2][ROWS + 1] = {ALL(HALF_OF)};

static void fma_pass(int rows, int width, const pl_pass *p) {
    const int    groups = (rows + ROWS - 1) / ROWS, most = (rows + groups - 1) / groups;
    const int    high = rows - groups * (most - 1); // groups of `most` rows; the others have one less
    const bool   ahead = pl_fetch_ahead() && !p->here && (rows > 2 || !p->far || pl_fetch_ahead_far());
    const size_t step = (size_t)width * 4; // bytes of a pair of k
    const bool   whole = p->cols == width && rows <= DIRECT;
    float        edge[PL_PASS_ROWS * PL_PANEL];
    float       *to = whole ? p->y : edge;
    const float *x = p->x;
    int64_t      left = (p->kc + 1) / 2 * (int64_t)step;
    block        b = {.w = p->w, .ldx = 2 * rows, .ld = whole ? p->ldy : width, .first = !p->resume};

    const rows_fn(*take)[ROWS + 1] = width == PL_PANEL ? wide : half;
    if (p->resume && !whole) pl_take_edge(edge, width, rows, p);
    for (int64_t k = 0; k < p->kc; k += PL_PANEL_BLOCK, b.first = false) {
        b.pairs = p->kc - k < PL_PANEL_BLOCK ? (int)(p->kc - k + 1) / 2 : PL_BLOCK_PAIRS;
        b.x = x;
        b.y = to;
        if (ahead) pl_find_ahead(&b.next, 1, pl_ahead_once, p, b.w, left);
        for (int i = 0; i < groups; i++) {
            const int r = i < high ? most : most - 1;
            take[i == 0 && ahead][r](&b);
            b.x += r;
            b.y += r * b.ld;
        }
        x += (int64_t)b.pairs * b.ldx;
        b.w += (size_t)b.pairs * step;
        left -= b.pairs * (int64_t)step;
    }
    if (!whole) pl_leave_edge(edge, width, rows, p);
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
