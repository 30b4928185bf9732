// Products with packed weights (kernels/tensor.h, PL_PANELS): the arithmetic of `linear`, of the fused head and of
// listed rows, the same to the bit.
//
// BF16, on tensor cores. x is rounded to bf16 (nearest even) on input, or by the op that made it; products are summed
// in fp32 in an order that K alone fixes, for any M and any other load:
//   slices of PL_SLICE columns; in a slice, tiles of 16 columns, dealt to PL_CHAINS chains in turn; a chain's tiles
//   ascending, each through one mma; then the chains' sums in order; then the slices' sums in order.
// A block of 256 threads works on units: PL_GROUPS groups of 64 rows of weights (panels) by one slice. A slice of x, up
// to 64 rows, lies in shared memory, and stays there for consecutive units of one slice.
//
// Weights come by asynchronous copies through a ring of tiles, across the ends of units: while one unit is summed up
// the next one's weights are in flight. A warp copies a tile (8 pairs of columns, 256 bytes each) in memory order, 512
// bytes an instruction: eight lanes that copy together must copy one line of 128 bytes to one line of shared memory, or
// memory gives 1.9 of an H100's 3.1 TB/s. Rows and columns of a product may be permuted if x is permuted alike: lane 4g
// + t takes pairs 2t and 2t + 1 of rows 4g..4g+3, 16 bytes each, which are registers of products.
//
// A warp is one chain of a panel, and reads the tiles that it has copied. Chains of up to 8 rows of x (pl_stream_few)
// are added through shared memory while the next unit's first tiles are multiplied. More rows (pl_stream_rows) have too
// many sums for that: they are exchanged in rounds, a part of each chain's at a time, and each warp adds a quarter of
// them.
//
// F32: one fma chain per output, k ascending: the bits of the CPU's kernels.
#ifndef PL_CUDA_PANEL_CUH
#define PL_CUDA_PANEL_CUH

#include "kernels/cuda/rounded.cuh"
#include "kernels/cuda/slices.cuh"
extern "C" {
#include "kernels/tensor.h"
}

constexpr int PL_SLICE = 1024;
constexpr int PL_TILE = 16;
constexpr int PL_CHAINS = 4;
constexpr int PL_TURN = PL_TILE * PL_CHAINS; // columns that the chains take in one turn
constexpr int PL_ROWS = 64;                  // most rows of x in one pass
constexpr int PL_WARPS = PL_BLOCK / PL_WARP;
constexpr int PL_GROUPS = PL_WARPS / PL_CHAINS;
constexpr int PL_UNIT = PL_GROUPS * PL_PANEL; // rows of weights
constexpr int PL_PART_STRIDE = PL_PANEL + 4;  // of a column of partial sums: stores of 16 bytes have no bank conflicts

// The columns of a slice.
static __device__ __forceinline__ int64_t pl_slice_begin(int slice) {
    return (int64_t)slice * PL_SLICE;
}
static __device__ __forceinline__ int64_t pl_slice_end(int slice, int64_t K) {
    const int64_t end = pl_slice_begin(slice + 1);
    return end < K ? end : K;
}

static __device__ __forceinline__ int pl_turns_of(int slice, int64_t K) {
    return (int)((pl_slice_end(slice, K) - pl_slice_begin(slice) + PL_TURN - 1) / PL_TURN);
}

// Returns the number of blocks of 8 columns for `rows` rows: 1, 2, 4 or 8, the existing instances. The bits are the
// same in all.
static inline int pl_column_blocks(int rows) {
    return rows <= 8 ? 1 : rows <= 16 ? 2 : rows <= 32 ? 4 : 8;
}

