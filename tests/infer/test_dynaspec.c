// Routed heads: budgets, supports as unions over a session's rows, tables of clusters, losslessness.
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "infer/head/dynaspec.h"
#include "kernels/base/arena.h"
#include "kernels/base/rng.h"
#include "kernels/op/elementwise.h"
#include "tests/infer/fixture.h"
#include "tests/infer/lossless.h"
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

// The paper's schedule for k1 = 10, by §4.2 and by Algorithm 1.
static void budgets(void **state) {
    (void)state;
    static const int rounded[] = {20, 10, 3, 2, 1, 1, 1}, floored[] = {20, 10, 2, 1, 1, 1, 1};
    pl_dynaspec      s = {.clusters = 100, .k0 = 20, .k1 = 10};
    for (int t = 0; t < 7; t++) {
        s.floored = false;
        assert_int_equal(pl_routed_budget(&s, t), rounded[t]);
        s.floored = true;
        assert_int_equal(pl_routed_budget(&s, t), floored[t]);
    }
    s.kmin = 4;
    assert_int_equal(pl_routed_budget(&s, 1), 10);
    assert_int_equal(pl_routed_budget(&s, 3), 4);
    s.fixed = true;
    assert_int_equal(pl_routed_budget(&s, 5), 20);
    s.clusters = 7;
    assert_int_equal(pl_routed_budget(&s, 5), 7);
}

// A checkpoint has the budget that it names, whatever a recipe that names none has: one at every depth, as recipes
// without k1 once wrote it, and the paper's.
static void budgets_of_checkpoints(void **state) {
    (void)state;
    static const struct {
        const char *spec;
        int         k[5];
    } cases[] = {{"dynaspec:clusters=64,width=4,k0=8,k1=8,kmin=8", {8, 8, 8, 8, 8}},
                 {"dynaspec:clusters=64,width=4,k0=16,k1=8,kmin=4", {16, 8, 4, 4, 4}},
                 {"dynaspec:clusters=64,width=4,k0=16,k1=8,kmin=1", {16, 8, 2, 1, 1}},
                 {"dynaspec:clusters=64,width=4,k0=16,k1=8", {16, 8, 2, 1, 1}},
                 {"dynaspec:clusters=64,width=4,k0=8,fixed", {8, 8, 8, 8, 8}}};
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        pl_head    h;
        pl_err     err = {0};
        pl_hf_head spec = pl_hf_head_of(cases[i].spec);
        if (pl_head_init(&h, &spec, 16, 96, &err) != PL_OK) fail_msg("%s: %s", cases[i].spec, err.msg);
        for (int t = 0; t < 5; t++)
            assert_int_equal(pl_routed_budget(pl_routed_of(&h)->own, t), cases[i].k[t]);
        pl_head_fini(&h);
    }
}

static void choosing(void **state) {
    (void)state;
    enum { C = 40 };
    pl_rng rng = pl_rng_make(1, PL_STREAM_TEST, 0);
    for (int trial = 0; trial < 200; trial++) {
        float    score[C];
        int32_t  best[C];
        uint8_t  chosen[C] = {0};
        int64_t  k = trial % (C + 5);
        uint64_t at = (uint64_t)trial * C;
        for (int c = 0; c < C; c++)
            score[c] = (float)pl_rng_below(rng, at + (uint64_t)c, 12); // many equal ones
        assert_true(pl_router_choose(score, C, k, best, chosen));
        int n = 0;
        for (int c = 0; c < C; c++) {
            int before = 0; // clusters that come sooner
            for (int o = 0; o < C; o++)
                before += score[o] > score[c] || (score[o] == score[c] && o < c);
            assert_int_equal(chosen[c], before < k);
            n += chosen[c];
        }
        assert_int_equal(n, k < C ? k : C);
    }
    float   bad[3] = {1, NAN, 2};
    int32_t best[3];
    uint8_t chosen[3] = {0};
    assert_false(pl_router_choose(bad, 3, 1, best, chosen));
}

