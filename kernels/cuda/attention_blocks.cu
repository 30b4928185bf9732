// Attention over blocks, forward: the causal block in tiles with an online softmax (FlashAttention, Dao et al. 2022),
// then the later blocks' diagonals one by one, in the same running maximum and sum. The causal block may go to cuDNN
// instead (cudnn_attention.h).
#include "kernels/cuda/attention_rows.cuh"

constexpr int TILE = PL_ATTN_TILE;

struct blocks {
    pl_attention_args a;
    pl_attn_spans     span;
};

// One warp per tile.
static __global__ void spans_kernel(pl_attn_spans to, pl_attention_args a) {
    int64_t m0 = (int64_t)blockIdx.x * TILE, end = m0 + TILE < to.M ? m0 + TILE : to.M, least = INT32_MAX;
    for (int64_t m = m0 + threadIdx.x; m < end; m += PL_WARP) {
        int32_t own = a.lo[m];
        to.lo[m] = own;
        if (own >= 0 && own < least) least = own;
        for (int j = 0; j < a.n_blocks && to.row; j++)
            to.row[j * to.M + m] = j == 0 ? a.at[m] : a.place[j] ? a.place[j][a.at[m]] : (int32_t)m;
    }
    for (int s = PL_WARP / 2; s > 0; s >>= 1) {
        int64_t other = __shfl_xor_sync(PL_FULL, least, s);
        if (other < least) least = other;
    }
    if (threadIdx.x != 0) return;
    to.tile_lo[blockIdx.x] = (int32_t)least;
    to.tile_last[blockIdx.x] = a.at ? a.at[end - 1] : (int32_t)(end - 1);
}

static int32_t *ints(pl_ctx *ctx, int64_t n, int64_t each) {
    return (int32_t *)pl_arena_alloc(&ctx->scratch, pl_size_mul((size_t)n, (size_t)each, sizeof(int32_t)));
}

pl_attn_spans PL_CUDA(attention_spans)(pl_ctx *ctx, const char *op, const pl_attention_args *a) {
    pl_attn_spans s = {};
    s.M = a->qkv.dim[0];
    int64_t tiles = pl_ceil_div(s.M, TILE);
    s.lo = ints(ctx, s.M, 1);
    s.tile_lo = ints(ctx, tiles, 1);
    s.tile_last = ints(ctx, tiles, 1);
    if (a->at) s.row = ints(ctx, s.M, a->n_blocks);
    if (!ctx->measuring) PL_LAUNCH(ctx, op, spans_kernel, pl_grid(tiles), PL_WARP, s, *a);
    return s;
}

// Running maxima of a thread's two rows, the sums of its own columns' exponentials, and values.
template <int CHUNKS> struct running {
    float                           max[2], sum[2], o[CHUNKS][4][4];
    // Raises row i's maximum to `to` and rescales its sums.
    __device__ __forceinline__ void raise(int i, float to) {
        float old = isinf(max[i]) ? 0 : expf(max[i] - to);
        max[i] = to;
        sum[i] *= old;
#pragma unroll
        for (int c = 0; c < CHUNKS; c++)
#pragma unroll
            for (int n = 0; n < 4; n++) {
                o[c][n][2 * i] *= old;
                o[c][n][2 * i + 1] *= old;
            }
    }
};

// Reduces each of the thread's two rows over its eight threads, in two warps: the maximum, or the sum. The barriers of
// pl_attn_sums lie between two calls, so that the room is free again.
template <bool SUM> static __device__ __forceinline__ void over_rows(float v[2], pl_attn_room &room) {
    int half = pl_attn_column() / 32;
#pragma unroll
    for (int i = 0; i < 2; i++)
        for (int s = 1; s < 4; s *= 2) {
            float other = __shfl_xor_sync(PL_FULL, v[i], s);
            v[i] = SUM ? v[i] + other : fmaxf(v[i], other);
        }
    for (int i = 0; i < 2; i++)
        if (pl_attn_lane() % 4 == 0) room.row[half][pl_attn_row() + 8 * i] = v[i];
    __syncthreads();
    for (int i = 0; i < 2; i++) {
        float a = room.row[0][pl_attn_row() + 8 * i], b = room.row[1][pl_attn_row() + 8 * i];
        v[i] = SUM ? a + b : fmaxf(a, b);
    }
}

