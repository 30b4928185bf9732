// Backward of attention over blocks (training). With p = exp(s - lse) and mean = do . o:
//   dv += p do;  ds = scale p (do . v - mean);  dq += ds k;  dk += ds q
// Two kernels, each output owned by one warp that walks what contributes to it in a fixed order, so nothing is added
// atomically and the same run gives the same bits: dq over a row's keys, dk and dv over the rows that see a key. lse
// and o are those of the merged attention (all blocks), which is what makes the blocks' shares add up.
#include "kernels/cuda/launch.cuh"
extern "C" {
#include "kernels/op/attention.h"
}

constexpr int WARPS = 4;
constexpr int THREADS = WARPS * PL_WARP;
constexpr int MOST_CHUNKS = 8;

struct back {
    pl_attention_args a;
    float            *mean; // [M, nh]
    int64_t           M, width;
};

static __device__ __forceinline__ int64_t own_warp() {
    return (int64_t)blockIdx.x * WARPS + threadIdx.x / PL_WARP;
}

// A vector of hd elements over a warp's lanes.
struct vec {
    float v[MOST_CHUNKS];
};
static __device__ __forceinline__ vec load(const float *p, int hd) {
    vec out;
#pragma unroll
    for (int c = 0; c < MOST_CHUNKS; c++) {
        int d = c * PL_WARP + (int)threadIdx.x % PL_WARP;
        out.v[c] = d < hd ? p[d] : 0;
    }
    return out;
}
static __device__ __forceinline__ void add_to(float *p, const vec &x, int hd) {
#pragma unroll
    for (int c = 0; c < MOST_CHUNKS; c++) {
        int d = c * PL_WARP + (int)threadIdx.x % PL_WARP;
        if (d < hd) p[d] += x.v[c];
    }
}
static __device__ __forceinline__ void axpy(vec &y, float s, const vec &x) {
#pragma unroll
    for (int c = 0; c < MOST_CHUNKS; c++)
        y.v[c] = fmaf(s, x.v[c], y.v[c]);
}
static __device__ __forceinline__ float dot(const vec &x, const vec &y) {
    float sum = 0;
#pragma unroll
    for (int c = 0; c < MOST_CHUNKS; c++)
        sum = fmaf(x.v[c], y.v[c], sum);
    return pl_warp_sum(sum);
}

static __global__ void mean_kernel(back b) {
    int64_t at = own_warp();
    if (at >= b.M * b.a.nh) return;
    float mean = dot(load((const float *)b.a.o.grad + at * b.a.hd, b.a.hd),
                     load((const float *)b.a.o.data + at * b.a.hd, b.a.hd));
    if (threadIdx.x % PL_WARP == 0) b.mean[at] = mean;
}

struct pair { // of one query and one key
    float p, ds;
};
static __device__ __forceinline__ pair weigh(const back &b, int64_t m, int h, const vec &q, const vec &d_o,
                                             const vec &k, const vec &v) {
    float scale = (float)b.a.scale, lse = ((const float *)b.a.lse.data)[m * b.a.nh + h];
    pair  out;
    out.p = expf(scale * dot(q, k) - lse);
    out.ds = scale * out.p * (dot(d_o, v) - b.mean[m * b.a.nh + h]);
    return out;
}

// One warp per (row, query head).
static __global__ void dq_kernel(back b) {
    const pl_attention_args &a = b.a;
    int64_t                  at = own_warp(), m = at / a.nh;
    if (at >= b.M * a.nh || a.lo[m] < 0) return;
    int              h = (int)(at % a.nh), head = h / (a.nh / a.nkv) * a.hd;
    const pl_tensor &last = a.block[a.n_blocks - 1];
    int64_t          keys_at = (int64_t)a.nh * a.hd + head, kv = (int64_t)a.nkv * a.hd, own = m - a.lo[m] + 1;
    vec              q = load((const float *)last.data + m * b.width + (int64_t)h * a.hd, a.hd), dq = {};
    vec              d_o = load((const float *)a.o.grad + at * a.hd, a.hd);
    for (int64_t i = 0; i < own + a.n_blocks - 1; i++) {
        const float *key = i < own ? (const float *)a.block[0].data + (a.lo[m] + i) * b.width + keys_at
                                   : (const float *)a.block[i - own + 1].data + m * b.width + keys_at;
        vec          k = load(key, a.hd);
        pair         w = weigh(b, m, h, q, d_o, k, load(key + kv, a.hd));
        axpy(dq, w.ds, k);
    }
    add_to((float *)last.grad + m * b.width + (int64_t)h * a.hd, dq, a.hd);
}

// One warp per (key row, key head) of block blockIdx.y. A key of block 0 is seen by the rows from its own on that reach
// back to it, one of another block by its own row alone.
static __global__ void dkv_kernel(back b) {
    const pl_attention_args &a = b.a;
    int64_t                  at = own_warp(), j = at / a.nkv;
    const pl_tensor         &block = a.block[blockIdx.y], &last = a.block[a.n_blocks - 1];
    if (at >= b.M * a.nkv || !block.grad) return;
    int     kv_head = (int)(at % a.nkv), group = a.nh / a.nkv;
    int64_t kv = (int64_t)a.nkv * a.hd, to = j * b.width + (int64_t)a.nh * a.hd + (int64_t)kv_head * a.hd;
    vec     k = load((const float *)block.data + to, a.hd), v = load((const float *)block.data + to + kv, a.hd);
    vec     dk = {}, dv = {};
    int64_t end = blockIdx.y == 0 ? b.M : j + 1;
    for (int64_t m = j; m < end; m++) {
        if (a.lo[m] < 0 || a.lo[m] > j) continue;
        for (int g = 0; g < group; g++) {
            int  h = kv_head * group + g;
            vec  q = load((const float *)last.data + m * b.width + (int64_t)h * a.hd, a.hd);
            vec  d_o = load((const float *)a.o.grad + (m * a.nh + h) * a.hd, a.hd);
            pair w = weigh(b, m, h, q, d_o, k, v);
            axpy(dk, w.ds, q);
            axpy(dv, w.p, d_o);
        }
    }
    add_to((float *)block.grad + to, dk, a.hd);
    add_to((float *)block.grad + to + kv, dv, a.hd);
}

PL_CUDA_OP(attention_bwd) {
    const pl_attention_args *a = (const pl_attention_args *)args;
    if (!a->o.grad) return;
    const pl_tensor *last = &a->block[a->n_blocks - 1];
    size_t           mark = pl_arena_mark(&ctx->scratch);
    back             b = {*a, NULL, last->dim[0], last->dim[1]};
    b.mean = (float *)pl_arena_alloc(&ctx->scratch, pl_size_mul((size_t)b.M, (size_t)a->nh, sizeof(float)));
    if (!ctx->measuring) {
        pl_grid queries(pl_ceil_div(b.M * a->nh, WARPS)), keys(pl_ceil_div(b.M * a->nkv, WARPS), a->n_blocks);
        PL_LAUNCH(ctx, "attention backward", mean_kernel, queries, THREADS, b);
        if (last->grad) PL_LAUNCH(ctx, "attention backward", dq_kernel, queries, THREADS, b);
        PL_LAUNCH(ctx, "attention backward", dkv_kernel, keys, THREADS, b);
    }
    pl_arena_release(&ctx->scratch, mark);
}
