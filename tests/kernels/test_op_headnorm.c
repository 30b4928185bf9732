#include "kernels/op/norm.h"
#include "tests/kernels/op_harness.h"
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

typedef struct shape {
    int rows, nq, nk, nv, hd;
} shape;

static const shape shapes[] = {{1, 1, 1, 1, 1},    {1, 2, 1, 1, 3},  {3, 4, 2, 2, 16},
                               {31, 2, 1, 1, 33},  {5, 8, 2, 2, 64}, {65, 3, 3, 0, 7},
                               {2, 16, 8, 8, 128}, {4, 2, 0, 1, 50}, {70, 0, 2, 2, 18}};
enum { SHAPES = sizeof shapes / sizeof shapes[0] };
static const double EPS = 1e-5;

static void trained(op_run *r, const void *arg) {
    const shape *s = arg;
    pl_tensor    x = op_leaf(r, s->rows, (s->nq + s->nk + s->nv) * s->hd, 0, 1);
    pl_tensor    gq = op_leaf_1d(r, s->hd, 1, 0.2), gk = op_leaf_1d(r, s->hd, 1, 0.2);
    op_out(r, pl_headnorm(op_ctx(r), x, gq, gk, s->nq, s->nk, EPS));
}

static void constant_input(op_run *r, const void *arg) {
    const shape *s = arg;
    pl_tensor    x = op_constant(r, s->rows, (s->nq + s->nk + s->nv) * s->hd, 1);
    pl_tensor    gq = op_leaf_1d(r, s->hd, 1, 0.2), gk = op_leaf_1d(r, s->hd, 1, 0.2);
    op_out(r, pl_headnorm(op_ctx(r), x, gq, gk, s->nq, s->nk, EPS));
}

static void all_backends(void **state) {
    (void)state;
    for (int i = 0; i < SHAPES; i++) {
        const shape *s = &shapes[i];
        op_check(trained, s, 0, "headnorm %dx(%d+%d+%d)x%d", s->rows, s->nq, s->nk, s->nv, s->hd);
        op_check(constant_input, s, 0, "headnorm of a constant %dx(%d+%d+%d)x%d", s->rows, s->nq, s->nk, s->nv, s->hd);
        op_check(trained, s, OP_NO_TAPE, "headnorm, inference %dx(%d+%d+%d)x%d", s->rows, s->nq, s->nk, s->nv, s->hd);
    }
}

static void inputs_too(op_run *r, const void *arg) {
    const shape *s = arg;
    pl_tensor    x = op_constant(r, s->rows, (s->nq + s->nk + s->nv) * s->hd, 1);
    pl_tensor    gq = op_leaf_1d(r, s->hd, 1, 0.2), gk = op_leaf_1d(r, s->hd, 1, 0.2);
    op_out(r, x);
    op_out(r, gq);
    op_out(r, gk);
    op_out(r, pl_headnorm(op_ctx(r), x, gq, gk, s->nq, s->nk, EPS));
}

// Each head by itself, with its own kind's gain; values as they are.
static void values(void **state) {
    (void)state;
    const shape       s = {3, 4, 2, 2, 20};
    const pl_backend *be;
    for (int b = 0; (be = op_backend(b)); b++) {
        op_run *r = op_run_once(inputs_too, &s, be, 1, OP_NO_TAPE);
        double  tol = be->real == PL_F64 ? 1e-14 : 2e-6;
        for (int j = 0; j < s.rows * 8; j++) {
            int    head = j % 8;
            double square = 0;
            for (int i = 0; i < s.hd; i++)
                square += pow(op_value(r, 0, j * s.hd + i), 2);
            double rstd = 1 / sqrt(square / s.hd + EPS);
            for (int i = 0; i < s.hd; i++) {
                double x = op_value(r, 0, j * s.hd + i), g = op_value(r, head < 4 ? 1 : 2, i);
                double want = head < 6 ? x * rstd * g : x;
                assert_true(fabs(op_value(r, 3, j * s.hd + i) - want) <= tol);
            }
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
