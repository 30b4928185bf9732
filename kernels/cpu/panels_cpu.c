#include "kernels/base/probe.h"
#include "kernels/cpu/panels.h"

#include <string.h>

#define NW (PL_PANEL / PL_VN_LANES) // vectors of one k of a panel
#define HALF (NW / 2)               // of half a panel

// The weights of one k of a panel of W vectors.
PL_INLINE void load_weights(const int W, const char *p, pl_vn w[NW]) {
#pragma GCC    unroll 8
    for (int v = 0; v < W; v++)
        w[v] = pl_vn_loadu((const float *)p + v * PL_VN_LANES);
}

// How many bytes ahead of its use a line is prefetched. Processors drop a prefetch when too many lines are under way,
// and the line of a dropped one is then waited for (30 MB of prefetches alone take a quarter of the time of 30 MB of
// loads). Where few rows read out of a cache, a second and a third try pay (with more rows arithmetic leaves time
// enough). Distances that differ by multiples of 4 KiB do not: such tries meet in the same sets of the first-level
// cache. Memory is asked once: it is what limits there.
enum { TRIES = 3 };
static const size_t ahead_near[TRIES] = {PL_PANELS_AHEAD, 17408, 10240};
static const size_t ahead_once[PL_PASS_PANELS + 1] = {0, 16384, 4096}; // of each panel, by panels side by side

typedef void (*pass_fn)(const pl_pass *p);

PL_INLINE void run_pass(const int R, const int G, const int W, const int tries, const pl_pass *p) {
    const int    width = W * PL_VN_LANES;  // of a panel
    const size_t step = (size_t)width * 4; // bytes of one k
    const bool   whole = p->cols == (int64_t)width * G;
    pl_vn        acc[PL_PASS_PANELS][PL_MR_PANEL][NW]; // constant sizes: [G][R] would be variable-length
    float        edge[PL_MR_PANEL * PL_PANEL];

    const float *from = p->y;
    int64_t      ld = p->ldy;
    if (p->resume && !whole) {
        for (int r = 0; r < R; r++)
            for (int64_t j = 0; j < width * G; j++)
                edge[r * width * G + j] = j < p->cols ? p->y[r * p->ldy + j] : 0.0f;
        from = edge;
        ld = width * G;
    }
#pragma GCC unroll 4
    for (int g = 0; g < G; g++)
#pragma GCC unroll 16
        for (int r = 0; r < R; r++)
#pragma GCC unroll 8
            for (int v = 0; v < W; v++)
                acc[g][r][v] = p->resume ? pl_vn_loadu(from + r * ld + g * width + v * PL_VN_LANES) : pl_vn_set1(0.0f);

    const float  *x = p->x;
    const char   *w = p->w;
    const size_t  next = p->panel_bytes;
    // What each try is away from w. Near the end of the panels it turns to where the next pass will start.
    const size_t *ahead = tries > 1 ? ahead_near : &ahead_once[G];
    uintptr_t     off[TRIES];
    for (int t = 0; t < tries; t++)
        off[t] = ahead[t]; // NOLINT(clang-analyzer-core.uninitialized.Assign): a constant of either table
    int64_t k = 0;
    for (int turned = 0; turned <= tries; turned++) {
        const int64_t left = turned < tries ? (int64_t)(ahead[turned] / step) : 0;
        for (const int64_t end = p->kc - left; k < end; k++, x += R, w += step) {
            pl_vn xb[PL_MR_PANEL], wv[PL_PASS_PANELS][NW];
            // Whichever operand needs fewer registers is held, the other one is fetched as it is used.
            if (R <= W * G) {
#pragma GCC unroll 16
                for (int r = 0; r < R; r++)
                    xb[r] = pl_vn_set1(x[r]);
            } else {
#pragma GCC unroll 4
                for (int g = 0; g < G; g++)
                    load_weights(W, w + (size_t)g * next, wv[g]);
            }
#pragma GCC unroll 4
            for (int g = 0; g < G; g++) {
                for (int t = 0; t < tries; t++)
                    for (int line = 0; line < width * 4 / 64; line++)
                        __builtin_prefetch((const char *)((uintptr_t)w + off[t]) + (size_t)g * next + 64 * line);
                if (R <= W * G) load_weights(W, w + (size_t)g * next, wv[g]);
            }
            if (R <= W * G) {
#pragma GCC unroll 4
                for (int g = 0; g < G; g++)
#pragma GCC unroll 8
                    for (int v = 0; v < W; v++)
#pragma GCC unroll 16
                        for (int r = 0; r < R; r++)
                            acc[g][r][v] = pl_vn_fma(xb[r], wv[g][v], acc[g][r][v]);
            } else {
#pragma GCC unroll 16
                for (int r = 0; r < R; r++) {
                    pl_vn b = pl_vn_set1(x[r]);
#pragma GCC unroll 4
                    for (int g = 0; g < G; g++)
#pragma GCC unroll 8
                        for (int v = 0; v < W; v++)
                            acc[g][r][v] = pl_vn_fma(b, wv[g][v], acc[g][r][v]);
                }
            }
        }
        if (left == 0) break;
        const size_t past = ahead[turned] - (size_t)(p->kc - k) * step;
        off[turned] = p->after ? (uintptr_t)p->after + past - (uintptr_t)w : off[turned] + (size_t)(G - 1) * next;
    }

    float *to = whole ? p->y : edge;
    ld = whole ? p->ldy : (int64_t)width * G;
#pragma GCC unroll 4
    for (int g = 0; g < G; g++)
#pragma GCC unroll 16
        for (int r = 0; r < R; r++)
#pragma GCC unroll 8
            for (int v = 0; v < W; v++)
                pl_vn_storeu(to + r * ld + g * width + v * PL_VN_LANES, acc[g][r][v]);
    if (!whole)
        for (int r = 0; r < R; r++)
            memcpy(p->y + r * p->ldy, edge + (size_t)r * width * G, (size_t)p->cols * sizeof(float));
}

