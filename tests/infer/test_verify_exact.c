// Every verifier enumerated: over all draws of the children and all coins of verification, what is emitted (continued
// by the target where verification stopped early) follows the target's joint distribution, to rounding. Distributions
// of toy vocabularies have zeros, ties, trimmed drafters (with and without their mass redistributed), p equal to q,
// children that are the whole support. Biased controls must fail.
#include "infer/sample/propose.h"
#include "infer/verify/verify.h"
#include "kernels/base/rng.h"
#include "tests/infer/biased.h"
#include "tests/infer/enumerate.h"

#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <string.h>

#include <cmocka.h>

enum { V_MAX = 5, LEVELS = 3, PREFIXES = 1 + 5 + 25 + 125, SEQUENCES = 625 };

// How the logits of target and drafter look.
typedef enum look {
    PLAIN,
    TARGET_ZEROS,   // tokens that the target never says
    DRAFTER_ZEROS,  // tokens that the drafter never draws
    DISJOINT,       // no token that both may say
    TIES,           // few distinct values
    SAME,           // p == q
    SURE,           // the drafter is all but certain
    SELECTED,       // a selector's: of a list of each depth's, scored by the token before; nothing else is drafted
    SHORT_SELECTED, // the same of a list of each prefix's own, which may hold one token alone (a router's)
    FULL_SELECTED,  // by the full law: what is not listed keeps its mass, the list has what the head gives it
    LOOKS
} look;

typedef struct toy {
    int                  v, vd, depth, children[LEVELS]; // per level; vd < v: the drafter's vocabulary is trimmed
    bool                 spread;                         // and what it leaves out is drafted too
    look                 look;
    pl_sampling          sampling;
    uint32_t             said[1];   // the text before the tree
    int32_t              answer[3]; // the part of it that was emitted
    int                  n_answer;
    bool                 argmax_draft; // a control: the drafter's best token passed off as drawn from q
    bool                 joined;       // a path that is not drawn joins the tree, as a hybrid's do
    int32_t              d2t[V_MAX];
    pl_outside           outside;
    double               p[PREFIXES][V_MAX]; // by prefix of the path: a number in base v behind all shorter prefixes
    float                logits[PREFIXES][V_MAX];
    pl_distribution_work work;
    // of one run
    pl_tree              tree;
    double               q[PREFIXES][V_MAX], dist[V_MAX];
} toy;

typedef struct outcome {
    double  error;    // largest deviation of the joint distribution
    double  accepted; // drafted tokens accepted, on average
    double  any;      // probability that at least one is
    int64_t runs;
} outcome;

static int prefix_after(const toy *t, int prefix, int token) {
    return prefix * t->v + 1 + token; // children of a node in a complete v-ary tree
}

static pl_drafted drafted(const toy *t) {
    return (pl_drafted){.n = t->vd, .d2t = t->vd < t->v ? t->d2t : NULL, .outside = t->spread ? &t->outside : NULL};
}

static void unmake(toy *t) {
    pl_distribution_work_fini(&t->work);
    pl_outside_fini(&t->outside);
}

