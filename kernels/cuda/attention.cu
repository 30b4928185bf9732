// Attention over a KV cache (kernels/op/attention.h, cached; over blocks: attention_blocks.cu). What fixes a row's
// bits, per query head:
//   keys in groups of 32 positions from position 0: scores (a fma chain over the head's elements each), the group's
//   maximum, exponentials, their sum by the warp's tree, values times weights in order of position;
//   a part's groups folded in order; parts are runs of groups from position 0, of a length that the row's own number of
//   keys alone gives; then the parts added in order.
// Neither slots nor other rows nor the kernels' way to share work show.
//
// Two launches. The first takes all keys that lie at their positions (committed ones, chains'): rows of one session
// share a reading of them, a block takes a part, a key head and `tile` rows with their query heads. With few queries
// (plain decoding) each warp takes a group; with many each warp takes eight queries, and groups pass through shared
// memory in two buffers. The second takes, row by row, the groups in which a tree's branch lies at slots of its own,
// folds them after what the first has left of their part, and adds up.
#include "kernels/cuda/attention_tiles.cuh"

static_assert(PL_ATTN_GROUP == PL_WARP, "a lane for each key of a group");
constexpr int PARTS = 64; // of one row, at most
constexpr int RUN = 4;    // groups of a part, at least
constexpr int ROWS = 64;  // of one launch: bounds the parts' memory
constexpr int MOST_HD = 256;
constexpr int MANY = 8; // queries of a warp, at most; warps of a block that takes many
constexpr int TILE = MANY * MANY;

struct cached {
    const pl_kvrow *row; // of the launch's first row on
    const float    *q;
    float          *part, *o; // part: [rows, nh, PARTS, 2 + hd]: maximum, sum, values
    int64_t         width;    // elements of a row of q
    int64_t         paths;    // from where the rows say that paths lie to where they are read, bytes
    int             rows, nh, nkv, hd, heads, tile; // heads: of a key head that a block takes, rows of a block
    float           scale;
    int             pad;
};

// Groups of a part, for a row of that many.
static __device__ __forceinline__ int run_of(int groups) {
    int run = RUN;
    while ((groups + run - 1) / run > PARTS)
        run *= 2;
    return run;
}
static __device__ __forceinline__ int groups_of(int keys) {
    return (keys + PL_WARP - 1) / PL_WARP;
}
static __device__ __forceinline__ int keys_of(const pl_kvrow &r) {
    return r.n_ctx + r.n_path;
}
static __device__ __forceinline__ const int32_t *path_of(const cached &a, const pl_kvrow &r) {
    return r.path ? (const int32_t *)((uintptr_t)r.path + (uintptr_t)a.paths) : NULL;
}
// Keys that the first launch takes: all where each lies at its position, else whole groups of committed ones.
static __device__ __forceinline__ int shared_keys_of(const cached &a, const pl_kvrow &r) {
    const int32_t *path = path_of(a, r);
    bool           chain = true;
    for (int i = 0; i < r.n_path && path && chain; i++)
        chain = path[i] == r.n_ctx + i;
    return chain ? keys_of(r) : r.n_ctx / PL_WARP * PL_WARP;
}

// One group's share of a query: maximum, sum of exp(score - maximum), and the same sum times values. Folding one into
// what came before: nothing is left to the compiler's contraction, as two kernels must agree.
static __device__ __forceinline__ void fold_factors(float *max, float *sum, float m, float s, float *before,
                                                    float *own) {
    float to = fmaxf(*max, m);
    *before = isinf(*max) ? 0 : expf(*max - to);
    *own = isinf(m) ? 0 : expf(m - to);
    *sum = fmaf(s, *own, *sum * *before);
    *max = to;
}

template <int CHUNKS> constexpr int width_of = CHUNKS *PL_WARP;      // of a head, zeros past hd
template <int CHUNKS> constexpr int stride_of = CHUNKS *PL_WARP + 4; // of a key in shared memory: no bank twice

