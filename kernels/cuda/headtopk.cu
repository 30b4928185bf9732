// The fused head. The product (linear.cu: linear's bits) goes into scratch, of the support's panels alone; then of each
// panel and row of x the best and the share of the log-sum-exp are taken. Then the panels' best are reduced
// (select.cuh) and their shares added in an order that the number of panels alone fixes. What goes through scratch is 4
// bytes of each row of x for 2 K bytes of weights.
#include "kernels/cuda/panel.cuh"
#include "kernels/cuda/select.cuh"
extern "C" {
#include "kernels/op/headtopk.h"
}

struct share { // of one panel in a row's sum: of exp(z - max)
    float max, sum;
};

struct head {
    const float   *z;                     // [rows, N]
    int64_t        N, panels, row0;       // row0: of x's first row, for messages
    int32_t        rows, k, n_spans, pad; // k: of a panel
    const pl_span *span;
    const int32_t *held; // NULL: n_spans
    pl_key        *best; // [rows, panels, k]
    share         *lse;  // [rows, panels] or NULL
    pl_cuda_fault *fault;
};

// Whether one of rows n0 .. n1 - 1 is in the support: spans ascend, and so do their ends.
static __device__ __forceinline__ bool in_support(const pl_span *span, int n_spans, int64_t n0, int64_t n1) {
    if (!span) return true;
    int low = 0, high = n_spans; // the first that ends past n0
    while (low < high) {
        int middle = (low + high) / 2;
        if ((int64_t)span[middle].first + span[middle].count > n0)
            high = middle;
        else
            low = middle + 1;
    }
    return low < n_spans && span[low].first < n1;
}

constexpr int LIST_THREADS = 1024;

// The panels that hold rows of the support, ascending, and their number: one block.
static __global__ void __launch_bounds__(LIST_THREADS)
    support_kernel(int32_t *list, int32_t *listed, const pl_span *span, const int32_t *held, int n_spans, int64_t N,
                   int64_t panels) {
    pl_previous_done();
    __shared__ int room[PL_WARP];
    int            found = 0, spans = held ? *held : n_spans;
    for (int64_t p0 = 0; p0 < panels; p0 += LIST_THREADS) {
        int64_t p = p0 + threadIdx.x, n0 = p * PL_PANEL;
        bool    in = p < panels && in_support(span, spans, n0, n0 + PL_PANEL < N ? n0 + PL_PANEL : N);
        int     more, upto = pl_block_upto(in, room, &more);
        if (in) list[found + upto - 1] = (int32_t)p;
        found += more;
    }
    if (threadIdx.x == 0) *listed = found;
}

