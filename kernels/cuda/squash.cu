// Squashing functions of some columns. One thread per element.
#include "kernels/cuda/launch.cuh"
extern "C" {
#include "kernels/op/squash.h"
}

struct squash {
    float       *y;
    const float *x;
    int64_t      rows, n, all, from, kind;
};

static __global__ void squash_kernel(squash a) {
    pl_previous_done();
    int64_t i = (int64_t)blockIdx.x * blockDim.x + threadIdx.x;
    if (i >= a.rows * a.n) return;
    float x = a.x[i / a.n * a.all + a.from + i % a.n];
    a.y[i] = a.kind == PL_SQUASH_TANH ? tanhf(x) : 1 / (1 + expf(a.kind == PL_SQUASH_SIGMOID ? -x : x));
}

static __global__ void squash_bwd_kernel(squash a, float *dx, const float *dy) {
    int64_t i = (int64_t)blockIdx.x * blockDim.x + threadIdx.x;
    if (i >= a.rows * a.n) return;
    float y = a.y[i], f = a.kind == PL_SQUASH_TANH ? 1 - y * y : y * (1 - y);
    dx[i / a.n * a.all + a.from + i % a.n] += a.kind == PL_SQUASH_REMAINDER ? -dy[i] * f : dy[i] * f;
}

static squash squash_of(const pl_squash_args *a) {
    return {pl_f32(&a->y), pl_f32(&a->x), a->y.dim[0], a->y.dim[1], a->x.dim[1], a->from, a->kind};
}

static pl_grid grid_of(const pl_squash_args *a) {
    return pl_grid(pl_ceil_div(pl_tensor_count(&a->y), PL_BLOCK));
}

PL_CUDA_OP(squash_fwd) {
    const pl_squash_args *a = (const pl_squash_args *)args;
    PL_OP_SKIP_IF_MEASURING(ctx);
    PL_LAUNCH_EARLY(ctx, "squash", squash_kernel, grid_of(a), PL_BLOCK, squash_of(a));
}

PL_CUDA_OP(squash_bwd) {
    const pl_squash_args *a = (const pl_squash_args *)args;
    PL_OP_SKIP_IF_MEASURING(ctx);
    if (!a->y.grad || !a->x.grad) return;
    PL_LAUNCH(ctx, "squash backward", squash_bwd_kernel, grid_of(a), PL_BLOCK, squash_of(a), pl_grad_f32(&a->x),
              pl_grad_f32(&a->y));
}
