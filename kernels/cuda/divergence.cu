// The divergence engine (kernels/op/divergence.h): the vocabulary in tiles of PL_DIV_TILE ids, logits of a tile from
// the tiled product, nothing of size [rows, V] held. Forward walks the ids twice: first maxima, sums and best ids, then
// losses, which need the finished sums. Backward walks the draft ids once. One block per row in all row kernels; the
// order of every sum is fixed by the tile, so runs repeat to the bit.
#include "kernels/cuda/gemm.cuh"
#include "kernels/cuda/select.cuh"
extern "C" {
#include "kernels/op/divergence.h"
}

struct running { // of a row while its ids pass
    pl_key best; // largest logit and its lowest id
    float  sum;  // of exp(z - best)
    float  spare;
};

// Scratch of one call.
struct work {
    float   *z, *t;                  // [n, tile] student's, [T', tile] teacher's logits
    running *student, *full, *draft; // [n], [T'], [T']
    int32_t *wanted;                 // [T']: some row with weight refers to it
};

static __device__ __forceinline__ bool takes_part(const pl_divergence_args &a, int64_t i) {
    return a.weight[i] != 0 && (a.objective == PL_OBJ_KL ? a.teacher_row[i] : a.label[i]) >= 0;
}

static __global__ void want_kernel(int32_t *wanted, pl_divergence_args a) {
    int64_t i = (int64_t)blockIdx.x * blockDim.x + threadIdx.x;
    if (i < a.x.dim[0] && takes_part(a, i)) wanted[a.teacher_row[i]] = 1; // all that write, write 1
}

// Takes a tile's logits of row blockIdx.x into its running figures; ids first, first + 1, ...
static __global__ void pass_kernel(running *rows, const float *z, int64_t first, int width) {
    __shared__ float  room[PL_WARP];
    __shared__ pl_key best[PL_BLOCK];
    running           r = rows[blockIdx.x];
    z += blockIdx.x * PL_DIV_TILE;
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
    rows[blockIdx.x] = running{best[0], sum, 0};
}

static __device__ __forceinline__ float lse_of(const running &r) {
    return pl_key_value(r.best) + logf(r.sum);
}

static __global__ void student_stat_kernel(pl_divergence_args a, work w) {
    int64_t i = (int64_t)blockIdx.x * blockDim.x + threadIdx.x;
    if (i >= a.x.dim[0]) return;
    bool   in = takes_part(a, i);
    float *stat = (float *)a.stat.data + i * 4;
    stat[0] = in ? pl_key_value(w.student[i].best) : 0;
    stat[1] = in ? lse_of(w.student[i]) : 0;
    stat[2] = stat[3] = 0;
    if (a.student_argmax) a.student_argmax[i] = in ? pl_key_id(w.student[i].best) : -1;
    ((float *)a.loss.data)[i] = 0;
    if (a.accept.data) ((float *)a.accept.data)[i] = 0;
}

static __global__ void teacher_stat_kernel(pl_divergence_args a, work w) {
    int64_t r = (int64_t)blockIdx.x * blockDim.x + threadIdx.x;
    if (r >= a.xt.dim[0]) return;
    bool   in = w.wanted[r] != 0;
    float *stat = (float *)a.teacher_stat.data + r * 4;
    stat[0] = in ? pl_key_value(w.full[r].best) : 0;
    stat[1] = in ? lse_of(w.full[r]) : 0;
    stat[2] = in ? lse_of(w.draft[r]) : 0;
    stat[3] = in;
    if (a.teacher_argmax) a.teacher_argmax[r] = in ? pl_key_id(w.full[r].best) : -1;
}

