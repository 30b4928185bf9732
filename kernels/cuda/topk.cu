#include "kernels/cuda/select.cuh"
extern "C" {
#include "kernels/op/topk.h"
}

// The first round, from logits: chunk blockIdx.x of row blockIdx.y. Keys hold columns, so that of equal values the
// earlier column comes first, whatever its name.
template <bool FEW>
static __global__ void __launch_bounds__(PL_BLOCK)
    first_kernel(pl_key *out, int32_t *id, float *value, const float *x, pl_names names, int64_t V, int k,
                 pl_cuda_fault *fault) {
    pl_previous_done();
    const int64_t row = blockIdx.y;
    x += row * V;
    auto key = [&](int64_t v) {
        const float z = x[v];
        if (isnan(z)) atomicMin(&fault->nan, (unsigned long long)row << 32 | (uint32_t)names.of(row, (int32_t)v));
        return pl_key_of(z, (uint32_t)v);
    };
    pl_keep_best<FEW>(key, V, out, id, value, k, names);
}

// One block per row, the row's ids dealt to threads in turn: an order that V alone fixes.
static __global__ void lse_kernel(float *lse, const float *x, int64_t V) {
    pl_previous_done();
    __shared__ float room[PL_WARP];
    x += blockIdx.x * V;
    float max = -INFINITY, sum = 0;
    for (int64_t v = threadIdx.x; v < V; v += PL_BLOCK)
        max = fmaxf(max, x[v]);
    max = pl_block_max(max, room);
    for (int64_t v = threadIdx.x; v < V && !isinf(max); v += PL_BLOCK)
        sum += expf(x[v] - max);
    sum = pl_block_sum(sum, room);
    if (threadIdx.x == 0) lse[blockIdx.x] = isinf(max) ? max : max + logf(sum);
}

PL_CUDA_OP(topk_fwd) {
    const pl_topk_args *a = (const pl_topk_args *)args;
    constexpr int       ROWS = 4096;
    int64_t             M = a->x.dim[0], V = a->x.dim[1], most = M < ROWS ? M : ROWS;
    int64_t             chunks = pl_ceil_div(V, pl_chunk_of(a->k));
    size_t              mark = pl_arena_mark(&ctx->scratch);
    pl_key             *one = (pl_key *)pl_arena_alloc(&ctx->scratch, pl_select_bytes(most, V, a->k));
    pl_key             *two = (pl_key *)pl_arena_alloc(&ctx->scratch, pl_select_bytes(most, chunks * a->k, a->k));
    pl_key             *three = (pl_key *)pl_arena_alloc(&ctx->scratch, pl_select_bytes(most, chunks * a->k, a->k));
    auto                kernel = a->k <= PL_FEW_BEST ? first_kernel<true> : first_kernel<false>;
    for (int64_t m = 0; m < M && !ctx->measuring; m += ROWS) {
        int64_t      rows = M - m < ROWS ? M - m : ROWS;
        const float *x = pl_f32(&a->x) + m * V;
        pl_names     names = {a->name ? a->name + m * V : NULL, V};
        float       *value = a->value ? a->value + m * a->k : NULL;
        int32_t     *id = a->id + m * a->k;
        PL_LAUNCH_EARLY(ctx, "topk", kernel, pl_grid(chunks, rows), PL_BLOCK, one, id, value, x, names, V, a->k,
                        pl_cuda_state_of(ctx)->fault);
        if (chunks > 1) pl_select(ctx, "topk", id, value, one, two, three, rows, chunks * a->k, a->k, names);
        if (a->lse) PL_LAUNCH_EARLY(ctx, "topk", lse_kernel, pl_grid(rows), PL_BLOCK, a->lse + m, x, V);
    }
    pl_arena_release(&ctx->scratch, mark);
}
