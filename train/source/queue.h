// Queue of shards that a bounded source makes next (train/source/bounded.h): the missing shards of one window after the
// other, in training's order. A window's turn is its position in that order, over all epochs. A function of the set of
// existing shards alone, so that all ranks that fill it at the same moments have the same queue.
#ifndef PL_TRAIN_QUEUE_H
#define PL_TRAIN_QUEUE_H

#include "train/source/order.h"
#include <stdbool.h>

typedef struct pl_shard_queue {
    const pl_doc_order *order;        // borrowed
    int64_t             n, cap;       // entries
    int64_t            *shard, *turn; // [n] owned; turns ascend, and shards within a turn
    int64_t             next;         // the turn to check next
    int64_t             epoch, *of;   // scratch: turns of an epoch; -1: none
} pl_shard_queue;

pl_status pl_shard_queue_init(pl_shard_queue *q, const pl_doc_order *order, pl_err *err);
void      pl_shard_queue_fini(pl_shard_queue *q);
int64_t   pl_shard_queue_window(pl_shard_queue *q, int64_t turn);
// Checks one more window and appends its missing shards (there[k] 0), unless they are queued already. An empty queue
// begins with turn `now`; *more false: an epoch's windows from there on have been checked.
pl_status pl_shard_queue_look(pl_shard_queue *q, const int64_t *there, int64_t now, bool *more, pl_err *err);
// Returns the index after the last entry of entry i's turn.
int64_t   pl_shard_queue_end(const pl_shard_queue *q, int64_t i);
// Removes the first n entries.
void      pl_shard_queue_drop(pl_shard_queue *q, int64_t n);

#endif
