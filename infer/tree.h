// Draft trees and the policies that grow them. A chain is a tree of width one.
#ifndef PL_TREE_H
#define PL_TREE_H

#include "kernels/base/status.h"
#include <stdbool.h>
#include <stdint.h>

#define PL_TREE_MAX 128 // nodes, the root included

// Node 0 is the root: the last committed token, which the target has not read yet. Parents precede children; siblings
// are distinct tokens.
typedef struct pl_tree {
    int     n;
    int32_t token[PL_TREE_MAX];
    int32_t parent[PL_TREE_MAX]; // -1 for the root
    int32_t depth[PL_TREE_MAX];  // 0 for the root
    float   score[PL_TREE_MAX];  // cumulative log-probability of the path under the drafter (0 for the root)
} pl_tree;

void pl_tree_root(pl_tree *t, int32_t token);
int  pl_tree_add(pl_tree *t, int parent, int32_t token, float score); // index of the new node
// The child of `node` with this token, or -1.
int  pl_tree_child(const pl_tree *t, int node, int32_t token);
// Ancestors of `node` from the root to the node itself; returns how many (depth + 1).
int  pl_tree_path(const pl_tree *t, int node, int32_t *path);

typedef struct pl_tree_policy pl_tree_policy;
typedef struct pl_tree_kind {
    const char *name;   // "chain"
    const char *syntax; // "chain:LENGTH"
    // Reads what follows "name:".
    pl_status (*parse)(pl_tree_policy *p, const char *args, pl_err *err);
    // frontier[0..n): nodes whose candidates have just been computed: id/logp [n, p->k], best first. Adds children to
    // the tree and writes the nodes to expand next to `next`; returns how many (0: drafting ends). `level` counts from
    // 0 and never passes p->depth - 1.
    int (*grow)(const pl_tree_policy *p, pl_tree *t, int level, const int *frontier, int n, const int32_t *id,
                const float *logp, int *next);
} pl_tree_kind;

struct pl_tree_policy {
    const pl_tree_kind *kind;
    int                 depth;      // levels drafted at most
    int                 k;          // candidates wanted per node
    int                 width;      // frontier nodes at most
    int                 max_nodes;  // root included
    bool                needs_logp; // the policy compares scores: the head must compute log-sum-exp
    bool                adapt;      // "chain:auto": depth is set while decoding, by measured costs (infer/pace.h)
};

// "chain:5", "chain:auto", ...; one line naming the known kinds on failure.
pl_status pl_tree_policy_parse(pl_tree_policy *p, const char *text, pl_err *err);

extern const pl_tree_kind pl_tree_chain;

#endif
