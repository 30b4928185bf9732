#include "data/text/prompts.h"
#include "data/text/messages.h"
#include "data/text/text.h"
#include "kernels/base/check.h"
#include "kernels/base/files.h"
#include "kernels/base/hash.h"
#include "kernels/base/json.h"
#include "kernels/base/log.h"
#include "kernels/base/strbuf.h"
#include "kernels/base/utf8.h"
#include <stdlib.h>
#include <strings.h>

#define MAX_FILE ((size_t)2 << 30)

void pl_prompts_destroy(pl_prompts *p) {
    if (!p) return;
    for (int64_t i = 0; i < p->n; i++)
        pl_prompt_fini(&p->p[i]);
    pl_free(p->p);
    pl_free(p);
}

void pl_prompt_fini(pl_prompt *p) {
    pl_free(p->text);
    pl_free(p->category);
    pl_free(p->record);
    pl_free(p->reference);
    pl_free(p->ids);
    p->text = p->category = p->record = p->reference = NULL;
    p->ids = NULL;
}

static char *dup_or_null(const char *s, bool *ok) {
    char *copy = s ? pl_strdup(s) : NULL;
    *ok = *ok && !s == !copy;
    return copy;
}

bool pl_prompt_copy(pl_prompt *to, const pl_prompt *p) {
    bool ok = true;
    *to = *p;
    to->text = dup_or_null(p->text, &ok);
    to->category = dup_or_null(p->category, &ok);
    to->record = dup_or_null(p->record, &ok); // without it, a conversation would be its first turn alone
    to->reference = dup_or_null(p->reference, &ok);
    to->ids = p->ids ? pl_malloc((size_t)p->n_ids * sizeof *p->ids) : NULL;
    if (to->ids) memcpy(to->ids, p->ids, (size_t)p->n_ids * sizeof *p->ids);
    ok = ok && !p->ids == !to->ids;
    if (!ok) pl_prompt_fini(to);
    return ok;
}

static pl_status out_of_memory(const char *path, pl_err *err) {
    return pl_fail(err, PL_E_MEMORY, "%s: out of memory", path);
}

// The capacity is the next power of two.
pl_status pl_prompts_push(pl_prompts *list, pl_prompt p, const char *path, pl_err *err) {
    bool ok = p.text && p.category;
    if (ok && (list->n & (list->n - 1)) == 0) {
        pl_prompt *grown = pl_realloc(list->p, (size_t)(list->n ? 2 * list->n : 1) * sizeof *grown);
        if (grown) list->p = grown;
        ok = grown != NULL;
    }
    if (!ok) {
        pl_prompt_fini(&p);
        return out_of_memory(path, err);
    }
    if (p.turns < 1) p.turns = 1;
    list->p[list->n++] = p;
    return PL_OK;
}

// ---- one record

static const char *string_of(const cJSON *node) {
    return node && cJSON_IsString(node) ? node->valuestring : NULL;
}

static void add_joined(pl_strbuf *b, const char *s) {
    if (b->n > 0) pl_strbuf_add(b, "\n", 1);
    pl_strbuf_add(b, s, strlen(s));
}

static pl_status turns_text(const pl_json *j, const cJSON *list, bool one_turn, pl_strbuf *b, pl_err *err) {
    const cJSON *e;
    const char  *s;
    cJSON_ArrayForEach(e, list) {
        PL_TRY(pl_json_str_of(j, e, &s, err));
        add_joined(b, s);
        if (one_turn) break;
    }
    return PL_OK;
}