// Keys (or values) first..first + PL_WARP - 1 of a head into shared memory, zeros from `count` on and past hd, by `n`
// threads of which this is `me`.
template <int CHUNKS>
static __device__ __forceinline__ void stage(float *to, const float *from, const int32_t *path, int n_ctx, int first,
                                             int count, int64_t kv, int hd, int me, int n) {
    constexpr int FOURS = width_of<CHUNKS> / 4;
    const bool    whole = hd % 4 == 0 && (uintptr_t)from % 16 == 0;
    for (int e = me; e < PL_WARP * FOURS; e += n) {
        int          key = e / FOURS, d = e % FOURS * 4, i = first + key;
        bool         there = key < count && d < hd;
        int64_t      slot = !there ? 0 : !path || i < n_ctx ? i : path[i - n_ctx];
        const float *at = from + slot * kv + d;
        float       *place = to + key * stride_of<CHUNKS> + d;
        if (whole) {
            pl_copy_async<16, false>(place, there ? at : from, there);
        } else {
            for (int j = 0; j < 4; j++)
                place[j] = there && d + j < hd ? at[j] : 0;
        }
    }
}

// A group's share of Q queries, by one warp: q [Q, width], key and value [32, stride] and weight [32, Q] in shared
// memory; query i sees the first seen[i] keys of the group. o: elements lane, lane + 32, ...
template <int CHUNKS, int Q>
static __device__ __forceinline__ void group_share(const float *q, const float *key, const float *value, float *weight,
                                                   const int seen[Q], float scale, float max[Q], float sum[Q],
                                                   float o[Q][CHUNKS]) {
    int   lane = (int)threadIdx.x % PL_WARP;
    float dot[Q] = {};
#pragma unroll 4
    for (int d = 0; d < width_of<CHUNKS>; d += 4) {
        float4 k = *(const float4 *)(key + lane * stride_of<CHUNKS> + d);
#pragma unroll
        for (int i = 0; i < Q; i++) {
            float4 of = *(const float4 *)(q + i * width_of<CHUNKS> + d);
            dot[i] = fmaf(of.x, k.x, dot[i]);
            dot[i] = fmaf(of.y, k.y, dot[i]);
            dot[i] = fmaf(of.z, k.z, dot[i]);
            dot[i] = fmaf(of.w, k.w, dot[i]);
        }
    }
#pragma unroll
    for (int i = 0; i < Q; i++) {
        float score = lane < seen[i] ? fmaf(scale, dot[i], 0.0f) : -INFINITY;
        max[i] = pl_warp_max(score);
        float p = lane < seen[i] ? expf(score - max[i]) : 0;
        sum[i] = pl_warp_sum(p);
        weight[lane * Q + i] = p;
#pragma unroll
        for (int c = 0; c < CHUNKS; c++)
            o[i][c] = 0;
    }
    __syncwarp();
#pragma unroll 4
    for (int j = 0; j < PL_WARP; j++) {
        float p[Q];
#pragma unroll
        for (int i = 0; i < Q; i++)
            p[i] = weight[j * Q + i];
#pragma unroll
        for (int c = 0; c < CHUNKS; c++) {
            float v = value[j * stride_of<CHUNKS> + c * PL_WARP + lane];
#pragma unroll
            for (int i = 0; i < Q; i++)
                o[i][c] = fmaf(p[i], v, o[i][c]);
        }
    }
    __syncwarp();
}

static __device__ __forceinline__ float *part_of(const cached &a, int m, int head, int part) {
    return a.part + (((int64_t)m * a.nh + head) * PARTS + part) * (2 + a.hd);
}

// Query i of a block is head first + i % heads of row row0 + i / heads.
struct queries {
    int kv_head, head0, heads, row0, rows;
};
static __device__ __forceinline__ queries queries_of(const cached &a, int which, int row0, int rows) {
    int per_kv = a.nh / a.nkv, runs = (per_kv + a.heads - 1) / a.heads, first = which % runs * a.heads;
    int left = per_kv - first;
    return queries{which / runs, which / runs * per_kv + first, left < a.heads ? left : a.heads, row0, rows};
}

template <int CHUNKS>
static __device__ __forceinline__ void take_queries(float *to, const cached &a, const queries &b, int most) {
    for (int e = (int)threadIdx.x; e < most * width_of<CHUNKS>; e += (int)blockDim.x) {
        int  i = e / width_of<CHUNKS>, d = e % width_of<CHUNKS>, row = i / a.heads, head = i % a.heads;
        bool there = row < b.rows && head < b.heads && d < a.hd;
        to[e] = there ? a.q[(b.row0 + row) * a.width + (int64_t)(b.head0 + head) * a.hd + d] : 0;
    }
}

// ---- few queries: a warp for each group -----------------------------------------------------------------------------

