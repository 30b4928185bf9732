// What every launcher of kernels/cuda starts from: an op's function checks nothing that its builder has checked, works
// out a grid and queues kernels on the context's stream.
#ifndef PL_CUDA_LAUNCH_CUH
#define PL_CUDA_LAUNCH_CUH

extern "C" {
#include "kernels/base/check.h"
#include "kernels/cuda/state.h"
}
#include "kernels/cuda/device.cuh"

// PL_CUDA_OP(linear_fwd) { ... }: the function that the backend's table names.
#define PL_CUDA_OP(name)                                                                                               \
    extern "C" void PL_CUDA(name)(pl_ctx * ctx, const void *args);                                                     \
    extern "C" void PL_CUDA(name)(pl_ctx * ctx, const void *args)

struct pl_grid {
    int64_t n[3];
    pl_grid(int64_t x, int64_t y = 1, int64_t z = 1) : n{x, y, z} {}
};

// PL_LAUNCH(ctx, "linear", kernel, grid, threads, arguments...): nothing on a failed context or an empty grid.
#ifdef __CUDACC__
#define PL_LAUNCH_AT(ctx, op, kernel, grid, threads, ...)                                                              \
    kernel<<<grid, threads, 0, (cudaStream_t)pl_cuda_state_of(ctx)->stream>>>(__VA_ARGS__)
#else
#define PL_LAUNCH_AT(ctx, op, kernel, grid, threads, ...)                                                              \
    pl_emu_submit(                                                                                                     \
        pl_cuda_state_of(ctx)->stream, op, grid, dim3((unsigned)(threads)), [=](auto... pl_a_) { kernel(pl_a_...); },  \
        __VA_ARGS__)
#endif
#define PL_LAUNCH(ctx, op, kernel, grid, threads, ...)                                                                 \
    do {                                                                                                               \
        pl_grid pl_grid_ = grid;                                                                                       \
        if (PL_CUDA(may_launch)(ctx, op, pl_grid_.n, threads)) {                                                       \
            dim3 pl_dim_((unsigned)pl_grid_.n[0], (unsigned)pl_grid_.n[1], (unsigned)pl_grid_.n[2]);                   \
            PL_LAUNCH_AT(ctx, op, kernel, pl_dim_, threads, __VA_ARGS__);                                              \
            PL_CUDA(launched)(ctx);                                                                                    \
        }                                                                                                              \
    } while (0)

static inline int64_t pl_ceil_div(int64_t n, int64_t d) {
    return (n + d - 1) / d;
}

static inline float *pl_grad_f32(const pl_tensor *t) {
    return (float *)t->grad;
}

#endif
