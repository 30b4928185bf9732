// Merges added tokens of the files beside a tokenizer.json into its own, as transformers 5 does (TokenizersBackend):
// added_tokens_decoder in the order of its ids, then the tokens that the files name (BOS, EOS, ... and further ones). A
// token of tokenizer.json keeps its id and takes the flags of added_tokens_decoder; a piece of the vocabulary becomes
// an added token; any other one gets the next free id, whatever id the files state.
#include "data/tokenizer/hf.h"
#include "data/tokenizer/open.h"
#include "kernels/base/arena.h"
#include "kernels/base/files.h"
#include "kernels/base/log.h"
#include <stdlib.h>
#include <string.h>

typedef struct stated {
    const cJSON *node; // added_tokens_decoder: its object; added_tokens.json: its id
    const char  *content;
    int64_t      id;
} stated;

typedef struct merge {
    pl_tokenizer *tok;
    pl_hf        *h;
    pl_vocab      own; // the file's own added tokens, by index in h->added
    int32_t       n_own;
} merge;

static int by_id(const void *a, const void *b) {
    const stated *x = a, *y = b;
    return x->id < y->id ? -1 : x->id > y->id;
}

static const char *content_of(const merge *m, int32_t place, size_t *n) {
    return pl_vocab_piece(&m->tok->vocab, m->h->added[place].id, n);
}

// Returns the index of an added token, -1: none.
static int32_t find_added(const merge *m, const char *content) {
    int32_t place = pl_vocab_find(&m->own, content, strlen(content));
    size_t  n;
    for (int32_t i = m->n_own; i < m->h->n_added && place < 0; i++)
        if (strcmp(content_of(m, i, &n), content) == 0) place = i;
    return place;
}

static pl_status begin_merge(merge *m, pl_tokenizer *tok, pl_err *err) {
    *m = (merge){.tok = tok, .h = tok->impl};
    m->n_own = m->h->n_added;
    for (int32_t i = 0; i < m->n_own; i++) {
        size_t      n;
        const char *s = content_of(m, i, &n);
        PL_TRY(pl_vocab_set(&m->own, i, s, n, err));
    }
    return pl_vocab_index(&m->own, err);
}

// Returns the id of a token that is no piece: after all others.
static int64_t next_id(const merge *m) {
    int64_t pieces = 0, last = -1;
    for (int32_t i = 0; i < m->h->model.n; i++)
        pieces += m->h->model.len[i] >= 0;
    for (int32_t i = 0; i < m->h->n_added; i++)
        if (m->h->added[i].id > last) last = m->h->added[i].id;
    return last >= pieces ? last + 1 : pieces;
}

static pl_status add_token(merge *m, const pl_json *j, const cJSON *node, const char *content, const pl_hf_added *flags,
                           pl_err *err) {
    int32_t piece = pl_vocab_find(&m->h->model, content, strlen(content));
    PL_TRY(pl_hf_added_reserve(m->h, 1, err));
    pl_err    why = {0};
    int64_t   id = piece >= 0 ? piece : next_id(m);
    pl_status st = pl_hf_added_add(m->tok, id, content, strlen(content), flags, &why);
    m->h->merged |= st == PL_OK;
    if (st == PL_E_INPUT) return pl_json_fail(j, node, err, "%s", why.msg);
    return st == PL_OK ? st : pl_fail(err, st, "%s", why.msg);
}

static bool same_flags(const pl_hf_added *a, const pl_hf_added *b) {
    return a->special == b->special && a->normalized == b->normalized && a->lstrip == b->lstrip &&
           a->rstrip == b->rstrip && a->single_word == b->single_word;
}

// Sets other flags for a token of the file.
static pl_status set_flags(merge *m, int32_t place, const pl_hf_added *flags, pl_err *err) {
    size_t       n;
    const char  *s = content_of(m, place, &n);
    pl_hf_added *a = &m->h->added[place], set = *flags;
    if (same_flags(a, flags)) return PL_OK;
    m->h->merged = true;
    return pl_hf_added_set(m->h, a, s, n, &set, a->id, err);
}

// ---- tokens with ids

static pl_status list_stated(stated **out, int64_t *n, const pl_json *j, const cJSON *tokens, bool objects,
                             pl_err *err) {
    int64_t      count = 0;
    const cJSON *e;
    cJSON_ArrayForEach(e, tokens) count++;
    stated *list = *out = pl_calloc((size_t)count + 1, sizeof *list);
    *n = 0;
    if (!list) return pl_fail(err, PL_E_MEMORY, "%s: out of memory", j->where);
    cJSON_ArrayForEach(e, tokens) {
        stated *s = &list[(*n)++];
        s->node = e;
        if (objects) {
            PL_TRY(pl_hf_added_key(&s->id, j, e, err));
            PL_TRY(pl_json_get_str(j, e, "content", &s->content, err));
        } else {
            PL_TRY(pl_json_int_of(j, e, 0, PL_HF_MAX_ID, &s->id, err));
            s->content = e->string;
        }
    }
    qsort(list, (size_t)count, sizeof *list, by_id);
    return PL_OK;
}