// Stages of a block that takes NB blocks of 8 rows of x, and how many such blocks share a multiprocessor: sized for 227
// KB each (sm_90, sm_100), so that 64 KB and more are in flight on each multiprocessor.
__host__ __device__ constexpr int pl_stages(int nb) {
    return nb == 8 ? 4 : nb == 4 ? 8 : 3;
}
__host__ __device__ constexpr int pl_resident(int nb) {
    return nb <= 2 ? 2 : 1;
}
// Launch bound on the architecture being compiled for: before sm_90 no two such blocks fit on a multiprocessor, and the
// largest fits on none.
#if defined(__CUDA_ARCH__) && __CUDA_ARCH__ < 900
__host__ __device__ constexpr int pl_bound(int) {
    return 1;
}
__host__ __device__ constexpr bool pl_has_room(size_t bytes) {
    return bytes <= 163 << 10;
}
#else
__host__ __device__ constexpr int pl_bound(int nb) {
    return pl_resident(nb);
}
__host__ __device__ constexpr bool pl_has_room(size_t) {
    return true;
}
#endif
// x of up to 8 rows is stored row by row, with a slice of a row padded to this many pairs of pairs (no bank conflicts
// between rows); with fewer rows several slices fit.
constexpr int PL_FEW_STRIDE = PL_SLICE / 4 + 4;
constexpr int PL_FEW_SLICES = 8;                       // slices times rows
constexpr int PL_TURNS = PL_SLICE / PL_TURN;           // per slice
constexpr int PL_PART = 8 * PL_PART_STRIDE;            // partial sums of a chain
constexpr int PL_PARTS = PL_WARPS * PL_PART;           // of a unit; two fit: one is added while the next is computed
__host__ __device__ constexpr int pl_buffers(int nb) { // two if they fit: one barrier per round instead of two
    return nb == 2 ? 1 : 2;
}
template <int NB> struct pl_room {
    uint4  ring[PL_WARPS][pl_stages(NB)][4][PL_WARP];
    uint2  x[PL_TURNS][PL_CHAINS][NB][PL_WARP];                            // in the tensor cores' register order
    float4 part[pl_buffers(NB)][PL_GROUPS][PL_CHAINS][PL_CHAINS][PL_WARP]; // [to chain][from chain]
};
template <> struct pl_room<1> {
    uint4 ring[PL_WARPS][pl_stages(1)][4][PL_WARP];
    uint2 x[PL_FEW_SLICES * PL_FEW_STRIDE];
    float part[2][PL_PARTS];
};
static_assert(sizeof(pl_room<1>) * 2 + 2048 <= 227 << 10 && sizeof(pl_room<2>) * 2 + 2048 <= 227 << 10, "two a SM");
static_assert(sizeof(pl_room<1>) + 512 <= 99 << 10 && sizeof(pl_room<2>) + 512 <= 99 << 10, "one on the smallest");
static_assert(sizeof(pl_room<4>) <= 227 << 10 && sizeof(pl_room<8>) <= 227 << 10, "one a SM");

static inline size_t pl_room_bytes(int nb) {
    return nb == 8   ? sizeof(pl_room<8>)
           : nb == 4 ? sizeof(pl_room<4>)
           : nb == 2 ? sizeof(pl_room<2>)
                     : sizeof(pl_room<1>);
}

// Returns the rows of x per pass on this device.
static inline int pl_pass_rows(const pl_ctx *ctx) {
    int rows = PL_ROWS;
    while (rows > 8 && pl_room_bytes(pl_column_blocks(rows)) > pl_cuda_state_of(ctx)->room)
        rows /= 2;
    return rows;
}

// Loads four columns of a row of x as two pairs of bf16; zero past the end.
static __device__ __forceinline__ uint2 pl_load_pairs(const float *x, int64_t k, int64_t K, bool there, bool wide) {
    float v[4] = {0, 0, 0, 0};
    if (there && k + 4 <= K && wide) {
        float4 f = *(const float4 *)(x + k);
        v[0] = f.x, v[1] = f.y, v[2] = f.z, v[3] = f.w;
    } else if (there) {
        for (int i = 0; i < 4; i++)
            if (k + i < K) v[i] = x[k + i];
    }
    return uint2{pl_pack_bf16(v[0], v[1]), pl_pack_bf16(v[2], v[3])};
}

