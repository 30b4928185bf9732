// Draft trees and the policies that grow them. A chain is a tree of width one.
#ifndef PL_TREE_H
#define PL_TREE_H

#include "kernels/base/status.h"
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#define PL_TREE_MAX 128    // most nodes that the target verifies, root included
#define PL_TREE_GROWN 1024 // most nodes of a growing tree, including candidates that `finish` may drop
#define PL_TREE_TEXT 640   // bytes of a policy's text

// How the children of a node were chosen. Verification couples the target's distribution with sampled children and
// needs the distribution that they were drawn from (infer/verify/verify.h).
typedef enum pl_proposal {
    PL_PROPOSE_TOP,     // deterministic: the drafter's best, an n-gram, anything that depends on the past alone
    PL_PROPOSE_IID,     // drawn independently from q; repeats are possible and count
    PL_PROPOSE_WOR,     // drawn from q one after the other without replacement
    PL_PROPOSE_TOP_ONE, // one drawn from q, then the best n-1 tokens, where q is zero (MDSD's greedy draft)
} pl_proposal;

// Notes of a growing tree for adaptive policies (infer/decode/autotuner.h), written by their `grow`; pl_tree_prune
// leaves them as they are.
typedef struct pl_tree_notes {
    int     levels;                   // levels proposed
    int     grown;                    // number of nodes after the last level; others may join later
    bool    stopped;                  // ended early: the last path's probability was too low (policy.least)
    double  at[PL_TREE_MAX];          // time at which a level's candidates were known: pl_now, see pl_tree_notes_share
    int     rows[PL_TREE_MAX];        // number of nodes that were expanded at it
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
    int32_t       rank[PL_TREE_GROWN];   // index among the parent's draws (of the first one, if drawn again)
    float         score[PL_TREE_GROWN];  // cumulative log-probability of the path under the drafter (0 for the root)
    int32_t       drawn[PL_TREE_GROWN];  // number of draws offered as children
    int32_t       first[PL_TREE_GROWN], last[PL_TREE_GROWN], sibling[PL_TREE_GROWN]; // children in order; -1: none
    // For each node's children. q: [V of the target] the distribution that they were drawn from, sums to 1; NULL for
    // PL_PROPOSE_TOP.
    pl_proposal   kind[PL_TREE_GROWN];
    const double *q[PL_TREE_GROWN];
    // Children as offered, one entry for each pl_tree_add: in order for each node, repeats included.
    int           n_draws;
    int32_t       draw_parent[PL_TREE_GROWN], draw_token[PL_TREE_GROWN]; // token -1: see pl_tree_miss
    pl_tree_notes notes;
} pl_tree;

void   pl_tree_root(pl_tree *t, int32_t token);
// Adds a child of `parent` and returns its index; a token that was offered before returns the existing child.
int    pl_tree_add(pl_tree *t, int parent, int32_t token, float score);
// Adds a draw for a child of `parent` that is no token of the target: the node's q sums to less than 1, and the draw is
// offered as -1, which every verifier rejects. For chains; pl_tree_prune drops it.
void   pl_tree_miss(pl_tree *t, int parent);
// Returns the probability of the path to `node`: the product of what its tokens have under the distributions that they
// were drawn from; tokens that were not drawn are left out.
double pl_tree_probability(const pl_tree *t, int node);
// Returns the child of `node` with this token, or -1.
int    pl_tree_child(const pl_tree *t, int node, int32_t token);
// Writes the ancestors of `node` from the root to the node itself; returns their number (depth + 1).
int    pl_tree_path(const pl_tree *t, int node, int32_t *path);
// Writes the tokens offered as children of `node`, in order, into token[PL_TREE_MAX]; returns their number.
int    pl_tree_draws(const pl_tree *t, int node, int32_t *token);
// Keeps the nodes with keep[i] true (the root always; a kept node's parent is kept) in their order. Draws of kept nodes
// are kept; ranks are renumbered.
void   pl_tree_prune(pl_tree *t, const bool *keep);

