// Attention over a KV cache, one unit: a group of keys (32 positions) against 16 queries of its key head, by one warp
// on tensor cores. Every row's bits come from here, in every kernel: a product's element does not depend on its
// neighbours, so a single query is a tile whose other rows are zeros.
//
// As in training (attention_tiles.cuh) a number enters a product as the sum of two bf16 numbers and three products
// stand for one, small ones first: within 2^-16 of |x| |y|. Keys and values of a bf16 cache (KV uint16_t instead of
// float) enter as they are, and two products stand for one. Scores go over the head's elements in steps of 16; softmax
// is fp32, a query's maximum and sum over the group by the four lanes that share it; values go over the keys in two
// steps of 16, in order of position.
//
// A tile is a group's keys or values in shared memory, 32 rows of pieces of 16 bytes, each piece at an offset that its
// row permutes so that no access has bank conflicts. Asynchronous copies load the cache's contents; then the thread
// that copied a piece converts it, in place, to the tensor cores' operands (pl_group_split). For fp32:
//   keys     4 elements of a key become their hi as two words, then their lo: a lane's share of a step is one piece
//   values   4 elements of keys 4p .. 4p + 3 become, for each element, a word of keys 4p and 4p + 1 and one of the
//            other two: of hi in the first two keys' pieces, of lo in the others': a lane's share of a step for 32
//            elements is four pieces
// For bf16:
//   keys     8 elements of a key stay: a lane's share of two steps is one piece
//   values   8 elements of keys 4p .. 4p + 3 become, for each element, a word of keys 4p and 4p + 1 and one of the
//            other two: two elements in each key's piece, and a lane's share of a step for 64 elements is four pieces
#ifndef PL_CUDA_ATTENTION_GROUP_CUH
#define PL_CUDA_ATTENTION_GROUP_CUH

#include "kernels/cuda/attention_tiles.cuh"

static_assert(PL_ATTN_GROUP == PL_WARP, "four lanes of eight keys for each query");
constexpr int PL_GROUP_QUERIES = 16;

// CHUNKS of 32 elements: a head, zeros past it.
template <int CHUNKS> constexpr int pl_group_width = CHUNKS *PL_WARP;
template <typename KV> constexpr bool                        pl_group_half = sizeof(KV) == 2;
template <typename KV> constexpr int pl_group_each = sizeof(uint4) / sizeof(KV); // elements of a piece
template <int CHUNKS, typename KV>
constexpr int pl_group_pieces = pl_group_width<CHUNKS> / pl_group_each<KV>; // per row
template <int CHUNKS, typename KV> struct pl_group_tile { uint4 piece[PL_ATTN_GROUP * pl_group_pieces<CHUNKS, KV>]; };
// 16 queries as the tensor cores' left factor: steps of 16 elements, hi and lo, a lane's share each. Lane 4g + t has
// elements 4t .. 4t + 3 of a step; against keys in bf16 those of 8t .. 8t + 7 of two steps.
template <int CHUNKS> struct pl_group_queries { uint4 share[pl_group_width<CHUNKS> / 16][2][PL_WARP]; };

// Eight lanes that load together have two neighbouring keys and four pieces, or four fours of keys and two pieces.
template <int CHUNKS, typename KV> static __device__ __forceinline__ int pl_group_at(int key, int piece) {
    return key * pl_group_pieces<CHUNKS, KV> + (piece ^ ((key >> 1 & 2) | ((key ^ key >> 3) & 1) << 2));
}

// Memory of a group's rows of one head.
template <typename KV> struct pl_group_source {
    const KV                            *head; // of slot 0
    const int32_t                       *path; // slots of positions n_ctx on; NULL: equal to their positions
    int64_t                              row;  // elements between slots
    int                                  n_ctx, hd;
    __device__ __forceinline__ const KV *of(int position) const {
        return head + (!path || position < n_ctx ? position : path[position - n_ctx]) * row;
    }
};

