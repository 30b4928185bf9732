// Draft trees and the policies that grow them. A chain is a tree of width one.
#ifndef PL_TREE_H
#define PL_TREE_H

#include "kernels/base/status.h"
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#define PL_TREE_MAX 128    // nodes that the target verifies, the root included
#define PL_TREE_GROWN 1024 // nodes of a tree while it grows: candidates that `finish` may drop
#define PL_TREE_TEXT 640   // bytes of a policy's text

// How the children of a node were chosen. Verification needs it: to couple the target's distribution with sampled
// children it must know the distribution they were drawn from (infer/verify/verify.h).
typedef enum pl_proposal {
    PL_PROPOSE_TOP,     // without randomness: the drafter's best, an n-gram, anything that depends on the past alone
    PL_PROPOSE_IID,     // drawn independently from q; repeats are possible and count
    PL_PROPOSE_WOR,     // drawn from q one after the other without replacement
    PL_PROPOSE_TOP_ONE, // first one drawn from q, then tokens where q is zero: the best n-1 (MDSD's greedy draft)
} pl_proposal;

// What a growing tree tells policies that adapt (infer/decode/autotuner.h); written by their `grow`, not kept by
// pl_tree_prune.
typedef struct pl_tree_notes {
    int     levels;                   // levels proposed
    int     grown;                    // nodes of the tree behind the last of them: others may join later
    bool    stopped;                  // no more of them: the last one's path was not worth it (policy.least)
    double  at[PL_TREE_MAX];          // when the candidates of a level were known: pl_now, see pl_tree_notes_share
    int     rows[PL_TREE_MAX];        // nodes that they belong to
    int     n, k;                     // nodes expanded; candidates of each
    int32_t node[PL_TREE_MAX];        // [n]
    int32_t candidate[PL_TREE_GROWN]; // [n, k] tokens; -1 ends a node's list
} pl_tree_notes;

// Node 0 is the root: the last committed token, which the target has not read yet. Parents precede children; siblings
// are distinct tokens.
typedef struct pl_tree {
    int           n;
    int32_t       token[PL_TREE_GROWN];
    int32_t       parent[PL_TREE_GROWN]; // -1 for the root
    int32_t       depth[PL_TREE_GROWN];  // 0 for the root
    int32_t       rank[PL_TREE_GROWN];   // place among the parent's draws (the first, where it was drawn again)
    float         score[PL_TREE_GROWN];  // cumulative log-probability of the path under the drafter (0 for the root)
    int32_t       drawn[PL_TREE_GROWN];  // draws offered as children of the node
    int32_t       first[PL_TREE_GROWN], last[PL_TREE_GROWN], sibling[PL_TREE_GROWN]; // children in order; -1: none
    // Of each node's children. q: [V of the target] the distribution they were drawn from, sums to 1; NULL for
    // PL_PROPOSE_TOP.
    pl_proposal   kind[PL_TREE_GROWN];
    const double *q[PL_TREE_GROWN];
    // Children as they were offered, one entry for each pl_tree_add: in order for each node, repeats included.
    int           n_draws;
    int32_t       draw_parent[PL_TREE_GROWN], draw_token[PL_TREE_GROWN]; // token -1: see pl_tree_miss
    pl_tree_notes notes;
} pl_tree;

void pl_tree_root(pl_tree *t, int32_t token);
// Index of the child of `parent` with this token: a new node, or, when the token was offered before, the old one.
int  pl_tree_add(pl_tree *t, int parent, int32_t token, float score);
// A draw for a child of `parent` that fell on none of the target's tokens: the node's q sums to less than 1, and the
// draw is offered as -1, which every verifier rejects. For chains; pl_tree_prune drops it.
void pl_tree_miss(pl_tree *t, int parent);
// The child of `node` with this token, or -1.
int  pl_tree_child(const pl_tree *t, int node, int32_t token);
// Ancestors of `node` from the root to the node itself; returns how many (depth + 1).
int  pl_tree_path(const pl_tree *t, int node, int32_t *path);
// Tokens offered as children of `node`, in order, into token[PL_TREE_MAX]; returns how many.
int  pl_tree_draws(const pl_tree *t, int node, int32_t *token);
// Keeps the nodes with keep[i] true (the root always; a kept node's parent is kept) in their order. A draw stays where
// its node does; ranks are counted anew.
void pl_tree_prune(pl_tree *t, const bool *keep);

