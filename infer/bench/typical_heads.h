// Draft heads that nobody has trained, for measuring what a kind costs before one is: at the settings that are usual
// for a vocabulary V and a width d.
#ifndef PL_TYPICAL_HEADS_H
#define PL_TYPICAL_HEADS_H

#include "infer/head/head.h"

// false where V or d is too small for one.
// A scorer of rank d / part that lists V / 64 candidates: 2,048 of the Llama-3 vocabulary.
bool pl_typical_specvocab(pl_hf_head *out, int64_t vocab, int64_t width, int part);
// Clusters of 128 rows, a quarter of them read at depths 0 and 1; a router of width d / 8.
bool pl_typical_dynaspec(pl_hf_head *out, int64_t vocab, int64_t width);

// Gives a routed head (infer/head/dynaspec.h) its table: clusters of equal sizes, or of sizes that fall as 1 / sqrt(i)
// in an order of chance. Before weights are drawn.
pl_status pl_typical_clusters(pl_head *h, bool equal, pl_err *err);

#endif
