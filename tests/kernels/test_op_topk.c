#include "kernels/base/rng.h"
#include "kernels/op/elementwise.h"
#include "kernels/op/topk.h"
#include "tests/kernels/op_harness.h"
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

typedef struct shape {
    int rows, V, k;
    int levels; // 0: continuous values; else integers below it, full of ties
} shape;

static const shape shapes[] = {
    {1, 1, 1, 0},       {3, 3, 3, 0},      {2, 31, 5, 4},    {33, 65, 1, 0},
    {5, 1000, 64, 0},   {5, 64, 64, 7},    {3, 4099, 10, 0}, {2, 32000, 1, 9},
    {65, 2048, 33, 20}, {1, 49152, 10, 0}, {3, 4, 9, 2},     {1, 1, 64, 0}, // fewer columns than are wanted
};
enum { SHAPES = sizeof shapes / sizeof shapes[0] };

static void values_of(float *v, const shape *s) {
    for (int64_t i = 0; i < (int64_t)s->rows * s->V; i++) {
        pl_rng rng = pl_rng_make(5, PL_STREAM_TEST, 0);
        v[i] = s->levels ? (float)pl_rng_below(rng, (uint64_t)i, (uint64_t)s->levels)
                         : 3 * pl_rng_normal(rng, (uint64_t)i);
    }
}

// be->real copies of given floats: an embedding of all rows.
static pl_tensor given(op_run *r, const float *v, int rows, int cols) {
    int32_t *id = malloc((size_t)rows * sizeof *id);
    assert_non_null(id);
    for (int i = 0; i < rows; i++)
        id[i] = i;
    pl_tensor w = pl_tensor_2d((void *)op_floats_from(r, v, (int64_t)rows * cols), PL_F32, rows, cols);
    pl_tensor x = pl_embed(op_ctx(r), w, op_ids_from(r, id, rows), rows);
    free(id);
    return x;
}

// Names that rise with the columns in some rows and fall in others: equal values go by the column.
static int32_t name_of(int64_t m, int64_t v) {
    return m % 3 == 1 ? (int32_t)(100000 - 2 * v) : (int32_t)(3 * v + m % 2);
}

// Outputs 0..2: ids, values, lse; 3: the ids again, asked for alone; 4: them by name.
static void outputs(op_run *r, pl_tensor x, int k) {
    int64_t      rows = x.dim[0];
    pl_topk_args a = {.x = x, .k = k};
    a.id = op_bytes(r, (size_t)(rows * k) * 4);
    a.value = op_bytes(r, (size_t)(rows * k) * 4);
    a.lse = op_bytes(r, (size_t)rows * 4);
    pl_topk(op_ctx(r), &a);
    op_out_i32(r, a.id, rows * k);
    op_out_f32(r, a.value, rows * k);
    op_out_f32(r, a.lse, rows);
    a.id = op_bytes(r, (size_t)(rows * k) * 4);
    a.value = a.lse = NULL;
    pl_topk(op_ctx(r), &a);
    op_out_i32(r, a.id, rows * k);
    int64_t  n = rows * x.dim[1];
    int32_t *name = malloc((size_t)n * sizeof *name);
    assert_non_null(name);
    for (int64_t i = 0; i < n; i++)
        name[i] = name_of(i / x.dim[1], i % x.dim[1]);
    a.name = op_ids_from(r, name, n);
    a.id = op_bytes(r, (size_t)(rows * k) * 4);
    pl_topk(op_ctx(r), &a);
    op_out_i32(r, a.id, rows * k);
    free(name);
}

static void build(op_run *r, const void *arg) {
    const shape *s = arg;
    float       *v = malloc((size_t)(s->rows * s->V) * sizeof *v);
    assert_non_null(v);
    values_of(v, s);
    outputs(r, given(r, v, s->rows, s->V), s->k);
    free(v);
}

static void all_backends(void **state) {
    (void)state;
    for (int i = 0; i < SHAPES; i++)
        op_check(build, &shapes[i], OP_NO_TAPE, "top %d of %dx%d", shapes[i].k, shapes[i].rows, shapes[i].V);
}

static const float *sorting; // qsort has no argument of its own

static int by_value_then_id(const void *x, const void *y) {
    int a = *(const int *)x, b = *(const int *)y;
    if (sorting[a] != sorting[b]) return sorting[a] > sorting[b] ? -1 : 1;
    return a - b;
}

