// Reads a tokenizer.json: everything that changes ids or text is understood or refused by its name. `truncation` and
// `padding` are not read: they shape batches, not tokens.
#include "data/strbuf.h"
#include "data/tokenizer_hf.h"
#include "data/utf8.h"
#include "kernels/base/arena.h"
#include "kernels/base/hash.h"
#include "kernels/base/json.h"

#define MAX_ID (PL_VOCAB_MAX - 1)

static void close_hf(pl_tokenizer *tok) {
    pl_hf *h = tok->impl;
    for (int i = 0; i < PL_HF_MAX_NORM; i++) {
        pl_free(h->norm[i].pattern);
        pl_free(h->norm[i].content);
        pl_free(h->decode[i].pattern);
        pl_free(h->decode[i].content);
    }
    for (int32_t i = 0; i < h->n_added; i++)
        pl_free(h->added[i].s);
    pl_free(h->added);
    pl_free(h->merges);
    pl_words_fini(&h->words);
    pl_vocab_fini(&h->model);
    pl_free(h);
}

static const pl_tokenizer_vt vt = {"huggingface", pl_hf_encode, close_hf};

static pl_status out_of_memory(const pl_json *j, pl_err *err) {
    return pl_fail(err, PL_E_MEMORY, "%s: out of memory", j->where);
}

static pl_status refuse(const pl_json *j, pl_err *err, const char *part, const char *what) {
    return pl_fail(err, PL_E_INPUT, "%s: %s '%s' is not supported; only tokenizers of the SentencePiece-BPE kind are",
                   j->where, part, what);
}

static bool is(const char *a, const char *b) {
    return strcmp(a, b) == 0;
}

// ---- model

static pl_status read_vocab(pl_tokenizer *tok, const pl_json *j, const cJSON *model, pl_err *err) {
    pl_hf       *h = tok->impl;
    const cJSON *vocab, *e;
    PL_TRY(pl_json_get_object(j, model, "vocab", &vocab, err));
    cJSON_ArrayForEach(e, vocab) {
        int64_t id;
        PL_TRY(pl_json_int_of(j, e, 0, MAX_ID, &id, err));
        if (e->string[0] == 0) return pl_json_fail(j, e, err, "an empty piece");
        pl_status st = pl_vocab_set(&h->model, id, e->string, strlen(e->string), err);
        if (st != PL_OK) return pl_fail_at(err, st, "%s: model.vocab", j->where);
        PL_TRY(pl_vocab_set(&tok->vocab, id, e->string, strlen(e->string), err));
    }
    if (h->model.n == 0) return pl_json_fail(j, vocab, err, "no pieces");
    return pl_vocab_index(&h->model, err);
}

// A merge is "a b" or ["a", "b"].
static pl_status read_merge(pl_hf *h, const pl_json *j, const cJSON *e, int32_t rank, pl_err *err) {
    const char *a, *b;
    size_t      na, nb;
    if (cJSON_IsArray(e)) {
        if (cJSON_GetArraySize(e) != 2) return pl_json_fail(j, e, err, "a merge has two parts");
        PL_TRY(pl_json_str_of(j, e->child, &a, err));
        PL_TRY(pl_json_str_of(j, e->child->next, &b, err));
        na = strlen(a);
    } else {
        PL_TRY(pl_json_str_of(j, e, &a, err));
        const char *space = strchr(a, ' ');
        if (!space || strchr(space + 1, ' ')) return pl_json_fail(j, e, err, "a merge is two pieces around one space");
        na = (size_t)(space - a);
        b = space + 1;
    }
    nb = strlen(b);
    int32_t left = pl_vocab_find(&h->model, a, na), right = pl_vocab_find(&h->model, b, nb);
    if (left < 0 || right < 0)
        return pl_json_fail(j, e, err, "'%.*s' of the merge is not in the vocabulary", (int)(left < 0 ? na : nb),
                            left < 0 ? a : b);
    int32_t merged = pl_vocab_find_joined(&h->model, left, right);
    if (merged < 0) return pl_json_fail(j, e, err, "what the merge makes is not in the vocabulary");
    if (pl_hf_merge_add(h, left, right, rank, merged)) h->n_merges++;
    return PL_OK;
}

