#include "kernels/cuda/gemm.cuh"
#include "kernels/cuda/panel.cuh"
#include "kernels/cuda/slices.cuh"
extern "C" {
#include "kernels/op/linear.h"
#include "kernels/op/trail.h"
#include "kernels/panels.h"
}

// A matrix has so many units that each block gets several of a slice (`whole`: it keeps its panels and goes through
// the slices in order, adding to y) or so few that blocks must share panels: then they leave their sums in `part`
// [slices, pairs of panels, rows, 128], and the last to finish a pair adds them in order, so which one that is does not
// show; of more than TOGETHER rows the launch after it adds them (slices.cuh), as those who finish last would be few.
// All add the same numbers in the same order.
constexpr int WHOLE = 4;    // pairs of panels for each block, at least, to be whole
constexpr int TOGETHER = 8; // rows whose sums the last block of a pair adds

static constexpr int64_t most_shared(int64_t blocks) {
    return WHOLE * blocks - 1; // pairs
}

namespace {
struct product {
    typedef pl_panel_source source_type;
    float                  *y, *part;
    const uint8_t          *w;
    const float            *x;
    const uint16_t         *rounded;
    unsigned               *ticket;
    int64_t                 N, K, panels, slices;
    int                     rows, whole;
    int64_t                 pair0, own; // a block's units are slice by slice, `own` pairs from `pair0` on: all, or its

    __device__ __forceinline__ void columns(int64_t j, int64_t *k0, int64_t *k1) const {
        *k0 = j / own * PL_SLICE;
        *k1 = *k0 + PL_SLICE < K ? *k0 + PL_SLICE : K;
    }
    __device__ __forceinline__ int64_t panel_of(int64_t j, int group) const { // -1: the last pair has but one
        int64_t at = (pair0 + j % own) * PL_GROUPS + group;
        return at >= panels ? -1 : at;
    }
    __device__ __forceinline__ pl_panel_source source(int64_t j, int group) const {
        int64_t panel = panel_of(j, group);
        if (panel < 0) panel = panel_of(j, 0); // read twice, stored once
        return pl_panel_source{(const uint4 *)(w + panel * ((K + 1) / 2) * PL_PANEL * 4)};
    }
    __device__ __forceinline__ float before(int64_t j, int group, int row, int m) const {
        if (!whole || j < own) return 0;
        const int64_t panel = panel_of(j, group), n = panel * PL_PANEL + row;
        return panel >= 0 && n < N ? y[m * N + n] : 0;
    }
    __device__ __forceinline__ void emit(int64_t j, int group, int row, int m, float sum, float before) const {
        int64_t slice = j / own, panel = panel_of(j, group), n = panel * PL_PANEL + row;
        if (slices > 1 && !whole) {
            part[((slice * own + j % own) * rows + m) * PL_UNIT + group * PL_PANEL + row] = sum;
        } else if (panel >= 0 && n < N) {
            y[m * N + n] = slice ? before + sum : sum;
        }
    }
    // Fours of a pair's columns; what of a slice stands where.
    static_assert(PL_UNIT == PL_SLICED_COLUMNS, "as pl_slices has them");
    static constexpr int              FOURS = PL_UNIT / 4;
    __device__ __forceinline__ float4 part_at(int64_t slice, int64_t pair, int o) const {
        return pl_load_fresh((const float4 *)part + (slice * own + pair) * rows * FOURS + o);
    }
    __device__ __forceinline__ void put(int64_t j, int o, const float4 &sum) const {
        const int     at = o % FOURS * 4;
        const int64_t panel = panel_of(j, at / PL_PANEL), n = panel * PL_PANEL + at % PL_PANEL;
        if (panel < 0 || n >= N) return;
        float *to = &y[o / FOURS * N + n];
        if (N % 4 == 0 && (uintptr_t)y % sizeof(float4) == 0) {
            *(float4 *)to = sum;
            return;
        }
        const float v[4] = {sum.x, sum.y, sum.z, sum.w};
        for (int e = 0; e < 4 && n + e < N; e++)
            to[e] = v[e];
    }
    // One row has fewer fours than there are threads: all of them fetch, so that the L2 is waited for once in `TURN`
    // slices.
    __device__ __forceinline__ void add_row(int64_t j, int64_t pair, float4 *staged) const {
        constexpr int TURN = 32;
        static_assert(TURN * FOURS <= PL_STAGED, "room for a turn");
        const int me = (int)threadIdx.x;
        float4    sum = {0, 0, 0, 0};
        for (int64_t s0 = 0; s0 < slices; s0 += TURN) {
            const int turn = (int)(slices - s0 < TURN ? slices - s0 : TURN);
            for (int e = me; e < turn * FOURS; e += PL_BLOCK)
                staged[e] = part_at(s0 + e / FOURS, pair, e % FOURS);
            __syncthreads(); // all are there
            for (int s = 0; s < turn && me < FOURS; s++) {
                const float4 v = staged[s * FOURS + me];
                sum.x += v.x, sum.y += v.y, sum.z += v.z, sum.w += v.w;
            }
            __syncthreads(); // all have been read
        }
        if (me < FOURS) put(j, me, sum);
    }
    // Four o of a pair's rows.
    __device__ __forceinline__ void add_four(int64_t pair, int o) const {
        float4 sum = {0, 0, 0, 0};
#pragma unroll 8
        for (int64_t s = 0; s < slices; s++) {
            const float4 v = part_at(s, pair, o);
            sum.x += v.x, sum.y += v.y, sum.z += v.z, sum.w += v.w;
        }
        put(pair, o, sum);
    }
    // staged: of the block, behind its last barrier not in use. Nothing where a launch of its own adds.
    template <int NB> __device__ __forceinline__ void done(int64_t j, float4 *staged) const {
        if constexpr (NB * 8 <= TOGETHER) {
            __shared__ unsigned last;
            if (slices == 1 || whole) return;
            int64_t pair = j % own;
            if (threadIdx.x == 0) {
                pl_fence(); // all have written before the barrier that ends pl_stream's sums
                const bool ends = atomicAdd(&ticket[pair], 1) == (unsigned)slices - 1;
                if (ends) pl_fence();
                last = ends;
            }
            __syncthreads();
            if (!last) return;
            static_assert(TOGETHER * FOURS <= PL_BLOCK, "a thread for each four");
            if (rows == 1)
                add_row(j, pair, staged);
            else if ((int)threadIdx.x < rows * FOURS)
                add_four(pair, (int)threadIdx.x);
            if (threadIdx.x == 0) ticket[pair] = 0;
        }
    }
};
} // namespace

