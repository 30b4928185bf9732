// Offline data larger than the disk (data.disk_budget): generation and training alternate.
//
// The dataset is the one that `generate` would write, shard for shard (infer/generate/shards.h), in OUT/bounded. All
// ranks make shards, in shares, when the order (train/source/order.h, data.window) comes to their window, and delete
// them when new ones need their room, first those that are used again last. A deleted shard is made again when it is
// needed, in a later epoch or by a resumed run, and must get the same bytes as before. As many windows are made at a
// time as fit, and while their last answers are generated the first of the next window have begun
// (train/source/queue.h), so that the target always answers full batches. Since documents and their order depend on
// none of this, a bounded run is the run over the whole dataset with the same window, bit for bit.
//
// Prompts decide which documents are held out, so no document is made for that; held-out documents are made when an
// evaluation first needs them, and stay in memory.
//
// Shard sizes are estimated beforehand, with answers of full length; so the files of OUT/bounded never exceed the
// budget (plus the manifest's few hundred bytes a shard).
#ifndef PL_TRAIN_SOURCE_BOUNDED_H
#define PL_TRAIN_SOURCE_BOUNDED_H

#include "infer/cli/env.h"
#include "infer/model/llama.h"
#include "train/source/source.h"

// Checks that need the recipe alone.
pl_status pl_bounded_check(const pl_recipe *r, pl_err *err);
// As pl_online_sources; budget and window are the recipe's. Collective. PL_E_INPUT: a window that does not fit the
// budget, with values that would.
pl_status pl_bounded_sources(pl_feature_source **train, pl_feature_source **held, const pl_recipe *r,
                             const char *out_dir, const pl_env *env, const pl_llama *target, const int *taps,
                             int n_taps, pl_err *err);

#endif
