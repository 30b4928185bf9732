// Products with listed rows. BF16: 64 listed rows take the place of a panel (panel.cuh), so that a product has linear's
// bits; F32: linear's fma chain. One block per 128 entries of a row's list.
#include "kernels/cuda/byrow.cuh"
#include "kernels/cuda/panel.cuh"
extern "C" {
#include "kernels/op/gatherdot.h"
}

// Listed rows of a BF16 matrix, row-major or in panels; id < 0: zeros. A lane copies the pieces that it will read
// itself: 4 columns of rows 4g + r and 4g + r + 32 in its r-th 16 bytes.
struct listed_source {
    const uint16_t                     *w;
    const int32_t                      *id; // [64] in shared memory
    int64_t                             width;
    bool                                panels;
    __device__ __forceinline__ uint32_t at(int64_t row, int64_t k) const {
        if (!panels) return w[row * width + k];
        int64_t pair = row / PL_PANEL * ((width + 1) / 2) + k / 2;
        return w[(pair * PL_PANEL + row % PL_PANEL) * 2 + k % 2];
    }
    __device__ __forceinline__ void four(uint2 *to, int64_t row, int64_t k, int64_t K) const {
        bool there = row >= 0 && k < K;
        if (!panels && width % 4 == 0 && (k + 4 <= K || !there)) {
            pl_copy_async<8, false>(to, there ? w + row * width + k : w, there);
            return;
        }
        uint32_t v[4];
#pragma unroll
        for (int i = 0; i < 4; i++)
            v[i] = there && k + i < K ? at(row, k + i) : 0;
        *to = uint2{v[0] | v[1] << 16, v[2] | v[3] << 16};
    }
    static constexpr int                  NEXT = PL_WARP;
    static constexpr bool                 HINTED = false;
    static __device__ __forceinline__ int place(int lane) {
        return lane;
    }
    __device__ __forceinline__ void copy(uint4 *to, int64_t k0, int64_t K, int lane) const {
        const int     g = lane / 4;
        const int64_t k = k0 + 4 * (lane % 4);
#pragma unroll
        for (int r = 0; r < 4; r++) {
            uint2 *own = (uint2 *)(to + r * PL_WARP + place(lane));
            four(own, id[4 * g + r], k, K);
            four(own + 1, id[4 * g + r + 32], k, K);
        }
    }
    template <int r> static __device__ __forceinline__ void pairs(uint32_t a[4], const uint4 v[4]) {
        a[0] = v[r].x, a[1] = v[r].z, a[2] = v[r].y, a[3] = v[r].w;
    }
};

struct gatherdot {
    float         *y;
    const float   *x;
    const void    *w;
    const int32_t *id;
    int64_t        n, K, N, panels;
    pl_cuda_fault *fault;
};

// Loads the block's 128 ids into shared memory: -1 past the list's end and for an invalid id (reported as a fault).
static __device__ __forceinline__ void take_ids(const gatherdot &a, int32_t *own) {
    int64_t m = blockIdx.y, i = (int64_t)blockIdx.x * PL_UNIT + threadIdx.x;
    if (threadIdx.x < PL_UNIT) {
        int32_t v = i < a.n ? a.id[m * a.n + i] : -1;
        if (v < -1 || v >= a.N) {
            atomicMin(&a.fault->id, (unsigned long long)m << 32 | (uint32_t)v);
            v = -1;
        }
        own[threadIdx.x] = v;
    }
    __syncthreads();
}

// One row of x; units are the slices.
struct listed {
    typedef listed_source source_type;
    static constexpr bool KEEPS = false;
    const float          *x;
    int                   rows;
    int64_t               K;
    listed_source         first; // source of group 0
    float                *total; // [128] in shared memory
    struct unit_type {
        int slice;
    };
    __device__ __forceinline__ unit_type     unit(int64_t j) const { return unit_type{(int)j}; }
    __device__ __forceinline__ listed_source source(const unit_type &, int group) const {
        listed_source s = first;
        s.id += group * PL_PANEL;
        return s;
    }
    __device__ __forceinline__ float before(const unit_type &u, int group, int row, int) const {
        return u.slice ? total[group * PL_PANEL + row] : 0;
    }
    __device__ __forceinline__ void emit(const unit_type &u, int group, int row, int, float sum, float before) const {
        total[group * PL_PANEL + row] = u.slice ? before + sum : sum;
    }
    template <int NB> __device__ __forceinline__ void done(const unit_type &, const float *) const {}
};

static __global__ void __launch_bounds__(PL_BLOCK, pl_bound(1)) listed_kernel(gatherdot a) {
    pl_previous_done();
    __shared__ int32_t own[PL_UNIT];
    __shared__ float   total[PL_UNIT];
    int64_t            m = blockIdx.y, i = (int64_t)blockIdx.x * PL_UNIT + threadIdx.x;
    take_ids(a, own);
    listed job = {a.x + m * a.K, 1, a.K, {(const uint16_t *)a.w, own, a.K, a.panels != 0}, total};
    pl_stream<1>(*(pl_room<1> *)pl_dynamic_shared(), job, 0, (a.K + PL_SLICE - 1) / PL_SLICE);
    __syncthreads(); // all totals are written
    if (threadIdx.x < PL_UNIT && i < a.n) a.y[m * a.n + i] = own[threadIdx.x] < 0 ? -INFINITY : total[threadIdx.x];
}

