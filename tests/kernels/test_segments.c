// Weights packed by segments: where rows lie, and the bits of the ops that read them beside those of plain panels.
#include "kernels/op/gatherdot.h"
#include "kernels/op/headtopk.h"
#include "kernels/op/linear.h"
#include "kernels/segments.h"
#include "tests/kernels/op_harness.h"
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

// Segments of one row, of none, of a half panel and one row more, of whole panels, of one that leaves a half.
static const int64_t rows[] = {0, 1, 1, 33, 66, 130, 195, 195, 291, 300, 700, 1000, 1000};
enum { N = sizeof rows / sizeof *rows - 1, V = 1000, LISTED = 90 };
static int64_t           unit[N + 1];
static const pl_segments segments = {.n = N, .row = rows, .unit = unit};

static const pl_span whole[] = {{1, 32}, {33, 33}, {195, 96}, {300, 400}}; // segments as they are
static const pl_span parts[] = {{0, 3}, {20, 60}, {129, 2}, {194, 2}, {290, 11}, {999, 1}};

typedef struct shape {
    int            m, k;
    pl_dtype       dtype;
    const pl_span *span;
    int            n_spans, top;
    bool           by_id;
} shape;

static const shape shapes[] = {
    {1, 33, PL_BF16, NULL, 0, 10, false}, {1, 48, PL_F32, whole, 4, 1, false},   {7, 40, PL_BF16, whole, 4, 10, false},
    {3, 17, PL_F32, parts, 6, 5, false},  {9, 64, PL_BF16, parts, 6, 64, false}, {2, 31, PL_BF16, whole, 4, 200, true},
    {1, 64, PL_BF16, whole, 4, 3, false}, {13, 20, PL_F32, NULL, 0, 300, false},
};
enum { SHAPES = sizeof shapes / sizeof *shapes };

static void places(void **state) {
    (void)state;
    enum { K = 3 };
    uint8_t   taken[V * 2 * K] = {0};
    pl_tensor w = {.dim = {V, K, 1, 1}, .rank = 2, .dtype = PL_F32, .layout = PL_SEGMENTS, .segments = &segments};
    size_t    end = pl_segments_bytes(&segments, K, PL_F32) / sizeof(float), halves = 0;
    for (int i = 0; i < N; i++)
        halves += (size_t)(rows[i + 1] - rows[i] + PL_HALF_PANEL - 1) / PL_HALF_PANEL;
    assert_int_equal(end, halves * PL_HALF_PANEL * K);
    assert_int_equal(pl_panels_most(&w), halves);
    for (int step = 1; step < V; step += 123) { // in order, and jumping about
        int64_t segment = 0;
        for (int i = 0; i < V; i++) {
            int64_t  row = (int64_t)i * step % V, from = 0;
            pl_panel p = pl_panel_of(&w, row, &segment);
            assert_true(p.first <= row && row < p.first + p.rows && p.rows <= p.width);
            assert_true(p.width == PL_PANEL || (p.width == PL_HALF_PANEL && p.rows <= PL_HALF_PANEL));
            for (int s = 0; s < N; s++)
                if (rows[s] <= row && row < rows[s + 1]) from = rows[s];
            assert_true(p.first >= from && p.first + p.rows <= rows[segment + 1] && rows[segment] == from);
            assert_true(p.at / sizeof(float) + (size_t)p.width * K <= end);
            for (int k = 0; k < K && step == 1; k++) // no element lies where another one does
                assert_int_equal(taken[p.at / sizeof(float) + pl_panel_place(PL_F32, row - p.first, k, p.width)]++, 0);
        }
    }
}

static const int32_t *listed(op_run *r, int m) {
    int32_t id[16 * LISTED];
    for (int i = 0; i < m * LISTED; i++)
        id[i] = i % 11 == 5 ? -1 : (int32_t)((i % 3 ? i * 11 : i * 577) % V);
    return op_ids_from(r, id, (int64_t)m * LISTED);
}

static void outputs(op_run *r, const shape *s, pl_tensor x, pl_tensor w) {
    pl_headtopk_args a = {.x = x, .w = w, .span = s->span, .n_spans = s->n_spans, .k = s->top, .by_id = s->by_id};
    a.id = op_bytes(r, (size_t)(s->m * s->top) * 4);
    a.value = op_bytes(r, (size_t)(s->m * s->top) * 4);
    a.lse = op_bytes(r, (size_t)s->m * 4);
    pl_headtopk(op_ctx(r), &a);
    op_out_i32(r, a.id, s->m * s->top);
    op_out_f32(r, a.value, s->m * s->top);
    op_out_f32(r, a.lse, s->m);
    op_out(r, pl_gatherdot(op_ctx(r), x, w, listed(r, s->m), LISTED));
}

// The same rows by segments. Packed in pieces, as they come from a file.
static pl_tensor by_segments(op_run *r, const shape *s, pl_tensor panels) {
    pl_tensor w = panels;
    size_t    bytes = pl_segments_bytes(&segments, s->k, s->dtype);
    w.layout = PL_SEGMENTS;
    w.segments = &segments;
    w.data = op_bytes(r, bytes);
    if (op_ctx(r)->measuring) return w;
    float *v = malloc((size_t)(V * s->k) * sizeof *v);
    assert_non_null(v);
    for (int64_t i = 0; i < V; i++)
        pl_panels_row(v + i * s->k, panels.data, s->dtype, i, s->k);
    memset(w.data, 0, bytes);
    for (int64_t at = 0, n; at < V; at += n) {
        n = at + 77 < V ? 77 : V - at;
        pl_segments_pack(w.data, s->dtype, &segments, at, n, s->k, v + at * s->k);
    }
    free(v);
    return w;
}

static void build(op_run *r, const void *arg) {
    const shape *s = arg;
    pl_tensor    x = op_constant(r, s->m, s->k, 1), w = op_weight(r, V, s->k, s->dtype, PL_PANELS, 3 / sqrt(s->k));
    outputs(r, s, x, by_segments(r, s, w));
    outputs(r, s, x, w);
}

static void all_backends(void **state) {
    (void)state;
    for (int i = 0; i < SHAPES; i++)
        op_check(build, &shapes[i], OP_NO_TAPE | OP_NO_DEVICE, "segments, %d rows of %d", shapes[i].m, shapes[i].k);
}

static void bits_of_panels(void **state) {
    (void)state;
    const pl_backend *be;
    for (int i = 0; i < SHAPES; i++)
        for (int b = 0; (be = op_backend(b)); b++)
            for (int threads = 1; threads <= 3 && !be->device; threads++) {
                const shape *s = &shapes[i];
                op_run      *r = op_run_once(build, s, be, threads, OP_NO_TAPE), *one;
                one = op_run_once(build, s, be, 1, OP_NO_TAPE);
                for (int64_t at = 0; at < s->m * s->top; at++)
                    for (int out = 0; out < 2; out++)
                        assert_true(op_value(r, out, at) == op_value(r, 4 + out, at));
                for (int64_t m = 0; m < s->m; m++) {
                    assert_true(op_value(r, 2, m) == op_value(one, 2, m));
                    assert_true(fabs(op_value(r, 2, m) - op_value(r, 6, m)) <= 5e-5); // fp32, in another order
                }
                for (int64_t at = 0; at < s->m * LISTED; at++)
                    assert_true(op_value(r, 3, at) == op_value(r, 7, at));
                op_run_free(one);
                op_run_free(r);
            }
}

int main(void) {
    pl_segments_place(unit, rows, N);
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(places),
        cmocka_unit_test(all_backends),
        cmocka_unit_test(bits_of_panels),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
