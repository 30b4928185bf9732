#include "kernels/base/rng.h"
#include "kernels/op/elementwise.h"
#include "kernels/op/linear.h"
#include "tests/kernels/op_harness.h"
#include "tests/whole.h"
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

// With a gate, and a whole MLP: beside the ops that they stand for.
enum { OUT = 37 }; // of an MLP

typedef struct gated_shape {
    int       m, n, k; // n outputs: W has 2n rows
    pl_dtype  dtype;
    pl_layout layout;
    pl_gate   gate;
} gated_shape;

static void gated(op_run *r, const void *arg) {
    const gated_shape *s = arg;
    double             scale = 2 / sqrt(s->k);
    pl_tensor          x = op_constant(r, s->m, s->k, 1);
    pl_tensor          w = op_weight(r, 2 * (int64_t)s->n, s->k, s->dtype, s->layout, scale);
    op_out(r, pl_linear_gated(op_ctx(r), x, w, s->gate));
}

enum { MOST_GATED = 2 * 75 * 600 }; // elements of a W

static const float *gated_values(void) {
    static float v[MOST_GATED];
    for (int64_t j = 0; j < MOST_GATED && v[0] == 0; j++) // drawn once
        v[MOST_GATED - 1 - j] = pl_rng_normal(pl_rng_make(4, PL_STREAM_TEST, 0), (uint64_t)j);
    return v;
}

// x's MLP with weights that are the same in either layout, and the ops that it is made of.
static void beside_parts(op_run *r, const void *arg) {
    const gated_shape *s = arg;
    pl_tensor x = op_constant(r, s->m, s->k, 1), down = op_weight(r, OUT, s->n, s->dtype, PL_PANELS, 1 / sqrt(s->n));
    for (int i = 0; i < 2; i++) {
        assert_true(2 * s->n * s->k <= MOST_GATED);
        pl_tensor w = op_weight_from(r, 2 * (int64_t)s->n, s->k, s->dtype, i ? PL_PANELS : s->layout, gated_values());
        pl_tensor y =
            i ? pl_gated(op_ctx(r), pl_linear(op_ctx(r), x, w), s->gate) : pl_linear_gated(op_ctx(r), x, w, s->gate);
        op_out(r, y);
        op_out(r, i ? pl_linear(op_ctx(r), y, down) : pl_mlp(op_ctx(r), x, w, down, s->gate));
    }
}

static const int gated_sizes[][3] = {{1, 1, 1},    {1, 32, 64},  {3, 31, 33},  {2, 33, 31},   {16, 64, 96},
                                     {5, 97, 130}, {17, 65, 40}, {33, 96, 64}, {101, 75, 600}};
enum { GATED_SIZES = sizeof gated_sizes / sizeof gated_sizes[0], GATES = 3 };

// Gates turn here and there, so that every one meets every type and layout.
static gated_shape gated_shape_of(int i, int layout, int type) {
    return (gated_shape){.m = gated_sizes[i][0],
                         .n = gated_sizes[i][1],
                         .k = gated_sizes[i][2],
                         .dtype = type ? PL_BF16 : PL_F32,
                         .layout = layout ? PL_GATED : PL_PANELS,
                         .gate = (pl_gate)((i + layout + type) % GATES)};
}

static void gated_backends(void **state) {
    (void)state;
    for (int i = 0; i < GATED_SIZES; i++)
        for (int layout = 0; layout < 2; layout++)
            for (int type = 0; type < 2; type++) {
                gated_shape s = gated_shape_of(i, layout, type);
                bool        host = layout || s.gate == PL_GATE_CLAMPED;
                op_check(gated, &s, OP_NO_TAPE | (host ? OP_NO_DEVICE : 0), "gated %d, layout %d, %s, %dx%dx%d", s.gate,
                         (int)s.layout, pl_dtype_name(s.dtype), s.m, s.n, s.k);
            }
}

