// The cpu linear beyond the op harness: batch invariance to the bit, the GEMM called directly, scratch, no allocation.
#include "kernels/base/arena.h"
#include "kernels/base/rng.h"
#include "kernels/cpu/gemm.h"
#include "kernels/op/linear.h"
#include "tests/whole.h"
#include <float.h>
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

static void fill(float *p, int64_t n, uint64_t stream, float scale) {
    pl_rng r = pl_rng_make(7, PL_STREAM_TEST, stream);
    for (int64_t i = 0; i < n; i++)
        p[i] = scale * pl_rng_normal(r, (uint64_t)i);
}

static float *floats(int64_t n, uint64_t stream) {
    float *p = pl_malloc((size_t)(n + 1) * sizeof(float));
    assert_non_null(p);
    fill(p, n, stream, 1.0f);
    return p;
}

static pl_pool *pool_of(int threads) {
    pl_pool *p;
    assert_int_equal(pl_pool_create(&p, threads, NULL), PL_OK);
    return p;
}

// ---- packed weights ----

static pl_tensor packed(pl_dtype t, int64_t n, int64_t k) {
    float *src = floats(n * k, 3);
    void  *dst = pl_block_create(pl_panels_bytes(n, k, t), NULL);
    assert_non_null(dst);
    pl_panels_pack(dst, t, 0, n, n, k, src);
    pl_free(src);
    pl_tensor w = pl_tensor_2d(dst, t, n, k);
    w.layout = PL_PANELS;
    return w;
}

static void run_fwd(pl_ctx *ctx, void *arg) {
    ctx->be->fwd[PL_OP_LINEAR](ctx, arg);
}

static void run_bwd(pl_ctx *ctx, void *arg) {
    ctx->be->bwd[PL_OP_LINEAR](ctx, arg);
}

// y of [m, n] with a guard row after it, scratch guarded, allocations counted. Three times: as a first product, as one
// that knows what comes after it, and with a weight that has left the caches; all have the same bits.
static void product(const pl_backend *be, pl_pool *pool, float *y, float *x, int64_t m, pl_tensor w) {
    int64_t n = w.dim[0], k = w.dim[1];
    pl_ctx  ctx;
    assert_int_equal(pl_ctx_init(&ctx, be, pool), PL_OK);
    ctx.scratch.guard = true;
    pl_linear_args a = {.x = pl_tensor_2d(x, PL_F32, m, k), .w = w, .y = pl_tensor_2d(y, PL_F32, m, n)};
    for (int64_t i = 0; i < (m + 1) * n; i++)
        y[i] = NAN;
    assert_int_equal(pl_ctx_measure(&ctx, run_fwd, &a, NULL), PL_OK);
    for (int64_t i = 0; i < m * n; i++)
        assert_true(isnan(y[i])); // measuring touches nothing
    float *first = pl_malloc((size_t)(m * n + 1) * sizeof *first);
    assert_non_null(first);
    for (int run = 0; run < (be == pl_backend_ref() ? 1 : 3); run++) {
        for (int64_t i = 0; i < m * n; i++)
            y[i] = NAN;
        if (run == 2) ctx.trail.cache = 0;
        uint64_t before = pl_alloc_count();
        run_fwd(&ctx, &a);
        assert_int_equal(pl_alloc_count(), before);
        for (int64_t i = m * n; i < (m + 1) * n; i++)
            assert_true(isnan(y[i]));
        if (run == 0) memcpy(first, y, (size_t)(m * n) * sizeof *y);
        assert_memory_equal(first, y, (size_t)(m * n) * sizeof *y);
    }
    pl_free(first);
    assert_int_equal(ctx.scratch.used, 0);
    ctx.scratch.used = ctx.scratch.peak; // what the op used and released, for the check to walk
    assert_true(pl_arena_check(&ctx.scratch));
    pl_ctx_fini(&ctx);
}

static void assert_same_bits(const float *a, const float *b, int64_t n, const char *what, int64_t m, int64_t cols,
                             int64_t k) {
    for (int64_t i = 0; i < n; i++)
        if (memcmp(a + i, b + i, sizeof *a) != 0)
            fail_msg("%s: M %lld N %lld K %lld: element %lld is %a, not %a", what, (long long)m, (long long)cols,
                     (long long)k, (long long)i, (double)a[i], (double)b[i]);
}

enum { MOST_ROWS = 64 };

// Walks levels, row counts and thread counts: their whole product, or each value of one with each of another.
static bool is_tried(int level, int r, int threads) {
    return test_whole() || (level + r + threads) % 3 == 0;
}

