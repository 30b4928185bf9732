// The k best of many scores, without sorting them: a heap of the best so far, O(n + changes log k).
// Where an op has the scores in hand already, topk and headtopk do it (kernels/op/topk.h).
#ifndef PL_BEST_H
#define PL_BEST_H

#include "kernels/tensor.h"
#include <stdbool.h>

// Of elements first .. first + n - 1 of a tensor of F32 or F64 that the host reads, the k highest: their numbers,
// counted from `first`, into best [min(k, n)], in no order. Equal ones: the lower number is the better. False: one of
// the n is NaN, which has no order; best is then not to be read.
bool pl_best_of(const pl_tensor *score, int64_t first, int64_t n, int64_t k, int32_t *best);

#endif
