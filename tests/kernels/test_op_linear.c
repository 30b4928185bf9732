#include "kernels/base/rng.h"
#include "kernels/op/gather.h"
#include "kernels/op/linear.h"
#include "tests/kernels/op_harness.h"
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

typedef struct shape {
    int      m, n, k;
    pl_dtype dtype;
} shape;

static const int sizes[][3] = {{1, 1, 1},    {1, 3, 31},  {3, 33, 1},  {31, 31, 3},   {33, 65, 33},
                               {65, 32, 65}, {1, 97, 64}, {5, 64, 96}, {67, 130, 257}};
enum { SIZES = sizeof sizes / sizeof sizes[0] };

static void trained(op_run *r, const void *arg) {
    const shape *s = arg;
    pl_tensor    x = op_leaf(r, s->m, s->k, 0, 1), w = op_leaf(r, s->n, s->k, 0, 1 / sqrt(s->k));
    op_out(r, pl_linear(op_ctx(r), x, w));
}

// A working copy of a bf16 weight: on a GPU all three products go through tensor cores.
static void working(op_run *r, const void *arg) {
    const shape *s = arg;
    pl_tensor    x = op_leaf(r, s->m, s->k, 0, 1), w = op_working(r, s->n, s->k, 1 / sqrt(s->k));
    op_out(r, pl_linear(op_ctx(r), x, w));
}

static void frozen(op_run *r, const void *arg) {
    const shape *s = arg;
    pl_tensor    x = op_leaf(r, s->m, s->k, 0, 1);
    op_out(r, pl_linear(op_ctx(r), x, op_weight(r, s->n, s->k, s->dtype, PL_ROWMAJOR, 1 / sqrt(s->k))));
}

static void packed(op_run *r, const void *arg) {
    const shape *s = arg;
    pl_tensor    x = op_constant(r, s->m, s->k, 1);
    pl_tensor    w = op_weight(r, s->n, s->k, s->dtype, PL_PANELS, 1 / sqrt(s->k)), y = op_place(r, s->m, s->n);
    op_out(r, pl_linear(op_ctx(r), x, w));
    pl_linear_into(op_ctx(r), y, x, w);
    op_out(r, y);
}

static void all_backends(void **state) {
    (void)state;
    for (int i = 0; i < SIZES; i++) {
        shape s = {sizes[i][0], sizes[i][1], sizes[i][2], PL_F32};
        op_check(trained, &s, 0, "linear %dx%dx%d", s.m, s.n, s.k);
        op_check(working, &s, OP_NARROW, "linear working %dx%dx%d", s.m, s.n, s.k);
        op_check(frozen, &s, 0, "linear frozen f32 %dx%dx%d", s.m, s.n, s.k);
        op_check(packed, &s, OP_NO_TAPE | OP_EXACT_FMA, "linear f32 panels %dx%dx%d", s.m, s.n, s.k);
        s.dtype = PL_BF16;
        op_check(packed, &s, OP_NO_TAPE | OP_EXACT_LEVELS, "linear bf16 panels %dx%dx%d", s.m, s.n, s.k);
    }
}

// Past the size from which a GPU rounds a factor to bf16 once and reads that: each of the three, lines of any length.
static void many_tiles(void **state) {
    (void)state;
    const shape shapes[] = {{390, 9, 20, PL_F32}, {9, 400, 13, PL_F32}, {21, 7, 391, PL_F32}, {24, 385, 40, PL_F32}};
    for (int i = 0; i < 4; i++) {
        const shape *s = &shapes[i];
        op_check(working, s, OP_NARROW | OP_NO_DIFFERENCES, "linear working %dx%dx%d", s->m, s->n, s->k);
    }
}

// Every M from 1 to past the largest register block, on a width that is no multiple of a panel.
static void every_m(void **state) {
    (void)state;
    for (int m = 1; m <= 20; m++)
        for (int t = 0; t < 2; t++) {
            shape s = {m, 75, 40, t ? PL_BF16 : PL_F32};
            op_check(packed, &s, OP_NO_TAPE | (t ? OP_EXACT_LEVELS : OP_EXACT_FMA), "linear panels M=%d", m);
        }
}

// Panels enough for a block to keep its own, through two slices of columns: few rows, and as many as take a
// multiprocessor's room.
static void slices_of_whole_products(void **state) {
    (void)state;
    const shape shapes[] = {{1, 1925, 1026, PL_BF16}, {17, 901, 1026, PL_BF16}};
    for (int i = 0; i < 2; i++) {
        const shape *s = &shapes[i];
        op_check(packed, s, OP_NO_TAPE | OP_EXACT_LEVELS, "linear bf16 panels %dx%dx%d", s->m, s->n, s->k);
    }
}