typedef struct pl_tree_policy pl_tree_policy;
typedef struct pl_tree_kind {
    const char *name;   // "chain"
    const char *syntax; // "chain:LENGTH"
    const char *help;   // one line
    // How many children a node gets does not depend on which tokens were drawn. Only such trees can hold sampled
    // children: choosing among drawn nodes would change the distribution they follow.
    bool        fixed_shape;
    // Reads what follows "name:".
    pl_status (*parse)(pl_tree_policy *p, const char *args, pl_err *err);
    // frontier[0..n): nodes whose candidates have just been computed: id/logp [n, p->k] in the order to offer them
    // (best first where deterministic; an id of -1 ends a node's list). Adds children to the tree and writes the nodes
    // to expand next to `next` (at most p->width); returns how many (0: drafting ends). `level` counts from 0 and never
    // passes p->depth - 1.
    int (*grow)(const pl_tree_policy *p, pl_tree *t, int level, const int *frontier, int n, const int32_t *id,
                const float *logp, int *next);
    // What a device chooses while nobody waits for it: the frontier that `grow` is going to return. Neither is set: who
    // drafts on a device waits for each level.
    //   ahead     it does not depend on scores: writes pick[i] = f * p->k + r for the i-th node, candidate r of the
    //             frontier's node f < n, as they are where no list ends early; returns how many. A list that does end
    //             early takes the nodes of its missing candidates out, and leaves the others in their order.
    //   by_score  the p->width best candidates by pl_tree.score, which is the parent's plus min(logp, 0), equal ones in
    //             order (kernels/op/frontier.h).
    int (*ahead)(const pl_tree_policy *p, int level, int n, int32_t *pick);
    bool by_score;
    // After the last level: drops candidates until p->max_nodes are left. NULL: the tree is never larger.
    void (*finish)(const pl_tree_policy *p, pl_tree *t);
} pl_tree_kind;

struct pl_tree_policy {
    const pl_tree_kind *kind;
    char                text[PL_TREE_TEXT]; // as it was asked for
    int                 depth;              // levels drafted at most; where `adapt` is set, set anew while decoding
    int                 depth_max;          // `depth` never passes it
    int                 k;                  // candidates wanted per node
    int                 width;              // frontier nodes at most
    int                 max_nodes;          // root included
    bool                needs_logp;         // the policy compares scores: the head must compute log-sum-exp
    // A chain ends behind a node of depth l whose path's own log-probability (pl_tree.score) is below least[l - 1]: so
    // what is drafted depends on the tokens drafted and the distributions that they were chosen from, never on the
    // target's answer or on a draw to come, and verifiers of chains stay lossless, each token's coupling being that of
    // its own distribution whether or not another one follows (block verification among them: a path's chance of
    // being accepted as far as its node is fixed by the node's own distributions, whatever stands behind).
    bool                stops;
    float               least[PL_TREE_MAX]; // -INFINITY at first
    bool                adapt; // shape and depth are set while decoding, by measured costs (infer/decode/autotuner.h)
    // Trees of a given shape (shape_n > 0), in breadth-first order: node i of 1..n-1 is the rank[i]-th candidate of
    // node parent[i], and the children of node s are child[s], child[s] + 1, ..., children[s] of them, in order of rank
    // 0, 1, 2, ...
    int32_t             shape_n, shape_parent[PL_TREE_MAX], shape_rank[PL_TREE_MAX];
    int32_t             shape_child[PL_TREE_MAX], shape_children[PL_TREE_MAX];
};

