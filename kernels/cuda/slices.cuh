// A product whose slices nobody has added yet.
//
// Blocks that share panels leave their sums by slices (linear.cu), and a launch adds them: it reads what they left in
// the second-level cache and writes y, which the launch after it reads again. So where that one can, it adds them
// itself: the context remembers what was left (state.h, pl_cuda_slices) until the launch, copy, wait or branch after.
// rmsnorm, rope and swiglu of just these rows take it (pl_take_slices), add in the same order and write y too, so that
// it is what it would have been, bit for bit; before anything else sum_kernel is launched (PL_CUDA(settle)). What lies
// in scratch is not written over until then: whoever writes there launches first. Where results may be looked at as
// soon as their op returns (PL_CUDA(unseen)), nothing is left.
#ifndef PL_CUDA_SLICES_CUH
#define PL_CUDA_SLICES_CUH

#include "kernels/cuda/launch.cuh"

constexpr int PL_SLICED_COLUMNS = 128; // of a row that lie together: a pair of panels

// As kernels read them: [n][pairs][rows][128].
struct pl_slices {
    const float                            *part; // NULL: there are none
    int64_t                                 pairs;
    int                                     rows, n;
    __device__ __forceinline__ const float *at(int64_t row, int64_t column) const {
        return part + (column / PL_SLICED_COLUMNS * rows + row) * PL_SLICED_COLUMNS + column % PL_SLICED_COLUMNS;
    }
    __device__ __forceinline__ int64_t slice() const { return pairs * rows * PL_SLICED_COLUMNS; }
};

// Each file's own (launch.cuh has why), as what follows.
static __device__ __forceinline__ void pl_add(float &to, float v) {
    to += v;
}
static __device__ __forceinline__ void pl_add(float4 &to, const float4 &v) {
    to.x += v.x, to.y += v.y, to.z += v.z, to.w += v.w;
}

// y at a row's column, or (T float4) at four of them from a multiple of four on: BATCH slices are asked for at a time.
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

// What the last product left of y [rows, columns], if it did: then whoever asks adds it. Before any launch of his own.
static inline pl_slices pl_take_slices(pl_ctx *ctx, const float *y, int64_t rows, int64_t columns) {
    pl_cuda_state *s = pl_cuda_state_of(ctx);
    if (!s || !y || s->slices.y != y || s->slices.rows != rows || s->slices.columns != columns) return pl_slices{};
    const pl_cuda_slices own = s->slices;
    s->slices.y = NULL;
    return pl_slices{own.part, pl_ceil_div(columns, PL_SLICED_COLUMNS), own.rows, own.n};
}

#endif
