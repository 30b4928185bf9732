// The planner of trees against every tree there is, and the autotuner that feeds it against simulated machines.
#include "infer/decode/autotuner.h"

#include "kernels/base/clock.h"
#include "kernels/base/rng.h"

#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

typedef struct dice {
    pl_rng   r;
    uint64_t at;
} dice;

static double uniform(dice *d) {
    return (double)pl_rng_below(d->r, d->at++, 1000000) / 1e6;
}

// ---- all trees ------------------------------------------------------------------------------------------------------

typedef struct all {
    const pl_shape_costs *c;
    int                   n, parent[16], depth[16], rank[16];
    double                f[16];
    int                   width, levels;     // looked for with at most these
    double                rate, emitted[16]; // best rate; largest E by nodes
    long                  trees;
} all;

// E and C of a tree, from their definitions.
static void judge(const pl_shape_costs *c, int n, const int32_t *parent, double *emitted, double *seconds, int *widest,
                  int *deepest) {
    double f[PL_SHAPE_NODES] = {1};
    int    depth[PL_SHAPE_NODES] = {0}, children[PL_SHAPE_NODES] = {0}, w[PL_SHAPE_LEVELS + 1] = {0};
    *emitted = 1;
    *deepest = *widest = 0;
    for (int i = 1; i < n; i++) {
        depth[i] = depth[parent[i]] + 1;
        f[i] = f[parent[i]] * c->accept[depth[i] - 1][children[parent[i]]];
        if (children[parent[i]]++ == 0) w[depth[i] - 1]++;
        *emitted += f[i];
        if (depth[i] > *deepest) *deepest = depth[i];
    }
    *seconds = c->verify[n];
    for (int l = 0; l < *deepest; l++) {
        if (l > 0) *seconds += c->draft[w[l]];
        if (w[l] > *widest) *widest = w[l];
    }
}

static void consider(all *a) {
    int32_t parent[16];
    double  emitted, seconds;
    int     widest, deepest;
    for (int i = 0; i < a->n; i++)
        parent[i] = a->parent[i];
    judge(a->c, a->n, parent, &emitted, &seconds, &widest, &deepest);
    if (widest > a->width || deepest > a->levels) return;
    a->trees++;
    if (emitted / seconds > a->rate) a->rate = emitted / seconds;
    if (emitted > a->emitted[a->n]) a->emitted[a->n] = emitted;
}

// Nodes before `s` have their children; s gets 0, 1, ..., ranks of them.
static void enumerate(all *a, int s) {
    if (s == a->n) {
        consider(a);
        return;
    }
    int n = a->n;
    enumerate(a, s + 1);
    for (int r = 0; r < a->c->ranks && a->n < a->c->nodes && a->depth[s] < a->c->levels; r++) {
        a->parent[a->n] = s;
        a->depth[a->n++] = a->depth[s] + 1;
        enumerate(a, s + 1);
    }
    a->n = n;
}

static void enumerate_all(all *a, const pl_shape_costs *c, int width, int levels) {
    *a = (all){.c = c, .n = 1, .width = width, .levels = levels};
    enumerate(a, 0);
}

// flat: a level costs the same however wide; else more with every node, at random.
static pl_shape_costs random_costs(dice *d, bool flat) {
    pl_shape_costs c = {.levels = 2 + (int)(uniform(d) * 5),
                        .ranks = 1 + (int)(uniform(d) * 4),
                        .width = flat ? PL_SHAPE_WIDTH : 1 + (int)(uniform(d) * 4),
                        .nodes = 2 + (int)(uniform(d) * 8)};
    double         scale = 0.2 + uniform(d), row = uniform(d) * uniform(d) * uniform(d), wide = uniform(d) * 0.5;
    for (int l = 0; l < c.levels; l++) {
        double left = scale * (0.4 + 0.6 * uniform(d));
        if (left > 1) left = 1;
        for (int r = 0; r < c.ranks; r++) {
            double x = left * (0.4 + 0.6 * uniform(d));
            if (r > 0 && x > c.accept[l][r - 1]) x = c.accept[l][r - 1];
            c.accept[l][r] = x;
            left -= x;
        }
    }
    for (int n = 1; n <= c.nodes; n++)
        c.verify[n] = n == 1 ? 1 : c.verify[n - 1] + row * uniform(d);
    for (int w = 1; w <= c.width; w++)
        c.draft[w] = w == 1 ? 0.02 + 0.3 * uniform(d) : c.draft[w - 1] * (flat ? 1 : 1 + wide * uniform(d));
    return c;
}