// Every level (in fp32: with a fused multiply-add), any number of rows and threads: the bits of ref32, which sums row by
// row.
static void check_panels(pl_dtype t, int64_t n, int64_t k, const int *rows, int count) {
    int64_t   most = rows[count - 1];
    pl_tensor w = packed(t, n, k);
    size_t    bytes = (size_t)((most + 1) * n) * sizeof(float);
    float *x = floats(most * k, 5), *want = floats((most + 1) * n, 0), *y = pl_block_create(bytes, NULL); // whole lines
    assert_non_null(y);
    product(pl_backend_ref(), NULL, want, x, most, w);
    const char *level;
    for (int i = 0; (level = pl_backend_cpu_level(i)); i++) {
        const pl_backend *be = pl_backend_cpu_isa(level);
        if (!be) continue;
        for (int threads = 1; threads <= 3; threads++) {
            pl_pool *pool = pool_of(threads);
            for (int r = 0; r < count; r++) {
                if (!is_tried(i, r, threads)) continue;
                product(be, pool, y, x, rows[r], w);
                if (t == PL_BF16 || strcmp(level, "portable") != 0)
                    assert_same_bits(y, want, rows[r] * n, level, rows[r], n, k);
                else
                    for (int64_t j = 0; j < rows[r] * n; j++)
                        assert_true(fabsf(y[j] - want[j]) <= 1e-6f * (float)k + 1e-5f * fabsf(want[j]));
            }
            pl_pool_destroy(pool);
        }
    }
    pl_block_destroy(w.data, pl_panels_bytes(n, k, t));
    pl_free(x);
    pl_free(want);
    pl_block_destroy(y, bytes);
}

static void panels_any_rows(void **state) {
    (void)state;
    int rows[MOST_ROWS];
    for (int i = 0; i < MOST_ROWS; i++)
        rows[i] = i + 1;
    check_panels(PL_F32, 161, 97, rows, MOST_ROWS);
    check_panels(PL_BF16, 161, 97, rows, MOST_ROWS);
}

static void panels_odd_shapes(void **state) {
    (void)state;
    static const int sizes[] = {1, 3, 31, 32, 33, 65, 128}, rows[] = {1, 2, 3, 13, 31};
    for (size_t i = 0; i < sizeof sizes / sizeof *sizes; i++)
        for (size_t j = 0; j < sizeof sizes / sizeof *sizes; j++) {
            check_panels(PL_F32, sizes[i], sizes[j], rows, 5);
            check_panels(PL_BF16, sizes[i], sizes[j], rows, 5);
        }
}

// More rows than a block, K of several chunks, more panels than a group, and a last panel that is not full.
static void panels_blocks_and_chunks(void **state) {
    (void)state;
    static const int rows[] = {1, 12, 13, 25, 61, 97, 193};
    check_panels(PL_F32, 203, 1300, rows, 7);
    check_panels(PL_BF16, 203, 1300, rows, 7);
    static const int more[] = {17, 48, 61, 300}; // a matrix unit's chunks and blocks are longer
    check_panels(PL_BF16, 395, 2500, more, 4);
    check_panels(PL_BF16, 448, 1100, more, 4); // rows of y are whole lines
}

// Values from the ends of the range, where a fused product, a product in two steps, and what counts as a denormal come
// apart; sums that cancel, zeros of both signs. The same bits at every level and number of rows.
static void bf16_at_the_ends(void **state) {
    (void)state;
    enum { M = 33, N = 96, KS = 5, MOST_K = 100 };
    static const int ks[KS] = {1, 31, 32, 63, MOST_K};
    static float     x[M * MOST_K], src[N * MOST_K], want[(M + 1) * N], y[(M + 1) * N];
    pl_rng           r = pl_rng_make(8, PL_STREAM_TEST, 0);
    int              least = 0, most = 0;
    for (int c = 0; c < KS; c++) {
        int k = ks[c];
        for (int i = 0; i < (M + N) * k; i++) {
            static const int of_row[4] = {0, -64, -126, 62}, of_one[4] = {0, 0, -7, 1};
            uint64_t         u = (uint64_t)(2 * i);
            double           v = (double)pl_rng_normal(r, u);
            unsigned         kind = (unsigned)pl_rng_below(r, u + 1, 5);
            float            f = kind == 4 ? (v < 0 ? -0.0f : 0.0f) : (float)ldexp(v, of_row[i / k % 4] + of_one[kind]);
            if (i < M * k && i / k % 4 == 2 && i % 7 == 0) f = nextafterf(FLT_MIN, 0.0f); // which rounds to FLT_MIN
            *(i < M * k ? &x[i] : &src[i - M * k]) = f;
        }
        pl_tensor w = pl_tensor_2d(pl_block_create(pl_panels_bytes(N, k, PL_BF16), NULL), PL_BF16, N, k);
        assert_non_null(w.data);
        w.layout = PL_PANELS;
        pl_panels_pack(w.data, PL_BF16, 0, N, N, k, src);
        product(pl_backend_ref(), NULL, want, x, M, w);
        for (int i = 0; i < M * N; i++) {
            least += want[i] != 0 && fabsf(want[i]) < 1e-37f;
            most += fabsf(want[i]) > 1e37f;
        }
        for (int i = 0; pl_backend_cpu_level(i); i++) {
            const char       *level = pl_backend_cpu_level(i);
            const pl_backend *be = pl_backend_cpu_isa(level);
            for (int rows = 1; be && rows <= M; rows += rows < 17 ? 1 : 16) {
                product(be, NULL, y, x, rows, w);
                assert_same_bits(y, want, (int64_t)rows * N, level, rows, N, k);
            }
        }
        pl_block_destroy(w.data, pl_panels_bytes(N, k, PL_BF16));
    }
    assert_true(least > 100 && most > 100);
}

