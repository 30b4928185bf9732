#include "kernels/cuda/columns.cuh"
#include "kernels/cuda/gemm.cuh"
#include "kernels/cuda/panel.cuh"
#include "kernels/cuda/slices.cuh"
extern "C" {
#include "kernels/op/linear.h"
#include "kernels/panels.h"
}

// If a matrix has so many units that each block gets several of a slice (`whole`), a block keeps its panels and goes
// through the slices in order, adding to y. Otherwise blocks share panels: they write their sums to `part` [slices,
// pairs of panels, rows, 128], and the next launch adds them in order (slices.cuh). Both add the same numbers in the
// same order. (Adding other blocks' sums behind a fence stalls the weights in flight: 5 us of a product on an H100.)
constexpr int WHOLE = 4; // least pairs of panels per block for `whole`

static constexpr int64_t most_shared(int64_t blocks) {
    return WHOLE * blocks - 1; // pairs
}

namespace {
struct product {
    typedef pl_panel_source source_type;
    static constexpr bool   KEEPS = false;
    float                  *y, *part;
    const uint8_t          *w;
    const float            *x;
    const uint16_t         *rounded;
    int64_t                 N, K;
    int32_t                 panels, slices, rows, whole;
    uint32_t                pair0, own; // a block's units go slice by slice, `own` pairs from `pair0` on: all, or its
                                        // own

    struct unit_type {
        int slice, pair;
    };
    __device__ __forceinline__ unit_type unit(int64_t j) const {
        const uint32_t slice = (uint32_t)j / own; // in 32 bits: a division in 64 is a hundred instructions
        return unit_type{(int)slice, (int)((uint32_t)j - slice * own)};
    }
    __device__ __forceinline__ int panel_of(const unit_type &u, int group) const { // -1: the last pair has a single
                                                                                   // panel
        const int at = ((int)pair0 + u.pair) * PL_GROUPS + group;
        return at >= panels ? -1 : at;
    }
    __device__ __forceinline__ pl_panel_source source(const unit_type &u, int group) const {
        int panel = panel_of(u, group);
        if (panel < 0) panel = panel_of(u, 0); // read twice, stored once
        return pl_panel_source{(const uint4 *)(w + panel * ((K + 1) / 2) * PL_PANEL * 4)};
    }
    __device__ __forceinline__ float before(const unit_type &u, int group, int row, int m) const {
        if (!whole || u.slice == 0) return 0;
        const int     panel = panel_of(u, group);
        const int64_t n = (int64_t)panel * PL_PANEL + row;
        return panel >= 0 && n < N ? y[m * N + n] : 0;
    }
    __device__ __forceinline__ void emit(const unit_type &u, int group, int row, int m, float sum, float before) const {
        const int     panel = panel_of(u, group);
        const int64_t n = (int64_t)panel * PL_PANEL + row;
        if (slices > 1 && !whole) {
            part[(((int64_t)u.slice * own + u.pair) * rows + m) * PL_UNIT + group * PL_PANEL + row] = sum;
        } else if (panel >= 0 && n < N) {
            y[m * N + n] = u.slice ? before + sum : sum;
        }
    }
    __device__ __forceinline__ float4 before_four(const unit_type &u, int group, int row, int m) const {
        const int     panel = panel_of(u, group);
        const int64_t n = (int64_t)panel * PL_PANEL + row;
        if (!whole || u.slice == 0 || panel < 0 || n >= N) return float4{};
        const float *from = &y[m * N + n];
        if (fours()) return *(const float4 *)from;
        float v[4] = {};
        for (int e = 0; e < 4 && n + e < N; e++)
            v[e] = from[e];
        return float4{v[0], v[1], v[2], v[3]};
    }
    __device__ __forceinline__ void emit_four(const unit_type &u, int group, int row, int m, const float4 &sum,
                                              float4 before) const {
        if (slices > 1 && !whole) {
            *(float4 *)&part[(((int64_t)u.slice * own + u.pair) * rows + m) * PL_UNIT + group * PL_PANEL + row] = sum;
            return;
        }
        pl_add(before, sum);
        put(u.pair, m, group * PL_PANEL + row, before);
    }
    template <int NB> __device__ __forceinline__ void done(const unit_type &, const float *) const {}
    // Returns true if four columns from a multiple of four on are 16-byte aligned in y.
    __device__ __forceinline__ bool fours() const { return N % 4 == 0 && (uintptr_t)y % sizeof(float4) == 0; }
    // Fours of a pair's columns, and the position of a slice's part.
    static_assert(PL_UNIT == PL_SLICED_COLUMNS, "as pl_slices has them");
    static constexpr int              FOURS = PL_UNIT / 4;
    __device__ __forceinline__ float4 part_at(int64_t slice, int pair, int o) const {
        return ((const float4 *)part)[(slice * own + pair) * rows * FOURS + o];
    }
    __device__ __forceinline__ void put(int pair, int m, int at, const float4 &sum) const {
        const int     panel = panel_of(unit_type{0, pair}, at / PL_PANEL);
        const int64_t n = (int64_t)panel * PL_PANEL + at % PL_PANEL;
        if (panel < 0 || n >= N) return;
        float *to = &y[m * N + n];
        if (fours()) {
            *(float4 *)to = sum;
            return;
        }
        const float v[4] = {sum.x, sum.y, sum.z, sum.w};
        for (int e = 0; e < 4 && n + e < N; e++)
            to[e] = v[e];
    }
    // Adds the o-th four of a pair's rows.
    __device__ __forceinline__ void add_four(int pair, int o) const {
        float4 sum = {0, 0, 0, 0};
#pragma unroll 8
        for (int s = 0; s < slices; s++) {
            const float4 v = part_at(s, pair, o);
            sum.x += v.x, sum.y += v.y, sum.z += v.z, sum.w += v.w;
        }
        put(pair, o / FOURS, o % FOURS * 4, sum);
    }
};
} // namespace

