// Divergence (kernels/op/divergence.h): the vocabulary in tiles of PL_DIV_TILE ids, logits of a tile from the tiled
// product, nothing of size [rows, V] held. Forward walks the ids twice: first maxima, sums and best ids, then losses,
// which need the finished sums. Backward walks the draft ids once. One block per row in all row kernels; the order of
// every sum is fixed by the tile, so runs repeat to the bit.
#include "kernels/cuda/gemm.cuh"
#include "kernels/cuda/select.cuh"
extern "C" {
#include "kernels/op/divergence.h"
}

struct running { // of a row, accumulated over its ids
    pl_key best; // largest logit and its lowest id
    float  sum;  // of exp(z - best)
};

struct sums { // of a row over the draft ids; the objective gives their meaning
    double accept, loss, alpha, tv, above, below, from_q;
};

// Scratch of one call.
struct work {
    float     *z, *t;                  // [n, tile] student's, [T', tile] teacher's logits
    running   *student, *full, *draft; // [n], [T'], [T']
    sums      *sum;                    // [n]
    int32_t   *wanted;                 // [T']: a row with weight refers to it
    // For weights with bf16 values: the model's rows in bf16, and backward's dz [n, tile].
    pl_operand x, xt;
    uint16_t  *dz;
    int64_t    tile; // ids
};

// Wide tiles give products enough blocks for a GPU; few rows do not need that scratch.
static int64_t tile_for(const pl_divergence_args *a) {
    int64_t rows = a->x.dim[0];
    return rows < 128 ? PL_DIV_TILE : 4 * PL_DIV_TILE;
}

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

// Adds a tile's logits of row blockIdx.x to its running figures; ids first, first + 1, ...
static __global__ void pass_kernel(running *rows, const float *z, int64_t tile, int64_t first, int width) {
    __shared__ float  room[PL_WARP];
    __shared__ pl_key best[PL_BLOCK];
    running           r = rows[blockIdx.x];
    z += blockIdx.x * tile;
    pl_key own = r.best;
    for (int j = (int)threadIdx.x; j < width; j += PL_BLOCK) {
        pl_key k = pl_key_of(z[j], (uint32_t)(first + j));
        if (k > own) own = k;
    }
    best[threadIdx.x] = own;
    __syncthreads();
    for (int s = PL_BLOCK / 2; s > 0; s /= 2) {
        if ((int)threadIdx.x < s && best[threadIdx.x + s] > best[threadIdx.x])
            best[threadIdx.x] = best[threadIdx.x + s];
        __syncthreads();
    }
    float max = pl_key_value(best[0]), sum = 0;
    for (int j = (int)threadIdx.x; j < width; j += PL_BLOCK)
        sum += expf(z[j] - max);
    sum = pl_block_sum(sum, room);
    if (threadIdx.x > 0) return;
    sum += r.best ? r.sum * expf(pl_key_value(r.best) - max) : 0;
    rows[blockIdx.x] = running{best[0], sum};
}

static __device__ __forceinline__ float lse_of(const running &r) {
    return pl_key_value(r.best) + logf(r.sum);
}

// Writes row i's values for backward: {log-sum-exp, above, below, alpha}, with the row's loss (reverse-kl) or sum_j q_j
// log(q_j / M_j) (js) in place of `above`.
static __global__ void student_stat_kernel(pl_divergence_args a, work w) {
    int64_t i = (int64_t)blockIdx.x * blockDim.x + threadIdx.x;
    if (i >= a.x.dim[0]) return;
    bool   in = takes_part(a, i);
    float *stat = (float *)a.stat.data + i * 4;
    stat[0] = in ? lse_of(w.student[i]) : 0;
    stat[1] = stat[2] = stat[3] = 0;
    if (a.student_argmax) a.student_argmax[i] = in ? pl_key_id(w.student[i].best) : -1;
}

