// Shared by forward and backward of attention over blocks (training): tiles of 64 rows against 64 rows on tensor cores.
//
// A number enters a product as the sum of two bf16 numbers, x = hi + lo, and three products stand for one: hi hi + hi
// lo + lo hi, in fp32. The error is below 2^-16 of |x| |y|, against 2^-9 for bf16, in which attention is usually
// trained; decoding has the same error (attention_group.cuh), so that what was trained is what decodes. It costs three
// tensor-core products, still less than one on the ordinary cores. Softmax is fp32.
//
// 256 threads. In a 64 x 64 tile warp w has rows from 16 (w % 4) and columns from 32 (w / 4) on, its thread 4g + t the
// values v[n][e]: row g + 8 (e / 2), column 8 n + 2t + e % 2 (pl_mma_bf16's layout). In sums over rows the columns are
// elements of a head, 64 at a time. All sums have an order that depends on no tile and no neighbour.
#ifndef PL_CUDA_ATTENTION_TILES_CUH
#define PL_CUDA_ATTENTION_TILES_CUH

#include "kernels/cuda/mma.cuh"
extern "C" {
#include "kernels/op/attention.h"
}

constexpr int PL_ATTN_TILE = 64; // rows
constexpr int PL_ATTN_WORDS = PL_ATTN_TILE * PL_TILE_WORDS;
constexpr int PL_ATTN_MOST_HD = 256;

// Forward over blocks: kernels/cuda/attention_blocks.cu.
void PL_CUDA(attention_blocks)(pl_ctx *ctx, const pl_attention_args *a);

// Visible keys of the queries of a tile, in device memory.
struct pl_attn_spans {
    int64_t                            M;         // queries
    int32_t                           *lo;        // [M] the op's
    int32_t                           *row;       // [n_blocks, M] the row of each block; NULL: the query's number
    int32_t                           *tile_lo;   // [tiles] the least lo of a tile's queries, padding excluded
    int32_t                           *tile_last; // [tiles] the last row of block 0 that they see
    // Returns the row of block j that belongs to query m.
    __device__ __forceinline__ int64_t row_of(int j, int64_t m) const { return row ? row[j * M + m] : m; }
};
pl_attn_spans PL_CUDA(attention_spans)(pl_ctx *ctx, const char *op, const pl_attention_args *a);

// Returns the first column of a key head's keys in a block's row; its values are nkv hd columns further.
static __host__ __device__ __forceinline__ int64_t pl_attn_column_of(const pl_attention_args &a, const pl_tensor &block,
                                                                     int64_t head) {
    return block.dim[1] - (2 * a.nkv - head) * a.hd;
}

// One head's part of M rows, and within it the tile selected by `at`.
struct pl_attn_rows {
    const float               *head, *tile; // at row 0; at the tile's first row
    int64_t                    M;
    int                        stride, hd, left; // left: relevant rows from the tile's first on
    bool                       wide;
    __device__ __forceinline__ pl_attn_rows(const void *data, int64_t width, int64_t element, int64_t rows, int size)
        : head((const float *)data + element), tile(head), M(rows), stride((int)width), hd(size), left(0),
          wide(size % 4 == 0 && width % 4 == 0 && (uintptr_t)head % sizeof(float4) == 0) {}
    __device__ __forceinline__ void at(int64_t first) {
        tile = head + first * stride;
        left = M - first < PL_ATTN_TILE ? (int)(M - first) : PL_ATTN_TILE;
    }
    __device__ __forceinline__ const float *row(int64_t m) const { return head + m * stride; }
    // Elements d .. d + 3 of row r of the tile; zero outside.
    __device__ __forceinline__ void         load(float v[4], int r, int d) const {
                const float *p = tile + (r * stride + d);
                v[0] = v[1] = v[2] = v[3] = 0;
                if (r >= left || d >= hd) return;
        if (wide) {
                    float4 f = *(const float4 *)p;
                    v[0] = f.x, v[1] = f.y, v[2] = f.z, v[3] = f.w;
                    return;
        }
#pragma unroll
        for (int e = 0; e < 4; e++)
            if (d + e < hd) v[e] = p[e];
    }
};

