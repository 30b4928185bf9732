// The tiled divergence where tiles and row blocks end: vocabularies around PL_DIV_TILE, more rows than one block, rows
// left out, trimmed vocabularies, every teacher type.
#include "kernels/op/divergence.h"
#include "tests/kernels/op_harness.h"
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

typedef struct shape {
    pl_objective objective;
    int          T, K, d, dt, V, Vd; // Vd < V with d2t, or without where `prefix`
    bool         prefix, accept, argmax;
    pl_dtype     teacher;
    double       scale;   // of the student's logits
    int          leave;   // every leave-th row takes no part (0: all do); of those every other has no teacher row
    bool         fixed_w; // the head is frozen
    bool         unmasked;
    bool         working; // the head is a working copy of bf16, and trained
    size_t       keep;    // bytes of logits
    double       cap;     // of the teacher's
} shape;

// Ascending target ids of the draft ids, spread over the vocabulary.
static int32_t target_id(const shape *s, int j) {
    return (int32_t)((int64_t)j * s->V / s->Vd);
}

static bool left_out(const shape *s, int i) {
    return s->leave && i % s->leave == 0;
}

static int64_t rows_of(const shape *s) {
    return (int64_t)s->T * s->K + (s->objective != PL_OBJ_LABEL ? s->T : 0);
}

static int64_t expected_room(const shape *s) {
    int64_t all = (s->Vd + PL_DIV_TILE - 1) / PL_DIV_TILE * rows_of(s) * PL_DIV_TILE,
            room = (int64_t)(s->keep / sizeof(float));
    return room < all ? room : all;
}

static void divergence(op_run *r, const void *arg) {
    const shape *s = arg;
    int          n = s->T * s->K;
    bool         taught = s->objective != PL_OBJ_LABEL;
    int32_t     *id = malloc((size_t)(n + s->Vd) * sizeof *id);
    float       *weight = malloc((size_t)n * sizeof *weight);
    assert_true(id && weight);
    pl_divergence_args a = {
        .objective = s->objective, .unmasked = s->unmasked, .js_beta = 0.6, .lk_decay = 2, .keep = s->keep};
    a.teacher_cap = s->cap;
    a.x = op_leaf(r, n, s->d, 0, s->scale / sqrt(s->d));
    a.w = s->working   ? op_working(r, s->Vd, s->d, 1)
          : s->fixed_w ? op_weight(r, s->Vd, s->d, op_ctx(r)->be->real, PL_ROWMAJOR, 1)
                       : op_leaf(r, s->Vd, s->d, 0, 1);
    for (int i = 0; i < n; i++)
        weight[i] = left_out(s, i) && i / s->leave % 2 == 0 ? 0.0f : 0.25f + (float)(i % 7) / 16;
    a.weight = op_floats_from(r, weight, n);
    if (taught) {
        // The teacher's logits are the scale's size as well; ref64 reads the same bf16 or float values.
        a.xt = op_constant(r, s->T, s->dt, s->scale / sqrt(s->dt));
        a.wt = op_weight(r, s->V, s->dt, s->teacher, PL_ROWMAJOR, 1);
        for (int i = 0; i < n; i++)
            id[i] = left_out(s, i) && i / s->leave % 2 == 1 ? -1 : (i + i / s->T) % s->T;
        a.teacher_row = op_ids_from(r, id, n);
        for (int j = 0; j < s->Vd; j++)
            id[j] = target_id(s, j);
        if (s->Vd < s->V && !s->prefix) a.d2t = op_ids_from(r, id, s->Vd);
    } else {
        for (int i = 0; i < n; i++)
            id[i] = left_out(s, i) && i / s->leave % 2 == 1 ? -1 : (int32_t)((int64_t)i * 97 % s->Vd);
        a.label = op_ids_from(r, id, n);
    }
    if (s->accept) a.accept = op_place(r, n, 1);
    if (s->accept) a.accept = pl_tensor_1d(a.accept.data, a.accept.dtype, n);
    if (s->argmax) a.student_argmax = op_bytes(r, (size_t)n * 4);
    if (s->argmax && taught) a.teacher_argmax = op_bytes(r, (size_t)s->T * 4);

    pl_tensor loss = pl_divergence(op_ctx(r), &a);
    if (op_ctx(r)->be->keeps_logits && op_ctx(r)->tape)
        assert_int_equal(a.kept.rank > 0 ? a.kept.dim[0] : 0, expected_room(s));
    op_out_loss(r, loss, weight);
    if (taught) op_out(r, a.teacher_stat);
    if (s->accept) op_out(r, a.accept);
    if (s->argmax) op_out_i32(r, a.student_argmax, n);
    if (s->argmax && taught) op_out_i32(r, a.teacher_argmax, s->T);
    free(id);
    free(weight);
}