static __global__ void teacher_stat_kernel(pl_divergence_args a, work w) {
    int64_t r = (int64_t)blockIdx.x * blockDim.x + threadIdx.x;
    if (r >= a.xt.dim[0]) return;
    float *stat = (float *)a.teacher_stat.data + r * 4;
    stat[0] = stat[1] = stat[2] = stat[3] = 0;
    if (a.teacher_argmax) a.teacher_argmax[r] = -1;
    if (!w.wanted[r]) return;
    const running full = a.whole ? w.full[r] : w.draft[r];
    int32_t       best = pl_key_id(full.best), choice = pl_key_id(w.draft[r].best);
    bool          outside = a.whole && (a.d2t ? a.d2t[choice] : choice) != best;
    stat[0] = pl_key_value(full.best);
    stat[1] = lse_of(full);
    stat[2] = lse_of(w.draft[r]);
    stat[3] = (float)(outside ? -1 - choice : 1 + choice);
    if (a.teacher_argmax) a.teacher_argmax[r] = best;
}

// A row's inputs to its objective besides the two distributions.
struct row_facts {
    int64_t teacher, choice; // choice: draft id of the label or the teacher's choice, -1: outside
    float   lse, lse_t;      // student's; teacher's, over the ids that normalise its p
    float   mass;            // of p
};

static __device__ __forceinline__ row_facts facts_of(const pl_divergence_args &a, int64_t i) {
    row_facts f = {0, 0, ((const float *)a.stat.data)[i * 4], 0, 1};
    if (!taught(a)) {
        f.choice = a.label[i];
        return f;
    }
    f.teacher = a.teacher_row[i];
    const float *stat = (const float *)a.teacher_stat.data + f.teacher * 4;
    int64_t      choice = (int64_t)fabsf(stat[3]) - 1;
    f.choice = a.unmasked && stat[3] < 0 ? -1 : choice;
    f.lse_t = a.unmasked ? stat[1] : stat[2];
    if (a.unmasked) f.mass = expf(stat[2] - stat[1]);
    return f;
}

// log M of the mixture b p + (1 - b) q, from the larger of its two parts.
static __device__ __forceinline__ float log_mixture(float log_p, float log_q, float beta) {
    float x = logf(beta) + log_p, y = log1pf(-beta) + log_q;
    return fmaxf(x, y) + log1pf(expf(-fabsf(x - y)));
}

// Computes a tile's share of row blockIdx.x's sums. Probabilities come from maximum and sum, not from the log-sum-exp,
// whose rounding grows with the logits.
static __global__ void sums_kernel(pl_divergence_args a, work w, int64_t first, int width) {
    __shared__ double room[PL_WARP];
    int64_t           i = blockIdx.x;
    if (!takes_part(a, i)) return;
    row_facts    f = facts_of(a, i);
    const float *z = w.z + i * w.tile, *t = w.t + f.teacher * w.tile;
    sums         s = {};
    bool         one_id = a.objective == PL_OBJ_LABEL || a.objective == PL_OBJ_HARD_CE;
    running      student = w.student[i], full = {}, draft = {};
    if (taught(a)) draft = w.draft[f.teacher], full = a.whole ? w.full[f.teacher] : draft;
    float z_max = pl_key_value(student.best), t_max = pl_key_value(full.best), d_max = pl_key_value(draft.best);
    for (int j = (int)threadIdx.x; j < width; j += PL_BLOCK) {
        float log_q = z[j] - f.lse;
        if (one_id && first + j == f.choice) s.loss -= log_q;
        if (!taught(a)) continue;
        float q = expf(z[j] - z_max) / student.sum, whole = expf(t[j] - t_max) / full.sum, log_p = t[j] - f.lse_t;
        float p = a.unmasked ? whole : expf(t[j] - d_max) / draft.sum;
        s.accept += fminf(whole, q);
        s.alpha += fminf(p, q);
        s.tv += fmaxf(q - p, 0);
        if (p > q)
            s.above += q;
        else
            s.below += q;
        if (a.objective == PL_OBJ_KL || a.objective == PL_OBJ_LK_LAMBDA) s.loss += p * (log_p - log_q);
        if (a.objective == PL_OBJ_SOFT_CE) s.loss -= p * log_q;
        if (a.objective == PL_OBJ_REVERSE_KL) s.loss += q * (log_q - log_p);
        if (a.objective == PL_OBJ_JS) {
            float m = log_mixture(log_p, log_q, (float)a.js_beta);
            s.loss += p * (log_p - m);
            s.from_q += q * (log_q - m);
        }
    }
    s.accept = pl_block_sum(s.accept, room);
    s.loss = pl_block_sum(s.loss, room);
    s.alpha = pl_block_sum(s.alpha, room);
    s.tv = pl_block_sum(s.tv, room);
    s.above = pl_block_sum(s.above, room);
    s.below = pl_block_sum(s.below, room);
    s.from_q = pl_block_sum(s.from_q, room);
    if (threadIdx.x > 0) return;
    sums *to = &w.sum[i];
    to->accept += s.accept, to->loss += s.loss, to->alpha += s.alpha, to->tv += s.tv;
    to->above += s.above, to->below += s.below, to->from_q += s.from_q;
}

