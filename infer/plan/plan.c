#include "infer/plan/plan.h"

#include "kernels/base/check.h"

#include <math.h>
#include <string.h>

#define OBSERVED 16 // offers from which on a rank's acceptance is a figure
#define ROUNDS 4    // of choosing a tree with what the last one emits

void pl_plan_acceptance_rates(pl_plan_acceptance *a, const double *rate, int n) {
    PL_CHECK(n >= 1, "%d rates", n);
    *a = (pl_plan_acceptance){.ranks = 1};
    for (int l = 0; l < PL_SHAPE_LEVELS; l++)
        a->accept[l][0] = rate[l < n ? l : n - 1];
}

void pl_plan_acceptance_counts(pl_plan_acceptance *a, const pl_autotuner_counts *n) {
    pl_shape_costs c = {.levels = PL_SHAPE_LEVELS, .ranks = 1};
    while (c.ranks < PL_SHAPE_RANKS && n->seen[0][c.ranks] >= OBSERVED)
        c.ranks++;
    pl_autotuner_acceptance(n, &c);
    *a = (pl_plan_acceptance){.ranks = c.ranks};
    memcpy(a->accept, c.accept, sizeof a->accept);
}

double pl_plan_seconds(const pl_autotuner_cost *c, double rows) {
    double at[2], low = floor(rows), share = rows - low;
    if (low < 1) low = 1, share = 0;
    pl_autotuner_cost_read(c, (int)low, 1, at);
    double below = at[1];
    if (share == 0) return below;
    pl_autotuner_cost_read(c, (int)low + 1, 1, at);
    return below + share * (at[1] - below);
}

static double share_of(const pl_plan_costs *c, int level) {
    return c->level_share[level] > 0 ? c->level_share[level] : 1;
}

// What a layer of `layer` seconds does not hide of a router.
static double unhidden(const pl_plan_costs *c, double router, double layer) {
    return c->overlaps ? fmax(router - layer, 0) : router;
}

double pl_plan_step(const pl_plan_costs *c, double rows) {
    if (c->drafts > 0) {
        int more = c->drafts > 1 ? c->drafts - 1 : 1;
        return (pl_plan_seconds(&c->first, c->batch * c->drafts) - pl_plan_seconds(&c->first, c->batch)) / more;
    }
    double layer = pl_plan_seconds(&c->layer, rows);
    return layer + unhidden(c, pl_plan_seconds(&c->router, rows), layer) + pl_plan_seconds(&c->head, rows);
}

// The head at level 0, beside take_in of `rows` rows.
static double first_seconds(const pl_plan_costs *c, double rows) {
    double layer = pl_plan_seconds(&c->take_in, rows) - pl_plan_seconds(&c->fuse, rows);
    return pl_plan_seconds(&c->first, c->batch) + unhidden(c, pl_plan_seconds(&c->router_first, c->batch), layer);
}

void pl_plan_predict(const pl_plan_costs *c, const pl_plan_acceptance *a, const int32_t *parent, int n,
                     pl_plan_cycle *out) {
    double f[PL_SHAPE_NODES] = {1};
    int    depth[PL_SHAPE_NODES] = {0}, children[PL_SHAPE_NODES] = {0}, expanded[PL_SHAPE_LEVELS] = {0};
    PL_CHECK(n >= 1 && n <= PL_SHAPE_NODES, "%d nodes", n);
    *out = (pl_plan_cycle){.nodes = n, .emitted = 1};
    for (int i = 1; i < n; i++) {
        int p = parent[i];
        PL_CHECK(p >= 0 && p < i && depth[p] < PL_SHAPE_LEVELS, "node %d: parent %d", i, p);
        int rank = children[p]++;
        depth[i] = depth[p] + 1;
        if (c->drafts > 0 && depth[i] > c->drafts) { // behind the block
            out->nodes--;
            continue;
        }
        f[i] = rank < a->ranks ? f[p] * a->accept[depth[p]][rank] : 0;
        out->emitted += f[i];
        if (rank == 0) expanded[depth[p]]++;
        if (depth[i] > out->depth) out->depth = depth[i];
    }
    double b = c->batch;
    out->target = pl_plan_seconds(&c->target, b * out->nodes);
    out->verify = b * out->emitted * c->verify;
    out->other = c->other;
    if (n > 1) {
        out->take_in = pl_plan_seconds(&c->take_in, b * out->emitted);
        out->head = c->drafts > 0 ? pl_plan_seconds(&c->first, b * out->depth) : first_seconds(c, b * out->emitted);
    }
    for (int l = 1; l < out->depth && c->drafts == 0; l++) {
        double rows = b * expanded[l], layer = pl_plan_seconds(&c->layer, rows);
        out->layer += layer;
        out->head +=
            share_of(c, l) * pl_plan_seconds(&c->head, rows) + unhidden(c, pl_plan_seconds(&c->router, rows), layer);
    }
    out->seconds = out->target + out->verify + out->take_in + out->layer + out->head + out->other;
    out->speed = b * out->emitted / out->seconds;
}

