#include "kernels/op/swiglu.h"
#include "tests/kernels/op_harness.h"
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

typedef struct shape {
    int    rows, n;
    double scale;
} shape;

static const shape shapes[] = {{1, 1, 1}, {3, 31, 1}, {33, 65, 3}, {31, 33, 30}, {65, 512, 1}};
enum { SHAPES = sizeof shapes / sizeof shapes[0] };

static void build(op_run *r, const void *arg) {
    const shape *s = arg;
    op_out(r, pl_swiglu(op_ctx(r), op_leaf(r, s->rows, 2 * s->n, 0, s->scale)));
}

static void all_backends(void **state) {
    (void)state;
    for (int i = 0; i < SHAPES; i++)
        op_check(build, &shapes[i], 0, "swiglu %dx%d scale %g", shapes[i].rows, shapes[i].n, shapes[i].scale);
}

static void inputs_too(op_run *r, const void *arg) {
    const shape *s = arg;
    pl_tensor    gu = op_constant(r, s->rows, 2 * s->n, s->scale);
    op_out(r, gu);
    op_out(r, pl_swiglu(op_ctx(r), gu));
}

// Relative error element by element, far tails included (large negative gates must not become NaN).
static void values(void **state) {
    (void)state;
    const shape       s = {4, 50, 25};
    const pl_backend *be;
    for (int i = 0; (be = op_backend(i)); i++) {
        op_run *r = op_run_once(inputs_too, &s, be, 1, OP_NO_TAPE);
        for (int m = 0; m < s.rows; m++)
            for (int k = 0; k < s.n; k++) {
                double g = op_value(r, 0, m * 2 * s.n + k), u = op_value(r, 0, m * 2 * s.n + s.n + k);
                double y = g / (1 + exp(-g)) * u;
                assert_true(fabs(op_value(r, 1, m * s.n + k) - y) <= 0x1p-20 * fabs(y));
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
