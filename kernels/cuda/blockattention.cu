// Attention of drafted blocks, row by row: one warp per row and head, in fp32. A block's keys are few compared with a
// target's prefill, and most of a drafter's step is products.
#include "kernels/cuda/attention_rows.cuh"
extern "C" {
#include "kernels/op/blockattention.h"
}

// The args with pointers to device memory.
struct blocks_view {
    const float   *qkv, *kv, *o, *d_o, *lse;
    const int32_t *lo, *hi;
    int64_t        rows, context;
    int            block, nh, nkv, hd, window, causal;
    float          scale;
};

static __device__ __forceinline__ int64_t wide(const blocks_view &a) {
    return (int64_t)(a.nh + 2 * a.nkv) * a.hd;
}

// Returns the keys of key head `head`; values follow nkv hd further.
static __device__ __forceinline__ const float *own_key(const blocks_view &a, int64_t row, int head) {
    return a.qkv + row * wide(a) + (int64_t)(a.nh + head) * a.hd;
}
static __device__ __forceinline__ const float *context_key(const blocks_view &a, int64_t row, int head) {
    return a.kv + row * 2 * a.nkv * a.hd + (int64_t)head * a.hd;
}
// A row sees `context` rows of its context from `first` on (pl_block_first), and `own` of its block (pl_block_own).
struct block_sight {
    int first, context, own;
};
static __device__ __forceinline__ block_sight sight_of(const blocks_view &a, int64_t g, int slot) {
    int first = a.window > 0 ? a.hi[g] + slot - a.window + 1 : a.lo[g];
    if (first < a.lo[g]) first = a.lo[g];
    return block_sight{first, a.hi[g] - first, a.causal ? slot + 1 : a.block};
}
static __device__ __forceinline__ const float *key_of(const blocks_view &a, const block_sight &s, int64_t g, int head,
                                                      int i) {
    return i < s.context ? context_key(a, s.first + i, head) : own_key(a, g * a.block + i - s.context, head);
}

static __global__ void blocks_forward_kernel(blocks_view a, float *o, float *lse) {
    pl_previous_done();
    int64_t at = pl_row_warp(), m = at / a.nh, g = m / a.block;
    int     h = (int)(at % a.nh), head = h / (a.nh / a.nkv), width = a.nkv * a.hd;
    if (m >= a.rows) return;
    pl_row_vec  q = pl_row_load(a.qkv + m * wide(a) + (int64_t)h * a.hd, a.hd), acc = {};
    float       max = -INFINITY, sum = 0;
    block_sight see = sight_of(a, g, (int)(m % a.block));
    int         n = a.lo[g] < 0 ? 0 : see.context + see.own;
    for (int i = 0; i < n; i++) {
        const float *k = key_of(a, see, g, head, i);
        float        s = a.scale * pl_row_dot(q, pl_row_load(k, a.hd));
        if (s > max) {
            float fade = expf(max - s);
            pl_row_scale(acc, fade);
            sum *= fade;
            max = s;
        }
        float p = expf(s - max);
        sum += p;
        pl_row_axpy(acc, p, pl_row_load(k + width, a.hd));
    }
    if (n > 0) pl_row_scale(acc, 1 / sum);
    pl_row_store(o + at * a.hd, acc, a.hd);
    if (threadIdx.x % PL_WARP == 0) lse[at] = n > 0 ? max + logf(sum) : 0;
}

// do . o of a query row and head.
static __device__ __forceinline__ float mean_of(const blocks_view &a, int64_t at, const pl_row_vec &d_o) {
    return pl_row_dot(d_o, pl_row_load(a.o + at * a.hd, a.hd));
}

// A query row's factors for a key, of head h: p, and ds without the key or query that it multiplies.
struct weight {
    float p, ds;
};
static __device__ __forceinline__ weight weigh(const blocks_view &a, int64_t at, float mean, const pl_row_vec &q,
                                               const pl_row_vec &d_o, const pl_row_vec &k, const pl_row_vec &v) {
    float p = expf(a.scale * pl_row_dot(q, k) - a.lse[at]);
    return weight{p, a.scale * p * (pl_row_dot(d_o, v) - mean)};
}

static __global__ void blocks_queries_kernel(blocks_view a, float *d_qkv) {
    pl_previous_done();
    int64_t at = pl_row_warp(), m = at / a.nh, g = m / a.block;
    int     h = (int)(at % a.nh), head = h / (a.nh / a.nkv), width = a.nkv * a.hd;
    if (m >= a.rows || a.lo[g] < 0) return;
    int64_t     from = m * wide(a) + (int64_t)h * a.hd;
    pl_row_vec  q = pl_row_load(a.qkv + from, a.hd), d_o = pl_row_load(a.d_o + at * a.hd, a.hd), dq = {};
    float       mean = mean_of(a, at, d_o);
    block_sight see = sight_of(a, g, (int)(m % a.block));
    for (int i = 0; i < see.context + see.own; i++) {
        const float *key = key_of(a, see, g, head, i);
        pl_row_vec   k = pl_row_load(key, a.hd);
        pl_row_axpy(dq, weigh(a, at, mean, q, d_o, k, pl_row_load(key + width, a.hd)).ds, k);
    }
    pl_row_add_to(d_qkv + from, dq, a.hd);
}

