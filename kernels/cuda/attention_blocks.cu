// Attention over blocks, forward: the causal block in tiles with an online softmax (FlashAttention, Dao et al. 2022),
// then the later blocks' diagonals one by one, in the same running maximum and sum.
#include "kernels/cuda/attention_tiles.cuh"

constexpr int TILE = PL_ATTN_TILE;

struct blocks {
    pl_attention_args a;
    pl_attn_spans     span;
    int64_t           M, width;
};

// One warp per tile.
static __global__ void spans_kernel(pl_attn_spans to, const int32_t *lo, int64_t M) {
    int64_t m0 = (int64_t)blockIdx.x * TILE, least = M;
    for (int64_t m = m0 + threadIdx.x; m < M && m < m0 + TILE; m += PL_WARP) {
        int32_t own = lo[m];
        to.lo[m] = own;
        if (own >= 0 && own < least) least = own;
    }
    for (int s = PL_WARP / 2; s > 0; s >>= 1) {
        int64_t other = __shfl_xor_sync(PL_FULL, least, s);
        if (other < least) least = other;
    }
    if (threadIdx.x == 0) to.tile_lo[blockIdx.x] = (int32_t)least;
}

pl_attn_spans PL_CUDA(attention_spans)(pl_ctx *ctx, const char *op, const int32_t *lo, int64_t M) {
    int64_t       tiles = pl_ceil_div(M, TILE);
    pl_attn_spans s;
    s.lo = (int32_t *)pl_arena_alloc(&ctx->scratch, pl_size_mul((size_t)M, sizeof *s.lo, 1));
    s.tile_lo = (int32_t *)pl_arena_alloc(&ctx->scratch, pl_size_mul((size_t)tiles, sizeof *s.tile_lo, 1));
    if (!ctx->measuring) PL_LAUNCH(ctx, op, spans_kernel, pl_grid(tiles), PL_WARP, s, lo, M);
    return s;
}

// Running maximum, sum and values of a thread's four rows.
template <int CHUNKS> struct running {
    float                           max[4], sum[4], o[CHUNKS][4][4];
    // Row i's maximum becomes `to`: what it holds shrinks.
    __device__ __forceinline__ void raise(int i, float to) {
        float old = isinf(max[i]) ? 0 : expf(max[i] - to);
        max[i] = to;
        sum[i] *= old;
#pragma unroll
        for (int c = 0; c < CHUNKS; c++)
#pragma unroll
            for (int j = 0; j < 4; j++)
                o[c][i][j] *= old;
    }
};

