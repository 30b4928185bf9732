// The choice of experts against its definition.
#include "kernels/base/rng.h"
#include "kernels/op/elementwise.h"
#include "kernels/op/experts.h"
#include "tests/kernels/op_harness.h"
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>

#include <cmocka.h>

typedef struct shape {
    int  rows, experts, k, levels; // levels: of scores, integers below it, full of ties; 0: continuous values
    bool renormalised;
} shape;

static const shape shapes[] = {
    {1, 1, 1, 0, true},     {1, 8, 2, 0, true},    {9, 8, 2, 0, false}, {5, 6, 6, 2, true},
    {33, 128, 8, 0, false}, {64, 128, 8, 3, true}, {7, 3, 2, 1, false}, {200, 32, 4, 0, true},
};
enum { SHAPES = sizeof shapes / sizeof *shapes };

static float score_at(const shape *s, int m, int e) {
    pl_rng   rng = pl_rng_make(6, PL_STREAM_TEST, (uint64_t)s->experts);
    uint64_t i = (uint64_t)(m * s->experts + e);
    return s->levels ? (float)pl_rng_below(rng, i, (uint64_t)s->levels) - 1 : 2 * pl_rng_normal(rng, i);
}

static void build(op_run *r, const void *arg) {
    const shape *s = arg;
    int          pairs = s->rows * s->k, n = s->rows * s->experts;
    float       *v = malloc((size_t)n * sizeof *v);
    int32_t     *id = malloc((size_t)s->rows * sizeof *id);
    assert_true(v && id);
    for (int i = 0; i < n; i++)
        v[i] = score_at(s, i / s->experts, i % s->experts);
    for (int m = 0; m < s->rows; m++)
        id[m] = m;
    pl_tensor w = pl_tensor_2d((void *)op_floats_from(r, v, n), PL_F32, s->rows, s->experts);
    pl_tensor score = pl_embed(op_ctx(r), w, op_ids_from(r, id, s->rows), s->rows);
    free(v);
    free(id);
    pl_expert_pairs p = pl_experts(op_ctx(r), score, s->k, s->renormalised);
    op_out(r, p.weight);
    op_out_i32(r, p.row, pairs);
    op_out_i32(r, p.slot, pairs);
    op_out_i32(r, p.first, s->experts + 1);
}

static void all_backends(void **state) {
    (void)state;
    for (int i = 0; i < SHAPES; i++)
        op_check(build, &shapes[i], OP_NO_TAPE | OP_EXACT_LEVELS | OP_NO_DEVICE, "%d of %d experts for %d rows",
                 shapes[i].k, shapes[i].experts, shapes[i].rows);
}

static void check_row(const op_run *r, const shape *s, int m) {
    double sum = 0;
    int    j = 0;
    bool   chosen[256];
    for (int e = 0; e < s->experts; e++) {
        int before = 0;
        for (int o = 0; o < s->experts; o++)
            before += score_at(s, m, o) > score_at(s, m, e) || (score_at(s, m, o) == score_at(s, m, e) && o < e);
        chosen[e] = before < s->k;
        if (chosen[e] || !s->renormalised) sum += exp(score_at(s, m, e));
    }
    for (int e = 0; e < s->experts; e++) {
        if (!chosen[e]) continue;
        int pair = (int)op_value(r, 2, m * s->k + j);
        assert_true(pair >= op_value(r, 3, e) && pair < op_value(r, 3, e + 1));
        assert_true(op_value(r, 1, pair) == m);
        double want = exp(score_at(s, m, e)) / sum;
        assert_true(fabs(op_value(r, 0, m * s->k + j) - want) <= 1e-6 * want);
        j++;
    }
    assert_int_equal(j, s->k);
}

static void against_definition(void **state) {
    (void)state;
    const pl_backend *be;
    for (int i = 0; i < SHAPES; i++)
        for (int b = 0; (be = op_backend(b)); b++) {
            const shape *s = &shapes[i];
            if (!be->fwd[PL_OP_EXPERTS]) continue;
            op_run *r = op_run_once(build, s, be, 1, OP_NO_TAPE);
            for (int m = 0; m < s->rows; m++)
                check_row(r, s, m);
            assert_true(op_value(r, 3, 0) == 0 && op_value(r, 3, s->experts) == s->rows * s->k);
            for (int e = 0; e < s->experts; e++) // rows ascend within an expert
                for (int p = (int)op_value(r, 3, e) + 1; p < op_value(r, 3, e + 1); p++)
                    assert_true(op_value(r, 1, p - 1) < op_value(r, 1, p));
            op_run_free(r);
        }
}

static void nan_is_refused(void **state) {
    (void)state;
    pl_ctx ctx;
    pl_err err;
    assert_int_equal(pl_ctx_init(&ctx, pl_backend_cpu(), NULL), PL_OK);
    assert_int_equal(pl_arena_reserve(&ctx.frame, 1 << 16, NULL), PL_OK);
    pl_tensor score = pl_ctx_const(&ctx, 3, 5);
    for (int i = 0; i < 15; i++)
        pl_f32(&score)[i] = i == 7 ? NAN : (float)i;
    pl_experts(&ctx, score, 2, true);
    assert_int_equal(pl_ctx_sync(&ctx, &err), PL_E_INPUT);
    assert_string_equal(err.msg, "router: NaN at row 1; check the model's weights");
    pl_ctx_fini(&ctx);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(all_backends),
        cmocka_unit_test(against_definition),
        cmocka_unit_test(nan_is_refused),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