// Loads columns k0..k1 of up to 8 rows of x into shared memory, zeros to the end of the last turn.
static __device__ __forceinline__ void pl_take_few(uint2 *to, const float *x, int rows, int64_t K, int64_t k0,
                                                   int64_t k1) {
    const bool wide = K % 4 == 0 && (uintptr_t)x % sizeof(float4) == 0;
    const int  each = (int)((k1 - k0 + PL_TURN - 1) / PL_TURN) * (PL_TURN / 4);
#pragma unroll 4
    for (int e = (int)threadIdx.x; e < rows * each; e += PL_BLOCK) {
        const int row = e / each, at = e % each;
        to[row * PL_FEW_STRIDE + at] = pl_load_pairs(x + (int64_t)row * K, k0 + 4 * at, k1, true, wide);
    }
}

// A block's part of x, up to 8 rows: one slice or, if its units return to slices and there is room, all.
struct pl_few {
    uint2                     *x;
    const uint2               *own; // this lane's part of the current slice
    int                        rows, slices, held;
    bool                       all;
    __device__ __forceinline__ pl_few(uint2 *room, int n, int64_t K, int64_t units)
        : x(room), own(NULL), rows(n), slices((int)((K + PL_SLICE - 1) / PL_SLICE)), held(-1),
          all(slices > 1 && units > slices && slices * n <= PL_FEW_SLICES) {}
    // Unused rows repeat the first: their results are ignored.
    __device__ __forceinline__ void show(int slice) {
        const int lane = (int)threadIdx.x % PL_WARP, g = lane / 4;
        own = x + (slice * rows + (g < rows ? g : 0)) * PL_FEW_STRIDE + lane % 4;
    }
    // Makes slice `slice` of the job's x the current one. Called by all threads.
    template <typename Job> __device__ __forceinline__ void take(const Job &job, int slice) {
        if (slice == held) return;
        if (all && held >= 0) {
            held = slice;
            show(slice);
            return;
        }
        __syncthreads(); // the previous slice is no longer read
        for (int s = all ? 0 : slice; s < (all ? slices : slice + 1); s++)
            pl_take_few(x + (all ? s * rows * PL_FEW_STRIDE : 0), job.x, rows, job.K, pl_slice_begin(s),
                        pl_slice_end(s, job.K));
        __syncthreads();
        held = slice;
        show(all ? slice : 0);
    }
    // Returns this lane's columns of a tile.
    __device__ __forceinline__ uint2 of(int tile) const { return own[tile * (PL_TILE / 4)]; }
};

// Loads columns k0..k0 + 63 of more rows of x into shared memory, zeros from column K on. Rows that have been rounded
// already (rounded.cuh) are copied asynchronously; the columns of unused rows stay undefined.
static_assert(PL_ROUND_COLUMNS == PL_TURN && PL_ROUND_TILE * 2 == PL_WARP * sizeof(uint2), "a tile as x has it here");
template <int NB, typename Job>
static __device__ __forceinline__ void pl_take_turn(uint2 (*to)[NB][PL_WARP], const Job &job, int64_t k0) {
    constexpr int PIECES = PL_WARP * sizeof(uint2) / sizeof(uint4); // per tile
    if (job.rounded) {
        constexpr int ALL = NB * PL_CHAINS * PIECES;
#pragma unroll
        for (int e0 = 0; e0 < ALL; e0 += PL_BLOCK) {
            const int e = e0 + (int)threadIdx.x, piece = e % PIECES, tile = e / PIECES % PL_CHAINS;
            const int nb = e / (PIECES * PL_CHAINS);
            if (e < ALL && nb * 8 < job.rows)
                pl_copy_async<16, false>((uint4 *)to[tile][nb] + piece,
                                         (const uint4 *)job.rounded +
                                             (nb * pl_rounded_tiles(job.K) + k0 / PL_TILE + tile) * PIECES + piece,
                                         true);
        }
        return;
    }
    constexpr int EACH = NB * PL_CHAINS * PL_WARP / PL_BLOCK;
    const int     lane = (int)threadIdx.x % PL_WARP, warp = (int)threadIdx.x / PL_WARP;
    if (job.K % 4 == 0 && (uintptr_t)job.x % sizeof(float4) == 0) {
        float4 v[EACH];
#pragma unroll
        for (int i = 0; i < EACH; i++) {
            const int     of = i * PL_WARPS + warp, row = of % NB * 8 + lane / 4;
            const int64_t k = k0 + of / NB * PL_TILE + 4 * (lane % 4);
            v[i] = row < job.rows && k < job.K ? *(const float4 *)(job.x + row * job.K + k) : float4{};
        }
#pragma unroll
        for (int i = 0; i < EACH; i++) {
            const int of = i * PL_WARPS + warp;
            to[of / NB][of % NB][lane] = uint2{pl_pack_bf16(v[i].x, v[i].y), pl_pack_bf16(v[i].z, v[i].w)};
        }
        return;
    }
#pragma unroll 1
    for (int of = warp; of < NB * PL_CHAINS; of += PL_WARPS) {
        const int row = of % NB * 8 + lane / 4;
        to[of / NB][of % NB][lane] =
            pl_load_pairs(job.x + row * job.K, k0 + of / NB * PL_TILE + 4 * (lane % 4), job.K, row < job.rows, false);
    }
}