static pl_status conversation_text(const pl_json *j, const cJSON *list, pl_strbuf *b, pl_err *err) {
    const cJSON *e;
    cJSON_ArrayForEach(e, list) {
        const char *who;
        PL_TRY(pl_json_get_str(j, e, pl_json_find(j, e, "from") ? "from" : "role", &who, err));
        if (pl_role_of(who) == PL_ROLE_UNKNOWN)
            return pl_json_fail(j, e, err, "the role \"%s\" is unknown; known are %s", who, PL_ROLES_KNOWN);
        bool user = pl_role_of(who) == PL_ROLE_USER;
        if (!user && b->n > 0) break;
        if (!user) continue;
        if (b->n > 0) pl_strbuf_add(b, "\n", 1);
        PL_TRY(pl_message_text(j, e, b, err));
    }
    return PL_OK;
}

// Everything said in the member `field`, whoever said it.
static pl_status field_text(const pl_json *j, const char *field, pl_strbuf *b, pl_err *err) {
    const cJSON *node = pl_json_find(j, NULL, field), *e;
    const char  *s;
    if (!node) return pl_json_fail(j, j->root, err, "this record has no \"%s\"", field);
    if (!cJSON_IsArray(node)) {
        PL_TRY(pl_json_str_of(j, node, &s, err));
        add_joined(b, s);
        return PL_OK;
    }
    cJSON_ArrayForEach(e, node) {
        if (cJSON_IsObject(e))
            PL_TRY(pl_json_get_str(j, e, pl_json_find(j, e, "value") ? "value" : "content", &s, err));
        else
            PL_TRY(pl_json_str_of(j, e, &s, err));
        add_joined(b, s);
    }
    return PL_OK;
}

const cJSON *pl_prompts_member(const pl_json *j, const char *name) {
    const cJSON *exact = pl_json_find(j, NULL, name), *e;
    if (exact) return exact;
    cJSON_ArrayForEach(e, j->root) if (strcasecmp(e->string, name) == 0 && !cJSON_IsNull(e)) return e;
    return NULL;
}

static pl_status add_string(const pl_json *j, const cJSON *node, pl_strbuf *b, pl_err *err) {
    const char *s;
    PL_TRY(pl_json_str_of(j, node, &s, err));
    add_joined(b, s);
    return PL_OK;
}

static pl_status add_list(const pl_json *j, const cJSON *list, bool strings, bool one_turn, pl_strbuf *b, pl_err *err) {
    if (!cJSON_IsArray(list)) return pl_json_fail(j, list, err, "expected an array");
    return strings ? turns_text(j, list, one_turn, b, err) : conversation_text(j, list, b, err);
}

pl_status pl_prompts_text(const pl_json *j, bool one_turn, pl_strbuf *b, pl_err *err) {
    static const char *const names[] = {"prompt",      "text",          "turns",   "question",
                                        "instruction", "conversations", "messages"};
    const cJSON             *node = NULL;
    int                      k = 0;
    for (; k < 7 && !node; k++)
        node = pl_prompts_member(j, names[k]);
    if (!node)
        return pl_json_fail(j, j->root, err,
                            "no prompt in this record; it needs \"prompt\", \"text\", \"turns\", \"question\", "
                            "\"instruction\", \"conversations\" or \"messages\"");
    const char *name = names[k - 1];
    bool        turns = strcmp(name, "turns") == 0, messages = k < 3 && cJSON_IsArray(node);
    if (messages && !cJSON_IsObject(node->child))
        return pl_json_fail(j, node, err, "expected a string or a list of messages");
    if (turns || messages || k > 5) return add_list(j, node, turns && !cJSON_IsObject(node->child), one_turn, b, err);
    PL_TRY(add_string(j, node, b, err));
    const char *input = strcmp(name, "instruction") == 0 ? string_of(pl_prompts_member(j, "input")) : NULL;
    if (input && input[0]) add_joined(b, input);
    return PL_OK;
}

// The number at the end of "HumanEval/12", or `other`.
static int64_t trailing_number(const char *s, int64_t other) {
    size_t n = strlen(s), at = n;
    while (at > 0 && n - at < 18 && s[at - 1] >= '0' && s[at - 1] <= '9')
        at--;
    return at < n ? strtoll(s + at, NULL, 10) : other;
}

