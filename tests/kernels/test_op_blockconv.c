#include "kernels/op/blockconv.h"
#include "tests/kernels/op_harness.h"
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

typedef struct shape {
    int blocks, block, group, groups, taps;
} shape;

static const shape shapes[] = {{1, 1, 1, 1, 1},  {3, 2, 1, 5, 2},    {2, 8, 16, 3, 2}, {1, 4, 7, 2, 4},
                               {9, 5, 3, 11, 3}, {20, 8, 16, 17, 2}, {2, 17, 2, 1, 17}};
enum { SHAPES = sizeof shapes / sizeof shapes[0] };

static pl_tensor filter(op_run *r, const shape *s, pl_tensor x, pl_tensor kernel, pl_tensor base, int side) {
    return pl_blockconv(op_ctx(r), x, kernel, base, side, s->block, s->group);
}

// Both sides, one behind the other, as a sublayer has them: both add to the gradients of what they share.
static void build(op_run *r, const void *arg) {
    const shape *s = arg;
    int64_t      M = (int64_t)s->blocks * s->block, H = (int64_t)s->group * s->groups;
    pl_tensor    x = op_leaf(r, M, H, 0, 1), kernel = op_leaf(r, M, (int64_t)2 * s->taps * s->groups, 0, 1);
    pl_tensor    base = op_leaf_1d(r, 2 * s->taps * H, 0.5, 1);
    op_out(r, filter(r, s, filter(r, s, x, kernel, base, 0), kernel, base, 1));
}

// A sum of taps is not rounded alike where the multiply-add is one operation.
static void all_backends(void **state) {
    (void)state;
    for (int i = 0; i < SHAPES; i++) {
        const shape *s = &shapes[i];
        op_check(build, s, 0, "%d blocks of %d, %d groups of %d, %d taps", s->blocks, s->block, s->groups, s->group,
                 s->taps);
        op_check(build, s, OP_NO_TAPE, "the same, forward alone");
    }
}

static void inputs_too(op_run *r, const void *arg) {
    const shape *s = arg;
    int64_t      M = (int64_t)s->blocks * s->block, H = (int64_t)s->group * s->groups;
    pl_tensor    x = op_leaf(r, M, H, 0, 1), kernel = op_leaf(r, M, (int64_t)2 * s->taps * s->groups, 0, 1);
    pl_tensor    base = op_leaf_1d(r, 2 * s->taps * H, 0.5, 1);
    for (int side = 0; side < 2; side++)
        op_out(r, filter(r, s, x, kernel, base, side));
    op_out(r, x);
    op_out(r, kernel);
    op_out(r, base);
}

// By the formula, in double.
static double expected(const op_run *r, const shape *s, int side, int64_t m, int64_t c) {
    int64_t H = (int64_t)s->group * s->groups;
    double  sum = 0;
    for (int64_t o = 0; o < s->taps && o <= m % s->block; o++) {
        int64_t at = side * s->taps + o;
        double  w =
            op_value(r, 4, at * H + c) + op_value(r, 3, m * 2 * s->taps * s->groups + at * s->groups + c / s->group);
        sum += w * op_value(r, 2, (m - o) * H + c);
    }
    return sum;
}

static void values(void **state) {
    (void)state;
    const pl_backend *be;
    for (int b = 0; (be = op_backend(b)); b++)
        for (int i = 0; i < SHAPES; i++) {
            const shape *s = &shapes[i];
            int64_t      M = (int64_t)s->blocks * s->block, H = (int64_t)s->group * s->groups;
            op_run      *r = op_run_once(inputs_too, s, be, 1, 0);
            for (int side = 0; side < 2; side++)
                for (int64_t k = 0; k < M * H; k++) {
                    double want = expected(r, s, side, k / H, k % H), got = op_value(r, side, k);
                    if (!(fabs(got - want) <= (be->real == PL_F64 ? 1e-13 : 2e-5)))
                        fail_msg("%s: side %d, row %d, channel %d: %.9g, not %.9g", be->name, side, (int)(k / H),
                                 (int)(k % H), got, want);
                }
            op_run_free(r);
        }
}

// As it is before training: the input's own bits.
static void identity_of(op_run *r, const void *arg) {
    const shape *s = arg;
    int64_t      M = (int64_t)s->blocks * s->block, H = (int64_t)s->group * s->groups;
    pl_tensor    x = op_leaf(r, M, H, 0, 1), kernel = op_constant(r, M, (int64_t)2 * s->taps * s->groups, 0);
    float       *one = calloc((size_t)(2 * s->taps * H), sizeof *one);
    assert_non_null(one);
    for (int64_t i = 0; i < 2 * s->taps * H; i++)
        one[i] = i / H % s->taps == 0;
    pl_tensor base = pl_ctx_write(op_ctx(r), op_floats_from(r, one, 2 * s->taps * H), 1, 2 * s->taps * H);
    free(one);
    base.rank = 1;
    base.dim[0] = base.dim[1];
    base.dim[1] = 1;
    op_out(r, x);
    for (int side = 0; side < 2; side++)
        op_out(r, filter(r, s, x, kernel, base, side));
}

static void begins_as_identity(void **state) {
    (void)state;
    const pl_backend *be;
    for (int b = 0; (be = op_backend(b)); b++)
        for (int i = 0; i < SHAPES && be->real == PL_F32; i++) {
            const shape *s = &shapes[i];
            op_run      *r = op_run_once(identity_of, s, be, 1, OP_NO_TAPE);
            for (int64_t k = 0; k < (int64_t)s->blocks * s->block * s->group * s->groups; k++)
                for (int side = 0; side < 2; side++)
                    assert_true(op_value(r, 1 + side, k) == op_value(r, 0, k));
            op_run_free(r);
        }
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(all_backends),
        cmocka_unit_test(values),
        cmocka_unit_test(begins_as_identity),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
