// Drafters with a vocabulary of their own, the real ones on toy models and toy tokenizers, and heads that draft blocks,
// enumerated: over all draws of the draft and all coins of verification, what is emitted (continued by the target where
// verification stopped early) follows the target's joint distribution within 1e-14. Biased controls must fail. What each accepts is what the paper
// says (arXiv 2502.05202, Table 3, Theorems 3.1 and 4.1).
#include "infer/drafter/translation.h"
#include "infer/verify/verify.h"
#include "tests/infer/biased.h"
#include "tests/infer/enumerate.h"
#include "tests/infer/fixture.h"

#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

enum { V = 5, DEPTH_MAX = 2, PREFIXES = 1 + 5 + 25 + 125, PROMPT = 3, SLOTS = 24, NODES = 16 };
#define EXACT 1e-14

// Two vocabularies over two letters. Merges cross the borders of drafts: "a" then "b" is "ab" to the target, "ab" then
// "b" "abb" to the drafter, which lacks "ba" and "aba" and has three that the target lacks.
static const char *const target_pieces[] = {"a", "b", "ab", "ba", "aba", NULL};
static const char *const target_merges[] = {"a b", "b a", "ab a", NULL};
static const char *const draft_pieces[] = {"b", "a", "bb", "ab", "abb", "aa", NULL};
static const char *const draft_merges[] = {"b b", "a b", "ab b", "a a", NULL};
// A third one that shares nothing with the target, and cannot be spelled by it.
static const char *const other_pieces[] = {"x", "y", "xy", "yx", "xyx", "yy", NULL};
static const char *const other_merges[] = {"x y", "y x", "xy x", "y y", NULL};

static const int32_t prompt[PROMPT] = {0, 3, 2};

// Drafters with a checkpoint, which read features.
static const struct {
    const char             *name;
    const pl_backbone_kind *kind;
    pl_backbone_options     options;
    const char             *head;
} heads[] = {
    {"medusa", &pl_backbone_medusa, {.block = 2}, "full"},
    {"hydra", &pl_backbone_hydrapp, {.block = 2, .layers = 1}, "full"},
    {"markov", &pl_backbone_dflash, {.layers = 1, .block = 3, .mask_token = 1}, "markov:rank=3"},
    {"xpress", &pl_backbone_dflash, {.layers = 1, .block = 3, .mask_token = 1}, "xpress:rank=3,passes=1"},
    {"selector",
     &pl_backbone_dflash,
     {.layers = 1, .block = 3, .mask_token = 1, .selector = {.rank = 2, .candidates = 3, .law = PL_HF_LAW_LIST}},
     ""},
    {"lilicorr",
     &pl_backbone_dflash,
     {.layers = 1,
      .block = 3,
      .mask_token = 1,
      .selector = {.rank = 3, .candidates = 3, .law = PL_HF_LAW_FULL, .kind = PL_HF_LATTICE, .width = 8}},
     ""},
    {"lilicorr-list",
     &pl_backbone_dflash,
     {.layers = 1,
      .block = 3,
      .mask_token = 1,
      .selector = {.rank = 3, .candidates = 3, .law = PL_HF_LAW_LIST, .kind = PL_HF_LATTICE, .width = 8}},
     ""}};
enum { HEADS = sizeof heads / sizeof *heads };

// Returns the number of a drafter with a checkpoint; HEADS: none.
static int head_of(const char *name) {
    int i = 0;
    while (i < HEADS && strcmp(heads[i].name, name) != 0)
        i++;
    return i;
}

typedef struct world {
    char           dir[64], draft[64], same[64], other[64], heads[HEADS][64];
    pl_llama       target;
    pl_tokenizer  *tok;
    pl_draft_model p;        // the target once more, for its logits behind any text
    pl_ctx         ctx;      // of a drafter that reads the target's features,
    float         *features; // which may be any: [PROMPT, 4 d]
} world;

static world w;