static void against_sorting(void **state) {
    (void)state;
    const pl_backend *be;
    for (int i = 0; i < SHAPES; i++) {
        const shape *s = &shapes[i];
        float       *v = malloc((size_t)(s->rows * s->V) * sizeof *v);
        int         *order = malloc((size_t)(s->rows * s->V) * sizeof *order);
        assert_non_null(v);
        assert_non_null(order);
        values_of(v, s);
        for (int m = 0; m < s->rows; m++) {
            for (int j = 0; j < s->V; j++)
                order[m * s->V + j] = j;
            sorting = v + (size_t)m * (size_t)s->V;
            qsort(order + m * s->V, (size_t)s->V, sizeof *order, by_value_then_id);
        }
        for (int b = 0; (be = op_backend(b)); b++) {
            op_run *r = op_run_once(build, s, be, 2, OP_NO_TAPE);
            for (int m = 0; m < s->rows; m++) {
                double sum = 0, max = (double)v[m * s->V + order[m * s->V]];
                for (int j = 0; j < s->V; j++)
                    sum += exp((double)v[m * s->V + j] - max);
                assert_true(fabs(op_value(r, 2, m) - max - log(sum)) <= 5e-5); // fp32 sums
                for (int k = s->V; k < s->k; k++) {
                    assert_true(op_value(r, 0, m * s->k + k) == -1 && op_value(r, 4, m * s->k + k) == -1);
                    assert_true(op_value(r, 1, m * s->k + k) == -INFINITY);
                }
                for (int k = 0; k < s->k && k < s->V; k++) {
                    int id = order[m * s->V + k];
                    assert_true(op_value(r, 0, m * s->k + k) == id && op_value(r, 3, m * s->k + k) == id);
                    assert_true(op_value(r, 1, m * s->k + k) == (double)v[m * s->V + id]);
                    assert_true(op_value(r, 4, m * s->k + k) == name_of(m, id));
                }
            }
            op_run_free(r);
        }
        free(v);
        free(order);
    }
}

// Masked logits are -infinity: they rank last, by id, and add nothing to the sum.
static void masked(op_run *r, const void *arg) {
    outputs(r, given(r, arg, 2, 5), 4);
}

static void infinities(void **state) {
    (void)state;
    const float       v[10] = {-INFINITY, 2, -INFINITY, 2, 1, -INFINITY, -INFINITY, -INFINITY, -INFINITY, -INFINITY};
    const int         id[8] = {1, 3, 4, 0, 0, 1, 2, 3};
    const pl_backend *be;
    for (int b = 0; (be = op_backend(b)); b++) {
        op_run *r = op_run_once(masked, v, be, 1, OP_NO_TAPE);
        for (int k = 0; k < 8; k++)
            assert_true(op_value(r, 0, k) == id[k]);
        assert_true(fabs(op_value(r, 2, 0) - log(2 * exp(2) + exp(1))) <= 1e-6);
        assert_true(op_value(r, 2, 1) == -INFINITY);
        op_run_free(r);
    }
}

static void nan_is_refused(void **state) {
    (void)state;
    enum { ROWS = 3, WIDTH = 700 };
    const int         at[] = {0, 1, WIDTH - 1, WIDTH + 37, 3 * WIDTH - 1};
    const pl_backend *be;
    for (int b = 0; (be = op_backend(b)); b++)
        for (int i = 0; i < 5; i++) {
            static float v[ROWS * WIDTH];
            int32_t     *id = op_shared(be, NULL, ROWS * 2 * sizeof *id);
            pl_ctx       ctx;
            pl_err       err;
            assert_int_equal(pl_ctx_init(&ctx, be, NULL), PL_OK);
            assert_int_equal(pl_arena_reserve(&ctx.frame, 1 << 20, NULL), PL_OK);
            assert_int_equal(pl_arena_reserve(&ctx.scratch, 1 << 20, NULL), PL_OK);
            memset(v, 0, sizeof v);
            v[at[i]] = NAN;
            pl_topk_args a = {.x = pl_ctx_const(&ctx, ROWS, WIDTH), .id = id, .k = 2};
            pl_from_f32(a.x.data, be->real, v, ROWS * WIDTH);
            pl_topk(&ctx, &a);
            assert_int_equal(pl_ctx_sync(&ctx, &err), PL_E_INPUT);
            assert_non_null(strstr(err.msg, "NaN"));
            v[at[i]] = 0;
            pl_from_f32(a.x.data, be->real, v, ROWS * WIDTH);
            pl_topk(&ctx, &a); // the error was cleared by asking
            assert_int_equal(pl_ctx_sync(&ctx, &err), PL_OK);
            assert_true(id[0] == 0 && id[1] == 1);
            op_shared_free(be, id, ROWS * 2 * sizeof *id);
            pl_ctx_fini(&ctx);
        }
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(all_backends),
        cmocka_unit_test(against_sorting),
        cmocka_unit_test(infinities),
        cmocka_unit_test(nan_is_refused),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
