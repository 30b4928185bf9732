#include "data/chat/template.h"
#include "checkpoints/gguf_model.h"
#include "data/chat/impl.h"
#include "data/text/prompts.h"
#include "kernels/base/files.h"
#include "kernels/base/hash.h"
#include "kernels/base/log.h"

#include <string.h>

#define MAX_FILE ((size_t)64 << 20)

// ---- opening

static pl_status compile_bytes(pl_chat_template *t, pl_jinja **to, const char *name, const char *text, size_t n,
                               pl_err *err) {
    t->sum = pl_hash_more(t->sum, text, n);
    pl_strbuf_add(&t->source, text, n);
    if (t->source.failed) return pl_fail(err, PL_E_MEMORY, "%s: out of memory", name);
    return pl_jinja_compile(to, name, text, n, err);
}

static pl_status compile(pl_chat_template *t, pl_jinja **to, const char *name, const char *text, pl_err *err) {
    return compile_bytes(t, to, name, text, strlen(text), err);
}

static pl_status compile_file(pl_chat_template *t, pl_jinja **to, const char *path, pl_err *err) {
    uint8_t *data;
    size_t   n;
    PL_TRY(pl_file_read(path, &data, &n, MAX_FILE, err));
    pl_status st = strlen((char *)data) == n ? compile(t, to, path, (char *)data, err)
                                             : pl_fail(err, PL_E_INPUT, "%s: not a text", path);
    pl_free(data);
    return st;
}

// Compiles "chat_template" of a tokenizer_config.json, if present.
static pl_status compile_member(pl_chat_template *t, const pl_json *j, pl_err *err) {
    const cJSON *node = pl_json_find(j, NULL, "chat_template"), *e;
    const char  *name, *text;
    if (!node) return PL_OK;
    if (!cJSON_IsArray(node)) {
        PL_TRY(pl_json_str_of(j, node, &text, err));
        return compile(t, &t->usual, j->where, text, err);
    }
    cJSON_ArrayForEach(e, node) {
        PL_TRY(pl_json_get_str(j, e, "name", &name, err));
        PL_TRY(pl_json_get_str(j, e, "template", &text, err));
        pl_jinja **to = strcmp(name, "default") == 0    ? &t->usual
                        : strcmp(name, "tool_use") == 0 ? &t->with_tools
                                                        : NULL;
        if (to && *to) return pl_json_fail(j, e, err, "the template %s a second time", name);
        if (to) PL_TRY(compile(t, to, j->where, text, err));
    }
    if (!t->usual) return pl_json_fail(j, node, err, "none of these templates is called \"default\"");
    return PL_OK;
}

// A special token is a string, or an object with its "content".
static void put_special(const pl_json *j, pl_json_out *o) {
    static const char *const names[] = {"bos_token", "eos_token", "unk_token", "sep_token",
                                        "pad_token", "cls_token", "mask_token"};
    for (size_t i = 0; i < sizeof names / sizeof *names; i++) {
        const cJSON *node = pl_json_find(j, NULL, names[i]);
        if (node && cJSON_IsObject(node)) node = pl_json_find(j, node, "content");
        if (!node || !cJSON_IsString(node)) continue;
        pl_put_str(o, names[i], node->valuestring);
    }
}

static pl_status read_config(pl_chat_template *t, const char *dir, bool own, pl_err *err) {
    static const char *const files[] = {"special_tokens_map.json", "tokenizer_config.json"};
    pl_json_out              o;
    pl_status                st = PL_OK;
    pl_json_out_begin(&o, 0);
    pl_json_out_object(&o);
    for (int i = 0; i < 2 && st == PL_OK; i++) { // later files override
        pl_json j;
        char   *path = pl_path_join(dir, files[i]);
        if (!path) st = pl_fail(err, PL_E_MEMORY, "%s: out of memory", dir);
        if (path && pl_path_exists(path) && (st = pl_json_open(&j, path, MAX_FILE, PL_JSON_UNIQUE, err)) == PL_OK) {
            put_special(&j, &o);
            if (i == 1 && own && !t->usual) st = compile_member(t, &j, err);
            pl_json_close(&j);
        }
        pl_free(path);
    }
    pl_json_out_close(&o, '}');
    pl_status end = pl_json_out_end(&o, err);
    if (end == PL_OK) t->special = o.text;
    return st == PL_OK ? end : st;
}

