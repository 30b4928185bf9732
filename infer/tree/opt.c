// OPT-Tree: EAGLE-2's tree, which grows while a level is expected to add enough tokens.
#include "infer/tree/tree.h"

#include <math.h>

static pl_status parse(pl_tree_policy *p, const char *args, pl_err *err) {
    int32_t x[3];
    if (!pl_tree_gain(args, 3, PL_TREE_MAX, x, &p->gain))
        return pl_fail(err, PL_E_USAGE,
                       "tree \"opt:%s\": expected opt:NODES,WIDTH,DEPTH,GAIN, GAIN in tokens, as opt:60,10,8,0.2",
                       args);
    p->stops = true;
    return pl_tree_best_set(p, x, args, err);
}

// Returns the tokens that the best of the first n nodes are expected to add.
static double expected_tokens(const pl_tree_policy *p, const pl_tree *t, int n) {
    int    best[PL_TREE_MAX], m = pl_tree_best_of(t->score, 1, n, p->max_nodes - 1, best);
    double sum = 0;
    for (int i = 0; i < m; i++)
        sum += exp((double)t->score[best[i]]);
    return sum;
}

static int grow(const pl_tree_policy *p, pl_tree *t, int level, const int *frontier, int n, const int32_t *id,
                const float *logp, int *next) {
    double before = expected_tokens(p, t, t->n);
    int    m = pl_tree_best_grow(p, t, level, frontier, n, id, logp, next);
    return expected_tokens(p, t, t->n) - before < (double)p->gain ? 0 : m;
}

const pl_tree_kind pl_tree_opt = {.name = "opt",
                                  .syntax = "opt:NODES,WIDTH,DEPTH,GAIN",
                                  .help = "the same, which ends where a level adds fewer than GAIN tokens (OPT-Tree)",
                                  .parse = parse,
                                  .grow = grow,
                                  .finish = pl_tree_best_finish};
