// Divergence (kernels/op/divergence.h) on whole rows of logits. A product computes the logits of a chunk of student
// rows; then a block has a row: its first walk finds the maximum and the sum, a later one, which finds the logits in
// the L2, adds up the loss and overwrites them with dz; a product each adds the chunk's dx and dW. The teacher's logits
// at the draft ids are held for all chunks. If the weights are settled, forward does all of it and backward nothing.
// The order of every sum depends on the row's length alone, so runs repeat to the bit.
#include "kernels/cuda/columns.cuh"
#include "kernels/cuda/gemm.cuh"
#include "kernels/cuda/select.cuh"
extern "C" {
#include "kernels/op/divergence.h"
}

constexpr int    THREADS = 1024;                 // most that a row has
constexpr int    WAVES = 64;                     // rows of a chunk for each multiprocessor
constexpr size_t ROOM_LEAST = (size_t)256 << 20; // bytes for the logits of a chunk, or `keep` where that is more

struct softmax {      // of a row of logits
    float   max, sum; // sum of exp(z - max)
    int32_t best;     // the lowest id with the maximum
};

struct sums { // of a row over the draft ids; the objective gives their meaning
    double accept, loss, alpha, tv, above, below, from_q;
};

// Scratch of one call.
struct work {
    float     *z, *t;        // logits at the draft ids, `line` apart: of a chunk's rows, then their dz; of all teachers
    softmax   *full, *draft; // [T'] the teacher's over all ids (a.whole) and over the draft ids
    int32_t   *wanted;       // [T']: a row with weight refers to it
    pl_operand x;            // the student's rows in the numbers of its products
    int64_t    line, chunk;  // floats; rows
    bool       loses, learns; // losses are wanted, dz is
    bool       half;          // dz is bf16: the weight's values are
};

static __host__ __device__ __forceinline__ bool taught(const pl_divergence_args &a) {
    return a.objective != PL_OBJ_LABEL;
}

static __device__ __forceinline__ bool takes_part(const pl_divergence_args &a, int64_t i) {
    return a.weight[i] != 0 && (taught(a) ? a.teacher_row[i] : a.label[i]) >= 0;
}

static __global__ void want_kernel(int32_t *wanted, pl_divergence_args a) {
    int64_t i = (int64_t)blockIdx.x * blockDim.x + threadIdx.x;
    if (i < a.x.dim[0] && takes_part(a, i)) pl_store_alike(&wanted[a.teacher_row[i]], 1);
}

// Calls fn(id, z, t) for a thread's share of a row, ids ascending. Rows are padded to whole fours; t may be NULL.
template <typename F>
static __device__ __forceinline__ void each_id(const float *z, const float *t, int64_t ids, const F &fn) {
    for (int64_t j = 4 * (int64_t)threadIdx.x; j < ids; j += 4 * (int64_t)blockDim.x) {
        const float4 v = *(const float4 *)(z + j), u = t ? *(const float4 *)(t + j) : float4{0, 0, 0, 0};
        fn(j, v.x, u.x);
        if (j + 1 < ids) fn(j + 1, v.y, u.y);
        if (j + 2 < ids) fn(j + 2, v.z, u.z);
        if (j + 3 < ids) fn(j + 3, v.w, u.w);
    }
}

// Returns the softmax of a block's row to all of its threads.
static __device__ __forceinline__ softmax softmax_of(const float *z, int64_t ids) {
    __shared__ float  room[PL_WARP];
    __shared__ pl_key best[PL_WARP];
    const int         lane = (int)threadIdx.x % PL_WARP, warp = (int)threadIdx.x / PL_WARP;
    pl_key            own[1] = {};
    float             max = -INFINITY, sum = 0;
    each_id(z, NULL, ids, [&](int64_t j, float v, float) {
        const pl_key k = pl_key_of(v, (uint32_t)j);
        if (k > own[0]) own[0] = k, sum *= expf(max - v), max = v;
        sum += expf(v - max);
    });
    pl_key top = pl_take_best(own);
    if (lane == 0) best[warp] = top;
    __syncthreads();
    own[0] = lane < (int)blockDim.x / PL_WARP ? best[lane] : 0;
    top = pl_take_best(own);
    const float of_all = pl_key_value(top);
    // The sum's barriers come before the next call writes `best`.
    return softmax{of_all, pl_block_sum(sum * expf(max - of_all), room), pl_key_id(top)};
}

