// Reads a tokenizer.json: everything that changes ids or text is supported or refused by its name. `truncation` and
// `padding` are not read: they shape batches, not tokens.
#include "data/tokenizer/hf.h"
#include "data/tokenizer/open.h"
#include "data/tokenizer/pre.h"
#include "kernels/base/arena.h"
#include "kernels/base/hash.h"
#include "kernels/base/json.h"
#include "kernels/base/log.h"
#include "kernels/base/strbuf.h"
#include <stdlib.h>

static void norm_fini(pl_hf_norm *r) {
    pl_free(r->pattern);
    pl_free(r->content);
    pl_regex_free(r->regex);
}

void pl_hf_close(pl_tokenizer *tok) {
    pl_hf *h = tok->impl;
    for (int i = 0; i < PL_HF_MAX_NORM; i++) {
        norm_fini(&h->norm[i]);
        norm_fini(&h->decode[i]);
    }
    for (int32_t i = 0; i < h->n_added; i++)
        pl_free(h->added[i].s);
    pl_free(h->added);
    pl_free(h->in_order[0]);
    pl_free(h->in_order[1]);
    pl_matcher_fini(&h->reader);
    pl_free(h->merges);
    pl_unigram_fini(&h->unigram);
    pl_words_fini(&h->words);
    pl_vocab_fini(&h->model);
    pl_vocab_fini(&h->raw);
    pl_pretok_fini(&h->pretok);
    pl_free(h);
}

static const pl_tokenizer_vt hf_vt = {"huggingface", pl_hf_encode, pl_hf_close};

static pl_status out_of_memory(const pl_json *j, pl_err *err) {
    return pl_fail(err, PL_E_MEMORY, "%s: out of memory", j->where);
}

static bool is_type(const char *a, const char *b) {
    return strcmp(a, b) == 0;
}

// Converts a string of the file to bytes, in place (U+0000 is one). Returns their number.
static size_t as_bytes(char *s) {
    size_t n = strlen(s), m = 0;
    for (size_t i = 0; i < n; i++) {
        bool nul = strncmp(s + i, PL_JSON_NUL_BYTES, 2) == 0;
        s[m++] = s[i];
        if (nul) s[m - 1] = 0, i++;
    }
    s[m] = 0;
    return m;
}

static pl_status bytes_of(const pl_json *j, const cJSON *node, const char **s, size_t *n, pl_err *err) {
    PL_TRY(pl_json_str_of(j, node, s, err));
    *n = as_bytes(node->valuestring);
    return PL_OK;
}

// ---- model

// Gives a repeated piece its last id, as `tokenizers` does, and warns.
static void prefer_last(pl_vocab *v, const pl_json *j, const cJSON *vocab) {
    bool         twice = false;
    size_t       n;
    const cJSON *e;
    for (int32_t i = 0; i < v->n && !twice; i++) {
        const char *s = pl_vocab_piece(v, i, &n);
        twice = v->len[i] >= 0 && pl_vocab_find(v, s, n) != i;
        if (twice)
            pl_log_warn_once(
                "%s: model.vocab: '%.*s' stands there twice, with the ids %d and %d; the last counts, here "
                "and of others, as in tokenizers",
                j->where, (int)n, s, pl_vocab_find(v, s, n), i);
    }
    int32_t at = 0;
    cJSON_ArrayForEach(e, vocab) if (twice) pl_vocab_point(v, cJSON_IsNumber(e) ? (int32_t)e->valuedouble : at++);
}

pl_status pl_hf_read_vocab(pl_tokenizer *tok, const pl_json *j, const cJSON *vocab, pl_err *err) {
    pl_hf       *h = tok->impl;
    const cJSON *e;
    cJSON_ArrayForEach(e, vocab) {
        int64_t id;
        PL_TRY(pl_json_int_of(j, e, 0, PL_HF_MAX_ID, &id, err));
        size_t n = as_bytes(e->string), there;
        if (id < h->model.n && h->model.len[id] >= 0) { // the same entry again
            const char *s = pl_vocab_piece(&h->model, (int32_t)id, &there);
            if (there == n && memcmp(s, e->string, n) == 0) continue;
        }
        pl_status st = pl_vocab_set(&h->model, id, e->string, n, err);
        if (st != PL_OK) return pl_fail_at(err, st, "%s: model.vocab", j->where);
        PL_TRY(pl_vocab_set(&tok->vocab, id, e->string, n, err));
    }
    if (h->model.n == 0) return pl_json_fail(j, vocab, err, "no pieces");
    PL_TRY(pl_vocab_index(&h->model, err));
    prefer_last(&h->model, j, vocab);
    return PL_OK;
}

