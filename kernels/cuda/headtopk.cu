// The fused head: projection, the k best and the log-sum-exp, no logits in memory.
//
// A block goes through its pairs of panels one after the other, each through all slices of K. The products equal those
// of linear bit for bit (panel.cuh). Each thread adds the sums of a pair's slices in ascending order. After the last
// slice a warp for each row of x reduces the 128 results: the k best, merged with the block's best of its earlier
// pairs, and each panel's share of the log-sum-exp. A second launch, a block for each row, selects the best over the
// blocks, and adds the shares in an order that depends on the number of panels alone. Results do not depend on the
// distribution of pairs to blocks: keys are distinct, so the k best do not depend on the order of merging, and one warp
// computes a share.
//
// Blocks have equal numbers of units (a pair by a slice; to within one), so a pair may span several blocks. The sums of
// such a pair are in a slot in memory, slice by slice, and the last block to finish, in any order, adds them. Each
// block has two slots: slot blocks + b for the pair that block b begins and does not finish, slot b for pairs that it
// computes alone (more than 8 rows of x; with at most 8 these sums are in shared memory). If k exceeds PL_TOPK_MAX, or
// with by_id, the kernel stores one key per row of x and row of the listed panels instead.
#include "kernels/cuda/panel.cuh"
#include "kernels/cuda/select.cuh"
#include "kernels/cuda/slices.cuh"
extern "C" {
#include "kernels/op/headtopk.h"
}

namespace {
constexpr int LIST_THREADS = 1024;

struct share { // the maximum of one panel's logits of a row, and the sum of exp(z - max)
    float max, sum;
};

typedef unsigned long long panel_rows; // a bit for each row of a panel that is in the support

struct head {
    typedef pl_panel_source source_type;
    static constexpr bool   KEEPS = true;
    const uint8_t          *w;
    const float            *x;
    const uint16_t         *rounded;
    const int32_t          *list, *listed; // panels with rows of the support, ascending, and their number; NULL: all
    const panel_rows       *in;            // [most] each panel's rows in the support; NULL: all of N
    float                  *part;          // slots: [2 blocks, slices, rows, PL_UNIT]
    pl_key                 *best;          // [rows, blocks, k]; k 0: keys [rows, pairs of `most`, PL_UNIT]
    share                  *lse;           // [rows, most] or NULL
    unsigned               *ticket;        // [2 blocks] units finished of a slot's pair; zero between launches
    pl_cuda_fault          *fault;
    int64_t  N, K, most, panels, row0; // most: panels of w or of the prefix; panels: of the support; row0: for messages
    int32_t  rows, k;
    // This block's state, set at its start:
    uint32_t first, end, slices; // its units; a pair's slices are consecutive units
    uint32_t begun;              // the block that began the first unit's pair
    mutable uint32_t     kept;   // 1: this thread's warp has processed a pair
    uint32_t             pad;
    static constexpr int HELD = PL_TOPK_MAX / PL_WARP;
    mutable pl_key       held[HELD]; // a lane's best of the warp's row, for at most 8 rows: written to `best` at the
                                     // end

