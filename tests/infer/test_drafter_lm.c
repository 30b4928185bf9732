// Models that draft for others: through the engine their output is plain decoding's; a cache that was kept, moved and
// cut back holds the bits of a new one; what cannot be combined is refused by name.
#include "infer/drafter/draft_model.h"
#include "kernels/base/rng.h"
#include "tests/infer/fixture.h"
#include "tests/infer/lossless.h"

#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <string.h>

#include <cmocka.h>

#include "tests/device.h"

enum { SLOTS = 60, DRAFTED = 24, SESSIONS = 3, PER_LEVEL = 4 };

// The same weights draft for themselves, at temperatures 0 and 1, alone and in company, with nothing allocated.
static void output_is_plain(void **state) {
    (void)state;
    static const char *const tree[] = {"chain:4",    "static:3x2x1",     "eagle2:20,4,3", "auto",
                                       "chain:auto", "chain:confidence", "beam:3,4",      "opt:20,4,6,0.4"};
    char                     dir[64], what[80];
    pl_llama                 m;
    test_target(&m, test_mkdir(dir), 3, 11, PL_BF16);
    snprintf(what, sizeof what, "lm:%s", dir);
    for (size_t i = 0; i < sizeof tree / sizeof *tree; i++)
        test_lossless(what, tree[i]);
    test_foresee(dir, &m, 300, 5);
    for (size_t i = 0; i < sizeof tree / sizeof *tree; i += 2)
        test_lossless(what, tree[i]);
    pl_llama_fini(&m);
    test_rmdir(dir);
}

// ---- the cache ------------------------------------------------------------------------------------------------------

typedef struct cached {
    pl_draft_model     model;
    pl_drafter_options o;
} cached;

static void open_model(cached *c, const char *dir, const pl_llama *target) {
    pl_err err = {0};
    c->o = (pl_drafter_options){.target = target, .dtype = PL_BF16, .max_sessions = SESSIONS, .slots = SLOTS};
    if (pl_draft_model_open(&c->model, dir, NULL, SLOTS, PER_LEVEL, DRAFTED, &c->o, &err) != PL_OK)
        fail_msg("%s", err.msg);
}

// The logits behind a text, read at once by a model that has read nothing.
static void fresh(cached *c, const int32_t *text, int n, float *logits) {
    pl_draft_model_reset(&c->model, 0);
    assert_true(pl_draft_model_context(&c->model, 0, text, n, true));
    const float *y = pl_draft_model_run(&c->model);
    assert_non_null(y);
    memcpy(logits, y, TEST_VOCAB * sizeof *y);
}

