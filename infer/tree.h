// Draft trees and the policies that grow them. A chain is a tree of width one.
#ifndef PL_TREE_H
#define PL_TREE_H

#include "kernels/base/status.h"
#include <stdbool.h>
#include <stdint.h>

#define PL_TREE_MAX 128    // nodes that the target verifies, the root included
#define PL_TREE_GROWN 1024 // nodes of a tree while it grows: candidates that `finish` may drop

// How the children of a node were chosen. Verification needs it: to couple the target's law with sampled children it
// must know the law they were drawn from (facts: inference §3.0).
typedef enum pl_proposal {
    PL_PROPOSE_TOP,     // without randomness: the drafter's best, an n-gram, anything that depends on the past alone
    PL_PROPOSE_IID,     // drawn independently from q; repeats are possible and count
    PL_PROPOSE_WOR,     // drawn from q one after the other without replacement
    PL_PROPOSE_TOP_ONE, // first one drawn from q, then tokens where q is zero: the best n-1 (MDSD's greedy draft)
} pl_proposal;

// Node 0 is the root: the last committed token, which the target has not read yet. Parents precede children; siblings
// are distinct tokens.
typedef struct pl_tree {
    int           n;
    int32_t       token[PL_TREE_GROWN];
    int32_t       parent[PL_TREE_GROWN]; // -1 for the root
    int32_t       depth[PL_TREE_GROWN];  // 0 for the root
    float         score[PL_TREE_GROWN];  // cumulative log-probability of the path under the drafter (0 for the root)
    // Of each node's children. q: [V of the target] the law they were drawn from, sums to 1; NULL for PL_PROPOSE_TOP.
    pl_proposal   kind[PL_TREE_GROWN];
    const double *q[PL_TREE_GROWN];
    // Children as they were offered, one entry for each pl_tree_add: in order for each node, repeats included.
    int           n_draws;
    int32_t       draw_parent[PL_TREE_GROWN], draw_token[PL_TREE_GROWN];
} pl_tree;

void pl_tree_root(pl_tree *t, int32_t token);
// Index of the child of `parent` with this token: a new node, or, when the token was offered before, the old one.
int  pl_tree_add(pl_tree *t, int parent, int32_t token, float score);
// The child of `node` with this token, or -1.
int  pl_tree_child(const pl_tree *t, int node, int32_t token);
// Ancestors of `node` from the root to the node itself; returns how many (depth + 1).
int  pl_tree_path(const pl_tree *t, int node, int32_t *path);
// Tokens offered as children of `node`, in order, into token[PL_TREE_MAX]; returns how many.
int  pl_tree_draws(const pl_tree *t, int node, int32_t *token);
// Keeps the nodes with keep[i] true (the root always; a kept node's parent is kept) in their order.
void pl_tree_prune(pl_tree *t, const bool *keep);

typedef struct pl_tree_policy pl_tree_policy;
typedef struct pl_tree_kind {
    const char *name;   // "chain"
    const char *syntax; // "chain:LENGTH"
    // How many children a node gets does not depend on which tokens were drawn. Only such trees can hold sampled
    // children: choosing among drawn nodes would change the law they follow.
    bool        fixed_shape;
    // Reads what follows "name:".
    pl_status (*parse)(pl_tree_policy *p, const char *args, pl_err *err);
    // frontier[0..n): nodes whose candidates have just been computed: id/logp [n, p->k] in the order to offer them
    // (best first where deterministic; an id of -1 ends a node's list). Adds children to the tree and writes the nodes
    // to expand next to `next` (at most p->width); returns how many (0: drafting ends). `level` counts from 0 and never
    // passes p->depth - 1.
    int (*grow)(const pl_tree_policy *p, pl_tree *t, int level, const int *frontier, int n, const int32_t *id,
                const float *logp, int *next);
    // After the last level: drops candidates until p->max_nodes are left. NULL: the tree is never larger.
    void (*finish)(const pl_tree_policy *p, pl_tree *t);
} pl_tree_kind;

struct pl_tree_policy {
    const pl_tree_kind *kind;
    int                 depth;      // levels drafted at most
    int                 k;          // candidates wanted per node
    int                 width;      // frontier nodes at most
    int                 max_nodes;  // root included
    bool                needs_logp; // the policy compares scores: the head must compute log-sum-exp
    bool                adapt;      // "chain:auto": depth is set while decoding, by measured costs (infer/pace.h)
    // Trees of a given shape: node i of 1..n-1 is the rank[i]-th candidate of node parent[i]; siblings in order of
    // rank.
    int32_t             shape_n, shape_parent[PL_TREE_MAX], shape_rank[PL_TREE_MAX];
};

// "chain:5", "chain:auto", ...; NULL or "" is chain:auto. One line naming the known kinds on failure.
pl_status pl_tree_policy_parse(pl_tree_policy *p, const char *text, pl_err *err);
// Drafting is over: drops what the policy does not want verified.
void      pl_tree_finish(const pl_tree_policy *p, pl_tree *t);

extern const pl_tree_kind pl_tree_chain;

#endif