// Training's products in bf16, of more rows, columns and k than a block holds: y = x W^T and what it gives back have the
// same bits at every level and number of threads.
static void bf16_rows_in_order(void **state) {
    (void)state;
    enum { M = 301, N = 2100, K = 600 };
    uint16_t *w = pl_calloc((size_t)N * K, sizeof *w);
    float    *x = floats((int64_t)M * K, 5), *dy = floats((int64_t)M * N, 6), *dw = floats((int64_t)N * K, 7);
    for (int64_t i = 0; i < (int64_t)N * K; i++)
        w[i] = pl_f32_to_bf16(dw[i]);
    const int64_t sizes[3] = {(int64_t)M * N, (int64_t)M * K, (int64_t)N * K};
    float        *want[3] = {NULL}, *got[3];
    for (int o = 0; o < 3; o++)
        got[o] = floats(sizes[o], 0);
    const char *level;
    for (int i = 0; (level = pl_backend_cpu_level(i)); i++)
        for (int threads = 1; threads <= 3 && pl_backend_cpu_isa(level); threads += test_whole() ? 1 : 2) {
            pl_pool *pool = pool_of(threads);
            pl_ctx   ctx;
            assert_int_equal(pl_ctx_init(&ctx, pl_backend_cpu_isa(level), pool), PL_OK);
            memset(got[1], 0, (size_t)sizes[1] * sizeof(float));
            memcpy(got[2], dw, (size_t)sizes[2] * sizeof(float)); // gradients are added
            pl_linear_args a = {.x = pl_tensor_2d(x, PL_F32, M, K),
                                .w = pl_tensor_2d(w, PL_BF16, N, K),
                                .y = pl_tensor_2d(got[0], PL_F32, M, N)};
            a.x.grad = got[1];
            a.w.grad = got[2];
            assert_int_equal(pl_ctx_measure(&ctx, run_fwd, &a, NULL), PL_OK);
            run_fwd(&ctx, &a);
            a.y.grad = dy;
            assert_int_equal(pl_ctx_measure(&ctx, run_bwd, &a, NULL), PL_OK);
            run_bwd(&ctx, &a);
            for (int o = 0; o < 3; o++) {
                if (want[o])
                    assert_same_bits(got[o], want[o], sizes[o], level, M, N, K);
                else
                    memcpy(want[o] = floats(sizes[o], 0), got[o], (size_t)sizes[o] * sizeof(float));
            }
            pl_ctx_fini(&ctx);
            pl_pool_destroy(pool);
        }
    for (int o = 0; o < 3; o++) {
        pl_free(got[o]);
        pl_free(want[o]);
    }
    pl_free(w);
    pl_free(x);
    pl_free(dy);
    pl_free(dw);
}

static void panels_portable_invariant(void **state) {
    (void)state;
    enum { M = 29, N = 70, K = 600 };
    pl_tensor w = packed(PL_BF16, N, K);
    float    *x = floats((int64_t)M * K, 5), *all = floats((int64_t)(M + 1) * N, 0), *one = floats(2 * N, 0);
    product(pl_backend_cpu_isa("portable"), NULL, all, x, M, w);
    for (int m = 0; m < M; m++) {
        product(pl_backend_cpu_isa("portable"), NULL, one, x + (int64_t)m * K, 1, w);
        assert_same_bits(all + (int64_t)m * N, one, N, "portable", 1, N, K);
    }
    pl_block_destroy(w.data, pl_panels_bytes(N, K, PL_BF16));
    pl_free(x);
    pl_free(all);
    pl_free(one);
}