// What the planner says about its tree is true, and the tree is within the limits.
static double checked_rate(const pl_shape_costs *c, const pl_shape *s) {
    double emitted, seconds;
    int    widest, deepest, children[PL_SHAPE_NODES] = {0};
    assert_true(s->n >= 1 && s->n <= c->nodes);
    for (int i = 1; i < s->n; i++) {
        assert_true(s->parent[i] >= 0 && s->parent[i] < i);
        assert_true(++children[s->parent[i]] <= c->ranks);
    }
    judge(c, s->n, s->parent, &emitted, &seconds, &widest, &deepest);
    assert_true(widest <= c->width && deepest <= c->levels);
    assert_true(fabs(emitted - s->emitted) < 1e-12 * emitted && fabs(seconds - s->seconds) < 1e-12 * seconds);
    return emitted / seconds;
}

// A level's cost does not depend on its width: nothing among all trees is better.
static void flat_levels_are_exact(void **state) {
    (void)state;
    dice     d = {.r = pl_rng_make(1, PL_STREAM_TEST, 0)};
    pl_shape s;
    all      a;
    int      chains = 0, trees = 0, none = 0;
    for (int k = 0; k < 400; k++) {
        pl_shape_costs c = random_costs(&d, true);
        pl_shape_best(&c, &s);
        enumerate_all(&a, &c, PL_SHAPE_WIDTH, c.levels);
        double rate = checked_rate(&c, &s);
        if (fabs(rate - a.rate) > 1e-12 * rate) fail_msg("case %d: %.15g, best of all %.15g", k, rate, a.rate);
        bool chain = true;
        for (int i = 1; i < s.n; i++)
            chain &= s.parent[i] == i - 1;
        none += s.n == 1;
        chains += s.n > 1 && chain;
        trees += !chain;
    }
    print_message("none %d, chains %d, trees %d\n", none, chains, trees);
    assert_true(none > 3 && chains > 20 && trees > 100); // each of them pays somewhere
}

// For given levels, width and nodes no tree emits more: asked by making that number of nodes the only one that pays.
static void emitted_is_exact(void **state) {
    (void)state;
    dice     d = {.r = pl_rng_make(2, PL_STREAM_TEST, 0)};
    pl_shape s;
    all      a;
    int      asked = 0;
    for (int k = 0; k < 150; k++) {
        pl_shape_costs c = random_costs(&d, true);
        for (int width = 1; width <= 3; width++) {
            c.width = width;
            enumerate_all(&a, &c, width, c.levels);
            for (int n = 2; n <= c.nodes; n++) {
                pl_shape_costs only = c;
                if (a.emitted[n] == 0) continue; // too few levels and ranks
                for (int i = 1; i <= PL_SHAPE_NODES; i++)
                    only.verify[i] = i == n ? 1 : 1e9;
                for (int w = 1; w <= width; w++)
                    only.draft[w] = 0;
                pl_shape_best(&only, &s);
                checked_rate(&only, &s);
                assert_int_equal(s.n, n);
                if (fabs(s.emitted - a.emitted[n]) > 1e-12 * s.emitted)
                    fail_msg("case %d, %d wide, %d nodes: %.15g of %.15g", k, width, n, s.emitted, a.emitted[n]);
                asked++;
            }
        }
    }
    assert_true(asked > 1000);
}

// Costs that grow with the width: the planner may miss trees that narrow on the way. How much that is.
static void wide_levels_are_close(void **state) {
    (void)state;
    dice     d = {.r = pl_rng_make(3, PL_STREAM_TEST, 0)};
    pl_shape s;
    all      a;
    double   worst = 1;
    int      exact = 0, cases = 1000;
    for (int k = 0; k < cases; k++) {
        pl_shape_costs c = random_costs(&d, false);
        pl_shape_best(&c, &s);
        enumerate_all(&a, &c, c.width, c.levels);
        double share = checked_rate(&c, &s) / a.rate;
        assert_true(share < 1 + 1e-12);
        exact += share > 1 - 1e-12;
        if (share < worst) worst = share;
    }
    print_message("best of all trees found in %d of %d cases, worst %.4f of it\n", exact, cases, worst);
    assert_true(exact > cases * 97 / 100 && worst > 0.97);
}

