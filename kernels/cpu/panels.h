// One pass over packed weights: a few rows times a few panels. What `linear` and the fused head are made of; compiled
// once per ISA like every cpu source.
//
//   y[r, j] (+)= sum_k x[k][r] W[j, k]     r < rows, j < cols
//
// F32 (panels_cpu.c): k = 0 .. kc - 1 strictly in order, one fma each.
// BF16 (pairs.h): x rounded to bf16, and the order of the matrix unit (TDPBF16PS): of every 32 k the even ones are
// a chain of fma from zero, and the odd ones; the two are added, and what they give to the sum so far. K is continued
// with zeros to a multiple of 32. Denormal operands and results count as zero. So the bits are the same on a matrix
// unit and without one.
#ifndef PL_CPU_PANELS_H
#define PL_CPU_PANELS_H

#include "kernels/backend.h"
#include "kernels/cpu/simd.h"

#define PL_PANELS_AHEAD 24576 // bytes of what comes after, where it is known, that a pass has prefetched at its end
#define PL_PASS_PANELS 2      // panels of one pass at most (F32); rows * panels <= PL_MR_PANEL, or 1 row and 1 panel
#define PL_PASS_ROWS 32       // rows of one pass at most, at any level
#define PL_PANEL_BLOCK 32     // k that are summed for themselves in BF16

typedef struct pl_pass {
    int64_t     kc;          // BF16: a multiple of PL_PANEL_BLOCK unless it ends at K
    const void *x;           // from pl_rows_at
    bool        among;       // its rows are one tile among several (pl_rows.tiles)
    const char *w;           // the first panel at this k
    size_t      panel_bytes; // from a panel to the next
    float      *y;
    int64_t     ldy;
    int64_t     cols;   // outputs that exist, of PL_PANEL * panels
    bool        resume; // sums start from y rather than zero
    const char *after;  // what this thread reads after these panels, if that lies elsewhere; NULL: what follows them
    bool        far;    // they come from memory rather than out of a cache: prefetched otherwise
    bool        here;   // they are in a near cache: not prefetched
    pl_code     code;   // (BF16, a whole panel) what they are held as; kernels/codes.h
    // (a matrix unit) lines to fetch into the second-level cache meanwhile, for passes to come
    const char *soon;
    int64_t     soon_lines;
} pl_pass;

#define pl_panels_pass PL_CPU(panels_pass)
#define pl_panels_half_pass PL_CPU(panels_half_pass)
#define pl_panels_begin PL_CPU(panels_begin)
#define pl_panels_end PL_CPU(panels_end)
#define pl_pairs_pass PL_CPU(pairs_pass)
#define pl_unit_run PL_CPU(unit_run)
#define pl_codes_pass PL_CPU(codes_pass)
#define pl_codes_open PL_CPU(codes_open)
#define pl_rows_begin PL_CPU(rows_begin)
#define pl_rows_bytes PL_CPU(rows_bytes)
#define pl_rows_apart PL_CPU(rows_apart)
#define pl_rows_apart_bytes PL_CPU(rows_apart_bytes)
#define pl_rows_pack PL_CPU(rows_pack)
#define pl_rows_pack_some PL_CPU(rows_pack_some)
#define pl_rows_at PL_CPU(rows_at)
#define pl_rows_on PL_CPU(rows_on)

// A thread's passes stand between these two: what it had set of its processor comes back.
uint64_t pl_panels_begin(bool bf16);
void     pl_panels_end(bool bf16, uint64_t mode);

// What the level's unit for bf16 can do: so many times a few products in registers. Operations done (two a
// multiply-add); 0 where fma does these products too.
double pl_unit_run(int times);

void pl_panels_pass(bool bf16, int rows, int panels, const pl_pass *p);
// One half panel (kernels/tensor.h): cols is PL_HALF_PANEL.
void pl_panels_half_pass(bool bf16, int rows, const pl_pass *p);
// The BF16 ones: a panel of PL_PANEL or PL_HALF_PANEL rows.
void pl_pairs_pass(int rows, int width, const pl_pass *p);
// The same over a panel of codes: p->code is one.
void pl_codes_pass(int rows, const pl_pass *p);
// Writes `columns` columns (a multiple of PL_PANEL_BLOCK) of a panel of codes as a panel in BF16.
void pl_codes_open(pl_code code, const char *codes, int64_t columns, char *to);

// Rows of x as passes take them: in tiles of near-equal height, each packed for a pass over it (rows_cpu.c). F32:
// k-slow; a single row is x itself. BF16: rounded, and laid out for whoever multiplies.
typedef struct pl_rows {
    const float *x;      // row r from r * ld on
    int64_t      ld;     // floats
    bool         across; // (BF16) column k from k * ld on instead
    int64_t      rows, k, tiles;
    int64_t      lead, high; // rows of the first tile and of the others but the last; 0: of near-equal height
    bool         bf16;
    size_t       tile_bytes;
    char        *packed; // NULL: x itself
} pl_rows;

// Scratch for `rows` rows or any fewer of them.
size_t pl_rows_bytes(bool bf16, int64_t rows, int64_t k);
// room: 64-byte aligned, of that size; tiles are packed by pl_rows_pack, in any order.
void   pl_rows_begin(pl_rows *r, bool bf16, const float *x, int64_t rows, int64_t k, void *room);
void   pl_rows_pack(const pl_rows *r, int64_t tile);
// Columns k0 .. k0 + count - 1 of a tile: whole blocks of PL_PANEL_BLOCK, unless they end at k. x: where column k0 of
// row 0 lies; the rest of r->x may lie elsewhere. Threads may pack different ones at once.
void   pl_rows_pack_some(const pl_rows *r, int64_t tile, int64_t k0, int64_t count, const float *x);
// The same with one row a tile.
size_t pl_rows_apart_bytes(bool bf16, int64_t rows, int64_t k);
void   pl_rows_apart(pl_rows *r, bool bf16, const float *x, int64_t rows, int64_t k, void *room);
// Rows whose tiles have full height: parts of a product are best as high as a multiple of it.
#define PL_ROWS_TILE PL_CPU(rows_tile)
extern const int PL_ROWS_TILE;
// Rows of x that are best packed at once: a matrix unit asks for weights so much faster that they must serve more.
#define PL_ROWS_BLOCK PL_CPU(rows_block)
extern const int   PL_ROWS_BLOCK;
// (Whole tiles) No few rows go before the others to fetch weights: somebody else does. Before any tile is packed.
static inline void pl_rows_even(pl_rows *r) {
    if (r->high == 0) return;
    r->lead = r->high;
    r->tiles = (r->rows + r->high - 1) / r->high;
}
// First row of a tile; tile `tiles`: the number of rows.
static inline int64_t pl_rows_first(const pl_rows *r, int64_t tile) {
    if (r->high == 0) return r->rows * tile / r->tiles;
    return tile == 0 ? 0 : tile < r->tiles ? r->lead + (tile - 1) * r->high : r->rows;
}
// A tile from column k on (BF16: a multiple of PL_PANEL_BLOCK).
const void *pl_rows_at(const pl_rows *r, int64_t tile, int64_t k);
// The same of a tile of BF16 that lies at x: `rows` rows, among others.
const void *pl_rows_on(const void *x, int64_t rows, bool among, int64_t k);

#endif
