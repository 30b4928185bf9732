// BPE of Hugging Face's `tokenizers`, of the SentencePiece kind (Llama-2, Mistral, TinyStories, ...) and of the
// byte-level kind (GPT-2, Llama-3, Qwen2, ...), and Unigram: encoding, and the table of added tokens.
// data/tokenizer/hf_read.c reads the files. The order of steps is that of `tokenizers`: added tokens that are not
// `normalized` are cut out of the raw text; each piece between them is normalised; `normalized` added tokens are cut
// out of that; the rest goes through the pre-tokenizer and the model.
#include "data/tokenizer/hf.h"
#include "data/tokenizer/impl.h"
#include "kernels/base/arena.h"
#include "kernels/base/log.h"
#include "kernels/base/strbuf.h"
#include "kernels/base/utf8.h"

enum { SHORT = 40 }; // symbols of a word that is merged without a heap

typedef struct span {
    const char *s;
    size_t      n;
} span;

// Encoding of one text.
typedef struct work {
    pl_hf           *h;
    unsigned         flags;
    pl_ids          *o;
    pl_words_memory *memory;
    pl_matcher       matcher;
    size_t           room; // bytes that its normalised pieces may still take
} work;

static pl_status out_of_memory(pl_err *err) {
    return pl_fail(err, PL_E_MEMORY, "encoding: out of memory");
}

// ---- BPE of one word

static int64_t merge_slot(const pl_hf *h, int32_t a, int32_t b) {
    // Multiplied by a random odd number, whose upper bits are used: pairs share them only by chance.
    uint64_t key = (uint64_t)(uint32_t)a << 32 | (uint32_t)b;
    size_t   at = (size_t)((key * h->merge_mix) >> h->merge_shift);
    while (h->merges[at].merged >= 0 && (h->merges[at].left != a || h->merges[at].right != b))
        at = (at + 1) & h->merge_mask;
    return (int64_t)at;
}

bool pl_hf_merge_add(pl_hf *h, int32_t a, int32_t b, int32_t rank, int32_t merged) {
    pl_hf_merge *m = &h->merges[merge_slot(h, a, b)];
    bool         fresh = m->merged < 0;
    *m = (pl_hf_merge){a, b, rank, merged}; // a repeated pair keeps its last rank, as in a Rust HashMap
    return fresh;
}

static inline bool look_up(const pl_hf *h, int32_t left, int32_t right, int32_t *rank, int32_t *merged) {
    if (h->by_rank) {
        *rank = *merged = pl_vocab_find_joined(&h->raw, left, right);
        return *merged >= 0;
    }
    const pl_hf_merge *m = &h->merges[merge_slot(h, left, right)];
    *rank = m->rank;
    *merged = m->merged;
    return m->merged >= 0;
}

static bool find_pair(const void *ctx, int32_t left, int32_t right, double *cost, int32_t *merged) {
    int32_t rank;
    bool    found = look_up(ctx, left, right, &rank, merged);
    *cost = rank;
    return found;
}

// pl_bpe_merge for a few symbols: looking through all pairs costs less than a heap.
static int64_t merge_short(const pl_hf *h, int32_t *v, int64_t n) {
    int32_t rank[SHORT], merged[SHORT];
    for (int64_t i = 0; i + 1 < n; i++)
        if (!look_up(h, v[i], v[i + 1], &rank[i], &merged[i])) rank[i] = INT32_MAX;
    while (n > 1) {
        int64_t at = 0;
        for (int64_t i = 1; i + 1 < n; i++)
            if (rank[i] < rank[at]) at = i;
        if (rank[at] == INT32_MAX) break;
        v[at] = merged[at];
        n--;
        for (int64_t i = at + 1; i < n; i++) {
            v[i] = v[i + 1];
            rank[i - 1] = rank[i];
            merged[i - 1] = merged[i];
        }
        if (at > 0 && !look_up(h, v[at - 1], v[at], &rank[at - 1], &merged[at - 1])) rank[at - 1] = INT32_MAX;
        if (at + 1 < n && !look_up(h, v[at], v[at + 1], &rank[at], &merged[at])) rank[at] = INT32_MAX;
    }
    return n;
}