template <int NB> static __global__ void __launch_bounds__(PL_BLOCK, pl_bound(NB)) panel_kernel(product p) {
    pl_room<NB>  &room = *(pl_room<NB> *)pl_dynamic_shared();
    const int64_t b = blockIdx.x, blocks = gridDim.x, pairs = p.own;
    int64_t       first = b * pairs * p.slices / blocks, end = (b + 1) * pairs * p.slices / blocks;
    if (p.whole) {
        p.pair0 = (uint32_t)(b * pairs / blocks);
        p.own = (uint32_t)((b + 1) * pairs / blocks) - p.pair0;
        first = 0, end = (int64_t)p.own * p.slices;
    }
    if constexpr (pl_has_room(sizeof(pl_room<NB>))) pl_stream<NB>(room, p, first, end);
}

// Grid: pairs of panels, fours of their rows.
static __global__ void __launch_bounds__(PL_BLOCK) sum_kernel(product p) {
    pl_previous_done();
    const int o = (int)blockIdx.y * PL_BLOCK + (int)threadIdx.x;
    if (o < p.rows * product::FOURS) p.add_four((int)blockIdx.x, o);
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

// Sets all but weights, arguments and the blocks' shares.
static product product_for(float *y, void *part, int64_t N, int64_t K, int rows) {
    product p = {};
    p.y = y, p.part = (float *)part, p.N = N, p.K = K, p.rows = rows;
    p.panels = (int32_t)pl_ceil_div(N, PL_PANEL), p.slices = (int32_t)pl_ceil_div(K, PL_SLICE);
    p.own = (uint32_t)pl_ceil_div(N, PL_UNIT);
    return p;
}

static void sum_slices(pl_ctx *ctx, const product &p) {
    PL_LAUNCH_EARLY(ctx, "linear", sum_kernel, pl_grid(p.own, pl_ceil_div((int64_t)p.rows * product::FOURS, PL_BLOCK)),
                    PL_BLOCK, p);
}

extern "C" void PL_CUDA(add_slices)(pl_ctx *ctx, const pl_cuda_slices *left) {
    sum_slices(ctx, product_for(left->y, (void *)left->part, left->columns, (int64_t)left->n * PL_SLICE, left->rows));
}

// Returns the scratch of product_of, enough for `rows` rows or fewer at a time.
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
    p.w = of, p.x = x;
    p.rounded = pl_rounded_of(known, x, rows, K);
    p.whole = p.own > most_shared(blocks);
    auto kernel = nb == 1 ? panel_kernel<1> : nb == 2 ? panel_kernel<2> : nb == 4 ? panel_kernel<4> : panel_kernel<8>;
    PL_LAUNCH_EARLY_ROOM(ctx, "linear", kernel, pl_grid(blocks), PL_BLOCK, pl_room_bytes(nb), p);
    if (p.slices > 1 && !p.whole) {
        if (PL_CUDA(unseen)(ctx))
            pl_cuda_state_of(ctx)->slices = pl_cuda_slices{y, p.part, N, rows, p.slices};
        else
            sum_slices(ctx, p);
    }
    if (p.rounded)
        pl_cuda_state_of(ctx)->rounded = known; // y is elsewhere: x stays valid for the next rows or the
                                                // next weight
}

// Computes rows in passes of at most 64.
static void packed(pl_ctx *ctx, const pl_linear_args *a) {
    int64_t M = a->x.dim[0], K = a->w.dim[1], N = a->w.dim[0], pass = pl_pass_rows(ctx);
    size_t  mark = pl_arena_mark(&ctx->scratch);
    void   *room = pl_arena_alloc(&ctx->scratch, product_bytes(ctx, &a->w, M));
    for (int64_t m = 0; m < M && !ctx->measuring; m += pass)
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
    const char *op = "linear backward";
    int64_t     M = a->x.dim[0], K = a->w.dim[1], N = a->w.dim[0];
    int         how = pl_gemm_kind(&a->w);
    size_t      mark = pl_arena_mark(&ctx->scratch);
    pl_operand  dy = pl_rows_of(a->y.grad, N, PL_F32);
    pl_settle(ctx, &a->y);
    // Rounded once for both products.
    if (a->x.grad && a->w.grad && how & PL_GEMM_BF16 && PL_CUDA(narrows)(ctx, M, K, N))
        dy = PL_CUDA(narrowed)(ctx, op, dy, M, N);
    const pl_operand across = {dy.data, 1, dy.row, dy.bf16, NULL};
    if (a->x.grad) PL_CUDA(gemm)
    (ctx, op, pl_grad_f32(&a->x), K, dy, pl_weight_columns(&a->w, 0), M, K, N,
     how | (pl_is_first(ctx, &a->x) ? 0 : PL_GEMM_ADD));
    if (a->w.grad) PL_CUDA(gemm)
    (ctx, op, pl_grad_f32(&a->w), K, across, pl_columns_of(a->x.data, K, PL_F32), N, K, M,
     how | (pl_is_first(ctx, &a->w) ? 0 : PL_GEMM_ADD));
    pl_arena_release(&ctx->scratch, mark);
}
