// Products of groups of rows: against ref, and the bits that `linear` gives a row by itself.
#include "kernels/op/elementwise.h"
#include "kernels/op/experts.h"
#include "kernels/op/linear.h"
#include "tests/kernels/op_harness.h"
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <string.h>

#include <cmocka.h>

enum { MOST = 9 };

typedef struct shape {
    int      n, k, groups, rows[MOST];
    pl_dtype dtype;
    bool     bias;
} shape;

static const shape shapes[] = {
    {1, 1, 1, {1}, PL_F32, false},
    {70, 33, 3, {0, 1, 0}, PL_F32, true},
    {64, 32, 4, {1, 2, 0, 3}, PL_BF16, false},
    {130, 95, 5, {1, 40, 0, 7, 1}, PL_BF16, true},
    {257, 96, 9, {1, 1, 1, 1, 1, 1, 1, 1, 0}, PL_BF16, false},
    {192, 160, 6, {33, 0, 5, 18, 70, 2}, PL_F32, false},
    {96, 600, 2, {130, 3}, PL_BF16, true},
    {50, 20, 2, {0, 0}, PL_BF16, false},
};
enum { SHAPES = sizeof shapes / sizeof *shapes };

static int rows_of(const shape *s) {
    int rows = 0;
    for (int e = 0; e < s->groups; e++)
        rows += s->rows[e];
    return rows;
}

static float bias_at(int e, int i) {
    return (float)(i % 7 - 3 + e) / 4;
}

static pl_tensor inputs(op_run *r, const shape *s, pl_tensor w[MOST], pl_tensor b[MOST], const int32_t **first) {
    int32_t at[MOST + 1] = {0};
    for (int e = 0; e < s->groups; e++) {
        at[e + 1] = at[e] + s->rows[e];
        w[e] = op_weight(r, s->n, s->k, s->dtype, PL_PANELS, 1 / sqrt(s->k));
        float v[300];
        for (int i = 0; i < s->n; i++)
            v[i] = bias_at(e, i);
        b[e] = pl_tensor_1d((void *)op_floats_from(r, v, s->n), PL_F32, s->n);
    }
    *first = op_ids_from(r, at, s->groups + 1);
    return op_constant(r, rows_of(s), s->k, 1);
}

static void build(op_run *r, const void *arg) {
    const shape   *s = arg;
    pl_tensor      w[MOST], b[MOST];
    const int32_t *first;
    pl_tensor      x = inputs(r, s, w, b, &first);
    op_out(r, pl_grouped(op_ctx(r), x, w, s->bias ? b : NULL, first, s->groups));
}

static void all_backends(void **state) {
    (void)state;
    for (int i = 0; i < SHAPES; i++)
        op_check(build, &shapes[i],
                 OP_NO_TAPE | OP_NO_DEVICE | (shapes[i].dtype == PL_BF16 ? OP_EXACT_LEVELS : OP_EXACT_FMA),
                 "%d groups of %dx%d for %d rows", shapes[i].groups, shapes[i].n, shapes[i].k, rows_of(&shapes[i]));
}

// Output 0: the groups together; 1: each row by itself, without bias.
static void alone(op_run *r, const void *arg) {
    const shape   *s = arg;
    pl_tensor      w[MOST], b[MOST];
    const int32_t *first;
    pl_tensor      x = inputs(r, s, w, b, &first), y = op_place(r, rows_of(s), s->n);
    op_out(r, pl_grouped(op_ctx(r), x, w, s->bias ? b : NULL, first, s->groups));
    int32_t id[200];
    for (int p = 0; p < rows_of(s); p++)
        id[p] = p;
    const int32_t *at = op_ids_from(r, id, rows_of(s));
    for (int e = 0, p = 0; e < s->groups; e++)
        for (int i = 0; i < s->rows[e]; i++, p++) {
            pl_tensor one = pl_gather(op_ctx(r), x, at + p, 1);
            pl_linear_into(op_ctx(r), pl_tensor_2d(pl_f32(&y) + p * s->n, PL_F32, 1, s->n), one, w[e]);
        }
    op_out(r, y);
}

static void check_as_linear(const op_run *r, const shape *s) {
    for (int e = 0, p = 0; e < s->groups; e++)
        for (int i = 0; i < s->rows[e]; i++, p++)
            for (int n = 0; n < s->n; n++) {
                float y = (float)op_value(r, 1, p * s->n + n);
                if (s->bias) y += bias_at(e, n);
                assert_true((float)op_value(r, 0, p * s->n + n) == y);
            }
}

static void as_linear(void **state) {
    (void)state;
    const pl_backend *be;
    for (int i = 0; i < SHAPES; i++)
        for (int b = 0; (be = op_backend(b)); b++) {
            if (!be->fwd[PL_OP_GROUPED] || be->real != PL_F32) continue;
            for (int threads = 1; threads <= 3; threads += 2) {
                op_run *r = op_run_once(alone, &shapes[i], be, threads, OP_NO_TAPE);
                check_as_linear(r, &shapes[i]);
                op_run_free(r);
            }
        }
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(all_backends),
        cmocka_unit_test(as_linear),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