static pl_status read_merges(pl_hf *h, const pl_json *j, const cJSON *model, pl_err *err) {
    const cJSON *merges, *e;
    PL_TRY(pl_json_get_array(j, model, "merges", &merges, err));
    size_t count = 0, size = 16;
    cJSON_ArrayForEach(e, merges) count++;
    while (size < 2 * count)
        size *= 2;
    h->merges = pl_malloc(size * sizeof *h->merges);
    if (!h->merges) return out_of_memory(j, err);
    for (size_t i = 0; i < size; i++)
        h->merges[i] = (pl_hf_merge){-1, -1, -1, -1};
    h->merge_mask = size - 1;
    int32_t rank = 0;
    cJSON_ArrayForEach(e, merges) PL_TRY(read_merge(h, j, e, rank++, err));
    return PL_OK;
}

static pl_status must_be_empty(const pl_json *j, const cJSON *model, const char *key, pl_err *err) {
    const char *s;
    PL_TRY(pl_json_opt_str(j, model, key, "", &s, err));
    return s[0] ? refuse(j, err, key, s) : PL_OK;
}

static pl_status read_model(pl_tokenizer *tok, const pl_json *j, pl_err *err) {
    pl_hf       *h = tok->impl;
    const cJSON *model;
    const char  *type, *unk;
    double       dropout;
    PL_TRY(pl_json_get_object(j, NULL, "model", &model, err));
    PL_TRY(pl_json_opt_str(j, model, "type", "BPE", &type, err)); // older files leave it out
    if (!is(type, "BPE")) return refuse(j, err, "model type", type);
    PL_TRY(must_be_empty(j, model, "continuing_subword_prefix", err));
    PL_TRY(must_be_empty(j, model, "end_of_word_suffix", err));
    PL_TRY(pl_json_opt_num(j, model, "dropout", 0, 1, 0, &dropout, err));
    if (dropout > 0) return refuse(j, err, "model", "dropout");
    PL_TRY(pl_json_opt_bool(j, model, "byte_fallback", false, &h->byte_fallback, err));
    PL_TRY(pl_json_opt_bool(j, model, "fuse_unk", false, &h->fuse_unk, err));
    PL_TRY(pl_json_opt_bool(j, model, "ignore_merges", false, &h->ignore_merges, err));
    PL_TRY(pl_json_opt_str(j, model, "unk_token", NULL, &unk, err));
    PL_TRY(read_vocab(tok, j, model, err));
    h->unk = unk ? pl_vocab_find(&h->model, unk, strlen(unk)) : -1;
    if (unk && h->unk < 0)
        return pl_json_fail(j, pl_json_find(j, model, "unk_token"), err, "it is not in the vocabulary");
    for (int b = 0; b < 256; b++) {
        const char hex[] = "0123456789ABCDEF", s[6] = {'<', '0', 'x', hex[b >> 4], hex[b & 15], '>'};
        h->byte_id[b] = pl_vocab_find(&h->model, s, 6);
    }
    return read_merges(h, j, model, err);
}

// ---- normaliser, pre-tokenizer, decoder

// A Replace of {"pattern": {"String": ...}, "content": ...}.
static pl_status read_replace(pl_hf_norm *r, const pl_json *j, const cJSON *node, const char *part, pl_err *err) {
    const cJSON *pattern;
    const char  *s, *content;
    PL_TRY(pl_json_get_object(j, node, "pattern", &pattern, err));
    if (!pl_json_find(j, pattern, "String")) return refuse(j, err, part, "Replace with a regular expression");
    PL_TRY(pl_json_get_str(j, pattern, "String", &s, err));
    PL_TRY(pl_json_get_str(j, node, "content", &content, err));
    if (!s[0]) return pl_json_fail(j, node, err, "an empty pattern");
    r->pattern = pl_strdup(s);
    r->content = pl_strdup(content);
    return r->pattern && r->content ? PL_OK : out_of_memory(j, err);
}