// "auto", "chain:5", "static:4x2x1", "eagle2:60,10,6", ... (the kinds' syntax); NULL or "" is auto. One line naming the
// known kinds on failure.
pl_status pl_tree_policy_parse(pl_tree_policy *p, const char *text, pl_err *err);
// Candidates for the children of `node`, best first: id[p->k], -1 ends the list.
typedef void (*pl_tree_candidates)(void *arg, const pl_tree_policy *p, const pl_tree *t, int node, int32_t *id);
// Grows a whole tree, `depth` levels at most, for drafters whose candidates cost nothing (n-grams): those that run a
// model call `grow` level by level themselves.
void                pl_tree_draft(const pl_tree_policy *p, pl_tree *t, int depth, pl_tree_candidates fn, void *arg);
// Drafting is over: drops what the policy does not want verified.
void                pl_tree_finish(const pl_tree_policy *p, pl_tree *t);
// How many candidates of `node` can become its children (what to draw where children are drawn).
int                 pl_tree_wanted(const pl_tree_policy *p, const pl_tree *t, int node);
// For drafters that learn the candidates of all levels at once: the levels of t's notes share the time from `began`
// to `done` in proportion to share[level]; NULL: alike.
void                pl_tree_notes_share(pl_tree *t, double began, double done, const double *share);
const pl_tree_kind *pl_tree_kind_at(int i); // NULL past the last: for help

// ---- given shapes: static.c ------------------------------------------------------------------------------------

// Sets shape_* and depth: n nodes in any order in which parents precede children (parent[0] is not read); siblings keep
// their order. 1 <= n <= PL_TREE_MAX.
void pl_tree_shape_set(pl_tree_policy *p, int n, const int32_t *parent);
// Levels and expanded nodes of the widest level, most children of a node, of a policy's shape.
void pl_tree_shape_size(const pl_tree_policy *p, int *depth, int *width, int *children);
// How the shape is asked for: "chain:4", "static:4x2x1", "static:0,0,1"; "none" for the bare root.
void pl_tree_shape_text(const pl_tree_policy *p, char *text, size_t size);
// `grow` of a shape: a node gets its shape's number of candidates whatever they are. A candidate that was offered
// before (PL_PROPOSE_IID) stays one node and counts as a draw; the node keeps the first occurrence's place in the
// shape, and what would have grown under the repetition is dropped. So the number of draws below a node is known from
// its parent's draws, before its own are made, which is all that a coupling needs.
int  pl_tree_shape_grow(const pl_tree_policy *p, pl_tree *t, int level, const int *frontier, int n, const int32_t *id,
                        const float *logp, int *next);
// `ahead` of a shape.
int  pl_tree_shape_ahead(const pl_tree_policy *p, int level, int n, int32_t *pick);

// ---- kinds ----------------------------------------------------------------------------------------------------------

// chain:N: at each level the drafter's best token. chain:auto is `auto` with chains alone, chain:confidence the same
// where drafts also end by the drafter's own probability, calibrated while decoding.
extern const pl_tree_kind pl_tree_chain;
// static:4x2x1: every node of level i gets that many children; static:0,0,0,1,1,4: the parents of nodes 1, 2, ...
extern const pl_tree_kind pl_tree_static;
// EAGLE-2's dynamic tree (Li et al. 2024, arXiv 2406.16858, §4), eagle2:NODES,WIDTH,DEPTH.
// With the score of a node s(node) = sum of log q over its path:
//   expand  level 0: the root's best WIDTH tokens; level l: each of the WIDTH nodes of level l-1 with the largest s
//           gets its WIDTH best tokens. All of them are candidates: WIDTH + (DEPTH - 1) WIDTH^2.
//   rerank  the NODES - 1 candidates with the largest s, over all levels, are verified.
// Equal scores: the node added first (nodes are added in order of their parents' scores, siblings best first). Since
// log q <= 0 no child precedes its parent, so what is kept is closed under ancestors.
extern const pl_tree_kind pl_tree_eagle2;
// Shapes chosen while decoding; max_nodes, k, width and depth_max bound them.
extern const pl_tree_kind pl_tree_auto;
// The policy of `auto` within these bounds.
void                      pl_tree_policy_adapt(pl_tree_policy *p, int nodes, int k, int width, int depth);

#endif
