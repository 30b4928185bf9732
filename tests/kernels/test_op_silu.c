#include "kernels/op/elementwise.h"
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

static const shape shapes[] = {{1, 1, 1}, {3, 31, 1}, {33, 65, 3}, {31, 33, 30}};
enum { SHAPES = sizeof shapes / sizeof shapes[0] };

static void build(op_run *r, const void *arg) {
    const shape *s = arg;
    op_out(r, pl_silu(op_ctx(r), op_leaf(r, s->rows, s->n, 0, s->scale)));
}

static void all_backends(void **state) {
    (void)state;
    for (int i = 0; i < SHAPES; i++)
        op_check(build, &shapes[i], OP_EXACT, "silu %dx%d scale %g", shapes[i].rows, shapes[i].n, shapes[i].scale);
}

static void inputs_too(op_run *r, const void *arg) {
    const shape *s = arg;
    pl_tensor    x = op_constant(r, s->rows, s->n, s->scale);
    op_out(r, x);
    op_out(r, pl_silu(op_ctx(r), x));
}

// Far tails included: large negative inputs must not become NaN.
static void values(void **state) {
    (void)state;
    const shape       s = {4, 50, 60};
    const pl_backend *be;
    for (int i = 0; (be = op_backend(i)); i++) {
        op_run *r = op_run_once(inputs_too, &s, be, 1, OP_NO_TAPE);
        for (int k = 0; k < s.rows * s.n; k++) {
            double x = op_value(r, 0, k), y = x / (1 + exp(-x));
            assert_true(fabs(op_value(r, 1, k) - y) <= 0x1p-20 * fabs(y) + 1e-36); // exp overflows float near -88
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
