// Plain tiled product in fp32, for row-major matrices (training, tests): C[i, j] = or += sum_k A(i, k) B(j, k), one
// accumulator per output, k ascending: deterministic. Any strides, so that the three products of a linear layer are one
// kernel; B may be bf16 and its rows may go through a list (draft ids).
#ifndef PL_CUDA_GEMM_CUH
#define PL_CUDA_GEMM_CUH

#include "kernels/cuda/launch.cuh"

struct pl_operand {
    const void    *data;
    int64_t        row, col; // strides in elements
    bool           bf16;
    const int32_t *map; // row r is row map[r]; NULL: r itself
};

static __device__ __forceinline__ float pl_operand_at(const pl_operand &o, int64_t r, int64_t c) {
    int64_t at = (o.map ? o.map[r] : r) * o.row + c * o.col;
    return o.bf16 ? pl_widen(((const uint16_t *)o.data)[at]) : ((const float *)o.data)[at];
}

static __global__ void pl_gemm_kernel(float *c, int64_t c_row, pl_operand a, pl_operand b, int64_t M, int64_t N,
                                      int64_t K, bool accumulate) {
    constexpr int    TILE = 64;
    constexpr int    DEPTH = 16;
    constexpr int    OWN = 4;
    __shared__ float as[DEPTH][TILE + 1], bs[DEPTH][TILE + 1];
    int64_t          i0 = (int64_t)blockIdx.y * TILE, j0 = (int64_t)blockIdx.x * TILE;
    int              tx = (int)threadIdx.x % 16, ty = (int)threadIdx.x / 16;
    float            sum[OWN][OWN] = {};
    for (int64_t k0 = 0; k0 < K; k0 += DEPTH) {
        for (int e = (int)threadIdx.x; e < TILE * DEPTH; e += PL_BLOCK) {
            // Neighbouring threads take neighbouring addresses, whichever way the operand lies.
            int ak = a.col == 1 ? e % DEPTH : e / TILE, ai = a.col == 1 ? e / DEPTH : e % TILE;
            int bk = b.col == 1 ? e % DEPTH : e / TILE, bj = b.col == 1 ? e / DEPTH : e % TILE;
            as[ak][ai] = i0 + ai < M && k0 + ak < K ? pl_operand_at(a, i0 + ai, k0 + ak) : 0;
            bs[bk][bj] = j0 + bj < N && k0 + bk < K ? pl_operand_at(b, j0 + bj, k0 + bk) : 0;
        }
        __syncthreads();
        for (int k = 0; k < DEPTH; k++)
#pragma unroll
            for (int i = 0; i < OWN; i++)
#pragma unroll
                for (int j = 0; j < OWN; j++)
                    sum[i][j] = fmaf(as[k][ty + 16 * i], bs[k][tx + 16 * j], sum[i][j]);
        __syncthreads();
    }
    for (int i = 0; i < OWN; i++)
        for (int j = 0; j < OWN; j++) {
            int64_t row = i0 + ty + 16 * i, col = j0 + tx + 16 * j;
            if (row < M && col < N) c[row * c_row + col] = (accumulate ? c[row * c_row + col] : 0) + sum[i][j];
        }
}

static inline pl_operand pl_rows_of(const void *data, int64_t cols, pl_dtype t) {
    return pl_operand{data, cols, 1, t == PL_BF16, NULL};
}
static inline pl_operand pl_columns_of(const void *data, int64_t cols, pl_dtype t) {
    return pl_operand{data, 1, cols, t == PL_BF16, NULL};
}

static inline void pl_cuda_gemm(pl_ctx *ctx, const char *op, float *c, int64_t c_row, pl_operand a, pl_operand b,
                                int64_t M, int64_t N, int64_t K, bool accumulate) {
    constexpr int TILE = 64;
    constexpr int Y = 65535;
    for (int64_t at = 0; at < M; at += (int64_t)TILE * Y) { // a grid's second dimension is short
        int64_t    rows = M - at < (int64_t)TILE * Y ? M - at : (int64_t)TILE * Y;
        pl_operand part = a;
        part.data = (const char *)a.data + at * a.row * (a.bf16 ? 2 : 4);
        PL_LAUNCH(ctx, op, pl_gemm_kernel, pl_grid(pl_ceil_div(N, TILE), pl_ceil_div(rows, TILE)), PL_BLOCK,
                  c + at * c_row, c_row, part, b, rows, N, K, accumulate);
    }
}

#endif
