// The fused head in two stages. First a block per panel: the product (panel.cuh: linear's bits), then of each row of x
// the panel's best and its share of the log-sum-exp; no logits leave the block. Then the panels' best are reduced
// (select.cuh) and their shares added in an order that the number of panels alone fixes.
#include "kernels/cuda/panel.cuh"
#include "kernels/cuda/select.cuh"
extern "C" {
#include "kernels/op/headtopk.h"
}

struct share { // of one panel in a row's sum: of exp(z - max)
    float max, sum;
};

struct head {
    const uint8_t *w;
    const float   *x;
    int            rows, k, n_spans;   // k: of a panel
    int64_t        N, K, panels, row0; // row0: of x's first row, for messages
    const pl_span *span;
    pl_key        *best; // [rows, panels, k]
    share         *lse;  // [rows, panels] or NULL
    pl_cuda_fault *fault;
};

static __device__ __forceinline__ bool in_support(const head &h, int64_t n) {
    if (n >= h.N) return false;
    if (!h.span) return true;
    for (int i = 0; i < h.n_spans; i++)
        if (n >= h.span[i].first && n < (int64_t)h.span[i].first + h.span[i].count) return true;
    return false;
}

// BF16: NB blocks of 8 columns; F32: NB is 0.
template <int NB> static __global__ void __launch_bounds__(PL_BLOCK) head_kernel(head h) {
    constexpr int    STRIDE = PL_PANEL + 1;
    constexpr int    COLUMNS = NB ? NB * 8 : PL_ROWS;
    __shared__ float z[COLUMNS * STRIDE];
    __shared__ int   inside[PL_PANEL], any;
    int64_t          panel = blockIdx.x, n0 = panel * PL_PANEL;
    int              lane = (int)threadIdx.x % PL_WARP, warp = (int)threadIdx.x / PL_WARP;
    if (threadIdx.x == 0) any = 0;
    __syncthreads();
    if (threadIdx.x < PL_PANEL) {
        inside[threadIdx.x] = in_support(h, n0 + threadIdx.x);
        if (inside[threadIdx.x]) any = 1; // all that write, write 1
    }
    __syncthreads();
    if (any) {
        const uint8_t *w = h.w + panel * h.K * PL_PANEL * (NB ? 2 : 4);
        if constexpr (NB == 0)
            pl_panel_chain(w, h.x, h.rows, h.K, [&](int row, int m, float sum) { z[m * STRIDE + row] = sum; });
        else
            for (int64_t k0 = 0; k0 < h.K; k0 += PL_SLICE) {
                int64_t k1 = k0 + PL_SLICE < h.K ? k0 + PL_SLICE : h.K;
                pl_panel_slice<NB>(w, h.x, h.rows, h.K, k0, k1, [&](int row, int m, float sum) {
                    z[m * STRIDE + row] = k0 ? z[m * STRIDE + row] + sum : sum;
                });
            }
    }
    __syncthreads();
    for (int m = warp; m < h.rows; m += PL_PANEL_WARPS) {
        pl_key key[2];
        float  v[2];
        for (int j = 0; j < 2; j++) {
            int  row = lane + 32 * j;
            bool mine = any && inside[row];
            v[j] = mine ? z[m * STRIDE + row] : -INFINITY;
            key[j] = mine ? pl_key_of(v[j], (uint32_t)(n0 + row)) : 0;
            if (mine && isnan(v[j]))
                atomicMin(&h.fault->nan, (unsigned long long)(h.row0 + m) << 32 | (unsigned long long)(n0 + row));
        }
        if (h.lse) {
            float max = pl_warp_max(fmaxf(v[0], v[1]));
            float sum = isinf(max) ? 0 : expf(v[0] - max) + expf(v[1] - max);
            sum = pl_warp_sum(sum);
            if (lane == 0) h.lse[m * h.panels + panel] = share{max, sum};
        }
        pl_sort_pair(key);
        for (int j = 0; j < 2; j++)
            if (lane + 32 * j < h.k) h.best[(m * h.panels + panel) * h.k + lane + 32 * j] = key[j];
    }
}

static __global__ void head_lse_kernel(float *lse, const share *of, int64_t panels) {
    __shared__ float room[PL_WARP];
    of += blockIdx.x * panels;
    float max = -INFINITY, sum = 0;
    for (int64_t p = threadIdx.x; p < panels; p += PL_BLOCK)
        max = fmaxf(max, of[p].max);
    max = pl_block_max(max, room);
    for (int64_t p = threadIdx.x; p < panels && !isinf(max); p += PL_BLOCK)
        sum += of[p].sum * expf(of[p].max - max);
    sum = pl_block_sum(sum, room);
    if (threadIdx.x == 0) lse[blockIdx.x] = isinf(max) ? max : max + logf(sum);
}

static void launch(pl_ctx *ctx, const head &h, bool bf16) {
    pl_grid grid(h.panels);
    int     blocks = bf16 ? pl_column_blocks(h.rows) : 0;
    if (blocks == 0)
        PL_LAUNCH(ctx, "headtopk", head_kernel<0>, grid, PL_BLOCK, h);
    else if (blocks == 1)
        PL_LAUNCH(ctx, "headtopk", head_kernel<1>, grid, PL_BLOCK, h);
    else if (blocks == 2)
        PL_LAUNCH(ctx, "headtopk", head_kernel<2>, grid, PL_BLOCK, h);
    else if (blocks == 4)
        PL_LAUNCH(ctx, "headtopk", head_kernel<4>, grid, PL_BLOCK, h);
    else
        PL_LAUNCH(ctx, "headtopk", head_kernel<8>, grid, PL_BLOCK, h);
}

