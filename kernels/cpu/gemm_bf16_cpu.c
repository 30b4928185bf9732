// Products of numbers in bf16. B is packed as inference packs weights, a block of NC columns by KC at a time, A in the
// tiles of rows that passes take: then it is passes over panels, whose sums rest in C from one block of K to the next.
//
//   for pc over K by KC, jc over N by NC:   pack B[KC, NC] (parallel), then in every part
//     for ic over the part's rows by MC:    pack A[MC, KC] into the part's own buffer (stays in its L2)
//       for every panel of B, every tile of A: a pass
#include "kernels/base/check.h"
#include "kernels/cpu/gemm.h"
#include "kernels/cpu/pairs.h"
#include "kernels/panels.h"

enum {
    TILES = PL_TILE_ROWS_MOST > 0,
    // A tile of C that comes and goes costs a matrix unit as much as 100 of k do, and both factors out of the
    // second-level cache a third more than out of the first: so K is long. Other ways to multiply: a panel's share of
    // 64 KB waits half in the second-level cache, half in the first.
    KC = TILES ? 2048 : 512,
    NC = 2048,             // rows of A are packed once more for every NC columns: it hardly counts
    MC = TILES ? 256 : 96, // rows of A that are packed at once
    SMALL = 30000          // multiply-adds below which a parallel region costs more than it saves
};
_Static_assert(KC % PL_PANEL_BLOCK == 0 && NC % PL_PANEL == 0, "whole blocks");

typedef uint16_t half __attribute__((aligned(1), may_alias)); // mapped files may put them anywhere

static int64_t min64(int64_t a, int64_t b) {
    return a < b ? a : b;
}
static int64_t ceil_div(int64_t a, int64_t b) {
    return (a + b - 1) / b;
}
static int64_t round_up(int64_t k) {
    return ceil_div(k, PL_PANEL_BLOCK) * PL_PANEL_BLOCK;
}

// K in blocks of near-equal length.
static int64_t block_of_k(int64_t k) {
    int64_t blocks = ceil_div(k, KC);
    return blocks > 0 ? round_up(ceil_div(k, blocks)) : PL_PANEL_BLOCK;
}

// ---- B ----

size_t pl_gemm_b_bytes(int64_t n, int64_t k) {
    return pl_size_mul((size_t)(ceil_div(n, PL_PANEL) * PL_PANEL), (size_t)((k + 1) / 2), sizeof(uint32_t));
}

// Columns of a panel. A matrix unit takes 32 at a time: a panel of them that fits into the first-level cache beside a
// tile of A is read from there for all tiles. A longer one is not, and what pays is to read A for 64 columns.
static int width_of(const pl_gemm_b *b) {
    return TILES && b->k >= 128 && b->k <= 256 ? PL_HALF_PANEL : PL_PANEL;
}

// Of panel p: half as many where they hold the last ones (a low-rank head's rank may be all there is).
static int width_at(const pl_gemm_b *b, int64_t p) {
    return b->n - p * width_of(b) <= PL_HALF_PANEL ? PL_HALF_PANEL : width_of(b);
}

static uint32_t half_at(const pl_gemm_b *b, int64_t n, int64_t k) {
    int64_t at = b->along ? n * b->from.ld + k : k * b->from.ld + n;
    return b->from.bf16 ? ((const half *)b->from.data)[at] : pl_f32_to_bf16(((const float *)b->from.data)[at]);
}

// Word by word: rows n0 .. n0 + rows - 1 (of the panel from row r on) and pairs from q on; zeros where B ends.
static void pack_slowly(const pl_gemm_b *b, uint32_t *panel, int width, int64_t n0, int r, int rows, int64_t q0,
                        int64_t q1) {
    for (int64_t q = q0; q < q1; q++)
        for (int i = r; i < r + rows; i++) {
            int64_t  n = n0 + i, k = 2 * q;
            bool     there = n < b->n;
            uint32_t low = there ? half_at(b, n, k) : 0;
            uint32_t high = there && k + 1 < b->k ? half_at(b, n, k + 1) : 0;
            panel[q * width + i] = low | high << 16;
        }
}

// B lies along k: LANES rows by as many pairs are transposed.
static void pack_along(const pl_gemm_b *b, uint32_t *panel, int width, int64_t n0, int r, int64_t pairs) {
    int64_t q = 0, at = (n0 + r) * b->from.ld;
    for (; q + PL_VN_LANES <= b->k / 2; q += PL_VN_LANES) {
        pl_vn t[PL_VN_LANES];
#pragma GCC unroll 16
        for (int i = 0; i < PL_VN_LANES; i++) {
            int64_t from = at + i * b->from.ld + 2 * q;
            if (b->from.bf16) {
                memcpy(&t[i], (const half *)b->from.data + from, sizeof t[i]);
            } else {
                const float *f = (const float *)b->from.data + from;
                t[i] = (pl_vn)pl_vn_words_of(pl_vn_loadu(f), pl_vn_loadu(f + PL_VN_LANES));
            }
        }
        pl_vn_transpose(t);
#pragma GCC unroll 16
        for (int i = 0; i < PL_VN_LANES; i++)
            memcpy(panel + (q + i) * width + r, &t[i], sizeof t[i]);
    }
    pack_slowly(b, panel, width, n0, r, PL_VN_LANES, q, pairs);
}

