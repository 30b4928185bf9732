// Ops that compute each element alone, or move rows and columns. An element's bits do not depend on its neighbours. An
// input's gradient accumulates.
#ifndef PL_OP_ELEMENTWISE_H
#define PL_OP_ELEMENTWISE_H
#include "kernels/backend.h"

// ---- one input ------------------------------------------------------------------------------------------------------

typedef struct pl_unary_args {
    pl_tensor y, x; // [M, n]
} pl_unary_args;

// SiLU (Elfwing, Uchibe, Doya 2018; "swish").
//   y = x s,  s = 1 / (1 + exp(-x))                     dx += dy s (1 + x (1 - s))
pl_tensor pl_silu(pl_ctx *ctx, pl_tensor x);

// Rounds to bf16: y = bf16(x). Backward: straight through, dx += dy. Features are stored as bf16; the same rounding
// applies to live ones, so that training and decoding read the same numbers.
pl_tensor pl_round(pl_ctx *ctx, pl_tensor x);

// Squashing functions of some columns of a matrix, for gates that are adjacent columns of one product.
//   y[m, i] = f(x[m, from + i])                         dx[m, from + i] += dy[m, i] f'(x[m, from + i])
//   sigmoid     f = s = 1 / (1 + exp(-x))               f' = s (1 - s)
//   remainder   f = 1 - s                               f' = -s (1 - s)
//   tanh        f = tanh x                              f' = 1 - f^2
typedef enum pl_squash_kind { PL_SQUASH_SIGMOID, PL_SQUASH_REMAINDER, PL_SQUASH_TANH } pl_squash_kind;

typedef struct pl_squash_args {
    pl_tensor      y, x; // [M, n], [M, N], from + n <= N
    int64_t        from;
    pl_squash_kind kind;
} pl_squash_args;

// y.data NULL: a new tensor of n columns; else y may be rows of a larger tensor.
pl_tensor pl_squash(pl_ctx *ctx, pl_squash_kind kind, pl_tensor x, int64_t from, int64_t n, pl_tensor y);

// Soft cap of logits (Gemma 2, arXiv 2408.00118, section 2), in place.
//   x[m, i] = cap tanh(x[m, i] / cap),  cap > 0
// Monotone: a row's order is kept, except that rounding may create ties. No gradient. tanh: relative error below 2^-21
// on every backend.
typedef struct pl_softcap_args {
    pl_tensor x; // [M, n], no gradient
    double    cap;
} pl_softcap_args;

void pl_softcap(pl_ctx *ctx, pl_tensor x, double cap);

// ---- two inputs -----------------------------------------------------------------------------------------------------

typedef struct pl_binary_args {
    pl_tensor y, a, b;
} pl_binary_args;

// Sum of two tensors of one shape, one rounding.
//   y = a + b                                           da += dy, db += dy
// y.data NULL: allocates y; else writes there (a slice of a larger tensor), which may not alias a or b when anything is
// recorded. Returns y. Bytes: 3*M*n*size.
pl_tensor pl_add(pl_ctx *ctx, pl_tensor a, pl_tensor b, pl_tensor y);

// Product of two tensors of one shape, element by element, one rounding.
//   y = a b                                             da += dy b, db += dy a
// Bytes: 3*M*n*size.
pl_tensor pl_mul(pl_ctx *ctx, pl_tensor a, pl_tensor b);

// A vector [n] added to every row of a [M, n], one rounding.
//   y[m, :] = a[m, :] + b[:]                            da += dy,  db[i] += sum_m dy[m, i]  (m ascending; on
//                                                     a GPU in chunks of 64, chunks ascending)
pl_tensor pl_bias(pl_ctx *ctx, pl_tensor a, pl_tensor b);

// Concatenation of columns: a [M, ca], b [M, cb], y [M, ca + cb].
//   y[m, :] = [a[m, :], b[m, :]]                        da += dy[:, :ca], db += dy[:, ca:]
// Exact. a may have a narrower type if it has no gradient (a frozen weight next to a trained one): it is widened.
pl_tensor pl_concat(pl_ctx *ctx, pl_tensor a, pl_tensor b);

// ---- rows by index --------------------------------------------------------------------------------------------------

// Rows of a matrix, an index below 0 giving a row of zeros and no gradient (padding past a document's end).
//   y[i, :] = scale x[index[i], :]                      dx[index[i], :] += scale dy[i, :]  (i ascending: deterministic)
typedef struct pl_rows_args {
    pl_tensor      y;     // [n, d]
    pl_tensor      x;     // [M, d]
    const int32_t *index; // [n], each < M; borrowed until replay
    double         scale; // 1 for gather; rounded to the type of y
} pl_rows_args;

// x in be->real. Exact.
pl_tensor pl_gather(pl_ctx *ctx, pl_tensor x, const int32_t *index, int64_t n);

// Embedding lookup. w [V, d] row-major, F32, BF16 or F64 (= be->real when it has a gradient); may be a mapped file:
// unaligned reads. scale: that of families whose embeddings have one. Exact where it is 1.
// Bytes: rows*d*(size(w) + size(real)).
pl_tensor pl_embed(pl_ctx *ctx, pl_tensor w, const int32_t *id, int64_t rows);
pl_tensor pl_embed_scaled(pl_ctx *ctx, pl_tensor w, const int32_t *id, int64_t rows, double scale);

// Weighted sum of the outputs of a mixture's experts, per row (kernels/op/experts.h).
//   y[m, :] = sum_j weight[m, j] x[slot[m, j], :]          j ascending, from 0
// x [P, d], weight [M, k] and y [M, d] in be->real; slot [M, k] in 0 .. P - 1. No gradient. Products and sums are
// rounded separately.
typedef struct pl_combine_args {
    pl_tensor      y, x, weight;
    const int32_t *slot; // borrowed
} pl_combine_args;

pl_tensor pl_combine(pl_ctx *ctx, pl_tensor x, pl_tensor weight, const int32_t *slot);
#endif