static __device__ __forceinline__ float lse_of(const softmax &s) {
    return s.max + logf(s.sum);
}

// Teacher row first + blockIdx.x: its logits at `ids` ids are in z, which is t if those are the draft ids.
static __global__ void __launch_bounds__(THREADS)
    teacher_kernel(pl_divergence_args a, work w, float *z, int64_t line, int64_t ids, int64_t first) {
    const int64_t r = first + blockIdx.x, Vd = a.w.dim[0];
    float        *t = w.t + r * w.line, *stat = (float *)a.teacher_stat.data + r * 4;
    z += blockIdx.x * line;
    if (!w.wanted[r]) {
        if (threadIdx.x > 0 || !w.loses) return;
        stat[0] = stat[1] = stat[2] = stat[3] = 0;
        if (a.teacher_argmax) a.teacher_argmax[r] = -1;
        return;
    }
    for (int64_t j = threadIdx.x; j < ids && a.teacher_cap > 0; j += blockDim.x)
        z[j] = pl_softcapped(z[j], (float)a.teacher_cap);
    __syncthreads();
    softmax full = softmax_of(z, ids), draft = full;
    if (z != t) {
        for (int64_t j = threadIdx.x; j < Vd; j += blockDim.x)
            t[j] = z[a.d2t ? a.d2t[j] : j];
        __syncthreads();
        draft = softmax_of(t, Vd);
    } else if (a.whole) { // backward: forward has left it
        full = softmax{stat[0], expf(stat[1] - stat[0]), 0};
    }
    if (threadIdx.x > 0) return;
    w.full[r] = full, w.draft[r] = draft;
    if (!w.loses) return;
    const bool outside = a.whole && (a.d2t ? a.d2t[draft.best] : draft.best) != full.best;
    stat[0] = full.max;
    stat[1] = lse_of(full);
    stat[2] = lse_of(draft);
    stat[3] = (float)(outside ? -1 - draft.best : 1 + draft.best);
    if (a.teacher_argmax) a.teacher_argmax[r] = full.best;
}

// A student row's inputs to its objective besides the logits.
struct row_facts {
    softmax      q, p, full; // the student's; the teacher's that normalises p; the teacher's over all ids
    float        lse, lse_p; // of q and p
    float        mass;       // of p
    int64_t      choice;     // draft id of the label or the teacher's choice, -1: outside
    const float *t;          // the teacher's logits; NULL: no teacher
};

static __device__ __forceinline__ row_facts facts_of(const pl_divergence_args &a, const work &w, int64_t i,
                                                     const softmax &q) {
    row_facts f = {};
    f.q = q, f.lse = lse_of(q), f.mass = 1;
    if (!taught(a)) {
        f.choice = a.label[i];
        return f;
    }
    const int64_t r = a.teacher_row[i];
    const softmax draft = w.draft[r];
    const float   best = ((const float *)a.teacher_stat.data)[r * 4 + 3];
    f.full = w.full[r], f.p = a.unmasked ? f.full : draft;
    f.lse_p = lse_of(f.p);
    f.choice = a.unmasked && best < 0 ? -1 : (int64_t)fabsf(best) - 1;
    if (a.unmasked) f.mass = expf(lse_of(draft) - lse_of(f.full));
    f.t = w.t + r * w.line;
    return f;
}

// log M of the mixture b p + (1 - b) q, from the larger of its two parts.
static __device__ __forceinline__ float log_mixture(float log_p, float log_q, float beta) {
    float x = logf(beta) + log_p, y = log1pf(-beta) + log_q;
    return fmaxf(x, y) + log1pf(expf(-fabsf(x - y)));
}

static __host__ __device__ __forceinline__ bool overlaps(const pl_divergence_args &a) {
    return a.objective == PL_OBJ_TV || a.objective == PL_OBJ_TVDPP || a.objective == PL_OBJ_LK_ALPHA ||
           a.objective == PL_OBJ_LK_LAMBDA;
}

