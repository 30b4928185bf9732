#include "kernels/op/kvstore.h"
#include "tests/kernels/op_harness.h"
#include <setjmp.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

enum { SLOTS = 9 };

typedef struct shape {
    int rows, nh, nkv, hd;
} shape;

// Rows alternate between two sessions, at slots in no order.
static void build(op_run *r, const void *arg) {
    const shape *s = arg;
    int          kv = s->nkv * s->hd;
    pl_tensor    qkv = op_constant(r, s->rows, (s->nh + 2 * s->nkv) * s->hd, 1);
    pl_tensor    cache[4];
    for (int i = 0; i < 4; i++)
        cache[i] = op_constant(r, SLOTS, kv, 1);
    pl_kvrow *row = op_bytes(r, (size_t)s->rows * sizeof *row);
    for (int m = 0; m < s->rows; m++)
        row[m] = (pl_kvrow){cache[m % 2 * 2].data, cache[m % 2 * 2 + 1].data, NULL, 0, 1, (m / 2 * 4 + 2) % SLOTS};
    pl_kvstore(op_ctx(r), qkv, row, s->nh, s->nkv, s->hd);
    op_out(r, qkv);
    for (int i = 0; i < 4; i++)
        op_out(r, cache[i]);
}

static const shape shapes[] = {{1, 1, 1, 2}, {5, 9, 3, 62}, {12, 4, 2, 64}};

static void all_backends(void **state) {
    (void)state;
    for (int i = 0; i < 3; i++)
        op_check(build, &shapes[i], OP_NO_TAPE | OP_EXACT, "kvstore %d rows of %d/%d x %d", shapes[i].rows,
                 shapes[i].nh, shapes[i].nkv, shapes[i].hd);
}

static void values(void **state) {
    (void)state;
    const shape       s = {6, 2, 1, 4};
    const pl_backend *be;
    for (int b = 0; (be = op_backend(b)); b++) {
        op_run *r = op_run_once(build, &s, be, 1, OP_NO_TAPE);
        for (int m = 0; m < s.rows; m++)
            for (int i = 0; i < 4; i++) {
                int at = (m / 2 * 4 + 2) % SLOTS * 4 + i;
                assert_true(op_value(r, 1 + m % 2 * 2, at) == op_value(r, 0, m * 16 + 8 + i));
                assert_true(op_value(r, 2 + m % 2 * 2, at) == op_value(r, 0, m * 16 + 12 + i));
            }
        // Slot 0 was nobody's: untouched, not equal to any row's key.
        for (int m = 0; m < s.rows; m++)
            assert_true(op_value(r, 1, 0) != op_value(r, 0, m * 16 + 8));
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
