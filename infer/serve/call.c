#include "infer/serve/call.h"
#include "kernels/base/arena.h"

#include <stdio.h>
#include <string.h>

// ---- JSON as text ---------------------------------------------------------------------------------------------------

static size_t skip_space(const char *s, size_t n, size_t at) {
    while (at < n && (s[at] == ' ' || s[at] == '\n' || s[at] == '\r' || s[at] == '\t'))
        at++;
    return at;
}

// Walks on over an object, a list or a string that begins at s[from]; returns its end, 0: it is not there yet.
static size_t scan_value(pl_value_scan *x, const char *s, size_t n, size_t from) {
    if (x->at < from) x->at = from;
    for (; x->at < n && x->end == 0; x->at++) {
        char c = s[x->at];
        bool inside = x->text;
        if (inside && !x->escaped && c == '"') x->text = false;
        x->escaped = inside && !x->escaped && c == '\\';
        if (inside && x->text) continue;
        if (!inside && c == '"') x->text = true;
        if (!inside && (c == '{' || c == '[')) x->depth++;
        if (!inside && (c == '}' || c == ']')) x->depth--;
        if (x->depth <= 0 && !x->text) x->end = x->at + 1;
    }
    return x->end;
}

static size_t end_of_value(const char *s, size_t n, size_t from) {
    pl_value_scan x = {0};
    if (s[from] == '{' || s[from] == '[' || s[from] == '"') return scan_value(&x, s, n, from);
    while (from < n && s[from] != ',' && s[from] != '}' && s[from] != ']')
        from++;
    return from;
}

// Returns the next value of a valid list or object behind s[at], *end behind it; 0: there is none.
static size_t next_value(const char *s, size_t n, size_t at, size_t *end) {
    at = skip_space(s, n, at);
    if (s[at] == ',' || s[at] == ':') at = skip_space(s, n, at + 1);
    if (s[at] == '}' || s[at] == ']') return 0;
    *end = end_of_value(s, n, at);
    return at;
}

// Finds a member of a valid object as it is written; false: it is not there, or its name is written with escapes.
static bool find_member(const char *s, size_t n, const char *name, size_t *from, size_t *end) {
    size_t m = strlen(name);
    for (size_t at = 1, key_end; (at = next_value(s, n, at, &key_end)) > 0; at = *end) {
        bool is = key_end - at == m + 2 && memcmp(s + at + 1, name, m) == 0;
        *from = next_value(s, n, key_end, end);
        if (is) return true;
    }
    return false;
}

static bool is_object(const char *s, size_t n) {
    pl_json j;
    if (pl_json_parse(&j, "call", 0, s, n, PL_JSON_UNIQUE | PL_JSON_NUL, NULL) != PL_OK) return false;
    bool is = cJSON_IsObject(j.root);
    pl_json_close(&j);
    return is;
}

// ---- calls ----------------------------------------------------------------------------------------------------------

static uint64_t mix(uint64_t x) { // splitmix64
    x += 0x9E3779B97F4A7C15u;
    x = (x ^ x >> 30) * 0xBF58476D1CE4E5B9u;
    x = (x ^ x >> 27) * 0x94D049BB133111EBu;
    return x ^ x >> 31;
}

// Writes the id of call i: nine letters and digits, which Mistral's templates require.
static void write_id(const pl_parts *p, int i, char id[PL_CALL_ID]) {
    static const char digit[] = "0123456789abcdefghijklmnopqrstuvwxyz";
    bool              short_one = p->form == PL_CALLS_MISTRAL || p->form == PL_CALLS_MISTRAL_ARGS;
    char             *to = id + snprintf(id, PL_CALL_ID, "%s", short_one ? "" : "call_");
    uint64_t          x = mix(p->id + (uint64_t)i);
    for (int k = 0; k < 9; k++, x /= 36)
        *to++ = digit[x % 36];
    *to = 0;
}

static bool is_id(const char *s, size_t n) {
    for (size_t i = 0; i < n; i++)
        if (!((s[i] >= '0' && s[i] <= '9') || (s[i] >= 'A' && s[i] <= 'Z') || (s[i] >= 'a' && s[i] <= 'z')))
            return false;
    return n > 0 && n < PL_CALL_ID;
}

