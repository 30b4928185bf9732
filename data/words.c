#include "data/words.h"
#include "data/tokenizer_impl.h"
#include "kernels/base/arena.h"
#include "kernels/base/hash.h"
#include <string.h>

enum {
    SLOTS = 1 << 16,
    MAX_ENTRIES = SLOTS / 2,
    MAX_WORD = 32,
    MAX_BYTES = MAX_ENTRIES * 12,
    MAX_IDS = MAX_ENTRIES * 6
};

typedef struct entry {
    uint32_t at, ids;  // places in bytes and ids
    uint8_t  n, n_ids; // n 0: free
} entry;

pl_status pl_ids_reserve(pl_ids *o, size_t more, pl_err *err) {
    if ((size_t)(o->cap - o->n) >= more) return PL_OK;
    size_t   cap = 2 * (size_t)o->cap + more + 64;
    int32_t *p = pl_realloc(o->v, cap * sizeof *p);
    if (!p) return pl_fail(err, PL_E_MEMORY, "encoding: out of memory");
    o->v = p;
    o->cap = (int64_t)cap;
    return PL_OK;
}

pl_status pl_words_init(pl_words *w, pl_err *err) {
    *w = (pl_words){0};
    w->table = pl_calloc(SLOTS, sizeof *w->table);
    w->bytes = pl_malloc(MAX_BYTES);
    w->ids = pl_malloc(MAX_IDS * sizeof *w->ids);
    if (!w->table || !w->bytes || !w->ids || pthread_mutex_init(&w->lock, NULL) != 0) {
        pl_words_fini(w);
        return pl_fail(err, PL_E_MEMORY, "tokenizer: out of memory");
    }
    w->ready = true;
    return PL_OK;
}

void pl_words_fini(pl_words *w) {
    if (w->ready) pthread_mutex_destroy(&w->lock);
    pl_free(w->table);
    pl_free(w->bytes);
    pl_free(w->ids);
    *w = (pl_words){0};
}

bool pl_words_are_apart(const pl_vocab *v, const char *mark) {
    size_t m = strlen(mark);
    for (int32_t id = 0; id < v->n; id++) {
        size_t      n, at = 0;
        const char *s = pl_vocab_piece(v, id, &n);
        while (at + m <= n && memcmp(s + at, mark, m) == 0)
            at += m;
        for (; at + m <= n; at++)
            if (memcmp(s + at, mark, m) == 0) return false;
    }
    return true;
}

static entry *slot(const pl_words *w, const char *word, size_t n) {
    size_t at = (size_t)pl_hash(word, n) & (SLOTS - 1);
    while (w->table[at].n && (w->table[at].n != n || memcmp(w->bytes + w->table[at].at, word, n) != 0))
        at = (at + 1) & (SLOTS - 1);
    return &w->table[at];
}

// When it is full everything is forgotten: simple, and rare.
static void remember(pl_words *w, entry *e, const char *word, size_t n, const int32_t *ids, size_t n_ids) {
    if (n_ids > UINT8_MAX) return;
    if (w->n == MAX_ENTRIES || w->bytes_used + n > MAX_BYTES || w->ids_used + n_ids > MAX_IDS) {
        memset(w->table, 0, SLOTS * sizeof *w->table);
        w->n = w->bytes_used = w->ids_used = 0;
        e = slot(w, word, n);
    }
    memcpy(w->bytes + w->bytes_used, word, n);
    memcpy(w->ids + w->ids_used, ids, n_ids * sizeof *ids);
    *e = (entry){(uint32_t)w->bytes_used, (uint32_t)w->ids_used, (uint8_t)n, (uint8_t)n_ids};
    w->bytes_used += n;
    w->ids_used += n_ids;
    w->n++;
}

static pl_status encode_one(pl_words *w, bool cached, const char *word, size_t n, bool first, pl_word_fn fn,
                            const void *ctx, pl_ids *o, pl_err *err) {
    if (!cached || first || n > MAX_WORD) return fn(ctx, word, n, first, o, err);
    entry *e = slot(w, word, n);
    if (!e->n) {
        int64_t before = o->n;
        PL_TRY(fn(ctx, word, n, false, o, err));
        remember(w, e, word, n, o->v + before, (size_t)(o->n - before));
        return PL_OK;
    }
    PL_TRY(pl_ids_reserve(o, e->n_ids, err));
    memcpy(o->v + o->n, w->ids + e->ids, e->n_ids * sizeof *o->v);
    o->n += e->n_ids;
    return PL_OK;
}

// Where the word that begins at `at` ends: in front of the next mark that stands behind something else. A literal
// U+2581 in the text may be the same to the vocabulary as the mark, so it does not count as something else.
static size_t word_end(const char *s, size_t n, size_t at, const char *mark, size_t m, bool every) {
    bool   behind_mark = false;
    size_t p = at;
    while (p < n) {
        bool is_mark = s[p] == mark[0] && p + m <= n && memcmp(s + p, mark, m) == 0;
        bool literal = s[p] == PL_SPACE_MARK[0] && p + 3 <= n && memcmp(s + p, PL_SPACE_MARK, 3) == 0;
        if (is_mark && p > at && (every || (!behind_mark && p + m < n))) return p;
        behind_mark = is_mark || literal;
        p += is_mark ? m : literal ? 3 : 1;
    }
    return n;
}

pl_status pl_words_encode(pl_words *w, const char *text, size_t n, const char *mark, bool every, pl_word_fn fn,
                          const void *ctx, pl_ids *o, pl_err *err) {
    size_t    m = strlen(mark);
    bool      cached = pthread_mutex_trylock(&w->lock) == 0;
    pl_status st = PL_OK;
    for (size_t at = 0, end; at < n && st == PL_OK; at = end) {
        end = word_end(text, n, at, mark, m, every);
        st = encode_one(w, cached, text + at, end - at, at == 0, fn, ctx, o, err);
    }
    if (cached) pthread_mutex_unlock(&w->lock);
    return st;
}
