// For each token outside a list the one of the list whose row of a matrix is most like its own, as a head that
// redistributes wants it (infer/head/outside.h).
#ifndef PL_NEAREST_H
#define PL_NEAREST_H

#include "kernels/backend.h"

// on [V]: the index in id [n] of the row with the largest cosine (equal: the lowest index; rows of zeros are at cosine
// 0 to all); of a row in the list its own. w: row-major [V, d], any float type. id: without repeats. be->real must be
// F32. Deterministic, the same for any number of threads: 2 (V - n) n d flops. PL_E_INPUT: a row that is not finite.
pl_status pl_nearest_rows(int32_t *on, const pl_tensor *w, const int32_t *id, int64_t n, const pl_backend *be,
                          pl_pool *pool, pl_err *err);

// A row of w as floats of norm 1 (0 stays 0); false when it is not finite.
bool pl_normed_row(float *to, const pl_tensor *w, int64_t row);

#endif
