// In which order a source reads the documents of a dataset: a function of a seed, the window and which documents there
// are, never of when they were made.
//
// window 0: each epoch is a permutation of all documents. Else shards, in the dataset's order, make up windows, each of
// so few whole shards as have `window` documents at least; an epoch is a permutation of the windows, and within each a
// permutation of its documents. So only a window's shards have to be there at a time (train/source/bounded.h).
#ifndef PL_TRAIN_ORDER_H
#define PL_TRAIN_ORDER_H

#include "kernels/base/status.h"
#include <stdint.h>

typedef struct pl_doc_order {
    uint64_t seed;
    int64_t  docs, *member; // [docs] numbers in the dataset, ascending; owned, the caller fills them in
    int64_t  windows;       // of the members [first[w], first[w + 1]), in the shards [shard[w], shard[w + 1])
    int64_t *first, *shard;
    int64_t  epoch, *order, *turn; // of the epoch: [docs] indices of members; [windows] windows; -1: none yet
} pl_doc_order;

// Room for as many members as the dataset has documents.
pl_status pl_doc_order_init(pl_doc_order *o, uint64_t seed, int64_t docs, pl_err *err);
void      pl_doc_order_fini(pl_doc_order *o);
// Once all members are there. docs(arg, k): the documents of shard k of `shards`.
pl_status pl_doc_order_windows(pl_doc_order *o, int64_t window, int64_t shards, int64_t (*docs)(void *arg, int64_t k),
                               void *arg, pl_err *err);

// Document `at` over all epochs: its number in the dataset, and its window.
int64_t pl_doc_order_number(pl_doc_order *o, int64_t at);
int64_t pl_doc_order_window(pl_doc_order *o, int64_t at);
// turn[0..windows) of an epoch: which window comes when.
void    pl_doc_order_turns(const pl_doc_order *o, int64_t epoch, int64_t *turn);

#endif
