// Backward of attention over blocks (training). With p = exp(s - lse) and mean = do . o:
//   dv += p do;  ds = scale p (do . v - mean);  dq += ds k;  dk += ds q
// lse and o are those of the merged attention (all blocks), so that the blocks' shares add up. Each output is owned by
// one block (the causal block's) or one warp (a diagonal's) that walks its contributions in a fixed order, so no
// atomics are needed and runs repeat to the bit: dq over a row's keys in tiles, ascending, then the diagonals; dk and
// dv over the query heads of a key head, in each the rows that see a key, in tiles, ascending. Probabilities are
// computed in both.
#include "kernels/cuda/attention_rows.cuh"

constexpr int TILE = PL_ATTN_TILE;

struct back {
    pl_attention_args a;
    pl_attn_spans     span;
    float            *mean; // [M, nh]
};

// ---- rows alone: means and diagonals --------------------------------------------------------------------------------

static __global__ void mean_kernel(back b) {
    int64_t at = pl_row_warp();
    if (at >= b.span.M * b.a.nh) return;
    float mean = pl_row_dot(pl_row_load((const float *)b.a.o.grad + at * b.a.hd, b.a.hd),
                            pl_row_load((const float *)b.a.o.data + at * b.a.hd, b.a.hd));
    if (threadIdx.x % PL_WARP == 0) b.mean[at] = mean;
}

// dk and dv of block 1 + blockIdx.y: one warp per (query, key head), whose keys only this query sees.
static __global__ void diagonal_kernel(back b) {
    const pl_attention_args &a = b.a;
    int64_t                  at = pl_row_warp(), m = at / a.nkv;
    const pl_tensor         &block = a.block[1 + blockIdx.y];
    if (at >= b.span.M * a.nkv || !block.grad || b.span.lo[m] < 0) return;
    int        kv_head = (int)(at % a.nkv), group = a.nh / a.nkv;
    int64_t    kv = (int64_t)a.nkv * a.hd, to = pl_attn_diagonal_at(a, b.span, 1 + (int)blockIdx.y, m, kv_head);
    pl_row_vec k = pl_row_load((const float *)block.data + to, a.hd),
               v = pl_row_load((const float *)block.data + to + kv, a.hd);
    pl_row_vec dk = {}, dv = {};
    for (int h = kv_head * group; h < (kv_head + 1) * group; h++) {
        int64_t      row = m * a.nh + h;
        pl_row_vec   q = pl_row_load((const float *)a.qkv.data + m * a.qkv.dim[1] + (int64_t)h * a.hd, a.hd);
        pl_row_vec   d_o = pl_row_load((const float *)a.o.grad + row * a.hd, a.hd);
        pl_attn_pair w =
            pl_attn_weigh(a, pl_row_dot(q, k), pl_row_dot(d_o, v), ((const float *)a.lse.data)[row], b.mean[row]);
        pl_row_axpy(dk, w.ds, q);
        pl_row_axpy(dv, w.p, d_o);
    }
    pl_row_add_to((float *)block.grad + to, dk, a.hd);
    pl_row_add_to((float *)block.grad + to + kv, dv, a.hd);
}

// ---- the causal block -----------------------------------------------------------------------------------------------

// Returns a query head's part of the queries, or of the gradient of o.
static __device__ __forceinline__ pl_attn_rows rows_of(const back &b, const void *p, int64_t stride, int64_t head) {
    return pl_attn_rows(p, stride, head * b.a.hd, b.span.M, b.a.hd);
}

// Adds a tile's sums to rows from m0 on.
template <int CHUNKS>
static __device__ __forceinline__ void add_tile(float *to, int64_t stride, int64_t m0, int64_t M, int hd,
                                                const float sum[CHUNKS][4][4]) {
#pragma unroll
    for (int c = 0; c < CHUNKS; c++)
#pragma unroll
        for (int n = 0; n < 4; n++)
#pragma unroll
            for (int e = 0; e < 4; e++) {
                int64_t m = m0 + pl_attn_row() + e / 2 * 8;
                int     d = c * TILE + pl_attn_column() + 8 * n + e % 2;
                if (m < M && d < hd) to[m * stride + d] += sum[c][n][e];
            }
}

