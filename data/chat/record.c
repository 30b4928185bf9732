// Converts a record's members to a chat template's variables, as transformers' apply_chat_template does (version 5.24:
// null members dropped, reasoning under its names), and as servers do with requests (vLLM and SGLang: arguments
// decoded, parts of text joined for templates that take text).
#include "data/chat/impl.h"
#include "data/text/messages.h"
#include "data/text/prompts.h"

#include <stdio.h>
#include <string.h>

static const char *const reasoning_names[] = {"reasoning_content", "thinking", "reasoning"};

// ---- checks, on cJSON's tree

// Refuses a list whose items are not objects. JSON text is checked by its content.
static pl_status check_objects(const pl_json *j, const cJSON *list, const char *name, pl_err *err) {
    const cJSON *e;
    pl_json      inner;
    if (cJSON_IsString(list)) {
        if (pl_json_parse(&inner, name, 0, list->valuestring, strlen(list->valuestring), 0, NULL) != PL_OK)
            return pl_json_fail(j, list, err, "a string that is not JSON; expected a list of objects");
        pl_status st = cJSON_IsArray(inner.root)
                           ? check_objects(&inner, inner.root, name, err)
                           : pl_fail(err, PL_E_INPUT, "%s: JSON text that is no list of objects", name);
        pl_json_close(&inner);
        return st == PL_OK ? PL_OK : pl_fail_at(err, st, "%s", j->where);
    }
    if (!cJSON_IsArray(list)) return pl_json_fail(j, list, err, "expected a list of objects");
    cJSON_ArrayForEach(e, list) if (!cJSON_IsObject(e)) return pl_json_fail(j, e, err, "expected an object {...}");
    return PL_OK;
}

static pl_status check_list(const pl_json *j, const cJSON *obj, const char *name, pl_err *err) {
    const cJSON *list = pl_json_find(j, obj, name);
    return list ? check_objects(j, list, name, err) : PL_OK;
}

static pl_status check_role(const pl_chat_template *t, const pl_json *j, const cJSON *e, bool sharegpt, pl_err *err) {
    const char *who;
    PL_TRY(pl_json_get_str(j, e, sharegpt ? "from" : "role", &who, err));
    if (pl_role_of(who) != PL_ROLE_UNKNOWN || (!sharegpt && pl_chat_template_has(t, who, true))) return PL_OK;
    return pl_json_fail(j, e, err, "the role \"%s\" is unknown, and the chat template does not name it; known are %s",
                        who, PL_ROLES_KNOWN);
}

// A tool's result may have any type that its template writes; other content must be text.
static pl_status check_content(const pl_json *j, const cJSON *e, bool sharegpt, pl_err *err) {
    const cJSON *content = pl_json_find(j, e, sharegpt ? "value" : "content");
    const char  *text;
    if (!content || pl_message_role(j, e) == PL_ROLE_TOOL) return PL_OK;
    if (cJSON_IsArray(content)) return pl_content_check_parts(j, content, err);
    return sharegpt ? pl_json_str_of(j, content, &text, err) : PL_OK;
}

static pl_status check_messages(const pl_chat_template *t, const pl_json *j, const cJSON *list, pl_err *err) {
    const cJSON *e;
    bool         sharegpt = pl_record_is_sharegpt(j, list);
    if (!list->child) return pl_json_fail(j, list, err, "a conversation without a message");
    cJSON_ArrayForEach(e, list) {
        if (!cJSON_IsObject(e)) return pl_json_fail(j, e, err, "a message is an object with \"role\" and \"content\"");
        PL_TRY(check_role(t, j, e, sharegpt, err));
        PL_TRY(check_content(j, e, sharegpt, err));
        PL_TRY(check_list(j, e, "tool_calls", err));
    }
    return PL_OK;
}

pl_status pl_chat_record_check(const pl_chat_template *t, const pl_json *j, const pl_chat_options *o, pl_err *err) {
    const cJSON *list, *kwargs;
    pl_json      given;
    if (!cJSON_IsObject(j->root)) return pl_json_fail(j, j->root, err, "a conversation is an object");
    list = pl_chat_messages(j);
    if (!list)
        return pl_json_fail(j, j->root, err,
                            "no conversation in this record: it needs \"messages\" or \"conversations\"");
    if (!cJSON_IsArray(list)) return pl_json_fail(j, list, err, "expected an array of messages");
    PL_TRY(check_messages(t, j, list, err));
    PL_TRY(check_list(j, NULL, "tools", err));
    PL_TRY(check_list(j, NULL, "documents", err));
    PL_TRY(pl_json_opt_object(j, NULL, "chat_template_kwargs", &kwargs, err));
    if (!o->kwargs) return PL_OK;
    PL_TRY(
        pl_json_parse(&given, "variables of the chat template", 0, o->kwargs, strlen(o->kwargs), PL_JSON_UNIQUE, err));
    pl_status st = cJSON_IsObject(given.root) ? PL_OK : pl_json_fail(&given, given.root, err, "not an object {...}");
    pl_json_close(&given);
    return st;
}