// ---- a GGUF file's

static pl_status compile_value(pl_chat_template *t, pl_jinja **to, const pl_gguf *g, const char *path, const char *key,
                               pl_err *err) {
    const pl_gguf_value *v = pl_gguf_find(g, key);
    if (!v) return PL_OK;
    if (v->type != PL_GGUF_STRING || memchr(v->data, 0, (size_t)v->n))
        return pl_fail(err, PL_E_INPUT, "%s: %s is no text", path, key);
    return compile_bytes(t, to, path, (const char *)v->data, (size_t)v->n, err);
}

// Adds the token of an id that a key names; nothing without the key.
static pl_status put_token(pl_json_out *o, const pl_gguf *g, const char *path, const char *key, const char *name,
                           pl_err *err) {
    const pl_gguf_value *tokens = pl_gguf_find(g, "tokenizer.ggml.tokens");
    int64_t              id;
    if (!pl_gguf_int(g, key, &id)) return PL_OK;
    if (!tokens || tokens->type != PL_GGUF_ARRAY || tokens->item != PL_GGUF_STRING || id < 0 ||
        (uint64_t)id >= tokens->n)
        return pl_fail(err, PL_E_INPUT, "%s: %s is %lld, outside the vocabulary", path, key, (long long)id);
    const uint8_t *at = tokens->data;
    const char    *token = NULL;
    size_t         n = 0;
    for (int64_t i = 0; i <= id; i++)
        token = pl_gguf_next_string(&at, &n);
    char *text = pl_sprintf("%.*s", (int)n, token);
    if (!text) return pl_fail(err, PL_E_MEMORY, "%s: out of memory", path);
    pl_put_str(o, name, text);
    pl_free(text);
    return PL_OK;
}

static pl_status read_values(pl_chat_template *t, const pl_gguf *g, const char *path, bool own, pl_err *err) {
    static const char *const tokens[][2] = {{"tokenizer.ggml.bos_token_id", "bos_token"},
                                            {"tokenizer.ggml.eos_token_id", "eos_token"},
                                            {"tokenizer.ggml.unknown_token_id", "unk_token"},
                                            {"tokenizer.ggml.padding_token_id", "pad_token"}};
    pl_json_out              o;
    pl_status                st = PL_OK;
    if (own) {
        PL_TRY(compile_value(t, &t->usual, g, path, "tokenizer.chat_template", err));
        PL_TRY(compile_value(t, &t->with_tools, g, path, "tokenizer.chat_template.tool_use", err));
    }
    pl_json_out_begin(&o, 0);
    pl_json_out_object(&o);
    for (size_t i = 0; i < sizeof tokens / sizeof *tokens && st == PL_OK; i++)
        st = put_token(&o, g, path, tokens[i][0], tokens[i][1], err);
    pl_json_out_close(&o, '}');
    pl_status end = pl_json_out_end(&o, err);
    if (end == PL_OK) {
        pl_free(t->special);
        t->special = o.text;
    }
    return st == PL_OK ? end : st;
}

// own: the templates too, not only the special tokens.
static pl_status read_gguf(pl_chat_template *t, const char *path, bool own, pl_err *err) {
    pl_gguf *g;
    PL_TRY(pl_gguf_open(&g, path, err));
    pl_status st = read_values(t, g, path, own, err);
    pl_gguf_close(g);
    return st;
}

// ----

// Reads the template of conversations with tools in newer models' files; it precedes tokenizer_config.json's.
static pl_status read_additional(pl_chat_template *t, const char *dir, pl_err *err) {
    char     *path = pl_path_join(dir, "additional_chat_templates/tool_use.jinja");
    pl_status st = path ? PL_OK : pl_fail(err, PL_E_MEMORY, "%s: out of memory", dir);
    if (st == PL_OK && pl_path_exists(path)) {
        pl_jinja_free(t->with_tools);
        t->with_tools = NULL;
        st = compile_file(t, &t->with_tools, path, err);
    }
    pl_free(path);
    return st;
}

