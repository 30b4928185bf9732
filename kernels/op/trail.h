// Order in which weights are read (pl_trail, kernels/backend.h), recorded as steps repeat.
#ifndef PL_OP_TRAIL_H
#define PL_OP_TRAIL_H
#include "kernels/backend.h"
#include <string.h>

// Weights lie a few hundred pages apart, at regular distances: the slot is the upper bits of the product (Fibonacci
// hashing), with linear probing, or the weights of a model would evict each other in every step.
static inline size_t pl_trail_slot(const pl_trail *t, const void *data) {
    enum { NEAR = 8 };
    const uint64_t bits = ((uint64_t)(uintptr_t)data >> 12) * 0x9e3779b97f4a7c15u;
    const size_t   first = (size_t)((bits >> 32) * PL_TRAIL >> 32);
    for (size_t i = 0; i < NEAR; i++) {
        const size_t slot = (first + i) % PL_TRAIL;
        if (!t->next[slot].from || t->next[slot].from == data) return slot;
    }
    return first;
}

// Returns the weight that followed the current one when it was last read; .data NULL: unknown.
static inline pl_tensor pl_trail_next(const pl_trail *t) {
    const size_t slot = pl_trail_slot(t, t->last);
    pl_tensor    none;
    memset(&none, 0, sizeof none);
    return t->last && t->next[slot].from == t->last ? t->next[slot].to : none;
}

// Records that a weight of so many bytes is read now; returns true if it has left the last-level cache since its last
// read.
static inline bool pl_trail_read(pl_trail *t, const pl_tensor *w, uint64_t bytes) {
    const size_t was = pl_trail_slot(t, t->last), now = pl_trail_slot(t, w->data);
    if (t->last && t->next[was].from == t->last) t->next[was].to = *w;
    const bool known = t->next[now].from == w->data;
    if (!known) memset(&t->next[now].to, 0, sizeof t->next[now].to);
    const bool far = (known ? t->read - t->next[now].at : bytes) > t->cache;
    t->next[now].from = t->last = w->data;
    t->next[now].at = t->read;
    t->read += bytes;
    return far;
}
#endif