// Returns true if a call's arguments are a string.
static bool has_text_arguments(const pl_json *j, const cJSON *calls) {
    const cJSON *e;
    if (cJSON_IsString(calls)) return true;
    cJSON_ArrayForEach(e, calls) {
        const cJSON *function = pl_json_find(j, e, "function");
        const cJSON *arguments = pl_json_find(j, function ? function : e, "arguments");
        if (arguments && cJSON_IsString(arguments)) return true;
    }
    return false;
}

static bool message_reads_anew(const pl_json *j, const cJSON *e) {
    const cJSON *member, *who = pl_json_find(j, e, "role"), *calls = pl_json_find(j, e, "tool_calls");
    cJSON_ArrayForEach(member, e) if (cJSON_IsNull(member)) return true;
    for (size_t i = 0; i < sizeof reasoning_names / sizeof *reasoning_names; i++)
        if (pl_json_find(j, e, reasoning_names[i])) return true;
    if (cJSON_IsArray(pl_json_find(j, e, "content")) || pl_json_find(j, e, "function_call")) return true;
    if (calls && has_text_arguments(j, calls)) return true;
    const char *plain = who && cJSON_IsString(who) ? pl_role_name(pl_role_of(who->valuestring)) : NULL;
    return plain && strcmp(plain, who->valuestring) != 0;
}

bool pl_chat_reads_anew(const pl_json *j) {
    const cJSON *list = pl_chat_messages(j), *e;
    bool         replaced = false; // e belongs to an answer that the target's own replaces
    if (!list || !cJSON_IsArray(list)) return false;
    cJSON_ArrayForEach(e, list) {
        const cJSON *last = pl_chat_before(list, e);
        bool         answers = pl_chat_answers(j, e), first = last && pl_chat_asks(j, list, last);
        if (replaced && answers && !first) return true; // several messages
        replaced = answers && first && !pl_chat_stays(j, e);
        if (!replaced && cJSON_IsObject(e) && message_reads_anew(j, e)) return true;
    }
    return false;
}

// ---- values

static void put_value(pl_region *r, pl_chat_value dict, const char *key, pl_chat_value v) {
    pl_chat_put(r, dict, pl_chat_str(key), v);
}

// Parses JSON text inside a string: returns its value if it has the type, else the string.
static pl_chat_value read_text(pl_region *r, pl_chat_value v, pl_chat_type want) {
    pl_json parsed;
    if (v.type != PL_CHAT_STR || pl_json_parse(&parsed, "text", 0, v.s, v.n, 0, NULL) != PL_OK) return v;
    bool is = want == PL_CHAT_DICT ? cJSON_IsObject(parsed.root) : cJSON_IsArray(parsed.root);
    pl_json_close(&parsed); // before anything that may raise
    return is ? pl_chat_from_json(r, v.s, v.n) : v;
}

static pl_chat_value make_message(pl_region *r, const char *role, pl_chat_value content) {
    pl_chat_value m = pl_chat_dict_new(r);
    put_value(r, m, "role", pl_chat_str(role));
    put_value(r, m, "content", content);
    return m;
}

static pl_chat_value copy_dict(pl_region *r, pl_chat_value from) {
    pl_chat_value to = pl_chat_dict_new(r);
    for (int64_t i = 0; i < from.dict->n; i++)
        pl_chat_put(r, to, from.dict->key[i], from.dict->value[i]);
    return to;
}

// Returns a function of a call with its arguments decoded, as servers pass it to the template.
static pl_chat_value decode_function(pl_region *r, pl_chat_conversation *c, pl_chat_value function) {
    pl_chat_value *text = function.type == PL_CHAT_DICT ? pl_chat_member(r, function, "arguments") : NULL;
    if (!text || text->type != PL_CHAT_STR) return function;
    pl_chat_value arguments = read_text(r, *text, PL_CHAT_DICT);
    if (arguments.type == PL_CHAT_STR) return function;
    c->seen |= PL_CHAT_ARGUMENTS_AS_WRITTEN;
    if (c->reading & PL_CHAT_ARGUMENTS_AS_WRITTEN) return function;
    c->notes |= PL_CHAT_NOTE_ARGUMENTS;
    pl_chat_value own = copy_dict(r, function);
    put_value(r, own, "arguments", arguments);
    return own;
}

