// Packed weights by segments (PL_SEGMENTS, kernels/tensor.h), and where a row lies in either packed layout.
#ifndef PL_SEGMENTS_H
#define PL_SEGMENTS_H

#include "kernels/tensor.h"

#include <stddef.h>

// unit[n + 1] of n segments, from row[n + 1].
void   pl_segments_place(int64_t *unit, const int64_t *row, int64_t n);
// Bytes of the packed form of a matrix of K columns.
size_t pl_segments_bytes(const pl_segments *s, int64_t k, pl_dtype t);
// As pl_panels_pack: rows n0 .. n0 + count - 1 from row-major floats, into memory that was zero.
void   pl_segments_pack(void *dst, pl_dtype t, const pl_segments *s, int64_t n0, int64_t count, int64_t k,
                        const float *src);

// A panel: rows first .. first + rows - 1 of W, at byte `at`; it has room for `width` rows.
typedef struct pl_panel {
    size_t  at;
    int64_t first;
    int     rows, width;
} pl_panel;

// The panel of a row of packed weights. *segment is where the search begins and ends (PL_SEGMENTS): 0 at first, then
// kept by the caller, which makes ascending rows cheap.
pl_panel pl_panel_of(const pl_tensor *w, int64_t row, int64_t *segment);
// No more panels than that.
int64_t  pl_panels_most(const pl_tensor *w);

#endif