static pl_status read_folder(pl_chat_template *t, const char *dir, const char *file, pl_err *err) {
    char     *path = file ? pl_strdup(file) : pl_path_join(dir, "chat_template.jinja");
    pl_status st = path ? PL_OK : pl_fail(err, PL_E_MEMORY, "%s: out of memory", dir);
    if (st == PL_OK && (file || pl_path_exists(path))) st = compile_file(t, &t->usual, path, err);
    pl_free(path);
    if (st == PL_OK) st = read_config(t, dir, !file, err);
    if (st == PL_OK && !file) st = read_additional(t, dir, err);
    if (st != PL_OK || t->usual) return st;
    path = pl_path_join(dir, "tokenizer.gguf");
    if (!path) return pl_fail(err, PL_E_MEMORY, "%s: out of memory", dir);
    if (!pl_path_exists(path)) {
        pl_free(path);
        PL_TRY(pl_gguf_model_find(&path, dir, err));
    }
    if (path) st = read_gguf(t, path, true, err);
    pl_free(path);
    return st;
}

// gguf: a tokenizer's file with its own templates; NULL: the folder's.
static pl_status read_template(pl_chat_template *t, const char *dir, const char *gguf, const char *file, pl_err *err) {
    if (gguf) {
        if (file) PL_TRY(compile_file(t, &t->usual, file, err));
        PL_TRY(read_gguf(t, gguf, !file, err));
    } else {
        PL_TRY(read_folder(t, dir, file, err));
    }
    if (t->usual) return PL_OK;
    return pl_fail(err, PL_E_INPUT,
                   "%s: has no chat template (chat_template.jinja, chat_template in tokenizer_config.json, or "
                   "tokenizer.chat_template in a GGUF file); a base model is prompted with plain text",
                   gguf ? gguf : dir);
}

pl_status pl_chat_template_open(pl_chat_template **out, const char *dir, const char *file, pl_err *err) {
    size_t            folder = pl_path_is_dir(dir) ? strlen(dir) : (size_t)(pl_path_name(dir) - dir);
    char             *in = folder ? pl_sprintf("%.*s", (int)folder, dir) : pl_strdup(".");
    pl_chat_template *t = pl_calloc(1, sizeof *t);
    const char       *gguf = pl_path_ends(dir, ".gguf") || pl_gguf_is(dir) ? dir : NULL;
    *out = NULL;
    pl_status st =
        in && t ? read_template(t, in, gguf, file, err) : pl_fail(err, PL_E_MEMORY, "%s: out of memory", dir);
    pl_free(in);
    if (st != PL_OK) {
        pl_chat_template_close(t);
        return st;
    }
    pl_hash_hex(t->hash, pl_hash_more(t->sum, t->special, strlen(t->special)));
    *out = t;
    return PL_OK;
}

void pl_chat_template_close(pl_chat_template *t) {
    if (!t) return;
    pl_jinja_free(t->usual);
    pl_jinja_free(t->with_tools);
    pl_free(t->special);
    pl_strbuf_fini(&t->source);
    pl_free(t);
}

const char *pl_chat_template_hash(const pl_chat_template *t) {
    return t->hash;
}

// ---- rendering

bool pl_chat_template_has(const pl_chat_template *t, const char *word, bool quoted) {
    size_t      n = strlen(word);
    const char *at = t->source.s, *end = t->source.s + t->source.n;
    for (; n > 0 && at && (at = memmem(at, (size_t)(end - at), word, n)); at++) {
        char before = at > t->source.s ? at[-1] : 0, after = at + n < end ? at[n] : 0;
        if (!quoted || (before == after && (before == '\'' || before == '"'))) return true;
    }
    return false;
}

void pl_chat_warn_notes(unsigned notes, const char *where) {
    static const char *const says[] = {
        "arguments of tool calls that are JSON strings are decoded for the chat template, as servers do",
        "content in parts of text is joined by line ends, since the chat template takes a string",
        "roles that the chat template does not show are written as user, assistant, tool or system",
        "function_call is written as tool_calls, which the chat template knows",
        "\"system\" beside conversations that begin with a system message is not read",
        "\"context\" beside a prompt or conversation is not read; put it into the prompt",
        "\"history\" beside a conversation is not read; put its turns into the conversation",
        "\"functions\" beside a conversation is not read; give them as \"tools\"",
        "images, videos and audio beside a conversation are not read; texts alone are",
        "tools, functions, documents and chat_template_kwargs beside a prompt that is text are not read; give the "
        "prompt "
        "as \"messages\""};
    for (size_t i = 0; i < sizeof says / sizeof *says; i++)
        if (notes >> i & 1) pl_log_warn_once("%s: %s", where, says[i]);
}