static void kinds_of_trees(void **state) {
    (void)state;
    dice     d = {.r = pl_rng_make(4, PL_STREAM_TEST, 0)};
    pl_shape s;
    for (int k = 0; k < 200; k++) {
        pl_shape_costs c = random_costs(&d, false);
        double         best = 1 / c.verify[1], emitted = 1, f = 1, seconds = 0;
        c.ranks = 1; // chains: the formula is short
        for (int l = 0; l < c.levels && l + 2 <= c.nodes; l++) {
            f *= c.accept[l][0];
            emitted += f;
            if (l > 0) seconds += c.draft[1];
            if (emitted / (c.verify[l + 2] + seconds) > best) best = emitted / (c.verify[l + 2] + seconds);
        }
        pl_shape_best(&c, &s);
        assert_true(fabs(checked_rate(&c, &s) - best) < 1e-12 * best);
        c.branching = true; // of chains none branches
        pl_shape_best(&c, &s);
        assert_int_equal(s.n, 0);
        c = random_costs(&d, false);
        c.branching = true;
        pl_shape_best(&c, &s);
        int chain = 1;
        for (int i = 1; i < s.n; i++)
            chain &= s.parent[i] == i - 1;
        assert_true(s.n == 0 ? c.ranks == 1 || c.nodes < 3 : !chain);
    }
}

static void rising(void **state) {
    (void)state;
    dice d = {.r = pl_rng_make(6, PL_STREAM_TEST, 0)};
    for (int k = 0; k < 500; k++) {
        double x[8], y[8], w[8];
        int    n = 1 + (int)(uniform(&d) * 8);
        for (int i = 0; i < n; i++) {
            x[i] = y[i] = floor(6 * uniform(&d));
            w[i] = 0.1 + uniform(&d);
        }
        pl_shape_rising(y, w, n);
        // The least squares solution: max over lo <= i of min over hi >= i of the mean of lo..hi.
        for (int i = 0; i < n; i++) {
            double want = -1e300;
            for (int lo = 0; lo <= i; lo++) {
                double least = 1e300;
                for (int hi = i; hi < n; hi++) {
                    double sum = 0, weight = 0;
                    for (int j = lo; j <= hi; j++) {
                        sum += x[j] * w[j];
                        weight += w[j];
                    }
                    if (sum / weight < least) least = sum / weight;
                }
                if (least > want) want = least;
            }
            assert_true(fabs(want - y[i]) < 1e-9);
        }
    }
}

// ---- the autotuner
// -------------------------------------------------------------------------------------------------------

static void costs_by_rows(void **state) {
    (void)state;
    pl_autotuner_cost c = {0};
    double            at[65];
    pl_autotuner_cost_read(&c, 1, 64, at);
    assert_true(at[1] == 0 && at[64] == 0);
    pl_autotuner_cost_add(&c, 4, 9); // cold
    for (int i = 0; i < 20; i++) {
        pl_autotuner_cost_add(&c, 4, 2);
        pl_autotuner_cost_add(&c, 8, 4);
    }
    pl_autotuner_cost_read(&c, 1, 64, at);
    assert_true(fabs(at[4] - 2) < 1e-9); // the cold one is forgotten
    assert_true(fabs(at[1] - 2) < 1e-9 && fabs(at[6] - 3) < 1e-9 && fabs(at[8] - 4) < 1e-9);
    assert_true(fabs(at[64] - (4 + 56 * 0.5)) < 1e-9); // the mean slope goes on
    pl_autotuner_cost_read(&c, 4, 2, at);              // rows of four sessions
    assert_true(fabs(at[1] - 2) < 1e-9 && fabs(at[2] - 4) < 1e-9);
    pl_autotuner_cost_add(&c, 8, 4000); // something else ran
    pl_autotuner_cost_read(&c, 1, 8, at);
    assert_true(at[8] < 4.5);
    for (int i = 0; i < 150; i++) {
        pl_autotuner_cost_add(&c, 4, 2);
        pl_autotuner_cost_add(&c, 8, 4);
    }
    for (int i = 0; i < 60; i++) // the machine slows down: counts that are not visited follow
        pl_autotuner_cost_add(&c, 8, 8);
    pl_autotuner_cost_read(&c, 1, 8, at);
    assert_true(fabs(at[8] - 8) < 0.1 && fabs(at[4] - 4) < 0.5);
    for (int i = 0; i < 40; i++)
        pl_autotuner_cost_add(&c, 16, 1); // more rows for less: noise, pooled
    pl_autotuner_cost_read(&c, 1, 16, at);
    for (int i = 2; i <= 16; i++)
        assert_true(at[i] >= at[i - 1]);
    for (int rows = 60; rows < 5000; rows++) // large counts share buckets
        pl_autotuner_cost_add(&c, rows, 1e-3 * rows);
    pl_autotuner_cost_read(&c, 64, 64, at);
    assert_true(at[30] > 1.6 && at[30] < 2.2);
}