// Sessions side by side whose texts grow by what was drafted or by something else, or are cut back: every row of
// logits, of contexts and of drafted trees, is a new model's, bit for bit.
static void cache_holds_the_bits_of_a_new_one(void **state) {
    (void)state;
    char     dir[64];
    pl_llama m;
    cached   kept, other;
    int32_t  text[SESSIONS][SLOTS];
    int      n[SESSIONS] = {0};
    float    want[TEST_VOCAB];
    pl_rng   r = pl_rng_make(5, PL_STREAM_TEST, 0);
    uint64_t at = 0;
    int64_t  adopted = 0;
    test_target(&m, test_mkdir(dir), 2, 7, PL_BF16);
    open_model(&kept, dir, &m);
    open_model(&other, dir, &m);
    for (int round = 0; round < 120; round++) {
        for (int s = 0; s < SESSIONS; s++) {
            if (n[s] > 40) n[s] = (int)pl_rng_below(r, at++, 30);
            if (pl_rng_below(r, at++, 9) == 0) pl_draft_model_reset(&kept.model, s);
            for (int more = 1 + (int)pl_rng_below(r, at++, round % 7 == 0 ? 19 : 3); more > 0; more--)
                text[s][n[s]++] = (int32_t)pl_rng_below(r, at++, TEST_VOCAB);
            assert_true(pl_draft_model_context(&kept.model, s, text[s], n[s], true));
        }
        const float *y = pl_draft_model_run(&kept.model);
        for (int s = 0; s < SESSIONS; s++) {
            fresh(&other, text[s], n[s], want);
            assert_memory_equal(y + (ptrdiff_t)s * TEST_VOCAB, want, sizeof want);
        }
        // A tree of three levels; the text may go on along one of its paths.
        int32_t token[SESSIONS][DRAFTED];
        int     parent[SESSIONS][DRAFTED], used[SESSIONS] = {0};
        for (int level = 0; level < 3; level++) {
            for (int s = 0; s < SESSIONS; s++) {
                for (int k = 0, from = used[s]; k < 3; k++) {
                    int32_t id = (int32_t)pl_rng_below(r, at++, TEST_VOCAB);
                    int     p = level == 0 ? -1 : (int)pl_rng_below(r, at++, (uint64_t)from);
                    int     row = pl_draft_model_row(&kept.model, s, id, p);
                    assert_int_equal(row, used[s]);
                    token[s][row] = id;
                    parent[s][row] = p;
                    used[s]++;
                }
            }
            y = pl_draft_model_run(&kept.model);
            for (int s = 0, i = 0; s < SESSIONS; s++)
                for (int k = 0; k < 3; k++, i++) {
                    int32_t path[SLOTS];
                    int     deep = 0, row = used[s] - 3 + k;
                    for (int a = row; a >= 0; a = parent[s][a])
                        deep++;
                    memcpy(path, text[s], (size_t)n[s] * sizeof *path);
                    for (int a = row, to = n[s] + deep; a >= 0; a = parent[s][a])
                        path[--to] = token[s][a];
                    fresh(&other, path, n[s] + deep, want);
                    assert_memory_equal(y + (ptrdiff_t)i * TEST_VOCAB, want, sizeof want);
                }
        }
        for (int s = 0; s < SESSIONS; s++) {
            int row = (int)pl_rng_below(r, at++, (uint64_t)used[s] + 3), deep = 0;
            if (row >= used[s]) continue;
            for (int a = row; a >= 0; a = parent[s][a])
                deep++;
            for (int a = row, to = n[s] + deep; a >= 0; a = parent[s][a])
                text[s][--to] = token[s][a];
            n[s] += deep;
            adopted += deep;
        }
    }
    assert_true(adopted > 200);
    pl_draft_model_close(&kept.model);
    pl_draft_model_close(&other.model);
    pl_llama_fini(&m);
    test_rmdir(dir);
}

// Its caches hold what the target's do: logits over bf16 are those over fp32 but for that rounding.
static void cache_is_the_targets(void **state) {
    (void)state;
    const int32_t text[] = {3, 41, 7, 12, 25, 9, 30};
    char          dir[64];
    pl_llama      m;
    cached        c;
    float         y[2][TEST_VOCAB], most = 0;
    test_target(&m, test_mkdir(dir), 2, 7, PL_BF16);
    for (int k = 0; k < 2; k++) {
        m.shape.kv = k ? PL_BF16 : PL_F32;
        open_model(&c, dir, &m);
        fresh(&c, text, sizeof text / sizeof *text, y[k]);
        pl_draft_model_close(&c.model);
    }
    for (int v = 0; v < TEST_VOCAB; v++)
        most = fmaxf(most, fabsf(y[0][v] - y[1][v]));
    print_message("logits over a cache in bf16 differ by %.2g at most\n", (double)most);
    assert_true(most > 1e-5f && most < 0.1f);
    pl_llama_fini(&m);
    test_rmdir(dir);
}

// A context that does not fit, or rows that do not, are said to be so; nothing else happens.
static void limits(void **state) {
    (void)state;
    char     dir[64];
    pl_llama m;
    cached   c;
    int32_t  text[SLOTS + 1] = {0};
    test_target(&m, test_mkdir(dir), 2, 7, PL_BF16);
    open_model(&c, dir, &m);
    assert_false(pl_draft_model_context(&c.model, 0, text, SLOTS + 1, true));
    text[2] = TEST_VOCAB; // a token that it lacks
    assert_false(pl_draft_model_context(&c.model, 0, text, 5, true));
    text[2] = 0;
    assert_null(pl_draft_model_run(&c.model));
    assert_true(pl_draft_model_context(&c.model, 0, text, SLOTS, true));
    assert_non_null(pl_draft_model_run(&c.model));
    for (int i = 0; i < DRAFTED; i++) {
        assert_int_equal(pl_draft_model_row(&c.model, 0, 1, i - 1), i);
        assert_non_null(pl_draft_model_run(&c.model));
    }
    assert_int_equal(pl_draft_model_row(&c.model, 0, 1, 0), -1);
    assert_null(pl_draft_model_run(&c.model));
    pl_draft_model_close(&c.model);
    pl_llama_fini(&m);
    test_rmdir(dir);
}

