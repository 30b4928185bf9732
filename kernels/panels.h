// Packed weights (PL_PANELS, kernels/tensor.h): their size, making them, and reading them back.
#ifndef PL_PANELS_H
#define PL_PANELS_H

#include "kernels/tensor.h"

#include <stddef.h>

// Bytes of the packed form of [N, K].
size_t pl_panels_bytes(int64_t n, int64_t k, pl_dtype t);
// Packs `count` rows starting at row n0 from row-major floats (rounded to t). Rows past N of the last panel must have
// been zeroed (pl_block_create does). Rows may come in pieces, so that a matrix is packed without a second copy of it.
void   pl_panels_pack(void *dst, pl_dtype t, int64_t n0, int64_t count, int64_t n, int64_t k, const float *src);
// The same in either order of rows: PL_PANELS or PL_GATED.
void   pl_panels_pack_as(pl_layout layout, void *dst, pl_dtype t, int64_t n0, int64_t count, int64_t n, int64_t k,
                         const float *src);
// Columns that a packed row has room for: K, in BF16 made even.
static inline int64_t pl_panel_columns(pl_dtype t, int64_t k) {
    return t == PL_F32 ? k : (k + 1) / 2 * 2;
}
// Where element (row, k) of a single panel lies that holds `width` rows, in elements.
static inline size_t pl_panel_place(pl_dtype t, int64_t row, int64_t k, int width) {
    return (size_t)(t == PL_F32 ? k * width + row : (k / 2 * width + row) * 2 + k % 2);
}
// Where row n of a gate above up, `rows` in all, lies in PL_GATED: the row that lies there in PL_PANELS. Rows of either
// half follow each other up to the end of their half panel.
static inline int64_t pl_gated_place(int64_t n, int64_t rows) {
    int64_t up = n >= rows / 2, i = n - up * (rows / 2);
    return i / PL_HALF_PANEL * PL_PANEL + up * PL_HALF_PANEL + i % PL_HALF_PANEL;
}
// The same in BF16 from rows that are in bf16 already, one after the other from any address (a mapped file).
void pl_panels_pack_bf16(pl_layout layout, void *dst, int64_t n0, int64_t count, int64_t n, int64_t k, const void *src);
// Rows row0 .. row0 + count - 1 of a single panel that holds `width` rows, into memory that was zero.
void pl_panel_pack(void *panel, pl_dtype t, int width, int64_t row0, int64_t count, int64_t k, const float *src);
// One element back, as float: tests and ref.
float pl_panels_at(const void *panels, pl_dtype t, int64_t n, int64_t k, int64_t cols);
// One row back (K floats).
void  pl_panels_row(float *dst, const void *panels, pl_dtype t, int64_t n, int64_t cols);

#endif
