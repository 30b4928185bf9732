// A tree policy in one file: two children of the root, and a chain of N below the first.
#include "infer/tree/tree.h"

#include <stdlib.h>

static pl_status parse(pl_tree_policy *p, const char *args, pl_err *err) {
    int32_t parent[PL_TREE_MAX] = {0};
    int     chain = atoi(args), n = 3;
    if (chain < 1 || chain > PL_TREE_MAX - 3)
        return pl_fail(err, PL_E_USAGE, "tree \"fork:%s\": expected fork:N, N in 1..%d", args, PL_TREE_MAX - 3);
    for (int last = 1; n < chain + 3; last = n++)
        parent[n] = last;
    pl_tree_shape_set(p, n, parent);
    pl_tree_shape_size(p, &p->depth, &p->width, &p->k);
    p->max_nodes = n;
    return PL_OK;
}

const pl_tree_kind pl_tree_fork = {.name = "fork",
                                   .syntax = "fork:N",
                                   .help = "two children of the root, N tokens below the first",
                                   .fixed_shape = true,
                                   .parse = parse,
                                   .grow = pl_tree_shape_grow,
                                   .ahead = pl_tree_shape_ahead};
