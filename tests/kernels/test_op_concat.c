#include "kernels/op/elementwise.h"
#include "tests/kernels/op_harness.h"
#include <setjmp.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

typedef struct shape {
    int rows, ca, cb;
} shape;

static const shape shapes[] = {{1, 1, 1}, {3, 31, 33}, {33, 65, 3}, {31, 1, 65}, {65, 512, 513}};
enum { SHAPES = sizeof shapes / sizeof shapes[0] };

static void build(op_run *r, const void *arg) {
    const shape *s = arg;
    pl_tensor    a = op_leaf(r, s->rows, s->ca, 0, 1), b = op_leaf(r, s->rows, s->cb, 0, 1);
    op_out(r, pl_concat(op_ctx(r), a, b));
}

// Stored features beside a trained input: the constant half takes no gradient.
static void half_constant(op_run *r, const void *arg) {
    const shape *s = arg;
    pl_tensor    a = op_constant(r, s->rows, s->ca, 1), b = op_leaf(r, s->rows, s->cb, 0, 1);
    op_out(r, pl_concat(op_ctx(r), a, b));
}

// A frozen weight in bf16 beside one that learns.
static void narrow_half(op_run *r, const void *arg) {
    const shape *s = arg;
    pl_tensor    a = op_weight(r, s->rows, s->ca, PL_BF16, PL_ROWMAJOR, 1), b = op_leaf(r, s->rows, s->cb, 0, 1);
    op_out(r, pl_concat(op_ctx(r), a, b));
}

static void all_backends(void **state) {
    (void)state;
    for (int i = 0; i < SHAPES; i++) {
        const shape *s = &shapes[i];
        op_check(build, s, OP_EXACT, "concat %d x %d+%d", s->rows, s->ca, s->cb);
        op_check(half_constant, s, OP_EXACT, "concat %d x constant %d+%d", s->rows, s->ca, s->cb);
        op_check(narrow_half, s, OP_EXACT, "concat %d x bf16 %d+%d", s->rows, s->ca, s->cb);
    }
}

static void inputs_too(op_run *r, const void *arg) {
    const shape *s = arg;
    pl_tensor    a = op_constant(r, s->rows, s->ca, 1), b = op_constant(r, s->rows, s->cb, 1);
    op_out(r, a);
    op_out(r, b);
    op_out(r, pl_concat(op_ctx(r), a, b));
}

static void values(void **state) {
    (void)state;
    const shape       s = {3, 2, 4};
    const pl_backend *be;
    for (int i = 0; (be = op_backend(i)); i++) {
        op_run *r = op_run_once(inputs_too, &s, be, 1, OP_NO_TAPE);
        for (int m = 0; m < s.rows; m++)
            for (int k = 0; k < s.ca + s.cb; k++)
                assert_true(op_value(r, 2, m * (s.ca + s.cb) + k) ==
                            (k < s.ca ? op_value(r, 0, m * s.ca + k) : op_value(r, 1, m * s.cb + k - s.ca)));
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
