// A device's part of a profile (kernels/profile.h): an event after each queued command, and one before the first after
// a wait of the host. The time between neighbours is the later one's; between the last before a wait and the first
// after it the device was idle. Costs nothing while no profile is open. Private to kernels/cuda/device_cuda.c.
#ifndef PL_CUDA_TIMELINE_H
#define PL_CUDA_TIMELINE_H

#include "kernels/cuda/state.h"
#include <cuda_runtime_api.h>

// Call before a command is queued on a stream of ctx.
void pl_timeline_before(pl_ctx *ctx);
// Call after it. kernel: the launched one, or NULL for a library's call (pl_cuda_state.product has it) or `what`.
void pl_timeline_behind(pl_ctx *ctx, const void *kernel, const char *what, double bytes);
// Call after the host has waited, in the call `what`: turns events into lines of the profile.
void pl_timeline_settle(const char *what);

#endif
