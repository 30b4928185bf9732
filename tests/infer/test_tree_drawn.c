// Trees whose shape follows from what is drawn, by the functions that drafters call: over all draws, times of arrival
// and coins the output follows the target's joint distribution, to rounding; trees that choose among drawn tokens fail.
// DySpec's draws are those of a heap, RSD-S's beams are samples without replacement, SpecTr's sequences keep their
// draws.
#include "infer/sample/propose.h"
#include "infer/verify/verify.h"
#include "tests/infer/enumerate.h"

#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <string.h>

#include <cmocka.h>

enum { V_MAX = 4, DEEP = 6, PREFIXES = 1 + 4 + 16 + 64 + 256, ROWS = 64 };

typedef enum look { PLAIN, TARGET_ZEROS, DRAFTER_ZEROS, TIES, SAME, SURE, LOOKS } look;

// A target and a drafter over prefixes of at most three tokens; deeper ones read the last three.
typedef struct toy {
    int                  v;
    pl_sampling          sampling;
    double               p[PREFIXES][V_MAX];
    float                logits[PREFIXES][V_MAX];
    pl_distribution_work work;
    pl_tree              tree;
    double               q[ROWS][V_MAX], dist[V_MAX];
} toy;

static toy the_toy;

static void make(toy *t, int v, look l, uint64_t seed) {
    pl_err err = {0};
    *t = (toy){.v = v, .sampling = {.temperature = 1, .top_p = 1}};
    if (seed % 3 == 1) t->sampling = (pl_sampling){.temperature = 0.7, .top_p = 0.9};
    if (seed % 3 == 2) t->sampling = (pl_sampling){.temperature = 1.3, .top_p = 1, .top_k = 3, .min_p = 0.1};
    assert_int_equal(pl_distribution_work_init(&t->work, v, &err), PL_OK);
    for (int x = 0; x < PREFIXES; x++) {
        pl_rng r = pl_rng_make(seed, PL_STREAM_TEST, (uint64_t)x);
        float  target[V_MAX];
        for (int i = 0; i < v; i++) {
            uint64_t at = 8 * (uint64_t)i;
            bool     here = pl_rng_below(r, at + 2, 3) > 0 || i == (int)(seed % (uint64_t)v);
            target[i] = 1.5F * pl_rng_normal(r, at);
            t->logits[x][i] = 1.5F * pl_rng_normal(r, at + 1);
            if (l == TIES) {
                target[i] = (float)pl_rng_below(r, at + 3, 2);
                t->logits[x][i] = (float)pl_rng_below(r, at + 4, 2);
            }
            if (l == SAME) t->logits[x][i] = target[i];
            if (l == SURE && i == 1) t->logits[x][i] = 40;
            if (l == TARGET_ZEROS && !here) target[i] = -INFINITY;
            if (l == DRAFTER_ZEROS && !here) t->logits[x][i] = -INFINITY;
        }
        assert_true(pl_distribution(t->p[x], target, v, &t->sampling, &(pl_history){0}, &t->work));
    }
}

// Prefixes are numbers in base v behind all shorter ones.
static int prefix_after(const toy *t, int prefix, int token) {
    int next = prefix * t->v + 1 + token, shorter = 1 + t->v + t->v * t->v, all = shorter + t->v * t->v * t->v;
    return next < all ? next : shorter + (next - all) % (t->v * t->v * t->v);
}

static int prefix_of(const toy *t, const pl_tree *tree, int node) {
    int32_t path[PL_TREE_MAX];
    int     n = pl_tree_path(tree, node, path), x = 0;
    for (int i = 1; i < n; i++)
        x = prefix_after(t, x, tree->token[path[i]]);
    return x;
}

static bool dist_of(void *arg, int node, double *p) {
    toy *t = arg;
    memcpy(p, t->p[prefix_of(t, &t->tree, node)], (size_t)t->v * sizeof *p);
    return true;
}

static pl_tree_policy policy_of(const char *text) {
    pl_tree_policy p;
    pl_err         err = {0};
    if (pl_tree_policy_parse(&p, text, &err) != PL_OK) fail_msg("%s", err.msg);
    return p;
}

