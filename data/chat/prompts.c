#include "data/chat/prompts.h"
#include "data/text/messages.h"
#include "kernels/base/check.h"
#include "kernels/base/json.h"
#include "kernels/base/log.h"
#include "kernels/base/strbuf.h"

#include <string.h>

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

// ---- records of a user's text

static void put_message(pl_json_out *o, const char *role, const char *content, size_t n) {
    pl_json_out_object(o);
    pl_put_str(o, "role", role);
    pl_json_out_key(o, "content");
    if (content)
        pl_json_out_strn(o, content, n);
    else
        pl_json_out_null(o);
    pl_json_out_close(o, '}');
}

// j: the record with a system message; NULL: none.
static void begin_record(pl_json_out *o, const pl_json *j) {
    const char *system = j ? pl_record_system(j) : NULL;
    pl_json_out_begin(o, 0);
    pl_json_out_object(o);
    pl_put_array(o, "messages");
    if (system) put_message(o, "system", system, strlen(system));
}

// *record, of *n bytes, is owned by the caller.
static pl_status end_record(pl_json_out *o, char **record, size_t *n, pl_err *err) {
    pl_json_out_close(o, ']');
    pl_json_out_close(o, '}');
    PL_TRY(pl_json_out_end(o, err));
    *record = o->text;
    *n = o->len;
    return PL_OK;
}

static pl_status record_of_said(char **record, size_t *n_record, const char *said, size_t n, pl_err *err) {
    pl_json_out o;
    begin_record(&o, NULL);
    put_message(&o, "user", said, n);
    return end_record(&o, record, n_record, err);
}

// Returns the pairs of user text and answer (LLaMA-Factory); NULL: the record has none in this form.
static const cJSON *find_history(const pl_json *j) {
    const cJSON *list = pl_prompts_member(j, "history"), *e;
    if (!list || !cJSON_IsArray(list)) return NULL;
    cJSON_ArrayForEach(e, list) {
        bool pair = cJSON_IsArray(e) && cJSON_GetArraySize(e) == 2;
        if (!pair || !cJSON_IsString(e->child) || !cJSON_IsString(e->child->next)) return NULL;
    }
    return list->child ? list : NULL;
}

// Builds a record of a prompt after its system message and history.
static pl_status record_of_prompt(char **record, size_t *n, const pl_json *j, const char *said, pl_err *err) {
    pl_json_out  o;
    const cJSON *history = find_history(j), *e;
    begin_record(&o, j);
    cJSON_ArrayForEach(e, history) {
        const char *user = e->child->valuestring, *answer = e->child->next->valuestring;
        put_message(&o, "user", user, strlen(user));
        put_message(&o, "assistant", answer, strlen(answer));
    }
    put_message(&o, "user", said, strlen(said));
    return end_record(&o, record, n, err);
}

// The assistant's answers in between are unknown: content null.
static pl_status record_of_turns(char **record, size_t *n, const pl_json *j, const cJSON *list, pl_err *err) {
    pl_json_out  o;
    const cJSON *e;
    const char  *said;
    pl_status    st = PL_OK;
    begin_record(&o, j);
    cJSON_ArrayForEach(e, list) {
        if (e != list->child) put_message(&o, "assistant", NULL, 0);
        if (st == PL_OK) st = pl_json_str_of(j, e, &said, err);
        if (st == PL_OK) put_message(&o, "user", said, strlen(said));
    }
    pl_status end = end_record(&o, record, n, err);
    if (st == PL_OK) return end;
    if (end == PL_OK) pl_free(*record);
    return st;
}

pl_status pl_chat_said(const pl_chat_template *t, const char *where, int64_t line, const char *said, size_t n,
                       const pl_chat_options *o, pl_jinja_out *out, pl_err *err) {
    char  *record;
    size_t n_record;
    memset(out, 0, sizeof *out);
    PL_TRY(record_of_said(&record, &n_record, said, n, err));
    pl_status st = pl_chat_template_render(t, where, line, record, n_record, o, out, err);
    pl_free(record);
    return st;
}

// ---- reading