// Fails, without a file position, if a, b or their concatenation is no piece of the (indexed) model.
static pl_status merge_pieces(pl_hf *h, const char *a, size_t na, const char *b, size_t nb, int32_t rank, pl_err *err) {
    int32_t left = pl_vocab_find(&h->model, a, na), right = pl_vocab_find(&h->model, b, nb);
    if (left < 0 || right < 0)
        return pl_fail(err, PL_E_INPUT, "'%.*s' of the merge is not in the vocabulary", (int)(left < 0 ? na : nb),
                       left < 0 ? a : b);
    int32_t merged = pl_vocab_find_joined(&h->model, left, right);
    if (merged < 0) return pl_fail(err, PL_E_INPUT, "what the merge makes is not in the vocabulary");
    if (pl_hf_merge_add(h, left, right, rank, merged)) h->n_merges++;
    return PL_OK;
}

pl_status pl_hf_merge_line(pl_hf *h, const char *line, size_t n, int32_t rank, pl_err *err) {
    const char *space = memchr(line, ' ', n), *end = line + n;
    if (!space || memchr(space + 1, ' ', (size_t)(end - space - 1)))
        return pl_fail(err, PL_E_INPUT, "a merge is two pieces around one space");
    return merge_pieces(h, line, (size_t)(space - line), space + 1, (size_t)(end - space - 1), rank, err);
}

// A merge is "a b" or ["a", "b"].
static pl_status read_merge(pl_hf *h, const pl_json *j, const cJSON *e, int32_t rank, pl_err *err) {
    const char *a, *b;
    size_t      na, nb;
    pl_err      why;
    pl_status   st;
    if (cJSON_IsArray(e)) {
        if (cJSON_GetArraySize(e) != 2) return pl_json_fail(j, e, err, "a merge has two parts");
        PL_TRY(bytes_of(j, e->child, &a, &na, err));
        PL_TRY(bytes_of(j, e->child->next, &b, &nb, err));
        st = merge_pieces(h, a, na, b, nb, rank, &why);
    } else {
        PL_TRY(bytes_of(j, e, &a, &na, err));
        st = pl_hf_merge_line(h, a, na, rank, &why);
    }
    return st == PL_OK ? st : pl_json_fail(j, e, err, "%s", why.msg);
}

pl_status pl_hf_merges_reserve(pl_hf *h, size_t count, pl_err *err) {
    size_t size = 16;
    while (size < 2 * count)
        size *= 2;
    h->merges = pl_malloc(size * sizeof *h->merges);
    if (!h->merges) return pl_fail(err, PL_E_MEMORY, "%zu merges: out of memory", count);
    for (size_t i = 0; i < size; i++)
        h->merges[i] = (pl_hf_merge){-1, -1, -1, -1};
    h->merge_mask = size - 1;
    h->merge_mix = pl_hash_seed();
    h->merge_shift = __builtin_clzll(size - 1);
    return PL_OK;
}

static pl_status read_merges(pl_hf *h, const pl_json *j, const cJSON *model, pl_err *err) {
    const cJSON *merges, *e;
    PL_TRY(pl_json_get_array(j, model, "merges", &merges, err));
    size_t count = 0;
    cJSON_ArrayForEach(e, merges) count++;
    PL_TRY(pl_hf_merges_reserve(h, count, err));
    int32_t rank = 0;
    cJSON_ArrayForEach(e, merges) PL_TRY(read_merge(h, j, e, rank++, err));
    return PL_OK;
}

static pl_status must_be_empty(const pl_json *j, const cJSON *model, const char *key, pl_err *err) {
    const char *s;
    PL_TRY(pl_json_opt_str(j, model, key, "", &s, err));
    return s[0] ? pl_hf_refuse(j, err, key, s) : PL_OK;
}

static void find_bytes(pl_hf *h) {
    for (int b = 0; b < 256; b++) {
        const char hex[] = "0123456789ABCDEF", piece[6] = {'<', '0', 'x', hex[b >> 4], hex[b & 15], '>'};
        h->byte_id[b] = pl_vocab_find(&h->model, piece, 6);
    }
}

