// Attention's two views: over a cache (attention_cached.cu) and over blocks (attention_blocks.cu).
#include "kernels/cuda/attention.cuh"
#include "kernels/cuda/attention_tiles.cuh"

PL_CUDA_OP(attention_fwd) {
    const pl_attention_args *a = (const pl_attention_args *)args;
    constexpr int            MOST_HD = 256;
    if (!a->row) return PL_CUDA(attention_blocks)(ctx, a);
    if (a->hd > MOST_HD)
        pl_ctx_fail(ctx, PL_E_UNSUPPORTED, "op attention: heads of %d; the CUDA backend takes %d", a->hd, MOST_HD);
    else
        PL_CUDA(attention_cached)(ctx, a);
}