    __device__ __forceinline__ void deal() {
        const int64_t b = blockIdx.x, blocks = gridDim.x;
        slices = (uint32_t)((K + PL_SLICE - 1) / PL_SLICE);
        const int64_t units = (panels + PL_GROUPS - 1) / PL_GROUPS * slices;
        first = (uint32_t)(b * units / blocks), end = (uint32_t)((b + 1) * units / blocks), kept = 0;
#pragma unroll
        for (int o = 0; o < HELD; o++)
            held[o] = 0;
        // Unit u belongs to the last block whose first unit is at most u.
        if (first < end) begun = (uint32_t)(((first / slices * slices + 1) * blocks - 1) / units);
    }
    // Returns the slot of a pair's sums.
    __device__ __forceinline__ uint32_t slot_of(uint32_t pair) const {
        return pair * slices < first ? gridDim.x + begun : blockIdx.x + ((pair + 1) * slices > end ? gridDim.x : 0);
    }
    __device__ __forceinline__ float *slot(uint32_t at, uint32_t slice, int m) const {
        return part + (((int64_t)at * slices + slice) * rows + m) * PL_UNIT;
    }
    __device__ __forceinline__ int64_t panel_of(uint32_t pair, int group) const { // -1: an odd last pair has no
                                                                                  // second panel
        const int64_t at = (int64_t)pair * PL_GROUPS + group;
        return at >= panels ? -1 : list ? list[at] : at;
    }
    struct unit_type {
        int      slice;
        uint32_t pair;
    };
    __device__ __forceinline__ unit_type unit(int64_t j) const {
        const uint32_t pair = (uint32_t)j / slices;
        return unit_type{(int)((uint32_t)j - pair * slices), pair};
    }
    __device__ __forceinline__ pl_panel_source source(const unit_type &of, int group) const {
        int64_t panel = panel_of(of.pair, group);
        if (panel < 0) panel = panel_of(of.pair, 0); // loads the first panel again; keep() discards its results
        return pl_panel_source{(const uint4 *)(w + panel * ((K + 1) / 2) * PL_PANEL * 4)};
    }
    // Returns the number of a pair's units that this block has.
    __device__ __forceinline__ uint32_t own_of(uint32_t pair) const {
        const uint32_t begins = pair * slices, ends = begins + slices;
        return (ends < end ? ends : end) - (begins < first ? first : begins);
    }
    __device__ __forceinline__ float emit(const unit_type &of, int group, int row, int m, float sum,
                                          float before) const {
        if (own_of(of.pair) < slices) slot(slot_of(of.pair), (uint32_t)of.slice, m)[group * PL_PANEL + row] = sum;
        return of.slice ? before + sum : sum;
    }
    __device__ __forceinline__ float4 emit_four(const unit_type &of, int group, int row, int m, const float4 &sum,
                                                float4 total) const {
        if (of.slice)
            pl_add(total, sum);
        else
            total = sum;
        const bool whole = own_of(of.pair) == slices;
        if (!whole)
            *(float4 *)&slot(slot_of(of.pair), (uint32_t)of.slice, m)[group * PL_PANEL + row] = sum;
        else if (of.slice + 1 == (int)slices)
            *(float4 *)&slot(blockIdx.x, 0, m)[group * PL_PANEL + row] = total;
        return total;
    }
    template <int NB> __device__ __forceinline__ void done(const unit_type &of, const float *sums) const {
        __shared__ unsigned last;
        const uint32_t      pair = of.pair, own = own_of(pair), u = pair * slices + (uint32_t)of.slice;
        if (of.slice + 1 < (int)slices && u + 1 < end) return;
        __syncthreads(); // all threads have emitted
        const bool alone = own == slices;
        if (!alone) { // other blocks have units of this pair
            if (threadIdx.x == 0) {
                pl_fence();
                unsigned  *count = ticket + slot_of(pair);
                const bool ends = atomicAdd(count, own) + own == slices;
                if (ends) {
                    pl_fence();
                    *count = 0;
                }
                last = ends;
            }
            __syncthreads();
            if (!last) return;
        }
        // One call: the function is large.
        keep<NB == 1>(pair, alone ? sums : NULL, slot_of(pair), alone ? NB != 1 : slices);
    }

