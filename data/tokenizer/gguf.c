// The vocabulary inside a GGUF file (keys tokenizer.ggml.*), opened as its original kind: "llama" as a SentencePiece
// BPE model, "gpt2" as byte-level pieces with merges. So a vocabulary gives the same ids from any kind of file.
#include "checkpoints/gguf.h"
#include "data/tokenizer/hf.h"
#include "data/tokenizer/open.h"
#include "data/tokenizer/pre.h"
#include "data/tokenizer/spm_proto.h"
#include "kernels/base/arena.h"
#include "kernels/base/proto.h"
#include "kernels/base/utf8.h"
#include <limits.h>
#include <string.h>

#define KEY "tokenizer.ggml."

typedef struct source {
    const pl_gguf       *g;
    const char          *path;
    const pl_gguf_value *tokens, *types; // as many; types may be NULL: all are normal
} source;

// ---- values

// Sets NULL if there is no such key and it is not `needed`.
static pl_status find_array(const source *s, const char *key, pl_gguf_type item, bool needed, const pl_gguf_value **v,
                            pl_err *err) {
    *v = pl_gguf_find(s->g, key);
    if (!*v && needed) return pl_fail(err, PL_E_INPUT, "%s: has no %s: there is no vocabulary in it", s->path, key);
    if (*v && ((*v)->type != PL_GGUF_ARRAY || (*v)->item != item))
        return pl_fail(err, PL_E_INPUT, "%s: %s is of another type than llama.cpp's", s->path, key);
    if (*v && item != PL_GGUF_STRING && (*v)->n != s->tokens->n)
        return pl_fail(err, PL_E_INPUT, "%s: %s has %llu entries for %llu tokens", s->path, key,
                       (unsigned long long)(*v)->n, (unsigned long long)s->tokens->n);
    return PL_OK;
}

static uint64_t read_little(const uint8_t *p, int bytes) {
    uint64_t v = 0;
    for (int i = 0; i < bytes; i++)
        v |= (uint64_t)p[i] << (8 * i);
    return v;
}

static int type_of(const source *s, int32_t id) {
    return s->types ? (int)(int32_t)(uint32_t)read_little(s->types->data + 4 * (size_t)id, 4) : PL_SPM_NORMAL;
}

// Sets -1 if there is no such key.
static pl_status token_id(const source *s, const char *key, int32_t *id, pl_err *err) {
    int64_t v;
    *id = -1;
    if (!pl_gguf_int(s->g, key, &v)) return PL_OK;
    if (v < 0 || (uint64_t)v >= s->tokens->n)
        return pl_fail(err, PL_E_INPUT, "%s: %s is %lld, outside the vocabulary", s->path, key, (long long)v);
    *id = (int32_t)v;
    return PL_OK;
}

static bool read_flag(const source *s, const char *key, bool deflt) {
    const pl_gguf_value *v = pl_gguf_find(s->g, key);
    return v && v->type == PL_GGUF_BOOL ? v->data[0] != 0 : deflt;
}

// Reads the keys for begin and end that both kinds share.
static pl_status read_ends(pl_tokenizer *tok, const source *s, bool add_bos, pl_err *err) {
    PL_TRY(token_id(s, KEY "bos_token_id", &tok->bos, err));
    PL_TRY(token_id(s, KEY "eos_token_id", &tok->eos, err));
    tok->add_bos = read_flag(s, KEY "add_bos_token", add_bos);
    if (read_flag(s, KEY "add_eos_token", false))
        return pl_fail(err, PL_E_UNSUPPORTED, "%s: an EOS behind every text (%sadd_eos_token) is not supported",
                       s->path, KEY);
    return PL_OK;
}

// ---- SentencePiece: the ModelProto that the file was made from