typedef struct pl_tree_policy pl_tree_policy;
typedef struct pl_tree_kind {
    const char *name;   // "chain"
    const char *syntax; // "chain:LENGTH"
    const char *help;   // one line
    // The number of a node's children does not depend on the drawn tokens: such trees hold children drawn in any way.
    // Choosing among drawn nodes would change their distribution.
    bool        fixed_shape;
    // A child is added or not by tokens that were drawn before it, never by its own. Given those tokens it follows its
    // law, and recursive rejection, which may stop behind any child, stays lossless: such trees hold children drawn
    // without replacement.
    bool        predictable;
    bool        races; // drawn children race (infer/sample/propose.h)
    // Parses the text after "name:".
    pl_status (*parse)(pl_tree_policy *p, const char *args, pl_err *err);
    // frontier[0..n): nodes whose candidates have just been computed: id/logp [n, p->k] in the order to offer them
    // (best first where deterministic; an id of -1 ends a node's list). Adds children to the tree, writes the nodes to
    // expand next into `next` (at most p->width) and returns their number (0: drafting ends). `level` counts from 0 up
    // to p->depth - 1.
    int (*grow)(const pl_tree_policy *p, pl_tree *t, int level, const int *frontier, int n, const int32_t *id,
                const float *logp, int *next);
    // How a device computes the next frontier, the one that `grow` will return, without synchronising. Set at most one
    // of them; with neither, the drafter synchronises after every level.
    //   ahead     does not depend on scores: writes pick[i] = f * p->k + r for the i-th node, candidate r of the
    //             frontier's node f < n, assuming full lists; returns the number of nodes. A shorter list removes
    //             the nodes of its missing candidates and leaves the others in their order.
    //   by_score  the p->width best candidates by pl_tree.score, which is the parent's plus min(logp, 0), ties in
    //             order (kernels/op/frontier.h).
    int (*ahead)(const pl_tree_policy *p, int level, int n, int32_t *pick);
    bool by_score;
    // Runs after the last level: drops candidates until p->max_nodes are left. NULL: the tree is never larger.
    void (*finish)(const pl_tree_policy *p, pl_tree *t);
} pl_tree_kind;

struct pl_tree_policy {
    const pl_tree_kind *kind;
    char                text[PL_TREE_TEXT]; // as requested
    int                 depth;              // most levels drafted; changes while decoding if `adapt` is set
    int                 depth_max;          // upper limit of `depth`
    int                 k;                  // candidates per node
    int                 width;              // most frontier nodes
    int                 max_nodes;          // root included
    bool                needs_logp;         // the policy compares scores: the head must compute log-sum-exp
    // Drafts may end early, for which a device is synchronised after each level. A tree with a gain ends behind a level
    // that is expected to add fewer tokens. A chain ends after a node of depth l whose path's log-probability
    // (pl_tree.score) is below least[l - 1]. The length of a draft thus depends only on drafted tokens and the
    // distributions that they were chosen from, never on the target's answer or on a later draw, so that verifiers of
    // chains stay lossless: each token's coupling is that of its own distribution, whether or not another token follows
    // (also in block verification, where the probability that a path is accepted up to a node is fixed by the
    // distributions up to that node).
    bool                stops;
    float               gain;
    float               least[PL_TREE_MAX]; // initially -INFINITY
    bool                sequences;          // a node that was drawn m times gets m draws (pl_tree_sequences)
    bool                adapt; // shape and depth change while decoding, by measured costs (infer/decode/autotuner.h)
    // Trees of a given shape (shape_n > 0), in breadth-first order: node i of 1..n-1 is the rank[i]-th candidate of
    // node parent[i], and the children of node s are child[s], child[s] + 1, ..., children[s] of them, in order of rank
    // 0, 1, 2, ...
    int32_t             shape_n, shape_parent[PL_TREE_MAX], shape_rank[PL_TREE_MAX];
    int32_t             shape_child[PL_TREE_MAX], shape_children[PL_TREE_MAX];
};

