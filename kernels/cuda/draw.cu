// Draws the target's tokens, one block per row, which reads its logits from cache as often as its distribution requires
// and writes only the token; no block waits for another. Two steps, each a walk down sums:
//   the end of a run of best tokens (top-k, top-p)   keys of select.cuh, digit by digit: a histogram of the keys that
//       have the digits found so far, of their counts or their shares, then the digit at which the run ends;
//   the token at u                                   in order of ids.
// Shares are integers: sums do not depend on their order, and so not on the number of threads.
#include "kernels/cuda/select.cuh"
extern "C" {
#include "kernels/op/draw.h"
}

typedef unsigned long long pl_share;

constexpr int DRAW_THREADS = 512, DRAW_BINS = 2048, AT_ONCE = 16; // 128 registers: no spills

struct dist { // one row's, the same in all threads of its block
    const float    *x;
    const uint32_t *said; // NULL: no penalty
    const int32_t  *path; // [n_path]
    int64_t         V;
    double          min_p;
    float           penalty, top, inv_t, unit; // unit: scale from a weight to an integer share
    int             n_path;
    pl_key          least; // kept tokens have keys >= least
};

static __device__ __forceinline__ float logit_of(const dist &l, float x, int64_t v) {
    if (!l.said) return x;
    bool occurred = l.said[v / 32] >> (v % 32) & 1;
    for (int i = 0; i < l.n_path; i++)
        occurred |= l.path[i] == v;
    return !occurred ? x : x > 0 ? x / l.penalty : x * l.penalty;
}

static __device__ __forceinline__ float weight_of(const dist &l, float z) {
    return z < l.top ? expf((z - l.top) * l.inv_t) : 1.0f;
}

static __device__ __forceinline__ pl_share share_of(const dist &l, float weight) {
    return (pl_share)(weight * l.unit);
}

// Calls each(z, v) for the logits of ids from, from + stride, ... below `to`, with several loads in flight.
template <typename F>
static __device__ __forceinline__ void each(const dist &l, int64_t from, int64_t to, int stride, F f) {
    for (int64_t v0 = from; v0 < to; v0 += (int64_t)AT_ONCE * stride) {
        float x[AT_ONCE];
#pragma unroll
        for (int i = 0; i < AT_ONCE; i++)
            if (v0 + i * stride < to) x[i] = l.x[v0 + i * stride];
#pragma unroll
        for (int i = 0; i < AT_ONCE; i++)
            if (v0 + i * stride < to) f(logit_of(l, x[i], v0 + i * stride), v0 + i * stride);
    }
}

template <typename T> static __device__ __forceinline__ T warp_sum_of(T v) {
    for (int s = PL_WARP / 2; s > 0; s >>= 1)
        v += __shfl_xor_sync(PL_FULL, v, s);
    return v;
}

// Returns the i < n at which the running sum of n terms passes `rest`, and leaves in it the rest before i. Each warp
// sums a part: sum(from, to), the same in all lanes; the part that contains i is divided in turn. begin(total): rest.
template <typename B, typename S>
static __device__ int64_t find(int64_t n, pl_share *rest, pl_share *room, B begin, S sum) {
    int     warp = (int)threadIdx.x / PL_WARP, warps = (int)blockDim.x / PL_WARP;
    int64_t first = 0;
    for (bool begun = false; n > 1 || !begun; begun = true) {
        int64_t  len = (n + warps - 1) / warps, from = warp * len < n ? warp * len : n;
        pl_share own = warp_sum_of(sum(first + from, first + (from + len < n ? from + len : n)));
        if ((int)threadIdx.x % PL_WARP == 0) room[warp] = own;
        __syncthreads();
        if (!begun) {
            pl_share total = 0;
            for (int w = 0; w < warps; w++)
                total += room[w];
            *rest = begin(total);
        }
        int w = 0;
        for (; w + 1 < warps && *rest >= room[w]; w++)
            *rest -= room[w];
        __syncthreads();
        first += w * len;
        n = n - w * len < len ? n - w * len : len;
    }
    return first;
}