// ---- long lists and lists by id: one block per row ------------------------------------------------------------------

constexpr int LIST_THREADS = 1024;

// The k largest of a row's n keys, by descending key or ascending id. Keys differ from each other (ids do), so the k-th
// largest is found digit by digit from histograms, and what reaches it is exactly k; a sort in shared memory orders
// them.
static __global__ void __launch_bounds__(LIST_THREADS)
    list_kernel(int32_t *id, float *value, const pl_key *in, int64_t n, int k, bool by_id) {
    __shared__ pl_key   key[PL_HEADTOPK_MAX];
    __shared__ unsigned count[256], taken;
    in += blockIdx.x * n;
    pl_key   least = 0; // digits of the k-th largest found so far
    unsigned want = (unsigned)k;
    for (int digit = 7; digit >= 0; digit--) {
        if (threadIdx.x < 256) count[threadIdx.x] = 0;
        __syncthreads();
        for (int64_t i = threadIdx.x; i < n; i += LIST_THREADS)
            if (digit == 7 || in[i] >> (8 * digit + 8) == least >> (8 * digit + 8))
                atomicAdd(&count[in[i] >> (8 * digit) & 255], 1);
        __syncthreads();
        int d = 255; // all threads walk alike
        for (; d > 0 && count[d] < want; d--)
            want -= count[d];
        least |= (pl_key)(unsigned)d << (8 * digit);
        __syncthreads();
    }
    if (threadIdx.x == 0) taken = 0;
    for (int i = (int)threadIdx.x; i < PL_HEADTOPK_MAX; i += LIST_THREADS)
        key[i] = 0;
    __syncthreads();
    for (int64_t i = threadIdx.x; i < n; i += LIST_THREADS)
        if (in[i] != 0 && in[i] >= least) key[atomicAdd(&taken, 1)] = by_id ? in[i] << 32 | in[i] >> 32 : in[i];
    int room = 64;
    while (room < k)
        room *= 2;
    pl_sort_keys(key, room);
    for (int i = (int)threadIdx.x; i < k; i += LIST_THREADS) {
        pl_key v = by_id ? key[i] << 32 | key[i] >> 32 : key[i];
        id[(int64_t)blockIdx.x * k + i] = pl_key_id(v);
        if (value) value[(int64_t)blockIdx.x * k + i] = pl_key_value(v);
    }
}

PL_CUDA_OP(headtopk_fwd) {
    const pl_headtopk_args *a = (const pl_headtopk_args *)args;
    int64_t                 M = a->x.dim[0], N = a->w.dim[0], K = a->w.dim[1], panels = pl_ceil_div(N, PL_PANEL);
    int                     each = a->k < PL_PANEL ? a->k : PL_PANEL;
    int64_t                 most = M < PL_ROWS ? M : PL_ROWS, n = panels * each;
    bool                    list = a->by_id || a->k > PL_TOPK_MAX;
    if (a->w.layout != PL_PANELS) {
        pl_ctx_fail(ctx, PL_E_UNSUPPORTED, "op headtopk: backend %s takes packed weights", ctx->be->name);
        return;
    }
    size_t mark = pl_arena_mark(&ctx->scratch);
    head   h = {(const uint8_t *)a->w.data, NULL, 0, each, a->n_spans, N, K, panels, 0, a->span, NULL, NULL, NULL};
    h.best = (pl_key *)pl_arena_alloc(&ctx->scratch, pl_size_mul((size_t)most, (size_t)n, sizeof(pl_key)));
    if (a->lse)
        h.lse = (share *)pl_arena_alloc(&ctx->scratch, pl_size_mul((size_t)most, (size_t)panels, sizeof(share)));
    pl_key *one = (pl_key *)pl_arena_alloc(&ctx->scratch, list ? 0 : pl_select_bytes(most, n, a->k));
    pl_key *two = (pl_key *)pl_arena_alloc(&ctx->scratch, list ? 0 : pl_select_bytes(most, n, a->k));
    for (int64_t m = 0; m < M && !ctx->measuring; m += PL_ROWS) {
        int32_t *id = a->id + m * a->k;
        float   *value = a->value ? a->value + m * a->k : NULL;
        h.rows = (int)(M - m < PL_ROWS ? M - m : PL_ROWS);
        h.x = pl_f32(&a->x) + m * K;
        h.row0 = m;
        h.fault = pl_cuda_state_of(ctx)->fault;
        launch(ctx, h, a->w.dtype == PL_BF16);
        if (list)
            PL_LAUNCH(ctx, "headtopk", list_kernel, pl_grid(h.rows), LIST_THREADS, id, value, h.best, n, a->k,
                      a->by_id);
        else
            pl_select(ctx, "headtopk", id, value, h.best, one, two, h.rows, n, a->k);
        if (a->lse) PL_LAUNCH(ctx, "headtopk", head_lse_kernel, pl_grid(h.rows), PL_BLOCK, a->lse + m, h.lse, panels);
    }
    pl_arena_release(&ctx->scratch, mark);
}
