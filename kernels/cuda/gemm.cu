#include "kernels/cuda/gemm.cuh"
#include "kernels/cuda/mma.cuh"
extern "C" {
#include "kernels/cuda/lib/lt.h"
}

static __device__ __forceinline__ float operand_at(const pl_operand &o, int64_t r, int64_t c) {
    int64_t at = (o.map ? o.map[r] : r) * o.row + c * o.col;
    return o.bf16 ? pl_widen(((const uint16_t *)o.data)[at]) : ((const float *)o.data)[at];
}

// ---- fp32 -----------------------------------------------------------------------------------------------------------

// Tiles of 64 x 64, one accumulator per output, k ascending.
static __global__ void __launch_bounds__(PL_BLOCK)
    chain_kernel(float *c, int64_t c_row, pl_operand a, pl_operand b, int64_t M, int64_t N, int64_t K, int add) {
    constexpr int    TILE = 64;
    constexpr int    DEPTH = 16;
    constexpr int    OWN = 4;
    __shared__ float as[DEPTH][TILE + 1], bs[DEPTH][TILE + 1];
    int64_t          i0 = (int64_t)blockIdx.y * TILE, j0 = (int64_t)blockIdx.x * TILE;
    int              tx = (int)threadIdx.x % 16, ty = (int)threadIdx.x / 16;
    float            sum[OWN][OWN] = {};
    for (int64_t k0 = 0; k0 < K; k0 += DEPTH) {
        for (int e = (int)threadIdx.x; e < TILE * DEPTH; e += PL_BLOCK) {
            // Neighbouring threads read neighbouring addresses in either layout of the operand.
            int ak = a.col == 1 ? e % DEPTH : e / TILE, ai = a.col == 1 ? e / DEPTH : e % TILE;
            int bk = b.col == 1 ? e % DEPTH : e / TILE, bj = b.col == 1 ? e / DEPTH : e % TILE;
            as[ak][ai] = i0 + ai < M && k0 + ak < K ? operand_at(a, i0 + ai, k0 + ak) : 0;
            bs[bk][bj] = j0 + bj < N && k0 + bk < K ? operand_at(b, j0 + bj, k0 + bk) : 0;
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
            if (row < M && col < N) c[row * c_row + col] = (add ? c[row * c_row + col] : 0) + sum[i][j];
        }
}

// ---- bf16 on tensor cores -------------------------------------------------------------------------------------------
//
// A block has a tile of 128 x 128 outputs and walks K in steps of 32 (mma.cuh), two steps in shared memory: while one
// is multiplied, the next is loaded from global memory into registers, and rounded to bf16 when it is stored. Each
// output is summed over k in one fixed order, whatever M and N are.

constexpr int TILE = 128;
constexpr int DEPTH = PL_TILE_DEPTH;
constexpr int OWN = TILE * PL_TILE_WORDS / PL_BLOCK; // words of a tile per thread: 8
constexpr int WARP_M = 64, WARP_N = 32;              // a warp's outputs: 2 x 4 warps
constexpr int NARROW_FROM = 3 * TILE;                // an fp32 factor read by more tiles than these is rounded first

// Computes the elements that a thread loads: (row, pair of k) of the i-th of its pieces; a piece is 4 elements of fp32
// or 8 of bf16, along the factor's contiguous direction; along columns it is a piece of each of two neighbouring k.
template <bool COLUMNS> static __device__ __forceinline__ void piece_of(bool bf16, int i, int *row, int *pair) {
    int tid = (int)threadIdx.x, lane = tid % PL_WARP, warp = tid / PL_WARP;
    if (COLUMNS) {
        int across = bf16 ? 2 : 4, w = warp + 8 * i; // blocks of 8 pieces along the rows
        *row = (w % across * 8 + lane % 8) * (bf16 ? 8 : 4);
        *pair = w / across * 4 + lane / 8;
    } else {
        int each = bf16 ? DEPTH / 8 : DEPTH / 4, e = i * PL_BLOCK + tid; // pieces of a row
        *row = e / each;
        *pair = e % each * (bf16 ? 4 : 2);
    }
}

// A thread's share of a tile in registers: fp32 unrounded (16 words) or bf16 (8).
struct share {
    uint32_t v[2 * OWN];
};

static __device__ __forceinline__ uint32_t bits_of(float f) {
    uint32_t u;
    memcpy(&u, &f, 4);
    return u;
}
static __device__ __forceinline__ float float_of(uint32_t u) {
    float f;
    memcpy(&f, &u, 4);
    return f;
}

// Loads one piece, from (r, k) on along the contiguous direction; zero outside [rows, K].
template <bool COLUMNS>
static __device__ __forceinline__ void bring_piece(uint32_t v[4], const pl_operand &o, int64_t r, int64_t k,
                                                   int64_t rows, int64_t K, bool wide) {
    int     n = o.bf16 ? 8 : 4;
    int64_t at = COLUMNS ? k * o.col + r : (r < rows && o.map ? o.map[r] : r) * o.row + k;
    bool    whole = COLUMNS ? k < K && r + n <= rows : r < rows && k + n <= K;
    if (whole && wide) {
        uint4 w = *(const uint4 *)((const char *)o.data + at * (o.bf16 ? 2 : 4));
        v[0] = w.x, v[1] = w.y, v[2] = w.z, v[3] = w.w;
        return;
    }
    v[0] = v[1] = v[2] = v[3] = 0;
    for (int e = 0; e < n; e++) {
        bool in = COLUMNS ? k < K && r + e < rows : r < rows && k + e < K;
        if (!in) continue;
        if (o.bf16) {
            uint32_t half = ((const uint16_t *)o.data)[at + e];
#pragma unroll
            for (int w = 0; w < 4; w++)
                if (e / 2 == w) v[w] |= half << e % 2 * 16;
        } else {
            uint32_t word = bits_of(((const float *)o.data)[at + e]);
#pragma unroll
            for (int w = 0; w < 4; w++)
                if (e == w) v[w] = word;
        }
    }
}

template <bool COLUMNS>
static __device__ __forceinline__ void bring(share &s, const pl_operand &o, int64_t r0, int64_t k0, int64_t rows,
                                             int64_t K, bool wide) {
    int row, pair;
#pragma unroll
    for (int i = 0; i < 4; i++) { // pieces of 4 words
        if (o.bf16 && i >= 2) break;
        piece_of<COLUMNS>(o.bf16, COLUMNS ? i / 2 : i, &row, &pair);
        bring_piece<COLUMNS>(&s.v[4 * i], o, r0 + row, k0 + 2 * pair + (COLUMNS ? i % 2 : 0), rows, K, wide);
    }
}

template <bool COLUMNS> static __device__ __forceinline__ void put_away(uint32_t *tile, const share &s, bool bf16) {
    int row, pair;
    if (COLUMNS && bf16) {
        piece_of<true>(true, 0, &row, &pair);
#pragma unroll
        for (int w = 0; w < 4; w++) {
            tile[pl_tile_at(row + 2 * w, pair)] = pl_zip_halves<0>(s.v[w], s.v[4 + w]);
            tile[pl_tile_at(row + 2 * w + 1, pair)] = pl_zip_halves<1>(s.v[w], s.v[4 + w]);
        }
    } else if (COLUMNS) {
#pragma unroll
        for (int i = 0; i < 2; i++) {
            piece_of<true>(false, i, &row, &pair);
#pragma unroll
            for (int w = 0; w < 4; w++)
                tile[pl_tile_at(row + w, pair)] = pl_pack_bf16(float_of(s.v[8 * i + w]), float_of(s.v[8 * i + 4 + w]));
        }
    } else if (bf16) {
#pragma unroll
        for (int i = 0; i < 2; i++) {
            piece_of<false>(true, i, &row, &pair);
            *(uint4 *)&tile[pl_tile_at(row, pair)] = uint4{s.v[4 * i], s.v[4 * i + 1], s.v[4 * i + 2], s.v[4 * i + 3]};
        }
    } else {
#pragma unroll
        for (int i = 0; i < 4; i++) {
            piece_of<false>(false, i, &row, &pair);
            uint32_t lo = pl_pack_bf16(float_of(s.v[4 * i]), float_of(s.v[4 * i + 1]));
            uint32_t hi = pl_pack_bf16(float_of(s.v[4 * i + 2]), float_of(s.v[4 * i + 3]));
            *(uint2 *)&tile[pl_tile_at(row, pair)] = uint2{lo, hi};
        }
    }
}

// Multiplies A's and B's words of one step on the tensor cores.
static __device__ __forceinline__ void multiply(float acc[4][4][4], const uint32_t *as, const uint32_t *bs, int m0,
                                                int n0) {
    int   lane = (int)threadIdx.x % PL_WARP, g = lane / 4, t = lane % 4;
    uint4 b[4];
#pragma unroll
    for (int j = 0; j < 4; j++)
        b[j] = pl_tile_chunk(bs, n0 + 8 * j + g, t);
#pragma unroll
    for (int i = 0; i < 4; i++) {
        uint4 lo = pl_tile_chunk(as, m0 + 16 * i + g, t), hi = pl_tile_chunk(as, m0 + 16 * i + g + 8, t);
#pragma unroll
        for (int j = 0; j < 4; j++)
            pl_tile_multiply(acc[i][j], lo, hi, b[j]);
    }
}

static __device__ __forceinline__ bool is_wide(const pl_operand &o) {
    return (o.col == 1 ? o.row : o.col) % (o.bf16 ? 8 : 4) == 0 && (uintptr_t)o.data % sizeof(uint4) == 0;
}

template <bool A_COLUMNS, bool B_COLUMNS>
static __global__ void __launch_bounds__(PL_BLOCK)
    tensor_kernel(float *c, int64_t c_row, pl_operand a, pl_operand b, int64_t M, int64_t N, int64_t K, int add) {
    alignas(16) __shared__ uint32_t as[2][TILE * PL_TILE_WORDS], bs[2][TILE * PL_TILE_WORDS];
    int64_t                         i0 = (int64_t)blockIdx.y * TILE, j0 = (int64_t)blockIdx.x * TILE;
    int   lane = (int)threadIdx.x % PL_WARP, warp = (int)threadIdx.x / PL_WARP, g = lane / 4, t = lane % 4;
    int   m0 = warp / 4 * WARP_M, n0 = warp % 4 * WARP_N;
    bool  busy = i0 + m0 < M && j0 + n0 < N, wide_a = is_wide(a), wide_b = is_wide(b);
    float acc[4][4][4] = {};
    share sa, sb;
    bring<A_COLUMNS>(sa, a, i0, 0, M, K, wide_a);
    bring<B_COLUMNS>(sb, b, j0, 0, N, K, wide_b);
    int at = 0;
    for (int64_t k0 = 0; k0 < K; k0 += DEPTH, at ^= 1) {
        put_away<A_COLUMNS>(as[at], sa, a.bf16);
        put_away<B_COLUMNS>(bs[at], sb, b.bf16);
        __syncthreads(); // one barrier suffices: a thread that writes this half again has passed the next one, after
                         // all have read it
        if (k0 + DEPTH < K) {
            bring<A_COLUMNS>(sa, a, i0, k0 + DEPTH, M, K, wide_a);
            bring<B_COLUMNS>(sb, b, j0, k0 + DEPTH, N, K, wide_b);
        }
        if (busy) multiply(acc, as[at], bs[at], m0, n0);
    }
#pragma unroll
    for (int i = 0; i < 4; i++)
#pragma unroll
        for (int j = 0; j < 4; j++)
#pragma unroll
            for (int e = 0; e < 4; e++) {
                int64_t row = i0 + m0 + 16 * i + g + e / 2 * 8, col = j0 + n0 + 8 * j + 2 * t + e % 2;
                if (row >= M || col >= N) continue;
                float *to = c + row * c_row + col;
                *to = add ? *to + acc[i][j][e] : acc[i][j][e];
            }
}

// ---- choice of kernel -----------------------------------------------------------------------------------------------

// Rounds a line (the contiguous direction) in pieces of 8, one per thread; zero past its end.
static __global__ void narrow_kernel(uint16_t *to, int64_t to_line, pl_operand from, int64_t line, int64_t lines,
                                     int64_t length) {
    int64_t i = (int64_t)blockIdx.x * blockDim.x + threadIdx.x, pieces = to_line / 8;
    if (i >= lines * pieces) return;
    int64_t r = i / pieces, at = i % pieces * 8, source = (from.map ? from.map[r] : r) * line + at;
    float   v[8] = {};
    for (int e = 0; e < 8; e++)
        if (at + e < length)
            v[e] = from.bf16 ? pl_widen(((const uint16_t *)from.data)[source + e])
                             : ((const float *)from.data)[source + e];
    *(uint4 *)(to + r * to_line + at) =
        uint4{pl_pack_bf16(v[0], v[1]), pl_pack_bf16(v[2], v[3]), pl_pack_bf16(v[4], v[5]), pl_pack_bf16(v[6], v[7])};
}

pl_operand PL_CUDA(narrowed)(pl_ctx *ctx, const char *op, const pl_operand &from, int64_t rows, int64_t K) {
    bool      along = from.col == 1;
    int64_t   lines = along ? rows : K, length = along ? K : rows, to_line = pl_ceil_div(length, 8) * 8;
    size_t    bytes = pl_size_mul((size_t)lines, (size_t)to_line, sizeof(uint16_t));
    uint16_t *to = (uint16_t *)pl_arena_alloc(&ctx->scratch, bytes);
    if (!ctx->measuring)
        PL_LAUNCH(ctx, op, narrow_kernel, pl_grid(pl_ceil_div(lines * (to_line / 8), PL_BLOCK)), PL_BLOCK, to, to_line,
                  from, along ? from.row : from.col, lines, length);
    return pl_operand{to, along ? to_line : 1, along ? 1 : to_line, true, NULL};
}

static void launch_tensor(pl_ctx *ctx, const char *op, float *c, int64_t c_row, const pl_operand &a,
                          const pl_operand &b, int64_t M, int64_t N, int64_t K, int add) {
    auto    rr = tensor_kernel<false, false>, rc = tensor_kernel<false, true>;
    auto    cr = tensor_kernel<true, false>, cc = tensor_kernel<true, true>;
    auto    kernel = a.col == 1 ? (b.col == 1 ? rr : rc) : (b.col == 1 ? cr : cc);
    pl_grid grid(pl_ceil_div(N, TILE), pl_ceil_div(M, TILE));
    PL_LAUNCH(ctx, op, kernel, grid, PL_BLOCK, c, c_row, a, b, M, N, K, add);
}

static bool is_whole(const pl_operand &o) {
    return o.bf16 && !o.map && (o.col == 1 ? o.row : o.col) % 8 == 0 && (uintptr_t)o.data % sizeof(uint4) == 0;
}

static pl_lt_factor factor_of(const pl_operand &o) {
    return pl_lt_factor{o.data, o.col == 1 ? o.row : o.col, o.col != 1};
}

bool PL_CUDA(narrows)(pl_ctx *ctx, int64_t M, int64_t N, int64_t K) {
    return N > NARROW_FROM || PL_CUDA(lt_takes)(ctx, M, N, K);
}

void PL_CUDA(gemm)(pl_ctx *ctx, const char *op, float *c, int64_t c_row, const pl_operand &a, const pl_operand &b,
                   int64_t M, int64_t N, int64_t K, int flags) {
    int add = flags & PL_GEMM_ADD;
    if (!(flags & PL_GEMM_BF16)) {
        pl_grid grid(pl_ceil_div(N, 64), pl_ceil_div(M, 64));
        if (!ctx->measuring) PL_LAUNCH(ctx, op, chain_kernel, grid, PL_BLOCK, c, c_row, a, b, M, N, K, add);
        return;
    }
    // A factor that many tiles read is rounded to bf16 once, beforehand: that halves the bytes read. The library reads
    // bf16 alone, in lines of whole pieces.
    size_t     mark = pl_arena_mark(&ctx->scratch);
    bool       library = PL_CUDA(lt_takes)(ctx, M, N, K);
    bool       new_a = library ? !is_whole(a) : !a.bf16 && N > NARROW_FROM;
    bool       new_b = library ? !is_whole(b) : !b.bf16 && M > NARROW_FROM;
    pl_operand na = new_a ? PL_CUDA(narrowed)(ctx, op, a, M, K) : a;
    pl_operand nb = new_b ? PL_CUDA(narrowed)(ctx, op, b, N, K) : b;
    if (library) {
        pl_lt_product p = {c, c_row, M, N, K, factor_of(na), factor_of(nb), add != 0};
        library = PL_CUDA(lt_product)(ctx, op, &p);
    }
    if (!library && !ctx->measuring) launch_tensor(ctx, op, c, c_row, na, nb, M, N, K, add);
    pl_arena_release(&ctx->scratch, mark);
}
