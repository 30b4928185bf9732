// The fused head against projection followed by top-k: the same ids and values bit for bit, over any support.
#include "kernels/op/elementwise.h"
#include "kernels/op/headtopk.h"
#include "kernels/op/linear.h"
#include "tests/kernels/op_harness.h"
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

typedef struct shape {
    int            m, n, k, top;
    pl_dtype       dtype;
    const pl_span *span;
    int            n_spans;
    bool           by_id;
} shape;

static const pl_span prefix[] = {{0, 700}};
static const pl_span ragged[] = {{3, 1}, {60, 10}, {128, 64}, {192, 0}, {200, 333}, {998, 2}};
static const pl_span few[] = {{65, 2}, {900, 1}};
static const pl_span nothing[] = {{5, 0}};

static const shape shapes[] = {
    {1, 1, 1, 1, PL_F32, NULL, 0, false},
    {1, 64, 8, 10, PL_F32, NULL, 0, false},
    {3, 100, 33, 5, PL_BF16, NULL, 0, false},
    {17, 1000, 48, 10, PL_F32, NULL, 0, false},
    {1, 5000, 64, 64, PL_BF16, NULL, 0, false},
    // More than one slice: pairs of panels that begin in one block of a device and end in another.
    {3, 300, 2100, 5, PL_BF16, NULL, 0, false},
    {2, 1000, 1056, 33, PL_BF16, ragged, 6, false},
    {20, 700, 1030, 10, PL_BF16, prefix, 1, false},
    {65, 2049, 16, 3, PL_BF16, NULL, 0, false},
    {4, 1000, 48, 8, PL_F32, prefix, 1, false},
    {5, 1000, 48, 8, PL_BF16, ragged, 6, false},
    {1, 1000, 48, 1, PL_F32, ragged, 6, false},
    {2, 1000, 48, 10, PL_BF16, few, 2, false},
    {3, 1000, 48, 4, PL_F32, nothing, 1, false},
    {10, 16384, 48, 10, PL_BF16, NULL, 0, false},
    {70, 1000, 32, 64, PL_F32, ragged, 6, false},
    // Lists that are too long to be kept in order, and candidates by id.
    {1, 5000, 16, 65, PL_F32, NULL, 0, false},
    {3, 5000, 33, 200, PL_BF16, NULL, 0, false},
    {2, 9000, 8, 4096, PL_F32, NULL, 0, false},
    {4, 1000, 48, 300, PL_F32, prefix, 1, false},
    {5, 1000, 48, 500, PL_BF16, ragged, 6, false},
    {1, 1, 1, 1, PL_F32, NULL, 0, true},
    {70, 1000, 32, 20, PL_F32, NULL, 0, true},
    {3, 5000, 33, 200, PL_BF16, NULL, 0, true},
    {9, 16384, 16, 1000, PL_BF16, NULL, 0, true},
    {5, 1000, 48, 500, PL_F32, ragged, 6, true},
    {3, 1000, 48, 4, PL_F32, nothing, 1, true},
};
enum { SHAPES = sizeof shapes / sizeof *shapes, ALONE = 3 }; // rows that are also run by themselves

static void fused(op_run *r, const shape *s, pl_tensor x, pl_tensor w) {
    int64_t          m = x.dim[0];
    pl_headtopk_args a = {.x = x, .w = w, .n_spans = s->n_spans, .k = s->top, .by_id = s->by_id};
    if (s->span) a.span = op_bytes_from(r, s->span, (size_t)s->n_spans * sizeof *s->span);
    a.id = op_bytes(r, (size_t)(m * s->top) * 4);
    a.value = op_bytes(r, (size_t)(m * s->top) * 4);
    a.lse = op_bytes(r, (size_t)m * 4);
    pl_headtopk(op_ctx(r), &a);
    op_out_i32(r, a.id, m * s->top);
    op_out_f32(r, a.value, m * s->top);
    op_out_f32(r, a.lse, m);
}

// Outputs 0..2 of the fused op, 3 the logits; then 4.. each row by itself.
static void build(op_run *r, const void *arg) {
    const shape *s = arg;
    pl_tensor    x = op_constant(r, s->m, s->k, 1);
    pl_tensor    w = op_weight(r, s->n, s->k, s->dtype, PL_PANELS, 3 / sqrt(s->k));
    fused(r, s, x, w);
    op_out(r, pl_linear(op_ctx(r), x, w));
    for (int32_t m = 0; m < s->m && s->m > 1 && m < ALONE; m++)
        fused(r, s, pl_gather(op_ctx(r), x, op_ids_from(r, &m, 1), 1), w);
}

static void all_backends(void **state) {
    (void)state;
    for (int i = 0; i < SHAPES; i++)
        op_check(build, &shapes[i], OP_NO_TAPE, "head %dx%dx%d, %d spans", shapes[i].m, shapes[i].n, shapes[i].k,
                 shapes[i].n_spans);
}

