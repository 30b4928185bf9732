// Attention's two views (kernels/op/attention.h) are two files: blocks in attention.cu, cached in attention_cached.cu.
#ifndef PL_CUDA_ATTENTION_CUH
#define PL_CUDA_ATTENTION_CUH

#include "kernels/cuda/launch.cuh"
extern "C" {
#include "kernels/op/attention.h"
}

void PL_CUDA(attention_cached)(pl_ctx *ctx, const pl_attention_args *a);

#endif
