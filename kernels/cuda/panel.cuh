// Products with packed weights (kernels/tensor.h, PL_PANELS): the arithmetic of `linear`, of the fused head and of
// listed rows, the same to the bit.
//
// BF16, on tensor cores. x is rounded to bf16 (nearest even) as it enters, or was when it was made; products are summed
// in fp32 in an order that K alone fixes, whatever M is and whatever runs beside it:
//   slices of PL_SLICE columns; in a slice, tiles of 16 columns, dealt to PL_CHAINS chains in turn; a chain's tiles
//   ascending, each through one mma; then the chains' sums in order; then the slices' sums in order.
// A block of 256 threads works on units: PL_GROUPS groups of 64 rows of weights (panels) by one slice. Its warps are
// groups x chains. A slice of x, up to 64 rows, lies in shared memory as the registers of the tensor cores want it, and
// stays there for as many units as follow each other in one slice.
//
// Weights come by asynchronous copies through a ring of tiles for each warp, on across the ends of units: while one unit
// is summed up the next one's weights are under way. Of a tile (8 pairs of columns, 256 bytes each), lane 4g + t wants of
// pairs 2t and 2t + 1 the words of rows 4g..4g+3 and of rows 4g+32..4g+35: 16 bytes each, registers of four m16n8k16
// products as they are. Rows and columns of a product may be permuted as long as x is permuted alike. The warp copies a
// tile as it lies in memory, 512 bytes an instruction: eight lanes that copy together must take one line of 128 bytes to
// one line of shared memory, else memory gives 1.9 of an H100's 3.1 TB/s (MEASURED.md). So lanes read what others have
// copied, behind __syncwarp.
//
// F32: one fma chain per output, k ascending: the bits of the CPU's kernels.
#ifndef PL_CUDA_PANEL_CUH
#define PL_CUDA_PANEL_CUH

#include "kernels/cuda/rounded.cuh"
extern "C" {
#include "kernels/tensor.h"
}

constexpr int PL_SLICE = 1024;
constexpr int PL_TILE = 16;
constexpr int PL_CHAINS = 4;
constexpr int PL_TURN = PL_TILE * PL_CHAINS; // columns that the chains take in one turn
constexpr int PL_ROWS = 64;                  // of x, in one pass, at most
constexpr int PL_WARPS = PL_BLOCK / PL_WARP;
constexpr int PL_GROUPS = PL_WARPS / PL_CHAINS;
constexpr int PL_UNIT = PL_GROUPS * PL_PANEL; // rows of weights
constexpr int PL_PART_STRIDE = PL_PANEL + 4;  // of a column of partial sums: stores of 16 bytes meet no bank twice

// The columns of a slice.
static __device__ __forceinline__ int64_t pl_slice_begin(int slice) {
    return (int64_t)slice * PL_SLICE;
}
static __device__ __forceinline__ int64_t pl_slice_end(int slice, int64_t K) {
    const int64_t end = pl_slice_begin(slice + 1);
    return end < K ? end : K;
}

// Blocks of 8 columns that `rows` rows need: 1, 2, 4 or 8, the instances that exist. The bits are the same in all.
static inline int pl_column_blocks(int rows) {
    return rows <= 8 ? 1 : rows <= 16 ? 2 : rows <= 32 ? 4 : 8;
}

// Shared memory of a block that takes NB blocks of 8 rows of x, and how many such blocks share a multiprocessor: sized
// for 227 KB each (sm_90, sm_100), so that 64 KB and more are under way on each multiprocessor.
__host__ __device__ constexpr int pl_stages(int nb) {
    return nb == 8 ? 5 : nb == 4 ? 8 : 3;
}
// Of partial sums: two where a unit's are added while the next one's are made.
__host__ __device__ constexpr int pl_part_buffers(int nb) {
    return nb == 1 ? 2 : 1;
}
// x of up to 8 rows lies row by row, a slice of one in so many pairs of pairs (rows meet no bank twice); of fewer rows
// several slices have room.
constexpr int PL_FEW_STRIDE = PL_SLICE / 4 + 4;
constexpr int PL_FEW_SLICES = 14; // times rows
__host__ __device__ constexpr int pl_resident(int nb) {
    return nb <= 2 ? 2 : 1;
}
template <int NB> struct pl_room {
    uint4 ring[PL_WARPS][pl_stages(NB)][4][PL_WARP];
    uint2 x[NB == 1 ? PL_FEW_SLICES * PL_FEW_STRIDE : PL_SLICE / PL_TILE * NB * PL_WARP];
    float part[pl_part_buffers(NB)][PL_WARPS][8 * PL_PART_STRIDE];
};
static_assert(sizeof(pl_room<1>) * 2 + 2048 <= 227 << 10 && sizeof(pl_room<2>) * 2 + 2048 <= 227 << 10, "two a SM");
static_assert(sizeof(pl_room<4>) <= 227 << 10 && sizeof(pl_room<8>) <= 227 << 10, "one a SM");

