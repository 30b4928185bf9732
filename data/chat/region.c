// Memory of templates, and the limits on their memory and time.
#include "data/chat/value.h"
#include "kernels/base/log.h"
#include <stdarg.h>
#include <stdio.h>

#define MAX_DEPTH 120

// A step is the cost of an expression: some 30 ns. Looking up the class or case of a character costs some 10 ns a byte,
// and copying, comparing or clearing memory half a nanosecond.
#define READ_BYTES 2
#define MOVE_BYTES 64
// Steps between polls for a stop: a tenth of a second, longer than any conversation, so that a document is finished.
#define LONG_STEPS 2000000

typedef struct pl_region_chunk {
    struct pl_region_chunk *next;
    size_t                  n, used;
    _Alignas(16) char bytes[];
} chunk;

pl_region pl_region_new(const char *where, size_t limit, int64_t most, pl_err *err) {
    return (pl_region){.where = where, .limit = limit, .text.limit = limit, .most = most, .err = err};
}

static _Noreturn void raise_full(pl_region *r) {
    pl_chat_raise(r, PL_E_INPUT, "needs more than %zu MB", r->limit >> 20);
}

void *pl_region_alloc(pl_region *r, size_t n) {
    chunk *c = r->chunks;
    pl_chat_step(r, 1);
    pl_chat_move(r, n);
    n = (n + 15) & ~(size_t)15;
    if (!c || c->n - c->used < n) {
        size_t size = n > 8192 ? n : 8192;
        if (size >= r->limit - r->held - r->text.cap) raise_full(r);
        c = pl_calloc(1, sizeof *c + size);
        if (!c) pl_chat_raise(r, PL_E_MEMORY, "out of memory");
        c->n = size;
        c->next = r->chunks;
        r->chunks = c;
        r->held += size;
        r->text.limit = r->limit - r->held;
    }
    void *p = c->bytes + c->used;
    c->used += n;
    return p;
}

char *pl_region_copy(pl_region *r, const char *s, size_t n) {
    char *to = pl_region_alloc(r, n + 1);
    if (n) memcpy(to, s, n);
    return to;
}

void *pl_region_room(pl_region *r, void *v, int64_t n, int64_t *cap, size_t item) {
    if (n < *cap) return v;
    *cap = n ? 2 * n : 4;
    void *to = pl_region_alloc(r, pl_size_mul((size_t)*cap, item, 1));
    if (n) memcpy(to, v, (size_t)n * item);
    return to;
}

void pl_region_fini(pl_region *r) {
    while (r->chunks) {
        chunk *next = r->chunks->next;
        pl_free(r->chunks);
        r->chunks = next;
    }
    r->held = 0;
    pl_strbuf_fini(&r->text);
}

void pl_chat_raise(pl_region *r, pl_status st, const char *fmt, ...) {
    char    msg[900];
    va_list ap;
    va_start(ap, fmt);
    vsnprintf(msg, sizeof msg, fmt, ap);
    va_end(ap);
    for (char *c = msg; *c; c++)
        if ((uint8_t)*c < 0x20) *c = ' '; // a template's message may have lines
    if (r->line)
        pl_fail(r->err, st, "%s:%d: %s", r->where, r->line, msg);
    else
        pl_fail(r->err, st, "%s: %s", r->where, msg);
    longjmp(r->out, (int)st);
}

void pl_chat_step(pl_region *r, int64_t n) {
    r->steps += n;
    if (r->steps > r->most) pl_chat_raise(r, PL_E_INPUT, "does not come to an end");
    if (r->steps > LONG_STEPS && pl_stop_requested()) pl_chat_raise(r, PL_E_INTERRUPTED, "interrupted");
}

void pl_chat_read(pl_region *r, size_t n) {
    pl_chat_step(r, (int64_t)(n / READ_BYTES));
}

void pl_chat_move(pl_region *r, size_t n) {
    pl_chat_step(r, (int64_t)(n / MOVE_BYTES));
}

void pl_chat_enter(pl_region *r) {
    if (++r->depth > MAX_DEPTH) pl_chat_raise(r, PL_E_INPUT, "nested more than %d deep", MAX_DEPTH);
}

void pl_chat_leave(pl_region *r) {
    r->depth--;
}

// ---- text

static void check_text(pl_region *r) {
    if (!r->text.failed) return;
    if (r->text.full) raise_full(r);
    pl_chat_raise(r, PL_E_MEMORY, "out of memory");
}

void pl_chat_add(pl_region *r, const char *s, size_t n) {
    pl_chat_move(r, n);
    pl_strbuf_add(&r->text, s, n);
    check_text(r);
}

pl_chat_value pl_chat_taken(pl_region *r, size_t from) {
    check_text(r);
    size_t        n = r->text.n - from;
    pl_chat_value v = pl_chat_strn(pl_region_copy(r, n ? r->text.s + from : "", n), n);
    r->text.n = from;
    return v;
}