// What took long once, since memory was new or the machine was busy, is believed no longer than until it is seen again
// or a larger count refutes it.
static void cold_costs(void **state) {
    (void)state;
    pl_autotuner_cost c = {0};
    double            at[33];
    pl_autotuner_cost_add(&c, 16, 20);
    pl_autotuner_cost_add(&c, 16, 21);
    pl_autotuner_cost_read(&c, 1, 32, at);
    assert_true(at[16] > 19);
    for (int i = 0; i < 10; i++)
        pl_autotuner_cost_add(&c, 24, 6);
    pl_autotuner_cost_read(&c, 1, 32, at);
    assert_true(fabs(at[24] - 6) < 1e-9 && fabs(at[16] - 6) < 1e-9);
    for (int i = 0; i < 3; i++)
        pl_autotuner_cost_add(&c, 16, 5);
    pl_autotuner_cost_read(&c, 1, 32, at);
    assert_true(fabs(at[16] - 5) < 1e-9 && fabs(at[24] - 6) < 1e-9); // one count was cold, and nothing else
}

// A machine and a drafter to simulate.
typedef struct machine {
    const char *name;
    double      accept[3]; // by rank at depth 0; deeper: times fade each level
    double      fade;
    double      start, row, bend; // verify: start + row for each row, from `bend` rows on
    double      level, node;      // draft: one level, each node
    double      first;            // taking in and level 0, of all sessions; a fifth of it where nothing is drafted
    int         sessions;
} machine;

static double verify_cost(const machine *m, double rows) {
    return m->start + (rows > m->bend ? m->row * (rows - m->bend) : 0);
}

static double accept_of(const machine *m, int depth, int rank) {
    return rank < 3 ? m->accept[rank] * pow(m->fade, depth) : 0.002;
}

static pl_shape_costs truth(const machine *m, const pl_tree_policy *p) {
    pl_shape_costs c = {.levels = p->depth_max, .ranks = p->k, .width = p->width, .nodes = p->max_nodes};
    for (int l = 0; l < c.levels; l++)
        for (int r = 0; r < c.ranks; r++)
            c.accept[l][r] = accept_of(m, l, r);
    for (int n = 1; n <= c.nodes; n++)
        c.verify[n] = verify_cost(m, n * m->sessions) + (n > 1 ? m->first : m->first / 5);
    for (int w = 1; w <= c.width; w++)
        c.draft[w] = m->level + m->node * w * m->sessions;
    return c;
}

// Drafts one tree of the policy's shape; tokens tell the rank.
static void simulate_draft(const pl_tree_policy *p, pl_tree *t, const machine *m, double *now) {
    int     frontier[PL_TREE_MAX] = {0}, next[PL_TREE_MAX], n = 1;
    int32_t id[PL_TREE_GROWN];
    float   logp[PL_TREE_GROWN] = {0};
    pl_tree_root(t, -7);
    *now += p->depth > 0 ? m->first : m->first / 5;
    for (int l = 0; n > 0 && l < p->depth; l++) {
        for (int i = 0; i < n * p->k; i++)
            id[i] = i % p->k;
        int rows = n;
        n = p->kind->grow(p, t, l, frontier, n, id, logp, next);
        if (l > 0) *now += m->level + m->node * rows * m->sessions;
        t->notes.at[l] = *now;
        memcpy(frontier, next, sizeof next);
    }
}