// One block per query head and tile of rows; those with the most keys start first.
template <int CHUNKS> static __global__ void __launch_bounds__(PL_BLOCK, CHUNKS <= 2 ? 2 : 1) dq_kernel(back b) {
    alignas(16) __shared__ pl_attn_room room;
    const pl_attention_args            &a = b.a;
    int                                 h = (int)blockIdx.x, row = pl_attn_row(), column = pl_attn_column();
    int64_t                             tile = (int64_t)gridDim.y - 1 - blockIdx.y, m0 = tile * TILE, M = b.span.M;
    int64_t                             kv_head = h / (a.nh / a.nkv), out = (int64_t)a.nh * a.hd;
    pl_attn_rows                        q = rows_of(b, a.qkv.data, a.qkv.dim[1], h), d_o = rows_of(b, a.o.grad, out, h);
    pl_attn_rows                        k = pl_attn_keys(a, kv_head, false), v = pl_attn_keys(a, kv_head, true);
    float                               lse[2], mean[2], dq[CHUNKS][4][4] = {};
    int32_t                             lo[2];
    int64_t                             last[2];
    q.at(m0);
    d_o.at(m0);
#pragma unroll
    for (int i = 0; i < 2; i++) {
        int64_t m = m0 + row + 8 * i < M ? m0 + row + 8 * i : M - 1;
        lo[i] = m0 + row + 8 * i < M ? b.span.lo[m] : -1;
        last[i] = b.span.row_of(0, m);
        lse[i] = ((const float *)a.lse.data)[m * a.nh + h];
        mean[i] = b.mean[m * a.nh + h];
    }
    for (int64_t j0 = b.span.tile_lo[tile] / TILE * TILE; j0 <= b.span.tile_last[tile]; j0 += TILE) {
        float s[4][4] = {}, dov[4][4] = {};
        k.at(j0);
        v.at(j0);
        pl_attn_dots(s, room, q, k);
        pl_attn_dots(dov, room, d_o, v);
#pragma unroll
        for (int n = 0; n < 4; n++)
#pragma unroll
            for (int e = 0; e < 4; e++) {
                int  i = e / 2;
                bool sees = pl_attn_sees(lo[i], last[i], j0 + column + 8 * n + e % 2);
                s[n][e] = sees ? pl_attn_weigh(a, s[n][e], dov[n][e], lse[i], mean[i]).ds : 0;
            }
        pl_attn_put_weights(room, s);
        pl_attn_sums<CHUNKS>(dq, room, k);
    }
#pragma unroll
    for (int i = 0; i < 2; i++) {
        int64_t m = m0 + row + 8 * i, at = m < M ? m : M - 1; // all threads of a row take the same branch
        for (int block = 1; block < a.n_blocks; block++) {
            const float *key = (const float *)a.block[block].data + pl_attn_diagonal_at(a, b.span, block, at, kv_head);
            float        qk = pl_attn_row_dot(q.row(at), key, a.hd);
            float        dov = pl_attn_row_dot(d_o.row(at), key + (int64_t)a.nkv * a.hd, a.hd);
            float        ds = lo[i] < 0 ? 0 : pl_attn_weigh(a, qk, dov, lse[i], mean[i]).ds;
#pragma unroll
            for (int c = 0; c < CHUNKS; c++)
#pragma unroll
                for (int n = 0; n < 8; n++) {
                    int d = c * TILE + column + n / 2 * 8 + n % 2, e = 2 * i + n % 2;
                    if (d < a.hd) dq[c][n / 2][e] = fmaf(ds, key[d], dq[c][n / 2][e]);
                }
        }
    }
    add_tile<CHUNKS>((float *)a.qkv.grad + (int64_t)h * a.hd, a.qkv.dim[1], m0, M, a.hd, dq);
}

