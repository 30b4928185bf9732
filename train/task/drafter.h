// kind: drafter. Trains a drafter with a backbone (infer/drafter/backbone.h; drafter.kind: eagle3, eagle1, or eagle2,
// which is eagle1's model) by training-time test (train/task/unroll.h) on documents of a feature source: a dataset
// (data.mode: offline) or the target itself (online).
//
// checkpoints/{last,best} hold config.json and model.safetensors. Best is by the expected greedy acceptance length on
// held-out documents. A dataset of another target, of other layers or widths is refused.
#ifndef PL_TRAIN_EAGLE_H
#define PL_TRAIN_EAGLE_H

#include "infer/cli/env.h"

// Refuses with one line settings that the recipe's head does not support: a prefix of rows, or a redistribution,
// without a list that orders the tokens, or that leaves some outside. Reads the recipe alone.
pl_status pl_eagle_check(const pl_recipe *r, pl_err *err);

// Refuses further, for the only drafter of a recipe, keys that it does not read (of the keys that the drafters of a
// list share, each may be read by some of them).
pl_status pl_eagle_check_alone(const pl_recipe *r, pl_err *err);

// Trains the drafter. stop_after: see pl_train_run_until.
pl_status pl_eagle_train(const pl_recipe *r, const char *out_dir, const pl_env *env, int64_t stop_after, pl_err *err);

#endif
