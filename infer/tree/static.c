// Trees of a given shape: static:4x2x1 and static:0,0,0,1,1,4; the shapes of `auto` grow by the same code.
#include "infer/tree/tree.h"

#include "kernels/base/check.h"
#include "kernels/op/topk.h"

#include <stdio.h>
#include <stdlib.h>

void pl_tree_shape_set(pl_tree_policy *p, int n, const int32_t *parent) {
    PL_CHECK(n >= 1 && n <= PL_TREE_MAX, "a shape of %d nodes", n);
    int32_t from[PL_TREE_MAX], depth[PL_TREE_MAX]; // from[i]: number of the shape's node i in `parent`
    int     m = 1;
    from[0] = 0;
    depth[0] = 0;
    p->shape_n = n;
    p->shape_parent[0] = -1;
    p->shape_rank[0] = 0;
    // Breadth first: the children of node s are appended when s is reached.
    for (int s = 0; s < m; s++) {
        p->shape_child[s] = m;
        for (int i = from[s] + 1; i < n; i++) {
            if (parent[i] != from[s]) continue;
            from[m] = i;
            depth[m] = depth[s] + 1;
            p->shape_parent[m] = s;
            p->shape_rank[m] = m - p->shape_child[s];
            m++;
        }
        p->shape_children[s] = m - p->shape_child[s];
    }
    PL_CHECK(m == n, "a shape of %d nodes, %d of them below the root", n, m - 1);
    p->depth = depth[n - 1];
}

void pl_tree_shape_size(const pl_tree_policy *p, int *depth, int *width, int *children) {
    int level[PL_TREE_MAX] = {0}, at[PL_TREE_MAX] = {0};
    *depth = *width = *children = 0;
    for (int s = 0; s < p->shape_n; s++) {
        if (s > 0) level[s] = level[p->shape_parent[s]] + 1;
        if (level[s] > *depth) *depth = level[s];
        if (p->shape_children[s] > *children) *children = p->shape_children[s];
        if (p->shape_children[s] && ++at[level[s]] > *width) *width = at[level[s]];
    }
}

// Returns true if all nodes of a level have the same number of children; `by` then holds the numbers by level.
static bool is_regular(const pl_tree_policy *p, int *by, int *levels) {
    int level[PL_TREE_MAX] = {0};
    *levels = 0;
    for (int s = 0; s < p->shape_n; s++) {
        if (s > 0) level[s] = level[p->shape_parent[s]] + 1;
        if (level[s] == *levels)
            by[(*levels)++] = p->shape_children[s];
        else if (by[level[s]] != p->shape_children[s])
            return false;
    }
    (*levels)--; // leaves have no children
    return true;
}

void pl_tree_shape_text(const pl_tree_policy *p, char *text, size_t size) {
    int    by[PL_TREE_MAX + 1], levels, depth, width, children;
    size_t at = 0;
    pl_tree_shape_size(p, &depth, &width, &children);
    if (depth == 0) {
        snprintf(text, size, "none");
    } else if (children == 1) {
        snprintf(text, size, "chain:%d", depth);
    } else if (is_regular(p, by, &levels)) {
        for (int i = 0; i < levels && at < size; i++)
            at += (size_t)snprintf(text + at, size - at, "%s%d", i ? "x" : "static:", by[i]);
    } else {
        for (int i = 1; i < p->shape_n && at < size; i++)
            at += (size_t)snprintf(text + at, size - at, "%s%d", i > 1 ? "," : "static:", p->shape_parent[i]);
    }
}

int pl_tree_shape_grow(const pl_tree_policy *p, pl_tree *t, int level, const int *frontier, int n, const int32_t *id,
                       const float *logp, int *next) {
    int m = 0;
    for (int f = 0; f < n; f++, id += p->k, logp += p->k) {
        int wanted = pl_tree_wanted(p, t, frontier[f]);
        for (int r = 0; r < wanted && id[r] >= 0; r++) {
            int before = t->n, node = pl_tree_add(t, frontier[f], id[r], t->score[frontier[f]] + logp[r]);
            if (node < before || level + 1 >= p->depth) continue;
            if (pl_tree_wanted(p, t, node) > 0) next[m++] = node;
        }
    }
    return m;
}

