#include "data/tokenizer/tokenizer.h"
#include "data/tokenizer/impl.h"
#include "kernels/base/arena.h"
#include "kernels/base/check.h"
#include "kernels/base/files.h"
#include "kernels/base/hash.h"
#include "kernels/base/json.h"
#include "kernels/base/strbuf.h"
#include "kernels/base/utf8.h"
#include <string.h>

#define MAX_FILE ((size_t)256 << 20)

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

static bool has_suffix(const char *path, const char *suffix) {
    size_t n = strlen(path), m = strlen(suffix);
    return n >= m && strcmp(path + n - m, suffix) == 0;
}

static pl_status open_bytes(pl_tokenizer *tok, const pl_tokenizer_files *f, const char *pre, const pl_json *config,
                            const uint8_t *data, size_t n, pl_err *err) {
    const char *path = f->path;
    size_t      i = 0;
    while (i < n && (data[i] == ' ' || data[i] == '\n' || data[i] == '\r' || data[i] == '\t'))
        i++;
    if (f->merges) return pl_tokenizer_open_pair(tok, path, f->merges, pre, config, data, n, err);
    if (has_suffix(path, ".json") || (i < n && data[i] == '{'))
        return pl_tokenizer_open_hf(tok, path, pre, data, n, err);
    if (has_suffix(path, ".tiktoken") || pl_tokenizer_is_ranks(data, n))
        return pl_tokenizer_open_ranks(tok, path, pre, config, data, n, err);
    if (pre) return pl_fail(err, PL_E_INPUT, "%s: has no pre-tokenizer; leave out the one given (%s)", path, pre);
    // Both binary kinds may begin with 0x0a: as a protobuf tag its length byte follows, as llama2.c's little-endian
    // int32 (longest piece) three zero bytes do.
    if (has_suffix(path, ".bin") || (!has_suffix(path, ".model") && n >= 4 && !data[1] && !data[2] && !data[3]))
        return pl_tokenizer_open_llama2c(tok, path, data, n, err);
    return pl_tokenizer_open_spm(tok, path, data, n, err);
}

// ---- tokenizer_config.json

// A special token in the configuration is a string or an object with "content".
static pl_status config_token(const pl_json *j, const char *key, const pl_tokenizer *tok, int32_t *id, pl_err *err) {
    const cJSON *node = pl_json_find(j, NULL, key);
    const char  *s;
    if (!node) return PL_OK;
    if (cJSON_IsObject(node)) {
        PL_TRY(pl_json_get_str(j, node, "content", &s, err));
    } else {
        PL_TRY(pl_json_str_of(j, node, &s, err));
    }
    int32_t found = pl_vocab_find(&tok->vocab, s, strlen(s));
    if (found < 0) return pl_json_fail(j, node, err, "'%s' is not in the tokenizer's vocabulary", s);
    *id = found;
    return PL_OK;
}

// *j is zeroed where there is none beside the tokenizer's file.
static pl_status open_config(pl_json *j, const char *path, pl_err *err) {
    size_t dir = (size_t)(pl_path_name(path) - path);
    char  *config = pl_sprintf("%.*stokenizer_config.json", (int)dir, path);
    *j = (pl_json){0};
    if (!config) return pl_fail(err, PL_E_MEMORY, "%s: out of memory", path);
    pl_status st = pl_path_exists(config) ? pl_json_open(j, config, MAX_FILE, 0, err) : PL_OK;
    pl_free(config);
    return st;
}

static pl_status read_config(pl_tokenizer *tok, const pl_json *j, pl_err *err) {
    bool add_eos;
    PL_TRY(config_token(j, "bos_token", tok, &tok->bos, err));
    PL_TRY(config_token(j, "eos_token", tok, &tok->eos, err));
    PL_TRY(pl_json_opt_bool(j, NULL, "add_bos_token", tok->add_bos, &tok->add_bos, err));
    PL_TRY(pl_json_opt_bool(j, NULL, "add_eos_token", false, &add_eos, err));
    if (!add_eos) return PL_OK;
    return pl_json_fail(j, pl_json_find(j, NULL, "add_eos_token"), err,
                        "an EOS behind every text is not supported; set it to false");
}

// ---- open and close

pl_status pl_tokenizer_open(pl_tokenizer **out, const char *path, pl_err *err) {
    return pl_tokenizer_open_pre(out, path, NULL, err);
}