// Computes losses from finished sums.
static __global__ void loss_kernel(pl_divergence_args a, work w) {
    int64_t i = (int64_t)blockIdx.x * blockDim.x + threadIdx.x;
    if (i >= a.x.dim[0]) return;
    bool   in = takes_part(a, i);
    sums   s = w.sum[i]; // zero for skipped rows
    double loss = s.loss, alpha = fmax(s.alpha, PL_DIV_MIN_OVERLAP), beta = a.js_beta;
    float *stat = (float *)a.stat.data + i * 4;
    stat[1] = (float)s.above, stat[2] = (float)s.below, stat[3] = (float)s.alpha;
    if (in) switch (a.objective) {
        case PL_OBJ_TV:
        case PL_OBJ_TVDPP: loss = s.tv; break;
        case PL_OBJ_LK_ALPHA: loss = s.tv < 0.5 ? -log1p(-s.tv) : -log(alpha); break;
        case PL_OBJ_LK_LAMBDA: {
            double lambda = exp(-a.lk_decay * s.alpha);
            loss = lambda * s.loss + (1 - lambda) * s.tv;
            break;
        }
        case PL_OBJ_REVERSE_KL: stat[1] = (float)s.loss; break;
        case PL_OBJ_JS:
            stat[1] = (float)s.from_q;
            loss = beta * (s.loss - (1 - (double)facts_of(a, i).mass) * log(beta)) + (1 - beta) * s.from_q;
            break;
        default: break;
        }
    ((float *)a.loss.data)[i] = (float)loss;
    if (a.accept.data) ((float *)a.accept.data)[i] = taught(a) ? (float)s.accept : in ? (float)exp(-loss) : 0;
}

// Total variation's gradient at one id.
static __device__ __forceinline__ float tv_slope(float p, float q, const float stat[4]) {
    return q * (p > q ? -stat[2] : stat[1]);
}

// dz of one draft id; stat: as student_stat_kernel writes it.
static __device__ __forceinline__ float slope(const pl_divergence_args &a, const row_facts &f, const float stat[4],
                                              int64_t id, float z, float t) {
    float log_q = z - f.lse, q = expf(log_q), log_p = t - f.lse_t;
    if (!taught(a) || a.objective == PL_OBJ_HARD_CE) return f.choice < 0 ? 0 : q - (id == f.choice);
    float p = expf(log_p), alpha = fmaxf(stat[3], (float)PL_DIV_MIN_OVERLAP);
    switch (a.objective) {
    case PL_OBJ_TV: return tv_slope(p, q, stat);
    case PL_OBJ_TVDPP: return tv_slope(p, q, stat) / sqrtf(fmaxf(stat[1] * stat[2], (float)PL_DIV_MIN_VARIANCE));
    case PL_OBJ_LK_ALPHA: return tv_slope(p, q, stat) / alpha;
    case PL_OBJ_LK_LAMBDA: {
        float lambda = expf(-(float)a.lk_decay * stat[3]);
        return lambda * (f.mass * q - p) + (1 - lambda) * tv_slope(p, q, stat);
    }
    case PL_OBJ_REVERSE_KL: return q * (log_q - log_p - stat[1]);
    case PL_OBJ_JS: return (1 - (float)a.js_beta) * q * (log_q - log_mixture(log_p, log_q, (float)a.js_beta) - stat[1]);
    default: return f.mass * q - p;
    }
}

