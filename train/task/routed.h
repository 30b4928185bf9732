// kind: drafter with drafter.head.kind: dynaspec. Turns a trained drafter with a full head (drafter.start) into one
// with a routed head (infer/head/dynaspec.h): backbone and head rows are copied, the rows sorted by cluster
// (train/task/clusters.h), and the router alone is trained, on traces (train/task/traces.h; captured where the recipe
// names none). A selector of that drafter's is copied too, and stands behind the routed head: its candidates come from
// the chosen clusters, and the best tokens of the traces are those that it proposes.
//
//   loss of a row = sum over clusters BCE(score, y),  y = 1 where the cluster holds one of the full head's
//   drafter.head.top best tokens                                                       router mlp (DynaSpec §4.2)
//   = cross-entropy of softmax(scores) against the share of those tokens' probability that each cluster holds
//                                                                                      router coral (CORAL §3.3)
// The bias of mlp's scores starts at the log-odds of each cluster in the first rows of the traces.
//
// Held-out metrics, by depth at that depth's budget: eval_recall_head_best, how often the chosen clusters hold the full
// head's best token; eval_recall_head_top, the share of its drafter.head.top best; eval_head_mass, the share of its
// probability of all traced tokens. All three are against the full head that the router stands in for, not against the
// target, whose tokens traces do not have: how often a shortlist holds the target's best token is recall_target_best of
// `inspect --ceilings` (infer/inspect/ceilings.h), which eval.ceilings writes. Further eval_shortlist, rows of the
// chosen clusters, and eval_shortlist_read, rows of the panels that they fill, which are what the fused head reads.
// Best is by mean mass. Rows are looked at one by one: the union over the rows of a beam, which decoding reads, holds
// more.
#ifndef PL_TRAIN_ROUTER_H
#define PL_TRAIN_ROUTER_H

#include "infer/cli/env.h"

// Keys that no router's run reads, with what stands in their place.
// The k-th of them by its field, NULL past the last; why may be NULL.
const void *pl_router_unread(const pl_recipe *r, int k, const char **why);

// Refuses with one line a recipe for a router that sets such a key, or one that another of its keys rules out, to
// something else than its default. Reads the recipe alone.
pl_status pl_router_check(const pl_recipe *r, pl_err *err);

// stop_after: see pl_train_run_until.
pl_status pl_router_train(const pl_recipe *r, const char *out_dir, const pl_env *env, int64_t stop_after, pl_err *err);

#endif