static __global__ void listed_chain_kernel(gatherdot a) {
    pl_previous_done();
    __shared__ int32_t own[PL_UNIT];
    int64_t            m = blockIdx.y, i = (int64_t)blockIdx.x * PL_UNIT + threadIdx.x;
    take_ids(a, own);
    if (i >= a.n) return;
    int64_t      row = own[threadIdx.x];
    const float *w = (const float *)a.w, *x = a.x + m * a.K;
    float        sum = row < 0 ? -INFINITY : 0;
    for (int64_t k = 0; k < a.K && row >= 0; k++) {
        int64_t at = a.panels ? (row / PL_PANEL * a.K + k) * PL_PANEL + row % PL_PANEL : row * a.K + k;
        sum = fmaf(x[k], w[at], sum);
    }
    a.y[m * a.n + i] = sum;
}

PL_CUDA_OP(gatherdot_fwd) {
    const pl_gatherdot_args *a = (const pl_gatherdot_args *)args;
    PL_OP_SKIP_IF_MEASURING(ctx);
    if (a->w.layout == PL_SEGMENTS) {
        pl_ctx_fail(ctx, PL_E_UNSUPPORTED, "op gatherdot: backend %s takes no weights in segments", ctx->be->name);
        return;
    }
    int64_t   n = a->y.dim[1], K = a->w.dim[1];
    gatherdot g = {pl_f32(&a->y),
                   pl_f32(&a->x),
                   a->w.data,
                   a->id,
                   n,
                   K,
                   a->w.dim[0],
                   a->w.layout == PL_PANELS,
                   pl_cuda_state_of(ctx)->fault};
    pl_grid   grid(pl_ceil_div(n, PL_UNIT), a->x.dim[0]);
    if (a->w.dtype == PL_BF16)
        PL_LAUNCH_EARLY_ROOM(ctx, "gatherdot", listed_kernel, grid, PL_BLOCK, pl_room_bytes(1), g);
    else
        PL_LAUNCH_EARLY(ctx, "gatherdot", listed_chain_kernel, grid, PL_UNIT, g);
}

static __global__ void listed_dx_kernel(float *dx, const float *dy, const void *w, int bf16, const int32_t *id,
                                        int64_t n, int64_t K) {
    int64_t m = blockIdx.y, k = (int64_t)blockIdx.x * PL_BLOCK + threadIdx.x;
    if (k >= K) return;
    float sum = dx[m * K + k];
    for (int64_t i = 0; i < n; i++) {
        int64_t at = (int64_t)id[m * n + i] * K + k;
        if (at >= 0) sum += dy[m * n + i] * (bf16 ? pl_widen(((const uint16_t *)w)[at]) : ((const float *)w)[at]);
    }
    dx[m * K + k] = sum;
}

// dw[id[t]] += dy[t] x[t / n], t ascending, no atomics: the block of a row's first entry adds all of that row.
static __global__ void listed_dw_kernel(float *dw, const float *dy, const float *x, const int32_t *id, pl_by_row by,
                                        int64_t rows, int64_t n, int64_t K) {
    int32_t p = (int32_t)blockIdx.x;
    if (p >= by.first[rows]) return;
    int64_t row = id[by.entry[p]];
    int32_t to = by.first[row + 1];
    if (by.first[row] != p) return;
    for (int64_t k = threadIdx.x; k < K; k += blockDim.x) {
        float sum = dw[row * K + k];
        for (int32_t q = p; q < to; q++) {
            int64_t t = by.entry[q];
            sum += dy[t] * x[t / n * K + k];
        }
        dw[row * K + k] = sum;
    }
}

PL_CUDA_OP(gatherdot_bwd) {
    const pl_gatherdot_args *a = (const pl_gatherdot_args *)args;
    const char              *op = "gatherdot backward";
    int64_t                  M = a->x.dim[0], n = a->y.dim[1], K = a->w.dim[1];
    if (!a->y.grad) return;
    size_t   bytes = pl_size_mul((size_t)M, (size_t)n, sizeof *a->id), mark = pl_arena_mark(&ctx->scratch);
    int32_t *own = (int32_t *)pl_arena_alloc(&ctx->scratch, bytes); // each block reads all ids
    pl_ctx_copy(ctx, own, a->id, bytes);
    if (!ctx->measuring && a->x.grad)
        PL_LAUNCH(ctx, op, listed_dx_kernel, pl_grid(pl_ceil_div(K, PL_BLOCK), M), PL_BLOCK, pl_grad_f32(&a->x),
                  pl_grad_f32(&a->y), a->w.data, a->w.dtype == PL_BF16, own, n, K);
    if (a->w.grad) {
        pl_by_row by = pl_by_row_of(ctx, op, own, M * n, a->w.dim[0]);
        if (!ctx->measuring)
            PL_LAUNCH(ctx, op, listed_dw_kernel, pl_grid(M * n), PL_BLOCK, pl_grad_f32(&a->w), pl_grad_f32(&a->y),
                      pl_f32(&a->x), own, by, a->w.dim[0], n, K);
    }
    pl_arena_release(&ctx->scratch, mark);
}