// Parses "auto", "chain:5", "static:4x2x1", "eagle2:60,10,6", ... (the kinds' syntax); NULL or "" is auto. Fails with
// one line that names the known kinds.
pl_status pl_tree_policy_parse(pl_tree_policy *p, const char *text, pl_err *err);
// Writes candidates for the children of `node`, best first: id[p->k], -1 ends the list.
typedef void (*pl_tree_candidates)(void *arg, const pl_tree_policy *p, const pl_tree *t, int node, int32_t *id);
// Grows a whole tree of at most `depth` levels, for drafters whose candidates are free (n-grams); drafters with a model
// call `grow` level by level.
void                pl_tree_draft(const pl_tree_policy *p, pl_tree *t, int depth, pl_tree_candidates fn, void *arg);
// Ends drafting: drops nodes that the policy does not verify.
void                pl_tree_finish(const pl_tree_policy *p, pl_tree *t);
// Returns the number of candidates of `node` that can become its children (the number to draw for sampled children).
int                 pl_tree_wanted(const pl_tree_policy *p, const pl_tree *t, int node);
// For drafters that compute the candidates of all levels at once: divides the time from `began` to `done` among the
// levels of t's notes in proportion to share[level]; NULL: equally.
void                pl_tree_notes_share(pl_tree *t, double began, double done, const double *share);
// Returns the most nodes that a draft expands.
int                 pl_tree_expanded(const pl_tree_policy *p);
const pl_tree_kind *pl_tree_kind_at(int i); // NULL past the last: for help

// ---- given shapes: static.c ------------------------------------------------------------------------------------

// Sets shape_* and depth: n nodes in any order in which parents precede children (parent[0] is not read); siblings keep
// their order. 1 <= n <= PL_TREE_MAX.
void pl_tree_shape_set(pl_tree_policy *p, int n, const int32_t *parent);
// Returns a shape's number of levels, expanded nodes of its widest level, and most children of a node.
void pl_tree_shape_size(const pl_tree_policy *p, int *depth, int *width, int *children);
// Writes the shape in the syntax of --tree: "chain:4", "static:4x2x1", "static:0,0,1"; "none" for the bare root.
void pl_tree_shape_text(const pl_tree_policy *p, char *text, size_t size);
// `grow` of a shape: a node gets its shape's number of candidates, whatever they are. A candidate that was offered
// before (PL_PROPOSE_IID) stays one node and counts as a draw; the node keeps the first occurrence's place in the
// shape, and the subtree of the repetition is dropped. So the number of draws below a node follows from its parent's
// draws, before its own are made, which is all that a coupling needs.
int  pl_tree_shape_grow(const pl_tree_policy *p, pl_tree *t, int level, const int *frontier, int n, const int32_t *id,
                        const float *logp, int *next);
// `ahead` of a shape.
int  pl_tree_shape_ahead(const pl_tree_policy *p, int level, int n, int32_t *pick);
// Parses numbers in low..high, separated by `sep`, into out[0..max). Returns how many there are, -1: not such a list.
int  pl_tree_numbers(const char *text, char sep, long low, long high, int32_t *out, int max);

// ---- the most probable nodes: eagle2.c -------------------------------------------------------------------------

// Sets the policy for NODES, WIDTH, DEPTH = x[0..2] (pl_tree_eagle2) or refuses them; args: their text.
pl_status pl_tree_best_set(pl_tree_policy *p, const int32_t x[3], const char *args, pl_err *err);
// `grow` of EAGLE-2: adds every candidate, expands the best of the level.
int  pl_tree_best_grow(const pl_tree_policy *p, pl_tree *t, int level, const int *frontier, int n, const int32_t *id,
                       const float *logp, int *next);
// Selects the m > 0 nodes of lo..hi-1 with the largest score, best first, ties in order; returns their number.
int  pl_tree_best_of(const float *score, int lo, int hi, int m, int *out);
// Keeps the root and the max_nodes - 1 nodes with the largest score, which must not rise along a path.
void pl_tree_best_keep(const pl_tree_policy *p, pl_tree *t, const float *score);
// `finish` of EAGLE-2: the same by the tree's own scores.
void pl_tree_best_finish(const pl_tree_policy *p, pl_tree *t);
// Parses "N,...,GAIN": `wanted` numbers and a decimal in 0..most behind them.
bool pl_tree_gain(const char *text, int wanted, double most, int32_t *out, float *gain);

