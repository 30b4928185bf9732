#include "kernels/op/blockattention.h"
#include "tests/kernels/op_harness.h"
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

typedef struct shape {
    int nh, nkv, hd;
    int block, blocks, documents, rows; // rows of a document; blocks of all, the last one padding where there are many
    pl_block_rule rule;
} shape;

#define PLAIN                                                                                                          \
    { 0, false }
static const shape shapes[] = {{1, 1, 1, 1, 1, 1, 1, PLAIN},
                               {1, 1, 3, 2, 3, 1, 5, PLAIN},
                               {4, 2, 8, 4, 7, 3, 9, PLAIN},
                               {2, 1, 33, 3, 5, 2, 40, PLAIN},
                               {9, 3, 16, 5, 4, 1, 31, PLAIN},
                               {3, 3, 64, 7, 6, 2, 40, PLAIN},
                               {2, 2, 31, 16, 3, 2, 17, PLAIN},
                               {8, 2, 32, 8, 9, 3, 50, PLAIN},
                               {1, 1, 130, 2, 4, 1, 66, PLAIN},
                               {2, 1, 256, 3, 2, 1, 3, PLAIN},
                               {8, 1, 16, 17, 4, 2, 130, PLAIN},
                               // Windows of a block's size, within a document, of all of it; causal blocks.
                               {4, 2, 8, 4, 7, 3, 9, {4, false}},
                               {2, 1, 5, 3, 5, 2, 20, {7, true}},
                               {2, 2, 6, 5, 3, 2, 17, {9, false}},
                               {2, 1, 33, 2, 3, 1, 40, {35, false}},
                               {1, 1, 5, 2, 3, 1, 5, {0, true}}};
enum { SHAPES = sizeof shapes / sizeof shapes[0] };

static int document_of(const shape *s, int g) {
    return g * s->documents / s->blocks;
}

// Spans from none to all of a document, in no order.
static int lo_of(const shape *s, int g) {
    return s->blocks > 6 && g == s->blocks - 1 ? -1 : document_of(s, g) * s->rows;
}
static int hi_of(const shape *s, int g) {
    return lo_of(s, g) + g * 61 % (s->rows + 1);
}

static void spans(op_run *r, const shape *s, int32_t **lo, int32_t **hi) {
    *lo = op_bytes(r, (size_t)s->blocks * sizeof **lo);
    *hi = op_bytes(r, (size_t)s->blocks * sizeof **hi);
    for (int g = 0; g < s->blocks; g++) {
        (*lo)[g] = lo_of(s, g);
        (*hi)[g] = hi_of(s, g);
    }
}

static pl_tensor attend(op_run *r, const shape *s, pl_tensor qkv, pl_tensor kv) {
    int32_t *lo, *hi;
    spans(r, s, &lo, &hi);
    return pl_blockattention_ruled(op_ctx(r), qkv, kv, lo, hi, s->block, s->rule, s->nh, s->nkv, s->hd);
}

static void trained(op_run *r, const void *arg) {
    const shape *s = arg;
    pl_tensor    qkv = op_leaf(r, s->block * s->blocks, (s->nh + 2 * s->nkv) * s->hd, 0, 1);
    pl_tensor    kv = op_leaf(r, s->documents * s->rows, 2 * s->nkv * s->hd, 0, 1);
    op_out(r, attend(r, s, qkv, kv));
}

static void constant_context(op_run *r, const void *arg) {
    const shape *s = arg;
    pl_tensor    qkv = op_leaf(r, s->block * s->blocks, (s->nh + 2 * s->nkv) * s->hd, 0, 1);
    op_out(r, attend(r, s, qkv, op_constant(r, s->documents * s->rows, 2 * s->nkv * s->hd, 1)));
}