// Returns the keys, or the values, of a key head in block 0.
static __device__ __forceinline__ pl_attn_rows pl_attn_keys(const pl_attention_args &a, int64_t head, bool values) {
    const pl_tensor &b = a.block[0];
    int64_t          at = pl_attn_column_of(a, b, head) + (values ? (int64_t)a.nkv * a.hd : 0);
    return pl_attn_rows(b.data, b.dim[1], at, b.dim[0], a.hd);
}

// Returns the element of a block at which the keys of query m's row begin.
static __device__ __forceinline__ int64_t pl_attn_diagonal_at(const pl_attention_args &a, const pl_attn_spans &span,
                                                              int block, int64_t m, int64_t head) {
    const pl_tensor &b = a.block[block];
    return span.row_of(block, m) * b.dim[1] + pl_attn_column_of(a, b, head);
}

// A tile of a factor: hi and lo.
struct pl_attn_factor {
    uint32_t part[2][PL_ATTN_WORDS];
};

// Shared memory of a block.
struct pl_attn_room {
    pl_attn_factor factor[2]; // for one step over a head; or 64 elements of the right rows, two steps over them
    pl_attn_factor weight[2]; // of a tile, two steps over the right rows
    float          row[2][PL_ATTN_TILE];
};

static __device__ __forceinline__ int pl_attn_lane() {
    return (int)threadIdx.x % PL_WARP;
}
// The first row and the first column of this thread's values.
static __device__ __forceinline__ int pl_attn_row() {
    return (int)threadIdx.x / PL_WARP % 4 * 16 + pl_attn_lane() / 4;
}
static __device__ __forceinline__ int pl_attn_column() {
    return (int)threadIdx.x / PL_WARP / 4 * 32 + pl_attn_lane() % 4 * 2;
}

// Splits two neighbours along k, x first, into both parts.
static __device__ __forceinline__ void pl_attn_split(uint32_t to[2], float x, float y) {
    to[0] = pl_pack_bf16(x, y);
    to[1] = pl_pack_bf16(x - pl_widen(to[0] & 0xffffu), y - pl_widen(to[0] >> 16));
}

// Loads 32 elements of rows, from d0 on.
static __device__ __forceinline__ void pl_attn_load_along(pl_attn_factor &to, const pl_attn_rows &from, int d0) {
#pragma unroll
    for (int i = 0; i < 2; i++) {
        int      at = i * PL_BLOCK + (int)threadIdx.x, row = at / 8, pair = at % 8 * 2;
        float    v[4];
        uint32_t one[2], two[2];
        from.load(v, row, d0 + 2 * pair);
        pl_attn_split(one, v[0], v[1]);
        pl_attn_split(two, v[2], v[3]);
#pragma unroll
        for (int p = 0; p < 2; p++)
            *(uint2 *)&to.part[p][pl_tile_at(row, pair)] = uint2{one[p], two[p]};
    }
}

// Loads 64 elements of 32 rows from r0 on, transposed: the elements become the tile's rows.
static __device__ __forceinline__ void pl_attn_load_across(pl_attn_factor &to, const pl_attn_rows &from, int r0,
                                                           int d0) {
    int   warp = (int)threadIdx.x / PL_WARP, lane = pl_attn_lane();
    int   d = (warp % 2 * 8 + lane % 8) * 4, pair = warp / 2 * 4 + lane / 8;
    float v[4], w[4];
    from.load(v, r0 + 2 * pair, d0 + d);
    from.load(w, r0 + 2 * pair + 1, d0 + d);
#pragma unroll
    for (int e = 0; e < 4; e++) {
        uint32_t both[2];
        pl_attn_split(both, v[e], w[e]);
#pragma unroll
        for (int p = 0; p < 2; p++)
            to.part[p][pl_tile_at(d + e, pair)] = both[p];
    }
}

