// Element-wise ops: add, mul, bias (its gradient sums rows), concat, round, silu, squash, softcap, swiglu, rope. One
// thread per element.
#include "kernels/cuda/columns.cuh"
#include "kernels/cuda/rounded.cuh"
#include "kernels/cuda/slices.cuh"
extern "C" {
#include "kernels/op/elementwise.h"
#include "kernels/op/rope.h"
#include "kernels/op/swiglu.h"
}

// Returns this thread's element in a grid of one-dimensional blocks.
static __device__ __forceinline__ int64_t own_element() {
    return (int64_t)blockIdx.x * blockDim.x + threadIdx.x;
}

static pl_grid grid_of(int64_t elements) {
    return pl_grid(pl_ceil_div(elements, PL_BLOCK));
}

// ---- add, round -----------------------------------------------------------------------------------------------------

static __global__ void add_kernel(float *y, const float *a, const float *b, int64_t n) {
    pl_previous_done();
    int64_t i = own_element();
    if (i < n) y[i] = a[i] + b[i];
}

static __global__ void accumulate_kernel(float *to, const float *from, int64_t n) {
    int64_t i = own_element();
    if (i < n) to[i] += from[i];
}

static __global__ void round_kernel(float *y, const float *x, int64_t n) {
    int64_t i = own_element();
    if (i < n) y[i] = pl_narrowed(x[i]);
}

static void accumulate(pl_ctx *ctx, const char *op, void *to, const void *from, int64_t n) {
    if (to) PL_LAUNCH(ctx, op, accumulate_kernel, grid_of(n), PL_BLOCK, (float *)to, (const float *)from, n);
}

PL_CUDA_OP(add_fwd) {
    const pl_binary_args *s = (const pl_binary_args *)args;
    PL_OP_SKIP_IF_MEASURING(ctx);
    int64_t n = pl_tensor_count(&s->y);
    PL_LAUNCH_EARLY(ctx, "add", add_kernel, grid_of(n), PL_BLOCK, pl_f32(&s->y), pl_f32(&s->a), pl_f32(&s->b), n);
}

PL_CUDA_OP(add_bwd) {
    const pl_binary_args *s = (const pl_binary_args *)args;
    PL_OP_SKIP_IF_MEASURING(ctx);
    if (!s->y.grad) return;
    accumulate(ctx, "add backward", s->a.grad, s->y.grad, pl_tensor_count(&s->y));
    accumulate(ctx, "add backward", s->b.grad, s->y.grad, pl_tensor_count(&s->y));
}

PL_CUDA_OP(round_fwd) {
    const pl_unary_args *a = (const pl_unary_args *)args;
    PL_OP_SKIP_IF_MEASURING(ctx);
    int64_t n = pl_tensor_count(&a->x);
    PL_LAUNCH(ctx, "round", round_kernel, grid_of(n), PL_BLOCK, pl_f32(&a->y), pl_f32(&a->x), n);
}

PL_CUDA_OP(round_bwd) {
    const pl_unary_args *a = (const pl_unary_args *)args;
    PL_OP_SKIP_IF_MEASURING(ctx);
    if (a->y.grad) accumulate(ctx, "round backward", a->x.grad, a->y.grad, pl_tensor_count(&a->x));
}

// ---- mul ------------------------------------------------------------------------------------------------------------

static __global__ void mul_kernel(float *y, const float *a, const float *b, int64_t n) {
    pl_previous_done();
    int64_t i = own_element();
    if (i < n) y[i] = a[i] * b[i];
}

static __global__ void mul_bwd_kernel(float *da, float *db, const float *dy, const float *a, const float *b,
                                      int64_t n) {
    int64_t i = own_element();
    if (i >= n) return;
    if (da) da[i] += dy[i] * b[i];
    if (db) db[i] += dy[i] * a[i];
}

PL_CUDA_OP(mul_fwd) {
    const pl_binary_args *s = (const pl_binary_args *)args;
    PL_OP_SKIP_IF_MEASURING(ctx);
    int64_t n = pl_tensor_count(&s->y);
    PL_LAUNCH_EARLY(ctx, "mul", mul_kernel, grid_of(n), PL_BLOCK, pl_f32(&s->y), pl_f32(&s->a), pl_f32(&s->b), n);
}

