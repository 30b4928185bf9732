// A mixture's choice of experts (Shazeer et al. 2017, arXiv 1701.06538) from the router's scores, and the order of
// their products.
//   row m chooses the k experts with the highest score[m, :]; ties: the lower expert first
//   weight[m, j] = exp(score[m, e]) / sum_c exp(score[m, c])   of its j-th expert e, experts ascending
//     c: the chosen ones (renormalised: Mixtral, arXiv 2401.04088, section 2.1; norm_topk_prob), or all
//   pairs (m, e) by expert, then by row: pair p is of row[p]; expert e's are first[e] .. first[e + 1] - 1
//   slot[m, j]: the pair of row m and its j-th expert
// So every count is known before the scores are: M k pairs.
//
// score [M, E] and weight [M, k] in be->real, k <= E. Sums ascending; maximum subtracted. NaN is refused: the context
// fails. No gradient. The weights of a row do not depend on other rows.
#ifndef PL_OP_EXPERTS_H
#define PL_OP_EXPERTS_H
#include "kernels/backend.h"

// Lies in the frame, as tensors do.
typedef struct pl_expert_pairs {
    pl_tensor      weight; // [M, k]
    const int32_t *row;    // [M k]
    const int32_t *slot;   // [M, k]
    const int32_t *first;  // [E + 1]
} pl_expert_pairs;

typedef struct pl_experts_args {
    pl_tensor score, weight;
    bool      renormalised;
    int32_t  *row, *slot, *first;
} pl_experts_args;

pl_expert_pairs pl_experts(pl_ctx *ctx, pl_tensor score, int k, bool renormalised);
#endif
