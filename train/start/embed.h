// Where embeddings of a drafter's own start [n, width]: the rows of the target's table E [n, d] where they are as wide,
// else
//   E R,  R [d, width] drawn normal with variance 1 / d
// The root mean square of a row's elements is kept, and products of two rows but for the factor width / d, with a
// relative error of about width^-1/2 (Johnson and Lindenstrauss 1984): what the target's table tells apart stays apart,
// and what lies near stays near.
#ifndef PL_TRAIN_START_EMBED_H
#define PL_TRAIN_START_EMBED_H

#include "kernels/backend.h"

// from: row-major, any float type. be->real must be F32. The same inputs give the same bits for any number of threads.
pl_status pl_start_embed(float *rows, const pl_tensor *from, int64_t width, uint64_t seed, const pl_backend *be,
                         pl_pool *pool, pl_err *err);

#endif
