// Attention over a KV cache (kernels/op/attention.h, cached; over blocks: attention_blocks.cu). A row's bits, per query
// head, depend only on:
//   keys in groups of 32 positions from position 0, with each group's maximum, sum and values by attention_group.cuh;
//   a part's groups folded in order; parts are runs of groups from position 0, whose length depends on the row's own
//   number of keys alone; then the parts added in order.
// They do not depend on slots, other rows or the distribution of work.
//
// Two launches. The first takes all keys that lie at their positions (committed ones, chains'): rows of one session
// share the reading of them, a block takes a part, a key head and `tile` rows with their query heads, and groups pass
// through shared memory in two buffers. With many queries each warp takes 16 of them; with few (plain decoding) all
// warps take the same 16, and each warp 64 elements of the values. The second launch takes, row by row, the groups in
// which a tree's branch lies at its own slots, folds them into the first launch's results of their part, and adds up
// the parts.
#include "kernels/cuda/attention_group.cuh"
#include "kernels/cuda/rounded.cuh"

constexpr int PARTS = 32;   // most parts of one row
constexpr int RUN_BITS = 1; // at least 2 groups per part: enough parts for all multiprocessors, and few to add for 60
                            // rows
constexpr int ROWS = 64;    // rows of one launch: bounds the parts' memory
constexpr int MOST_HD = 256;
constexpr int FEW = PL_GROUP_QUERIES; // most queries of a warp, and of a block that takes few
constexpr int WARPS = 4;              // per block
constexpr int TILE = WARPS * FEW;     // most queries of a block that takes many
constexpr int THREADS = WARPS * PL_WARP;

struct cached {
    const pl_kvrow *row; // from the launch's first row on
    const float    *q;
    float          *part, *o; // part: [rows, nh, PARTS, part_floats]: maximum, sum; values from VALUES on
    int64_t         width;    // elements of a row of q
    int64_t         paths;    // offset in bytes from the rows' path pointers to the copy that is read
    int             rows, nh, nkv, hd, heads, tile; // heads: per key head and block, tile: rows of a block
    int             per_kv, by_heads;               // query heads per key head; see row_of
    float           scale, cap;
    int             window;
    int             first; // index of the launch's first row among the op's rows
    pl_rounding     rounding;
};
static_assert(sizeof(cached) == 6 * 8 + 12 * 4 + sizeof(pl_rounding),
              "no padding: launches are compared by their bytes");

// Parts of a row with so many groups, and groups per part (run_of: a power of two, as bits). These kernels avoid
// divisions by runtime values: a division is some 25 instructions, and a block of few queries has one warp per
// scheduler, at five cycles or more per instruction.
static __device__ __forceinline__ int parts_of(int groups, int run) {
    return (groups + (1 << run) - 1) >> run;
}
static __device__ __forceinline__ int run_of(int groups) {
    int run = RUN_BITS;
    while (parts_of(groups, run) > PARTS)
        run++;
    return run;
}
static __device__ __forceinline__ int groups_of(int keys) {
    return (keys + PL_WARP - 1) / PL_WARP;
}
static __device__ __forceinline__ int keys_of(const pl_kvrow &r) {
    return r.n_ctx + r.n_path;
}
// Returns the first visible key of a row.
static __device__ __forceinline__ int first_of(const cached &a, const pl_kvrow &r) {
    const int own = r.path ? keys_of(r) : r.slot + 1;
    return a.window > 0 && own > a.window ? own - a.window : 0;
}
static __device__ __forceinline__ const int32_t *path_of(const cached &a, const pl_kvrow &r) {
    return r.path ? (const int32_t *)((uintptr_t)r.path + (uintptr_t)a.paths) : NULL;
}
// Returns the number of keys that the first launch takes: all if each lies at its position, else whole groups of
// committed ones. Called by a whole warp.
static __device__ __forceinline__ int shared_keys_of(const cached &a, const pl_kvrow &r) {
    const int32_t *path = path_of(a, r);
    bool           away = false;
    for (int i = (int)threadIdx.x % PL_WARP; i < r.n_path && path; i += PL_WARP)
        away |= path[i] != r.n_ctx + i;
    return __any_sync(PL_FULL, away) ? r.n_ctx / PL_WARP * PL_WARP : keys_of(r);
}

// Folds one group's share of a query (maximum, sum of exp(score - maximum), the same sum times values) into the earlier
// ones. The arithmetic is explicit, as two kernels must agree despite the compiler's contraction.
static __device__ __forceinline__ void fold_factors(float *max, float *sum, float m, float s, float *before,
                                                    float *own) {
    float to = fmaxf(*max, m);
    *before = isinf(*max) ? 0 : expf(*max - to);
    *own = isinf(m) ? 0 : expf(m - to);
    *sum = fmaf(s, *own, *sum * *before);
    *max = to;
}

