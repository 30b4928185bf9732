// EAGLE-2's dynamic tree: expands the most probable nodes of each level, then keeps the most probable of all.
#include "infer/tree/tree.h"

#include "kernels/base/check.h"
#include "kernels/op/topk.h"

#include <math.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

pl_status pl_tree_best_set(pl_tree_policy *p, const int32_t x[3], const char *args, pl_err *err) {
    const char *name = p->kind->name;
    long        nodes = x[0], width = x[1], depth = x[2];
    if (nodes < 2 || nodes > PL_TREE_MAX)
        return pl_fail(err, PL_E_USAGE, "tree \"%s:%s\": NODES is %ld, the root included; expected 2..%d", name, args,
                       nodes, PL_TREE_MAX);
    if (width < 1 || width > PL_TOPK_MAX)
        return pl_fail(err, PL_E_USAGE, "tree \"%s:%s\": WIDTH is %ld; expected 1..%d", name, args, width, PL_TOPK_MAX);
    if (depth < 1 || depth > PL_TREE_MAX - 1)
        return pl_fail(err, PL_E_USAGE, "tree \"%s:%s\": DEPTH is %ld; expected 1..%d", name, args, depth,
                       PL_TREE_MAX - 1);
    long grown = 1 + width + (depth - 1) * width * width;
    if (grown > PL_TREE_GROWN)
        return pl_fail(err, PL_E_USAGE, "tree \"%s:%s\": would grow to %ld nodes, %d fit; lower WIDTH or DEPTH", name,
                       args, grown, PL_TREE_GROWN);
    p->k = p->width = (int)width;
    p->depth = (int)depth;
    p->max_nodes = (int)(nodes < grown ? nodes : grown);
    p->needs_logp = true;
    return PL_OK;
}

bool pl_tree_gain(const char *text, int wanted, double most, int32_t *out, float *gain) {
    char        head[64], *end;
    const char *comma = strrchr(text, ',');
    size_t      n = comma ? (size_t)(comma - text) : 0;
    if (n == 0 || n >= sizeof head || comma[1] < '0' || comma[1] > '9') return false;
    memcpy(head, text, n);
    head[n] = 0;
    double x = strtod(comma + 1, &end);
    *gain = (float)x;
    return !*end && x >= 0 && x <= most && pl_tree_numbers(head, ',', 0, INT32_MAX, out, wanted) == wanted;
}

static pl_status parse(pl_tree_policy *p, const char *args, pl_err *err) {
    int32_t x[3];
    if (pl_tree_numbers(args, ',', 0, INT32_MAX, x, 3) != 3)
        return pl_fail(err, PL_E_USAGE, "tree \"eagle2:%s\": expected eagle2:NODES,WIDTH,DEPTH, as eagle2:60,10,6",
                       args);
    return pl_tree_best_set(p, x, args, err);
}

int pl_tree_best_of(const float *score, int lo, int hi, int m, int *out) {
    PL_CHECK(m > 0, "the best %d of a level", m);
    int n = 0;
    for (int i = lo; i < hi; i++) {
        if (n == m && !(score[i] > score[out[n - 1]])) continue;
        int at = n < m ? n++ : n - 1;
        for (; at > 0 && score[i] > score[out[at - 1]]; at--)
            out[at] = out[at - 1];
        out[at] = i;
    }
    return n;
}

int pl_tree_best_grow(const pl_tree_policy *p, pl_tree *t, int level, const int *frontier, int n, const int32_t *id,
                      const float *logp, int *next) {
    (void)level;
    int first = t->n;
    for (int f = 0; f < n; f++, id += p->k, logp += p->k)
        for (int r = 0; r < p->k && id[r] >= 0; r++) {
            // A log-probability that rounding left above 0 would let a child precede its parent.
            float s = t->score[frontier[f]] + (logp[r] < 0 ? logp[r] : 0);
            pl_tree_add(t, frontier[f], id[r], s);
        }
    return pl_tree_best_of(t->score, first, t->n, p->width, next);
}

void pl_tree_best_keep(const pl_tree_policy *p, pl_tree *t, const float *score) {
    if (t->n <= p->max_nodes) return;
    int  kept[PL_TREE_MAX], n = pl_tree_best_of(score, 1, t->n, p->max_nodes - 1, kept);
    bool keep[PL_TREE_GROWN] = {true};
    for (int i = 0; i < n; i++)
        keep[kept[i]] = true;
    pl_tree_prune(t, keep);
}

void pl_tree_best_finish(const pl_tree_policy *p, pl_tree *t) {
    pl_tree_best_keep(p, t, t->score);
}

const pl_tree_kind pl_tree_eagle2 = {.name = "eagle2",
                                     .syntax = "eagle2:NODES,WIDTH,DEPTH",
                                     .help = "the most probable NODES of what is grown WIDTH at a time (EAGLE-2)",
                                     .parse = parse,
                                     .grow = pl_tree_best_grow,
                                     .by_score = true,
                                     .finish = pl_tree_best_finish};