// Returns the least key of the shortest run of best tokens, among those kept in l, whose measure exceeds `rest`: N
// unsigned: number of tokens; N pl_share: their shares, with rest = begin(their sum). Tokens below a weight of `thin`
// count in that sum alone: the run ends before them.
template <typename N, typename B>
static __device__ pl_key run_end(const dist &l, N *bin, pl_share *room, double thin, B begin) {
    constexpr bool SHARES = sizeof(N) == sizeof(pl_share);
    pl_key         found = 0;
    pl_share       rest = 0;
    for (int digit = 0, shift = 64; digit < 6; digit++) {
        int      bits = digit % 3 == 2 ? 10 : 11, bins = 1 << bits;
        pl_key   above = found >> (shift - 1) >> 1; // the digits found so far
        pl_share thrown = 0;
        for (int i = (int)threadIdx.x; i < bins; i += (int)blockDim.x)
            bin[i] = 0;
        __syncthreads();
        each(l, threadIdx.x, l.V, (int)blockDim.x, [&](float z, int64_t v) {
            pl_key key = pl_key_of(z, (uint32_t)v);
            if (key < l.least || key >> (shift - 1) >> 1 != above) return;
            float    weight = SHARES ? weight_of(l, z) : 0;
            pl_share share = SHARES ? share_of(l, weight) : 1;
            if (SHARES && (double)weight < thin)
                thrown += share;
            else if (share)
                atomicAdd(&bin[key >> (shift - bits) & (unsigned)(bins - 1)], (N)share);
        });
        shift -= bits;
        __syncthreads();
        // Bins from the last one down; dropped tokens are part of the sum, after all bins.
        auto sum = [&](int64_t from, int64_t to) {
            pl_share s = 0;
            for (int64_t i = from + (int)threadIdx.x % PL_WARP; i < to; i += PL_WARP)
                s += bin[bins - 1 - i];
            return s;
        };
        if (digit == 0 && SHARES) {
            thrown = warp_sum_of(thrown);
            if ((int)threadIdx.x % PL_WARP == 0) room[threadIdx.x / PL_WARP] = thrown;
            __syncthreads();
            thrown = 0;
            for (int w = 0; w < (int)blockDim.x / PL_WARP; w++)
                thrown += room[w];
            __syncthreads();
        }
        int64_t at = find(
            bins, &rest, room, [&](pl_share total) { return digit ? rest : begin(total + thrown); }, sum);
        pl_share held = bin[bins - 1 - at], each_one = SHARES ? 0 : 1;
        found |= (pl_key)(bins - 1 - at) << shift;
        __syncthreads(); // bins are reused
        // Tokens of equal logits have equal shares: if the last of them is in, ids do not matter. Nor for a single one.
        if (SHARES && digit >= 2) each_one = share_of(l, weight_of(l, pl_key_value(found)));
        if (rest + each_one >= held) break;
    }
    return found;
}

struct draw_job {
    const float       *x;
    const pl_draw_row *row;
    const uint32_t    *said;
    int32_t           *id;
    int64_t            V;
    float              unit;
    int32_t            pad;
};

