#include "data/tokenizer/pre.h"
#include "kernels/base/arena.h"
#include "kernels/base/hash.h"
#include <stdio.h>

// Known vocabularies. One is identified by a hash over pieces, ids and merges.
typedef struct family {
    const char *name; // of its pre-tokenizer
    const char *bos, *eos;
    uint64_t    identity;
    // Tokens after the vocabulary (or in it), NULL-terminated; then reserved tokens, numbered from 2, up to `tokens` in
    // all.
    const char *special[16];
    int         tokens;
} family;

// Tokens of Llama-3: llama-models, models/llama3/tokenizer.py. Ids are those of all Llama-3, 3.1, 3.2 and 3.3.
static const family families[] = {
    {.name = "gpt-2",
     .bos = "<|endoftext|>",
     .eos = "<|endoftext|>",
     .identity = 0x6d7330f97aaa3336,
     .special = {"<|endoftext|>"}},
    {.name = "llama-3",
     .bos = "<|begin_of_text|>",
     .eos = "<|end_of_text|>",
     .identity = 0x9a078acc50360e12,
     .special = {"<|begin_of_text|>", "<|end_of_text|>", "<|reserved_special_token_0|>", "<|reserved_special_token_1|>",
                 "<|finetune_right_pad_id|>", "<|step_id|>", "<|start_header_id|>", "<|end_header_id|>", "<|eom_id|>",
                 "<|eot_id|>", "<|python_tag|>", "<|image|>"},
     .tokens = 256},
    {.name = "qwen2",
     .eos = "<|endoftext|>",
     .identity = 0x47d77b7a929a5120,
     .special = {"<|endoftext|>", "<|im_start|>", "<|im_end|>"}},
};
enum { FAMILIES = sizeof families / sizeof *families };

static uint64_t identity_of(const pl_hf *h) {
    uint64_t sum = h->by_rank;
    for (size_t i = 0; h->merges && i <= h->merge_mask; i++)
        if (h->merges[i].merged >= 0) sum += pl_hash(&h->merges[i], sizeof h->merges[i]);
    return pl_vocab_hash(&h->model, sum);
}

static const family *by_identity(const pl_hf *h) {
    uint64_t id = identity_of(h);
    for (int i = 0; i < FAMILIES; i++)
        if (families[i].identity == id) return &families[i];
    return NULL;
}

static const family *by_name(const char *name) {
    for (int i = 0; i < FAMILIES; i++)
        if (strcmp(families[i].name, name) == 0) return &families[i];
    return NULL;
}

#define KNOWN "gpt-2, llama-3, qwen2 and llama.cpp's names (tokenizer.ggml.pre)"

static pl_status find_row(const pl_pre_row **row, const pl_hf *h, const char *where, const char *pre, pl_err *err) {
    const family *f = pre ? NULL : by_identity(h);
    char          hex[17];
    *row = pre ? pl_pre_row_of(pre) : f ? pl_pre_row_of(f->name) : NULL;
    if (*row && (*row)->refused)
        return pl_fail(err, PL_E_UNSUPPORTED, "%s: the pre-tokenizer '%s' is not supported: %s", where, pre,
                       (*row)->refused);
    if (*row) return PL_OK;
    if (pre) return pl_fail(err, PL_E_INPUT, "%s: unknown pre-tokenizer '%s'; known are " KNOWN, where, pre);
    pl_hash_hex(hex, identity_of(h));
    return pl_fail(err, PL_E_INPUT,
                   "%s: names no pre-tokenizer, and the vocabulary (%s) is none of those that are known; name it "
                   "(--pre or target.pre): " KNOWN,
                   where, hex);
}

pl_status pl_pre_choose(pl_tokenizer *tok, const char *where, const char *pre, pl_err *err) {
    pl_hf            *h = tok->impl;
    const pl_pre_row *row;
    PL_TRY(find_row(&row, h, where, pre, err));
    h->pre = row->name;
    if (row->nfc) {
        if (h->n_norm > 0) return pl_fail(err, PL_E_INPUT, "%s: '%s' brings its own normalizer", where, row->name);
        h->norm[h->n_norm++] = (pl_hf_norm){.kind = PL_NORM_FORM, .form = PL_NFC};
    }
    for (int i = 0; i < PL_PRE_SPLITS && row->split[i]; i++)
        PL_TRY(pl_pretok_add_split(&h->pretok, row->split[i], true, PL_ISOLATED, false, err));
    h->pretok.bytes = false; // add_byte_level sets it again
    return pl_pretok_add_byte_level(&h->pretok, false, false, err);
}