static void write_model(char *dir, int vocab, uint64_t seed, const char *const *pieces, const char *const *merges) {
    pl_llama m;
    test_target_sized(&m, test_mkdir(dir), 2, vocab, seed, PL_BF16);
    test_tokenizer_write(dir, pieces, merges);
    pl_llama_fini(&m);
}

static pl_drafter_options options(const char *tree) {
    return (pl_drafter_options){.target = &w.target,
                                .dtype = PL_BF16,
                                .tree = tree,
                                .max_sessions = 1,
                                .max_rows = 64,
                                .slots = SLOTS,
                                .tok = w.tok};
}

static int setup(void **state) {
    (void)state;
    pl_err err = {0};
    test_target_sized(&w.target, test_mkdir(w.dir), 2, V, 23, PL_BF16);
    test_tokenizer_write(w.dir, target_pieces, target_merges);
    write_model(w.draft, 6, 29, draft_pieces, draft_merges);
    write_model(w.same, V, 31, target_pieces, target_merges);
    write_model(w.other, 6, 37, other_pieces, other_merges);
    for (int i = 0; i < HEADS; i++) {
        pl_backbone_options o = heads[i].options;
        if (*heads[i].head) o.head = pl_hf_head_of(heads[i].head);
        test_backbone_write(test_mkdir(w.heads[i]), &w.target, heads[i].kind, &o, 41);
    }
    w.features = calloc((size_t)(4 * PROMPT * w.target.shape.d), sizeof *w.features);
    for (int64_t i = 0; i < 4 * PROMPT * w.target.shape.d; i++)
        w.features[i] = pl_rng_normal(pl_rng_make(3, PL_STREAM_TEST, 0), (uint64_t)i);
    pl_drafter_options o = options("chain:1");
    if (pl_tokenizer_open(&w.tok, w.dir, &err) != PL_OK) return -1;
    return pl_draft_model_open(&w.p, w.dir, NULL, SLOTS, 1, 1, &o, &err) == PL_OK ? 0 : -1;
}

static int teardown(void **state) {
    (void)state;
    pl_draft_model_close(&w.p);
    pl_tokenizer_close(w.tok);
    pl_llama_fini(&w.target);
    test_rmdir(w.dir);
    test_rmdir(w.draft);
    test_rmdir(w.same);
    test_rmdir(w.other);
    for (int i = 0; i < HEADS; i++)
        test_rmdir(w.heads[i]);
    pl_ctx_fini(&w.ctx);
    free(w.features);
    return 0;
}

// ---- the target -----------------------------------------------------------------------------------------------------

typedef struct toy {
    pl_sampling          sampling;
    int                  depth;
    double               p[PREFIXES][V]; // by prefix: a number in base V behind all shorter ones
    pl_distribution_work work;
    pl_tree              tree;
    double               q[NODES][V], dist[V];
} toy;

static toy t;

static void tabulate(int prefix, int32_t *text, int n) {
    assert_true(pl_draft_model_context(&w.p, 0, text, n, true));
    const float *logits = pl_draft_model_run(&w.p);
    assert_non_null(logits);
    assert_true(pl_distribution(t.p[prefix], logits, V, &t.sampling, &(pl_history){0}, &t.work));
    if (n - PROMPT == t.depth) return;
    for (int32_t i = 0; i < V; i++) {
        text[n] = i;
        tabulate(prefix * V + 1 + i, text, n + 1);
    }
}

static void set(const pl_sampling *s, int depth) {
    int32_t text[SLOTS];
    pl_err  err = {0};
    t.sampling = *s;
    t.depth = depth;
    memcpy(text, prompt, sizeof prompt);
    if (!t.work.w) assert_int_equal(pl_distribution_work_init(&t.work, V, &err), PL_OK);
    tabulate(0, text, PROMPT);
}

static int prefix_of(int node) {
    int32_t path[PL_TREE_MAX];
    int     n = pl_tree_path(&t.tree, node, path), x = 0;
    for (int i = 1; i < n; i++)
        x = x * V + 1 + t.tree.token[path[i]];
    return x;
}

