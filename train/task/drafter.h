// kind: drafter. Trains a drafter with a backbone (infer/drafter/backbone.h; drafter.kind: eagle3, eagle1, or eagle2,
// which is eagle1's model) by training-time test (train/task/unroll.h) on documents of a feature source: a dataset
// (data.mode: offline) or the target itself (online).
//
// checkpoints/{last,best} hold config.json and model.safetensors. Best is by the expected greedy acceptance length on
// held-out documents. A dataset of another target, of other layers or widths is refused.
#ifndef PL_TRAIN_EAGLE_H
#define PL_TRAIN_EAGLE_H

#include "train/keys.h"

// Refuses with one line keys that the recipe's drafter, head or losses do not read, other than drafter.head.*
// (train/task/head_keys.h). Reads the recipe alone.
pl_status pl_eagle_check(const pl_recipe *r, pl_err *err);

// Refuses further, for the only drafter of a recipe, keys that it does not read (of the keys that the drafters of a
// list share, each may be read by some of them).
pl_status pl_eagle_check_alone(const pl_recipe *r, pl_err *err);

// Returns the k-th field of a recipe that only drafters with a backbone and a trained head read, NULL past the last:
// the keys that change a drafter alone, except those of every kind of drafter; the settings of heads, except routed
// ones; those of losses.
const void *pl_drafter_field(const pl_recipe *r, int k);

#endif