static void check(const shape *s, unsigned flags) {
    op_check(divergence, s,
             flags | OP_NO_DEVICE | (s->teacher == PL_BF16 || s->working ? OP_NARROW : 0) |
                 (s->working ? OP_BF16_GRADS : 0),
             "divergence %s%s, T %d K %d, %d of %d ids%s, widths %d and %d, scale %g, %s",
             pl_objective_name(s->objective), s->unmasked ? " unmasked" : "", s->T, s->K, s->Vd, s->V,
             s->prefix ? " (the first)" : "", s->d, s->dt, s->scale, pl_dtype_name(s->teacher));
}

enum { T = PL_DIV_TILE };

static void tile_edges(void **state) {
    (void)state;
    const int vocabulary[] = {1, 15, 17, T - 1, T, T + 1, 2 * T + 3};
    for (int i = 0; i < 7; i++) {
        int V = vocabulary[i];
        check(&(shape){PL_OBJ_KL, 5, 3, 9, 17, V, V, .accept = true, .argmax = true, .scale = 2, .leave = 4},
              OP_NO_DIFFERENCES);
        check(&(shape){PL_OBJ_LABEL, 5, 3, 9, 0, V, V, .accept = true, .argmax = true, .scale = 2, .leave = 4},
              OP_NO_DIFFERENCES);
    }
}

static void trimmed(void **state) {
    (void)state;
    const int V[] = {33, T + 40, 3 * T};
    for (int i = 0; i < 3; i++)
        for (int prefix = 0; prefix < 2; prefix++)
            for (int part = 2; part <= 5; part += 3)
                check(&(shape){PL_OBJ_KL, 6, 2, 16, 33, V[i], V[i] / part, prefix, true, true, .scale = 3, .leave = 5},
                      OP_NO_DIFFERENCES);
}

static void gradients(void **state) {
    (void)state;
    check(&(shape){PL_OBJ_KL, 4, 3, 5, 7, 41, 41, .scale = 1, .leave = 5}, 0);
    check(&(shape){PL_OBJ_KL, 4, 3, 5, 7, 60, 31, .scale = 1, .leave = 4}, 0);
    check(&(shape){PL_OBJ_LABEL, 4, 3, 5, 0, 41, 41, .scale = 1, .leave = 5}, 0);
}

static void teacher_types(void **state) {
    (void)state;
    for (int trimmed_ids = 0; trimmed_ids < 2; trimmed_ids++)
        check(&(shape){PL_OBJ_KL, 7, 2, 8, 37, T + 9, trimmed_ids ? 300 : T + 9, false, true, true, PL_BF16, 2,
                       .fixed_w = true},
              OP_NO_DIFFERENCES);
}

// More teacher rows than a block, so that students are sorted into groups, and more students than a block in a group.
static void many_rows(void **state) {
    (void)state;
    check(&(shape){PL_OBJ_KL, 600, 2, 8, 8, 70, 70, .accept = true, .argmax = true, .scale = 2, .leave = 3},
          OP_NO_DIFFERENCES);
    check(&(shape){PL_OBJ_KL, 300, 14, 8, 8, 70, 33, .scale = 2}, OP_NO_DIFFERENCES);
    check(&(shape){PL_OBJ_LABEL, 550, 2, 8, 0, 70, 70, .argmax = true, .scale = 2, .leave = 2}, OP_NO_DIFFERENCES);
}

// A row that does not count leaves products fewer rows than were measured, and other parts for the threads: room for any.
static void few_rows_many_threads(void **state) {
    (void)state;
    const pl_backend *be;
    for (int leave = 0; leave <= 70; leave += 70)
        for (int threads = 2; threads <= 32; threads += 2)
            for (int b = 0; (be = op_backend(b)) && !be->device; b++) {
                shape s = {PL_OBJ_KL, 35, 2, 64, 8, 600, 600, .scale = 2, .leave = leave};
                op_run_free(op_run_once(divergence, &s, be, threads, 0)); // aborts where there is too little
            }
}

static void peaked(void **state) {
    (void)state;
    check(&(shape){PL_OBJ_KL, 9, 2, 32, 24, T + 100, T + 100, .accept = true, .argmax = true, .scale = 25},
          OP_NO_DIFFERENCES);
    check(&(shape){PL_OBJ_LABEL, 9, 2, 32, 0, T + 100, T + 100, .accept = true, .scale = 25}, OP_NO_DIFFERENCES);
}

