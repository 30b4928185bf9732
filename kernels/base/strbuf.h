// A growing byte buffer. Running out of memory, or of the bytes that it may take, sticks (failed) and is asked for
// once, at the end.
#ifndef PL_STRBUF_H
#define PL_STRBUF_H

#include "kernels/base/arena.h"
#include <string.h>

typedef struct pl_strbuf {
    char  *s; // owned; NULL while empty
    size_t n, cap;
    size_t limit; // bytes that cap may come to; 0: any number
    bool   failed;
    bool   full; // failed by the limit
} pl_strbuf;

static inline void pl_strbuf_add(pl_strbuf *b, const char *s, size_t n) {
    if (b->failed) return;
    if (!b->s || n >= b->cap - b->n) { // one byte more than asked for: a place for a terminating 0
        size_t most = b->limit ? b->limit : SIZE_MAX / 2, cap = b->cap ? b->cap : 256;
        if (b->n >= most || n >= most - b->n) {
            b->failed = b->full = true;
            return;
        }
        while (n >= cap - b->n)
            cap *= 2;
        if (cap > most) cap = most;
        char *p = (char *)pl_realloc(b->s, cap);
        if (!p) {
            b->failed = true;
            return;
        }
        b->s = p;
        b->cap = cap;
    }
    if (n) memcpy(b->s + b->n, s, n);
    b->n += n;
}

// 0-terminates and hands the bytes over; NULL when memory ran out (then everything is freed). b is empty afterwards.
static inline char *pl_strbuf_take(pl_strbuf *b) {
    pl_strbuf_add(b, "", 0);
    char *s = b->s;
    if (b->failed) {
        pl_free(s);
        s = NULL;
    } else {
        s[b->n] = 0;
    }
    memset(b, 0, sizeof *b);
    return s;
}

static inline void pl_strbuf_fini(pl_strbuf *b) {
    pl_free(b->s);
    memset(b, 0, sizeof *b);
}

#endif