static inline size_t pl_room_bytes(int nb) {
    return nb == 8   ? sizeof(pl_room<8>)
           : nb == 4 ? sizeof(pl_room<4>)
           : nb == 2 ? sizeof(pl_room<2>)
                     : sizeof(pl_room<1>);
}

// Rows of x that one pass takes on this device.
static inline int pl_pass_rows(const pl_ctx *ctx) {
    int rows = PL_ROWS;
    while (rows > 8 && pl_room_bytes(pl_column_blocks(rows)) > pl_cuda_state_of(ctx)->room)
        rows /= 2;
    return rows;
}

// Four columns of a row of x as two pairs of bf16; zero past the end.
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

// Columns k0..k1 of x into shared memory, zeros to the end of the last turn: a row after the other, or, of more than 8,
// as the registers of the tensor cores want them, zeros past the rows.
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
template <int NB>
static __device__ __forceinline__ void pl_take_x(uint2 *to, const float *x, int rows, int64_t K, int64_t k0,
                                                 int64_t k1) {
    const bool wide = K % 4 == 0 && (uintptr_t)x % sizeof(float4) == 0;
    const int  n = (int)((k1 - k0 + PL_TURN - 1) / PL_TURN) * PL_CHAINS * NB * PL_WARP;
#pragma unroll 4
    for (int e = (int)threadIdx.x; e < n; e += PL_BLOCK) {
        int lane = e % PL_WARP, row = e / PL_WARP % NB * 8 + lane / 4;
        to[e] = pl_load_pairs(x + (int64_t)row * K, k0 + e / (PL_WARP * NB) * PL_TILE + 4 * (lane % 4), k1, row < rows,
                              wide);
    }
}

static_assert(PL_ROUND_COLUMNS == PL_TURN && PL_ROUND_TILE * 2 == PL_WARP * sizeof(uint2), "a tile as x has it here");

// The same from rows that were rounded when they were made; the columns of rows that are none stay undefined.
template <int NB>
static __device__ __forceinline__ void pl_take_rounded(uint2 *to, const uint16_t *from, int rows, int64_t K, int64_t k0,
                                                       int64_t k1) {
    constexpr int PIECES = PL_WARP * sizeof(uint2) / sizeof(uint4); // of a tile
    const int     n = (int)((k1 - k0 + PL_TURN - 1) / PL_TURN) * PL_CHAINS * PIECES;
    for (int nb = 0; nb < (rows + 7) / 8; nb++) {
        const uint4 *at = (const uint4 *)from + (nb * pl_rounded_tiles(K) + k0 / PL_TILE) * PIECES;
        for (int e = (int)threadIdx.x; e < n; e += PL_BLOCK)
            pl_copy_async<16, false>((uint4 *)(to + (e / PIECES * NB + nb) * PL_WARP) + e % PIECES, at + e, true);
    }
    pl_copy_commit();
    pl_copy_wait<0>();
}

// What a block holds of x: one slice, or, of few rows and where its units come back to slices, all of them.
template <int NB> struct pl_x {
    uint2                *x;
    const uint2          *own; // of the slice that was taken, this lane's
    int                   rows, slices, held;
    bool                  all;
    __device__ __forceinline__ pl_x(pl_room<NB> &room, int n, int64_t K, int64_t units)
        : x(room.x), own(NULL), rows(n), slices((int)((K + PL_SLICE - 1) / PL_SLICE)), held(-1),
          all(NB == 1 && slices > 1 && units > slices && slices * n <= PL_FEW_SLICES) {}
    // Of one row after the other those that are none repeat the first: nobody looks at their results.
    __device__ __forceinline__ void show(int slice) {
        const int lane = (int)threadIdx.x % PL_WARP, g = lane / 4;
        if constexpr (NB == 1)
            own = x + (slice * rows + (g < rows ? g : 0)) * PL_FEW_STRIDE + lane % 4;
        else
            own = x + lane;
    }
    // Slice `slice` of the job's x is what follows reads. All threads.
    template <typename Job> __device__ __forceinline__ void take(const Job &job, int slice) {
        if (slice == held) return;
        if (all && held >= 0) {
            held = slice;
            show(slice);
            return;
        }
        __syncthreads(); // the slice before is no longer read
        if constexpr (NB == 1) {
            for (int s = all ? 0 : slice; s < (all ? slices : slice + 1); s++)
                pl_take_few(x + (all ? s * rows * PL_FEW_STRIDE : 0), job.x, rows, job.K, pl_slice_begin(s),
                            pl_slice_end(s, job.K));
        } else if (job.rounded) {
            pl_take_rounded<NB>(x, job.rounded, rows, job.K, pl_slice_begin(slice), pl_slice_end(slice, job.K));
        } else {
            pl_take_x<NB>(x, job.x, rows, job.K, pl_slice_begin(slice), pl_slice_end(slice, job.K));
        }
        __syncthreads();
        held = slice;
        show(all ? slice : 0);
    }
    // This lane's columns of a tile, of the nb-th 8 rows.
    __device__ __forceinline__ uint2 of(int tile, int nb) const {
        if constexpr (NB == 1)
            return own[tile * (PL_TILE / 4)];
        else
            return own[(tile * NB + nb) * PL_WARP];
    }
};

