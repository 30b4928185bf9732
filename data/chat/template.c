#include "data/chat/template.h"
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

// ---- JSON as it is written

// Numbers are handed on as they are written (1.0 is not 1), so a member's text is taken, not its value.
static const char *skip_string(const char *p) { // at the opening quote
    for (p++; *p != '"'; p++)
        p += *p == '\\';
    return p + 1;
}

static const char *skip_value(const char *p) {
    int depth = 0;
    if (*p == '"') return skip_string(p);
    for (; depth > 0 || !strchr(",]} \t\r\n", *p);) {
        depth += *p == '{' || *p == '[';
        depth -= *p == '}' || *p == ']';
        p = *p == '"' ? skip_string(p) : p + 1;
        if (depth == 0 && (p[-1] == '}' || p[-1] == ']')) break;
    }
    return p;
}

static const char *skip_blanks(const char *p) {
    return p + strspn(p, " \t\r\n");
}

// The text of a member of the object at `text` (valid JSON that ends in 0), or NULL.
static const char *raw_member(const char *text, const char *key, size_t *n) {
    const char *p = skip_blanks(text + (strncmp(text, "\xEF\xBB\xBF", 3) == 0 ? 3 : 0)), *found = NULL;
    for (p = skip_blanks(p + 1); *p != '}'; p = skip_blanks(p)) {
        if (*p == ',') p = skip_blanks(p + 1);
        const char *name = p;
        p = skip_string(p);
        bool is = (size_t)(p - name) == strlen(key) + 2 && memcmp(name + 1, key, strlen(key)) == 0;
        p = skip_blanks(skip_blanks(p) + 1);
        const char *value = p;
        p = skip_value(p);
        if (is) {
            found = value;
            *n = (size_t)(p - value);
        }
    }
    return found;
}

// ---- opening

static void add(pl_strbuf *b, const char *s) {
    pl_strbuf_add(b, s, strlen(s));
}

static pl_status compile(pl_chat_template *t, pl_jinja **to, const char *name, const char *text, pl_err *err) {
    t->sum = pl_hash_more(t->sum, text, strlen(text));
    return pl_jinja_compile(to, name, text, strlen(text), err);
}

