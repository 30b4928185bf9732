// Candidates for the children of one node, from the drafter's logits: chosen or drawn.
#ifndef PL_PROPOSE_H
#define PL_PROPOSE_H

#include "infer/head/outside.h"
#include "infer/sample/coin.h"
#include "infer/sample/distribution.h"
#include "infer/tree/tree.h"

// How a session draws its candidates. For sampled proposals the drafter's distribution q is its softmax under the
// session's own temperature, top-k, top-p and min-p (pl_sampling_bare), zero outside the draft vocabulary unless the
// head redistributes (infer/head/outside.h). Verification divides by exactly the numbers that were drawn from.
//
// For a tree whose drawn children race (pl_tree_kind.races) logp of draws without replacement is minus the time that
// passes between the arrival of the node and that of the child: each token x of the node is a clock of rate P q(x), P
// the probability of the node's path (pl_tree_probability), the first to ring rang when the node arrived, and the next
// one rings after an exponential time of rate P (1 - q of those before). So paths arrive in the order in which they
// would be drawn without replacement from all paths (Gumbel top-k; Kool et al. 2019, arXiv 1903.06059).
//
// Under the session's constraint q is the distribution of the tokens that it allows: it precedes the filters, as for
// the target. Tokens outside the draft vocabulary are redistributed to all the same. Of kind PL_PROPOSE_TOP the
// candidates are the best allowed tokens by q at temperature 1.
typedef struct pl_proposing {
    pl_proposal           kind;
    bool                  races;
    const pl_sampling    *sampling;
    pl_coin              *coin;
    double               *q; // [q_rows, vocab]: distributions of the nodes expanded so far
    int                   q_used, q_rows;
    int64_t               vocab; // the target's
    pl_distribution_work *work;  // over the larger of target's and draft vocabulary
    double               *dist;  // [same size] scratch
    // Read under a constraint: the session's answer, and scratch, a bit for each token.
    const int32_t        *answer;
    int64_t               n_answer;
    uint32_t             *mask;
} pl_proposing;

// Draws k candidates for `node`: id (target ids, -1 after the last when q's support is exhausted) in the order to offer
// them and logp (of q). Marks the node in the tree with kind and q. logits: [drafted->n]. Logits that are not numbers,
// or of tokens that are all forbidden, give no candidates.
void pl_propose_draw(pl_proposing *o, pl_tree *t, int node, const float *logits, const pl_drafted *drafted, int k,
                     int32_t *id, float *logp);

// Two steps of pl_propose_draw, for drafters that compute their distribution themselves: pl_propose_row returns a row
// of [vocab], reserved for this cycle (of kind PL_PROPOSE_TOP until the next call); pl_propose_from draws k candidates
// from q, such a row that sums to 1 and now belongs to the node (NULL: none), without the tokens that are forbidden.
double *pl_propose_row(pl_proposing *o);
void    pl_propose_from(pl_proposing *o, pl_tree *t, int node, double *q, int k, int32_t *id, float *logp);

// Returns the index of the largest weight, the lowest among equals: the order of the best.
int64_t pl_propose_best(const double *w, int64_t n);

#endif