// Shared memory of a block of up to MANY warps, by pieces.
template <int CHUNKS, int Q> struct few_room {
    float                            *q, *o, *max, *sum, *weight, *tile; // o, max, sum: what has been folded
    float                            *part_max, *part_sum;               // [warps, Q]
    static __host__ __device__ size_t floats(int warps) {
        return (size_t)(2 * Q * width_of<CHUNKS> + 2 * Q +
                        warps * (PL_WARP * Q + 2 * Q + 2 * PL_WARP * stride_of<CHUNKS>));
    }
    __device__ __forceinline__ few_room(float *at, int warps) {
        tile = at, at += warps * 2 * PL_WARP * stride_of<CHUNKS>;
        q = at, at += Q * width_of<CHUNKS>;
        o = at, at += Q * width_of<CHUNKS>;
        weight = at, at += warps * PL_WARP * Q;
        part_max = at, at += warps * Q;
        part_sum = at, at += warps * Q;
        max = at, at += Q;
        sum = at;
    }
};

// Folds groups g0..g1 - 1 into the room's state; query i sees keys[i] keys in all. Rows share r's cache.
template <int CHUNKS, int Q>
static __device__ __forceinline__ void fold_groups(const cached &a, few_room<CHUNKS, Q> &room, const pl_kvrow &r,
                                                   bool direct, int kv_head, const int *keys, int g0, int g1) {
    const int      lane = (int)threadIdx.x % PL_WARP, warp = (int)threadIdx.x / PL_WARP;
    const int      warps = (int)blockDim.x / PL_WARP;
    const int64_t  kv = (int64_t)a.nkv * a.hd, head = (int64_t)kv_head * a.hd;
    float         *key = room.tile + warp * 2 * PL_WARP * stride_of<CHUNKS>, *value = key + PL_WARP * stride_of<CHUNKS>;
    const int32_t *path = direct ? NULL : path_of(a, r);
    for (int g = g0; g < g1; g += warps) {
        int   at = (g + warp) * PL_WARP, most = 0, seen[Q];
        float max[Q], sum[Q], o[Q][CHUNKS];
#pragma unroll
        for (int i = 0; i < Q; i++) {
            int left = keys[i] - at;
            seen[i] = g + warp >= g1 || left < 0 ? 0 : left < PL_WARP ? left : PL_WARP;
            most = seen[i] > most ? seen[i] : most;
        }
        if (most > 0) {
            stage<CHUNKS>(key, (const float *)r.k + head, path, r.n_ctx, at, most, kv, a.hd, lane, PL_WARP);
            stage<CHUNKS>(value, (const float *)r.v + head, path, r.n_ctx, at, most, kv, a.hd, lane, PL_WARP);
        }
        pl_copy_commit();
        pl_copy_wait<0>();
        __syncthreads(); // the queries are there too
        if (most > 0) {
            group_share<CHUNKS, Q>(room.q, key, value, room.weight + warp * PL_WARP * Q, seen, a.scale, max, sum, o);
#pragma unroll
            for (int i = 0; i < Q; i++) {
                if (lane == 0) room.part_max[warp * Q + i] = max[i], room.part_sum[warp * Q + i] = sum[i];
#pragma unroll
                for (int c = 0; c < CHUNKS; c++)
                    key[i * width_of<CHUNKS> + c * PL_WARP + lane] = o[i][c]; // the keys have been read
            }
        }
        __syncthreads();
        for (int e = (int)threadIdx.x; e < Q * width_of<CHUNKS>; e += (int)blockDim.x) {
            int   i = e / width_of<CHUNKS>;
            float to = room.max[i], of = room.sum[i], x = room.o[e], before, own;
            for (int w = 0; w < warps && g + w < g1; w++) {
                if ((g + w) * PL_WARP >= keys[i]) continue;
                fold_factors(&to, &of, room.part_max[w * Q + i], room.part_sum[w * Q + i], &before, &own);
                x = fmaf(room.tile[w * 2 * PL_WARP * stride_of<CHUNKS> + e], own, x * before);
            }
            room.o[e] = x;
        }
        __syncthreads();
        for (int i = (int)threadIdx.x; i < Q; i += (int)blockDim.x)
            for (int w = 0; w < warps && g + w < g1; w++) {
                float before, own;
                if ((g + w) * PL_WARP < keys[i])
                    fold_factors(&room.max[i], &room.sum[i], room.part_max[w * Q + i], room.part_sum[w * Q + i],
                                 &before, &own);
            }
        __syncthreads();
    }
}