static bool dist_of(void *arg, int node, double *p) {
    (void)arg;
    memcpy(p, t.p[prefix_of(node)], sizeof t.p[0]);
    return true;
}

// Adds `weight` of what the target says after a prefix to all sequences of depth + 1 tokens.
static void go_on(int prefix, int len, double weight, double *joint) {
    if (len > t.depth) {
        joint[prefix] += weight;
        return;
    }
    for (int i = 0; i < V; i++)
        if (t.p[prefix][i] > 0) go_on(prefix * V + 1 + i, len + 1, weight * t.p[prefix][i], joint);
}

// ---- drafts ---------------------------------------------------------------------------------------------------------

typedef struct outcome {
    double  error, any, drafted; // any: probability that a drafted token is accepted; drafted: tokens, on average
    int64_t runs;
} outcome;

static pl_tensor features(const pl_drafter *d) {
    assert_true(d->n_taps <= 4);
    return pl_tensor_2d(w.features, PL_F32, PROMPT, d->n_taps * w.target.shape.d);
}

static void size_drafter(pl_ctx *ctx, void *arg) {
    pl_drafter *d = arg;
    d->kind->propose(d, ctx, &(pl_draft_batch){.features = features(d)});
}

static void draft(pl_drafter *d, pl_proposal kind, pl_coin *coin) {
    pl_ctx         plain = {.be = pl_backend_cpu()}, *ctx = d->n_taps ? &w.ctx : &plain;
    pl_proposing   o = {.kind = kind,
                        .sampling = &t.sampling,
                        .coin = coin,
                        .q = &t.q[0][0],
                        .q_rows = NODES,
                        .vocab = V,
                        .work = &t.work,
                        .dist = t.dist};
    pl_draft_item  it = {.tokens = prompt,
                         .n_tokens = PROMPT,
                         .first = 0,
                         .count = PROMPT - 1,
                         .feature_row = (const int32_t[]){0, 1},
                         .tree = &t.tree,
                         .depth = d->policy.depth,
                         .proposing = kind == PL_PROPOSE_TOP || t.sampling.temperature == 0 ? NULL : &o,
                         .writing = t.sampling.temperature == 0 ? NULL : &o};
    pl_draft_batch b = {.item = &it, .n = 1, .features = features(d)};
    pl_tree_root(&t.tree, prompt[PROMPT - 1]);
    if (d->n_taps) pl_ctx_begin(ctx);
    d->kind->propose(d, ctx, &b);
    assert_int_equal(ctx->err.status, PL_OK);
    pl_tree_finish(&d->policy, &t.tree);
}

static outcome enumerate_as(pl_drafter *d, const pl_verifier *v, pl_proposal kind) {
    static double joint[PREFIXES * V + 1 + V], want[PREFIXES * V + 1 + V];
    double        p[V], q[V], r[V], total = 0;
    outcome       o = {0};
    test_every    e;
    memset(joint, 0, sizeof joint);
    memset(want, 0, sizeof want);
    for (test_every_begin(&e); test_every_next(&e);) {
        pl_verdict   out;
        pl_verify_in in = {.tree = &t.tree, .dist = dist_of, .v = V, .coin = &e.coin, .p = p, .q = q, .r = r};
        draft(d, kind, &e.coin);
        pl_verify(v, &in, &out);
        assert_true(out.bonus >= 0 && out.bonus < V);
        go_on(prefix_of(out.path[out.n]) * V + 1 + out.bonus, out.n + 1, e.probability, joint);
        total += e.probability;
        o.any += out.n > 0 ? e.probability : 0;
        o.drafted += e.probability * (t.tree.n - 1);
    }
    o.runs = e.runs;
    assert_true(fabs(total - 1) < 1e-12);
    go_on(0, 0, 1, want);
    for (size_t i = 0; i < sizeof joint / sizeof *joint; i++)
        o.error = fmax(o.error, fabs(joint[i] - want[i]));
    return o;
}