// Returns the first `left` elements from `at` on as a piece, followed by zeros.
static __device__ __forceinline__ uint4 pl_group_piece(const float *at, int left) {
    float v[4];
#pragma unroll
    for (int k = 0; k < 4; k++)
        v[k] = k < left ? at[k] : 0;
    uint4 piece;
    memcpy(&piece, v, sizeof piece);
    return piece;
}
static __device__ __forceinline__ uint4 pl_group_piece(const uint16_t *at, int left) {
    uint32_t v[4];
#pragma unroll
    for (int k = 0; k < 4; k++)
        v[k] = (2 * k < left ? at[2 * k] : 0u) | (2 * k + 1 < left ? (uint32_t)at[2 * k + 1] : 0u) << 16;
    return uint4{v[0], v[1], v[2], v[3]};
}

// Starts copying positions first .. first + 31 into a tile, zeros from `count` of them on and past hd, by the N threads
// of a block.
template <int CHUNKS, typename KV, int N>
static __device__ __forceinline__ void pl_group_stage(pl_group_tile<CHUNKS, KV> &to, const pl_group_source<KV> &from,
                                                      int first, int count) {
    constexpr int PIECES = pl_group_pieces<CHUNKS, KV>, EACH = pl_group_each<KV>, ALL = PL_ATTN_GROUP / 4 * PIECES;
    const bool    whole = from.hd % EACH == 0 && (uintptr_t)from.head % sizeof(uint4) == 0;
    const int     me = (int)threadIdx.x;
    if (whole && !from.path) { // slots are a row apart, as offsets are: almost no address arithmetic
        static_assert(N % PIECES == 0 && PIECES % 8 == 0, "a thread has the same piece of all its keys");
        const int d = me % PIECES * EACH;
        const KV *at = from.head + (int64_t)(first + me / PIECES * 4) * from.row + d;
        if (d >= from.hd) count = 0;
#pragma unroll
        for (int e0 = 0; e0 < ALL; e0 += N) {
            const int key = (e0 + me) / PIECES * 4;
            uint4    *place[2] = {&to.piece[pl_group_at<CHUNKS, KV>(key, me % PIECES)],
                                  &to.piece[pl_group_at<CHUNKS, KV>(key + 1, me % PIECES)]};
            if (e0 + me < ALL)
#pragma unroll
                for (int i = 0; i < 4; i++) // keys two apart have a piece at the same offset
                    pl_copy_async<16, false>(place[i % 2] + i / 2 * 2 * PIECES,
                                             key + i < count ? at + i * from.row : from.head, key + i < count);
            at += N / PIECES * 4 * from.row;
        }
        return;
    }
#pragma unroll 1
    for (int e = me; e < ALL; e += N) {
#pragma unroll
        for (int i = 0; i < 4; i++) {
            int       key = e / PIECES * 4 + i, d = e % PIECES * EACH;
            bool      there = key < count && d < from.hd;
            const KV *at = there ? from.of(first + key) + d : from.head;
            uint4    *place = &to.piece[pl_group_at<CHUNKS, KV>(key, e % PIECES)];
            if (whole) {
                pl_copy_async<16, false>(place, at, there);
            } else {
                *place = pl_group_piece(at, there ? from.hd - d : 0);
            }
        }
    }
}

// Values in bf16: converts the pieces that this thread has staged and waited for, by pairs of keys.
template <int CHUNKS>
static __device__ __forceinline__ void pl_group_turn(pl_group_tile<CHUNKS, uint16_t> &tile, int me, int n) {
    constexpr int PIECES = pl_group_pieces<CHUNKS, uint16_t>;
#pragma unroll 1
    for (int e = me; e < PL_ATTN_GROUP / 4 * PIECES; e += n) {
        uint32_t x[4][4]; // key, pair of elements
#pragma unroll
        for (int i = 0; i < 4; i++) {
            const uint4 raw = tile.piece[pl_group_at<CHUNKS, uint16_t>(e / PIECES * 4 + i, e % PIECES)];
            memcpy(x[i], &raw, sizeof raw);
        }
#pragma unroll
        for (int i = 0; i < 4; i++)
            tile.piece[pl_group_at<CHUNKS, uint16_t>(e / PIECES * 4 + i, e % PIECES)] =
                uint4{pl_zip_halves<0>(x[0][i], x[1][i]), pl_zip_halves<0>(x[2][i], x[3][i]),
                      pl_zip_halves<1>(x[0][i], x[1][i]), pl_zip_halves<1>(x[2][i], x[3][i])};
    }
}