template <int NB> static __global__ void __launch_bounds__(PL_BLOCK, pl_resident(NB)) panel_kernel(product p) {
    pl_room<NB>  &room = *(pl_room<NB> *)pl_dynamic_shared();
    const int64_t b = blockIdx.x, blocks = gridDim.x, pairs = p.own;
    int64_t       first = b * pairs * p.slices / blocks, end = (b + 1) * pairs * p.slices / blocks;
    if (p.whole) {
        p.pair0 = b * pairs / blocks;
        p.own = (b + 1) * pairs / blocks - p.pair0;
        first = 0, end = p.own * p.slices;
    }
    pl_stream<NB>(room, p, first, end);
}

// Grid: pairs of panels, fours of their rows.
static __global__ void __launch_bounds__(PL_BLOCK) sum_kernel(product p) {
    pl_previous_done();
    const int o = (int)blockIdx.y * PL_BLOCK + (int)threadIdx.x;
    if (o < p.rows * product::FOURS) p.add_four(blockIdx.x, o);
}

static __global__ void __launch_bounds__(PL_BLOCK)
    chain_kernel(float *y, const uint8_t *w, const float *x, int rows, int64_t N, int64_t K) {
    pl_previous_done();
    int64_t panel = blockIdx.x, n0 = panel * PL_PANEL;
    pl_panel_chain(w + panel * K * PL_PANEL * 4, x, rows, K, [&](int row, int m, float sum) {
        if (n0 + row < N) y[m * N + n0 + row] = sum;
    });
}

static int64_t blocks_of(const pl_ctx *ctx, const pl_tensor *w, int rows) {
    int64_t units = pl_ceil_div(w->dim[0], PL_UNIT) * pl_ceil_div(w->dim[1], PL_SLICE);
    int64_t most = (int64_t)pl_cuda_state_of(ctx)->sms * pl_resident(pl_column_blocks(rows));
    return units < most ? units : most;
}

// All but weights, arguments and how blocks share it.
static product product_for(float *y, void *part, int64_t N, int64_t K, int rows) {
    product p = {};
    p.y = y, p.part = (float *)part, p.N = N, p.K = K, p.rows = rows;
    p.panels = pl_ceil_div(N, PL_PANEL), p.slices = pl_ceil_div(K, PL_SLICE), p.own = pl_ceil_div(N, PL_UNIT);
    return p;
}

static void sum_slices(pl_ctx *ctx, const product &p) {
    PL_LAUNCH_EARLY(ctx, "linear", sum_kernel, pl_grid(p.own, pl_ceil_div((int64_t)p.rows * product::FOURS, PL_BLOCK)),
                    PL_BLOCK, p);
}

extern "C" void PL_CUDA(add_slices)(pl_ctx *ctx, const pl_cuda_slices *left) {
    sum_slices(ctx, product_for(left->y, (void *)left->part, left->columns, (int64_t)left->n * PL_SLICE, left->rows));
}