// infer/head/selector.h at a prefix: the list and its logits are those of the depth (a block's) or of the prefix, what
// is added is the last token's.
static void select_at(const toy *t, uint64_t seed, int x, float *drafter) {
    enum { RANK = 2 };
    bool   each = t->look == SHORT_SELECTED, full = t->look == FULL_SELECTED;
    int    depth = 0, last = x > 0 ? (x - 1) % t->v : t->v, listed = each ? 1 + (x + (int)(seed % 2)) % 2 : 2;
    double unary[V_MAX], of_head = 0, of_scores = 0;
    for (int at = x; at > 0; at = (at - 1) / t->v)
        depth++;
    pl_rng r = pl_rng_make(seed, PL_STREAM_TEST, (uint64_t)(each ? 3000 + x : 1000 + depth)),
           codes = pl_rng_make(seed, PL_STREAM_TEST, 2000);
    for (int i = 0; i < t->v; i++)
        unary[i] = exp(1.5 * (double)pl_rng_normal(r, (uint64_t)i));
    for (int i = 0; i < t->v; i++)
        drafter[i] = full ? (float)log(unary[i]) : -INFINITY;
    int64_t list[V_MAX];
    for (int k = 0; k < listed && k < t->v; k++) {
        int64_t b = pl_propose_best(unary, t->v);
        double  add = 0;
        for (int j = 0; j < RANK; j++)
            add += (double)pl_rng_normal(codes, (uint64_t)(last * RANK + j)) *
                   (double)pl_rng_normal(r, (uint64_t)(100 + j)) *
                   (double)pl_rng_normal(codes, (uint64_t)(1000 + b * RANK + j));
        drafter[b] = (float)(log(unary[b]) + add);
        of_head += unary[b];
        of_scores += unary[b] * exp(add);
        list[k] = b;
        unary[b] = 0;
    }
    for (int k = 0; k < listed && k < t->v && full; k++)
        drafter[list[k]] += (float)log(of_head / of_scores);
}

// The tokens of the path to a prefix, in order; returns how many.
static int tokens_of(const toy *t, int prefix, int32_t *token) {
    int n = 0;
    for (int at = prefix; at > 0; at = (at - 1) / t->v)
        n++;
    for (int at = prefix, i = n; at > 0; at = (at - 1) / t->v)
        token[--i] = (at - 1) % t->v;
    return n;
}

static void make(toy *t, uint64_t seed) {
    pl_err err = {0};
    assert_int_equal(pl_distribution_work_init(&t->work, t->v, &err), PL_OK);
    for (int i = 0; i < t->vd; i++)
        t->d2t[i] = t->vd < t->v ? i + (i >= (int)(seed % (uint64_t)t->v)) : i; // one token is left out
    if (t->spread) {
        int32_t on[V_MAX] = {0}; // it hangs on one of the others
        on[seed % (uint64_t)t->v] = (int32_t)(seed / 3) % t->vd;
        for (int i = 0; i < t->vd; i++)
            on[t->d2t[i]] = i;
        assert_int_equal(pl_outside_init(&t->outside, 300, on, t->v, t->d2t, t->vd, "toy", &err), PL_OK);
    }
    int prefixes = 0;
    for (int i = 0, n = 1; i <= t->depth; i++, n *= t->v)
        prefixes += n;
    for (int x = 0; x < prefixes; x++) {
        float  target[V_MAX], *drafter = t->logits[x];
        pl_rng r = pl_rng_make(seed, PL_STREAM_TEST, (uint64_t)x);
        for (int i = 0; i < t->v; i++) {
            bool here = pl_rng_below(r, (uint64_t)(8 * i + 2), 3) > 0 || i == (int)(seed % (uint64_t)t->v);
            target[i] = 1.5f * pl_rng_normal(r, (uint64_t)(8 * i));
            drafter[i] = 1.5f * pl_rng_normal(r, (uint64_t)(8 * i + 1));
            if (t->look == TIES) {
                target[i] = (float)pl_rng_below(r, (uint64_t)(8 * i + 3), 2);
                drafter[i] = (float)pl_rng_below(r, (uint64_t)(8 * i + 4), 2);
            }
            if (t->look == SAME) drafter[i] = target[i];
            if (t->look == SURE && i == 1) drafter[i] = 40;
            if (t->look == TARGET_ZEROS && !here) target[i] = -INFINITY;
            if (t->look == DRAFTER_ZEROS && i != 0 && !here) drafter[i] = -INFINITY;
            if (t->look == DISJOINT) *(i % 2 ? &target[i] : &drafter[i]) = -INFINITY;
        }
        if (t->look >= SELECTED) select_at(t, seed, x, drafter);
        int32_t    path[LEVELS + 1];
        pl_history h = {.said = t->said, .answer = t->answer, .n_answer = t->n_answer, .path = path};
        h.n_path = tokens_of(t, x, path);
        assert_true(pl_distribution(t->p[x], target, t->v, &t->sampling, &h, &t->work));
        float copy[V_MAX];
        memcpy(copy, drafter, sizeof copy);
        for (int i = 0; i < t->vd; i++)
            drafter[i] = copy[t->d2t[i]];
    }
}