// G panels for R rows; combinations that the registers cannot hold become an unused 1 x 1.
#define FIT_R(R, G) ((R) * (G) <= PL_MR_PANEL ? (R) : 1)
#define FIT_G(R, G) ((R) * (G) <= PL_MR_PANEL ? (G) : 1)
#define PASS(R, G, T)                                                                                                  \
    static void pass_##R##_##G##_##T(const pl_pass *p) {                                                               \
        run_pass(FIT_R(R, G), FIT_G(R, G), NW, T, p);                                                                  \
    }
#define HALF_PASS(R, T)                                                                                                \
    static void half_##R##_##T(const pl_pass *p) {                                                                     \
        run_pass(FIT_R(R, 1), 1, HALF, T, p);                                                                          \
    }
#define PASSES(X, T) X(1, 1, T) X(2, 1, T) X(3, 1, T) X(4, 1, T) X(5, 1, T) X(6, 1, T) X(1, 2, T) X(2, 2, T) X(3, 2, T)
#define ALL(X) PASSES(X, 0) PASSES(X, 1)
#define NEAR(X) X(1, 1, 3) X(2, 1, 3) X(3, 1, 3)
#define HALVES(X, T) X(1, T) X(2, T) X(3, T) X(4, T) X(5, T) X(6, T)
ALL(PASS)
NEAR(PASS)
HALVES(HALF_PASS, 0)
HALVES(HALF_PASS, 1)

_Static_assert(PL_MR_PANEL <= 6 && PL_PASS_PANELS == 2 && TRIES == 3, "the lists above");
#define ENTRY(R, G, T) [T][G][R] = pass_##R##_##G##_##T,
#define HALF_ENTRY(R, T) [T][R] = half_##R##_##T,
static const pass_fn passes[TRIES + 1][PL_PASS_PANELS + 1][7] = {ALL(ENTRY) NEAR(ENTRY)};
static const pass_fn halves[2][7] = {HALVES(HALF_ENTRY, 0) HALVES(HALF_ENTRY, 1)};

void pl_panels_pass(bool bf16, int rows, int panels, const pl_pass *p) {
    if (bf16) {
        if (p->code)
            pl_codes_pass(rows, p);
        else
            pl_pairs_pass(rows, PL_PANEL, p);
        return;
    }
    bool near = panels == 1 && rows <= 3 && !p->far;
    passes[!pl_fetch_ahead() ? 0 : near ? TRIES : 1][panels][rows](p);
}

void pl_panels_half_pass(bool bf16, int rows, const pl_pass *p) {
    if (bf16)
        pl_pairs_pass(rows, PL_HALF_PANEL, p);
    else
        halves[pl_fetch_ahead()][rows](p);
}
