// Losslessness through the production path: engine, kernels, EAGLE-3 drafter, drawn trees, verifiers. Of many short
// answers to one prompt the joint distribution of all tokens is known (from plain decoding's logits); a G-test
// compares. Seeds are fixed. Biased controls must fail.
//   PACELINE_TEST_DRAWS: emitted draws of each test [20000]; tests/shown.sh verify takes 1e6
#include "tests/infer/biased.h"
#include "tests/infer/fixture.h"

#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

enum { V = 5, LENGTH = 4, CELLS = V * V * V * V, SESSIONS = 32, MAX_LEN = 16 };

static const int32_t prompt[] = {1, 3};
enum { PROMPT = 2 };

typedef struct world {
    char          dir[64], draft[64];
    pl_llama      target;
    const char   *way;     // how draft's model drafts ("tli"); NULL: it is a backbone
    pl_tokenizer *tok;     // the target's, where there is a way
    bool          selects; // its head has a selector
    bool          hybrid;  // its drafter is one of two among which the engine chooses
    bool          stops;   // drafts end by the drafter's own probability
    const char   *tree;    // NULL: k children of every node
    bool          chooses; // a control: a tree that chooses among drawn nodes, passed off as predictable
} world;

// ---- a static tree: k children of every node ------------------------------------------------------------------------

static int grow(const pl_tree_policy *p, pl_tree *t, int level, const int *frontier, int n, const int32_t *id,
                const float *logp, int *next) {
    int m = 0;
    (void)level, (void)logp;
    for (int i = 0; i < n; i++)
        for (int c = 0; c < p->k && id[i * p->k + c] >= 0; c++) {
            int before = t->n, node = pl_tree_add(t, frontier[i], id[i * p->k + c], 0);
            if (node == before && m < p->width) next[m++] = node;
        }
    return m;
}

static const pl_tree_kind full_tree = {.name = "full", .fixed_shape = true, .grow = grow};

static pl_tree_policy policy_of(int k, int depth) {
    pl_tree_policy p = {.kind = &full_tree, .depth = depth, .depth_max = depth, .k = k, .width = 1, .max_nodes = 1};
    for (int i = 1, level = k; i <= depth; i++, level *= k) {
        p.max_nodes += level;
        if (i < depth) p.width = level;
    }
    return p;
}

// ---- what should come -----------------------------------------------------------------------------------------------

typedef struct plain_dist {
    const pl_sampling   *sampling;
    pl_distribution_work work;
    double               p[V];
} plain_dist;

static void take_dist(void *arg, const pl_final_rows *r) {
    plain_dist *l = arg;
    int         last = r->logits_row[r->row[r->count - 1]];
    if (last < 0 || r->first + r->count != pl_session_prompt(r->session)) return;
    uint32_t said[1] = {0}; // V is below 32
    for (int i = 0; i < pl_session_prompt(r->session); i++)
        pl_said_add(said, pl_session_tokens(r->session)[i]);
    pl_history h = {.said = said};
    assert_true(pl_distribution(l->p, r->logits + (int64_t)last * V, V, l->sampling, &h, &l->work));
}

static void expect_after(pl_engine *e, plain_dist *l, int32_t *tokens, int n, double weight, double *cell) {
    pl_err      err = {0};
    pl_session *s;
    int         at = 0;
    if (n == LENGTH) {
        for (int i = 0; i < LENGTH; i++)
            at = at * V + tokens[PROMPT + i];
        cell[at] = weight;
        return;
    }
    pl_session_options so = {.sampling = *l->sampling, .max_new = 1};
    assert_int_equal(pl_engine_start(e, tokens, PROMPT + n, &so, &s, &err), PL_OK);
    while (pl_session_finish(s) == PL_RUNNING)
        assert_int_equal(pl_engine_step(e, &err), PL_OK);
    pl_engine_end(e, s);
    double p[V];
    memcpy(p, l->p, sizeof p);
    for (int i = 0; i < V; i++) {
        tokens[PROMPT + n] = i;
        expect_after(e, l, tokens, n + 1, weight * p[i], cell);
    }
}

