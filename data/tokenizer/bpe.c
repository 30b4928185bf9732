#include "data/tokenizer/impl.h"
#include "kernels/base/arena.h"

typedef struct candidate {
    double  cost;
    int32_t at;     // the left symbol
    int32_t merged; // the pair's merge when it was queued
} candidate;

typedef struct heap {
    candidate *c;
    size_t     n, cap;
} heap;

static bool before(const candidate *a, const candidate *b) {
    return a->cost < b->cost || (a->cost == b->cost && a->at < b->at);
}

static bool heap_push(heap *h, candidate c) {
    if (h->n == h->cap) {
        size_t     cap = h->cap * 2;
        candidate *p = pl_realloc(h->c, cap * sizeof *p);
        if (!p) return false;
        h->c = p;
        h->cap = cap;
    }
    size_t i = h->n++;
    while (i > 0 && before(&c, &h->c[(i - 1) / 2])) {
        h->c[i] = h->c[(i - 1) / 2];
        i = (i - 1) / 2;
    }
    h->c[i] = c;
    return true;
}

static candidate heap_pop(heap *h) {
    candidate top = h->c[0], last = h->c[--h->n];
    size_t    i = 0;
    for (size_t child; (child = 2 * i + 1) < h->n; i = child) {
        if (child + 1 < h->n && before(&h->c[child + 1], &h->c[child])) child++;
        if (!before(&h->c[child], &last)) break;
        h->c[i] = h->c[child];
    }
    h->c[i] = last;
    return top;
}

pl_status pl_bpe_merge(int32_t *ids, int64_t *n, pl_bpe_pair pair, const void *ctx, pl_err *err) {
    if (*n < 2) return PL_OK;
    if (*n > INT32_MAX) return pl_fail(err, PL_E_INPUT, "text of %lld symbols is too long", (long long)*n);
    int32_t   count = (int32_t)*n;
    pl_status st = PL_OK;
    heap      h = {.cap = (size_t)count + 16};
    h.c = pl_malloc(h.cap * sizeof *h.c);
    int32_t *prev = pl_malloc((size_t)count * sizeof *prev);
    int32_t *next = pl_malloc((size_t)count * sizeof *next);
    if (!h.c || !prev || !next) {
        st = pl_fail(err, PL_E_MEMORY, "text of %d symbols: out of memory", count);
        goto done;
    }
    candidate c;
    for (int32_t i = 0; i < count; i++) {
        prev[i] = i - 1;
        next[i] = i + 1 < count ? i + 1 : -1;
        c.at = i;
        if (i + 1 < count && pair(ctx, ids[i], ids[i + 1], &c.cost, &c.merged)) heap_push(&h, c); // fits: cap > count
    }
    while (h.n > 0) {
        candidate top = heap_pop(&h);
        int32_t   i = top.at, j = ids[i] < 0 ? -1 : next[i], merged;
        double    cost;
        // A candidate is stale if a neighbour has been merged meanwhile. It stays valid if the current pair makes the
        // same piece: the rule of Hugging Face's tokenizers, whose ids must be reproduced.
        if (j < 0 || !pair(ctx, ids[i], ids[j], &cost, &merged) || merged != top.merged) continue;
        ids[i] = merged;
        ids[j] = -1;
        next[i] = next[j];
        if (next[j] >= 0) prev[next[j]] = i;
        int32_t left = prev[i], right = next[i];
        c.at = left;
        bool ok = left < 0 || !pair(ctx, ids[left], ids[i], &c.cost, &c.merged) || heap_push(&h, c);
        c.at = i;
        ok = ok && (right < 0 || !pair(ctx, ids[i], ids[right], &c.cost, &c.merged) || heap_push(&h, c));
        if (!ok) {
            st = pl_fail(err, PL_E_MEMORY, "text of %d symbols: out of memory", count);
            goto done;
        }
    }
    int64_t kept = 0;
    for (int32_t i = 0; i >= 0; i = next[i])
        ids[kept++] = ids[i];
    *n = kept;
done:
    pl_free(h.c);
    pl_free(prev);
    pl_free(next);
    return st;
}