// One block per key head and tile of keys; keys are the left rows. The first tiles have the most rows, and start first.
template <int CHUNKS> static __global__ void __launch_bounds__(PL_BLOCK, CHUNKS == 1 ? 2 : 1) dkv_kernel(back b) {
    alignas(16) __shared__ pl_attn_room room;
    const pl_attention_args            &a = b.a;
    int                                 group = a.nh / a.nkv, row = pl_attn_row(), column = pl_attn_column();
    int64_t      kv_head = blockIdx.x, tile = blockIdx.y, j0 = tile * TILE, out = (int64_t)a.nh * a.hd, M = b.span.M;
    int64_t      tiles = (M + TILE - 1) / TILE;
    pl_attn_rows k = pl_attn_keys(a, kv_head, false), v = pl_attn_keys(a, kv_head, true);
    float        dk[CHUNKS][4][4] = {}, dv[CHUNKS][4][4] = {};
    k.at(j0);
    v.at(j0);
    for (int64_t h = kv_head * group; h < (kv_head + 1) * group; h++) {
        pl_attn_rows q = rows_of(b, a.qkv.data, a.qkv.dim[1], h), d_o = rows_of(b, a.o.grad, out, h);
        for (int64_t t = a.at ? 0 : tile; t < tiles; t++) {
            if (b.span.tile_lo[t] >= j0 + TILE || b.span.tile_last[t] < j0) continue; // its queries see none of them
            float s[4][4] = {}, dov[4][4] = {};
            q.at(t * TILE);
            d_o.at(t * TILE);
            pl_attn_dots(s, room, k, q);
            pl_attn_dots(dov, room, v, d_o);
#pragma unroll
            for (int n = 0; n < 8; n++) { // two values of each of these rows
                int64_t m = t * TILE + column + n / 2 * 8 + n % 2, at = m < M ? m : M - 1, last = b.span.row_of(0, at);
                float   lse = ((const float *)a.lse.data)[at * a.nh + h], mean = b.mean[at * a.nh + h];
                int32_t lo = m < M ? b.span.lo[at] : -1;
#pragma unroll
                for (int i = 0; i < 2; i++) {
                    float       *p = &s[n / 2][2 * i + n % 2], *ds = &dov[n / 2][2 * i + n % 2];
                    bool         sees = pl_attn_sees(lo, last, j0 + row + 8 * i);
                    pl_attn_pair w = sees ? pl_attn_weigh(a, *p, *ds, lse, mean) : pl_attn_pair{0, 0};
                    *p = w.p;
                    *ds = w.ds;
                }
            }
            pl_attn_put_weights(room, s);
            pl_attn_sums<CHUNKS>(dv, room, d_o);
            __syncthreads(); // all threads have read the probabilities
            pl_attn_put_weights(room, dov);
            pl_attn_sums<CHUNKS>(dk, room, q);
        }
    }
    const pl_tensor &first = a.block[0];
    float           *to = (float *)first.grad + pl_attn_column_of(a, first, kv_head);
    add_tile<CHUNKS>(to, first.dim[1], j0, first.dim[0], a.hd, dk);
    add_tile<CHUNKS>(to + (int64_t)a.nkv * a.hd, first.dim[1], j0, first.dim[0], a.hd, dv);
}

PL_CUDA_OP(attention_bwd) {
    const pl_attention_args *a = (const pl_attention_args *)args;
    const char              *op = "attention backward";
    if (!a->o.grad) return;
    const int64_t M = a->qkv.dim[0], rows = a->block[0].dim[0];
    size_t        mark = pl_arena_mark(&ctx->scratch);
    back          b = {*a, {}, NULL};
    b.mean = (float *)pl_arena_alloc(&ctx->scratch, pl_size_mul((size_t)M, (size_t)a->nh, sizeof(float)));
    b.span = PL_CUDA(attention_spans)(ctx, op, a);
    if (!ctx->measuring)
        PL_LAUNCH(ctx, op, mean_kernel, pl_grid(pl_ceil_div(M * a->nh, PL_ROW_WARPS)), PL_ROW_THREADS, b);
    bool taken = PL_CUDA(cudnn_backward)(ctx, a, &b.span, b.mean);
    if (!ctx->measuring) {
        auto    dq = PL_ATTN_BY_WIDTH(a->hd, dq_kernel), dkv = PL_ATTN_BY_WIDTH(a->hd, dkv_kernel);
        pl_grid diagonals(pl_ceil_div(M * a->nkv, PL_ROW_WARPS), a->n_blocks - 1);
        if (!taken && a->qkv.grad) PL_LAUNCH(ctx, op, dq, pl_grid(a->nh, pl_ceil_div(M, TILE)), PL_BLOCK, b);
        if (!taken && a->block[0].grad) PL_LAUNCH(ctx, op, dkv, pl_grid(a->nkv, pl_ceil_div(rows, TILE)), PL_BLOCK, b);
        PL_LAUNCH(ctx, op, diagonal_kernel, diagonals, PL_ROW_THREADS, b);
    }
    pl_arena_release(&ctx->scratch, mark);
}
