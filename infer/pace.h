// How far to draft ahead: the chain's length from measured costs.
//
// With a_i the share of chains accepted at depth i among those accepted at i-1, a cycle that drafts k tokens emits
//   E_k = 1 + sum_{i=1..k} a_1 ... a_i   tokens and takes   C_k seconds (drafting and verifying; facts: inference §3.4,
// §3.11). C_k is timed on the cycles as they run and fitted by a line in k; a_i are running averages, the deepest known
// one standing for deeper ones. The k with the largest E_k / C_k is taken, looked at again every few cycles. Decoding
// is lossless, so the tokens do not depend on k.
#ifndef PL_PACE_H
#define PL_PACE_H

#include "infer/tree.h"

#define PL_PACE_MAX 32

typedef struct pl_pace {
    bool   adapt;
    int    max_depth;
    long   cycles;
    double reached[PL_PACE_MAX], accepted[PL_PACE_MAX];        // decayed counts by depth - 1
    double cost_n[PL_PACE_MAX + 1], cost_sum[PL_PACE_MAX + 1]; // decayed seconds by drafted tokens
} pl_pace;

void pl_pace_init(pl_pace *p, const pl_tree_policy *policy); // NULL: no drafter
// After a cycle that drafted `drafted` tokens, of which `accepted` were taken, in `seconds`: sets policy->depth.
void pl_pace_update(pl_pace *p, pl_tree_policy *policy, int drafted, int accepted, double seconds);
// The best depth for the costs and acceptances seen so far.
int  pl_pace_best(const pl_pace *p);

#endif