// Source of a tile's weights. copy() starts this lane's share of the 16 columns from k on, zeros from column K on, into
// a stage of the ring, `to`; the lane then reads to[place(lane) + i * NEXT], i = 0..3. pairs<r>() are the registers of
// product r, of rows 4g + r and 4g + r + 32, from these.
struct pl_panel_source {
    static constexpr int                  LINE = 8, NEXT = LINE; // pieces of 16 bytes in a line
    static constexpr bool                 HINTED = true;
    const uint4                          *panel;
    // A line stays a line in the ring too; line 4t + i, of whose eight pieces lane 4g + t reads the g-th, has them
    // permuted, as eight lanes that read together have two g and all t.
    static __device__ __forceinline__ int piece(int t, int g) { return g ^ 2 * t; }
    static __device__ __forceinline__ int place(int lane) { return lane % 4 * 4 * LINE + piece(lane % 4, lane / 4); }
    // Lane 8q + g copies the g-th piece of lines 4i + q, which pairs 2i + q / 2 have. WHOLE: none are past column K.
    template <bool WHOLE = false>
    __device__ __forceinline__ void copy(uint4 *to, int64_t k, int64_t K, int lane) const {
        const int    q = lane / LINE, g = lane % LINE;
        const uint4 *from = panel + k * LINE + lane;
#pragma unroll
        for (int i = 0; i < 4; i++) {
            const bool there = WHOLE || k + 4 * i + q / 2 * 2 < K;
            pl_copy_async<16, true>(to + (4 * i + q) * LINE + piece(i, g), there ? from + i * PL_WARP : panel, there);
        }
    }
    template <int r> static __device__ __forceinline__ uint32_t word(const uint4 &v) {
        return r == 0 ? v.x : r == 1 ? v.y : r == 2 ? v.z : v.w;
    }
    template <int r> static __device__ __forceinline__ void pairs(uint32_t a[4], const uint4 v[4]) {
        a[0] = word<r>(v[0]), a[1] = word<r>(v[1]), a[2] = word<r>(v[2]), a[3] = word<r>(v[3]);
    }
    // Product r of many rows, from to[place(lane)]: rows 32 (r / 2) + 4g + 2p and the one after, p = r % 2 or the
    // other. Two loads of 8 bytes give its registers in order (from loads of 16 bytes each product would need as many
    // moves as it has registers), and half a warp's have no bank conflicts.
    static __device__ __forceinline__ bool swapped(int g) {
        return g / 2 % 2;
    }
    static __device__ __forceinline__ void product(uint32_t a[4], const uint4 *at, int r, int g) {
        const uint2 *from = (const uint2 *)(at + r / 2 * NEXT) + (swapped(g) ? 1 - r % 2 : r % 2);
        const uint2  one = from[0], other = from[2 * NEXT * 2];
        a[0] = one.x, a[1] = one.y, a[2] = other.x, a[3] = other.y;
    }
};