// Field numbers of sentencepiece_model.proto, as spm_proto.c reads them.
static pl_status write_proto(pl_strbuf *b, const source *s, pl_err *err) {
    const pl_gguf_value *scores;
    int32_t              unknown;
    bool                 bytes = false;
    const uint8_t       *at = s->tokens->data;
    PL_TRY(find_array(s, KEY "scores", PL_GGUF_F32, true, &scores, err));
    PL_TRY(token_id(s, KEY "unknown_token_id", &unknown, err));
    for (int32_t id = 0; id < (int32_t)s->tokens->n && !b->failed; id++) {
        pl_strbuf   piece = {0};
        size_t      n;
        const char *text = pl_gguf_next_string(&at, &n);
        int         type = type_of(s, id);
        // Converters mark pieces of unknown type as unknown; a model has one such piece, which its key names.
        if (unknown >= 0 && type == PL_SPM_UNKNOWN) type = PL_SPM_UNUSED;
        if (id == unknown) type = PL_SPM_UNKNOWN;
        bytes = bytes || type == PL_SPM_BYTE;
        pl_proto_bytes(&piece, 1, text, n);
        pl_proto_varint(&piece, 2 << 3 | 5);
        pl_strbuf_add(&piece, (const char *)scores->data + 4 * (size_t)id, 4);
        pl_proto_number(&piece, 3, (uint64_t)(uint32_t)type);
        pl_proto_message(b, 1, &piece);
        pl_strbuf_fini(&piece);
    }
    pl_strbuf part = {0};
    pl_proto_number(&part, 3, 2); // model_type BPE
    pl_proto_number(&part, 35, bytes);
    pl_proto_message(b, 2, &part);
    pl_proto_number(&part, 3, read_flag(s, KEY "add_space_prefix", true));
    pl_proto_number(&part, 4, read_flag(s, KEY "remove_extra_whitespaces", false));
    pl_proto_message(b, 3, &part);
    pl_strbuf_fini(&part);
    return b->failed ? pl_fail(err, PL_E_MEMORY, "%s: out of memory", s->path) : PL_OK;
}

static pl_status open_llama(pl_tokenizer *tok, const source *s, const char *pre, pl_err *err) {
    pl_strbuf proto = {0};
    if (pre) return pl_fail(err, PL_E_INPUT, "%s: has no pre-tokenizer; leave out the one given (%s)", s->path, pre);
    pl_status st = write_proto(&proto, s, err);
    if (st == PL_OK) st = pl_tokenizer_open_spm(tok, s->path, (const uint8_t *)proto.s, proto.n, err);
    if (st == PL_OK) st = read_ends(tok, s, true, err);
    pl_strbuf_fini(&proto);
    return st;
}

// ---- byte-level pieces with merges

static pl_status read_pieces(pl_tokenizer *tok, const source *s, pl_err *err) {
    pl_hf         *h = tok->impl;
    const uint8_t *at = s->tokens->data;
    for (int32_t id = 0; id < (int32_t)s->tokens->n; id++) {
        size_t      n;
        const char *text = pl_gguf_next_string(&at, &n);
        pl_status   st = PL_OK;
        int         type = type_of(s, id);
        if (n == 0 || n > INT_MAX || pl_utf8_valid(text, n) != n || memchr(text, 0, n))
            return pl_fail(err, PL_E_INPUT, "%s: token %d is empty or no text", s->path, id);
        if (type == PL_SPM_UNUSED) continue; // a row of the matrix without a piece
        if (type == PL_SPM_NORMAL) st = pl_vocab_set(&h->model, id, text, n, err);
        if (st == PL_OK && type == PL_SPM_NORMAL) st = pl_vocab_set(&tok->vocab, id, text, n, err);
        if (st != PL_OK) return pl_fail_at(err, st, "%s", s->path);
    }
    if (h->model.n == 0) return pl_fail(err, PL_E_INPUT, "%s: no pieces", s->path);
    return pl_vocab_index(&h->model, err);
}

static pl_status read_merges(pl_hf *h, const source *s, pl_err *err) {
    const pl_gguf_value *merges;
    PL_TRY(find_array(s, KEY "merges", PL_GGUF_STRING, true, &merges, err));
    if (merges->n > INT_MAX / 2) return pl_fail(err, PL_E_INPUT, "%s: too many merges", s->path);
    PL_TRY(pl_hf_merges_reserve(h, (size_t)merges->n, err));
    const uint8_t *at = merges->data;
    for (int32_t rank = 0; rank < (int32_t)merges->n; rank++) {
        size_t      n;
        const char *text = pl_gguf_next_string(&at, &n);
        pl_status   st = pl_hf_merge_line(h, text, n, rank, err);
        if (st != PL_OK) return pl_fail_at(err, st, "%s: merge %d", s->path, rank);
    }
    return PL_OK;
}

