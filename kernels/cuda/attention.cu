// Attention for decoding (over blocks: attention_blocks.cu): one warp per (row, key head, part of the row's keys), the
// query heads that share the key head together. Keys go in groups of PL_ATTN_GROUP positions counted from position 0;
// inside a group lane i has key i's score; groups are merged in order. A row's groups are dealt to at most PARTS warps
// in contiguous runs, by the row's own number of keys alone; a second kernel merges the parts in order. So neither
// slots nor other rows show.
#include "kernels/cuda/attention_tiles.cuh"

constexpr int PARTS = 64; // of one row, at most
constexpr int HEADS = 4;  // query heads of a warp, at most
constexpr int WARPS = 4;  // of a block
constexpr int MOST_HD = 256;
constexpr int ROWS = 32; // of one launch: bounds the parts' memory

// What row m sees, in order of position: key i and its value, for key head `head`.
struct cached_view {
    const pl_kvrow         *row;
    int64_t                 kv, head;
    __device__ int64_t      keys(int64_t m) const { return (int64_t)row[m].n_ctx + row[m].n_path; }
    __device__ const float *key(int64_t m, int64_t i) const {
        const pl_kvrow &r = row[m];
        return (const float *)r.k + slot(r, i) * kv + head;
    }
    __device__ const float *value(int64_t m, int64_t i) const {
        const pl_kvrow &r = row[m];
        return (const float *)r.v + slot(r, i) * kv + head;
    }
    __device__ static int64_t slot(const pl_kvrow &r, int64_t i) {
        return i < r.n_ctx || !r.path ? i : r.path[i - r.n_ctx];
    }
};

struct shape {
    int64_t      m0, width; // first row of this launch; elements of a row of qkv
    const float *q;         // queries, row 0
    int          nh, nkv, hd;
    float        scale;
    float       *part; // [rows, nh, PARTS, 2 + hd]: maximum, sum, values
    float       *o, *lse;
};

static __device__ __forceinline__ int64_t groups_a_part(int64_t groups) {
    return (groups + PARTS - 1) / PARTS;
}

// CHUNKS: of 32 elements, of a head. Grid: parts / WARPS, key heads times runs of HEADS query heads, rows.
template <int CHUNKS, typename View>
static __global__ void __launch_bounds__(WARPS *PL_WARP) parts_kernel(shape s, View view) {
    __shared__ float tile[WARPS][PL_ATTN_GROUP][PL_WARP + 1], weight[WARPS][HEADS][PL_WARP];
    int              lane = (int)threadIdx.x % PL_WARP, warp = (int)threadIdx.x / PL_WARP;
    int              per_kv = s.nh / s.nkv, runs = (per_kv + HEADS - 1) / HEADS;
    int              kv_head = (int)blockIdx.y / runs, first = (int)blockIdx.y % runs * HEADS;
    int              heads = per_kv - first < HEADS ? per_kv - first : HEADS;
    int64_t          part = (int64_t)blockIdx.x * WARPS + warp, m = s.m0 + blockIdx.z;
    view.head = (int64_t)kv_head * s.hd;
    int64_t n = view.keys(m), groups = (n + PL_ATTN_GROUP - 1) / PL_ATTN_GROUP, each = groups_a_part(groups);
    int64_t g0 = part * each, g1 = g0 + each < groups ? g0 + each : groups;
    if (g0 >= g1) return; // whole warps leave, and no barrier of the block follows
    const float *q = s.q + m * s.width + ((int64_t)kv_head * per_kv + first) * s.hd;
    float        max[HEADS], sum[HEADS], o[HEADS][CHUNKS];
    for (int h = 0; h < HEADS; h++) {
        max[h] = -INFINITY, sum[h] = 0;
        for (int c = 0; c < CHUNKS; c++)
            o[h][c] = 0;
    }
    for (int64_t g = g0; g < g1; g++) {
        int64_t at = g * PL_ATTN_GROUP;
        int     here = (int)(n - at < PL_ATTN_GROUP ? n - at : PL_ATTN_GROUP);
        float   dot[HEADS] = {};
        for (int c = 0; c < CHUNKS; c++) { // 32 elements of all keys through shared memory: loads along rows
            int d0 = c * PL_WARP, width = s.hd - d0 < PL_WARP ? s.hd - d0 : PL_WARP;
            for (int j = 0; j < here; j++)
                if (lane < width) tile[warp][j][lane] = view.key(m, at + j)[d0 + lane];
            __syncwarp();
            for (int d = 0; d < width && lane < here; d++)
#pragma unroll
                for (int h = 0; h < HEADS; h++)
                    if (h < heads) dot[h] = fmaf(q[h * s.hd + d0 + d], tile[warp][lane][d], dot[h]);
            __syncwarp();
        }
#pragma unroll
        for (int h = 0; h < HEADS; h++) {
            float score = lane < here && h < heads ? s.scale * dot[h] : -INFINITY;
            float most = pl_warp_max(score), to = fmaxf(max[h], most);
            float p = isinf(score) ? 0 : expf(score - to), old = isinf(max[h]) ? 0 : expf(max[h] - to);
            weight[warp][h][lane] = p;
            sum[h] = sum[h] * old + pl_warp_sum(p);
            max[h] = to;
            for (int c = 0; c < CHUNKS; c++)
                o[h][c] *= old;
        }
        __syncwarp();
        for (int j = 0; j < here; j++) {
            const float *v = view.value(m, at + j);
#pragma unroll
            for (int c = 0; c < CHUNKS; c++) {
                float x = c * PL_WARP + lane < s.hd ? v[c * PL_WARP + lane] : 0;
#pragma unroll
                for (int h = 0; h < HEADS; h++)
                    o[h][c] = fmaf(weight[warp][h][j], x, o[h][c]);
            }
        }
        __syncwarp();
    }
    for (int h = 0; h < heads; h++) {
        float *to = s.part + (((int64_t)blockIdx.z * s.nh + kv_head * per_kv + first + h) * PARTS + part) * (2 + s.hd);
        if (lane == 0) to[0] = max[h], to[1] = sum[h];
        for (int c = 0; c < CHUNKS; c++)
            if (c * PL_WARP + lane < s.hd) to[2 + c * PL_WARP + lane] = o[h][c];
    }
}

