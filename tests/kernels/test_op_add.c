#include "kernels/op/elementwise.h"
#include "tests/kernels/op_harness.h"
#include <setjmp.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

typedef struct shape {
    int  rows, n;
    bool into;
} shape;

static const shape shapes[] = {{1, 1, false}, {3, 31, true}, {33, 65, false}, {65, 513, true}};
enum { SHAPES = sizeof shapes / sizeof shapes[0] };

// The sum used twice, so that gradients must accumulate.
static void build(op_run *r, const void *arg) {
    const shape *s = arg;
    pl_tensor    a = op_leaf(r, s->rows, s->n, 0, 1), b = op_leaf(r, s->rows, s->n, 0.5, 2);
    pl_tensor    y = s->into ? pl_ctx_tensor(op_ctx(r), s->rows, s->n) : (pl_tensor){0};
    y = pl_add(op_ctx(r), a, b, y);
    op_out(r, pl_add(op_ctx(r), y, a, (pl_tensor){0}));
}

static void sums(void **state) {
    (void)state;
    for (int i = 0; i < SHAPES; i++)
        op_check(build, &shapes[i], OP_EXACT, "add %dx%d", shapes[i].rows, shapes[i].n);
}

// A product with itself, so that both gradients are the same one's.
static void build_product(op_run *r, const void *arg) {
    const shape *s = arg;
    pl_tensor    a = op_leaf(r, s->rows, s->n, 0, 1), b = op_leaf(r, s->rows, s->n, 0.5, 2);
    pl_tensor    y = pl_mul(op_ctx(r), a, b);
    op_out(r, pl_mul(op_ctx(r), y, y));
}

static void products(void **state) {
    (void)state;
    for (int i = 0; i < SHAPES; i++)
        op_check(build_product, &shapes[i], 0, "mul %dx%d", shapes[i].rows, shapes[i].n);
}

static void build_bias(op_run *r, const void *arg) {
    const shape *s = arg;
    pl_tensor    x = op_leaf(r, s->rows, s->n, 0, 1), b = op_leaf_1d(r, s->n, 1, 1);
    op_out(r, pl_bias(op_ctx(r), x, b));
}

static void biases(void **state) {
    (void)state;
    for (int i = 0; i < SHAPES; i++)
        op_check(build_bias, &shapes[i], shapes[i].rows > 64 ? 0 : OP_EXACT, "bias %dx%d", shapes[i].rows, shapes[i].n);
}

// By hand: y = a + b, then y + a; every row of a bias.
static void values_of(op_run *r, const void *arg) {
    const shape *s = arg;
    pl_tensor a = op_leaf(r, s->rows, s->n, 0, 1), b = op_leaf(r, s->rows, s->n, 0, 1), c = op_leaf_1d(r, s->n, 0, 1);
    op_out(r, a);
    op_out(r, b);
    op_out(r, pl_add(op_ctx(r), a, b, (pl_tensor){0}));
    op_out(r, pl_bias(op_ctx(r), a, c));
    op_out(r, pl_bias(op_ctx(r), b, c));
    op_out(r, pl_mul(op_ctx(r), a, b));
}

static void values(void **state) {
    (void)state;
    const shape       s = {5, 7, false};
    const pl_backend *be;
    for (int i = 0; (be = op_backend(i)); i++) {
        op_run *r = op_run_once(values_of, &s, be, 1, OP_NO_TAPE);
        for (int k = 0; k < 35; k++) {
            double a = op_value(r, 0, k), b = op_value(r, 1, k), c = op_value(r, 3, k) - a;
            double ulp = be->real == PL_F64 ? 0x1p-50 : 0x1p-21;
            assert_true(op_value(r, 2, k) - (a + b) <= ulp && (a + b) - op_value(r, 2, k) <= ulp);
            assert_true(op_value(r, 4, k) - (b + c) <= ulp && (b + c) - op_value(r, 4, k) <= ulp);
            assert_true(op_value(r, 5, k) - a * b <= ulp && a * b - op_value(r, 5, k) <= ulp);
            double same = c - (op_value(r, 3, k % 7) - op_value(r, 0, k % 7)); // one vector for all rows
            assert_true(same <= ulp && -same <= ulp && c != 0);
        }
        op_run_free(r);
    }
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(sums),
        cmocka_unit_test(products),
        cmocka_unit_test(biases),
        cmocka_unit_test(values),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
