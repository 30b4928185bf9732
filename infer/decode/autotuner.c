#include "infer/decode/autotuner.h"

#include "kernels/base/check.h"
#include "kernels/base/clock.h"

#include <math.h>
#include <string.h>

#define DECAY 0.995 // of acceptance counts at each cycle that adds to them: a memory of about 200 cycles

void pl_autotuner_init(pl_autotuner *p, const pl_tree_policy *policy) {
    *p = (pl_autotuner){.adapt = policy && policy->adapt};
    p->stops = p->adapt && policy->stops;
    if (!policy || !p->adapt) return;
    PL_CHECK(policy->depth_max <= PL_SHAPE_LEVELS && policy->k <= PL_SHAPE_RANKS && policy->width <= PL_SHAPE_WIDTH &&
                 policy->max_nodes <= PL_SHAPE_NODES,
             "an adapting tree of %d nodes, %d levels", policy->max_nodes, policy->depth_max);
}

// ---- costs ----------------------------------------------------------------------------------------------------------

void pl_autotuner_drafted(pl_autotuner_cycle *c, const pl_tree *t) {
    c->sessions += t->notes.levels > 0;
    for (int l = 0; l < t->notes.levels && l < PL_SHAPE_LEVELS; l++) {
        if (l == c->levels) {
            c->levels++;
            c->level_rows[l] = 0;
            c->level_at[l] = t->notes.at[l];
        }
        c->level_rows[l] += t->notes.rows[l];
        if (t->notes.at[l] < c->level_at[l]) c->level_at[l] = t->notes.at[l];
    }
}

void pl_autotuner_learn(pl_autotuner *p, const pl_autotuner_cycle *c) {
    double deeper = 0;
    p->since += c->pace.verifying + c->pace.drafting;
    pl_autotuner_cost_add(&p->verify, c->pace.rows, c->pace.verifying);
    if (c->levels == 0 && c->taken == 0) return;
    for (int l = 1; l < c->levels; l++) {
        double seconds = c->level_at[l] - c->level_at[l - 1];
        pl_autotuner_cost_add(&p->draft, c->level_rows[l], seconds);
        deeper += seconds;
    }
    pl_autotuner_cost_add(c->levels ? &p->first : &p->idle, c->levels ? c->sessions : c->taken,
                          c->pace.drafting - c->free - deeper);
}

// ---- acceptance -----------------------------------------------------------------------------------------------------

// Updates the calibration and the counts of early ends. A chain's nodes come first in its tree, one a level.
static void learn_confidence(pl_autotuner *p, const pl_tree *t, const pl_verdict *v) {
    const pl_tree_notes *o = &t->notes;
    int                  n = o->levels;
    for (int l = 1; l <= n && l < o->grown && t->parent[l] == l - 1; l++)
        pl_calibration_observe(&p->own, l, exp((double)t->score[l]), l <= v->n && v->path[l] == l);
    for (int l = 1; l < n + o->stopped && l < PL_SHAPE_LEVELS; l++) {
        p->asked[l] = DECAY * p->asked[l] + 1;
        p->went[l] = DECAY * p->went[l] + (l < n);
    }
    if (o->stopped && n < PL_SHAPE_LEVELS && v->n >= n && v->path[n] == n) p->left[n]++;
}

void pl_autotuner_accepted(pl_autotuner *p, const pl_tree *t, const pl_verdict *v) {
    const pl_tree_notes *o = &t->notes;
    if (p->stops && o->levels > 0) learn_confidence(p, t, v);
    for (int i = 0; p->adapt && i <= v->n && i < PL_SHAPE_LEVELS; i++) {
        int32_t right = i < v->n ? t->token[v->path[i + 1]] : v->bonus;
        for (int e = 0; e < o->n; e++) {
            if (o->node[e] != v->path[i]) continue;
            p->observed = true;
            const int32_t *id = o->candidate + e * o->k;
            bool           found = false;
            for (int r = 0; r < o->k && r < PL_SHAPE_RANKS && id[r] >= 0; r++) {
                p->counts.seen[i][r]++;
                if (found || id[r] != right) continue;
                p->counts.hit[i][r]++;
                found = true;
            }
        }
    }
}

// ---- choosing -------------------------------------------------------------------------------------------------------

void pl_autotuner_costs(const pl_autotuner *p, const pl_tree_policy *policy, int sessions, pl_shape_costs *c) {
    *c = (pl_shape_costs){
        .levels = policy->depth_max, .ranks = policy->k, .width = policy->width, .nodes = policy->max_nodes};
    pl_autotuner_counts counts = p->counts;
    double              first[2], idle[2], there = 1;
    for (int l = 1; l < c->levels; l++) {
        counts.seen[l][0] += p->left[l];
        if (p->asked[l] > 0) there *= p->went[l] / p->asked[l];
        c->ended[l] = 1 - there;
    }
    pl_autotuner_acceptance(&counts, c);
    pl_autotuner_cost_read(&p->first, sessions, 1, first);
    pl_autotuner_cost_read(&p->idle, sessions, 1, idle);
    pl_autotuner_cost_read(&p->verify, sessions, c->nodes, c->verify);
    for (int n = 1; n <= c->nodes; n++)
        c->verify[n] += n > 1 ? first[1] : idle[1];
    pl_autotuner_cost_read(&p->draft, sessions, c->width, c->draft);
}

