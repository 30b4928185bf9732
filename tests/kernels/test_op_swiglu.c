#include "kernels/op/swiglu.h"
#include "tests/kernels/op_harness.h"
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

typedef struct shape {
    int     rows, n;
    double  scale;
    pl_gate gate;
} shape;

static const shape shapes[] = {
    {1, 1, 1, PL_GATE_SILU},         {3, 31, 1, PL_GATE_SILU},       {33, 65, 3, PL_GATE_SILU},
    {31, 33, 30, PL_GATE_SILU},      {65, 512, 1, PL_GATE_SILU},     {1, 1, 1, PL_GATE_GELU_TANH},
    {3, 31, 1, PL_GATE_GELU_TANH},   {33, 65, 2, PL_GATE_GELU_TANH}, {31, 33, 9, PL_GATE_GELU_TANH},
    {65, 512, 1, PL_GATE_GELU_TANH}, {1, 1, 1, PL_GATE_CLAMPED},     {3, 31, 6, PL_GATE_CLAMPED},
    {65, 130, 2, PL_GATE_CLAMPED}};
enum { SHAPES = sizeof shapes / sizeof shapes[0] };

static void build(op_run *r, const void *arg) {
    const shape *s = arg;
    pl_tensor    gu = s->gate == PL_GATE_CLAMPED ? op_constant(r, s->rows, 2 * s->n, s->scale)
                                                 : op_leaf(r, s->rows, 2 * s->n, 0, s->scale);
    op_out(r, pl_gated(op_ctx(r), gu, s->gate));
}

static void all_backends(void **state) {
    (void)state;
    for (int i = 0; i < SHAPES; i++)
        op_check(build, &shapes[i], shapes[i].gate == PL_GATE_CLAMPED ? OP_NO_TAPE | OP_NO_DEVICE : 0,
                 "gate %d, %dx%d scale %g", (int)shapes[i].gate, shapes[i].rows, shapes[i].n, shapes[i].scale);
}

static void inputs_too(op_run *r, const void *arg) {
    const shape *s = arg;
    pl_tensor    gu = op_constant(r, s->rows, 2 * s->n, s->scale);
    op_out(r, gu);
    op_out(r, pl_gated(op_ctx(r), gu, s->gate));
}

// Relative error element by element, far tails included (large negative gates must not become NaN).
static void values(void **state) {
    (void)state;
    const pl_backend *be;
    for (int i = 0; (be = op_backend(i / 2)); i++) {
        const shape s = {4, 50, i % 2 ? 3 : 25, i % 2 ? PL_GATE_GELU_TANH : PL_GATE_SILU};
        op_run     *r = op_run_once(inputs_too, &s, be, 1, OP_NO_TAPE);
        for (int m = 0; m < s.rows; m++)
            for (int k = 0; k < s.n; k++) {
                double g = op_value(r, 0, m * 2 * s.n + k), u = op_value(r, 0, m * 2 * s.n + s.n + k);
                double t = sqrt(2 / acos(-1.0)) * (g + 0.044715 * g * g * g);
                double y = (i % 2 ? 0.5 * g * (1 + tanh(t)) : g / (1 + exp(-g))) * u;
                // The formula's own 1 + tanh(t) has no more digits than this in double, where t is far below 0; an
                // exponential's relative error is its argument's absolute one.
                double slack = i % 2 ? 0x1p-50 * fabs(g * u) + 0x1p-23 * fabs(t * y) : 0;
                assert_true(fabs(op_value(r, 1, m * s.n + k) - y) <= 0x1p-20 * fabs(y) + slack + 1e-36);
            }
        op_run_free(r);
    }
}

static void clamped_values(void **state) {
    (void)state;
    const pl_backend *be;
    const shape       s = {4, 50, 6, PL_GATE_CLAMPED};
    for (int i = 0; (be = op_backend(i)); i++) {
        if (be->memory) continue;
        op_run *r = op_run_once(inputs_too, &s, be, 1, OP_NO_TAPE);
        for (int m = 0; m < s.rows; m++)
            for (int k = 0; k < s.n; k++) {
                double g = fmin(op_value(r, 0, m * 2 * s.n + k), 7);
                double u = fmax(-7, fmin(op_value(r, 0, m * 2 * s.n + s.n + k), 7));
                double y = g / (1 + exp(-1.702 * g)) * (u + 1);
                assert_true(fabs(op_value(r, 1, m * s.n + k) - y) <= 0x1p-19 * fabs(y) + 0x1p-22 * fabs(g));
            }
        op_run_free(r);
    }
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(all_backends),
        cmocka_unit_test(values),
        cmocka_unit_test(clamped_values),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
