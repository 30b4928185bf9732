// Answers under a grammar, of the built-in target: with drafts and without the same tokens, greedily and, with `match`,
// drawn; each that ends by itself is one of the grammar's texts; sessions with and without a grammar side by side. No
// tree holds a token that its grammar forbids, and a drafter that is the target itself is accepted under the grammar.
#include "infer/decode/decode.h"
#include "infer/grammar/constraint.h"
#include "infer/model/target.h"
#include "kernels/base/json.h"
#include "tests/checkpoints/scratch.h"

#define TINY PACELINE_SOURCE_DIR "/checkpoints/tiny"

enum { LEN = 120, SLOTS = 3 };

static const struct {
    pl_grammar_kind kind;
    const char     *text;
} grammars[] = {
    {PL_GRAMMAR_SCHEMA,
     "{\"type\":\"object\",\"properties\":{\"name\":{\"type\":\"string\",\"maxLength\":12},\"age\":{\"type\":"
     "\"integer\",\"minimum\":1,\"maximum\":99},\"tags\":{\"type\":\"array\",\"items\":{\"enum\":[\"red\","
     "\"blue\"]},\"maxItems\":3}},\"required\":[\"name\",\"age\",\"tags\"]}"},
    {PL_GRAMMAR_REGEX, "( [a-z]+){3,9}\\."},
    {PL_GRAMMAR_GBNF, "root ::= line{2}\nline ::= \"- \" [A-Za-z]+ (\" \" [a-z]+)* \"\\n\""},
};

typedef struct answer {
    int32_t   id[LEN], n;
    pl_finish finish;
    int64_t   accepted, drafted;
} answer;

static pl_target             target;
static pl_token_text        *tokens;
static pl_grammar_constraint constraint[SLOTS];

static void start(pl_engine *e, pl_sampling s, int i, pl_session **out) {
    int32_t           *ids;
    int64_t            n;
    pl_err             err = {0};
    static const char *prompt[] = {"Once upon a time there was", "The red ball and the blue ball,", "red blue red"};
    assert_ok(pl_tokenizer_encode(target.tok, prompt[i], strlen(prompt[i]), PL_TOK_ADD_BOS, &ids, &n, &err));
    pl_session_options o = {.sampling = s, .key = (uint64_t)i, .max_new = 60, .n_stop = target.n_stop};
    memcpy(o.stop, target.stop, sizeof o.stop);
    assert_ok(pl_engine_start(e, ids, (int)n, &o, out, &err));
    pl_free(ids);
}

// Counts drafted tokens that a session's grammar forbids.
static void count_forbidden(void *arg, const pl_cycle *cycle) {
    const pl_tree *t = cycle->tree;
    uint64_t       key = pl_session_key(cycle->session);
    if (key >= 2) return;
    pl_grammar    *g = constraint[key].grammar;
    int32_t        n, state[PL_TREE_GROWN];
    const int32_t *ids = pl_session_answer(cycle->session, &n);
    state[0] = pl_grammar_start(g);
    for (int i = 0; i < pl_session_length(cycle->session) - pl_session_prompt(cycle->session) - cycle->emitted; i++)
        state[0] = pl_grammar_token(g, state[0], ids[i]);
    for (int i = 1; i < t->n; i++) {
        bool ends = t->token[i] == target.stop[0] && pl_grammar_may_end(g, state[t->parent[i]]);
        state[i] = pl_grammar_token(g, state[t->parent[i]], t->token[i]);
        *(int *)arg += state[i] < 0 && !ends;
    }
}

