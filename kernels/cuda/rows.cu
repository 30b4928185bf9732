// Ops that move or reduce whole rows: embed, gather, rmsnorm, headnorm, smoothl1, classify.
#include "kernels/cuda/byrow.cuh"
#include "kernels/cuda/columns.cuh"
#include "kernels/cuda/rounded.cuh"
#include "kernels/cuda/slices.cuh"
extern "C" {
#include "kernels/op/elementwise.h"
#include "kernels/op/norm.h"
#include "kernels/op/rowloss.h"
}

// ---- rows by index --------------------------------------------------------------------------------------------------

static __global__ void take_rows_kernel(float *y, const void *w, int bf16, const int32_t *id, int64_t n, int64_t d,
                                        int64_t limit, float scale, pl_cuda_fault *fault) {
    pl_previous_done();
    int64_t i = (int64_t)blockIdx.x * blockDim.x + threadIdx.x;
    if (i >= n) return;
    int64_t t = i / d, row = id[t];
    if (row >= limit) {
        atomicMin(&fault->id, (unsigned long long)t << 32 | (uint32_t)row);
        return;
    }
    int64_t at = row * d + i % d;
    y[i] = row < 0 ? 0 : scale * (bf16 ? pl_widen(((const uint16_t *)w)[at]) : ((const float *)w)[at]);
}

// dw[id[t]] += scale dy[t], t ascending, no atomics: the block of a row's first entry adds all of that row.
static __global__ void add_rows_kernel(float *dw, const float *dy, const int32_t *id, pl_by_row by, int64_t rows,
                                       int64_t d, float scale) {
    int32_t p = (int32_t)blockIdx.x;
    if (p >= by.first[rows]) return;
    int64_t own = id[by.entry[p]];
    int32_t to = by.first[own + 1];
    if (by.first[own] != p) return;
    for (int64_t i = threadIdx.x; i < d; i += blockDim.x) {
        float sum = dw[own * d + i];
        for (int32_t q = p; q < to; q++)
            sum += scale * dy[by.entry[q] * d + i];
        dw[own * d + i] = sum;
    }
}

static void take_rows(pl_ctx *ctx, const char *op, const pl_rows_args *a) {
    int64_t n = pl_tensor_count(&a->y);
    if (a->x.dtype != PL_F32 && a->x.dtype != PL_BF16) {
        pl_ctx_fail(ctx, PL_E_UNSUPPORTED, "op %s: no %s on backend %s", op, pl_dtype_name(a->x.dtype), ctx->be->name);
        return;
    }
    PL_LAUNCH_EARLY(ctx, op, take_rows_kernel, pl_grid(pl_ceil_div(n, PL_BLOCK)), PL_BLOCK, pl_f32(&a->y), a->x.data,
                    a->x.dtype == PL_BF16, pl_index(ctx, a->index, a->y.dim[0]), n, a->y.dim[1], a->x.dim[0],
                    (float)a->scale, pl_cuda_state_of(ctx)->fault);
}

// Several kernels read all indices, so they read a copy in device memory.
static void add_rows(pl_ctx *ctx, const char *op, const pl_rows_args *a) {
    if (!a->y.grad || !a->x.grad) return;
    size_t   bytes = pl_size_mul((size_t)a->y.dim[0], sizeof *a->index, 1), mark = pl_arena_mark(&ctx->scratch);
    int32_t *own = (int32_t *)pl_arena_alloc(&ctx->scratch, bytes);
    pl_ctx_copy(ctx, own, a->index, bytes);
    pl_by_row by = pl_by_row_of(ctx, op, own, a->y.dim[0], a->x.dim[0]);
    if (!ctx->measuring)
        PL_LAUNCH(ctx, op, add_rows_kernel, pl_grid(a->y.dim[0]), PL_BLOCK, pl_grad_f32(&a->x), pl_grad_f32(&a->y), own,
                  by, a->x.dim[0], a->y.dim[1], (float)a->scale);
    pl_arena_release(&ctx->scratch, mark);
}

