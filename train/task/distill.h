// kind: drafter, drafter.kind: lm. Trains a language model of the target's vocabulary to draft for it, from the
// target's answers (Zhou et al. 2023, DistillSpec, arXiv 2310.08461). On documents of a feature source it learns
//
//   off policy  the target's own answers: at each row whose next token belongs to the answer D(p, q) of the target's
//               distribution p (its last hidden is the document's) and the drafter's q; or, with train.objective:
//               label, the answer's tokens themselves
//   on policy   train.on_policy.share of the documents are prompts alone: the drafter answers them with its current
//               weights, drawn at train.on_policy.temperature, the target reads that answer, and D is computed on
//               the answer's rows
// D: train.objective (kernels/op/divergence.h). The gradient is that of D over fixed rows; their dependence on the
// drafter through its draws is ignored, as in the paper. An answer has at most as many rows as the document's own, so
// that slots have the same rows either way. Of a document longer than train.slot_rows only the first rows count.
//
// The choice of on-policy documents and the draws are functions of the seed, the document's number and the weights: a
// resumed run, or one with other ranks or threads, learns from the same texts.
//
// drafter.start is the model, a folder of a target that this program opens; kind: target trains one from text.
// checkpoints/{last,best} are such folders too: decode --drafter lm:FOLDER. Best is by the acceptance length that
// held-out documents promise a greedy chain of train.eval_steps.
// With drafter.head.acceptance it learns to predict the acceptance of its drafts (train/task/acceptance.h), in a file
// beside the model's.
#ifndef PL_TRAIN_DISTILL_H
#define PL_TRAIN_DISTILL_H

#include "train/keys.h"

// Refuses keys that such a drafter does not read, and a recipe without drafter.start.
pl_status pl_distill_check(const pl_recipe *r, pl_err *err);
// Refuses keys that only such a drafter reads, in a recipe of another kind.
pl_status pl_distill_check_other(const pl_recipe *r, pl_err *err);

#endif
