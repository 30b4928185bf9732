// The grouped dynamic convolution of a block's slots: one thread per element, forward and for dx; one per dynamic
// weight; column sums for the base.
#include "kernels/cuda/columns.cuh"
extern "C" {
#include "kernels/op/blockconv.h"
}

struct blockconv {
    const float                     *x, *base, *kernel; // base and kernel of the side
    int64_t                          M, H, G, width;    // width: of a row of kernels
    int64_t                          block, group, taps;
    __device__ __forceinline__ float weight(int64_t m, int64_t o, int64_t c) const {
        return base[o * H + c] + kernel[m * width + o * G + c / group];
    }
};

static __global__ void blockconv_kernel(float *y, blockconv a) {
    pl_previous_done();
    int64_t i = (int64_t)blockIdx.x * PL_BLOCK + threadIdx.x, m = i / a.H, c = i % a.H;
    if (m >= a.M) return;
    float sum = a.weight(m, 0, c) * a.x[i];
    for (int64_t o = 1; o < a.taps && o <= m % a.block; o++)
        sum += a.weight(m, o, c) * a.x[i - o * a.H];
    y[i] = sum;
}

// x[m] contributed to rows m, m + 1, ... of the block by taps 0, 1, ...
static __global__ void blockconv_dx_kernel(float *dx, const float *dy, blockconv a) {
    int64_t i = (int64_t)blockIdx.x * PL_BLOCK + threadIdx.x, m = i / a.H, c = i % a.H;
    if (m >= a.M) return;
    float sum = dx[i];
    for (int64_t o = 0; o < a.taps && m % a.block + o < a.block; o++)
        sum += dy[i + o * a.H] * a.weight(m + o, o, c);
    dx[i] = sum;
}

static __global__ void blockconv_dkernel_kernel(float *dkernel, const float *dy, blockconv a) {
    int64_t i = (int64_t)blockIdx.x * PL_BLOCK + threadIdx.x, m = i / (a.taps * a.G), at = i % (a.taps * a.G);
    int64_t o = at / a.G, c = at % a.G * a.group;
    if (m >= a.M || o > m % a.block) return;
    float sum = 0;
    for (int k = 0; k < a.group; k++)
        sum += dy[m * a.H + c + k] * a.x[(m - o) * a.H + c + k];
    dkernel[m * a.width + at] += sum;
}

// Contribution of row m to a weight of the base.
struct blockconv_row {
    const float     *dy, *x;
    int64_t          H;
    int              block;
    __device__ float operator()(int64_t m, int64_t i) const {
        int64_t o = i / H, c = i % H;
        return o <= m % block ? dy[m * H + c] * x[(m - o) * H + c] : 0;
    }
};

static blockconv blockconv_of(const pl_blockconv_args *a) {
    int64_t H = a->x.dim[1], G = H / a->group, first = (int64_t)a->side * a->taps;
    return {pl_f32(&a->x),
            pl_f32(&a->base) + first * H,
            pl_f32(&a->kernel) + first * G,
            a->x.dim[0],
            H,
            G,
            a->kernel.dim[1],
            a->block,
            a->group,
            a->taps};
}

PL_CUDA_OP(blockconv_fwd) {
    const pl_blockconv_args *a = (const pl_blockconv_args *)args;
    PL_OP_SKIP_IF_MEASURING(ctx);
    pl_grid grid(pl_ceil_div(pl_tensor_count(&a->y), PL_BLOCK));
    PL_LAUNCH_EARLY(ctx, "blockconv", blockconv_kernel, grid, PL_BLOCK, pl_f32(&a->y), blockconv_of(a));
}

PL_CUDA_OP(blockconv_bwd) {
    const pl_blockconv_args *a = (const pl_blockconv_args *)args;
    const char              *op = "blockconv backward";
    int64_t                  H = a->x.dim[1], G = H / a->group, first = (int64_t)a->side * a->taps;
    if (!a->y.grad) return;
    const float *dy = pl_grad_f32(&a->y);
    if (!ctx->measuring) {
        pl_grid   each(pl_ceil_div(pl_tensor_count(&a->x), PL_BLOCK));
        pl_grid   weights(pl_ceil_div(a->x.dim[0] * a->taps * G, PL_BLOCK));
        blockconv b = blockconv_of(a);
        if (a->x.grad) PL_LAUNCH(ctx, op, blockconv_dx_kernel, each, PL_BLOCK, pl_grad_f32(&a->x), dy, b);
        if (a->kernel.grad)
            PL_LAUNCH(ctx, op, blockconv_dkernel_kernel, weights, PL_BLOCK, pl_grad_f32(&a->kernel) + first * G, dy, b);
    }
    if (a->base.grad)
        pl_column_sums(ctx, op, pl_grad_f32(&a->base) + first * H, blockconv_row{dy, pl_f32(&a->x), H, a->block},
                       a->x.dim[0], a->taps * H);
}
