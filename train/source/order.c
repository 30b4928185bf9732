#include "train/source/order.h"

#include "kernels/base/arena.h"
#include "kernels/base/check.h"
#include "kernels/base/rng.h"

pl_status pl_doc_order_init(pl_doc_order *o, uint64_t seed, int64_t docs, pl_err *err) {
    *o = (pl_doc_order){.seed = seed, .epoch = -1};
    o->member = pl_calloc((size_t)docs + 1, sizeof *o->member);
    return o->member ? PL_OK : pl_fail(err, PL_E_MEMORY, "dataset: out of memory for %lld documents", (long long)docs);
}

void pl_doc_order_fini(pl_doc_order *o) {
    pl_free(o->member);
    pl_free(o->first);
    pl_free(o->shard);
    pl_free(o->order);
    pl_free(o->turn);
    *o = (pl_doc_order){0};
}

pl_status pl_doc_order_windows(pl_doc_order *o, int64_t window, int64_t shards, int64_t (*docs)(void *arg, int64_t k),
                               void *arg, pl_err *err) {
    int64_t doc = 0, here = 0, member = 0;
    o->first = pl_calloc((size_t)shards + 2, sizeof *o->first);
    o->shard = pl_calloc((size_t)shards + 2, sizeof *o->shard);
    o->order = pl_calloc((size_t)o->docs + 1, sizeof *o->order);
    if (!o->first || !o->shard || !o->order) return pl_fail(err, PL_E_MEMORY, "dataset: out of memory");
    for (int64_t k = 0; k < shards; k++) {
        doc += docs(arg, k);
        here += docs(arg, k);
        if (k + 1 < shards && (window == 0 || here < window)) continue;
        while (member < o->docs && o->member[member] < doc)
            member++;
        o->windows++;
        o->first[o->windows] = member;
        o->shard[o->windows] = k + 1;
        here = 0;
    }
    PL_CHECK(member == o->docs, "%lld of %lld documents in windows", (long long)member, (long long)o->docs);
    o->turn = pl_calloc((size_t)o->windows + 1, sizeof *o->turn);
    return o->turn ? PL_OK : pl_fail(err, PL_E_MEMORY, "dataset: out of memory");
}

void pl_doc_order_turns(const pl_doc_order *o, int64_t epoch, int64_t *turn) {
    turn[0] = 0;
    if (o->windows > 1) pl_rng_permute(pl_rng_make(o->seed, PL_STREAM_SHUFFLE, (uint64_t)epoch), turn, o->windows);
}

// A single window is the shuffle of all documents, with its own stream; shuffles within windows have another.
static void shuffle_epoch(pl_doc_order *o, int64_t epoch) {
    int64_t at = 0;
    pl_doc_order_turns(o, epoch, o->turn);
    for (int64_t i = 0; i < o->windows; i++) {
        int64_t w = o->turn[i], n = o->first[w + 1] - o->first[w];
        pl_rng  rng = pl_rng_make(o->seed, PL_STREAM_SHUFFLE, (uint64_t)epoch);
        if (o->windows > 1)
            rng = pl_rng_make(o->seed, PL_STREAM_WINDOW, (uint64_t)epoch * (uint64_t)o->windows + (uint64_t)w);
        pl_rng_permute(rng, o->order + at, n);
        for (int64_t k = at; k < at + n; k++)
            o->order[k] += o->first[w];
        at += n;
    }
    o->epoch = epoch;
}

static int64_t member_at(pl_doc_order *o, int64_t at) {
    PL_CHECK(at >= 0 && o->docs > 0, "document %lld of %lld", (long long)at, (long long)o->docs);
    if (at / o->docs != o->epoch) shuffle_epoch(o, at / o->docs);
    return o->order[at % o->docs];
}

int64_t pl_doc_order_number(pl_doc_order *o, int64_t at) {
    return o->member[member_at(o, at)];
}

int64_t pl_doc_order_window(pl_doc_order *o, int64_t at) {
    int64_t lo = 0, hi = o->windows, member = member_at(o, at);
    while (hi - lo > 1) {
        int64_t mid = lo + (hi - lo) / 2;
        if (o->first[mid] <= member)
            lo = mid;
        else
            hi = mid;
    }
    return lo;
}
