#include "kernels/cuda/gemm.cuh"
#include "kernels/cuda/panel.cuh"
extern "C" {
#include "kernels/op/linear.h"
}

// One block per panel and slice. With several slices the blocks leave their sums in `part` [slices, rows, N]; the last
// to finish a panel adds them in order, so which one that is does not show in the result.
template <int NB>
static __global__ void __launch_bounds__(PL_BLOCK) panel_kernel(float *y, float *part, const uint8_t *w, const float *x,
                                                                int rows, int64_t N, int64_t K, unsigned *ticket) {
    __shared__ unsigned last;
    int64_t             panel = blockIdx.x, slice = blockIdx.y, n0 = panel * PL_PANEL, slices = gridDim.y;
    int64_t             k0 = slice * PL_SLICE, k1 = k0 + PL_SLICE < K ? k0 + PL_SLICE : K;
    float              *out = slices == 1 ? y : part + slice * rows * N;
    pl_panel_slice<NB>(w + panel * K * PL_PANEL * 2, x, rows, K, k0, k1, [&](int row, int m, float sum) {
        if (n0 + row < N) out[m * N + n0 + row] = sum;
    });
    if (slices == 1) return;
    __threadfence();
    __syncthreads();
    if (threadIdx.x == 0) last = atomicAdd(&ticket[panel], 1) == (unsigned)slices - 1;
    __syncthreads();
    if (!last) return;
    __threadfence();
    for (int o = (int)threadIdx.x; o < rows * PL_PANEL; o += PL_BLOCK) {
        int64_t m = o / PL_PANEL, n = n0 + o % PL_PANEL;
        if (n >= N) continue;
        float sum = 0;
        for (int64_t s = 0; s < slices; s++)
            sum += pl_load_fresh(&part[(s * rows + m) * N + n]);
        y[m * N + n] = sum;
    }
    if (threadIdx.x == 0) ticket[panel] = 0;
}

static __global__ void __launch_bounds__(PL_BLOCK)
    chain_kernel(float *y, const uint8_t *w, const float *x, int rows, int64_t N, int64_t K) {
    int64_t panel = blockIdx.x, n0 = panel * PL_PANEL;
    pl_panel_chain(w + panel * K * PL_PANEL * 4, x, rows, K, [&](int row, int m, float sum) {
        if (n0 + row < N) y[m * N + n0 + row] = sum;
    });
}

// Rows in blocks of 64.
static void packed(pl_ctx *ctx, const pl_linear_args *a) {
    int64_t M = a->x.dim[0], K = a->w.dim[1], N = a->w.dim[0], panels = pl_ceil_div(N, PL_PANEL);
    int64_t slices = pl_ceil_div(K, PL_SLICE), most = M < PL_ROWS ? M : PL_ROWS;
    bool    bf16 = a->w.dtype == PL_BF16;
    size_t  mark = pl_arena_mark(&ctx->scratch);
    float  *part = NULL;
    if (bf16 && slices > 1)
        part = (float *)pl_arena_alloc(&ctx->scratch, pl_size_mul((size_t)(slices * most), (size_t)N, sizeof(float)));
    if (panels > PL_CUDA_TICKETS)
        pl_ctx_fail(ctx, PL_E_UNSUPPORTED, "op linear: %lld output rows; the CUDA backend takes %d", (long long)N,
                    PL_CUDA_TICKETS * PL_PANEL);
    const uint8_t *w = (const uint8_t *)a->w.data;
    pl_grid        grid(panels, bf16 ? slices : 1);
    for (int64_t m0 = 0; m0 < M && !ctx->measuring && ctx->err.status == PL_OK; m0 += PL_ROWS) {
        int          rows = (int)(M - m0 < PL_ROWS ? M - m0 : PL_ROWS);
        float       *y = pl_f32(&a->y) + m0 * N;
        const float *x = pl_f32(&a->x) + m0 * K;
        unsigned    *ticket = pl_cuda_state_of(ctx)->ticket;
        if (!bf16)
            PL_LAUNCH(ctx, "linear", chain_kernel, grid, PL_BLOCK, y, w, x, rows, N, K);
        else if (pl_column_blocks(rows) == 1)
            PL_LAUNCH(ctx, "linear", panel_kernel<1>, grid, PL_BLOCK, y, part, w, x, rows, N, K, ticket);
        else if (pl_column_blocks(rows) == 2)
            PL_LAUNCH(ctx, "linear", panel_kernel<2>, grid, PL_BLOCK, y, part, w, x, rows, N, K, ticket);
        else if (pl_column_blocks(rows) == 4)
            PL_LAUNCH(ctx, "linear", panel_kernel<4>, grid, PL_BLOCK, y, part, w, x, rows, N, K, ticket);
        else
            PL_LAUNCH(ctx, "linear", panel_kernel<8>, grid, PL_BLOCK, y, part, w, x, rows, N, K, ticket);
    }
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
    if (a->x.grad)
        PL_CUDA(gemm)
        (ctx, "linear backward", pl_grad_f32(&a->x), K, pl_rows_of(a->y.grad, N, PL_F32), pl_weight_columns(&a->w, 0),
         M, K, N, how);
    if (a->w.grad)
        PL_CUDA(gemm)
        (ctx, "linear backward", pl_grad_f32(&a->w), K, pl_columns_of(a->y.grad, N, PL_F32),
         pl_columns_of(a->x.data, K, PL_F32), N, K, M, how);
}