// The joint distribution of LENGTH tokens, from plain decoding's logits after every beginning.
static void expect(const world *w, const pl_sampling *s, double *cell) {
    pl_err            err = {0};
    pl_engine        *e;
    int32_t           tokens[MAX_LEN] = {0};
    plain_dist        l = {.sampling = s};
    pl_engine_options o = {.max_sessions = 1, .max_rows = MAX_LEN, .max_len = MAX_LEN};
    assert_int_equal(pl_distribution_work_init(&l.work, V, &err), PL_OK);
    assert_int_equal(pl_engine_create(&e, pl_backend_cpu(), NULL, &w->target, NULL, &o, &err), PL_OK);
    pl_engine_on_final(e, take_dist, &l);
    memcpy(tokens, prompt, sizeof prompt);
    expect_after(e, &l, tokens, 0, 1, cell);
    pl_engine_destroy(e);
    pl_distribution_work_fini(&l.work);
}

// ---- what comes -----------------------------------------------------------------------------------------------------

typedef struct sample {
    int64_t cell[CELLS], answers;
    int64_t accepted, steps;
    int64_t drafted[2]; // steps that drafted so deep
} sample;

static void harvest(pl_session *s, sample *out) {
    int at = 0;
    assert_int_equal(pl_session_length(s), PROMPT + LENGTH);
    for (int i = 0; i < LENGTH; i++)
        at = at * V + pl_session_tokens(s)[PROMPT + i];
    out->cell[at]++;
    out->answers++;
    out->accepted += pl_session_statistics(s)->accepted;
    out->steps += pl_session_statistics(s)->steps;
    for (int l = 0; l < 2; l++)
        out->drafted[l] += pl_session_statistics(s)->position_drafted[l];
}

// Makes steps without drafts slow, so that drafts pay where there are two drafters; all arms are tried before.
static void slow_plain(void *arg, const pl_cycle *c) {
    (void)arg;
    for (double began = pl_now(); c->tree->n == 1 && pl_now() - began < 1e-4;) {
    }
}

static void draw(const world *w, const pl_verifier *v, const pl_tree_policy *policy, const pl_sampling *sampling,
                 int64_t answers, sample *out) {
    pl_err      err = {0};
    pl_drafter *d;
    pl_engine  *e;
    pl_session *s[SESSIONS] = {0};
    int         rows = SESSIONS * (w->hybrid ? 64 : policy->max_nodes), running = 0;
    memset(out, 0, sizeof *out);
    pl_drafter_options od = {.target = &w->target,
                             .dtype = PL_BF16,
                             .max_sessions = SESSIONS,
                             .max_rows = rows,
                             .slots = MAX_LEN + policy->max_nodes,
                             .tree = policy->k == 1 ? "chain:2" : "static:2x2",
                             .tok = w->tok};
    char               what[96];
    snprintf(what, sizeof what, "%s%s%s", w->way ? w->way : "", w->hybrid ? "+" : ":", w->draft);
    if (w->hybrid) od.tree = "chain:auto";
    pl_backbone *model = NULL;
    pl_status    st =
        w->way ? pl_drafter_open(&d, what, &od, &err) : pl_backbone_open(&model, w->draft, &w->target, PL_BF16, &err);
    if (st == PL_OK && model) st = pl_drafter_over(&d, model, policy, &od, &err);
    if (st != PL_OK) fail_msg("%s", err.msg);
    pl_engine_options o = {.max_sessions = SESSIONS, .max_rows = rows, .max_len = MAX_LEN, .verifier = v};
    assert_int_equal(pl_engine_create(&e, pl_backend_cpu(), NULL, &w->target, d, &o, &err), PL_OK);
    if (w->hybrid) pl_engine_on_cycle(e, slow_plain, NULL);
    for (int64_t started = 0; started < answers || running > 0;) {
        bool begins = true;
        for (int i = 0; i < SESSIONS; i++)
            begins &= !s[i] || pl_session_finish(s[i]) != PL_RUNNING;
        for (int i = 0; i < SESSIONS; i++) {
            if (s[i] && pl_session_finish(s[i]) != PL_RUNNING) {
                harvest(s[i], out);
                pl_engine_end(e, s[i]);
                s[i] = NULL;
                running--;
            }
            // Blocks of arms count steps without prompts alone, so sessions begin together.
            if (s[i] || started == answers || (w->hybrid && !begins)) continue;
            pl_session_options so = {.sampling = *sampling, .key = (uint64_t)started++, .max_new = LENGTH};
            assert_int_equal(pl_engine_start(e, prompt, PROMPT, &so, &s[i], &err), PL_OK);
            running++;
        }
        assert_int_equal(pl_engine_step(e, &err), PL_OK);
    }
    pl_engine_destroy(e);
    pl_drafter_destroy(d);
    pl_backbone_destroy(model);
}