// Scratch of product_of, enough for that many rows or fewer at a time.
static size_t product_bytes(const pl_ctx *ctx, const pl_tensor *w, int64_t rows) {
    int64_t slices = pl_ceil_div(w->dim[1], PL_SLICE), pairs = pl_ceil_div(w->dim[0], PL_UNIT), most = 0;
    int64_t pass = pl_pass_rows(ctx);
    if (w->dtype != PL_BF16 || slices < 2) return 0;
    for (int64_t n = 8; n <= pass; n *= 2) { // fewer rows may have more blocks
        int64_t of = rows < n ? rows : n, shared = most_shared(blocks_of(ctx, w, (int)of));
        if (pairs <= shared && pairs * of > most) most = pairs * of;
    }
    return pl_size_mul((size_t)(slices * most), PL_UNIT, sizeof(float));
}

// y [rows, N] = x [rows, K] W^T for at most pl_pass_rows(ctx) rows and W in panels.
static void product_of(pl_ctx *ctx, float *y, const float *x, int rows, const pl_tensor *w, void *room) {
    const int64_t  N = w->dim[0], K = w->dim[1];
    const uint8_t *of = (const uint8_t *)w->data;
    const int      nb = pl_column_blocks(rows);
    if (w->dtype != PL_BF16) {
        PL_LAUNCH_EARLY(ctx, "linear", chain_kernel, pl_grid(pl_ceil_div(N, PL_PANEL)), PL_BLOCK, y, of, x, rows, N, K);
        return;
    }
    const int64_t         blocks = blocks_of(ctx, w, rows);
    const pl_cuda_rounded known = pl_cuda_state_of(ctx)->rounded;
    product               p = product_for(y, room, N, K, rows);
    p.w = of, p.x = x, p.ticket = pl_cuda_state_of(ctx)->ticket;
    p.rounded = pl_rounded_of(known, x, rows, K);
    p.whole = p.own > most_shared(blocks);
    auto kernel = nb == 1 ? panel_kernel<1> : nb == 2 ? panel_kernel<2> : nb == 4 ? panel_kernel<4> : panel_kernel<8>;
    PL_LAUNCH_EARLY_ROOM(ctx, "linear", kernel, pl_grid(blocks), PL_BLOCK, pl_room_bytes(nb), p);
    if (rows > TOGETHER && p.slices > 1 && !p.whole) {
        if (PL_CUDA(unseen)(ctx))
            pl_cuda_state_of(ctx)->slices = pl_cuda_slices{y, p.part, N, rows, (int)p.slices};
        else
            sum_slices(ctx, p);
    }
    if (p.rounded) pl_cuda_state_of(ctx)->rounded = known; // y lies elsewhere: the next rows, the next weight
}

// Rows in passes of at most 64.
static void packed(pl_ctx *ctx, const pl_linear_args *a) {
    int64_t M = a->x.dim[0], K = a->w.dim[1], N = a->w.dim[0], pass = pl_pass_rows(ctx);
    size_t  mark = pl_arena_mark(&ctx->scratch);
    void   *room = pl_arena_alloc(&ctx->scratch, product_bytes(ctx, &a->w, M));
    if (a->w.data) pl_trail_read(&ctx->trail, &a->w, pl_panels_bytes(N, K, a->w.dtype));
    if (pl_ceil_div(N, PL_PANEL) > PL_CUDA_TICKETS)
        pl_ctx_fail(ctx, PL_E_UNSUPPORTED, "op linear: %lld output rows; the CUDA backend takes %d", (long long)N,
                    PL_CUDA_TICKETS * PL_PANEL);
    for (int64_t m = 0; m < M && !ctx->measuring && ctx->err.status == PL_OK; m += pass)
        product_of(ctx, pl_f32(&a->y) + m * N, pl_f32(&a->x) + m * K, (int)(M - m < pass ? M - m : pass), &a->w, room);
    pl_arena_release(&ctx->scratch, mark);
}

PL_CUDA_OP(linear_fwd) {
    const pl_linear_args *a = (const pl_linear_args *)args;
    int64_t               M = a->x.dim[0], K = a->w.dim[1], N = a->w.dim[0];
    if (a->w.layout == PL_PANELS)
        packed(ctx, a);
    else
        PL_CUDA(gemm)
    (ctx, "linear", pl_f32(&a->y), N, pl_rows_of(a->x.data, K, PL_F32), pl_weight_rows(&a->w, 0), M, N, K,
     pl_gemm_kind(&a->w));
}

PL_CUDA_OP(linear_bwd) {
    const pl_linear_args *a = (const pl_linear_args *)args;
    if (!a->y.grad) return;
    int64_t M = a->x.dim[0], K = a->w.dim[1], N = a->w.dim[0];
    int     how = pl_gemm_kind(&a->w) | PL_GEMM_ADD;
    if (a->x.grad) PL_CUDA(gemm)
    (ctx, "linear backward", pl_grad_f32(&a->x), K, pl_rows_of(a->y.grad, N, PL_F32), pl_weight_columns(&a->w, 0), M, K,
     N, how);
    if (a->w.grad) PL_CUDA(gemm)
    (ctx, "linear backward", pl_grad_f32(&a->w), K, pl_columns_of(a->y.grad, N, PL_F32),
     pl_columns_of(a->x.data, K, PL_F32), N, K, M, how);
}
