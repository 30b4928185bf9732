// kind: drafter. Trains a drafter with a backbone (infer/drafter/backbone.h; drafter.kind: eagle3, eagle1, or eagle2,
// which is eagle1's model) by training-time test (train/task/unroll.h) on documents of a feature source: a dataset
// (data.mode: offline) or the target itself (online).
//
// checkpoints/{last,best} hold config.json and model.safetensors. Best is by the expected greedy acceptance length on
// held-out documents. A dataset of another target, of other layers or widths is refused.
#ifndef PL_TRAIN_EAGLE_H
#define PL_TRAIN_EAGLE_H

#include "infer/cli/env.h"

// Refuses with one line what the head that the recipe describes cannot do: a prefix of rows, or a redistribution, where
// no list says which tokens come first, or which are outside. Reads the recipe alone.
pl_status pl_eagle_check(const pl_recipe *r, pl_err *err);

// Further, where the drafter is the recipe's only one: keys that nothing about it reads (those that the drafters of a
// list share may each be read by some).
pl_status pl_eagle_check_alone(const pl_recipe *r, pl_err *err);

// stop_after: see pl_train_run_until.
pl_status pl_eagle_train(const pl_recipe *r, const char *out_dir, const pl_env *env, int64_t stop_after, pl_err *err);

#endif
