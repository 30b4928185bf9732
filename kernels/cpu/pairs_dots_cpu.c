// Passes over panels of bf16 with products of pairs (pl_vn_dot). Words of a panel hold k and k + 1; those of two pairs
// are turned into words of one chain each, k with k + 2, as they are loaded, and so are the rows (rows_cpu.c).
//
// Of a block of 32 k, 4 KB of a panel, up to six rows by two vectors of columns at a time: 24 chains, of which the
// processor needs six to twelve under way. All rows of a pass take a block while it is in the first-level cache, y too.
//
// What is fetched ahead is the processor's question (ahead.h). Where fetching pays, all passes fetch as that of one row
// does. Where it does not, up to two rows read as fast as caches feed them; from three on arithmetic takes the longer
// time, and the last group of a block fetches a later one into the second-level cache: no line is waited for then, and
// none of the first level's is lost. Each vector that it loads has its counterpart fetched: spread over all of the
// group's work, since fetches that wait for each other hold up what comes behind them.
// Three and four rows go through a block twice, for the even chains and then for the odd ones: registers then hold the
// sums of all of a panel's columns, and reading keeps to the order of memory. (Five and six lose more by going twice.)
#include "kernels/cpu/pairs.h"

#ifdef PL_DOTS
enum {
    BLOCK = PL_PANEL_BLOCK,
    LINE = BLOCK / 2, // words of a row in a block
    ROWS = 6,         // of a group
    COLUMNS = 4,      // vectors of one at most
    FEW = 2,          // rows of passes that reading limits, where nothing is fetched ahead
    ALONE = 4,        // and up to here, rows that take a block in two goes
    WIDE = PL_PANEL / PL_VN_LANES,
    HALF = PL_HALF_PANEL / PL_VN_LANES,
};

// What a pass fetches: each line once; once, into the second-level cache; each line as often as PL_TRIES.
enum { NOTHING, ONCE, DEEP, NEAR, FETCHES };

typedef struct group {
    const uint32_t    *x;      // its first row's words
    const char        *w;      // its first column's
    size_t             step;   // bytes of a pair of k
    ptrdiff_t          deeper; // from w to what is fetched into the second-level cache
    float             *y;
    int64_t            ld;
    bool               resume; // y has sums already
    const char *const *next;   // what to fetch meanwhile: NULL, or as much as the block has, from so many places
} group;

// What column c of C has fetched of pair q.
PL_INLINE void fetch_share(const int tries, const group *g, int q, int c, const int C) {
    const size_t share = g->step / (size_t)C;
    for (int t = 0; t < tries && g->next; t++)
        for (size_t line = 0; line < share; line += 64)
            __builtin_prefetch(g->next[t] + (size_t)q * g->step + (size_t)c * share + line);
}

// deep: each vector's counterpart later on is fetched, into the second-level cache alone.
PL_INLINE void run_group(const int R, const int C, const bool deep, const int tries, const group *g) {
    const ptrdiff_t deeper = deep ? g->deeper : 0;
    pl_vn           even[ROWS][COLUMNS], odd[ROWS][COLUMNS];
#pragma GCC unroll 6
    for (int r = 0; r < R; r++)
#pragma GCC unroll 4
        for (int c = 0; c < C; c++)
            even[r][c] = odd[r][c] = pl_vn_set1(0.0f);
    for (int q = 0; q < PL_BLOCK_PAIRS; q += 2) {
        const char *w = g->w + (size_t)q * g->step;
        pl_vnu      low[COLUMNS], high[COLUMNS], we[COLUMNS], wo[COLUMNS];
        // In the order of memory, as processors foresee it; what is fetched stands among the loads, since fetches in
        // one go wait for each other.
#pragma GCC unroll 4
        for (int c = 0; c < C; c++) {
            fetch_share(tries, g, q, c, C);
            if (deep) __builtin_prefetch(w + deeper + (size_t)c * sizeof(pl_vnu), 0, 2);
            low[c] = pl_vn_take_words(w + (size_t)c * sizeof(pl_vnu));
        }
#pragma GCC unroll 4
        for (int c = 0; c < C; c++) {
            fetch_share(tries, g, q + 1, c, C);
            if (deep) __builtin_prefetch(w + deeper + g->step + (size_t)c * sizeof(pl_vnu), 0, 2);
            high[c] = pl_vn_take_words(w + g->step + (size_t)c * sizeof(pl_vnu));
            pl_vn_chain_words(low[c], high[c], &we[c], &wo[c]);
        }
#pragma GCC unroll 6
        for (int r = 0; r < R; r++) {
            const pl_vnu none = {0}, xe = none + g->x[r * LINE + q], xo = none + g->x[r * LINE + q + 1];
#pragma GCC unroll 4
            for (int c = 0; c < C; c++) {
                even[r][c] = pl_vn_dot(even[r][c], xe, we[c]);
                odd[r][c] = pl_vn_dot(odd[r][c], xo, wo[c]);
            }
        }
    }
#pragma GCC unroll 6
    for (int r = 0; r < R; r++)
#pragma GCC unroll 4
        for (int c = 0; c < C; c++) {
            float *sum = g->y + r * g->ld + c * PL_VN_LANES;
            pl_vn_storeu(sum, (g->resume ? pl_vn_loadu(sum) : pl_vn_set1(0.0f)) + (even[r][c] + odd[r][c]));
        }
}

