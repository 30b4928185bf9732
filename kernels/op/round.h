// Rounds to bf16: y = bf16(x). Backward: straight through, dx += dy. Features are stored as bf16; the same rounding
// applies to live ones, so that training and decoding read the same numbers.
#ifndef PL_OP_ROUND_H
#define PL_OP_ROUND_H
#include "kernels/backend.h"

typedef struct pl_round_args {
    pl_tensor y, x; // same shape; y may alias x when nothing is recorded
} pl_round_args;

pl_tensor pl_round(pl_ctx *ctx, pl_tensor x);
#endif