static void gated_is_its_parts(void **state) {
    (void)state;
    const pl_backend *be;
    for (int b = 0; (be = op_backend(b)); b++)
        for (int i = 0; i < GATED_SIZES * 4; i++) {
            gated_shape s = gated_shape_of(i / 4, i / 2 % 2, i % 2);
            if (!be->fwd[PL_OP_GATEDLINEAR]) continue; // there it is its parts
            for (int threads = 1; threads <= 3; threads++) {
                if (!test_whole() && (b + i + threads) % 3) continue;
                op_run *r = op_run_once(beside_parts, &s, be, threads, OP_NO_TAPE);
                for (int64_t j = 0; j < (int64_t)s.m * OUT; j++)
                    if (op_value(r, 1, j) != op_value(r, 3, j))
                        fail_msg("%s: an MLP's element %lld is %a, not %a", be->name, (long long)j, op_value(r, 1, j),
                                 op_value(r, 3, j));
                for (int64_t j = 0; j < (int64_t)s.m * s.n; j++)
                    if (op_value(r, 0, j) != op_value(r, 2, j))
                        fail_msg("%s, gate %d, layout %d, %s, %dx%dx%d, %d threads: element %lld is %a, not %a",
                                 be->name, s.gate, s.layout, pl_dtype_name(s.dtype), s.m, s.n, s.k, threads,
                                 (long long)j, op_value(r, 0, j), op_value(r, 2, j));
                op_run_free(r);
            }
        }
}

// Under a tape the op is the two, which learn.
static void gated_learns(op_run *r, const void *arg) {
    const gated_shape *s = arg;
    pl_tensor          x = op_leaf(r, s->m, s->k, 0, 1), w = op_leaf(r, 2 * (int64_t)s->n, s->k, 0, 1 / sqrt(s->k));
    op_out(r, pl_linear_gated(op_ctx(r), x, w, s->gate));
    op_out(r, pl_mlp(op_ctx(r), x, w, op_leaf(r, OUT, s->n, 0, 1 / sqrt(s->n)), s->gate));
}

static void gated_gradients(void **state) {
    (void)state;
    for (int g = 0; g < 2; g++)
        op_check(gated_learns, &(gated_shape){.m = 5, .n = 33, .k = 20, .gate = g ? PL_GATE_GELU_TANH : PL_GATE_SILU},
                 0, "gated %d, learning", g);
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

static void packing_gated(void **state) {
    (void)state;
    enum { I = 71, K = 37, PLACES = 3 * PL_PANEL };
    static float src[2 * I * K];
    for (int i = 0; i < 2 * I * K; i++)
        src[i] = pl_rng_normal(pl_rng_make(1, PL_STREAM_TEST, 1), (uint64_t)i);
    for (int t = 0; t < 2; t++) {
        pl_dtype  type = t ? PL_BF16 : PL_F32;
        size_t    bytes = pl_panels_bytes(2 * I, K, type);
        uint16_t *whole = calloc(bytes, 1), *pieces = calloc(bytes, 1), *halves = calloc(2 * I * K, sizeof *halves);
        assert_true(bytes == (size_t)PLACES * (t ? K + 1 : K) * pl_dtype_size(type));
        assert_true(whole && pieces && halves);
        pl_panels_pack_as(PL_GATED, whole, type, 0, 2 * I, 2 * I, K, src);
        const int cut[] = {0, 5, 32, 33, 70, 72, 100, 2 * I};
        for (int i = 0; i < 7; i++)
            pl_panels_pack_as(PL_GATED, pieces, type, cut[i], cut[i + 1] - cut[i], 2 * I, K, src + cut[i] * K);
        assert_memory_equal(whole, pieces, bytes);
        for (int place = 0; place < PLACES; place++) {
            int i = place / PL_PANEL * PL_HALF_PANEL + place % PL_HALF_PANEL, up = place / PL_HALF_PANEL % 2;
            for (int k = 0; k < K; k++) {
                float is = i < I ? src[(up * I + i) * K + k] : 0;
                assert_true(pl_panels_at(whole, type, place, k, K) == (t ? pl_round_bf16(is) : is));
            }
        }
        if (t) {
            pl_from_f32(halves, PL_BF16, src, 2 * I * K);
            memset(pieces, 0, bytes);
            for (int i = 0; i < 7; i++)
                pl_panels_pack_bf16(PL_GATED, pieces, cut[i], cut[i + 1] - cut[i], 2 * I, K, halves + cut[i] * K);
            assert_memory_equal(whole, pieces, bytes);
        }
        free(whole);
        free(pieces);
        free(halves);
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
        cmocka_unit_test(all_backends),  cmocka_unit_test(every_m),          cmocka_unit_test(many_tiles),
        cmocka_unit_test(naive),         cmocka_unit_test(batch_invariance), cmocka_unit_test(packing),
        cmocka_unit_test(cost),          cmocka_unit_test(gated_backends),   cmocka_unit_test(gated_is_its_parts),
        cmocka_unit_test(packing_gated), cmocka_unit_test(gated_gradients),  cmocka_unit_test(slices_of_whole_products),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