// The chains of one kind, over all columns of a panel.
PL_INLINE void run_chains(pl_vn sum[ALONE][WIDE], const int R, const bool odd, const group *g) {
#pragma GCC    unroll 4
    for (int r = 0; r < R; r++)
#pragma GCC unroll 8
        for (int c = 0; c < WIDE; c++)
            sum[r][c] = pl_vn_set1(0.0f);
    for (int q = 0; q < PL_BLOCK_PAIRS; q += 2) {
        pl_vnu word[WIDE];
#pragma GCC unroll 8
        for (int c = 0; c < WIDE; c++) {
            const char *low = g->w + (size_t)q * g->step + (size_t)c * sizeof(pl_vnu), *high = low + g->step;
            pl_vnu      we, wo;
            __builtin_prefetch(low + g->deeper, 0, 2);
            __builtin_prefetch(high + g->deeper, 0, 2);
            pl_vn_chain_words(pl_vn_take_words(low), pl_vn_take_words(high), &we, &wo);
            word[c] = odd ? wo : we;
        }
#pragma GCC unroll 4
        for (int r = 0; r < R; r++) {
            const pl_vnu none = {0}, x = none + g->x[r * LINE + q + odd];
#pragma GCC unroll 8
            for (int c = 0; c < WIDE; c++)
                sum[r][c] = pl_vn_dot(sum[r][c], x, word[c]);
        }
    }
}

// A pass's only group, which takes a block in two goes.
PL_INLINE void run_alone(const int R, const group *g) {
    pl_vn even[ALONE][WIDE], odd[ALONE][WIDE];
    run_chains(even, R, false, g);
    __asm__ volatile("" ::: "memory"); // in this order: the compiler would rather load once and spill sums
    run_chains(odd, R, true, g);
#pragma GCC unroll 4
    for (int r = 0; r < R; r++)
#pragma GCC unroll 8
        for (int c = 0; c < WIDE; c++) {
            float *sum = g->y + r * g->ld + c * PL_VN_LANES;
            pl_vn_storeu(sum, (g->resume ? pl_vn_loadu(sum) : pl_vn_set1(0.0f)) + (even[r][c] + odd[r][c]));
        }
}

static const int64_t ahead_deep[1] = {8192}, ahead_alone[1] = {12288};

typedef void (*pass_fn)(int rows, const pl_pass *p);

