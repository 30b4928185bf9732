#include "infer/tree/best.h"

#include "kernels/base/check.h"

#define POOL (1 + PL_SHAPE_LEVELS * PL_SHAPE_WIDTH * PL_SHAPE_RANKS)

typedef struct node {
    double  f;
    int16_t parent, depth;
} node;

// All nodes that may be in a tree of the current width, in order of level.
typedef struct pool {
    node    x[POOL];
    int     n;
    int16_t order[PL_SHAPE_NODES]; // the nodes with the largest f, descending, ties in order
    int     n_order;
    int     set[PL_SHAPE_WIDTH]; // expanded nodes of the last level
    int     n_set;
} pool;

static bool insert_node(pool *p, int i, int max) {
    int n = p->n_order;
    if (n == max && !(p->x[i].f > p->x[p->order[n - 1]].f)) return false;
    int at = n < max ? p->n_order++ : n - 1;
    for (; at > 0 && p->x[i].f > p->x[p->order[at - 1]].f; at--)
        p->order[at] = p->order[at - 1];
    p->order[at] = (int16_t)i;
    return true;
}

// Adds the children of the expanded nodes, and selects the expanded nodes of the next level among them. Returns false
// if none is among the best; deeper ones cannot be either.
static bool add_level(pool *p, const pl_shape_costs *c, int level, int width) {
    int  first = p->n;
    bool useful = false;
    for (int s = 0; s < p->n_set; s++)
        for (int r = 0; r < c->ranks; r++) {
            p->x[p->n] = (node){.f = p->x[p->set[s]].f * c->accept[level][r],
                                .parent = (int16_t)p->set[s],
                                .depth = (int16_t)(level + 1)};
            useful |= insert_node(p, p->n++, c->nodes - 1);
        }
    p->n_set = 0;
    for (int i = first; i < p->n; i++) {
        if (p->n_set == width && !(p->x[i].f > p->x[p->set[width - 1]].f)) continue;
        int at = p->n_set < width ? p->n_set++ : width - 1;
        for (; at > 0 && p->x[i].f > p->x[p->set[at - 1]].f; at--)
            p->set[at] = p->set[at - 1];
        p->set[at] = i;
    }
    return useful;
}

static void take_shape(pl_shape *best, const pool *p, int n, double emitted, double seconds, double rows) {
    int32_t at[POOL];
    at[0] = 0;
    best->n = n;
    best->emitted = emitted;
    best->seconds = seconds;
    best->rows = rows;
    best->parent[0] = -1;
    for (int i = 1; i < n; i++) {
        int x = p->order[i - 1];
        at[x] = i;
        best->parent[i] = at[p->x[x].parent];
    }
}

static double seconds_of(const pl_shape_costs *c, double rows) {
    int n = (int)rows;
    return n < c->nodes ? c->verify[n] + (rows - n) * (c->verify[n + 1] - c->verify[n]) : c->verify[n];
}

// Evaluates the first n - 1 nodes of the list, for every n.
static void walk_list(const pool *p, const pl_shape_costs *c, pl_shape *best) {
    uint8_t parent_of[POOL] = {0}; // true: some child is in the tree
    int     w[PL_SHAPE_LEVELS] = {0};
    double  emitted = 1, drafting = 0, missing = 0; // missing: expected rows that are not drafted
    for (int i = 0; i < p->n_order; i++) {
        const node *x = &p->x[p->order[i]];
        int         l = x->depth - 1;
        if (!parent_of[x->parent] && l > 0) {
            drafting += (c->draft[w[l] + 1] - c->draft[w[l]]) * (1 - c->ended[l]);
            w[l]++;
        }
        parent_of[x->parent] = 1;
        emitted += x->f;
        missing += c->ended[l];
        double rows = i + 2 - missing, seconds = seconds_of(c, rows) + drafting;
        if (best->n == 0 || emitted * best->seconds > best->emitted * seconds)
            take_shape(best, p, i + 2, emitted, seconds, rows);
    }
}

void pl_shape_best(const pl_shape_costs *c, pl_shape *best) {
    PL_CHECK(c->levels <= PL_SHAPE_LEVELS && c->ranks <= PL_SHAPE_RANKS && c->width <= PL_SHAPE_WIDTH &&
                 c->nodes <= PL_SHAPE_NODES,
             "%d levels, %d ranks, %d wide, %d nodes", c->levels, c->ranks, c->width, c->nodes);
    pool p;
    *best = (pl_shape){.n = 0};
    if (!c->drafts) *best = (pl_shape){.n = 1, .parent = {-1}, .emitted = 1, .seconds = c->verify[1], .rows = 1};
    for (int width = 1; width <= c->width && c->nodes > 1; width++) {
        p.x[0] = (node){.f = 1, .parent = -1};
        p.n = p.n_set = 1;
        p.set[0] = 0;
        p.n_order = 0;
        for (int l = 0; l < c->levels && add_level(&p, c, l, width); l++)
            walk_list(&p, c, best);
    }
}

void pl_shape_rising(double *x, const double *w, int n) {
    // Pools value i with the blocks before it, as long as their values exceed the mean.
    for (int i = 1; i < n; i++) {
        double sum = x[i] * w[i], weight = w[i];
        int    lo = i;
        // The block before i is constant: its last value is its mean.
        while (lo > 0 && x[lo - 1] > sum / weight) {
            double value = x[lo - 1];
            for (; lo > 0 && x[lo - 1] == value; lo--) {
                sum += x[lo - 1] * w[lo - 1];
                weight += w[lo - 1];
            }
        }
        for (int k = lo; k <= i && lo < i; k++)
            x[k] = sum / weight;
    }
}