// Maps characters to ids; unknown ones become bytes, or the unknown token, which is delayed so that neighbours can be
// fused (and, as in `tokenizers`, stays delayed while bytes are written).
static pl_status encode_word(const void *ctx, const char *s, size_t n_bytes, bool first, pl_ids *o, pl_err *err) {
    (void)first; // the normaliser or pre-tokenizer handles the start of a text
    const pl_hf *h = ctx;
    span         w = {s, n_bytes};
    if (h->is_unigram) return pl_unigram_encode(&h->unigram, s, n_bytes, o, err);
    PL_TRY(pl_ids_reserve(o, w.n + 1, err));
    bool level = h->pretok.bytes;
    if (h->ignore_merges) {
        int32_t whole = pl_vocab_find(level ? &h->raw : &h->model, w.s, w.n);
        if (whole >= 0) {
            o->v[o->n++] = whole;
            return PL_OK;
        }
    }
    int32_t *v = o->v + o->n;
    int64_t  n = 0;
    bool     waiting = false;
    for (size_t at = 0; at < w.n;) {
        size_t  len = level ? 1 : (size_t)pl_utf8_next(w.s + at, w.n - at, NULL);
        int32_t id = level ? h->byte_id[(uint8_t)w.s[at]] : pl_vocab_find(&h->model, w.s + at, len);
        if (id >= 0) {
            if (waiting) v[n++] = h->unk;
            waiting = false;
            v[n++] = id;
        } else {
            bool bytes = h->byte_fallback && !level;
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
    if (n <= SHORT)
        n = merge_short(h, v, n);
    else
        PL_TRY(pl_bpe_merge(v, &n, find_pair, h, err));
    o->n += n;
    return PL_OK;
}

// ---- pre-tokenizer

static pl_status take_word(void *ctx, const char *s, size_t n, pl_err *err) {
    work *b = ctx;
    return pl_words_one(b->memory, s, n, encode_word, b->h, b->o, err);
}

static pl_status pre_tokenize(work *w, span s, bool first, pl_err *err) {
    pl_hf    *h = w->h;
    pl_ids   *o = w->o;
    pl_words *words = w->flags & PL_TOK_NO_CACHE ? NULL : &h->words;
    if (h->pretok.n > 0) return pl_pretok_run(&h->pretok, &w->matcher, s.s, s.n, take_word, w, err);
    if (!h->metaspace && !h->by_words) return encode_word(h, s.s, s.n, first, o, err);
    if (!h->metaspace) return pl_words_encode(words, s.s, s.n, PL_SPACE_MARK, false, encode_word, h, o, err);
    size_t    m = strlen(h->mark);
    bool      prepend = h->scheme == PL_HF_ALWAYS || (h->scheme == PL_HF_FIRST && first);
    pl_strbuf b = {0};
    pl_status st = PL_OK;
    // The test for a leading mark comes after spaces have become marks.
    if (prepend && s.n > 0 && s.s[0] != ' ' && !(s.n >= m && memcmp(s.s, h->mark, m) == 0))
        pl_strbuf_add(&b, h->mark, m);
    pl_tokenizer_replace(&b, s.s, s.n, " ", 1, h->mark, m);
    if (b.failed)
        st = out_of_memory(err);
    else if (h->split || h->by_words)
        st = pl_words_encode(words, b.s, b.n, h->mark, h->split, encode_word, h, o, err);
    else
        st = encode_word(h, b.s, b.n, first, o, err);
    pl_strbuf_fini(&b);
    return st;
}

// ---- added tokens

// Returns the start of the character that ends at `end`; end > 0.
static size_t char_before(const char *s, size_t end, uint32_t *cp) {
    size_t at = end - 1;
    while (at > 0 && ((uint8_t)s[at] & 0xc0) == 0x80)
        at--;
    pl_utf8_next(s + at, end - at, cp);
    return at;
}

static size_t spaces_before(const char *s, size_t end) {
    while (end > 0) {
        uint32_t cp;
        size_t   at = char_before(s, end, &cp);
        if (!pl_unicode_is_space(cp)) break;
        end = at;
    }
    return end;
}

static bool inside_word(span s, size_t start, size_t stop) {
    uint32_t cp;
    if (start > 0 && (char_before(s.s, start, &cp), pl_unicode_is_word(cp))) return true;
    return stop < s.n && pl_utf8_next(s.s + stop, s.n - stop, &cp) > 0 && pl_unicode_is_word(cp);
}

static size_t spaces_after(const char *s, size_t at, size_t n) {
    uint32_t cp;
    for (int len; at < n && (len = pl_utf8_next(s + at, n - at, &cp)) > 0 && pl_unicode_is_space(cp);)
        at += (size_t)len;
    return at;
}

// Returns the first of order[lo..hi) whose next byte is at least b; they are longer than `depth` and equal up to there.
static int32_t first_with(const pl_hf *h, const int32_t *order, int32_t lo, int32_t hi, size_t depth, int b) {
    while (lo < hi) {
        int32_t mid = lo + (hi - lo) / 2;
        if ((uint8_t)h->added[order[mid]].s[depth] < b)
            lo = mid + 1;
        else
            hi = mid;
    }
    return lo;
}

// Returns the longest added token of the requested kind at the start of s.
static const pl_hf_added *added_at(const pl_hf *h, const char *s, size_t n, bool normalized) {
    const pl_hf_added *best = NULL;
    const int32_t     *order = h->in_order[normalized];
    int32_t            lo = h->from_first[normalized][(uint8_t)s[0]], hi = h->from_first[normalized][(uint8_t)s[0] + 1];
    for (size_t depth = 1; lo < hi; depth++) { // lo..hi-1 begin with s[0..depth); the shortest comes first
        if (h->added[order[lo]].n == depth) best = &h->added[order[lo++]];
        if (depth == n) break;
        lo = first_with(h, order, lo, hi, depth, (uint8_t)s[depth]);
        hi = first_with(h, order, lo, hi, depth, (uint8_t)s[depth] + 1);
    }
    return best;
}

typedef pl_status (*between_fn)(work *w, span s, bool first, pl_err *err);

// Cuts added tokens out of s and passes the text between them to `between`.
static pl_status cut_added(work *w, span s, bool first, bool normalized, between_fn between, pl_err *err) {
    const pl_hf *h = w->h;
    size_t       done = 0; // everything before this is encoded
    for (size_t at = 0; at < s.n;) {
        const pl_hf_added *a = added_at(h, s.s + at, s.n - at, normalized);
        if (!a) {
            at++;
            continue;
        }
        size_t start = at, stop = at + a->n;
        at = stop;
        if (a->special && (w->flags & PL_TOK_NO_SPECIAL)) continue;
        if (a->single_word && inside_word(s, start, stop)) continue;
        if (a->lstrip) {
            start = spaces_before(s.s, start);
            if (start < done) start = done;
        }
        if (a->rstrip) stop = spaces_after(s.s, stop, s.n);
        if (start >= stop) continue; // blanks that the previous token has absorbed
        if (start > done) PL_TRY(between(w, (span){s.s + done, start - done}, first && done == 0, err));
        PL_TRY(pl_ids_reserve(w->o, 1, err));
        w->o->v[w->o->n++] = a->id;
        done = stop;
    }
    if (done < s.n) PL_TRY(between(w, (span){s.s + done, s.n - done}, first && done == 0, err));
    return PL_OK;
}

// ---- normaliser

static bool is_normal(const pl_hf_norm *r, const char *s, size_t n) {
    if (r->kind == PL_NORM_PREPEND) return n == 0;
    return r->kind == PL_NORM_FORM && pl_unicode_is_normal(r->form, s, n);
}

static pl_status replace_regex(const pl_hf_norm *r, pl_matcher *m, const char *s, size_t n, pl_strbuf *to,
                               pl_err *err) {
    pl_regex_walk w = {0};
    size_t        done = 0;
    for (;;) {
        bool   found;
        size_t start, end;
        PL_TRY(pl_regex_next(r->regex, m, s, n, &w, &found, &start, &end, err));
        if (!found) break;
        pl_strbuf_add(to, s + done, start - done);
        pl_strbuf_add(to, r->content, strlen(r->content));
        done = end;
    }
    pl_strbuf_add(to, s + done, n - done);
    return PL_OK;
}

static pl_status apply_norm(const pl_hf_norm *r, pl_matcher *m, const char *s, size_t n, pl_strbuf *to, pl_err *err) {
    size_t from = 0, end = n;
    switch (r->kind) {
    case PL_NORM_PREPEND:
        if (n > 0) pl_strbuf_add(to, r->content, strlen(r->content));
        pl_strbuf_add(to, s, n);
        break;
    case PL_NORM_REPLACE:
        if (r->regex) return replace_regex(r, m, s, n, to, err);
        pl_tokenizer_replace(to, s, n, r->pattern, strlen(r->pattern), r->content, strlen(r->content));
        break;
    case PL_NORM_FORM: return pl_unicode_normalize(r->form, s, n, to, err);
    case PL_NORM_LOWER: pl_unicode_lower(s, n, to); break;
    case PL_NORM_STRIP:
        if (r->left) from = spaces_after(s, 0, n);
        if (r->right && from < n) end = spaces_before(s, n);
        pl_strbuf_add(to, s + from, end - from);
        break;
    }
    return PL_OK;
}

static const char *name_of(const pl_hf_norm *r) {
    static const char *const kinds[] = {"Prepend", "Replace", "", "Lowercase", "Strip"};
    static const char *const forms[] = {"NFC", "NFD", "NFKC", "NFKD"};
    return r->kind == PL_NORM_FORM ? forms[r->form] : kinds[r->kind];
}

// PL_E_INPUT names the normalizer that makes more than `most` bytes.
static pl_status normalize(const pl_hf *h, pl_matcher *m, const char *s, size_t n, size_t most, pl_strbuf *out,
                           pl_err *err) {
    pl_strbuf now = {0};
    pl_strbuf_add(&now, s, n);
    for (int i = 0; i < h->n_norm; i++) {
        if (now.failed || is_normal(&h->norm[i], now.s, now.n)) continue;
        pl_strbuf next = {.limit = most + 1}; // plus the final 0
        pl_status st = apply_norm(&h->norm[i], m, now.s, now.n, &next, err);
        if (st == PL_OK && next.full)
            st = pl_fail(err, PL_E_INPUT,
                         "the tokenizer's normalizer %d, %s, makes more than %zu bytes of this text, too many for its "
                         "length; take its part out of tokenizer.json",
                         i + 1, name_of(&h->norm[i]), most);
        pl_strbuf_fini(&now);
        now = next;
        if (st != PL_OK) {
            pl_strbuf_fini(&now);
            return st;
        }
    }
    *out = now;
    return now.failed ? out_of_memory(err) : PL_OK;
}

// Warns if the ids differ from transformers 5's.
static void compare_rebuilt(const pl_hf *h, span s, bool first) {
    bool prepends = h->n_norm > 0 && h->norm[0].kind == PL_NORM_PREPEND;
    bool behind = !first && !h->legacy && (prepends || (h->metaspace && h->scheme == PL_HF_ALWAYS));
    if (!behind && !(prepends && s.s[0] == ' ')) return;
    pl_log_warn_once(
        "tokenizer_config.json names %s, which transformers 5 makes anew: it puts no space in front of text "
        "%s, tokenizer.json does and counts here; name PreTrainedTokenizerFast to have the same ids in both",
        h->rebuilt, behind ? "behind a special token" : "that begins with one");
}

static pl_status encode_raw(work *w, span s, bool first, pl_err *err) {
    const pl_hf *h = w->h;
    bool         as_is = true;
    if (h->rebuilt && s.n > 0) compare_rebuilt(h, s, first);
    for (int i = 0; i < h->n_norm && as_is; i++)
        as_is = is_normal(&h->norm[i], s.s, s.n);
    if (as_is) return cut_added(w, s, first, true, pre_tokenize, err);
    pl_strbuf b = {0};
    PL_TRY(normalize(h, &w->matcher, s.s, s.n, w->room, &b, err));
    w->room -= b.n;
    pl_status st = cut_added(w, (span){b.s, b.n}, first, true, pre_tokenize, err);
    pl_strbuf_fini(&b);
    return st;
}

pl_status pl_hf_encode(const pl_tokenizer *tok, const char *text, size_t n_bytes, unsigned flags, int32_t **ids,
                       int64_t *n, pl_err *err) {
    pl_ids o = {0};
    work   w = {.h = tok->impl, .flags = flags, .o = &o, .room = PL_HF_NORM_ROOM(n_bytes)};
    if (w.h->pretok.n > 0 && !(flags & PL_TOK_NO_CACHE)) w.memory = pl_words_take(&w.h->words);
    pl_status st = pl_ids_reserve(&o, n_bytes / 4 + 1, err);
    if (st == PL_OK) st = cut_added(&w, (span){text, n_bytes}, true, false, encode_raw, err);
    pl_words_give(w.memory);
    pl_matcher_fini(&w.matcher);
    if (st != PL_OK) {
        pl_free(o.v);
        return st;
    }
    *ids = o.v;
    *n = o.n;
    return PL_OK;
}

bool pl_tokenizer_is_added(const pl_tokenizer *tok, int32_t id) {
    if (tok->vt->encode != pl_hf_encode || id < 0 || id >= tok->vocab.n) return false;
    const pl_vocab *model = &((const pl_hf *)tok->impl)->model;
    return id >= model->n || model->len[id] < 0;
}

// ---- shared by the readers of all kinds of files

pl_status pl_hf_refuse(const pl_json *j, pl_err *err, const char *part, const char *what) {
    return pl_fail(err, PL_E_INPUT,
                   "%s: %s '%s' is not supported; BPE tokenizers of the SentencePiece and byte-level kinds are, and "
                   "Unigram",
                   j->where, part, what);
}

pl_status pl_hf_added_reserve(pl_hf *h, size_t more, pl_err *err) {
    size_t       n = (size_t)h->n_added + more;
    pl_hf_added *p = pl_realloc(h->added, (n + 1) * sizeof *p);
    if (!p) return pl_fail(err, PL_E_MEMORY, "%zu added tokens: out of memory", n);
    h->added = p;
    return PL_OK;
}

pl_status pl_hf_added_add(pl_tokenizer *tok, int64_t id, const char *content, size_t n, const pl_hf_added *flags,
                          pl_err *err) {
    pl_hf       *h = tok->impl;
    pl_hf_added *a = &h->added[h->n_added];
    if (n == 0) return pl_fail(err, PL_E_INPUT, "an empty token");
    if (n > PL_HF_MAX_ADDED) return pl_fail(err, PL_E_INPUT, "a token of %zu bytes, more than %d", n, PL_HF_MAX_ADDED);
    int32_t there = pl_vocab_find(&h->model, content, n);
    if (there >= 0 && there != id)
        return pl_fail(err, PL_E_INPUT, "'%s' has id %d in the vocabulary, %d here", content, there, (int)id);
    if (there < 0) {
        pl_status st = pl_vocab_set(&tok->vocab, id, content, n, err);
        if (st != PL_OK) return pl_fail_at(err, st, "'%s'", content);
    }
    a->s = NULL;
    PL_TRY(pl_hf_added_set(h, a, content, n, flags, (int32_t)id, err));
    h->n_added++; // from here on a->s is freed by close
    return PL_OK;
}

pl_status pl_hf_added_set(pl_hf *h, pl_hf_added *a, const char *content, size_t n, const pl_hf_added *flags, int32_t id,
                          pl_err *err) {
    char *s;
    if (!flags->normalized) {
        s = pl_malloc(n + 1);
        if (s) memcpy(s, content, n), s[n] = 0;
    } else {
        pl_strbuf b = {0};
        PL_TRY(normalize(h, &h->reader, content, n, PL_HF_NORM_ROOM(n), &b, err));
        n = b.n;
        s = pl_strbuf_take(&b);
    }
    if (!s) return pl_fail(err, PL_E_MEMORY, "added tokens: out of memory");
    pl_free(a->s);
    *a = *flags;
    a->id = id;
    a->n = n;
    a->s = s;
    return PL_OK;
}

pl_status pl_hf_added_key(int64_t *id, const pl_json *j, const cJSON *member, pl_err *err) {
    *id = 0;
    for (const char *c = member->string; *c; c++) {
        if (*c < '0' || *c > '9' || *id > PL_HF_MAX_ID)
            return pl_json_fail(j, member, err, "'%.20s' is no token id", member->string);
        *id = 10 * *id + (*c - '0');
    }
    return PL_OK;
}

pl_status pl_hf_added_flags(pl_hf_added *a, const pl_json *j, const cJSON *node, pl_err *err) {
    PL_TRY(pl_json_opt_bool(j, node, "special", false, &a->special, err));
    PL_TRY(pl_json_opt_bool(j, node, "normalized", !a->special, &a->normalized, err));
    PL_TRY(pl_json_opt_bool(j, node, "lstrip", false, &a->lstrip, err));
    PL_TRY(pl_json_opt_bool(j, node, "rstrip", false, &a->rstrip, err));
    return pl_json_opt_bool(j, node, "single_word", false, &a->single_word, err);
}
