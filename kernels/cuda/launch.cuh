// Base of every launcher of kernels/cuda: an op's function relies on its builder's checks, computes a grid and queues
// kernels on the context's stream.
#ifndef PL_CUDA_LAUNCH_CUH
#define PL_CUDA_LAUNCH_CUH

extern "C" {
#include "kernels/base/check.h"
#include "kernels/cuda/state.h"
}
#include "kernels/cuda/device.cuh"
#include <tuple>
#include <utility>

// PL_CUDA_OP(linear_fwd) { ... }: defines the function that the backend's table names.
#define PL_CUDA_OP(name)                                                                                               \
    extern "C" void PL_CUDA(name)(pl_ctx * ctx, const void *args);                                                     \
    extern "C" void PL_CUDA(name)(pl_ctx * ctx, const void *args)

// A GPU faults by itself; other devices define their own check of kernels' arguments before this file.
#ifdef __CUDACC__
template <typename... P> static inline void pl_check_arguments(pl_ctx *, const pl_cuda_launch *, const P &...) {}
#endif

struct pl_grid {
    int64_t n[3];
    pl_grid(int64_t x, int64_t y = 1, int64_t z = 1) : n{x, y, z} {}
};

// A kernel with its arguments, converted to its parameters' types. In an anonymous namespace: a program may contain
// this folder for the real device and for the emulated one, and the linker would merge their functions.
namespace {
template <typename... P> struct pl_call {
    std::tuple<P...>                   value;
    template <size_t... I> static void thread(void (*kernel)(P...), void **arg, std::index_sequence<I...>) {
        kernel(*(P *)arg[I]...);
    }
    static void thread_of(const void *kernel, void **arg) {
        thread((void (*)(P...))(uintptr_t)kernel, arg, std::index_sequence_for<P...>());
    }
    template <size_t... I> void submit(pl_ctx *ctx, pl_cuda_launch *l, std::index_sequence<I...>) {
        void        *arg[] = {(void *)&std::get<I>(value)...};
        const size_t size[] = {sizeof(P)...};
        l->arg = arg, l->size = size, l->n_args = (int)sizeof...(P);
        pl_check_arguments(ctx, l, std::get<I>(value)...);
        PL_CUDA(launch)(ctx, l);
    }
};
} // namespace

template <typename... P, typename... A>
static inline void pl_launch(pl_ctx *ctx, const char *op, void (*kernel)(P...), const pl_grid &grid, int threads,
                             size_t room, bool early, A... a) {
    if (!PL_CUDA(may_launch)(ctx, op, grid.n, threads)) return;
    pl_call<P...>  call = {std::tuple<P...>(static_cast<P>(a)...)};
    pl_cuda_launch l = {};
    l.kernel = (const void *)(uintptr_t)kernel;
    l.call = pl_call<P...>::thread_of;
    for (int i = 0; i < 3; i++)
        l.grid[i] = (unsigned)grid.n[i];
    l.threads = (unsigned)threads;
    l.room = room;
    l.early = early;
    call.submit(ctx, &l, std::index_sequence_for<P...>());
}

// PL_LAUNCH(ctx, "linear", kernel, grid, threads, arguments...): does nothing on a failed context or an empty grid.
// PL_LAUNCH_EARLY: for kernels that call pl_previous_done; _ROOM with bytes of dynamic shared memory after the threads.
#define PL_LAUNCH(ctx, op, kernel, grid, threads, ...) pl_launch(ctx, op, kernel, grid, threads, 0, false, __VA_ARGS__)
#define PL_LAUNCH_EARLY(ctx, op, kernel, grid, threads, ...)                                                           \
    pl_launch(ctx, op, kernel, grid, threads, 0, true, __VA_ARGS__)
#define PL_LAUNCH_EARLY_ROOM(ctx, op, kernel, grid, threads, room, ...)                                                \
    pl_launch(ctx, op, kernel, grid, threads, room, true, __VA_ARGS__)

// Returns an index array of n elements in the form that kernels read (state.h).
template <typename T> static inline const T *pl_index(pl_ctx *ctx, const T *p, int64_t n) {
    return (const T *)PL_CUDA(index)(ctx, p, (size_t)n * sizeof(T));
}

static inline int64_t pl_ceil_div(int64_t n, int64_t d) {
    return (n + d - 1) / d;
}

static inline float *pl_grad_f32(const pl_tensor *t) {
    return (float *)t->grad;
}

#endif