// v += a's rows times b's, over their 32 values of k: small products first.
static __device__ __forceinline__ void pl_attn_multiply(float v[4][4], const pl_attn_factor &a,
                                                        const pl_attn_factor &b) {
    int   row = pl_attn_row(), t = pl_attn_lane() % 4, column = (int)threadIdx.x / PL_WARP / 4 * 32;
    uint4 lo[2], hi[2];
#pragma unroll
    for (int p = 0; p < 2; p++) {
        lo[p] = pl_tile_chunk(a.part[p], row, t);
        hi[p] = pl_tile_chunk(a.part[p], row + 8, t);
    }
#pragma unroll
    for (int n = 0; n < 4; n++) {
        uint4 first = pl_tile_chunk(b.part[0], column + 8 * n + pl_attn_lane() / 4, t);
        uint4 second = pl_tile_chunk(b.part[1], column + 8 * n + pl_attn_lane() / 4, t);
        pl_tile_multiply(v[n], lo[1], hi[1], first);
        pl_tile_multiply(v[n], lo[0], hi[0], second);
        pl_tile_multiply(v[n], lo[0], hi[0], first);
    }
}

// v += left rows . right rows, over a whole head.
static __device__ __forceinline__ void pl_attn_dots(float v[4][4], pl_attn_room &room, const pl_attn_rows &left,
                                                    const pl_attn_rows &right) {
    for (int d0 = 0; d0 < left.hd; d0 += PL_TILE_DEPTH) {
        __syncthreads();
        pl_attn_load_along(room.factor[0], left, d0);
        pl_attn_load_along(room.factor[1], right, d0);
        __syncthreads();
        pl_attn_multiply(v, room.factor[0], room.factor[1]);
    }
}

// Writes a tile's weights, left rows by right rows, to shared memory; visible after the next barrier.
static __device__ __forceinline__ void pl_attn_put_weights(pl_attn_room &room, const float v[4][4]) {
    pl_attn_factor &to = room.weight[pl_attn_column() / 32];
#pragma unroll
    for (int n = 0; n < 4; n++)
#pragma unroll
        for (int half = 0; half < 2; half++) {
            uint32_t both[2];
            pl_attn_split(both, v[n][2 * half], v[n][2 * half + 1]);
#pragma unroll
            for (int p = 0; p < 2; p++)
                to.part[p][pl_tile_at(pl_attn_row() + 8 * half, 4 * n + pl_attn_lane() % 4)] = both[p];
        }
}

// sum[c] += weights times right rows: left rows by elements 64 c on.
template <int CHUNKS>
static __device__ __forceinline__ void pl_attn_sums(float sum[CHUNKS][4][4], pl_attn_room &room,
                                                    const pl_attn_rows &right) {
#pragma unroll
    for (int c = 0; c < CHUNKS; c++) {
        __syncthreads();
        pl_attn_load_across(room.factor[0], right, 0, c * PL_ATTN_TILE);
        pl_attn_load_across(room.factor[1], right, PL_TILE_DEPTH, c * PL_ATTN_TILE);
        __syncthreads();
        pl_attn_multiply(sum[c], room.weight[0], room.factor[0]);
        pl_attn_multiply(sum[c], room.weight[1], room.factor[1]);
    }
}

// Sums over the four threads of a row in a warp.
static __device__ __forceinline__ float pl_attn_four_sum(float v) {
    v += __shfl_xor_sync(PL_FULL, v, 1);
    return v + __shfl_xor_sync(PL_FULL, v, 2);
}

// Dot product of a row's vectors x and y, each of its four threads adding a part.
static __device__ __forceinline__ float pl_attn_row_dot(const float *x, const float *y, int hd) {
    float sum = 0;
    for (int d = pl_attn_lane() % 4; d < hd; d += 4)
        sum = fmaf(x[d], y[d], sum);
    return pl_attn_four_sum(sum);
}

// Returns true if a query sees key j of the causal block, given its lo (-1: no query) and its row.
static __device__ __forceinline__ bool pl_attn_sees(int32_t lo, int64_t row, int64_t j) {
    return lo >= 0 && j >= lo && j <= row;
}

// PL_ATTN_BY_WIDTH(hd, kernel): the kernel's instance for heads of hd elements, in pieces of 64.
#define PL_ATTN_BY_WIDTH(hd, kernel) ((hd) <= 64 ? kernel<1> : (hd) <= 128 ? kernel<2> : kernel<4>)

#endif
