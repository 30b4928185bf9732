#include "kernels/op/norm.h"
#include "tests/kernels/op_harness.h"
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

typedef struct shape {
    int rows, d;
} shape;

static const shape shapes[] = {{1, 1}, {1, 3}, {3, 31}, {31, 33}, {33, 65}, {2, 1000}, {65, 576}, {150, 7}};
enum { SHAPES = sizeof shapes / sizeof shapes[0] };
static const double EPS = 1e-5;

static void plain(op_run *r, const void *arg) {
    const shape *s = arg;
    pl_tensor    x = op_leaf(r, s->rows, s->d, 0, 1), g = op_leaf_1d(r, s->d, 1, 0.2);
    op_out(r, pl_rmsnorm(op_ctx(r), x, g, EPS));
}

// Stored features under a trained norm: only g takes a gradient.
static void constant_input(op_run *r, const void *arg) {
    const shape *s = arg;
    pl_tensor    x = op_constant(r, s->rows, s->d, 1), g = op_leaf_1d(r, s->d, 1, 0.2);
    op_out(r, pl_rmsnorm(op_ctx(r), x, g, EPS));
}

// A residual stream through two norms: the first h is used by the norm beside it, by the second norm, and as an output.
static void stream(op_run *r, const void *arg) {
    const shape *s = arg;
    pl_tensor    h = op_leaf(r, s->rows, s->d, 0, 1), a = op_leaf(r, s->rows, s->d, 0, 1);
    pl_tensor    b = op_leaf(r, s->rows, s->d, 0, 1);
    pl_tensor    g = op_leaf_1d(r, s->d, 1, 0.2), g2 = op_leaf_1d(r, s->d, 1, 0.2);
    op_out(r, pl_rmsnorm_residual(op_ctx(r), &h, a, g, EPS));
    op_out(r, h);
    op_out(r, pl_rmsnorm_residual(op_ctx(r), &h, b, g2, EPS));
    op_out(r, h);
}

// The residual is a constant, or the stream is.
static void half_constant(op_run *r, const void *arg) {
    const shape *s = arg;
    pl_tensor    h = op_leaf(r, s->rows, s->d, 0, 1), a = op_constant(r, s->rows, s->d, 1);
    pl_tensor    h2 = op_constant(r, s->rows, s->d, 1), b = op_leaf(r, s->rows, s->d, 0, 1);
    pl_tensor    g = op_leaf_1d(r, s->d, 1, 0.2);
    op_out(r, pl_rmsnorm_residual(op_ctx(r), &h, a, g, EPS));
    op_out(r, pl_rmsnorm_residual(op_ctx(r), &h2, b, g, EPS));
    op_out(r, h2);
}

static void all_backends(void **state) {
    (void)state;
    for (int i = 0; i < SHAPES; i++) {
        const shape *s = &shapes[i];
        op_check(plain, s, 0, "rmsnorm %dx%d", s->rows, s->d);
        op_check(constant_input, s, 0, "rmsnorm of a constant %dx%d", s->rows, s->d);
        op_check(stream, s, 0, "rmsnorm with residual %dx%d", s->rows, s->d);
        op_check(half_constant, s, 0, "rmsnorm with constant halves %dx%d", s->rows, s->d);
        op_check(stream, s, OP_NO_TAPE, "rmsnorm with residual, inference %dx%d", s->rows, s->d);
    }
}

// More than a block of a GPU holds, too. Central differences have no digits left there.
static void long_rows(void **state) {
    (void)state;
    static const shape wide[] = {{2, 4096}, {1, 4099}, {9, 5120}, {2, 8200}};
    for (int i = 0; i < (int)(sizeof wide / sizeof wide[0]); i++) {
        op_check(plain, &wide[i], OP_NO_TAPE, "rmsnorm %dx%d", wide[i].rows, wide[i].d);
        op_check(stream, &wide[i], OP_NO_TAPE, "rmsnorm with residual %dx%d", wide[i].rows, wide[i].d);
    }
}

static void inputs_too(op_run *r, const void *arg) {
    const shape *s = arg;
    pl_tensor    h = op_constant(r, s->rows, s->d, 1), a = op_constant(r, s->rows, s->d, 1);
    pl_tensor    g = op_leaf_1d(r, s->d, 1, 0.2);
    op_out(r, h);
    op_out(r, a);
    op_out(r, g);
    op_out(r, pl_rmsnorm(op_ctx(r), h, g, EPS));
    op_out(r, pl_rmsnorm_residual(op_ctx(r), &h, a, g, EPS));
    op_out(r, h);
}

static void values(void **state) {
    (void)state;
    const shape       s = {3, 20};
    const pl_backend *be;
    for (int b = 0; (be = op_backend(b)); b++) {
        op_run *r = op_run_once(inputs_too, &s, be, 1, OP_NO_TAPE);
        double  tol = be->real == PL_F64 ? 1e-14 : 2e-6;
        for (int m = 0; m < s.rows; m++) {
            double square = 0, square2 = 0;
            for (int k = m * s.d; k < (m + 1) * s.d; k++) {
                square += pow(op_value(r, 0, k), 2);
                square2 += pow(op_value(r, 0, k) + op_value(r, 1, k), 2);
            }
            double rstd = 1 / sqrt(square / s.d + EPS), rstd2 = 1 / sqrt(square2 / s.d + EPS);
            for (int i = 0; i < s.d; i++) {
                int    k = m * s.d + i;
                double x = op_value(r, 0, k), h = x + op_value(r, 1, k), g = op_value(r, 2, i);
                assert_true(fabs(op_value(r, 3, k) - x * rstd * g) <= tol);
                assert_true(fabs(op_value(r, 4, k) - h * rstd2 * g) <= tol);
                assert_true(fabs(op_value(r, 5, k) - h) <= tol);
            }
        }
        op_run_free(r);
    }
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(all_backends),
        cmocka_unit_test(long_rows),
        cmocka_unit_test(values),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