PL_CUDA_OP(embed_fwd) {
    PL_OP_SKIP_IF_MEASURING(ctx);
    take_rows(ctx, "embed", (const pl_rows_args *)args);
}

PL_CUDA_OP(embed_bwd) {
    add_rows(ctx, "embed backward", (const pl_rows_args *)args);
}

PL_CUDA_OP(gather_fwd) {
    PL_OP_SKIP_IF_MEASURING(ctx);
    take_rows(ctx, "gather", (const pl_rows_args *)args);
}

PL_CUDA_OP(gather_bwd) {
    add_rows(ctx, "gather backward", (const pl_rows_args *)args);
}

// ---- rmsnorm: one block per row -------------------------------------------------------------------------------------

// A thread has fours of a row, FOURS in each turn of the block, and keeps them between the sum and the result: a row of
// one turn waits for memory once. WIDE: rows can be read by fours. Neither changes a sum.
constexpr int NORM_THREADS = 1024;
constexpr int BATCH = 7; // slices loaded at a time

template <bool WIDE> static __device__ __forceinline__ float4 load_four(const float *row, int64_t i, int64_t d) {
    if constexpr (WIDE) return i < d ? *(const float4 *)(row + i) : float4{0, 0, 0, 0};
    return float4{i < d ? row[i] : 0, i + 1 < d ? row[i + 1] : 0, i + 2 < d ? row[i + 2] : 0,
                  i + 3 < d ? row[i + 3] : 0};
}

template <bool WIDE> static __device__ __forceinline__ void store_four(float *row, int64_t i, int64_t d, float4 v) {
    if constexpr (WIDE) {
        if (i < d) *(float4 *)(row + i) = v;
        return;
    }
    const float each[4] = {v.x, v.y, v.z, v.w};
    for (int e = 0; e < 4; e++)
        if (i + e < d) row[i + e] = each[e];
}

template <int FOURS, bool WIDE> struct norm_turn {
    float4                                    v[FOURS];
    static __device__ __forceinline__ int64_t column(int64_t from, int e) {
        return from + 4 * ((int64_t)e * blockDim.x + threadIdx.x);
    }
    __device__ __forceinline__ void take(const float *row, int64_t from, int64_t d) {
#pragma unroll
        for (int e = 0; e < FOURS; e++)
            v[e] = load_four<WIDE>(row, column(from, e), d);
    }
    // Adds a row that its product has left in slices; also writes the sums.
    __device__ __forceinline__ void add(const pl_slices &s, float *row, int64_t from, int64_t d) {
#pragma unroll
        for (int e = 0; e < FOURS; e++) {
            const int64_t i = column(from, e);
            v[e] = i < d ? pl_add_slices<float4, BATCH>(s, blockIdx.x, i) : float4{0, 0, 0, 0};
            store_four<WIDE>(row, i, d, v[e]);
        }
    }
};

// SLICED: the last given input, r or x, is in slices.
template <int FOURS, bool WIDE, bool SLICED>
static __global__ void __launch_bounds__(NORM_THREADS)
    rmsnorm_kernel(float *y, float *h, float *x, float *r, const float *g, float *rstd, int64_t d, float eps,
                   pl_rounding rounding, pl_slices slices) {
    __shared__ float       room[PL_WARP];
    const int64_t          at = (int64_t)blockIdx.x * d, turn = 4 * (int64_t)FOURS * blockDim.x;
    norm_turn<FOURS, WIDE> own = {}, more = {}, scale;
    float                  square = 0;
    scale.take(g, 0, d); // a weight
    pl_previous_done();
#pragma unroll 1
    for (int64_t from = 0; from < d; from += turn) {
        if (r || !SLICED) own.take(x + at, from, d);
        if constexpr (SLICED) {
            if (r)
                more.add(slices, r + at, from, d);
            else
                own.add(slices, x + at, from, d);
        } else if (r) {
            more.take(r + at, from, d);
        }
#pragma unroll
        for (int e = 0; e < FOURS; e++) {
            float4 &v = own.v[e];
            if (r) {
                const float4 w = more.v[e];
                v.x += w.x, v.y += w.y, v.z += w.z, v.w += w.w;
                store_four<WIDE>(h + at, own.column(from, e), d, v);
            }
            square = fmaf(v.w, v.w, fmaf(v.z, v.z, fmaf(v.y, v.y, fmaf(v.x, v.x, square))));
        }
    }
    const float s = 1 / sqrtf(pl_block_sum(square, room) / (float)d + eps);
#pragma unroll 1
    for (int64_t from = 0; from < d; from += turn) {
        if (turn < d) own.take((r ? h : x) + at, from, d), scale.take(g, from, d);
#pragma unroll
        for (int e = 0; e < FOURS; e++) {
            const float4  v = own.v[e], w = scale.v[e];
            const float4  n = {v.x * s * w.x, v.y * s * w.y, v.z * s * w.z, v.w * s * w.w};
            const int64_t i = own.column(from, e);
            store_four<WIDE>(y + at, i, d, n);
            pl_put_four(rounding, blockIdx.x, i, n);
        }
    }
    if (threadIdx.x == 0) rstd[blockIdx.x] = s;
}

