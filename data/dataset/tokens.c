#include "data/dataset/tokens.h"
#include "kernels/base/arena.h"
#include "kernels/base/check.h"
#include "kernels/base/files.h"
#include "kernels/base/hash.h"
#include "kernels/base/rng.h"
#include <string.h>

#define MAGIC "PLTOKENS"
enum { HEADER = 128, VERSION = 1, AT_HASH = 120 };

typedef struct header {
    char     magic[8];
    uint32_t version, id_bytes;
    char     fingerprint[16];
    int64_t  n, n_docs;
    int32_t  vocab_size, zero;
    uint64_t payload_hash;
    uint8_t  zeroes[AT_HASH - 64];
    uint64_t hash; // of the AT_HASH bytes before it
} header;
_Static_assert(sizeof(header) == HEADER, "the header is its own file format");
_Static_assert(__BYTE_ORDER__ == __ORDER_LITTLE_ENDIAN__, "the file is little-endian and mapped as it is");

// ---- writing

typedef struct buffer {
    uint8_t *p;
    size_t   n, cap;
} buffer;

static pl_status add(buffer *b, const void *data, size_t n, const char *path, pl_err *err) {
    if (n > b->cap - b->n) {
        size_t   cap = 2 * b->cap + n + 65536;
        uint8_t *p = pl_realloc(b->p, cap);
        if (!p) return pl_fail(err, PL_E_MEMORY, "%s: out of memory for %zu bytes of tokens", path, cap);
        b->p = p;
        b->cap = cap;
    }
    if (n) memcpy(b->p + b->n, data, n);
    b->n += n;
    return PL_OK;
}

static pl_status add_ids(buffer *b, const int32_t *ids, int64_t n, int id_bytes, const char *path, pl_err *err) {
    if (id_bytes == 4) return add(b, ids, (size_t)n * 4, path, err);
    uint16_t narrow[1024];
    for (int64_t at = 0; at < n;) {
        int64_t m = n - at < 1024 ? n - at : 1024;
        for (int64_t i = 0; i < m; i++)
            narrow[i] = (uint16_t)ids[at + i];
        PL_TRY(add(b, narrow, (size_t)m * 2, path, err));
        at += m;
    }
    return PL_OK;
}

static pl_status write_file(const char *path, header *h, const buffer *offsets, const buffer *ids, pl_err *err) {
    pl_atomic_file a;
    h->payload_hash = pl_hash_more(pl_hash(offsets->p, offsets->n), ids->p, ids->n);
    h->hash = pl_hash(h, AT_HASH);
    PL_TRY(pl_atomic_file_begin(&a, path, err));
    pl_status st = pl_atomic_file_append(&a, h, sizeof *h, err);
    if (st == PL_OK) st = pl_atomic_file_append(&a, offsets->p, offsets->n, err);
    if (st == PL_OK) st = pl_atomic_file_append(&a, ids->p, ids->n, err);
    if (st == PL_OK) return pl_atomic_file_commit(&a, err);
    pl_atomic_file_abort(&a);
    return st;
}

bool pl_tokens_is(const char *front, size_t n) {
    return n >= sizeof MAGIC - 1 && memcmp(front, MAGIC, sizeof MAGIC - 1) == 0;
}

pl_status pl_tokens_write(const char *path, const pl_corpus *texts, const pl_tokenizer *tok, bool add_eos,
                          pl_err *err) {
    int32_t   vocab = pl_tokenizer_vocab_size(tok), eos = pl_tokenizer_eos_id(tok);
    buffer    offsets = {0}, ids = {0};
    header    h = {.magic = MAGIC, .version = VERSION, .vocab_size = vocab, .n_docs = texts->n};
    pl_status st;
    if (add_eos && eos < 0)
        return pl_fail(err, PL_E_INPUT, "%s: the tokenizer has no EOS to put behind documents; do without", path);
    h.id_bytes = vocab <= 65536 ? 2 : 4;
    memcpy(h.fingerprint, pl_tokenizer_fingerprint(tok), sizeof h.fingerprint);
    PL_TRY_GOTO(st, done, add(&offsets, &h.n, sizeof h.n, path, err));
    for (int64_t i = 0; i < texts->n; i++) {
        const pl_document *d = &texts->docs[i];
        int32_t           *doc;
        int64_t            n;
        st = pl_tokenizer_encode(tok, d->text, d->bytes, PL_TOK_ADD_BOS | PL_TOK_NO_SPECIAL, &doc, &n, err);
        if (st != PL_OK) {
            pl_fail_at(err, st, "%s", d->name);
            goto done;
        }
        st = add_ids(&ids, doc, n, (int)h.id_bytes, path, err);
        pl_free(doc);
        if (st == PL_OK && add_eos) st = add_ids(&ids, &eos, 1, (int)h.id_bytes, path, err);
        if (st != PL_OK) goto done;
        h.n += n + add_eos;
        PL_TRY_GOTO(st, done, add(&offsets, &h.n, sizeof h.n, path, err));
    }
    st = write_file(path, &h, &offsets, &ids, err);
done:
    pl_free(offsets.p);
    pl_free(ids.p);
    return st;
}