static int64_t record_id(const pl_json *j, int64_t index) {
    static const char *const keys[] = {"question_id", "id", "task_id"};
    for (int i = 0; i < 3; i++) {
        const cJSON *node = pl_json_find(j, NULL, keys[i]);
        if (!node) continue;
        if (cJSON_IsString(node)) return trailing_number(node->valuestring, index);
        int64_t id;
        if (pl_json_int_of(j, node, -PL_JSON_INT_MAX, PL_JSON_INT_MAX, &id, NULL) == PL_OK) return id;
    }
    return index;
}

pl_status pl_prompts_add(pl_prompts *to, const pl_json *j, int64_t line, pl_prompt p, pl_err *err) {
    const char  *category = string_of(pl_prompts_member(j, "category")), *against;
    const cJSON *reference = pl_prompts_member(j, "reference");
    bool         ok = true;
    if (p.text && !*p.text) {
        pl_prompt_fini(&p);
        return pl_json_fail(j, j->root, err, "the prompt of this record is empty");
    }
    p.category = pl_strdup(category ? category : "");
    p.id = record_id(j, to->n);
    p.line = line;
    against = string_of(cJSON_IsArray(reference) ? reference->child : reference);
    p.reference = dup_or_null(against, &ok);
    if (ok) return pl_prompts_push(to, p, j->where, err);
    pl_prompt_fini(&p);
    return out_of_memory(j->where, err);
}

static pl_status read_record(pl_prompts *list, const char *path, const pl_prompts_reader *r, int64_t line,
                             const char *s, size_t n, pl_err *err);

// arg: the name of the member that is the text, NULL: the rules.
static pl_status add_text(const pl_prompts_reader *r, pl_prompts *to, const pl_json *j, int64_t line, const char *text,
                          size_t n, pl_err *err) {
    pl_strbuf b = {0};
    (void)text, (void)n;
    if (!r->arg && pl_prompts_is_served(j)) return pl_prompts_add_served(to, j, line, err);
    pl_status st = r->arg ? field_text(j, r->arg, &b, err) : pl_prompts_text(j, false, &b, err);
    if (st == PL_OK) st = pl_prompts_add(to, j, line, (pl_prompt){.text = pl_strbuf_take(&b)}, err);
    pl_strbuf_fini(&b);
    return st;
}

static pl_status read_rewritten(pl_prompts *list, const char *path, const pl_prompts_reader *r, const pl_json *j,
                                int64_t line, pl_err *err) {
    pl_prompts_reader plain = *r;
    pl_strbuf         b = {0};
    plain.rewrite = NULL;
    pl_status st = r->rewrite->record(r->rewrite->arg, j, &b, err);
    size_t    n = b.n;
    char     *text = pl_strbuf_take(&b);
    if (st == PL_OK && !text) st = out_of_memory(path, err);
    if (st == PL_OK && n > 0) st = read_record(list, path, &plain, line, text, n, err);
    pl_free(text);
    return st;
}

// Names what stands beside a prompt and is not read.
static void warn_unread(const pl_json *j, const char *path, const pl_prompts_reader *r) {
    for (int i = 0; r->unread && r->unread[i]; i++) {
        const cJSON *e = pl_prompts_member(j, r->unread[i]);
        bool         empty = !e || (cJSON_IsString(e) && !*e->valuestring) || (cJSON_IsArray(e) && !e->child);
        if (!empty) pl_log_warn_once("%s: \"%s\" beside a prompt is not read", path, r->unread[i]);
    }
}

