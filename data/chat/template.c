#include "data/chat/template.h"
#include "checkpoints/gguf.h"
#include "data/chat/eval.h"
#include "data/text/prompts.h"
#include "kernels/base/files.h"
#include "kernels/base/hash.h"
#include "kernels/base/json.h"
#include "kernels/base/strbuf.h"

#define MAX_FILE ((size_t)64 << 20)

struct pl_chat_template {
    pl_jinja *usual, *with_tools; // the latter NULL where one serves for both
    char     *special;            // a JSON object of the special tokens; owned
    uint64_t  sum;
    char      hash[17];
};

// ---- opening

static pl_status compile_bytes(pl_chat_template *t, pl_jinja **to, const char *name, const char *text, size_t n,
                               pl_err *err) {
    t->sum = pl_hash_more(t->sum, text, n);
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

// "chat_template" of a tokenizer_config.json. Nothing is compiled where there is none.
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
        pl_json_out_key(o, names[i]);
        pl_json_out_str(o, node->valuestring);
    }
}

static pl_status read_config(pl_chat_template *t, const char *dir, bool own, pl_err *err) {
    static const char *const files[] = {"special_tokens_map.json", "tokenizer_config.json"};
    pl_json_out              o;
    pl_status                st = PL_OK;
    pl_json_out_begin(&o, 0);
    pl_json_out_object(&o);
    for (int i = 0; i < 2 && st == PL_OK; i++) { // what comes later counts
        pl_json j;
        char   *path = pl_path_join(dir, files[i]);
        if (!path) st = pl_fail(err, PL_E_MEMORY, "%s: out of memory", dir);
        if (path && pl_path_exists(path) && (st = pl_json_open(&j, path, MAX_FILE, 0, err)) == PL_OK) {
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

// The token of an id that a key names; nothing without the key.
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
    pl_json_out_key(o, name);
    pl_json_out_str(o, text);
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

// own: the templates too, not the special tokens alone.
static pl_status read_gguf(pl_chat_template *t, const char *path, bool own, pl_err *err) {
    pl_gguf *g;
    PL_TRY(pl_gguf_open(&g, path, err));
    pl_status st = read_values(t, g, path, own, err);
    pl_gguf_close(g);
    return st;
}

// ----

// The template of conversations with tools as newer models bring it, before what tokenizer_config.json has.
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
    if (pl_path_exists(path)) st = read_gguf(t, path, true, err);
    pl_free(path);
    return st;
}

// gguf: a tokenizer's file that brings its own; NULL: what lies in the folder.
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
    const char       *gguf = pl_path_ends(dir, ".gguf") ? dir : NULL;
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
    pl_free(t);
}

const char *pl_chat_template_hash(const pl_chat_template *t) {
    return t->hash;
}

// ---- rendering

// The role of ShareGPT's "from"; NULL: unknown.
static const char *role_of(const char *from) {
    static const char *const roles[][2] = {
        {"human", "user"},     {"gpt", "assistant"},    {"chatgpt", "assistant"},     {"bing", "assistant"},
        {"bard", "assistant"}, {"user", "user"},        {"system", "system"},         {"assistant", "assistant"},
        {"tool", "tool"},      {"observation", "tool"}, {"function_response", "tool"}};
    for (size_t i = 0; i < sizeof roles / sizeof *roles; i++)
        if (strcmp(from, roles[i][0]) == 0) return roles[i][1];
    return NULL;
}

bool pl_chat_says(const pl_json *j, const cJSON *message, const char *role) {
    const cJSON *from = pl_json_find(j, message, "from"), *who = from ? from : pl_json_find(j, message, "role");
    if (!who || !cJSON_IsString(who)) return false;
    const char *is = from ? role_of(from->valuestring) : who->valuestring;
    return is && strcmp(is, role) == 0;
}

// The member that holds the messages, as the record spells its name; NULL: none.
static const char *member_of(const pl_json *j) {
    static const char *const names[] = {"messages", "conversations"};
    for (int i = 0; i < 2; i++) {
        const cJSON *e = pl_prompts_member(j, names[i]);
        if (e) return e->string;
    }
    const cJSON *turns = pl_prompts_member(j, "turns");
    return turns && turns->child && cJSON_IsObject(turns->child) ? turns->string : NULL;
}

const cJSON *pl_chat_messages(const pl_json *j) {
    const char *name = member_of(j);
    return name ? cJSON_GetObjectItemCaseSensitive(j->root, name) : NULL;
}

// ---- turns

static bool answers(const pl_json *j, const cJSON *e) {
    return e && pl_chat_says(j, e, "assistant");
}

// Whether the assistant is to answer behind this message.
static bool asks(const pl_json *j, const cJSON *e) {
    bool user_side = pl_chat_says(j, e, "user") || pl_chat_says(j, e, "tool");
    return user_side && (!e->next || answers(j, e->next));
}

// cJSON's first child has the last one for prev.
static const cJSON *before(const cJSON *list, const cJSON *e) {
    return e == list->child ? NULL : e->prev;
}

static bool begins_exchange(const pl_json *j, const cJSON *list, const cJSON *e) {
    const cJSON *last = before(list, e);
    return pl_chat_says(j, e, "user") && !(last && pl_chat_says(j, last, "user"));
}

// An answer that stays the record's, since what follows it does.
static bool stays(const pl_json *j, const cJSON *answer) {
    return answer->next && pl_chat_says(j, answer->next, "tool");
}

int pl_chat_turns(const pl_json *j) {
    const cJSON *list = pl_chat_messages(j), *e;
    int          n = 0;
    if (!list || !cJSON_IsArray(list)) return 0;
    cJSON_ArrayForEach(e, list) n += asks(j, e);
    return n;
}

int pl_chat_exchanges(const pl_json *j, int number) {
    const cJSON *list = pl_chat_messages(j), *e;
    int          n = 0;
    if (!list || !cJSON_IsArray(list)) return 0;
    cJSON_ArrayForEach(e, list) {
        n += begins_exchange(j, list, e);
        if (asks(j, e) && number-- == 0) break;
    }
    return n;
}

static bool said_nothing(const pl_json *j, const cJSON *answer) {
    return !pl_json_find(j, answer, "content") && !pl_json_find(j, answer, "value") &&
           !pl_json_find(j, answer, "tool_calls");
}

bool pl_chat_answered(const pl_json *j, int number) {
    const cJSON *list = pl_chat_messages(j), *e;
    if (!list || !cJSON_IsArray(list)) return false;
    cJSON_ArrayForEach(e, list) {
        if (!asks(j, e)) continue;
        if (number-- == 0) return true;
        if (!e->next || said_nothing(j, e->next)) return false;
    }
    return false;
}

static bool is_sharegpt(const pl_json *j, const cJSON *list) {
    return list->child && cJSON_IsObject(list->child) && pl_json_find(j, list->child, "from");
}

// What the filling below relies on: a list of messages or of ShareGPT's items.
static pl_status check_messages(const pl_json *j, const cJSON *list, pl_err *err) {
    const cJSON *e;
    const char  *who, *what;
    bool         sharegpt = is_sharegpt(j, list);
    if (!list->child) return pl_json_fail(j, list, err, "a conversation without a message");
    cJSON_ArrayForEach(e, list) {
        if (!cJSON_IsObject(e)) return pl_json_fail(j, e, err, "a message is an object with \"role\" and \"content\"");
        PL_TRY(pl_json_get_str(j, e, sharegpt ? "from" : "role", &who, err));
        if (sharegpt) PL_TRY(pl_json_get_str(j, e, "value", &what, err));
        if (sharegpt && !role_of(who))
            return pl_json_fail(j, e, err, "from \"%s\": whose role is that? known are human, gpt, system, tool", who);
    }
    return PL_OK;
}

static pl_status check_record(const pl_json *j, const pl_chat_options *o, pl_err *err) {
    const cJSON *list, *kwargs;
    pl_json      given;
    if (!cJSON_IsObject(j->root)) return pl_json_fail(j, j->root, err, "a conversation is an object");
    if (!pl_chat_messages(j))
        return pl_json_fail(j, j->root, err,
                            "no conversation in this record: it needs \"messages\" or \"conversations\"");
    list = pl_chat_messages(j);
    if (!cJSON_IsArray(list)) return pl_json_fail(j, list, err, "expected an array of messages");
    PL_TRY(check_messages(j, list, err));
    PL_TRY(pl_json_opt_object(j, NULL, "chat_template_kwargs", &kwargs, err));
    if (!o->kwargs) return PL_OK;
    PL_TRY(pl_json_parse(&given, "variables of the chat template", 0, o->kwargs, strlen(o->kwargs), 0, err));
    pl_status st = cJSON_IsObject(given.root) ? PL_OK : pl_json_fail(&given, given.root, err, "not an object {...}");
    pl_json_close(&given);
    return st;
}

typedef struct conversation {
    const pl_chat_template *t;
    const pl_chat_options  *o;
    const pl_json          *j; // the record, checked
    const char             *text;
    size_t                  n;
} conversation;

static void put(pl_region *r, pl_chat_value dict, const char *key, pl_chat_value v) {
    pl_chat_put(r, dict, pl_chat_str(key), v);
}

static pl_chat_value message(pl_region *r, const char *role, pl_chat_value content) {
    pl_chat_value m = pl_chat_dict_new(r);
    put(r, m, "role", pl_chat_str(role));
    put(r, m, "content", content);
    return m;
}

static pl_chat_value messages(pl_region *r, const conversation *c, pl_chat_value record) {
    const pl_chat_turn *turn = c->o->turn;
    const cJSON        *items = pl_chat_messages(c->j), *e = items->child;
    pl_chat_value      *given = pl_chat_member(r, record, member_of(c->j)), list = pl_chat_list_new(r, false);
    bool                sharegpt = is_sharegpt(c->j, items);
    int                 at = 0, exchange = 0; // turns asked so far; exchanges begun
    if (c->o->system && !pl_chat_says(c->j, e, "system"))
        pl_chat_push(r, list, message(r, "system", pl_chat_str(c->o->system)));
    for (int64_t i = 0; i < given->list->n; i++, e = e->next) {
        const cJSON  *last = before(items, e);
        pl_chat_value m = given->list->v[i];
        bool          own = turn && turn->answer && at > 0 && last && asks(c->j, last) && turn->answer[at - 1];
        if (own && !stays(c->j, e))
            m = message(r, "assistant", pl_chat_str(turn->answer[at - 1]));
        else if (sharegpt)
            m = message(r, role_of(pl_json_find(c->j, e, "from")->valuestring), *pl_chat_member(r, m, "value"));
        exchange += begins_exchange(c->j, items, e);
        if (!turn || exchange == 0 || exchange > turn->skip) pl_chat_push(r, list, m);
        if (asks(c->j, e) && turn && at++ == turn->number) break;
    }
    return list;
}

// Values from the record's text, since cJSON's numbers are all doubles and a template tells 1 from 1.0.
static void fill(pl_region *r, pl_chat_value vars, const void *arg) {
    static const char *const members[] = {"tools", "documents"};
    const conversation      *c = arg;
    pl_chat_value            record = pl_chat_from_json(r, c->text, c->n);
    pl_chat_merge(r, vars, c->t->special, strlen(c->t->special));
    put(r, vars, "messages", messages(r, c, record));
    put(r, vars, "add_generation_prompt", pl_chat_bool(c->o->add_generation_prompt));
    for (int i = 0; i < 2; i++) {
        pl_chat_value *v = pl_chat_member(r, record, members[i]);
        put(r, vars, members[i], v ? *v : pl_chat_none());
    }
    if (c->o->kwargs) pl_chat_merge(r, vars, c->o->kwargs, strlen(c->o->kwargs));
    pl_chat_value *own = pl_chat_member(r, record, "chat_template_kwargs");
    for (int64_t i = 0; own && own->type == PL_CHAT_DICT && i < own->dict->n; i++)
        pl_chat_put(r, vars, own->dict->key[i], own->dict->value[i]);
}

pl_status pl_chat_template_render(const pl_chat_template *t, const char *where, int64_t line, const char *record,
                                  size_t n, const pl_chat_options *o, pl_jinja_out *out, pl_err *err) {
    pl_json j;
    memset(out, 0, sizeof *out);
    PL_TRY(pl_json_parse_many(&j, where, line, record, n, PL_PROMPT_VALUES, PL_JSON_UNIQUE, err));
    conversation c = {t, o, &j, record, n};
    pl_status    st = check_record(&j, o, err);
    if (st == PL_OK) {
        bool tools = t->with_tools && pl_json_find(&j, NULL, "tools");
        st = pl_jinja_render_filled(tools ? t->with_tools : t->usual, fill, &c, o->date, out, err);
        if (st != PL_OK) st = pl_fail_at(err, st, "%s", j.where);
    }
    pl_json_close(&j);
    return st;
}