// {"151643": {"content": "<|endoftext|>", "special": true, ...}, ...}
static pl_status read_decoder_tokens(pl_tokenizer *tok, const pl_json *j, const cJSON *tokens, pl_err *err) {
    size_t       count = 0;
    const cJSON *e;
    cJSON_ArrayForEach(e, tokens) count++;
    PL_TRY(pl_hf_added_reserve(tok->impl, count, err));
    cJSON_ArrayForEach(e, tokens) {
        pl_hf_added flags = {0};
        const char *s;
        int64_t     id;
        PL_TRY(pl_hf_added_key(&id, j, e, err));
        PL_TRY(pl_json_get_str(j, e, "content", &s, err));
        PL_TRY(pl_hf_added_flags(&flags, j, e, err));
        pl_status st = pl_hf_added_add(tok, id, s, strlen(s), &flags, err);
        if (st != PL_OK) return pl_fail_at(err, st, "%s: added_tokens_decoder", j->where);
    }
    return PL_OK;
}

static pl_status add_family(pl_tokenizer *tok, const family *f, pl_err *err) {
    pl_hf  *h = tok->impl;
    int32_t id = h->model.n;
    int     named = 0, n = 0;
    while (f->special[named])
        named++;
    PL_TRY(pl_hf_added_reserve(h, (size_t)(named + f->tokens), err));
    for (; n < named || n < f->tokens; n++) {
        char        name[64];
        const char *s = n < named ? f->special[n] : name;
        snprintf(name, sizeof name, "<|reserved_special_token_%d|>", n - named + 2);
        int32_t there = pl_vocab_find(&h->model, s, strlen(s));
        PL_TRY(pl_hf_added_add(tok, there >= 0 ? there : id++, s, strlen(s), &(pl_hf_added){.special = true}, err));
    }
    return PL_OK;
}

static int32_t find_token(const pl_tokenizer *tok, const char *name) {
    const pl_hf *h = tok->impl;
    for (int32_t i = 0; name && i < h->n_added; i++)
        if (h->added[i].n == strlen(name) && memcmp(h->added[i].s, name, h->added[i].n) == 0) return h->added[i].id;
    return name ? pl_vocab_find(&h->model, name, strlen(name)) : -1;
}

pl_status pl_pre_added(pl_tokenizer *tok, const pl_json *config, pl_err *err) {
    const family *known = by_identity(tok->impl), *f = by_name(((pl_hf *)tok->impl)->pre);
    const cJSON  *tokens = NULL;
    if (config) PL_TRY(pl_json_opt_object(config, NULL, "added_tokens_decoder", &tokens, err));
    if (tokens)
        PL_TRY(read_decoder_tokens(tok, config, tokens, err));
    else if (known)
        PL_TRY(add_family(tok, known, err));
    tok->bos = find_token(tok, f ? f->bos : NULL);
    tok->eos = find_token(tok, f ? f->eos : NULL);
    tok->add_bos = pl_pre_row_of(((pl_hf *)tok->impl)->pre)->add_bos;
    return PL_OK;
}

void pl_tokenizer_put_config(const pl_tokenizer *tok, pl_json_out *o) {
    if (tok->vt->encode != pl_hf_encode) return;
    const pl_hf *h = tok->impl;
    if (!h->pre && !h->merged) return;
    if (h->pre) pl_put_str(o, "paceline_pre", h->pre);
    pl_put_object(o, "added_tokens_decoder");
    for (int32_t i = 0; i < h->n_added; i++) {
        const pl_hf_added       *a = &h->added[i];
        const bool               flag[] = {a->special, a->normalized, a->lstrip, a->rstrip, a->single_word};
        static const char *const name[] = {"special", "normalized", "lstrip", "rstrip", "single_word"};
        char                     id[16];
        snprintf(id, sizeof id, "%d", a->id);
        pl_put_object(o, id);
        pl_put_str(o, "content", pl_vocab_piece(&tok->vocab, a->id, NULL));
        for (int k = 0; k < 5; k++)
            pl_put_bool(o, name[k], flag[k]);
        pl_json_out_close(o, '}');
    }
    pl_json_out_close(o, '}');
}
