// A list of row numbers, its entries grouped by row and ascending in each row: gradients of rows that occur more than
// once are then added in an order that the list alone fixes. Built by counting: work and memory grow with entries and
// rows, and with L^2 for a row of L entries.
#ifndef PL_CUDA_BYROW_CUH
#define PL_CUDA_BYROW_CUH

#include "kernels/cuda/launch.cuh"

constexpr int PL_PLACERS = 1024; // threads of the single block that sums counts

struct pl_by_row {
    int32_t *first; // [rows + 1] start of a row's entries; those from first[rows] on are invalid (id outside of 0 ..
                    // rows - 1)
    int32_t *entry; // [entries]
};

static __global__ void pl_no_counts_kernel(int32_t *count, int64_t rows) {
    int64_t i = (int64_t)blockIdx.x * blockDim.x + threadIdx.x;
    if (i < rows) count[i] = 0;
}

static __global__ void pl_count_rows_kernel(int32_t *count, const int32_t *id, int64_t entries, int64_t rows) {
    int64_t t = (int64_t)blockIdx.x * blockDim.x + threadIdx.x;
    if (t < entries && id[t] >= 0 && id[t] < rows) atomicAdd(&count[id[t]], 1);
}

// One block: sums the counts, and resets them to zero.
static __global__ void pl_place_rows_kernel(int32_t *first, int32_t *count, int64_t rows) {
    __shared__ int room[PL_WARP];
    int            base = 0;
    for (int64_t at = 0; at < rows; at += blockDim.x) {
        int64_t i = at + threadIdx.x;
        int     own = i < rows ? count[i] : 0, total, upto = pl_block_upto(own, room, &total);
        if (i < rows) {
            first[i] = base + upto - own;
            count[i] = 0;
        }
        base += total;
    }
    if (threadIdx.x == 0) first[rows] = base;
}

// Fills in any order; the next kernel sorts.
static __global__ void pl_fill_rows_kernel(int32_t *loose, int32_t *count, const int32_t *first, const int32_t *id,
                                           int64_t entries, int64_t rows) {
    int64_t t = (int64_t)blockIdx.x * blockDim.x + threadIdx.x;
    if (t < entries && id[t] >= 0 && id[t] < rows) loose[first[id[t]] + atomicAdd(&count[id[t]], 1)] = (int32_t)t;
}

static __global__ void pl_order_rows_kernel(int32_t *entry, const int32_t *loose, const int32_t *first,
                                            const int32_t *id, int64_t rows) {
    int64_t p = (int64_t)blockIdx.x * blockDim.x + threadIdx.x;
    if (p >= first[rows]) return;
    int32_t t = loose[p], from = first[id[t]], to = first[id[t] + 1], before = 0;
    for (int32_t q = from; q < to; q++)
        before += loose[q] < t;
    entry[from + before] = t;
}

// id [entries] in device memory; invalid ids are left out (the forward op has reported them). The result lies in ctx's
// scratch, with two lists more.
static inline pl_by_row pl_by_row_of(pl_ctx *ctx, const char *op, const int32_t *id, int64_t entries, int64_t rows) {
    pl_by_row b;
    b.first = (int32_t *)pl_arena_alloc(&ctx->scratch, ((size_t)rows + 1) * sizeof *b.first);
    b.entry = (int32_t *)pl_arena_alloc(&ctx->scratch, (size_t)entries * sizeof *b.entry);
    int32_t *count = (int32_t *)pl_arena_alloc(&ctx->scratch, (size_t)rows * sizeof *count);
    int32_t *loose = (int32_t *)pl_arena_alloc(&ctx->scratch, (size_t)entries * sizeof *loose);
    if (ctx->measuring) return b;
    pl_grid each = pl_grid(pl_ceil_div(entries, PL_BLOCK));
    PL_LAUNCH(ctx, op, pl_no_counts_kernel, pl_grid(pl_ceil_div(rows, PL_BLOCK)), PL_BLOCK, count, rows);
    PL_LAUNCH(ctx, op, pl_count_rows_kernel, each, PL_BLOCK, count, id, entries, rows);
    PL_LAUNCH(ctx, op, pl_place_rows_kernel, pl_grid(1), PL_PLACERS, b.first, count, rows);
    PL_LAUNCH(ctx, op, pl_fill_rows_kernel, each, PL_BLOCK, loose, count, b.first, id, entries, rows);
    PL_LAUNCH(ctx, op, pl_order_rows_kernel, each, PL_BLOCK, b.entry, loose, b.first, id, rows);
    return b;
}

#endif