// Reads pieces and scores: [["<unk>", 0.0], ["\xE2\x96\x81the", -3.2], ...], whose ids are their indices.
static pl_status read_pieces(pl_tokenizer *tok, const pl_json *j, const cJSON *list, pl_err *err) {
    pl_hf       *h = tok->impl;
    const cJSON *e;
    int64_t      count = 0, id = 0;
    cJSON_ArrayForEach(e, list) count++;
    h->unigram.score = pl_calloc((size_t)count, sizeof *h->unigram.score);
    if (!h->unigram.score) return out_of_memory(j, err);
    cJSON_ArrayForEach(e, list) {
        const char *s;
        size_t      n;
        if (!cJSON_IsArray(e) || cJSON_GetArraySize(e) != 2 || !cJSON_IsNumber(e->child->next))
            return pl_json_fail(j, e, err, "a piece is [text, score]");
        PL_TRY(bytes_of(j, e->child, &s, &n, err));
        if (n > PL_HF_MAX_PIECE)
            return pl_json_fail(j, e, err, "a piece of %zu bytes, more than %d", n, PL_HF_MAX_PIECE);
        h->unigram.score[id] = e->child->next->valuedouble;
        pl_status st = pl_vocab_set(&h->model, id, s, n, err);
        if (st != PL_OK) return pl_fail_at(err, st, "%s: model.vocab", j->where);
        PL_TRY(pl_vocab_set(&tok->vocab, id++, s, n, err));
    }
    PL_TRY(pl_vocab_index(&h->model, err));
    prefer_last(&h->model, j, list);
    return PL_OK;
}

static pl_status read_unigram(pl_tokenizer *tok, const pl_json *j, const cJSON *model, pl_err *err) {
    pl_hf       *h = tok->impl;
    const cJSON *list;
    int64_t      unk;
    if (h->pretok.bytes) return pl_hf_refuse(j, err, "model type", "Unigram behind ByteLevel");
    PL_TRY(pl_json_get_array(j, model, "vocab", &list, err));
    if (!list->child) return pl_json_fail(j, list, err, "no pieces");
    PL_TRY(read_pieces(tok, j, list, err));
    PL_TRY(pl_json_get_int(j, model, "unk_id", 0, h->model.n - 1, &unk, err));
    PL_TRY(pl_json_opt_bool(j, model, "byte_fallback", false, &h->byte_fallback, err));
    find_bytes(h);
    h->is_unigram = true;
    h->unk = (int32_t)unk;
    h->unigram.vocab = &h->model;
    h->unigram.unk = h->unk;
    h->unigram.byte_id = h->byte_fallback ? h->byte_id : NULL;
    pl_unigram_index(&h->unigram);
    return PL_OK;
}

