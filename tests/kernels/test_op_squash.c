#include "kernels/op/elementwise.h"
#include "tests/kernels/op_harness.h"
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

typedef struct shape {
    int    rows, from, n, all;
    double scale;
} shape;

static const shape shapes[] = {{1, 0, 1, 1, 1}, {3, 0, 31, 31, 1}, {33, 7, 65, 90, 3}, {31, 33, 33, 66, 30}};
enum { SHAPES = sizeof shapes / sizeof shapes[0], KINDS = PL_SQUASH_TANH + 1 };

// All three, of overlapping columns.
static void build(op_run *r, const void *arg) {
    const shape *s = arg;
    pl_tensor    x = op_leaf(r, s->rows, s->all, 0, s->scale);
    for (int k = 0; k < KINDS; k++)
        op_out(r, pl_squash(op_ctx(r), (pl_squash_kind)k, x, s->from, s->n, (pl_tensor){0}));
}

// Rows that lie behind each other in a larger tensor, as a recurrence writes them.
static void rows_of_one(op_run *r, const void *arg) {
    const shape *s = arg;
    pl_tensor    all = pl_ctx_tensor(op_ctx(r), 2 * s->rows, s->n);
    for (int k = 0; k < 2; k++) {
        pl_tensor part = pl_tensor_slice(&all, k * s->rows, s->rows);
        pl_squash(op_ctx(r), PL_SQUASH_TANH, op_leaf(r, s->rows, s->all, 0, s->scale), s->from, s->n, part);
    }
    op_out(r, all);
}

static void all_backends(void **state) {
    (void)state;
    for (int i = 0; i < SHAPES; i++) {
        const shape *s = &shapes[i];
        op_check(build, s, OP_EXACT, "%d columns of %dx%d scale %g", s->n, s->rows, s->all, s->scale);
        op_check(rows_of_one, s, OP_EXACT, "rows of one, %d of %dx%d", s->n, s->rows, s->all);
    }
}

static void inputs_too(op_run *r, const void *arg) {
    const shape *s = arg;
    pl_tensor    x = op_constant(r, s->rows, s->all, s->scale);
    op_out(r, x);
    for (int k = 0; k < KINDS; k++)
        op_out(r, pl_squash(op_ctx(r), (pl_squash_kind)k, x, s->from, s->n, (pl_tensor){0}));
}

// Far tails included: large inputs must not become NaN.
static void values(void **state) {
    (void)state;
    const shape       s = {4, 3, 50, 60, 60};
    const pl_backend *be;
    for (int i = 0; (be = op_backend(i)); i++) {
        op_run *r = op_run_once(inputs_too, &s, be, 1, OP_NO_TAPE);
        for (int k = 0; k < s.rows * s.n; k++) {
            double x = op_value(r, 0, k / s.n * s.all + s.from + k % s.n);
            double want[KINDS] = {1 / (1 + exp(-x)), 1 / (1 + exp(x)), tanh(x)};
            for (int f = 0; f < KINDS; f++)
                assert_true(fabs(op_value(r, 1 + f, k) - want[f]) <= 0x1p-20 * fabs(want[f]) + 1e-36);
        }
        op_run_free(r);
    }
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(all_backends),
        cmocka_unit_test(values),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
