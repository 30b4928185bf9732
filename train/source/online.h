// Online data: the target answers prompts while the drafter trains, and nothing is stored.
#ifndef PL_TRAIN_SOURCE_ONLINE_H
#define PL_TRAIN_SOURCE_ONLINE_H

#include "infer/cli/env.h"
#include "infer/model/llama.h"
#include "train/source/source.h"

// From a recipe's data.* and target.*: train generates answers endlessly, in rounds over the prompts (document number =
// job number of infer/generate/generator.h, so a resumed run sees the same text); held: answers to one in `every`
// prompts, generated once and kept in memory (by rank 0, which evaluates). The ranks of env share train's prompts
// (train/source/share.h). Borrows the target; opens its own tokenizer. taps: the drafter's.
pl_status pl_online_sources(pl_feature_source **train, pl_feature_source **held, const pl_recipe *r, const pl_env *env,
                            const pl_llama *target, const int *taps, int n_taps, int64_t every, pl_err *err);

#endif