// How far a G-test's statistic lies above what chance gives, in standard deviations (Wilson and Hilferty 1931). Cells
// where less than 5 are expected are put together.
static double deviation(const sample *s, const double *dist) {
    double g = 0, few = 0;
    double few_seen = 0;
    int    df = -1;
    for (int i = 0; i <= CELLS; i++) {
        double seen = i < CELLS ? (double)s->cell[i] : few_seen, want = i < CELLS ? dist[i] * (double)s->answers : few;
        if (i < CELLS && dist[i] == 0 && seen > 0) return INFINITY;
        if (i < CELLS && want < 5) {
            few += want;
            few_seen += seen;
            continue;
        }
        if (want < 5) continue; // the rest
        if (seen > 0) g += 2 * seen * log(seen / want);
        df++;
    }
    assert_true(df > 3);
    double c = 2 / (9.0 * df);
    return (cbrt(fmax(g, 0) / df) - (1 - c)) / sqrt(c);
}

static const pl_sampling plain = {.temperature = 1, .top_p = 1, .seed = 5};
static const pl_sampling processed = {
    .temperature = 0.8, .top_k = 4, .top_p = 0.95, .min_p = 0.02, .repetition_penalty = 1.2, .seed = 6};

static int64_t answers_wanted(void) {
    const char *s = getenv("PACELINE_TEST_DRAWS");
    int64_t     draws = s ? atoll(s) : 20000;
    return (draws + LENGTH - 2) / (LENGTH - 1); // the first token is the prompt's
}

// Chains of two that end behind a first token which the drafter gives less than this.
static pl_tree_policy stopping(void) {
    pl_tree_policy p;
    pl_err         err;
    assert_int_equal(pl_tree_policy_parse(&p, "chain:confidence", &err), PL_OK);
    p.adapt = false;
    pl_tree_shape_set(&p, 3, (const int32_t[]){-1, 0, 1});
    for (int l = 0; l < PL_TREE_MAX; l++)
        p.least[l] = logf(0.3F);
    return p;
}

static pl_tree_policy tree_of(const world *w, int k) {
    static pl_tree_kind claimed;
    pl_tree_policy      p;
    pl_err              err;
    if (w->stops) return stopping();
    if (!w->tree) return policy_of(k, 2);
    if (pl_tree_policy_parse(&p, w->tree, &err) != PL_OK) fail_msg("%s", err.msg);
    claimed = *p.kind;
    claimed.predictable = true;
    if (w->chooses) p.kind = &claimed;
    return p;
}

// Returns the deviation.
static double check(const world *w, const pl_verifier *v, int k, const pl_sampling *sampling, const char *what) {
    static double  dist[CELLS];
    static sample  s;
    pl_tree_policy policy = tree_of(w, k);
    expect(w, sampling, dist);
    draw(w, v, &policy, sampling, answers_wanted(), &s);
    double z = deviation(&s, dist), per_step = (double)s.accepted / (double)s.steps;
    print_message("%-28s %s of %d, %s: %lld draws, %.2f accepted a step, z %.2f\n", v->name, what, k,
                  sampling == &plain ? "plain" : "processed", (long long)(s.answers * (LENGTH - 1)), per_step, z);
    assert_true(per_step > (w->way ? 0.02 : w->selects ? 0.05 : 0.1)); // drafts count
    if (w->stops) {
        double ended = 1 - (double)s.drafted[1] / (double)s.drafted[0];
        print_message("  %.2f of the drafts ended by confidence\n", ended);
        assert_true(ended > 0.2 && ended < 0.95); // of length, some do not reach the end of an answer
    }
    return z;
}

static void open_kind(world *w, const pl_backbone_kind *kind, const pl_backbone_options *o) {
    *w = (world){.selects = o->selector.candidates > 0};
    test_target_sized(&w->target, test_mkdir(w->dir), 4, V, 23, PL_BF16);
    test_backbone_write(test_mkdir(w->draft), &w->target, kind, o, 29);
}

