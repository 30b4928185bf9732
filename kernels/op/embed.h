// Embedding lookup.
//   y[t, :] = s W[id[t], :]                             dW[id[t], :] += s dy[t, :]  (t ascending: deterministic)
// id < 0 gives a row of zeros and takes no gradient (padding past a document's end).
// W [V, d] row-major, F32, BF16 or F64 (= be->real when it has a gradient); may be a mapped file: unaligned reads.
// s: 1, or the scale of families whose embeddings have one; rounded to the type of y.
// Bytes: M*d*(size(W) + size(real)). Exact where s is 1.
#ifndef PL_OP_EMBED_H
#define PL_OP_EMBED_H
#include "kernels/backend.h"

typedef struct pl_embed_args {
    pl_tensor      y;  // [M, d] out
    pl_tensor      w;  // [V, d]
    const int32_t *id; // [M], each < V; borrowed until replay
    double         scale;
} pl_embed_args;

pl_tensor pl_embed(pl_ctx *ctx, pl_tensor w, const int32_t *id, int64_t rows);
pl_tensor pl_embed_scaled(pl_ctx *ctx, pl_tensor w, const int32_t *id, int64_t rows, double scale);
#endif