// Offset of a part's values, by fours in the order of pl_group_fours: a query's lanes then write 64 bytes at a time.
constexpr int                            VALUES = 8; // aligned to whole sectors of 32 bytes in every part
static __host__ __device__ constexpr int part_floats(int hd) {
    return VALUES + (hd + 63) / 64 * 64;
}
static __device__ __forceinline__ float *part_of(const cached &a, int m, int head, int part) {
    return a.part + (((int64_t)m * a.nh + head) * PARTS + part) * part_floats(a.hd);
}

// Query i of a block is head first + i % heads of row row0 + i / heads. by_heads: 2^12 / heads rounded up, which makes
// the quotient exact for i < TILE and heads <= FEW.
struct queries {
    int kv_head, head0, heads, row0, rows;
};
constexpr int                         BY_BITS = 12;
static __device__ __forceinline__ int row_of(const cached &a, int i) {
    return i * a.by_heads >> BY_BITS;
}
static __device__ __forceinline__ queries queries_of(const cached &a, int which, int row0, int rows) {
    if (a.heads == a.per_kv) return queries{which, which * a.per_kv, a.heads, row0, rows};
    const int runs = (a.per_kv + a.heads - 1) / a.heads, kv_head = which / runs;
    const int first = (which - kv_head * runs) * a.heads, left = a.per_kv - first;
    return queries{kv_head, kv_head * a.per_kv + first, left < a.heads ? left : a.heads, row0, rows};
}

// Loads the 16 queries from query `first` of the block on, in the form of tensor-core factors; by N threads.
template <int CHUNKS, typename KV, int N>
static __device__ __forceinline__ void take_queries(pl_group_queries<CHUNKS> &to, const cached &a, const queries &b,
                                                    int first, int me) {
    auto query = [&](int i) -> const float * {
        const int  row = row_of(a, first + i), head = first + i - row * a.heads;
        const bool there = row < b.rows && head < b.heads;
        return there ? a.q + (b.row0 + row) * a.width + (int64_t)(b.head0 + head) * a.hd : NULL;
    };
    if (a.hd % 4 == 0 && a.width % 4 == 0 && (uintptr_t)a.q % sizeof(float4) == 0)
        pl_group_take<CHUNKS, KV, N, true>(to, a.hd, me, query);
    else
        pl_group_take<CHUNKS, KV, N, false>(to, a.hd, me, query);
}

// Returns the source of keys (which 0) or values (1) of a head in a row's cache; direct: all at their positions.
template <typename KV>
static __device__ __forceinline__ pl_group_source<KV> source_of(const cached &a, const pl_kvrow &r, int which,
                                                                int kv_head, bool direct) {
    const KV *from = (const KV *)(which ? r.v : r.k) + (int64_t)kv_head * a.hd;
    return pl_group_source<KV>{from, direct ? NULL : path_of(a, r), (int64_t)a.nkv * a.hd, r.n_ctx, a.hd};
}

// Returns the number of keys of group g that are visible to a query of `keys` keys.
static __device__ __forceinline__ int seen_of(int keys, int g) {
    int left = keys - g * PL_WARP;
    return left < 0 ? 0 : left < PL_WARP ? left : PL_WARP;
}

// Returns the range of keys of group g that are visible to a query whose window starts at key `first`.
static __device__ __forceinline__ pl_group_seen seen_of(int keys, int first, int g) {
    int before = first - g * PL_WARP;
    return pl_group_seen{before < 0 ? 0 : before, seen_of(keys, g)};
}
static constexpr pl_group_seen NOTHING = {0, 0};