// As drafters do.
static void draft(toy *t, const pl_tree_policy *policy, pl_proposal kind, pl_coin *coin) {
    pl_proposing o = {.kind = kind,
                      .races = policy->kind->races,
                      .sampling = &t->sampling,
                      .coin = coin,
                      .q = &t->q[0][0],
                      .q_rows = pl_tree_expanded(policy),
                      .vocab = t->v,
                      .work = &t->work,
                      .dist = t->dist};
    int          frontier[PL_TREE_MAX] = {0}, next[PL_TREE_MAX], n = 1;
    int32_t      id[PL_TREE_GROWN];
    float        logp[PL_TREE_GROWN];
    assert_true(o.q_rows * t->v <= ROWS * V_MAX);
    pl_tree_root(&t->tree, 0);
    for (int level = 0; n > 0 && level < policy->depth; level++) {
        for (int i = 0; i < n; i++) {
            int wanted = pl_tree_wanted(policy, &t->tree, frontier[i]);
            for (int j = wanted; j < policy->k; j++)
                id[i * policy->k + j] = -1;
            pl_propose_draw(&o, &t->tree, frontier[i], t->logits[prefix_of(t, &t->tree, frontier[i])],
                            &(pl_drafted){.n = t->v}, wanted, id + i * policy->k, logp + i * policy->k);
        }
        n = policy->kind->grow(policy, &t->tree, level, frontier, n, id, logp, next);
        memcpy(frontier, next, sizeof next);
    }
    pl_tree_finish(policy, &t->tree);
}

// ---- losslessness ---------------------------------------------------------------------------------------------------

typedef struct outcome {
    double  error, accepted; // of the joint distribution; drafted tokens accepted on average
    int64_t runs, shapes;    // trees that are smaller than the largest
} outcome;

// Adds `weight` of what the target says after a prefix to all sequences of `depth` + 1 tokens.
static void go_on(const toy *t, int depth, int prefix, int at, int len, double weight, double *joint) {
    if (len > depth) {
        joint[at] += weight;
        return;
    }
    for (int i = 0; i < t->v; i++)
        if (t->p[prefix][i] > 0)
            go_on(t, depth, prefix_after(t, prefix, i), at * t->v + i, len + 1, weight * t->p[prefix][i], joint);
}

static outcome enumerate(toy *t, const pl_tree_policy *policy, const pl_verifier *v) {
    static double joint[PREFIXES], want[PREFIXES];
    double        p[V_MAX], q[V_MAX], r[V_MAX], total = 0;
    outcome       o = {0};
    test_every    e;
    memset(joint, 0, sizeof joint);
    memset(want, 0, sizeof want);
    for (test_every_begin(&e); test_every_next(&e);) {
        pl_verdict out;
        draft(t, policy, v->proposal, &e.coin);
        o.shapes += t->tree.n < policy->max_nodes;
        pl_verify_in in = {
            .tree = &t->tree, .dist = dist_of, .arg = t, .v = t->v, .coin = &e.coin, .p = p, .q = q, .r = r};
        pl_verify(v, &in, &out);
        int at = 0;
        for (int i = 1; i <= out.n; i++)
            at = at * t->v + t->tree.token[out.path[i]];
        int x = prefix_after(t, prefix_of(t, &t->tree, out.path[out.n]), out.bonus);
        go_on(t, policy->depth, x, at * t->v + out.bonus, out.n + 1, e.probability, joint);
        total += e.probability;
        o.accepted += e.probability * out.n;
    }
    o.runs = e.runs;
    assert_true(fabs(total - 1) < 1e-12);
    go_on(t, policy->depth, 0, 0, 0, 1, want);
    for (int i = 0; i < PREFIXES; i++)
        o.error = fmax(o.error, fabs(joint[i] - want[i]));
    return o;
}

static const struct {
    const char *tree;
    int         v, seeds;
} trees[] = {{"beam:2,2", 3, 6},     {"beam:1,3", 3, 6},     {"beam:3,1", 4, 6},     {"beam:2,3", 2, 6},
             {"beam:2,2,0.6", 3, 6}, {"beam:2,3,0.7", 2, 6}, {"dyspec:3,2,2", 3, 6}, {"dyspec:4,2,2", 3, 6},
             {"dyspec:3,3,2", 3, 1}, {"dyspec:4,2,3", 2, 6}, {"dyspec:5,1,3", 3, 3}, {"dyspec:3,4,1", 4, 6}};