// ---- reading

static pl_status broken(const char *path, pl_err *err, const char *why) {
    return pl_fail(err, PL_E_INPUT, "%s: broken token file: %s; tokenise the text again", path, why);
}

static pl_status check(const pl_tokens *t, const header *h, const char *path, pl_err *err) {
    const uint8_t *payload = (const uint8_t *)t->doc_offsets;
    size_t         offset_bytes = ((size_t)t->n_docs + 1) * 8;
    uint64_t       hash = pl_hash_more(pl_hash(payload, offset_bytes), t->ids, (size_t)t->n * (size_t)t->id_bytes);
    if (hash != h->payload_hash) return broken(path, err, "its contents do not match their checksum");
    if (t->doc_offsets[0] != 0 || t->doc_offsets[t->n_docs] != t->n)
        return broken(path, err, "its documents do not cover the tokens");
    for (int64_t i = 0; i < t->n_docs; i++)
        if (t->doc_offsets[i] > t->doc_offsets[i + 1]) return broken(path, err, "its documents are out of order");
    const uint16_t *narrow = t->ids;
    const int32_t  *wide = t->ids;
    for (int64_t i = 0; i < t->n; i++) {
        int32_t id = t->id_bytes == 2 ? narrow[i] : wide[i];
        if (id < 0 || id >= t->vocab_size) return broken(path, err, "a token is outside the vocabulary");
    }
    return PL_OK;
}

static pl_status read_header(pl_tokens *t, const char *path, const char *fingerprint, pl_err *err) {
    header h;
    if (t->map_bytes < HEADER || !pl_tokens_is(t->map, t->map_bytes))
        return pl_fail(err, PL_E_INPUT, "%s: not a token file", path);
    memcpy(&h, t->map, sizeof h);
    if (h.version != VERSION)
        return pl_fail(err, PL_E_INPUT,
                       "%s: a token file of version %u, this program reads %d; tokenise the text again", path,
                       h.version, VERSION);
    if (h.hash != pl_hash(&h, AT_HASH)) return broken(path, err, "its header does not match its checksum");
    uint64_t left = t->map_bytes - HEADER;
    bool     ok = (h.id_bytes == 2 || h.id_bytes == 4) && h.n >= 0 && h.n_docs >= 0 && h.vocab_size > 0 &&
              (uint64_t)h.n_docs < left / 8 && (uint64_t)h.n <= left / h.id_bytes &&
              left == ((uint64_t)h.n_docs + 1) * 8 + (uint64_t)h.n * h.id_bytes;
    if (!ok) return broken(path, err, "its size does not match its header");
    t->n = h.n;
    t->n_docs = h.n_docs;
    t->vocab_size = h.vocab_size;
    t->id_bytes = (int)h.id_bytes;
    memcpy(t->fingerprint, h.fingerprint, sizeof h.fingerprint);
    t->doc_offsets = (const int64_t *)((const uint8_t *)t->map + HEADER);
    t->ids = t->doc_offsets + t->n_docs + 1;
    if (fingerprint && strcmp(fingerprint, t->fingerprint) != 0)
        return pl_fail(err, PL_E_INPUT, "%s: made with tokenizer %s, this one is %s; tokenise the text again", path,
                       t->fingerprint, fingerprint);
    return check(t, &h, path, err);
}