static outcome enumerate(pl_drafter *d, const pl_verifier *v) {
    return enumerate_as(d, v, v->proposal);
}

static pl_drafter *open_drafter(const char *name, const char *given, const char *tree) {
    const char        *dir = head_of(name) < HEADS ? w.heads[head_of(name)] : given;
    char               what[96];
    pl_drafter        *d;
    pl_err             err = {0};
    pl_drafter_options o = options(tree);
    bool               folder = head_of(name) < HEADS;
    snprintf(what, sizeof what, "%s%s%s", folder ? "" : name, folder ? "" : ":", dir);
    if (pl_drafter_open(&d, what, &o, &err) != PL_OK) fail_msg("%s: %s", what, err.msg);
    if (!folder) return d;
    pl_ctx_fini(&w.ctx);
    assert_int_equal(pl_ctx_init(&w.ctx, pl_backend_cpu(), NULL), PL_OK);
    assert_int_equal(pl_ctx_measure(&w.ctx, size_drafter, d, &err), PL_OK);
    return d;
}

static const pl_sampling samplings[] = {{.temperature = 1, .top_p = 1},
                                        {.temperature = 0.7, .top_p = 0.8},
                                        {.temperature = 1.3, .top_p = 1, .top_k = 3, .min_p = 0.1}};
enum { SAMPLINGS = sizeof samplings / sizeof *samplings };

static bool takes(const pl_drafter *d, const pl_verifier *v) {
    pl_err err = {0};
    return pl_verifier_takes(v, &d->policy, &err) == PL_OK && (!d->proposals || d->proposals >> v->proposal & 1);
}

// What can be combined, and how many of the verifiers that is.
static const struct {
    const char *name, *tree;
    int         verifiers;
} ways[] = {{"lm", "chain:2", 7},           {"lm", "static:2x1", 5},    {"tli", "chain:2", 7},
            {"tli", "static:2x1", 5},       {"union", "chain:2", 5},    {"slem", "chain:2", 1},
            {"slrs", "chain:2", 7},         {"omni", "chain:2", 7},     {"medusa", "chain:2", 7},
            {"medusa", "static:2x1", 5},    {"hydra", "chain:2", 7},    {"hydra", "static:2x1", 5},
            {"markov", "chain:2", 7},       {"xpress", "chain:2", 7},   {"xpress", "static:2x1", 5},
            {"selector", "chain:2", 7},     {"lilicorr", "chain:2", 7}, {"lilicorr", "static:2x1", 5},
            {"lilicorr-list", "chain:2", 7}};

static void dist_is_exact(void **state) {
    (void)state;
    int64_t cases = 0, runs = 0;
    double  worst = 0;
    for (size_t k = 0; k < sizeof ways / sizeof *ways; k++) {
        const char *name = ways[k].name;
        pl_drafter *d = open_drafter(name, strcmp(name, "lm") == 0 ? w.same : w.draft, ways[k].tree);
        int         verifiers = 0;
        for (int i = 0; pl_verifier_at(i); i++) {
            const pl_verifier *v = pl_verifier_at(i);
            if (!v->lossless || !takes(d, v)) continue;
            verifiers++;
            for (int s = 0; s < SAMPLINGS; s++) {
                set(&samplings[s], 2);
                outcome o = enumerate(d, v);
                if (!(o.error < EXACT))
                    fail_msg("%s, %s, %s, sampling %d: off by %.3g", ways[k].name, ways[k].tree, v->name, s, o.error);
                bool none =
                    strcmp(ways[k].name, "union") == 0 && v->proposal == PL_PROPOSE_TOP; // its best is not there
                if (s == 0 && !none && !(o.any > 0.01 && o.drafted > 0.3))
                    fail_msg("%s, %s: accepts %.3f of %.3f", ways[k].name, v->name, o.any, o.drafted);
                worst = fmax(worst, o.error);
                cases++;
                runs += o.runs;
            }
        }
        assert_int_equal(verifiers, ways[k].verifiers);
        pl_drafter_destroy(d);
    }
    print_message("%lld cases, %lld outcomes, off by %.2g at most\n", (long long)cases, (long long)runs, worst);
}