// Memory is sized by the largest step: fewer rows must never want more of it.
static void scratch_grows_with_rows(void **state) {
    (void)state;
    pl_tensor w = packed(PL_F32, 40, 50);
    float    *x = floats(400 * 50, 1), *y = floats(400 * 40, 2);
    size_t    before = 0;
    for (int m = 1; m <= 400; m++) {
        pl_ctx         ctx;
        pl_linear_args a = {.x = pl_tensor_2d(x, PL_F32, m, 50), .w = w, .y = pl_tensor_2d(y, PL_F32, m, 40)};
        assert_int_equal(pl_ctx_init(&ctx, pl_backend_cpu(), NULL), PL_OK);
        assert_int_equal(pl_ctx_measure(&ctx, run_fwd, &a, NULL), PL_OK);
        if (ctx.scratch.size < before) fail_msg("%d rows want %zu bytes, fewer rows %zu", m, ctx.scratch.size, before);
        before = ctx.scratch.size;
        pl_ctx_fini(&ctx);
    }
    pl_block_destroy(w.data, pl_panels_bytes(40, 50, PL_F32));
    pl_free(x);
    pl_free(y);
}

static void panels_empty(void **state) {
    (void)state;
    float     x[4] = {1, 2, 3, 4}, y[8] = {5, 5, 5, 5, 5, 5, 5, 5};
    pl_tensor w = packed(PL_F32, 2, 0);
    for (int i = 0; pl_backend_cpu_level(i); i++) {
        const pl_backend *be = pl_backend_cpu_isa(pl_backend_cpu_level(i));
        if (!be) continue;
        product(be, NULL, y, x, 3, w); // a sum of nothing
        for (int j = 0; j < 6; j++)
            assert_true(y[j] == 0.0f);
        product(be, NULL, y, x, 0, w);
    }
    pl_block_destroy(w.data, pl_panels_bytes(2, 0, PL_F32));
}

// ---- a product that ends in its gate ----

static void run_gated(pl_ctx *ctx, void *arg) {
    ctx->be->fwd[PL_OP_GATEDLINEAR](ctx, arg);
}

static pl_tensor packed_as(pl_layout layout, pl_dtype t, int64_t n, int64_t k, const float *src) {
    pl_tensor w = pl_tensor_2d(pl_block_create(pl_panels_bytes(n, k, t), NULL), t, n, k);
    assert_non_null(w.data);
    w.layout = layout;
    pl_panels_pack_as(layout, w.data, t, 0, n, n, k, src);
    return w;
}

// y [m, I], or with `down` [m, N], with a guard row after it, scratch guarded; of a weight that is near and of one that
// is far.
static void gated(const pl_backend *be, pl_pool *pool, float *y, const float *x, int64_t m, pl_tensor w,
                  const pl_tensor *down, pl_gate gate) {
    int64_t n = down ? down->dim[0] : w.dim[0] / 2, k = w.dim[1];
    for (int far = 0; far < 2; far++) {
        pl_ctx ctx;
        assert_int_equal(pl_ctx_init(&ctx, be, pool), PL_OK);
        ctx.scratch.guard = true;
        pl_gatedlinear_args a = {.x = pl_tensor_2d((float *)(uintptr_t)x, PL_F32, m, k),
                                 .w = w,
                                 .gate = gate,
                                 .y = pl_tensor_2d(y, PL_F32, m, n)};
        if (down) a.down = *down;
        assert_int_equal(pl_ctx_measure(&ctx, run_gated, &a, NULL), PL_OK);
        if (far) ctx.trail.cache = 0;
        for (int64_t i = 0; i < (m + 1) * n; i++)
            y[i] = NAN;
        uint64_t before = pl_alloc_count();
        for (int run = 0; run < 2; run++) // the second knows what comes after it
            run_gated(&ctx, &a);
        assert_int_equal(pl_alloc_count(), before);
        for (int64_t i = m * n; i < (m + 1) * n; i++)
            assert_true(isnan(y[i]));
        assert_int_equal(ctx.scratch.used, 0);
        ctx.scratch.used = ctx.scratch.peak;
        assert_true(pl_arena_check(&ctx.scratch));
        pl_ctx_fini(&ctx);
    }
}