static pl_status read_record(pl_prompts *list, const char *path, const pl_prompts_reader *r, int64_t line,
                             const char *s, size_t n, pl_err *err) {
    pl_json j;
    PL_TRY(pl_json_parse_many(&j, path, line, s, n, PL_PROMPT_VALUES, PL_JSON_UNIQUE, err));
    pl_status st = PL_OK;
    if (!cJSON_IsObject(j.root))
        st = pl_json_fail(&j, j.root, err, "a record must be an object {...}");
    else if (r->rewrite)
        st = read_rewritten(list, path, r, &j, line, err);
    else
        st = r->record(r, list, &j, line, s, n, err);
    if (st == PL_OK && !r->rewrite) warn_unread(&j, path, r);
    pl_json_close(&j);
    return st;
}

// ---- files

enum { NAMED = 3 }; // records left out that a warning names

// A file at work.
typedef struct reading {
    pl_prompts              *list;
    const char              *path;
    const pl_prompts_reader *r;
    int64_t                  records, odd; // in all; left out
    pl_err                   why[NAMED];   // of the first ones
} reading;

// A record, left out where it cannot be read and the reader is lenient.
static pl_status take_record(reading *g, int64_t line, const char *s, size_t n, pl_err *err) {
    int64_t   before = g->list->n;
    pl_err    why = {0};
    pl_status st = read_record(g->list, g->path, g->r, line, s, n, &why);
    g->records++;
    if (st == PL_OK) return PL_OK;
    if (!g->r->lenient || st != PL_E_INPUT) return pl_fail(err, st, "%s", why.msg);
    while (g->list->n > before)
        pl_prompt_fini(&g->list->p[--g->list->n]);
    if (g->odd < NAMED) g->why[g->odd] = why;
    g->odd++;
    return PL_OK;
}

// Most records left out mean another kind of file.
static pl_status tell_odd(const reading *g, pl_err *err) {
    if (g->odd == 0) return PL_OK;
    if (2 * g->odd > g->records) return pl_fail(err, PL_E_INPUT, "%s", g->why[0].msg);
    for (int64_t i = 0; i < g->odd && i < NAMED; i++)
        pl_log_warn_once("%s; left out", g->why[i].msg);
    pl_log_warn_once("%s: %lld of %lld records are left out (data.strict: true refuses the file)", g->path,
                     (long long)g->odd, (long long)g->records);
    return PL_OK;
}

static bool blank(char c) {
    return c == ' ' || c == '\t' || c == '\r' || c == '\n';
}

static pl_status read_lines(reading *g, const char *s, size_t n, pl_err *err) {
    int64_t line = 1;
    for (size_t at = 0; at < n; line++) {
        const char *end = memchr(s + at, '\n', n - at);
        size_t      len = end ? (size_t)(end - (s + at)) : n - at, i = 0;
        while (i < len && blank(s[at + i]))
            i++;
        if (i < len) PL_TRY(take_record(g, line, s + at, len, err));
        at += len + 1;
    }
    return PL_OK;
}

// Where the JSON value at s[at] ends: at the comma or bracket behind it. The parser judges what is in between.
static size_t value_end(const char *s, size_t n, size_t at) {
    int  depth = 0;
    bool string = false;
    for (; at < n; at++) {
        char c = s[at];
        if (string) {
            if (c == '\\') at++;
            if (c == '"') string = false;
        } else if (c == '"') {
            string = true;
        } else if (c == '{' || c == '[') {
            depth++;
        } else if (c == '}' || c == ']' || c == ',') {
            if (depth == 0) return at;
            depth -= c != ',';
        }
    }
    return n;
}

static size_t skip_blanks(const char *s, size_t n, size_t at, int64_t *line) {
    for (; at < n && blank(s[at]); at++)
        *line += s[at] == '\n';
    return at;
}