static pl_status read_normalizer(pl_hf *h, const pl_json *j, const cJSON *node, pl_err *err) {
    const char *type;
    PL_TRY(pl_json_get_str(j, node, "type", &type, err));
    if (is(type, "Sequence")) {
        const cJSON *list, *e;
        PL_TRY(pl_json_get_array(j, node, "normalizers", &list, err));
        cJSON_ArrayForEach(e, list) PL_TRY(read_normalizer(h, j, e, err)); // depth is bounded by the parser
        return PL_OK;
    }
    if (!is(type, "Prepend") && !is(type, "Replace")) return refuse(j, err, "normalizer", type);
    if (h->n_norm == PL_HF_MAX_NORM) return pl_json_fail(j, node, err, "more than %d normalizers", PL_HF_MAX_NORM);
    pl_hf_norm *r = &h->norm[h->n_norm++];
    if (is(type, "Replace")) return read_replace(r, j, node, "normalizer", err);
    const char *s;
    PL_TRY(pl_json_get_str(j, node, "prepend", &s, err));
    r->content = pl_strdup(s);
    return r->content ? PL_OK : out_of_memory(j, err);
}

static pl_status read_metaspace(const pl_json *j, const cJSON *node, char mark[8], pl_hf_scheme *scheme, bool *split,
                                pl_err *err) {
    const char *s, *name;
    bool        add;
    PL_TRY(pl_json_opt_str(j, node, "replacement", PL_SPACE_MARK, &s, err));
    PL_TRY(pl_json_opt_bool(j, node, "add_prefix_space", true, &add, err)); // the older spelling of prepend_scheme
    PL_TRY(pl_json_opt_str(j, node, "prepend_scheme", add ? "always" : "never", &name, err));
    PL_TRY(pl_json_opt_bool(j, node, "split", true, split, err));
    if (!s[0] || strlen(s) > 4 || pl_utf8_next(s, strlen(s), NULL) != (int)strlen(s))
        return pl_json_fail(j, node, err, "'replacement' must be one character");
    strcpy(mark, s);
    *scheme = is(name, "always") ? PL_HF_ALWAYS : is(name, "first") ? PL_HF_FIRST : PL_HF_NEVER;
    return *scheme == PL_HF_NEVER && !is(name, "never") ? refuse(j, err, "prepend_scheme", name) : PL_OK;
}

static pl_status read_pre_tokenizer(pl_hf *h, const pl_json *j, const cJSON *node, pl_err *err) {
    const char *type;
    PL_TRY(pl_json_get_str(j, node, "type", &type, err));
    if (!is(type, "Metaspace")) return refuse(j, err, "pre_tokenizer", type);
    h->metaspace = true;
    return read_metaspace(j, node, h->mark, &h->scheme, &h->split, err);
}

