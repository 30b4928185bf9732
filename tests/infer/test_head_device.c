// Heads on a device: what is chosen is the CPU's choice, no head waits for the device before its results are wanted
// (routing and rescoring included), and steps go as the same graphs whatever they choose.
#include "infer/drafter/backbone.h"
#include "infer/head/dynaspec.h"
#include "kernels/base/rng.h"
#include "kernels/cuda/state.h"
#include "kernels/op/elementwise.h"
#include "tests/infer/fixture.h"
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "tests/device.h"

enum { ROWS = 7, D = 48, BEST = 6, STEPS = 6 };

typedef struct shared {
    int32_t token[ROWS], group[ROWS], id[ROWS * BEST];
    float   value[ROWS * BEST], lse[ROWS];
} shared;

typedef struct side { // one backend's
    pl_llama     target;
    pl_backbone *b;
    pl_ctx       ctx;
    float       *x, *hidden; // [ROWS, D]
    shared      *s;
    pl_head_rows rows;
    bool         begins; // before something else is queued, as a backbone's step is
    int          law;    // of law_step's logits
    float       *logits; // [ROWS, TEST_VOCAB]
} side;

static const struct {
    const char    *head;
    pl_hf_selector selector;
    bool           listed; // over all tokens in another order
} heads[] = {
    {.head = "full"},
    {.head = "lowrank:rank=8"},
    {.head = "specvocab:rank=12,candidates=20"},
    {.head = "specvocab:rank=12,candidates=3"}, // fewer than are wanted
    {.head = "dynaspec:clusters=12,width=20,k0=4,k1=2"},
    {.head = "dynaspec:clusters=12,router=coral,k0=3,fixed"},
    {.head = "dynaspec:clusters=97,width=8,k0=1,k1=1"}, // fewer rows than are wanted
    {.head = "dynaspec:clusters=30,width=8,k0=200,k1=3"},
    {.head = "full", .selector = {.rank = 5, .candidates = 9}},
    {.head = "specvocab:rank=12,candidates=20", .selector = {.rank = 5, .candidates = 9}},
    {.head = "specvocab:rank=12,candidates=4", .selector = {.rank = 5, .candidates = 9}}, // fewer than it rescores
    {.head = "dynaspec:clusters=12,width=20,k0=4,k1=2", .selector = {.rank = 5, .candidates = 9}},
    {.head = "dynaspec:clusters=97,width=8,k0=3,k1=3", .selector = {.rank = 5, .candidates = 9}},
    {.head = "full", .selector = {.rank = 5, .candidates = 9, .law = PL_HF_LAW_LIST}},
    {.head = "full:position_aware",
     .selector = {.rank = 5, .candidates = 9},
     .listed = true}, // fewer rows from level 2
};
enum { HEADS = sizeof heads / sizeof *heads };

static void head_step(pl_ctx *ctx, void *arg) {
    side        *e = arg;
    pl_head_rows rows = e->rows;
    if (e->begins) pl_head_begin(ctx, &e->b->head, &rows);
    rows.x = pl_add(ctx, rows.x, pl_embed(ctx, rows.embed, rows.token, ROWS), (pl_tensor){0});
    pl_head_topk(ctx, &e->b->head, &rows, BEST, e->s->id, e->s->value, e->s->lse);
}

// What drafts are drawn from: by the head as it is, by its selector's list alone, by what stands before the selector.
enum { AS_IT_IS, OF_LIST, OWN, LAWS };
typedef float law[ROWS][TEST_VOCAB];

static void law_step(pl_ctx *ctx, void *arg) {
    side        *e = arg;
    pl_head      h = e->b->head;
    pl_head_rows rows = e->rows;
    if (e->law == OF_LIST) h.selector.law = PL_HF_LAW_LIST;
    if (e->law == OWN) h.selector.candidates = 0;
    rows.x = pl_add(ctx, rows.x, pl_embed(ctx, rows.embed, rows.token, ROWS), (pl_tensor){0});
    pl_tensor y = pl_head_logits(ctx, &h, &rows);
    if (ctx->measuring) return;
    assert_non_null(y.data);
    memcpy(e->logits, y.data, sizeof(law));
}

