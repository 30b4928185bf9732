// Products with packed weights (kernels/tensor.h, PL_PANELS): the arithmetic of `linear` and of the fused head, the
// same to the bit. A block of 256 threads works on one panel of 64 weight rows and up to 64 rows of x.
//
// BF16 panels, on tensor cores. x is rounded to bf16 (nearest even) as it enters; products are summed in fp32 in an
// order that K alone fixes, whatever M is and whatever runs beside it:
//   slices of PL_SLICE columns; in a slice, tiles of 16 columns, dealt to the 8 warps in turn; a warp's tiles
//   ascending, each through one mma; then the 8 warps' sums in order; then the slices' sums in order.
// The panel's layout feeds the tensor cores without shared memory: of a tile (16 lines of 128 bytes), lane 4g + t loads
// 16 bytes of each of lines 4t..4t+3. These are the weights of rows 4g..4g+3 (low halves) and 4g+32..4g+35 (high
// halves) at 4 columns of its own, so that four m16n8k16 products take them as they are: rows and columns of a product
// may be permuted as long as x is permuted alike.
//
// F32 panels: one fma chain per output, k ascending: the bits of the CPU's kernels.
#ifndef PL_CUDA_PANEL_CUH
#define PL_CUDA_PANEL_CUH

#include "kernels/cuda/launch.cuh"
extern "C" {
#include "kernels/tensor.h"
}

constexpr int PL_SLICE = 2048;
constexpr int PL_ROWS = 64; // of x, in one block, at most
constexpr int PL_PANEL_WARPS = PL_BLOCK / PL_WARP;
constexpr int PL_PART_STRIDE = PL_PANEL + 8; // of a column of partial sums: keeps stores apart

// Four columns of a row of x as two pairs of bf16; zero past the end.
static __device__ __forceinline__ void pl_load_pairs(uint32_t b[2], const float *x, int64_t k, int64_t K, bool there,
                                                     bool wide) {
    float v[4] = {0, 0, 0, 0};
    if (there && k + 4 <= K && wide) {
        float4 f = *(const float4 *)(x + k);
        v[0] = f.x, v[1] = f.y, v[2] = f.z, v[3] = f.w;
    } else if (there) {
        for (int i = 0; i < 4; i++)
            if (k + i < K) v[i] = x[k + i];
    }
    b[0] = pl_pack_bf16(v[0], v[1]);
    b[1] = pl_pack_bf16(v[2], v[3]);
}

// Where the weights of a tile come from: load() takes lane 4g + t's share of 16 columns from k on, k counted with the
// lane's own 4t added, zero from column K on; pairs<r>() are its registers of product r, of rows 4g + r and 4g + r
// + 32.
struct pl_panel_source {
    const uint4 *panel;
    struct share {
        uint4 line[4];
    };
    __device__ __forceinline__ void load(share &s, int64_t k, int64_t K, int g) const {
#pragma unroll
        for (int i = 0; i < 4; i++)
            s.line[i] = k + i < K ? pl_load_once(panel + (k + i) * 8 + g) : uint4{0, 0, 0, 0};
    }
    template <int r> static __device__ __forceinline__ uint32_t word(const uint4 &v) {
        return r == 0 ? v.x : r == 1 ? v.y : r == 2 ? v.z : v.w;
    }
    template <int r> static __device__ __forceinline__ void pairs(uint32_t a[4], const share &s) {
        uint32_t w[4] = {word<r>(s.line[0]), word<r>(s.line[1]), word<r>(s.line[2]), word<r>(s.line[3])};
        a[0] = pl_zip_halves<0>(w[0], w[1]), a[1] = pl_zip_halves<1>(w[0], w[1]);
        a[2] = pl_zip_halves<0>(w[2], w[3]), a[3] = pl_zip_halves<1>(w[2], w[3]);
    }
};

template <int r, int NB, typename S>
static __device__ __forceinline__ void pl_product(float acc[NB][4], const typename S::share &own,
                                                  const uint32_t b[NB][2]) {
    uint32_t a[4];
    S::template pairs<r>(a, own);
#pragma unroll
    for (int nb = 0; nb < NB; nb++)
        pl_mma_bf16(acc[nb], a, b[nb]);
}

