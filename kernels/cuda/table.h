// What the two halves of the CUDA backend share: the table and launch checks (table.c), and what the device at hand
// (real: device_cuda.c, emulated: emulate/device_emulated.c) does for them.
#ifndef PL_CUDA_TABLE_H
#define PL_CUDA_TABLE_H

#include "kernels/cuda/state.h"

// Puts the ops of cuda.def into a backend's table.
void PL_CUDA(fill)(pl_backend *be);
// Makes what the kernels found stick to the context.
void PL_CUDA(faults)(pl_ctx *ctx, const pl_cuda_fault *found);
// Just before a launch: the context's device becomes the thread's; false when that failed (and stuck).
bool PL_CUDA(enter)(pl_ctx *ctx);

#endif
