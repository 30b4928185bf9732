// Interface between the two halves of the CUDA backend: the table and launch checks (table.c), and the device's part
// (real: device_cuda.c, emulated: tests/cuda/emulate/device_emulated.c).
#ifndef PL_CUDA_TABLE_H
#define PL_CUDA_TABLE_H

#include "kernels/cuda/state.h"

// Puts the ops of cuda.def into a backend's table.
void PL_CUDA(fill)(pl_backend *be);
// Makes the kernels' faults stick to the context.
void PL_CUDA(faults)(pl_ctx *ctx, const pl_cuda_fault *found);
// Call just before a launch: makes the context's device the thread's; false if that failed (and stuck).
bool PL_CUDA(enter)(pl_ctx *ctx);

#endif