// Every level, any number of rows and threads: the bits of the ops that it stands for, which take the gate above up.
// small: of x, where what comes out of the gate is denormal, which the gate keeps and a product does not. Returns how
// many such there were.
static int check_gated(pl_dtype t, int64_t n, int64_t k, const int *rows, int count, float small) {
    int64_t most = rows[count - 1];
    float  *x = floats(most * k, 5), *src = floats(2 * n * k, 3), *want = floats((most + 1) * n, 0);
    size_t  bytes = (size_t)((most + 1) * n) * sizeof(float);
    float  *y = pl_block_create(bytes, NULL); // whole lines
    int64_t out = n + 5;                      // columns of a whole MLP
    float  *all = floats((most + 1) * out, 0), *wanted = floats((most + 1) * out, 0), *more = floats(out * n, 4);
    int     denormal = 0, gate = 0;
    assert_non_null(y);
    for (int64_t i = 0; i < most * k; i++)
        x[i] *= small / sqrtf((float)k);
    pl_tensor   halves = packed_as(PL_GATED, t, 2 * n, k, src), above = packed_as(PL_PANELS, t, 2 * n, k, src);
    pl_tensor   down = packed_as(PL_PANELS, t, out, n, more);
    const char *level;
    for (int i = 0; (level = pl_backend_cpu_level(i)); i++) {
        const pl_backend *be = pl_backend_cpu_isa(level);
        for (int threads = 1; be && threads <= 3; threads++) {
            pl_pool *pool = pool_of(threads);
            for (int r = 0; r < count; r++) {
                if (!is_tried(i, r, threads)) continue;
                gate = (gate + 1) % 3;
                gated(be, NULL, want, x, rows[r], above, NULL, (pl_gate)gate);
                gated(be, pool, y, x, rows[r], halves, NULL, (pl_gate)gate);
                assert_same_bits(y, want, rows[r] * n, level, rows[r], n, k);
                product(be, NULL, wanted, want, rows[r], down);
                gated(be, pool, all, x, rows[r], halves, &down, (pl_gate)gate);
                assert_same_bits(all, wanted, rows[r] * out, level, rows[r], out, n);
                for (int64_t j = 0; j < rows[r] * n; j++)
                    denormal += want[j] != 0 && fabsf(want[j]) < FLT_MIN;
            }
            pl_pool_destroy(pool);
        }
    }
    pl_block_destroy(halves.data, pl_panels_bytes(2 * n, k, t));
    pl_block_destroy(above.data, pl_panels_bytes(2 * n, k, t));
    pl_block_destroy(down.data, pl_panels_bytes(out, n, t));
    pl_block_destroy(y, bytes);
    pl_free(all);
    pl_free(wanted);
    pl_free(more);
    pl_free(x);
    pl_free(src);
    pl_free(want);
    return denormal;
}

static void gated_any_rows(void **state) {
    (void)state;
    int rows[40];
    for (int i = 0; i < 40; i++)
        rows[i] = i + 1;
    check_gated(PL_F32, 75, 97, rows, 40, 1);
    check_gated(PL_BF16, 75, 97, rows, 40, 1);
}

static void gated_odd_shapes(void **state) {
    (void)state;
    static const int ns[] = {1, 31, 32, 33, 64, 160}, ks[] = {1, 3, 32, 65}, rows[] = {1, 2, 3, 13, 31};
    for (size_t i = 0; i < sizeof ns / sizeof *ns; i++)
        for (size_t j = 0; j < sizeof ks / sizeof *ks; j++) {
            check_gated(PL_F32, ns[i], ks[j], rows, 5, 1);
            check_gated(PL_BF16, ns[i], ks[j], rows, 5, 1);
        }
}

static void gated_blocks_and_chunks(void **state) {
    (void)state;
    static const int rows[] = {13, 61, 97, 193}, more[] = {17, 61, 300};
    check_gated(PL_F32, 107, 1300, rows, 4, 1);
    check_gated(PL_BF16, 107, 1300, rows, 4, 1);
    check_gated(PL_BF16, 75, 2500, more, 2, 1);
    check_gated(PL_BF16, 96, 1100, more, 3, 1); // rows of y are whole lines
}

static void gated_keeps_denormals(void **state) {
    (void)state;
    static const int rows[] = {1, 2, 3, 16, 17, 40};
    assert_true(check_gated(PL_BF16, 96, 64, rows, 6, 1e-20F) > 1000);
    assert_true(check_gated(PL_F32, 96, 64, rows, 6, 1e-20F) > 1000);
}