PL_CUDA_OP(mul_bwd) {
    const pl_binary_args *s = (const pl_binary_args *)args;
    PL_OP_SKIP_IF_MEASURING(ctx);
    if (!s->y.grad) return;
    int64_t n = pl_tensor_count(&s->y);
    PL_LAUNCH(ctx, "mul backward", mul_bwd_kernel, grid_of(n), PL_BLOCK, pl_grad_f32(&s->a), pl_grad_f32(&s->b),
              pl_grad_f32(&s->y), pl_f32(&s->a), pl_f32(&s->b), n);
}

// ---- bias -----------------------------------------------------------------------------------------------------------

static __global__ void bias_kernel(float *y, const float *x, const float *b, int64_t n, int64_t cols) {
    int64_t i = own_element();
    if (i < n) y[i] = x[i] + b[i % cols];
}

struct row_of {
    const float     *dy;
    int64_t          cols;
    __device__ float operator()(int64_t m, int64_t i) const { return dy[m * cols + i]; }
};

PL_CUDA_OP(bias_fwd) {
    const pl_binary_args *a = (const pl_binary_args *)args;
    PL_OP_SKIP_IF_MEASURING(ctx);
    int64_t n = pl_tensor_count(&a->y);
    PL_LAUNCH(ctx, "bias", bias_kernel, grid_of(n), PL_BLOCK, pl_f32(&a->y), pl_f32(&a->a), pl_f32(&a->b), n,
              a->y.dim[1]);
}

PL_CUDA_OP(bias_bwd) {
    const pl_binary_args *a = (const pl_binary_args *)args;
    const char           *op = "bias backward";
    if (!a->y.grad) return;
    if (!ctx->measuring) accumulate(ctx, op, a->a.grad, a->y.grad, pl_tensor_count(&a->y));
    if (a->b.grad)
        pl_column_sums(ctx, op, pl_grad_f32(&a->b), row_of{pl_grad_f32(&a->y), a->y.dim[1]}, a->y.dim[0], a->y.dim[1]);
}

// ---- concat ---------------------------------------------------------------------------------------------------------

static __global__ void concat_kernel(float *y, const void *a, int bf16, const float *b, int64_t n, int64_t ca,
                                     int64_t cb) {
    pl_previous_done();
    int64_t i = own_element();
    if (i >= n) return;
    int64_t m = i / (ca + cb), at = i % (ca + cb);
    if (at >= ca)
        y[i] = b[m * cb + at - ca];
    else
        y[i] = bf16 ? pl_widen(((const uint16_t *)a)[m * ca + at]) : ((const float *)a)[m * ca + at];
}

static __global__ void split_kernel(float *da, float *db, const float *dy, int64_t n, int64_t ca, int64_t cb,
                                    bool first_a, bool first_b) {
    int64_t i = own_element();
    if (i >= n) return;
    int64_t m = i / (ca + cb), at = i % (ca + cb);
    if (at < ca && da) pl_put_or_add(&da[m * ca + at], dy[i], first_a);
    if (at >= ca && db) pl_put_or_add(&db[m * cb + at - ca], dy[i], first_b);
}

PL_CUDA_OP(concat_fwd) {
    const pl_binary_args *a = (const pl_binary_args *)args;
    PL_OP_SKIP_IF_MEASURING(ctx);
    int64_t n = pl_tensor_count(&a->y);
    PL_LAUNCH_EARLY(ctx, "concat", concat_kernel, grid_of(n), PL_BLOCK, pl_f32(&a->y), a->a.data, a->a.dtype == PL_BF16,
                    pl_f32(&a->b), n, a->a.dim[1], a->b.dim[1]);
}

PL_CUDA_OP(concat_bwd) {
    const pl_binary_args *a = (const pl_binary_args *)args;
    PL_OP_SKIP_IF_MEASURING(ctx);
    int64_t n = pl_tensor_count(&a->y);
    if (!a->y.grad) return;
    pl_settle(ctx, &a->y);
    bool first_a = pl_is_first(ctx, &a->a), first_b = pl_is_first(ctx, &a->b);
    PL_LAUNCH(ctx, "concat backward", split_kernel, grid_of(n), PL_BLOCK, pl_grad_f32(&a->a), pl_grad_f32(&a->b),
              pl_grad_f32(&a->y), n, a->a.dim[1], a->b.dim[1], first_a, first_b);
}

// ---- silu -----------------------------------------------------------------------------------------------------------

static __global__ void silu_kernel(float *y, const float *x, int64_t n) {
    int64_t i = own_element();
    if (i < n) y[i] = x[i] / (1 + expf(-x[i]));
}

static __global__ void silu_bwd_kernel(float *dx, const float *dy, const float *x, int64_t n) {
    int64_t i = own_element();
    if (i >= n) return;
    float s = 1 / (1 + expf(-x[i]));
    dx[i] += dy[i] * s * (1 + x[i] * (1 - s));
}

