// The likeliest of many nodes one after another, where how many are wanted shows only as they come: a heap, its
// likeliest first.
#ifndef PL_LIKELY_H
#define PL_LIKELY_H

typedef struct pl_likely {
    double f; // what it is worth
    int    item, node;
} pl_likely;

// n nodes in any order become a heap.
void      pl_likely_heap(pl_likely *x, int n);
// The likeliest of a heap of n >= 1: the first n - 1 stay a heap, and it stands behind them.
pl_likely pl_likely_take(pl_likely *x, int n);

#endif
