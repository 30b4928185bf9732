// Products of numbers in bf16. B is packed as inference packs weights, a block of NC columns by KC at a time, A in the
// tiles of rows that passes take: then it is passes over panels, whose sums rest in C from one block of K to the next.
//
//   for jc over N by NC, pc over K by KC:   pack B[KC, NC] (parallel), then in every part
//     for ic over the part's rows by MC:    pack A[MC, KC] into the part's own buffer (stays in its L2; PL_ROWS_BLOCK)
//       for every panel of B, every tile of A: a pass
#include "kernels/cpu/gemm.h"
#include "kernels/cpu/panels.h"
#include "kernels/panels.h"

enum {
    KC = 512,  // a panel's share is 64 KB: half of it waits in the second-level cache while the other is in the first
    NC = 2048, // rows of A are packed once more for every NC columns, so many that it hardly counts
    PANELS = NC / PL_PANEL,
    SMALL = 30000 // multiply-adds below which a parallel region costs more than it saves
};
_Static_assert(KC % PL_PANEL_BLOCK == 0 && NC % PL_PANEL == 0, "whole blocks");

typedef uint16_t half __attribute__((aligned(1), may_alias)); // mapped files may put them anywhere

typedef struct job {
    pl_gemm_kind kind;
    int64_t      m, n, k, lda, ldc;
    const float *a;
    pl_factor    b;
    float       *c;
    bool         accumulate;
    int          row_parts, col_parts;
    uint32_t    *bpack; // [panels][pairs of kc][width] words, of PL_PANEL each; width is that of width_of
    char        *apack; // apack_bytes for each part
    size_t       apack_bytes;
    int64_t      j0, nc, k0, kc; // the block of B in hand
} job;

static int64_t min64(int64_t a, int64_t b) {
    return a < b ? a : b;
}
static int64_t ceil_div(int64_t a, int64_t b) {
    return (a + b - 1) / b;
}

// ---- B ----

// Columns of panel p: half as many where they hold the last ones (a low-rank head's rank may be all there is).
static int width_of(const job *g, int64_t p) {
    return g->nc - p * PL_PANEL <= PL_HALF_PANEL ? PL_HALF_PANEL : PL_PANEL;
}

static uint32_t half_at(const job *g, int64_t n, int64_t k) {
    int64_t at = g->kind == PL_GEMM_NT ? n * g->b.ld + k : k * g->b.ld + n;
    return g->b.bf16 ? ((const half *)g->b.data)[at] : pl_f32_to_bf16(((const float *)g->b.data)[at]);
}

// Word by word: rows n0 .. n0 + rows - 1 (of the panel from row r on) and pairs from q on; zeros where B ends.
static void pack_slowly(const job *g, uint32_t *panel, int width, int64_t n0, int r, int rows, int64_t q0, int64_t q1) {
    for (int64_t q = q0; q < q1; q++)
        for (int i = r; i < r + rows; i++) {
            int64_t  n = n0 + i, k = g->k0 + 2 * q;
            bool     there = n < g->j0 + g->nc;
            uint32_t low = there ? half_at(g, n, k) : 0;
            uint32_t high = there && 2 * q + 1 < g->kc ? half_at(g, n, k + 1) : 0;
            panel[q * width + i] = low | high << 16;
        }
}

// B lies along k: LANES rows by as many pairs are transposed.
static void pack_along(const job *g, uint32_t *panel, int width, int64_t n0, int r, int64_t pairs) {
    int64_t q = 0, at = (n0 + r) * g->b.ld + g->k0;
    for (; q + PL_VN_LANES <= g->kc / 2; q += PL_VN_LANES) {
        pl_vn t[PL_VN_LANES];
#pragma GCC unroll 16
        for (int i = 0; i < PL_VN_LANES; i++) {
            int64_t from = at + i * g->b.ld + 2 * q;
            if (g->b.bf16) {
                memcpy(&t[i], (const half *)g->b.data + from, sizeof t[i]);
            } else {
                const float *f = (const float *)g->b.data + from;
                t[i] = (pl_vn)pl_vn_words_of(pl_vn_loadu(f), pl_vn_loadu(f + PL_VN_LANES));
            }
        }
        pl_vn_transpose(t);
#pragma GCC unroll 16
        for (int i = 0; i < PL_VN_LANES; i++)
            memcpy(panel + (q + i) * width + r, &t[i], sizeof t[i]);
    }
    pack_slowly(g, panel, width, n0, r, PL_VN_LANES, q, pairs);
}

// B lies along n: rows k and k + 1 side by side.
static void pack_across(const job *g, uint32_t *panel, int width, int64_t n0, int64_t pairs) {
    int64_t whole = g->kc / 2;
    for (int64_t q = 0; q < whole; q++) {
        int64_t   at = (g->k0 + 2 * q) * g->b.ld + n0;
        uint32_t *to = panel + q * width;
        if (g->b.bf16) {
            const half *low = (const half *)g->b.data + at, *high = low + g->b.ld;
            for (int i = 0; i < width; i++)
                to[i] = low[i] | (uint32_t)high[i] << 16;
            continue;
        }
        const float *low = (const float *)g->b.data + at;
        for (int i = 0; i < width; i += PL_VN_LANES) {
            pl_vnu words = pl_vn_words(pl_vn_loadu(low + i), pl_vn_loadu(low + g->b.ld + i));
            memcpy(to + i, &words, sizeof words);
        }
    }
    pack_slowly(g, panel, width, n0, 0, width, whole, pairs);
}