static void drawn_trees_are_lossless(void **state) {
    (void)state;
    int64_t cases = 0, runs = 0;
    double  worst = 0;
    for (size_t i = 0; i < sizeof trees / sizeof *trees; i++)
        for (int l = 0; l < LOOKS; l++)
            for (uint64_t seed = 0; seed < (uint64_t)trees[i].seeds; seed++) {
                pl_tree_policy p = policy_of(trees[i].tree);
                make(&the_toy, trees[i].v, (look)l, seed);
                outcome o = enumerate(&the_toy, &p, &pl_verify_recursive_wor);
                if (!(o.error < 1e-14))
                    fail_msg("%s: look %d, seed %d: off by %.3g", p.text, l, (int)seed, o.error);
                worst = fmax(worst, o.error);
                cases++;
                runs += o.runs;
                pl_distribution_work_fini(&the_toy.work);
            }
    print_message("%lld cases, %lld outcomes, off by %.2g at most\n", (long long)cases, (long long)runs, worst);
}

// A node is kept or expanded for its own token's sake, and passed off as predictable.
static void controls_fail(void **state) {
    (void)state;
    static const char *const chosen[] = {"eagle2:3,2,2", "eagle2:4,2,2", "beam:2,2", "beam:2,3"};
    for (size_t i = 0; i < sizeof chosen / sizeof *chosen; i++) {
        pl_tree_policy p = policy_of(chosen[i]);
        pl_tree_kind   kind = *p.kind;
        double         error = 0;
        kind.races = false; // a beam by the probabilities of what was drawn
        kind.predictable = true;
        p.kind = &kind;
        for (uint64_t seed = 0; seed < 4; seed++) {
            make(&the_toy, p.depth == 2 ? 3 : 2, PLAIN, seed);
            error = fmax(error, enumerate(&the_toy, &p, &pl_verify_recursive_wor).error);
            pl_distribution_work_fini(&the_toy.work);
        }
        print_message("%s that chooses what it has drawn: off by %.3f\n", p.text, error);
        assert_true(error > 0.01);
    }
}

static void sequences_are_lossless(void **state) {
    (void)state;
    static const struct {
        const char *tree, *without; // without: repeats lose what would grow under them
        int         v;
    } of[] = {{"sequences:2,2", "static:2x1", 3},
              {"sequences:3,2", "static:3x1x1", 2},
              {"sequences:2,3", "static:2x1x1", 2},
              {"sequences:1,3", "chain:3", 2}};
    double worst = 0;
    for (int i = 0; pl_verifier_at(i); i++) {
        const pl_verifier *v = pl_verifier_at(i);
        double             kept = 0, lost = 0;
        for (size_t s = 0; s < sizeof of / sizeof *of; s++)
            for (int l = 0; l < LOOKS; l++)
                for (uint64_t seed = 0; seed < 3; seed++) {
                    pl_tree_policy p = policy_of(of[s].tree), without = policy_of(of[s].without);
                    pl_err         err;
                    if (!v->lossless || pl_verifier_takes(v, &p, &err) != PL_OK) continue;
                    make(&the_toy, of[s].v, (look)l, seed);
                    outcome o = enumerate(&the_toy, &p, v);
                    if (!(o.error < 1e-14))
                        fail_msg("%s, %s: look %d, seed %d: off by %.3g", p.text, v->name, l, (int)seed, o.error);
                    worst = fmax(worst, o.error);
                    kept += o.accepted;
                    if (s < 3) lost += enumerate(&the_toy, &without, v).accepted;
                    pl_distribution_work_fini(&the_toy.work);
                }
        if (v->proposal == PL_PROPOSE_IID && !v->chain) assert_true(kept > 1.01 * lost);
    }
    print_message("sequences: off by %.2g at most\n", worst);
}