// One block per (row, query head): parts in order.
template <typename View> static __global__ void merge_kernel(shape s, View view) {
    int64_t      m = s.m0 + blockIdx.y, h = blockIdx.x, n = view.keys(m);
    int64_t      groups = (n + PL_ATTN_GROUP - 1) / PL_ATTN_GROUP, each = groups_a_part(groups);
    int          parts = (int)(each ? (groups + each - 1) / each : 0);
    const float *of = s.part + ((int64_t)blockIdx.y * s.nh + h) * PARTS * (2 + s.hd);
    float        max = -INFINITY, sum = 0;
    for (int p = 0; p < parts; p++)
        max = fmaxf(max, of[p * (2 + s.hd)]);
    for (int p = 0; p < parts; p++)
        sum += of[p * (2 + s.hd) + 1] * expf(of[p * (2 + s.hd)] - max);
    for (int d = (int)threadIdx.x; d < s.hd; d += (int)blockDim.x) {
        float o = 0;
        for (int p = 0; p < parts; p++)
            o += of[p * (2 + s.hd) + 2 + d] * expf(of[p * (2 + s.hd)] - max);
        s.o[(m * s.nh + h) * s.hd + d] = parts ? o / sum : 0;
    }
    if (s.lse && threadIdx.x == 0) s.lse[m * s.nh + h] = parts ? max + logf(sum) : 0;
}

template <typename View> static void forward(pl_ctx *ctx, shape s, const View &view, int64_t M) {
    int runs = (s.nh / s.nkv + HEADS - 1) / HEADS, threads = WARPS * PL_WARP;
    for (s.m0 = 0; s.m0 < M; s.m0 += ROWS) {
        int64_t rows = M - s.m0 < ROWS ? M - s.m0 : ROWS;
        pl_grid grid(PARTS / WARPS, s.nkv * runs, rows);
        auto    small = parts_kernel<2, View>, middle = parts_kernel<4, View>, large = parts_kernel<8, View>;
        auto    kernel = s.hd <= 64 ? small : s.hd <= 128 ? middle : large;
        PL_LAUNCH(ctx, "attention", kernel, grid, threads, s, view);
        PL_LAUNCH(ctx, "attention", merge_kernel<View>, pl_grid(s.nh, rows), 64, s, view);
    }
}

static shape shape_of(const pl_attention_args *a, const pl_tensor *qkv) {
    return shape{0,     qkv->dim[1],     pl_f32(qkv), a->nh,         a->nkv,
                 a->hd, (float)a->scale, NULL,        pl_f32(&a->o), pl_f32(&a->lse)};
}

PL_CUDA_OP(attention_fwd) {
    const pl_attention_args *a = (const pl_attention_args *)args;
    int64_t                  M = a->qkv.dim[0], most = M < ROWS ? M : ROWS;
    if (!a->row) return PL_CUDA(attention_blocks)(ctx, a);
    if (a->hd > MOST_HD) {
        pl_ctx_fail(ctx, PL_E_UNSUPPORTED, "op attention: heads of %d; the CUDA backend takes %d", a->hd, MOST_HD);
        return;
    }
    size_t mark = pl_arena_mark(&ctx->scratch);
    shape  s = shape_of(a, &a->qkv);
    s.part = (float *)pl_arena_alloc(&ctx->scratch,
                                     pl_size_mul((size_t)(most * a->nh * PARTS), (size_t)(2 + a->hd), sizeof(float)));
    if (!ctx->measuring) forward(ctx, s, cached_view{a->row, (int64_t)a->nkv * a->hd, 0}, M);
    pl_arena_release(&ctx->scratch, mark);
}