// The drafter's whole distribution at a prefix; all 0 where it has none.
static void drafter_dist(toy *t, int prefix, double *q) {
    double dist[V_MAX];
    memset(q, 0, (size_t)t->v * sizeof *q);
    pl_sampling s = pl_sampling_bare(&t->sampling);
    if (!pl_distribution(dist, t->logits[prefix], t->vd, &s, &(pl_history){0}, &t->work)) return;
    pl_drafted d = drafted(t);
    pl_drafted_distribution(&d, q, t->v, dist);
}

static int prefix_of(const toy *t, int node) {
    int32_t path[PL_TREE_MAX];
    int     n = pl_tree_path(&t->tree, node, path), x = 0;
    for (int i = 1; i < n; i++)
        x = prefix_after(t, x, t->tree.token[path[i]]);
    return x;
}

static bool may_follow(const toy *t, int node, int32_t token) {
    int32_t        path[LEVELS + 1];
    int            n = tokens_of(t, prefix_of(t, node), path);
    pl_constraint *c = t->sampling.constraint;
    return c->allowed(c, t->answer, t->n_answer, path, n)[0] >> token & 1;
}

static bool dist_of(void *arg, int node, double *p) {
    toy *t = arg;
    memcpy(p, t->p[prefix_of(t, node)], (size_t)t->v * sizeof *p);
    return true;
}

// The candidates of one node, drawn as drafters do, or the best ones.
static void candidates(toy *t, pl_proposing *o, int node, int k, int32_t *id) {
    int    x = prefix_of(t, node);
    float  logp[PL_TREE_MAX];
    double q[V_MAX];
    if ((o->kind != PL_PROPOSE_TOP || t->sampling.constraint) && !t->argmax_draft) {
        pl_drafted d = drafted(t);
        pl_propose_draw(o, &t->tree, node, t->logits[x], &d, k, id, logp);
        return;
    }
    drafter_dist(t, x, q);
    if (t->argmax_draft) {
        t->tree.kind[node] = PL_PROPOSE_IID;
        t->tree.q[node] = memcpy(o->q + (ptrdiff_t)o->q_used++ * t->v, q, (size_t)t->v * sizeof *q);
    }
    for (int i = 0; i < k; i++) {
        int64_t b = pl_propose_best(q, t->v);
        id[i] = q[b] > 0 ? (int32_t)b : -1;
        q[b] = 0;
    }
}

static void draft(toy *t, pl_proposal kind, pl_coin *coin) {
    uint32_t     mask[1];
    pl_proposing o = {.kind = kind,
                      .answer = t->answer,
                      .n_answer = t->n_answer,
                      .mask = mask,
                      .sampling = &t->sampling,
                      .coin = coin,
                      .q = &t->q[0][0],
                      .q_rows = PREFIXES,
                      .vocab = t->v,
                      .work = &t->work,
                      .dist = t->dist};
    int          from = 0;
    pl_tree_root(&t->tree, 0);
    for (int level = 0; level < t->depth; level++) {
        int to = t->tree.n;
        for (int node = from; node < to && t->children[level] > 0; node++) {
            int32_t id[PL_TREE_MAX];
            candidates(t, &o, node, t->children[level], id);
            for (int i = 0; i < t->children[level] && id[i] >= 0; i++) {
                if (t->sampling.constraint && !t->spread) assert_true(may_follow(t, node, id[i]));
                pl_tree_add(&t->tree, node, id[i], 0);
            }
        }
        from = to;
    }
    for (int level = 0, node = 0; t->joined && level < t->depth; level++)
        node = pl_tree_add(&t->tree, node, (level + 1) % t->v, 0);
}