// B lies along n: rows k and k + 1 side by side.
static void pack_across(const pl_gemm_b *b, uint32_t *panel, int width, int64_t n0, int64_t pairs) {
    int64_t whole = b->k / 2;
    for (int64_t q = 0; q < whole; q++) {
        int64_t   at = 2 * q * b->from.ld + n0;
        uint32_t *to = panel + q * width;
        if (b->from.bf16) {
            const half *low = (const half *)b->from.data + at, *high = low + b->from.ld;
            for (int i = 0; i < width; i++)
                to[i] = low[i] | (uint32_t)high[i] << 16;
            continue;
        }
        const float *low = (const float *)b->from.data + at;
        for (int i = 0; i < width; i += PL_VN_LANES) {
            pl_vnu words = pl_vn_words(pl_vn_loadu(low + i), pl_vn_loadu(low + b->from.ld + i));
            memcpy(to + i, &words, sizeof words);
        }
    }
    pack_slowly(b, panel, width, n0, 0, width, whole, pairs);
}

int64_t pl_gemm_panels(const pl_gemm_b *b) {
    return ceil_div(b->n, width_of(b));
}

void pl_gemm_b_pack(const pl_gemm_b *b, int part, int parts) {
    long    lo, hi;
    int64_t pairs = (b->k + 1) / 2;
    pl_range((long)pl_gemm_panels(b), 1, part, parts, &lo, &hi);
    for (long p = lo; p < hi; p++) {
        int64_t   n0 = p * width_of(b), left = b->n - n0;
        uint32_t *panel = b->panels + n0 * pairs;
        int       width = width_at(b, p);
        if (!b->along && left >= width) {
            pack_across(b, panel, width, n0, pairs);
            continue;
        }
        for (int r = 0; r < width; r += PL_VN_LANES) {
            if (b->along && left - r >= PL_VN_LANES)
                pack_along(b, panel, width, n0, r, pairs);
            else
                pack_slowly(b, panel, width, n0, r, PL_VN_LANES, 0, pairs);
        }
    }
}

// ---- A ----

// Tiles of A that are multiplied in turn by one panel after the other.
enum { BLOCK_TILES = (int)MC / (int)PL_MOST_ROWS };

size_t pl_gemm_rows_bytes(int64_t rows, int64_t k) {
    // Whole tiles, which may lie apart by half of their length (rows_cpu.c).
    const size_t each = TILES || PL_DOT_ROWS > 0 ? sizeof(uint16_t) : sizeof(float);
    int64_t      tile = PL_ROWS_TILE * round_up(k) * 3 / 2 + 2 * PL_PANEL_BLOCK;
    return pl_size_mul((size_t)ceil_div(rows, PL_ROWS_TILE), (size_t)tile, each);
}

void pl_gemm_rows_begin(pl_rows *x, const float *a, int64_t lda, bool across, int64_t rows, int64_t k, void *room) {
    pl_rows_begin(x, true, a, rows, k, room);
    x->ld = lda;
    x->across = across;
    x->high = PL_ROWS_TILE;
    pl_rows_even(x); // B has just been packed
    PL_CHECK((size_t)x->tiles * x->tile_bytes <= pl_gemm_rows_bytes(rows, k), "%lld rows of %lld outgrow their room",
             (long long)rows, (long long)k);
}

// ---- the product ----

static void multiply(const pl_rows *x, int64_t t, const pl_gemm_b *b, int64_t p, int64_t k0, int64_t kc, bool resume,
                     float *c, int64_t ldc) {
    const int64_t pairs = (b->k + 1) / 2;
    const int64_t n0 = p * width_of(b);
    const int     width = width_at(b, p);
    pl_pass       a = {.kc = kc,
                       .x = pl_rows_at(x, t, k0),
                       .among = x->tiles > 1,
                       .w = (const char *)(b->panels + n0 * pairs + k0 / 2 * width),
                       .panel_bytes = (size_t)(pairs * width) * sizeof *b->panels,
                       .y = c + n0,
                       .ldy = ldc,
                       .cols = min64(width, b->n - n0),
                       .resume = resume || k0 > 0,
                       .far = true};
    pl_pairs_pass((int)(pl_rows_first(x, t + 1) - pl_rows_first(x, t)), width, &a);
}

void pl_gemm_rows(const pl_rows *x, int64_t t0, int64_t t1, const pl_gemm_b *b, int64_t p0, int64_t p1, bool resume,
                  float *c, int64_t ldc) {
    const int64_t block = block_of_k(b->k), blocks = ceil_div(t1 - t0, BLOCK_TILES);
    for (int64_t k0 = 0; k0 < b->k; k0 += block)
        for (int64_t i = 0; i < blocks; i++) {
            int64_t from = t0 + (t1 - t0) * i / blocks, to = t0 + (t1 - t0) * (i + 1) / blocks;
            for (int64_t p = p0; p < p1; p++)
                for (int64_t t = from; t < to; t++)
                    multiply(x, t, b, p, k0, min64(block, b->k - k0), resume,
                             c + (pl_rows_first(x, t) - pl_rows_first(x, t0)) * ldc, ldc);
        }
}