// fused: whether tokens have been joined, which only Strip may follow.
static pl_status read_decoder(pl_hf *h, const pl_json *j, const cJSON *node, bool *fused, pl_err *err) {
    const char *type, *s;
    int64_t     start, stop;
    PL_TRY(pl_json_get_str(j, node, "type", &type, err));
    if (is(type, "Sequence")) {
        const cJSON *list, *e;
        PL_TRY(pl_json_get_array(j, node, "decoders", &list, err));
        cJSON_ArrayForEach(e, list) PL_TRY(read_decoder(h, j, e, fused, err));
        return PL_OK;
    }
    if (is(type, "Strip")) {
        PL_TRY(pl_json_get_str(j, node, "content", &s, err));
        PL_TRY(pl_json_get_int(j, node, "start", 0, 1, &start, err));
        PL_TRY(pl_json_get_int(j, node, "stop", 0, 0, &stop, err));
        if (!*fused || !is(s, " ")) return refuse(j, err, "decoder", "Strip of anything but the text's leading space");
        h->decode_strip = (int)start;
        return PL_OK;
    }
    if (*fused) return refuse(j, err, "decoder behind Fuse", type);
    if (is(type, "Fuse")) {
        *fused = true;
    } else if (is(type, "ByteFallback")) {
        h->decode_bytes = true;
    } else if (is(type, "Replace") || is(type, "Metaspace")) {
        if (h->n_decode == PL_HF_MAX_NORM) return pl_json_fail(j, node, err, "more than %d decoders", PL_HF_MAX_NORM);
        pl_hf_norm *r = &h->decode[h->n_decode++];
        if (is(type, "Replace")) return read_replace(r, j, node, "decoder", err);
        char         mark[8];
        pl_hf_scheme scheme;
        bool         split;
        PL_TRY(read_metaspace(j, node, mark, &scheme, &split, err));
        h->decode_strip = scheme != PL_HF_NEVER;
        r->pattern = pl_strdup(mark);
        r->content = pl_strdup(" ");
        if (!r->pattern || !r->content) return out_of_memory(j, err);
    } else {
        return refuse(j, err, "decoder", type);
    }
    return PL_OK;
}

// ---- post-processor: BOS

static pl_status read_template(pl_tokenizer *tok, const pl_json *j, const cJSON *node, pl_err *err) {
    const cJSON *single, *e, *specials, *ids = NULL, *a;
    bool         text = false;
    PL_TRY(pl_json_get_array(j, node, "single", &single, err));
    PL_TRY(pl_json_get_object(j, node, "special_tokens", &specials, err));
    cJSON_ArrayForEach(e, single) {
        const cJSON *special = pl_json_find(j, e, "SpecialToken");
        const char  *name;
        if (!special) {
            text = true;
            continue;
        }
        if (text) return refuse(j, err, "post_processor", "TemplateProcessing with a token behind the text");
        if (tok->add_bos) return refuse(j, err, "post_processor", "TemplateProcessing with two tokens before the text");
        PL_TRY(pl_json_get_str(j, special, "id", &name, err));
        for (a = specials->child; a && !is(a->string, name);)
            a = a->next;
        if (!a) return pl_json_fail(j, e, err, "'%s' is not among special_tokens", name);
        PL_TRY(pl_json_get_array(j, a, "ids", &ids, err));
        int64_t id;
        if (cJSON_GetArraySize(ids) != 1) return pl_json_fail(j, ids, err, "exactly one id is supported");
        PL_TRY(pl_json_int_of(j, ids->child, 0, tok->vocab.n - 1, &id, err));
        tok->bos = (int32_t)id;
        tok->add_bos = true;
    }
    return PL_OK;
}

static pl_status read_post_processor(pl_tokenizer *tok, const pl_json *j, const cJSON *node, pl_err *err) {
    const char *type;
    PL_TRY(pl_json_get_str(j, node, "type", &type, err));
    if (is(type, "TemplateProcessing")) return read_template(tok, j, node, err);
    if (!is(type, "Sequence")) return refuse(j, err, "post_processor", type);
    const cJSON *list, *e;
    PL_TRY(pl_json_get_array(j, node, "processors", &list, err));
    cJSON_ArrayForEach(e, list) PL_TRY(read_post_processor(tok, j, e, err));
    return PL_OK;
}

// ---- added tokens