// dz of a tile: overwrites its logits, or goes to bf16 if the products with it are in bf16.
static __global__ void dz_kernel(pl_divergence_args a, work w, int64_t first, int width) {
    int64_t      i = blockIdx.x;
    bool         in = takes_part(a, i);
    float       *z = w.z + i * w.tile;
    const float *stat = (const float *)a.stat.data + i * 4;
    row_facts    f = {};
    if (in) f = facts_of(a, i);
    for (int j = (int)threadIdx.x; j < width; j += PL_BLOCK) {
        float t = in && taught(a) ? w.t[f.teacher * w.tile + j] : 0;
        float dz = in ? a.weight[i] * slope(a, f, stat, first + j, z[j], t) : 0;
        if (w.dz)
            w.dz[i * w.tile + j] = (uint16_t)pl_pack_bf16(dz, 0);
        else
            z[j] = dz;
    }
}

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

static work take_work(pl_ctx *ctx, const char *op, const pl_divergence_args *a) {
    int64_t n = a->x.dim[0], teachers = taught(*a) ? a->xt.dim[0] : 0;
    work    w = {};
    w.tile = tile_for(a);
    w.z = (float *)room_for(ctx, n, (size_t)w.tile * sizeof(float));
    w.t = (float *)room_for(ctx, teachers, (size_t)w.tile * sizeof(float));
    w.student = (running *)room_for(ctx, n, sizeof(running));
    w.full = (running *)room_for(ctx, teachers, sizeof(running));
    w.draft = (running *)room_for(ctx, teachers, sizeof(running));
    w.sum = (sums *)room_for(ctx, n, sizeof(sums));
    w.wanted = (int32_t *)room_for(ctx, teachers, sizeof(int32_t));
    w.x = rows_for(ctx, op, &a->x, &a->w);
    if (taught(*a)) w.xt = rows_for(ctx, op, &a->xt, &a->wt);
    return w;
}

// Returns ids of a model's weights from `first` on, mapped by `map`.
static pl_operand ids_of(const pl_tensor *w, const int32_t *map, int64_t first) {
    pl_operand ids = pl_weight_rows(w, map ? 0 : first);
    if (map) ids.map = map + first;
    return ids;
}

static int tile_width(const work *w, int64_t ids, int64_t first) {
    return (int)(ids - first < w->tile ? ids - first : w->tile);
}

static __global__ void cap_kernel(float *t, int64_t tile, int width, float cap) {
    t += blockIdx.x * tile;
    for (int j = (int)threadIdx.x; j < width; j += PL_BLOCK)
        t[j] = pl_softcapped(t[j], cap);
}

// Computes the teacher's logits of a tile of ids.
static void teacher_tile(pl_ctx *ctx, const pl_divergence_args *a, const work *w, const int32_t *map, int64_t first,
                         int width) {
    const char *op = "divergence";
    PL_CUDA(gemm)
    (ctx, op, w->t, w->tile, w->xt, ids_of(&a->wt, map, first), a->xt.dim[0], width, a->wt.dim[1],
     pl_gemm_kind(&a->wt));
    if (a->teacher_cap > 0 && !ctx->measuring)
        PL_LAUNCH(ctx, op, cap_kernel, pl_grid(a->xt.dim[0]), PL_BLOCK, w->t, w->tile, width, (float)a->teacher_cap);
}

// Computes both models' logits of a tile of draft ids.
static void draft_tile(pl_ctx *ctx, const pl_divergence_args *a, const work *w, int64_t first, int width) {
    PL_CUDA(gemm)
    (ctx, "divergence", w->z, w->tile, w->x, ids_of(&a->w, NULL, first), a->x.dim[0], width, a->w.dim[1],
     pl_gemm_kind(&a->w));
    if (taught(*a)) teacher_tile(ctx, a, w, a->d2t, first, width);
}