// The room's state from a part that the first launch has left (NULL: nothing yet), and to it.
template <int CHUNKS, int Q>
static __device__ __forceinline__ void start_state(few_room<CHUNKS, Q> &room, const cached &a, const queries &b,
                                                   int part) {
    for (int e = (int)threadIdx.x; e < Q * width_of<CHUNKS>; e += (int)blockDim.x) {
        int          i = e / width_of<CHUNKS>, d = e % width_of<CHUNKS>, row = i / a.heads, head = i % a.heads;
        bool         there = part >= 0 && row < b.rows && head < b.heads;
        const float *from = there ? part_of(a, b.row0 + row, b.head0 + head, part) : NULL;
        room.o[e] = there && d < a.hd ? from[2 + d] : 0;
        if (d == 0) room.max[i] = there ? from[0] : -INFINITY, room.sum[i] = there ? from[1] : 0;
    }
    __syncthreads();
}
template <int CHUNKS, int Q>
static __device__ __forceinline__ void keep_state(const few_room<CHUNKS, Q> &room, const cached &a, const queries &b,
                                                  int part, const int *last) {
    for (int e = (int)threadIdx.x; e < Q * width_of<CHUNKS>; e += (int)blockDim.x) {
        int i = e / width_of<CHUNKS>, d = e % width_of<CHUNKS>, row = i / a.heads, head = i % a.heads;
        if (row >= b.rows || head >= b.heads || d >= a.hd || part > last[i]) continue;
        float *to = part_of(a, b.row0 + row, b.head0 + head, part);
        to[2 + d] = room.o[e];
        if (d == 0) to[0] = room.max[i], to[1] = room.sum[i];
    }
    __syncthreads();
}

// What the block's queries see, in shared memory: keys (0 for a query that is none), the last part that holds any (-1:
// none) and groups of a part.
struct sight {
    int keys[TILE], last[TILE], run[TILE];
};
static __device__ __forceinline__ void look(sight &s, const cached &a, const queries &b, int most) {
    for (int i = (int)threadIdx.x; i < most; i += (int)blockDim.x) {
        int row = i / a.heads;
        s.keys[i] = 0, s.last[i] = -1, s.run[i] = RUN;
        if (row >= b.rows || i % a.heads >= b.heads) continue;
        const pl_kvrow &r = a.row[b.row0 + row];
        s.keys[i] = shared_keys_of(a, r);
        s.run[i] = run_of(groups_of(keys_of(r)));
        s.last[i] = s.keys[i] ? (s.keys[i] - 1) / PL_WARP / s.run[i] : -1;
    }
    __syncthreads();
}

// Grid: parts, key heads times runs of their query heads, tiles of rows.
template <int CHUNKS, int Q> static __global__ void __launch_bounds__(128) few_kernel(cached a) {
    pl_previous_done();
    __shared__ sight s;
    __shared__ int   keys[Q], last[Q];
    int              row0 = (int)blockIdx.z * a.tile, rows = a.rows - row0 < a.tile ? a.rows - row0 : a.tile;
    int              part = (int)blockIdx.x, least = 1 << 30, most = 0;
    queries          b = queries_of(a, (int)blockIdx.y, row0, rows);
    look(s, a, b, Q);
    for (int i = 0; i < Q; i++) {
        if (part > s.last[i]) continue;
        least = s.run[i] < least ? s.run[i] : least;
        most = s.run[i] > most ? s.run[i] : most;
    }
    if (most == 0) return; // nobody sees keys of this part
    few_room<CHUNKS, Q> room((float *)pl_dynamic_shared(), (int)blockDim.x / PL_WARP);
    take_queries<CHUNKS>(room.q, a, b, Q);
    for (int run = least; run <= most; run *= 2) { // rows about a boundary may have parts of two lengths
        int end = 0;
        __syncthreads();
        for (int i = (int)threadIdx.x; i < Q; i += (int)blockDim.x)
            keys[i] = s.run[i] == run && part <= s.last[i] ? s.keys[i] : 0, last[i] = keys[i] ? s.last[i] : -1;
        __syncthreads();
        for (int i = 0; i < Q; i++)
            end = keys[i] > end ? keys[i] : end;
        end = groups_of(end) < (part + 1) * run ? groups_of(end) : (part + 1) * run;
        start_state(room, a, b, -1);
        fold_groups(a, room, a.row[row0], true, b.kv_head, keys, part * run, end);
        keep_state(room, a, b, part, last);
    }
}

