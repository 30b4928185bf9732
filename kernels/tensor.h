// Tensors: a pointer, a shape, a type. Passed by value; they own nothing.
#ifndef PL_TENSOR_H
#define PL_TENSOR_H

#include "kernels/base/dtype.h"
#include <stdint.h>

// How a matrix lies in memory. Activations and training weights are row-major. Inference weights are packed once, at
// load, into panels of PL_PANEL rows: element (n, k) of W[N, K] lies in panel n / PL_PANEL, panels follow each other,
// and inside a panel k is the slow index, so that one k of all rows of a panel is one contiguous load:
//   F32   index p*K*PL_PANEL + k*PL_PANEL + n % PL_PANEL
//   BF16  pairs of k, as matrix units take them: 32-bit word p*(K+1)/2*PL_PANEL + k/2*PL_PANEL + n % PL_PANEL holds
//         k even in its low half and k + 1 in its high half, so that `word << 16` and `word & 0xffff0000` are the fp32
//         values of consecutive rows. Where K is odd the last high halves are zero.
// Rows past N in the last panel are zero. See kernels/panels.h for pack and size.
//
// A matrix that is read by segments of rows (the clusters of a routed head) has panels that begin where its segments
// do, so that no panel holds rows of two of them; kernels/segments.h. The last panel of a segment is half as wide where
// half holds what is left: the same order with PL_PANEL / 2 for PL_PANEL. Reading a segment costs at most
// PL_PANEL / 2 - 1 rows that are none.
//
// A gated linear unit's gate above up, [2I, K], may have them side by side in its panels (PL_GATED): the first half of
// panel p is rows 32 p .. of the gate, the second the same of up, so that who has multiplied a panel has both of 32
// outputs at hand. As many bytes as PL_PANELS; rows past I are zero in both halves of the last panel.
typedef enum pl_layout { PL_ROWMAJOR, PL_PANELS, PL_SEGMENTS, PL_GATED } pl_layout;
// Panels of BF16 may be held as the codes of a quantised file; kernels/codes.h.
typedef enum pl_code { PL_CODE_NONE, PL_CODE_4, PL_CODE_4_MINIMA, PL_CODE_4_WIDE, PL_CODE_8, PL_CODE_8_WIDE } pl_code;
#define PL_PANEL 64
#define PL_HALF_PANEL (PL_PANEL / 2)

// Segment i is rows row[i] .. row[i + 1] - 1 (none, where the two are equal) and starts unit[i] half panels into the
// matrix.
typedef struct pl_segments {
    int64_t        n;
    const int64_t *row, *unit; // [n + 1] each: from 0 up
} pl_segments;

// Contiguous, rank 1 to 4, slowest dimension first. grad, where not NULL, has the same shape and dtype as data and
// backward accumulates into it; NULL means: a constant.
typedef struct pl_tensor {
    void              *data;
    void              *grad;
    int64_t            dim[4]; // unused trailing dimensions are 1
    int                rank;
    pl_dtype           dtype;
    pl_layout          layout;
    pl_code            code;     // PL_PANELS and PL_GATED of BF16 on the host
    const uint16_t    *bf16;     // an F32 weight whose every value is one of BF16: the same in BF16; or NULL; borrowed
    const pl_segments *segments; // PL_SEGMENTS: where they lie; borrowed
} pl_tensor;

static inline pl_tensor pl_tensor_2d(void *data, pl_dtype t, int64_t rows, int64_t cols) {
    return (pl_tensor){.data = data, .dim = {rows, cols, 1, 1}, .rank = 2, .dtype = t};
}
static inline pl_tensor pl_tensor_1d(void *data, pl_dtype t, int64_t n) {
    return (pl_tensor){.data = data, .dim = {n, 1, 1, 1}, .rank = 1, .dtype = t};
}
static inline int64_t pl_tensor_count(const pl_tensor *t) {
    return t->dim[0] * t->dim[1] * t->dim[2] * t->dim[3];
}
// Rows of the matrix a tensor is when its last dimension is the fast one: everything before it multiplied.
static inline int64_t pl_tensor_rows(const pl_tensor *t) {
    return t->rank <= 1 ? 1 : pl_tensor_count(t) / t->dim[t->rank - 1];
}
static inline int64_t pl_tensor_cols(const pl_tensor *t) {
    return t->dim[t->rank > 0 ? t->rank - 1 : 0];
}

// Rows [at, at + n) of a row-major matrix, with their gradient and bf16 values.
static inline pl_tensor pl_tensor_slice(const pl_tensor *t, int64_t at, int64_t n) {
    pl_tensor s = *t;
    size_t    bytes = (size_t)(at * t->dim[1]) * pl_dtype_size(t->dtype);
    s.data = (uint8_t *)t->data + bytes;
    if (t->grad) s.grad = (uint8_t *)t->grad + bytes;
    if (t->bf16) s.bf16 = t->bf16 + at * t->dim[1];
    s.dim[0] = n;
    return s;
}

static inline float *pl_f32(const pl_tensor *t) {
    return (float *)t->data;
}
static inline double *pl_f64(const pl_tensor *t) {
    return (double *)t->data;
}
// Element i of F32 or F64, whichever the backend computes in, where the host reads it.
static inline double pl_real_at(const pl_tensor *t, int64_t i) {
    return t->dtype == PL_F64 ? pl_f64(t)[i] : (double)pl_f32(t)[i];
}
static inline void pl_real_put(const pl_tensor *t, int64_t i, double x) {
    if (t->dtype == PL_F64)
        pl_f64(t)[i] = x;
    else
        pl_f32(t)[i] = (float)x;
}

#endif
