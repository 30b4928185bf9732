// kind: drafter with drafter.head.kind: dynaspec. Turns a trained drafter with a full head (drafter.start) into one
// with a routed head (infer/head/dynaspec.h): backbone and head rows are copied, the rows sorted by cluster
// (train/task/clusters.h), and the router alone is trained, on traces (train/task/traces.h; captured if the recipe
// names none). A selector of that drafter is copied too and selects from the routed head's candidates, which come from
// the chosen clusters; the best tokens of the traces are then the selector's proposals.
//
//   loss of a row = sum over clusters BCE(score, y),  y = 1 where the cluster holds one of the full head's
//   drafter.head.top best tokens                                                       router mlp (DynaSpec §4.2)
//   = cross-entropy of softmax(scores) against the share of those tokens' probability that each cluster holds
//                                                                                      router coral (CORAL §3.3)
// The bias of mlp's scores starts at the log-odds of each cluster in the first rows of the traces.
//
// Held-out metrics, by depth at that depth's budget: eval_recall_head_best, how often the chosen clusters hold the full
// head's best token; eval_recall_head_top, the share of its drafter.head.top best; eval_head_mass, the share of its
// probability of all traced tokens. All three are against the full head that the router replaces, not against the
// target, whose tokens traces do not hold: recall_target_best of `inspect --ceilings` (infer/inspect/ceilings.h), which
// eval.ceilings writes, is the share of shortlists that hold the target's best token. eval_shortlist counts the rows of
// the chosen clusters, eval_shortlist_read the rows of the panels that they fill, which the fused head reads. Best is
// by mean mass. Rows are scored one by one: decoding reads the union over the rows of a beam, which holds more tokens.
#ifndef PL_TRAIN_ROUTER_H
#define PL_TRAIN_ROUTER_H

#include "train/keys.h"

// Returns the field of the k-th key that a router's run does not read, NULL past the last. *why (why may be NULL): the
// reason.
const void *pl_router_unread(const pl_recipe *r, int k, const char **why);

// Refuses with one line a router's recipe in which such a key, or a key that another one rules out, differs from its
// default. Reads the recipe alone.
pl_status pl_router_check(const pl_recipe *r, pl_err *err);

#endif
