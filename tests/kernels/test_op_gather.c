#include "kernels/op/elementwise.h"
#include "tests/kernels/op_harness.h"
#include <setjmp.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

typedef struct shape {
    int rows, d, n;
} shape;

static const shape shapes[] = {{1, 1, 1}, {3, 31, 7}, {33, 65, 31}, {31, 33, 400}, {65, 512, 65}};
enum { SHAPES = sizeof shapes / sizeof shapes[0] };

static void build(op_run *r, const void *arg) {
    const shape *s = arg;
    pl_tensor    x = op_leaf(r, s->rows, s->d, 0, 1);
    op_out(r, pl_gather(op_ctx(r), x, op_ids(r, s->n, -1, s->rows), s->n));
}

static void all_backends(void **state) {
    (void)state;
    for (int i = 0; i < SHAPES; i++)
        op_check(build, &shapes[i], OP_EXACT, "gather %d of %dx%d", shapes[i].n, shapes[i].rows, shapes[i].d);
}

static void picked(op_run *r, const void *arg) {
    pl_tensor x = op_constant(r, 3, 5, 1);
    op_out(r, x);
    op_out(r, pl_gather(op_ctx(r), x, op_ids_from(r, arg, 4), 4));
}

static void values(void **state) {
    (void)state;
    const int32_t     index[4] = {2, -1, 0, 2};
    const pl_backend *be;
    for (int b = 0; (be = op_backend(b)); b++) {
        op_run *r = op_run_once(picked, index, be, 1, OP_NO_TAPE);
        for (int i = 0; i < 4; i++)
            for (int k = 0; k < 5; k++)
                assert_true(op_value(r, 1, i * 5 + k) == (index[i] < 0 ? 0 : op_value(r, 0, index[i] * 5 + k)));
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
