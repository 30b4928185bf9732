// Products with listed rows of a matrix, which rescore a head's candidates (infer/head/specvocab.c).
//   y[m, i] = sum_k x[m, k] W[id[m, i], k]     i < n;  id[m, i] = -1 gives -infinity
//
// x [M, K] and y [M, n] in be->real; W [N, K]: PL_ROWMAJOR, PL_PANELS or (cpu, ref) PL_SEGMENTS, F32 or BF16 (row-major
// F64: ref only). Ids may repeat and be in any order.
//   dx[m, :] += sum_i dy[m, i] W[id[m, i], :]  (i ascending)
//   dW[id[m, i], :] += dy[m, i] x[m, :]        (m, then i ascending)
// Gradients need W row-major; entries of id -1 take none. Bits: in any layout y equals `linear` over packed weights for
// those rows (BF16: x is rounded), for any M, n and number of threads. Cost: 2 M K n flops. Row-major reads M n K
// size(W) bytes. In panels a row's elements lie 64 apart, so whole panels are read: M K 64 size(W) bytes for each
// change of panel along the list (ascending ids: once per panel touched), which is most of W as soon as a few rows in a
// hundred are listed. A head that is only read by lists is therefore kept row-major.
#ifndef PL_OP_GATHERDOT_H
#define PL_OP_GATHERDOT_H
#include "kernels/backend.h"

typedef struct pl_gatherdot_args {
    pl_tensor      y, x, w;
    const int32_t *id; // [M, n]; borrowed
} pl_gatherdot_args;

pl_tensor pl_gatherdot(pl_ctx *ctx, pl_tensor x, pl_tensor w, const int32_t *id, int64_t n);
#endif