template <int r, typename S>
static __device__ __forceinline__ void pl_product(float acc[4], const uint4 own[4], const uint2 &x) {
    uint32_t a[4], b[2] = {x.x, x.y};
    S::template pairs<r>(a, own);
    pl_mma_bf16(acc, a, b);
}

// Iterates over the turns of a block's units.
template <typename Job> struct pl_turns {
    int32_t                    next, last; // units
    int32_t                    at, turns;  // of its unit
    typename Job::unit_type    unit;
    __device__ __forceinline__ pl_turns(int64_t j0, int64_t j1)
        : next((int32_t)j0), last((int32_t)j1), at(0), turns(0), unit() {}
    // Returns true if there is a turn; `fresh`: it is its unit's first.
    __device__ __forceinline__ bool here(const Job &job, bool *fresh) {
        if (next >= last) return false;
        *fresh = at >= turns;
        if (*fresh) {
            unit = job.unit(next);
            at = 0, turns = pl_turns_of(unit.slice, job.K);
        }
        return true;
    }
    __device__ __forceinline__ int64_t column() const { return pl_slice_begin(unit.slice) + at * PL_TURN; }
    __device__ __forceinline__ void    step() {
           if (++at >= turns) next++;
    }
};

// Streams work through a block's units j0..j1, described by the job:
//   x, rows, K           the rows of x [rows, K]; for more than 8 also rounded: the same in bf16 (rounded.cuh), or NULL
//   unit(j)              unit j: its slice, and any other data of the job
//   source(u, group)     its weights; emit(u, group, row, m, sum, before): the result of weight row `row` of the 64 and
//   row m of x, each from the same thread for every unit; before(u, group, row, m): the result of an earlier unit,
//   loaded for several at once; done<NB>(u, part): called by each thread once it has emitted its results of u. For more
//   than 8 rows emit_four and before_four, of four rows of weights from `row` on
//   KEEPS                there is no before: it is the return value of the previous unit's emit, which for up to 8 rows
//   lies in `part` too (pl_part_at), readable by all threads from a barrier in done until each reaches the next done
static __device__ __forceinline__ int pl_part_at(int group, int row, int m) {
    return group * PL_CHAINS * PL_PART + m * PL_PART_STRIDE + row;
}

