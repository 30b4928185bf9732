#include "kernels/op/elementwise.h"
#include "tests/kernels/op_harness.h"
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdlib.h>

#include <cmocka.h>

typedef struct shape {
    int rows, k, d;
} shape;

static const shape shapes[] = {{1, 1, 1}, {3, 2, 17}, {1, 8, 64}, {12, 4, 33}};
enum { SHAPES = sizeof shapes / sizeof *shapes };

// Pairs in another order than rows have them.
static int slot_at(const shape *s, int i) {
    int pairs = s->rows * s->k;
    return (i * (pairs % 5 ? 5 : 7) + 3) % pairs;
}

static void build(op_run *r, const void *arg) {
    const shape *s = arg;
    int          pairs = s->rows * s->k;
    int32_t     *slot = malloc((size_t)pairs * sizeof *slot);
    assert_non_null(slot);
    for (int i = 0; i < pairs; i++)
        slot[i] = slot_at(s, i);
    pl_tensor x = op_constant(r, pairs, s->d, 1), weight = op_constant(r, s->rows, s->k, 1);
    op_out(r, pl_combine(op_ctx(r), x, weight, op_ids_from(r, slot, pairs)));
    op_out(r, x);
    op_out(r, weight);
    free(slot);
}

static void all_backends(void **state) {
    (void)state;
    for (int i = 0; i < SHAPES; i++)
        op_check(build, &shapes[i], OP_NO_TAPE | OP_EXACT | OP_NO_DEVICE, "combine %d of %d for %d rows", shapes[i].k,
                 shapes[i].d, shapes[i].rows);
}

static void values(void **state) {
    (void)state;
    const pl_backend *be;
    for (int i = 0; i < SHAPES; i++)
        for (int b = 0; (be = op_backend(b)); b++) {
            const shape *s = &shapes[i];
            if (!be->fwd[PL_OP_COMBINE]) continue;
            op_run *r = op_run_once(build, s, be, 1, OP_NO_TAPE);
            for (int m = 0; m < s->rows; m++)
                for (int c = 0; c < s->d; c++) {
                    double want = 0, size = 0;
                    for (int j = 0; j < s->k; j++) {
                        double v = op_value(r, 2, m * s->k + j) * op_value(r, 1, slot_at(s, m * s->k + j) * s->d + c);
                        want += v;
                        size += fabs(v);
                    }
                    assert_true(fabs(op_value(r, 0, m * s->d + c) - want) <= 0x1p-20 * size);
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