static pl_status read_model(pl_tokenizer *tok, const pl_json *j, pl_err *err) {
    pl_hf       *h = tok->impl;
    const cJSON *model, *vocab;
    const char  *type, *unk;
    double       dropout;
    PL_TRY(pl_json_get_object(j, NULL, "model", &model, err));
    PL_TRY(pl_json_opt_str(j, model, "type", "BPE", &type, err)); // older files omit it
    if (is_type(type, "Unigram")) return read_unigram(tok, j, model, err);
    if (!is_type(type, "BPE")) return pl_hf_refuse(j, err, "model type", type);
    PL_TRY(must_be_empty(j, model, "continuing_subword_prefix", err));
    PL_TRY(must_be_empty(j, model, "end_of_word_suffix", err));
    PL_TRY(pl_json_opt_num(j, model, "dropout", 0, 1, 0, &dropout, err));
    if (dropout > 0) return pl_hf_refuse(j, err, "model", "dropout");
    PL_TRY(pl_json_opt_bool(j, model, "byte_fallback", false, &h->byte_fallback, err));
    PL_TRY(pl_json_opt_bool(j, model, "fuse_unk", false, &h->fuse_unk, err));
    PL_TRY(pl_json_opt_bool(j, model, "ignore_merges", false, &h->ignore_merges, err));
    PL_TRY(pl_json_opt_str(j, model, "unk_token", NULL, &unk, err));
    PL_TRY(pl_json_get_object(j, model, "vocab", &vocab, err));
    PL_TRY(pl_hf_read_vocab(tok, j, vocab, err));
    h->unk = unk ? pl_vocab_find(&h->model, unk, strlen(unk)) : -1;
    if (unk && h->unk < 0)
        return pl_json_fail(j, pl_json_find(j, model, "unk_token"), err, "it is not in the vocabulary");
    if (h->pretok.bytes) PL_TRY(pl_hf_index_bytes(h, j->where, err));
    if (!h->pretok.bytes) find_bytes(h);
    return read_merges(h, j, model, err);
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
        if (text) return pl_hf_refuse(j, err, "post_processor", "TemplateProcessing with a token behind the text");
        if (tok->add_bos)
            return pl_hf_refuse(j, err, "post_processor", "TemplateProcessing with two tokens before the text");
        PL_TRY(pl_json_get_str(j, special, "id", &name, err));
        for (a = specials->child; a && !is_type(a->string, name);)
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
    if (is_type(type, "ByteLevel")) return PL_OK; // trims offsets, which are not kept
    if (is_type(type, "TemplateProcessing")) return read_template(tok, j, node, err);
    if (!is_type(type, "Sequence")) return pl_hf_refuse(j, err, "post_processor", type);
    const cJSON *list, *e;
    PL_TRY(pl_json_get_array(j, node, "processors", &list, err));
    cJSON_ArrayForEach(e, list) PL_TRY(read_post_processor(tok, j, e, err));
    return PL_OK;
}

// ---- added tokens

static pl_status read_added(pl_tokenizer *tok, const pl_json *j, const cJSON *node, pl_err *err) {
    pl_hf_added a = {0};
    const char *s;
    int64_t     id;
    PL_TRY(pl_json_get_int(j, node, "id", 0, PL_HF_MAX_ID, &id, err));
    PL_TRY(pl_json_get_str(j, node, "content", &s, err));
    PL_TRY(pl_hf_added_flags(&a, j, node, err));
    size_t n = as_bytes((char *)(uintptr_t)s);
    if (n == 0) return PL_OK; // never found in a text
    pl_status st = pl_hf_added_add(tok, id, s, n, &a, err);
    return st == PL_E_INPUT ? pl_fail_at(err, st, "%s: added_tokens", j->where) : st;
}

static pl_status read_all_added(pl_tokenizer *tok, const pl_json *j, pl_err *err) {
    const cJSON *list, *e;
    size_t       count = 0;
    PL_TRY(pl_json_opt_array(j, NULL, "added_tokens", &list, err));
    cJSON_ArrayForEach(e, list) count++;
    PL_TRY(pl_hf_added_reserve(tok->impl, count, err));
    cJSON_ArrayForEach(e, list) PL_TRY(read_added(tok, j, e, err));
    return PL_OK;
}

// Orders by bytes; of a repeated string the last comes first.
static int by_bytes(const void *x, const void *y, void *added) {
    const pl_hf_added *a = (const pl_hf_added *)added + *(const int32_t *)x,
                      *b = (const pl_hf_added *)added + *(const int32_t *)y;
    int c = memcmp(a->s, b->s, a->n < b->n ? a->n : b->n);
    if (c != 0) return c;
    return a->n != b->n ? (a->n > b->n) - (a->n < b->n) : (b > a) - (b < a);
}

static pl_status order_added(pl_hf *h, bool normalized, pl_err *err) {
    int32_t *v = pl_malloc(((size_t)h->n_added + 1) * sizeof *v), n = 0, kept = 0;
    h->in_order[normalized] = v;
    if (!v) return pl_fail(err, PL_E_MEMORY, "added tokens: out of memory");
    for (int32_t i = 0; i < h->n_added; i++) // a token that normalises to nothing is never found
        if (h->added[i].n > 0 && h->added[i].normalized == normalized) v[n++] = i;
    qsort_r(v, (size_t)n, sizeof *v, by_bytes, h->added);
    for (int32_t i = 0; i < n; i++) {
        const pl_hf_added *a = &h->added[v[i]], *last = kept ? &h->added[v[kept - 1]] : NULL;
        if (!last || last->n != a->n || memcmp(last->s, a->s, a->n) != 0) v[kept++] = v[i];
    }
    for (int b = 0, i = 0; b <= 256; b++) {
        while (i < kept && (uint8_t)h->added[v[i]].s[0] < b)
            i++;
        h->from_first[normalized][b] = i;
    }
    return PL_OK;
}

