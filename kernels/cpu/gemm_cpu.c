// The own GEMM. Blocking after Goto and van de Geijn ("Anatomy of high-performance matrix multiplication", 2008) and
// BLIS: B is packed into micro-panels of NR columns, A into micro-tiles of at most PL_MR rows, both k-slow, and a
// register-blocked kernel holds a PL_MR x NR tile of C.
//
//   for jc over N by NC, pc over K by KC:   pack B[KC, NC] (parallel), then in every part
//     for ic over the part's rows by MC:    pack A[MC, KC] into the part's own buffer (stays in its L2)
//       for jr over micro-panels of B:      one panel stays in L1 or near it
//         for ir over micro-tiles of A:     kernel
//
// Rows are dealt to parts, blocks and tiles in near-equal counts (tiles of 13 rather than 14, 14, ..., 3): nothing is
// padded, and since no element's arithmetic depends on where its tile lies, no split changes a bit.
#include "kernels/base/check.h"
#include "kernels/cpu/gemm.h"
#include "kernels/cpu/pack.h"

#define NR (PL_NV * PL_VN_LANES)
enum {
    KC_MAX = 704,                 // one block for most training shapes: C is then written once
    MC_MAX = 140 / PL_MR * PL_MR, // A block of at most 390 KiB: L2
    NC_MAX = 2048 / NR * NR,      // B block of at most 5.6 MiB: L3
    SMALL = 30000                 // multiply-adds below which a parallel region costs more than it saves
};

typedef struct job {
    pl_gemm_kind kind;
    int64_t      m, n, k, lda, ldb, ldc;
    const float *a, *b;
    float       *c;
    bool         accumulate;
    int          row_parts, col_parts; // parts = row_parts * col_parts
    float       *bpack, *apack;        // apack: one buffer of apack_floats per part
    int64_t      apack_floats;
    int64_t      j0, nc, k0, kc; // the block of B in hand
} job;

static int64_t min64(int64_t a, int64_t b) {
    return a < b ? a : b;
}
static int64_t ceil_div(int64_t a, int64_t b) {
    return (a + b - 1) / b;
}
static int64_t round_up(int64_t a, int64_t b) {
    return ceil_div(a, b) * b;
}

// Length of a K block: a function of K alone (see gemm.h), near-equal blocks.
static int64_t block_k(int64_t k) {
    return k <= KC_MAX ? k : round_up(ceil_div(k, ceil_div(k, KC_MAX)), PL_VL);
}

static int64_t bpack_floats(int64_t n, int64_t k) {
    return round_up(min64(NC_MAX, round_up(n, NR)) * min64(k, KC_MAX) + PL_PACK_SLACK, PL_VL);
}

static int64_t apack_floats(int64_t m, int64_t k) {
    return round_up(min64(MC_MAX, m) * min64(k, KC_MAX) + PL_PACK_SLACK, PL_VL);
}

// ---- packing ----

static void pack_a_tile(const job *g, float *dst, int64_t i0, int64_t rows) {
    if (g->kind != PL_GEMM_TN) {
        pl_pack_transposed(dst, rows, g->a + i0 * g->lda + g->k0, g->lda, rows, g->kc);
        return;
    }
    const float *src = g->a + g->k0 * g->lda + i0;
    if (i0 + PL_VN_LANES <= g->m) {
        for (int64_t k = 0; k < g->kc; k++)
            pl_vn_storeu(dst + k * rows, pl_vn_loadu(src + k * g->lda));
        return;
    }
    for (int64_t k = 0; k < g->kc; k++)
        for (int64_t r = 0; r < rows; r++)
            dst[k * rows + r] = src[k * g->lda + r];
}

static void pack_b_panel(const job *g, float *dst, int64_t j, int64_t cols) {
    if (g->kind == PL_GEMM_NT) {
        for (int64_t v = 0; v < NR; v += PL_VN_LANES) {
            int64_t rows = cols - v < 0 ? 0 : min64(cols - v, PL_VN_LANES);
            pl_pack_transposed(dst + v, NR, g->b + (rows ? j + v : j) * g->ldb + g->k0, g->ldb, rows, g->kc);
        }
        return;
    }
    const float *src = g->b + g->k0 * g->ldb + j;
    for (int64_t k = 0; k < g->kc; k++, src += g->ldb, dst += NR)
        if (cols == NR)
            memcpy(dst, src, sizeof(float[NR]));
        else
            for (int64_t v = 0; v < NR; v++)
                dst[v] = v < cols ? src[v] : 0.0f;
}