// No token in common: a plain step, for tokens and for strings.
static void nothing_in_common(void **state) {
    (void)state;
    static const char *const names[] = {"tli", "union", "slem", "slrs", "omni"};
    set(&samplings[0], 1);
    for (int k = 0; k < 5; k++) {
        pl_drafter        *d = open_drafter(names[k], w.other, "chain:1");
        const pl_verifier *v = k == 2 ? &pl_verify_match : &pl_verify_rejection;
        outcome            o = enumerate(d, v);
        assert_true(o.error < EXACT && o.any == 0 && o.drafted == 0);
        pl_drafter_destroy(d);
    }
}

static void controls_fail(void **state) {
    (void)state;
    const struct {
        const char        *name;
        const pl_verifier *v;
    } control[] = {{"medusa", &test_biased_no_residual},
                   {"medusa", &test_biased_fresh},
                   {"hydra", &test_biased_no_residual},
                   {"hydra", &test_biased_fresh},
                   {"xpress", &test_biased_no_residual},
                   {"xpress", &test_biased_fresh},
                   {"lilicorr", &test_biased_no_residual},
                   {"lilicorr", &test_biased_fresh},
                   {"tli", &test_biased_no_residual},
                   {"slrs", &test_biased_no_residual},
                   {"union", &test_biased_no_residual},
                   {"union", &test_biased_no_miss},
                   {"tli", &test_biased_fresh},
                   {"slrs", &test_biased_fresh},
                   {"omni", &test_biased_no_residual},
                   {"omni", &test_biased_fresh}};
    set(&samplings[0], 1);
    for (size_t k = 0; k < sizeof control / sizeof *control; k++) {
        pl_drafter *d = open_drafter(control[k].name, w.draft, "chain:1");
        outcome     o = enumerate(d, control[k].v);
        print_message("%s, %s: off by %.3f\n", control[k].name, control[k].v->name, o.error);
        assert_true(o.error > 0.005);
        pl_drafter_destroy(d);
    }
}

// ---- what is accepted -----------------------------------------------------------------------------------------------

// The drafter's distribution behind the prompt and, where it is not -1, a token of its own behind that, over its tokens.
static void drafters_own(int32_t behind, double *q) {
    pl_drafter_options   o = options("chain:1");
    pl_draft_model       m;
    pl_translation       tr;
    const pl_transcript *text;
    const float         *logits;
    pl_distribution_work work;
    pl_ctx               ctx = {.be = pl_backend_cpu()};
    pl_err               err = {0};
    assert_int_equal(pl_draft_model_open(&m, w.draft, NULL, SLOTS, 1, 1, &o, &err), PL_OK);
    assert_int_equal(pl_translation_open(&tr, &m, "test", &o, &err), PL_OK);
    assert_true(pl_translation_tell(&tr, &ctx, 0, prompt, PROMPT, &text));
    assert_true(pl_draft_model_context(&m, 0, text->ids, text->n, true));
    assert_int_equal(pl_distribution_work_init(&work, 6, &err), PL_OK);
    logits = pl_draft_model_run(&m);
    if (behind >= 0) {
        assert_int_equal(pl_draft_model_row(&m, 0, behind, -1), 0);
        logits = pl_draft_model_run(&m);
    }
    assert_true(pl_distribution(q, logits, 6, &t.sampling, &(pl_history){0}, &work));
    pl_distribution_work_fini(&work);
    pl_translation_close(&tr);
    pl_draft_model_close(&m);
}