// ---- surfaces, hash, opening

pl_status pl_hf_index_bytes(pl_hf *h, const char *where, pl_err *err) {
    for (int b = 0; b < 256; b++)
        h->byte_id[b] = -1;
    pl_strbuf b = {0};
    pl_status st = PL_OK;
    for (int32_t id = 0; id < h->model.n && st == PL_OK; id++) {
        size_t      n, m;
        const char *s = pl_vocab_piece(&h->model, id, &n);
        b.n = 0;
        pl_strbuf_add(&b, s, n); // reserves room: its bytes are not more
        if (b.failed)
            st = pl_fail(err, PL_E_MEMORY, "%s: out of memory", where);
        else if (n > 0 && pl_vocab_find(&h->model, s, n) == id && pl_chars_to_bytes(s, n, b.s, &m)) {
            st = pl_vocab_set(&h->raw, id, b.s, m, err);
            if (m == 1 && h->byte_id[(uint8_t)b.s[0]] < 0) h->byte_id[(uint8_t)b.s[0]] = id;
        }
    }
    pl_strbuf_fini(&b);
    return st == PL_OK ? pl_vocab_index(&h->raw, err) : st;
}

// Writes the text of an id: bytes of the alphabet, a "<0xHH>" byte, or the piece with the decoder's replacements. Added
// tokens are literal text, even with characters of the byte alphabet.
static void add_surface(const pl_hf *h, const char *s, size_t n, bool added, pl_strbuf *now) {
    int  byte = h->decode_bytes ? pl_tokenizer_byte_piece(s, n) : -1;
    char c = (char)byte;
    if (byte >= 0) {
        pl_strbuf_add(now, &c, 1);
        return;
    }
    pl_strbuf_add(now, s, n);
    for (int i = 0; i < h->n_decode && !now->failed; i++) {
        const pl_hf_norm *r = &h->decode[i];
        pl_strbuf         next = {.limit = 4 * (n + 16)}; // they shorten: marks become spaces
        pl_tokenizer_replace(&next, now->s, now->n, r->pattern, strlen(r->pattern), r->content, strlen(r->content));
        pl_strbuf_fini(now);
        *now = next;
    }
    if (!h->decode_level || added || now->failed) return;
    pl_strbuf bytes = {0};
    size_t    m;
    pl_strbuf_add(&bytes, now->s, now->n);
    if (!bytes.failed && pl_chars_to_bytes(now->s, now->n, bytes.s, &m)) {
        bytes.n = m;
        pl_strbuf_fini(now);
        *now = bytes;
        return;
    }
    now->failed = bytes.failed;
    pl_strbuf_fini(&bytes);
}

static pl_status fill_surfaces(pl_tokenizer *tok, const char *where, pl_err *err) {
    const pl_hf *h = tok->impl;
    uint8_t     *added = pl_calloc((size_t)tok->vocab.n, 1);
    tok->special = pl_calloc((size_t)tok->vocab.n, 1);
    pl_status st = added && tok->special ? PL_OK : pl_fail(err, PL_E_MEMORY, "%s: out of memory", where);
    for (int32_t i = 0; i < h->n_added && st == PL_OK; i++) {
        added[h->added[i].id] = 1;
        tok->special[h->added[i].id] = h->added[i].special;
    }
    for (int32_t id = 0; id < tok->vocab.n && st == PL_OK; id++) {
        size_t      n;
        const char *s = pl_vocab_piece(&tok->vocab, id, &n);
        pl_strbuf   now = {0};
        if (!tok->special[id]) add_surface(h, s, n, added[id], &now);
        if (now.full)
            st = pl_fail(err, PL_E_INPUT, "%s: the decoders make more than %zu bytes of token %d, which has %zu", where,
                         4 * (n + 16), id, n);
        else
            st = now.failed ? pl_fail(err, PL_E_MEMORY, "%s: out of memory", where)
                            : pl_vocab_set(&tok->surface, id, now.s, now.n, err);
        pl_strbuf_fini(&now);
    }
    pl_free(added);
    return st;
}