// Converts the pieces that this thread has staged and waited for to pairs of bf16.
template <int CHUNKS, bool VALUES>
static __device__ __forceinline__ void pl_group_split(pl_group_tile<CHUNKS, uint16_t> &tile, int me, int n) {
    if constexpr (VALUES) pl_group_turn(tile, me, n);
}
template <int CHUNKS, bool VALUES>
static __device__ __forceinline__ void pl_group_split(pl_group_tile<CHUNKS, float> &tile, int me, int n) {
    constexpr int PIECES = pl_group_pieces<CHUNKS, float>;
#pragma unroll 2
    for (int e = me; e < PL_ATTN_GROUP / 4 * PIECES; e += n) {
        float x[4][4]; // key, element
#pragma unroll
        for (int i = 0; i < 4; i++) {
            uint4 raw = tile.piece[pl_group_at<CHUNKS, float>(e / PIECES * 4 + i, e % PIECES)];
            memcpy(x[i], &raw, sizeof raw);
        }
        uint32_t both[4][2][2]; // key or element, its pair, hi and lo
        uint4    to[4];
#pragma unroll
        for (int i = 0; i < 4; i++)
#pragma unroll
            for (int pair = 0; pair < 2; pair++)
                pl_attn_split(both[i][pair], VALUES ? x[2 * pair][i] : x[i][2 * pair],
                              VALUES ? x[2 * pair + 1][i] : x[i][2 * pair + 1]);
#pragma unroll
        for (int i = 0; i < 4; i++) {
            const int first = VALUES ? i % 2 * 2 : i, second = VALUES ? first + 1 : i; // elements; the key
            const int part = VALUES ? i / 2 : 0, other = VALUES ? part : 1;
            to[i] = uint4{both[first][0][part], both[first][1][part], both[second][0][other], both[second][1][other]};
        }
#pragma unroll
        for (int i = 0; i < 4; i++)
            tile.piece[pl_group_at<CHUNKS, float>(e / PIECES * 4 + i, e % PIECES)] = to[i];
    }
}

// Returns elements d .. d + 3 of a query, zeros past hd and for NULL; WIDE: they can be read together.
template <bool WIDE> static __device__ __forceinline__ float4 pl_group_query(const float *q, int d, int hd) {
    if constexpr (WIDE) return q && d < hd ? *(const float4 *)(q + d) : float4{0, 0, 0, 0};
    return float4{q && d < hd ? q[d] : 0, q && d + 1 < hd ? q[d + 1] : 0, q && d + 2 < hd ? q[d + 2] : 0,
                  q && d + 3 < hd ? q[d + 3] : 0};
}

// Loads 16 queries: query(i) returns query i's elements, or NULL for none. By N threads, of which this is `me`; each
// issues several loads before it waits for them. Neighbours load neighbouring pieces, regardless of which lane uses
// them.
template <int CHUNKS, typename KV, int N, bool WIDE, typename Query>
static __device__ __forceinline__ void pl_group_take(pl_group_queries<CHUNKS> &to, int hd, int me, Query query) {
    constexpr int ALL = pl_group_width<CHUNKS> / 16 * PL_WARP / N, AT_ONCE = ALL < 4 ? ALL : 4;
    static_assert(N % PL_WARP == 0 && ALL % AT_ONCE == 0, "a lane has the same place of each step");
    const int    lane = me % PL_WARP;
    const float *q[2] = {query(lane / 4), query(lane / 4 + 8)};
#pragma unroll 1
    for (int first = 0; first < ALL; first += AT_ONCE) {
        float4 v[AT_ONCE][2];
#pragma unroll
        for (int i = 0; i < AT_ONCE; i++)
#pragma unroll
            for (int half = 0; half < 2; half++)
                v[i][half] = pl_group_query<WIDE>(q[half], ((first + i) * N + me) / PL_WARP * 16 + lane % 4 * 4, hd);
#pragma unroll
        for (int i = 0; i < AT_ONCE; i++) {
            uint32_t front[2][2], back[2][2];
#pragma unroll
            for (int half = 0; half < 2; half++) {
                pl_attn_split(front[half], v[i][half].x, v[i][half].y);
                pl_attn_split(back[half], v[i][half].z, v[i][half].w);
            }
            const int step = ((first + i) * N + me) / PL_WARP;
            const int to_step = pl_group_half<KV> ? step / 2 * 2 + lane % 2 : step;
            const int to_lane = pl_group_half<KV> ? lane / 4 * 4 + step % 2 * 2 + lane % 4 / 2 : lane;
#pragma unroll
            for (int p = 0; p < 2; p++)
                to.share[to_step][p][to_lane] = uint4{front[0][p], front[1][p], back[0][p], back[1][p]};
        }
    }
}

