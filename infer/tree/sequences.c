// Sequences that are drawn independently and share their common beginnings.
#include "infer/tree/tree.h"

#include "kernels/op/topk.h"

static pl_status parse(pl_tree_policy *p, const char *args, pl_err *err) {
    int32_t x[2], parent[PL_TREE_MAX];
    if (pl_tree_numbers(args, ',', 1, PL_TREE_MAX - 1, x, 2) != 2 || x[0] > PL_TOPK_MAX ||
        x[0] * x[1] > PL_TREE_MAX - 1)
        return pl_fail(err, PL_E_USAGE,
                       "tree \"sequences:%s\": expected sequences:COUNT,LENGTH, COUNT at most %d and COUNT LENGTH at "
                       "most %d",
                       args, PL_TOPK_MAX, PL_TREE_MAX - 1);
    for (int i = 1; i <= x[0] * x[1]; i++)
        parent[i] = i <= x[0] ? 0 : i - x[0];
    pl_tree_shape_set(p, 1 + x[0] * x[1], parent);
    p->sequences = true;
    p->k = p->width = x[0];
    p->max_nodes = p->shape_n;
    return PL_OK;
}

const pl_tree_kind pl_tree_sequences = {.name = "sequences",
                                        .syntax = "sequences:COUNT,LENGTH",
                                        .help = "COUNT sequences that share their beginnings (SpecTr)",
                                        .fixed_shape = true,
                                        .parse = parse,
                                        .grow = pl_tree_shape_grow,
                                        .ahead = pl_tree_shape_ahead};
