// kind: drafter, drafter.kind: lm. Trains a language model of the target's vocabulary to draft for it, from what the
// target says (Zhou et al. 2023, DistillSpec, arXiv 2310.08461): on documents of a feature source it learns
//
//   off policy  the target's own answers: at each row whose next token belongs to the answer D(p, q) of the target's
//               distribution p (its last hidden is the document's) and the drafter's q; or, with train.objective:
//               label, the answer's tokens themselves
//   on policy   train.on_policy.share of the documents are prompts alone: the drafter answers them with the weights
//               as they stand, drawn at train.on_policy.temperature, the target reads that answer, and D is of its
//               rows
// D: train.objective (kernels/op/divergence.h). The gradient is that of D over rows as they are; what the rows depend
// on through the drafter's draws is left out, as in the paper. An answer has at most as many rows as the document's
// own, so that slots are the same rows either way. A document longer than train.slot_rows is learned from up to there.
//
// Which documents are on policy, and what is drawn, follow from the seed, the document's number and the weights: a run
// that goes on, or has other ranks or threads, learns from the same texts.
//
// drafter.start is the model, a folder that holds a target of ours; kind: target makes one from text.
// checkpoints/{last,best} are such folders too: decode --drafter lm:FOLDER. Best is by the acceptance length that
// held-out documents promise a greedy chain of train.eval_steps.
#ifndef PL_TRAIN_DISTILL_H
#define PL_TRAIN_DISTILL_H

#include "infer/cli/env.h"

// Refuses keys that such a drafter has no use for, and a recipe without drafter.start.
pl_status pl_distill_check(const pl_recipe *r, pl_err *err);
// Refuses keys that only such a drafter has, in a recipe for another one.
pl_status pl_distill_check_other(const pl_recipe *r, pl_err *err);

// stop_after: see pl_train_run_until.
pl_status pl_distill_train(const pl_recipe *r, const char *out_dir, const pl_env *env, int64_t stop_after, pl_err *err);

#endif