static void simulate_verdict(const pl_tree *t, const machine *m, dice *d, pl_verdict *v) {
    *v = (pl_verdict){0};
    for (int node = 0, depth = 0;; depth++) {
        double u = uniform(d);
        int    r = 0;
        while (r < 8 && u >= accept_of(m, depth, r))
            u -= accept_of(m, depth, r++);
        v->bonus = r; // 8: none of the candidates
        node = pl_tree_child(t, node, r);
        if (node < 0) return;
        v->path[++v->n] = node;
    }
}

// Cycles on the machine; returns the true rate of what was settled on, as a share of the best there is.
static double settle(const machine *m, const char *tree, int cycles, char *text, double *spent) {
    pl_tree_policy p;
    pl_err         err = {0};
    pl_autotuner   tuner;
    pl_tree       *t = calloc((size_t)m->sessions, sizeof *t);
    dice           d = {.r = pl_rng_make(9, PL_STREAM_TEST, (uint64_t)m->sessions)};
    assert_int_equal(pl_tree_policy_parse(&p, tree, &err), PL_OK);
    pl_autotuner_init(&tuner, &p);
    double now = 0;
    for (int s = 0; s < m->sessions; s++)
        simulate_draft(&p, &t[s], m, &(double){0});
    for (int i = 0; i < cycles; i++) {
        pl_autotuner_cycle c = {.pace.sessions = m->sessions};
        double             t0 = now, end = now, t1;
        for (int s = 0; s < m->sessions; s++) {
            pl_verdict v;
            simulate_verdict(&t[s], m, &d, &v);
            pl_autotuner_accepted(&tuner, &t[s], &v);
            c.pace.rows += t[s].n;
            c.pace.emitted += v.n + 1;
        }
        now += verify_cost(m, c.pace.rows) * (0.95 + 0.1 * uniform(&d));
        t1 = now;
        c.pace.verifying = t1 - t0;
        for (int s = 0; s < m->sessions; s++) { // the levels of all sessions run together
            end = now;
            simulate_draft(&p, &t[s], m, &end);
            pl_autotuner_drafted(&c, &t[s]);
        }
        now = end;
        c.pace.drafting = now - t1;
        pl_autotuner_step(&tuner, &p, &c);
    }
    pl_shape_costs c = truth(m, &p);
    pl_shape       best;
    double         emitted, seconds;
    int            widest, deepest;
    pl_tree_shape_set(&p, tuner.chosen.n, tuner.chosen.parent);
    pl_tree_shape_text(&p, text, PL_TREE_TEXT);
    pl_shape_best(&c, &best);
    // What it believes of the machine is so, where it has been.
    pl_shape_costs known;
    pl_autotuner_costs(&tuner, &p, m->sessions, &known);
    int n = tuner.chosen.n;
    if (fabs(known.verify[n] / c.verify[n] - 1) > 0.08 || fabs(known.draft[1] / c.draft[1] - 1) > 0.08)
        fail_msg("%s: %d nodes cost %g, not %g; a level %g, not %g", m->name, n, known.verify[n], c.verify[n],
                 known.draft[1], c.draft[1]);
    assert_true(fabs(known.accept[0][0] - c.accept[0][0]) < 0.1);
    judge(&c, tuner.chosen.n, tuner.chosen.parent, &emitted, &seconds, &widest, &deepest);
    *spent = tuner.seconds / (double)tuner.choices;
    free(t);
    return emitted / seconds * best.seconds / best.emitted;
}

