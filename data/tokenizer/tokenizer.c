#include "data/tokenizer/tokenizer.h"
#include "data/tokenizer/impl.h"
#include "kernels/base/arena.h"
#include "kernels/base/strbuf.h"
#include "kernels/base/utf8.h"
#include <string.h>

void pl_tokenizer_replace(pl_strbuf *to, const char *from, size_t n, const char *a, size_t na, const char *b,
                          size_t nb) {
    size_t copied = 0, at = 0;
    while (na > 0 && at + na <= n) {
        if (from[at] != a[0] || memcmp(from + at, a, na) != 0) {
            at++;
            continue;
        }
        pl_strbuf_add(to, from + copied, at - copied);
        pl_strbuf_add(to, b, nb);
        at += na;
        copied = at;
    }
    pl_strbuf_add(to, from + copied, n - copied);
}

static int hex_digit(char c) {
    if (c >= '0' && c <= '9') return c - '0';
    if (c >= 'A' && c <= 'F') return c - 'A' + 10;
    if (c >= 'a' && c <= 'f') return c - 'a' + 10;
    return -1;
}

int pl_tokenizer_byte_piece(const char *s, size_t n) {
    if (n != 6 || memcmp(s, "<0x", 3) != 0 || s[5] != '>') return -1;
    int hi = hex_digit(s[3]), lo = hex_digit(s[4]);
    return hi < 0 || lo < 0 ? -1 : hi * 16 + lo;
}

void pl_tokenizer_close(pl_tokenizer *tok) {
    if (!tok) return;
    if (tok->vt && tok->impl) tok->vt->close(tok);
    pl_vocab_fini(&tok->vocab);
    pl_vocab_fini(&tok->surface);
    pl_free(tok->special);
    pl_free(tok);
}

// ---- encode and decode

pl_status pl_tokenizer_encode(const pl_tokenizer *tok, const char *text, size_t n_bytes, unsigned flags, int32_t **ids,
                              int64_t *n, pl_err *err) {
    *ids = NULL;
    *n = 0;
    size_t valid = pl_utf8_valid(text, n_bytes);
    if (valid < n_bytes)
        return pl_fail(err, PL_E_INPUT, "text is not valid UTF-8 at byte %zu (0x%02x); convert it to UTF-8", valid,
                       (unsigned)(uint8_t)text[valid]);
    int32_t *body = NULL;
    int64_t  len = 0;
    bool     bos = (flags & PL_TOK_ADD_BOS) && tok->add_bos;
    PL_TRY(tok->vt->encode(tok, text, n_bytes, flags, &body, &len, err));
    if (bos) {
        int32_t *more = pl_realloc(body, ((size_t)len + 1) * sizeof *more);
        if (!more) {
            pl_free(body);
            return pl_fail(err, PL_E_MEMORY, "text of %zu bytes: out of memory", n_bytes);
        }
        body = more;
        memmove(body + 1, body, (size_t)len * sizeof *body);
        body[0] = tok->bos;
        len++;
    }
    *ids = body;
    *n = len;
    return PL_OK;
}

// Returns the bytes of an id at this position of a text.
static const char *surface_at(pl_detok *d, int32_t id, size_t *len) {
    const char *s = pl_vocab_piece(&d->tok->surface, id, len);
    // The dummy space is in the first visible piece; with remove_extra_whitespaces there may be any number.
    if (*len > 0 && d->strip > 0) {
        size_t drop = 0;
        while (id != d->tok->keep && drop < *len && s[drop] == ' ' && (drop == 0 || d->strip == 2))
            drop++;
        s += drop;
        *len -= drop;
        if (d->strip == 1 || *len > 0) d->strip = 0;
    }
    return s;
}

static pl_status check_ids(const pl_tokenizer *tok, const int32_t *ids, int64_t n, pl_err *err) {
    for (int64_t i = 0; i < n; i++)
        if (ids[i] < 0 || ids[i] >= tok->vocab.n)
            return pl_fail(err, PL_E_INPUT, "token id %d is outside the vocabulary, 0..%d", ids[i], tok->vocab.n - 1);
    return PL_OK;
}