static __global__ void rmsnorm_bwd_kernel(float *dx, float *dr, const float *dy, const float *dh, const float *h,
                                          const float *g, const float *rstd, int64_t d, bool first_x, bool first_r) {
    __shared__ float room[PL_WARP];
    int64_t          at = (int64_t)blockIdx.x * d;
    float            dot = 0, s = rstd[blockIdx.x];
    for (int64_t i = threadIdx.x; i < d; i += blockDim.x)
        dot = fmaf(dy[at + i] * g[i], h[at + i], dot);
    float c = pl_block_sum(dot, room) / (float)d * s * s;
    for (int64_t i = threadIdx.x; i < d; i += blockDim.x) {
        float v = s * (dy[at + i] * g[i] - h[at + i] * c) + (dh ? dh[at + i] : 0);
        if (dx) pl_put_or_add(&dx[at + i], v, first_x);
        if (dr) pl_put_or_add(&dr[at + i], v, first_r);
    }
}

struct scaled_row {
    const float     *dy, *h, *rstd;
    int64_t          d;
    __device__ float operator()(int64_t m, int64_t i) const { return dy[m * d + i] * h[m * d + i] * rstd[m]; }
};

PL_CUDA_OP(rmsnorm_fwd) {
    const pl_rmsnorm_args *a = (const pl_rmsnorm_args *)args;
    pl_rounding            rounding = pl_rounding_for(ctx, a->y.dim[0], a->y.dim[1]);
    PL_OP_SKIP_IF_MEASURING(ctx);
    const int64_t d = a->y.dim[1], threads = pl_ceil_div(d, 4 * PL_WARP) * PL_WARP;
    float *const y = pl_f32(&a->y), *const h = pl_f32(&a->h), *const x = pl_f32(&a->x), *const r = pl_f32(&a->r);
    float *const g = pl_f32(&a->g);
    const bool   wide =
        d % 4 == 0 && ((uintptr_t)y | (uintptr_t)h | (uintptr_t)x | (uintptr_t)r | (uintptr_t)g) % sizeof(float4) == 0;
    const bool      one = threads <= NORM_THREADS;
    const pl_slices left = wide ? pl_take_slices(ctx, r ? r : x, a->y.dim[0], d) : pl_slices{};
    auto            kernel = !wide       ? rmsnorm_kernel<1, false, false>
                             : left.part ? (one ? rmsnorm_kernel<1, true, true> : rmsnorm_kernel<2, true, true>)
                             : one       ? rmsnorm_kernel<1, true, false>
                                         : rmsnorm_kernel<2, true, false>;
    PL_LAUNCH_EARLY(ctx, "rmsnorm", kernel, pl_grid(a->y.dim[0]),
                    (int)(threads < NORM_THREADS ? threads : NORM_THREADS), y, h, x, r, g, pl_f32(&a->rstd), d,
                    (float)a->eps, rounding, left);
    pl_rounded_is(ctx, rounding, pl_f32(&a->y), a->y.dim[0]);
}