// Control tokens are special; user-defined tokens are text that is never cut.
static pl_status read_added(pl_tokenizer *tok, const source *s, pl_err *err) {
    const uint8_t *at = s->tokens->data;
    PL_TRY(pl_hf_added_reserve(tok->impl, (size_t)s->tokens->n, err));
    for (int32_t id = 0; id < (int32_t)s->tokens->n; id++) {
        size_t      n;
        const char *text = pl_gguf_next_string(&at, &n);
        int         type = type_of(s, id);
        if (type == PL_SPM_NORMAL || type == PL_SPM_UNUSED) continue;
        if (type != PL_SPM_CONTROL && type != PL_SPM_USER_DEFINED)
            return pl_fail(err, PL_E_UNSUPPORTED, "%s: token %d is of type %d, which no byte-level vocabulary has",
                           s->path, id, type);
        char     *name = pl_sprintf("%.*s", (int)n, text);
        pl_status st =
            name ? pl_hf_added_add(tok, id, name, strlen(name), &(pl_hf_added){.special = type == PL_SPM_CONTROL}, err)
                 : pl_fail(err, PL_E_MEMORY, "out of memory");
        pl_free(name);
        if (st != PL_OK) return pl_fail_at(err, st, "%s", s->path);
    }
    return PL_OK;
}

static pl_status open_gpt2(pl_tokenizer *tok, const source *s, const char *pre, pl_err *err) {
    char own[64] = "default";
    bool named = pl_gguf_text(s->g, KEY "pre", own, sizeof own) && strcmp(own, "default") != 0;
    if (named && pre)
        return pl_fail(err, PL_E_INPUT, "%s: names its own pre-tokenizer; leave out the one given (%s)", s->path, pre);
    if (named && !pl_pre_row_of(own))
        return pl_fail(err, PL_E_UNSUPPORTED,
                       "%s: the pre-tokenizer '%s' (%spre) is not supported; known are those of llama.cpp", s->path,
                       own, KEY);
    if (named) pre = own;
    PL_TRY(pl_hf_begin_pieces(tok, s->path, err));
    pl_hf *h = tok->impl;
    PL_TRY(read_pieces(tok, s, err));
    PL_TRY(pl_hf_index_bytes(h, s->path, err));
    PL_TRY(read_merges(h, s, err));
    PL_TRY(pl_pre_choose(tok, s->path, pre, err));
    const pl_pre_row *row = pl_pre_row_of(h->pre);
    h->ignore_merges = row->ignore_merges;
    PL_TRY(read_added(tok, s, err));
    PL_TRY(read_ends(tok, s, row->add_bos, err));
    return pl_hf_finish(tok, s->path, err);
}

// ---- opening

static pl_status open_source(pl_tokenizer *tok, source *s, const char *pre, pl_err *err) {
    char model[32] = "";
    PL_TRY(find_array(s, KEY "tokens", PL_GGUF_STRING, true, &s->tokens, err));
    PL_TRY(find_array(s, KEY "token_type", PL_GGUF_I32, false, &s->types, err));
    if (s->tokens->n == 0 || s->tokens->n > PL_VOCAB_MAX)
        return pl_fail(err, PL_E_INPUT, "%s: a vocabulary of %llu tokens", s->path, (unsigned long long)s->tokens->n);
    pl_gguf_text(s->g, KEY "model", model, sizeof model);
    if (strcmp(model, "llama") == 0) return open_llama(tok, s, pre, err);
    if (strcmp(model, "gpt2") == 0) return open_gpt2(tok, s, pre, err);
    return pl_fail(err, PL_E_UNSUPPORTED,
                   "%s: a vocabulary of the kind '%s' is not supported; known are llama and gpt2", s->path, model);
}

pl_status pl_tokenizer_open_gguf(pl_tokenizer *tok, const char *path, const char *pre, pl_err *err) {
    pl_gguf *g;
    PL_TRY(pl_gguf_open(&g, path, err));
    source    s = {.g = g, .path = path};
    pl_status st = open_source(tok, &s, pre, err);
    pl_gguf_close(g);
    return st;
}

// Copies only the vocabulary of a file of gigabytes.
pl_status pl_tokenizer_copy_gguf(const char *from, const char *to, pl_err *err) {
    pl_gguf *g;
    char     arch[64];
    PL_TRY(pl_gguf_open(&g, from, err));
    pl_gguf_out *o = pl_gguf_out_new();
    pl_status    st = o ? PL_OK : pl_fail(err, PL_E_MEMORY, "%s: out of memory", from);
    if (o && pl_gguf_text(g, "general.architecture", arch, sizeof arch))
        pl_gguf_put_text(o, "general.architecture", arch);
    for (int64_t i = 0; o && i < pl_gguf_values(g); i++) {
        const pl_gguf_value *v = pl_gguf_value_at(g, i);
        if (v->n_key > 10 && memcmp(v->key, "tokenizer.", 10) == 0) pl_gguf_put_value(o, v);
    }
    if (st == PL_OK) st = pl_gguf_write(o, to, err);
    pl_gguf_out_free(o);
    pl_gguf_close(g);
    return st;
}
