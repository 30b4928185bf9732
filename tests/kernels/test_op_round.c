#include "kernels/op/elementwise.h"
#include "kernels/op/linear.h"
#include "tests/kernels/op_harness.h"
#include <setjmp.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

typedef struct shape {
    int  rows, d;
    bool round;
} shape;

static void build(op_run *r, const void *arg) {
    const shape *s = arg;
    op_out(r, pl_round(op_ctx(r), op_leaf(r, s->rows, s->d, 0, 1)));
}

static void all_backends(void **state) {
    (void)state;
    const shape shapes[] = {{1, 1, true}, {3, 31, true}, {33, 65, true}, {65, 513, true}};
    for (int i = 0; i < 4; i++)
        op_check(build, &shapes[i], OP_EXACT | OP_NO_DIFFERENCES, "round %dx%d", shapes[i].rows, shapes[i].d);
}

static void values_of(op_run *r, const void *arg) {
    const float *v = op_floats_from(r, arg, 6);
    pl_tensor    x = op_place(r, 1, 6);
    for (int i = 0; i < 6; i++)
        if (x.dtype == PL_F64)
            ((double *)x.data)[i] = (double)v[i];
        else
            ((float *)x.data)[i] = v[i];
    op_out(r, pl_round(op_ctx(r), x));
}

static void values(void **state) {
    (void)state;
    // Ties go to even; the step between bf16 numbers just above 1 is 2^-7.
    const float       in[6] = {1.0f, 1.0f + 0x1p-8f, 1.0f + 3 * 0x1p-8f, -1.0f - 0x1.1p-8f, 0x1p-130f, -0.0f};
    const double      out[6] = {1, 1, 1 + 0x1p-6, -1 - 0x1p-7, 0x1p-130, 0};
    const pl_backend *be;
    for (int i = 0; (be = op_backend(i)); i++) {
        op_run *r = op_run_once(values_of, in, be, 1, OP_NO_TAPE);
        for (int k = 0; k < 6; k++)
            assert_true(op_value(r, 0, k) == out[k]);
        op_run_free(r);
    }
}

// The gradient of sum c W round(x) in x, which must be that of sum c W x.
static void below_linear(op_run *r, const void *arg) {
    const shape *s = arg;
    pl_tensor    x = op_leaf(r, s->rows, s->d, 0, 1), w = op_constant(r, 7, s->d, 1);
    op_out(r, pl_linear(op_ctx(r), s->round ? pl_round(op_ctx(r), x) : x, w));
}

static void straight_through(void **state) {
    (void)state;
    const shape       with = {5, 9, true}, without = {5, 9, false};
    const pl_backend *be;
    for (int i = 0; (be = op_backend(i)); i++) {
        op_run *a = op_run_once(below_linear, &with, be, 1, 0), *b = op_run_once(below_linear, &without, be, 1, 0);
        for (int k = 0; k < 45; k++)
            assert_true(op_grad(a, 0, k) == op_grad(b, 0, k) && op_grad(a, 0, k) != 0);
        assert_true(op_value(a, 0, 0) != op_value(b, 0, 0));
        op_run_free(a);
        op_run_free(b);
    }
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(all_backends),
        cmocka_unit_test(values),
        cmocka_unit_test(straight_through),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