static uint64_t hash_norm(uint64_t hash, const pl_hf_norm *r) {
    int32_t settings[] = {r->kind, (int32_t)r->form, r->left, r->right, r->regex != NULL};
    hash = pl_hash_more(hash, settings, sizeof settings);
    if (r->pattern) hash = pl_hash_more(hash, r->pattern, strlen(r->pattern));
    return r->content ? pl_hash_more(hash, r->content, strlen(r->content)) : hash;
}

// The merges are hashed by a sum, because the order of the table is no property of the tokenizer.
static uint64_t settings_hash(const pl_hf *h) {
    uint64_t sum = 0;
    for (size_t i = 0; h->merges && i <= h->merge_mask; i++)
        if (h->merges[i].merged >= 0) sum += pl_hash(&h->merges[i], sizeof h->merges[i]);
    int32_t  settings[] = {h->byte_fallback, h->fuse_unk, h->ignore_merges, h->unk,
                           h->metaspace,     h->split,    h->scheme,        h->by_rank};
    uint64_t hash = pl_hash_more(sum, settings, sizeof settings);
    if (h->is_unigram) hash = pl_hash_more(hash, h->unigram.score, (size_t)h->model.n * sizeof *h->unigram.score);
    for (int i = 0; i < h->n_norm; i++)
        hash = hash_norm(hash, &h->norm[i]);
    for (int i = 0; i < h->n_decode; i++)
        hash = hash_norm(hash, &h->decode[i]);
    hash = pl_pretok_hash(&h->pretok, pl_hash_more(hash, h->mark, strlen(h->mark)));
    for (int32_t i = 0; i < h->n_added; i++) {
        const pl_hf_added *a = &h->added[i];
        int32_t            flags[] = {a->id, a->special, a->normalized, a->lstrip, a->rstrip, a->single_word};
        hash = pl_hash_more(pl_hash_more(hash, a->s, a->n), flags, sizeof flags);
    }
    return hash;
}

// In a byte-level vocabulary an ordinary piece may be "<s>": only special tokens count there.
static int32_t first_of(const pl_tokenizer *tok, const char *const *names) {
    const pl_hf *h = tok->impl;
    for (; *names; names++) {
        int32_t id = pl_vocab_find(&tok->vocab, *names, strlen(*names));
        if (id >= 0 && (!h->decode_level || tok->special[id])) return id;
    }
    return -1;
}

pl_status pl_hf_finish(pl_tokenizer *tok, const char *where, pl_err *err) {
    pl_hf *h = tok->impl;
    PL_TRY(order_added(h, false, err));
    PL_TRY(order_added(h, true, err));
    PL_TRY(pl_vocab_index(&tok->vocab, err));
    for (int32_t i = 0; i < h->model.n; i++) { // a repeated piece has the model's choice of id
        size_t      n;
        const char *s = pl_vocab_piece(&h->model, i, &n);
        int32_t     own = n > 0 ? pl_vocab_find(&h->model, s, n) : i;
        if (own != i) pl_vocab_point(&tok->vocab, own);
    }
    PL_TRY(pl_words_init(&h->words, err));
    // If the mark itself is unknown, unknown characters fuse across it; with ignore_merges whole texts may be pieces.
    const char *mark = h->metaspace ? h->mark : PL_SPACE_MARK;
    // Scores of whole texts may round differently from those of words.
    h->by_words = !h->is_unigram && !h->pretok.n && !h->ignore_merges &&
                  pl_vocab_find(&h->model, mark, strlen(mark)) >= 0 && pl_words_are_apart(&h->model, mark);
    tok->strip = h->decode_strip;
    tok->maximal = h->decode_level;
    tok->hash = settings_hash(h);
    PL_TRY(fill_surfaces(tok, where, err));
    if (tok->bos < 0) tok->bos = first_of(tok, (const char *const[]){"<s>", "<|begin_of_text|>", NULL});
    if (tok->eos < 0) tok->eos = first_of(tok, (const char *const[]){"</s>", "<|end_of_text|>", "<|endoftext|>", NULL});
    return PL_OK;
}

