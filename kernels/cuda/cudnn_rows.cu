// Attention over blocks through cuDNN (cudnn_attention.h): chooses the calls that go there, copies in bf16, and adds
// the parts that the library's causal block lacks: the later blocks' diagonals, padding, fp32 sums.
#include "kernels/cuda/attention_rows.cuh"
extern "C" {
#include "kernels/cuda/lib/cudnn_attention.h"
}

namespace {

// A call: its shape, and its tensors in scratch.
struct call {
    pl_attention_args a;
    pl_cudnn_shape    s;
    pl_attn_spans     span;
    const float      *mean;
    int64_t           rows;  // of block 0
    int32_t          *query; // [rows] the query of each, -1: none; NULL: the row's number
    void             *at[PL_CUDNN_TENSORS], *workspace;
};

} // namespace

// Returns true if documents are in order, and enough of their pairs are visible. On the host, before anything is
// queued.
static bool is_worth_it(const pl_attention_args &a) {
    int64_t pairs = 0, before = 0, rows = a.block[0].dim[0];
    for (int64_t m = 0; m < a.qkv.dim[0]; m++) {
        const int64_t row = pl_attention_row(&a, 0, m);
        if (a.lo[m] < 0) continue;
        if (a.lo[m] < before || a.lo[m] > row) return false;
        before = a.lo[m];
        pairs += row - before + 1;
    }
    return pairs * PL_CUDNN_SHARE >= rows * (rows + 1) / 2;
}

// Takes scratch whenever the shape may go to the library. Returns false for own kernels.
static bool begin(pl_ctx *ctx, call *c, bool backward) {
    constexpr size_t         ALIGN = 256;
    const pl_attention_args &a = c->a;
    size_t                   workspace;
    c->rows = a.block[0].dim[0];
    c->s = pl_cudnn_shape{pl_ceil_div(c->rows, PL_CUDNN_ROWS) * PL_CUDNN_ROWS, a.nh, a.nkv, a.hd};
    if (a.numbers != PL_BF16 || c->rows < PL_CUDNN_LEAST || (a.hd != 64 && a.hd != 128)) return false;
    if (!PL_CUDA(cudnn_takes)(ctx, &c->s, &workspace)) return false;
    const size_t rows = (size_t)c->s.rows, nh = (size_t)a.nh, hd = (size_t)a.hd, two = sizeof(uint16_t);
    const size_t queries = pl_size_mul(rows, nh * hd, two), keys = pl_size_mul(rows, 2 * (size_t)a.nkv * hd, two);
    const size_t per_row = pl_size_mul(rows, nh, sizeof(float)), ends = rows * sizeof(int32_t);
    const size_t bytes[PL_CUDNN_TENSORS] = {queries, keys, queries, per_row, ends, queries, per_row, queries, keys};
    size_t       at[PL_CUDNN_TENSORS], all = 0; // `rows` makes all of them multiples of ALIGN
    for (int i = 0; i < (backward ? PL_CUDNN_TENSORS : PL_CUDNN_DO); i++) {
        at[i] = all;
        all += bytes[i];
    }
    const size_t of_queries = a.at ? ends : 0, whole = all + of_queries + workspace + ALIGN;
    // A context may have been measured at more rows, for which the library has no plans, and lack room for fewer.
    if (!pl_arena_has(&ctx->scratch, whole)) return false;
    uintptr_t room = (uintptr_t)pl_arena_alloc(&ctx->scratch, whole);
    room = (room + ALIGN - 1) / ALIGN * ALIGN;
    for (int i = 0; i < (backward ? PL_CUDNN_TENSORS : PL_CUDNN_DO); i++)
        c->at[i] = (void *)(room + at[i]);
    if (a.at) c->query = (int32_t *)(room + all);
    c->workspace = (void *)(room + all + of_queries);
    return !ctx->measuring && is_worth_it(a);
}

// ---- before ---------------------------------------------------------------------------------------------------------

// Finds each row's query: at is ascending.
static __global__ void query_kernel(int32_t *query, const int32_t *at, int64_t M, int64_t rows) {
    int64_t row = (int64_t)blockIdx.x * blockDim.x + threadIdx.x, first = 0, end = M;
    if (row >= rows) return;
    while (first < end) {
        const int64_t middle = (first + end) / 2;
        if (at[middle] < row)
            first = middle + 1;
        else
            end = middle;
    }
    query[row] = first < M && at[first] == row ? (int32_t)first : -1;
}

// Returns the query of a row, -1: none.
static __device__ __forceinline__ int64_t query_of(const call &c, int64_t row) {
    return row >= c.rows ? -1 : c.query ? c.query[row] : row;
}