// As many draws at every depth as there are sequences, each behind the one that it continues.
static void sequences_keep_their_draws(void **state) {
    (void)state;
    pl_tree_policy p = policy_of("sequences:5,4");
    int            merged = 0;
    make(&the_toy, 3, PLAIN, 1);
    for (int64_t k = 0; k < 200; k++) {
        pl_rng_coin coin;
        int         drawn[5] = {0};
        pl_rng_coin_init(&coin, 5, PL_STREAM_DRAFT, 0, k);
        draft(&the_toy, &p, PL_PROPOSE_IID, &coin.base);
        const pl_tree *t = &the_toy.tree;
        for (int i = 0; i < t->n; i++) {
            int32_t token[PL_TREE_MAX];
            int     n = pl_tree_draws(t, i, token), times = 0, m = 0;
            assert_int_equal(n, t->drawn[i]);
            drawn[t->depth[i]] += n;
            if (i == 0) continue;
            m = pl_tree_draws(t, t->parent[i], token);
            for (int j = 0; j < m; j++)
                times += token[j] == t->token[i];
            assert_int_equal(n, t->depth[i] < 4 ? times : 0);
            merged += times > 1;
        }
        for (int d = 0; d < 4; d++)
            assert_int_equal(drawn[d], 5);
    }
    assert_true(merged > 100);
    pl_distribution_work_fini(&the_toy.work);
}

// ---- DySpec's heap --------------------------------------------------------------------------------------------------

// Draws what a hash of the weights says, so that equal weights draw the same token whenever they come.
static int64_t draw_hashed(pl_coin *c, const double *w, int64_t n, int64_t position) {
    uint64_t h = 1469598103934665603U, bits;
    (void)c, (void)position;
    for (int64_t i = 0; i < n; i++) {
        memcpy(&bits, &w[i], sizeof bits);
        h = (h ^ bits ^ (bits >> 29)) * 1099511628211U;
    }
    return pl_draw_at(w, n, (double)(h >> 11) / 9007199254740992.0);
}

typedef struct pending {
    int    node;  // of the tree below
    double value; // of its next draw
    double left[V_MAX];
} pending;

// Algorithm 1 of the paper: pops the largest value, draws, and puts back the sibling's and the child's next draws.
static void grow_by_heap(toy *t, int nodes, int depth, pl_coin *coin, pl_tree *out) {
    pending at[2 * ROWS];
    int     n = 1;
    double  q[V_MAX];
    pl_tree_root(out, 0);
    at[0] = (pending){.value = 1};
    assert_true(pl_distribution(at[0].left, t->logits[0], t->v, &t->sampling, &(pl_history){0}, &t->work));
    while (out->n < nodes && n > 0) {
        int best = 0;
        for (int i = 1; i < n; i++)
            if (at[i].value > at[best].value) best = i;
        pending *x = &at[best];
        double   sum = pl_sum(x->left, t->v);
        int64_t  y = coin->draw(coin, x->left, t->v, -1);
        double   share = x->left[y] / sum, value = x->value;
        int      child = pl_tree_add(out, x->node, (int32_t)y, 0);
        x->left[y] = 0;
        x->value = value * (1 - share);
        if (!(pl_sum(x->left, t->v) > 0)) *x = at[--n];
        if (out->depth[child] == depth) continue;
        assert_true(
            pl_distribution(q, t->logits[prefix_of(t, out, child)], t->v, &t->sampling, &(pl_history){0}, &t->work));
        at[n] = (pending){.node = child, .value = value * share};
        memcpy(at[n++].left, q, sizeof q);
    }
}

static void dyspec_is_the_heap(void **state) {
    (void)state;
    static pl_tree want;
    pl_coin        coin = {.draw = draw_hashed};
    int            wide = 0, deep = 0;
    for (uint64_t seed = 0; seed < 300; seed++) {
        static const char *const text[] = {"dyspec:8,4,6", "dyspec:5,4,6", "dyspec:9,4,3"};
        pl_tree_policy           p = policy_of(text[seed % 3]);
        make(&the_toy, 4, seed % 2 ? PLAIN : DRAFTER_ZEROS, 3 * seed);
        draft(&the_toy, &p, PL_PROPOSE_WOR, &coin);
        grow_by_heap(&the_toy, p.max_nodes, p.depth, &coin, &want);
        const pl_tree *t = &the_toy.tree;
        int            at[PL_TREE_MAX] = {0}; // nodes of `want`
        assert_int_equal(t->n, want.n);
        for (int i = 1; i < t->n; i++) {
            at[i] = pl_tree_child(&want, at[t->parent[i]], t->token[i]);
            assert_true(at[i] > 0 && want.rank[at[i]] == t->rank[i]);
            wide += t->rank[i] > 1;
            deep += t->depth[i] > 2;
        }
        pl_distribution_work_fini(&the_toy.work);
    }
    assert_true(wide > 20 && deep > 100);
}

