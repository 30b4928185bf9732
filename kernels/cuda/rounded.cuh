// A bf16 copy of an activation besides its fp32 values, if the next op is a product with packed weights.
//
// With more than 8 rows such a product spends as long on x as on weights if each of its blocks rounds x: so the op that
// computes x (rmsnorm, swiglu, attention) rounds it once, into memory of the step, in the layout of a product's shared
// memory: [rows / 8][columns / 16][8][16], columns padded with zeros to whole turns of its chains, unused rows
// undefined. The context remembers the copy until the next launch or copy (state.h, pl_cuda_rounded); a product that
// finds no copy rounds x itself, to the same bits.
#ifndef PL_CUDA_ROUNDED_CUH
#define PL_CUDA_ROUNDED_CUH

#include "kernels/cuda/launch.cuh"

constexpr int PL_ROUND_FROM = 9;     // rows
constexpr int PL_ROUND_COLUMNS = 64; // columns are padded to a multiple of this
constexpr int PL_ROUND_TILE = 8 * 16;

static inline __host__ __device__ int64_t pl_rounded_tiles(int64_t columns) {
    return (columns + PL_ROUND_COLUMNS - 1) / PL_ROUND_COLUMNS * (PL_ROUND_COLUMNS / 16);
}

// A kernel's handle to write the copy.
struct pl_rounding {
    uint16_t                            *to; // NULL: no copy
    int64_t                              columns;
    __device__ __forceinline__ uint16_t *at(int64_t row, int64_t column) const {
        return to + (row / 8 * pl_rounded_tiles(columns) + column / 16) * PL_ROUND_TILE + row % 8 * 16 + column % 16;
    }
    // Called by the thread that has the element; the one that has a row's last pads the row.
    __device__ __forceinline__ void put(int64_t row, int64_t column, float value) const {
        if (!to) return;
        *at(row, column) = (uint16_t)pl_pack_bf16(value, 0);
        if (column == columns - 1)
            for (int64_t c = columns; c < pl_rounded_tiles(columns) * 16; c++)
                *at(row, c) = 0;
    }
};

// Writes four columns from a multiple of four on, zeros past the end. Static in each file (see launch.cuh).
static __device__ __forceinline__ void pl_put_four(const pl_rounding &r, int64_t row, int64_t column, float4 v) {
    if (!r.to || column >= r.columns) return;
    *(uint2 *)r.at(row, column) = uint2{pl_pack_bf16(v.x, v.y), pl_pack_bf16(v.z, v.w)};
    if (column + 4 < r.columns) return;
    for (int64_t c = column + 4; c < pl_rounded_tiles(r.columns) * 16; c += 4)
        *(uint2 *)r.at(row, c) = uint2{0, 0};
}

// Allocates a copy of y [rows, columns] in bf16 in memory of the step; call it on a measuring context too. None with a
// tape, which uses other products.
static inline pl_rounding pl_rounding_for(pl_ctx *ctx, int64_t rows, int64_t columns) {
    if (rows < PL_ROUND_FROM || ctx->tape) return pl_rounding{NULL, columns};
    size_t of8 = pl_size_mul((size_t)pl_rounded_tiles(columns), PL_ROUND_TILE, sizeof(uint16_t));
    return pl_rounding{(uint16_t *)pl_arena_alloc(&ctx->frame, pl_size_mul((size_t)pl_ceil_div(rows, 8), of8, 1)),
                       columns};
}

// Records that the last queued launch has written y and this copy.
static inline void pl_rounded_is(pl_ctx *ctx, const pl_rounding &r, const float *y, int64_t rows) {
    pl_cuda_state *s = pl_cuda_state_of(ctx);
    if (s) s->rounded = pl_cuda_rounded{r.to ? y : NULL, r.to, rows, r.columns};
}

// Returns the rounded rows of x [rows, columns], or NULL.
static inline const uint16_t *pl_rounded_of(const pl_cuda_rounded &r, const float *x, int64_t rows, int64_t columns) {
    int64_t at = r.of && r.columns == columns && x >= r.of ? x - r.of : 1;
    if (at % (8 * columns) != 0 || at / columns + rows > r.rows) return NULL;
    return (const uint16_t *)r.copy + at / columns / 8 * pl_rounded_tiles(columns) * PL_ROUND_TILE;
}

#endif