// Classes that transformers 5 rebuilds from the vocabulary, with these parts whatever the file has. %s:
// add_prefix_space.
static const struct {
    const char *name, *parts;
} made_anew[] = {
    {"GPT2Tokenizer", "{\"pre_tokenizer\":{\"type\":\"ByteLevel\",\"add_prefix_space\":%s,\"use_regex\":true}}"},
    {"GPTNeoXTokenizer", "{\"normalizer\":{\"type\":\"NFC\"},\"pre_tokenizer\":{\"type\":\"ByteLevel\","
                         "\"add_prefix_space\":%s,\"use_regex\":true}}"},
    {"CohereTokenizer",
     "{\"normalizer\":{\"type\":\"NFC\"},\"pre_tokenizer\":{\"type\":\"Sequence\",\"pretokenizers\":["
     "{\"type\":\"Digits\",\"individual_digits\":true},"
     "{\"type\":\"ByteLevel\",\"add_prefix_space\":%s,\"use_regex\":true}]}}"},
    {"Qwen2Tokenizer",
     "{\"normalizer\":{\"type\":\"NFC\"},\"pre_tokenizer\":{\"type\":\"Sequence\",\"pretokenizers\":["
     "{\"type\":\"Split\",\"pattern\":{\"Regex\":\"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\\\\r\\\\n\\\\p{L}\\\\p{N}]?\\\\p{L}+"
     "|"
     "\\\\p{N}| ?[^\\\\s\\\\p{L}\\\\p{N}]+[\\\\r\\\\n]*|\\\\s*[\\\\r\\\\n]+|\\\\s+(?!\\\\S)|\\\\s+\"},"
     "\"behavior\":\"Isolated\",\"invert\":false},"
     "{\"type\":\"ByteLevel\",\"add_prefix_space\":%s,\"use_regex\":false}]}}"},
    {"GemmaTokenizer", "{\"normalizer\":{\"type\":\"Replace\",\"pattern\":{\"String\":\" \"},\"content\":\"\u2581\"},"
                       "\"pre_tokenizer\":{\"type\":\"Split\",\"pattern\":{\"String\":\" \"},"
                       "\"behavior\":\"MergedWithPrevious\",\"invert\":false}}"},
};

static uint64_t hash_parts(const pl_hf *h) {
    int32_t  settings[] = {h->metaspace, h->split, h->scheme};
    uint64_t hash = pl_pretok_hash(&h->pretok, pl_hash(settings, sizeof settings));
    for (int i = 0; i < h->n_norm; i++)
        hash = hash_norm(hash, &h->norm[i]);
    return hash;
}

static pl_status read_made(pl_hf *made, const char *parts, bool prefix_space, pl_err *err) {
    const cJSON *node;
    pl_json      j;
    char        *text = pl_sprintf(parts, prefix_space ? "true" : "false");
    if (!text) return pl_fail(err, PL_E_MEMORY, "out of memory");
    pl_status st = pl_json_parse(&j, "tokenizer_class", 0, text, strlen(text), 0, err);
    pl_free(text);
    PL_TRY(st);
    if ((node = pl_json_find(&j, NULL, "normalizer"))) st = pl_hf_read_normalizer(made, &j, node, err);
    if (st == PL_OK) st = pl_hf_read_pre_tokenizer(made, &j, pl_json_find(&j, NULL, "pre_tokenizer"), err);
    pl_json_close(&j);
    return st;
}

// Compares class names without "Fast", which transformers 4 appends.
static bool is_class(const char *name, const char *class) {
    size_t n = strlen(class);
    return strncmp(name, class, n) == 0 && (!name[n] || is_type(name + n, "Fast"));
}

// Warns if the class rebuilds parts that differ from the file's.
static pl_status compare_made(const pl_hf *h, const pl_json *config, const char *name, pl_err *err) {
    size_t i = 0, n = sizeof made_anew / sizeof *made_anew;
    bool   prefix_space;
    while (i < n && !is_class(name, made_anew[i].name))
        i++;
    if (i == n) return PL_OK;
    PL_TRY(pl_json_opt_bool(config, NULL, "add_prefix_space", false, &prefix_space, err));
    pl_tokenizer made = {.impl = pl_calloc(1, sizeof(pl_hf))};
    if (!made.impl) return pl_fail(err, PL_E_MEMORY, "%s: out of memory", config->where);
    pl_status st = read_made(made.impl, made_anew[i].parts, prefix_space, err);
    if (st == PL_OK && hash_parts(made.impl) != hash_parts(h))
        pl_log_warn_once("%s: names %s, which transformers 5 makes anew with a normalizer and a pre-tokenizer of its "
                         "own; those of tokenizer.json count here; name TokenizersBackend to have the same ids in both",
                         config->where, name);
    pl_hf_close(&made);
    return st;
}