static void pack_b_part(void *arg, int part, int parts) {
    const job *g = arg;
    long       lo, hi;
    pl_range((long)ceil_div(g->nc, NR), 1, part, parts, &lo, &hi);
    for (long p = lo; p < hi; p++)
        pack_b_panel(g, g->bpack + p * NR * g->kc, g->j0 + p * NR, min64(NR, g->nc - p * NR));
}

// ---- the kernel ----

typedef void (*tile_fn)(int64_t kc, const float *ap, const float *bp, float *c, int64_t ldc, int64_t cols, bool add);

PL_INLINE void tile(const int rows, int64_t kc, const float *ap, const float *bp, float *c, int64_t ldc, int64_t cols,
                    bool add) {
    pl_vn acc[PL_MR][PL_NV];
#pragma GCC unroll 16
    for (int r = 0; r < rows; r++) {
        __builtin_prefetch(c + r * ldc, 1);
        __builtin_prefetch(c + r * ldc + cols - 1, 1);
#pragma GCC unroll 4
        for (int v = 0; v < PL_NV; v++)
            acc[r][v] = pl_vn_set1(0.0f);
    }
    for (int64_t k = 0; k < kc; k++, ap += rows, bp += NR) {
        pl_vn b[PL_NV];
#pragma GCC unroll 4
        for (int v = 0; v < PL_NV; v++)
            b[v] = pl_vn_load(bp + v * PL_VN_LANES);
#pragma GCC unroll 16
        for (int r = 0; r < rows; r++) {
            pl_vn x = pl_vn_set1(ap[r]);
#pragma GCC unroll 4
            for (int v = 0; v < PL_NV; v++)
                acc[r][v] = pl_vn_fma(x, b[v], acc[r][v]);
        }
    }
    if (cols == NR) {
#pragma GCC unroll 16
        for (int r = 0; r < rows; r++)
#pragma GCC unroll 4
            for (int v = 0; v < PL_NV; v++) {
                float *p = c + r * ldc + v * PL_VN_LANES;
                pl_vn_storeu(p, add ? pl_vn_loadu(p) + acc[r][v] : acc[r][v]);
            }
        return;
    }
#pragma GCC unroll 16
    for (int r = 0; r < rows; r++) {
        float t[NR];
#pragma GCC unroll 4
        for (int v = 0; v < PL_NV; v++)
            pl_vn_storeu(t + v * PL_VN_LANES, acc[r][v]);
        for (int64_t j = 0; j < cols; j++)
            c[r * ldc + j] = add ? c[r * ldc + j] + t[j] : t[j];
    }
}

// One function per number of rows. Counts above PL_MR are never called; clamping them keeps their code small.
#define ROWS(X) X(1) X(2) X(3) X(4) X(5) X(6) X(7) X(8) X(9) X(10) X(11) X(12) X(13) X(14)
#define X(R)                                                                                                           \
    static __attribute__((noinline)) void tile_##R(int64_t kc, const float *ap, const float *bp, float *c,             \
                                                   int64_t ldc, int64_t cols, bool add) {                              \
        tile(R <= PL_MR ? R : 1, kc, ap, bp, c, ldc, cols, add);                                                       \
    }
ROWS(X)
#undef X
static const tile_fn tiles[] = {NULL,
#define X(R) tile_##R,
                                ROWS(X)
#undef X
};

// ---- the product ----