static void gated_scratch_grows_with_rows(void **state) {
    (void)state;
    float *src = floats(80 * 50, 3), *x = floats(400 * 50, 1), *y = floats(400 * 40, 2);
    for (int both = 0; both < 4; both++) {
        const pl_dtype type = both % 2 ? PL_BF16 : PL_F32;
        const bool     whole = both / 2;
        pl_tensor      w = packed_as(PL_GATED, type, 80, 50, src), down = packed_as(PL_PANELS, type, 40, 40, src);
        for (int i = 0; pl_backend_cpu_level(i); i++) {
            size_t before = 0;
            for (int m = 1; m <= 400 && pl_backend_cpu_isa(pl_backend_cpu_level(i)); m++) {
                pl_ctx              ctx;
                pl_gatedlinear_args a = {
                    .x = pl_tensor_2d(x, PL_F32, m, 50), .w = w, .y = pl_tensor_2d(y, PL_F32, m, 40)};
                assert_int_equal(pl_ctx_init(&ctx, pl_backend_cpu_isa(pl_backend_cpu_level(i)), NULL), PL_OK);
                if (whole) a.down = down;
                assert_int_equal(pl_ctx_measure(&ctx, run_gated, &a, NULL), PL_OK);
                if (ctx.scratch.size < before)
                    fail_msg("%d rows want %zu bytes, fewer rows %zu", m, ctx.scratch.size, before);
                before = ctx.scratch.size;
                pl_ctx_fini(&ctx);
            }
        }
        pl_block_destroy(w.data, pl_panels_bytes(80, 50, type));
        pl_block_destroy(down.data, pl_panels_bytes(40, 40, type));
    }
    pl_free(src);
    pl_free(x);
    pl_free(y);
}

static void gated_empty(void **state) {
    (void)state;
    float     x[4] = {1, 2, 3, 4}, y[8] = {5, 5, 5, 5, 5, 5, 5, 5};
    pl_tensor w = packed_as(PL_GATED, PL_F32, 4, 0, x), down = packed_as(PL_PANELS, PL_F32, 2, 2, x);
    pl_tensor none = packed_as(PL_GATED, PL_F32, 0, 1, x), nothing = packed_as(PL_PANELS, PL_F32, 2, 0, x);
    for (int i = 0; pl_backend_cpu_level(i); i++) {
        const pl_backend *be = pl_backend_cpu_isa(pl_backend_cpu_level(i));
        if (!be) continue;
        gated(be, NULL, y, x, 3, w, NULL, PL_GATE_SILU); // of sums of nothing
        for (int j = 0; j < 6; j++)
            assert_true(y[j] == 0.0f);
        gated(be, NULL, y, x, 0, w, NULL, PL_GATE_SILU);
        y[0] = 5;
        gated(be, NULL, y, x, 3, w, &down, PL_GATE_SILU);
        for (int j = 0; j < 6; j++)
            assert_true(y[j] == 0.0f);
        gated(be, NULL, y, x, 3, none, &nothing, PL_GATE_SILU);
        for (int j = 0; j < 6; j++)
            assert_true(y[j] == 0.0f);
    }
    pl_block_destroy(w.data, pl_panels_bytes(4, 0, PL_F32));
    pl_block_destroy(down.data, pl_panels_bytes(2, 2, PL_F32));
    pl_block_destroy(none.data, pl_panels_bytes(0, 1, PL_F32));
    pl_block_destroy(nothing.data, pl_panels_bytes(2, 0, PL_F32));
}

// ---- the GEMM ----

typedef void   gemm_fn(pl_ctx *ctx, pl_gemm_kind kind, int64_t m, int64_t n, int64_t k, const float *a, int64_t lda,
                       const float *b, int64_t ldb, bool accumulate, float *c, int64_t ldc);
typedef void   gemm_serial_fn(void *scratch, pl_gemm_kind kind, int64_t m, int64_t n, int64_t k, const float *a,
                              int64_t lda, const float *b, int64_t ldb, bool accumulate, float *c, int64_t ldc);
typedef size_t gemm_bytes_fn(int64_t m, int64_t n, int64_t k);

gemm_fn        pl_gemm_portable;
gemm_serial_fn pl_gemm_serial_portable;
gemm_bytes_fn  pl_gemm_scratch_bytes_portable;
#if defined(__x86_64__)
gemm_fn        pl_gemm_avx2, pl_gemm_avx512;
gemm_serial_fn pl_gemm_serial_avx2, pl_gemm_serial_avx512;
gemm_bytes_fn  pl_gemm_scratch_bytes_avx2, pl_gemm_scratch_bytes_avx512;
#endif