// Returns true if dz of an id needs sums over all of them: the instances FIRST below.
static bool sums_first(const pl_divergence_args &a) {
    return overlaps(a) || a.objective == PL_OBJ_REVERSE_KL || a.objective == PL_OBJ_JS;
}

// Adds one id's terms. Probabilities come from maximum and sum, not from the log-sum-exp, whose rounding grows with the
// logits.
template <bool FIRST>
static __device__ __forceinline__ void add_terms(sums &s, const pl_divergence_args &a, const row_facts &f, int64_t id,
                                                 float z, float t) {
    const float log_q = z - f.lse, log_p = t - f.lse_p;
    const bool  one_id = a.objective == PL_OBJ_LABEL || a.objective == PL_OBJ_HARD_CE;
    if (one_id && id == f.choice) s.loss -= log_q;
    if (!taught(a) || (one_id && !a.accept.data)) return;
    const float q = expf(z - f.q.max) / f.q.sum, p = expf(t - f.p.max) / f.p.sum;
    if (a.accept.data) s.accept += fminf(expf(t - f.full.max) / f.full.sum, q);
    if (a.objective == PL_OBJ_KL || a.objective == PL_OBJ_LK_LAMBDA) s.loss += p * (log_p - log_q);
    if (a.objective == PL_OBJ_SOFT_CE) s.loss -= p * log_q;
    if (!FIRST) return;
    if (overlaps(a)) {
        s.alpha += fminf(p, q);
        s.tv += fmaxf(q - p, 0);
        s.above += p > q ? q : 0;
        s.below += p > q ? 0 : q;
    }
    if (a.objective == PL_OBJ_REVERSE_KL) s.loss += q * (log_q - log_p);
    if (a.objective == PL_OBJ_JS) {
        float m = log_mixture(log_p, log_q, (float)a.js_beta);
        s.loss += p * (log_p - m);
        s.from_q += q * (log_q - m);
    }
}

// Returns the block's sums to all of its threads.
template <bool FIRST> static __device__ __forceinline__ sums sum_up(const pl_divergence_args &a, const sums &own) {
    __shared__ double room[PL_WARP];
    sums              s = {};
    s.loss = pl_block_sum(own.loss, room);
    if (a.accept.data) s.accept = pl_block_sum(own.accept, room);
    if (FIRST && a.objective == PL_OBJ_JS) s.from_q = pl_block_sum(own.from_q, room);
    if (!FIRST || !overlaps(a)) return s;
    s.alpha = pl_block_sum(own.alpha, room);
    s.tv = pl_block_sum(own.tv, room);
    s.above = pl_block_sum(own.above, room);
    s.below = pl_block_sum(own.below, room);
    return s;
}

static __device__ __forceinline__ double loss_of(const pl_divergence_args &a, const row_facts &f, const sums &s) {
    const double beta = a.js_beta, lambda = exp(-a.lk_decay * s.alpha);
    switch (a.objective) {
    case PL_OBJ_TV:
    case PL_OBJ_TVDPP: return s.tv;
    case PL_OBJ_LK_ALPHA: return s.tv < 0.5 ? -log1p(-s.tv) : -log(fmax(s.alpha, PL_DIV_MIN_OVERLAP));
    case PL_OBJ_LK_LAMBDA: return lambda * s.loss + (1 - lambda) * s.tv;
    case PL_OBJ_JS: return beta * (s.loss - (1 - (double)f.mass) * log(beta)) + (1 - beta) * s.from_q;
    default: return s.loss;
    }
}

// Total variation's gradient at one id.
static __device__ __forceinline__ float tv_slope(float p, float q, const sums &s) {
    return q * (p > q ? -(float)s.below : (float)s.above);
}