static void warn_id(const pl_json *j, const merge *m, const stated *s) {
    int32_t is = m->h->added[find_added(m, s->content)].id;
    if (is != s->id)
        pl_log_warn_once("%s: gives '%s' the id %lld; it is %d, by tokenizer.json and the order in which tokens are "
                         "added, as in transformers",
                         j->where, s->content, (long long)s->id, is);
}

static pl_status merge_stated(merge *m, const pl_json *j, const cJSON *tokens, bool objects, pl_err *err) {
    stated   *list;
    int64_t   n;
    pl_status st = list_stated(&list, &n, j, tokens, objects, err);
    for (int64_t i = 0; i < n && st == PL_OK; i++) {
        const stated *s = &list[i];
        pl_hf_added   flags = {.normalized = true}; // added_tokens.json applies to tokens that the file lacks
        int32_t       place = find_added(m, s->content);
        if (objects) st = pl_hf_added_flags(&flags, j, s->node, err);
        if (st == PL_OK && place < 0) st = add_token(m, j, s->node, s->content, &flags, err);
        if (st == PL_OK && place >= 0 && objects) st = set_flags(m, place, &flags, err);
        if (st == PL_OK) warn_id(j, m, s);
    }
    pl_free(list);
    return st;
}

// ---- tokens by their use

// named: one of the tokens with a use, which are special whatever the file states.
static pl_status merge_used(merge *m, const pl_json *j, const cJSON *node, bool named, pl_err *err) {
    pl_hf_added flags = {.special = true};
    const char *s;
    if (cJSON_IsObject(node)) {
        PL_TRY(pl_json_get_str(j, node, "content", &s, err));
        PL_TRY(pl_hf_added_flags(&flags, j, node, err));
        if (!pl_json_find(j, node, "normalized")) flags.normalized = false;
        flags.special = true;
    } else {
        PL_TRY(pl_json_str_of(j, node, &s, err));
    }
    int32_t place = find_added(m, s);
    if (!*s) return PL_OK;
    if (place < 0) return add_token(m, j, node, s, &flags, err);
    flags = m->h->added[place];
    flags.special |= named;
    return set_flags(m, place, &flags, err);
}

static bool is_text(const cJSON *e) {
    return cJSON_IsString(e);
}

static bool is_object(const cJSON *e) {
    const cJSON *type = cJSON_GetObjectItemCaseSensitive(e, "__type");
    return cJSON_IsString(type) && strcmp(type->valuestring, "AddedToken") == 0;
}

// Merges tokens of model-specific uses ("image_token"), of one form. *found: there are some.
static pl_status merge_models(merge *m, const pl_json *j, bool (*form)(const cJSON *e), bool *found, pl_err *err) {
    *found = false;
    for (const cJSON *e = j->root ? j->root->child : NULL; e; e = e->next) {
        bool usual = false;
        for (int i = 0; pl_tokenizer_uses[i]; i++)
            usual |= strcmp(e->string, pl_tokenizer_uses[i]) == 0;
        if (usual || !pl_path_ends(e->string, "_token") || !form(e)) continue;
        *found = true;
        PL_TRY(merge_used(m, j, e, true, err));
    }
    return PL_OK;
}

static pl_status merge_each(merge *m, const pl_json *j, const cJSON *list, pl_err *err) {
    for (const cJSON *e = list ? list->child : NULL; e; e = e->next)
        PL_TRY(merge_used(m, j, e, cJSON_IsObject(list), err));
    return PL_OK;
}

// Merges tokens of model-specific uses, and further ones. model_specific_special_tokens, as transformers saves them,
// apply if no other place names such uses.
static pl_status merge_further(merge *m, const pl_tokenizer_beside *b, pl_err *err) {
    const pl_json *j;
    const cJSON   *list = pl_tokenizer_beside_find(b, "extra_special_tokens", &j), *own;
    bool           found;
    if (!list || !list->child) list = pl_tokenizer_beside_find(b, "additional_special_tokens", &j);
    PL_TRY(merge_models(m, &b->config, is_object, &found, err));
    PL_TRY(merge_models(m, &b->config, is_text, &found, err));
    PL_TRY(pl_json_opt_object(&b->config, NULL, "model_specific_special_tokens", &own, err));
    if (!found && !cJSON_IsObject(list)) PL_TRY(merge_each(m, &b->config, own, err));
    return merge_each(m, j, list, err);
}

pl_status pl_hf_merge_beside(pl_tokenizer *tok, const pl_tokenizer_beside *b, pl_err *err) {
    merge          m;
    const cJSON   *tokens;
    const pl_json *j;
    pl_status      st = begin_merge(&m, tok, err);
    if (st == PL_OK) st = pl_json_opt_object(&b->config, NULL, "added_tokens_decoder", &tokens, err);
    if (st == PL_OK && tokens) st = merge_stated(&m, &b->config, tokens, true, err);
    if (st == PL_OK && !tokens && cJSON_IsObject(b->added.root))
        st = merge_stated(&m, &b->added, b->added.root, false, err);
    for (int i = 0; pl_tokenizer_uses[i] && st == PL_OK; i++) {
        const cJSON *node = pl_tokenizer_beside_find(b, pl_tokenizer_uses[i], &j);
        if (node) st = merge_used(&m, j, node, true, err);
    }
    if (st == PL_OK) st = merge_further(&m, b, err);
    pl_vocab_fini(&m.own);
    return st;
}
