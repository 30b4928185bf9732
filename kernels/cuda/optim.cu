// adamw in one pass, and the squared norm.
#include "kernels/cuda/launch.cuh"
extern "C" {
#include "kernels/op/adamw.h"
}

struct adamw_step { // in fp32, as ref rounds them
    float b1, b2, a1, a2, c1, c2, lr, eps, decay, scale;
    bool  round;
};

static __global__ void adamw_kernel(float *w, float *m, float *v, float *work, uint16_t *work16, const float *grad,
                                    int64_t n, adamw_step s) {
    int64_t i = (int64_t)blockIdx.x * blockDim.x + threadIdx.x;
    if (i >= n) return;
    float g = grad[i] * s.scale, mi = s.b1 * m[i] + s.a1 * g, vi = s.b2 * v[i] + s.a2 * g * g;
    float wi = w[i] - s.lr * (mi / s.c1 / (sqrtf(vi / s.c2) + s.eps) + s.decay * w[i]);
    m[i] = mi;
    v[i] = vi;
    w[i] = wi;
    work[i] = s.round ? pl_narrowed(wi) : wi;
    if (work16) work16[i] = (uint16_t)pl_pack_bf16(wi, 0);
}

PL_CUDA_OP(adamw_fwd) {
    const pl_adamw_args *a = (const pl_adamw_args *)args;
    PL_OP_SKIP_IF_MEASURING(ctx);
    adamw_step s;
    s.b1 = (float)a->beta1, s.b2 = (float)a->beta2, s.a1 = (float)(1 - a->beta1), s.a2 = (float)(1 - a->beta2);
    s.c1 = (float)(1 - pow(a->beta1, (double)a->step)), s.c2 = (float)(1 - pow(a->beta2, (double)a->step));
    s.lr = (float)a->lr, s.eps = (float)a->eps, s.decay = (float)a->decay, s.scale = (float)a->grad_scale;
    s.round = a->round_to == PL_BF16;
    PL_LAUNCH(ctx, "adamw", adamw_kernel, pl_grid(pl_ceil_div(a->n, PL_BLOCK)), PL_BLOCK, (float *)a->w, (float *)a->m,
              (float *)a->v, (float *)a->work, a->work16, (const float *)a->grad, a->n, s);
}

// One block per chunk.
static __global__ void chunk_kernel(double *sum, const float *x, int64_t n) {
    __shared__ double room[PL_WARP];
    int64_t           from = (int64_t)blockIdx.x * PL_SUMSQ_CHUNK;
    int64_t           to = n - from < PL_SUMSQ_CHUNK ? n : from + PL_SUMSQ_CHUNK;
    double            s = 0;
    for (int64_t i = from + threadIdx.x; i < to; i += blockDim.x)
        s += (double)x[i] * (double)x[i];
    s = pl_block_sum(s, room);
    if (threadIdx.x == 0) sum[blockIdx.x] = s;
}

// pl_sumsq_tree by one block.
static __global__ void tree_kernel(double *out, double *sum, int64_t chunks) {
    for (int64_t step = 1; step < chunks; step *= 2) {
        for (int64_t c = 2 * step * threadIdx.x; c + step < chunks; c += 2 * step * blockDim.x)
            sum[c] += sum[c + step];
        __syncthreads();
    }
    if (threadIdx.x == 0) *out = chunks ? sum[0] : 0;
}

PL_CUDA_OP(sumsq_fwd) {
    const pl_sumsq_args *a = (const pl_sumsq_args *)args;
    int64_t              chunks = pl_ceil_div(a->n, PL_SUMSQ_CHUNK);
    size_t               mark = pl_arena_mark(&ctx->scratch);
    double              *sum = a->chunks;
    if (!sum) sum = (double *)pl_arena_alloc(&ctx->scratch, pl_size_mul((size_t)chunks, sizeof *sum, 1));
    if (!ctx->measuring) {
        PL_LAUNCH(ctx, "sumsq", chunk_kernel, pl_grid(chunks), PL_BLOCK, sum, (const float *)a->x, a->n);
        if (!a->chunks) PL_LAUNCH(ctx, "sumsq", tree_kernel, pl_grid(1), PL_BLOCK, a->out, sum, chunks);
    }
    pl_arena_release(&ctx->scratch, mark);
}