static void open_world(world *w, const pl_backbone_options *o) {
    open_kind(w, o->block > 0 ? &pl_backbone_dflash : &pl_backbone_eagle3, o);
}

static void close_world(world *w) {
    pl_llama_fini(&w->target);
    test_rmdir(w->dir);
    test_rmdir(w->draft);
}

static void dist_is_the_targets(void **state) {
    (void)state;
    world w;
    open_world(&w, &(pl_backbone_options){0});
    for (int i = 0; pl_verifier_at(i); i++) {
        const pl_verifier *v = pl_verifier_at(i);
        if (!v->lossless) continue;
        assert_true(check(&w, v, 1, &plain, "chain") < 4);
        assert_true(check(&w, v, v->chain ? 1 : 2, &processed, v->chain ? "chain" : "tree") < 4);
        if (!v->chain) assert_true(check(&w, v, 2, &plain, "tree") < 4);
    }
    close_world(&w);
}

// A head whose distribution leaves tokens out, others for each row: they come all the same.
static void dist_with_candidates(void **state) {
    (void)state;
    world w;
    open_world(&w, &(pl_backbone_options){.head = pl_hf_head_of("specvocab:rank=3,candidates=3")});
    for (int i = 0; pl_verifier_at(i); i++) {
        const pl_verifier *v = pl_verifier_at(i);
        if (v->lossless) assert_true(check(&w, v, v->chain ? 1 : 2, &plain, "3 candidates") < 4);
    }
    assert_true(check(&w, &test_biased_no_residual, 1, &plain, "3 candidates") > 6);
    close_world(&w);
}

// A list of three tokens that gives a fifth of its mass to the others.
static void dist_redistributed(void **state) {
    (void)state;
    static const int32_t d2t[] = {4, 1, 2};
    world                w;
    open_world(&w,
               &(pl_backbone_options){.head = pl_hf_head_of("full:redistribute=200"), .d2t = d2t, .draft_vocab = 3});
    for (int i = 0; pl_verifier_at(i); i++) {
        const pl_verifier *v = pl_verifier_at(i);
        if (v->lossless) assert_true(check(&w, v, v->chain ? 1 : 2, &plain, "redistributed") < 4);
    }
    assert_true(check(&w, &test_biased_no_residual, 1, &plain, "redistributed") > 6);
    close_world(&w);
}

// All levels from one forward, each by its own law.
static void dist_at_once(const pl_backbone_kind *kind) {
    world w;
    open_kind(&w, kind, &(pl_backbone_options){.layers = 2, .block = 4, .mask_token = 1});
    for (int i = 0; pl_verifier_at(i); i++) {
        const pl_verifier *v = pl_verifier_at(i);
        if (!v->lossless) continue;
        assert_true(check(&w, v, 1, &processed, "blocks") < 4);
        if (!v->chain) assert_true(check(&w, v, 2, &plain, "trees of blocks") < 4);
    }
    assert_true(check(&w, &test_biased_no_residual, 1, &plain, "blocks") > 6);
    close_world(&w);
}

static void dist_of_blocks(void **state) {
    (void)state;
    dist_at_once(&pl_backbone_dflash);
}

static void dist_of_peagle(void **state) {
    (void)state;
    dist_at_once(&pl_backbone_peagle);
}

static void dist_of_medusa(void **state) {
    (void)state;
    dist_at_once(&pl_backbone_medusa);
}

// Slot by slot, each by the token before it, and no further than the head is sure.
static void dist_of_sparks(void **state) {
    (void)state;
    static const char *const heads[] = {"markov:rank=3,confidence,min_confidence=500", "markov:rank=3,form=rnn"};
    for (int kind = 0; kind < 2; kind++) {
        world w;
        open_world(
            &w,
            &(pl_backbone_options){
                .layers = 2, .block = 4, .mask_token = 1, .anchor_first = true, .head = pl_hf_head_of(heads[kind])});
        for (int i = 0; pl_verifier_at(i); i++) {
            const pl_verifier *v = pl_verifier_at(i);
            if (!v->lossless) continue;
            assert_true(check(&w, v, 1, &plain, "sparks") < 4);
            if (!v->chain) assert_true(check(&w, v, 2, &processed, "trees of sparks") < 4);
        }
        assert_true(check(&w, &test_biased_no_residual, 1, &plain, "sparks") > 6);
        close_world(&w);
    }
}