static void all_backends(void **state) {
    (void)state;
    for (int i = 0; i < SHAPES; i++) {
        const shape *s = &shapes[i];
        op_check(trained, s, 0, "attention of %d blocks of %d, %d/%d heads of %d, window %d%s", s->blocks, s->block,
                 s->nh, s->nkv, s->hd, s->rule.window, s->rule.causal ? ", causal" : "");
        op_check(constant_context, s, 0, "the same over a constant context");
        op_check(trained, s, OP_NO_TAPE, "the same, forward alone");
    }
}

static void inputs_too(op_run *r, const void *arg) {
    const shape *s = arg;
    pl_tensor    qkv = op_leaf(r, s->block * s->blocks, (s->nh + 2 * s->nkv) * s->hd, 0, 1);
    pl_tensor    kv = op_leaf(r, s->documents * s->rows, 2 * s->nkv * s->hd, 0, 1);
    op_out(r, attend(r, s, qkv, kv));
    op_out(r, qkv);
    op_out(r, kv);
}

// Element d of key (value: of value) j of block g for head h.
static double seen(const op_run *r, const shape *s, int g, int h, int j, int d, bool value) {
    int     context = hi_of(s, g) - lo_of(s, g), head = h / (s->nh / s->nkv) + (value ? s->nkv : 0);
    int64_t wide = (s->nh + 2 * s->nkv) * s->hd, narrow = 2 * s->nkv * s->hd;
    if (j < context) return op_value(r, 2, (lo_of(s, g) + j) * narrow + head * s->hd + d);
    return op_value(r, 1, (g * s->block + j - context) * wide + (s->nh + head) * s->hd + d);
}

// Returns true if row m sees key j of its block: by positions, which the context's rows count.
static bool sees(const shape *s, int m, int j) {
    int g = m / s->block, slot = m % s->block, at = hi_of(s, g) + slot, key = lo_of(s, g) + j;
    if (s->rule.window > 0 && at - key >= s->rule.window) return false;
    return !s->rule.causal || key <= at;
}

// By the formula, in double.
static void expect_row(const op_run *r, const shape *s, int m, int h, double tol) {
    int64_t wide = (s->nh + 2 * s->nkv) * s->hd;
    int     g = m / s->block, n = lo_of(s, g) < 0 ? 0 : hi_of(s, g) - lo_of(s, g) + s->block;
    double  sum = 0, *p = calloc((size_t)n + 1, sizeof *p);
    assert_non_null(p);
    for (int j = 0; j < n; j++) {
        if (!sees(s, m, j)) continue;
        for (int d = 0; d < s->hd; d++)
            p[j] += op_value(r, 1, m * wide + h * s->hd + d) * seen(r, s, g, h, j, d, false);
        sum += p[j] = exp(p[j] / sqrt(s->hd));
    }
    for (int d = 0; d < s->hd; d++) {
        double want = 0;
        for (int j = 0; j < n; j++)
            want += p[j] / sum * seen(r, s, g, h, j, d, true);
        double got = op_value(r, 0, ((int64_t)m * s->nh + h) * s->hd + d);
        if (!(fabs(got - want) <= tol)) fail_msg("row %d, head %d, %d: %.9g, not %.9g", m, h, d, got, want);
    }
    free(p);
}

static void values(void **state) {
    (void)state;
    const pl_backend *be;
    for (int b = 0; (be = op_backend(b)); b++)
        for (int i = 0; i < SHAPES && be->fwd[PL_OP_BLOCKATTENTION]; i++) {
            const shape *s = &shapes[i];
            int          most = 0;
            for (int g = 0; g < s->blocks; g++)
                most = hi_of(s, g) - lo_of(s, g) > most ? hi_of(s, g) - lo_of(s, g) : most;
            assert_true(most > 0 || s->blocks == 1);
            op_run *r = op_run_once(inputs_too, s, be, 1, 0);
            for (int m = 0; m < s->block * s->blocks; m++)
                for (int h = 0; h < s->nh; h++)
                    expect_row(r, s, m, h, be->real == PL_F64 ? 1e-12 : 1e-5);
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