static void settles_on_what_pays(void **state) {
    (void)state;
    static const machine m[] = {
        {"few rows are free", {0.7, 0.1, 0.03}, 0.97, 1, 0.12, 6, 0.08, 0.004, 0.15, 1},
        {"rows are free", {0.6, 0.15, 0.08}, 0.95, 1, 0.01, 48, 0.03, 0.001, 0.15, 1},
        {"rows are dear", {0.7, 0.1, 0.05}, 0.95, 1, 0.4, 1, 0.05, 0.02, 0.15, 1},
        {"a sure drafter", {0.97, 0.01, 0.005}, 1, 1, 0.05, 8, 0.03, 0.002, 0.15, 1},
        {"a useless drafter", {0.02, 0.01, 0.01}, 1, 1, 0.1, 1, 0.1, 0.01, 0.15, 1},
        {"four sessions", {0.6, 0.15, 0.05}, 0.95, 1, 0.05, 16, 0.04, 0.004, 0.15, 4},
    };
    char text[PL_TREE_TEXT];
    for (size_t i = 0; i < sizeof m / sizeof *m; i++)
        for (int chain = 0; chain < 2; chain++) {
            double spent, share = settle(&m[i], chain ? "chain:auto" : "auto", 600, text, &spent);
            print_message("%-20s %-10s %.3f of the best rate: %s (%.0f us a choice)\n", m[i].name,
                          chain ? "chain:auto" : "auto", share, text, 1e6 * spent);
            assert_true(share > 0.95);
            if (chain) assert_true(strncmp(text, "chain:", 6) == 0 || strcmp(text, "none") == 0);
            if (i == 1 && !chain) assert_true(strncmp(text, "static:", 7) == 0);
            if (i == 4) assert_string_equal(text, "none");
        }
}

// A cycle of one session: what was drafted is verified, which takes so long, and told to the tuner; then it drafts anew.
static void one_cycle(pl_autotuner *tuner, pl_tree_policy *p, pl_tree *t, const machine *m, dice *d, double verifying,
                      double *now) {
    pl_autotuner_cycle c = {.pace = {.sessions = 1, .rows = t->n, .verifying = verifying}};
    pl_verdict         v;
    simulate_verdict(t, m, d, &v);
    pl_autotuner_accepted(tuner, t, &v);
    c.pace.emitted = v.n + 1;
    *now += verifying;
    double drafts = *now;
    simulate_draft(p, t, m, now);
    pl_autotuner_drafted(&c, t);
    c.pace.drafting = *now - drafts;
    pl_autotuner_step(tuner, p, &c);
}

// Steps of one row were slow while the autotuner began, and seen twice: drafts of 3 in 10 right tokens look free beside
// them, and are not. It decodes plainly now and then, and finds that nothing pays.
static void finds_plain_again(void **state) {
    (void)state;
    pl_tree_policy p;
    pl_err         err = {0};
    pl_autotuner   tuner;
    pl_tree       *t = calloc(1, sizeof *t);
    machine        m = {"", {0.3, 0.05, 0.02}, 0.9, 1, 0.4, 1, 0.02, 0.005, 0.02, 1};
    dice           d = {.r = pl_rng_make(14, PL_STREAM_TEST, 0)};
    double         now = 0;
    long           drafting = 0, plain = 0, early = 0;
    enum { COLD = 100, CYCLES = 3000 };
    assert_int_equal(pl_tree_policy_parse(&p, "chain:auto", &err), PL_OK);
    pl_autotuner_init(&tuner, &p);
    simulate_draft(&p, t, &m, &now);
    for (int i = 0; i < CYCLES; i++) {
        plain += t->n == 1 && tuner.chosen.n > 1;
        one_cycle(&tuner, &p, t, &m, &d, i < COLD && t->n == 1 ? 5 : verify_cost(&m, t->n), &now);
        if (i < CYCLES / 2) early += tuner.chosen.n > 1;
        if (i >= CYCLES / 2) drafting += tuner.chosen.n > 1;
    }
    print_message("chosen to draft in %ld of the first cycles, %ld of the last %d; %ld plain ones beside drafts\n",
                  early, drafting, CYCLES / 2, plain);
    assert_true(early > 100 && plain > 0 && drafting < CYCLES / 20);
    free(t);
}

// The drafter gets worse: the autotuner follows.
static void follows_changes(void **state) {
    (void)state;
    pl_tree_policy p;
    pl_err         err = {0};
    pl_autotuner   tuner;
    pl_tree       *t = calloc(1, sizeof *t);
    machine        m = {"", {0.9, 0.03, 0.01}, 1, 1, 0.05, 1, 0.05, 0.005, 0.05, 1};
    dice           d = {.r = pl_rng_make(12, PL_STREAM_TEST, 0)};
    double         now = 0;
    int            nodes[2];
    assert_int_equal(pl_tree_policy_parse(&p, "auto", &err), PL_OK);
    pl_autotuner_init(&tuner, &p);
    simulate_draft(&p, t, &m, &now);
    for (int half = 0; half < 2; half++) {
        for (int i = 0; i < 1500; i++)
            one_cycle(&tuner, &p, t, &m, &d, verify_cost(&m, t->n), &now);
        nodes[half] = tuner.chosen.n;
        m.accept[0] = 0.1;
    }
    print_message("%d nodes, then %d\n", nodes[0], nodes[1]);
    assert_true(nodes[0] >= 8 && nodes[1] <= 3);
    free(t);
}