// Visibility of the block's queries, in shared memory: number of keys (0 for an unused query), first visible key, and
// groups of a part, as bits.
struct sight {
    int keys[TILE], first[TILE], run[TILE];
};
// Fills it, one warp per row.
static __device__ __forceinline__ void look(sight &s, const cached &a, const queries &b, int n) {
    const int lane = (int)threadIdx.x % PL_WARP;
    for (int row = (int)threadIdx.x / PL_WARP; row < b.rows; row += WARPS) {
        const pl_kvrow r = a.row[b.row0 + row];
        const int      keys = shared_keys_of(a, r), i = row * a.heads + lane;
        if (lane >= a.heads) continue;
        s.keys[i] = lane < b.heads ? keys : 0, s.first[i] = first_of(a, r), s.run[i] = run_of(groups_of(keys_of(r)));
    }
    for (int i = b.rows * a.heads + (int)threadIdx.x; i < n; i += THREADS)
        s.keys[i] = 0, s.first[i] = 0, s.run[i] = RUN_BITS;
    __syncthreads();
}
// Returns true if a query has visible keys and its parts are runs of 2^run groups (ANY: of any length).
constexpr int                          ANY = -1;
static __device__ __forceinline__ bool counts(const sight &s, int i, int run) {
    return s.keys[i] > 0 && (run == ANY || s.run[i] == run);
}
// Returns the largest of(i) of such queries among first .. first + n - 1, by a warp; far below zero if there is none.
template <typename Of> static __device__ __forceinline__ int most_of(const sight &s, int first, int n, int run, Of of) {
    int most = -(1 << 30);
    for (int i = first + (int)threadIdx.x % PL_WARP; i < first + n; i += PL_WARP)
        most = counts(s, i, run) && of(i) > most ? of(i) : most;
    return pl_warp_max(most);
}
template <typename Of> static __device__ __forceinline__ int least_of(const sight &s, int n, int run, Of of) {
    return -most_of(s, 0, n, run, [&](int i) { return -of(i); });
}
// Returns true if query i has parts of 2^run groups and sees keys of this part.
static __device__ __forceinline__ bool is_in(const sight &s, int i, int run, int part) {
    const int group = PL_WARP << run;
    return counts(s, i, run) && part * group < s.keys[i] && s.first[i] < (part + 1) * group;
}

// ---- the first launch: keys at their positions ----------------------------------------------------------------------

// Blocks that share a head's values: a wide head's sums would exceed the registers, so each of two blocks computes all
// scores and takes half of the values' elements. No element's sum depends on another's.
template <int CHUNKS, bool MANY> constexpr int tile_shares = MANY &&CHUNKS > 4 ? 2 : 1;
template <int CHUNKS, bool MANY> constexpr int tile_chunks = CHUNKS / tile_shares<CHUNKS, MANY>; // of values
template <bool MANY> constexpr int             tile_queries = MANY ? TILE : FEW;
// One buffer for wide heads, so that they fit on every architecture.
template <int CHUNKS, bool MANY> constexpr int tile_buffers = MANY || CHUNKS <= 4 ? 2 : 1;

template <int CHUNKS, typename KV, bool MANY> struct tile_room {
    pl_group_queries<CHUNKS>                     q[MANY ? WARPS : 1];
    pl_group_tile<CHUNKS, KV>                    keys[tile_buffers<CHUNKS, MANY>];
    pl_group_tile<tile_chunks<CHUNKS, MANY>, KV> values[tile_buffers<CHUNKS, MANY>];
    sight                                        s;
};

static __device__ __forceinline__ void fold_values(float o[2][4][4], const float x[2][4][4],
                                                   const pl_group_seen seen[2], const float before[2],
                                                   const float own[2]) {
#pragma unroll
    for (int k = 0; k < 2; k++)
#pragma unroll
        for (int i = 0; i < 4; i++)
#pragma unroll
            for (int e = 0; e < 4; e++)
                if (seen[e / 2].to) o[k][i][e] = fmaf(x[k][i][e], own[e / 2], o[k][i][e] * before[e / 2]);
}