    // Writes each panel's share of a row. v[e]: the logit of row lane + 32 e of the pair, -infinity outside the
    // support.
    __device__ __forceinline__ void put_shares(int m, const int64_t panel[PL_GROUPS],
                                               const float v[PL_GROUPS * 2]) const {
        for (int g = 0; g < PL_GROUPS; g++) {
            if (panel[g] < 0) continue;
            const float max = pl_warp_max(fmaxf(v[2 * g], v[2 * g + 1]));
            const float sum = pl_warp_sum(isinf(max) ? 0 : expf(v[2 * g] - max) + expf(v[2 * g + 1] - max));
            if (threadIdx.x % PL_WARP == 0) lse[m * most + panel[g]] = share{max, sum};
        }
    }
    // Returns the address of this block's list of row m.
    __device__ __forceinline__ pl_key *best_of(int m) const {
        return best + ((int64_t)m * gridDim.x + blockIdx.x) * k;
    }
    // Merges a pair's keys into `own`, the row's kept best; returns false if no key exceeds the k-th best.
    __device__ __forceinline__ bool put_best(pl_key own[HELD], const pl_key of[PL_GROUPS * 2]) const {
        const int    lane = (int)threadIdx.x % PL_WARP;
        pl_key       key[PL_GROUPS * 2 + HELD];
        const pl_key least = __shfl_sync(PL_FULL, k > PL_WARP ? own[HELD - 1] : own[0], (k - 1) % PL_WARP);
        bool         more = !kept;
#pragma unroll
        for (int e = 0; e < PL_GROUPS * 2; e++) {
            key[e] = of[e];
            more |= of[e] > least;
        }
        if (!__any_sync(PL_FULL, more)) return false;
#pragma unroll
        for (int o = 0; o < HELD; o++)
            key[PL_GROUPS * 2 + o] = own[o];
        for (int i = 0; i < k; i++) {
            const pl_key found = pl_take_best(key);
#pragma unroll
            for (int o = 0; o < HELD; o++)
                if (lane + o * PL_WARP == i) own[o] = found;
        }
        return true;
    }
    // Keeps the results of a pair that are all in `sums` (pl_part_at; n is 0), or are the sum of n slices in the slot
    // `at` that this block can read. A row always belongs to the same warp.
    template <bool FEW>
    __device__ __forceinline__ void keep(uint32_t pair, const float *sums, uint32_t at, uint32_t n) const {
        constexpr int EACH = PL_GROUPS * 2;
        static_assert(PL_PANEL == 2 * PL_WARP, "two results a lane of each panel");
        const int  lane = (int)threadIdx.x % PL_WARP;
        int64_t    panel[PL_GROUPS];
        panel_rows there[PL_GROUPS];
        if ((int)threadIdx.x / PL_WARP >= rows) { // this warp has no row
            kept = 1;
            return;
        }
#pragma unroll
        for (int g = 0; g < PL_GROUPS; g++) {
            panel[g] = panel_of(pair, g);
            const int64_t left = N - panel[g] * PL_PANEL;
            there[g] = panel[g] < 0       ? 0
                       : in               ? in[panel[g]]
                       : left >= PL_PANEL ? ~(panel_rows)0
                                          : ((panel_rows)1 << left) - 1;
        }
        auto ask = [&](int m, float v[EACH], pl_key own[HELD]) {
#pragma unroll
            for (int o = 0; o < HELD; o++)
                own[o] = FEW ? held[o] : kept && lane + o * PL_WARP < k ? best_of(m)[lane + o * PL_WARP] : 0;
#pragma unroll
            for (int e = 0; e < EACH; e++)
                v[e] = FEW && sums ? sums[pl_part_at(e / 2, lane + e % 2 * PL_WARP, m)] : 0;
#pragma unroll 2
            for (uint32_t s = 0; s < n; s++)
#pragma unroll
                for (int e = 0; e < EACH; e++)
                    v[e] += pl_load_fresh(slot(at, s, m) + lane + e * PL_WARP);
        };
        auto take = [&](int m, float v[EACH], pl_key own[HELD]) {
            pl_key key[EACH];
            bool   nan = false;
#pragma unroll
            for (int e = 0; e < EACH; e++) {
                const int  row = lane + e % 2 * PL_WARP;
                const bool mine = there[e / 2] >> row & 1;
                nan |= mine && isnan(v[e]);
                v[e] = mine ? v[e] : -INFINITY;
                key[e] = mine ? pl_key_of(v[e], (uint32_t)(panel[e / 2] * PL_PANEL + row)) : 0;
            }
            if (nan)
#pragma unroll
                for (int e = 0; e < EACH; e++)
                    if (isnan(v[e]))
                        atomicMin(&fault->nan,
                                  (unsigned long long)(row0 + m) << 32 |
                                      (unsigned long long)(panel[e / 2] * PL_PANEL + lane + e % 2 * PL_WARP));
            if (lse) put_shares(m, panel, v);
            if (k > 0) {
                if (!put_best(own, key)) return;
#pragma unroll
                for (int o = 0; o < HELD; o++)
                    if (FEW)
                        held[o] = own[o];
                    else if (lane + o * PL_WARP < k)
                        best_of(m)[lane + o * PL_WARP] = own[o];
                return;
            }
            pl_key *to = best + ((int64_t)m * ((most + PL_GROUPS - 1) / PL_GROUPS) + pair) * PL_UNIT + lane;
#pragma unroll
            for (int e = 0; e < EACH; e++)
                to[e * PL_WARP] = key[e];
        };
        float  v[EACH];
        pl_key own[HELD];
        int    m = (int)threadIdx.x / PL_WARP;
        ask(m, v, own);
        for (; m < rows; m += FEW ? PL_ROWS : PL_WARPS) { // prefetches a row while the previous one is reduced
            float  v_next[EACH] = {};
            pl_key own_next[HELD] = {};
            if (!FEW && m + PL_WARPS < rows) ask(m + PL_WARPS, v_next, own_next);
            take(m, v, own);
#pragma unroll
            for (int e = 0; e < EACH; e++)
                v[e] = v_next[e];
#pragma unroll
            for (int o = 0; o < HELD; o++)
                own[o] = own_next[o];
        }
        kept = 1;
    }
    // After the last unit: writes the held keys, or zeros for a block that had no pair.
    template <bool FEW> __device__ __forceinline__ void close() const {
        const int lane = (int)threadIdx.x % PL_WARP;
        if (kept && !FEW) return;
        for (int m = (int)threadIdx.x / PL_WARP; m < rows; m += PL_WARPS)
#pragma unroll
            for (int o = 0; o < HELD; o++)
                if (lane + o * PL_WARP < k) best_of(m)[lane + o * PL_WARP] = held[o];
    }
};

// Inputs and outputs of the second launch.
struct finish {
    int32_t          *id;     // [rows, k]
    float            *value;  // [rows, k] or NULL
    float            *lse;    // [rows] or NULL
    const pl_key     *key;    // [rows, n]
    const share      *part;   // [rows, panels]
    const panel_rows *in;     // [panels] or NULL
    const int32_t    *listed; // not NULL: the keys of the first so many panels are valid; n is the stride
    int64_t           n, panels;
    int32_t           k, by_id;
};
} // namespace

