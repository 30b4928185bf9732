#include "kernels/op/rowloss.h"
#include "tests/kernels/op_harness.h"
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

typedef struct shape {
    int              rows, classes;
    double           scale;
    pl_classify_kind kind;
} shape;

static const shape shapes[] = {{1, 1, 1, PL_CLASSIFY_BCE},    {1, 1, 1, PL_CLASSIFY_SOFTMAX},
                               {5, 3, 2, PL_CLASSIFY_BCE},    {5, 3, 2, PL_CLASSIFY_SOFTMAX},
                               {33, 65, 1, PL_CLASSIFY_BCE},  {33, 65, 1, PL_CLASSIFY_SOFTMAX},
                               {7, 257, 4, PL_CLASSIFY_BCE},  {7, 257, 4, PL_CLASSIFY_SOFTMAX},
                               {9, 31, 200, PL_CLASSIFY_BCE}, {9, 31, 200, PL_CLASSIFY_SOFTMAX}};
enum { SHAPES = sizeof shapes / sizeof shapes[0], MOST = 33 * 65 };

// Hard labels, soft labels, a row without any, a row with all; rows of weight 0.
static float label(const shape *s, int i, int c) {
    if (i % 5 == 1) return 0;
    if (i % 5 == 2) return 1;
    if (s->kind == PL_CLASSIFY_SOFTMAX || i % 5 == 3) return (float)((7 * i + 3 * c) % 8) / 8;
    return (i + c) % 3 == 0;
}

static void build(op_run *r, const void *arg) {
    const shape *s = arg;
    float        y[MOST], weight[MOST];
    for (int i = 0; i < s->rows; i++) {
        weight[i] = i % 4 == 3 ? 0 : 0.25f * (float)(1 + i % 3);
        for (int c = 0; c < s->classes; c++)
            y[i * s->classes + c] = label(s, i, c);
    }
    pl_classify_args a = {.z = op_leaf(r, s->rows, s->classes, 0, s->scale),
                          .y = op_floats_from(r, y, s->rows * s->classes),
                          .weight = op_floats_from(r, weight, s->rows),
                          .kind = s->kind};
    op_out_loss(r, pl_classify(op_ctx(r), &a), a.weight);
}

static void all_backends(void **state) {
    (void)state;
    for (int i = 0; i < SHAPES; i++)
        // Losses of hundreds leave central differences no digits.
        op_check(build, &shapes[i], OP_EXACT | (shapes[i].scale >= 4 ? OP_NO_DIFFERENCES : 0),
                 "classify %d %dx%d scale %g", (int)shapes[i].kind, shapes[i].rows, shapes[i].classes, shapes[i].scale);
}

// torch.nn.functional.binary_cross_entropy_with_logits(reduction="none").sum(-1) and cross_entropy with probabilities,
// in float64:
//   z = [[0.5, -1.25, 3, -40], [2, 2, -0.75, 40], [9, 9, 9, 9]]
//   y = [[1, 0, 0.25, 0], [0, 1, 0, 1], [1, 1, 1, 1]];  weight = [2, 0.5, 0]
enum { ROWS = 3, CLASSES = 4 };
static const float z_of[ROWS * CLASSES] = {0.5f, -1.25f, 3, -40, 2, 2, -0.75f, 40, 9, 9, 9, 9};
static const float y_of[ROWS * CLASSES] = {1, 0, 0.25f, 0, 0, 1, 0, 1, 1, 1, 1, 1};
static const float weight_of[ROWS] = {2, 0.5f, 0};

static void known_of(op_run *r, const void *kind) {
    pl_tensor z = op_leaf(r, ROWS, CLASSES, 0, 0);
    for (int i = 0; i < ROWS * CLASSES && !op_ctx(r)->measuring; i++)
        if (z.dtype == PL_F64)
            ((double *)z.data)[i] = (double)z_of[i];
        else
            ((float *)z.data)[i] = z_of[i];
    pl_classify_args a = {.z = z,
                          .y = op_floats_from(r, y_of, ROWS * CLASSES),
                          .weight = op_floats_from(r, weight_of, ROWS),
                          .kind = *(const pl_classify_kind *)kind};
    op_out_loss(r, pl_classify(op_ctx(r), &a), a.weight);
}

typedef struct golden {
    pl_classify_kind kind;
    double           loss[ROWS], grad[ROWS * CLASSES];
} golden;

static const golden goldens[] = {
    {PL_CLASSIFY_BCE,
     {3.0245934171, 2.6407270282, 0},
     {-0.755081337596, 0.445400277651, 1.40514825364, 8.49670851058e-18, 0.440398538989, -0.0596014610111,
      0.160410650412, 0, -0, -0, -0, -0}},
    {PL_CLASSIFY_SOFTMAX,
     {2.61498222574, 38, 0},
     {-1.81282196359, 0.0325266655134, 1.78029529808, 4.82312335985e-19, 3.13913279205e-17, -0.5, 2.00678045439e-18,
      0.5, 0, 0, 0, 0}},
};

static void torch(void **state) {
    (void)state;
    const pl_backend *be;
    for (int i = 0; (be = op_backend(i)); i++)
        for (size_t g = 0; g < sizeof goldens / sizeof *goldens; g++) {
            op_run *r = op_run_once(known_of, &goldens[g].kind, be, 1, 0);
            for (int k = 0; k < ROWS; k++)
                assert_true(fabs(op_value(r, 0, k) - goldens[g].loss[k]) <= 2e-6 * (1 + fabs(goldens[g].loss[k])));
            for (int k = 0; k < ROWS * CLASSES; k++)
                assert_true(fabs(op_grad(r, 0, k) - goldens[g].grad[k]) <= 1e-6);
            op_run_free(r);
        }
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(all_backends),
        cmocka_unit_test(torch),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
