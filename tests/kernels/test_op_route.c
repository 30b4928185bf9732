// The choice of a routed head's rows against its definition, and what the fused head makes of it.
#include "kernels/base/rng.h"
#include "kernels/op/elementwise.h"
#include "kernels/op/route.h"
#include "tests/kernels/op_harness.h"
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

typedef struct shape {
    int clusters, k, levels; // levels: of scores, integers below it, full of ties; 0: continuous values
    int largest;             // clusters have 0 to so many rows
    int groups, row[6];
} shape;

static const shape shapes[] = {
    {1, 1, 0, 5, 1, {0, 1}},
    {5, 9, 3, 4, 2, {0, 1, 4}}, // k beyond the number of clusters
    {40, 7, 4, 3, 3, {0, 1, 2, 7}},
    {300, 20, 0, 1, 1, {0, 10}},     // half of them empty
    {300, 20, 0, 0, 2, {0, 10, 11}}, // nothing to read at all
    {1002, 250, 0, 200, 2, {0, 1, 10}},
    {1002, 3, 2, 2, 5, {0, 2, 4, 6, 8, 9}},
    {2500, 900, 500, 9, 2, {0, 3, 4}}, // more than a block has threads
};
enum { SHAPES = sizeof shapes / sizeof *shapes, WIDTH = 16, BEST = 70 };

static int rows_of(const shape *s) {
    return s->row[s->groups];
}

// Spans that a group may have.
static int64_t apart(const shape *s) {
    int64_t chosen = (int64_t)rows_of(s) * (s->k < s->clusters ? s->k : s->clusters), most = (s->clusters + 1) / 2;
    return chosen < most ? chosen : most;
}

static float *scores_of(const shape *s) {
    size_t n = (size_t)rows_of(s) * (size_t)s->clusters;
    float *v = malloc(n * sizeof *v);
    pl_rng rng = pl_rng_make(4, PL_STREAM_TEST, (uint64_t)s->clusters);
    assert_non_null(v);
    for (size_t i = 0; i < n; i++)
        v[i] = s->levels ? (float)pl_rng_below(rng, i, (uint64_t)s->levels) - 1 : 3 * pl_rng_normal(rng, i);
    for (size_t i = 0; i < n; i += 5)
        if (v[i] == 0) v[i] = -0.0f; // as good as 0
    return v;
}

static void offsets_of(const shape *s, int64_t *offset) {
    pl_rng rng = pl_rng_make(5, PL_STREAM_TEST, (uint64_t)s->clusters);
    offset[0] = 0;
    for (int c = 0; c < s->clusters; c++)
        offset[c + 1] = offset[c] + (int64_t)pl_rng_below(rng, (uint64_t)c, (uint64_t)s->largest + 1);
}

static pl_tensor given(op_run *r, const float *v, int rows, int cols) {
    int32_t id[16];
    for (int i = 0; i < rows; i++)
        id[i] = i;
    pl_tensor w = pl_tensor_2d((void *)op_floats_from(r, v, (int64_t)rows * cols), PL_F32, rows, cols);
    return pl_embed(op_ctx(r), w, op_ids_from(r, id, rows), rows);
}

static pl_spans routed(op_run *r, const shape *s, int64_t *rows) {
    int64_t *offset = calloc((size_t)s->clusters + 1, sizeof *offset);
    float   *v = scores_of(s);
    assert_non_null(offset);
    offsets_of(s, offset);
    pl_tensor      score = given(r, v, rows_of(s), s->clusters);
    const int32_t *o = op_ids_from(r, (const int32_t *)offset, 2 * (s->clusters + 1)); // pairs of them are one
    *rows = offset[s->clusters];
    free(offset);
    free(v);
    return pl_route(op_ctx(r), score, (const int64_t *)(const void *)o, op_ids_from(r, s->row, s->groups + 1),
                    s->groups, s->k);
}

static void head(op_run *r, pl_tensor x, pl_tensor w, const pl_span *span, const int32_t *held, int n) {
    pl_headtopk_args a = {.x = x, .w = w, .span = span, .held = held, .n_spans = n, .k = BEST};
    a.id = op_bytes(r, (size_t)x.dim[0] * BEST * 4);
    a.value = op_bytes(r, (size_t)x.dim[0] * BEST * 4);
    a.lse = op_bytes(r, (size_t)x.dim[0] * 4);
    pl_headtopk(op_ctx(r), &a);
    op_out_i32(r, a.id, x.dim[0] * BEST);
    op_out_f32(r, a.value, x.dim[0] * BEST);
    op_out_f32(r, a.lse, x.dim[0]);
}

// Outputs 0: how many spans each group has; 1: the spans, (-1, -1) where there are none; 2..4: ids, values and lse of
// the fused head over the last group's as they come from the op, 5..7 as the host knows them.
static void build(op_run *r, const void *arg) {
    const shape *s = arg;
    int64_t      rows;
    pl_spans     made = routed(r, s, &rows), seen = pl_route_read(op_ctx(r), made);
    size_t       n = (size_t)(s->groups * made.most), at = n - (size_t)made.most;
    pl_tensor    x = op_constant(r, 3, WIDTH, 1);
    pl_tensor    w = op_weight(r, rows > 0 ? rows : 1, WIDTH, PL_BF16, PL_PANELS, 1);
    pl_span     *span = op_bytes(r, n * sizeof *span);
    int32_t     *held = op_bytes(r, (size_t)s->groups * sizeof *held);
    for (int g = 0; g < s->groups && !op_ctx(r)->measuring; g++) {
        size_t first = (size_t)(g * made.most);
        held[g] = seen.held[g];
        memset(span + first, 0xff, (size_t)made.most * sizeof *span);
        memcpy(span + first, seen.span + first, (size_t)held[g] * sizeof *span);
    }
    op_out_i32(r, held, s->groups);
    op_out_i32(r, (const int32_t *)span, 2 * (int64_t)n);
    head(r, x, w, made.span + at, made.held + s->groups - 1, made.most);
    head(r, x, w, span + at, NULL, op_ctx(r)->measuring ? 0 : held[s->groups - 1]);
}