// Few rows: a unit's chains are summed while the next one's first tiles are multiplied, so that warps which are ahead
// need not wait for slower ones.
template <typename Job>
static __device__ __forceinline__ void pl_stream_few(pl_room<1> &room, const Job &job, int64_t j0, int64_t j1) {
    typedef typename Job::source_type source_type;
    typedef typename Job::unit_type   unit_type;
    constexpr int                     STAGES = pl_stages(1);
    constexpr int                     LATER = 4; // turns of the next unit before a unit's chains are summed
    constexpr int                     EACH = PL_GROUPS * 8 * PL_PANEL / PL_BLOCK; // results per thread
    const int   lane = (int)threadIdx.x % PL_WARP, warp = (int)threadIdx.x / PL_WARP, g = lane / 4, t = lane % 4;
    const int   group = warp / PL_CHAINS, first = warp % PL_CHAINS * PL_TILE;
    uint4      *own = &room.ring[warp][0][0][0];
    const int   place = source_type::place(lane);
    int         stage = 0; // the oldest stage
    int64_t     next = j0; // the unit of the newest copies, and their position in it
    int64_t     at = 0, end = 0;
    source_type source = {};
    auto        feed = [&](int to) {
        if (next < j1) {
            if (at >= end) {
                const unit_type u = job.unit(next);
                at = pl_slice_begin(u.slice), end = pl_slice_end(u.slice, job.K);
                source = job.source(u, group);
            }
            source.copy(own + to * 4 * PL_WARP, at + first, end, lane);
            at += PL_TURN;
            if (at >= end) next++;
        }
        pl_copy_commit();
    };
    // Unrolled if copies have a cache hint: CUDA 13.0 gives invalid descriptors to some copies in a loop with its own
    // counter (tests/cuda/sass_gate.sh).
#pragma unroll(source_type::HINTED ? STAGES : 1)
    for (int s = 0; s < STAGES; s++)
        feed(s);
    pl_previous_done(); // weights are in flight while x is still being computed
    pl_few    x(room.x, job.rows, job.K, j1 - j0);
    unit_type before_this = {};
    int       buffer = 0;
    bool      unsummed = false;
    float     kept[EACH] = {};
    auto      settle = [&] { // the previous unit, whose chains lie in the other buffer
        float *part = room.part[buffer ^ 1];
        float  before[EACH];
#pragma unroll
        for (int e = 0; e < EACH; e++) {
            const int o = (int)threadIdx.x + e * PL_BLOCK, m = o / PL_PANEL % 8;
            if constexpr (Job::KEEPS)
                before[e] = kept[e];
            else
                before[e] = m < job.rows ? job.before(before_this, o / (8 * PL_PANEL), o % PL_PANEL, m) : 0;
        }
        __syncthreads();
#pragma unroll
        for (int e = 0; e < EACH; e++) {
            const int o = (int)threadIdx.x + e * PL_BLOCK;
            const int row = o % PL_PANEL, m = o / PL_PANEL % 8, of = o / (8 * PL_PANEL);
            float    *put = &part[pl_part_at(of, row, m)], sum = 0;
            if (m >= job.rows) continue;
#pragma unroll
            for (int c = 0; c < PL_CHAINS; c++)
                sum += put[c * PL_PART];
            if constexpr (Job::KEEPS)
                *put = kept[e] = job.emit(before_this, of, row, m, sum, before[e]);
            else
                job.emit(before_this, of, row, m, sum, before[e]);
        }
        job.template done<1>(before_this, part);
        unsummed = false;
    };
    // For a job whose done() is large there is a single call of settle: an empty unit follows the last one.
    for (int64_t j = j0; Job::KEEPS || j < j1; j++) {
        const bool more = !Job::KEEPS || j < j1;
        unit_type  u = {};
        int        turns = 0, later = 0;
        float      acc[4][4] = {};
        if (more) {
            u = job.unit(j);
            turns = pl_turns_of(u.slice, job.K);
            later = !Job::KEEPS || turns > LATER ? LATER : turns - 1;
            x.take(job, u.slice);
        }
        for (int turn = 0; turn < turns || !more; turn++) {
            uint4 v[4];
            if (turn == later && unsummed) settle();
            if (!more) return;
            pl_copy_wait<STAGES - 1>();
            __syncwarp(); // all lanes' copies are complete
#pragma unroll
            for (int i = 0; i < 4; i++)
                v[i] = own[stage * 4 * PL_WARP + place + i * source_type::NEXT];
            const uint2 columns = x.of(turn * PL_CHAINS + first / PL_TILE);
            __syncwarp(); // the stage has been read
            feed(stage);
            pl_product<0, source_type>(acc[0], v, columns);
            pl_product<1, source_type>(acc[1], v, columns);
            pl_product<2, source_type>(acc[2], v, columns);
            pl_product<3, source_type>(acc[3], v, columns);
            stage = stage + 1 == STAGES ? 0 : stage + 1;
        }
        if (!Job::KEEPS && unsummed) settle();
#pragma unroll
        for (int i = 0; i < 4; i++)
            *(float4 *)&room.part[buffer][warp * PL_PART + (2 * t + i % 2) * PL_PART_STRIDE + 4 * g + i / 2 * 32] =
                float4{acc[0][i], acc[1][i], acc[2][i], acc[3][i]};
        before_this = u, buffer ^= 1, unsummed = true;
    }
    if (unsummed) settle();
    // No copy is in flight here: each tile has waited for its copies, and the groups fed after the last are empty.
}

// Positions of the turns of x in shared memory, each slice after the previous one, cyclic: the next slice's first turns
// are copied while the last ones of this are read. Copies are at most a ring ahead, and only the slice that was copied
// last is read again, as a whole: overwritten turns have been read for the last time.
struct pl_around {
    int                             slice, first; // position of the slice
    __device__ __forceinline__      pl_around() : slice(-1), first(0) {}
    __device__ __forceinline__ void turn_to(int next, int64_t K) {
        if (slice >= 0) first = (first + pl_turns_of(slice, K)) % PL_TURNS;
        slice = next;
    }
    __device__ __forceinline__ int at(int turn) const { return (first + turn) % PL_TURNS; }
};