// One block per query head and tile of rows; those with the most keys start first.
template <int CHUNKS> static __global__ void __launch_bounds__(PL_BLOCK, CHUNKS <= 2 ? 2 : 1) forward_kernel(blocks b) {
    alignas(16) __shared__ pl_attn_room room;
    const pl_attention_args            &a = b.a;
    int                                 h = (int)blockIdx.x, row = pl_attn_row(), column = pl_attn_column();
    int64_t                             tile = (int64_t)gridDim.y - 1 - blockIdx.y, m0 = tile * TILE, M = b.span.M;
    int64_t                             head = h / (a.nh / a.nkv), kv = (int64_t)a.nkv * a.hd;
    pl_attn_rows                        q(a.qkv.data, a.qkv.dim[1], (int64_t)h * a.hd, M, a.hd);
    pl_attn_rows                        k = pl_attn_keys(a, head, false), v = pl_attn_keys(a, head, true);
    float                               scale = (float)a.scale;
    int32_t                             lo[2];
    int64_t                             at[2];
    running<CHUNKS>                     r = {};
    q.at(m0);
#pragma unroll
    for (int i = 0; i < 2; i++) {
        int64_t m = m0 + row + 8 * i;
        lo[i] = m < M ? b.span.lo[m] : -1;
        at[i] = b.span.row_of(0, m < M ? m : M - 1);
        r.max[i] = -INFINITY;
    }
    for (int64_t j0 = b.span.tile_lo[tile] / TILE * TILE; j0 <= b.span.tile_last[tile]; j0 += TILE) {
        float s[4][4] = {}, most[2] = {-INFINITY, -INFINITY};
        k.at(j0);
        v.at(j0);
        pl_attn_dots(s, room, q, k);
#pragma unroll
        for (int n = 0; n < 4; n++)
#pragma unroll
            for (int e = 0; e < 4; e++) {
                bool sees = pl_attn_sees(lo[e / 2], at[e / 2], j0 + column + 8 * n + e % 2);
                s[n][e] = sees ? scale * s[n][e] : -INFINITY;
                most[e / 2] = fmaxf(most[e / 2], s[n][e]);
            }
        over_rows<false>(most, room);
        r.raise(0, fmaxf(r.max[0], most[0]));
        r.raise(1, fmaxf(r.max[1], most[1]));
#pragma unroll
        for (int n = 0; n < 4; n++)
#pragma unroll
            for (int e = 0; e < 4; e++) {
                s[n][e] = isinf(s[n][e]) ? 0 : expf(s[n][e] - r.max[e / 2]);
                r.sum[e / 2] += s[n][e];
            }
        pl_attn_put_weights(room, s);
        pl_attn_sums<CHUNKS>(r.o, room, v);
    }
    over_rows<true>(r.sum, room);
#pragma unroll
    for (int i = 0; i < 2; i++) {
        int64_t m = m0 + row + 8 * i, of = m < M ? m : M - 1; // all threads of a row take the same branch
        for (int block = 1; block < a.n_blocks; block++) {
            const float *key = (const float *)a.block[block].data + pl_attn_diagonal_at(a, b.span, block, of, head);
            float        score = scale * pl_attn_row_dot(q.row(of), key, a.hd);
            r.raise(i, fmaxf(r.max[i], score));
            float p = expf(score - r.max[i]);
            r.sum[i] += p;
#pragma unroll
            for (int c = 0; c < CHUNKS; c++)
#pragma unroll
                for (int n = 0; n < 8; n++) {
                    int d = c * TILE + column + n / 2 * 8 + n % 2, e = 2 * i + n % 2;
                    if (d < a.hd) r.o[c][n / 2][e] = fmaf(p, key[kv + d], r.o[c][n / 2][e]);
                }
        }
        if (m >= M) continue;
#pragma unroll
        for (int c = 0; c < CHUNKS; c++)
#pragma unroll
            for (int n = 0; n < 8; n++) {
                int   d = c * TILE + column + n / 2 * 8 + n % 2;
                float o = lo[i] < 0 ? 0 : r.o[c][n / 2][2 * i + n % 2] / r.sum[i];
                if (d < a.hd) ((float *)a.o.data)[(m * a.nh + h) * a.hd + d] = o;
            }
        if (column == 0) ((float *)a.lse.data)[m * a.nh + h] = lo[i] < 0 ? 0 : r.max[i] + logf(r.sum[i]);
    }
}

void PL_CUDA(attention_blocks)(pl_ctx *ctx, const pl_attention_args *a) {
    const char *op = "attention";
    blocks      b = {*a, {}};
    if (a->hd > PL_ATTN_MOST_HD) {
        pl_ctx_fail(ctx, PL_E_UNSUPPORTED, "op attention: heads of %d; the CUDA backend takes %d", a->hd,
                    PL_ATTN_MOST_HD);
        return;
    }
    size_t mark = pl_arena_mark(&ctx->scratch);
    b.span = PL_CUDA(attention_spans)(ctx, op, a);
    auto    kernel = PL_ATTN_BY_WIDTH(a->hd, forward_kernel);
    pl_grid grid(a->nh, pl_ceil_div(b.span.M, TILE));
    bool    taken = PL_CUDA(cudnn_forward)(ctx, a, &b.span);
    if (!ctx->measuring && !taken) PL_LAUNCH(ctx, op, kernel, grid, PL_BLOCK, b);
    pl_arena_release(&ctx->scratch, mark);
}