static pl_status hand_over(pl_strbuf *b, int64_t n, char **text, size_t *n_bytes, pl_err *err) {
    size_t len = b->n;
    *text = pl_strbuf_take(b);
    if (!*text) return pl_fail(err, PL_E_MEMORY, "text of %lld tokens: out of memory", (long long)n);
    *n_bytes = len;
    return PL_OK;
}

pl_status pl_tokenizer_decode_bytes(const pl_tokenizer *tok, const int32_t *ids, int64_t n, char **bytes,
                                    size_t *n_bytes, pl_err *err) {
    *bytes = NULL;
    *n_bytes = 0;
    PL_TRY(check_ids(tok, ids, n, err));
    pl_detok  d = {.tok = tok, .strip = tok->strip};
    pl_strbuf b = {0};
    for (int64_t i = 0; i < n; i++) {
        size_t      len;
        const char *s = surface_at(&d, ids[i], &len);
        pl_strbuf_add(&b, s, len);
    }
    return hand_over(&b, n, bytes, n_bytes, err);
}

// Appends a special token as spelled in the file; an unfinished character before it stays unfinished.
static void add_spelling(pl_detok *d, int32_t id, pl_strbuf *b) {
    const char *s;
    size_t      len = pl_detok_flush(d, &s);
    pl_strbuf_add(b, s, len);
    s = pl_vocab_piece(&d->tok->vocab, id, &len);
    pl_strbuf_add(b, s, len);
    if (len > 0) d->strip = 0; // the text has begun
}

static pl_status decode_text(const pl_tokenizer *tok, const int32_t *ids, int64_t n, bool spelt, char **text,
                             size_t *n_bytes, pl_err *err) {
    *text = NULL;
    *n_bytes = 0;
    pl_detok    d;
    pl_strbuf   b = {0};
    const char *s;
    size_t      len;
    PL_TRY(check_ids(tok, ids, n, err));
    PL_TRY(pl_detok_init(&d, tok, true, err));
    for (int64_t i = 0; i < n; i++) {
        if (spelt && pl_tokenizer_is_special(tok, ids[i])) {
            add_spelling(&d, ids[i], &b);
            continue;
        }
        len = pl_detok_push(&d, ids[i], &s);
        pl_strbuf_add(&b, s, len);
    }
    len = pl_detok_flush(&d, &s);
    pl_strbuf_add(&b, s, len);
    pl_detok_fini(&d);
    return hand_over(&b, n, text, n_bytes, err);
}

pl_status pl_tokenizer_decode(const pl_tokenizer *tok, const int32_t *ids, int64_t n, char **text, size_t *n_bytes,
                              pl_err *err) {
    return decode_text(tok, ids, n, false, text, n_bytes, err);
}

pl_status pl_tokenizer_decode_spelt(const pl_tokenizer *tok, const int32_t *ids, int64_t n, char **text,
                                    size_t *n_bytes, pl_err *err) {
    return decode_text(tok, ids, n, true, text, n_bytes, err);
}

pl_status pl_detok_init(pl_detok *d, const pl_tokenizer *tok, bool at_start, pl_err *err) {
    // Every waiting or new byte may become the three bytes of U+FFFD.
    *d = (pl_detok){.tok = tok, .strip = at_start ? tok->strip : 0};
    d->buf = pl_malloc(3 * (tok->max_surface + sizeof d->pending) + 1);
    return d->buf ? PL_OK : pl_fail(err, PL_E_MEMORY, "decoder: out of memory");
}

void pl_detok_fini(pl_detok *d) {
    pl_free(d->buf);
    *d = (pl_detok){0};
}

// Replaces the first pending byte by U+FFFD, for kinds with `maximal` together with the bytes after it that could have
// continued it.
static size_t give_up_byte(pl_detok *d, char *to) {
    int n = 1;
    while (d->tok->maximal && n < d->n_pending && pl_utf8_next((const char *)d->pending, (size_t)n + 1, NULL) == 0)
        n++;
    memcpy(to, PL_UTF8_REPLACEMENT, 3);
    d->n_pending -= n;
    memmove(d->pending, d->pending + n, (size_t)d->n_pending);
    return 3;
}