// Computes the groups g0 up to g1, those of whole parts, of which the block's queries take keys, and its share of the
// values. With few queries a warp has a pair of chunks of the values, or none: then it fetches and splits for the
// others. own_end: the most keys of this warp's queries with such parts, `end` of all; taken: whether queries are
// loaded.
template <int CHUNKS, typename KV, bool MANY>
static __device__ __forceinline__ void tile_parts(const cached &a, tile_room<CHUNKS, KV, MANY> &room, const queries &b,
                                                  int run, int share, int end, int own_end, int g0, int g1,
                                                  bool *taken) {
    constexpr int   OWN = tile_chunks<CHUNKS, MANY>, HELD = MANY ? OWN : 2, BUFFERS = tile_buffers<CHUNKS, MANY>;
    const sight    &s = room.s;
    const int       me = (int)threadIdx.x, lane = me % PL_WARP, warp = me / PL_WARP, set = MANY ? warp : 0;
    const int       c0 = MANY ? 0 : 2 * warp;         // the warp's first chunk
    const int       d0 = share * pl_group_width<OWN>; // the share's first element
    const pl_kvrow &r = a.row[b.row0];
    const pl_group_source<KV> keys_from = source_of<KV>(a, r, 0, b.kv_head, true);
    pl_group_source<KV>       values_from = source_of<KV>(a, r, 1, b.kv_head, true);
    values_from.head += d0, values_from.hd -= d0;
    float max[2] = {-INFINITY, -INFINITY}, sum[2] = {}, o[HELD / 2][2][4][4] = {};
    int   keys[2], from_key[2];
#pragma unroll
    for (int i = 0; i < 2; i++) {
        const int of = set * FEW + lane / 4 + 8 * i;
        keys[i] = counts(s, of, run) ? s.keys[of] : 0, from_key[i] = s.first[of];
    }
    auto fetch = [&](int g) {
        const int at = (g - g0) & (BUFFERS - 1), seen = seen_of(end, g);
        if (g < g1) pl_group_stage<CHUNKS, KV, THREADS>(room.keys[at], keys_from, g * PL_WARP, seen);
        pl_copy_commit();
        if (g < g1) pl_group_stage<OWN, KV, THREADS>(room.values[at], values_from, g * PL_WARP, seen);
        pl_copy_commit();
    };
    // With two buffers the loop begins a group early, so that it has a single place that fetches.
    for (int g = g0 - (BUFFERS - 1); g < g1; g++) {
        fetch(g + BUFFERS - 1);
        if (!*taken) { // overlaps with the first keys' copies
            *taken = true;
            if (MANY)
                take_queries<CHUNKS, KV, PL_WARP>(room.q[set], a, b, set * FEW, lane);
            else
                take_queries<CHUNKS, KV, THREADS>(room.q[0], a, b, 0, me);
        }
        if (g < g0) continue;
        pl_group_tile<CHUNKS, KV> &key = room.keys[(g - g0) & (BUFFERS - 1)];
        pl_group_tile<OWN, KV>    &value = room.values[(g - g0) & (BUFFERS - 1)];
        pl_copy_wait<2 * BUFFERS - 1>();
        pl_group_split<CHUNKS, false>(key, me, THREADS);
        pl_copy_wait<2 * BUFFERS - 2>();
        pl_group_split<OWN, true>(value, me, THREADS);
        __syncthreads();
        if (g * PL_WARP < own_end) {
            const pl_group_seen seen[2] = {seen_of(keys[0], from_key[0], g), seen_of(keys[1], from_key[1], g)};
            float               m[2], t[2], before[2] = {}, own[2] = {};
            pl_group_share(room.q[set], key, value, seen, a.scale, a.cap, m, t, c0, c0 + HELD,
                           [&](int c, const float x[2][4][4]) {
                               for (int i = 0; i < 2 && c == c0; i++)
                                   if (seen[i].to) fold_factors(&max[i], &sum[i], m[i], t[i], &before[i], &own[i]);
                               fold_values(o[(c - c0) / 2], x, seen, before, own);
                           });
        }
        if (g + 1 == g1 || ((g + 1) & ((1 << run) - 1)) == 0) { // a part ends
            float *to[2];
            bool   in[2];
#pragma unroll
            for (int i = 0; i < 2; i++) {
                const int of = set * FEW + lane / 4 + 8 * i, row = row_of(a, of);
                to[i] = part_of(a, b.row0 + row, b.head0 + of - row * a.heads, g >> run);
                in[i] = c0 < OWN && is_in(s, of, run, g >> run);
                if (in[i] && lane % 4 == 0 && !share && c0 == 0) *(float2 *)to[i] = float2{max[i], sum[i]};
            }
#pragma unroll
            for (int c = 0; c < HELD; c += 2)
                pl_group_fours<KV>(c0 + c, o[c / 2], [&](int i, int d, int f, const float4 &v) {
                    if (in[i] && d0 + d < a.hd) *(float4 *)(to[i] + VALUES + d0 + 4 * f) = v;
                });
#pragma unroll
            for (int i = 0; i < 2; i++)
                max[i] = -INFINITY, sum[i] = 0;
            memset(o, 0, sizeof o);
        }
        __syncthreads(); // the buffer is free
    }
    // No copy is in flight here.
}

// The block's share of the parts that are runs of so many groups, from the first that any query sees on: groups g0 up
// to g1, none if g0 >= g1. end: the most keys of a query with such parts.
struct deal {
    int g0, g1, end;
};
static __device__ __forceinline__ deal deal_of(const sight &s, int n, int run) {
    const int end = most_of(s, 0, n, run, [&](int i) { return s.keys[i]; });
    const int seen = least_of(s, n, run, [&](int i) { return s.first[i]; }) / PL_WARP, first = seen >> run;
    const int parts = parts_of(groups_of(end), run) - first, at = (int)blockIdx.x;
    const int blocks = (int)gridDim.x < parts ? (int)gridDim.x : parts;
    if (at >= blocks) return deal{0, 0, end};
    const int each = parts / blocks, more = parts - each * blocks; // this many blocks take one more
    const int part0 = first + at * each + (at < more ? at : more), part1 = part0 + each + (at < more);
    const int g0 = part0 << run, g1 = groups_of(end) < part1 << run ? groups_of(end) : part1 << run;
    // A window may leave a part whose keys all lie in a branch: the second launch still needs its initial state.
    return deal{seen < g0 ? g0 : seen < g1 ? seen : g1 - 1, g1, end};
}