// A drafter that is dear and never right, on a machine whose every cycle is told; from `turns` on always right. Returns
// the cycle in which drafting began, -1: it did not; *lost: the share of the time that all tokens up to `turns` would
// not have taken without it.
static int rest(const machine *m, int cycles, int turns, double *lost) {
    pl_tree_policy p;
    pl_err         err = {0};
    pl_autotuner   tuner;
    pl_tree       *t = calloc((size_t)m->sessions, sizeof *t);
    machine        now_is = *m;
    dice           d = {.r = pl_rng_make(13, PL_STREAM_TEST, (uint64_t)m->sessions)};
    double         now = 0, tokens = 0, plain = verify_cost(m, m->sessions) + m->first / 5;
    int            began = -1;
    assert_int_equal(pl_tree_policy_parse(&p, "chain:auto", &err), PL_OK);
    pl_autotuner_init(&tuner, &p);
    for (int s = 0; s < m->sessions; s++)
        pl_tree_root(&t[s], -7);
    for (int i = 0; i < cycles && began < 0; i++) {
        pl_autotuner_cycle c = {.pace.sessions = m->sessions};
        double             t0 = now, end;
        if (i == turns) now_is.accept[0] = 1;
        for (int s = 0; s < m->sessions; s++) {
            pl_verdict v;
            simulate_verdict(&t[s], &now_is, &d, &v);
            pl_autotuner_accepted(&tuner, &t[s], &v);
            c.pace.rows += t[s].n;
            c.pace.emitted += v.n + 1;
        }
        now += verify_cost(m, c.pace.rows);
        c.pace.verifying = now - t0;
        // One session tries: the others draft when something was chosen.
        pl_tree_policy none = p;
        pl_tree_shape_set(&none, 1, &(int32_t){-1});
        end = now;
        for (int s = 0; s < m->sessions; s++) {
            double at = now;
            simulate_draft(s && pl_autotuner_tries(&tuner) ? &none : &p, &t[s], m, &at);
            pl_autotuner_drafted(&c, &t[s]);
            if (at > end) end = at;
        }
        c.pace.drafting = end - now;
        now = end;
        pl_autotuner_step(&tuner, &p, &c);
        tokens += c.pace.emitted;
        if (i < turns) *lost = 1 - tokens / m->sessions * plain / now;
        if (i > turns && tuner.chosen.n > 1) began = i;
    }
    free(t);
    return began;
}

static void trials_are_bounded(void **state) {
    (void)state;
    static const machine m[] = {
        {"cheap to try", {0.02, 0.01, 0.01}, 1, 1, 0.05, 1, 0.02, 0.001, 0.05, 1},
        {"dear to try", {0.02, 0.01, 0.01}, 1, 1, 0.3, 1, 2, 0.1, 3, 1},
        {"dear, sixteen sessions", {0.02, 0.01, 0.01}, 1, 1, 0.05, 16, 0.5, 0.02, 1, 16},
    };
    for (size_t i = 0; i < sizeof m / sizeof *m; i++) {
        double lost = 0;
        assert_int_equal(rest(&m[i], 20000, 20000, &lost), -1);
        print_message("%-24s never right: %.2f %% of 20,000 cycles lost\n", m[i].name, 100 * lost);
        assert_true(lost < 0.01);
    }
    double lost;
    int    began = rest(&m[0], 10000, 5000, &lost);
    print_message("right from cycle 5000 on: taken in cycle %d\n", began);
    assert_true(began > 5000 && began < 7500);
}