// tree/best.h charges a tree by its rows and widths alone: what depends on the tokens emitted is charged as for
// `emitted`.
static void shape_costs(const pl_plan_costs *c, const pl_plan_acceptance *a, int nodes, bool chain, double emitted,
                        pl_shape_costs *s) {
    double b = c->batch;
    *s = (pl_shape_costs){.levels = nodes - 1 < PL_SHAPE_LEVELS ? nodes - 1 : PL_SHAPE_LEVELS,
                          .ranks = chain ? 1 : a->ranks,
                          .width = chain || a->ranks == 1 ? 1 : PL_SHAPE_WIDTH,
                          .nodes = nodes};
    if (c->drafts > 0 && s->levels > c->drafts) s->levels = c->drafts;
    memcpy(s->accept, a->accept, sizeof s->accept);
    double fixed =
        c->other + pl_plan_seconds(&c->take_in, b * emitted) + first_seconds(c, b * emitted) + b * emitted * c->verify;
    for (int n = 1; n <= nodes; n++)
        s->verify[n] = pl_plan_seconds(&c->target, b * n) + fixed;
    for (int w = 1; w <= s->width; w++)
        s->draft[w] = pl_plan_step(c, b * w);
}

void pl_plan_best(const pl_plan_costs *c, const pl_plan_acceptance *a, int nodes, bool chain, pl_shape *best) {
    PL_CHECK(nodes >= 2 && nodes <= PL_SHAPE_NODES, "%d nodes", nodes);
    double  emitted = 1 + a->accept[0][0];
    int32_t one[2] = {-1, 0};
    *best = (pl_shape){.n = 2, .parent = {-1, 0}};
    pl_plan_cycle cycle;
    pl_plan_predict(c, a, one, 2, &cycle);
    double fastest = cycle.speed;
    for (int i = 0; i < ROUNDS; i++) {
        pl_shape_costs s;
        pl_shape       tree;
        shape_costs(c, a, nodes, chain, emitted, &s);
        pl_shape_best(&s, &tree);
        if (tree.n < 2) continue; // drafting does not pay at all: the shortest chain, and the caller sees it
        pl_plan_predict(c, a, tree.parent, tree.n, &cycle);
        emitted = cycle.emitted;
        if (cycle.speed <= fastest) continue;
        fastest = cycle.speed;
        *best = tree;
    }
    pl_plan_predict(c, a, best->parent, best->n, &cycle);
    best->emitted = cycle.emitted;
    best->seconds = cycle.seconds;
}

double pl_plan_slimspec_speedup(double rho, double lambda, double kappa) {
    return rho * (1 + kappa) / (1 + lambda * kappa);
}

pl_plan_slimspec pl_plan_compare(const pl_plan_cycle *full, const pl_plan_cycle *head) {
    pl_plan_slimspec s = {.rho = head->emitted / full->emitted,
                          .lambda = head->head / full->head,
                          .kappa = full->head / (full->seconds - full->head)};
    s.speedup = pl_plan_slimspec_speedup(s.rho, s.lambda, s.kappa);
    s.threshold = (1 + s.lambda * s.kappa) / (1 + s.kappa);
    return s;
}

double pl_plan_omega(double alpha, int gamma) {
    double sum = 0, power = 1; // the quotient loses digits where alpha is near 1
    for (int i = 0; i <= gamma; i++, power *= alpha)
        sum += power;
    return sum;
}

double pl_plan_alpha(const pl_plan_acceptance *a, int gamma) {
    double judged = 0, accepted = 0, reached = 1;
    for (int l = 0; l < gamma && l < PL_SHAPE_LEVELS; l++) {
        judged += reached;
        reached *= a->accept[l][0];
        accepted += reached;
    }
    return judged > 0 ? accepted / judged : 0;
}
