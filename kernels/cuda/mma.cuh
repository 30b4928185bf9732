// Tiles of bf16 factors in shared memory, for products by pl_mma_bf16.
//
// A tile holds 32 values of k of each row as 16 words (pairs of neighbouring k), four words (8 values) a chunk. Lane 4g
// + t of a warp takes chunk t of rows g, g + 8, ... in one load: the words are its share of two m16n8k16 products,
// whose order of k is permuted the same way for both factors. The order of chunks in a row depends on the row, so that
// neither these loads nor the stores of a factor that is contiguous along its columns have bank conflicts.
#ifndef PL_CUDA_MMA_CUH
#define PL_CUDA_MMA_CUH

#include "kernels/cuda/launch.cuh"

constexpr int PL_TILE_DEPTH = 32; // values of k
constexpr int PL_TILE_WORDS = PL_TILE_DEPTH / 2;

// Returns the offset of a row's pair of k, in words.
static __device__ __forceinline__ int pl_tile_at(int row, int pair) {
    return row * PL_TILE_WORDS + (((pair / 4) ^ (row >> 2) ^ (row >> 4)) & 3) * 4 + pair % 4;
}

static __device__ __forceinline__ uint4 pl_tile_chunk(const uint32_t *tile, int row, int chunk) {
    return *(const uint4 *)&tile[pl_tile_at(row, 4 * chunk)];
}

// D [16, 8] += A B over a tile's 32 values of k; a: the lane's chunks of rows g and g + 8, b: of column g.
static __device__ __forceinline__ void pl_tile_multiply(float d[4], const uint4 &lo, const uint4 &hi, const uint4 &b) {
    const uint32_t first[4] = {lo.x, hi.x, lo.y, hi.y}, second[4] = {lo.z, hi.z, lo.w, hi.w};
    const uint32_t b0[2] = {b.x, b.y}, b1[2] = {b.z, b.w};
    pl_mma_bf16(d, first, b0);
    pl_mma_bf16(d, second, b1);
}

#endif