PL_CUDA_OP(silu_fwd) {
    const pl_unary_args *a = (const pl_unary_args *)args;
    PL_OP_SKIP_IF_MEASURING(ctx);
    int64_t n = pl_tensor_count(&a->x);
    PL_LAUNCH(ctx, "silu", silu_kernel, grid_of(n), PL_BLOCK, pl_f32(&a->y), pl_f32(&a->x), n);
}

PL_CUDA_OP(silu_bwd) {
    const pl_unary_args *a = (const pl_unary_args *)args;
    PL_OP_SKIP_IF_MEASURING(ctx);
    if (!a->y.grad || !a->x.grad) return;
    int64_t n = pl_tensor_count(&a->x);
    PL_LAUNCH(ctx, "silu backward", silu_bwd_kernel, grid_of(n), PL_BLOCK, pl_grad_f32(&a->x), pl_grad_f32(&a->y),
              pl_f32(&a->x), n);
}

// ---- squash ---------------------------------------------------------------------------------------------------------

struct squash {
    float       *y;
    const float *x;
    int64_t      count, n, all, from, kind;
};

static __global__ void squash_kernel(squash a) {
    pl_previous_done();
    int64_t i = own_element();
    if (i >= a.count) return;
    float x = a.x[i / a.n * a.all + a.from + i % a.n];
    a.y[i] = a.kind == PL_SQUASH_TANH ? tanhf(x) : 1 / (1 + expf(a.kind == PL_SQUASH_SIGMOID ? -x : x));
}

static __global__ void squash_bwd_kernel(squash a, float *dx, const float *dy) {
    int64_t i = own_element();
    if (i >= a.count) return;
    float y = a.y[i], f = a.kind == PL_SQUASH_TANH ? 1 - y * y : y * (1 - y);
    dx[i / a.n * a.all + a.from + i % a.n] += a.kind == PL_SQUASH_REMAINDER ? -dy[i] * f : dy[i] * f;
}

static squash squash_of(const pl_squash_args *a) {
    return {pl_f32(&a->y), pl_f32(&a->x), pl_tensor_count(&a->y), a->y.dim[1], a->x.dim[1], a->from, a->kind};
}

PL_CUDA_OP(squash_fwd) {
    const squash s = squash_of((const pl_squash_args *)args);
    PL_OP_SKIP_IF_MEASURING(ctx);
    PL_LAUNCH_EARLY(ctx, "squash", squash_kernel, grid_of(s.count), PL_BLOCK, s);
}

PL_CUDA_OP(squash_bwd) {
    const pl_squash_args *a = (const pl_squash_args *)args;
    PL_OP_SKIP_IF_MEASURING(ctx);
    if (!a->y.grad || !a->x.grad) return;
    PL_LAUNCH(ctx, "squash backward", squash_bwd_kernel, grid_of(pl_tensor_count(&a->y)), PL_BLOCK, squash_of(a),
              pl_grad_f32(&a->x), pl_grad_f32(&a->y));
}

// ---- softcap --------------------------------------------------------------------------------------------------------

static __global__ void softcap_kernel(float *x, int64_t n, float cap) {
    pl_previous_done();
    int64_t i = own_element();
    if (i < n) x[i] = pl_softcapped(x[i], cap);
}

PL_CUDA_OP(softcap_fwd) {
    const pl_softcap_args *a = (const pl_softcap_args *)args;
    PL_OP_SKIP_IF_MEASURING(ctx);
    int64_t n = pl_tensor_count(&a->x);
    PL_LAUNCH_EARLY(ctx, "softcap", softcap_kernel, grid_of(n), PL_BLOCK, pl_f32(&a->x), n, (float)a->cap);
}

// ---- swiglu ---------------------------------------------------------------------------------------------------------

// s(g) of the op's contract.
static __device__ __forceinline__ float gate_factor(pl_gate gate, float g) {
    float angle = (float)PL_GELU_TANH_TWICE * (g + (float)PL_GELU_TANH_CUBE * g * g * g);
    return 1 / (1 + expf(gate == PL_GATE_SILU ? -g : -angle));
}

static __device__ __forceinline__ float gated(pl_gate gate, float g, float u) {
    return gate == PL_GATE_SILU ? g / (1 + expf(-g)) * u : g * gate_factor(gate, g) * u;
}