static void spans(void **state) {
    (void)state;
    const int64_t offset[] = {0, 4, 4, 9, 20, 21, 30};
    pl_span       s[6];
    const uint8_t none[6] = {0}, all[6] = {1, 1, 1, 1, 1, 1}, some[6] = {1, 1, 1, 0, 0, 1},
                  empty[6] = {0, 1, 0, 0, 0, 0};
    assert_int_equal(pl_route_spans(offset, 6, none, s), 0);
    assert_int_equal(pl_route_spans(offset, 6, empty, s), 0);
    assert_int_equal(pl_route_spans(offset, 6, all, s), 1);
    assert_true(s[0].first == 0 && s[0].count == 30);
    assert_int_equal(pl_route_spans(offset, 6, some, s), 2); // neighbours, and an empty one between them, are one
    assert_true(s[0].first == 0 && s[0].count == 9 && s[1].first == 21 && s[1].count == 9);
}

// ---- supports

enum { ROWS = 7, D = 48 };

typedef struct world {
    char         dir[64], draft[64];
    pl_llama     target;
    pl_backbone *b;
    pl_ctx       ctx;
    float        x[ROWS * D], hidden[ROWS * D];
    int32_t      token[ROWS], id[ROWS * PL_TOPK_MAX];
    float        value[ROWS * PL_TOPK_MAX], lse[ROWS];
    pl_head_rows rows;
} world;

static void measure(pl_ctx *ctx, void *arg) {
    world *w = arg;
    pl_head_logits(ctx, &w->b->head, &w->rows);
    pl_head_topk(ctx, &w->b->head, &w->rows, PL_TOPK_MAX, w->id, w->value, w->lse);
}

static void open_world(world *w, const char *head) {
    pl_err              err = {0};
    pl_backbone_options o = {.head = pl_hf_head_of(head)};
    pl_rng              rng = pl_rng_make(9, PL_STREAM_TEST, 0);
    test_target(&w->target, test_mkdir(w->dir), 2, 11, PL_BF16);
    test_backbone_write(test_mkdir(w->draft), &w->target, &pl_backbone_eagle3, &o, 5);
    if (pl_backbone_open(&w->b, w->draft, &w->target, PL_BF16, &err) != PL_OK) fail_msg("%s", err.msg);
    for (int i = 0; i < ROWS * D; i++) {
        w->x[i] = pl_rng_normal(rng, (uint64_t)i);
        w->hidden[i] = 3 * pl_rng_normal(rng, (uint64_t)(i + ROWS * D));
    }
    for (int i = 0; i < ROWS; i++)
        w->token[i] = (i * 31 + 7) % TEST_VOCAB;
    w->rows = (pl_head_rows){.x = pl_tensor_2d(w->x, PL_F32, ROWS, D),
                             .hidden = pl_tensor_2d(w->hidden, PL_F32, ROWS, D),
                             .token = w->token,
                             .embed = w->b->embed};
    assert_int_equal(pl_ctx_init(&w->ctx, pl_backend_cpu(), NULL), PL_OK);
    assert_int_equal(pl_ctx_measure(&w->ctx, measure, w, &err), PL_OK);
}

static void close_world(world *w) {
    pl_ctx_fini(&w->ctx);
    pl_backbone_destroy(w->b);
    pl_llama_fini(&w->target);
    test_rmdir(w->dir);
    test_rmdir(w->draft);
}

// Draft ids that a group of rows reads, from the scores by the definition.
static void by_definition(world *w, int from, int to, bool in[TEST_VOCAB]) {
    const pl_head *h = &w->b->head;
    int64_t        n = pl_routed_of(h)->own->clusters, k = pl_routed_budget(pl_routed_of(h)->own, w->rows.level);
    memset(in, 0, TEST_VOCAB * sizeof *in);
    pl_ctx_begin(&w->ctx);
    pl_tensor e = pl_embed(&w->ctx, w->rows.embed, w->token, ROWS);
    pl_tensor s = pl_router_scores(&w->ctx, &pl_routed_of(h)->router, e, w->rows.hidden, w->rows.x);
    for (int row = from; row < to; row++)
        for (int64_t c = 0; c < n; c++) {
            const float *z = pl_f32(&s) + row * n;
            int64_t      before = 0;
            for (int64_t o = 0; o < n; o++)
                before += z[o] > z[c] || (z[o] == z[c] && o < c);
            for (int64_t v = pl_routed_of(h)->offset[c]; v < pl_routed_of(h)->offset[c + 1] && before < k; v++)
                in[v] = true;
        }
}