// One list of records. Each is parsed by itself, so that messages name its line and memory stays that of one record.
static pl_status read_list(reading *g, const char *s, size_t n, pl_err *err) {
    const char *path = g->path;
    int64_t     line = 1;
    size_t      at = skip_blanks(s, n, skip_blanks(s, n, 0, &line) + 1, &line); // behind the '['
    bool        done = at < n && s[at] == ']';
    if (done) at++;
    while (!done) {
        size_t end = value_end(s, n, at);
        if (end == n)
            return pl_fail(err, PL_E_INPUT, "%s:%lld: the list ends inside this record", path, (long long)line);
        PL_TRY(take_record(g, line, s + at, end - at, err));
        for (; at < end; at++)
            line += s[at] == '\n';
        if (s[at] == '}') return pl_fail(err, PL_E_INPUT, "%s:%lld: '}' behind a record", path, (long long)line);
        done = s[at] == ']';
        at = skip_blanks(s, n, at + 1, &line);
    }
    at = skip_blanks(s, n, at, &line);
    if (at < n) return pl_fail(err, PL_E_INPUT, "%s:%lld: text behind the end of the list", path, (long long)line);
    return PL_OK;
}

static pl_status read_paragraphs(reading *g, const char *s, size_t n, pl_err *err) {
    const char *path = g->path;
    pl_prompts *list = g->list;
    int64_t     line = 1, first = 1;
    pl_strbuf   b = {0};
    size_t      good = pl_utf8_valid(s, n);
    if (good == n && memchr(s, 0, n)) good = (size_t)((const char *)memchr(s, 0, n) - s);
    if (good < n) {
        for (size_t i = 0; i < good; i++)
            line += s[i] == '\n';
        return pl_fail(err, PL_E_INPUT, "%s:%lld: byte 0x%02x is not UTF-8 text; convert the file to UTF-8", path,
                       (long long)line, (unsigned)(uint8_t)s[good]);
    }
    for (size_t at = 0; at <= n; line++) {
        const char *end = memchr(s + at, '\n', n - at);
        size_t      len = end ? (size_t)(end - (s + at)) : n - at, i = 0, m = len;
        while (i < m && blank(s[at + i]))
            i++;
        if (i < m) {
            if (b.n == 0) first = line;
            if (b.n > 0) pl_strbuf_add(&b, "\n", 1);
            pl_strbuf_add(&b, s + at, m);
        }
        at += len + 1;
        if ((i == m || at > n) && (b.n > 0 || b.failed)) {
            pl_prompt p = {.text = pl_strbuf_take(&b), .category = pl_strdup(""), .id = list->n, .line = first};
            pl_status st = pl_prompts_push(list, p, path, err);
            if (st != PL_OK) return st;
        }
    }
    return PL_OK;
}

pl_status pl_prompts_read_by(pl_prompts **out, const char *path, const pl_prompts_reader *r, pl_err *err) {
    *out = NULL;
    char       *s = NULL;
    size_t      n = 0, at = 0;
    pl_status   st = PL_OK;
    pl_prompts *list = pl_calloc(1, sizeof *list);
    reading     g = {.list = list, .path = path, .r = r};
    if (!list) return out_of_memory(path, err);
    PL_TRY_GOTO(st, done, pl_plain_read(&s, &n, path, MAX_FILE, err));
    while (at < n && blank(s[at]))
        at++;
    if (pl_path_ends(path, ".txt"))
        st = read_paragraphs(&g, s, n, err);
    else if (at < n && s[at] == '[')
        st = read_list(&g, s, n, err);
    else
        st = read_lines(&g, s, n, err);
    if (st == PL_OK) st = tell_odd(&g, err);
    if (st == PL_OK && list->n == 0) st = pl_fail(err, PL_E_INPUT, "%s: no prompts in this file", path);
    if (st == PL_OK) *out = list;
done:
    if (st != PL_OK) pl_prompts_destroy(list);
    pl_free(s);
    return st;
}

static const char *const beside_text[] = {"system",    "system_prompt", "context", "history", "tools",
                                          "functions", "choices",       "options", NULL};

pl_status pl_prompts_read_as(pl_prompts **out, const char *path, const pl_prompts_rewrite *w, bool lenient,
                             pl_err *err) {
    pl_prompts_reader r = {.record = add_text, .rewrite = w, .unread = beside_text, .lenient = lenient};
    return pl_prompts_read_by(out, path, &r, err);
}

