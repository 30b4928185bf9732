#include "data/tokenizer/vocab.h"
#include "kernels/base/arena.h"
#include "kernels/base/check.h"
#include "kernels/base/hash.h"
#include <string.h>

void pl_vocab_fini(pl_vocab *v) {
    pl_free(v->bytes);
    pl_free(v->off);
    pl_free(v->len);
    pl_free(v->table);
    *v = (pl_vocab){0};
}

static pl_status grow_ids(pl_vocab *v, int32_t need, pl_err *err) {
    if (need <= v->cap_n) return PL_OK;
    int32_t cap = v->cap_n ? v->cap_n : 256;
    while (cap < need)
        cap *= 2;
    size_t *off = pl_realloc(v->off, (size_t)cap * sizeof *off);
    if (!off) return pl_fail(err, PL_E_MEMORY, "vocabulary of %d pieces: out of memory", cap);
    v->off = off;
    int32_t *len = pl_realloc(v->len, (size_t)cap * sizeof *len);
    if (!len) return pl_fail(err, PL_E_MEMORY, "vocabulary of %d pieces: out of memory", cap);
    v->len = len;
    v->cap_n = cap;
    return PL_OK;
}

pl_status pl_vocab_set(pl_vocab *v, int64_t id, const char *s, size_t len, pl_err *err) {
    PL_CHECK(!v->table, "piece %lld set after index", (long long)id);
    if (id < 0 || id >= PL_VOCAB_MAX)
        return pl_fail(err, PL_E_INPUT, "token id %lld is outside 0..%d", (long long)id, PL_VOCAB_MAX - 1);
    if (len > (1u << 24)) return pl_fail(err, PL_E_INPUT, "piece %lld is %zu bytes long", (long long)id, len);
    if (id < v->n && v->len[id] >= 0) return pl_fail(err, PL_E_INPUT, "token id %lld is given twice", (long long)id);
    PL_TRY(grow_ids(v, (int32_t)id + 1, err));
    if (v->cap - v->used < len + 1) {
        size_t cap = v->cap ? v->cap : 4096;
        while (cap - v->used < len + 1)
            cap *= 2;
        char *bytes = pl_realloc(v->bytes, cap);
        if (!bytes) return pl_fail(err, PL_E_MEMORY, "vocabulary of %zu bytes: out of memory", cap);
        v->bytes = bytes;
        v->cap = cap;
    }
    for (; v->n <= (int32_t)id; v->n++)
        v->len[v->n] = -1;
    v->off[id] = v->used;
    v->len[id] = (int32_t)len;
    if (len) memcpy(v->bytes + v->used, s, len);
    v->bytes[v->used + len] = 0;
    v->used += len + 1;
    return PL_OK;
}

pl_status pl_vocab_index(pl_vocab *v, pl_err *err) {
    size_t size = 16;
    while (size < 2 * (size_t)v->n)
        size *= 2;
    int32_t *table = pl_malloc(size * sizeof *table);
    if (!table) return pl_fail(err, PL_E_MEMORY, "vocabulary of %d pieces: out of memory", v->n);
    for (size_t i = 0; i < size; i++)
        table[i] = -1;
    v->table = table;
    v->mask = size - 1;
    for (int32_t id = 0; id < v->n; id++) {
        if (v->len[id] < 0) continue;
        const char *s = v->bytes + v->off[id];
        size_t      n = (size_t)v->len[id];
        if (pl_vocab_find(v, s, n) >= 0) continue;
        size_t at = (size_t)pl_hash_key(s, n) & v->mask;
        while (table[at] >= 0)
            at = (at + 1) & v->mask;
        table[at] = id;
    }
    return PL_OK;
}

int32_t pl_vocab_find(const pl_vocab *v, const char *s, size_t len) {
    PL_CHECK(v->table, "vocabulary of %d pieces is not indexed", v->n);
    for (size_t at = (size_t)pl_hash_key(s, len) & v->mask; v->table[at] >= 0; at = (at + 1) & v->mask) {
        int32_t id = v->table[at];
        if ((size_t)v->len[id] == len && memcmp(v->bytes + v->off[id], s, len) == 0) return id;
    }
    return -1;
}

void pl_vocab_point(pl_vocab *v, int32_t id) {
    const char *s = v->bytes + v->off[id];
    size_t      n = (size_t)v->len[id];
    int32_t     found = pl_vocab_find(v, s, n);
    PL_CHECK(found >= 0, "piece %d is not in the index", id);
    size_t at = (size_t)pl_hash_key(s, n) & v->mask;
    while (v->table[at] != found)
        at = (at + 1) & v->mask;
    v->table[at] = id;
}

int32_t pl_vocab_find_joined(const pl_vocab *v, int32_t a, int32_t b) {
    size_t      na, nb;
    const char *sa = pl_vocab_piece(v, a, &na), *sb = pl_vocab_piece(v, b, &nb);
    uint64_t    h = pl_hash_keys(sa, na, sb, nb);
    for (size_t at = (size_t)h & v->mask; v->table[at] >= 0; at = (at + 1) & v->mask) {
        int32_t     id = v->table[at];
        const char *s = v->bytes + v->off[id];
        if ((size_t)v->len[id] == na + nb && memcmp(s, sa, na) == 0 && memcmp(s + na, sb, nb) == 0) return id;
    }
    return -1;
}

const char *pl_vocab_piece(const pl_vocab *v, int32_t id, size_t *len) {
    PL_CHECK(id >= 0 && id < v->n, "id %d of %d", id, v->n);
    bool hole = v->len[id] < 0;
    if (len) *len = hole ? 0 : (size_t)v->len[id];
    return hole ? "" : v->bytes + v->off[id];
}

uint64_t pl_vocab_hash(const pl_vocab *v, uint64_t h) {
    h = pl_hash_more(h, &v->n, sizeof v->n);
    for (int32_t id = 0; id < v->n; id++) {
        h = pl_hash_more(h, &v->len[id], sizeof v->len[id]);
        if (v->len[id] > 0) h = pl_hash_more(h, v->bytes + v->off[id], (size_t)v->len[id]);
    }
    return h;
}