// logits and topk tell the same distribution: finite on the support alone, the k best of it in order.
static void check_group(world *w, int from, int to, const bool in[TEST_VOCAB], int k) {
    const pl_head *h = &w->b->head;
    pl_err         err = {0};
    pl_ctx_begin(&w->ctx);
    pl_tensor z = pl_head_logits(&w->ctx, h, &w->rows);
    pl_head_topk(&w->ctx, h, &w->rows, k, w->id, w->value, w->lse);
    assert_int_equal(pl_ctx_sync(&w->ctx, &err), PL_OK);
    for (int row = from; row < to; row++) {
        const float *y = pl_f32(&z) + row * TEST_VOCAB;
        double       sum = 0;
        int          rows = 0;
        for (int v = 0; v < TEST_VOCAB; v++) {
            assert_int_equal(isfinite(y[v]) != 0, in[v]);
            rows += in[v];
            sum += isfinite(y[v]) ? exp((double)y[v] - (double)w->lse[row]) : 0;
        }
        if (rows > 0) assert_true(fabs(sum - 1) < 1e-5);
        for (int r = 0; r < k; r++) {
            int32_t id = w->id[row * k + r];
            assert_int_equal(id >= 0, r < rows);
            if (id < 0) continue;
            assert_true(in[id] && y[id] == w->value[row * k + r]);
            assert_true(r == 0 || w->value[row * k + r] <= w->value[row * k + r - 1]);
        }
    }
}

static void supports(void **state) {
    (void)state;
    static const char *const heads[] = {"dynaspec:clusters=12,width=20,k0=4,k1=2",
                                        "dynaspec:clusters=12,router=coral,k0=3,fixed",
                                        "dynaspec:clusters=1,width=3,k0=1,k1=1",     // everything is one cluster
                                        "dynaspec:clusters=97,width=8,k0=200,k1=3"}; // k beyond the count
    static const int32_t     group[ROWS] = {0, 0, 0, 2, 5, 5, 5};
    static const int         first[] = {0, 3, 4, ROWS};
    for (size_t i = 0; i < sizeof heads / sizeof *heads; i++) {
        world *w = calloc(1, sizeof *w);
        bool   in[TEST_VOCAB], alone[TEST_VOCAB];
        int    differ = 0;
        open_world(w, heads[i]);
        for (w->rows.level = 0; w->rows.level < 4; w->rows.level++) {
            w->rows.group = group;
            for (int g = 0; g < 3; g++) {
                by_definition(w, first[g], first[g + 1], in);
                check_group(w, first[g], first[g + 1], in, 10);
                by_definition(w, 0, ROWS, alone); // a union across sessions would be larger
                differ += memcmp(in, alone, sizeof in) != 0;
            }
            w->rows.group = NULL;
            by_definition(w, 0, ROWS, in);
            check_group(w, 0, ROWS, in, 10);
        }
        assert_int_equal(differ > 0, i != 2);
        close_world(w);
        free(w);
    }
}

static void nan_is_refused(void **state) {
    (void)state;
    world *w = calloc(1, sizeof *w);
    pl_err err = {0};
    open_world(w, "dynaspec:clusters=12,width=20,k0=4,k1=2");
    w->hidden[3 * D] = NAN;
    pl_ctx_begin(&w->ctx);
    pl_head_topk(&w->ctx, &w->b->head, &w->rows, 4, w->id, w->value, w->lse);
    assert_int_equal(pl_ctx_sync(&w->ctx, &err), PL_E_INPUT);
    assert_string_equal(err.msg, "router: NaN at row 3; check the drafter's weights");
    close_world(w);
    free(w);
}

// The next example of a kind, for benches and plans; its rows are 0 where the shape has none.
static pl_head_example example_of(const char *kind, int n, int64_t vocab, int64_t d) {
    pl_head_example e = {.rows = vocab};
    pl_head_shape   shape = {.vocab = vocab, .d = d};
    assert_true(pl_head_find(kind, NULL)->example(&e, n, &shape));
    return e;
}

