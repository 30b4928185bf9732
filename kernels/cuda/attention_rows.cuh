// Attention over blocks (training), row by row: everything but the causal block. One warp per row and head, a head's
// elements over its lanes.
#ifndef PL_CUDA_ATTENTION_ROWS_CUH
#define PL_CUDA_ATTENTION_ROWS_CUH

#include "kernels/cuda/attention_tiles.cuh"

constexpr int PL_ROW_WARPS = 4; // per block
constexpr int PL_ROW_THREADS = PL_ROW_WARPS * PL_WARP;
constexpr int PL_ROW_CHUNKS = PL_ATTN_MOST_HD / PL_WARP;

static __device__ __forceinline__ int64_t pl_row_warp() {
    return (int64_t)blockIdx.x * PL_ROW_WARPS + threadIdx.x / PL_WARP;
}

// A vector of hd elements.
struct pl_row_vec {
    float v[PL_ROW_CHUNKS];
};
static __device__ __forceinline__ float pl_row_value(const float *p) {
    return *p;
}
static __device__ __forceinline__ float pl_row_value(const uint16_t *p) {
    return pl_widen(*p);
}
template <typename T> static __device__ __forceinline__ pl_row_vec pl_row_load(const T *p, int hd) {
    pl_row_vec out;
#pragma unroll
    for (int c = 0; c < PL_ROW_CHUNKS; c++) {
        int d = c * PL_WARP + (int)threadIdx.x % PL_WARP;
        out.v[c] = d < hd ? pl_row_value(p + d) : 0;
    }
    return out;
}
static __device__ __forceinline__ void pl_row_store(float *p, const pl_row_vec &x, int hd) {
#pragma unroll
    for (int c = 0; c < PL_ROW_CHUNKS; c++) {
        int d = c * PL_WARP + (int)threadIdx.x % PL_WARP;
        if (d < hd) p[d] = x.v[c];
    }
}
static __device__ __forceinline__ void pl_row_add_to(float *p, const pl_row_vec &x, int hd) {
#pragma unroll
    for (int c = 0; c < PL_ROW_CHUNKS; c++) {
        int d = c * PL_WARP + (int)threadIdx.x % PL_WARP;
        if (d < hd) p[d] += x.v[c];
    }
}
// y += s x
static __device__ __forceinline__ void pl_row_axpy(pl_row_vec &y, float s, const pl_row_vec &x) {
#pragma unroll
    for (int c = 0; c < PL_ROW_CHUNKS; c++)
        y.v[c] = fmaf(s, x.v[c], y.v[c]);
}
static __device__ __forceinline__ void pl_row_scale(pl_row_vec &y, float s) {
#pragma unroll
    for (int c = 0; c < PL_ROW_CHUNKS; c++)
        y.v[c] *= s;
}
static __device__ __forceinline__ float pl_row_dot(const pl_row_vec &x, const pl_row_vec &y) {
    float sum = 0;
#pragma unroll
    for (int c = 0; c < PL_ROW_CHUNKS; c++)
        sum = fmaf(x.v[c], y.v[c], sum);
    return pl_warp_sum(sum);
}

// Backward: probability and ds of a query and a key. mean = do . o.
struct pl_attn_pair {
    float p, ds;
};
static __device__ __forceinline__ pl_attn_pair pl_attn_weigh(const pl_attention_args &a, float qk, float dov, float lse,
                                                             float mean) {
    float scale = (float)a.scale, p = expf(scale * qk - lse);
    return pl_attn_pair{p, scale * p * (dov - mean)};
}

// The causal block by cuDNN if cudnn_attention.h selects it (kernels/cuda/cudnn_rows.cu): o and lse of all blocks; or
// the gradients of the queries (all blocks' shares) and of block 0's keys and values. Returns false if own kernels must
// compute it, always so on a measuring context, where it sizes scratch.
bool PL_CUDA(cudnn_forward)(pl_ctx *ctx, const pl_attention_args *a, const pl_attn_spans *span);
bool PL_CUDA(cudnn_backward)(pl_ctx *ctx, const pl_attention_args *a, const pl_attn_spans *span, const float *mean);

#endif
