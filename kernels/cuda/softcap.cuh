// The soft cap of scores and logits (kernels/op/softcap.h).
#ifndef PL_CUDA_SOFTCAP_CUH
#define PL_CUDA_SOFTCAP_CUH

#include "kernels/cuda/device.cuh"

static __device__ __forceinline__ float pl_softcapped(float x, float cap) {
    return cap * tanhf(x / cap);
}

#endif