static __global__ void swiglu_kernel(float *y, const float *gu, int64_t n, int64_t width, pl_gate gate,
                                     pl_rounding rounding) {
    pl_previous_done();
    int64_t i = own_element();
    if (i >= n) return;
    const float *g = gu + i / width * 2 * width + i % width;
    const float  v = gated(gate, g[0], g[width]);
    y[i] = v;
    rounding.put(i / width, i % width, v);
}

// Gates a product's unadded slices, by fours; also writes gu.
static __global__ void swiglu_slices_kernel(float *y, float *gu, pl_slices slices, int64_t n, int64_t width,
                                            pl_gate gate, pl_rounding rounding) {
    pl_previous_done();
    constexpr int BATCH = 4; // slices loaded at a time
    const int64_t i = 4 * own_element(), row = i / width, column = i % width;
    if (i >= n) return;
    const float4 g = pl_add_slices<float4, BATCH>(slices, row, column);
    const float4 u = pl_add_slices<float4, BATCH>(slices, row, column + width);
    const float4 v = {gated(gate, g.x, u.x), gated(gate, g.y, u.y), gated(gate, g.z, u.z), gated(gate, g.w, u.w)};
    *(float4 *)(gu + row * 2 * width + column) = g;
    *(float4 *)(gu + row * 2 * width + column + width) = u;
    *(float4 *)(y + i) = v;
    pl_put_four(rounding, row, column, v);
}

static __global__ void swiglu_bwd_kernel(float *dgu, const float *dy, const float *gu, int64_t n, int64_t width,
                                         pl_gate gate, bool first) {
    int64_t i = own_element();
    if (i >= n) return;
    int64_t at = i / width * 2 * width + i % width;
    float   g = gu[at], u = gu[at + width], s = gate_factor(gate, g);
    float   angle = (float)PL_GELU_TANH_TWICE * (1 + 3 * (float)PL_GELU_TANH_CUBE * g * g);
    float   bend = gate == PL_GATE_SILU ? g * (1 - s) : g * (1 - s) * angle;
    pl_put_or_add(&dgu[at], dy[i] * u * s * (1 + bend), first);
    pl_put_or_add(&dgu[at + width], dy[i] * g * s, first);
}

PL_CUDA_OP(swiglu_fwd) {
    const pl_swiglu_args *a = (const pl_swiglu_args *)args;
    pl_rounding           rounding = pl_rounding_for(ctx, a->y.dim[0], a->y.dim[1]);
    PL_OP_SKIP_IF_MEASURING(ctx);
    const int64_t n = pl_tensor_count(&a->y), width = a->y.dim[1];
    float *const y = pl_f32(&a->y), *const gu = pl_f32(&a->gu);
    pl_slices left = {};
    if (width % 4 == 0 && ((uintptr_t)y | (uintptr_t)gu) % sizeof(float4) == 0)
        left = pl_take_slices(ctx, gu, a->y.dim[0], 2 * width);
    if (left.part)
        PL_LAUNCH_EARLY(ctx, "swiglu", swiglu_slices_kernel, grid_of(n / 4), PL_BLOCK, y, gu, left, n, width, a->gate,
                        rounding);
    else
        PL_LAUNCH_EARLY(ctx, "swiglu", swiglu_kernel, grid_of(n), PL_BLOCK, y, gu, n, width, a->gate, rounding);
    pl_rounded_is(ctx, rounding, pl_f32(&a->y), a->y.dim[0]);
}

PL_CUDA_OP(swiglu_bwd) {
    const pl_swiglu_args *a = (const pl_swiglu_args *)args;
    PL_OP_SKIP_IF_MEASURING(ctx);
    if (!a->y.grad || !a->gu.grad) return;
    int64_t n = pl_tensor_count(&a->y);
    pl_settle(ctx, &a->y);
    PL_LAUNCH(ctx, "swiglu backward", swiglu_bwd_kernel, grid_of(n), PL_BLOCK, pl_grad_f32(&a->gu), pl_grad_f32(&a->y),
              pl_f32(&a->gu), n, a->y.dim[1], a->gate, pl_is_first(ctx, &a->gu));
}

// ---- rope -----------------------------------------------------------------------------------------------------------

// Destination of a row's keys and values, `kv` elements each (row NULL: none).
namespace {
struct kept {
    const pl_kvrow                 *row;
    int64_t                         kv;
    __device__ __forceinline__ void key(int64_t m, int64_t i, float v) const {
        if (row && i >= 0) put(row[m].k, row[m], i, v);
    }
    __device__ __forceinline__ void value(int64_t m, int64_t i, float v) const { put(row[m].v, row[m], i, v); }
    __device__ __forceinline__ void put(void *cache, const pl_kvrow &r, int64_t i, float v) const {
        const int64_t at = r.slot * kv + i;
        if (r.dtype == PL_BF16)
            ((uint16_t *)cache)[at] = (uint16_t)pl_pack_bf16(v, 0);
        else
            ((float *)cache)[at] = v;
    }
};
} // namespace