// Trials in which nobody could draft teach nothing and do not put off the next one.
static void trials_without_drafts(void **state) {
    (void)state;
    pl_tree_policy     p;
    pl_err             err = {0};
    pl_autotuner       tuner;
    pl_autotuner_cycle plain = {.pace = {.sessions = 1, .rows = 1, .emitted = 1, .verifying = 1, .drafting = 1e-6}};
    assert_int_equal(pl_tree_policy_parse(&p, "chain:auto", &err), PL_OK);
    pl_autotuner_init(&tuner, &p);
    for (int i = 0; i < 2000; i++)
        pl_autotuner_step(&tuner, &p, &plain);
    print_message("%ld trials without a draft, a pause of %ld\n", tuner.trials.begun, tuner.trials.pause);
    assert_true(tuner.trials.begun > 10 && tuner.trials.begun < 2000 / PL_AUTOTUNER_PAUSE + 1);
    assert_int_equal(tuner.trials.pause, PL_AUTOTUNER_PAUSE);
    assert_true(tuner.trials.loss == 0);
}

// A drafter that is right nine times in ten where it says `sure`, two times in ten where it says `unsure`, and one or
// the other at every token: tokens per second of chains, a step being one second and a level 0.15. `drafted`: a cycle.
static double decode_unsure(const char *tree, double sure, double unsure, double *drafted) {
    pl_tree_policy p;
    pl_err         err = {0};
    pl_autotuner   tuner;
    pl_tree       *t = calloc(1, sizeof *t);
    dice           d = {.r = pl_rng_make(9, PL_STREAM_TEST, 3)};
    double         right[PL_TREE_MAX], now = 0, emitted = 0;
    enum { CYCLES = 6000 };
    assert_int_equal(pl_tree_policy_parse(&p, tree, &err), PL_OK);
    pl_autotuner_init(&tuner, &p);
    pl_tree_root(t, -7);
    *drafted = 0;
    for (int i = 0; i < CYCLES; i++) {
        pl_autotuner_cycle c = {.pace = {.sessions = 1, .rows = t->n}};
        pl_verdict         v = {.bonus = 1};
        while (v.n + 1 < t->n && uniform(&d) < right[v.n]) {
            v.n++;
            v.path[v.n] = v.n;
        }
        pl_autotuner_accepted(&tuner, t, &v);
        emitted += c.pace.emitted = v.n + 1;
        *drafted += (double)(t->n - 1) / CYCLES;
        c.pace.verifying = 1 + 0.02 * (t->n - 1);
        now += c.pace.verifying;
        double began = now;
        pl_tree_root(t, -7);
        for (int l = 0, node = 0, n = 1; n > 0 && l < p.depth; l++) {
            bool is_sure = uniform(&d) < 0.5;
            right[l] = is_sure ? 0.9 : 0.2;
            n = p.kind->grow(&p, t, l, &node, 1, &(int32_t){0}, &(float){(float)log(is_sure ? sure : unsure)}, &node);
            now += 0.15;
            t->notes.at[l] = now;
        }
        pl_autotuner_drafted(&c, t);
        c.pace.drafting = now - began;
        pl_autotuner_step(&tuner, &p, &c);
    }
    free(t);
    return emitted / now;
}

// Drafts that end where the drafter is not sure bring more, also where its own probabilities are wrong: what counts is
// that they tell the cases apart.
static void confidence_pays(void **state) {
    (void)state;
    static const double said[3][2] = {{0.9, 0.2}, {0.6, 0.3}, {0.98, 0.7}};
    double              drafted, before = decode_unsure("chain:auto", 0.9, 0.2, &drafted);
    print_message("chain:auto: %.3f tokens a second, %.2f drafted a cycle\n", before, drafted);
    for (int i = 0; i < 3; i++) {
        double rate = decode_unsure("chain:confidence", said[i][0], said[i][1], &drafted);
        print_message("who says %.2f and %.2f: %.3f, %.2f drafted\n", said[i][0], said[i][1], rate, drafted);
        assert_true(rate > 1.04 * before);
    }
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(flat_levels_are_exact),
        cmocka_unit_test(emitted_is_exact),
        cmocka_unit_test(wide_levels_are_close),
        cmocka_unit_test(kinds_of_trees),
        cmocka_unit_test(rising),
        cmocka_unit_test(costs_by_rows),
        cmocka_unit_test(cold_costs),
        cmocka_unit_test(settles_on_what_pays),
        cmocka_unit_test(finds_plain_again),
        cmocka_unit_test(follows_changes),
        cmocka_unit_test(trials_are_bounded),
        cmocka_unit_test(trials_without_drafts),
        cmocka_unit_test(confidence_pays),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