// Rounds columns of fp32 rows to bf16, two per thread; rows that are not there are zero.
static __global__ void round_kernel(call c, uint32_t *to, const float *from, int64_t stride, int64_t pairs,
                                    bool queries) {
    int64_t i = (int64_t)blockIdx.x * blockDim.x + threadIdx.x, row = i / pairs, at = i % pairs * 2;
    if (row >= c.s.rows) return;
    const int64_t m = queries ? query_of(c, row) : row < c.rows ? row : -1;
    const float  *x = from + m * stride + at;
    to[i] = m >= 0 ? pl_pack_bf16(x[0], x[1]) : 0;
}

static void round_rows(pl_ctx *ctx, const char *op, const call &c, int to, const void *from, int64_t stride,
                       int64_t cols) {
    int64_t pairs = cols / 2;
    PL_LAUNCH(ctx, op, round_kernel, pl_grid(pl_ceil_div(c.s.rows * pairs, PL_BLOCK)), PL_BLOCK, c,
              (uint32_t *)c.at[to], (const float *)from, stride, pairs, to != PL_CUDNN_KV);
}

// Finds the first row after key j that does not see it, one warp per key. Rows without a query may see any key.
static __global__ void end_kernel(call c) {
    int64_t j = pl_row_warp(), rows = c.s.rows;
    if (j >= rows) return;
    int64_t found = rows;
    for (int64_t m0 = j + 1; m0 < c.rows && found == rows; m0 += PL_WARP) {
        int64_t m = m0 + threadIdx.x % PL_WARP, query = query_of(c, m);
        if (query >= 0 && c.span.lo[query] > j) found = m;
        for (int s = PL_WARP / 2; s > 0; s >>= 1) {
            int64_t other = __shfl_xor_sync(PL_FULL, found, s);
            if (other < found) found = other;
        }
    }
    if (threadIdx.x % PL_WARP == 0) ((int32_t *)c.at[PL_CUDNN_END])[j] = (int32_t)found;
}

// Copies queries, and keys with values, and finds each key's end.
static void prepare(pl_ctx *ctx, const char *op, const call &c) {
    const pl_attention_args &a = c.a;
    const pl_tensor         &first = a.block[0];
    int64_t                  queries = (int64_t)a.nh * a.hd, keys = 2 * (int64_t)a.nkv * a.hd;
    if (c.query)
        PL_LAUNCH(ctx, op, query_kernel, pl_grid(pl_ceil_div(c.rows, PL_BLOCK)), PL_BLOCK, c.query, c.span.row,
                  c.span.M, c.rows);
    round_rows(ctx, op, c, PL_CUDNN_Q, a.qkv.data, a.qkv.dim[1], queries);
    round_rows(ctx, op, c, PL_CUDNN_KV, (const float *)first.data + first.dim[1] - keys, first.dim[1], keys);
    PL_LAUNCH(ctx, op, end_kernel, pl_grid(pl_ceil_div(c.s.rows, PL_ROW_WARPS)), PL_ROW_THREADS, c);
}

// ---- forward --------------------------------------------------------------------------------------------------------

// Merges the block's o and log-sum-exp with the diagonals in order; one warp per row and head.
static __global__ void merge_kernel(call c) {
    const pl_attention_args &a = c.a;
    int64_t                  at = pl_row_warp(), m = at / a.nh, h = at % a.nh;
    if (at >= c.span.M * a.nh) return;
    float *to = (float *)a.o.data + at * a.hd, *lse = (float *)a.lse.data + at;
    if (c.span.lo[m] < 0) {
        pl_row_store(to, pl_row_vec{}, a.hd);
        if (threadIdx.x % PL_WARP == 0) *lse = 0;
        return;
    }
    int64_t    row = c.span.row_of(0, m), head = h / (a.nh / a.nkv), kv = (int64_t)a.nkv * a.hd;
    pl_row_vec q = pl_row_load((const float *)a.qkv.data + m * a.qkv.dim[1] + h * a.hd, a.hd);
    pl_row_vec o = pl_row_load((const uint16_t *)c.at[PL_CUDNN_O] + (row * a.nh + h) * a.hd, a.hd);
    float      max = ((const float *)c.at[PL_CUDNN_STATS])[h * c.s.rows + row], sum = 1;
    for (int block = 1; block < a.n_blocks; block++) {
        const float *key = (const float *)a.block[block].data + pl_attn_diagonal_at(a, c.span, block, m, head);
        float        score = (float)a.scale * pl_row_dot(q, pl_row_load(key, a.hd)), top = fmaxf(max, score);
        float        shrink = expf(max - top), p = expf(score - top);
        max = top;
        sum = fmaf(sum, shrink, p);
        pl_row_scale(o, shrink);
        pl_row_axpy(o, p, pl_row_load(key + kv, a.hd));
    }
    pl_row_scale(o, 1 / sum);
    pl_row_store(to, o, a.hd);
    if (threadIdx.x % PL_WARP == 0) *lse = max + logf(sum);
}