static void compute_part(void *arg, int part, int parts) {
    (void)parts;
    const job *g = arg;
    long       lo, hi, plo, phi;
    pl_range((long)g->m, 1, part / g->col_parts, g->row_parts, &lo, &hi);
    pl_range((long)ceil_div(g->nc, NR), 1, part % g->col_parts, g->col_parts, &plo, &phi);
    if (lo >= hi || plo >= phi) return;
    float  *apack = g->apack + part * g->apack_floats;
    bool    add = g->accumulate || g->k0 > 0;
    int64_t blocks = ceil_div(hi - lo, MC_MAX);
    for (int64_t block = 0; block < blocks; block++) {
        int64_t i0 = lo + (hi - lo) * block / blocks, mc = lo + (hi - lo) * (block + 1) / blocks - i0;
        int64_t count = ceil_div(mc, PL_MR);
        for (int64_t t = 0; t < count; t++) {
            int64_t r0 = mc * t / count, r1 = mc * (t + 1) / count;
            pack_a_tile(g, apack + r0 * g->kc, i0 + r0, r1 - r0);
        }
        for (long p = plo; p < phi; p++) {
            const float *bp = g->bpack + p * NR * g->kc;
            float       *c = g->c + i0 * g->ldc + g->j0 + p * NR;
            int64_t      cols = min64(NR, g->nc - p * NR);
            for (int64_t t = 0; t < count; t++) {
                int64_t r0 = mc * t / count, r1 = mc * (t + 1) / count;
                tiles[r1 - r0](g->kc, apack + r0 * g->kc, bp, c + r0 * g->ldc, g->ldc, cols, add);
            }
        }
    }
}

static void run(job *g, pl_pool *pool) {
    int64_t kc = block_k(g->k);
    int     parts = g->row_parts * g->col_parts;
    for (g->j0 = 0; g->j0 < g->n; g->j0 += NC_MAX) {
        g->nc = min64(NC_MAX, g->n - g->j0);
        for (g->k0 = 0; g->k0 < g->k; g->k0 += kc) {
            g->kc = min64(kc, g->k - g->k0);
            if (pool) {
                pl_parallel(pool, parts, pack_b_part, g);
                pl_parallel(pool, parts, compute_part, g);
            } else {
                pack_b_part(g, 0, 1);
                compute_part(g, 0, 1);
            }
        }
    }
}

// Nothing to sum or nowhere to put it; true when that was all.
static bool trivial(const job *g) {
    if (g->m > 0 && g->n > 0 && g->k > 0) return false;
    for (int64_t i = 0; i < g->m && !g->accumulate; i++)
        memset(g->c + i * g->ldc, 0, (size_t)g->n * sizeof(float));
    return true;
}

size_t pl_gemm_scratch_bytes(int64_t m, int64_t n, int64_t k) {
    return (size_t)(bpack_floats(n, k) + apack_floats(m, k)) * sizeof(float);
}

void pl_gemm_serial(void *scratch, pl_gemm_kind kind, int64_t m, int64_t n, int64_t k, const float *a, int64_t lda,
                    const float *b, int64_t ldb, bool accumulate, float *c, int64_t ldc) {
    job g = {.kind = kind, .m = m, .n = n, .k = k, .lda = lda, .ldb = ldb, .ldc = ldc, .a = a, .b = b, .c = c};
    g.accumulate = accumulate;
    g.row_parts = g.col_parts = 1;
    g.apack_floats = apack_floats(m, k);
    g.bpack = scratch;
    g.apack = g.bpack + bpack_floats(n, k);
    if (!trivial(&g)) run(&g, NULL);
}

void pl_gemm(pl_ctx *ctx, pl_gemm_kind kind, int64_t m, int64_t n, int64_t k, const float *a, int64_t lda,
             const float *b, int64_t ldb, bool accumulate, float *c, int64_t ldc) {
    job g = {.kind = kind, .m = m, .n = n, .k = k, .lda = lda, .ldb = ldb, .ldc = ldc, .a = a, .b = b, .c = c};
    g.accumulate = accumulate;
    // Parts share the packed B and split the rows; columns are split too where there are too few rows to go round.
    int threads = (double)m * (double)n * (double)k < SMALL ? 1 : pl_pool_threads(ctx->pool);
    g.row_parts = (int)min64(threads, m / PL_MR > 0 ? m / PL_MR : 1);
    g.col_parts = threads / g.row_parts;
    g.apack_floats = apack_floats(m, k);
    int64_t parts = (int64_t)g.row_parts * g.col_parts;
    size_t  mark = pl_arena_mark(&ctx->scratch);
    g.bpack = pl_arena_alloc(&ctx->scratch, (size_t)bpack_floats(n, k) * sizeof(float));
    // As much as any split of these threads takes: fewer rows may have fewer parts along them.
    g.apack =
        pl_arena_alloc(&ctx->scratch, (size_t)pl_pool_threads(ctx->pool) * (size_t)g.apack_floats * sizeof(float));
    if (!ctx->measuring && !trivial(&g)) run(&g, parts > 1 ? ctx->pool : NULL);
    pl_arena_release(&ctx->scratch, mark);
}