// ---- what is chosen -------------------------------------------------------------------------------------------------

// The best that a run gives are those of its logits, bit for bit, of all tokens, of the first, or of a list, on the
// host and on a device; what may not be chosen adds nothing to the log-sum-exp, and past the last there is none.
static void best_of(const pl_backend *be, const char *dir, const int32_t *only, int n) {
    enum { K = 5, ROWS = 3 };
    pl_llama      m;
    pl_err        err = {0};
    cached        c;
    pl_draft_best b;
    bool          may[TEST_VOCAB] = {0};
    if (pl_llama_open(&m, dir, PL_BF16, be, &err) != PL_OK) fail_msg("%s", err.msg);
    open_model(&c, dir, &m);
    for (int i = 0; i < n; i++)
        may[only ? only[i] : i] = true;
    if (pl_draft_model_chooses(&c.model, K, true, only, n, &err) != PL_OK) fail_msg("%s", err.msg);
    for (int s = 0; s < ROWS; s++)
        assert_true(pl_draft_model_context(&c.model, s, (int32_t[]){7, 3 + s, 40}, 3, true));
    assert_true(pl_draft_model_results(&c.model, true, true, &b));
    for (int s = 0; s < ROWS; s++) {
        const float *z = b.logits + (ptrdiff_t)s * TEST_VOCAB;
        bool         taken[TEST_VOCAB] = {0};
        double       sum = 0;
        for (int i = 0; i < K; i++) {
            int best = -1;
            for (int v = 0; v < TEST_VOCAB; v++)
                if (may[v] && !taken[v] && (best < 0 || z[v] > z[best])) best = v;
            if (best < 0) {
                assert_true(b.id[s * K + i] < 0 || b.value[s * K + i] == -INFINITY);
                continue;
            }
            taken[best] = true;
            assert_int_equal(b.id[s * K + i], best);
            assert_memory_equal(&b.value[s * K + i], &z[best], sizeof *z);
        }
        for (int v = 0; v < TEST_VOCAB; v++)
            if (may[v]) sum += exp((double)z[v]);
        assert_true(fabs(b.lse[s] - log(sum)) < 1e-5);
    }
    assert_false(pl_draft_model_results(&c.model, true, true, &b)); // nothing was asked for
    pl_draft_model_close(&c.model);
    pl_llama_fini(&m);
}

static void best_are_those_of_the_logits(void **state) {
    (void)state;
    static const int32_t list[] = {90, 4, 11, 50, 51, 52, 0}, few[] = {33, 2};
    char                 dir[64];
    pl_llama             m;
    test_target(&m, test_mkdir(dir), 2, 7, PL_BF16);
    pl_llama_fini(&m);
    for (int device = 0; device < 2; device++) {
        const pl_backend *be = device ? test_device() : pl_backend_cpu();
        best_of(be, dir, NULL, TEST_VOCAB);
        best_of(be, dir, NULL, TEST_VOCAB - 9);
        best_of(be, dir, list, sizeof list / sizeof *list);
        best_of(be, dir, few, sizeof few / sizeof *few);
    }
    test_rmdir(dir);
}

// ---- what is foreseen ----------------------------------------------------------------------------------------------

typedef struct foreseeing {
    const float *w, *b;    // the prediction's weights
    double       z[SLOTS]; // by position
} foreseeing;

// Predicts from the target's hidden states, by hand.
static void predict_rows(void *arg, const pl_final_rows *r) {
    foreseeing *f = arg;
    int64_t     d = r->hidden.dim[1];
    for (int i = 0; i < r->count; i++) {
        const float *h = pl_f32(&r->hidden) + r->row[i] * d;
        double       z = (double)f->b[0];
        for (int64_t k = 0; k < d; k++)
            z += (double)f->w[k] * (double)h[k];
        f->z[r->first + i] = z;
    }
}

