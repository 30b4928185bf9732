// HASS's top-K distillation (Zhang et al. 2024, arXiv 2408.15766, section 3.1), beside the divergence:
//
//   L_i = - sum over j in the K tokens that the teacher of row i likes best of p_j log q_j
//
// p the teacher's distribution over its whole vocabulary, q the drafter's; of a trimmed head those of the K that it can
// draft. It is composed of what is there: with c the best of them, P = sum p_j and z the drafter's logits
//   L_i = P (- log q_c) + sum_j p_j (z_c - z_j)
// a cross-entropy with c (kernels/op/divergence.h: label), which needs no teacher, and products with K listed rows.
// Cost: the head's products once more, and one of the teacher's.
#ifndef PL_TRAIN_TOPK_LOSS_H
#define PL_TRAIN_TOPK_LOSS_H

#include "infer/head/head.h"

typedef struct pl_topk_loss {
    const pl_head *head;
    pl_tensor      wt;  // the teacher's output matrix
    double         cap; // of its logits; 0: none
    int            k;
    double         weight; // of L_i in a row's loss
    const int32_t *t2d;    // [V] draft ids, -1: none; NULL: as they are
    size_t         keep;   // pl_divergence_args.keep
    // Out, once the context has run, [n] where the host reads them: the two parts of L_i and what they were weighed by.
    pl_tensor      one, rest;
    float         *one_weight, *rest_weight;
} pl_topk_loss;

// Adds weight * row_weight[i] * L_i over rows [n, width] of what the head's rows are multiplied with. last: the
// teacher's rows, of which teacher_row names one for each row that counts. Waits.
void   pl_topk_loss_add(pl_ctx *ctx, pl_topk_loss *t, pl_tensor rows, pl_tensor last, const int32_t *teacher_row,
                        const float *row_weight);
// weight * L_i of a row that weighs row_weight.
double pl_topk_loss_of(const pl_topk_loss *t, int64_t i, float row_weight);

#endif