static void largest_step(pl_ctx *ctx, void *arg) {
    side *e = arg;
    head_step(ctx, e);
    for (e->law = 0; e->law < LAWS; e->law++)
        law_step(ctx, e);
}

static void open_side(side *e, const char *dir, const char *draft, pl_dtype t, const pl_backend *be, bool repeats) {
    pl_err err = {0};
    e->begins = repeats;
    if (pl_llama_open(&e->target, dir, t, be, &err) != PL_OK) fail_msg("%s", err.msg);
    if (pl_backbone_open(&e->b, draft, &e->target, t, &err) != PL_OK) fail_msg("%s", err.msg);
    e->x = pl_memory_create(be->memory, PL_LOCAL, ROWS * D * sizeof *e->x, NULL);
    e->hidden = pl_memory_create(be->memory, PL_LOCAL, ROWS * D * sizeof *e->hidden, NULL);
    e->s = pl_memory_create(be->memory, PL_SHARED, sizeof *e->s, NULL);
    assert_true(e->x && e->hidden && e->s);
    e->rows = (pl_head_rows){.x = pl_tensor_2d(e->x, PL_F32, ROWS, D),
                             .hidden = pl_tensor_2d(e->hidden, PL_F32, ROWS, D),
                             .token = e->s->token,
                             .group = e->s->group,
                             .embed = e->b->embed};
    assert_int_equal(pl_ctx_init(&e->ctx, be, NULL), PL_OK);
    e->ctx.repeats = repeats;
    if (pl_ctx_measure(&e->ctx, largest_step, e, &err) != PL_OK) fail_msg("%s", err.msg);
}

static void close_side(side *e) {
    const pl_memory *m = e->ctx.be->memory;
    pl_ctx_fini(&e->ctx);
    pl_memory_destroy(m, PL_LOCAL, e->x, ROWS * D * sizeof *e->x);
    pl_memory_destroy(m, PL_LOCAL, e->hidden, ROWS * D * sizeof *e->hidden);
    pl_memory_destroy(m, PL_SHARED, e->s, sizeof *e->s);
    pl_backbone_destroy(e->b);
    pl_llama_fini(&e->target);
}

// Another step's inputs, with values of bf16; bad: a row of hidden states that holds NaN, -1.
static void put_inputs(side *e, int step, int bad) {
    static const int32_t group[ROWS] = {0, 0, 0, 2, 5, 5, 5};
    pl_rng               rng = pl_rng_make(9, PL_STREAM_TEST, (uint64_t)step);
    float                v[2][ROWS * D];
    for (int i = 0; i < 2 * ROWS * D; i++)
        v[i / (ROWS * D)][i % (ROWS * D)] =
            pl_bf16_to_f32(pl_f32_to_bf16((float)(1 + i / (ROWS * D)) * pl_rng_normal(rng, (uint64_t)i)));
    if (bad >= 0) v[1][bad * D + 3] = NAN;
    assert_int_equal(pl_memory_write(e->ctx.be->memory, e->x, v[0], sizeof v[0], NULL), PL_OK);
    assert_int_equal(pl_memory_write(e->ctx.be->memory, e->hidden, v[1], sizeof v[1], NULL), PL_OK);
    for (int i = 0; i < ROWS; i++) {
        e->s->token[i] = (i * 31 + step * 5 + 7) % TEST_VOCAB;
        e->s->group[i] = group[i];
    }
}

static pl_status take_step(side *e, pl_err *err) {
    pl_ctx_begin(&e->ctx);
    head_step(&e->ctx, e);
    return pl_ctx_sync(&e->ctx, err);
}

// A head's files, made anew.
static void make_head(char dir[64], char draft[64], int i) {
    pl_llama            m;
    int32_t             order[TEST_VOCAB];
    pl_backbone_options o = {.head = pl_hf_head_of(heads[i].head), .selector = heads[i].selector};
    for (int v = 0; v < TEST_VOCAB; v++)
        order[v] = (v * 5 + 3) % TEST_VOCAB;
    if (heads[i].listed) o.d2t = order, o.draft_vocab = TEST_VOCAB;
    test_target(&m, test_mkdir(dir), 1, 11, PL_BF16);
    test_backbone_write(test_mkdir(draft), &m, &pl_backbone_eagle3, &o, 5);
    pl_llama_fini(&m);
}