static void all_left_out(void **state) {
    (void)state;
    const shape       s = {PL_OBJ_KL, 3, 2, 8, 8, 40, 40, .accept = true, .argmax = true, .scale = 1, .leave = 1};
    const pl_backend *be;
    for (int b = 0; (be = op_backend(b)) && !be->device; b++) {
        op_run *r = op_run_once(divergence, &s, be, 1, 0);
        for (int i = 0; i < s.T * s.K; i++) {
            assert_true(op_value(r, 0, i) == 0 && op_value(r, 2, i) == 0 && op_value(r, 3, i) == -1);
            for (int c = 0; c < s.d; c++)
                assert_true(op_grad(r, 0, (int64_t)i * s.d + c) == 0);
        }
        for (int t = 0; t < s.T; t++)
            assert_true(op_value(r, 4, t) == -1);
        op_run_free(r);
    }
}

// Equal logits at the maximum: the lowest id, also when the second one stands in a later tile.
typedef struct tie {
    int V, first, second;
} tie;

static void tied(op_run *r, const void *arg) {
    const tie *s = arg;
    float     *w = calloc((size_t)s->V, sizeof *w);
    int32_t   *student = op_bytes(r, 4), *teacher = op_bytes(r, 4);
    assert_non_null(w);
    w[s->first] = w[s->second] = 1.0f;
    const float *one = op_floats_from(r, &(float){1.0f}, 1), *rows = op_floats_from(r, w, s->V);
    free(w);
    pl_divergence_args a = {.objective = PL_OBJ_KL,
                            .x = pl_tensor_2d((void *)(uintptr_t)one, PL_F32, 1, 1),
                            .w = pl_tensor_2d((void *)(uintptr_t)rows, PL_F32, s->V, 1),
                            .teacher_row = op_ids_from(r, &(int32_t){0}, 1),
                            .weight = one,
                            .student_argmax = student,
                            .teacher_argmax = teacher};
    a.xt = a.x;
    a.wt = a.w;
    pl_divergence(op_ctx(r), &a);
    op_out_i32(r, student, 1);
    op_out_i32(r, teacher, 1);
}

static void ties(void **state) {
    (void)state;
    const tie         s[] = {{40, 3, 4}, {40, 0, 39}, {T + 5, 7, T + 1}, {3 * T, T - 1, T}, {2 * T, T + 3, 2 * T - 1}};
    const pl_backend *be;
    for (int b = 0; (be = op_backend(b)) && !be->device; b++)
        for (int i = 0; i < 5 && be->real == PL_F32; i++) {
            op_run *r = op_run_once(tied, &s[i], be, 1, OP_NO_TAPE);
            assert_int_equal((int)op_value(r, 0, 0), s[i].first);
            assert_int_equal((int)op_value(r, 1, 0), s[i].first);
            op_run_free(r);
        }
}

// Every objective over tiles, groups of teacher rows, a trimmed list and logits that are almost sure.
static void objectives(void **state) {
    (void)state;
    for (int o = 0; o < PL_OBJ_LABEL; o++)
        for (int unmasked = 0; unmasked < 2; unmasked++) {
            shape s[] = {{o, 5, 3, 9, 17, T + 1, T + 1, .accept = true, .argmax = true, .scale = 2, .leave = 4},
                         {o, 6, 2, 16, 33, 3 * T, 3 * T / 2 - 5, .accept = true, .scale = 3, .leave = 5},
                         {o, 6, 2, 16, 33, T + 40, T / 3, true, .scale = 3},
                         {o, 600, 2, 8, 8, 70, 33, .accept = true, .argmax = true, .scale = 2, .leave = 3},
                         {o, 9, 2, 32, 24, T + 100, T / 2, .accept = true, .scale = 10},
                         {o, 4, 3, 5, 7, 20, 2, .accept = true, .scale = 1}};
            for (size_t i = 0; i < sizeof s / sizeof *s; i++) {
                if (s[i].T == 600 && o != PL_OBJ_HARD_CE && o != PL_OBJ_LK_LAMBDA) continue; // many rows cost much
                s[i].unmasked = unmasked;
                check(&s[i], OP_NO_DIFFERENCES);
            }
        }
}