// ---- RSD-S's samples ------------------------------------------------------------------------------------------------

// How far the pairs of paths of two tokens in a beam of two lie from a sample without replacement, in standard
// deviations of a G-test (Wilson and Hilferty 1931).
static double deviation_of_pairs(const pl_tree_policy *p, int trials) {
    enum { PATHS = 9 };
    double seen[PATHS][PATHS] = {{0}}, of[PATHS], q[4][V_MAX], g = 0;
    int    df = -1;
    for (int x = 0; x < 4; x++)
        assert_true(pl_distribution(q[x], the_toy.logits[x], 3, &the_toy.sampling, &(pl_history){0}, &the_toy.work));
    for (int i = 0; i < PATHS; i++)
        of[i] = q[0][i / 3] * q[1 + i / 3][i % 3];
    for (int k = 0; k < trials; k++) {
        const pl_tree *t = &the_toy.tree;
        pl_rng_coin    coin;
        int            path[2], n = 0;
        pl_rng_coin_init(&coin, 7, PL_STREAM_DRAFT, 0, k);
        draft(&the_toy, p, PL_PROPOSE_WOR, &coin.base);
        for (int i = 1; i < t->n; i++)
            if (t->depth[i] == 2) path[n++] = 3 * t->token[t->parent[i]] + t->token[i];
        assert_int_equal(n, 2);
        seen[path[0]][path[1]]++;
    }
    for (int i = 0; i < PATHS; i++)
        for (int j = 0; j < PATHS; j++) {
            double want = i == j ? 0 : trials * of[i] * of[j] / (1 - of[i]);
            if (want == 0) assert_true(seen[i][j] == 0);
            if (seen[i][j] > 0) g += 2 * seen[i][j] * log(seen[i][j] / want);
            df += want > 0;
        }
    double c = 2 / (9.0 * df);
    return (cbrt(fmax(g, 0) / df) - (1 - c)) / sqrt(c);
}

static void beams_are_samples_without_replacement(void **state) {
    (void)state;
    pl_tree_policy p = policy_of("beam:2,2");
    pl_tree_kind   other = *p.kind;
    make(&the_toy, 3, PLAIN, 6);
    double z = deviation_of_pairs(&p, 20000);
    other.races = false;
    p.kind = &other;
    double control = deviation_of_pairs(&p, 20000);
    print_message("pairs of paths: z %.2f; by their probabilities: z %.2f\n", z, control);
    assert_true(z < 4 && control > 6);
    pl_distribution_work_fini(&the_toy.work);
}

// ---- what combines --------------------------------------------------------------------------------------------------

static void verifiers_take_what_is_proved(void **state) {
    (void)state;
    static const char *const predictable[] = {"beam:3,4", "dyspec:20,4,3"}, *const chosen[] = {"opt:20,4,3,0.2"};
    for (int i = 0; pl_verifier_at(i); i++) {
        const pl_verifier *v = pl_verifier_at(i);
        bool               top = v->proposal == PL_PROPOSE_TOP;
        for (size_t k = 0; k < 3; k++) {
            pl_tree_policy p = policy_of(k < 2 ? predictable[k] : chosen[0]), seq = policy_of("sequences:2,3");
            pl_err         err = {0};
            pl_status      want = top || (k < 2 && v->proposal == PL_PROPOSE_WOR) ? PL_OK : PL_E_USAGE;
            assert_int_equal(pl_verifier_takes(v, &p, &err), want);
            if (want != PL_OK) assert_true(strstr(err.msg, p.kind->name) && strstr(err.msg, v->name));
            assert_int_equal(pl_verifier_takes(v, &seq, &err), v->chain ? PL_E_USAGE : PL_OK);
        }
    }
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(drawn_trees_are_lossless),
        cmocka_unit_test(controls_fail),
        cmocka_unit_test(sequences_are_lossless),
        cmocka_unit_test(sequences_keep_their_draws),
        cmocka_unit_test(dyspec_is_the_heap),
        cmocka_unit_test(beams_are_samples_without_replacement),
        cmocka_unit_test(verifiers_take_what_is_proved),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
