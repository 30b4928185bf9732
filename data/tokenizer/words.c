#include "data/tokenizer/words.h"
#include "data/tokenizer/impl.h"
#include "kernels/base/arena.h"
#include "kernels/base/hash.h"
#include <pthread.h>
#include <string.h>

enum {
    SLOTS = 1 << 16,
    MAX_ENTRIES = SLOTS / 2,
    MAX_WORD = 32,
    MAX_BYTES = MAX_ENTRIES * 12,
    MAX_IDS = MAX_ENTRIES * 6
};

typedef struct entry {
    uint32_t at, ids;  // offsets in bytes and ids
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

struct pl_words_memory {
    pthread_mutex_t lock;
    entry          *table; // open addressing; NULL until first used
    char           *bytes;
    int32_t        *ids;
    size_t          n, bytes_used, ids_used;
};

static void forget_words(pl_words_memory *m) {
    pl_free(m->table);
    pl_free(m->bytes);
    pl_free(m->ids);
    m->table = NULL;
    m->bytes = NULL;
    m->ids = NULL;
}

static bool is_ready(pl_words_memory *m) {
    if (m->table) return true;
    m->table = pl_calloc(SLOTS, sizeof *m->table);
    m->bytes = pl_malloc(MAX_BYTES);
    m->ids = pl_malloc(MAX_IDS * sizeof *m->ids);
    if (m->table && m->bytes && m->ids) return true;
    forget_words(m);
    return false;
}

pl_status pl_words_init(pl_words *w, pl_err *err) {
    w->memory = pl_calloc(PL_WORDS_MEMORIES, sizeof *w->memory);
    for (int i = 0; w->memory && i < PL_WORDS_MEMORIES; i++)
        pthread_mutex_init(&w->memory[i].lock, NULL);
    if (w->memory && is_ready(&w->memory[0])) return PL_OK;
    pl_words_fini(w);
    return pl_fail(err, PL_E_MEMORY, "tokenizer: out of memory");
}

void pl_words_fini(pl_words *w) {
    for (int i = 0; w->memory && i < PL_WORDS_MEMORIES; i++) {
        pthread_mutex_destroy(&w->memory[i].lock);
        forget_words(&w->memory[i]);
    }
    pl_free(w->memory);
    *w = (pl_words){0};
}

pl_words_memory *pl_words_take(pl_words *w) {
    for (int i = 0; i < PL_WORDS_MEMORIES; i++) {
        pl_words_memory *m = &w->memory[i];
        if (pthread_mutex_trylock(&m->lock) != 0) continue;
        if (is_ready(m)) return m;
        pthread_mutex_unlock(&m->lock); // no memory for another one: continues without
        return NULL;
    }
    return NULL;
}

void pl_words_give(pl_words_memory *m) {
    if (m) pthread_mutex_unlock(&m->lock);
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

static entry *slot_of(const pl_words_memory *w, const char *word, size_t n) {
    size_t at = (size_t)pl_hash_key(word, n) & (SLOTS - 1);
    while (w->table[at].n && (w->table[at].n != n || memcmp(w->bytes + w->table[at].at, word, n) != 0))
        at = (at + 1) & (SLOTS - 1);
    return &w->table[at];
}

// Clears the memory when it is full: simple, and rare.
static void remember_word(pl_words_memory *w, entry *e, const char *word, size_t n, const int32_t *ids, size_t n_ids) {
    if (n_ids > UINT8_MAX) return;
    if (w->n == MAX_ENTRIES || w->bytes_used + n > MAX_BYTES || w->ids_used + n_ids > MAX_IDS) {
        memset(w->table, 0, SLOTS * sizeof *w->table);
        w->n = w->bytes_used = w->ids_used = 0;
        e = slot_of(w, word, n);
    }
    memcpy(w->bytes + w->bytes_used, word, n);
    if (n_ids > 0) memcpy(w->ids + w->ids_used, ids, n_ids * sizeof *ids); // of none, ids may be NULL
    *e = (entry){(uint32_t)w->bytes_used, (uint32_t)w->ids_used, (uint8_t)n, (uint8_t)n_ids};
    w->bytes_used += n;
    w->ids_used += n_ids;
    w->n++;
}

pl_status pl_words_one(pl_words_memory *w, const char *word, size_t n, pl_word_fn fn, const void *ctx, pl_ids *o,
                       pl_err *err) {
    if (!w || n > MAX_WORD) return fn(ctx, word, n, false, o, err);
    entry *e = slot_of(w, word, n);
    if (!e->n) {
        int64_t before = o->n;
        PL_TRY(fn(ctx, word, n, false, o, err));
        remember_word(w, e, word, n, o->v + before, (size_t)(o->n - before));
        return PL_OK;
    }
    PL_TRY(pl_ids_reserve(o, e->n_ids, err));
    memcpy(o->v + o->n, w->ids + e->ids, e->n_ids * sizeof *o->v);
    o->n += e->n_ids;
    return PL_OK;
}

// Returns the end of the word that begins at `at`: before the next mark that follows another character. A literal
// U+2581 in the text may equal the mark to the vocabulary, so it does not count as another character.
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
    size_t           m = strlen(mark);
    pl_words_memory *memory = w ? pl_words_take(w) : NULL;
    pl_status        st = PL_OK;
    for (size_t at = 0, end; at < n && st == PL_OK; at = end) {
        end = word_end(text, n, at, mark, m, every);
        if (at == 0)
            st = fn(ctx, text, end, true, o, err);
        else
            st = pl_words_one(memory, text + at, end - at, fn, ctx, o, err);
    }
    pl_words_give(memory);
    return st;
}
