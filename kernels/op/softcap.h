// Soft cap of logits (Gemma 2, arXiv 2408.00118, section 2), in place.
//   x[m, i] = cap tanh(x[m, i] / cap),  cap > 0
// Monotone: a row's order is kept, except that rounding may create ties. Element-wise: bits do not depend on
// neighbours. No gradient. tanh: relative error below 2^-21 on every backend.
#ifndef PL_OP_SOFTCAP_H
#define PL_OP_SOFTCAP_H
#include "kernels/backend.h"

typedef struct pl_softcap_args {
    pl_tensor x; // [M, n], no gradient
    double    cap;
} pl_softcap_args;

void pl_softcap(pl_ctx *ctx, pl_tensor x, double cap);
#endif