static pl_status read_added(pl_tokenizer *tok, const pl_json *j, const cJSON *node, pl_err *err) {
    pl_hf       *h = tok->impl;
    pl_hf_added *a = &h->added[h->n_added];
    const char  *s;
    int64_t      id;
    bool         single;
    PL_TRY(pl_json_get_int(j, node, "id", 0, MAX_ID, &id, err));
    PL_TRY(pl_json_get_str(j, node, "content", &s, err));
    PL_TRY(pl_json_opt_bool(j, node, "special", false, &a->special, err));
    PL_TRY(pl_json_opt_bool(j, node, "normalized", !a->special, &a->normalized, err));
    PL_TRY(pl_json_opt_bool(j, node, "lstrip", false, &a->lstrip, err));
    PL_TRY(pl_json_opt_bool(j, node, "rstrip", false, &a->rstrip, err));
    PL_TRY(pl_json_opt_bool(j, node, "single_word", false, &single, err));
    if (single) return refuse(j, err, "added token", "single_word");
    if (!s[0]) return pl_json_fail(j, node, err, "an empty token");
    int32_t there = pl_vocab_find(&h->model, s, strlen(s));
    if (there >= 0 && there != id)
        return pl_json_fail(j, node, err, "'%s' has id %d in the vocabulary, %d here", s, there, (int)id);
    if (there < 0) {
        pl_status st = pl_vocab_set(&tok->vocab, id, s, strlen(s), err);
        if (st != PL_OK) return pl_fail_at(err, st, "%s: added_tokens: '%s'", j->where, s);
    }
    a->id = (int32_t)id;
    a->n = strlen(s);
    h->n_added++; // from here on a->s is freed by close
    if (!a->normalized) return (a->s = pl_strdup(s)) ? PL_OK : out_of_memory(j, err);
    return pl_hf_normalize(h, s, strlen(s), &a->s, &a->n, err);
}

static pl_status read_all_added(pl_tokenizer *tok, const pl_json *j, pl_err *err) {
    pl_hf       *h = tok->impl;
    const cJSON *list, *e;
    size_t       count = 0;
    for (int i = 0; i < 256; i++)
        h->by_first[0][i] = h->by_first[1][i] = -1;
    PL_TRY(pl_json_opt_array(j, NULL, "added_tokens", &list, err));
    if (!list) return PL_OK;
    cJSON_ArrayForEach(e, list) count++;
    h->added = pl_calloc(count, sizeof *h->added);
    if (!h->added) return out_of_memory(j, err);
    cJSON_ArrayForEach(e, list) PL_TRY(read_added(tok, j, e, err));
    for (int32_t i = 0; i < h->n_added; i++) {
        pl_hf_added *a = &h->added[i];
        if (a->n == 0) continue; // normalised away: it can never be found
        int32_t *first = &h->by_first[a->normalized][(uint8_t)a->s[0]];
        a->next = *first;
        *first = i;
    }
    return PL_OK;
}

// ---- the whole

static pl_status fill_surfaces(pl_tokenizer *tok, const pl_json *j, pl_err *err) {
    const pl_hf *h = tok->impl;
    tok->special = pl_calloc((size_t)tok->vocab.n, 1);
    if (!tok->special) return out_of_memory(j, err);
    for (int32_t i = 0; i < h->n_added; i++)
        tok->special[h->added[i].id] = h->added[i].special;
    for (int32_t id = 0; id < tok->vocab.n; id++) {
        size_t      n;
        const char *s = pl_vocab_piece(&tok->vocab, id, &n);
        int         byte = h->decode_bytes ? pl_tokenizer_byte_piece(s, n) : -1;
        char        c = (char)byte;
        pl_strbuf   now = {0};
        pl_strbuf_add(&now, byte >= 0 ? &c : s, tok->special[id] ? 0 : byte >= 0 ? 1 : n);
        for (int i = 0; i < h->n_decode && byte < 0; i++) {
            const pl_hf_norm *r = &h->decode[i];
            pl_strbuf         next = {.failed = now.failed};
            pl_tokenizer_replace(&next, now.s, now.n, r->pattern, strlen(r->pattern), r->content, strlen(r->content));
            pl_strbuf_fini(&now);
            now = next;
        }
        pl_status st = now.failed ? out_of_memory(j, err) : pl_vocab_set(&tok->surface, id, now.s, now.n, err);
        pl_strbuf_fini(&now);
        PL_TRY(st);
    }
    return PL_OK;
}