// A tile's share of row blockIdx.x's loss and acceptance.
static __global__ void loss_kernel(pl_divergence_args a, work w, int64_t first, int width) {
    __shared__ float room[PL_WARP];
    int64_t          i = blockIdx.x;
    if (!takes_part(a, i)) return;
    const float *z = w.z + i * PL_DIV_TILE, lse = ((const float *)a.stat.data)[i * 4 + 1];
    float       *out = (float *)a.loss.data, *out_accept = (float *)a.accept.data, loss = 0, accept = 0;
    if (a.objective == PL_OBJ_CE) {
        int64_t at = a.label[i] - first;
        if (threadIdx.x > 0 || at < 0 || at >= width) return;
        out[i] = lse - z[at];
        if (out_accept) out_accept[i] = expf(z[at] - lse);
        return;
    }
    // Probabilities from maximum and sum, not from the log-sum-exp, whose rounding grows with the logits.
    int64_t      row = a.teacher_row[i];
    const float *t = w.t + row * PL_DIV_TILE, lse_t = ((const float *)a.teacher_stat.data)[row * 4 + 2];
    running      student = w.student[i], full = w.full[row], draft = w.draft[row];
    float        z_max = pl_key_value(student.best), t_max = pl_key_value(full.best), d_max = pl_key_value(draft.best);
    for (int j = (int)threadIdx.x; j < width; j += PL_BLOCK) {
        loss += expf(t[j] - d_max) / draft.sum * ((t[j] - lse_t) - (z[j] - lse));
        accept += fminf(expf(t[j] - t_max) / full.sum, expf(z[j] - z_max) / student.sum);
    }
    loss = pl_block_sum(loss, room);
    accept = pl_block_sum(accept, room);
    if (threadIdx.x > 0) return;
    out[i] += loss;
    if (out_accept) out_accept[i] += accept;
}

// dz of a tile, over its logits.
static __global__ void dz_kernel(pl_divergence_args a, work w, int64_t first, int width) {
    int64_t i = blockIdx.x;
    bool    in = takes_part(a, i), kl = a.objective == PL_OBJ_KL;
    float  *z = w.z + i * PL_DIV_TILE, lse = ((const float *)a.stat.data)[i * 4 + 1];
    int64_t row = in && kl ? a.teacher_row[i] : 0;
    for (int j = (int)threadIdx.x; j < width; j += PL_BLOCK) {
        float p = 0;
        if (in && kl)
            p = expf(w.t[row * PL_DIV_TILE + j] - ((const float *)a.teacher_stat.data)[row * 4 + 2]);
        else if (in)
            p = first + j == a.label[i];
        z[j] = in ? a.weight[i] * (expf(z[j] - lse) - p) : 0;
    }
}

static void *room_for(pl_ctx *ctx, int64_t n, size_t each) {
    return pl_arena_alloc(&ctx->scratch, pl_size_mul((size_t)n, each, 1));
}

static work take_work(pl_ctx *ctx, const pl_divergence_args *a) {
    int64_t n = a->x.dim[0], teachers = a->objective == PL_OBJ_KL ? a->xt.dim[0] : 0;
    work    w = {};
    w.z = (float *)room_for(ctx, n, PL_DIV_TILE * sizeof(float));
    w.t = (float *)room_for(ctx, teachers, PL_DIV_TILE * sizeof(float));
    w.student = (running *)room_for(ctx, n, sizeof(running));
    w.full = (running *)room_for(ctx, teachers, sizeof(running));
    w.draft = (running *)room_for(ctx, teachers, sizeof(running));
    w.wanted = (int32_t *)room_for(ctx, teachers, sizeof(int32_t));
    return w;
}

// Logits of `width` ids from `first` on, [rows, PL_DIV_TILE]; ids go through `map`.
static void tile_logits(pl_ctx *ctx, float *z, const pl_tensor *x, const pl_tensor *w, const int32_t *map,
                        int64_t first, int width) {
    int64_t    d = w->dim[1];
    pl_operand ids = pl_rows_of(w->data, d, w->dtype);
    if (map)
        ids.map = map + first;
    else
        ids.data = (const char *)w->data + first * d * (ids.bf16 ? 2 : 4);
    pl_cuda_gemm(ctx, "divergence", z, PL_DIV_TILE, pl_rows_of(x->data, d, PL_F32), ids, x->dim[0], width, d, false);
}

static int tile_width(int64_t ids, int64_t first) {
    return (int)(ids - first < PL_DIV_TILE ? ids - first : PL_DIV_TILE);
}

// Both models' logits of a tile of draft ids.
static void draft_tile(pl_ctx *ctx, const pl_divergence_args *a, const work *w, int64_t first, int width) {
    tile_logits(ctx, w->z, &a->x, &a->w, NULL, first, width);
    if (a->objective == PL_OBJ_KL) tile_logits(ctx, w->t, &a->xt, &a->wt, a->d2t, first, width);
}