// A head on the CPU and on the device.
typedef struct two {
    char dir[64], draft[64];
    side here, there;
} two;

static void open_two(two *t, int head) {
    *t = (two){0};
    make_head(t->dir, t->draft, head);
    open_side(&t->here, t->dir, t->draft, PL_F32, pl_backend_cpu(), false);
    open_side(&t->there, t->dir, t->draft, PL_F32, test_device(), true);
}

static void close_two(two *t) {
    close_side(&t->here);
    close_side(&t->there);
    test_rmdir(t->dir);
    test_rmdir(t->draft);
}

static void give_both(two *t, int step) {
    t->here.rows.level = t->there.rows.level = step % 4;
    put_inputs(&t->here, step, -1);
    put_inputs(&t->there, step, -1);
}

// fp32 weights: one fma chain per output on both, so that ids are the CPU's.
static void the_cpus_choice(void **state) {
    (void)state;
    for (int i = 0; i < HEADS; i++) {
        two   t;
        side *here = &t.here, *there = &t.there;
        open_two(&t, i);
        for (int step = 0; step < STEPS; step++) {
            give_both(&t, step);
            assert_int_equal(take_step(here, NULL), PL_OK);
            assert_int_equal(take_step(there, NULL), PL_OK);
            assert_memory_equal(here->s->id, there->s->id, sizeof here->s->id);
            for (int k = 0; k < ROWS * BEST; k++)
                assert_true(here->s->id[k] < 0 ? there->s->value[k] == -INFINITY
                                               : fabsf(here->s->value[k] - there->s->value[k]) < 1e-4f);
            for (int m = 0; m < ROWS; m++)
                assert_true(here->s->lse[m] == there->s->lse[m] || // both may be -infinity
                            fabsf(here->s->lse[m] - there->s->lse[m]) < 1e-4f);
        }
        close_two(&t);
    }
}

static void get_law(side *e, int which, law out) {
    pl_err err = {0};
    e->law = which;
    e->logits = &out[0][0];
    pl_ctx_begin(&e->ctx);
    law_step(&e->ctx, e);
    if (pl_ctx_sync(&e->ctx, &err) != PL_OK) fail_msg("%s", err.msg);
}

static double mass_of(const float *z) {
    double sum = 0;
    for (int v = 0; v < TEST_VOCAB; v++)
        sum += exp((double)z[v]);
    return sum;
}

// A selector's full law against its words: beside the list the head's own logits, bit for bit; on the list the mass
// that the head gives it, shared as the list's law shares it. How many tokens lie beside lists.
static int check_full(law got, law list, law own) {
    int beside = 0;
    for (int m = 0; m < ROWS; m++) {
        double scores = mass_of(list[m]), whole = mass_of(own[m]), on_list = 0;
        for (int v = 0; v < TEST_VOCAB; v++)
            on_list += list[m][v] > -INFINITY ? exp((double)own[m][v]) : 0;
        for (int v = 0; v < TEST_VOCAB; v++) {
            double q = exp((double)got[m][v]) / whole, want = exp((double)list[m][v]) / scores * on_list / whole;
            if (list[m][v] > -INFINITY) {
                assert_true(fabs(q - want) < 1e-6);
                continue;
            }
            assert_memory_equal(&got[m][v], &own[m][v], sizeof(float));
            beside += own[m][v] > -INFINITY;
        }
        if (whole > 0) assert_true(fabs(mass_of(got[m]) / whole - 1) < 1e-6);
    }
    return beside;
}