constexpr int NEAR_SPANS = 2048;

// Lists the panels that intersect the support and writes each panel's row mask. One block.
static __global__ void __launch_bounds__(LIST_THREADS)
    support_kernel(int32_t *list, int32_t *listed, panel_rows *in, const pl_span *span, const int32_t *held,
                   int n_spans, int64_t N, int64_t panels) {
    pl_previous_done();
    __shared__ int     room[PL_WARP];
    __shared__ pl_span near[NEAR_SPANS];
    const int          spans = held ? *held : n_spans;
    int                found = 0;
    if (spans <= NEAR_SPANS) {
        for (int i = (int)threadIdx.x; i < spans; i += LIST_THREADS)
            near[i] = span[i];
        __syncthreads();
        span = near;
    }
    for (int64_t p0 = 0; p0 < panels; p0 += LIST_THREADS) {
        const int64_t p = p0 + threadIdx.x, n0 = p * PL_PANEL, n1 = n0 + PL_PANEL < N ? n0 + PL_PANEL : N;
        panel_rows    rows = 0;
        int           low = 0, high = p < panels ? spans : 0; // the first span that ends after n0; span ends ascend
        while (low < high) {
            const int middle = (low + high) / 2;
            if ((int64_t)span[middle].first + span[middle].count > n0)
                high = middle;
            else
                low = middle + 1;
        }
        for (; p < panels && low < spans && span[low].first < n1; low++) {
            const int64_t from = span[low].first > n0 ? span[low].first - n0 : 0;
            const int64_t to = (int64_t)span[low].first + span[low].count - n0;
            if (to > from) rows |= (to >= PL_PANEL ? ~(panel_rows)0 : ((panel_rows)1 << to) - 1) >> from << from;
        }
        int more, upto = pl_block_upto(rows != 0, room, &more);
        if (p < panels) in[p] = rows;
        if (rows) list[found + upto - 1] = (int32_t)p;
        found += more;
    }
    if (threadIdx.x == 0) *listed = found;
}

template <int NB> static __global__ void __launch_bounds__(PL_BLOCK, pl_bound(NB)) head_kernel(head h) {
    if (h.list) {
        pl_previous_done();
        h.panels = *h.listed;
    }
    h.deal();
    if constexpr (pl_has_room(sizeof(pl_room<NB>))) {
        pl_stream<NB>(*(pl_room<NB> *)pl_dynamic_shared(), h, h.first, h.end);
        h.close<NB == 1>();
    }
}