static pl_chat_value decode_calls(pl_region *r, pl_chat_conversation *c, pl_chat_value calls) {
    calls = read_text(r, calls, PL_CHAT_LIST);
    if (calls.type != PL_CHAT_LIST) return calls;
    pl_chat_value list = pl_chat_list_new(r, false);
    for (int64_t i = 0; i < calls.list->n; i++) {
        pl_chat_value call = calls.list->v[i], *inner;
        if (call.type == PL_CHAT_DICT) {
            inner = pl_chat_member(r, call, "function");
            pl_chat_value own = inner ? copy_dict(r, call) : decode_function(r, c, call);
            if (inner) put_value(r, own, "function", decode_function(r, c, *inner));
            call = own;
        }
        pl_chat_push(r, list, call);
    }
    return list;
}

// Converts the older form of a call to tool_calls.
static pl_chat_value make_calls(pl_region *r, pl_chat_conversation *c, pl_chat_value function) {
    pl_chat_value list = pl_chat_list_new(r, false), call = pl_chat_dict_new(r);
    put_value(r, call, "type", pl_chat_str("function"));
    put_value(r, call, "function", decode_function(r, c, function));
    pl_chat_push(r, list, call);
    return list;
}

static bool are_text_parts(pl_region *r, pl_chat_value content) {
    if (content.type != PL_CHAT_LIST) return false;
    for (int64_t i = 0; i < content.list->n; i++) {
        pl_chat_value  part = content.list->v[i];
        pl_chat_value *text = part.type == PL_CHAT_DICT ? pl_chat_member(r, part, "text") : NULL;
        if (part.type != PL_CHAT_STR && (!text || text->type != PL_CHAT_STR)) return false;
    }
    return true;
}

static pl_chat_value text_of_part(pl_region *r, pl_chat_value part) {
    return part.type == PL_CHAT_STR ? part : *pl_chat_member(r, part, "text");
}

static pl_chat_value join_parts(pl_region *r, pl_chat_value parts) {
    size_t n = 0;
    for (int64_t i = 0; i < parts.list->n; i++)
        n += text_of_part(r, parts.list->v[i]).n + (i > 0);
    char *text = pl_region_alloc(r, n + 1), *to = text;
    for (int64_t i = 0; i < parts.list->n; i++) {
        pl_chat_value part = text_of_part(r, parts.list->v[i]);
        if (i > 0) *to++ = '\n';
        if (part.n) memcpy(to, part.s, part.n);
        to += part.n;
    }
    return pl_chat_strn(text, n);
}

// Content in parts: a list for templates that iterate over it, a string for those that print it.
static pl_chat_value read_content(pl_region *r, pl_chat_conversation *c, pl_chat_value content) {
    if (!are_text_parts(r, content)) return content;
    c->seen |= PL_CHAT_JOIN_PARTS;
    content.list->parts = true;
    if (!(c->reading & PL_CHAT_JOIN_PARTS)) return content;
    c->notes |= PL_CHAT_NOTE_PARTS;
    return join_parts(r, content);
}

// Returns the role that the template gets.
static const char *read_role(pl_chat_conversation *c, const cJSON *e, bool sharegpt, uint8_t *odd) {
    const char *written = pl_json_find(c->j, e, sharegpt ? "from" : "role")->valuestring;
    pl_role     role = pl_role_of(written);
    const char *plain = pl_role_name(role);
    if (!plain || strcmp(plain, written) == 0) return written;
    if (c->o->developer_is_system && strcmp(written, "developer") == 0 && !pl_chat_template_has(c->t, written, true))
        return plain;
    if (sharegpt || role == PL_ROLE_CALL) return plain;
    bool keep = role == PL_ROLE_TOOL || role == PL_ROLE_SYSTEM || pl_chat_template_has(c->t, written, true);
    if (keep) c->seen |= PL_CHAT_PLAIN_ROLES;
    if (keep && !(c->reading & PL_CHAT_PLAIN_ROLES)) {
        *odd = 1;
        return written;
    }
    *odd = (uint8_t)keep; // its content is checked later
    c->notes |= PL_CHAT_NOTE_ROLES;
    return plain;
}