// Heads for measuring: their clusters are a table that a checkpoint could have.
static void examples(void **state) {
    (void)state;
    static const int64_t vocabs[] = {512, 1000, 50257, 128256};
    for (size_t i = 0; i < sizeof vocabs / sizeof *vocabs; i++)
        for (int n = 0; n < 4; n++) {
            pl_head_example e = example_of("dynaspec", n, vocabs[i], 64);
            pl_head         h;
            pl_err          err = {0};
            int64_t         v = vocabs[i], least = v, most = 0;
            assert_int_equal(e.rows, v);
            if (pl_head_init(&h, &e.spec, 64, v, &err) != PL_OK) fail_msg("%s", err.msg);
            assert_int_equal(h.kind->table->draw(&h, e.uneven, &err), PL_OK);
            const int64_t *o = pl_routed_of(&h)->offset, clusters = pl_routed_of(&h)->own->clusters;
            assert_true(o[0] == 0 && o[clusters] == v);
            for (int64_t c = 0; c < clusters; c++) {
                int64_t rows = o[c + 1] - o[c];
                assert_true(rows >= 0);
                least = rows < least ? rows : least;
                most = rows > most ? rows : most;
            }
            if (e.uneven)
                assert_true(most > least + 1);
            else
                assert_true(most - least <= 1 && least >= 128);
            pl_head_fini(&h);
        }
    assert_int_equal(example_of("dynaspec", 0, 511, 64).rows, 0); // a quarter of three clusters
    assert_int_equal(example_of("dynaspec", 0, 512, 7).rows, 0);
    pl_head_example e = example_of("specvocab", 0, 128256, 4096);
    assert_int_equal(pl_hf_head_int(&e.spec, "rank"), 512);
    assert_int_equal(pl_hf_head_int(&e.spec, "candidates"), 2004);
    assert_int_equal(example_of("specvocab", 0, 63, 4096).rows, 0);
    assert_int_equal(example_of("specvocab", 1, 128256, 15).rows, 0);
}

// Every kind's examples are heads that can be made, each under a name of its own.
static void examples_can_be_made(void **state) {
    (void)state;
    pl_head_shape   shape = {.vocab = 1000, .d = 64};
    pl_head_example e;
    char            seen[64][48];
    int             n = 0;
    for (int at = 0; pl_head_next_example(&e, &at, &shape, ~0u); n++) {
        pl_head h;
        pl_err  err = {0};
        if (pl_head_init(&h, &e.spec, shape.d, e.rows, &err) != PL_OK) fail_msg("%s: %s", e.name, err.msg);
        pl_head_fini(&h);
        for (int k = 0; k < n; k++)
            assert_string_not_equal(seen[k], e.name);
        strcpy(seen[n], e.name);
    }
    assert_true(n >= 15);
}

// ---- what is refused

static void refuse_spec(const char *text, const char *line) {
    pl_head    h;
    pl_err     err = {0};
    pl_hf_head spec = pl_hf_head_of(text);
    assert_int_equal(pl_head_init(&h, &spec, D, TEST_VOCAB, &err), PL_E_INPUT);
    if (!strstr(err.msg, line)) fail_msg("%s", err.msg);
    pl_head_fini(&h);
}

static void specs(void **state) {
    (void)state;
    refuse_spec("dynaspec:width=4,k0=1,k1=1", "clusters 0 must lie in 1..97");
    refuse_spec("dynaspec:clusters=98,width=4,k0=1,k1=1", "clusters 98");
    refuse_spec("dynaspec:clusters=9,width=4,k1=1", "k0 0");
    refuse_spec("dynaspec:clusters=9,width=4,k0=1", "k1 0");
    refuse_spec("dynaspec:clusters=9,k0=1,k1=1", "width 0");
    refuse_spec("dynaspec:clusters=9,width=4,k0=1,k1=1,position_aware",
                "position_aware is for heads whose rows lie in order of frequency");
    refuse_spec("full:size=1", "paceline.head.size: unknown; written by a newer paceline?");
    refuse_spec("lowrank:rank", "rank: expected an integer");
    refuse_spec("lowrank:rank=70000", "rank 70000 must lie in 1..65536");
    refuse_spec("full:position_aware=2", "expected true or false");
    refuse_spec("full:redistribute=1000", "expected an integer from 1 to 999");
    refuse_spec("dynaspec:clusters=9,k0=1,k1=1,router=mln", "router \"mln\" is not known; known are: mlp, coral");
}