// The first launch for fp32 weights; all columns of K form one slice.
static __global__ void __launch_bounds__(PL_BLOCK) head_chain_kernel(head h) {
    pl_previous_done();
    if (h.list) h.panels = *h.listed;
    const int64_t pairs = (h.panels + PL_GROUPS - 1) / PL_GROUPS, b = blockIdx.x, blocks = gridDim.x;
    h.slices = 1, h.kept = 0;
#pragma unroll
    for (int o = 0; o < head::HELD; o++)
        h.held[o] = 0;
    for (int64_t pair = b * pairs / blocks; pair < (b + 1) * pairs / blocks; pair++) {
        for (int g = 0; g < PL_GROUPS; g++) {
            const int64_t panel = h.panel_of((uint32_t)pair, g);
            if (panel < 0) continue;
            pl_panel_chain(h.w + panel * h.K * PL_PANEL * 4, h.x, h.rows, h.K,
                           [&](int row, int m, float sum) { h.slot((uint32_t)b, 0, m)[g * PL_PANEL + row] = sum; });
        }
        __syncthreads(); // the slot holds the pair
        h.keep<false>((uint32_t)pair, NULL, (uint32_t)b, 1);
        __syncthreads(); // the slot has been read
    }
    h.close<false>();
}

// Computes a row's log-sum-exp. 256 threads add the shares in a fixed order; 1,024 find the maximum, whose order
// does not matter. All threads of the block call it.
static __device__ __forceinline__ void put_lse(float *lse, const share *of, const panel_rows *in, int64_t panels) {
    __shared__ float room[PL_WARP];
    float            max = -INFINITY, sum = 0;
    for (int64_t p = threadIdx.x; p < panels; p += LIST_THREADS)
        if (!in || in[p]) max = fmaxf(max, of[p].max);
    max = pl_block_max(max, room);
    for (int64_t p = threadIdx.x; p < panels && threadIdx.x < PL_BLOCK && !isinf(max); p += PL_BLOCK)
        if (!in || in[p]) sum += of[p].sum * expf(of[p].max - max);
    sum = pl_block_sum(sum, room);
    if (threadIdx.x == 0) *lse = isinf(max) ? max : max + logf(sum);
}

static __device__ __forceinline__ void put_key(const finish &f, int i, pl_key key) {
    f.id[(int64_t)blockIdx.x * f.k + i] = pl_key_id(key);
    if (f.value) f.value[(int64_t)blockIdx.x * f.k + i] = pl_key_value(key);
}

// Selects k <= PL_FEW_BEST keys: each warp keeps its k best, then warp 0 selects among these.
static __global__ void __launch_bounds__(LIST_THREADS) few_kernel(finish f) {
    pl_previous_done();
    constexpr int     EACH = 4, WARPS = LIST_THREADS / PL_WARP, OF = WARPS * PL_FEW_BEST / PL_WARP;
    __shared__ pl_key found[WARPS * PL_FEW_BEST];
    const int         lane = (int)threadIdx.x % PL_WARP, warp = (int)threadIdx.x / PL_WARP;
    const pl_key     *in = f.key + blockIdx.x * f.n;
    pl_key            own = 0;
    for (int64_t n0 = 0; n0 < f.n; n0 += EACH * LIST_THREADS) {
        pl_key key[EACH + 1];
#pragma unroll
        for (int e = 0; e < EACH; e++) {
            const int64_t i = n0 + e * LIST_THREADS + threadIdx.x;
            key[e] = i < f.n ? in[i] : 0;
        }
        key[EACH] = own;
        own = 0;
        for (int i = 0; i < f.k; i++) {
            const pl_key best = pl_take_best(key);
            if (lane == i) own = best;
        }
    }
    if (lane < f.k) found[warp * f.k + lane] = own;
    __syncthreads(); // all warps have written
    if (warp == 0) {
        pl_key key[OF];
#pragma unroll
        for (int e = 0; e < OF; e++)
            key[e] = e * PL_WARP + lane < WARPS * f.k ? found[e * PL_WARP + lane] : 0;
        for (int i = 0; i < f.k; i++) {
            const pl_key best = pl_take_best(key);
            if (lane == i) own = best;
        }
        if (lane < f.k) put_key(f, lane, own);
    }
    if (f.lse) put_lse(f.lse + blockIdx.x, f.part + blockIdx.x * f.panels, f.in, f.panels);
}

