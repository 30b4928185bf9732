// Hugging Face tokenizer.json of the SentencePiece-BPE family (Llama-2, Mistral, Phi-3, TinyStories, ...): encoding.
// Reading the file is data/tokenizer_hf_read.c. The order of things is that of the `tokenizers` library: added tokens
// that are not `normalized` are cut out of the raw text; each piece between them is normalised; `normalized` added
// tokens are cut out of that; what is left goes through the pre-tokenizer and BPE.
#include "data/tokenizer_hf.h"
#include "data/bpe.h"
#include "data/strbuf.h"
#include "data/utf8.h"
#include "kernels/base/arena.h"

typedef struct span {
    const char *s;
    size_t      n;
} span;

static pl_status out_of_memory(pl_err *err) {
    return pl_fail(err, PL_E_MEMORY, "encoding: out of memory");
}

// ---- BPE of one word

static int64_t merge_slot(const pl_hf *h, int32_t a, int32_t b) {
    uint64_t key = (uint64_t)(uint32_t)a << 32 | (uint32_t)b;
    uint64_t x = key * 0x9e3779b97f4a7c15u;
    size_t   at = (size_t)(x ^ (x >> 32)) & h->merge_mask;
    while (h->merges[at].merged >= 0 && (h->merges[at].left != a || h->merges[at].right != b))
        at = (at + 1) & h->merge_mask;
    return (int64_t)at;
}

bool pl_hf_merge_add(pl_hf *h, int32_t a, int32_t b, int32_t rank, int32_t merged) {
    pl_hf_merge *m = &h->merges[merge_slot(h, a, b)];
    bool         fresh = m->merged < 0;
    *m = (pl_hf_merge){a, b, rank, merged}; // a pair that stands twice has its last rank, as in a Rust HashMap
    return fresh;
}

static bool pair(const void *ctx, int32_t left, int32_t right, double *cost, int32_t *merged) {
    const pl_hf       *h = ctx;
    const pl_hf_merge *m = &h->merges[merge_slot(h, left, right)];
    if (m->merged < 0) return false;
    *cost = m->rank;
    *merged = m->merged;
    return true;
}

// Characters to ids; what is unknown becomes bytes, or the unknown token, which waits so that neighbours can be fused
// (and, as in `tokenizers`, waits on while bytes are written).
static pl_status encode_word(const void *ctx, const char *s, size_t n_bytes, bool first, pl_ids *o, pl_err *err) {
    (void)first; // what stands in front of a text is the normaliser's or pre-tokenizer's work
    const pl_hf *h = ctx;
    span         w = {s, n_bytes};
    PL_TRY(pl_ids_reserve(o, w.n + 1, err));
    if (h->ignore_merges) {
        int32_t whole = pl_vocab_find(&h->model, w.s, w.n);
        if (whole >= 0) {
            o->v[o->n++] = whole;
            return PL_OK;
        }
    }
    int32_t *v = o->v + o->n;
    int64_t  n = 0;
    bool     waiting = false;
    for (size_t at = 0; at < w.n;) {
        size_t  len = (size_t)pl_utf8_next(w.s + at, w.n - at, NULL);
        int32_t id = pl_vocab_find(&h->model, w.s + at, len);
        if (id >= 0) {
            if (waiting) v[n++] = h->unk;
            waiting = false;
            v[n++] = id;
        } else {
            bool bytes = h->byte_fallback;
            for (size_t i = 0; i < len; i++)
                bytes = bytes && h->byte_id[(uint8_t)w.s[at + i]] >= 0;
            for (size_t i = 0; bytes && i < len; i++)
                v[n++] = h->byte_id[(uint8_t)w.s[at + i]];
            if (!bytes && h->unk >= 0) {
                if (waiting && !h->fuse_unk) v[n++] = h->unk;
                waiting = true;
            }
        }
        at += len;
    }
    if (waiting) v[n++] = h->unk;
    PL_TRY(pl_bpe_merge(v, &n, pair, h, err));
    o->n += n;
    return PL_OK;
}

// ---- pre-tokenizer

static bool starts_with(span s, const char *with, size_t n) {
    return s.n >= n && memcmp(s.s, with, n) == 0;
}

static pl_status pre_tokenize(const pl_tokenizer *tok, span s, bool first, pl_ids *o, pl_err *err) {
    pl_hf *h = tok->impl;
    if (!h->metaspace && !h->by_words) return encode_word(h, s.s, s.n, first, o, err);
    if (!h->metaspace) return pl_words_encode(&h->words, s.s, s.n, PL_SPACE_MARK, false, encode_word, h, o, err);
    size_t    m = strlen(h->mark);
    bool      prepend = h->scheme == PL_HF_ALWAYS || (h->scheme == PL_HF_FIRST && first);
    pl_strbuf b = {0};
    pl_status st = PL_OK;
    // "Starts with the mark" is asked after spaces became marks.
    if (prepend && s.n > 0 && s.s[0] != ' ' && !starts_with(s, h->mark, m)) pl_strbuf_add(&b, h->mark, m);
    pl_tokenizer_replace(&b, s.s, s.n, " ", 1, h->mark, m);
    if (b.failed)
        st = out_of_memory(err);
    else if (h->split || h->by_words)
        st = pl_words_encode(&h->words, b.s, b.n, h->mark, h->split, encode_word, h, o, err);
    else
        st = encode_word(h, b.s, b.n, first, o, err);
    pl_strbuf_fini(&b);
    return st;
}