// Adds `weight` of what the target says after a prefix to all sequences of depth + 1 tokens.
static void go_on(const toy *t, int prefix, int len, double weight, double *joint) {
    if (len > t->depth) {
        joint[prefix] += weight;
        return;
    }
    for (int i = 0; i < t->v; i++)
        if (t->p[prefix][i] > 0) go_on(t, prefix_after(t, prefix, i), len + 1, weight * t->p[prefix][i], joint);
}

static outcome enumerate(toy *t, const pl_verifier *v) {
    static double joint[PREFIXES + SEQUENCES], want[PREFIXES + SEQUENCES];
    double        p[V_MAX], q[V_MAX], r[V_MAX], total = 0;
    outcome       o = {0};
    test_every    e;
    memset(joint, 0, sizeof joint);
    memset(want, 0, sizeof want);
    for (test_every_begin(&e); test_every_next(&e);) {
        pl_verdict out;
        draft(t, v->proposal, &e.coin);
        pl_verify_in in = {
            .tree = &t->tree, .dist = dist_of, .arg = t, .v = t->v, .coin = &e.coin, .p = p, .q = q, .r = r};
        pl_verify(v, &in, &out);
        assert_true(out.bonus >= 0 && out.bonus < t->v);
        int x = prefix_after(t, prefix_of(t, out.path[out.n]), out.bonus);
        go_on(t, x, out.n + 1, e.probability, joint);
        total += e.probability;
        o.accepted += e.probability * out.n;
        o.any += out.n > 0 ? e.probability : 0;
    }
    o.runs = e.runs;
    assert_true(fabs(total - 1) < 1e-12);
    go_on(t, 0, 0, 1, want);
    for (int i = 0; i < PREFIXES + SEQUENCES; i++)
        o.error = fmax(o.error, fabs(joint[i] - want[i]));
    return o;
}

static const struct {
    int v, depth, children[LEVELS];
} shapes[] = {{5, 1, {1}},    {5, 1, {2}},       {5, 1, {3}},       {4, 1, {4}},    {3, 2, {2, 2}},
              {4, 2, {2, 1}}, {3, 3, {1, 2, 1}}, {3, 3, {2, 1, 1}}, {4, 2, {1, 1}}, {3, 3, {1, 1, 1}}};
enum { SHAPES = sizeof shapes / sizeof *shapes };

static bool is_chain(int shape) {
    for (int i = 0; i < shapes[shape].depth; i++)
        if (shapes[shape].children[i] > 1) return false;
    return true;
}

enum { WHOLE, TRIMMED, SPREAD }; // the drafter's vocabulary; spread: trimmed, and its mass redistributed

static void shape_toy(toy *t, int shape, look l, int list) {
    memset(t, 0, sizeof *t);
    t->v = shapes[shape].v;
    t->vd = t->v - (list != WHOLE);
    t->spread = list == SPREAD;
    t->depth = shapes[shape].depth;
    memcpy(t->children, shapes[shape].children, sizeof t->children);
    t->look = l;
}

static void set(toy *t, int shape, look l, int list, uint64_t seed) {
    shape_toy(t, shape, l, list);
    t->sampling = (pl_sampling){.temperature = 1, .top_p = 1};
    if (seed % 3 == 1) t->sampling = (pl_sampling){.temperature = 0.7, .top_p = 0.8};
    if (seed % 3 == 2) t->sampling = (pl_sampling){.temperature = 1.3, .top_p = 1, .top_k = 3, .min_p = 0.1};
    make(t, seed);
}

static toy the_toy;

static void dist_is_exact(void **state) {
    (void)state;
    int64_t cases = 0, runs = 0;
    double  worst = 0;
    for (int i = 0; pl_verifier_at(i); i++) {
        const pl_verifier *v = pl_verifier_at(i);
        if (!v->lossless) continue;
        for (int s = 0; s < SHAPES; s++)
            for (int l = 0; l < LOOKS; l++)
                for (int list = WHOLE; list <= SPREAD; list++)
                    for (uint64_t seed = 0; seed < 9; seed++) {
                        if (v->chain && !is_chain(s)) continue;
                        set(&the_toy, s, (look)l, list, seed);
                        outcome o = enumerate(&the_toy, v);
                        if (!(o.error < 1e-12))
                            fail_msg("%s: shape %d, look %d, list %d, seed %d: off by %.3g", v->name, s, l, list,
                                     (int)seed, o.error);
                        worst = fmax(worst, o.error);
                        cases++;
                        runs += o.runs;
                        unmake(&the_toy);
                    }
    }
    print_message("%lld cases, %lld outcomes, off by %.2g at most\n", (long long)cases, (long long)runs, worst);
}

