// Checks that this binary holds code for the current device: queries one kernel, since all are compiled alike.
#include <cuda_runtime.h>

static __global__ void nothing_kernel() {}

extern "C" cudaError_t pl_cuda_probe_code(void);
extern "C" cudaError_t pl_cuda_probe_code(void) {
    cudaFuncAttributes a;
    return cudaFuncGetAttributes(&a, nothing_kernel);
}