bool PL_CUDA(cudnn_forward)(pl_ctx *ctx, const pl_attention_args *a, const pl_attn_spans *span) {
    const char *op = "attention";
    size_t      mark = pl_arena_mark(&ctx->scratch);
    call        c = {};
    c.a = *a;
    c.span = *span;
    bool taken = begin(ctx, &c, false);
    if (taken) {
        prepare(ctx, op, c);
        PL_CUDA(cudnn_run)(ctx, op, &c.s, false, a->scale, c.at, c.workspace);
        PL_LAUNCH(ctx, op, merge_kernel, pl_grid(pl_ceil_div(c.span.M * a->nh, PL_ROW_WARPS)), PL_ROW_THREADS, c);
    }
    pl_arena_release(&ctx->scratch, mark);
    return taken;
}

// ---- backward -------------------------------------------------------------------------------------------------------

// Transposes the log-sum-exps [M, nh] to the library's [nh, rows]; skipped rows get a value above every score.
static __global__ void stats_kernel(call c) {
    int64_t i = (int64_t)blockIdx.x * blockDim.x + threadIdx.x, h = i / c.s.rows, m = query_of(c, i % c.s.rows);
    if (h >= c.a.nh) return;
    bool part = m >= 0 && c.span.lo[m] >= 0;
    ((float *)c.at[PL_CUDNN_STATS])[i] = part ? ((const float *)c.a.lse.data)[m * c.a.nh + h] : PL_CUDNN_HIDDEN;
}

// dq: the block's share and the diagonals'; one warp per row and head.
static __global__ void queries_kernel(call c) {
    const pl_attention_args &a = c.a;
    int64_t                  at = pl_row_warp(), m = at / a.nh, h = at % a.nh;
    if (at >= c.span.M * a.nh || c.span.lo[m] < 0) return;
    int64_t    row = c.span.row_of(0, m), head = h / (a.nh / a.nkv), kv = (int64_t)a.nkv * a.hd;
    int64_t    query_at = m * a.qkv.dim[1] + h * a.hd;
    float      lse = ((const float *)a.lse.data)[at], mean = c.mean[at];
    pl_row_vec q = pl_row_load((const float *)a.qkv.data + query_at, a.hd);
    pl_row_vec d_o = pl_row_load((const float *)a.o.grad + at * a.hd, a.hd);
    pl_row_vec dq = pl_row_load((const uint16_t *)c.at[PL_CUDNN_DQ] + (row * a.nh + h) * a.hd, a.hd);
    for (int block = 1; block < a.n_blocks; block++) {
        const float *key = (const float *)a.block[block].data + pl_attn_diagonal_at(a, c.span, block, m, head);
        pl_row_vec   k = pl_row_load(key, a.hd), v = pl_row_load(key + kv, a.hd);
        pl_row_axpy(dq, pl_attn_weigh(a, pl_row_dot(q, k), pl_row_dot(d_o, v), lse, mean).ds, k);
    }
    pl_row_add_to((float *)a.qkv.grad + query_at, dq, a.hd);
}

// dk and dv of block 0, one thread per element.
static __global__ void keys_kernel(call c) {
    int64_t i = (int64_t)blockIdx.x * blockDim.x + threadIdx.x, cols = 2 * (int64_t)c.a.nkv * c.a.hd, m = i / cols;
    if (m >= c.rows) return;
    float *to = (float *)c.a.block[0].grad + (m + 1) * c.a.block[0].dim[1] - cols + i % cols;
    *to += pl_widen(((const uint16_t *)c.at[PL_CUDNN_DKV])[i]);
}

bool PL_CUDA(cudnn_backward)(pl_ctx *ctx, const pl_attention_args *a, const pl_attn_spans *span, const float *mean) {
    const char *op = "attention backward";
    size_t      mark = pl_arena_mark(&ctx->scratch);
    call        c = {};
    c.a = *a;
    c.span = *span;
    c.mean = mean;
    bool taken = begin(ctx, &c, true);
    if (taken) {
        int64_t out = (int64_t)a->nh * a->hd;
        prepare(ctx, op, c);
        round_rows(ctx, op, c, PL_CUDNN_O, a->o.data, out, out);
        round_rows(ctx, op, c, PL_CUDNN_DO, a->o.grad, out, out);
        PL_LAUNCH(ctx, op, stats_kernel, pl_grid(pl_ceil_div(c.s.rows * a->nh, PL_BLOCK)), PL_BLOCK, c);
        PL_CUDA(cudnn_run)(ctx, op, &c.s, true, a->scale, c.at, c.workspace);
        if (a->qkv.grad)
            PL_LAUNCH(ctx, op, queries_kernel, pl_grid(pl_ceil_div(c.span.M * a->nh, PL_ROW_WARPS)), PL_ROW_THREADS, c);
        if (a->block[0].grad)
            PL_LAUNCH(ctx, op, keys_kernel, pl_grid(pl_ceil_div(c.rows * 2 * a->nkv * a->hd, PL_BLOCK)), PL_BLOCK, c);
    }
    pl_arena_release(&ctx->scratch, mark);
    return taken;
}