// More rows. A turn needs a barrier of the block only while x changes: its first read is of other threads' copies, and
// all threads have read what copies overwrite.
template <int NB, typename Job>
static __device__ __forceinline__ void pl_stream_rows(pl_room<NB> &room, const Job &job, int64_t j0, int64_t j1) {
    typedef typename Job::unit_type unit_type;
    constexpr int                   STAGES = pl_stages(NB);
    static_assert(STAGES < PL_TURNS, "copies ahead");
    const int       lane = (int)threadIdx.x % PL_WARP, warp = (int)threadIdx.x / PL_WARP, g = lane / 4;
    const int       group = warp / PL_CHAINS, chain = warp % PL_CHAINS;
    uint4          *own = &room.ring[warp][0][0][0];
    const int       place = pl_panel_source::place(lane);
    int             stage = 0; // the oldest stage
    bool            fresh = false;
    pl_turns<Job>   ahead(j0, j1), of_x(j0, j1); // positions of the copies
    pl_around       to, from;
    bool            unseen = false; // the copies have come to a slice of x that was not loaded
    pl_panel_source source = {};
    auto            feed = [&](int at) {
        const int64_t k = ahead.column();
        uint4        *into = own + at * 4 * PL_WARP;
        if (fresh) source = job.source(ahead.unit, group);
        if (k + PL_TURN <= job.K)
            source.template copy<true>(into, k + chain * PL_TILE, job.K, lane);
        else
            source.copy(into, k + chain * PL_TILE, job.K, lane);
    };
    auto look_at_x = [&](const pl_turns<Job> &turns) {
        if (!fresh) return;
        unseen = turns.unit.slice != to.slice;
        if (unseen) to.turn_to(turns.unit.slice, job.K);
    };
    auto feed_x = [&](const pl_turns<Job> &turns) {
        if (unseen) pl_take_turn<NB>(room.x[to.at(turns.at)], job, turns.column());
    };
    // Unrolled: as above.
#pragma unroll
    for (int s = 0; s < STAGES; s++) {
        if (ahead.here(job, &fresh)) {
            feed(s);
            ahead.step();
        }
        pl_copy_commit();
    }
    pl_previous_done(); // weights are in flight while x is still being computed
    for (int s = 0; s < STAGES && of_x.here(job, &fresh); s++) {
        look_at_x(of_x);
        feed_x(of_x);
        of_x.step();
    }
    pl_copy_commit();
    pl_copy_wait<0>();
    float4 kept[NB] = {};
    for (int32_t j = (int32_t)j0; j < (int32_t)j1; j++) {
        const unit_type u = job.unit(j);
        const int       turns = pl_turns_of(u.slice, job.K);
        float           acc[4][NB][4] = {};
        const bool      first = u.slice != from.slice;
        if (first) from.turn_to(u.slice, job.K);
        for (int turn = 0; turn < turns; turn++) {
            const bool more = ahead.here(job, &fresh);
            uint32_t   v[4][4];
            uint2      x[NB];
            if (more) look_at_x(ahead);
            pl_copy_wait<STAGES - 1>();
            if (first || (more && unseen))
                __syncthreads();
            else
                __syncwarp(); // all lanes' copies are complete
#pragma unroll
            for (int r = 0; r < 4; r++)
                pl_panel_source::product(v[r], own + stage * 4 * PL_WARP + place, r, g);
#pragma unroll
            for (int n = 0; n < NB; n++)
                x[n] = room.x[from.at(turn)][chain][n][lane];
            __syncwarp(); // the stage has been read
#pragma unroll
            for (int r = 0; r < 4; r++) {
#pragma unroll
                for (int n = 0; n < NB; n++) {
                    const uint32_t b[2] = {x[n].x, x[n].y};
                    pl_mma_bf16(acc[r][n], v[r], b);
                }
                if (r != 1) continue; // addresses are computed while the first products run
                if (more) {
                    feed(stage);
                    feed_x(ahead);
                    ahead.step();
                }
                pl_copy_commit();
            }
            stage = stage + 1 == STAGES ? 0 : stage + 1;
        }
        // A lane has 4 NB times four results, rows 32 half + 4g.. of row 8n + 2t + i of x: the (4n + 2 half + i)-th. Of
        // these the warp of chain c adds those from c NB on, one a round.
        const int v0 = pl_only_here(chain * NB), at = pl_only_here(lane);
        auto      row_of = [&](int r) { return (v0 + r) / 2 % 2 * 32 + 4 * (at / 4); };
        auto      m_of = [&](int r) { return (v0 + r) / 4 * 8 + 2 * (at % 4) + (v0 + r) % 2; };
        float4    sums[NB];
        if constexpr (!Job::KEEPS) { // loaded while sums are exchanged
#pragma unroll
            for (int r = 0; r < NB; r++)
                kept[r] = m_of(r) < job.rows ? job.before_four(u, group, row_of(r), m_of(r)) : float4{};
        }
#pragma unroll
        for (int r = 0; r < NB; r++) {
            auto &part = room.part[r % pl_buffers(NB)][group];
#pragma unroll
            for (int of = 0; of < PL_CHAINS; of++) {
                const int n = (of * NB + r) / 4, i = (of * NB + r) % 4;
                const int h = i / 2 * 2, c = i % 2;
                part[of][chain][lane] = float4{acc[h][n][c], acc[h][n][2 + c], acc[h + 1][n][c], acc[h + 1][n][2 + c]};
            }
            __syncthreads(); // all chains have written, and the buffer written next has been read
            float4 sum = {0, 0, 0, 0};
#pragma unroll
            for (int c = 0; c < PL_CHAINS; c++)
                pl_add(sum, part[chain][c][lane]);
            if (pl_panel_source::swapped(g)) sum = float4{sum.z, sum.w, sum.x, sum.y};
            if constexpr (pl_buffers(NB) == 1) __syncthreads(); // the buffer has been read
            sums[r] = sum;
        }
#pragma unroll
        for (int r = 0; r < NB; r++) {
            if (m_of(r) >= job.rows) continue;
            if constexpr (Job::KEEPS)
                kept[r] = job.emit_four(u, group, row_of(r), m_of(r), sums[r], kept[r]);
            else
                job.emit_four(u, group, row_of(r), m_of(r), sums[r], kept[r]);
        }
        job.template done<NB>(u, NULL);
    }
}

