// llama2.c's tokenizer .bin: int32 longest piece, then per piece float score, int32 length, bytes. The number of
// pieces is not stored: the file ends with the last one. Ids are those of a SentencePiece BPE model: 0 unknown, 1 BOS,
// 2 EOS, 3..258 the bytes. A small vocabulary may end before that, or have other pieces there: then a text that needs
// such a byte is refused.
#include "data/tokenizer/impl.h"
#include "data/tokenizer/open.h"
#include "data/tokenizer/words.h"
#include "kernels/base/arena.h"
#include "kernels/base/hash.h"
#include "kernels/base/utf8.h"
#include <math.h>
#include <stdio.h>
#include <string.h>

enum { BOS = 1, EOS = 2, FIRST_BYTE = 3, MIN_PIECES = FIRST_BYTE };

typedef struct llama2c {
    float   *score; // [vocabulary]
    int32_t  space;
    bool     by_words;
    pl_words words;
} llama2c;

static bool find_pair(const void *ctx, int32_t left, int32_t right, double *cost, int32_t *merged) {
    const pl_tokenizer *tok = ctx;
    const llama2c      *l = tok->impl;
    *merged = pl_vocab_find_joined(&tok->vocab, left, right);
    if (*merged < 0 || l->score[*merged] <= -1e10f) return false; // run.c's starting value for the best score
    *cost = -(double)l->score[*merged];                           // the highest score first
    return true;
}

static int32_t byte_id(const pl_tokenizer *tok, uint8_t byte) {
    int32_t id = byte + FIRST_BYTE;
    size_t  n;
    if (id >= tok->vocab.n) return -1;
    const char *s = pl_vocab_piece(&tok->vocab, id, &n);
    return pl_tokenizer_byte_piece(s, n) == byte ? id : -1;
}

static pl_status no_byte(const pl_tokenizer *tok, uint8_t byte, pl_err *err) {
    char shown[8] = "";
    if (byte > ' ' && byte < 0x7f) snprintf(shown, sizeof shown, " ('%c')", byte);
    return pl_fail(err, PL_E_INPUT,
                   "the text has the byte 0x%02x%s, for which none of the %d pieces of this tokenizer stands; leave it "
                   "out of the text",
                   byte, shown, tok->vocab.n);
}

// Encodes characters, or their bytes, then merges.
static pl_status encode_word(const void *ctx, const char *s, size_t n_bytes, bool first, pl_ids *o, pl_err *err) {
    const pl_tokenizer *tok = ctx;
    const llama2c      *l = tok->impl;
    PL_TRY(pl_ids_reserve(o, n_bytes + 1, err));
    int32_t *v = o->v + o->n;
    int64_t  n = 0;
    if (first) v[n++] = l->space; // run.c's dummy prefix
    for (size_t at = 0; at < n_bytes;) {
        size_t  len = (size_t)pl_utf8_next(s + at, n_bytes - at, NULL);
        int32_t id = pl_vocab_find(&tok->vocab, s + at, len);
        if (id >= 0) v[n++] = id;
        for (size_t i = 0; id < 0 && i < len; i++) {
            v[n++] = byte_id(tok, (uint8_t)s[at + i]);
            if (v[n - 1] < 0) return no_byte(tok, (uint8_t)s[at + i], err);
        }
        at += len;
    }
    PL_TRY(pl_bpe_merge(v, &n, find_pair, tok, err));
    o->n += n;
    return PL_OK;
}

static pl_status encode(const pl_tokenizer *tok, const char *text, size_t n_bytes, unsigned flags, int32_t **ids,
                        int64_t *n, pl_err *err) {
    llama2c  *l = tok->impl;
    pl_ids    o = {0};
    pl_status st = pl_ids_reserve(&o, n_bytes / 4, err);
    if (st == PL_OK && l->by_words)
        st = pl_words_encode(flags & PL_TOK_NO_CACHE ? NULL : &l->words, text, n_bytes, " ", false, encode_word, tok,
                             &o, err);
    else if (st == PL_OK && n_bytes > 0)
        st = encode_word(tok, text, n_bytes, true, &o, err);
    if (st != PL_OK) {
        pl_free(o.v);
        return st;
    }
    *ids = o.v;
    *n = o.n;
    return PL_OK;
}

static void close_llama2c(pl_tokenizer *tok) {
    llama2c *l = tok->impl;
    pl_words_fini(&l->words);
    pl_free(l->score);
    pl_free(l);
}

static const pl_tokenizer_vt vt = {"llama2c", encode, close_llama2c};