// Groups of R rows first, then such of one less.
PL_INLINE void run_pass(const int R, const int W, const int fetch, int rows, const pl_pass *p) {
    const bool    deep = fetch == DEEP;
    const int     tries = fetch == NEAR ? PL_TRIES : fetch != NOTHING;
    const int     C = R <= 2 && W >= 4 ? 4 : 2;
    const int     width = W * PL_VN_LANES, groups = (rows + R - 1) / R, high = rows - groups * (R - 1);
    const bool    alone = deep && W == WIDE && R <= ALONE && groups == 1;
    const size_t  step = (size_t)width * 4;
    const bool    whole = p->cols == width;
    float         edge[PL_PASS_ROWS * PL_PANEL];
    char          tail[PL_BLOCK_PAIRS * PL_PANEL * 4];
    float        *to = whole ? p->y : edge;
    const int64_t ld = whole ? p->ldy : width;
    const char   *at = p->w;
    int64_t       left = (p->kc + 1) / 2 * (int64_t)step;
    if (p->resume && !whole) pl_take_edge(edge, width, rows, p);

    group g = {.x = p->x, .step = step, .ld = ld, .resume = p->resume};
    for (int64_t k = 0; k < p->kc; k += BLOCK, at += PL_BLOCK_PAIRS * step, g.resume = true) {
        const char *next[PL_TRIES], *w = at;
        bool        short_of = p->kc - k < BLOCK;
        pl_find_ahead(next, tries,
                      alone       ? ahead_alone
                      : deep      ? ahead_deep
                      : tries > 1 ? pl_ahead_near
                                  : pl_ahead_once,
                      p, at, left);
        left -= PL_BLOCK_PAIRS * (int64_t)step;
        if (short_of) w = pl_fill_up(tail, at, (int)(p->kc - k + 1) / 2, step);
        if (deep) g.deeper = (ptrdiff_t)((uintptr_t)next[0] - (uintptr_t)w);
        if (alone) {
            g.w = w;
            g.y = to;
            run_alone(R, &g);
            g.x += R * LINE;
            continue;
        }
        for (int i = 0, r = 0; i < groups; i++) {
            for (int v = 0; v < W; v += C) {
                g.w = w + (size_t)v * sizeof(pl_vn);
                g.y = to + r * ld + v * PL_VN_LANES;
                const bool last = i == groups - 1 && !short_of;
                g.next = last && v == 0 ? next : NULL;
                if (deep && last && i < high)
                    run_group(R, C, true, 0, &g);
                else if (deep && last)
                    run_group(R - 1, C, true, 0, &g);
                else if (i < high)
                    run_group(R, C, false, deep ? 0 : tries, &g);
                else
                    run_group(R - 1, C, false, deep ? 0 : tries, &g);
            }
            r += i < high ? R : R - 1;
            g.x += (i < high ? R : R - 1) * LINE;
        }
    }
    if (!whole) pl_leave_edge(edge, width, rows, p);
}

#define PASS(R, F)                                                                                                     \
    static void pass_##R##_##F(int rows, const pl_pass *p) {                                                           \
        run_pass(R, WIDE, F, rows, p);                                                                                 \
    }
#define HALF_PASS(R, F)                                                                                                \
    static void half_##R##_##F(int rows, const pl_pass *p) {                                                           \
        run_pass(R, HALF, F, rows, p);                                                                                 \
    }
#define SIX(X, F) X(1, F) X(2, F) X(3, F) X(4, F) X(5, F) X(6, F)
#define PASSES(X) X(1, NOTHING) X(2, NOTHING) SIX(X, ONCE) X(3, DEEP) X(4, DEEP) X(5, DEEP) X(6, DEEP)
PASSES(PASS)
PASSES(HALF_PASS)
SIX(PASS, NEAR)

#define PASS_OF(R, F) [F][R] = pass_##R##_##F,
#define HALF_OF(R, F) [F][R] = half_##R##_##F,
static const pass_fn passes[FETCHES][ROWS + 1] = {PASSES(PASS_OF) SIX(PASS_OF, NEAR)};
static const pass_fn halves[FETCHES][ROWS + 1] = {PASSES(HALF_OF)};

void pl_dots_pass(int rows, int width, const pl_pass *p) {
    int  groups = (rows + ROWS - 1) / ROWS, highest = (rows + groups - 1) / groups;
    bool half = width == PL_HALF_PANEL, near = !half && !p->far && !p->here;
    int  fetch = pl_fetch_ahead() ? (near ? NEAR : ONCE) : highest > FEW ? DEEP : NOTHING;
    (half ? halves : passes)[fetch][highest](rows, p);
}

#ifndef PL_TILES
double pl_unit_run(int times) {
    enum { CHAINS = 24 };
    const pl_vnu word = (pl_vnu)pl_vn_set1(0.0f);
    pl_vn        sum[CHAINS];
#pragma GCC unroll 24
    for (int c = 0; c < CHAINS; c++)
        sum[c] = pl_vn_set1(0.0f);
    for (int i = 0; i < times; i++) {
#pragma GCC unroll 24
        for (int c = 0; c < CHAINS; c++) {
            sum[c] = pl_vn_dot(sum[c], word, word);
            __asm__ volatile("" : "+v"(sum[c])); // each one is made
        }
    }
    return 4.0 * PL_VN_LANES * CHAINS * times;
}
#endif
#else
void pl_dots_pass(int rows, int width, const pl_pass *p) { // never asked
    (void)rows, (void)width, (void)p;
}
#endif
