// Trees chosen by measured costs (infer/decode/autotuner.h), chains among them. Drafts grow by a given shape; each
// level notes its time and all its candidates, from which the next shapes are chosen.
#include "infer/tree/tree.h"

#include "kernels/base/check.h"
#include "kernels/base/clock.h"

#include <math.h>
#include <string.h>

#define NODES 64
#define CANDIDATES 8
#define WIDTH 8
#define DEPTH 16
#define START 3 // tokens of the first chain, before any measurement

void pl_tree_policy_adapt(pl_tree_policy *p, int nodes, int k, int width, int depth) {
    int32_t chain[START + 1];
    for (int i = 0; i <= START; i++)
        chain[i] = i - 1;
    p->kind = &pl_tree_auto;
    p->adapt = true;
    p->k = k;
    p->width = width;
    p->depth_max = depth;
    p->max_nodes = nodes;
    for (int l = 0; l < PL_TREE_MAX; l++)
        p->least[l] = -INFINITY;
    pl_tree_shape_set(p, START + 1, chain);
}

static pl_status parse(pl_tree_policy *p, const char *args, pl_err *err) {
    if (*args)
        return pl_fail(err, PL_E_USAGE, "tree \"auto:%s\": takes no arguments; chain:auto keeps to chains", args);
    pl_tree_policy_adapt(p, NODES, CANDIDATES, WIDTH, DEPTH);
    return PL_OK;
}

static int grow(const pl_tree_policy *p, pl_tree *t, int level, const int *frontier, int n, const int32_t *id,
                const float *logp, int *next) {
    pl_tree_notes *o = &t->notes;
    PL_CHECK(level < PL_TREE_MAX && o->n + n <= PL_TREE_MAX && (o->n + n) * p->k <= PL_TREE_GROWN,
             "level %d, %d nodes of %d candidates", level, o->n + n, p->k);
    o->at[level] = pl_now();
    o->rows[level] = n;
    o->levels = level + 1;
    o->k = p->k;
    memcpy(o->candidate + o->n * p->k, id, (size_t)(n * p->k) * sizeof *id);
    for (int i = 0; i < n; i++)
        o->node[o->n++] = frontier[i];
    int m = pl_tree_shape_grow(p, t, level, frontier, n, id, logp, next);
    o->grown = t->n;
    o->stopped = p->stops && m == 1 && t->score[next[0]] < p->least[level];
    return o->stopped ? 0 : m;
}

const pl_tree_kind pl_tree_auto = {.name = "auto",
                                   .syntax = "auto",
                                   .help = "a tree chosen while decoding, by measured costs and acceptance",
                                   .fixed_shape = true,
                                   .parse = parse,
                                   .grow = grow,
                                   .ahead = pl_tree_shape_ahead};
