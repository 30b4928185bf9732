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

// Products of groups of rows, each with its own weight: the experts of a mixture.
//   y[p, :] = x[p, :] W_e^T (+ b_e)          first[e] <= p < first[e + 1]
//
// x [P, K] and y [P, N] in be->real; W_e [N, K]: PL_PANELS, all of one type; b_e [N] in F32. first[0] = 0, first[n] =
// P, ascending; groups may be empty, their weights are not read. No gradient. Bits: y[p, :] equals `linear` for that
// row and weight, plus the bias, for any other rows and any number of threads. Cost: 2 P N K flops; N K size(W) bytes
// of each group that is not empty.
typedef struct pl_grouped_args {
    pl_tensor        y, x;
    const pl_tensor *w;     // [n]; borrowed
    const pl_tensor *b;     // [n] or NULL; borrowed
    const int32_t   *first; // [n + 1]; borrowed
    int64_t          n;
} pl_grouped_args;

// b: NULL for none.
pl_tensor pl_grouped(pl_ctx *ctx, pl_tensor x, const pl_tensor *w, const pl_tensor *b, const int32_t *first, int64_t n);
#endif
