// Offline data that need not fit the disk (data.disk_budget): generation and training side by side.
//
// The dataset is the one that `generate` would write, shard for shard (infer/generate/shards.h), in OUT/bounded. Shards
// are made by all ranks, in shares, when the order (train/source/order.h, data.window) comes to their window, and
// deleted when what is to be made needs their room, first those that are wanted again last. One that was deleted is
// made again when it is wanted, in a later epoch or by a run that goes on, and must get the same bytes as before. As
// many windows are made at a time as have room, and while their last answers are made the first of the window behind
// them have begun (train/source/queue.h), so that the target never answers few at a time. Since
// what is read and in which order depends on none of this, a bounded run is the run over the whole dataset with the
// same window, bit for bit.
//
// What is held out is told by the prompts, so that no document has to be made for it; held-out documents are made when
// an evaluation first asks for them, and stay in memory.
//
// Room is reckoned before shards are made, with answers of full length; so the files of OUT/bounded never exceed the
// budget (the manifest's few hundred bytes a shard come on top).
#ifndef PL_TRAIN_SOURCE_BOUNDED_H
#define PL_TRAIN_SOURCE_BOUNDED_H

#include "infer/cli/env.h"
#include "infer/model/llama.h"
#include "train/source/source.h"

// What can be said of the recipe alone.
pl_status pl_bounded_check(const pl_recipe *r, pl_err *err);
// As pl_online_sources; the budget and the window are the recipe's. Collective. PL_E_INPUT: a window that does not fit
// the budget, by what would.
pl_status pl_bounded_sources(pl_feature_source **train, pl_feature_source **held, const pl_recipe *r,
                             const char *out_dir, const pl_env *env, const pl_llama *target, const int *taps,
                             int n_taps, pl_err *err);

#endif