// ---- many queries: eight for each warp, groups shared by the block --------------------------------------------------

template <int CHUNKS> struct many_room {
    float q[TILE][width_of<CHUNKS>];
    float tile[2][2][PL_WARP][stride_of<CHUNKS>]; // buffers of keys and values
    float weight[MANY][PL_WARP][MANY];
};

template <int CHUNKS> static __global__ void __launch_bounds__(MANY *PL_WARP, 1) many_kernel(cached a) {
    pl_previous_done();
    __shared__ sight   s;
    many_room<CHUNKS> &room = *(many_room<CHUNKS> *)pl_dynamic_shared();
    const int          lane = (int)threadIdx.x % PL_WARP, warp = (int)threadIdx.x / PL_WARP;
    const int64_t      kv = (int64_t)a.nkv * a.hd;
    int                row0 = (int)blockIdx.z * a.tile, rows = a.rows - row0 < a.tile ? a.rows - row0 : a.tile;
    int                part = (int)blockIdx.x, least = 1 << 30, most = 0;
    queries            b = queries_of(a, (int)blockIdx.y, row0, rows);
    look(s, a, b, TILE);
    for (int i = 0; i < TILE; i++) {
        if (part > s.last[i]) continue;
        least = s.run[i] < least ? s.run[i] : least;
        most = s.run[i] > most ? s.run[i] : most;
    }
    if (most == 0) return;
    take_queries<CHUNKS>(&room.q[0][0], a, b, TILE);
    const pl_kvrow &r = a.row[row0];
    const float    *from[2] = {(const float *)r.k + b.kv_head * a.hd, (const float *)r.v + b.kv_head * a.hd};
    for (int run = least; run <= most; run *= 2) {
        float max[MANY], sum[MANY], o[MANY][CHUNKS];
        int   keys[MANY], end = 0;
        for (int i = 0; i < TILE; i++)
            if (s.run[i] == run && part <= s.last[i] && s.keys[i] > end) end = s.keys[i];
#pragma unroll
        for (int i = 0; i < MANY; i++) {
            int of = warp * MANY + i;
            keys[i] = s.run[of] == run && part <= s.last[of] ? s.keys[of] : 0;
            max[i] = -INFINITY, sum[i] = 0;
#pragma unroll
            for (int c = 0; c < CHUNKS; c++)
                o[i][c] = 0;
        }
        int  g0 = part * run, g1 = groups_of(end) < g0 + run ? groups_of(end) : g0 + run;
        auto fetch = [&](int g, int to) {
            for (int which = 0; which < 2 && g < g1; which++)
                stage<CHUNKS>(&room.tile[to][which][0][0], from[which], NULL, 0, g * PL_WARP, end - g * PL_WARP, kv,
                              a.hd, (int)threadIdx.x, MANY * PL_WARP);
            pl_copy_commit();
        };
        fetch(g0, 0);
        for (int g = g0; g < g1; g++) {
            int   now = (g - g0) & 1, seen[MANY], any = 0;
            float m[MANY], t[MANY], x[MANY][CHUNKS];
            fetch(g + 1, now ^ 1);
            pl_copy_wait<1>();
            __syncthreads();
#pragma unroll
            for (int i = 0; i < MANY; i++) {
                int left = keys[i] - g * PL_WARP;
                seen[i] = left < 0 ? 0 : left < PL_WARP ? left : PL_WARP;
                any |= seen[i];
            }
            if (any) {
                group_share<CHUNKS, MANY>(room.q[warp * MANY], &room.tile[now][0][0][0], &room.tile[now][1][0][0],
                                          &room.weight[warp][0][0], seen, a.scale, m, t, x);
#pragma unroll
                for (int i = 0; i < MANY; i++) {
                    float before, own;
                    if (!seen[i]) continue;
                    fold_factors(&max[i], &sum[i], m[i], t[i], &before, &own);
#pragma unroll
                    for (int c = 0; c < CHUNKS; c++)
                        o[i][c] = fmaf(x[i][c], own, o[i][c] * before);
                }
            }
            __syncthreads(); // the buffer is free
        }
        pl_copy_wait<0>();
#pragma unroll
        for (int i = 0; i < MANY; i++) {
            int of = warp * MANY + i;
            if (!keys[i]) continue;
            float *to = part_of(a, row0 + of / a.heads, b.head0 + of % a.heads, part);
            if (lane == 0) to[0] = max[i], to[1] = sum[i];
#pragma unroll
            for (int c = 0; c < CHUNKS; c++)
                if (c * PL_WARP + lane < a.hd) to[2 + c * PL_WARP + lane] = o[i][c];
        }
    }
}

