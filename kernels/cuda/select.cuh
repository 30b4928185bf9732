// The k best of many (value, id) pairs, for topk and the fused head. A pair is one 64-bit key: the float's bits made
// ascending, then the inverted id, so that the larger key is the larger value and, of equal values, the lower id. Key 0
// is empty. Reduction in rounds: a block takes 1024 or 2048 keys and keeps k.
#ifndef PL_CUDA_SELECT_CUH
#define PL_CUDA_SELECT_CUH

#include "kernels/cuda/launch.cuh"

typedef unsigned long long pl_key;
constexpr int              PL_SORT = 1024;

static __device__ __forceinline__ pl_key pl_key_of(float v, uint32_t id) {
    v += 0.0f; // -0 and 0 are equal
    uint32_t u;
    memcpy(&u, &v, 4);
    u = u >> 31 ? ~u : u | 0x80000000u;
    return (pl_key)u << 32 | (uint32_t)~id;
}
static __device__ __forceinline__ int32_t pl_key_id(pl_key k) {
    return k ? (int32_t) ~(uint32_t)k : -1;
}
static __device__ __forceinline__ float pl_key_value(pl_key k) {
    uint32_t u = (uint32_t)(k >> 32);
    u = u >> 31 ? u & 0x7fffffffu : ~u;
    float v;
    memcpy(&v, &u, 4);
    return k ? v : -INFINITY;
}

// Sorts n keys, a power of two, in shared memory, largest first (Batcher's bitonic network). All threads of a block
// take part.
static __device__ __forceinline__ void pl_sort_keys(pl_key *key, int n) {
    for (int size = 2; size <= n; size *= 2)
        for (int stride = size / 2; stride > 0; stride /= 2) {
            __syncthreads();
            for (int p = (int)threadIdx.x; p < n / 2; p += (int)blockDim.x) {
                int    i = 2 * p - (p & (stride - 1)), j = i + stride;
                bool   up = i & size;
                pl_key a = key[i], b = key[j];
                if ((a < b) != up) key[i] = b, key[j] = a;
            }
        }
    __syncthreads();
}

// Names of ids: name [rows, n]; NULL: the ids themselves.
struct pl_names {
    const int32_t                     *name;
    int64_t                            n;
    __device__ __forceinline__ int32_t of(int64_t row, int32_t id) const {
        return name && id >= 0 ? name[row * n + id] : id;
    }
};

// Up to PL_FEW_BEST are taken out one by one, by warps that hold their keys in registers: one barrier instead of the
// some 50 of sorting. Results are the same either way.
constexpr int PL_FEW_BEST = 16;
constexpr int PL_FEW_EACH = 8; // keys per thread

static inline int64_t pl_chunk_of(int k) { // keys per block
    return k <= PL_FEW_BEST ? PL_FEW_EACH * PL_BLOCK : PL_SORT;
}

// Takes out the largest of a warp's keys, EACH a lane.
template <int EACH> static __device__ __forceinline__ pl_key pl_take_best(pl_key (&key)[EACH]) {
    pl_key best = 0;
#pragma unroll
    for (int e = 0; e < EACH; e++)
        best = key[e] > best ? key[e] : best;
#pragma unroll
    for (int s = PL_WARP / 2; s > 0; s /= 2) {
        const pl_key other = __shfl_xor_sync(PL_FULL, best, s);
        best = other > best ? other : best;
    }
#pragma unroll
    for (int e = 0; e < EACH; e++)
        if (key[e] == best) key[e] = 0;
    return best;
}

// Writes the i-th best of chunk blockIdx.x of row blockIdx.y: to out [rows, chunks, k] or, if the row is one chunk, to
// id and value [rows, k].
static __device__ __forceinline__ void pl_put_best(int i, pl_key key, pl_key *out, int32_t *id, float *value, int k,
                                                   const pl_names &names) {
    const int64_t row = blockIdx.y, chunk = blockIdx.x;
    if (gridDim.x > 1) {
        out[(row * gridDim.x + chunk) * k + i] = key;
        return;
    }
    id[row * k + i] = names.of(row, pl_key_id(key));
    if (value) value[row * k + i] = pl_key_value(key);
}