// What drafts are drawn from, on both; list and head are the CPU's there, so the device's law is held to them as well.
static void the_cpus_law(void **state) {
    (void)state;
    static law here_got, there_got, list, own;
    int        beside = 0, moved = 0;
    for (int i = 0; i < HEADS; i++) {
        two   t;
        side *here = &t.here, *there = &t.there;
        open_two(&t, i);
        bool full = heads[i].selector.candidates > 0 && heads[i].selector.law == PL_HF_LAW_FULL;
        for (int step = 0; step < STEPS; step++) {
            give_both(&t, step);
            get_law(here, AS_IT_IS, here_got);
            get_law(there, AS_IT_IS, there_got);
            for (int k = 0; k < ROWS * TEST_VOCAB; k++) {
                float a = here_got[k / TEST_VOCAB][k % TEST_VOCAB], b = there_got[k / TEST_VOCAB][k % TEST_VOCAB];
                if (!(a == b || fabsf(a - b) < 1e-4f))
                    fail_msg("head %d (%s): %g here, %g there", i, heads[i].head, a, b);
            }
            get_law(here, OWN, own);
            get_law(here, OF_LIST, list);
            if (full) beside += check_full(here_got, list, own);
            if (full) moved += memcmp(here_got, own, sizeof own) != 0;
            if (heads[i].selector.law == PL_HF_LAW_LIST) assert_memory_equal(here_got, list, sizeof list);
        }
        close_two(&t);
    }
    assert_true(beside > 1000 && moved >= 4 * STEPS);
}

static void nothing_waits(void **state) {
    (void)state;
    for (int i = 0; i < HEADS; i++) {
        char dir[64], draft[64];
        side e = {0};
        make_head(dir, draft, i);
        open_side(&e, dir, draft, PL_BF16, test_device(), true);
        for (e.rows.level = 0; e.rows.level < 3; e.rows.level++) {
            put_inputs(&e, e.rows.level, -1);
            pl_ctx_begin(&e.ctx);
            const pl_cuda_state *seen = e.ctx.state;
            uint64_t             waits = seen->waits;
            head_step(&e.ctx, &e);
            if (seen->waits > waits) fail_msg("head %s waits at level %d", heads[i].head, e.rows.level);
            assert_true(pl_ctx_wait(&e.ctx));
            assert_true(seen->waits == waits + 1);
        }
        close_side(&e);
        test_rmdir(dir);
        test_rmdir(draft);
    }
}

// Each sequence is captured when it comes the second time and never again, though supports differ from step to step.
static void steps_become_graphs(void **state) {
    (void)state;
    if (getenv("PACELINE_GRAPHS")) skip();
    for (int i = 0; i < HEADS; i++) {
        char dir[64], draft[64];
        side plain = {0}, graphs = {0};
        make_head(dir, draft, i);
        open_side(&plain, dir, draft, PL_BF16, test_device(), false);
        open_side(&graphs, dir, draft, PL_BF16, test_device(), true);
        const pl_cuda_state *seen = graphs.ctx.state;
        uint64_t             pieces = 0;
        for (int step = 0; step < STEPS; step++) {
            put_inputs(&plain, step, -1);
            put_inputs(&graphs, step, -1);
            assert_int_equal(take_step(&plain, NULL), PL_OK);
            assert_int_equal(take_step(&graphs, NULL), PL_OK);
            assert_memory_equal(plain.s, graphs.s, sizeof *plain.s);
            if (step == 1) pieces = seen->captured;
            assert_true(seen->captured == pieces && seen->replayed == pieces * (uint64_t)step);
        }
        assert_true(pieces >= 1);
        close_side(&plain);
        close_side(&graphs);
        test_rmdir(dir);
        test_rmdir(draft);
    }
}

static void nan_is_told(void **state) {
    (void)state;
    char   dir[64], draft[64];
    side   e = {0};
    pl_err err = {0};
    make_head(dir, draft, 4);
    open_side(&e, dir, draft, PL_BF16, test_device(), true);
    put_inputs(&e, 0, 3);
    assert_int_equal(take_step(&e, &err), PL_E_INPUT);
    assert_string_equal(err.msg, "router: NaN at row 3; check the drafter's weights");
    put_inputs(&e, 0, -1);
    assert_int_equal(take_step(&e, &err), PL_OK);
    close_side(&e);
    test_rmdir(dir);
    test_rmdir(draft);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(the_cpus_choice),     cmocka_unit_test(the_cpus_law), cmocka_unit_test(nothing_waits),
        cmocka_unit_test(steps_become_graphs), cmocka_unit_test(nan_is_told),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