static __device__ __forceinline__ void pl_group_multiply(float d[4], const uint4 &a, uint32_t b0, uint32_t b1) {
    const uint32_t left[4] = {a.x, a.y, a.z, a.w}, right[2] = {b0, b1};
    pl_mma_bf16(d, left, right);
}

// Visible keys of a group for a query: those from `from` up to `to`.
struct pl_group_seen {
    int from, to;
};
static __device__ __forceinline__ bool pl_group_sees(const pl_group_seen &s, int key) {
    return key >= s.from && key < s.to;
}

// Read positions of a lane of pl_group_share in a tile: the rows' permutation gives only two different ones.
struct pl_group_places {
    const uint4 *at[2];
};
template <int CHUNKS, typename KV>
static __device__ __forceinline__ pl_group_places pl_group_keys_at(const pl_group_tile<CHUNKS, KV> &key) {
    const int lane = (int)threadIdx.x % PL_WARP, g = lane / 4, t = lane % 4, row = g / 2 * 4 + g % 2;
    return pl_group_places{
        {&key.piece[pl_group_at<CHUNKS, KV>(row, t)], &key.piece[pl_group_at<CHUNKS, KV>(row, 4 + t)]}};
}
template <int CHUNKS, typename KV>
static __device__ __forceinline__ pl_group_places pl_group_values_at(const pl_group_tile<CHUNKS, KV> &value) {
    const int lane = (int)threadIdx.x % PL_WARP, g = lane / 4, row = lane % 4 * 4;
    return pl_group_places{
        {&value.piece[pl_group_at<CHUNKS, KV>(row, g)], &value.piece[pl_group_at<CHUNKS, KV>(row + 1, g)]}};
}

// s += queries . keys: s[j][e] of key 16 (j / 2) + 4 t + 2 (j % 2) + e % 2 and query e / 2.
template <int CHUNKS>
static __device__ __forceinline__ void pl_group_scores(float s[4][4], const pl_group_queries<CHUNKS> &q,
                                                       const pl_group_tile<CHUNKS, float> &key) {
    constexpr int         ROW = pl_group_pieces<CHUNKS, float>;
    const int             lane = (int)threadIdx.x % PL_WARP;
    const pl_group_places from = pl_group_keys_at(key);
#pragma unroll
    for (int step = 0; step < pl_group_width<CHUNKS> / 16; step++) {
        const uint4 hi = q.share[step][0][lane], lo = q.share[step][1][lane];
        uint4       b[4];
#pragma unroll
        for (int j = 0; j < 4; j++)
            b[j] = from.at[step % 2][(j / 2 * 16 + j % 2 * 2) * ROW + step / 2 * 8];
#pragma unroll
        for (int j = 0; j < 4; j++)
            pl_group_multiply(s[j], lo, b[j].x, b[j].y);
#pragma unroll
        for (int j = 0; j < 4; j++)
            pl_group_multiply(s[j], hi, b[j].z, b[j].w);
#pragma unroll
        for (int j = 0; j < 4; j++)
            pl_group_multiply(s[j], hi, b[j].x, b[j].y);
    }
}
template <int CHUNKS>
static __device__ __forceinline__ void pl_group_scores(float s[4][4], const pl_group_queries<CHUNKS> &q,
                                                       const pl_group_tile<CHUNKS, uint16_t> &key) {
    constexpr int         ROW = pl_group_pieces<CHUNKS, uint16_t>;
    const int             lane = (int)threadIdx.x % PL_WARP;
    const pl_group_places from = pl_group_keys_at(key);
#pragma unroll
    for (int c = 0; c < CHUNKS; c++) {
        uint4 b[4];
#pragma unroll
        for (int j = 0; j < 4; j++)
            b[j] = from.at[c % 2][(j / 2 * 16 + j % 2 * 2) * ROW + c / 2 * 8];
#pragma unroll
        for (int i = 0; i < 4; i++) { // the chunk's two steps, small products first
            const uint4 a = q.share[2 * c + i / 2][1 - i % 2][lane];
#pragma unroll
            for (int j = 0; j < 4; j++)
                pl_group_multiply(s[j], a, i < 2 ? b[j].x : b[j].z, i < 2 ? b[j].y : b[j].w);
        }
    }
}