// DFlash 2: of a list that all slots have at once, each by the token before it; what is not listed is never drafted, or
// as often as the head alone would.
static void dist_selected_by(pl_hf_law law) {
    static const pl_backbone_options second = {
        .layers = 2, .block = 4, .mask_token = 1, .conv_taps = 2, .conv_group = 4};
    const pl_backbone_options lists[] = {second,
                                         {.layers = 1},
                                         {.head = pl_hf_head_of("specvocab:rank=3,candidates=4")},
                                         {.head = pl_hf_head_of("dynaspec:clusters=4,width=4,k0=2,k1=2")}};
    for (size_t kind = 0; kind < sizeof lists / sizeof *lists; kind++) {
        world               w;
        pl_backbone_options o = lists[kind];
        o.selector =
            (pl_hf_selector){.rank = 3, .candidates = 3, .law = law}; // dynaspec's supports may have fewer tokens
        open_world(&w, &o);
        for (int i = 0; pl_verifier_at(i); i++) {
            const pl_verifier *v = pl_verifier_at(i);
            if (!v->lossless) continue;
            assert_true(check(&w, v, 1, &plain, "selected") < 4);
            if (!v->chain) assert_true(check(&w, v, 2, &processed, "trees of what is selected") < 4);
        }
        assert_true(check(&w, &test_biased_no_residual, 1, &plain, "selected") > 6);
        close_world(&w);
    }
}

static void dist_of_selectors(void **state) {
    (void)state;
    dist_selected_by(PL_HF_LAW_FULL);
}

static void dist_of_lists(void **state) {
    (void)state;
    dist_selected_by(PL_HF_LAW_LIST);
}

// ---- models of other vocabularies -----------------------------------------------------------------------------------

static const char *const pieces[] = {"a", "b", "ab", "ba", "aba", NULL};
static const char *const merges[] = {"a b", "b a", "ab a", NULL};
static const char *const other_pieces[] = {"b", "a", "bb", "ab", "abb", "aa", NULL};
static const char *const other_merges[] = {"b b", "a b", "ab b", "a a", NULL};

static void open_other(world *w, bool same) {
    pl_llama m;
    pl_err   err = {0};
    *w = (world){0};
    test_target_sized(&w->target, test_mkdir(w->dir), 4, V, 23, PL_BF16);
    test_tokenizer_write(w->dir, pieces, merges);
    assert_int_equal(pl_tokenizer_open(&w->tok, w->dir, &err), PL_OK);
    test_target_sized(&m, test_mkdir(w->draft), 2, same ? V : V + 1, 29, PL_BF16);
    test_tokenizer_write(w->draft, same ? pieces : other_pieces, same ? merges : other_merges);
    pl_llama_fini(&m);
}

static void dist_of_other_vocabularies(void **state) {
    (void)state;
    static const char *const ways[] = {"lm", "tli", "union", "slem", "slrs", "omni"};
    for (int k = 0; k < 6; k++) {
        world w;
        open_other(&w, k == 0);
        w.way = ways[k];
        for (int i = 0; pl_verifier_at(i); i++) {
            const pl_verifier *v = pl_verifier_at(i);
            bool               only = k == 3 ? v == &pl_verify_match : k == 2 ? v->proposal == PL_PROPOSE_IID : true;
            if (!v->lossless || !only) continue;
            bool tree = !v->chain && k < 2;
            if (v == &pl_verify_match || v == &pl_verify_rejection)
                assert_true(check(&w, v, 1, &processed, ways[k]) < 4);
            assert_true(check(&w, v, tree ? 2 : 1, &plain, ways[k]) < 4);
        }
        if (k < 3) assert_true(check(&w, &test_biased_no_residual, 1, &plain, ways[k]) > 6);
        if (k == 2) assert_true(check(&w, &test_biased_no_miss, 1, &plain, ways[k]) > 6);
        if (k >= 4) assert_true(check(&w, &test_biased_fresh, 1, &plain, ways[k]) > 6);
        pl_tokenizer_close(w.tok);
        close_world(&w);
    }
}