// Two or more blocks share a multiprocessor: while one waits for keys, or splits them into pairs, another computes.
// Grid: shares of the parts, each a contiguous run; key heads times runs of their query heads, times shares of their
// values; tiles of rows.
template <int CHUNKS, typename KV, bool MANY>
static __global__ void __launch_bounds__(THREADS, MANY || CHUNKS != 4 ? 2 : 3) tile_kernel(cached a) {
    pl_previous_done();
    tile_room<CHUNKS, KV, MANY> &room = *(tile_room<CHUNKS, KV, MANY> *)pl_dynamic_shared();
    const int                    me = (int)threadIdx.x, warp = me / PL_WARP;
    const int     row0 = (int)blockIdx.z * a.tile, rows = a.rows - row0 < a.tile ? a.rows - row0 : a.tile;
    const int     shares = tile_shares<CHUNKS, MANY>, share = (int)blockIdx.y % shares;
    const queries b = queries_of(a, (int)blockIdx.y / shares, row0, rows);
    constexpr int ALL = tile_queries<MANY>, OWN = tile_chunks<CHUNKS, MANY>;
    look(room.s, a, b, ALL);
    const sight &s = room.s;
    auto         runs = [&](int i) { return s.run[i]; };
    const int    least = least_of(s, ALL, ANY, runs), most = most_of(s, 0, ALL, ANY, runs);
    bool         taken = false;
    for (int run = least; run <= most; run++) {
        const deal d = deal_of(s, ALL, run);
        if (d.g0 >= d.g1) continue;
        const int own_end = MANY             ? most_of(s, warp * FEW, FEW, run, [&](int i) { return s.keys[i]; })
                            : 2 * warp < OWN ? d.end
                                             : 0;
        tile_parts<CHUNKS, KV, MANY>(a, room, b, run, share, d.end, own_end, d.g0, d.g1, &taken);
    }
}

// ---- a branch's groups, in order ------------------------------------------------------------------------------------

// Shared memory of a block of at most 16 queries.
template <int CHUNKS, typename KV> struct few_room {
    static_assert(FEW * pl_group_width<CHUNKS> * sizeof(float) <= sizeof(pl_group_tile<CHUNKS, KV>), "a group's share");
    pl_group_tile<CHUNKS, KV>         keys, values; // later the group's share replaces the keys
    pl_group_queries<CHUNKS>          q;
    float                             o[FEW * pl_group_width<CHUNKS>], max[FEW], sum[FEW]; // folded so far
    float                             group_max[FEW], group_sum[FEW];
    __device__ __forceinline__ float *share() { return (float *)&keys; }
};

// Folds groups g0..g1 - 1 into the room's state; query i of n sees keys from_key[i] up to keys[i], at most `end`.
template <int CHUNKS, typename KV>
static __device__ __forceinline__ void fold_groups(const cached &a, few_room<CHUNKS, KV> &room, const pl_kvrow &r,
                                                   int kv_head, const int *keys, const int *from_key, int n, int end,
                                                   int g0, int g1) {
    constexpr int             WIDTH = pl_group_width<CHUNKS>;
    const int                 me = (int)threadIdx.x, lane = me % PL_WARP, warp = me / PL_WARP;
    const pl_group_source<KV> from[2] = {source_of<KV>(a, r, 0, kv_head, false),
                                         source_of<KV>(a, r, 1, kv_head, false)};
    for (int g = g0; g < g1; g++) {
        pl_group_stage<CHUNKS, KV, THREADS>(room.keys, from[0], g * PL_WARP, seen_of(end, g));
        pl_copy_commit();
        pl_group_stage<CHUNKS, KV, THREADS>(room.values, from[1], g * PL_WARP, seen_of(end, g));
        pl_copy_commit();
        pl_copy_wait<1>();
        pl_group_split<CHUNKS, false>(room.keys, me, THREADS);
        pl_copy_wait<0>();
        pl_group_split<CHUNKS, true>(room.values, me, THREADS);
        __syncthreads(); // also publishes the queries
        if (warp == 0) {
            float               max[2], sum[2], *share = room.share();
            const int           first = lane / 4;
            const pl_group_seen seen[2] = {first < n ? seen_of(keys[first], from_key[first], g) : NOTHING,
                                           first + 8 < n ? seen_of(keys[first + 8], from_key[first + 8], g) : NOTHING};
            pl_group_share(room.q, room.keys, room.values, seen, a.scale, a.cap, max, sum, 0, CHUNKS,
                           [&](int c, const float o[2][4][4]) {
                               if (c == 0) __syncwarp(); // the keys have been read
                               pl_group_fours<KV>(c, o, [&](int i, int d, int, const float4 &v) {
                                   if (first + 8 * i < n) *(float4 *)&share[(first + 8 * i) * WIDTH + d] = v;
                               });
                           });
            for (int i = 0; i < 2 && lane % 4 == 0; i++)
                room.group_max[first + 8 * i] = max[i], room.group_sum[first + 8 * i] = sum[i];
        }
        __syncthreads();
        for (int e = me; e < n * WIDTH; e += THREADS) {
            const int i = e / WIDTH;
            float     to = room.max[i], of = room.sum[i], before, own;
            if (g * PL_WARP >= keys[i]) continue;
            fold_factors(&to, &of, room.group_max[i], room.group_sum[i], &before, &own);
            room.o[e] = fmaf(room.share()[e], own, room.o[e] * before);
        }
        __syncthreads();
        for (int i = me; i < n; i += THREADS) {
            float before, own;
            if (g * PL_WARP < keys[i])
                fold_factors(&room.max[i], &room.sum[i], room.group_max[i], room.group_sum[i], &before, &own);
        }
        __syncthreads();
    }
}

