// Gradients: whether they are written or added to, and sums over the rows of a matrix, one per column, for parameters
// that all rows share (a norm's scale, a bias): chunks of PL_COLUMN_ROWS rows, rows ascending, then chunks ascending.
// The order depends on the number of rows alone.
#ifndef PL_CUDA_COLUMNS_CUH
#define PL_CUDA_COLUMNS_CUH

#include "kernels/cuda/launch.cuh"
extern "C" {
#include "kernels/tape.h"
}

constexpr int PL_COLUMN_ROWS = 64;

// Returns true if a tensor has a gradient to which nothing has been added: all of it is to be written (pl_tape_first).
static inline bool pl_is_first(pl_ctx *ctx, const pl_tensor *t) {
    return t->grad && pl_tape_first(ctx, t->grad, (size_t)pl_tensor_count(t) * sizeof(float));
}
// Makes an output's gradient readable.
static inline void pl_settle(pl_ctx *ctx, const pl_tensor *y) {
    if (y->grad) pl_tape_settle(ctx, y->grad, (size_t)pl_tensor_count(y) * sizeof(float));
}

static __device__ __forceinline__ void pl_put_or_add(float *to, float v, bool first) {
    *to = first ? v : *to + v;
}

// One thread per column and chunk. value(m, i): row m's contribution to column i.
template <typename V> static __global__ void pl_column_chunks_kernel(float *part, V value, int64_t rows, int64_t cols) {
    int64_t i = (int64_t)blockIdx.x * PL_BLOCK + threadIdx.x, m0 = (int64_t)blockIdx.y * PL_COLUMN_ROWS;
    int64_t end = rows - m0 < PL_COLUMN_ROWS ? rows : m0 + PL_COLUMN_ROWS;
    float   sum = 0;
    if (i >= cols) return;
    for (int64_t m = m0; m < end; m++)
        sum += value(m, i);
    part[blockIdx.y * cols + i] = sum;
}

static __global__ void pl_column_merge_kernel(float *to, const float *part, int64_t chunks, int64_t cols) {
    int64_t i = (int64_t)blockIdx.x * PL_BLOCK + threadIdx.x;
    if (i >= cols) return;
    float sum = 0;
    for (int64_t c = 0; c < chunks; c++)
        sum += part[c * cols + i];
    to[i] += sum;
}

// to[i] += sum over rows. Takes scratch, also on a measuring context.
template <typename V>
static void pl_column_sums(pl_ctx *ctx, const char *op, float *to, const V &value, int64_t rows, int64_t cols) {
    int64_t chunks = pl_ceil_div(rows, PL_COLUMN_ROWS), blocks = pl_ceil_div(cols, PL_BLOCK);
    size_t  mark = pl_arena_mark(&ctx->scratch);
    float  *part = (float *)pl_arena_alloc(&ctx->scratch, pl_size_mul((size_t)chunks, (size_t)cols, sizeof *part));
    if (!ctx->measuring) {
        PL_LAUNCH(ctx, op, pl_column_chunks_kernel<V>, pl_grid(blocks, chunks), PL_BLOCK, part, value, rows, cols);
        PL_LAUNCH(ctx, op, pl_column_merge_kernel, pl_grid(blocks), PL_BLOCK, to, part, chunks, cols);
    }
    pl_arena_release(&ctx->scratch, mark);
}

#endif