static void hash_norm(uint64_t *hash, const pl_hf_norm *r) {
    if (r->pattern) *hash = pl_hash_more(*hash, r->pattern, strlen(r->pattern));
    *hash = pl_hash_more(*hash, r->content, strlen(r->content));
}

// The merges are hashed by a sum, because the order of the table is no property of the tokenizer.
static uint64_t settings_hash(const pl_hf *h) {
    uint64_t sum = 0;
    for (size_t i = 0; i <= h->merge_mask; i++)
        if (h->merges[i].merged >= 0) sum += pl_hash(&h->merges[i], sizeof h->merges[i]);
    int32_t  settings[] = {h->byte_fallback, h->fuse_unk, h->ignore_merges, h->unk, h->metaspace, h->split, h->scheme};
    uint64_t hash = pl_hash_more(sum, settings, sizeof settings);
    for (int i = 0; i < h->n_norm; i++)
        hash_norm(&hash, &h->norm[i]);
    hash = pl_hash_more(hash, h->mark, strlen(h->mark));
    for (int32_t i = 0; i < h->n_added; i++) {
        const pl_hf_added *a = &h->added[i];
        int32_t            flags[] = {a->id, a->special, a->normalized, a->lstrip, a->rstrip};
        hash = pl_hash_more(pl_hash_more(hash, a->s, a->n), flags, sizeof flags);
    }
    return hash;
}

static pl_status read_parts(pl_tokenizer *tok, const pl_json *j, pl_err *err) {
    pl_hf       *h = tok->impl;
    const cJSON *node;
    bool         fused = false;
    // First what tells the families apart, so that a file of another one is refused by that.
    if ((node = pl_json_find(j, NULL, "normalizer"))) PL_TRY(read_normalizer(h, j, node, err));
    if ((node = pl_json_find(j, NULL, "pre_tokenizer"))) PL_TRY(read_pre_tokenizer(h, j, node, err));
    PL_TRY(read_model(tok, j, err));
    PL_TRY(read_all_added(tok, j, err));
    if (!(node = pl_json_find(j, NULL, "decoder"))) return refuse(j, err, "decoder", "null");
    PL_TRY(read_decoder(h, j, node, &fused, err));
    if ((node = pl_json_find(j, NULL, "post_processor"))) PL_TRY(read_post_processor(tok, j, node, err));
    PL_TRY(pl_vocab_index(&tok->vocab, err));
    PL_TRY(pl_words_init(&h->words, err));
    // Where the mark itself is unknown, unknown characters fuse across it; whole texts may be pieces with
    // ignore_merges.
    const char *mark = h->metaspace ? h->mark : PL_SPACE_MARK;
    h->by_words =
        !h->ignore_merges && pl_vocab_find(&h->model, mark, strlen(mark)) >= 0 && pl_words_are_apart(&h->model, mark);
    tok->strip = h->decode_strip;
    tok->hash = settings_hash(h);
    if (tok->bos < 0) tok->bos = pl_vocab_find(&tok->vocab, "<s>", 3);
    tok->eos = pl_vocab_find(&tok->vocab, "</s>", 4);
    return fill_surfaces(tok, j, err);
}

pl_status pl_tokenizer_open_hf(pl_tokenizer *tok, const char *path, const uint8_t *data, size_t n, pl_err *err) {
    pl_json j;
    PL_TRY(pl_json_parse(&j, path, 0, data, n, PL_JSON_UNIQUE, err));
    pl_hf    *h = tok->impl = pl_calloc(1, sizeof *h);
    pl_status st = h ? PL_OK : out_of_memory(&j, err);
    tok->vt = &vt;
    if (st == PL_OK) st = read_parts(tok, &j, err);
    pl_json_close(&j);
    return st;
}