// Free drafts, which are matched, a model's, which are drawn, and none, session by session and cycle by cycle.
static void dist_of_hybrids(void **state) {
    (void)state;
    world w;
    open_world(&w, &(pl_backbone_options){0});
    w.hybrid = true;
    w.way = "hybrid:lookup";
    const pl_verifier *const by[] = {&pl_verify_match, &pl_verify_rejection, &pl_verify_recursive_wor,
                                     &pl_verify_block};
    for (size_t i = 0; i < sizeof by / sizeof *by; i++) {
        assert_true(check(&w, by[i], 1, &plain, w.way) < 4);
        assert_true(check(&w, by[i], 1, &processed, w.way) < 4);
    }
    assert_true(check(&w, &test_biased_no_residual, 1, &plain, w.way) > 6);
    close_world(&w);
}

// Whether a second token is drafted depends on the first one drawn and the distribution it was drawn from.
static void dist_of_ended_drafts(void **state) {
    (void)state;
    world w;
    open_world(&w, &(pl_backbone_options){0});
    w.stops = true;
    for (int i = 0; pl_verifier_at(i); i++)
        if (pl_verifier_at(i)->lossless) assert_true(check(&w, pl_verifier_at(i), 1, &plain, "confidence") < 4);
    assert_true(check(&w, &test_biased_no_residual, 1, &plain, "confidence") > 6);
    close_world(&w);
}

// Nothing is drafted behind tokens of which one is rejected too likely, as the head predicts.
static void dist_of_foreseen(void **state) {
    (void)state;
    world w;
    open_world(&w, &(pl_backbone_options){.head = pl_hf_head_of("full:acceptance,max_rejection=880")});
    for (int i = 0; pl_verifier_at(i); i++) {
        const pl_verifier *v = pl_verifier_at(i);
        if (!v->lossless) continue;
        assert_true(check(&w, v, v->chain ? 1 : 2, v->chain ? &processed : &plain, "foreseen") < 4);
    }
    assert_true(check(&w, &test_biased_no_residual, 1, &plain, "foreseen") > 6);
    close_world(&w);
}

// The same of a model beside its own tokens, of one vocabulary and of another.
static void dist_of_foreseen_by_models(void **state) {
    (void)state;
    static const char *const ways[] = {"lm", "tli", "union"};
    for (int k = 0; k < 3; k++) {
        world w;
        open_other(&w, k == 0);
        w.way = ways[k];
        test_foresee(w.draft, &w.target, 400, 7); // of the same width
        for (int i = 0; pl_verifier_at(i); i++) {
            const pl_verifier *v = pl_verifier_at(i);
            bool               only = k == 0 ? v->lossless : v == &pl_verify_rejection;
            if (only) assert_true(check(&w, v, v->chain || k ? 1 : 2, v->chain ? &processed : &plain, "foreseen") < 4);
        }
        assert_true(check(&w, &test_biased_no_residual, 1, &plain, "foreseen") > 6);
        pl_tokenizer_close(w.tok);
        close_world(&w);
    }
}

// How many children a node gets follows from what was drawn before.
static void dist_of_drawn_trees(void **state) {
    (void)state;
    static const char *const predictable[] = {"beam:2,2", "beam:3,2,0.9", "dyspec:4,3,2"};
    world                    w;
    open_world(&w, &(pl_backbone_options){0});
    for (size_t i = 0; i < sizeof predictable / sizeof *predictable; i++) {
        w.tree = predictable[i];
        assert_true(check(&w, &pl_verify_recursive_wor, 2, i % 2 ? &processed : &plain, w.tree) < 4);
        assert_true(check(&w, &pl_verify_match, 2, i % 2 ? &plain : &processed, w.tree) < 4);
    }
    w.tree = "sequences:2,2";
    for (int i = 0; pl_verifier_at(i); i++)
        if (pl_verifier_at(i)->lossless && !pl_verifier_at(i)->chain)
            assert_true(check(&w, pl_verifier_at(i), 2, i % 2 ? &processed : &plain, w.tree) < 4);
    w.tree = "eagle2:3,3,2";
    w.chooses = true;
    assert_true(check(&w, &pl_verify_recursive_wor, 2, &plain, "chosen of what is drawn") > 6);
    close_world(&w);
}

