#include "data/chat/prompts.h"
#include "kernels/base/json.h"
#include "kernels/base/strbuf.h"

typedef struct chat_reader {
    const pl_chat_template *t;
    const pl_chat_options  *o;
} chat_reader;

static pl_status add(const chat_reader *c, pl_prompts *to, const pl_json *j, int64_t line, int first,
                     const char *record, size_t n, pl_err *err) {
    pl_jinja_out    out;
    pl_chat_options o = *c->o;
    o.add_generation_prompt = true;
    o.first = first;
    PL_TRY(pl_chat_template_render(c->t, j->where, 0, record, n, &o, &out, err));
    char *text = out.text;
    out.text = NULL;
    pl_jinja_out_fini(&out);
    return pl_prompts_add(to, j, line, text, true, err);
}

// {"messages": [{"role": "user", "content": TEXT}]}
static pl_status add_said(const chat_reader *c, pl_prompts *to, const pl_json *j, int64_t line, pl_err *err) {
    pl_strbuf   b = {0};
    pl_json_out o;
    pl_json_out_begin(&o, 0);
    pl_status st = pl_prompts_text(j, true, &b, err);
    pl_json_out_object(&o);
    pl_json_out_key(&o, "messages");
    pl_json_out_array(&o);
    pl_json_out_object(&o);
    pl_json_out_key(&o, "role");
    pl_json_out_str(&o, "user");
    pl_json_out_key(&o, "content");
    pl_json_out_strn(&o, b.s ? b.s : "", b.n);
    pl_json_out_close(&o, '}');
    pl_json_out_close(&o, ']');
    pl_json_out_close(&o, '}');
    if (st == PL_OK && b.n == 0 && !b.failed) st = pl_json_fail(j, j->root, err, "the prompt of this record is empty");
    if (st == PL_OK && b.failed) st = pl_fail(err, PL_E_MEMORY, "%s: out of memory", j->where);
    size_t    n = o.len;
    pl_status end = pl_json_out_end(&o, st == PL_OK ? err : NULL);
    if (st == PL_OK) st = end;
    if (st == PL_OK) st = add(c, to, j, line, 0, o.text, n, err);
    pl_free(o.text);
    pl_strbuf_fini(&b);
    return st;
}

static pl_status add_record(const pl_prompts_reader *r, pl_prompts *to, const pl_json *j, int64_t line,
                            const char *text, size_t n, pl_err *err) {
    const chat_reader *c = r->arg;
    const cJSON       *list, *e;
    const char        *key = pl_json_find(j, NULL, "messages") ? "messages" : "conversations";
    int64_t            before = to->n;
    int                i = 0;
    if (!pl_json_find(j, NULL, key)) return add_said(c, to, j, line, err);
    PL_TRY(pl_json_get_array(j, NULL, key, &list, err));
    cJSON_ArrayForEach(e, list) {
        i++;
        bool asks = pl_chat_says(j, e, "user") || pl_chat_says(j, e, "tool");
        if (asks && (!e->next || pl_chat_says(j, e->next, "assistant"))) PL_TRY(add(c, to, j, line, i, text, n, err));
    }
    if (to->n == before) return pl_json_fail(j, list, err, "a conversation without a turn for the assistant to answer");
    return PL_OK;
}

pl_status pl_chat_prompts_read(pl_prompts **out, const char *path, const pl_chat_template *t, const pl_chat_options *o,
                               pl_err *err) {
    chat_reader c = {t, o};
    return pl_prompts_read_by(out, path, &(pl_prompts_reader){add_record, &c}, err);
}

// A special token that the text spells, NULL: none.
static const char *spelt(const pl_tokenizer *tok, const char *text, size_t bytes) {
    for (int32_t id = 0; id < pl_tokenizer_vocab_size(tok); id++) {
        const char *piece = pl_tokenizer_is_special(tok, id) ? pl_tokenizer_piece(tok, id) : "";
        if (*piece && memmem(text, bytes, piece, strlen(piece))) return piece;
    }
    return NULL;
}

pl_status pl_chat_encode(const pl_tokenizer *tok, const char *text, size_t bytes, int32_t **ids, int64_t *n,
                         pl_err *err) {
    const char *kind = pl_tokenizer_kind(tok);
    bool        blind = strcmp(kind, "sentencepiece") == 0 || strcmp(kind, "llama2c") == 0;
    const char *piece = blind ? spelt(tok, text, bytes) : NULL;
    if (piece)
        return pl_fail(err, PL_E_UNSUPPORTED,
                       "the chat template writes %s, which a tokenizer of the kind %s reads as letters; bring the "
                       "model's tokenizer.json",
                       piece, kind);
    return pl_tokenizer_encode(tok, text, bytes, 0, ids, n, err);
}

pl_status pl_prompt_encode(const pl_tokenizer *tok, const pl_prompt *p, int32_t **ids, int64_t *n, pl_err *err) {
    if (p->rendered) return pl_chat_encode(tok, p->text, strlen(p->text), ids, n, err);
    return pl_tokenizer_encode(tok, p->text, strlen(p->text), PL_TOK_ADD_BOS, ids, n, err);
}