// ---- the second launch: branches, then parts in order ---------------------------------------------------------------

// Grid: key heads times runs of their query heads, rows.
template <int CHUNKS, int Q> static __global__ void __launch_bounds__(128) finish_kernel(cached a) {
    pl_previous_done();
    __shared__ int   keys[Q], last[Q];
    __shared__ float weight[Q][PARTS], sum[Q];
    const int        lane = (int)threadIdx.x % PL_WARP, warp = (int)threadIdx.x / PL_WARP;
    int              m = (int)blockIdx.y;
    const pl_kvrow  &r = a.row[m];
    queries          b = queries_of(a, (int)blockIdx.x, m, 1);
    int n = keys_of(r), groups = groups_of(n), shared = groups_of(shared_keys_of(a, r)), run = run_of(groups);
    int parts = (groups + run - 1) / run;
    if (shared < groups) {
        few_room<CHUNKS, Q> room((float *)pl_dynamic_shared(), (int)blockDim.x / PL_WARP);
        for (int i = (int)threadIdx.x; i < Q; i += (int)blockDim.x)
            keys[i] = i < b.heads ? n : 0, last[i] = PARTS;
        take_queries<CHUNKS>(room.q, a, b, Q);
        __syncthreads();
        for (int p = shared / run; p < parts; p++) {
            int g0 = p * run > shared ? p * run : shared, g1 = (p + 1) * run < groups ? (p + 1) * run : groups;
            start_state(room, a, b, g0 > p * run ? p : -1);
            fold_groups(a, room, r, false, b.kv_head, keys, g0, g1);
            keep_state(room, a, b, p, last);
        }
    }
    for (int i = warp; i < b.heads; i += (int)blockDim.x / PL_WARP) { // a warp for each query: the parts' weights
        float max = -INFINITY;
        for (int p = lane; p < parts; p += PL_WARP)
            max = fmaxf(max, part_of(a, m, b.head0 + i, p)[0]);
        max = pl_warp_max(max);
        for (int p = lane; p < parts; p += PL_WARP)
            weight[i][p] = expf(part_of(a, m, b.head0 + i, p)[0] - max);
        __syncwarp();
        float total = 0;
        for (int p = 0; p < parts; p++)
            total = fmaf(part_of(a, m, b.head0 + i, p)[1], weight[i][p], total);
        if (lane == 0) sum[i] = total;
    }
    __syncthreads();
    for (int e = (int)threadIdx.x; e < b.heads * a.hd; e += (int)blockDim.x) {
        int   i = e / a.hd, d = e % a.hd;
        float o = 0;
#pragma unroll 8
        for (int p = 0; p < parts; p++)
            o = fmaf(part_of(a, m, b.head0 + i, p)[2 + d], weight[i][p], o);
        a.o[((int64_t)m * a.nh + b.head0 + i) * a.hd + d] = parts ? o / sum[i] : 0;
    }
}

// ---- launching ------------------------------------------------------------------------------------------------------

// Rows of a block: as many as fit whose tiles lie within one session each.
static int tile_rows(const pl_kvrow *row, int rows, int most) {
    for (; most > 1; most /= 2) {
        bool alike = true;
        for (int m = 1; m < rows && alike; m++)
            alike = m % most == 0 || (row[m].k == row[m - 1].k && row[m].n_ctx == row[m - 1].n_ctx);
        if (alike) break;
    }
    return most;
}

// Warps whose groups fit a block; 0: none does.
template <int CHUNKS, int Q> static int few_warps(const pl_ctx *ctx) {
    int warps = 4;
    while (warps > 0 && few_room<CHUNKS, Q>::floats(warps) * sizeof(float) + 4096 > pl_cuda_state_of(ctx)->room)
        warps /= 2;
    return warps;
}

template <int CHUNKS, int Q> static void few(pl_ctx *ctx, const cached &a, int64_t runs) {
    int warps = few_warps<CHUNKS, Q>(ctx);
    PL_LAUNCH_EARLY_ROOM(ctx, "attention", (few_kernel<CHUNKS, Q>), pl_grid(PARTS, runs, pl_ceil_div(a.rows, a.tile)),
                         warps * PL_WARP, (few_room<CHUNKS, Q>::floats(warps) * sizeof(float)), a);
}

