// What attention over blocks (training) shares, forward and backward: tiles of 64 rows against 64 rows in fp32, one
// chain of fused multiply-adds per sum, so that no tile and no neighbour changes a bit. 256 threads as 16 x 16: thread
// (ty, tx) owns rows 4 ty .. 4 ty + 3 of the left factor and rows 4 tx .. 4 tx + 3 of the right one, or columns
// 4 tx .. 4 tx + 3 of each 64 of a head. Heads are walked in pieces, so that a width of 256 fits.
#ifndef PL_CUDA_ATTENTION_TILES_CUH
#define PL_CUDA_ATTENTION_TILES_CUH

#include "kernels/cuda/launch.cuh"
extern "C" {
#include "kernels/op/attention.h"
}

constexpr int PL_ATTN_TILE = 64;  // rows
constexpr int PL_ATTN_DEPTH = 32; // elements of a head that one step multiplies
constexpr int PL_ATTN_LINE = PL_ATTN_TILE + 4;
constexpr int PL_ATTN_MOST_HD = 256;

// Forward over blocks: kernels/cuda/attention_blocks.cu.
void PL_CUDA(attention_blocks)(pl_ctx *ctx, const pl_attention_args *a);

// Where the rows of a tile see their keys, in device memory.
struct pl_attn_spans {
    int32_t *lo;      // [M] as the op's
    int32_t *tile_lo; // [tiles] the least lo of a tile's rows that are no padding; M where there are none
};
pl_attn_spans PL_CUDA(attention_spans)(pl_ctx *ctx, const char *op, const int32_t *lo, int64_t M);

// One head's part of the rows from `first` on.
struct pl_attn_rows {
    const float                    *head; // of row 0
    int64_t                         stride, first, rows;
    int                             hd;
    __device__ __forceinline__ bool wide() const {
        return hd % 4 == 0 && stride % 4 == 0 && (uintptr_t)head % sizeof(float4) == 0;
    }
    // Elements d .. d + 3 of row r of the tile; zero outside.
    __device__ __forceinline__ void load(float v[4], int r, int d) const {
        const float *p = head + (first + r) * stride + d;
        bool         there = first + r < rows;
        if (there && wide() && d < hd) {
            float4 f = *(const float4 *)p;
            v[0] = f.x, v[1] = f.y, v[2] = f.z, v[3] = f.w;
            return;
        }
#pragma unroll
        for (int e = 0; e < 4; e++)
            v[e] = there && d + e < hd ? p[e] : 0;
    }
};

// Shared memory of a block: two factors of a step, transposed ([element][row]), or one of a sum over rows ([row][64
// elements]); and the weights of a tile ([right row][left row]).
struct pl_attn_room {
    union {
        float factor[2][PL_ATTN_DEPTH][PL_ATTN_LINE];
        float plain[PL_ATTN_TILE][PL_ATTN_TILE];
    };
    float weight[PL_ATTN_TILE][PL_ATTN_TILE];
};

// Rows transposed: a warp takes 16 rows by 8 elements, so that neither its loads waste sectors nor its stores collide.
static __device__ __forceinline__ void pl_attn_load_factor(float               to[PL_ATTN_DEPTH][PL_ATTN_LINE],
                                                           const pl_attn_rows &from, int d0) {
    int lane = (int)threadIdx.x % PL_WARP, warp = (int)threadIdx.x / PL_WARP;
#pragma unroll
    for (int i = 0; i < 2; i++) {
        int   part = warp + 8 * i, r = part % 4 * 16 + lane / 2, d = part / 4 * 8 + lane % 2 * 4;
        float v[4];
        from.load(v, r, d0 + d);
#pragma unroll
        for (int e = 0; e < 4; e++)
            to[d + e][r] = v[e];
    }
}

static __device__ __forceinline__ void pl_attn_four(float v[4], const float *p) {
    float4 f = *(const float4 *)p;
    v[0] = f.x, v[1] = f.y, v[2] = f.z, v[3] = f.w;
}