// dz of one draft id.
template <bool FIRST>
static __device__ __forceinline__ float slope(const pl_divergence_args &a, const row_facts &f, const sums &s,
                                              int64_t id, float z, float t) {
    float log_q = z - f.lse, q = expf(log_q), log_p = t - f.lse_p;
    if (!taught(a) || a.objective == PL_OBJ_HARD_CE) return f.choice < 0 ? 0 : q - (id == f.choice);
    float p = expf(log_p);
    if (!FIRST) return f.mass * q - p;
    float beta = (float)a.js_beta, above = (float)s.above, below = (float)s.below;
    switch (a.objective) {
    case PL_OBJ_TV: return tv_slope(p, q, s);
    case PL_OBJ_TVDPP: return tv_slope(p, q, s) / sqrtf(fmaxf(above * below, (float)PL_DIV_MIN_VARIANCE));
    case PL_OBJ_LK_ALPHA: return tv_slope(p, q, s) / fmaxf((float)s.alpha, (float)PL_DIV_MIN_OVERLAP);
    case PL_OBJ_LK_LAMBDA: {
        float lambda = expf(-(float)a.lk_decay * (float)s.alpha);
        return lambda * (f.mass * q - p) + (1 - lambda) * tv_slope(p, q, s);
    }
    case PL_OBJ_REVERSE_KL: return q * (log_q - log_p - (float)s.loss);
    default: return (1 - beta) * q * (log_q - log_mixture(log_p, log_q, beta) - (float)s.from_q); // js
    }
}

static __device__ __forceinline__ void put_results(const pl_divergence_args &a, int64_t i, bool in, const row_facts &f,
                                                   const sums &s) {
    const double loss = in ? loss_of(a, f, s) : 0;
    ((float *)a.loss.data)[i] = (float)loss;
    if (a.student_argmax) a.student_argmax[i] = in ? f.q.best : -1;
    if (a.accept.data) ((float *)a.accept.data)[i] = taught(a) ? (float)s.accept : in ? (float)exp(-loss) : 0;
}

// Student row first + blockIdx.x. In bf16 dz takes the front half of its row's place: a turn's logits lie behind what
// it writes, but for the first turn's own, so all are read before any is overwritten.
template <bool FIRST>
static __global__ void __launch_bounds__(THREADS) student_kernel(pl_divergence_args a, work w, int64_t first) {
    const int64_t i = first + blockIdx.x, ids = a.w.dim[0], turn = 4 * (int64_t)blockDim.x;
    float *const  z = w.z + blockIdx.x * w.line;
    const float   weight = a.weight[i];
    const bool    in = takes_part(a, i), ahead = FIRST || !w.learns;
    row_facts     f = {};
    sums          own = {}, s = {};
    if (in) f = facts_of(a, w, i, softmax_of(z, ids));
    if (in && ahead) {
        each_id(z, f.t, ids, [&](int64_t j, float v, float t) { add_terms<FIRST>(own, a, f, j, v, t); });
        s = sum_up<FIRST>(a, own);
    }
    for (int64_t from = 0; from < w.line && w.learns; from += turn) {
        const int64_t j = from + 4 * (int64_t)threadIdx.x;
        float4        v = {0, 0, 0, 0}, u = {0, 0, 0, 0};
        if (in && j < ids) v = *(const float4 *)(z + j);
        if (in && j < ids && f.t) u = *(const float4 *)(f.t + j);
        float dz[4] = {v.x, v.y, v.z, v.w}, t[4] = {u.x, u.y, u.z, u.w};
#pragma unroll
        for (int e = 0; e < 4; e++) {
            const bool counts = in && j + e < ids;
            if (counts && !ahead && w.loses) add_terms<FIRST>(own, a, f, j + e, dz[e], t[e]);
            dz[e] = counts ? weight * slope<FIRST>(a, f, s, j + e, dz[e], t[e]) : 0;
        }
        if (w.half) __syncthreads();
        if (j >= w.line) continue;
        if (w.half)
            *(uint2 *)((uint16_t *)z + j) = uint2{pl_pack_bf16(dz[0], dz[1]), pl_pack_bf16(dz[2], dz[3])};
        else
            *(float4 *)(z + j) = float4{dz[0], dz[1], dz[2], dz[3]};
    }
    if (!w.loses) return;
    if (in && !ahead) s = sum_up<FIRST>(a, own);
    if (threadIdx.x == 0) put_results(a, i, in, f, s);
}

