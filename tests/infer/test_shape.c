// The planner of trees against every tree there is, and the measured costs that feed it.
#include "infer/decode/cost.h"

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
        c.drafts = true;
        double none = 1 / c.verify[1];
        for (int n = 1; n <= c.nodes; n++)
            c.verify[n] *= n > 1 ? 100 : 1; // no tree pays
        pl_shape_best(&c, &s);
        assert_true(s.n > 1 && s.emitted / s.seconds < none);
        c.drafts = false;
        pl_shape_best(&c, &s);
        assert_int_equal(s.n, 1);
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

// ---- measured costs -------------------------------------------------------------------------------------------------

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

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(flat_levels_are_exact),
        cmocka_unit_test(emitted_is_exact),
        cmocka_unit_test(wide_levels_are_close),
        cmocka_unit_test(kinds_of_trees),
        cmocka_unit_test(rising),
        cmocka_unit_test(costs_by_rows),
        cmocka_unit_test(cold_costs),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
