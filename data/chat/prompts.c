#include "data/chat/prompts.h"
#include "kernels/base/json.h"
#include "kernels/base/strbuf.h"

typedef struct chat_reader {
    const pl_chat_template *t;
    pl_chat_options         o;
} chat_reader;

static char *take_text(pl_jinja_out *out) {
    char *text = out->text;
    out->text = NULL;
    pl_jinja_out_fini(out);
    return text;
}

// The first `first` messages of a record (0: all) as a prompt.
static pl_status add(const chat_reader *c, pl_prompts *to, const pl_json *j, int64_t line, int first,
                     const char *record, size_t n, pl_err *err) {
    pl_jinja_out    out;
    pl_chat_options o = c->o;
    o.first = first;
    PL_TRY(pl_chat_template_render(c->t, j->where, 0, record, n, &o, &out, err));
    return pl_prompts_add(to, j, line, take_text(&out), true, err);
}

// What a user says stays as it is here: add_said renders it.
static pl_status add_text(pl_prompts *to, const pl_json *j, int64_t line, pl_err *err) {
    pl_strbuf b = {0};
    pl_status st = pl_prompts_text(j, true, &b, err);
    if (st == PL_OK) st = pl_prompts_add(to, j, line, pl_strbuf_take(&b), false, err);
    pl_strbuf_fini(&b);
    return st;
}

static pl_status add_turns(const pl_prompts_reader *r, pl_prompts *to, const pl_json *j, int64_t line, const char *text,
                           size_t n, pl_err *err) {
    const cJSON *list = pl_chat_messages(j), *e;
    int64_t      before = to->n;
    int          i = 0;
    if (!list) return add_text(to, j, line, err);
    if (!cJSON_IsArray(list)) return pl_json_fail(j, list, err, "expected an array of messages");
    cJSON_ArrayForEach(e, list) {
        i++;
        bool asks = pl_chat_says(j, e, "user") || pl_chat_says(j, e, "tool");
        if (asks && (!e->next || pl_chat_says(j, e->next, "assistant")))
            PL_TRY(add(r->arg, to, j, line, i, text, n, err));
    }
    if (to->n == before) return pl_json_fail(j, list, err, "a conversation without a turn for the assistant to answer");
    return PL_OK;
}

static pl_status add_whole(const pl_prompts_reader *r, pl_prompts *to, const pl_json *j, int64_t line, const char *text,
                           size_t n, pl_err *err) {
    if (!pl_chat_messages(j)) return add_text(to, j, line, err);
    return add(r->arg, to, j, line, 0, text, n, err);
}

pl_status pl_chat_said(const pl_chat_template *t, const char *where, int64_t line, const char *said, size_t n,
                       const pl_chat_options *o, pl_jinja_out *out, pl_err *err) {
    pl_json_out j;
    pl_json_out_begin(&j, 0);
    pl_json_out_object(&j);
    pl_json_out_key(&j, "messages");
    pl_json_out_array(&j);
    pl_json_out_object(&j);
    pl_json_out_key(&j, "role");
    pl_json_out_str(&j, "user");
    pl_json_out_key(&j, "content");
    pl_json_out_strn(&j, said, n);
    pl_json_out_close(&j, '}');
    pl_json_out_close(&j, ']');
    pl_json_out_close(&j, '}');
    memset(out, 0, sizeof *out);
    PL_TRY(pl_json_out_end(&j, err));
    pl_status st = pl_chat_template_render(t, where, line, j.text, j.len, o, out, err);
    pl_free(j.text);
    return st;
}

static pl_status add_said(const chat_reader *c, const char *path, pl_prompt *p, pl_err *err) {
    pl_jinja_out out;
    if (p->rendered) return PL_OK;
    PL_TRY(pl_chat_said(c->t, path, p->line, p->text, strlen(p->text), &c->o, &out, err));
    pl_free(p->text);
    p->text = take_text(&out);
    p->rendered = true;
    return *p->text ? PL_OK
                    : pl_fail(err, PL_E_INPUT, "%s:%lld: the chat template writes nothing", path, (long long)p->line);
}

static pl_status read_by(pl_prompts **out, const char *path, const pl_prompts_reader *r, pl_err *err) {
    pl_status st = pl_prompts_read_by(out, path, r, err);
    for (int64_t i = 0; st == PL_OK && i < (*out)->n; i++)
        st = add_said(r->arg, path, &(*out)->p[i], err);
    if (st == PL_OK) return PL_OK;
    pl_prompts_destroy(*out);
    *out = NULL;
    return st;
}

pl_status pl_chat_prompts_read(pl_prompts **out, const char *path, const pl_chat_template *t, const pl_chat_options *o,
                               pl_err *err) {
    chat_reader c = {t, *o};
    c.o.add_generation_prompt = true;
    return read_by(out, path, &(pl_prompts_reader){add_turns, &c}, err);
}

pl_status pl_chat_texts_read(pl_prompts **out, const char *path, const pl_chat_template *t, const pl_chat_options *o,
                             pl_err *err) {
    chat_reader c = {t, *o};
    return read_by(out, path, &(pl_prompts_reader){add_whole, &c}, err);
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

void pl_prompt_cut(const pl_tokenizer *tok, int32_t *ids, int64_t *n, int64_t room) {
    int64_t keep = ids[0] == pl_tokenizer_bos_id(tok) ? 1 : 0;
    memmove(ids + keep, ids + *n - (room - keep), (size_t)(room - keep) * sizeof *ids);
    *n = room;
}