// o += weights times 64 elements of values from chunk c on. p: steps of 16 keys, hi and lo. o[k][i][e]: of query e / 2
// element 32 (c + k) + 8 t + i + 4 (e % 2).
template <int CHUNKS>
static __device__ __forceinline__ void pl_group_values(float o[2][4][4], const uint32_t p[2][2][4],
                                                       const pl_group_tile<CHUNKS, float> &value, int c) {
    constexpr int         ROW = pl_group_pieces<CHUNKS, float>;
    const pl_group_places from = pl_group_values_at(value);
#pragma unroll
    for (int step = 0; step < 2; step++) {
        const uint4 hi = {p[step][0][0], p[step][0][1], p[step][0][2], p[step][0][3]};
        const uint4 lo = {p[step][1][0], p[step][1][1], p[step][1][2], p[step][1][3]};
        uint4       v[2][2][2]; // chunk, hi and lo, elements 4g, 4g + 1 and the next two
#pragma unroll
        for (int k = 0; k < 2; k++)
#pragma unroll
            for (int part = 0; part < 2; part++)
#pragma unroll
                for (int half = 0; half < 2; half++)
                    v[k][part][half] = from.at[half][(16 * step + 2 * part) * ROW + 8 * (c + k)];
#pragma unroll
        for (int product = 0; product < 3; product++) {
            const uint4 &a = product == 0 ? lo : hi;
            const int    part = product == 1;
#pragma unroll
            for (int k = 0; k < 2; k++)
#pragma unroll
                for (int half = 0; half < 2; half++) {
                    const uint4 &b = v[k][part][half];
                    pl_group_multiply(o[k][2 * half], a, b.x, b.y);
                    pl_group_multiply(o[k][2 * half + 1], a, b.z, b.w);
                }
        }
    }
}
// Here o[k][i][e] is element 32 c + 16 t + 8 (e % 2) + 4 k + i.
template <int CHUNKS>
static __device__ __forceinline__ void pl_group_values(float o[2][4][4], const uint32_t p[2][2][4],
                                                       const pl_group_tile<CHUNKS, uint16_t> &value, int c) {
    constexpr int         ROW = pl_group_pieces<CHUNKS, uint16_t>;
    const pl_group_places from = pl_group_values_at(value);
#pragma unroll
    for (int step = 0; step < 2; step++) {
        uint4 v[4]; // elements 8g + 2j, 8g + 2j + 1 of both chunks
#pragma unroll
        for (int j = 0; j < 4; j++)
            v[j] = from.at[j % 2][(16 * step + j / 2 * 2) * ROW + 4 * c];
#pragma unroll
        for (int part = 1; part >= 0; part--) { // small products first
            const uint4 a = {p[step][part][0], p[step][part][1], p[step][part][2], p[step][part][3]};
#pragma unroll
            for (int j = 0; j < 4; j++) {
                pl_group_multiply(o[j / 2][j % 2 * 2], a, v[j].x, v[j].y);
                pl_group_multiply(o[j / 2][j % 2 * 2 + 1], a, v[j].z, v[j].w);
            }
        }
    }
}