static __global__ void __launch_bounds__(DRAW_THREADS) draw_kernel(draw_job j) {
    pl_previous_done();
    __shared__ pl_share share[DRAW_BINS], room[PL_WARP];
    __shared__ unsigned count[DRAW_BINS];
    __shared__ int32_t  path[PL_DRAW_PATH], n_path;
    const pl_draw_row  &r = j.row[blockIdx.x];
    int                 lane = (int)threadIdx.x % PL_WARP, warp = (int)threadIdx.x / PL_WARP;
    dist                l = {};
    l.x = j.x + r.at * j.V, l.V = j.V, l.unit = j.unit, l.penalty = r.penalty;
    if (r.penalty != 1) {
        l.said = j.said + r.text * ((j.V + 31) / 32);
        if (threadIdx.x == 0) {
            int n = 0;
            for (int at = (int)blockIdx.x; j.row[at].parent >= 0; at = j.row[at].parent)
                path[n++] = j.row[at].token;
            n_path = n;
        }
        __syncthreads();
        l.path = path, l.n_path = n_path;
    }

    // The best token. A NaN is better than any number: it gets the largest key.
    pl_key best = 0;
    each(l, threadIdx.x, j.V, (int)blockDim.x, [&](float z, int64_t v) {
        pl_key key = isnan(z) ? ~(pl_key)0 : pl_key_of(z, (uint32_t)v);
        best = key > best ? key : best;
    });
    for (int round = 0; round < 2; round++) { // within warps, then over warps
        for (int s = PL_WARP / 2; s > 0; s >>= 1) {
            pl_key other = __shfl_xor_sync(PL_FULL, best, s);
            best = other > best ? other : best;
        }
        if (round == 0 && lane == 0) room[warp] = best;
        __syncthreads();
        if (round == 0) best = lane < (int)blockDim.x / PL_WARP ? room[lane] : 0;
        __syncthreads(); // room has been read
    }
    l.top = pl_key_value(best);
    if (best == ~(pl_key)0 || isinf(l.top) || r.temperature == 0) {
        if (threadIdx.x == 0) j.id[blockIdx.x] = best == ~(pl_key)0 || isinf(l.top) ? -1 : pl_key_id(best);
        return;
    }

    l.inv_t = (float)(1 / r.temperature);
    if (r.top_k > 0 && r.top_k < j.V)
        l.least = run_end(l, count, room, 0, [&](pl_share) { return (pl_share)(r.top_k - 1); });
    if (r.top_p < 1) {
        // Tokens below (1 - p) / V of the sum, which is at least the best one's 1, hold less than 1 - p of it.
        pl_key end = run_end(l, share, room, 0.5 * (1 - r.top_p) / (double)j.V,
                             [&](pl_share total) { return (pl_share)ceil(r.top_p * (double)total) - 1; });
        l.least = end > l.least ? end : l.least; // among equal logits top-k may have dropped some
    }
    l.min_p = r.min_p;

    auto sum = [&](int64_t from, int64_t to) {
        pl_share own = 0;
        each(l, from + lane, to, PL_WARP, [&](float z, int64_t v) {
            float weight = weight_of(l, z);
            if (pl_key_of(z, (uint32_t)v) >= l.least && (double)weight >= l.min_p) own += share_of(l, weight);
        });
        return own;
    };
    // u is below 1 by 2^-53 at least: the product rounds to less than the whole.
    pl_share rest = 0;
    int64_t  v = find(
         j.V, &rest, room, [&](pl_share total) { return (pl_share)(r.u * (double)total); }, sum);
    if (threadIdx.x == 0) j.id[blockIdx.x] = (int32_t)v;
}

PL_CUDA_OP(draw_fwd) {
    const pl_draw_args *a = (const pl_draw_args *)args;
    PL_OP_SKIP_IF_MEASURING(ctx);
    draw_job j = {};
    int      bits = 62; // V shares of 2^bits stay below 2^63
    for (int64_t v = 1; v < a->x.dim[1]; v *= 2)
        bits--;
    j.x = pl_f32(&a->x), j.V = a->x.dim[1], j.id = a->id, j.unit = ldexpf(1, bits);
    j.row = pl_index(ctx, a->row, a->n);
    if (a->said) j.said = pl_index(ctx, a->said, a->texts * pl_said_words(j.V));
    // Fewer threads if most would have no work; the tokens do not depend on it.
    int threads = j.V < 32 * DRAW_THREADS ? PL_BLOCK : DRAW_THREADS;
    PL_LAUNCH_EARLY(ctx, "draw", draw_kernel, pl_grid(a->n), threads, j);
}