template <int CHUNKS> static void forward(pl_ctx *ctx, cached a, const pl_kvrow *on_host) {
    int  per_kv = a.nh / a.nkv;
    bool fits = sizeof(many_room<CHUNKS>) + 4096 <= pl_cuda_state_of(ctx)->room;
    a.heads = per_kv < MANY ? per_kv : MANY;
    a.tile = tile_rows(on_host, a.rows, (fits ? TILE : MANY) / a.heads);
    int64_t runs = a.nkv * pl_ceil_div(per_kv, a.heads);
    if (a.tile > a.rows) a.tile = a.rows;
    if (a.tile * a.heads > MANY)
        PL_LAUNCH_EARLY_ROOM(ctx, "attention", many_kernel<CHUNKS>, pl_grid(PARTS, runs, pl_ceil_div(a.rows, a.tile)),
                             MANY * PL_WARP, sizeof(many_room<CHUNKS>), a);
    else if (a.tile * a.heads > MANY / 2)
        few<CHUNKS, MANY>(ctx, a, runs);
    else
        few<CHUNKS, MANY / 2>(ctx, a, runs);
    int warps = few_warps<CHUNKS, MANY>(ctx);
    if (a.heads > MANY / 2)
        PL_LAUNCH_EARLY_ROOM(ctx, "attention", (finish_kernel<CHUNKS, MANY>), pl_grid(runs, a.rows), warps * PL_WARP,
                             (few_room<CHUNKS, MANY>::floats(warps) * sizeof(float)), a);
    else
        PL_LAUNCH_EARLY_ROOM(ctx, "attention", (finish_kernel<CHUNKS, MANY / 2>), pl_grid(runs, a.rows),
                             warps * PL_WARP, (few_room<CHUNKS, MANY / 2>::floats(warps) * sizeof(float)), a);
}

// The paths of all rows as kernels are to read them: how far they are from where the rows say; 0 where they are read
// there. What lies between them is announced with them.
static int64_t paths_of(pl_ctx *ctx, const pl_kvrow *row, int64_t rows) {
    const int32_t *from = NULL, *end = NULL;
    for (int64_t m = 0; m < rows; m++) {
        if (!row[m].path || row[m].n_path <= 0) continue;
        if (!from || row[m].path < from) from = row[m].path;
        if (!end || row[m].path + row[m].n_path > end) end = row[m].path + row[m].n_path;
    }
    return from ? (int64_t)((uintptr_t)pl_index(ctx, from, end - from) - (uintptr_t)from) : 0;
}

static void cached_forward(pl_ctx *ctx, const pl_attention_args *a) {
    int64_t M = a->qkv.dim[0], most = M < ROWS ? M : ROWS;
    size_t  mark = pl_arena_mark(&ctx->scratch);
    cached  c = {};
    c.part = (float *)pl_arena_alloc(&ctx->scratch,
                                     pl_size_mul((size_t)(most * a->nh * PARTS), (size_t)(2 + a->hd), sizeof(float)));
    c.width = a->qkv.dim[1], c.nh = a->nh, c.nkv = a->nkv, c.hd = a->hd, c.scale = (float)a->scale;
    for (int64_t m = 0; m < M && !ctx->measuring; m += ROWS) {
        c.rows = (int)(M - m < ROWS ? M - m : ROWS);
        c.row = pl_index(ctx, a->row + m, c.rows);
        c.paths = paths_of(ctx, a->row + m, c.rows);
        c.q = pl_f32(&a->qkv) + m * c.width;
        c.o = pl_f32(&a->o) + m * a->nh * a->hd;
        if (a->hd <= 64)
            forward<2>(ctx, c, a->row + m);
        else if (a->hd <= 128)
            forward<4>(ctx, c, a->row + m);
        else
            forward<8>(ctx, c, a->row + m);
    }
    pl_arena_release(&ctx->scratch, mark);
}

PL_CUDA_OP(attention_fwd) {
    const pl_attention_args *a = (const pl_attention_args *)args;
    if (!a->row) return PL_CUDA(attention_blocks)(ctx, a);
    if (a->hd > MOST_HD)
        pl_ctx_fail(ctx, PL_E_UNSUPPORTED, "op attention: heads of %d; the CUDA backend takes %d", a->hd, MOST_HD);
    else
        cached_forward(ctx, a);
}