// Three sessions: two with a grammar, the last without.
static void run(const char *drafter, const char *tree, const pl_verifier *v, double temperature, size_t grammar,
                answer *out) {
    pl_err                 err = {0};
    pl_drafter            *d = NULL;
    pl_engine             *e;
    pl_session            *s[SLOTS];
    int                    forbidden = 0;
    pl_grammar_constraint *c = constraint;
    pl_drafter_options     o = {.target = &target.model,
                                .dtype = PL_BF16,
                                .tree = tree,
                                .max_sessions = SLOTS,
                                .max_rows = SLOTS * 32,
                                .slots = LEN + 32,
                                .tok = target.tok};
    if (drafter) assert_ok(pl_drafter_open(&d, drafter, &o, &err));
    assert_ok(pl_engine_create(
        &e, pl_backend_cpu(), NULL, &target.model, d,
        &(pl_engine_options){.max_sessions = SLOTS, .max_rows = SLOTS * 32, .max_len = LEN, .verifier = v}, &err));
    pl_engine_on_cycle(e, count_forbidden, &forbidden);
    for (int i = 0; i < SLOTS; i++) {
        pl_sampling sampling = {.temperature = temperature, .top_p = 1, .top_k = temperature > 0 ? 20 : 0, .seed = 7};
        if (i < 2) {
            pl_grammar *g;
            assert_ok(pl_grammar_open(&g, grammars[grammar].kind, grammars[grammar].text,
                                      strlen(grammars[grammar].text), tokens, &err));
            assert_ok(pl_grammar_constraint_init(&c[i], g, target.model.vocab, target.stop, target.n_stop, &err));
            sampling.constraint = &c[i].base;
        }
        start(e, sampling, i, &s[i]);
    }
    for (bool running = true; running;) {
        assert_ok(pl_engine_step(e, &err));
        running = false;
        for (int i = 0; i < SLOTS; i++)
            running |= pl_session_finish(s[i]) == PL_RUNNING;
    }
    for (int i = 0; i < SLOTS; i++) {
        const int32_t *ids = pl_session_answer(s[i], &out[i].n);
        memcpy(out[i].id, ids, (size_t)out[i].n * sizeof *ids);
        out[i].finish = pl_session_finish(s[i]);
        out[i].accepted = pl_session_statistics(s[i])->accepted;
        out[i].drafted = pl_session_statistics(s[i])->drafted;
        if (i < 2 && out[i].finish == PL_STOPPED) assert_true(pl_grammar_constraint_met(&c[i], ids, out[i].n));
        if (i < 2) assert_false(pl_grammar_failed(c[i].grammar));
        pl_engine_end(e, s[i]);
        pl_grammar_constraint_fini(&c[i]);
    }
    assert_int_equal(forbidden, 0);
    pl_engine_destroy(e);
    pl_drafter_destroy(d);
}

static void drafts_change_nothing(void **state) {
    (void)state;
    static const struct {
        const char        *drafter, *tree;
        const pl_verifier *v;
        double             temperature;
    } with[] = {{"lookup", "chain:4", &pl_verify_match, 0},        {"recycle:8", NULL, &pl_verify_match, 0},
                {"lookup", "chain:4", &pl_verify_match, 1},        {"suffix:8", NULL, &pl_verify_match, 0.8},
                {"hybrid:lookup", NULL, &pl_verify_match, 0},      {"lm:" TINY, "chain:4", &pl_verify_match, 0},
                {"lm:" TINY, "static:2x2x1", &pl_verify_match, 1}, {"slem:" TINY, "chain:4", &pl_verify_match, 0.8}};
    static answer plain[SLOTS], got[SLOTS];
    int64_t       accepted = 0, stopped = 0, same[2] = {0};
    for (size_t g = 0; g < sizeof grammars / sizeof *grammars; g++)
        for (size_t k = 0; k < (g > 0 ? 4 : sizeof with / sizeof *with); k++) {
            run(NULL, NULL, NULL, with[k].temperature, g, plain);
            run(with[k].drafter, with[k].tree, with[k].v, with[k].temperature, g, got);
            for (int i = 0; i < SLOTS; i++) {
                if (plain[i].n != got[i].n || plain[i].finish != got[i].finish ||
                    memcmp(plain[i].id, got[i].id, (size_t)got[i].n * sizeof *got[i].id) != 0)
                    fail_msg("grammar %zu, %s, session %d: other tokens than plain", g, with[k].drafter, i);
                if (i < 2) accepted += got[i].accepted;
                if (i < 2 && k == 5) same[0] += got[i].accepted, same[1] += got[i].drafted;
                if (i < 2) stopped += got[i].finish == PL_STOPPED;
            }
        }
    print_message("%lld drafts accepted, %lld of 32 answers ended by themselves; of the target's own %lld of %lld\n",
                  (long long)accepted, (long long)stopped, (long long)same[0], (long long)same[1]);
    assert_true(accepted > 20 && stopped > 8);
    assert_true(same[1] > 60 && 20 * same[0] > 19 * same[1]); // but for what stands behind the end
}

static int open_target(void **state) {
    (void)state;
    pl_err err = {0};
    assert_ok(pl_target_open(&target, TINY, NULL, NULL, PL_WEIGHTS_AUTO, pl_backend_cpu(), &err));
    assert_ok(pl_token_text_open(&tokens, target.tok, &err));
    return 0;
}

static int close_target(void **state) {
    (void)state;
    pl_token_text_close(tokens);
    pl_target_close(&target);
    return 0;
}

int main(void) {
    const struct CMUnitTest tests[] = {cmocka_unit_test(drafts_change_nothing)};
    return cmocka_run_group_tests(tests, open_target, close_target);
}