static bool inside(const shape *s, int v) {
    if (!s->span) return true;
    for (int i = 0; i < s->n_spans; i++)
        if (v >= s->span[i].first && v < s->span[i].first + s->span[i].count) return true;
    return false;
}

static int ascending(const void *x, const void *y) {
    int a = *(const int *)x, b = *(const int *)y;
    return (a < 0) != (b < 0) ? (a < 0) - (b < 0) : a - b; // -1 stands last
}

static const op_run *ranking; // qsort has no argument of its own
static int           ranked_row;

static int by_logit(const void *x, const void *y) {
    int    a = *(const int *)x, b = *(const int *)y;
    double za = op_value(ranking, 3, ranked_row + a), zb = op_value(ranking, 3, ranked_row + b);
    return za != zb ? (za > zb ? -1 : 1) : a - b;
}

// Row m's best by plain selection from the logits.
static void check_row(const op_run *r, const shape *s, int m) {
    int   *id = calloc((size_t)(s->n + s->top), sizeof *id), n = 0;
    double sum = 0, max = -INFINITY;
    assert_non_null(id);
    for (int v = 0; v < s->n; v++)
        if (inside(s, v)) id[n++] = v;
    ranking = r;
    ranked_row = m * s->n;
    qsort(id, (size_t)n, sizeof *id, by_logit);
    if (n > 0) max = op_value(r, 3, m * s->n + id[0]);
    for (; n < s->top; n++)
        id[n] = -1;
    if (s->by_id) qsort(id, (size_t)s->top, sizeof *id, ascending);
    for (int k = 0; k < s->top; k++) {
        assert_true(op_value(r, 0, m * s->top + k) == id[k]);
        assert_true(op_value(r, 1, m * s->top + k) ==
                    (id[k] < 0 ? -INFINITY : (double)(float)op_value(r, 3, m * s->n + id[k])));
    }
    for (int v = 0; v < s->n; v++)
        if (inside(s, v)) sum += exp(op_value(r, 3, m * s->n + v) - max);
    if (max == -INFINITY)
        assert_true(op_value(r, 2, m) == -INFINITY);
    else
        assert_true(fabs(op_value(r, 2, m) - max - log(sum)) <= 5e-5); // fp32 sums
    free(id);
}

// Equal values, in long lists too: the lower row first, and -0 is 0.
static void ties(op_run *r, const void *arg) {
    const int32_t *top = arg;
    float          v[1000];
    int32_t        one = 0;
    for (int i = 0; i < 1000; i++)
        v[i] = i % 7 == 3 ? 1.0f : i % 2 ? -0.0f : 0.0f;
    pl_tensor x = pl_embed(op_ctx(r), pl_tensor_2d((void *)op_floats_from(r, (float[]){1}, 1), PL_F32, 1, 1),
                           op_ids_from(r, &one, 1), 1);
    pl_tensor w = pl_tensor_2d(op_bytes(r, pl_panels_bytes(1000, 1, PL_F32)), PL_F32, 1000, 1);
    w.layout = PL_PANELS;
    if (!op_ctx(r)->measuring) {
        memset(w.data, 0, pl_panels_bytes(1000, 1, PL_F32));
        pl_panels_pack(w.data, PL_F32, 0, 1000, 1000, 1, v);
    }
    pl_headtopk_args a = {.x = x, .w = w, .k = *top, .id = op_bytes(r, (size_t)*top * 4)};
    pl_headtopk(op_ctx(r), &a);
    op_out_i32(r, a.id, *top);
}

static void equal_values(void **state) {
    (void)state;
    const pl_backend *be;
    for (int b = 0; (be = op_backend(b)); b++)
        for (int32_t top = 10; top <= 500; top += 245) {
            op_run *r = op_run_once(ties, &top, be, 2, OP_NO_TAPE);
            int     at = 0;
            for (int i = 3; i < 1000 && at < top; i += 7)
                assert_int_equal((int)op_value(r, 0, at++), i);
            for (int i = 0; i < 1000 && at < top; i++)
                if (i % 7 != 3) assert_int_equal((int)op_value(r, 0, at++), i);
            op_run_free(r);
        }
}

static void against_selection(void **state) {
    (void)state;
    const pl_backend *be;
    for (int i = 0; i < SHAPES; i++)
        for (int b = 0; (be = op_backend(b)); b++) {
            const shape *s = &shapes[i];
            op_run      *r = op_run_once(build, s, be, 2, OP_NO_TAPE);
            for (int m = 0; m < s->m; m++) {
                check_row(r, s, m);
                // Alone, a row has the same bits: ids, values and the sum.
                if (s->m == 1 || m >= ALONE) continue;
                for (int k = 0; k < s->top; k++) {
                    assert_true(op_value(r, 4 + 3 * m, k) == op_value(r, 0, m * s->top + k));
                    assert_true(op_value(r, 5 + 3 * m, k) == op_value(r, 1, m * s->top + k));
                }
                assert_true(op_value(r, 6 + 3 * m, 0) == op_value(r, 2, m));
            }
            op_run_free(r);
        }
}