static void naive(void **state) {
    (void)state;
    const float       x[6] = {1, 2, 3, -1, 0.5f, 4}, w[6] = {1, 0, 2, -3, 4, 0.25f};
    const double      y[4] = {7, 5.75, 7, 6};
    const pl_backend *be;
    for (int i = 0; (be = op_backend(i)); i++) {
        pl_ctx ctx;
        assert_int_equal(pl_ctx_init(&ctx, be, NULL), PL_OK);
        assert_int_equal(pl_arena_reserve(&ctx.frame, 1 << 16, NULL), PL_OK);
        assert_int_equal(pl_arena_reserve(&ctx.scratch, 1 << 16, NULL), PL_OK);
        for (int layout = 0; layout < 2; layout++) {
            float    *panels = op_shared(be, NULL, 3 * PL_PANEL * sizeof *panels), *rows = op_shared(be, w, sizeof w);
            pl_tensor tx = pl_ctx_const(&ctx, 2, 3), tw = pl_tensor_2d(rows, PL_F32, 2, 3);
            pl_panels_pack(panels, PL_F32, 0, 2, 2, 3, w);
            if (layout) tw.data = panels;
            if (layout) tw.layout = PL_PANELS;
            pl_from_f32(tx.data, be->real, x, 6);
            pl_tensor ty = pl_linear(&ctx, tx, tw);
            assert_int_equal(pl_ctx_sync(&ctx, NULL), PL_OK);
            for (int k = 0; k < 4; k++)
                assert_true((be->real == PL_F64 ? pl_f64(&ty)[k] : (double)pl_f32(&ty)[k]) == y[k]);
            op_shared_free(be, panels, 3 * PL_PANEL * sizeof *panels);
            op_shared_free(be, rows, sizeof w);
        }
        pl_ctx_fini(&ctx);
    }
}

// A row alone and in company.
static void rows_alone(op_run *r, const void *arg) {
    const shape *s = arg;
    pl_tensor    x = op_constant(r, s->m, s->k, 1);
    pl_tensor    w = op_weight(r, s->n, s->k, s->dtype, PL_PANELS, 1 / sqrt(s->k));
    op_out(r, pl_linear(op_ctx(r), x, w));
    for (int32_t m = 0; m < s->m; m++)
        op_out(r, pl_linear(op_ctx(r), pl_gather(op_ctx(r), x, op_ids_from(r, &m, 1), 1), w));
}

static void batch_invariance(void **state) {
    (void)state;
    const shape shapes[] = {
        {17, 97, 130, PL_F32}, {17, 97, 130, PL_BF16}, {9, 2000, 33, PL_BF16}, {9, 1925, 1026, PL_BF16}};
    const pl_backend *be;
    for (int b = 0; (be = op_backend(b)); b++)
        for (int i = 0; i < (be->device ? 4 : 3); i++) { // the last is for a device's blocks that keep their panels
            const shape *s = &shapes[i];
            op_run      *r = op_run_once(rows_alone, s, be, 2, OP_NO_TAPE);
            for (int m = 0; m < s->m; m++)
                for (int n = 0; n < s->n; n++)
                    assert_true(op_value(r, 0, m * s->n + n) == op_value(r, m + 1, n));
            op_run_free(r);
        }
}

// The layout as kernels/tensor.h states it, and packing in pieces.
static void packing(void **state) {
    (void)state;
    enum { N = 71, K = 37 };
    static float src[N * K], row[K];
    for (int i = 0; i < N * K; i++)
        src[i] = pl_rng_normal(pl_rng_make(1, PL_STREAM_TEST, 0), (uint64_t)i);
    for (int t = 0; t < 2; t++) {
        pl_dtype  type = t ? PL_BF16 : PL_F32;
        size_t    bytes = pl_panels_bytes(N, K, type);
        uint16_t *whole = calloc(bytes, 1), *pieces = calloc(bytes, 1);
        assert_int_equal(bytes, (size_t)128 * (t ? K + 1 : K) * pl_dtype_size(type));
        assert_non_null(whole);
        assert_non_null(pieces);
        pl_panels_pack(whole, type, 0, N, N, K, src);
        const int cut[] = {0, 5, 32, 33, 70, N};
        for (int i = 0; i < 5; i++)
            pl_panels_pack(pieces, type, cut[i], cut[i + 1] - cut[i], N, K, src + cut[i] * K);
        assert_memory_equal(whole, pieces, bytes);
        for (int n = 0; n < 128; n++) {
            if (n < N) pl_panels_row(row, whole, type, n, K);
            for (int k = 0; k < K + t; k++) { // in bf16 a zero after an odd K
                float expected = n >= N || k == K ? 0 : t ? pl_round_bf16(src[n * K + k]) : src[n * K + k];
                int   panel = n / PL_PANEL * (K + t) * PL_PANEL, j = n % PL_PANEL;
                float raw = t ? pl_bf16_to_f32(whole[panel + (k / 2 * PL_PANEL + j) * 2 + k % 2])
                              : ((float *)whole)[panel + k * PL_PANEL + j];
                assert_true(raw == expected);
                if (n < N && k < K) assert_true(pl_panels_at(whole, type, n, k, K) == expected && row[k] == expected);
            }
        }
        free(whole);
        free(pieces);
    }
}

static void cost(void **state) {
    (void)state;
    pl_tensor w = pl_tensor_2d(NULL, PL_BF16, 10, 20);
    pl_cost   c = pl_linear_cost(3, &w);
    assert_true(c.flops == 1200 && c.bytes == 400 + 3 * 30 * 4);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(all_backends),
        cmocka_unit_test(every_m),
        cmocka_unit_test(many_tiles),
        cmocka_unit_test(naive),
        cmocka_unit_test(batch_invariance),
        cmocka_unit_test(packing),
        cmocka_unit_test(cost),
        cmocka_unit_test(slices_of_whole_products),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