// More than that, by descending key or ascending id. Exactly k keys reach the least of the k largest; a sort in shared
// memory orders them.
static __global__ void __launch_bounds__(LIST_THREADS) list_kernel(finish f) {
    pl_previous_done();
    __shared__ pl_key    key[PL_HEADTOPK_MAX];
    __shared__ pl_digits digits;
    __shared__ unsigned  taken;
    const pl_key        *in = f.key + blockIdx.x * f.n;
    const int64_t        n = f.listed ? (*f.listed + PL_GROUPS - 1) / PL_GROUPS * PL_UNIT : f.n;
    const pl_key         least = pl_least_of([&](int64_t i) { return in[i]; }, n, f.k, digits);
    if (threadIdx.x == 0) taken = 0;
    for (int i = (int)threadIdx.x; i < PL_HEADTOPK_MAX; i += LIST_THREADS)
        key[i] = 0;
    __syncthreads();
    for (int64_t i = threadIdx.x; i < n; i += LIST_THREADS)
        if (in[i] != 0 && in[i] >= least) key[atomicAdd(&taken, 1)] = f.by_id ? in[i] << 32 | in[i] >> 32 : in[i];
    int room = 64;
    while (room < f.k)
        room *= 2;
    pl_sort_keys(key, room);
    for (int i = (int)threadIdx.x; i < f.k; i += LIST_THREADS)
        put_key(f, i, f.by_id ? key[i] << 32 | key[i] >> 32 : key[i]);
    if (f.lse) put_lse(f.lse + blockIdx.x, f.part + blockIdx.x * f.panels, f.in, f.panels);
}

// Returns the size of the grid for `rows` rows of x: resident blocks, at most one per unit (fp32: per pair).
static int64_t blocks_of(const pl_ctx *ctx, const pl_tensor *w, int64_t rows) {
    const bool    bf16 = w->dtype == PL_BF16;
    const int64_t units = pl_ceil_div(w->dim[0], PL_UNIT) * (bf16 ? pl_ceil_div(w->dim[1], PL_SLICE) : 1);
    const int64_t most = (int64_t)pl_cuda_state_of(ctx)->sms * (bf16 ? pl_resident(pl_column_blocks((int)rows)) : 4);
    return units < most ? units : most;
}

// Returns the maximum of blocks times rows over all passes of up to M rows: fewer rows may have more blocks.
static size_t places_of(const pl_ctx *ctx, const pl_tensor *w, int64_t M) {
    int64_t most = 0, pass = pl_pass_rows(ctx);
    for (int64_t n = 8; n <= pass; n *= 2) {
        const int64_t of = M < n ? M : n, need = blocks_of(ctx, w, of) * of;
        if (need > most) most = need;
    }
    return (size_t)most;
}

// Returns true for a support of the first rows, written by the host: it needs no list, and weights can be loaded while
// x is computed.
static bool from_first(const pl_headtopk_args *a) {
    return !a->held && a->n_spans == 1 && a->span[0].first == 0 && a->span[0].count > 0;
}

static void queue_head(pl_ctx *ctx, const head &of, const pl_tensor *w) {
    head                  h = of;
    const int64_t         blocks = blocks_of(ctx, w, h.rows);
    const int             nb = pl_column_blocks(h.rows);
    const pl_cuda_rounded known = pl_cuda_state_of(ctx)->rounded;
    if (w->dtype != PL_BF16) {
        PL_LAUNCH_EARLY(ctx, "headtopk", head_chain_kernel, pl_grid(blocks), PL_BLOCK, h);
        return;
    }
    h.rounded = pl_rounded_of(known, h.x, h.rows, h.K);
    auto kernel = nb == 1 ? head_kernel<1> : nb == 2 ? head_kernel<2> : nb == 4 ? head_kernel<4> : head_kernel<8>;
    PL_LAUNCH_EARLY_ROOM(ctx, "headtopk", kernel, pl_grid(blocks), PL_BLOCK, pl_room_bytes(nb), h);
    if (h.rounded) pl_cuda_state_of(ctx)->rounded = known; // x is still rounded: this op does not write it
}