static pl_status render_reading(pl_chat_conversation *c, pl_jinja_out *out, pl_err *err) {
    bool tools = c->t->with_tools && !c->o->no_tools && pl_json_find(c->j, NULL, "tools");
    c->seen = c->notes = 0;
    memset(c->odd, 0, (size_t)cJSON_GetArraySize(pl_chat_messages(c->j)));
    return pl_jinja_render_filled(tools ? c->t->with_tools : c->t->usual, pl_chat_record_fill, &c, c->o->date, out,
                                  err);
}

// Returns true if the template drops the content of a message with an unusual role: rendered with a probe in its place,
// the text lacks the probe.
static bool lost_message(const pl_chat_conversation *c) {
    const cJSON         *list = pl_chat_messages(c->j), *e = list->child;
    pl_chat_conversation probed = *c;
    pl_jinja_out         out;
    bool                 lost = false;
    probed.reading |= PL_CHAT_PROBE;
    if (render_reading(&probed, &out, NULL) != PL_OK) return false;
    for (int64_t i = 0; e; e = e->next, i++) {
        const cJSON *content = c->odd[i] ? pl_json_find(c->j, e, "content") : NULL;
        char         probe[PL_CHAT_PROBE_SIZE];
        pl_chat_probe(probe, i);
        lost |= content && cJSON_IsString(content) && !memmem(out.text, out.n, probe, strlen(probe));
    }
    pl_jinja_out_fini(&out);
    return lost;
}

// Returns another reading of the record that may help; 0: none.
static unsigned next_reading(const pl_chat_conversation *c, unsigned tried, bool failed, const pl_jinja_out *out) {
    unsigned other = c->seen & ~tried;
    if ((other & PL_CHAT_JOIN_PARTS) && (failed || out->parts_printed)) return PL_CHAT_JOIN_PARTS;
    if ((other & PL_CHAT_PLAIN_ROLES) && (failed || lost_message(c))) return PL_CHAT_PLAIN_ROLES;
    if ((other & PL_CHAT_ARGUMENTS_AS_WRITTEN) && failed) return PL_CHAT_ARGUMENTS_AS_WRITTEN;
    return 0;
}

// Renders the record as written first. If the template refuses that, all readings are tried one after the other; the
// first refusal is reported.
static pl_status render_record(pl_chat_conversation *c, pl_jinja_out *out, pl_err *err) {
    unsigned  x, tried = 0;
    pl_status st = render_reading(c, out, err);
    while ((st == PL_OK || st == PL_E_INPUT || st == PL_E_UNSUPPORTED) &&
           (x = next_reading(c, tried, st != PL_OK, out))) {
        pl_chat_conversation other = *c;
        pl_jinja_out         text;
        other.reading |= x;
        tried |= x;
        pl_status now = render_reading(&other, &text, NULL);
        if (now == PL_OK && (st != PL_OK || x != PL_CHAT_PLAIN_ROLES || !lost_message(&other))) {
            pl_jinja_out_fini(out);
            *out = text;
            *c = other;
            st = PL_OK;
            continue;
        }
        if (now == PL_OK) pl_jinja_out_fini(&text);
        if (st != PL_OK) c->reading = other.reading;
    }
    return st;
}

pl_status pl_chat_template_render(const pl_chat_template *t, const char *where, int64_t line, const char *record,
                                  size_t n, const pl_chat_options *o, pl_jinja_out *out, pl_err *err) {
    pl_json j;
    memset(out, 0, sizeof *out);
    PL_TRY(pl_json_parse_many(&j, where, line, record, n, PL_PROMPT_VALUES, PL_JSON_UNIQUE, err));
    pl_chat_conversation c = {.t = t, .o = o, .j = &j, .text = record, .n = n};
    pl_status            st = pl_chat_record_check(t, &j, o, err);
    if (st == PL_OK) {
        c.odd = pl_malloc((size_t)cJSON_GetArraySize(pl_chat_messages(&j)));
        st = c.odd ? render_record(&c, out, err) : pl_fail(err, PL_E_MEMORY, "out of memory");
        if (st != PL_OK) st = pl_fail_at(err, st, "%s", j.where);
        if (st == PL_OK && o->notes) *o->notes |= c.notes;
        pl_free(c.odd);
    }
    pl_json_close(&j);
    return st;
}
