// The documents of a recipe, for a drafter's training and for whatever else runs along them (train/task/traces.h): a
// dataset (data.mode: offline) or the target itself (online), divided by train.holdout.
#ifndef PL_TRAIN_SOURCES_H
#define PL_TRAIN_SOURCES_H

#include "infer/cli/env.h"
#include "train/source/source.h"
#include "train/source/teacher.h"

// tap, n_taps: the features that the drafter reads. out_dir: holds the dataset where the recipe names none. *held NULL:
// nothing is held out.
pl_status pl_drafter_sources(pl_feature_source **train, pl_feature_source **held, const pl_recipe *r,
                             const char *out_dir, const pl_env *env, const pl_llama *target, const int *tap, int n_taps,
                             pl_err *err);

#endif
