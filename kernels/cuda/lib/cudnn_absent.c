// Replaces cuDNN in builds without its header: attention uses our own kernels.
#include "kernels/cuda/lib/cudnn_attention.h"
#include <stdio.h>

bool PL_CUDA(cudnn_takes)(pl_ctx *ctx, const pl_cudnn_shape *s, size_t *workspace) {
    (void)ctx, (void)s, (void)workspace;
    return false;
}

void PL_CUDA(cudnn_run)(pl_ctx *ctx, const char *op, const pl_cudnn_shape *s, bool backward, double scale,
                        void *const at[PL_CUDNN_TENSORS], void *workspace) {
    (void)op, (void)s, (void)backward, (void)scale, (void)at, (void)workspace;
    pl_ctx_fail(ctx, PL_E_UNSUPPORTED, "this build has no cuDNN");
}

void PL_CUDA(cudnn_describe)(char *out, size_t room) {
    snprintf(out, room, "own kernels (built without cudnn.h)");
}