static const struct {
    const char     *isa;
    gemm_fn        *gemm;
    gemm_serial_fn *serial;
    gemm_bytes_fn  *bytes;
} gemms[] = {
#if defined(__x86_64__)
    {"avx512", pl_gemm_avx512, pl_gemm_serial_avx512, pl_gemm_scratch_bytes_avx512},
    {"avx2", pl_gemm_avx2, pl_gemm_serial_avx2, pl_gemm_scratch_bytes_avx2},
#endif
    {"portable", pl_gemm_portable, pl_gemm_serial_portable, pl_gemm_scratch_bytes_portable},
};
enum { GEMMS = sizeof gemms / sizeof *gemms };

typedef struct problem {
    pl_gemm_kind kind;
    int64_t      m, n, k, lda, ldb, ldc;
    bool         accumulate;
    float       *a, *b, *c;
    gemm_fn     *gemm;
} problem;

// Matrices with rows further apart than they are long, and a NaN wherever nothing may be read.
static problem problem_create(pl_gemm_kind kind, int64_t m, int64_t n, int64_t k, bool accumulate) {
    problem p = {.kind = kind, .m = m, .n = n, .k = k, .accumulate = accumulate};
    int64_t ra = kind == PL_GEMM_TN ? k : m, ca = kind == PL_GEMM_TN ? m : k;
    int64_t rb = kind == PL_GEMM_NT ? n : k, cb = kind == PL_GEMM_NT ? k : n;
    p.lda = ca + 3;
    p.ldb = cb + 1;
    p.ldc = n + 2;
    p.a = floats(ra * p.lda, 1);
    p.b = floats(rb * p.ldb, 2);
    p.c = floats(m * p.ldc, 3);
    for (int64_t i = 0; i < ra; i++)
        for (int64_t j = ca; j < p.lda; j++)
            p.a[i * p.lda + j] = NAN;
    for (int64_t i = 0; i < rb; i++)
        for (int64_t j = cb; j < p.ldb; j++)
            p.b[i * p.ldb + j] = NAN;
    return p;
}

static void problem_free(problem *p) {
    pl_free(p->a);
    pl_free(p->b);
    pl_free(p->c);
}

// C as the routine finds it: 0.5 to accumulate on, else NaN, which must never be read; 9 between the rows.
static void reset_c(const problem *p) {
    for (int64_t i = 0; i < p->m; i++)
        for (int64_t j = 0; j < p->ldc; j++)
            p->c[i * p->ldc + j] = j >= p->n ? 9.0f : p->accumulate ? 0.5f : NAN;
}

static void check_c(const problem *p, const char *what) {
    for (int64_t i = 0; i < p->m; i++)
        for (int64_t j = 0; j < p->ldc; j++) {
            float got = p->c[i * p->ldc + j];
            if (j >= p->n) {
                assert_true(got == 9.0f);
                continue;
            }
            double sum = p->accumulate ? 0.5 : 0, size = fabs(sum);
            for (int64_t k = 0; k < p->k; k++) {
                double x = (double)(p->kind == PL_GEMM_TN ? p->a[k * p->lda + i] : p->a[i * p->lda + k]);
                double y = (double)(p->kind == PL_GEMM_NT ? p->b[j * p->ldb + k] : p->b[k * p->ldb + j]);
                sum += x * y;
                size += fabs(x * y);
            }
            // Far below the worst case k * 2^-24, far above what rounding does: errors of blocking are O(size).
            if (!(fabs((double)got - sum) <= 1e-6 * size))
                fail_msg("%s: kind %d, %lld x %lld x %lld: C[%lld, %lld] is %g, not %g", what, (int)p->kind,
                         (long long)p->m, (long long)p->n, (long long)p->k, (long long)i, (long long)j, (double)got,
                         sum);
        }
}

enum { GUARD = 64 };

static void run_serial(int g, const problem *p) {
    size_t   bytes = gemms[g].bytes(p->m, p->n, p->k);
    uint8_t *scratch = pl_block_create(bytes + GUARD, NULL);
    assert_non_null(scratch);
    memset(scratch, 0xff, bytes + GUARD);
    reset_c(p);
    gemms[g].serial(scratch, p->kind, p->m, p->n, p->k, p->a, p->lda, p->b, p->ldb, p->accumulate, p->c, p->ldc);
    for (int i = 0; i < GUARD; i++)
        assert_int_equal(scratch[bytes + (size_t)i], 0xff);
    pl_block_destroy(scratch, bytes + GUARD);
}

static void gemm_step(pl_ctx *ctx, void *arg) {
    const problem *p = arg;
    p->gemm(ctx, p->kind, p->m, p->n, p->k, p->a, p->lda, p->b, p->ldb, p->accumulate, p->c, p->ldc);
}