PL_CUDA_OP(rmsnorm_bwd) {
    const pl_rmsnorm_args *a = (const pl_rmsnorm_args *)args;
    const char            *op = "rmsnorm backward";
    if (!a->y.grad) return;
    const pl_tensor *h = a->r.data ? &a->h : &a->x;
    int64_t          rows = h->dim[0], d = h->dim[1];
    pl_settle(ctx, &a->y);
    pl_settle(ctx, &a->g);
    if (a->r.data) pl_settle(ctx, &a->h);
    // dg first: it reads x and the incoming gradient of h before other kernels add to them.
    if (a->g.grad)
        pl_column_sums(ctx, op, pl_grad_f32(&a->g), scaled_row{pl_grad_f32(&a->y), pl_f32(h), pl_f32(&a->rstd), d},
                       rows, d);
    if ((!a->x.grad && !a->r.grad) || ctx->measuring) return;
    bool first_x = pl_is_first(ctx, &a->x), first_r = pl_is_first(ctx, &a->r);
    PL_LAUNCH(ctx, op, rmsnorm_bwd_kernel, pl_grid(rows), PL_BLOCK, pl_grad_f32(&a->x), pl_grad_f32(&a->r),
              pl_grad_f32(&a->y), a->r.data ? pl_grad_f32(&a->h) : NULL, pl_f32(h), pl_f32(&a->g), pl_f32(&a->rstd), d,
              first_x, first_r);
}

// ---- headnorm: one block per head of a row --------------------------------------------------------------------------

struct headnorm {
    const float *x, *gq, *gk, *dy;
    float       *y, *dx, *rstd;
    int64_t      heads, nq, normed, hd; // normed: number of normed heads
    double       eps;
};

static __global__ void headnorm_kernel(headnorm a) {
    pl_previous_done();
    __shared__ float room[PL_WARP];
    int64_t          j = blockIdx.x % a.heads, at = (int64_t)blockIdx.x * a.hd;
    const float     *x = a.x + at, *g = j < a.nq ? a.gq : a.gk;
    float           *y = a.y + at, square = 0;
    if (j >= a.normed) {
        for (int64_t i = threadIdx.x; i < a.hd; i += blockDim.x)
            y[i] = x[i];
        return;
    }
    for (int64_t i = threadIdx.x; i < a.hd; i += blockDim.x)
        square = fmaf(x[i], x[i], square);
    square = pl_block_sum(square, room);
    float s = 1 / sqrtf(square / (float)a.hd + (float)a.eps);
    for (int64_t i = threadIdx.x; i < a.hd; i += blockDim.x)
        y[i] = x[i] * s * g[i];
    if (threadIdx.x == 0) a.rstd[blockIdx.x / a.heads * a.normed + j] = s;
}

static __global__ void headnorm_bwd_kernel(headnorm a) {
    __shared__ float room[PL_WARP];
    int64_t          j = blockIdx.x % a.heads, at = (int64_t)blockIdx.x * a.hd;
    const float     *x = a.x + at, *dy = a.dy + at, *g = j < a.nq ? a.gq : a.gk;
    float           *dx = a.dx + at, dot = 0;
    if (j >= a.normed) {
        for (int64_t i = threadIdx.x; i < a.hd; i += blockDim.x)
            dx[i] += dy[i];
        return;
    }
    float s = a.rstd[blockIdx.x / a.heads * a.normed + j];
    for (int64_t i = threadIdx.x; i < a.hd; i += blockDim.x)
        dot = fmaf(dy[i] * g[i], x[i], dot);
    float c = pl_block_sum(dot, room) / (float)a.hd * s * s;
    for (int64_t i = threadIdx.x; i < a.hd; i += blockDim.x)
        dx[i] += s * (dy[i] * g[i] - x[i] * c);
}

static headnorm headnorm_of(const pl_headnorm_args *a) {
    return {
        pl_f32(&a->x),    pl_f32(&a->gq),      pl_f32(&a->gk), pl_grad_f32(&a->y), pl_f32(&a->y), pl_grad_f32(&a->x),
        pl_f32(&a->rstd), a->x.dim[1] / a->hd, a->nq,          a->nq + a->nk,      a->hd,         a->eps};
}