// One block per panel.
static __global__ void __launch_bounds__(PL_BLOCK) best_kernel(head h) {
    pl_previous_done();
    __shared__ int inside[PL_PANEL];
    int64_t        panel = blockIdx.x, n0 = panel * PL_PANEL;
    int            lane = (int)threadIdx.x % PL_WARP, warp = (int)threadIdx.x / PL_WARP;
    if (threadIdx.x < PL_PANEL) {
        int64_t n = n0 + threadIdx.x;
        inside[threadIdx.x] = n < h.N && in_support(h.span, h.held ? *h.held : h.n_spans, n, n + 1);
    }
    __syncthreads();
    for (int m = warp; m < h.rows; m += PL_WARPS) {
        pl_key key[2];
        float  v[2];
        for (int j = 0; j < 2; j++) {
            int  row = lane + 32 * j;
            bool mine = inside[row];
            v[j] = mine ? h.z[m * h.N + n0 + row] : -INFINITY;
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
    pl_previous_done();
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

// ---- long lists and lists by id: one block per row ------------------------------------------------------------------

// The k largest of a row's n keys, by descending key or ascending id. What reaches the least of them is exactly k; a
// sort in shared memory orders them.
static __global__ void __launch_bounds__(LIST_THREADS)
    list_kernel(int32_t *id, float *value, const pl_key *in, int64_t n, int k, bool by_id) {
    pl_previous_done();
    __shared__ pl_key    key[PL_HEADTOPK_MAX];
    __shared__ pl_digits digits;
    __shared__ unsigned  taken;
    in += blockIdx.x * n;
    pl_key least = pl_least_of([&](int64_t i) { return in[i]; }, n, k, digits);
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

// A support of all rows, which the host has written: nothing is to be listed, and weights come while x is made.
static bool whole_head(const pl_headtopk_args *a) {
    return !a->held && a->n_spans == 1 && a->span[0].first == 0 && a->span[0].count == a->w.dim[0];
}

PL_CUDA_OP(headtopk_fwd) {
    const pl_headtopk_args *a = (const pl_headtopk_args *)args;
    int64_t                 M = a->x.dim[0], N = a->w.dim[0], K = a->w.dim[1], panels = pl_ceil_div(N, PL_PANEL);
    int                     each = a->k < PL_PANEL ? a->k : PL_PANEL;
    int64_t                 pass = pl_pass_rows(ctx), most = M < pass ? M : pass, n = panels * each;
    bool                    list = a->by_id || a->k > PL_TOPK_MAX;
    if (a->w.layout != PL_PANELS) {
        pl_ctx_fail(ctx, PL_E_UNSUPPORTED, "op headtopk: backend %s takes packed weights", ctx->be->name);
        return;
    }
    size_t   mark = pl_arena_mark(&ctx->scratch);
    float   *z = (float *)pl_arena_alloc(&ctx->scratch, pl_size_mul((size_t)most, (size_t)N, sizeof(float)));
    void    *room = pl_arena_alloc(&ctx->scratch, PL_CUDA(panel_product_bytes)(ctx, &a->w, M, true));
    int32_t *panel = (int32_t *)pl_arena_alloc(&ctx->scratch, pl_size_mul((size_t)panels + 1, sizeof(int32_t), 1));
    head     h = {};
    h.N = N, h.panels = panels, h.k = each, h.n_spans = a->n_spans, h.z = z;
    h.best = (pl_key *)pl_arena_alloc(&ctx->scratch, pl_size_mul((size_t)most, (size_t)n, sizeof(pl_key)));
    if (a->lse)
        h.lse = (share *)pl_arena_alloc(&ctx->scratch, pl_size_mul((size_t)most, (size_t)panels, sizeof(share)));
    pl_key *one = (pl_key *)pl_arena_alloc(&ctx->scratch, list ? 0 : pl_select_bytes(most, n, a->k));
    pl_key *two = (pl_key *)pl_arena_alloc(&ctx->scratch, list ? 0 : pl_select_bytes(most, n, a->k));
    if (a->span && !ctx->measuring && !whole_head(a)) h.span = a->held ? a->span : pl_index(ctx, a->span, a->n_spans);
    h.held = a->held;
    if (h.span)
        PL_LAUNCH_EARLY(ctx, "headtopk", support_kernel, pl_grid(1), LIST_THREADS, panel + 1, panel, h.span, h.held,
                        a->n_spans, N, panels);
    for (int64_t m = 0; m < M && !ctx->measuring; m += pass) {
        int32_t *id = a->id + m * a->k;
        float   *value = a->value ? a->value + m * a->k : NULL;
        h.rows = (int)(M - m < pass ? M - m : pass);
        h.row0 = m;
        h.fault = pl_cuda_state_of(ctx)->fault;
        PL_CUDA(panel_product)
        (ctx, "headtopk", z, pl_f32(&a->x) + m * K, h.rows, &a->w, h.span ? panel + 1 : NULL, h.span ? panel : NULL,
         room);
        PL_LAUNCH_EARLY(ctx, "headtopk", best_kernel, pl_grid(panels), PL_BLOCK, h);
        if (list)
            PL_LAUNCH_EARLY(ctx, "headtopk", list_kernel, pl_grid(h.rows), LIST_THREADS, id, value, h.best, n, a->k,
                            a->by_id);
        else
            pl_select(ctx, "headtopk", id, value, h.best, one, two, h.rows, n, a->k, pl_names{});
        if (a->lse)
            PL_LAUNCH_EARLY(ctx, "headtopk", head_lse_kernel, pl_grid(h.rows), PL_BLOCK, a->lse + m, h.lse, panels);
    }
    pl_arena_release(&ctx->scratch, mark);
}