// ---- added tokens

static bool is_space(uint32_t cp) {
    return (cp >= 9 && cp <= 13) || cp == 0x20 || cp == 0x85 || cp == 0xa0 || cp == 0x1680 ||
           (cp >= 0x2000 && cp <= 0x200a) || cp == 0x2028 || cp == 0x2029 || cp == 0x202f || cp == 0x205f ||
           cp == 0x3000;
}

static size_t spaces_before(const char *s, size_t end) {
    for (;;) {
        size_t at = end;
        while (at > 0 && ((uint8_t)s[at - 1] & 0xc0) == 0x80)
            at--;
        uint32_t cp;
        if (at == 0 || pl_utf8_next(s + at - 1, end - at + 1, &cp) <= 0 || !is_space(cp)) return end;
        end = at - 1;
    }
}

static size_t spaces_after(const char *s, size_t at, size_t n) {
    uint32_t cp;
    for (int len; at < n && (len = pl_utf8_next(s + at, n - at, &cp)) > 0 && is_space(cp);)
        at += (size_t)len;
    return at;
}

// The longest added token of the wanted sort that stands at s.
static const pl_hf_added *added_at(const pl_hf *h, const char *s, size_t n, bool normalized) {
    const pl_hf_added *best = NULL;
    for (int32_t i = h->by_first[normalized][(uint8_t)s[0]]; i >= 0; i = h->added[i].next) {
        const pl_hf_added *a = &h->added[i];
        if (a->n <= n && (!best || a->n > best->n) && memcmp(a->s, s, a->n) == 0) best = a;
    }
    return best;
}

typedef pl_status (*between_fn)(const pl_tokenizer *tok, span s, bool first, unsigned flags, pl_ids *o, pl_err *err);

// Cuts added tokens out of s and hands what stands between them to `between`.
static pl_status cut_added(const pl_tokenizer *tok, span s, bool first, unsigned flags, bool normalized,
                           between_fn between, pl_ids *o, pl_err *err) {
    const pl_hf *h = tok->impl;
    size_t       done = 0; // everything before this is encoded
    for (size_t at = 0; at < s.n;) {
        const pl_hf_added *a = added_at(h, s.s + at, s.n - at, normalized);
        if (!a) {
            at++;
            continue;
        }
        size_t start = at, stop = at + a->n;
        at = stop;
        if (a->special && (flags & PL_TOK_NO_SPECIAL)) continue;
        if (a->lstrip) {
            start = spaces_before(s.s, start);
            if (start < done) start = done;
        }
        if (a->rstrip) stop = spaces_after(s.s, stop, s.n);
        if (start > done) PL_TRY(between(tok, (span){s.s + done, start - done}, first && done == 0, flags, o, err));
        PL_TRY(pl_ids_reserve(o, 1, err));
        o->v[o->n++] = a->id;
        done = stop;
    }
    if (done < s.n) PL_TRY(between(tok, (span){s.s + done, s.n - done}, first && done == 0, flags, o, err));
    return PL_OK;
}

// ---- normaliser

pl_status pl_hf_normalize(const pl_hf *h, const char *s, size_t n, char **out, size_t *n_out, pl_err *err) {
    pl_strbuf now = {0};
    pl_strbuf_add(&now, s, n);
    for (int i = 0; i < h->n_norm; i++) {
        const pl_hf_norm *r = &h->norm[i];
        pl_strbuf         next = {0};
        if (!r->pattern) {
            if (now.n > 0) pl_strbuf_add(&next, r->content, strlen(r->content));
            pl_strbuf_add(&next, now.s, now.n);
        } else {
            pl_tokenizer_replace(&next, now.s, now.n, r->pattern, strlen(r->pattern), r->content, strlen(r->content));
        }
        next.failed = next.failed || now.failed;
        pl_strbuf_fini(&now);
        now = next;
    }
    *n_out = now.n;
    *out = pl_strbuf_take(&now);
    return *out ? PL_OK : out_of_memory(err);
}

static pl_status encode_plain(const pl_tokenizer *tok, span s, bool first, unsigned flags, pl_ids *o, pl_err *err) {
    (void)flags;
    return pre_tokenize(tok, s, first, o, err);
}

static pl_status encode_raw(const pl_tokenizer *tok, span s, bool first, unsigned flags, pl_ids *o, pl_err *err) {
    char  *text;
    size_t n;
    PL_TRY(pl_hf_normalize(tok->impl, s.s, s.n, &text, &n, err));
    pl_status st = cut_added(tok, (span){text, n}, first, flags, true, encode_plain, o, err);
    pl_free(text);
    return st;
}

pl_status pl_hf_encode(const pl_tokenizer *tok, const char *text, size_t n_bytes, unsigned flags, int32_t **ids,
                       int64_t *n, pl_err *err) {
    pl_ids    o = {0};
    pl_status st = pl_ids_reserve(&o, n_bytes / 4 + 1, err);
    if (st == PL_OK) st = cut_added(tok, (span){text, n_bytes}, true, flags, false, encode_raw, &o, err);
    if (st != PL_OK) {
        pl_free(o.v);
        return st;
    }
    *ids = o.v;
    *n = o.n;
    return PL_OK;
}