// Rows here are heads of one kind, `count` of them from head `first` of each row of x.
struct scaled_head {
    const float     *dy, *x, *rstd;
    int64_t          heads, normed, first, count, hd;
    __device__ float operator()(int64_t k, int64_t i) const {
        int64_t m = k / count, j = first + k % count, at = (m * heads + j) * hd + i;
        return dy[at] * x[at] * rstd[m * normed + j];
    }
};

PL_CUDA_OP(headnorm_fwd) {
    const pl_headnorm_args *a = (const pl_headnorm_args *)args;
    PL_OP_SKIP_IF_MEASURING(ctx);
    headnorm h = headnorm_of(a);
    PL_LAUNCH_EARLY(ctx, "headnorm", headnorm_kernel, pl_grid(a->x.dim[0] * h.heads), PL_BLOCK, h);
}

PL_CUDA_OP(headnorm_bwd) {
    const pl_headnorm_args *a = (const pl_headnorm_args *)args;
    const char             *op = "headnorm backward";
    if (!a->y.grad) return;
    int64_t rows = a->x.dim[0], heads = a->x.dim[1] / a->hd, normed = a->nq + a->nk;
    for (int keys = 0; keys < 2; keys++) {
        const pl_tensor *g = keys ? &a->gk : &a->gq;
        int64_t          first = keys ? a->nq : 0, count = keys ? a->nk : a->nq;
        if (g->grad && count > 0)
            pl_column_sums(
                ctx, op, pl_grad_f32(g),
                scaled_head{pl_grad_f32(&a->y), pl_f32(&a->x), pl_f32(&a->rstd), heads, normed, first, count, a->hd},
                rows * count, a->hd);
    }
    if (a->x.grad && !ctx->measuring)
        PL_LAUNCH(ctx, op, headnorm_bwd_kernel, pl_grid(rows * heads), PL_BLOCK, headnorm_of(a));
}

// ---- smooth L1: one block per row -----------------------------------------------------------------------------------

static __device__ __forceinline__ bool takes_part(const pl_smoothl1_args &a, int64_t i, pl_cuda_fault *fault) {
    if (a.weight[i] == 0 || a.row[i] < 0) return false;
    if (a.row[i] < a.t.dim[0]) return true;
    atomicMin(&fault->id, (unsigned long long)i << 32 | (uint32_t)a.row[i]);
    return false;
}

static __global__ void smoothl1_kernel(pl_smoothl1_args a, pl_cuda_fault *fault) {
    __shared__ double room[PL_WARP];
    int64_t           i = blockIdx.x, d = a.x.dim[1];
    double            sum = 0;
    if (takes_part(a, i, fault)) {
        const float *x = (const float *)a.x.data + i * d, *t = (const float *)a.t.data + a.row[i] * d;
        for (int64_t j = threadIdx.x; j < d; j += blockDim.x) {
            double u = fabs((double)x[j] - (double)t[j]);
            sum += u < a.beta ? u * u / (2 * a.beta) : u - a.beta / 2;
        }
    }
    sum = pl_block_sum(sum, room);
    if (threadIdx.x == 0) ((float *)a.loss.data)[i] = (float)(sum / (double)d);
}

static __global__ void smoothl1_bwd_kernel(pl_smoothl1_args a, pl_cuda_fault *fault) {
    int64_t i = blockIdx.x, d = a.x.dim[1];
    if (!takes_part(a, i, fault)) return;
    const float *x = (const float *)a.x.data + i * d, *t = (const float *)a.t.data + a.row[i] * d;
    float       *dx = (float *)a.x.grad + i * d;
    double       scale = (double)a.weight[i] / (double)d;
    for (int64_t j = threadIdx.x; j < d; j += blockDim.x) {
        double u = ((double)x[j] - (double)t[j]) / a.beta;
        dx[j] += (float)(scale * fmax(-1.0, fmin(1.0, u)));
    }
}