// A checkpoint whose table is another's.
static void table(int64_t clusters, int64_t n, const int64_t *offset, const char *line) {
    char              dir[64], path[96];
    pl_weight_source *src;
    int64_t          *got;
    pl_err            err = {0};
    pl_st_source      t = {.name = "head_cluster_offsets", .dtype = PL_I64, .rank = 1, .shape = {n}, .data = offset};
    float             one = 1;
    pl_weight_spec    spec = {.part = {{.name = "x", .rows = 1}}, .n_parts = 1, .rows = 1};
    const float      *data[] = {&one};
    snprintf(path, sizeof path, "%s/model.safetensors", test_mkdir(dir));
    assert_int_equal(pl_weights_write(path, &spec, 1, data, PL_F32, &t, offset ? 1 : 0, NULL, 0, &err), PL_OK);
    assert_int_equal(pl_weight_source_open(&src, dir, &err), PL_OK);
    pl_status st = pl_routed_read_offsets(&got, src, clusters, 10, &err);
    assert_int_equal(st, line ? PL_E_INPUT : PL_OK);
    if (line && !strstr(err.msg, line)) fail_msg("%s", err.msg);
    if (!line) assert_memory_equal(got, offset, (size_t)n * sizeof *got);
    pl_free(got);
    pl_weight_source_close(src);
    test_rmdir(dir);
}

static void tables(void **state) {
    (void)state;
    table(3, 4, (const int64_t[]){0, 4, 4, 10}, NULL);
    table(3, 4, NULL, "no tensor \"head_cluster_offsets\", which a routed head needs");
    table(4, 4, (const int64_t[]){0, 4, 4, 10}, "expected int64 [5]");
    table(3, 4, (const int64_t[]){1, 4, 4, 10}, "does not lead from 0 up to the head's 10 rows");
    table(3, 4, (const int64_t[]){0, 4, 4, 11}, "does not lead");
    table(3, 4, (const int64_t[]){0, 5, 4, 10}, "does not lead");
    table(3, 4, (const int64_t[]){0, -1, 4, 10}, "does not lead");
}

// A drafter for another vocabulary says so before its map is looked at.
static void another_vocabulary(void **state) {
    (void)state;
    char                dir[64], other[64], draft[64];
    pl_llama            m, o;
    pl_backbone        *b;
    pl_err              err = {0};
    pl_backbone_options options = {.head = pl_hf_head_of("dynaspec:clusters=9,width=8,k0=2,k1=2")};
    test_target(&m, test_mkdir(dir), 2, 11, PL_BF16);
    test_target_sized(&o, test_mkdir(other), 2, TEST_VOCAB + 3, 12, PL_BF16);
    test_backbone_write(test_mkdir(draft), &o, &pl_backbone_eagle3, &options, 5);
    assert_int_equal(pl_backbone_open(&b, draft, &m, PL_BF16, &err), PL_E_INPUT);
    assert_non_null(strstr(err.msg, "made for a vocabulary of 100, the target has 97"));
    pl_llama_fini(&m);
    pl_llama_fini(&o);
    test_rmdir(dir);
    test_rmdir(other);
    test_rmdir(draft);
}

// ---- decoding

// One session or several, in which each has a support of its own; trees that want more candidates than a cluster has.
static void lossless(void **state) {
    (void)state;
    static const char *const heads[] = {
        "dynaspec:clusters=24,width=16,k0=10,k1=6", "dynaspec:clusters=24,router=coral,k0=8,fixed",
        "dynaspec:clusters=1,width=4,k0=1,k1=1", "dynaspec:clusters=97,width=4,k0=30,k1=8,kmin=5,floored"};
    char     dir[64], draft[64];
    pl_llama m;
    test_target(&m, test_mkdir(dir), 3, 11, PL_BF16); // as lossless.c makes it
    for (size_t i = 0; i < sizeof heads / sizeof *heads; i++) {
        pl_backbone_options o = {.head = pl_hf_head_of(heads[i])};
        test_backbone_write(test_mkdir(draft), &m, &pl_backbone_eagle3, &o, 5);
        test_lossless(draft, "eagle2:20,8,3");
        test_lossless(draft, "static:8x3");
        test_rmdir(draft);
    }
    pl_llama_fini(&m);
    test_rmdir(dir);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(budgets),
        cmocka_unit_test(budgets_of_checkpoints),
        cmocka_unit_test(choosing),
        cmocka_unit_test(spans),
        cmocka_unit_test(supports),
        cmocka_unit_test(nan_is_refused),
        cmocka_unit_test(specs),
        cmocka_unit_test(tables),
        cmocka_unit_test(another_vocabulary),
        cmocka_unit_test(lossless),
        cmocka_unit_test(examples),
        cmocka_unit_test(examples_can_be_made),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