// Adds the rows of block g that see a key, context row `row` or (own) the block's slot of that number, to its dk and
// dv: query heads in order, in each the rows.
static __device__ __forceinline__ void add_block(const blocks_view &a, int64_t g, int head, bool own, int64_t row,
                                                 const pl_row_vec &k, const pl_row_vec &v, pl_row_vec &dk,
                                                 pl_row_vec &dv) {
    int share = a.nh / a.nkv;
    for (int h = head * share; h < (head + 1) * share; h++)
        for (int r = 0; r < a.block; r++) {
            block_sight see = sight_of(a, g, r);
            if (own ? row >= see.own : row < see.first) continue;
            int64_t    m = g * a.block + r, at = m * a.nh + h;
            pl_row_vec q = pl_row_load(a.qkv + m * wide(a) + (int64_t)h * a.hd, a.hd);
            pl_row_vec d_o = pl_row_load(a.d_o + at * a.hd, a.hd);
            weight     w = weigh(a, at, mean_of(a, at, d_o), q, d_o, k, v);
            pl_row_axpy(dk, w.ds, q);
            pl_row_axpy(dv, w.p, d_o);
        }
}

// One warp per key of a block and key head (own), or per context row and key head.
static __global__ void blocks_keys_kernel(blocks_view a, float *d, int own, int64_t blocks) {
    pl_previous_done();
    int64_t at = pl_row_warp(), row = at / a.nkv;
    int     head = (int)(at % a.nkv), width = a.nkv * a.hd;
    if (row >= (own ? a.rows : a.context)) return;
    const float *key = own ? own_key(a, row, head) : context_key(a, row, head);
    pl_row_vec   k = pl_row_load(key, a.hd), v = pl_row_load(key + width, a.hd), dk = {}, dv = {};
    if (own) {
        if (a.lo[row / a.block] < 0) return;
        add_block(a, row / a.block, head, true, row % a.block, k, v, dk, dv);
    }
    for (int64_t g = 0; g < blocks && !own; g++)
        if (a.lo[g] >= 0 && a.lo[g] <= row && row < a.hi[g]) add_block(a, g, head, false, row, k, v, dk, dv);
    d += own ? own_key(a, row, head) - a.qkv : context_key(a, row, head) - a.kv;
    pl_row_add_to(d, dk, a.hd);
    pl_row_add_to(d + width, dv, a.hd);
}

static bool fits(pl_ctx *ctx, const pl_blockattention_args *a) {
    if (a->hd <= PL_ATTN_MOST_HD) return true;
    pl_ctx_fail(ctx, PL_E_UNSUPPORTED, "op blockattention: heads of %d, at most %d on backend %s", a->hd,
                PL_ATTN_MOST_HD, ctx->be->name);
    return false;
}

static blocks_view view_of(pl_ctx *ctx, const pl_blockattention_args *a) {
    int64_t     blocks = a->qkv.dim[0] / a->block;
    blocks_view v = {};
    v.qkv = pl_f32(&a->qkv), v.kv = pl_f32(&a->kv), v.o = pl_f32(&a->o), v.lse = pl_f32(&a->lse);
    v.d_o = a->o.grad ? pl_grad_f32(&a->o) : NULL;
    v.lo = pl_index(ctx, a->lo, blocks), v.hi = pl_index(ctx, a->hi, blocks);
    v.rows = a->qkv.dim[0], v.context = a->kv.dim[0];
    v.block = a->block, v.nh = a->nh, v.nkv = a->nkv, v.hd = a->hd, v.scale = (float)a->scale;
    v.window = a->rule.window, v.causal = a->rule.causal;
    return v;
}

static int64_t warps(int64_t n) {
    return pl_ceil_div(n, PL_ROW_WARPS);
}

PL_CUDA_OP(blockattention_fwd) {
    const pl_blockattention_args *a = (const pl_blockattention_args *)args;
    PL_OP_SKIP_IF_MEASURING(ctx);
    if (!fits(ctx, a)) return;
    PL_LAUNCH_EARLY(ctx, "blockattention", blocks_forward_kernel, pl_grid(warps(a->qkv.dim[0] * a->nh)), PL_ROW_THREADS,
                    view_of(ctx, a), pl_f32(&a->o), pl_f32(&a->lse));
}

PL_CUDA_OP(blockattention_bwd) {
    const pl_blockattention_args *a = (const pl_blockattention_args *)args;
    PL_OP_SKIP_IF_MEASURING(ctx);
    if (!a->o.grad || !fits(ctx, a)) return;
    blocks_view v = view_of(ctx, a);
    int64_t     blocks = v.rows / v.block;
    if (a->qkv.grad) {
        PL_LAUNCH_EARLY(ctx, "blockattention backward", blocks_queries_kernel, pl_grid(warps(v.rows * v.nh)),
                        PL_ROW_THREADS, v, pl_grad_f32(&a->qkv));
        PL_LAUNCH_EARLY(ctx, "blockattention backward", blocks_keys_kernel, pl_grid(warps(v.rows * v.nkv)),
                        PL_ROW_THREADS, v, pl_grad_f32(&a->qkv), 1, blocks);
    }
    if (a->kv.grad)
        PL_LAUNCH_EARLY(ctx, "blockattention backward", blocks_keys_kernel, pl_grid(warps(v.context * v.nkv)),
                        PL_ROW_THREADS, v, pl_grad_f32(&a->kv), 0, blocks);
}