// Computes the group's share of this warp's queries, of which lane 4g + t has g (0) and g + 8 (1), seeing seen[i], with
// scores capped if cap > 0: maximum, sum of exp(score - maximum), the same in all four lanes, and the same sum times
// values, chunks c0 to c1 of those in `value`, 64 elements at a time: emit(c, o), o as in pl_group_values.
template <int CHUNKS, int VALUE_CHUNKS, typename KV, typename Emit>
static __device__ __forceinline__ void
pl_group_share(const pl_group_queries<CHUNKS> &q, const pl_group_tile<CHUNKS, KV> &key,
               const pl_group_tile<VALUE_CHUNKS, KV> &value, const pl_group_seen seen[2], float scale, float cap,
               float max[2], float sum[2], int c0, int c1, Emit emit) {
    const int t = (int)threadIdx.x % 4;
    float     s[4][4] = {};
    pl_group_scores(s, q, key);
    uint32_t p[2][2][4]; // steps of 16 keys, hi and lo
#pragma unroll
    for (int i = 0; i < 2; i++) {
        float m = -INFINITY, total = 0;
#pragma unroll
        for (int j = 0; j < 4; j++)
#pragma unroll
            for (int e = 0; e < 2; e++) {
                float *at = &s[j][2 * i + e];
                *at = pl_group_sees(seen[i], j / 2 * 16 + 4 * t + j % 2 * 2 + e) ? fmaf(scale, *at, 0.0f) : -INFINITY;
                if (cap > 0 && !isinf(*at)) *at = pl_softcapped(*at, cap);
                m = fmaxf(m, *at);
            }
        m = fmaxf(m, __shfl_xor_sync(PL_FULL, m, 1));
        m = fmaxf(m, __shfl_xor_sync(PL_FULL, m, 2));
#pragma unroll
        for (int j = 0; j < 4; j++) {
            uint32_t both[2];
#pragma unroll
            for (int e = 0; e < 2; e++) {
                float *at = &s[j][2 * i + e];
                *at = pl_group_sees(seen[i], j / 2 * 16 + 4 * t + j % 2 * 2 + e) ? expf(*at - m) : 0;
                total += *at;
            }
            pl_attn_split(both, s[j][2 * i], s[j][2 * i + 1]);
            p[j / 2][0][j % 2 * 2 + i] = both[0];
            p[j / 2][1][j % 2 * 2 + i] = both[1];
        }
        max[i] = m;
        sum[i] = pl_attn_four_sum(total);
    }
#pragma unroll
    for (int c = c0; c < c1; c += 2) {
        float o[2][4][4] = {};
        pl_group_values(o, p, value, c);
        emit(c, o);
    }
}

// Calls to(i, d, f, four floats) for the elements d .. d + 3 of query i in o, as passed to emit for chunks c and c + 1.
// f numbers the fours so that those of a query's four lanes are adjacent.
template <typename KV, typename To>
static __device__ __forceinline__ void pl_group_fours(int c, const float o[2][4][4], To to) {
    const int t = (int)threadIdx.x % 4;
#pragma unroll
    for (int i = 0; i < 2; i++)
#pragma unroll
        for (int k = 0; k < 2; k++)
#pragma unroll
            for (int e = 0; e < 2; e++)
                to(i, pl_group_half<KV> ? 32 * c + 16 * t + 8 * e + 4 * k : 32 * (c + k) + 8 * t + 4 * e,
                   8 * c + 8 * k + 4 * e + t,
                   float4{o[k][0][2 * i + e], o[k][1][2 * i + e], o[k][2][2 * i + e], o[k][3][2 * i + e]});
}
// Returns the first of the four elements numbered f; and f of element d, times four, plus d's index within the four.
template <typename KV> static __device__ __forceinline__ int pl_group_four(int f) {
    const int c = f / 16 * 64, k = f / 8 % 2, e = f / 4 % 2, t = f % 4;
    return c + (pl_group_half<KV> ? 16 * t + 8 * e + 4 * k : 32 * k + 8 * t + 4 * e);
}
template <typename KV> static __device__ __forceinline__ int pl_group_place(int d) {
    const int c = d / 64 * 64, t = d / (pl_group_half<KV> ? 16 : 8) % 4;
    const int k = d / (pl_group_half<KV> ? 4 : 32) % 2, e = d / (pl_group_half<KV> ? 8 : 4) % 2;
    return c + 32 * k + 16 * e + 4 * t + d % 4;
}

#endif