pl_status pl_tokenizer_open_pre(pl_tokenizer **out, const char *path, const char *pre, pl_err *err) {
    *out = NULL;
    pl_status          st;
    pl_tokenizer_files f = {0};
    pl_json            config = {0};
    uint8_t           *data = NULL;
    size_t             n = 0;
    pl_tokenizer      *tok = pl_calloc(1, sizeof *tok);
    if (!tok) return pl_fail(err, PL_E_MEMORY, "%s: out of memory", path);
    tok->bos = tok->eos = tok->keep = -1;
    PL_TRY_GOTO(st, done, pl_tokenizer_find_files(&f, path, err));
    PL_TRY_GOTO(st, done, pl_file_read(f.path, &data, &n, MAX_FILE, err));
    if (n == 0) {
        st = pl_fail(err, PL_E_INPUT, "%s: the tokenizer's file is empty", f.path);
        goto done;
    }
    PL_TRY_GOTO(st, done, open_config(&config, f.path, err));
    PL_TRY_GOTO(st, done, open_bytes(tok, &f, pre, config.root ? &config : NULL, data, n, err));
    PL_CHECK(tok->surface.n == tok->vocab.n, "%d surfaces, %d pieces", tok->surface.n, tok->vocab.n);
    if (config.root) PL_TRY_GOTO(st, done, read_config(tok, &config, err));
    if (tok->bos < 0) tok->add_bos = false;
    for (int32_t i = 0; i < tok->surface.n; i++) {
        size_t len;
        pl_vocab_piece(&tok->surface, i, &len);
        if (len > tok->max_surface) tok->max_surface = len;
    }
    pl_hash_hex(tok->fingerprint,
                pl_hash_more(pl_vocab_hash(&tok->vocab, tok->hash), tok->vt->kind, strlen(tok->vt->kind)));
    *out = tok;
done:
    if (st != PL_OK) pl_tokenizer_close(tok);
    pl_free(data);
    pl_json_close(&config);
    pl_tokenizer_files_fini(&f);
    return st;
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

// What an id stands for at this place of a text.
static const char *surface_at(pl_detok *d, int32_t id, size_t *len) {
    const char *s = pl_vocab_piece(&d->tok->surface, id, len);
    // The dummy space stands in the first piece that shows anything; with remove_extra_whitespaces any number may.
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

pl_status pl_tokenizer_decode(const pl_tokenizer *tok, const int32_t *ids, int64_t n, char **text, size_t *n_bytes,
                              pl_err *err) {
    *text = NULL;
    *n_bytes = 0;
    pl_detok    d;
    pl_strbuf   b = {0};
    const char *s;
    size_t      len;
    PL_TRY(check_ids(tok, ids, n, err));
    PL_TRY(pl_detok_init(&d, tok, true, err));
    for (int64_t i = 0; i < n; i++) {
        len = pl_detok_push(&d, ids[i], &s);
        pl_strbuf_add(&b, s, len);
    }
    len = pl_detok_flush(&d, &s);
    pl_strbuf_add(&b, s, len);
    pl_detok_fini(&d);
    return hand_over(&b, n, text, n_bytes, err);
}

pl_status pl_detok_init(pl_detok *d, const pl_tokenizer *tok, bool at_start, pl_err *err) {
    // Every waiting or new byte may turn into the three bytes of U+FFFD.
    *d = (pl_detok){.tok = tok, .strip = at_start ? tok->strip : 0};
    d->buf = pl_malloc(3 * (tok->max_surface + sizeof d->pending) + 1);
    return d->buf ? PL_OK : pl_fail(err, PL_E_MEMORY, "decoder: out of memory");
}

void pl_detok_fini(pl_detok *d) {
    pl_free(d->buf);
    *d = (pl_detok){0};
}

// Takes the first pending byte out as U+FFFD, where that is the custom with the bytes behind it that could have gone
// on.
static size_t give_up_byte(pl_detok *d, char *to) {
    int n = 1;
    while (d->tok->maximal && n < d->n_pending && pl_utf8_next((const char *)d->pending, (size_t)n + 1, NULL) == 0)
        n++;
    memcpy(to, PL_UTF8_REPLACEMENT, 3);
    d->n_pending -= n;
    memmove(d->pending, d->pending + n, (size_t)d->n_pending);
    return 3;
}

// Moves whole characters out of pending; a byte that can start none becomes U+FFFD.
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

bool pl_tokenizer_adds_bos(const pl_tokenizer *tok) {
    return tok->add_bos;
}

bool pl_tokenizer_is_special(const pl_tokenizer *tok, int32_t id) {
    return id >= 0 && id < tok->vocab.n && tok->special[id];
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