template <int NB, typename Job>
static __device__ __forceinline__ void pl_stream(pl_room<NB> &room, const Job &job, int64_t j0, int64_t j1) {
    if constexpr (NB == 1)
        pl_stream_few(room, job, j0, j1);
    else
        pl_stream_rows(room, job, j0, j1);
}

// The F32 product of a whole panel: calls emit(row of the 64, row of x, sum).
template <typename E>
static __device__ __forceinline__ void pl_panel_chain(const void *panel, const float *x, int rows, int64_t K, E emit) {
    constexpr int AT_ONCE = 4;
    constexpr int LANES = PL_BLOCK / PL_PANEL;
    const float  *w = (const float *)panel;
    int           row = (int)threadIdx.x % PL_PANEL, lane = (int)threadIdx.x / PL_PANEL;
    for (int m0 = lane * AT_ONCE; m0 < rows; m0 += LANES * AT_ONCE) {
        float sum[AT_ONCE] = {};
        for (int64_t k = 0; k < K; k++) {
            float v = w[k * PL_PANEL + row];
            for (int i = 0; i < AT_ONCE; i++)
                if (m0 + i < rows) sum[i] = fmaf(x[(m0 + i) * K + k], v, sum[i]);
        }
        for (int i = 0; i < AT_ONCE; i++)
            if (m0 + i < rows) emit(row, m0 + i, sum[i]);
    }
}

#endif
