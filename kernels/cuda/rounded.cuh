// An activation in bf16 beside its fp32 values, where products with packed weights read it next.
//
// With more than 8 rows such a product spends as long on x as on weights if each of its blocks rounds x for itself: so
// what makes x (rmsnorm, swiglu, attention) rounds it once, into memory of the step, as a product's shared memory has
// it: [rows / 8][columns / 16][8][16], columns filled up with zeros to whole turns of its chains, rows that are none
// undefined. The context remembers whose values they are until the launch or copy after (state.h, pl_cuda_rounded); a
// product that finds no copy rounds for itself, to the same bits.
#ifndef PL_CUDA_ROUNDED_CUH
#define PL_CUDA_ROUNDED_CUH

#include "kernels/cuda/launch.cuh"

constexpr int PL_ROUND_FROM = 9;     // rows
constexpr int PL_ROUND_COLUMNS = 64; // what columns are filled up to
constexpr int PL_ROUND_TILE = 8 * 16;

static inline __host__ __device__ int64_t pl_rounded_tiles(int64_t columns) {
    return (columns + PL_ROUND_COLUMNS - 1) / PL_ROUND_COLUMNS * (PL_ROUND_COLUMNS / 16);
}

// What a kernel writes it through.
struct pl_rounding {
    uint16_t                            *to; // NULL: nobody wants it
    int64_t                              columns;
    __device__ __forceinline__ uint16_t *at(int64_t row, int64_t column) const {
        return to + (row / 8 * pl_rounded_tiles(columns) + column / 16) * PL_ROUND_TILE + row % 8 * 16 + column % 16;
    }
    // By the thread that has the element; the one that has a row's last fills it up.
    __device__ __forceinline__ void put(int64_t row, int64_t column, float value) const {
        if (!to) return;
        *at(row, column) = (uint16_t)pl_pack_bf16(value, 0);
        if (column == columns - 1)
            for (int64_t c = columns; c < pl_rounded_tiles(columns) * 16; c++)
                *at(row, c) = 0;
    }
};

// The same of four columns from a multiple of four on, zeros past the end. Each file's own (launch.cuh has why).
static __device__ __forceinline__ void pl_put_four(const pl_rounding &r, int64_t row, int64_t column, float4 v) {
    if (!r.to || column >= r.columns) return;
    *(uint2 *)r.at(row, column) = uint2{pl_pack_bf16(v.x, v.y), pl_pack_bf16(v.z, v.w)};
    if (column + 4 < r.columns) return;
    for (int64_t c = column + 4; c < pl_rounded_tiles(r.columns) * 16; c += 4)
        *(uint2 *)r.at(row, c) = uint2{0, 0};
}

// A place for y [rows, columns] in bf16: memory of the step, so to be asked for on a measuring context too. None with a
// tape, whose products are others.
static inline pl_rounding pl_rounding_for(pl_ctx *ctx, int64_t rows, int64_t columns) {
    if (rows < PL_ROUND_FROM || ctx->tape) return pl_rounding{NULL, columns};
    size_t of8 = pl_size_mul((size_t)pl_rounded_tiles(columns), PL_ROUND_TILE, sizeof(uint16_t));
    return pl_rounding{(uint16_t *)pl_arena_alloc(&ctx->frame, pl_size_mul((size_t)pl_ceil_div(rows, 8), of8, 1)),
                       columns};
}

// The launch that was queued last has made y and this.
static inline void pl_rounded_is(pl_ctx *ctx, const pl_rounding &r, const float *y, int64_t rows) {
    pl_cuda_state *s = pl_cuda_state_of(ctx);
    if (s) s->rounded = pl_cuda_rounded{r.to ? y : NULL, r.to, rows, r.columns};
}

// Rows of x [rows, columns] as they were rounded, or NULL.
static inline const uint16_t *pl_rounded_of(const pl_cuda_rounded &r, const float *x, int64_t rows, int64_t columns) {
    int64_t at = r.of && r.columns == columns && x >= r.of ? x - r.of : 1;
    if (at % (8 * columns) != 0 || at / columns + rows > r.rows) return NULL;
    return (const uint16_t *)r.copy + at / columns / 8 * pl_rounded_tiles(columns) * PL_ROUND_TILE;
}

#endif