// Adds the conversation of a record, with its first turn rendered.
static pl_status add_record(const chat_reader *c, pl_prompts *to, const pl_json *j, int64_t line, const char *record,
                            size_t n, int turns, pl_err *err) {
    pl_jinja_out out;
    PL_TRY(pl_chat_template_render(c->t, j->where, 0, record, n, &c->o, &out, err));
    if (!*out.text) {
        pl_jinja_out_fini(&out);
        return pl_json_fail(j, j->root, err, "the chat template writes nothing");
    }
    char *copy = pl_sprintf("%.*s", (int)n, record);
    if (!copy) {
        pl_jinja_out_fini(&out);
        return pl_fail(err, PL_E_MEMORY, "%s: out of memory", j->where);
    }
    return pl_prompts_add(to, j, line,
                          (pl_prompt){.text = take_text(&out),
                                      .rendered = true,
                                      .record = copy,
                                      .turns = turns,
                                      .anew = turns > 1 && pl_chat_reads_anew(j)},
                          err);
}

// Notes members that a template would use but that are lost when the record is rewritten.
static void note_left(const chat_reader *c, const pl_json *j) {
    static const char *const left[] = {"tools", "functions", "documents", "chat_template_kwargs"};
    for (size_t i = 0; i < sizeof left / sizeof *left && c->o.notes; i++) {
        const cJSON *e = pl_prompts_member(j, left[i]);
        if (e && (e->child || cJSON_IsString(e))) *c->o.notes |= PL_CHAT_NOTE_LEFT;
    }
}

// Adds a prompt of one user turn, after its system message and history.
static pl_status add_text(const chat_reader *c, pl_prompts *to, const pl_json *j, int64_t line, pl_err *err) {
    pl_strbuf b = {0};
    char     *said, *record;
    size_t    n;
    pl_status st = pl_prompts_text(j, true, &b, err);
    note_left(c, j);
    said = pl_strbuf_take(&b);
    if (st == PL_OK && !said) st = pl_fail(err, PL_E_MEMORY, "%s: out of memory", j->where);
    if (st == PL_OK && !*said) st = pl_json_fail(j, j->root, err, "the prompt of this record is empty");
    if (st == PL_OK) st = record_of_prompt(&record, &n, j, said, err);
    pl_free(said);
    PL_TRY(st);
    const cJSON *history = find_history(j);
    st = add_record(c, to, j, line, record, n, 1 + (history ? cJSON_GetArraySize(history) : 0), err);
    pl_free(record);
    return st;
}

static pl_status add_turns(const chat_reader *c, pl_prompts *to, const pl_json *j, int64_t line, const cJSON *list,
                           pl_err *err) {
    char  *record;
    size_t n;
    note_left(c, j);
    PL_TRY(record_of_turns(&record, &n, j, list, err));
    pl_status st = add_record(c, to, j, line, record, n, cJSON_GetArraySize(list), err);
    pl_free(record);
    return st;
}

static pl_status add_conversation(const pl_prompts_reader *r, pl_prompts *to, const pl_json *j, int64_t line,
                                  const char *text, size_t n, pl_err *err) {
    const cJSON *list = pl_chat_messages(j), *said = pl_prompts_member(j, "turns");
    if (pl_prompts_is_served(j)) return pl_prompts_add_served(to, j, line, err);
    if (!list && cJSON_GetArraySize(said) > 1 && cJSON_IsArray(said)) return add_turns(r->arg, to, j, line, said, err);
    if (!list) return add_text(r->arg, to, j, line, err);
    if (!cJSON_IsArray(list)) return pl_json_fail(j, list, err, "expected an array of messages");
    int turns = pl_chat_turns(j);
    if (turns == 0) return pl_json_fail(j, list, err, "a conversation without a turn for the assistant to answer");
    return add_record(r->arg, to, j, line, text, n, turns, err);
}

static pl_status add_whole(const pl_prompts_reader *r, pl_prompts *to, const pl_json *j, int64_t line, const char *text,
                           size_t n, pl_err *err) {
    const chat_reader *c = r->arg;
    pl_jinja_out       out;
    if (!pl_chat_messages(j)) return add_text(c, to, j, line, err);
    PL_TRY(pl_chat_template_render(c->t, j->where, 0, text, n, &c->o, &out, err));
    return pl_prompts_add(to, j, line, (pl_prompt){.text = take_text(&out), .rendered = true}, err);
}

