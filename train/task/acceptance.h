// Training of a prediction of acceptance (infer/head/stopping.h) as SpecDec++ does it (Huang et al. 2024, arXiv
// 2405.19715, section 3): a weighted cross-entropy with each draft's probability A of acceptance,
//
//   L = - A log a - 6 (1 - A) log (1 - a)
//
// since a rejection that was not foreseen costs more than a draft that ended early; a is that much too low. A is a
// constant, and so is what a reads: all other gradients are those of a drafter without it. The paper mixes drafts into
// the rows that it learns from; here they are those of the drafter's own training.
#ifndef PL_TRAIN_ACCEPTANCE_H
#define PL_TRAIN_ACCEPTANCE_H

#include "infer/head/head.h"

// Adds weight[i] L(i) of rows x [n, d] to the tape; accepted [n]: A. Returns [n] losses; L(i) is scale[i] times the
// i-th (scale [n]: set, in the step's memory). Reads accepted and weight on no measuring context.
pl_tensor pl_acceptance_loss(pl_ctx *ctx, const pl_head *h, pl_tensor x, const float *accepted, const float *weight,
                             float **scale);

#endif