// Loads the room's state from a part of the first launch (part < 0: an empty state), or stores it there; and loads the
// queries of a row.
template <int CHUNKS, typename KV>
static __device__ __forceinline__ void start_state(few_room<CHUNKS, KV> &room, const cached &a, const queries &b,
                                                   int part) {
    constexpr int WIDTH = pl_group_width<CHUNKS>;
    for (int e = (int)threadIdx.x; e < b.heads * WIDTH; e += THREADS) {
        const int    i = e / WIDTH, d = e % WIDTH;
        const float *from = part >= 0 ? part_of(a, b.row0, b.head0 + i, part) : NULL;
        room.o[e] = from && d < a.hd ? from[VALUES + pl_group_place<KV>(d)] : 0;
        if (d == 0) room.max[i] = from ? from[0] : -INFINITY, room.sum[i] = from ? from[1] : 0;
    }
    __syncthreads();
}
template <int CHUNKS, typename KV>
static __device__ __forceinline__ void keep_state(const few_room<CHUNKS, KV> &room, const cached &a, const queries &b,
                                                  int part) {
    constexpr int WIDTH = pl_group_width<CHUNKS>;
    for (int e = (int)threadIdx.x; e < b.heads * WIDTH; e += THREADS) {
        const int i = e / WIDTH, d = e % WIDTH;
        if (d >= a.hd) continue;
        float *to = part_of(a, b.row0, b.head0 + i, part);
        to[VALUES + pl_group_place<KV>(d)] = room.o[e];
        if (d == 0) to[0] = room.max[i], to[1] = room.sum[i];
    }
    __syncthreads();
}

// ---- the second launch: branches, then parts in order ---------------------------------------------------------------

// Groups and parts of a row.
struct extent {
    int keys, first, groups, run, parts, first_part; // first: first visible key
};
static __device__ __forceinline__ extent extent_of(const cached &a, const pl_kvrow &r) {
    const int n = keys_of(r), first = first_of(a, r), groups = groups_of(n), run = run_of(groups);
    return extent{n, first, groups, run, parts_of(groups, run), first / PL_WARP >> run};
}

// Folds the groups of row m that the first launch has not taken.
template <int CHUNKS, typename KV>
static __device__ __forceinline__ void fold_branch(const cached &a, int m, const queries &b, int *keys, int *from_key) {
    const pl_kvrow &r = a.row[m];
    const int       shared = groups_of(shared_keys_of(a, r));
    const extent    x = extent_of(a, r);
    if (shared >= x.groups) return;
    few_room<CHUNKS, KV> &room = *(few_room<CHUNKS, KV> *)pl_dynamic_shared();
    for (int i = (int)threadIdx.x; i < FEW; i += THREADS)
        keys[i] = x.keys, from_key[i] = x.first;
    take_queries<CHUNKS, KV, THREADS>(room.q, a, b, 0, (int)threadIdx.x);
    // start_state's barrier has published all of it.
    for (int p = shared >> x.run > x.first_part ? shared >> x.run : x.first_part; p < x.parts; p++) {
        const int begin = p << x.run, end = (p + 1) << x.run, g1 = end < x.groups ? end : x.groups;
        int       g0 = begin > shared ? begin : shared;
        start_state(room, a, b, g0 > begin ? p : -1);
        if (g0 < x.first / PL_WARP) g0 = x.first / PL_WARP;
        fold_groups(a, room, r, b.kv_head, keys, from_key, b.heads, x.keys, g0, g1);
        keep_state(room, a, b, p);
    }
}