static int32_t read_i32(const uint8_t *p) {
    uint32_t u = (uint32_t)p[0] | (uint32_t)p[1] << 8 | (uint32_t)p[2] << 16 | (uint32_t)p[3] << 24;
    int32_t  i;
    memcpy(&i, &u, 4);
    return i;
}

static pl_status read_pieces(pl_tokenizer *tok, const char *path, const uint8_t *data, size_t n, pl_err *err) {
    llama2c *l = tok->impl;
    if (n < 4) return pl_fail(err, PL_E_INPUT, "%s: not a llama2.c tokenizer: only %zu bytes", path, n);
    int32_t longest = read_i32(data);
    if (longest < 1 || longest > 4096)
        return pl_fail(err, PL_E_INPUT, "%s: not a llama2.c tokenizer: its longest piece would have %d bytes", path,
                       longest);
    int32_t cap = 0;
    int64_t id = 0;
    for (size_t at = 4; at < n; id++) {
        int32_t len = n - at >= 8 ? read_i32(data + at + 4) : 0;
        if (n - at < 8 || len < 0 || (size_t)len > n - at - 8)
            return pl_fail(err, PL_E_INPUT,
                           "%s: broken llama2.c tokenizer: piece %lld at byte %zu runs past the end of the file", path,
                           (long long)id, at);
        if (len > longest)
            return pl_fail(err, PL_E_INPUT,
                           "%s: broken llama2.c tokenizer: piece %lld has %d bytes, the header says at "
                           "most %d",
                           path, (long long)id, len, longest);
        float score;
        memcpy(&score, data + at, 4);
        if (!isfinite(score))
            return pl_fail(err, PL_E_INPUT, "%s: broken llama2.c tokenizer: the score of piece %lld is not finite",
                           path, (long long)id);
        if (id >= cap) {
            cap = cap ? 2 * cap : 1024;
            float *p = pl_realloc(l->score, (size_t)cap * sizeof *p);
            if (!p) return pl_fail(err, PL_E_MEMORY, "%s: out of memory", path);
            l->score = p;
        }
        pl_status st = pl_vocab_set(&tok->vocab, id, (const char *)data + at + 8, (size_t)len, err);
        if (st != PL_OK) return pl_fail_at(err, st, "%s", path);
        l->score[id] = score;
        at += 8 + (size_t)len;
    }
    if (id < MIN_PIECES)
        return pl_fail(err, PL_E_INPUT,
                       "%s: not a llama2.c tokenizer: %lld pieces, at least %d are needed (unknown, begin, end)", path,
                       (long long)id, MIN_PIECES);
    return PL_OK;
}

static pl_status fill_surfaces(pl_tokenizer *tok, pl_err *err) {
    for (int32_t id = 0; id < tok->vocab.n; id++) {
        size_t      len;
        const char *s = pl_vocab_piece(&tok->vocab, id, &len);
        int         byte = pl_tokenizer_byte_piece(s, len);
        char        c = (char)byte;
        tok->special[id] = id == BOS || id == EOS;
        if (tok->special[id]) len = 0;
        PL_TRY(byte >= 0 ? pl_vocab_set(&tok->surface, id, &c, 1, err) : pl_vocab_set(&tok->surface, id, s, len, err));
    }
    return PL_OK;
}

pl_status pl_tokenizer_open_llama2c(pl_tokenizer *tok, const char *path, const uint8_t *data, size_t n, pl_err *err) {
    llama2c *l = tok->impl = pl_calloc(1, sizeof *l);
    if (!l) return pl_fail(err, PL_E_MEMORY, "%s: out of memory", path);
    tok->vt = &vt;
    PL_TRY(read_pieces(tok, path, data, n, err));
    PL_TRY(pl_vocab_index(&tok->vocab, err));
    l->space = pl_vocab_find(&tok->vocab, " ", 1);
    if (l->space < 0)
        return pl_fail(err, PL_E_INPUT, "%s: broken llama2.c tokenizer: it has no piece for a single space", path);
    tok->special = pl_calloc((size_t)tok->vocab.n, 1);
    if (!tok->special) return pl_fail(err, PL_E_MEMORY, "%s: out of memory", path);
    PL_TRY(fill_surfaces(tok, err));
    PL_TRY(pl_words_init(&l->words, err));
    l->by_words = pl_words_are_apart(&tok->vocab, " ");
    tok->strip = 1;
    tok->bos = BOS;
    tok->eos = EOS;
    tok->add_bos = true;
    tok->hash = pl_hash(l->score, (size_t)tok->vocab.n * sizeof *l->score);
    return PL_OK;
}
