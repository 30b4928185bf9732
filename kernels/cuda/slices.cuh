// A product whose slices have not been added yet.
//
// Blocks that share panels write their sums by slices (linear.cu), and another launch adds them: it reads them from the
// L2 cache and writes y, which the next launch reads again. If that next launch can, it adds them itself: the context
// remembers the slices (state.h, pl_cuda_slices) until the next launch, copy, wait or branch. rmsnorm, rope and swiglu
// of exactly these rows take them (pl_take_slices), add in the same order and also write y, so that the bits are the
// same; before anything else sum_kernel is launched (PL_CUDA(settle)). The slices in scratch are not overwritten until
// then, as any writer launches first. If results may be read as soon as their op returns (PL_CUDA(unseen) is false), no
// slices are left.
#ifndef PL_CUDA_SLICES_CUH
#define PL_CUDA_SLICES_CUH

#include "kernels/cuda/launch.cuh"

constexpr int PL_SLICED_COLUMNS = 128; // contiguous columns of a row: a pair of panels

// Slices as kernels read them: [n][pairs][rows][128].
struct pl_slices {
    const float                            *part; // NULL: none
    int64_t                                 pairs;
    int                                     rows, n;
    __device__ __forceinline__ const float *at(int64_t row, int64_t column) const {
        return part + (column / PL_SLICED_COLUMNS * rows + row) * PL_SLICED_COLUMNS + column % PL_SLICED_COLUMNS;
    }
    __device__ __forceinline__ int64_t slice() const { return pairs * rows * PL_SLICED_COLUMNS; }
};

// Static in each file (see launch.cuh), like the functions below.
static __device__ __forceinline__ void pl_add(float &to, float v) {
    to += v;
}
static __device__ __forceinline__ void pl_add(float4 &to, const float4 &v) {
    to.x += v.x, to.y += v.y, to.z += v.z, to.w += v.w;
}

// Returns y at a row's column, or (T float4) at four of them from a multiple of four on: BATCH slices are loaded at a
// time.
template <typename T, int BATCH>
static __device__ __forceinline__ T pl_add_slices(const pl_slices &s, int64_t row, int64_t column) {
    const float  *at = s.at(row, column);
    const int64_t slice = s.slice();
    T             sum = {};
#pragma unroll 1
    for (int first = 0; first < s.n; first += BATCH, at += BATCH * slice) {
        T v[BATCH];
#pragma unroll
        for (int i = 0; i < BATCH; i++)
            v[i] = first + i < s.n ? *(const T *)(at + i * slice) : T{};
#pragma unroll
        for (int i = 0; i < BATCH; i++)
            pl_add(sum, v[i]); // zeros change nothing: no sum is -0
    }
    return sum;
}

// Takes the unadded slices of y [rows, columns], if the last product left them: the caller must add them. Call it
// before any launch of the op.
static inline pl_slices pl_take_slices(pl_ctx *ctx, const float *y, int64_t rows, int64_t columns) {
    pl_cuda_state *s = pl_cuda_state_of(ctx);
    if (!s || !y || s->slices.y != y || s->slices.rows != rows || s->slices.columns != columns) return pl_slices{};
    const pl_cuda_slices own = s->slices;
    s->slices.y = NULL;
    return pl_slices{own.part, pl_ceil_div(columns, PL_SLICED_COLUMNS), own.rows, own.n};
}

#endif
