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
    double scale, cap;
} shape;

static const shape shapes[] = {{1, 1, 1, 30}, {3, 31, 20, 30}, {33, 65, 3, 1}, {5, 513, 40, 15}, {7, 33, 1e-3, 30}};
enum { SHAPES = sizeof shapes / sizeof shapes[0] };

// The producer of what is capped is a gather, as a linear layer is in a model.
static void build(op_run *r, const void *arg) {
    const shape   *s = arg;
    pl_tensor      x = op_constant(r, s->rows, s->n, s->scale);
    const int32_t *same = op_ids(r, s->rows, 0, s->rows);
    pl_tensor      y = pl_gather(op_ctx(r), x, same, s->rows);
    pl_softcap(op_ctx(r), y, s->cap);
    op_out(r, y);
}

static void all_backends(void **state) {
    (void)state;
    for (int i = 0; i < SHAPES; i++)
        op_check(build, &shapes[i], OP_NO_TAPE, "softcap %dx%d scale %g by %g", shapes[i].rows, shapes[i].n,
                 shapes[i].scale, shapes[i].cap);
}

static void before_and_after(op_run *r, const void *arg) {
    const shape *s = arg;
    pl_tensor    x = op_constant(r, s->rows, s->n, s->scale);
    op_out(r, x);
    const int32_t *own = op_ids_from(r, (const int32_t[]){0, 1, 2, 3}, 4);
    pl_tensor      y = pl_gather(op_ctx(r), x, own, 4);
    pl_softcap(op_ctx(r), y, s->cap);
    op_out(r, y);
}

// Relative error element by element: next to 0, about the seam of the polynomial, far out, where it is the cap.
static void values(void **state) {
    (void)state;
    static const double scale[] = {1e-4, 0.6, 4, 100};
    const pl_backend   *be;
    for (int b = 0; (be = op_backend(b)); b++)
        for (int i = 0; i < 4; i++) {
            const shape s = {4, 200, 7 * scale[i], 7};
            op_run     *r = op_run_once(before_and_after, &s, be, 1, OP_NO_TAPE);
            for (int k = 0; k < s.rows * s.n; k++) {
                double y = s.cap * tanh(op_value(r, 0, k) / s.cap);
                assert_true(fabs(op_value(r, 1, k) - y) <= 0x1p-21 * fabs(y));
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