// Adds row m's parts in order, a warp for each query: first their weights, then their sum. weight, part_sum: [PARTS],
// per warp.
template <typename KV>
static __device__ __forceinline__ void add_parts(const cached &a, int m, const queries &b, float *weight,
                                                 float *part_sum) {
    const int    lane = (int)threadIdx.x % PL_WARP, each = part_floats(a.hd);
    const extent x = extent_of(a, a.row[m]);
    const bool   wide = a.hd % 4 == 0 && (uintptr_t)a.o % sizeof(float4) == 0;
    for (int i = (int)threadIdx.x / PL_WARP; i < b.heads; i += WARPS) {
        const float *from = part_of(a, m, b.head0 + i, 0);
        float        max = -INFINITY;
        for (int p = x.first_part + lane; p < x.parts; p += PL_WARP) {
            const float2 v = *(const float2 *)(from + p * each);
            max = fmaxf(max, v.x);
            weight[p] = v.x, part_sum[p] = v.y;
        }
        max = pl_warp_max(max);
        for (int p = x.first_part + lane; p < x.parts; p += PL_WARP)
            weight[p] = expf(weight[p] - max);
        __syncwarp();
        for (int f = lane; 4 * f < each - VALUES; f += PL_WARP) {
            const int d = pl_group_four<KV>(f);
            float4    o = {0, 0, 0, 0};
            float     total = 0;
            if (d >= a.hd) continue;
#pragma unroll 8
            for (int p = x.first_part; p < x.parts; p++) {
                const float4 v = *(const float4 *)(from + p * each + VALUES + 4 * f);
                const float  w = weight[p];
                total = fmaf(part_sum[p], w, total);
                o.x = fmaf(v.x, w, o.x), o.y = fmaf(v.y, w, o.y), o.z = fmaf(v.z, w, o.z), o.w = fmaf(v.w, w, o.w);
            }
            float4 v = {o.x / total, o.y / total, o.z / total, o.w / total};
            if (x.parts == 0) v = float4{0, 0, 0, 0};
            const int64_t column = (int64_t)(b.head0 + i) * a.hd + d;
            float        *to = a.o + (int64_t)m * a.nh * a.hd + column;
            if (wide) {
                *(float4 *)to = v;
                pl_put_four(a.rounding, a.first + m, column, v);
                continue;
            }
            const float one[4] = {v.x, v.y, v.z, v.w};
            for (int k = 0; k < 4 && d + k < a.hd; k++) {
                to[k] = one[k];
                a.rounding.put(a.first + m, column + k, one[k]);
            }
        }
        __syncwarp(); // the weights have been read
    }
}

// Blocks per multiprocessor, as many as registers allow: each waits for memory most of its time.
template <int CHUNKS, typename KV>
constexpr int finish_resident = CHUNKS > 4                         ? 2
                                : CHUNKS == 4 && pl_group_half<KV> ? 3
                                                                   : 4;

// Grid: key heads times runs of their query heads, rows. Only m stays live between the two halves.
template <int CHUNKS, typename KV>
static __global__ void __launch_bounds__(THREADS, finish_resident<CHUNKS, KV>) finish_kernel(cached a) {
    pl_previous_done();
    __shared__ int   keys[FEW], from_key[FEW];
    __shared__ float weight[WARPS][PARTS], part_sum[WARPS][PARTS];
    const int        m = (int)blockIdx.y, again = pl_only_here(m), warp = (int)threadIdx.x / PL_WARP;
    fold_branch<CHUNKS, KV>(a, m, queries_of(a, (int)blockIdx.x, m, 1), keys, from_key);
    add_parts<KV>(a, again, queries_of(a, (int)blockIdx.x, again, 1), weight[warp], part_sum[warp]);
}

// ---- launching ------------------------------------------------------------------------------------------------------

// Returns the rows of a block: the largest number for which each tile lies within one session.
static int tile_rows(const pl_kvrow *row, int rows, int most) {
    if (most > rows) most = rows;
    for (; most > 1; most /= 2) {
        bool alike = true;
        for (int m = 1; m < rows && alike; m++)
            alike = m % most == 0 || (row[m].k == row[m - 1].k && row[m].n_ctx == row[m - 1].n_ctx);
        if (alike) break;
    }
    return most;
}