// Theorem 4.1 and Table 3: union accepts sum min(p, q) over tokens in both, tli sum min(p, q / q(both)), which is no
// less.
static void intersection_beats_union(void **state) {
    (void)state;
    static const int in_both[3][2] = {{0, 1}, {1, 0}, {2, 3}}; // a, b, ab: the target's id, the drafter's
    pl_drafter      *tli = open_drafter("tli", w.draft, "chain:1"), *all = open_drafter("union", w.draft, "chain:1");
    double           q[6], both = 0, a1 = 0, a2 = 0;
    set(&samplings[0], 1);
    drafters_own(-1, q);
    for (int i = 0; i < 3; i++)
        both += q[in_both[i][1]];
    for (int i = 0; i < 3; i++) {
        a1 += fmin(t.p[0][in_both[i][0]], q[in_both[i][1]]);
        a2 += fmin(t.p[0][in_both[i][0]], q[in_both[i][1]] / both);
    }
    outcome of_union = enumerate(all, &pl_verify_rejection), of_tli = enumerate(tli, &pl_verify_rejection);
    assert_true(both < 0.95 && fabs(of_union.any - a1) < 1e-12 && fabs(of_tli.any - a2) < 1e-6);
    assert_true(of_tli.any > of_union.any + 0.01);
    for (int s = 0; s < SAMPLINGS; s++) {
        set(&samplings[s], 1);
        double with = enumerate(tli, &pl_verify_rejection).any, without = enumerate(all, &pl_verify_rejection).any;
        print_message("sampling %d: union accepts %.4f, tli %.4f\n", s, without, with);
    }
    pl_drafter_destroy(tli);
    pl_drafter_destroy(all);
}

// The n-gram cache knows "ba", which the prompt says and the drafter writes as "b" and "a", and not "aba", which nobody
// has said: the law of what is drawn. What becomes "ba" is no "b"; a "b" behind which nothing goes on is one.
static void cache_draws_what_was_said(void **state) {
    (void)state;
    enum { b, a, ab = 3 }; // the drafter's; the target's are a, b, ab, ba, aba
    pl_drafter *d = open_drafter("omni", w.draft, "chain:1"), *strings = open_drafter("slrs", w.draft, "chain:1");
    for (int s = 0; s < 2; s++) {
        double q[6], behind[6], psi[V] = {0}, all = 0, accepted = 0;
        set(&(pl_sampling){.temperature = s == 0 ? 3 : 1, .top_p = 1}, 1);
        drafters_own(-1, q);
        drafters_own(b, behind);
        bool on = q[b] / (q[a] + q[b] + q[ab]) >= 1.0 / 16;
        psi[0] = q[a];
        psi[1] = q[b] * (on ? 1 - behind[a] : 1);
        psi[2] = q[ab];
        psi[3] = q[b] * (on ? behind[a] : 0);
        for (int i = 0; i < V; i++)
            all += psi[i];
        for (int i = 0; i < V; i++)
            accepted += fmin(t.p[0][i], psi[i] / all);
        outcome o = enumerate(d, &pl_verify_rejection);
        print_message("temperature %g: the cache accepts %.4f, all strings %.4f\n", t.sampling.temperature, o.any,
                      enumerate(strings, &pl_verify_rejection).any);
        assert_true(fabs(o.any - accepted) < 1e-6 && o.error < EXACT);
        assert_true(psi[3] > 0.01);
    }
    pl_drafter_destroy(d);
    pl_drafter_destroy(strings);
}

// A text is drawn: several first tokens are drafted, each with the weight of its draws, and accepted by the target's own
// draw, which is independent of them: sum of p psi (Table 3).
static void texts_are_drawn(void **state) {
    (void)state;
    pl_drafter *d = open_drafter("slem", w.draft, "chain:1");
    for (int s = 0; s < SAMPLINGS; s++) {
        double     psi[V] = {0}, accepted = 0;
        int        tokens = 0;
        test_every e;
        set(&samplings[s], 1);
        for (test_every_begin(&e); test_every_next(&e);) {
            draft(d, PL_PROPOSE_TOP, &e.coin);
            if (t.tree.n > 1) psi[t.tree.token[1]] += e.probability;
        }
        for (int i = 0; i < V; i++) {
            tokens += psi[i] > 0;
            accepted += t.p[0][i] * psi[i];
        }
        outcome o = enumerate(d, &pl_verify_match);
        print_message("sampling %d: %d first tokens, accepts %.4f\n", s, tokens, o.any);
        assert_true(tokens > 1 && fabs(o.any - accepted) < 1e-12 && o.error < EXACT);
    }
    pl_drafter_destroy(d);
}