// A constraint by the token before: it may not be said again, and 0 not behind an odd one.
static const uint32_t *not_again(pl_constraint *c, const int32_t *answer, int64_t n, const int32_t *path,
                                 int64_t n_path) {
    static uint32_t mask[1];
    int32_t         last = n_path ? path[n_path - 1] : answer[n - 1];
    (void)c;
    mask[0] = ~(1U << last | (last % 2 ? 1U : 0));
    return mask;
}

// Constraint, bias and penalties, which make each node's distribution another by the tokens on its path: drafts come
// from the drafter's distribution under the constraint, without the others.
static void processed_dist_is_exact(void **state) {
    (void)state;
    static const pl_logit_bias bias[] = {{0, 1.5F}, {2, -100}, {1, -0.5F}};
    static pl_constraint       constraint = {not_again};
    static const pl_sampling   samplings[] = {
          {.temperature = 0.9, .top_p = 1, .top_k = 2, .constraint = &constraint},
          {.temperature = 1, .top_p = 1, .frequency_penalty = 1.2, .presence_penalty = 0.6},
          {.temperature = 0.8, .top_p = 0.9, .bias = bias, .n_bias = 3},
          {.temperature = 1, .top_p = 1, .presence_penalty = 1, .repetition_penalty = 1.5, .bias = bias, .n_bias = 1},
          {.temperature = 1.2, .top_p = 1, .top_k = 3, .frequency_penalty = -1.1},
          {.temperature = 0, .top_p = 1, .frequency_penalty = 0.8, .bias = bias, .n_bias = 3}};
    int64_t cases = 0;
    double  worst = 0;
    for (int i = 0; pl_verifier_at(i); i++)
        for (int s = 0; s < SHAPES; s++)
            for (int l = 0; l < SELECTED; l++)
                for (uint64_t seed = 0; seed < 12; seed++) {
                    const pl_verifier *v = pl_verifier_at(i);
                    if (!v->lossless || (v->chain && !is_chain(s))) continue;
                    shape_toy(&the_toy, s, (look)l, seed % 2 ? TRIMMED : WHOLE);
                    the_toy.sampling = samplings[seed % 6];
                    if (the_toy.sampling.constraint && (l == DISJOINT || l == TARGET_ZEROS))
                        continue; // could leave none
                    the_toy.said[0] = 1u << 1 | 1u << 2;
                    the_toy.answer[0] = the_toy.answer[1] = 1;
                    the_toy.n_answer = 2;
                    make(&the_toy, seed);
                    outcome o = enumerate(&the_toy, v);
                    if (!(o.error < 1e-12))
                        fail_msg("%s: shape %d, look %d, seed %d: off by %.3g", v->name, s, l, (int)seed, o.error);
                    worst = fmax(worst, o.error);
                    cases++;
                    unmake(&the_toy);
                }
    print_message("%lld processed cases, off by %.2g at most\n", (long long)cases, worst);
    assert_true(cases > 2000);
}