// Model types whose tokenizer.json transformers 5 uses as it is, whatever class the file beside it names.
static bool file_counts(const pl_json *model) {
    static const char *const types[] = {"mistral", "mistral3", "ministral3", "mixtral",
                                        "phi3",    "olmo2",    "olmo3",      "qwen3_5"};
    const cJSON             *type = model->root ? pl_json_find(model, NULL, "model_type") : NULL;
    bool                     found = false;
    for (size_t i = 0; i < sizeof types / sizeof *types; i++)
        found |= cJSON_IsString(type) && is_type(type->valuestring, types[i]);
    return found;
}

static pl_status read_class(pl_hf *h, const pl_tokenizer_beside *b, pl_err *err) {
    const char *name;
    PL_TRY(pl_json_opt_str(&b->config, NULL, "tokenizer_class", "", &name, err));
    PL_TRY(pl_json_opt_bool(&b->config, NULL, "legacy", false, &h->legacy, err));
    if (file_counts(&b->model)) return PL_OK;
    static const char *const llama[] = {"LlamaTokenizer", "CodeLlamaTokenizer"};
    for (size_t i = 0; i < 2 && !h->decode_level && !h->is_unigram; i++)
        if (is_class(name, llama[i])) h->rebuilt = llama[i];
    return compare_made(h, &b->config, name, err);
}

static pl_status read_parts(pl_tokenizer *tok, const pl_json *j, const char *pre, const pl_tokenizer_beside *beside,
                            pl_err *err) {
    pl_hf       *h = tok->impl;
    const cJSON *node;
    // First the parts that distinguish the families, so that another family is refused by those.
    if ((node = pl_json_find(j, NULL, "normalizer"))) PL_TRY(pl_hf_read_normalizer(h, j, node, err));
    if ((node = pl_json_find(j, NULL, "decoder"))) PL_TRY(pl_hf_read_decoder(h, j, node, err));
    const cJSON *own = pl_json_find(j, NULL, "pre_tokenizer");
    if (own && pre)
        return pl_fail(err, PL_E_INPUT, "%s: names its own pre-tokenizer; leave out the one given (%s)", j->where, pre);
    if (own) PL_TRY(pl_hf_read_pre_tokenizer(h, j, own, err));
    // A byte-level vocabulary without a pre-tokenizer needs one from elsewhere.
    bool missing = !own && (h->decode_level || pre);
    if (missing) h->pretok.bytes = true;
    PL_TRY(read_model(tok, j, err));
    if (missing) PL_TRY(pl_pre_choose(tok, j->where, pre, err));
    PL_TRY(read_all_added(tok, j, err));
    PL_TRY(pl_hf_merge_beside(tok, beside, err));
    PL_TRY(read_class(h, beside, err));
    if (!node) return pl_hf_refuse(j, err, "decoder", "null");
    if (h->pretok.bytes != h->decode_level)
        return pl_fail(err, PL_E_INPUT, "%s: ByteLevel stands among %s alone; such a tokenizer is not supported",
                       j->where, h->decode_level ? "the decoders" : "the pre-tokenizers");
    if ((node = pl_json_find(j, NULL, "post_processor"))) PL_TRY(read_post_processor(tok, j, node, err));
    return pl_hf_finish(tok, j->where, err);
}

bool pl_hf_is_file(const pl_tokenizer *tok) {
    return tok->vt == &hf_vt;
}

pl_status pl_tokenizer_open_hf(pl_tokenizer *tok, const char *path, const char *pre, const pl_tokenizer_beside *beside,
                               const uint8_t *data, size_t n, pl_err *err) {
    pl_json j;
    PL_TRY(pl_json_parse_many(&j, path, 0, data, n, PL_TOKENIZER_VALUES, PL_JSON_UNIQUE | PL_JSON_NUL | PL_JSON_TABLES,
                              err));
    pl_hf    *h = tok->impl = pl_calloc(1, sizeof *h);
    pl_status st = h ? PL_OK : out_of_memory(&j, err);
    tok->vt = &hf_vt;
    if (st == PL_OK) st = read_parts(tok, &j, pre, beside, err);
    pl_json_close(&j);
    return st;
}