// ---- kinds ----------------------------------------------------------------------------------------------------------

// chain:N: at each level the drafter's best token. chain:auto is `auto` with chains alone; chain:confidence also ends
// drafts by the drafter's own probability, calibrated while decoding.
extern const pl_tree_kind pl_tree_chain;
// static:4x2x1: every node of level i gets that many children; static:0,0,0,1,1,4: the parents of nodes 1, 2, ...
extern const pl_tree_kind pl_tree_static;
// EAGLE-2's dynamic tree (Li et al. 2024, arXiv 2406.16858, §4), eagle2:NODES,WIDTH,DEPTH. With the score of a node
// s(node) = sum of log q over its path:
//   expand  level 0: the root's best WIDTH tokens; level l: each of the WIDTH nodes of level l-1 with the largest s
//           gets its WIDTH best tokens. All of them are candidates: WIDTH + (DEPTH - 1) WIDTH^2.
//   rerank  the NODES - 1 candidates with the largest s, over all levels, are verified.
// Equal scores: the node added first (nodes are added in order of their parents' scores, siblings best first). Since
// log q <= 0 no child precedes its parent, so the kept nodes are closed under ancestors.
extern const pl_tree_kind pl_tree_eagle2;
// OPT-Tree (Wang et al. 2024, arXiv 2406.17276), opt:NODES,WIDTH,DEPTH,GAIN: EAGLE-2's tree that grows as long as it
// pays. With E the sum of exp(s) over the NODES - 1 best candidates, the tokens that a draft is expected to add, growth
// ends behind a level that raised E by less than GAIN.
extern const pl_tree_kind pl_tree_opt;
// A beam, beam:WIDTH,DEPTH[,GAIN]: of all candidates of a level the WIDTH best become nodes and are expanded; nothing
// is dropped later. Chosen children: by s (beam search). Drawn without replacement: by their time of arrival, -score,
// which makes each level a sample of WIDTH paths without replacement (RSD-S, Jeon et al. 2024, arXiv 2402.14160;
// stochastic beam search, Kool et al. 2019). The j-th child of a node arrives after the one before it, at a time that
// does not depend on its own token, so that its place among the WIDTH is decided without it: the tree is predictable.
// With GAIN growth ends behind a level that is expected to add fewer tokens (OPT-Tree's stop): the sum over its nodes
// of exp(s) or, drawn, of the probability that the draw is tested and accepted, P (1 - q of the siblings drawn before)
// with P and q as in infer/sample/propose.h.
extern const pl_tree_kind pl_tree_beam;
// DySpec (Xiong et al. 2024, arXiv 2410.11744), dyspec:NODES,WIDTH,DEPTH: the next node drawn is the one with the
// largest estimated acceptance, a draw being accepted as often as the drafter has mass. The j-th draw of a node u is
// reached if u is accepted and the j - 1 before it are not:
//   v(u, j) = P(u) (1 - q of the siblings drawn before),   P(u) = exp(s(u))
// which its own token does not enter. Grown as EAGLE-2's tree, of which the NODES - 1 draws with the largest v are
// kept, ties in order: v falls along a path and from sibling to sibling, so that these are the draws that a heap would
// make one by one, as long as WIDTH nodes a level and WIDTH children a node are not too few. No draw below a node or
// instead of it can outrank it, hence the tree is predictable. Chosen children: v is exp(s) of the node, and the tree
// EAGLE-2's.
extern const pl_tree_kind pl_tree_dyspec;
// SpecTr's draft (Sun et al. 2023, arXiv 2310.15141), sequences:COUNT,LENGTH: COUNT sequences of LENGTH tokens, drawn
// independently, share their common beginnings. A node through which m of them pass gets m draws, where static:4x1x1
// gives it one, so that equal first tokens cost no later ones. m is known before the draws are made.
extern const pl_tree_kind pl_tree_sequences;
// Shapes chosen while decoding; max_nodes, k, width and depth_max bound them.
extern const pl_tree_kind pl_tree_auto;
// Makes the policy of `auto` within these bounds.
void                      pl_tree_policy_adapt(pl_tree_policy *p, int nodes, int k, int width, int depth);

#endif
