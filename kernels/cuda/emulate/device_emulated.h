// The CUDA backend's own kernels and launchers on an emulated device (emulate.h).
#ifndef PL_CUDA_DEVICE_EMULATED_H
#define PL_CUDA_DEVICE_EMULATED_H

#include "kernels/backend.h"

const pl_backend *pl_backend_cuda_emulated(void);

#endif
