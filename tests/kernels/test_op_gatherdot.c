// Products with listed rows: against ref, and the bits of `linear` for those rows, whatever the layout.
#include "kernels/op/gatherdot.h"
#include "kernels/op/linear.h"
#include "tests/kernels/op_harness.h"
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

enum { ANY, ASCENDING, HOLES }; // how ids are listed

typedef struct shape {
    int       m, n, k, listed;
    pl_dtype  dtype;
    pl_layout layout;
    int       how;
} shape;

static const shape shapes[] = {
    {1, 1, 1, 1, PL_F32, PL_ROWMAJOR, ANY},          {1, 100, 16, 16, PL_F32, PL_ROWMAJOR, ANY},
    {3, 257, 33, 7, PL_F32, PL_ROWMAJOR, HOLES},     {2, 1000, 64, 130, PL_BF16, PL_ROWMAJOR, ANY},
    {5, 1000, 95, 33, PL_BF16, PL_ROWMAJOR, HOLES},  {1, 4099, 256, 1000, PL_BF16, PL_ROWMAJOR, ASCENDING},
    {10, 700, 48, 17, PL_BF16, PL_ROWMAJOR, ANY},    {4, 513, 31, 40, PL_F32, PL_ROWMAJOR, ASCENDING},
    {1, 1, 1, 1, PL_BF16, PL_PANELS, ANY},           {3, 257, 33, 7, PL_F32, PL_PANELS, HOLES},
    {2, 1000, 64, 130, PL_BF16, PL_PANELS, ANY},     {1, 4099, 256, 1000, PL_BF16, PL_PANELS, ASCENDING},
    {5, 1000, 95, 400, PL_F32, PL_PANELS, ASCENDING}};
enum { SHAPES = sizeof shapes / sizeof *shapes };

// Ascending lists cover the whole matrix; the others jump about in it and repeat themselves.
static int32_t id_at(const shape *s, int m, int i) {
    int hash = (int)(((unsigned)i * 2654435761u + (unsigned)m * 40503u) >> 8) % s->n;
    if (s->how == ASCENDING) return (int32_t)((int64_t)i * s->n / s->listed);
    return s->how == HOLES && i % 3 == 1 ? -1 : hash;
}

static const int32_t *ids_of(op_run *r, const shape *s) {
    int32_t *id = malloc((size_t)(s->m * s->listed) * sizeof *id);
    assert_non_null(id);
    for (int i = 0; i < s->m * s->listed; i++)
        id[i] = id_at(s, i / s->listed, i % s->listed);
    const int32_t *at = op_ids_from(r, id, (int64_t)s->m * s->listed);
    free(id);
    return at;
}

static void build(op_run *r, const void *arg) {
    const shape *s = arg;
    pl_tensor    x = op_constant(r, s->m, s->k, 1), w = op_weight(r, s->n, s->k, s->dtype, s->layout, 1 / sqrt(s->k));
    op_out(r, pl_gatherdot(op_ctx(r), x, w, ids_of(r, s), s->listed));
}

static void all_backends(void **state) {
    (void)state;
    for (int i = 0; i < SHAPES; i++)
        op_check(build, &shapes[i], OP_NO_TAPE | (shapes[i].dtype == PL_BF16 ? OP_EXACT_LEVELS : OP_EXACT_FMA),
                 "%d rows of %dx%d for %d, layout %d", shapes[i].listed, shapes[i].n, shapes[i].k, shapes[i].m,
                 (int)shapes[i].layout);
}

// Rows and matrix learn, as a list that is rescored under training has them; ids repeat within a row and across rows.
static void learned(op_run *r, const void *arg) {
    const shape *s = arg;
    pl_tensor    x = op_leaf(r, s->m, s->k, 0, 1), w = op_leaf(r, s->n, s->k, 0, 1 / sqrt(s->k));
    op_out(r, pl_gatherdot(op_ctx(r), x, w, ids_of(r, s), s->listed));
}

static void frozen(op_run *r, const void *arg) {
    const shape *s = arg;
    pl_tensor    x = op_leaf(r, s->m, s->k, 0, 1), w = op_weight(r, s->n, s->k, s->dtype, PL_ROWMAJOR, 1 / sqrt(s->k));
    op_out(r, pl_gatherdot(op_ctx(r), x, w, ids_of(r, s), s->listed));
}

static void gradients(void **state) {
    (void)state;
    static const shape small[] = {{1, 1, 1, 1, PL_F32, PL_ROWMAJOR, ANY},
                                  {3, 5, 33, 7, PL_F32, PL_ROWMAJOR, ANY},
                                  {9, 40, 16, 16, PL_F32, PL_ROWMAJOR, ANY},
                                  {70, 11, 8, 3, PL_F32, PL_ROWMAJOR, ANY},
                                  {30, 13, 5, 9, PL_F32, PL_ROWMAJOR, HOLES},
                                  {3, 1100, 1, 5, PL_F32, PL_ROWMAJOR, HOLES},
                                  {2, 9, 300, 4, PL_F32, PL_ROWMAJOR, ANY}};
    for (size_t i = 0; i < sizeof small / sizeof *small; i++) {
        unsigned flags = small[i].how == HOLES ? OP_NO_DIFFERENCES : 0; // the loss is infinite there
        op_check(learned, &small[i], flags, "gradients of %d rows of %dx%d for %d", small[i].listed, small[i].n, small[i].k,
                 small[i].m);
        op_check(frozen, &small[i], flags, "the same with a frozen matrix");
    }
}

// The same matrix in both layouts, beside the dense product.
static void both(op_run *r, const void *arg) {
    const shape   *s = arg;
    pl_tensor      x = op_constant(r, s->m, s->k, 1);
    pl_tensor      rows = op_weight(r, s->n, s->k, s->dtype, PL_ROWMAJOR, 1);
    const int32_t *id = ids_of(r, s);
    pl_tensor      panels = rows;
    panels.layout = PL_PANELS;
    panels.data = op_bytes(r, pl_panels_bytes(s->n, s->k, s->dtype));
    if (!op_ctx(r)->measuring) {
        float *v = malloc((size_t)(s->n * s->k) * sizeof *v);
        assert_non_null(v);
        pl_to_f32(v, rows.data, s->dtype, (size_t)(s->n * s->k));
        memset(panels.data, 0, pl_panels_bytes(s->n, s->k, s->dtype));
        pl_panels_pack(panels.data, s->dtype, 0, s->n, s->n, s->k, v);
        free(v);
    }
    op_out(r, pl_gatherdot(op_ctx(r), x, rows, id, s->listed));
    op_out(r, pl_gatherdot(op_ctx(r), x, panels, id, s->listed));
    op_out(r, pl_linear(op_ctx(r), x, panels));
}

static void bits_of_linear(void **state) {
    (void)state;
    const pl_backend *be;
    for (int i = 0; i < SHAPES; i++)
        for (int b = 0; (be = op_backend(b)); b++)
            for (int threads = 1; threads <= 3; threads++) {
                const shape *s = &shapes[i];
                op_run      *r = op_run_once(both, s, be, threads, OP_NO_TAPE);
                for (int at = 0; at < s->m * s->listed; at++) {
                    int    id = id_at(s, at / s->listed, at % s->listed);
                    double want = id < 0 ? -INFINITY : op_value(r, 2, at / s->listed * s->n + id);
                    assert_true(op_value(r, 0, at) == want);
                    assert_true(op_value(r, 1, at) == want);
                }
                op_run_free(r);
            }
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(all_backends),
        cmocka_unit_test(bits_of_linear),
        cmocka_unit_test(gradients),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