pl_status pl_prompts_read(pl_prompts **out, const char *path, pl_err *err) {
    return pl_prompts_read_as(out, path, NULL, false, err);
}

pl_status pl_prompts_read_field(pl_prompts **out, const char *path, const char *field, pl_err *err) {
    return pl_prompts_read_by(out, path, &(pl_prompts_reader){.record = add_text, .arg = field}, err);
}

uint64_t pl_prompts_hash(const pl_prompts *p, uint64_t h) {
    for (int64_t i = 0; i < p->n; i++) {
        const char *text = p->p[i].text, *record = p->p[i].record;
        h = pl_hash_more(h, text, strlen(text) + 1);
        if (record) h = pl_hash_more(h, record, strlen(record) + 1);
        if (p->p[i].anew) h = pl_hash_more(h, "anew", 4);
        if (p->p[i].ids) h = pl_hash_more(h, p->p[i].ids, (size_t)p->p[i].n_ids * sizeof *p->p[i].ids);
    }
    return h;
}

// ---- split

typedef struct keyed {
    uint64_t    hash;
    int64_t     index;
    const char *text;
} keyed;

static int by_hash(const void *a, const void *b) {
    const keyed *x = a, *y = b;
    if (x->hash != y->hash) return x->hash < y->hash ? -1 : 1;
    int c = strcmp(x->text, y->text);
    if (c != 0) return c;
    return x->index < y->index ? -1 : x->index > y->index;
}

static pl_status copy_side(pl_prompts **out, const pl_prompts *all, const uint8_t *held, uint8_t side, pl_err *err) {
    pl_prompts *to = *out = pl_calloc(1, sizeof *to);
    if (!to) return out_of_memory("prompts", err);
    for (int64_t i = 0; i < all->n; i++) {
        const pl_prompt *p = &all->p[i];
        pl_prompt        copy;
        if (held[i] != side) continue;
        if (!pl_prompt_copy(&copy, p)) return out_of_memory("prompts", err);
        PL_TRY(pl_prompts_push(to, copy, "prompts", err));
    }
    return PL_OK;
}

pl_status pl_prompts_split(const pl_prompts *all, uint64_t seed, int64_t n_holdout, pl_prompts **train,
                           pl_prompts **held, pl_err *err) {
    PL_CHECK(n_holdout >= 0 && n_holdout <= all->n, "%lld of %lld", (long long)n_holdout, (long long)all->n);
    *train = *held = NULL;
    pl_status st = PL_OK;
    uint8_t  *out = pl_calloc((size_t)all->n, 1);
    keyed    *order = pl_calloc((size_t)all->n, sizeof *order);
    if (!out || !order) {
        st = out_of_memory("prompts", err);
        goto done;
    }
    for (int64_t i = 0; i < all->n; i++) {
        const char *text = all->p[i].text;
        order[i] = (keyed){pl_hash_more(pl_hash(&seed, sizeof seed), text, strlen(text)), i, text};
    }
    if (all->n) qsort(order, (size_t)all->n, sizeof *order, by_hash);
    int64_t left = n_holdout, to;
    for (int64_t from = 0; from < all->n; from = to) {
        for (to = from + 1; to < all->n && strcmp(order[to].text, order[from].text) == 0;)
            to++;
        if (to - from > left) continue;
        left -= to - from;
        for (int64_t i = from; i < to; i++)
            out[order[i].index] = 1;
    }
    st = copy_side(train, all, out, 0, err);
    if (st == PL_OK) st = copy_side(held, all, out, 1, err);
done:
    if (st != PL_OK) {
        pl_prompts_destroy(*train);
        pl_prompts_destroy(*held);
        *train = *held = NULL;
    }
    pl_free(out);
    pl_free(order);
    return st;
}
