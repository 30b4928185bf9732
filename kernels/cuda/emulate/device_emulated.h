// The CUDA backend's own kernels and launchers on an emulated device (emulate.h), as two backends.
#ifndef PL_CUDA_DEVICE_EMULATED_H
#define PL_CUDA_DEVICE_EMULATED_H

#include "kernels/backend.h"

// "cuda-emulated": memory of the host, everything done when it returns. For the ops' own tests, which look into
// tensors.
const pl_backend *pl_backend_cuda_emulated(void);

// "emulated" (pl_backend_emulated, kernels/backend.h): as strict as a GPU, for everything above the ops.
//   queue     launches and copies within the device are kept and run when the context waits, in order: an index array
//             that is written again too early, or a result read too early, is seen as wrong numbers
//   branches  their launches are kept until what is queued behind the join; the frame that they fill holds NaN till
//   then walls     PL_LOCAL blocks are mapped without access except while queued work runs: a host that reads a tensor
//   stops
//             at once
//   pointers  each pointer that a kernel is given, by itself or in a struct, must lie in a block of the device: host
//             memory that a GPU could not reach aborts with the op's name
#endif