// Where the weights of a tile come from. copy() starts this lane's share of the 16 columns from k on, zeros from column
// K on, into a stage of the ring, `to`; what the lane will read is at to[place(lane) + i * NEXT], i = 0..3. pairs<r>() are
// the registers of product r, of rows 4g + r and 4g + r + 32, out of these.
struct pl_panel_source {
    static constexpr int                  LINE = 8, NEXT = LINE; // pieces of 16 bytes in a line
    const uint4                          *panel;
    // A line stays a line in the ring too; line 4t + i, of whose eight pieces lane 4g + t reads the g-th, has them in
    // another order, as eight lanes that read together have two g and all t.
    static __device__ __forceinline__ int piece(int t, int g) { return g ^ 2 * t; }
    static __device__ __forceinline__ int place(int lane) { return lane % 4 * 4 * LINE + piece(lane % 4, lane / 4); }
    // Lane 8q + g copies the g-th piece of lines 4i + q, which pairs 2i + q / 2 have.
    __device__ __forceinline__ void       copy(uint4 *to, int64_t k, int64_t K, int lane) const {
              const int    q = lane / LINE, g = lane % LINE;
              const uint4 *from = panel + k * LINE + lane;
#pragma unroll
        for (int i = 0; i < 4; i++) {
            const bool there = k + 4 * i + q / 2 * 2 < K;
            pl_copy_async<16, true>(to + (4 * i + q) * LINE + piece(i, g), there ? from + i * PL_WARP : panel, there);
        }
    }
    template <int r> static __device__ __forceinline__ uint32_t word(const uint4 &v) {
        return r == 0 ? v.x : r == 1 ? v.y : r == 2 ? v.z : v.w;
    }
    template <int r> static __device__ __forceinline__ void pairs(uint32_t a[4], const uint4 v[4]) {
        a[0] = word<r>(v[0]), a[1] = word<r>(v[1]), a[2] = word<r>(v[2]), a[3] = word<r>(v[3]);
    }
};

template <int r, int NB, typename S>
static __device__ __forceinline__ void pl_product(float acc[NB][4], const uint4 own[4], const uint2 x[NB]) {
    uint32_t a[4];
    S::template pairs<r>(a, own);
#pragma unroll
    for (int nb = 0; nb < NB; nb++) {
        uint32_t b[2] = {x[nb].x, x[nb].y};
        pl_mma_bf16(acc[nb], a, b);
    }
}