PL_CUDA_OP(divergence_fwd) {
    const char              *op = "divergence";
    size_t                   mark = pl_arena_mark(&ctx->scratch);
    const pl_divergence_args own = with_copies(ctx, (const pl_divergence_args *)args), *a = &own;
    work                     w = take_work(ctx, op, a);
    int64_t                  n = a->x.dim[0], Vd = a->w.dim[0], teach = taught(*a);
    int64_t                  teachers = teach ? a->xt.dim[0] : 0, V = teach ? a->wt.dim[0] : 0;
    pl_grid                  rows(pl_ceil_div(n, PL_BLOCK)), teacher_rows(pl_ceil_div(teachers, PL_BLOCK));
    bool                     run = !ctx->measuring;
    pl_ctx_zero(ctx, w.student, (size_t)n * sizeof *w.student);
    pl_ctx_zero(ctx, w.full, (size_t)teachers * sizeof *w.full);
    pl_ctx_zero(ctx, w.draft, (size_t)teachers * sizeof *w.draft);
    pl_ctx_zero(ctx, w.sum, (size_t)n * sizeof *w.sum);
    pl_ctx_zero(ctx, w.wanted, (size_t)teachers * sizeof *w.wanted);
    if (run && teach) PL_LAUNCH(ctx, op, want_kernel, rows, PL_BLOCK, w.wanted, *a);
    for (int64_t v = 0; v < V && a->whole; v += w.tile) {
        int width = tile_width(&w, V, v);
        teacher_tile(ctx, a, &w, NULL, v, width);
        if (run) PL_LAUNCH(ctx, op, pass_kernel, pl_grid(teachers), PL_BLOCK, w.full, w.t, w.tile, v, width);
    }
    for (int64_t j = 0; j < Vd; j += w.tile) {
        int width = tile_width(&w, Vd, j);
        draft_tile(ctx, a, &w, j, width);
        if (run) PL_LAUNCH(ctx, op, pass_kernel, pl_grid(n), PL_BLOCK, w.student, w.z, w.tile, j, width);
        if (run && teach) PL_LAUNCH(ctx, op, pass_kernel, pl_grid(teachers), PL_BLOCK, w.draft, w.t, w.tile, j, width);
    }
    if (run) PL_LAUNCH(ctx, op, student_stat_kernel, rows, PL_BLOCK, *a, w);
    if (run && teach) PL_LAUNCH(ctx, op, teacher_stat_kernel, teacher_rows, PL_BLOCK, *a, w);
    for (int64_t j = 0; j < Vd && run; j += w.tile) {
        draft_tile(ctx, a, &w, j, tile_width(&w, Vd, j));
        PL_LAUNCH(ctx, op, sums_kernel, pl_grid(n), PL_BLOCK, *a, w, j, tile_width(&w, Vd, j));
    }
    if (run) PL_LAUNCH(ctx, op, loss_kernel, rows, PL_BLOCK, *a, w);
    pl_arena_release(&ctx->scratch, mark);
}

PL_CUDA_OP(divergence_bwd) {
    const char              *op = "divergence backward";
    size_t                   mark = pl_arena_mark(&ctx->scratch);
    const pl_divergence_args own = with_copies(ctx, (const pl_divergence_args *)args), *a = &own;
    work                     w = take_work(ctx, op, a);
    int64_t                  n = a->x.dim[0], Vd = a->w.dim[0], d = a->w.dim[1];
    int                      how = pl_gemm_kind(&a->w) | PL_GEMM_ADD;
    if (pl_gemm_kind(&a->w)) w.dz = (uint16_t *)room_for(ctx, n, (size_t)w.tile * sizeof *w.dz);
    const void *dz = w.dz ? (const void *)w.dz : w.z;
    pl_dtype    in = w.dz ? PL_BF16 : PL_F32;
    pl_operand  across = pl_columns_of(w.x.data, w.x.row, w.x.bf16 ? PL_BF16 : PL_F32); // x^T
    for (int64_t j = 0; j < Vd; j += w.tile) {
        int width = tile_width(&w, Vd, j);
        draft_tile(ctx, a, &w, j, width);
        if (!ctx->measuring) PL_LAUNCH(ctx, op, dz_kernel, pl_grid(n), PL_BLOCK, *a, w, j, width);
        if (a->x.grad) PL_CUDA(gemm)
        (ctx, op, pl_grad_f32(&a->x), d, pl_rows_of(dz, w.tile, in), pl_weight_columns(&a->w, j), n, d, width, how);
        if (a->w.grad) PL_CUDA(gemm)
        (ctx, op, pl_grad_f32(&a->w) + j * d, d, pl_columns_of(dz, w.tile, in), across, width, d, n, how);
    }
    pl_arena_release(&ctx->scratch, mark);
}