template <int CHUNKS, typename KV> static void forward_of(pl_ctx *ctx, cached a, const pl_kvrow *on_host) {
    using many_room = tile_room<CHUNKS, KV, true>;
    static_assert(sizeof(tile_room<CHUNKS, KV, false>) <= 90 << 10 && sizeof(few_room<CHUNKS, KV>) <= 99 << 10,
                  "everywhere");
    const int    per_kv = a.nh / a.nkv;
    const size_t room = pl_cuda_state_of(ctx)->room, fixed = 8192; // fixed: upper bound of static shared memory
    a.heads = per_kv < FEW ? per_kv : FEW;
    a.per_kv = per_kv;
    a.by_heads = (int)pl_ceil_div(1 << BY_BITS, a.heads);
    a.tile = tile_rows(on_host, a.rows, TILE / a.heads);
    // Half a block's worth of many is faster as twice as many blocks of few.
    const bool many = a.tile * a.heads > TILE / 2 && sizeof(many_room) + fixed <= room;
    if (!many) a.tile = tile_rows(on_host, a.rows, FEW / a.heads);
    // About as many blocks as fit at a time: independent of the rows' lengths, and none without work.
    const int64_t heads = a.nkv * pl_ceil_div(per_kv, a.heads), shares = many ? tile_shares<CHUNKS, true> : 1;
    const int64_t others = heads * shares * pl_ceil_div(a.rows, a.tile);
    const int64_t at_once = pl_cuda_state_of(ctx)->sms * (many || CHUNKS > 4 ? 2 : 3) / others;
    pl_grid grid(at_once < 1 ? 1 : at_once < PARTS ? at_once : PARTS, heads * shares, pl_ceil_div(a.rows, a.tile));
    if (many)
        PL_LAUNCH_EARLY_ROOM(ctx, "attention", (tile_kernel<CHUNKS, KV, true>), grid, THREADS, sizeof(many_room), a);
    else
        PL_LAUNCH_EARLY_ROOM(ctx, "attention", (tile_kernel<CHUNKS, KV, false>), grid, THREADS,
                             sizeof(tile_room<CHUNKS, KV, false>), a);
    PL_LAUNCH_EARLY_ROOM(ctx, "attention", (finish_kernel<CHUNKS, KV>), pl_grid(heads, a.rows), THREADS,
                         sizeof(few_room<CHUNKS, KV>), a);
}

// Returns the offset from the rows' path pointers to the copy that kernels read; 0 if they read the originals.
// Announces the memory between the rows' paths together with them.
static int64_t paths_of(pl_ctx *ctx, const pl_kvrow *row, int64_t rows) {
    const int32_t *from = NULL, *end = NULL;
    for (int64_t m = 0; m < rows; m++) {
        if (!row[m].path || row[m].n_path <= 0) continue;
        if (!from || row[m].path < from) from = row[m].path;
        if (!end || row[m].path + row[m].n_path > end) end = row[m].path + row[m].n_path;
    }
    return from ? (int64_t)((uintptr_t)pl_index(ctx, from, end - from) - (uintptr_t)from) : 0;
}

template <typename KV> static void forward(pl_ctx *ctx, const cached &a, const pl_kvrow *on_host) {
    if (a.hd <= 64)
        forward_of<2, KV>(ctx, a, on_host);
    else if (a.hd <= 128)
        forward_of<4, KV>(ctx, a, on_host);
    else
        forward_of<8, KV>(ctx, a, on_host);
}

static void cached_forward(pl_ctx *ctx, const pl_attention_args *a) {
    int64_t M = a->qkv.dim[0], most = M < ROWS ? M : ROWS;
    size_t  mark = pl_arena_mark(&ctx->scratch);
    cached  c = {};
    c.rounding = pl_rounding_for(ctx, M, (int64_t)a->nh * a->hd);
    c.part = (float *)pl_arena_alloc(
        &ctx->scratch, pl_size_mul((size_t)(most * a->nh * PARTS), (size_t)part_floats(a->hd), sizeof(float)));
    c.width = a->qkv.dim[1], c.nh = a->nh, c.nkv = a->nkv, c.hd = a->hd, c.scale = (float)a->scale;
    c.cap = (float)a->cap, c.window = a->window;
    for (int64_t m = 0; m < M && !ctx->measuring; m += ROWS) {
        c.rows = (int)(M - m < ROWS ? M - m : ROWS);
        c.first = (int)m;
        c.row = pl_index(ctx, a->row + m, c.rows);
        c.paths = paths_of(ctx, a->row + m, c.rows);
        c.q = pl_f32(&a->qkv) + m * c.width;
        c.o = pl_f32(&a->o) + m * a->nh * a->hd;
        if (pl_kvrow_dtype(a->row + m, c.rows) == PL_BF16)
            forward<uint16_t>(ctx, c, a->row + m);
        else
            forward<float>(ctx, c, a->row + m);
    }
    if (!ctx->measuring) pl_rounded_is(ctx, c.rounding, pl_f32(&a->o), M);
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