// Two drafters: a path that is not drawn, alone before every verifier and in a tree of the drafter's best tokens before
// those that match.
static void joined_paths_are_exact(void **state) {
    (void)state;
    double worst = 0, accepted = 0, without = 0;
    for (int i = 0; pl_verifier_at(i); i++)
        for (int s = 0; s < SHAPES; s++)
            for (int l = 0; l < LOOKS; l++)
                for (uint64_t seed = 0; seed < 9; seed++) {
                    const pl_verifier *v = pl_verifier_at(i);
                    bool               matches = pl_verifier_matches(v);
                    if (!v->lossless) continue;
                    set(&the_toy, s, (look)l, WHOLE, seed);
                    if (matches) without += enumerate(&the_toy, v).accepted;
                    the_toy.joined = true;
                    if (!matches) memset(the_toy.children, 0, sizeof the_toy.children);
                    outcome o = enumerate(&the_toy, v);
                    if (!(o.error < 1e-12))
                        fail_msg("%s: shape %d, look %d, seed %d: off by %.3g", v->name, s, l, (int)seed, o.error);
                    worst = fmax(worst, o.error);
                    if (matches) accepted += o.accepted;
                    unmake(&the_toy);
                }
    print_message("off by %.2g at most; %.3g times as many accepted in the union\n", worst, accepted / without);
    assert_true(accepted > 1.02 * without);
}

// One node: enumeration gives the closed form that the verifier states.
static void acceptance_is_the_closed_form(void **state) {
    (void)state;
    int checked = 0;
    for (int i = 0; pl_verifier_at(i); i++) {
        const pl_verifier *v = pl_verifier_at(i);
        if (!v->acceptance) continue;
        for (int s = 0; s < SHAPES && shapes[s].depth == 1; s++)
            for (int l = 0; l < LOOKS; l++)
                for (uint64_t seed = 0; seed < 9; seed++) {
                    if (v->chain && !is_chain(s)) continue;
                    set(&the_toy, s, (look)l, (int)seed / 3, seed);
                    toy    *t = &the_toy;
                    double  q[V_MAX], w[V_MAX];
                    int     n = t->children[0];
                    outcome o = enumerate(t, v);
                    drafter_dist(t, 0, q);
                    double stated = v->acceptance(t->p[0], q, t->v, n, w), overlap = pl_overlap(t->p[0], q, t->v);
                    if (n == 1 && v->proposal != PL_PROPOSE_TOP) assert_true(fabs(o.any - overlap) < 1e-12);
                    unmake(t);
                    if (isnan(stated)) continue;
                    // k-SEQ's rho is a root that is found, not computed.
                    if (!(fabs(o.any - stated) < 1e-11))
                        fail_msg("%s, %d children, look %d, seed %d: accepts %.15g, says %.15g", v->name, n, l,
                                 (int)seed, o.any, stated);
                    checked++;
                }
    }
    assert_true(checked > 500);
}

// Judged as a whole a chain is never shorter, and sometimes longer.
static void block_beats_rejection(void **state) {
    (void)state;
    double gain = 0;
    int    n = 0;
    for (int s = 0; s < SHAPES; s++)
        for (int l = 0; l < LOOKS; l++)
            for (uint64_t seed = 0; seed < 12 && is_chain(s); seed++) {
                set(&the_toy, s, (look)l, seed % 2, seed);
                outcome block = enumerate(&the_toy, &pl_verify_block);
                outcome token = enumerate(&the_toy, &pl_verify_rejection);
                if (!(block.accepted >= token.accepted - 1e-12))
                    fail_msg("shape %d, look %d, seed %d: %.15g < %.15g", s, l, (int)seed, block.accepted,
                             token.accepted);
                gain = fmax(gain, block.accepted - token.accepted);
                n++;
                unmake(&the_toy);
            }
    assert_true(gain > 0.01);
    print_message("%d chains, at most %.3f tokens longer\n", n, gain);
}

// The largest error of a verifier that is known to be wrong, over a few toys.
static double error_of(const pl_verifier *v, int shape, look l, bool argmax_draft, bool trimmed) {
    double error = 0;
    for (uint64_t seed = 0; seed < 6; seed++) {
        toy   *t = &the_toy;
        double whole[V_MAX];
        set(t, shape, l, false, 3 * seed);
        t->argmax_draft = argmax_draft;
        if (trimmed) {
            drafter_dist(t, 0, whole); // before one token is left out
            test_biased_q = whole;
            unmake(t);
            t->vd = t->v - 1;
            make(t, 3 * seed);
        }
        error = fmax(error, enumerate(t, v).error);
        unmake(t);
    }
    return error;
}