// Sets the threshold of the drafter's log-probability by depth. It walks the calibration's buckets from the most
// probable one down and stops at the first where one more draft does not pay.
static void set_least(pl_autotuner *p) {
    const pl_shape_costs *c = &p->costs;
    pl_shape_costs        drafted = {.levels = c->levels, .ranks = c->ranks};
    double                rate = p->chosen.emitted / p->chosen.seconds;
    pl_autotuner_acceptance(&p->counts, &drafted);
    for (int l = 0; l < PL_TREE_MAX; l++)
        p->least[l] = -INFINITY;
    for (int l = 0; l + 1 < c->levels && l + 3 <= c->nodes; l++) {
        double cost = c->draft[1] + c->verify[l + 3] - c->verify[l + 2], token = drafted.accept[l + 1][0], own = 1;
        int    b = 0;
        while (b < PL_CALIBRATION_BUCKETS && token * pl_calibration_expected(&p->own, l + 1, own) >= rate * cost)
            own = exp2(-0.5 * ++b - 0.25); // the middle of the next bucket
        if (b < PL_CALIBRATION_BUCKETS) p->least[l] = (float)(-0.5 * M_LN2 * b);
    }
}

static void take_chosen(const pl_autotuner *p, pl_tree_policy *policy) {
    pl_tree_shape_set(policy, p->chosen.n, p->chosen.parent);
    if (p->stops) memcpy(policy->least, p->least, sizeof p->least);
}

// Disables early ends, for the drafts of given shapes.
static void learn_by(const pl_autotuner *p, pl_tree_policy *policy) {
    for (int l = 0; p->stops && l < PL_TREE_MAX; l++)
        policy->least[l] = -INFINITY;
}

static void choose(pl_autotuner *p, pl_tree_policy *policy, int sessions) {
    double t0 = pl_now();
    pl_autotuner_costs(p, policy, sessions, &p->costs);
    p->costs.drafts = true;
    pl_shape_best(&p->costs, &p->chosen);
    if (p->stops) set_least(p);
    take_chosen(p, policy);
    p->choices++;
    p->last = pl_now() - t0;
    p->since = 0;
}

// Sets the shape from the children of a node by level; nodes beyond the policy's limits are left out.
static void set_levels(pl_tree_policy *policy, const int *by, int levels) {
    int32_t parent[PL_SHAPE_NODES];
    int     n = 1, first = 0;
    for (int l = 0; l < levels && l < policy->depth_max; l++) {
        int end = n < first + policy->width ? n : first + policy->width;
        int next = n;
        for (; first < end; first++)
            for (int r = 0; r < by[l] && r < policy->k && n < policy->max_nodes; r++)
                parent[n++] = first;
        first = next;
    }
    pl_tree_shape_set(policy, n, parent);
}

// Sets one of six given shapes. Their row counts and widths are far enough apart to estimate the cost of a row.
static void calibrate(const pl_autotuner *p, pl_tree_policy *policy, long which) {
    static const int by[6][8] = {{0}, {1, 1}, {1, 1, 1, 1, 1}, {2, 1, 1, 1}, {3, 2, 1}, {1, 1, 1, 1, 1, 1, 1, 1}};
    static const int levels[6] = {0, 2, 5, 4, 3, 8};
    int              i = (int)(which % 6);
    learn_by(p, policy);
    set_levels(policy, by[i], levels[i]);
}

static void forget_slowly(pl_autotuner *p) {
    for (int l = 0; p->observed && l < PL_SHAPE_LEVELS; l++)
        for (int r = 0; r < PL_SHAPE_RANKS; r++) {
            p->counts.seen[l][r] *= DECAY;
            p->counts.hit[l][r] *= DECAY;
        }
    for (int l = 0; p->observed && l < PL_SHAPE_LEVELS; l++)
        p->left[l] *= DECAY;
    p->observed = false; // counts do not decay while nothing is drafted
}

void pl_autotuner_next(pl_autotuner *p, pl_tree_policy *policy, int sessions) {
    if (!p->adapt) return;
    forget_slowly(p);
    long i = p->cycles++;
    bool reviews = i % PL_AUTOTUNER_REVIEW == 0 && p->last < PL_AUTOTUNER_SHARE * p->since;
    if (i < PL_AUTOTUNER_CALIBRATION)
        calibrate(p, policy, i);
    else if (p->choices == 0 || reviews)
        choose(p, policy, sessions);
    else if (i % PL_AUTOTUNER_EXPLORE == PL_AUTOTUNER_EXPLORE / 2)
        calibrate(p, policy, i / PL_AUTOTUNER_EXPLORE);
    else
        take_chosen(p, policy);
}