static void controls_fail(void **state) {
    (void)state;
    world w;
    open_world(&w, &(pl_backbone_options){0});
    assert_true(check(&w, &test_biased_fresh, 2, &plain, "tree") > 6);
    assert_true(check(&w, &test_biased_no_residual, 1, &plain, "chain") > 6);
    assert_true(check(&w, &pl_verify_typical, 2, &plain, "tree") > 6);
    close_world(&w);
}

// ---- drafters that are told what to propose
// --------------------------------------------------------------------------

typedef struct text {
    int32_t tokens[64];
    int32_t n;
} text;

static text decode(const pl_llama *m, pl_drafter *d, const pl_verifier *v, double temperature, int stop) {
    pl_err             err = {0};
    pl_engine         *e;
    pl_session        *s;
    text               t;
    pl_engine_options  o = {.max_sessions = 1, .max_rows = 16, .max_len = 64, .verifier = v};
    pl_session_options so = {.sampling = {.temperature = temperature, .top_p = 1, .seed = 3},
                             .max_new = 40,
                             .n_stop = stop >= 0,
                             .stop = {stop}};
    assert_int_equal(pl_engine_create(&e, pl_backend_cpu(), NULL, m, d, &o, &err), PL_OK);
    assert_int_equal(pl_engine_start(e, (int32_t[]){5, 17, 40}, 3, &so, &s, &err), PL_OK);
    while (pl_session_finish(s) == PL_RUNNING)
        assert_int_equal(pl_engine_step(e, &err), PL_OK);
    t.n = pl_session_length(s);
    memcpy(t.tokens, pl_session_tokens(s), (size_t)t.n * sizeof *t.tokens);
    pl_engine_destroy(e);
    return t;
}

// Right, wrong and stopping drafts change nothing: at temperature 0 with every verifier, and at 1 with match (and, as
// these drafters draw nothing that could be coupled with, with every other lossless one).
static void told_drafts_change_nothing(void **state) {
    (void)state;
    char     dir[64];
    pl_llama m;
    test_target(&m, test_mkdir(dir), 2, 41, PL_BF16);
    for (int hot = 0; hot < 2; hot++) {
        text free_text = decode(&m, NULL, NULL, hot, -1);
        int  stop = free_text.tokens[20];
        text plain_text = decode(&m, NULL, NULL, hot, stop);
        for (int i = 0; pl_verifier_at(i); i++) {
            if (hot && !pl_verifier_at(i)->lossless) continue;
            for (int mode = TEST_ACCEPT; mode <= TEST_STOP; mode++) {
                const int32_t *script = plain_text.tokens;
                test_oracle    oracle;
                if (mode == TEST_MIXED) continue; // draws trees of any shape
                test_oracle_init(&oracle, (test_oracle_mode)mode, "chain:5", 0, 1);
                oracle.base.max_rows = 16;
                oracle.script = &script;
                oracle.script_n = &plain_text.n;
                oracle.stop = stop;
                text got = decode(&m, &oracle.base, pl_verifier_at(i), hot, stop);
                if (got.n != plain_text.n || memcmp(got.tokens, plain_text.tokens, (size_t)got.n * sizeof *got.tokens))
                    fail_msg("%s, temperature %d, drafts %d: other tokens", pl_verifier_at(i)->name, hot, mode);
            }
        }
    }
    pl_llama_fini(&m);
    test_rmdir(dir);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(dist_is_the_targets),
        cmocka_unit_test(dist_with_candidates),
        cmocka_unit_test(dist_redistributed),
        cmocka_unit_test(dist_of_blocks),
        cmocka_unit_test(dist_of_peagle),
        cmocka_unit_test(dist_of_medusa),
        cmocka_unit_test(dist_of_sparks),
        cmocka_unit_test(dist_of_selectors),
        cmocka_unit_test(dist_of_lists),
        cmocka_unit_test(dist_of_other_vocabularies),
        cmocka_unit_test(dist_of_hybrids),
        cmocka_unit_test(dist_of_ended_drafts),
        cmocka_unit_test(dist_of_drawn_trees),
        cmocka_unit_test(dist_of_foreseen),
        cmocka_unit_test(dist_of_foreseen_by_models),
        cmocka_unit_test(controls_fail),
        cmocka_unit_test(told_drafts_change_nothing),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