// Sums columns k0..k1 of 64 rows of weights: calls emit(row of the 64, column of x, sum) once for each pair, spread
// over the block; NB blocks of 8 columns of x. All threads of the block take part.
template <int NB, typename S, typename E>
static __device__ __forceinline__ void pl_slice_sums(const S &source, const float *x, int rows, int64_t K, int64_t k0,
                                                     int64_t k1, E emit) {
    __shared__ float  part[PL_PANEL_WARPS][8 * PL_PART_STRIDE];
    int               lane = (int)threadIdx.x % PL_WARP, warp = (int)threadIdx.x / PL_WARP, g = lane / 4, t = lane % 4;
    float             acc[4][NB][4] = {};
    typename S::share own, next;
    int64_t           k = k0 + 16 * warp;
    const int         step = 16 * PL_PANEL_WARPS;
    const bool        wide = K % 4 == 0 && (uintptr_t)x % sizeof(float4) == 0;
    source.load(next, k + 4 * t, k1, g);
    for (; k < k1; k += step) {
        own = next;
        source.load(next, k + step + 4 * t, k1, g);
        uint32_t b[NB][2];
#pragma unroll
        for (int nb = 0; nb < NB; nb++)
            pl_load_pairs(b[nb], x + (int64_t)(nb * 8 + g) * K, k + 4 * t, k1, nb * 8 + g < rows, wide);
        pl_product<0, NB, S>(acc[0], own, b);
        pl_product<1, NB, S>(acc[1], own, b);
        pl_product<2, NB, S>(acc[2], own, b);
        pl_product<3, NB, S>(acc[3], own, b);
    }
#pragma unroll
    for (int nb = 0; nb < NB; nb++) {
#pragma unroll
        for (int r = 0; r < 4; r++)
#pragma unroll
            for (int i = 0; i < 4; i++)
                part[warp][(2 * t + i % 2) * PL_PART_STRIDE + 4 * g + r + i / 2 * 32] = acc[r][nb][i];
        __syncthreads();
        for (int o = (int)threadIdx.x; o < 8 * PL_PANEL; o += PL_BLOCK) {
            int   row = o % PL_PANEL, col = o / PL_PANEL;
            float sum = 0;
            for (int w = 0; w < PL_PANEL_WARPS; w++)
                sum += part[w][col * PL_PART_STRIDE + row];
            if (nb * 8 + col < rows) emit(row, nb * 8 + col, sum);
        }
        __syncthreads();
    }
}

template <int NB, typename E>
static __device__ __forceinline__ void pl_panel_slice(const void *panel, const float *x, int rows, int64_t K,
                                                      int64_t k0, int64_t k1, E emit) {
    pl_slice_sums<NB>(pl_panel_source{(const uint4 *)panel}, x, rows, K, k0, k1, emit);
}

// The F32 product of a whole panel; emit as above.
template <typename E>
static __device__ __forceinline__ void pl_panel_chain(const void *panel, const float *x, int rows, int64_t K, E emit) {
    constexpr int AT_ONCE = 4;
    constexpr int GROUPS = PL_BLOCK / PL_PANEL;
    const float  *w = (const float *)panel;
    int           row = (int)threadIdx.x % PL_PANEL, group = (int)threadIdx.x / PL_PANEL;
    for (int m0 = group * AT_ONCE; m0 < rows; m0 += GROUPS * AT_ONCE) {
        float sum[AT_ONCE] = {};
        for (int64_t k = 0; k < K; k++) {
            float v = w[k * PL_PANEL + row];
            for (int i = 0; i < AT_ONCE; i++)
                if (m0 + i < rows) sum[i] = fmaf(x[(m0 + i) * K + k], v, sum[i]);
        }
        for (int i = 0; i < AT_ONCE; i++)
            if (m0 + i < rows) emit(row, m0 + i, sum[i]);
    }
}

// Blocks of 8 columns that `rows` rows need: 1, 2, 4 or 8, the instances that exist. The bits are the same in all.
static inline int pl_column_blocks(int rows) {
    return rows <= 8 ? 1 : rows <= 16 ? 2 : rows <= 32 ? 4 : 8;
}

static inline int64_t pl_panel_bytes_one(const pl_tensor *w) {
    return w->dim[1] * PL_PANEL * (w->dtype == PL_F32 ? 4 : 2);
}

#endif