static void controls_fail(void **state) {
    (void)state;
    struct {
        const pl_verifier *v;
        const char        *what;
        int                shape;
        bool               argmax_draft, trimmed;
        look               look;
    } control[] = {{&test_biased_fresh, "a fresh draw on a mismatch", 1, false, false, PLAIN},
                   {&test_biased_fresh, "the same, a tree", 4, false, false, PLAIN},
                   {&test_biased_no_residual, "the target's distribution after a rejection", 0, false, false, PLAIN},
                   {&test_biased_no_residual, "the same behind a selector", 8, false, false, FULL_SELECTED},
                   {&test_biased_merged, "repeats merged", 2, false, false, PLAIN},
                   {&test_biased_untrimmed, "the untrimmed distribution in the residual", 0, false, true, PLAIN},
                   {&pl_verify_rejection, "the best token, tested as if drawn", 0, true, false, PLAIN},
                   {&pl_verify_rejection, "the same behind a selector", 0, true, false, FULL_SELECTED},
                   {&pl_verify_block, "the best tokens of a chain, judged as if drawn", 8, true, false, PLAIN},
                   {&pl_verify_typical, "typical acceptance", 1, false, false, PLAIN}};
    for (size_t i = 0; i < sizeof control / sizeof *control; i++) {
        double e =
            error_of(control[i].v, control[i].shape, control[i].look, control[i].argmax_draft, control[i].trimmed);
        print_message("%s: off by %.3f\n", control[i].what, e);
        assert_true(e > 0.01);
    }
}

// A drafted token that either distribution gives no probability to is never emitted unless the target may say it, even
// where the coin shows 0; and a number that is none stops decoding only where it is reached.
static bool never(pl_coin *c, double p) {
    (void)c;
    return 0.0 < p; // a uniform of 0
}

static int64_t lowest(pl_coin *c, const double *w, int64_t n, int64_t position) {
    (void)c, (void)position;
    for (int64_t i = 0; i < n; i++)
        if (w[i] > 0) return i;
    fail_msg("a draw from nothing");
    return -1;
}

static bool broken_below(void *arg, int node, double *p) {
    memcpy(p, arg, 3 * sizeof *p);
    return node == 0;
}

static void edges(void **state) {
    (void)state;
    pl_coin coin = {.flip = never, .draw = lowest};
    double  p[3], q[3], r[3], dist[3] = {0, 0.25, 0.75}, draft_dist[3] = {0.5, 0.5, 0};
    for (int i = 0; pl_verifier_at(i); i++) {
        const pl_verifier *v = pl_verifier_at(i);
        static pl_tree     t;
        pl_verdict         out;
        pl_verify_in       in = {
                  .tree = &t, .dist = broken_below, .arg = dist, .v = 3, .coin = &coin, .p = p, .q = q, .r = r};
        for (int32_t token = 0; token < 2; token++) {
            pl_tree_root(&t, 2);
            int child = pl_tree_add(&t, 0, token, 0);
            pl_tree_add(&t, child, 1, 0);
            if (v->proposal != PL_PROPOSE_TOP) {
                t.kind[0] = t.kind[child] = v->proposal;
                t.q[0] = t.q[child] = draft_dist;
            }
            pl_verify(v, &in, &out);
            if (token == 0) { // p is 0
                assert_int_equal(out.n, 0);
                assert_true(out.bonus > 0);
            } else { // accepted; the distribution behind it is no number
                assert_int_equal(out.bonus, -1);
            }
        }
    }
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(dist_is_exact),
        cmocka_unit_test(processed_dist_is_exact),
        cmocka_unit_test(joined_paths_are_exact),
        cmocka_unit_test(acceptance_is_the_closed_form),
        cmocka_unit_test(block_beats_rejection),
        cmocka_unit_test(controls_fail),
        cmocka_unit_test(edges),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