// acc[i][j] += left row 4 ty + i . right row 4 tx + j, over a whole head.
static __device__ __forceinline__ void pl_attn_dots(float acc[4][4], pl_attn_room &room, const pl_attn_rows &left,
                                                    const pl_attn_rows &right) {
    int tx = (int)threadIdx.x % 16, ty = (int)threadIdx.x / 16;
    for (int d0 = 0; d0 < left.hd; d0 += PL_ATTN_DEPTH) {
        __syncthreads();
        pl_attn_load_factor(room.factor[0], left, d0);
        pl_attn_load_factor(room.factor[1], right, d0);
        __syncthreads();
#pragma unroll 8
        for (int d = 0; d < PL_ATTN_DEPTH; d++) {
            float x[4], y[4];
            pl_attn_four(x, &room.factor[0][d][4 * ty]);
            pl_attn_four(y, &room.factor[1][d][4 * tx]);
#pragma unroll
            for (int i = 0; i < 4; i++)
#pragma unroll
                for (int j = 0; j < 4; j++)
                    acc[i][j] = fmaf(x[i], y[j], acc[i][j]);
        }
    }
}

// Hands a tile's weights to all threads, w[i][j] that of left row 4 ty + i and right row 4 tx + j. Blocks of four rows
// are put where the right row says, so that stores of a warp do not collide. Visible after the next barrier.
static __device__ __forceinline__ void pl_attn_put_weights(pl_attn_room &room, const float w[4][4]) {
    int tx = (int)threadIdx.x % 16, ty = (int)threadIdx.x / 16;
#pragma unroll
    for (int j = 0; j < 4; j++)
        *(float4 *)&room.weight[4 * tx + j][4 * (ty ^ tx)] = float4{w[0][j], w[1][j], w[2][j], w[3][j]};
}

// acc[c][i][j] += sum over right rows r, ascending, of weight(left row 4 ty + i, r) * right row r's element
// 64 c + 4 tx + j.
template <int CHUNKS>
static __device__ __forceinline__ void pl_attn_sums(float acc[CHUNKS][4][4], pl_attn_room &room,
                                                    const pl_attn_rows &right) {
    int tx = (int)threadIdx.x % 16, ty = (int)threadIdx.x / 16;
#pragma unroll
    for (int c = 0; c < CHUNKS; c++) {
        __syncthreads();
        for (int i = 0; i < 4; i++) {
            float v[4];
            right.load(v, ty + 16 * i, c * PL_ATTN_TILE + 4 * tx);
            *(float4 *)&room.plain[ty + 16 * i][4 * tx] = float4{v[0], v[1], v[2], v[3]};
        }
        __syncthreads();
#pragma unroll 8
        for (int r = 0; r < PL_ATTN_TILE; r++) {
            float w[4], v[4];
            pl_attn_four(w, &room.weight[r][4 * (ty ^ (r / 4))]);
            pl_attn_four(v, &room.plain[r][4 * tx]);
#pragma unroll
            for (int i = 0; i < 4; i++)
#pragma unroll
                for (int j = 0; j < 4; j++)
                    acc[c][i][j] = fmaf(w[i], v[j], acc[c][i][j]);
        }
    }
}

// Over the 16 threads of a row.
static __device__ __forceinline__ float pl_attn_row_sum(float v) {
    for (int s = 8; s > 0; s >>= 1)
        v += __shfl_xor_sync(PL_FULL, v, s);
    return v;
}
static __device__ __forceinline__ float pl_attn_row_max(float v) {
    for (int s = 8; s > 0; s >>= 1)
        v = fmaxf(v, __shfl_xor_sync(PL_FULL, v, s));
    return v;
}

// Whether row m (of M) sees key j of the causal block, given its lo.
static __device__ __forceinline__ bool pl_attn_sees(int64_t m, int64_t M, int32_t lo, int64_t j) {
    return m < M && lo >= 0 && j >= lo && j <= m;
}

// PL_ATTN_BY_WIDTH(hd, kernel): its instance for heads of hd elements, in pieces of 64.
#define PL_ATTN_BY_WIDTH(hd, kernel) ((hd) <= 64 ? kernel<1> : (hd) <= 128 ? kernel<2> : kernel<4>)

#endif