static void all_backends(void **state) {
    (void)state;
    for (int i = 0; i < SHAPES; i++)
        op_check(build, &shapes[i], OP_NO_TAPE, "%d of %d clusters", shapes[i].k, shapes[i].clusters);
}

// Clusters that a group reads: those of its rows that fewer than k come before.
static void by_definition(const shape *s, const float *score, int g, bool *read) {
    memset(read, 0, (size_t)s->clusters);
    for (int m = s->row[g]; m < s->row[g + 1]; m++)
        for (int c = 0; c < s->clusters; c++) {
            const float *z = score + (int64_t)m * s->clusters;
            int          before = 0;
            for (int o = 0; o < s->clusters; o++)
                before += z[o] > z[c] || (z[o] == z[c] && o < c);
            read[c] |= before < s->k;
        }
}

// Its spans are the clusters that it reads, neighbours as one.
static void check_group(const op_run *r, const shape *s, const int64_t *offset, const bool *read, int g) {
    int64_t most = apart(s), at = g * most, last = at + (int64_t)op_value(r, 0, g), end = -1;
    for (int c = 0; c < s->clusters; c++) {
        if (!read[c] || offset[c + 1] == offset[c]) continue;
        assert_true(at < last);
        int64_t first = (int64_t)op_value(r, 1, 2 * at), count = (int64_t)op_value(r, 1, 2 * at + 1);
        if (offset[c] != end) assert_true(first == offset[c]); // else it goes on
        end = offset[c + 1];
        assert_true(first <= offset[c] && first + count >= end);
        if (first + count > end) continue;
        at++;
        // What is read next does not touch it.
        for (int o = c + 1; o < s->clusters && offset[o] == end; o++)
            assert_false(read[o] && offset[o + 1] > end);
    }
    assert_true(at == last);
}

static void against_definition(void **state) {
    (void)state;
    const pl_backend *be;
    for (int i = 0; i < SHAPES; i++) {
        const shape *s = &shapes[i];
        float       *score = scores_of(s);
        int64_t     *offset = calloc((size_t)s->clusters + 1, sizeof *offset);
        bool        *read = calloc((size_t)s->clusters * (size_t)s->groups, sizeof *read);
        offsets_of(s, offset);
        for (int g = 0; g < s->groups; g++)
            by_definition(s, score, g, read + (size_t)g * (size_t)s->clusters);
        for (int b = 0; (be = op_backend(b)); b++) {
            op_run *r = op_run_once(build, s, be, 2, OP_NO_TAPE);
            for (int g = 0; g < s->groups; g++)
                check_group(r, s, offset, read + (size_t)g * (size_t)s->clusters, g);
            for (int o = 2; o < 5; o++)
                for (int k = 0; k < (o == 4 ? 3 : 3 * BEST); k++)
                    assert_true(op_value(r, o, k) == op_value(r, o + 3, k));
            op_run_free(r);
        }
        free(score);
        free(offset);
        free(read);
    }
}

static void nan_is_refused(void **state) {
    (void)state;
    enum { ROWS = 3, CLUSTERS = 700 };
    const pl_backend *be;
    for (int b = 0; (be = op_backend(b)); b++)
        for (int bad = ROWS; bad >= 0; bad--) { // ROWS: none
            static float v[ROWS * CLUSTERS];
            char         line[64];
            pl_ctx       ctx;
            pl_err       err;
            int64_t     *offset = op_shared(be, NULL, (CLUSTERS + 1) * sizeof *offset);
            int         *row = op_shared(be, (int[]){0, ROWS}, 2 * sizeof *row);
            assert_int_equal(pl_ctx_init(&ctx, be, NULL), PL_OK);
            assert_int_equal(pl_arena_reserve(&ctx.frame, 1 << 20, NULL), PL_OK);
            assert_int_equal(pl_arena_reserve(&ctx.scratch, 1 << 20, NULL), PL_OK);
            for (int i = 0; i <= CLUSTERS; i++)
                offset[i] = i;
            for (int i = 0; i < ROWS * CLUSTERS; i++)
                v[i] = (float)(i % 11);
            for (int m = bad; m < ROWS; m++) // the first of them is told
                v[m * CLUSTERS + 37 * (m + 1)] = m % 2 ? NAN : -NAN;
            pl_tensor score = pl_ctx_const(&ctx, ROWS, CLUSTERS);
            pl_from_f32(score.data, be->real, v, ROWS * CLUSTERS);
            pl_route(&ctx, score, offset, row, 1, 5);
            snprintf(line, sizeof line, "router: NaN at row %d; check the drafter's weights", bad);
            assert_int_equal(pl_ctx_sync(&ctx, &err), bad < ROWS ? PL_E_INPUT : PL_OK);
            if (bad < ROWS) assert_string_equal(err.msg, line);
            op_shared_free(be, offset, (CLUSTERS + 1) * sizeof *offset);
            op_shared_free(be, row, 2 * sizeof *row);
            pl_ctx_fini(&ctx);
        }
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(all_backends),
        cmocka_unit_test(against_definition),
        cmocka_unit_test(nan_is_refused),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