// Moves whole characters out of pending; a byte that cannot begin one becomes U+FFFD.
static size_t drain(pl_detok *d, char *to) {
    size_t n = 0;
    while (d->n_pending > 0) {
        int len = pl_utf8_next((const char *)d->pending, (size_t)d->n_pending, NULL);
        if (len == 0) break;
        if (len < 0) {
            n += give_up_byte(d, to + n);
            continue;
        }
        memcpy(to + n, d->pending, (size_t)len);
        n += (size_t)len;
        d->n_pending -= len;
        memmove(d->pending, d->pending + len, (size_t)d->n_pending);
    }
    return n;
}

size_t pl_detok_push(pl_detok *d, int32_t id, const char **text) {
    *text = d->buf;
    if (id < 0 || id >= d->tok->surface.n) return 0;
    size_t      len, n = 0;
    const char *s = surface_at(d, id, &len);
    for (size_t i = 0; i < len; i++) {
        d->pending[d->n_pending++] = (uint8_t)s[i];
        n += drain(d, d->buf + n);
    }
    return n;
}

size_t pl_detok_flush(pl_detok *d, const char **text) {
    size_t n = 0;
    *text = d->buf;
    while (d->n_pending > 0) {
        n += give_up_byte(d, d->buf + n);
        n += drain(d, d->buf + n);
    }
    return n;
}

// ---- properties

int32_t pl_tokenizer_vocab_size(const pl_tokenizer *tok) {
    return tok->vocab.n;
}

int32_t pl_tokenizer_bos_id(const pl_tokenizer *tok) {
    return tok->bos;
}

int32_t pl_tokenizer_eos_id(const pl_tokenizer *tok) {
    return tok->eos;
}

bool pl_tokenizer_states_eos(const pl_tokenizer *tok) {
    return tok->states_eos;
}

bool pl_tokenizer_adds_bos(const pl_tokenizer *tok) {
    return tok->add_bos;
}

bool pl_tokenizer_is_special(const pl_tokenizer *tok, int32_t id) {
    return id >= 0 && id < tok->vocab.n && tok->special[id];
}

bool pl_tokenizer_all_special(const pl_tokenizer *tok, const int32_t *ids, int64_t n) {
    for (int64_t i = 0; i < n; i++)
        if (!pl_tokenizer_is_special(tok, ids[i])) return false;
    return true;
}

const char *pl_tokenizer_bytes(const pl_tokenizer *tok, int32_t id, size_t *n) {
    *n = 0;
    return id >= 0 && id < tok->surface.n ? pl_vocab_piece(&tok->surface, id, n) : "";
}

const char *pl_tokenizer_piece(const pl_tokenizer *tok, int32_t id) {
    return pl_vocab_piece(&tok->vocab, id, NULL);
}

int32_t pl_tokenizer_find(const pl_tokenizer *tok, const char *piece) {
    return pl_vocab_find(&tok->vocab, piece, strlen(piece));
}

int64_t pl_tokenizer_shared(const pl_tokenizer *a, const pl_tokenizer *b, pl_err *err) {
    pl_vocab own = {0};
    int64_t  n = 0;
    for (int32_t i = 0; i < b->surface.n; i++) {
        size_t      len;
        const char *s = pl_vocab_piece(&b->surface, i, &len);
        if (len == 0 || b->special[i]) continue;
        if (pl_vocab_set(&own, i, s, len, err) != PL_OK) goto fail;
    }
    if (pl_vocab_index(&own, err) != PL_OK) goto fail;
    for (int32_t i = 0; i < a->surface.n; i++) {
        size_t      len;
        const char *s = pl_vocab_piece(&a->surface, i, &len);
        if (len > 0 && !a->special[i]) n += pl_vocab_find(&own, s, len) >= 0;
    }
    pl_vocab_fini(&own);
    return n;
fail:
    pl_vocab_fini(&own);
    return -1;
}

const char *pl_tokenizer_kind(const pl_tokenizer *tok) {
    return tok->vt->kind;
}

const char *pl_tokenizer_fingerprint(const pl_tokenizer *tok) {
    return tok->fingerprint;
}