// arguments: an object. id NULL: the model has given none.
static void add_call(pl_parts *p, const char *name, const char *arguments, size_t n, const char *id) {
    if (p->n_calls == p->cap_calls) {
        int   cap = p->cap_calls ? 2 * p->cap_calls : 4;
        void *more = pl_realloc(p->call, (size_t)cap * sizeof *p->call);
        if (!more) {
            p->failed = true;
            return;
        }
        p->call = more;
        p->cap_calls = cap;
    }
    pl_tool_call *c = &p->call[p->n_calls];
    pl_strbuf     text = {0};
    pl_strbuf_add(&text, arguments, n);
    *c = (pl_tool_call){.name = pl_strdup(name), .arguments = pl_strbuf_take(&text)};
    write_id(p, p->n_calls++, c->id);
    if (id && is_id(id, strlen(id))) snprintf(c->id, sizeof c->id, "%s", id);
    p->failed |= !c->name || !c->arguments;
}

bool pl_call_add(pl_parts *p, const char *name, const char *s, size_t n) {
    size_t from = skip_space(s, n, 0);
    if (from == n || s[from] != '{' || !is_object(s, n)) return false;
    size_t end = end_of_value(s, n, from);
    add_call(p, name, s + from, end - from, NULL);
    return true;
}

// Adds {"name", "arguments" or "parameters"} of an object as it is written; false if it is no call.
static bool add_object(pl_parts *p, const pl_json *j, const cJSON *o, const char *s, size_t n) {
    const cJSON *name = pl_json_find(j, o, "name"), *id = pl_json_find(j, o, "id"), *of = NULL;
    const char  *key[] = {"arguments", "parameters"};
    size_t       from, end;
    for (int i = 0; i < 2 && !of; i++)
        if ((of = pl_json_find(j, o, key[i]))) key[0] = key[i];
    if (!name || !cJSON_IsString(name) || !*name->valuestring || (!of && p->form == PL_CALLS_LLAMA)) return false;
    const char *given = id && cJSON_IsString(id) ? id->valuestring : NULL;
    if (!of) {
        add_call(p, name->valuestring, "{}", 2, given);
    } else if (cJSON_IsString(of)) { // JSON within JSON
        if (!is_object(of->valuestring, strlen(of->valuestring))) return false;
        add_call(p, name->valuestring, of->valuestring, strlen(of->valuestring), given);
    } else {
        if (!cJSON_IsObject(of) || !find_member(s, n, key[0], &from, &end)) return false;
        add_call(p, name->valuestring, s + from, end - from, given);
    }
    return true;
}

static void forget_calls(pl_parts *p, int from) {
    while (p->n_calls > from) {
        pl_free(p->call[--p->n_calls].name);
        pl_free(p->call[p->n_calls].arguments);
    }
}

// Adds the call, or all calls of a list, that a JSON text writes.
static bool add_value(pl_parts *p, const char *s, size_t n) {
    pl_json j;
    int     before = p->n_calls;
    bool    good;
    if (pl_json_parse(&j, "call", 0, s, n, PL_JSON_UNIQUE | PL_JSON_NUL, NULL) != PL_OK) return false;
    if (cJSON_IsArray(j.root)) {
        size_t at = 1, end = 1;
        good = j.root->child != NULL;
        for (const cJSON *o = j.root->child; o && good; o = o->next) {
            at = next_value(s, n, end, &end);
            good = cJSON_IsObject(o) && add_object(p, &j, o, s + at, end - at);
        }
    } else {
        good = cJSON_IsObject(j.root) && add_object(p, &j, j.root, s, n);
    }
    pl_json_close(&j);
    if (!good) forget_calls(p, before);
    return good;
}

// ---- forms ----------------------------------------------------------------------------------------------------------

// Returns true if s[at..n) is `mark`; *begins: it may become it.
static bool matches(const char *s, size_t n, size_t at, const char *mark, bool *begins) {
    size_t m = strlen(mark), k = n - at < m ? n - at : m;
    bool   same = memcmp(s + at, mark, k) == 0;
    *begins = same && k < m;
    return same && k == m;
}

