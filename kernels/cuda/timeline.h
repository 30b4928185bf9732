// A device's part of a profile (kernels/profile.h): an event behind each thing that is queued, and one before the first
// after the host waited. The time between neighbours is the later one's; between the last before a wait and the first
// after it the device was idle. Costs nothing while no profile is open. Private to kernels/cuda/device_cuda.c.
#ifndef PL_CUDA_TIMELINE_H
#define PL_CUDA_TIMELINE_H

#include "kernels/cuda/state.h"
#include <cuda_runtime_api.h>

// Before something is queued on a stream of ctx.
void pl_timeline_before(pl_ctx *ctx);
// After it. kernel: what was launched, or NULL for a library's call (pl_cuda_state.product says which) or `what`.
void pl_timeline_behind(pl_ctx *ctx, const void *kernel, const char *what, double bytes);
// After the host has waited, in the call `what`: events become lines of the profile.
void pl_timeline_settle(const char *what);

#endif
