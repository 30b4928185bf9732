// Beams: beam search where children are chosen, stochastic beam search where they are drawn (RSD-S).
#include "infer/tree/tree.h"

#include "kernels/base/check.h"

#include <math.h>
#include <string.h>

#define WIDEST 32 // so that all candidates of a level are no more than a tree may grow to
_Static_assert(WIDEST *WIDEST <= PL_TREE_GROWN, "candidates of a level");

static pl_status parse(pl_tree_policy *p, const char *args, pl_err *err) {
    int32_t x[2];
    bool    stops = pl_tree_gain(args, 2, 1, x, &p->gain);
    if (!stops && pl_tree_numbers(args, ',', 0, INT32_MAX, x, 2) != 2)
        return pl_fail(err, PL_E_USAGE,
                       "tree \"beam:%s\": expected beam:WIDTH,DEPTH or beam:WIDTH,DEPTH,GAIN, GAIN at most 1, as "
                       "beam:4,5,0.2",
                       args);
    if (x[0] < 1 || x[0] > WIDEST)
        return pl_fail(err, PL_E_USAGE, "tree \"beam:%s\": WIDTH is %d; expected 1..%d", args, x[0], WIDEST);
    if (x[1] < 1 || x[1] > (PL_TREE_MAX - 1) / x[0])
        return pl_fail(err, PL_E_USAGE,
                       "tree \"beam:%s\": DEPTH is %d; expected 1..%d, so that WIDTH DEPTH + 1 nodes are at most %d",
                       args, x[1], (PL_TREE_MAX - 1) / x[0], PL_TREE_MAX);
    p->k = p->width = x[0];
    p->depth = x[1];
    p->max_nodes = 1 + x[0] * x[1];
    p->needs_logp = true;
    p->stops = stops;
    return PL_OK;
}

// Returns the tokens that the nodes from `first` on are expected to add.
static double expected_tokens(const pl_tree *t, int first) {
    double sum = 0;
    for (int i = first; i < t->n; i++) {
        int           up = t->parent[i];
        const double *q = t->q[up];
        double        left = 1;
        for (int x = t->first[up]; q && x != i; x = t->sibling[x])
            left -= q[t->token[x]];
        sum += q ? pl_tree_probability(t, up) * fmax(left, 0) : exp((double)t->score[i]);
    }
    return sum;
}

static int grow(const pl_tree_policy *p, pl_tree *t, int level, const int *frontier, int n, const int32_t *id,
                const float *logp, int *next) {
    float score[WIDEST * WIDEST];
    int   index[WIDEST * WIDEST], best[WIDEST], all = 0, first = t->n;
    (void)level;
    PL_CHECK(n <= p->width && p->k <= WIDEST, "a beam of %d nodes, %d candidates each", n, p->k);
    for (int f = 0; f < n; f++)
        for (int r = f * p->k; r < (f + 1) * p->k && id[r] >= 0; r++, all++) {
            score[all] = t->score[frontier[f]] + (logp[r] < 0 ? logp[r] : 0);
            index[all] = r;
        }
    // Scores fall from sibling to sibling, so that the children of a node are its first candidates, in their order.
    int m = pl_tree_best_of(score, 0, all, p->width, best);
    for (int i = 0; i < m; i++)
        next[i] = pl_tree_add(t, frontier[index[best[i]] / p->k], id[index[best[i]]], score[best[i]]);
    return p->stops && expected_tokens(t, first) < (double)p->gain ? 0 : m;
}

const pl_tree_kind pl_tree_beam = {.name = "beam",
                                   .syntax = "beam:WIDTH,DEPTH[,GAIN]",
                                   .help = "WIDTH paths at a time, drawn by recursive-wor (RSD-S); GAIN ends as in opt",
                                   .predictable = true,
                                   .races = true,
                                   .parse = parse,
                                   .grow = grow,
                                   .by_score = true};
