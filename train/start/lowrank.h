// A low-rank head's start: the best rank-r factors of the target's output matrix W [n, d].
//
//   W - 1 w^T  ~=  up down,   down [r, d] with orthonormal rows, up = (W - 1 w^T) down^T [n, r],  w = mean row of W
// Taking the mean row away changes no softmax (every logit moves by the same h . w) and leaves more rank for the rest.
// down spans the leading eigenvectors of (W - 1 w^T)^T (W - 1 w^T), found by subspace iteration from a random start.
#ifndef PL_TRAIN_LOWRANK_H
#define PL_TRAIN_LOWRANK_H

#include "kernels/backend.h"

// w: row-major, any float type; id (NULL: all) picks its rows, n of them. be->real must be F32. The same inputs give
// the same bits for any number of threads.
pl_status pl_lowrank_factors(float *up, float *down, const pl_tensor *w, const int32_t *id, int64_t n, int64_t r,
                             uint64_t seed, const pl_backend *be, pl_pool *pool, pl_err *err);

#endif