// One block per query head and tile of rows; those with most keys start first.
template <int CHUNKS> static __global__ void __launch_bounds__(PL_BLOCK) forward_kernel(blocks b) {
    alignas(16) __shared__ pl_attn_room room;
    const pl_attention_args            &a = b.a;
    int                                 tx = (int)threadIdx.x % 16, ty = (int)threadIdx.x / 16, h = (int)blockIdx.x;
    int64_t tile = (int64_t)gridDim.y - 1 - blockIdx.y, m0 = tile * TILE, end = m0 + TILE < b.M ? m0 + TILE : b.M;
    int64_t keys_at = (int64_t)(a.nh + h / (a.nh / a.nkv)) * a.hd, kv = (int64_t)a.nkv * a.hd;
    const pl_tensor &last = a.block[a.n_blocks - 1];
    pl_attn_rows     q = {(const float *)last.data + (int64_t)h * a.hd, b.width, m0, b.M, a.hd};
    pl_attn_rows     k = {(const float *)a.block[0].data + keys_at, b.width, 0, b.M, a.hd}, v = k;
    float            scale = (float)a.scale;
    int32_t          lo[4];
    running<CHUNKS>  r = {};
    v.head += kv;
#pragma unroll
    for (int i = 0; i < 4; i++) {
        lo[i] = m0 + 4 * ty + i < b.M ? b.span.lo[m0 + 4 * ty + i] : -1;
        r.max[i] = -INFINITY;
    }
    for (int64_t j0 = b.span.tile_lo[tile] / TILE * TILE; j0 < end; j0 += TILE) {
        float s[4][4] = {};
        k.first = v.first = j0;
        pl_attn_dots(s, room, q, k);
#pragma unroll
        for (int i = 0; i < 4; i++) {
            float most = -INFINITY, sum = 0;
#pragma unroll
            for (int j = 0; j < 4; j++) {
                bool sees = pl_attn_sees(m0 + 4 * ty + i, b.M, lo[i], j0 + 4 * tx + j);
                s[i][j] = sees ? scale * s[i][j] : -INFINITY;
                most = fmaxf(most, s[i][j]);
            }
            r.raise(i, fmaxf(r.max[i], pl_attn_row_max(most)));
#pragma unroll
            for (int j = 0; j < 4; j++) {
                s[i][j] = isinf(s[i][j]) ? 0 : expf(s[i][j] - r.max[i]);
                sum += s[i][j];
            }
            r.sum[i] += pl_attn_row_sum(sum);
        }
        pl_attn_put_weights(room, s);
        pl_attn_sums<CHUNKS>(r.o, room, v);
    }
#pragma unroll
    for (int i = 0; i < 4; i++) {
        int64_t m = m0 + 4 * ty + i, at = m < b.M ? m : b.M - 1; // all threads of a row go the same way
        for (int n = 1; n < a.n_blocks; n++) {
            const float *key = (const float *)a.block[n].data + at * b.width + keys_at;
            float        dot = 0;
#pragma unroll
            for (int c = 0; c < CHUNKS; c++)
#pragma unroll
                for (int j = 0; j < 4; j++) {
                    int d = c * TILE + 4 * tx + j;
                    if (d < a.hd) dot = fmaf(q.head[at * b.width + d], key[d], dot);
                }
            float score = scale * pl_attn_row_sum(dot);
            r.raise(i, fmaxf(r.max[i], score));
            float p = expf(score - r.max[i]);
            r.sum[i] += p;
#pragma unroll
            for (int c = 0; c < CHUNKS; c++)
#pragma unroll
                for (int j = 0; j < 4; j++) {
                    int d = c * TILE + 4 * tx + j;
                    if (d < a.hd) r.o[c][i][j] = fmaf(p, key[kv + d], r.o[c][i][j]);
                }
        }
        if (m >= b.M) continue;
#pragma unroll
        for (int c = 0; c < CHUNKS; c++)
#pragma unroll
            for (int j = 0; j < 4; j++) {
                int d = c * TILE + 4 * tx + j;
                if (d < a.hd) ((float *)a.o.data)[(m * a.nh + h) * a.hd + d] = lo[i] < 0 ? 0 : r.o[c][i][j] / r.sum[i];
            }
        if (tx == 0) ((float *)a.lse.data)[m * a.nh + h] = lo[i] < 0 ? 0 : r.max[i] + logf(r.sum[i]);
    }
}

void PL_CUDA(attention_blocks)(pl_ctx *ctx, const pl_attention_args *a) {
    const char *op = "attention";
    blocks      b = {*a, {}, a->block[0].dim[0], a->block[0].dim[1]};
    if (a->hd > PL_ATTN_MOST_HD) {
        pl_ctx_fail(ctx, PL_E_UNSUPPORTED, "op attention: heads of %d; the CUDA backend takes %d", a->hd,
                    PL_ATTN_MOST_HD);
        return;
    }
    size_t mark = pl_arena_mark(&ctx->scratch);
    b.span = PL_CUDA(attention_spans)(ctx, op, a->lo, b.M);
    auto    kernel = PL_ATTN_BY_WIDTH(a->hd, forward_kernel);
    pl_grid grid(a->nh, pl_ceil_div(b.M, TILE));
    if (!ctx->measuring) PL_LAUNCH(ctx, op, kernel, grid, PL_BLOCK, b);
    pl_arena_release(&ctx->scratch, mark);
}
