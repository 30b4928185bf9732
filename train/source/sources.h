// The documents of a recipe, for a drafter's training and for other readers along them (train/task/traces.h): a dataset
// (data.mode: offline) or the target's live answers (online), divided by train.holdout.
#ifndef PL_TRAIN_SOURCES_H
#define PL_TRAIN_SOURCES_H

#include "infer/cli/env.h"
#include "train/source/source.h"
#include "train/source/teacher.h"

// teacher: opened whole if data are online (pl_sources_teacher). tap, n_taps: the features that the drafter reads.
// out_dir: holds the dataset if the recipe names none. *held NULL: no document is held out.
pl_status pl_drafter_sources(pl_feature_source **train, pl_feature_source **held, const pl_recipe *r,
                             const char *out_dir, const pl_env *env, const pl_teacher *teacher, const int *tap,
                             int n_taps, pl_err *err);
// Opens the teacher of a recipe's target, with the target's layers if it generates during training (data.mode: online)
// or reads the drafter's text (train.on_policy): it is loaded once.
pl_status pl_sources_teacher(pl_teacher *t, const pl_recipe *r, const pl_env *env, pl_err *err);

// As pl_drafter_sources, for data.mode: online and for data.disk_budget. Both borrow the target. taps: the drafter's.
// Held-out answers are rank 0's, which evaluates, and stay in memory.
pl_status pl_online_sources(pl_feature_source **train, pl_feature_source **held, const pl_recipe *r, const pl_env *env,
                            const pl_llama *target, const int *taps, int n_taps, pl_err *err);
// Collective. PL_E_INPUT: a window that does not fit the budget, with values that would.
pl_status pl_bounded_sources(pl_feature_source **train, pl_feature_source **held, const pl_recipe *r,
                             const char *out_dir, const pl_env *env, const pl_llama *target, const int *taps,
                             int n_taps, pl_err *err);
// Checks that need the recipe alone, of one with data.disk_budget.
pl_status pl_bounded_check(const pl_recipe *r, pl_err *err);

#endif
