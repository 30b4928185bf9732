// The k best of a stream of (value, id), for small k: larger values first, ties: the earlier first.
#ifndef PL_OP_BEST_CPU_H
#define PL_OP_BEST_CPU_H

#include "kernels/op/topk.h"
#include <string.h>

typedef struct pl_best {
    int     held;
    int32_t id[PL_TOPK_MAX];
    float   value[PL_TOPK_MAX];
} pl_best;

// Inserts v after all values that are at least as large, so that ids that come in ascending order keep it among ties.
static inline void pl_best_insert(pl_best *b, int k, float v, int32_t id) {
    int at = b->held;
    while (at > 0 && v > b->value[at - 1])
        at--;
    if (at == k) return;
    if (b->held < k) b->held++;
    size_t behind = (size_t)(b->held - 1 - at);
    memmove(b->value + at + 1, b->value + at, behind * sizeof(float));
    memmove(b->id + at + 1, b->id + at, behind * sizeof(int32_t));
    b->value[at] = v;
    b->id[at] = id;
}

#endif