// Reads the JSON value at s[from]; *used is its end.
static pl_call read_value(pl_parts *p, const char *s, size_t n, bool ended, size_t from, size_t *used) {
    size_t end = scan_value(&p->scan, s, n, from);
    if (end == 0) return ended ? PL_CALL_REFUSED : PL_CALL_OPEN;
    *used = end;
    return add_value(p, s + from, end - from) ? PL_CALL_MADE : PL_CALL_REFUSED;
}

// The value, and </tool_call> unless the answer ends before it.
static pl_call read_hermes(pl_parts *p, const char *s, size_t n, bool ended, size_t from, size_t *used) {
    size_t end = scan_value(&p->scan, s, n, from);
    bool   begins = false;
    if (end == 0) return ended ? PL_CALL_REFUSED : PL_CALL_OPEN;
    size_t at = skip_space(s, n, end);
    bool   closed = matches(s, n, at, pl_mark_text[PL_MARK_CLOSE], &begins);
    if (begins && !ended) return PL_CALL_OPEN;
    if (!closed && !begins) return PL_CALL_REFUSED;
    *used = closed ? at + strlen(pl_mark_text[PL_MARK_CLOSE]) : n;
    return add_value(p, s + from, end - from) ? PL_CALL_MADE : PL_CALL_REFUSED;
}

static bool is_name(char c) {
    return (c >= '0' && c <= '9') || (c >= 'A' && c <= 'Z') || (c >= 'a' && c <= 'z') || c == '_' || c == '-' ||
           c == '.';
}

static size_t skip_name(const char *s, size_t n, size_t at) {
    while (at < n && is_name(s[at]))
        at++;
    return at;
}

// f[ARGS]{} or f[CALL_ID]x[ARGS]{}
static pl_call read_named(pl_parts *p, const char *s, size_t n, bool ended, size_t from, size_t *used) {
    char   name[PL_CALL_NAME], id[PL_CALL_ID] = "";
    size_t at = skip_name(s, n, from), id_end = 0;
    bool   begins;
    if (at - from >= sizeof name || (at == from && at < n)) return PL_CALL_REFUSED;
    snprintf(name, sizeof name, "%.*s", (int)(at - from), s + from);
    if (matches(s, n, at, pl_mark_text[PL_MARK_CALL_ID], &begins)) {
        at += strlen(pl_mark_text[PL_MARK_CALL_ID]);
        id_end = skip_name(s, n, at);
        if (id_end - at >= sizeof id) return PL_CALL_REFUSED;
        snprintf(id, sizeof id, "%.*s", (int)(id_end - at), s + at);
        at = id_end;
    } else if (begins && !ended) {
        return PL_CALL_OPEN;
    }
    if (!matches(s, n, at, pl_mark_text[PL_MARK_ARGS], &begins))
        return begins && !ended ? PL_CALL_OPEN : PL_CALL_REFUSED;
    at = skip_space(s, n, at + strlen(pl_mark_text[PL_MARK_ARGS]));
    if (at == n) return ended ? PL_CALL_REFUSED : PL_CALL_OPEN;
    size_t end = s[at] == '{' ? scan_value(&p->scan, s, n, at) : 0;
    if (s[at] != '{' || (end == 0 && ended)) return PL_CALL_REFUSED;
    if (end == 0) return PL_CALL_OPEN;
    if (!is_object(s + at, end - at)) return PL_CALL_REFUSED;
    add_call(p, name, s + at, end - at, id);
    *used = end;
    return PL_CALL_MADE;
}

pl_call pl_call_read(pl_parts *p, const char *s, size_t n, bool ended, size_t *used) {
    size_t at = skip_space(s, n, 0);
    bool   lists = p->form == PL_CALLS_MISTRAL || p->form == PL_CALLS_MISTRAL_ARGS;
    if (at == n) return ended ? PL_CALL_REFUSED : PL_CALL_OPEN;
    pl_call is = s[at] == '{' && p->form == PL_CALLS_HERMES ? read_hermes(p, s, n, ended, at, used)
                 : s[at] == '{' || (s[at] == '[' && lists)  ? read_value(p, s, n, ended, at, used)
                 : lists                                    ? read_named(p, s, n, ended, at, used)
                                                            : PL_CALL_REFUSED;
    if (is == PL_CALL_REFUSED) *used = 0;
    return is;
}