PL_CUDA_OP(headtopk_fwd) {
    const pl_headtopk_args *a = (const pl_headtopk_args *)args;
    const int64_t           M = a->x.dim[0], K = a->w.dim[1], pass = pl_pass_rows(ctx), most = M < pass ? M : pass;
    const int64_t           panels = pl_ceil_div(a->w.dim[0], PL_PANEL), pairs = pl_ceil_div(panels, PL_GROUPS);
    const bool              list = a->by_id || a->k > PL_TOPK_MAX;
    const size_t            slices = a->w.dtype == PL_BF16 ? (size_t)pl_ceil_div(K, PL_SLICE) : 1;
    if (a->w.layout != PL_PANELS) {
        pl_ctx_fail(ctx, PL_E_UNSUPPORTED, "op headtopk: backend %s takes packed weights", ctx->be->name);
        return;
    }
    const size_t   mark = pl_arena_mark(&ctx->scratch), places = places_of(ctx, &a->w, M);
    pl_arena      *scratch = &ctx->scratch;
    const pl_span *span = NULL;
    head           h = {};
    h.N = a->w.dim[0], h.K = K, h.most = h.panels = panels, h.k = list ? 0 : a->k;
    h.w = (const uint8_t *)a->w.data;
    h.part = (float *)pl_arena_alloc(scratch, pl_size_mul(2 * places, slices * PL_UNIT, sizeof *h.part));
    h.best = (pl_key *)pl_arena_alloc(scratch, list ? pl_size_mul((size_t)most, (size_t)pairs * PL_UNIT, sizeof(pl_key))
                                                    : pl_size_mul(places, (size_t)a->k, sizeof(pl_key)));
    if (a->lse) h.lse = (share *)pl_arena_alloc(scratch, pl_size_mul((size_t)most, (size_t)panels, sizeof *h.lse));
    panel_rows *in = (panel_rows *)pl_arena_alloc(scratch, pl_size_mul((size_t)panels, sizeof *in, 1));
    int32_t    *panel = (int32_t *)pl_arena_alloc(scratch, pl_size_mul((size_t)panels + 1, sizeof *panel, 1));
    if (a->span && !ctx->measuring && from_first(a)) {
        h.N = a->span[0].count;
        h.panels = h.most = pl_ceil_div(h.N, PL_PANEL);
    } else if (a->span && !ctx->measuring) {
        span = a->held ? a->span : pl_index(ctx, a->span, a->n_spans);
        h.in = in, h.list = panel + 1, h.listed = panel;
        PL_LAUNCH_EARLY(ctx, "headtopk", support_kernel, pl_grid(1), LIST_THREADS, panel + 1, panel, in, span, a->held,
                        a->n_spans, h.N, panels);
    }
    for (int64_t m = 0; m < M && !ctx->measuring; m += pass) {
        h.rows = (int)(M - m < pass ? M - m : pass);
        h.row0 = m;
        h.x = pl_f32(&a->x) + m * K;
        h.fault = pl_cuda_state_of(ctx)->fault, h.ticket = pl_cuda_state_of(ctx)->ticket;
        queue_head(ctx, h, &a->w);
        finish f = {};
        f.id = a->id + m * a->k, f.value = a->value ? a->value + m * a->k : NULL, f.lse = a->lse ? a->lse + m : NULL;
        f.key = h.best, f.part = h.lse, f.in = h.in, f.listed = list ? h.listed : NULL;
        f.n = list ? pl_ceil_div(h.most, PL_GROUPS) * PL_UNIT : blocks_of(ctx, &a->w, h.rows) * a->k;
        f.panels = h.most, f.k = a->k, f.by_id = a->by_id;
        auto kernel = !list && a->k <= PL_FEW_BEST ? few_kernel : list_kernel;
        PL_LAUNCH_EARLY(ctx, "headtopk", kernel, pl_grid(h.rows), LIST_THREADS, f);
    }
    pl_arena_release(&ctx->scratch, mark);
}