PL_CUDA_OP(divergence_fwd) {
    const pl_divergence_args *a = (const pl_divergence_args *)args;
    const char               *op = "divergence";
    size_t                    mark = pl_arena_mark(&ctx->scratch);
    work                      w = take_work(ctx, a);
    int64_t                   n = a->x.dim[0], Vd = a->w.dim[0], kl = a->objective == PL_OBJ_KL;
    int64_t                   teachers = kl ? a->xt.dim[0] : 0, V = kl ? a->wt.dim[0] : 0;
    pl_grid                   rows(pl_ceil_div(n, PL_BLOCK)), teacher_rows(pl_ceil_div(teachers, PL_BLOCK));
    bool                      run = !ctx->measuring;
    pl_ctx_zero(ctx, w.student, (size_t)n * sizeof *w.student);
    pl_ctx_zero(ctx, w.full, (size_t)teachers * sizeof *w.full);
    pl_ctx_zero(ctx, w.draft, (size_t)teachers * sizeof *w.draft);
    pl_ctx_zero(ctx, w.wanted, (size_t)teachers * sizeof *w.wanted);
    if (run && kl) PL_LAUNCH(ctx, op, want_kernel, rows, PL_BLOCK, w.wanted, *a);
    for (int64_t v = 0; v < V && run; v += PL_DIV_TILE) {
        tile_logits(ctx, w.t, &a->xt, &a->wt, NULL, v, tile_width(V, v));
        PL_LAUNCH(ctx, op, pass_kernel, pl_grid(teachers), PL_BLOCK, w.full, w.t, v, tile_width(V, v));
    }
    for (int64_t j = 0; j < Vd && run; j += PL_DIV_TILE) {
        draft_tile(ctx, a, &w, j, tile_width(Vd, j));
        PL_LAUNCH(ctx, op, pass_kernel, pl_grid(n), PL_BLOCK, w.student, w.z, j, tile_width(Vd, j));
        if (kl) PL_LAUNCH(ctx, op, pass_kernel, pl_grid(teachers), PL_BLOCK, w.draft, w.t, j, tile_width(Vd, j));
    }
    if (run) PL_LAUNCH(ctx, op, student_stat_kernel, rows, PL_BLOCK, *a, w);
    if (run && kl) PL_LAUNCH(ctx, op, teacher_stat_kernel, teacher_rows, PL_BLOCK, *a, w);
    for (int64_t j = 0; j < Vd && run; j += PL_DIV_TILE) {
        draft_tile(ctx, a, &w, j, tile_width(Vd, j));
        PL_LAUNCH(ctx, op, loss_kernel, pl_grid(n), PL_BLOCK, *a, w, j, tile_width(Vd, j));
    }
    pl_arena_release(&ctx->scratch, mark);
}

PL_CUDA_OP(divergence_bwd) {
    const pl_divergence_args *a = (const pl_divergence_args *)args;
    const char               *op = "divergence backward";
    size_t                    mark = pl_arena_mark(&ctx->scratch);
    work                      w = take_work(ctx, a);
    int64_t                   n = a->x.dim[0], Vd = a->w.dim[0], d = a->w.dim[1];
    for (int64_t j = 0; j < Vd && !ctx->measuring; j += PL_DIV_TILE) {
        int width = tile_width(Vd, j);
        draft_tile(ctx, a, &w, j, width);
        PL_LAUNCH(ctx, op, dz_kernel, pl_grid(n), PL_BLOCK, *a, w, j, width);
        const char *ids = (const char *)a->w.data + j * d * (a->w.dtype == PL_BF16 ? 2 : 4);
        if (a->x.grad)
            pl_cuda_gemm(ctx, op, pl_grad_f32(&a->x), d, pl_rows_of(w.z, PL_DIV_TILE, PL_F32),
                         pl_columns_of(ids, d, a->w.dtype), n, d, width, true);
        if (a->w.grad)
            pl_cuda_gemm(ctx, op, pl_grad_f32(&a->w) + j * d, d, pl_columns_of(w.z, PL_DIV_TILE, PL_F32),
                         pl_columns_of(a->x.data, d, PL_F32), width, d, n, true);
    }
    pl_arena_release(&ctx->scratch, mark);
}