// Returns true for members of a ShareGPT item that are kept besides its text.
static bool is_carried(pl_chat_value key) {
    static const char *const names[] = {"tool_calls", "function_call", "name", "tool_call_id"};
    for (size_t i = 0; i < sizeof names / sizeof *names; i++)
        if (pl_chat_is(key, names[i])) return true;
    for (size_t i = 0; i < sizeof reasoning_names / sizeof *reasoning_names; i++)
        if (pl_chat_is(key, reasoning_names[i])) return true;
    return false;
}

static pl_chat_value *find_reasoning(pl_region *r, pl_chat_value m) {
    for (size_t i = 0; i < sizeof reasoning_names / sizeof *reasoning_names; i++) {
        pl_chat_value *v = pl_chat_member(r, m, reasoning_names[i]);
        if (v && v->type != PL_CHAT_NONE) return v;
    }
    return NULL;
}

// Adds one member of a message; null is left out.
static void put_member(pl_region *r, pl_chat_conversation *c, pl_chat_value to, pl_chat_value key, pl_chat_value v) {
    if (v.type == PL_CHAT_NONE) return;
    if (pl_chat_is(key, "content")) v = read_content(r, c, v);
    if (pl_chat_is(key, "tool_calls")) v = decode_calls(r, c, v);
    if (pl_chat_is(key, "function_call") && !pl_chat_template_has(c->t, "function_call", false)) {
        c->notes |= PL_CHAT_NOTE_CALL;
        key = pl_chat_str("tool_calls");
        v = make_calls(r, c, read_text(r, v, PL_CHAT_DICT));
    }
    pl_chat_put(r, to, key, v);
}

// Adds a message whose content is a call in JSON, {"name", "arguments"} or a list of them.
static bool put_call_content(pl_region *r, pl_chat_conversation *c, pl_chat_value to, pl_chat_value content) {
    pl_chat_value one = read_text(r, content, PL_CHAT_DICT), many = read_text(r, content, PL_CHAT_LIST);
    pl_chat_value calls = pl_chat_list_new(r, false);
    if (one.type == PL_CHAT_DICT) {
        pl_chat_push(r, calls, make_calls(r, c, one).list->v[0]);
    } else if (many.type == PL_CHAT_LIST) {
        for (int64_t i = 0; i < many.list->n; i++)
            pl_chat_push(r, calls, make_calls(r, c, many.list->v[i]).list->v[0]);
    } else {
        return false;
    }
    put_value(r, to, "tool_calls", calls);
    return true;
}

void pl_chat_probe(char *text, int64_t i) {
    snprintf(text, PL_CHAT_PROBE_SIZE, "probe7f3a9c%lldx", (long long)i);
}

static void put_probe(pl_region *r, pl_chat_value to, int64_t i) {
    char text[PL_CHAT_PROBE_SIZE];
    pl_chat_probe(text, i);
    put_value(r, to, "content", pl_chat_str(pl_region_copy(r, text, strlen(text))));
}

// Returns message i of the record as apply_chat_template passes it to the template.
static pl_chat_value read_message(pl_region *r, pl_chat_conversation *c, const cJSON *e, pl_chat_value m, bool sharegpt,
                                  int64_t at) {
    pl_chat_value  to = pl_chat_dict_new(r), *reasoning = find_reasoning(r, m);
    const char    *said = sharegpt ? "value" : "content", *role = read_role(c, e, sharegpt, &c->odd[at]);
    pl_chat_value *content = pl_chat_member(r, m, said);
    bool           call = pl_message_role(c->j, e) == PL_ROLE_CALL && content && put_call_content(r, c, to, *content);
    if (reasoning) put_value(r, to, "thinking", *reasoning);
    for (int64_t i = 0; i < m.dict->n; i++) {
        pl_chat_value key = m.dict->key[i], v = m.dict->value[i];
        if (pl_chat_is(key, sharegpt ? "from" : "role"))
            put_value(r, to, "role", pl_chat_str(role));
        else if (pl_chat_is(key, said) && !call)
            put_member(r, c, to, pl_chat_str("content"), v);
        else if (!pl_chat_is(key, said) && (!sharegpt || is_carried(key)))
            put_member(r, c, to, key, v);
    }
    if (reasoning) put_value(r, to, "reasoning_content", *reasoning);
    if ((c->reading & PL_CHAT_PROBE) && c->odd[at]) put_probe(r, to, at);
    return to;
}

// Returns a message with the target's own answer (data/chat/prompts.h).
static pl_chat_value read_answer(pl_region *r, pl_chat_conversation *c, const char *answer) {
    pl_chat_value  m = pl_chat_from_json(r, answer, strlen(answer)), to = pl_chat_dict_new(r);
    pl_chat_value *reasoning = find_reasoning(r, m);
    if (reasoning) put_value(r, to, "thinking", *reasoning);
    for (int64_t i = 0; i < m.dict->n; i++)
        put_member(r, c, to, m.dict->key[i], m.dict->value[i]);
    if (reasoning) put_value(r, to, "reasoning_content", *reasoning);
    return to;
}