// Writes the k best of chunk blockIdx.x of the n keys in(0..n-1), as pl_put_best does. FEW: k <= PL_FEW_BEST.
template <bool FEW, typename In>
static __device__ __forceinline__ void pl_keep_best(const In &in, int64_t n, pl_key *out, int32_t *id, float *value,
                                                    int k, const pl_names &names) {
    const int me = (int)threadIdx.x, lane = me % PL_WARP, warp = me / PL_WARP;
    if constexpr (FEW) {
        constexpr int     WARPS = PL_BLOCK / PL_WARP;
        __shared__ pl_key found[WARPS * PL_FEW_BEST];
        pl_key            key[PL_FEW_EACH], of[WARPS * PL_FEW_BEST / PL_WARP], own = 0;
        const int64_t     first = (int64_t)blockIdx.x * PL_FEW_EACH * PL_BLOCK + me;
#pragma unroll
        for (int e = 0; e < PL_FEW_EACH; e++)
            key[e] = first + e * PL_BLOCK < n ? in(first + e * PL_BLOCK) : 0;
        for (int i = 0; i < k; i++) {
            const pl_key best = pl_take_best(key);
            if (lane == 0) found[warp * k + i] = best;
        }
        __syncthreads(); // all warps have written
        if (warp > 0) return;
#pragma unroll
        for (int e = 0; e < WARPS * PL_FEW_BEST / PL_WARP; e++)
            of[e] = e * PL_WARP + lane < WARPS * k ? found[e * PL_WARP + lane] : 0;
        for (int i = 0; i < k; i++) {
            const pl_key best = pl_take_best(of);
            if (lane == i) own = best;
        }
        if (lane < k) pl_put_best(lane, own, out, id, value, k, names);
    } else {
        __shared__ pl_key key[PL_SORT];
        for (int i = me; i < PL_SORT; i += PL_BLOCK) {
            const int64_t at = (int64_t)blockIdx.x * PL_SORT + i;
            key[i] = at < n ? in(at) : 0;
        }
        pl_sort_keys(key, PL_SORT);
        for (int i = me; i < k; i += PL_BLOCK)
            pl_put_best(i, key[i], out, id, value, k, names);
    }
}

// One round: chunk blockIdx.x of row blockIdx.y's n keys.
template <bool FEW>
static __global__ void __launch_bounds__(PL_BLOCK)
    pl_select_kernel(pl_key *out, int32_t *id, float *value, const pl_key *in, int64_t n, int k, pl_names names) {
    pl_previous_done();
    in += (int64_t)blockIdx.y * n;
    pl_keep_best<FEW>([&](int64_t i) { return in[i]; }, n, out, id, value, k, names);
}

// Shared memory of the search for the k-th largest key.
struct pl_digits {
    unsigned count[256], digit, left;
};

// Finds, from the last of 256 counts on, the digit of the wanted-th key, and its index among the keys of that digit.
// One warp.
static __device__ __forceinline__ void pl_find_digit(pl_digits &s, unsigned want) {
    constexpr int EACH = 256 / PL_WARP;
    int           d = 255 - EACH * (int)threadIdx.x, own = 0;
    for (int i = 0; i < EACH; i++)
        own += (int)s.count[d - i];
    unsigned upto = (unsigned)pl_warp_upto(own), before = upto - (unsigned)own;
    if (before >= want || (want > upto && threadIdx.x < PL_WARP - 1)) return;
    want -= before;
    for (int i = 1; i < EACH && s.count[d] < want; i++)
        want -= s.count[d--];
    s.digit = (unsigned)d;
    s.left = want;
}

// Returns the least of the k largest of n keys in(0..n-1), which differ from each other (except for zeros); 0 if there
// are fewer than k. Digit by digit from histograms, until all keys with the digits found are wanted. All threads of a
// block take part and get it.
template <typename In>
static __device__ __forceinline__ pl_key pl_least_of(const In &in, int64_t n, int k, pl_digits &s) {
    pl_key   least = 0;
    unsigned want = (unsigned)k;
    for (int low = 56; low >= 0; low -= 8) {
        for (int i = (int)threadIdx.x; i < 256; i += (int)blockDim.x)
            s.count[i] = 0;
        __syncthreads();
        for (int64_t i = threadIdx.x; i < n; i += blockDim.x) {
            pl_key key = in(i);
            if (low == 56 || key >> (low + 8) == least >> (low + 8)) atomicAdd(&s.count[key >> low & 255], 1);
        }
        __syncthreads();
        if (threadIdx.x < PL_WARP) pl_find_digit(s, want);
        __syncthreads();
        least |= (pl_key)s.digit << low;
        want = s.left;
        bool all = s.count[s.digit] == want;
        __syncthreads();
        if (all) break;
    }
    return least;
}

static inline size_t pl_select_bytes(int64_t rows, int64_t n, int k) { // bytes of the two buffers between rounds
    return pl_size_mul((size_t)rows, (size_t)(pl_ceil_div(n, pl_chunk_of(k)) * k), sizeof(pl_key));
}

// Runs rounds until one chunk is left. in: [rows, n] keys; from and to: buffers of pl_select_bytes, alternating.
static inline void pl_select(pl_ctx *ctx, const char *op, int32_t *id, float *value, const pl_key *in, pl_key *to,
                             pl_key *other, int64_t rows, int64_t n, int k, pl_names names) {
    auto kernel = k <= PL_FEW_BEST ? pl_select_kernel<true> : pl_select_kernel<false>;
    for (;;) {
        int64_t chunks = pl_ceil_div(n, pl_chunk_of(k));
        PL_LAUNCH_EARLY(ctx, op, kernel, pl_grid(chunks, rows), PL_BLOCK, to, id, value, in, n, k, names);
        if (chunks <= 1) return;
        n = chunks * k;
        in = to;
        pl_key *swap = to;
        to = other, other = swap;
    }
}

#endif