// One thread per rotated pair of a row; after these, if rows are kept, one per element that is not rotated. SLICED:
// rows are kept, heads rotated whole, and each thread also writes the sums that it has added.
template <bool SLICED>
static __global__ void rope_kernel(float *qkv, const float *cos, const float *sin, const int32_t *at, int64_t n,
                                   int64_t width, int64_t positions, int64_t hd, int64_t pairs, int64_t n_rot,
                                   int64_t offset, float sign, kept keep, pl_slices slices, pl_cuda_fault *fault) {
    pl_previous_done();
    constexpr int BATCH = 4;                                                                  // slices loaded at a time
    const int64_t rest = hd - 2 * pairs, turned = n_rot * pairs, keys = n_rot * hd - keep.kv; // keys: their offset
    const int64_t each = turned + (keep.row ? keep.kv / hd * rest + keep.kv : 0);
    int64_t       i = own_element();
    if (i >= n) return;
    const int64_t m = i / each;
    i %= each;
    if (i >= turned) {
        i -= turned;
        float *own = qkv + m * width;
        if (i < keep.kv) {
            const int64_t of = n_rot * hd + i;
            float         v;
            if constexpr (SLICED)
                v = own[of] = pl_add_slices<float, BATCH>(slices, m, of);
            else
                v = own[of];
            keep.value(m, i, v);
        } else { // the unrotated end of a key head
            i -= keep.kv;
            const int64_t of = i / rest * hd + 2 * pairs + i % rest;
            keep.key(m, of, own[keys + of]);
        }
        return;
    }
    const int64_t pair = i % pairs, head = i / pairs, pos = (int64_t)at[m] + offset;
    if (pos < 0 || pos >= positions) {
        atomicMin(&fault->id, (unsigned long long)m << 32 | (uint32_t)pos);
        return;
    }
    float  c = cos[pos * pairs + pair], s = sign * sin[pos * pairs + pair];
    float *v = qkv + m * width + head * hd + pair;
    float  lo, hi;
    if constexpr (SLICED)
        lo = pl_add_slices<float, BATCH>(slices, m, head * hd + pair),
        hi = pl_add_slices<float, BATCH>(slices, m, head * hd + pair + pairs);
    else
        lo = v[0], hi = v[pairs];
    const float first = lo * c - hi * s, second = hi * c + lo * s;
    v[0] = first;
    v[pairs] = second;
    keep.key(m, head * hd + pair - keys, first);
    keep.key(m, head * hd + pair + pairs - keys, second);
}

static void rotate(pl_ctx *ctx, const pl_rope_args *a, void *rows, float sign, const pl_kvrow *row) {
    const int64_t M = a->qkv.dim[0], pairs = a->cos.dim[1], kv = a->qkv.dim[1] - (int64_t)a->n_rot * a->hd;
    const int64_t n = M * (a->n_rot * pairs + (row ? kv + kv / a->hd * (a->hd - 2 * pairs) : 0));
    const kept    keep = {row ? pl_index(ctx, row, M) : NULL, kv};
    pl_slices     left = {};
    if (row && a->hd == 2 * pairs) left = pl_take_slices(ctx, (const float *)rows, M, a->qkv.dim[1]);
    PL_LAUNCH_EARLY(ctx, "rope", left.part ? rope_kernel<true> : rope_kernel<false>, grid_of(n), PL_BLOCK,
                    (float *)rows, pl_f32(&a->cos), pl_f32(&a->sin), pl_index(ctx, a->pos, M), n, a->qkv.dim[1],
                    a->cos.dim[0], a->hd, pairs, a->n_rot, a->offset, sign, keep, left, pl_cuda_state_of(ctx)->fault);
}

PL_CUDA_OP(rope_fwd) {
    const pl_rope_args *a = (const pl_rope_args *)args;
    PL_OP_SKIP_IF_MEASURING(ctx);
    rotate(ctx, a, a->qkv.data, 1, a->row);
}

PL_CUDA_OP(rope_bwd) {
    const pl_rope_args *a = (const pl_rope_args *)args;
    PL_OP_SKIP_IF_MEASURING(ctx);
    if (a->qkv.grad) rotate(ctx, a, a->qkv.grad, -1, NULL);
}
