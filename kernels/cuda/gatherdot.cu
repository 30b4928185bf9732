// Products with listed rows. BF16: 64 listed rows take the place of a panel (panel.cuh), so that a product has linear's
// bits; F32: linear's fma chain. One block per 64 entries of a row's list.
#include "kernels/cuda/panel.cuh"
extern "C" {
#include "kernels/op/gatherdot.h"
}

// Listed rows of a BF16 matrix, row-major or in panels; id < 0: zeros.
struct listed_source {
    const uint16_t *w;
    const int32_t  *id; // [64] in shared memory
    int64_t         width;
    bool            panels;
    struct share {
        uint2 v[4][2]; // of rows 4g + r and 4g + r + 32
    };
    __device__ __forceinline__ uint32_t at(int64_t row, int64_t k) const {
        if (!panels) return w[row * width + k];
        int64_t in = row % PL_PANEL;
        return w[(row / PL_PANEL * width + k) * PL_PANEL + in % (PL_PANEL / 2) * 2 + in / (PL_PANEL / 2)];
    }
    __device__ __forceinline__ uint2 four(int64_t row, int64_t k, int64_t K) const {
        if (row < 0 || k >= K) return uint2{0, 0};
        if (!panels && width % 4 == 0 && k + 4 <= K) return *(const uint2 *)(w + row * width + k);
        uint32_t v[4];
#pragma unroll
        for (int i = 0; i < 4; i++)
            v[i] = k + i < K ? at(row, k + i) : 0;
        return uint2{v[0] | v[1] << 16, v[2] | v[3] << 16};
    }
    __device__ __forceinline__ void load(share &s, int64_t k, int64_t K, int g) const {
#pragma unroll
        for (int r = 0; r < 4; r++) {
            s.v[r][0] = four(id[4 * g + r], k, K);
            s.v[r][1] = four(id[4 * g + r + 32], k, K);
        }
    }
    template <int r> static __device__ __forceinline__ void pairs(uint32_t a[4], const share &s) {
        a[0] = s.v[r][0].x, a[1] = s.v[r][1].x, a[2] = s.v[r][0].y, a[3] = s.v[r][1].y;
    }
};

struct gatherdot {
    float         *y;
    const float   *x;
    const void    *w;
    const int32_t *id;
    int64_t        n, K, N;
    bool           panels;
    pl_cuda_fault *fault;
};

// The block's 64 ids into shared memory: -1 past the list's end and where the id is none (told).
static __device__ __forceinline__ void take_ids(const gatherdot &a, int32_t *own) {
    int64_t m = blockIdx.y, i = (int64_t)blockIdx.x * PL_PANEL + threadIdx.x;
    if (threadIdx.x < PL_PANEL) {
        int32_t v = i < a.n ? a.id[m * a.n + i] : -1;
        if (v < -1 || v >= a.N) {
            atomicMin(&a.fault->id, (unsigned long long)m << 32 | (uint32_t)v);
            v = -1;
        }
        own[threadIdx.x] = v;
    }
    __syncthreads();
}

static __global__ void __launch_bounds__(PL_BLOCK) listed_kernel(gatherdot a) {
    __shared__ int32_t own[PL_PANEL];
    __shared__ float   total[PL_PANEL];
    int64_t            m = blockIdx.y, i0 = (int64_t)blockIdx.x * PL_PANEL;
    take_ids(a, own);
    listed_source source = {(const uint16_t *)a.w, own, a.K, a.panels};
    for (int64_t k0 = 0; k0 < a.K; k0 += PL_SLICE) {
        int64_t k1 = k0 + PL_SLICE < a.K ? k0 + PL_SLICE : a.K;
        pl_slice_sums<1>(source, a.x + m * a.K, 1, a.K, k0, k1,
                         [&](int row, int, float sum) { total[row] = k0 ? total[row] + sum : sum; });
    }
    __syncthreads();
    if (threadIdx.x < PL_PANEL && i0 + threadIdx.x < a.n)
        a.y[m * a.n + i0 + threadIdx.x] = own[threadIdx.x] < 0 ? -INFINITY : total[threadIdx.x];
}

static __global__ void listed_chain_kernel(gatherdot a) {
    __shared__ int32_t own[PL_PANEL];
    int64_t            m = blockIdx.y, i = (int64_t)blockIdx.x * PL_PANEL + threadIdx.x;
    take_ids(a, own);
    if (threadIdx.x >= PL_PANEL || i >= a.n) return;
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
    pl_grid   grid(pl_ceil_div(n, PL_PANEL), a->x.dim[0]);
    if (a->w.dtype == PL_BF16)
        PL_LAUNCH(ctx, "gatherdot", listed_kernel, grid, PL_BLOCK, g);
    else
        PL_LAUNCH(ctx, "gatherdot", listed_chain_kernel, grid, PL_PANEL, g);
}
