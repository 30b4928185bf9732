#include "train/source/queue.h"

#include "kernels/base/arena.h"

#include <string.h>

pl_status pl_shard_queue_init(pl_shard_queue *q, const pl_doc_order *order, pl_err *err) {
    *q = (pl_shard_queue){.order = order, .epoch = -1};
    q->of = pl_calloc((size_t)order->windows + 1, sizeof *q->of);
    return q->of ? PL_OK
                 : pl_fail(err, PL_E_MEMORY, "dataset: out of memory for %lld windows", (long long)order->windows);
}

void pl_shard_queue_fini(pl_shard_queue *q) {
    pl_free(q->shard);
    pl_free(q->turn);
    pl_free(q->of);
    *q = (pl_shard_queue){0};
}

int64_t pl_shard_queue_window(pl_shard_queue *q, int64_t turn) {
    int64_t epoch = turn / q->order->windows;
    if (epoch != q->epoch) pl_doc_order_turns(q->order, epoch, q->of);
    q->epoch = epoch;
    return q->of[turn % q->order->windows];
}

static pl_status push_shard(pl_shard_queue *q, int64_t shard, int64_t turn, pl_err *err) {
    if (q->n == q->cap) {
        int64_t  cap = q->cap ? 2 * q->cap : 64;
        int64_t *p = pl_realloc(q->shard, (size_t)cap * sizeof *p);
        if (p) q->shard = p;
        int64_t *t = p ? pl_realloc(q->turn, (size_t)cap * sizeof *t) : NULL;
        if (!t) return pl_fail(err, PL_E_MEMORY, "dataset: out of memory for %lld shards", (long long)cap);
        q->turn = t;
        q->cap = cap;
    }
    q->shard[q->n] = shard;
    q->turn[q->n++] = turn;
    return PL_OK;
}

static bool is_queued(const pl_shard_queue *q, int64_t shard) {
    for (int64_t i = 0; i < q->n; i++)
        if (q->shard[i] == shard) return true;
    return false;
}

pl_status pl_shard_queue_look(pl_shard_queue *q, const int64_t *there, int64_t now, bool *more, pl_err *err) {
    if (q->n == 0) q->next = now;
    *more = q->next < now + q->order->windows;
    if (!*more) return PL_OK;
    int64_t turn = q->next++, w = pl_shard_queue_window(q, turn);
    for (int64_t k = q->order->shard[w]; k < q->order->shard[w + 1]; k++)
        if (there[k] == 0 && !is_queued(q, k)) PL_TRY(push_shard(q, k, turn, err));
    return PL_OK;
}

int64_t pl_shard_queue_end(const pl_shard_queue *q, int64_t i) {
    int64_t end = i;
    while (end < q->n && q->turn[end] == q->turn[i])
        end++;
    return end;
}

void pl_shard_queue_drop(pl_shard_queue *q, int64_t n) {
    q->n -= n;
    memmove(q->shard, q->shard + n, (size_t)q->n * sizeof *q->shard);
    memmove(q->turn, q->turn + n, (size_t)q->n * sizeof *q->turn);
}