static void pack_b_part(void *arg, int part, int parts) {
    const job *g = arg;
    long       lo, hi;
    int64_t    pairs = (g->kc + 1) / 2;
    pl_range((long)ceil_div(g->nc, PL_PANEL), 1, part, parts, &lo, &hi);
    for (long p = lo; p < hi; p++) {
        uint32_t *panel = g->bpack + p * pairs * PL_PANEL;
        int64_t   n0 = g->j0 + p * PL_PANEL, left = g->nc - p * PL_PANEL;
        int       width = width_of(g, p);
        if (g->kind != PL_GEMM_NT && left >= width) {
            pack_across(g, panel, width, n0, pairs);
            continue;
        }
        for (int r = 0; r < width; r += PL_VN_LANES) {
            if (g->kind == PL_GEMM_NT && left - r >= PL_VN_LANES)
                pack_along(g, panel, width, n0, r, pairs);
            else
                pack_slowly(g, panel, width, n0, r, PL_VN_LANES, 0, pairs);
        }
    }
}

// ---- the product ----

static void compute_part(void *arg, int part, int parts) {
    (void)parts;
    const job *g = arg;
    long       lo, hi, plo, phi;
    int64_t    units = ceil_div(g->m, PL_ROWS_TILE), panel_words = (g->kc + 1) / 2 * PL_PANEL;
    pl_range((long)units, 1, part / g->col_parts, g->row_parts, &lo, &hi);
    pl_range((long)ceil_div(g->nc, PL_PANEL), 1, part % g->col_parts, g->col_parts, &plo, &phi);
    int64_t from = g->m * lo / units, to = g->m * hi / units;
    if (from >= to || plo >= phi) return;
    uint64_t mode = pl_panels_begin(true);
    for (int64_t i0 = from, rows; i0 < to; i0 += rows) {
        int64_t left = ceil_div(to - i0, PL_ROWS_TILE), blocks = ceil_div(left, PL_ROWS_BLOCK / PL_ROWS_TILE);
        rows = min64(to - i0, ceil_div(left, blocks) * PL_ROWS_TILE); // of near-equal height, in tiles
        bool    across = g->kind == PL_GEMM_TN;
        pl_rows x;
        pl_rows_begin(&x, true, across ? g->a + g->k0 * g->lda + i0 : g->a + i0 * g->lda + g->k0, rows, g->kc,
                      g->apack + (size_t)part * g->apack_bytes);
        x.ld = g->lda;
        x.across = across;
        for (int64_t t = 0; t < x.tiles; t++)
            pl_rows_pack(&x, t);
        for (long p = plo; p < phi; p++)
            for (int64_t t = 0; t < x.tiles; t++) {
                int64_t r0 = pl_rows_first(&x, t), height = pl_rows_first(&x, t + 1) - r0;
                pl_pass a = {.kc = g->kc,
                             .x = pl_rows_at(&x, t, 0),
                             .among = x.tiles > 1,
                             .w = (const char *)(g->bpack + p * panel_words),
                             .panel_bytes = (size_t)panel_words * sizeof *g->bpack,
                             .y = g->c + (i0 + r0) * g->ldc + g->j0 + p * PL_PANEL,
                             .ldy = g->ldc,
                             .cols = min64(PL_PANEL, g->nc - p * PL_PANEL),
                             .resume = g->accumulate || g->k0 > 0,
                             .far = true};
                if (width_of(g, p) == PL_PANEL)
                    pl_panels_pass(true, (int)height, 1, &a);
                else
                    pl_panels_half_pass(true, (int)height, &a);
            }
    }
    pl_panels_end(true, mode);
}

void pl_gemm_bf16(pl_ctx *ctx, pl_gemm_kind kind, int64_t m, int64_t n, int64_t k, const float *a, int64_t lda,
                  pl_factor b, bool accumulate, float *c, int64_t ldc) {
    job g = {.kind = kind, .m = m, .n = n, .k = k, .lda = lda, .ldc = ldc, .a = a, .b = b, .c = c};
    g.accumulate = accumulate;
    int     threads = (double)m * (double)n * (double)k < SMALL ? 1 : pl_pool_threads(ctx->pool);
    int64_t units = ceil_div(m, PL_ROWS_TILE);
    g.row_parts = (int)min64(threads, units > 0 ? units : 1);
    g.col_parts = threads / g.row_parts;
    g.apack_bytes = pl_rows_bytes(true, min64(m, PL_ROWS_BLOCK), min64(k, KC));
    int    parts = g.row_parts * g.col_parts;
    size_t mark = pl_arena_mark(&ctx->scratch);
    g.bpack = pl_arena_alloc(&ctx->scratch, pl_panels_bytes(min64(n, NC), min64(k, KC), PL_BF16));
    // As much as any split of these threads takes: fewer rows may have fewer parts along them.
    g.apack = pl_arena_alloc(&ctx->scratch, (size_t)pl_pool_threads(ctx->pool) * g.apack_bytes);
    for (int64_t i = 0; i < m && k == 0 && !accumulate && !ctx->measuring; i++)
        memset(c + i * ldc, 0, (size_t)n * sizeof *c);
    bool any = !ctx->measuring && m > 0 && n > 0;
    for (g.j0 = 0; any && g.j0 < n; g.j0 += NC) {
        g.nc = min64(NC, n - g.j0);
        for (g.k0 = 0; g.k0 < k; g.k0 += KC) {
            g.kc = min64(KC, k - g.k0);
            if (parts > 1) {
                pl_parallel(ctx->pool, parts, pack_b_part, &g);
                pl_parallel(ctx->pool, parts, compute_part, &g);
            } else {
                pack_b_part(&g, 0, 1);
                compute_part(&g, 0, 1);
            }
        }
    }
    pl_arena_release(&ctx->scratch, mark);
}
