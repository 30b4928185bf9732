// DySpec's tree: of all draws those that are most likely to be reached.
#include "infer/tree/tree.h"

#include <math.h>

static pl_status parse(pl_tree_policy *p, const char *args, pl_err *err) {
    int32_t x[3];
    if (pl_tree_numbers(args, ',', 0, INT32_MAX, x, 3) != 3)
        return pl_fail(err, PL_E_USAGE, "tree \"dyspec:%s\": expected dyspec:NODES,WIDTH,DEPTH, as dyspec:32,8,6",
                       args);
    return pl_tree_best_set(p, x, args, err);
}

static void finish(const pl_tree_policy *p, pl_tree *t) {
    float  value[PL_TREE_GROWN] = {0}; // log v
    double left[PL_TREE_GROWN];        // mass that the draws so far leave to a node's next one
    int    before[PL_TREE_GROWN];      // the last draw before it, the node itself at first
    for (int i = 0; i < t->n; i++) {
        int up = t->parent[i];
        left[i] = 1;
        before[i] = i;
        if (i == 0) continue;
        value[i] = t->q[up] ? t->score[up] + (float)log(fmax(left[up], 0)) : t->score[i];
        // Rounding must not let a draw outrank one that it depends on.
        value[i] = fminf(value[i], fminf(value[up], value[before[up]]));
        if (t->q[up]) left[up] -= t->q[up][t->token[i]];
        before[up] = i;
    }
    pl_tree_best_keep(p, t, value);
}

const pl_tree_kind pl_tree_dyspec = {.name = "dyspec",
                                     .syntax = "dyspec:NODES,WIDTH,DEPTH",
                                     .help = "eagle2's by match; drawn by recursive-wor, the likeliest draws (DySpec)",
                                     .predictable = true,
                                     .parse = parse,
                                     .grow = pl_tree_best_grow,
                                     .by_score = true,
                                     .finish = finish};