// A law of fewer strings is another one, and as exact; 16 is the number that a drafter has by itself.
static void fewer_strings_are_exact(void **state) {
    (void)state;
    static const char *const names[] = {"slrs", "omni"};
    static const char *const strings[] = {"1", "16", "1024"};
    set(&samplings[0], 1);
    for (int k = 0; k < 2; k++) {
        double any[3];
        for (int i = 0; i < 3; i++) {
            char what[96];
            snprintf(what, sizeof what, "%s,strings=%s", w.draft, strings[i]);
            pl_drafter *d = open_drafter(names[k], what, "chain:1");
            outcome     o = enumerate(d, &pl_verify_rejection);
            print_message("%s, %s strings a level: accepts %.4f\n", names[k], strings[i], o.any);
            assert_true(o.error < EXACT);
            any[i] = o.any;
            pl_drafter_destroy(d);
        }
        pl_drafter *d = open_drafter(names[k], w.draft, "chain:1");
        assert_true(enumerate(d, &pl_verify_rejection).any == any[1]);
        if (k == 0) assert_true(any[1] > any[0] + 0.01 && any[2] > any[1] + 0.01); // pruning costs here
        pl_drafter_destroy(d);
    }
    for (int i = 0; i < 4; i++) {
        static const char *const bad[] = {"0", "1025", "", "4x"};
        char                     what[96];
        pl_drafter              *d;
        pl_err                   err = {0};
        pl_drafter_options       o = options("chain:1");
        snprintf(what, sizeof what, "slrs:%s,strings=%s", w.draft, bad[i]);
        assert_int_equal(pl_drafter_open(&d, what, &o, &err), PL_E_USAGE);
        assert_non_null(strstr(err.msg, "expected strings=N, N in 1..1024"));
    }
}

// Theorem 3.1, q = p: a draw that is matched is accepted with probability sum p^2, one that is tested always. Where p
// is one token both are 1, against the theorem's words.
static void matching_accepts_less(void **state) {
    (void)state;
    pl_drafter *d = open_drafter("lm", w.dir, "chain:1");
    for (int s = 0; s < SAMPLINGS; s++) {
        double squares = 0;
        set(&samplings[s], 1);
        for (int i = 0; i < V; i++)
            squares += t.p[0][i] * t.p[0][i];
        outcome drawn = enumerate_as(d, &pl_verify_match, PL_PROPOSE_IID), tested = enumerate(d, &pl_verify_rejection);
        assert_true(fabs(drawn.any - squares) < 1e-12 && fabs(tested.any - 1) < 1e-12 && drawn.error < EXACT);
        assert_true(squares < 0.999);
    }
    set(&(pl_sampling){.temperature = 1, .top_p = 1, .top_k = 1}, 1);
    assert_true(enumerate_as(d, &pl_verify_match, PL_PROPOSE_IID).any == 1);
    assert_true(enumerate(d, &pl_verify_rejection).any == 1);
    pl_drafter_destroy(d);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(dist_is_exact),           cmocka_unit_test(nothing_in_common),
        cmocka_unit_test(controls_fail),           cmocka_unit_test(intersection_beats_union),
        cmocka_unit_test(matching_accepts_less),   cmocka_unit_test(cache_draws_what_was_said),
        cmocka_unit_test(fewer_strings_are_exact), cmocka_unit_test(texts_are_drawn),
    };
    return cmocka_run_group_tests(tests, setup, teardown);
}
