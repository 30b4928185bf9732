// Byte-pair merging in O(n log n): a linked list of symbols and a heap of candidate pairs.
#ifndef PL_BPE_H
#define PL_BPE_H

#include "kernels/base/status.h"
#include <stdbool.h>
#include <stdint.h>

// Returns true if left and right merge, with the merged piece and its cost (never NaN).
typedef bool (*pl_bpe_pair)(const void *ctx, int32_t left, int32_t right, double *cost, int32_t *merged);

// Merges neighbours in ids[0..*n) in place, cheapest pair first, leftmost among equals, until none is left.
pl_status pl_bpe_merge(int32_t *ids, int64_t *n, pl_bpe_pair pair, const void *ctx, pl_err *err);

#endif