// How many of a text's cycles drafted so deep.
static void count_drafted(const pl_llama *m, const char *what, int64_t depth[4]) {
    pl_err             err = {0};
    pl_drafter        *d;
    pl_engine         *e;
    pl_session        *s;
    pl_drafter_options o = {
        .target = m, .dtype = PL_BF16, .tree = "chain:4", .max_sessions = 1, .max_rows = 64, .slots = SLOTS};
    pl_engine_options  eo = {.max_sessions = 1, .max_rows = 64, .max_len = SLOTS};
    pl_session_options so = {.sampling = {.top_p = 1}, .max_new = 40};
    if (pl_drafter_open(&d, what, &o, &err) != PL_OK) fail_msg("%s", err.msg);
    assert_int_equal(pl_engine_create(&e, pl_backend_cpu(), NULL, m, d, &eo, &err), PL_OK);
    assert_int_equal(pl_engine_start(e, (int32_t[]){7, 3, 40}, 3, &so, &s, &err), PL_OK);
    while (pl_session_finish(s) == PL_RUNNING)
        assert_int_equal(pl_engine_step(e, &err), PL_OK);
    for (int i = 0; i < 4; i++)
        depth[i] = pl_session_statistics(s)->position_drafted[i];
    pl_engine_end(e, s);
    pl_engine_destroy(e);
    pl_drafter_destroy(d);
}

// The prediction is that of the model's last hidden state, of contexts and of drafted rows, and drafts end by it.
static void foreseen_by_hidden_states(void **state) {
    (void)state;
    enum { N = 12 };
    char          dir[64], what[80];
    pl_err        err = {0};
    pl_llama      m;
    cached        c;
    pl_draft_best b;
    pl_engine    *e;
    pl_session   *s;
    int32_t       text[N];
    int64_t       whole[4], ended[4];
    test_target(&m, test_mkdir(dir), 2, 7, PL_BF16);
    snprintf(what, sizeof what, "lm:%s", dir);
    count_drafted(&m, what, whole);
    test_foresee(dir, &m, 300, 5);
    count_drafted(&m, what, ended);
    assert_true(whole[3] > 0 && ended[0] > 0 && ended[3] < ended[0]);
    open_model(&c, dir, &m);
    if (pl_draft_model_stops(&c.model, PL_F32, &err) != PL_OK) fail_msg("%s", err.msg);
    assert_int_equal(pl_draft_model_chooses(&c.model, 2, false, NULL, TEST_VOCAB, &err), PL_OK);
    assert_true(c.model.stops.max_rejection == 300 && fabs(pl_stopping_least(&c.model.stops) - 0.7) < 1e-9);
    char              path[128];
    pl_weight_source *src;
    snprintf(path, sizeof path, "%s/%s", dir, PL_STOPPING_FILE);
    assert_int_equal(pl_weight_source_open(&src, path, &err), PL_OK);
    foreseeing f = {.w = pl_weight_source_find(src, "acceptance_head.weight")->data,
                    .b = pl_weight_source_find(src, "acceptance_head.bias")->data};
    for (int i = 0; i < N; i++)
        text[i] = (i * 31 + 5) % TEST_VOCAB;
    pl_engine_options  eo = {.max_sessions = 1, .max_rows = 32, .max_len = SLOTS};
    pl_session_options so = {.sampling = {.top_p = 1}, .max_new = 1};
    assert_int_equal(pl_engine_create(&e, pl_backend_cpu(), NULL, &m, NULL, &eo, &err), PL_OK);
    pl_engine_on_final(e, predict_rows, &f);
    assert_int_equal(pl_engine_start(e, text, N, &so, &s, &err), PL_OK);
    while (pl_session_finish(s) == PL_RUNNING)
        assert_int_equal(pl_engine_step(e, &err), PL_OK);
    pl_engine_end(e, s);
    pl_weight_source_close(src);
    assert_true(pl_draft_model_context(&c.model, 0, text, N - 3, true));
    for (int at = N - 4; at < N; at++) { // a context's row, then drafted ones
        assert_true(pl_draft_model_results(&c.model, at % 2, true, &b));
        if (!(fabs((double)b.sure[0] - f.z[at]) < 1e-4)) fail_msg("row %d: %g, not %g", at, (double)b.sure[0], f.z[at]);
        if (at + 1 < N) assert_int_equal(pl_draft_model_row(&c.model, 0, text[at + 1], at + 3 - N), at + 4 - N);
    }
    pl_engine_destroy(e);
    pl_draft_model_close(&c.model);
    pl_llama_fini(&m);
    test_rmdir(dir);
}