typedef struct job {
    pl_gemm_kind kind;
    int64_t      m, lda, ldc;
    const float *a; // the block in hand
    pl_gemm_b    b;
    float       *c;
    bool         resume;
    int          row_parts, col_parts;
    char        *apack; // apack_bytes for each part
    size_t       apack_bytes;
} job;

static void pack_part(void *arg, int part, int parts) {
    const job *g = arg;
    pl_gemm_b_pack(&g->b, part, parts);
}

static void compute_part(void *arg, int part, int parts) {
    (void)parts;
    const job *g = arg;
    long       lo, hi, plo, phi;
    int64_t    tiles = ceil_div(g->m, PL_ROWS_TILE);
    pl_range((long)tiles, 1, part / g->col_parts, g->row_parts, &lo, &hi);
    pl_range((long)pl_gemm_panels(&g->b), 1, part % g->col_parts, g->col_parts, &plo, &phi);
    if (lo >= hi || plo >= phi) return;
    uint64_t mode = pl_panels_begin(true);
    int64_t  blocks = ceil_div(hi - lo, BLOCK_TILES);
    for (int64_t i = 0; i < blocks; i++) {
        int64_t r0 = (lo + (hi - lo) * i / blocks) * PL_ROWS_TILE;
        int64_t r1 = (lo + (hi - lo) * (i + 1) / blocks) * PL_ROWS_TILE;
        bool    across = g->kind == PL_GEMM_TN;
        pl_rows x;
        pl_gemm_rows_begin(&x, across ? g->a + r0 : g->a + r0 * g->lda, g->lda, across, min64(r1, g->m) - r0, g->b.k,
                           g->apack + (size_t)part * g->apack_bytes);
        for (int64_t t = 0; t < x.tiles; t++)
            pl_rows_pack(&x, t);
        pl_gemm_rows(&x, 0, x.tiles, &g->b, plo, phi, g->resume, g->c + r0 * g->ldc, g->ldc);
    }
    pl_panels_end(true, mode);
}

// The part of it from (n, k) on.
static pl_factor factor_at(pl_factor b, pl_gemm_kind kind, int64_t n, int64_t k) {
    int64_t at = kind == PL_GEMM_NT ? n * b.ld + k : k * b.ld + n;
    b.data = b.bf16 ? (const void *)((const half *)b.data + at) : (const void *)((const float *)b.data + at);
    return b;
}

void pl_gemm_bf16(pl_ctx *ctx, pl_gemm_kind kind, int64_t m, int64_t n, int64_t k, const float *a, int64_t lda,
                  pl_factor b, bool accumulate, float *c, int64_t ldc) {
    job     g = {.kind = kind, .m = m, .lda = lda, .ldc = ldc};
    int     threads = (double)m * (double)n * (double)k < SMALL ? 1 : pl_pool_threads(ctx->pool);
    int64_t units = ceil_div(m, PL_ROWS_TILE), kc = block_of_k(k);
    g.row_parts = (int)min64(threads, units > 0 ? units : 1);
    g.col_parts = threads / g.row_parts;
    g.apack_bytes = pl_gemm_rows_bytes(min64(m, BLOCK_TILES * PL_ROWS_TILE), min64(k, KC));
    int    parts = g.row_parts * g.col_parts;
    size_t mark = pl_arena_mark(&ctx->scratch);
    g.b.panels = pl_arena_alloc(&ctx->scratch, pl_gemm_b_bytes(min64(n, NC), min64(k, KC)));
    // As much as any split of these threads takes: fewer rows may have fewer parts along them.
    g.apack = pl_arena_alloc(&ctx->scratch, (size_t)pl_pool_threads(ctx->pool) * g.apack_bytes);
    for (int64_t i = 0; i < m && k == 0 && !accumulate && !ctx->measuring; i++)
        memset(c + i * ldc, 0, (size_t)n * sizeof *c);
    bool any = !ctx->measuring && m > 0 && n > 0;
    for (int64_t j0 = 0; any && j0 < n; j0 += NC)
        for (int64_t k0 = 0; k0 < k; k0 += kc) {
            g.b = (pl_gemm_b){.along = kind == PL_GEMM_NT,
                              .n = min64(NC, n - j0),
                              .k = min64(kc, k - k0),
                              .from = factor_at(b, kind, j0, k0),
                              .panels = g.b.panels};
            g.a = kind == PL_GEMM_TN ? a + k0 * lda : a + k0;
            g.c = c + j0;
            g.resume = accumulate || k0 > 0;
            if (parts > 1) {
                pl_parallel(ctx->pool, parts, pack_part, &g);
                pl_parallel(ctx->pool, parts, compute_part, &g);
            } else {
                pack_part(&g, 0, 1);
                compute_part(&g, 0, 1);
            }
        }
    pl_arena_release(&ctx->scratch, mark);
}