// ---- launches

static void *room_for(pl_ctx *ctx, int64_t n, size_t each) {
    return pl_arena_alloc(&ctx->scratch, pl_size_mul((size_t)n, each, 1));
}

// Copies the caller's list, which every block reads, to device memory.
template <typename T> static const T *copied(pl_ctx *ctx, const T *from, int64_t n) {
    if (!from) return NULL;
    T *to = (T *)room_for(ctx, n, sizeof *from);
    pl_ctx_copy(ctx, to, from, (size_t)n * sizeof *from);
    return to;
}

static pl_divergence_args with_copies(pl_ctx *ctx, const pl_divergence_args *from) {
    pl_divergence_args a = *from;
    int64_t            n = a.x.dim[0];
    a.weight = copied(ctx, a.weight, n);
    a.teacher_row = copied(ctx, taught(a) ? a.teacher_row : NULL, n);
    a.label = copied(ctx, taught(a) ? NULL : a.label, n);
    a.d2t = copied(ctx, a.d2t, a.w.dim[0]);
    return a;
}

// Returns a model's rows in the numbers of its products.
static pl_operand rows_for(pl_ctx *ctx, const char *op, const pl_tensor *x, const pl_tensor *w) {
    pl_operand rows = pl_rows_of(x->data, x->dim[1], PL_F32);
    return pl_gemm_kind(w) ? PL_CUDA(narrowed)(ctx, op, rows, x->dim[0], x->dim[1]) : rows;
}

static pl_operand rows_from(pl_operand rows, int64_t first) {
    rows.data = (const char *)rows.data + first * rows.row * (rows.bf16 ? 2 : 4);
    return rows;
}

// Whole pieces of bf16 in dz too.
static int64_t line_of(int64_t ids) {
    return pl_ceil_div(ids, 8) * 8;
}

// By the draft ids alone, so that a softmax over them has the same bits whatever else its kernel does.
static int threads_of(int64_t ids) {
    int64_t n = pl_ceil_div(ids, 8 * PL_WARP) * PL_WARP;
    return (int)(n < THREADS ? n : THREADS);
}

// Returns how many rows of so many logits go together. It grows with the rows, so that a measured step has room for
// fewer.
static int64_t chunk_of(const pl_ctx *ctx, const pl_divergence_args *a, int64_t rows, int64_t ids) {
    const size_t bytes = a->keep > ROOM_LEAST ? a->keep : ROOM_LEAST;
    int64_t      most = (int64_t)(bytes / sizeof(float)) / line_of(ids), wave = WAVES * pl_cuda_state_of(ctx)->sms;
    if (most > wave) most = wave;
    if (most < 1) most = 1;
    return rows < most ? rows : most;
}

// Computes the teacher's logits at the draft ids, and the softmaxes of its rows: from the logits at all ids where
// forward needs those.
static void teach(pl_ctx *ctx, const char *op, const pl_divergence_args *a, work *w) {
    const int64_t rows = a->xt.dim[0], n = a->x.dim[0];
    const bool    whole = a->whole && w->loses, run = !ctx->measuring;
    const int64_t ids = whole ? a->wt.dim[0] : a->w.dim[0], line = line_of(ids);
    const int64_t chunk = whole ? chunk_of(ctx, a, rows, ids) : rows;
    w->t = (float *)room_for(ctx, rows, (size_t)w->line * sizeof(float));
    w->full = (softmax *)room_for(ctx, rows, sizeof(softmax));
    w->draft = (softmax *)room_for(ctx, rows, sizeof(softmax));
    w->wanted = (int32_t *)room_for(ctx, rows, sizeof(int32_t));
    pl_ctx_zero(ctx, w->wanted, (size_t)rows * sizeof *w->wanted);
    if (run) PL_LAUNCH(ctx, op, want_kernel, pl_grid(pl_ceil_div(n, PL_BLOCK)), PL_BLOCK, w->wanted, *a);
    size_t     mark = pl_arena_mark(&ctx->scratch);
    pl_operand x = rows_for(ctx, op, &a->xt, &a->wt), of = pl_weight_rows(&a->wt, 0);
    float     *z = whole ? (float *)room_for(ctx, chunk, (size_t)line * sizeof(float)) : w->t;
    if (!whole) of.map = a->d2t;
    for (int64_t i = 0; i < rows; i += chunk) {
        const int64_t m = rows - i < chunk ? rows - i : chunk;
        PL_CUDA(gemm)(ctx, op, z, line, rows_from(x, i), of, m, ids, a->wt.dim[1], pl_gemm_kind(&a->wt));
        if (run) PL_LAUNCH(ctx, op, teacher_kernel, pl_grid(m), threads_of(a->w.dim[0]), *a, *w, z, line, ids, i);
    }
    pl_arena_release(&ctx->scratch, mark);
}