static pl_status add_said(const chat_reader *c, const char *path, pl_prompt *p, pl_err *err) {
    pl_jinja_out out;
    size_t       n;
    if (p->rendered) return PL_OK;
    PL_TRY(record_of_said(&p->record, &n, p->text, strlen(p->text), err));
    PL_TRY(pl_chat_template_render(c->t, path, p->line, p->record, n, &c->o, &out, err));
    pl_free(p->text);
    p->text = take_text(&out);
    p->rendered = true;
    return *p->text ? PL_OK
                    : pl_fail(err, PL_E_INPUT, "%s:%lld: the chat template writes nothing", path, (long long)p->line);
}

// Logs one warning per kind of note for the file.
static pl_status read_by(pl_prompts **out, const char *path, const chat_reader *c, const pl_prompts_reader *as,
                         pl_err *err) {
    static const char *const unread[] = {"context", "choices", "options", NULL};
    unsigned                 notes = 0;
    chat_reader              own = *c;
    pl_prompts_reader        r = *as;
    own.o.notes = &notes;
    r.arg = &own;
    r.unread = unread;
    pl_status st = pl_prompts_read_by(out, path, &r, err);
    for (int64_t i = 0; st == PL_OK && i < (*out)->n; i++)
        st = add_said(&own, path, &(*out)->p[i], err);
    if (st == PL_OK) pl_chat_warn_notes(notes & ~(unsigned)PL_CHAT_NOTE_CONTEXT, path);
    if (st == PL_OK) return PL_OK;
    pl_prompts_destroy(*out);
    *out = NULL;
    return st;
}

pl_status pl_chat_prompts_read_as(pl_prompts **out, const char *path, const pl_chat_template *t,
                                  const pl_chat_options *o, const pl_prompts_rewrite *w, bool lenient, pl_err *err) {
    static const pl_chat_turn begin = {0};
    chat_reader               c = {t, *o};
    c.o.add_generation_prompt = true;
    c.o.turn = &begin;
    return read_by(out, path, &c, &(pl_prompts_reader){.record = add_conversation, .rewrite = w, .lenient = lenient},
                   err);
}

pl_status pl_chat_prompts_read(pl_prompts **out, const char *path, const pl_chat_template *t, const pl_chat_options *o,
                               pl_err *err) {
    return pl_chat_prompts_read_as(out, path, t, o, NULL, false, err);
}

pl_status pl_chat_texts_read(pl_prompts **out, const char *path, const pl_chat_template *t, const pl_chat_options *o,
                             pl_err *err) {
    chat_reader c = {t, *o};
    return read_by(out, path, &c, &(pl_prompts_reader){.record = add_whole}, err);
}

// ---- turns

pl_status pl_chat_prompt_turn(const pl_prompt *p, const char *path, const pl_chat_template *t, const pl_chat_options *o,
                              const pl_chat_turn *turn, pl_jinja_out *out, pl_err *err) {
    pl_chat_options own = *o;
    PL_CHECK(p->record && turn->number >= 0 && turn->number < p->turns, "turn %d of %d", turn->number, p->turns);
    own.add_generation_prompt = true;
    own.turn = turn;
    return pl_chat_template_render(t, path, p->line, p->record, strlen(p->record), &own, out, err);
}

pl_status pl_chat_prompt_exchanges(const pl_prompt *p, const char *path, int number, int *n, pl_err *err) {
    pl_json j;
    PL_TRY(pl_json_parse_many(&j, path, p->line, p->record, strlen(p->record), PL_PROMPT_VALUES, 0, err));
    *n = pl_chat_exchanges(&j, number);
    pl_json_close(&j);
    return PL_OK;
}