static pl_status compile_file(pl_chat_template *t, const char *path, pl_err *err) {
    uint8_t *data;
    size_t   n;
    PL_TRY(pl_file_read(path, &data, &n, MAX_FILE, err));
    pl_status st = strlen((char *)data) == n ? compile(t, &t->usual, path, (char *)data, err)
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

static pl_status read_template(pl_chat_template *t, const char *dir, const char *file, pl_err *err) {
    pl_status st = PL_OK;
    char     *path = file ? pl_strdup(file) : pl_path_join(dir, "chat_template.jinja");
    if (!path) return pl_fail(err, PL_E_MEMORY, "%s: out of memory", dir);
    if (file || pl_path_exists(path)) st = compile_file(t, path, err);
    pl_free(path);
    if (st == PL_OK) st = read_config(t, dir, !file, err);
    if (st == PL_OK && !t->usual)
        st =
            pl_fail(err, PL_E_INPUT,
                    "%s: has no chat template (chat_template.jinja, or chat_template in tokenizer_config.json); a base "
                    "model is prompted with plain text",
                    dir);
    return st;
}

pl_status pl_chat_template_open(pl_chat_template **out, const char *dir, const char *file, pl_err *err) {
    size_t            folder = pl_path_is_dir(dir) ? strlen(dir) : (size_t)(pl_path_name(dir) - dir);
    char             *in = folder ? pl_sprintf("%.*s", (int)folder, dir) : pl_strdup(".");
    pl_chat_template *t = pl_calloc(1, sizeof *t);
    *out = NULL;
    pl_status st = in && t ? read_template(t, in, file, err) : pl_fail(err, PL_E_MEMORY, "%s: out of memory", dir);
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

// The role of ShareGPT's "from"; "": unknown.
static const char *role_of(const char *from) {
    static const char *const roles[][2] = {
        {"human", "user"},     {"gpt", "assistant"},    {"chatgpt", "assistant"},     {"bing", "assistant"},
        {"bard", "assistant"}, {"user", "user"},        {"system", "system"},         {"assistant", "assistant"},
        {"tool", "tool"},      {"observation", "tool"}, {"function_response", "tool"}};
    for (size_t i = 0; i < sizeof roles / sizeof *roles; i++)
        if (strcmp(from, roles[i][0]) == 0) return roles[i][1];
    return "";
}

// ShareGPT's items as messages, the first `n` of them.
static pl_status put_sharegpt(const pl_json *j, const cJSON *list, int n, pl_strbuf *b, pl_err *err) {
    pl_json_out  o;
    const cJSON *e;
    pl_status    st = PL_OK;
    pl_json_out_begin(&o, 0);
    pl_json_out_array(&o);
    cJSON_ArrayForEach(e, list) {
        const char *from, *value, *role;
        if (n-- == 0) break;
        if ((st = pl_json_get_str(j, e, "from", &from, err)) != PL_OK) break;
        if ((st = pl_json_get_str(j, e, "value", &value, err)) != PL_OK) break;
        role = role_of(from);
        if (!*role) {
            st = pl_json_fail(j, e, err, "from \"%s\": whose role is that? known are human, gpt, system, tool", from);
            break;
        }
        pl_json_out_object(&o);
        pl_json_out_key(&o, "role");
        pl_json_out_str(&o, role);
        pl_json_out_key(&o, "content");
        pl_json_out_str(&o, value);
        pl_json_out_close(&o, '}');
    }
    pl_json_out_close(&o, ']');
    pl_status end = pl_json_out_end(&o, st == PL_OK ? err : NULL);
    if (end == PL_OK) pl_strbuf_add(b, o.text + 1, strlen(o.text) - 2); // without its brackets
    pl_free(o.text);
    return st == PL_OK ? end : st;
}

// The first n items of the array at `raw`, without its brackets.
static void add_items(pl_strbuf *b, const char *raw, int n) {
    const char *from = skip_blanks(raw + 1), *p = from;
    for (int i = 0; i < n; i++) {
        if (i) p = skip_blanks(skip_blanks(p) + 1);
        p = skip_value(p);
    }
    pl_strbuf_add(b, from, (size_t)(p - from));
}

static void add_system(pl_strbuf *b, const char *text) {
    pl_json_out o;
    pl_json_out_begin(&o, 0);
    pl_json_out_str(&o, text);
    b->failed = b->failed || pl_json_out_end(&o, NULL) != PL_OK;
    add(b, "{\"role\":\"system\",\"content\":");
    add(b, o.text ? o.text : "");
    add(b, "},");
    pl_free(o.text);
}

bool pl_chat_says(const pl_json *j, const cJSON *message, const char *role) {
    const cJSON *who = pl_json_find(j, message, "from");
    if (!who) who = pl_json_find(j, message, "role");
    if (!who || !cJSON_IsString(who)) return false;
    return strcmp(who->valuestring, role) == 0 || strcmp(role_of(who->valuestring), role) == 0;
}

static pl_status check_messages(const pl_json *j, const cJSON *list, pl_err *err) {
    const cJSON *e;
    const char  *role;
    if (cJSON_GetArraySize(list) == 0) return pl_json_fail(j, list, err, "a conversation without a message");
    cJSON_ArrayForEach(e, list) {
        if (!cJSON_IsObject(e)) return pl_json_fail(j, e, err, "a message is an object with \"role\" and \"content\"");
        PL_TRY(pl_json_get_str(j, e, "role", &role, err));
    }
    return PL_OK;
}

// The members of an object, without its brackets, behind what is there.
static void add_members(pl_strbuf *b, const char *object, size_t n) {
    const char *p = object;
    if (!p) return;
    p += strcspn(p, "{") + 1;
    size_t inner = n - (size_t)(p - object) - 1; // up to the closing bracket, which ends the text
    if (strspn(p, " \t\r\n") >= inner) return;
    add(b, ",");
    pl_strbuf_add(b, p, inner);
}

static void add_member(pl_strbuf *b, const char *record, const char *key) {
    size_t      n = 0;
    const char *raw = raw_member(record, key, &n);
    add(b, ",\"");
    add(b, key);
    add(b, "\":");
    if (raw)
        pl_strbuf_add(b, raw, n);
    else
        add(b, "null");
}

// All variables of a template as one object; of members that stand there twice the last counts.
static pl_status variables(const pl_chat_template *t, const pl_json *j, const char *record, const pl_chat_options *o,
                           pl_strbuf *b, pl_err *err) {
    const cJSON *list, *kwargs;
    size_t       n = 0;
    bool         messages = pl_json_find(j, NULL, "messages") != NULL;
    const char  *key = messages ? "messages" : "conversations", *raw;
    if (!pl_json_find(j, NULL, key))
        return pl_json_fail(j, j->root, err,
                            "no conversation in this record: it needs \"messages\" or \"conversations\"");
    PL_TRY(pl_json_get_array(j, NULL, key, &list, err));
    const cJSON *first = cJSON_GetArrayItem(list, 0);
    int          all = cJSON_GetArraySize(list), count = o->first > 0 && o->first < all ? o->first : all;
    bool         sharegpt = first && cJSON_IsObject(first) && pl_json_find(j, first, "from");
    if (!sharegpt) PL_TRY(check_messages(j, list, err));
    add(b, "{\"messages\":[");
    if (o->system && !pl_chat_says(j, first, "system")) add_system(b, o->system);
    if (sharegpt)
        PL_TRY(put_sharegpt(j, list, count, b, err));
    else
        add_items(b, raw_member(record, key, &n), count);
    add(b, "]");
    add_member(b, record, "tools");
    add_member(b, record, "documents");
    add(b, o->add_generation_prompt ? ",\"add_generation_prompt\":true" : ",\"add_generation_prompt\":false");
    add_members(b, t->special, strlen(t->special));
    if (o->kwargs) add_members(b, o->kwargs, strlen(o->kwargs));
    PL_TRY(pl_json_opt_object(j, NULL, "chat_template_kwargs", &kwargs, err));
    raw = kwargs ? raw_member(record, "chat_template_kwargs", &n) : NULL;
    add_members(b, raw, n);
    add(b, "}");
    return b->failed ? pl_fail(err, PL_E_MEMORY, "%s: out of memory", j->where) : PL_OK;
}

pl_status pl_chat_template_render(const pl_chat_template *t, const char *where, int64_t line, const char *record,
                                  size_t n, const pl_chat_options *o, pl_jinja_out *out, pl_err *err) {
    pl_json   j, kwargs;
    pl_strbuf b = {0};
    memset(out, 0, sizeof *out);
    if (o->kwargs) { // must be an object that ends with its bracket
        PL_TRY(pl_json_parse(&kwargs, "variables of the chat template", 0, o->kwargs, strlen(o->kwargs), 0, err));
        bool object = cJSON_IsObject(kwargs.root) && o->kwargs[strlen(o->kwargs) - 1] == '}';
        pl_json_close(&kwargs);
        if (!object) return pl_fail(err, PL_E_INPUT, "variables of the chat template: not an object {...}");
    }
    PL_TRY(pl_json_parse(&j, where, line, record, n, 0, err));
    char     *text = pl_sprintf("%.*s", (int)n, record); // ends in 0, which the walk over members needs
    pl_status st = !text                     ? pl_fail(err, PL_E_MEMORY, "%s: out of memory", j.where)
                   : !cJSON_IsObject(j.root) ? pl_json_fail(&j, j.root, err, "a conversation is an object")
                                             : variables(t, &j, text, o, &b, err);
    bool      tools = st == PL_OK && t->with_tools && pl_json_find(&j, NULL, "tools");
    pl_free(text);
    if (st == PL_OK) {
        st = pl_jinja_render(tools ? t->with_tools : t->usual, b.s, b.n, o->date, out, err);
        if (st != PL_OK) st = pl_fail_at(err, st, "%s", j.where);
    }
    pl_strbuf_fini(&b);
    pl_json_close(&j);
    return st;
}