// Adds the system message of the record, of the options, or none.
static void push_system(pl_region *r, pl_chat_conversation *c, pl_chat_value list, const cJSON *first) {
    const char *beside = pl_record_system(c->j);
    if (first && pl_message_role(c->j, first) == PL_ROLE_SYSTEM) {
        if (beside) c->notes |= PL_CHAT_NOTE_SYSTEM;
        return;
    }
    const char *system = beside ? beside : c->o->system;
    if (system) pl_chat_push(r, list, make_message(r, "system", pl_chat_str(system)));
}

static pl_chat_value read_messages(pl_region *r, pl_chat_conversation *c, pl_chat_value record) {
    const pl_chat_turn *turn = c->o->turn;
    const pl_json      *j = c->j;
    const cJSON        *items = pl_chat_messages(j), *e = items->child;
    pl_chat_value      *given = pl_chat_member(r, record, items->string), list = pl_chat_list_new(r, false);
    bool                sharegpt = pl_record_is_sharegpt(j, items), replaced = false;
    int                 at = 0, exchange = 0; // turns passed; exchanges begun
    push_system(r, c, list, e);
    for (int64_t i = 0; i < given->list->n; i++, e = e->next) {
        const cJSON *last = pl_chat_before(items, e);
        const char  *own =
            turn && turn->answer && at > 0 && last && pl_chat_asks(j, items, last) ? turn->answer[at - 1] : NULL;
        if (own && pl_chat_stays(j, e)) own = NULL;
        if (replaced && !own && pl_chat_answers(j, e)) continue; // the rest of a replaced answer
        replaced = own != NULL;
        exchange += pl_chat_begins_exchange(j, items, e);
        if (!turn || exchange == 0 || exchange > turn->skip)
            pl_chat_push(r, list, own ? read_answer(r, c, own) : read_message(r, c, e, given->list->v[i], sharegpt, i));
        if (pl_chat_asks(j, items, e) && turn && at++ == turn->number) break;
    }
    return list;
}

static void note_context(pl_chat_conversation *c) {
    static const struct {
        const char *name;
        unsigned    note;
    } beside[] = {{"context", PL_CHAT_NOTE_CONTEXT},     {"history", PL_CHAT_NOTE_HISTORY},
                  {"functions", PL_CHAT_NOTE_FUNCTIONS}, {"images", PL_CHAT_NOTE_MEDIA},
                  {"image", PL_CHAT_NOTE_MEDIA},         {"videos", PL_CHAT_NOTE_MEDIA},
                  {"audios", PL_CHAT_NOTE_MEDIA}};
    for (size_t i = 0; i < sizeof beside / sizeof *beside; i++) {
        const cJSON *e = pl_prompts_member(c->j, beside[i].name);
        bool         empty = !e || (cJSON_IsString(e) && !*e->valuestring) || (cJSON_IsArray(e) && !e->child);
        if (!empty) c->notes |= beside[i].note;
    }
}

// Values come from the record's text, since cJSON has only doubles and a template distinguishes 1 from 1.0.
void pl_chat_record_fill(pl_region *r, pl_chat_value vars, const void *arg) {
    static const char *const members[] = {"tools", "documents"};
    pl_chat_conversation    *c = *(pl_chat_conversation *const *)arg;
    pl_chat_value            record = pl_chat_from_json(r, c->text, c->n);
    pl_chat_merge(r, vars, c->t->special, strlen(c->t->special));
    put_value(r, vars, "messages", read_messages(r, c, record));
    put_value(r, vars, "add_generation_prompt", pl_chat_bool(c->o->add_generation_prompt));
    for (int i = 0; i < 2; i++) {
        pl_chat_value *v = i == 0 && c->o->no_tools ? NULL : pl_chat_member(r, record, members[i]);
        put_value(r, vars, members[i], v ? read_text(r, *v, PL_CHAT_LIST) : pl_chat_none());
    }
    if (c->o->kwargs) pl_chat_merge(r, vars, c->o->kwargs, strlen(c->o->kwargs));
    pl_chat_value *own = pl_chat_member(r, record, "chat_template_kwargs");
    for (int64_t i = 0; own && own->type == PL_CHAT_DICT && i < own->dict->n; i++)
        pl_chat_put(r, vars, own->dict->key[i], own->dict->value[i]);
    note_context(c);
}