PL_CUDA_OP(smoothl1_fwd) {
    const pl_smoothl1_args *a = (const pl_smoothl1_args *)args;
    PL_OP_SKIP_IF_MEASURING(ctx);
    PL_LAUNCH(ctx, "smoothl1", smoothl1_kernel, pl_grid(a->x.dim[0]), PL_BLOCK, *a, pl_cuda_state_of(ctx)->fault);
}

PL_CUDA_OP(smoothl1_bwd) {
    const pl_smoothl1_args *a = (const pl_smoothl1_args *)args;
    PL_OP_SKIP_IF_MEASURING(ctx);
    if (a->x.grad)
        PL_LAUNCH(ctx, "smoothl1 backward", smoothl1_bwd_kernel, pl_grid(a->x.dim[0]), PL_BLOCK, *a,
                  pl_cuda_state_of(ctx)->fault);
}

// ---- class scores: one block per row --------------------------------------------------------------------------------

// Returns the log-sum-exp of a row of scores and the sum of its targets, in double.
static __device__ __forceinline__ void row_sums(const float *z, const float *y, int64_t n, double *lse, double *mass,
                                                double *room, float *room_f) {
    float  max = -INFINITY;
    double sum = 0, of_y = 0;
    for (int64_t c = threadIdx.x; c < n; c += blockDim.x)
        max = fmaxf(max, z[c]);
    max = pl_block_max(max, room_f);
    for (int64_t c = threadIdx.x; c < n; c += blockDim.x) {
        sum += exp((double)z[c] - (double)max);
        of_y += (double)y[c];
    }
    *lse = (double)max + log(pl_block_sum(sum, room));
    *mass = pl_block_sum(of_y, room);
}

static __global__ void classify_kernel(pl_classify_args a) {
    __shared__ double room[PL_WARP];
    __shared__ float  room_f[PL_WARP];
    int64_t           n = a.z.dim[1], i = blockIdx.x;
    const float      *z = (const float *)a.z.data + i * n, *y = a.y + i * n;
    bool              softmax = a.kind == PL_CLASSIFY_SOFTMAX, in = a.weight[i] != 0;
    double            lse = 0, mass = 0, sum = 0;
    if (in && softmax) row_sums(z, y, n, &lse, &mass, room, room_f);
    for (int64_t c = threadIdx.x; c < n && in; c += blockDim.x) {
        double x = (double)z[c], t = (double)y[c];
        sum += softmax ? t * (lse - x) : fmax(x, 0.0) - x * t + log1p(exp(-fabs(x)));
    }
    sum = pl_block_sum(sum, room);
    if (threadIdx.x == 0) ((float *)a.loss.data)[i] = (float)sum;
}

static __global__ void classify_bwd_kernel(pl_classify_args a) {
    __shared__ double room[PL_WARP];
    __shared__ float  room_f[PL_WARP];
    int64_t           n = a.z.dim[1], i = blockIdx.x;
    const float      *z = (const float *)a.z.data + i * n, *y = a.y + i * n;
    float            *dz = (float *)a.z.grad + i * n;
    bool              softmax = a.kind == PL_CLASSIFY_SOFTMAX;
    double            lse = 0, mass = 0, w = (double)a.weight[i];
    if (w == 0) return;
    if (softmax) row_sums(z, y, n, &lse, &mass, room, room_f);
    for (int64_t c = threadIdx.x; c < n; c += blockDim.x) {
        double x = (double)z[c], p = softmax ? mass * exp(x - lse) : 1 / (1 + exp(-x));
        dz[c] += (float)(w * (p - (double)y[c]));
    }
}

PL_CUDA_OP(classify_fwd) {
    const pl_classify_args *a = (const pl_classify_args *)args;
    PL_OP_SKIP_IF_MEASURING(ctx);
    PL_LAUNCH(ctx, "classify", classify_kernel, pl_grid(a->z.dim[0]), PL_BLOCK, *a);
}

PL_CUDA_OP(classify_bwd) {
    const pl_classify_args *a = (const pl_classify_args *)args;
    PL_OP_SKIP_IF_MEASURING(ctx);
    if (a->z.grad) PL_LAUNCH(ctx, "classify backward", classify_bwd_kernel, pl_grid(a->z.dim[0]), PL_BLOCK, *a);
}