// Adds dx and dW of the rows from `first` on, whose dz is in w->z.
static void add_gradients(pl_ctx *ctx, const char *op, const pl_divergence_args *a, const work *w, int64_t first,
                          int64_t rows) {
    const int64_t    Vd = a->w.dim[0], d = a->w.dim[1], line = w->half ? 2 * w->line : w->line;
    const pl_dtype   dtype = w->half ? PL_BF16 : PL_F32;
    const pl_operand x = rows_from(w->x, first), across = {x.data, 1, x.row, x.bf16, NULL};
    const int        how = pl_gemm_kind(&a->w);
    float *const     dx = a->x.grad ? pl_grad_f32(&a->x) + first * d : NULL;
    if (dx) PL_CUDA(gemm)
    (ctx, op, dx, d, pl_rows_of(w->z, line, dtype), pl_weight_columns(&a->w, 0), rows, d, Vd,
     how | (pl_tape_first(ctx, dx, (size_t)(rows * d) * sizeof *dx) ? 0 : PL_GEMM_ADD));
    if (a->w.grad) PL_CUDA(gemm)
    (ctx, op, pl_grad_f32(&a->w), d, pl_columns_of(w->z, line, dtype), across, Vd, d, rows,
     how | (pl_is_first(ctx, &a->w) ? 0 : PL_GEMM_ADD));
}

static void walk_rows(pl_ctx *ctx, const char *op, const pl_divergence_args *args, bool loses, bool learns) {
    size_t                   mark = pl_arena_mark(&ctx->scratch);
    const pl_divergence_args own = with_copies(ctx, args), *a = &own;
    const int64_t            n = a->x.dim[0], Vd = a->w.dim[0], d = a->w.dim[1];
    const auto               kernel = sums_first(*a) ? student_kernel<true> : student_kernel<false>;
    work                     w = {};
    w.line = line_of(Vd), w.chunk = chunk_of(ctx, a, n, Vd);
    w.loses = loses, w.learns = learns, w.half = pl_gemm_kind(&a->w) != 0;
    if (taught(*a)) teach(ctx, op, a, &w);
    w.x = rows_for(ctx, op, &a->x, &a->w);
    w.z = (float *)room_for(ctx, w.chunk, (size_t)w.line * sizeof(float));
    for (int64_t i = 0; i < n; i += w.chunk) {
        const int64_t m = n - i < w.chunk ? n - i : w.chunk;
        PL_CUDA(gemm)(ctx, op, w.z, w.line, rows_from(w.x, i), pl_weight_rows(&a->w, 0), m, Vd, d, pl_gemm_kind(&a->w));
        if (!ctx->measuring) PL_LAUNCH(ctx, op, kernel, pl_grid(m), threads_of(Vd), *a, w, i);
        if (learns) add_gradients(ctx, op, a, &w, i, m);
    }
    pl_arena_release(&ctx->scratch, mark);
}

PL_CUDA_OP(divergence_fwd) {
    const pl_divergence_args *a = (const pl_divergence_args *)args;
    walk_rows(ctx, "divergence", a, true, a->settled);
}

PL_CUDA_OP(divergence_bwd) {
    const pl_divergence_args *a = (const pl_divergence_args *)args;
    if (!a->settled) walk_rows(ctx, "divergence backward", a, false, true);
}