// Files that no training has written.
static void malformed_predictions(void **state) {
    (void)state;
    char     dir[64], path[128], what[80];
    pl_llama m;
    pl_err   err = {0};
    float    w[64] = {0};
    int64_t  most[2] = {1000, 1};
    test_target(&m, test_mkdir(dir), 2, 7, PL_BF16);
    snprintf(path, sizeof path, "%s/%s", dir, PL_STOPPING_FILE);
    snprintf(what, sizeof what, "lm:%s", dir);
    const struct {
        int64_t     width, most_n;
        int         n;
        const char *says;
    } bad[] = {{47, 0, 2, "acceptance_head.weight"},
               {48, 0, 1, "acceptance_head.bias"},
               {48, 1, 3, "acceptance_head.max_rejection\": expected an int64 [1] from 1 to 999"},
               {48, 2, 3, "acceptance_head.max_rejection\": expected an int64 [1] from 1 to 999"}};
    for (size_t i = 0; i < sizeof bad / sizeof *bad; i++) {
        pl_st_source t[] = {
            {.name = "acceptance_head.weight", .dtype = PL_F32, .rank = 2, .shape = {1, bad[i].width}, .data = w},
            {.name = "acceptance_head.bias", .dtype = PL_F32, .rank = 1, .shape = {1}, .data = w},
            {.name = "acceptance_head.max_rejection",
             .dtype = PL_I64,
             .rank = 1,
             .shape = {bad[i].most_n},
             .data = most}};
        pl_drafter        *d;
        pl_drafter_options o = {
            .target = &m, .dtype = PL_BF16, .tree = "chain:2", .max_sessions = 1, .max_rows = 32, .slots = SLOTS};
        assert_int_equal(pl_st_write(path, t, bad[i].n, NULL, 0, &err), PL_OK);
        assert_int_equal(pl_drafter_open(&d, what, &o, &err), PL_E_INPUT);
        assert_null(d);
        if (!strstr(err.msg, bad[i].says) || !strstr(err.msg, PL_STOPPING_FILE)) fail_msg("%s", err.msg);
    }
    pl_llama_fini(&m);
    test_rmdir(dir);
}

// ---- what is refused ------------------------------------------------------------------------------------------------

static void refusals(void **state) {
    (void)state;
    char     dir[64], small[64], what[160];
    pl_llama m, n;
    pl_err   err = {0};
    test_target(&m, test_mkdir(dir), 2, 7, PL_BF16);
    test_target_sized(&n, test_mkdir(small), 2, 31, 7, PL_BF16);
    const struct {
        const char *name, *args, *tree, *message;
    } bad[] = {{"lm", "", "chain:2", "expected lm:PATH[:TOKENIZER]"},
               {"lm", "/nonexistent", "chain:2", "/nonexistent"},
               {"lm", small, "chain:2", "its vocabulary is not the target's; take slem:, tli: or slrs: for lm:"},
               {"tli", dir, "chain:2", "the target's tokenizer is not known"},
               {"union", dir, "static:2x2", "drafts chains, not the tree \"static:2x2\""},
               {"slem", dir, "eagle2:20,4,3", "drafts chains, not the tree \"eagle2:20,4,3\""},
               {"slem", dir, "chain:2", "the target's tokenizer is not known"}};
    for (size_t i = 0; i < sizeof bad / sizeof *bad; i++) {
        pl_drafter *d;
        snprintf(what, sizeof what, "%s:%s", bad[i].name, bad[i].args);
        pl_drafter_options o = {
            .target = &m, .dtype = PL_BF16, .tree = bad[i].tree, .max_sessions = 1, .max_rows = 32, .slots = SLOTS};
        err = (pl_err){0};
        assert_int_not_equal(pl_drafter_open(&d, what, &o, &err), PL_OK);
        assert_null(d);
        if (!strstr(err.msg, bad[i].message)) fail_msg("%s: %s", what, err.msg);
    }
    pl_llama_fini(&m);
    pl_llama_fini(&n);
    test_rmdir(dir);
    test_rmdir(small);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(output_is_plain),
        cmocka_unit_test(cache_is_the_targets),
        cmocka_unit_test(cache_holds_the_bits_of_a_new_one),
        cmocka_unit_test(limits),
        cmocka_unit_test(best_are_those_of_the_logits),
        cmocka_unit_test(foreseen_by_hidden_states),
        cmocka_unit_test(malformed_predictions),
        cmocka_unit_test(refusals),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
