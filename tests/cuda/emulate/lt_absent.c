// Replaces lt.c in builds without the CUDA toolkit: the emulated device's products use its own kernels.
#include "kernels/cuda/lib/lt.h"

bool PL_CUDA(lt_takes)(pl_ctx *ctx, int64_t M, int64_t N, int64_t K) {
    (void)ctx, (void)M, (void)N, (void)K;
    return false;
}

bool PL_CUDA(lt_product)(pl_ctx *ctx, const char *op, const pl_lt_product *p) {
    (void)ctx, (void)op, (void)p;
    return false;
}