// Logits kept from forward to backward, all or those of the first tiles, change no bit; nor does room for no tile.
static void same_run(const shape *s, const pl_backend *be) {
    int64_t       n = (int64_t)s->T * s->K, tile = rows_of(s) * PL_DIV_TILE * (int64_t)sizeof(float);
    const int64_t rooms[] = {tile - 4, tile + 4, 2 * tile, 9 * tile};
    op_run       *want = op_run_once(divergence, s, be, 1, 0);
    for (int k = 0; k < 4; k++) {
        shape some = *s;
        some.keep = (size_t)rooms[k];
        op_run *got = op_run_once(divergence, &some, be, 1 + k % 2, 0);
        for (int64_t i = 0; i < n; i++)
            assert_true(op_value(got, 0, i) == op_value(want, 0, i));
        for (int64_t i = 0; i < n && s->accept; i++)
            assert_true(op_value(got, 2, i) == op_value(want, 2, i)); // (taught)
        for (int64_t i = 0; i < n * s->d; i++)
            assert_true(op_grad(got, 0, i) == op_grad(want, 0, i));
        for (int64_t i = 0; i < (int64_t)s->Vd * s->d && !s->fixed_w; i++)
            assert_true(op_grad(got, 1, i) == op_grad(want, 1, i));
        op_run_free(got);
    }
    op_run_free(want);
}

static void kept_logits(void **state) {
    (void)state;
    const pl_backend *be;
    int               kept = 0;
    for (int b = 0; (be = op_backend(b)) && !be->device; b++)
        for (int o = 0; o < PL_OBJECTIVES && be->keeps_logits; o++, kept++) {
            const bool  taught = o != PL_OBJ_LABEL;
            const shape s[] = {
                {o, 5, 3, 9, 17, 2 * T + 3, 2 * T + 3, .accept = taught, .scale = 2, .leave = 4, .cap = taught ? 3 : 0},
                {o, 6, 2, 16, 33, 3 * T, taught ? 3 * T / 2 - 5 : 3 * T, .accept = taught, .scale = 3, .leave = 5},
                {o, 6, 2, 16, 33, T + 40, taught ? T / 3 : T + 40, taught, .scale = 3, .fixed_w = true},
                {o, 550, 2, 4, 4, T + 9, taught ? T + 2 : T + 9, .scale = 2, .leave = 3, .teacher = PL_BF16}};
            for (int i = 0; i < (o == PL_OBJ_KL || o == PL_OBJ_LK_LAMBDA || !taught ? 4 : 3); i++)
                same_run(&s[i], be);
        }
    assert_true(kept >= PL_OBJECTIVES);
}

static void same_bits(const shape *s, op_run *got, op_run *want) {
    for (int64_t i = 0; i < (int64_t)s->T * s->K; i++)
        assert_true(op_value(got, 0, i) == op_value(want, 0, i));
    for (int64_t i = 0; i < (int64_t)s->T * s->K * s->d; i++)
        assert_true(op_grad(got, 0, i) == op_grad(want, 0, i));
    for (int64_t i = 0; i < (int64_t)s->Vd * s->d; i++)
        assert_true(op_grad(got, 1, i) == op_grad(want, 1, i));
}

// A head in bf16: chunks of rows that end early and are dealt to threads, more than one group, tiles that end early,
// logits that are kept and that are not, K in blocks. The same bits at every level of one arithmetic, for any threads.
static void in_bf16(void **state) {
    (void)state;
    const shape s[] = {
        {PL_OBJ_KL, 70, 4, 40, 17, 2 * T + 3, 2 * T + 3, .accept = true, .scale = 2, .leave = 4, .working = true},
        {PL_OBJ_LK_LAMBDA, 530, 2, 33, 17, T + 40, T + 9, .accept = true, .scale = 2, .leave = 3, .working = true},
        {PL_OBJ_LABEL, 299, 1, 130, 0, T + 100, T + 100, .scale = 2, .leave = 5, .working = true},
        {PL_OBJ_KL, 9, 3, 800, 17, T + 20, T + 20, .scale = 2, .working = true, .keep = 1 << 20}};
    const pl_backend *be;
    for (int i = 0; i < 4; i++) {
        check(&s[i], OP_NO_DIFFERENCES);
        op_run *want = op_run_once(divergence, &s[i], pl_backend_cpu(), 1, 0);
        for (int b = 0; (be = op_backend(b)) && !be->device; b++)
            for (int threads = 1; threads <= 3 && strcmp(be->arithmetic, pl_backend_cpu()->arithmetic) == 0;
                 threads++) {
                op_run *got = op_run_once(divergence, &s[i], be, threads, 0);
                same_bits(&s[i], got, want);
                op_run_free(got);
            }
        op_run_free(want);
    }
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(tile_edges),    cmocka_unit_test(trimmed),      cmocka_unit_test(gradients),
        cmocka_unit_test(teacher_types), cmocka_unit_test(many_rows),    cmocka_unit_test(few_rows_many_threads),
        cmocka_unit_test(peaked),        cmocka_unit_test(all_left_out), cmocka_unit_test(ties),
        cmocka_unit_test(objectives),    cmocka_unit_test(kept_logits),  cmocka_unit_test(in_bf16),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
