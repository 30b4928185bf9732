// Order in which a source reads the documents of a dataset: a function of a seed, the window and the set of documents,
// independent of when they are made.
//
// window 0: each epoch is a permutation of all documents. Otherwise shards, in the dataset's order, form windows, each
// of the fewest whole shards with at least `window` documents; an epoch is a permutation of the windows, and within
// each a permutation of its documents. So only one window's shards must be on disk at a time (train/source/bounded.c).
#ifndef PL_TRAIN_ORDER_H
#define PL_TRAIN_ORDER_H

#include "kernels/base/status.h"
#include <stdint.h>

typedef struct pl_doc_order {
    uint64_t seed;
    int64_t  docs, *member; // [docs] numbers in the dataset, ascending; owned, filled in by the caller
    int64_t  windows;       // window w: members [first[w], first[w + 1]), in the shards [shard[w], shard[w + 1])
    int64_t *first, *shard;
    int64_t  epoch, *order, *turn; // current epoch's [docs] indices of members and [windows] windows; epoch -1: none
                                   // yet
} pl_doc_order;

// Allocates room for as many members as the dataset has documents.
pl_status pl_doc_order_init(pl_doc_order *o, uint64_t seed, int64_t docs, pl_err *err);
void      pl_doc_order_fini(pl_doc_order *o);
// Call it once all members are filled in. docs(arg, k): number of documents of shard k of `shards`.
pl_status pl_doc_order_windows(pl_doc_order *o, int64_t window, int64_t shards, int64_t (*docs)(void *arg, int64_t k),
                               void *arg, pl_err *err);

// Document `at` over all epochs: returns its number in the dataset, and its window.
int64_t pl_doc_order_number(pl_doc_order *o, int64_t at);
int64_t pl_doc_order_window(pl_doc_order *o, int64_t at);
// Writes an epoch's windows in order to turn[0..windows).
void    pl_doc_order_turns(const pl_doc_order *o, int64_t epoch, int64_t *turn);

#endif