static void run_parallel(int g, problem *p, int threads) {
    pl_ctx   ctx;
    pl_pool *pool = pool_of(threads);
    p->gemm = gemms[g].gemm;
    assert_int_equal(pl_ctx_init(&ctx, pl_backend_cpu_isa(gemms[g].isa), pool), PL_OK);
    ctx.scratch.guard = true;
    reset_c(p);
    assert_int_equal(pl_ctx_measure(&ctx, gemm_step, p, NULL), PL_OK);
    uint64_t before = pl_alloc_count();
    gemm_step(&ctx, p);
    assert_int_equal(pl_alloc_count(), before);
    ctx.scratch.used = ctx.scratch.peak;
    assert_true(pl_arena_check(&ctx.scratch));
    pl_ctx_fini(&ctx);
    pl_pool_destroy(pool);
}

static void check_gemm(int64_t m, int64_t n, int64_t k, bool threads) {
    for (int kind = PL_GEMM_NT; kind <= PL_GEMM_TN; kind++)
        for (int accumulate = 0; accumulate < 2; accumulate++) {
            problem p = problem_create((pl_gemm_kind)kind, m, n, k, accumulate);
            size_t  bytes = (size_t)(m * p.ldc) * sizeof(float);
            float  *first = pl_malloc(bytes + 1);
            assert_non_null(first);
            bool fused = false;
            for (int g = 0; g < GEMMS; g++) {
                if (!pl_backend_cpu_isa(gemms[g].isa)) continue;
                run_serial(g, &p);
                check_c(&p, gemms[g].isa);
                bool again = fused && strcmp(gemms[g].isa, "portable") != 0; // the other ISA with a fused multiply-add
                if (again) assert_memory_equal(p.c, first, bytes);
                fused = true;
                memcpy(first, p.c, bytes);
                for (int t = 1; t <= 5 && threads; t += 1 + t / 3) { // 1, 2, 3, 5
                    run_parallel(g, &p, t);
                    assert_memory_equal(p.c, first, bytes);
                }
            }
            pl_free(first);
            problem_free(&p);
        }
}

static void gemm_odd_shapes(void **state) {
    (void)state;
    static const int64_t ms[] = {1, 3, 14, 31, 65}, ns[] = {1, 3, 31, 33, 65}, ks[] = {1, 3, 16, 31, 65};
    for (int i = 0; i < 5; i++)
        for (int j = 0; j < 5; j++)
            for (int l = 0; l < 5; l++)
                check_gemm(ms[i], ns[j], ks[l], false);
}

// Several blocks in every dimension, threads over rows and over columns.
static void gemm_blocks_and_threads(void **state) {
    (void)state;
    check_gemm(300, 70, 130, true);
    check_gemm(5, 2100, 40, true);
    check_gemm(33, 65, 1500, true);
    check_gemm(0, 5, 5, true);
    check_gemm(5, 5, 0, true);
    check_gemm(2, 2, 2, true);
}

// What training relies on beyond gemm.h's threads: an element does not know its neighbours.
static void gemm_elements_independent(void **state) {
    (void)state;
    enum { M = 150, N = 90, K = 800, M1 = 37, N1 = 21 };
    for (int g = 0; g < GEMMS; g++) {
        if (!pl_backend_cpu_isa(gemms[g].isa)) continue;
        problem p = problem_create(PL_GEMM_NN, M, N, K, false), part = p;
        run_serial(g, &p);
        part.m = M1;
        part.n = N1;
        part.a += 40 * p.lda;
        part.b += 50;
        part.c = floats(M1 * p.ldc, 0);
        run_serial(g, &part);
        for (int i = 0; i < M1; i++)
            assert_memory_equal(part.c + i * part.ldc, p.c + (40 + i) * p.ldc + 50, N1 * sizeof(float));
        pl_free(part.c);
        problem_free(&p);
    }
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(panels_any_rows),
        cmocka_unit_test(panels_odd_shapes),
        cmocka_unit_test(bf16_rows_in_order),
        cmocka_unit_test(panels_blocks_and_chunks),
        cmocka_unit_test(panels_portable_invariant),
        cmocka_unit_test(bf16_at_the_ends),
        cmocka_unit_test(scratch_grows_with_rows),
        cmocka_unit_test(panels_empty),
        cmocka_unit_test(gated_any_rows),
        cmocka_unit_test(gated_odd_shapes),
        cmocka_unit_test(gated_blocks_and_chunks),
        cmocka_unit_test(gated_keeps_denormals),
        cmocka_unit_test(gated_scratch_grows_with_rows),
        cmocka_unit_test(gated_empty),
        cmocka_unit_test(gemm_odd_shapes),
        cmocka_unit_test(gemm_blocks_and_threads),
        cmocka_unit_test(gemm_elements_independent),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
