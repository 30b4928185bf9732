#include "infer/decode/autotuner.h"

#include "kernels/base/check.h"
#include "kernels/base/clock.h"

#include <math.h>
#include <string.h>

#define DECAY 0.995 // of the counts, a step that adds to them
#define HOPELESS 0.7
#define START 3  // tokens of the chain that looks whether drafting has begun to pay
#define STALE 16 // observations that all that was learnt before a trial counts
#define USUAL 64 // steps of the running pace

void pl_autotuner_init(pl_autotuner *p, const pl_tree_policy *policy) {
    *p = (pl_autotuner){.adapt = policy && policy->adapt, .trials.pause = PL_AUTOTUNER_PAUSE};
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

static void learn_costs(pl_autotuner *p, const pl_autotuner_cycle *c) {
    double deeper = 0;
    pl_autotuner_cost_add(&p->verify, c->pace.rows, c->pace.verifying);
    if (c->late) return;
    for (int l = 1; l < c->levels; l++) {
        double seconds = c->level_at[l] - c->level_at[l - 1];
        pl_autotuner_cost_add(&p->draft, c->level_rows[l], seconds);
        deeper += seconds;
    }
    pl_autotuner_cost_add(c->levels ? &p->first : &p->idle, c->levels ? c->sessions : c->pace.sessions,
                          c->pace.drafting - deeper);
}

// ---- acceptance -----------------------------------------------------------------------------------------------------

// A chain's nodes come first in its tree, one a level.
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

// The least own log-probability of a path of each depth with which a chain goes on: of buckets from the most probable
// one down to the first where it does not pay.
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
            own = exp2(-0.5 * ++b - 0.25); // the middle of the next one
        if (b < PL_CALIBRATION_BUCKETS) p->least[l] = (float)(-0.5 * M_LN2 * b);
    }
}

static void take_chosen(const pl_autotuner *p, pl_tree_policy *policy) {
    pl_tree_shape_set(policy, p->chosen.n, p->chosen.parent);
    if (p->stops) memcpy(policy->least, p->least, sizeof p->least);
}

// What is drafted to learn does not end early.
static void learn_by(const pl_autotuner *p, pl_tree_policy *policy) {
    for (int l = 0; p->stops && l < PL_TREE_MAX; l++)
        policy->least[l] = -INFINITY;
}

static void choose(pl_autotuner *p, pl_tree_policy *policy, int sessions) {
    double t0 = pl_now();
    pl_autotuner_costs(p, policy, sessions, &p->costs);
    pl_shape_best(&p->costs, &p->chosen);
    if (p->stops) set_least(p);
    take_chosen(p, policy);
    p->choices++;
    p->last = pl_now() - t0;
    p->seconds += p->last;
    p->since = 0;
}

static void set_chain(pl_tree_policy *policy, int length) {
    int32_t parent[PL_SHAPE_NODES];
    if (length > policy->depth_max) length = policy->depth_max;
    for (int i = 0; i <= length; i++)
        parent[i] = i - 1;
    pl_tree_shape_set(policy, length + 1, parent);
}

// Children by level; whatever passes the policy's limits is left out.
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

// Row counts and widths far enough apart to tell what a row costs.
static void calibrate(const pl_autotuner *p, pl_tree_policy *policy) {
    static const int by[6][8] = {{0}, {1, 1}, {1, 1, 1, 1, 1}, {2, 1, 1, 1}, {3, 2, 1}, {1, 1, 1, 1, 1, 1, 1, 1}};
    static const int levels[6] = {0, 2, 5, 4, 3, 8};
    int              i = (int)(p->cycles % 6);
    learn_by(p, policy);
    set_levels(policy, by[i], levels[i]);
}

// The chosen tree with its best path one node longer.
static bool explore_deeper(const pl_autotuner *p, pl_tree_policy *policy) {
    pl_tree_policy *q = policy;
    pl_tree_shape_set(q, p->chosen.n, p->chosen.parent);
    int32_t parent[PL_SHAPE_NODES];
    int     n = q->shape_n, node = 0, depth = 0;
    while (q->shape_children[node]) {
        node = q->shape_child[node];
        depth++;
    }
    if (n >= q->max_nodes || depth >= q->depth_max) return false;
    memcpy(parent, q->shape_parent, (size_t)n * sizeof *parent);
    parent[n] = node;
    pl_tree_shape_set(policy, n + 1, parent);
    return true;
}

// The best chain where a tree was chosen, the best tree where a chain was.
static bool explore_rival(const pl_autotuner *p, pl_tree_policy *policy) {
    pl_shape_costs c = p->costs;
    pl_shape       rival;
    c.branching = true;
    for (int i = 1; i < p->chosen.n; i++)
        if (p->chosen.parent[i] != i - 1) c.branching = false;
    if (!c.branching) c.ranks = c.width = 1;
    if (c.branching && c.ranks == 1) return false;
    pl_shape_best(&c, &rival);
    if (rival.n < 2 || rival.emitted * p->chosen.seconds < HOPELESS * p->chosen.emitted * rival.seconds) return false;
    pl_tree_shape_set(policy, rival.n, rival.parent);
    return true;
}

// ---- trials ---------------------------------------------------------------------------------------------------------

static void account(pl_autotuner_trials *t, const pl_draft_pace *c) {
    double seconds = c->verifying + c->drafting;
    t->seconds += seconds;
    if (!t->on) {
        t->usual_seconds += seconds - t->usual_seconds / USUAL;
        t->usual_tokens += c->emitted - t->usual_tokens / USUAL;
    } else {
        t->last += seconds - (t->usual_tokens > 0 ? c->emitted * t->usual_seconds / t->usual_tokens : seconds);
    }
}