static void nan_is_refused(void **state) {
    (void)state;
    const pl_backend *be;
    for (int b = 0; (be = op_backend(b)); b++) {
        pl_ctx   ctx;
        pl_err   err;
        float    v[130] = {0}, x[2] = {1, 1};
        int32_t *id = op_shared(be, NULL, 2 * sizeof *id);
        pl_span *before = op_shared(be, &(pl_span){0, 48}, sizeof *before); // row 48 holds it
        assert_int_equal(pl_ctx_init(&ctx, be, NULL), PL_OK);
        assert_int_equal(pl_arena_reserve(&ctx.frame, 1 << 20, NULL), PL_OK);
        assert_int_equal(pl_arena_reserve(&ctx.scratch, 1 << 20, NULL), PL_OK);
        v[97] = NAN;
        void *panels = op_shared(be, NULL, pl_panels_bytes(65, 2, PL_F32));
        pl_panels_pack(panels, PL_F32, 0, 65, 65, 2, v);
        pl_tensor w = pl_tensor_2d(panels, PL_F32, 65, 2);
        w.layout = PL_PANELS;
        pl_headtopk_args a = {.x = pl_ctx_const(&ctx, 1, 2), .w = w, .id = id, .k = 2};
        pl_from_f32(a.x.data, be->real, x, 2);
        pl_headtopk(&ctx, &a);
        assert_int_equal(pl_ctx_sync(&ctx, &err), PL_E_INPUT);
        assert_non_null(strstr(err.msg, "NaN"));
        a.span = before;
        a.n_spans = 1;
        pl_headtopk(&ctx, &a);
        assert_int_equal(pl_ctx_sync(&ctx, &err), PL_OK);
        assert_true(id[0] == 0 && id[1] == 1);
        op_shared_free(be, panels, pl_panels_bytes(65, 2, PL_F32));
        op_shared_free(be, before, sizeof *before);
        op_shared_free(be, id, 2 * sizeof *id);
        pl_ctx_fini(&ctx);
    }
}

typedef struct head_args {
    int64_t m, n;
    int     k;
    bool    lse;
} head_args;

static void routed_step(pl_ctx *ctx, void *arg) {
    const head_args *h = arg;
    pl_tensor        w = pl_tensor_2d(NULL, PL_BF16, h->n, 2048); // not read: the context measures
    pl_span          span;
    int32_t          held, id;
    float            lse;
    w.layout = PL_PANELS;
    pl_headtopk(ctx, &(pl_headtopk_args){.x = pl_ctx_const(ctx, h->m, 2048),
                                         .w = w,
                                         .span = &span,
                                         .held = &held,
                                         .n_spans = 1,
                                         .k = h->k,
                                         .id = &id,
                                         .lse = h->lse ? &lse : NULL});
}

static double scratch_of(const pl_backend *be, head_args h) {
    pl_ctx ctx;
    assert_int_equal(pl_ctx_init(&ctx, be, NULL), PL_OK);
    assert_int_equal(pl_ctx_measure(&ctx, routed_step, &h, NULL), PL_OK);
    double bytes = (double)ctx.scratch.size;
    pl_ctx_fini(&ctx);
    return bytes;
}

// A device writes no logits: where a routed head has ten times as many rows there is more of two things alone, which
// panels are read (12 bytes each, whatever M is) and, where it is wanted, each panel's share in a row's sum (8).
static void scratch_does_not_grow_with_rows(void **state) {
    (void)state;
    const pl_backend *be;
    const int64_t     some = 1000, many = 10 * some; // panels
    for (int b = 0; (be = op_backend(b)); b++)
        for (int i = 0; i < 12 && be->device; i++) {
            head_args h = {.m = (int64_t[]){1, 10, 64}[i % 3], .k = i % 6 < 3 ? 10 : PL_TOPK_MAX, .lse = i >= 6};
            h.n = some * PL_PANEL;
            double least = scratch_of(be, h);
            h.n = many * PL_PANEL;
            double more = scratch_of(be, h) - least, each = 12 + (h.lse ? 8 * (double)h.m : 0);
            if (more > each * (double)(many - some) + 4 * PL_ALIGN)
                fail_msg("%s: %d rows, k %d: %.0f bytes more for %lld panels more", be->name, (int)h.m, h.k, more,
                         (long long)(many - some));
        }
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(all_backends),
        cmocka_unit_test(against_selection),
        cmocka_unit_test(equal_values),
        cmocka_unit_test(nan_is_refused),
        cmocka_unit_test(scratch_does_not_grow_with_rows),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