pl_status pl_tokens_open(pl_tokens **out, const char *path, const char *fingerprint, pl_err *err) {
    *out = NULL;
    pl_map     m = {0};
    pl_tokens *t = pl_calloc(1, sizeof *t);
    if (!t) return pl_fail(err, PL_E_MEMORY, "%s: out of memory", path);
    pl_status st = pl_map_open(&m, path, err);
    t->map = m.data;
    t->map_bytes = m.size;
    if (st == PL_OK) st = read_header(t, path, fingerprint, err);
    if (st != PL_OK) {
        pl_tokens_close(t);
        return st;
    }
    *out = t;
    return PL_OK;
}

void pl_tokens_close(pl_tokens *t) {
    if (!t) return;
    pl_map_close(&(pl_map){t->map, t->map_bytes});
    pl_free(t);
}

void pl_tokens_copy(const pl_tokens *t, int64_t start, int64_t n, int32_t *ids) {
    PL_CHECK(start >= 0 && n >= 0 && start <= t->n && n <= t->n - start, "[%lld, +%lld) of %lld", (long long)start,
             (long long)n, (long long)t->n);
    if (t->id_bytes == 4) {
        memcpy(ids, (const int32_t *)t->ids + start, (size_t)n * 4);
        return;
    }
    const uint16_t *from = (const uint16_t *)t->ids + start;
    for (int64_t i = 0; i < n; i++)
        ids[i] = from[i];
}

// ---- windows

int64_t pl_tokens_windows(const pl_tokens *t, int64_t T) {
    PL_CHECK(T > 0, "T %lld", (long long)T);
    int64_t whole = t->n > 0 ? (t->n - 1) / T : 0;
    // One window less leaves room to shift all of them by 0..T-1.
    return whole > 1 ? whole - 1 : whole;
}

// The image of i under a permutation of [0, n) without a table: a Feistel network on the next even number of bits,
// walked until it falls inside again (at most 4 times on average).
static uint64_t permute(pl_rng rng, uint64_t i, uint64_t n) {
    int half = 1;
    while (half < 32 && (uint64_t)1 << (2 * half) < n)
        half++;
    uint64_t mask = ((uint64_t)1 << half) - 1;
    do {
        uint64_t left = i >> half, right = i & mask;
        for (uint64_t round = 0; round < 6; round++) {
            uint64_t next = left ^ (pl_rng_u64(rng, round << 32 | right) & mask);
            left = right;
            right = next;
        }
        i = left << half | right;
    } while (i >= n);
    return i;
}

// The document that holds token `at`: the last one that starts there or before (empty documents hold none).
static int64_t document_of(const pl_tokens *t, int64_t at) {
    int64_t lo = 0, hi = t->n_docs;
    while (hi - lo > 1) {
        int64_t mid = lo + (hi - lo) / 2;
        if (t->doc_offsets[mid] <= at)
            lo = mid;
        else
            hi = mid;
    }
    return lo;
}

pl_token_window pl_tokens_window(const pl_tokens *t, int64_t T, uint64_t seed, int64_t position, int32_t *ids,
                                 int32_t *doc) {
    int64_t count = pl_tokens_windows(t, T);
    PL_CHECK(count > 0 && position >= 0, "position %lld of %lld windows", (long long)position, (long long)count);
    pl_token_window w = {.epoch = position / count};
    pl_rng          rng = pl_rng_make(seed, PL_STREAM_SHUFFLE, (uint64_t)w.epoch);
    int64_t         room = (t->n - 1) - count * T; // 0 only for a file of a single window
    int64_t         shift = (int64_t)pl_rng_below(rng, UINT64_MAX, (uint64_t)(room < T ? room + 1 : T));
    w.start = shift + T * (int64_t)permute(rng, (uint64_t)(position % count), (uint64_t)count);
    pl_tokens_copy(t, w.start, T + 1, ids);
    if (!doc) return w;
    int64_t d = document_of(t, w.start);
    int32_t k = 0;
    for (int64_t i = 0; i <= T; i++) {
        bool next = false;
        while (t->doc_offsets[d + 1] <= w.start + i) {
            d++;
            next = true;
        }
        k += next;
        doc[i] = k;
    }
    return w;
}