bool pl_autotuner_may_try(const pl_autotuner *p) {
    const pl_autotuner_trials *t = &p->trials;
    return !t->on && t->idle >= t->pause && t->loss + t->last <= PL_AUTOTUNER_REGRET * t->seconds;
}

static void begin_trial(pl_autotuner *p, pl_tree_policy *policy) {
    double most = 0;
    p->trials.on = true;
    p->trials.begun++;
    p->trials.before = p->trials.last;
    p->trials.last = 0;
    p->trials.cycles = 0;
    p->trials.drafted = false;
    p->detour = PL_AUTOTUNER_PROBE;
    for (int r = 0; r < PL_SHAPE_RANKS; r++)
        most = fmax(most, p->counts.seen[0][r]);
    for (int l = 0; most > STALE && l < PL_SHAPE_LEVELS; l++)
        for (int r = 0; r < PL_SHAPE_RANKS; r++) {
            p->counts.seen[l][r] *= STALE / most;
            p->counts.hit[l][r] *= STALE / most;
        }
    learn_by(p, policy);
    set_chain(policy, START);
}

// Its verdicts are in, and something was chosen by them. One that has paid so far, but not for long enough to be
// believed, goes on.
static void end_trial(pl_autotuner *p, pl_tree_policy *policy) {
    pl_autotuner_trials *t = &p->trials;
    if (!t->drafted) { // nobody could: nothing was learnt, nor does it cost the next one its turn
        t->on = false;
        t->last = t->before;
        t->idle = 0;
        return;
    }
    if (p->chosen.n < 2 && t->last < 0 && t->cycles < STALE) {
        p->detour = PL_AUTOTUNER_PROBE;
        learn_by(p, policy);
        set_chain(policy, START);
        return;
    }
    t->on = false;
    t->last = fmax(t->last + p->last, 0);
    t->loss += t->last;
    t->pause = p->chosen.n > 1 ? PL_AUTOTUNER_PAUSE : 2 * t->pause;
    if (t->pause > PL_AUTOTUNER_REST) t->pause = PL_AUTOTUNER_REST;
}

bool pl_autotuner_tries(const pl_autotuner *p) {
    return p->adapt && (p->choices == 0 || (p->trials.on && p->detour > 0));
}

// No tree: what all is weighed against is the cost of a cycle without drafts. Where every cycle drafts nobody would
// ever see that it had been told wrong, by a machine that was busy or memory that was new.
static bool explore_none(pl_tree_policy *policy) {
    pl_tree_shape_set(policy, 1, &(int32_t){-1});
    return true;
}

// Something else for one cycle beside a tree that pays.
static void explore(pl_autotuner *p, pl_tree_policy *policy) {
    int what = (int)(p->explored++ % 3);
    learn_by(p, policy);
    p->detour = what == 0 ? explore_none(policy) : what == 1 ? explore_deeper(p, policy) : explore_rival(p, policy);
    if (p->detour == 0) take_chosen(p, policy);
}

static void forget_slowly(pl_autotuner *p) {
    for (int l = 0; p->observed && l < PL_SHAPE_LEVELS; l++)
        for (int r = 0; r < PL_SHAPE_RANKS; r++) {
            p->counts.seen[l][r] *= DECAY;
            p->counts.hit[l][r] *= DECAY;
        }
    for (int l = 0; p->observed && l < PL_SHAPE_LEVELS; l++)
        p->left[l] *= DECAY;
    p->observed = false; // what was learnt is not forgotten while nothing is drafted
}

void pl_autotuner_rest(pl_autotuner *p, const pl_draft_pace *c) {
    pl_autotuner_cost_add(&p->verify, c->rows, c->verifying);
    if (!p->adapt || p->choices == 0 || p->trials.on) return;
    account(&p->trials, c);
    p->trials.idle++;
}

void pl_autotuner_step(pl_autotuner *p, pl_tree_policy *policy, const pl_autotuner_cycle *c) {
    if (!p->adapt || c->pace.sessions < 1) return;
    bool rests = c->levels == 0, tried = p->trials.on && p->detour == 0;
    p->trials.drafted |= c->levels > 0;
    bool cold = p->trials.on && p->trials.cycles++ == 0;
    forget_slowly(p);
    if (!cold) learn_costs(p, c);
    if (p->choices > 0) account(&p->trials, &c->pace);
    p->trials.idle = rests ? p->trials.idle + 1 : 0;
    p->since += c->pace.verifying + c->pace.drafting;
    long i = ++p->cycles;
    if (p->detour > 0 && --p->detour > 0) return;
    bool reviews = i % PL_AUTOTUNER_REVIEW == 0 && !rests && p->last < PL_AUTOTUNER_SHARE * p->since;
    if (i < PL_AUTOTUNER_CALIBRATION)
        calibrate(p, policy);
    else if (p->choices == 0 || tried || reviews)
        choose(p, policy, c->pace.sessions);
    else
        take_chosen(p, policy);
    if (tried) end_trial(p, policy);
    if (p->choices == 0 || p->trials.on) return;
    if (rests && pl_autotuner_may_try(p))
        begin_trial(p, policy);
    else if (!rests && p->chosen.n > 1 && i % PL_AUTOTUNER_EXPLORE == PL_AUTOTUNER_EXPLORE / 2)
        explore(p, policy);
}
