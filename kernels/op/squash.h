// Squashing functions, element by element, of some columns of a matrix.
//   y[m, i] = f(x[m, from + i])                         dx[m, from + i] += dy[m, i] f'(x[m, from + i])
//   sigmoid     f = s = 1 / (1 + exp(-x))               f' = s (1 - s)
//   remainder   f = 1 - s                               f' = -s (1 - s)
//   tanh        f = tanh x                              f' = 1 - f^2
// For gates, several of which are adjacent columns of one product. y may be rows of a larger tensor. Element-wise: bits
// do not depend on neighbours.
#ifndef PL_OP_SQUASH_H
#define PL_OP_SQUASH_H
#include "kernels/backend.h"

typedef enum pl_squash_kind { PL_SQUASH_SIGMOID, PL_SQUASH_REMAINDER, PL_SQUASH_TANH } pl_squash_kind;

typedef struct pl_squash_args {
    pl_tensor      y, x; // [M, n], [M, N], from + n <= N
    int64_t        from;
    pl_squash_kind kind;
} pl_squash_args;

// y.data NULL: a new tensor of n columns.
pl_tensor pl_squash(pl_ctx *ctx, pl_squash_kind kind, pl_tensor x, int64_t from, int64_t n, pl_tensor y);
#endif
