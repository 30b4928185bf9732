// Sum of two tensors of one shape.
//   y = a + b                                           da += dy, db += dy
// Element-wise, one rounding. Bytes: 3*M*n*size.
#ifndef PL_OP_ADD_H
#define PL_OP_ADD_H
#include "kernels/backend.h"

typedef struct pl_add_args {
    pl_tensor y, a, b; // [M, n]; y may not alias a or b when anything is recorded
} pl_add_args;

// y.data NULL: allocates y; else writes there (a slice of a larger tensor). Returns y.
pl_tensor pl_add(pl_ctx *ctx, pl_tensor a, pl_tensor b, pl_tensor y);
#endif
