// Weights on their way into the second-level cache while a launch leaves memory idle.
//
// Attention reads little and computes long; the product behind it does nothing but read. What follows is known from
// before: the context's trail (kernels/op/trail.h) has the weight that came after the one that was read last, learned
// as the step was measured. So attention's launcher hands its kernel that weight, and blocks that have asked for their
// keys and values ask for their shares of it. Nothing is read and nothing waits, so no value can change, and what comes
// too late, or has left the cache again, is read from memory as ever. At most half of the cache is filled: the rest is
// activations' and keys'. Of a weight that is larger its first part comes.
#ifndef PL_CUDA_AHEAD_CUH
#define PL_CUDA_AHEAD_CUH

#include "kernels/cuda/launch.cuh"
extern "C" {
#include "kernels/op/trail.h"
#include "kernels/panels.h"
}

struct pl_ahead {
    const uint8_t *from; // NULL: nothing is known
    int64_t        bytes;
};

constexpr int PL_AHEAD_PIECE = 4096; // bytes that a warp asks for at a time

// What the launch that is described next may ask for.
static inline pl_ahead pl_ahead_of(pl_ctx *ctx) {
    pl_cuda_state  *s = pl_cuda_state_of(ctx);
    const pl_tensor w = pl_trail_next(&ctx->trail);
    if (ctx->tape || !s->ahead_bytes || !w.data || (uintptr_t)w.data % 16) return pl_ahead{};
    const int64_t all = (int64_t)pl_panels_bytes(w.dim[0], w.dim[1], w.dtype), most = (int64_t)s->ahead_bytes;
    s->asked = w.data;
    return pl_ahead{(const uint8_t *)w.data, (all < most ? all : most) / 16 * 16};
}

// By all threads of a block: its share of `shares`.
static __device__ __forceinline__ void pl_ask_ahead(const pl_ahead &a, int share, int shares) {
    const int warps = (int)blockDim.x / PL_WARP, warp = (int)threadIdx.x / PL_WARP;
    for (int64_t at = ((int64_t)share * warps + warp) * PL_AHEAD_PIECE; at < a.bytes;
         at += (int64_t)shares * warps * PL_AHEAD_PIECE)
        pl_prefetch(a.from + at, (int)(a.bytes - at < PL_AHEAD_PIECE ? a.bytes - at : PL_AHEAD_PIECE));
}

#endif
