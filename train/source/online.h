// Online data: the target answers prompts while the drafter trains, and nothing is stored.
#ifndef PL_TRAIN_SOURCE_ONLINE_H
#define PL_TRAIN_SOURCE_ONLINE_H

#include "infer/cli/env.h"
#include "infer/model/llama.h"
#include "train/source/source.h"

// From a recipe's data.* and target.*: train answers without end, round after round of the prompts (document number =
// job number of infer/generate/generator.h, so a resumed run sees the same text); held out are answers to `every`-th
// part of the prompts, generated once and kept in memory (by rank 0, which evaluates). The ranks of env answer train's
// prompts in shares (train/source/share.h). Borrows the target; opens a tokenizer of its own. taps: as
// the drafter's.
pl_status pl_online_sources(pl_feature_source **train, pl_feature_source **held, const pl_recipe *r, const pl_env *env,
                            const pl_llama *target, const int *taps, int n_taps, int64_t every, pl_err *err);

#endif
