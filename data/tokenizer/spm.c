// SentencePiece .model files. The library encodes; decoding is our own, so that streaming and whole texts agree.
#include "data/tokenizer/open.h"
#include "data/tokenizer/spm_proto.h"
#include "data/tokenizer/spm_shim.h"
#include "data/tokenizer/words.h"
#include "kernels/base/arena.h"
#include "kernels/base/hash.h"
#include "kernels/base/strbuf.h"

typedef struct spm {
    pl_spm  *lib;
    bool     by_words;
    pl_words words;
} spm;

// The library adds its dummy space before every text: it replaces the space that a later word begins with.
static pl_status encode_word(const void *ctx, const char *s, size_t n_bytes, bool first, pl_ids *o, pl_err *err) {
    const spm *p = ctx;
    char       msg[256];
    int32_t   *ids;
    int64_t    n;
    pl_status  st = pl_spm_encode(p->lib, first ? s : s + 1, first ? n_bytes : n_bytes - 1, &ids, &n, msg, sizeof msg);
    if (st != PL_OK) return pl_fail(err, st, "text of %zu bytes: SentencePiece: %s", n_bytes, msg);
    st = pl_ids_reserve(o, (size_t)n, err);
    if (st == PL_OK && n) memcpy(o->v + o->n, ids, (size_t)n * sizeof *ids);
    if (st == PL_OK) o->n += n;
    pl_free(ids);
    return st;
}

static pl_status encode(const pl_tokenizer *tok, const char *text, size_t n_bytes, unsigned flags, int32_t **ids,
                        int64_t *n, pl_err *err) {
    spm      *p = tok->impl;
    pl_ids    o = {0};
    pl_status st = pl_ids_reserve(&o, n_bytes / 4, err);
    if (st == PL_OK && p->by_words && !(flags & PL_TOK_NO_CACHE))
        st = pl_words_encode(&p->words, text, n_bytes, " ", false, encode_word, p, &o, err);
    else if (st == PL_OK)
        st = encode_word(p, text, n_bytes, true, &o, err);
    if (st != PL_OK) {
        pl_free(o.v);
        return st;
    }
    *ids = o.v;
    *n = o.n;
    return PL_OK;
}

static void close_spm(pl_tokenizer *tok) {
    spm *p = tok->impl;
    pl_spm_close(p->lib);
    pl_words_fini(&p->words);
    pl_free(p);
}

static const pl_tokenizer_vt vt = {"sentencepiece", encode, close_spm};

static pl_status set_surface(pl_tokenizer *tok, int32_t id, const pl_spm_piece *q, const pl_spm_proto *p, pl_err *err) {
    const char *s = (const char *)q->s.p;
    if (q->type == PL_SPM_CONTROL) {
        tok->special[id] = 1;
        return pl_vocab_set(&tok->surface, id, "", 0, err);
    }
    if (q->type == PL_SPM_UNKNOWN) {
        tok->keep = id;
        return pl_vocab_set(&tok->surface, id, (const char *)p->unk_surface.p, p->unk_surface.n, err);
    }
    if (q->type == PL_SPM_BYTE) {
        char c = (char)pl_tokenizer_byte_piece(s, q->s.n);
        return pl_vocab_set(&tok->surface, id, &c, 1, err);
    }
    pl_strbuf b = {0};
    pl_tokenizer_replace(&b, s, q->s.n, PL_SPACE_MARK, 3, " ", 1);
    pl_status st = b.failed ? pl_fail(err, PL_E_MEMORY, "piece %d: out of memory", id)
                            : pl_vocab_set(&tok->surface, id, b.s, b.n, err);
    pl_strbuf_fini(&b);
    return st;
}

static int32_t control_id(const pl_tokenizer *tok, pl_spm_bytes piece) {
    int32_t id = pl_vocab_find(&tok->vocab, (const char *)piece.p, piece.n);
    return id >= 0 && tok->special[id] ? id : -1;
}

static pl_status fill_pieces(pl_tokenizer *tok, const char *path, const pl_spm_proto *p, pl_err *err) {
    tok->special = pl_calloc((size_t)p->n, 1);
    if (!tok->special) return pl_fail(err, PL_E_MEMORY, "%s: out of memory", path);
    uint64_t h = pl_hash(p->charsmap.p, p->charsmap.n);
    for (int32_t i = 0; i < p->n; i++) {
        const pl_spm_piece *q = &p->pieces[i];
        int32_t             type = (int32_t)q->type;
        PL_TRY(pl_vocab_set(&tok->vocab, i, (const char *)q->s.p, q->s.n, err));
        PL_TRY(set_surface(tok, i, q, p, err));
        h = pl_hash_more(h, &q->score, sizeof q->score);
        h = pl_hash_more(h, &type, sizeof type);
    }
    int32_t settings[] = {p->model_type, p->byte_fallback, p->add_dummy_prefix, p->remove_extra_whitespaces};
    tok->hash = pl_hash_more(h, settings, sizeof settings);
    PL_TRY(pl_vocab_index(&tok->vocab, err));
    tok->strip = p->remove_extra_whitespaces ? 2 : p->add_dummy_prefix;
    tok->bos = control_id(tok, p->bos_piece);
    tok->eos = control_id(tok, p->eos_piece);
    tok->add_bos = true;
    return PL_OK;
}

static pl_status open_library(pl_tokenizer *tok, const char *path, const pl_spm_proto *p, const uint8_t *data, size_t n,
                              pl_err *err) {
    char msg[256];
    spm *s = tok->impl = pl_calloc(1, sizeof *s);
    if (!s) return pl_fail(err, PL_E_MEMORY, "%s: out of memory", path);
    tok->vt = &vt;
    PL_TRY(pl_words_init(&s->words, err));
    pl_status st = pl_spm_open(&s->lib, data, n, msg, sizeof msg);
    if (st == PL_E_MEMORY) return pl_fail(err, st, "%s: SentencePiece: %s", path, msg);
    if (st != PL_OK) return pl_fail(err, st, "%s: broken SentencePiece model: %s; copy the file again", path, msg);
    if (pl_spm_vocab_size(s->lib) != p->n)
        return pl_fail(err, PL_E_INPUT, "%s: broken SentencePiece model: the library reads %d pieces of %d", path,
                       pl_spm_vocab_size(s->lib), p->n);
    // Only if a word's pieces cannot depend on its surroundings: unknown characters fuse across an unknown mark.
    // Unigram models are excluded: their sums of scores could round differently, and they are fast.
    s->by_words = p->model_type == 2 && p->charsmap.n == 0 && p->add_dummy_prefix && !p->remove_extra_whitespaces &&
                  pl_vocab_find(&tok->vocab, PL_SPACE_MARK, 3) >= 0 && pl_words_are_apart(&tok->vocab, PL_SPACE_MARK) &&
                  pl_words_are_apart(&tok->vocab, " ");
    return PL_OK;
}

pl_status pl_tokenizer_open_spm(pl_tokenizer *tok, const char *path, const uint8_t *data, size_t n, pl_err *err) {
    pl_spm_proto p;
    PL_TRY(pl_spm_proto_read(&p, path, data, n, err));
    pl_status st = fill_pieces(tok, path, &p, err);
    if (st == PL_OK) st = open_library(tok, path, &p, data, n, err);
    pl_spm_proto_fini(&p);
    return st;
}