int pl_tree_shape_ahead(const pl_tree_policy *p, int level, int n, int32_t *pick) {
    int depth[PL_TREE_MAX] = {0}, place[PL_TREE_MAX], of_level = 0, m = 0; // place: index in the frontier of its level
    for (int s = 0; s < p->shape_n; s++) {
        int parent = p->shape_parent[s];
        if (s > 0) depth[s] = depth[parent] + 1;
        if (depth[s] > level + 1) break;
        if (p->shape_children[s] == 0) continue;
        if (depth[s] == level) place[s] = of_level++;
        if (depth[s] == level + 1) pick[m++] = place[parent] * p->k + p->shape_rank[s];
    }
    PL_CHECK(of_level == n, "a frontier of %d nodes, the shape has %d at level %d", n, of_level, level);
    return m;
}

int pl_tree_numbers(const char *text, char sep, long low, long high, int32_t *out, int max) {
    int n = 0;
    for (;;) {
        char *end;
        long  x = strtol(text, &end, 10);
        if (end == text || *text < '0' || *text > '9' || x < low || x > high || n == max) return -1;
        out[n++] = (int32_t)x;
        if (!*end) return n;
        if (*end != sep) return -1;
        text = end + 1;
    }
}

static pl_status parse_parents(int32_t *parent, int *n, const char *args, pl_err *err) {
    int count = pl_tree_numbers(args, ',', 0, PL_TREE_MAX - 1, parent + 1, PL_TREE_MAX - 1);
    if (count < 0)
        return pl_fail(err, PL_E_USAGE, "tree \"static:%s\": expected the parents of at most %d nodes, as 0,0,1", args,
                       PL_TREE_MAX - 1);
    for (int i = 1; i <= count; i++)
        if (parent[i] >= i)
            return pl_fail(err, PL_E_USAGE,
                           "tree \"static:%s\": node %d has node %d as its parent; a parent comes before its children",
                           args, i, parent[i]);
    *n = count + 1;
    return PL_OK;
}

static pl_status parse_levels(int32_t *parent, int *n, const char *args, pl_err *err) {
    int32_t by[PL_TREE_MAX];
    int     levels = pl_tree_numbers(args, 'x', 1, PL_TREE_MAX - 1, by, PL_TREE_MAX - 1);
    if (levels < 0)
        return pl_fail(err, PL_E_USAGE,
                       "tree \"static:%s\": expected children by level, as 4x2x1, or parents, as 0,0,1", args);
    *n = 1;
    for (int l = 0, first = 0; l < levels; l++) {
        int end = *n;
        if ((int64_t)(end - first) * by[l] > PL_TREE_MAX - end)
            return pl_fail(err, PL_E_USAGE, "tree \"static:%s\": more than %d nodes, the root included", args,
                           PL_TREE_MAX);
        for (; first < end; first++)
            for (int r = 0; r < by[l]; r++)
                parent[(*n)++] = first;
    }
    return PL_OK;
}

static pl_status parse(pl_tree_policy *p, const char *args, pl_err *err) {
    int32_t parent[PL_TREE_MAX];
    int     n = 0;
    // No level has 0 children and every list of parents begins with 0.
    PL_TRY(*args == '0' ? parse_parents(parent, &n, args, err) : parse_levels(parent, &n, args, err));
    pl_tree_shape_set(p, n, parent);
    pl_tree_shape_size(p, &p->depth, &p->width, &p->k);
    p->max_nodes = n;
    if (p->k > PL_TOPK_MAX)
        return pl_fail(err, PL_E_USAGE, "tree \"static:%s\": a node of %d children, at most %d", args, p->k,
                       PL_TOPK_MAX);
    return PL_OK;
}

const pl_tree_kind pl_tree_static = {.name = "static",
                                     .syntax = "static:N1xN2x...|PARENTS",
                                     .help = "4x2x1: children by depth; 0,0,1: the parent of each node",
                                     .fixed_shape = true,
                                     .parse = parse,
                                     .grow = pl_tree_shape_grow,
                                     .ahead = pl_tree_shape_ahead};