// Counts the turns whose earlier answers are all in the record.
static pl_status count_answered(const pl_prompt *p, const char *path, int *n, pl_err *err) {
    pl_json j;
    PL_TRY(pl_json_parse_many(&j, path, p->line, p->record, strlen(p->record), PL_PROMPT_VALUES, 0, err));
    for (*n = 1; *n < p->turns && pl_chat_answered(&j, *n);)
        ++*n;
    pl_json_close(&j);
    return PL_OK;
}

// Adds turn k of a conversation as a separate prompt.
static pl_status add_turn(pl_prompts *to, const pl_prompt *p, int k, const char *path, const pl_chat_template *t,
                          const pl_chat_options *o, pl_err *err) {
    pl_jinja_out out;
    pl_prompt    one;
    PL_TRY(pl_chat_prompt_turn(p, path, t, o, &(pl_chat_turn){.number = k}, &out, err));
    if (!pl_prompt_copy(&one, p)) {
        pl_jinja_out_fini(&out);
        return pl_fail(err, PL_E_MEMORY, "%s: out of memory", path);
    }
    pl_free(one.text);
    pl_free(one.record);
    one.text = take_text(&out);
    one.record = NULL;
    one.turns = 1;
    return pl_prompts_push(to, one, path, err);
}

static pl_status add_given(pl_prompts *to, const pl_prompt *p, const char *path, const pl_chat_template *t,
                           const pl_chat_options *o, pl_err *err) {
    int       n;
    pl_prompt copy;
    if (p->ids && !pl_prompt_copy(&copy, p)) return pl_fail(err, PL_E_MEMORY, "%s: out of memory", path);
    if (p->ids) return pl_prompts_push(to, copy, path, err);
    PL_TRY(count_answered(p, path, &n, err));
    for (int k = 0; k < n; k++)
        PL_TRY(add_turn(to, p, k, path, t, o, err));
    return PL_OK;
}

pl_status pl_chat_prompts_given(pl_prompts **out, const pl_prompts *all, const char *path, const pl_chat_template *t,
                                const pl_chat_options *o, bool lenient, pl_err *err) {
    pl_prompts *to = pl_calloc(1, sizeof *to);
    pl_status   st = to ? PL_OK : pl_fail(err, PL_E_MEMORY, "%s: out of memory", path);
    int64_t     ended = 0;
    pl_err      why = {0}, first = {0};
    for (int64_t i = 0; st == PL_OK && i < all->n; i++) {
        st = add_given(to, &all->p[i], path, t, o, &why);
        if (st == PL_E_INPUT && lenient && ended++ == 0) first = why;
        if (st == PL_E_INPUT && lenient) st = PL_OK;
    }
    if (st != PL_OK && to) pl_fail(err, st, "%s", why.msg);
    if (st == PL_OK && ended) pl_chat_warn_ended(ended, first.msg);
    *out = to;
    if (st == PL_OK) return PL_OK;
    pl_prompts_destroy(to);
    *out = NULL;
    return st;
}

void pl_chat_warn_ended(int64_t n, const char *why) {
    pl_log_warn("%lld conversation%s end%s before a turn that the chat template refuses; the first: %s", (long long)n,
                n == 1 ? "" : "s", n == 1 ? "s" : "", why);
}

// ---- ids

// Returns a special token that occurs in the text, NULL: none.
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
    if (p->ids) {
        *n = p->n_prompt;
        *ids = pl_malloc((size_t)*n * sizeof **ids);
        if (!*ids) return pl_fail(err, PL_E_MEMORY, "prompts: out of memory");
        memcpy(*ids, p->ids, (size_t)*n * sizeof **ids);
        return PL_OK;
    }
    if (p->rendered) return pl_chat_encode(tok, p->text, strlen(p->text), ids, n, err);
    return pl_tokenizer_encode(tok, p->text, strlen(p->text), PL_TOK_ADD_BOS, ids, n, err);
}

void pl_prompt_cut(const pl_tokenizer *tok, int32_t *ids, int64_t *n, int64_t room) {
    int64_t keep = ids[0] == pl_tokenizer_bos_id(tok) ? 1 : 0;
    memmove(ids + keep, ids + *n - (room - keep), (size_t)(room - keep) * sizeof *ids);
    *n = room;
}
