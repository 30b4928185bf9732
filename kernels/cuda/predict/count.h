// Counting sampled blocks of one launch (count.cc), for the counted device.
#ifndef PL_CUDA_PREDICT_COUNT_H
#define PL_CUDA_PREDICT_COUNT_H

#include "kernels/cuda/predict/predict.h"
#include "kernels/cuda/state.h"

#ifdef __cplusplus
extern "C" {
#endif

// Runs blocks of l until PL_PREDICT_EVENTS accesses were seen, and counts. Everything that runs meanwhile on this
// thread alone is counted; other emulated devices may not run.
void                 pl_count_launch(const pl_cuda_launch *l, pl_counted *c);
// The counted device's: the launch of this key, one more time; *again: it has been described before. NULL where nobody
// records or the tables are full.
pl_predicted_kernel *pl_counted_launch(const pl_ctx *ctx, uint64_t key, bool *again);
// Bytes of the device's block that p lies in; 0: of none. The counted device's.
size_t               pl_counted_block(const void *p);

#ifdef __cplusplus
}
#endif

#endif
