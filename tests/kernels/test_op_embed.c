#include "kernels/op/elementwise.h"
#include "tests/kernels/op_harness.h"
#include <setjmp.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

typedef struct shape {
    int    V, d, rows;
    double scale;
} shape;

static const shape shapes[] = {{1, 1, 1, 1},     {3, 31, 5, 1},    {33, 65, 70, 1},
                               {65, 33, 300, 1}, {7, 513, 129, 1}, {33, 65, 70, 6.928203105926514},
                               {2500, 5, 700, 1}};
enum { SHAPES = sizeof shapes / sizeof shapes[0] };

// Ids repeat (rows > V) and some are padding (-1).
static void trained(op_run *r, const void *arg) {
    const shape *s = arg;
    pl_tensor    w = op_leaf(r, s->V, s->d, 0, 1);
    op_out(r, pl_embed_scaled(op_ctx(r), w, op_ids(r, s->rows, -1, s->V), s->rows, s->scale));
}

static void frozen_bf16(op_run *r, const void *arg) {
    const shape *s = arg;
    pl_tensor    w = op_weight(r, s->V, s->d, PL_BF16, PL_ROWMAJOR, 1);
    op_out(r, pl_embed_scaled(op_ctx(r), w, op_ids(r, s->rows, -1, s->V), s->rows, s->scale));
}

static void all_backends(void **state) {
    (void)state;
    for (int i = 0; i < SHAPES; i++) {
        const shape *s = &shapes[i];
        op_check(trained, s, s->scale == 1 ? OP_EXACT : 0, "embed %d of %dx%d by %g", s->rows, s->V, s->d, s->scale);
        op_check(frozen_bf16, s, OP_EXACT | OP_NO_TAPE, "embed %d of bf16 %dx%d by %g", s->rows, s->V, s->d, s->scale);
    }
}

// An odd address, as tensors in a mapped file may have; in a GPU's memory all lie at multiples.
static void unaligned(op_run *r, const void *arg) {
    const float *values = arg;
    const int    off = op_ctx(r)->be->device ? 0 : 1;
    char        *p = op_bytes(r, 6 * sizeof(float) + 1);
    memcpy(p + off, values, 6 * sizeof(float));
    const int32_t id[3] = {2, -1, 0};
    op_out(r, pl_embed(op_ctx(r), pl_tensor_2d(p + off, PL_F32, 3, 2), op_ids_from(r, id, 3), 3));
}

static void values(void **state) {
    (void)state;
    const float       w[6] = {1, 2, 3, 4, 5, 6};
    const double      expected[6] = {5, 6, 0, 0, 1, 2};
    const pl_backend *be;
    for (int i = 0; (be = op_backend(i)); i++) {
        op_run *r = op_run_once(unaligned, w, be, 1, OP_NO_TAPE);
        for (int k = 0; k < 6; k++)
            assert_true(op_value(r, 0, k) == expected[k]);
        op_run_free(r);
    }
}

// Rows 0, 1, 0 of W: its gradient is the sum over the uses, d loss / d y are the coefficients themselves.
static void repeated(op_run *r, const void *arg) {
    (void)arg;
    const int32_t id[3] = {0, 1, 0};
    const float   coeff[3] = {2, 3, 5};
    pl_tensor     w = op_leaf(r, 2, 1, 0, 1), y = pl_embed(op_ctx(r), w, op_ids_from(r, id, 3), 3);
    for (int i = 0; i < 3 && !op_ctx(r)->measuring; i++)
        if (op_ctx(r)->be->real == PL_F64)
            ((double *)y.grad)[i] = (double)coeff[i];
        else
            ((float *)y.grad)[i] = coeff[i];
    op_out_loss(r, y, coeff);
}

static void repeated_ids_add_up(void **state) {
    (void)state;
    const pl_backend *be;
    for (int i = 0; (be = op_backend(i)); i++) {
        op_run *r = op_run_once(repeated, NULL, be, 1, 0);
        assert_true(op_grad(r, 0, 0) == 7 && op_grad(r, 0, 1) == 3);
        op_run_free(r);
    }
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(all_backends),
        cmocka_unit_test(values),
        cmocka_unit_test(repeated_ids_add_up),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