// Works through a block's units j0..j1. What they are, the job says:
//   x, rows, K           the rows of x [rows, K]; for more than 8 also rounded: the same in bf16 (rounded.cuh), or NULL
//   unit(j)              unit j: its slice, and whatever else the job wants to know of it
//   source(u, group)     its weights; emit(u, group, row, m, sum, before): the result of weight row `row` of the 64 and
//   row m of x, each from the same thread for every unit; before(u, group, row, m): what an earlier unit left there,
//   asked for of several at once; done<NB>(u): each thread comes here once it has emitted its results of unit u
// Few rows: a unit's chains are summed while the next one's first tiles are multiplied, so that warps which are ahead
// need not wait for those which are behind.
template <int NB, typename Job>
static __device__ __forceinline__ void pl_stream(pl_room<NB> &room, const Job &job, int64_t j0, int64_t j1) {
    typedef typename Job::source_type source_type;
    typedef typename Job::unit_type   unit_type;
    constexpr int                     STAGES = pl_stages(NB), BUFFERS = pl_part_buffers(NB);
    constexpr int                     LATER = 4; // turns of the next unit before a unit's chains are summed
    constexpr int                     EACH = PL_GROUPS * 8 * PL_PANEL / PL_BLOCK; // results of a thread, of 8 rows
    const int   lane = (int)threadIdx.x % PL_WARP, warp = (int)threadIdx.x / PL_WARP, g = lane / 4, t = lane % 4;
    const int   group = warp / PL_CHAINS, first = warp % PL_CHAINS * PL_TILE;
    uint4      *own = &room.ring[warp][0][0][0];
    const int   place = source_type::place(lane);
    int         stage = 0; // the oldest
    int64_t     next = j0; // the unit that copies have come to, and how far
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
    // Unrolled: of a loop with a counter of its own CUDA 13.0 makes copies whose descriptors are none (sass_gate.sh).
#pragma unroll
    for (int s = 0; s < STAGES; s++)
        feed(s);
    pl_previous_done(); // weights are under way while x is still being made
    pl_x<NB>  x(room, job.rows, job.K, j1 - j0);
    unit_type before_this = {};
    int       buffer = 0;
    bool      unsummed = false;
    auto      put_part = [&](const float acc[4][NB][4], int nb) {
#pragma unroll
        for (int i = 0; i < 4; i++)
            *(float4 *)&room.part[buffer][warp][(2 * t + i % 2) * PL_PART_STRIDE + 4 * g + i / 2 * 32] =
                float4{acc[0][nb][i], acc[1][nb][i], acc[2][nb][i], acc[3][nb][i]};
    };
    auto sum_part = [&](const unit_type &u, int from, int nb) { // what chains have put, behind a barrier
        float before[EACH];
#pragma unroll
        for (int e = 0; e < EACH; e++) {
            const int o = (int)threadIdx.x + e * PL_BLOCK, m = nb * 8 + o / PL_PANEL % 8;
            before[e] = m < job.rows ? job.before(u, o / (8 * PL_PANEL), o % PL_PANEL, m) : 0;
        }
        __syncthreads();
#pragma unroll
        for (int e = 0; e < EACH; e++) {
            const int o = (int)threadIdx.x + e * PL_BLOCK;
            const int row = o % PL_PANEL, col = o / PL_PANEL % 8, of = o / (8 * PL_PANEL);
            float     sum = 0;
            if (nb * 8 + col >= job.rows) continue;
#pragma unroll
            for (int c = 0; c < PL_CHAINS; c++)
                sum += room.part[from][of * PL_CHAINS + c][col * PL_PART_STRIDE + row];
            job.emit(u, of, row, nb * 8 + col, sum, before[e]);
        }
    };
    auto settle = [&] { // the unit before this one, whose chains lie in the other buffer
        sum_part(before_this, buffer ^ 1, 0);
        job.template done<NB>(before_this);
        unsummed = false;
    };
    for (int64_t j = j0; j < j1; j++) {
        const unit_type u = job.unit(j);
        const int64_t   k0 = pl_slice_begin(u.slice), k1 = pl_slice_end(u.slice, job.K);
        const int       turns = (int)((k1 - k0 + PL_TURN - 1) / PL_TURN);
        float           acc[4][NB][4] = {};
        x.take(job, u.slice);
        for (int turn = 0; turn < turns; turn++) {
            uint4 v[4];
            uint2 columns[NB];
            if (BUFFERS > 1 && turn == LATER && unsummed) settle();
            pl_copy_wait<STAGES - 1>();
            __syncwarp(); // all lanes' copies are there
#pragma unroll
            for (int i = 0; i < 4; i++)
                v[i] = own[stage * 4 * PL_WARP + place + i * source_type::NEXT];
#pragma unroll
            for (int nb = 0; nb < NB; nb++)
                columns[nb] = x.of(turn * PL_CHAINS + first / PL_TILE, nb);
            __syncwarp(); // what the stage held has been read
            feed(stage);
            pl_product<0, NB, source_type>(acc[0], v, columns);
            pl_product<1, NB, source_type>(acc[1], v, columns);
            pl_product<2, NB, source_type>(acc[2], v, columns);
            pl_product<3, NB, source_type>(acc[3], v, columns);
            stage = stage + 1 == STAGES ? 0 : stage + 1;
        }
        if constexpr (BUFFERS > 1) {
            if (unsummed) settle();
            put_part(acc, 0);
            before_this = u, buffer ^= 1, unsummed = true;
        } else {
#pragma unroll
            for (int nb = 0; nb < NB; nb++) {
                put_part(acc, nb);
                sum_part(u, 0, nb);
                __syncthreads(); // and have been read
            }
            job.template done<NB>(u);
        }
    }
    if (unsummed) settle();
    // Nothing is under way any more: each tile has waited for its copies, and what was fed behind the last is empty.
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
