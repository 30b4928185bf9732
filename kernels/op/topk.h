// The k largest logits of each row, and the row's log-sum-exp.
//   id[m, :], value[m, :] in descending order of value; ties: the earlier column first (so argmax is the lowest id of
//   the maximum, in decode and verify alike). lse[m] = log sum_v exp(x[m, v]); log-probability = value - lse.
// NaN is refused: the context fails. If a row has fewer than k columns the rest is id -1, value -infinity. lse may be
// NULL (greedy decoding needs no softmax). With `name` the columns are a list of ids that was rescored (gatherdot), in
// any order, and id is the column's name.
#ifndef PL_OP_TOPK_H
#define PL_OP_TOPK_H
#include "kernels/backend.h"

#define PL_TOPK_MAX 64

typedef struct pl_topk_args {
    pl_tensor      x;     // [M, V] in be->real
    const int32_t *name;  // [M, V] or NULL
    int32_t       *id;    // [M, k]
    float         *value; // [M, k] or NULL
    float         *lse;   // [M] or NULL
    int            k;     // 1..PL_TOPK_MAX
} pl_topk_args;

void pl_topk(pl_ctx *ctx, const pl_topk_args *args);
#endif
