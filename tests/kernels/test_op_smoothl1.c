#include "kernels/op/rowloss.h"
#include "tests/kernels/op_harness.h"
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

typedef struct shape {
    int    rows, targets, d;
    double beta, scale;
} shape;

// Small and large differences against beta: both branches, and both at once.
static const shape shapes[] = {{1, 1, 1, 1, 1}, {5, 3, 31, 1, 0.1}, {33, 20, 65, 1, 1}, {7, 9, 513, 0.5, 4}};
enum { SHAPES = sizeof shapes / sizeof shapes[0], MOST = 33 };

static float weight_of(int i) {
    return i % 4 == 3 ? 0 : 0.25f * (float)(1 + i % 3);
}

static void build(op_run *r, const void *arg) {
    const shape *s = arg;
    float        weight[MOST];
    int32_t      row[MOST];
    for (int i = 0; i < s->rows; i++) {
        weight[i] = weight_of(i);
        row[i] = i % 5 == 4 ? -1 : (i * 7) % s->targets;
    }
    pl_tensor        x = op_leaf(r, s->rows, s->d, 0, s->scale), t = op_constant(r, s->targets, s->d, s->scale);
    pl_smoothl1_args a = {.x = x,
                          .t = t,
                          .row = op_ids_from(r, row, s->rows),
                          .weight = op_floats_from(r, weight, s->rows),
                          .beta = s->beta};
    op_out_loss(r, pl_smoothl1(op_ctx(r), &a), a.weight);
}

static void all_backends(void **state) {
    (void)state;
    for (int i = 0; i < SHAPES; i++)
        op_check(build, &shapes[i], OP_EXACT, "smoothl1 %dx%d beta %g", shapes[i].rows, shapes[i].d, shapes[i].beta);
}

// Differences of known size: inside, on and beyond beta; gradients clamp; skipped rows give nothing.
static void known_of(op_run *r, const void *arg) {
    (void)arg;
    static const float u[4][4] = {{0, 0.5f, -0.5f, 0.25f}, {1, -1, 3, -5}, {9, 9, 9, 9}, {9, 9, 9, 9}};
    static const float weight[4] = {2, 1, 0, 1};
    pl_tensor          x = op_leaf(r, 4, 4, 0, 0), t = op_place(r, 1, 4);
    for (int i = 0; i < 16 && !op_ctx(r)->measuring; i++)
        if (x.dtype == PL_F64)
            ((double *)x.data)[i] = 1 + (double)u[i / 4][i % 4], ((double *)t.data)[i % 4] = 1;
        else
            ((float *)x.data)[i] = 1 + u[i / 4][i % 4], ((float *)t.data)[i % 4] = 1;
    pl_smoothl1_args a = {.x = x,
                          .t = t,
                          .row = op_ids_from(r, (const int32_t[]){0, 0, 0, -1}, 4),
                          .weight = op_floats_from(r, weight, 4),
                          .beta = 1};
    op_out_loss(r, pl_smoothl1(op_ctx(r), &a), a.weight);
}

static void known(void **state) {
    (void)state;
    const double      loss[4] = {(0.125 + 0.125 + 0.03125) / 4, (0.5 + 0.5 + 2.5 + 4.5) / 4, 0, 0};
    const double      grad[8] = {0, 0.25, -0.25, 0.125, 0.25, -0.25, 0.25, -0.25};
    const pl_backend *be;
    for (int i = 0; (be = op_backend(i)); i++) {
        op_run *r = op_run_once(known_of, NULL, be, 1, 0);
        for (int k = 0; k < 4; k++)
            assert_true(op_value(r, 0, k) == loss[k]);
        for (int k = 0; k < 16; k++)
            assert_true(op_grad(r, 0, k) == (k < 8 ? grad[k] : 0));
        op_run_free(r);
    }
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(all_backends),
        cmocka_unit_test(known),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
