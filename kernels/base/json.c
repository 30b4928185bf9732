#include "kernels/base/json.h"
#include "kernels/base/arena.h"
#include "kernels/base/check.h"
#include "kernels/base/files.h"
#include "kernels/base/hash.h"
#include "kernels/base/utf8.h"
#include <float.h>
#include <inttypes.h>
#include <math.h>
#include <pthread.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

// ---- grammar: cJSON takes much that is not JSON, so the text is checked before it sees it ----

typedef struct scanner {
    const uint8_t *p, *end;
    const char    *why;  // of the failure at p
    int64_t        left; // values that may still follow; below 0: too many
    bool           nul;  // in: whether U+0000 may stand in strings
    bool           odd;  // out: the text has what cJSON cannot hold, see `plain_copy`
    bool           ends; // out: it failed because it ends
} scanner;

enum { NUMBER_MAX = 63 }; // characters of a number in cJSON's buffer

static bool refuse(scanner *s, const char *why) {
    s->why = why;
    return false;
}

static bool refuse_end(scanner *s, const char *why) {
    s->ends = true;
    return refuse(s, why);
}

static int peek(const scanner *s) {
    return s->p < s->end ? *s->p : -1;
}

static void skip_blanks(scanner *s) {
    while (s->p < s->end && (*s->p == ' ' || *s->p == '\n' || *s->p == '\t' || *s->p == '\r'))
        s->p++;
}

// The four hex digits behind "\u", or -1.
static int hex4(const uint8_t *p, const uint8_t *end) {
    if (end - p < 4) return -1;
    int v = 0;
    for (int i = 0; i < 4; i++) {
        int c = p[i], d = c >= '0' && c <= '9'   ? c - '0'
                          : c >= 'a' && c <= 'f' ? c - 'a' + 10
                          : c >= 'A' && c <= 'F' ? c - 'A' + 10
                                                 : -1;
        if (d < 0) return -1;
        v = v << 4 | d;
    }
    return v;
}

static bool scan_escape(scanner *s) { // at the backslash
    int c = s->end - s->p > 1 ? s->p[1] : 0;
    if (c && strchr("\"\\/bfnrt", c)) {
        s->p += 2;
        return true;
    }
    if (c != 'u') return refuse(s, "unknown escape in a string");
    int u = hex4(s->p + 2, s->end);
    if (u < 0) return refuse(s, "\\u without four hex digits");
    if (u == 0 && !s->nul) return refuse(s, "U+0000 in a string");
    s->odd |= u == 0;
    size_t n = 6;
    if (u >= 0xd800 && u < 0xe000) {
        int low = s->end - s->p >= 12 && s->p[6] == '\\' && s->p[7] == 'u' ? hex4(s->p + 8, s->end) : -1;
        if (u >= 0xdc00 || low < 0xdc00 || low >= 0xe000) return refuse(s, "half of a surrogate pair in a string");
        n = 12;
    }
    s->p += n;
    return true;
}

static bool scan_string(scanner *s) { // at the quote
    s->p++;
    for (;;) {
        const uint8_t *p = s->p;
        while (p < s->end && *p >= 0x20 && *p < 0x80 && *p != '"' && *p != '\\')
            p++;
        s->p = p;
        if (p == s->end) return refuse(s, "the text ends inside a string");
        if (*p == '"') {
            s->p++;
            return true;
        }
        if (*p == '\\') {
            if (!scan_escape(s)) return false;
        } else if (*p < 0x20) {
            return refuse(s, "raw control character in a string");
        } else {
            int n = pl_utf8_next((const char *)p, (size_t)(s->end - p), NULL);
            if (n <= 0) return refuse(s, "not UTF-8");
            s->p += n;
        }
    }
}

static size_t scan_digits(scanner *s) {
    const uint8_t *from = s->p;
    while (peek(s) >= '0' && peek(s) <= '9')
        s->p++;
    return (size_t)(s->p - from);
}

static bool scan_number(scanner *s) {
    const uint8_t *from = s->p;
    if (peek(s) == '-') s->p++;
    bool   zero = peek(s) == '0';
    size_t n = scan_digits(s);
    if (n == 0 || (zero && n > 1)) return refuse(s, "not a number");
    if (peek(s) == '.') {
        s->p++;
        if (scan_digits(s) == 0) return refuse(s, "not a number");
    }
    if (peek(s) == 'e' || peek(s) == 'E') {
        s->p++;
        if (peek(s) == '+' || peek(s) == '-') s->p++;
        if (scan_digits(s) == 0) return refuse(s, "not a number");
    }
    s->odd |= s->p - from > NUMBER_MAX;
    return true;
}

static bool scan_word(scanner *s, const char *word) {
    size_t n = strlen(word);
    if ((size_t)(s->end - s->p) < n || memcmp(s->p, word, n) != 0) return refuse(s, "expected a value");
    s->p += n;
    return true;
}

static bool scan_scalar(scanner *s) {
    int c = peek(s);
    if (c == '"') return scan_string(s);
    if (c == '-' || (c >= '0' && c <= '9')) return scan_number(s);
    if (c == 't') return scan_word(s, "true");
    if (c == 'f') return scan_word(s, "false");
    if (c == 'n') return scan_word(s, "null");
    return c < 0 ? refuse_end(s, "the text ends where a value is expected") : refuse(s, "expected a value");
}

static bool scan_key(scanner *s) {
    skip_blanks(s);
    if (peek(s) < 0) return refuse_end(s, "expected a key in quotes");
    if (peek(s) != '"') return refuse(s, "expected a key in quotes");
    if (!scan_string(s)) return false;
    skip_blanks(s);
    if (peek(s) != ':') return refuse(s, "expected ':'");
    s->p++;
    return true;
}

static bool scan_text(scanner *s) {
    char open[PL_JSON_DEPTH];
    int  depth = 0;
    for (;;) {
        skip_blanks(s);
        int c = peek(s);
        if (--s->left < 0) return false;
        if (c == '{' || c == '[') {
            if (depth == PL_JSON_DEPTH) return refuse(s, "nested too deeply");
            open[depth++] = (char)c;
            s->p++;
            skip_blanks(s);
            if (peek(s) != (c == '{' ? '}' : ']')) {
                if (c == '{' && !scan_key(s)) return false;
                continue;
            }
        } else if (!scan_scalar(s)) {
            return false;
        }
        // A value ended (or an empty container is about to).
        for (;; s->p++) {
            skip_blanks(s);
            if (depth == 0) return s->p == s->end || refuse(s, "text behind the end");
            bool object = open[depth - 1] == '{';
            c = peek(s);
            if (c == ',') break;
            if (c < 0) return refuse_end(s, "the text ends too early");
            if (c != (object ? '}' : ']')) return refuse(s, object ? "expected ',' or '}'" : "expected ',' or ']'");
            depth--;
        }
        s->p++;
        if (open[depth - 1] == '{' && !scan_key(s)) return false;
    }
}

// ---- keys twice ----

// The second of two children with one name, or NULL. *memory when that could not be found out.
static const cJSON *repeated(const cJSON *obj, bool *memory) {
    size_t n = 0;
    for (const cJSON *c = obj->child; c; c = c->next)
        n++;
    if (n <= 16) {
        for (const cJSON *c = obj->child; c; c = c->next)
            for (const cJSON *d = obj->child; d != c; d = d->next)
                if (strcmp(c->string, d->string) == 0) return c;
        return NULL;
    }
    size_t slots = 64;
    while (slots < 2 * n)
        slots *= 2;
    const char **seen = pl_calloc(slots, sizeof *seen);
    if (!seen) {
        *memory = true;
        return NULL;
    }
    const cJSON *twice = NULL;
    for (const cJSON *c = obj->child; c && !twice; c = c->next) {
        size_t i = pl_hash_key(c->string, strlen(c->string)) & (slots - 1);
        while (seen[i] && strcmp(seen[i], c->string) != 0)
            i = (i + 1) & (slots - 1);
        if (seen[i]) twice = c;
        seen[i] = c->string;
    }
    pl_free(seen);
    return twice;
}

static bool is_table(const cJSON *object) {
    const cJSON *c = object->child;
    while (c && cJSON_IsNumber(c))
        c = c->next;
    return !c;
}

static const cJSON *repeated_below(const cJSON *node, bool tables, bool *memory) {
    bool         looked = cJSON_IsObject(node) && !(tables && is_table(node));
    const cJSON *twice = looked ? repeated(node, memory) : NULL;
    for (const cJSON *c = node->child; c && !twice && !*memory; c = c->next)
        if (c->child) twice = repeated_below(c, tables, memory);
    return twice;
}

// ---- what cJSON cannot hold ----

// A long number in a short spelling of the same double; returns its length.
static size_t put_number(char *to, const char *from, size_t n) {
    char *word = pl_malloc(n + 1);
    if (!word) return 0;
    memcpy(word, from, n);
    word[n] = 0;
    double v = strtod(word, NULL);
    pl_free(word);
    return (size_t)sprintf(to, isfinite(v) ? "%.17g" : v < 0 ? "-1e999" : "1e999", v);
}

// A copy of a text that was scanned, with long numbers made short and \u0000 as PL_JSON_NUL_BYTES. NULL: no memory.
static char *plain_copy(const char *from, size_t n, size_t *length) {
    char  *copy = pl_malloc(n + 1), *to = copy;
    bool   inside = false;
    size_t word, written;
    for (size_t i = 0; copy && i < n; i += word, to += written) {
        word = written = 1;
        if (inside && from[i] == '\\') {
            bool nul = n - i >= 6 && memcmp(from + i, "\\u0000", 6) == 0;
            word = nul ? 6 : 2;
            written = 2;
            memcpy(to, nul ? PL_JSON_NUL_BYTES : from + i, 2);
            continue;
        }
        if (from[i] == '"') inside = !inside;
        *to = from[i];
        if (inside || (from[i] != '-' && (from[i] < '0' || from[i] > '9'))) continue;
        while (i + word < n && strchr("0123456789.eE+-", from[i + word]) && from[i + word])
            word++;
        written = word;
        if (word <= NUMBER_MAX)
            memcpy(to, from + i, word);
        else if ((written = put_number(to, from + i, word)) == 0)
            break;
    }
    *length = (size_t)(to - copy);
    return copy;
}

// ---- parse ----

static void set_hooks(void) {
    cJSON_InitHooks(&(cJSON_Hooks){.malloc_fn = pl_malloc, .free_fn = pl_free});
}

pl_status pl_json_parse_many(pl_json *j, const char *where, int64_t line, const void *data, size_t n, int64_t values,
                             unsigned flags, pl_err *err) {
    static pthread_once_t once = PTHREAD_ONCE_INIT;
    pthread_once(&once, set_hooks);
    *j = (pl_json){0};
    const uint8_t *text = data;
    if (n >= 3 && memcmp(text, "\xef\xbb\xbf", 3) == 0) {
        text += 3;
        n -= 3;
    }
    scanner s = {.p = text, .end = text + n, .left = values, .nul = (flags & PL_JSON_NUL) != 0};
    bool    good = n > 0 && scan_text(&s);
    if (s.left < 0)
        return pl_fail(err, PL_E_INPUT,
                       "%s: more than %" PRId64 " JSON values, which is more than such a text has; is this the right "
                       "file?",
                       where, values);
    if (!good) {
        const char *what = pl_sniff(data, n);
        if (what) return pl_fail(err, PL_E_INPUT, "%s:%" PRId64 ":1: not JSON: %s", where, line > 0 ? line : 1, what);
        int64_t row = line > 0 ? line : 1, column = 1;
        for (const uint8_t *p = text; p < s.p; p++) {
            if (*p == '\n') {
                row++;
                column = 1;
            } else if ((*p & 0xc0) != 0x80) {
                column++;
            }
        }
        return pl_fail(err, PL_E_INPUT, "%s:%" PRId64 ":%" PRId64 ": not JSON: %s%s", where, row, column,
                       s.why ? s.why : "nothing there",
                       line > 0 && s.ends ? "; here each line is a value of its own, none may go over several lines"
                                          : "");
    }
    pl_status st = PL_OK;
    j->where = line > 0 ? pl_sprintf("%s:%" PRId64, where, line) : pl_strdup(where);
    char *copy = s.odd ? plain_copy((const char *)text, n, &n) : NULL;
    if (copy || !s.odd) j->root = cJSON_ParseWithLength(copy ? copy : (const char *)text, n);
    pl_free(copy);
    bool memory = !j->where || !j->root;
    if (!memory && (flags & PL_JSON_UNIQUE)) {
        const cJSON *twice = repeated_below(j->root, (flags & PL_JSON_TABLES) != 0, &memory);
        if (twice) st = pl_json_fail(j, twice, err, "the key is there twice");
    }
    if (memory) st = pl_fail(err, PL_E_MEMORY, "%s: out of memory", where);
    if (st != PL_OK) pl_json_close(j);
    return st;
}

pl_status pl_json_parse(pl_json *j, const char *where, int64_t line, const void *data, size_t n, unsigned flags,
                        pl_err *err) {
    return pl_json_parse_many(j, where, line, data, n, PL_JSON_VALUES, flags, err);
}

pl_status pl_json_open(pl_json *j, const char *path, size_t max_bytes, unsigned flags, pl_err *err) {
    *j = (pl_json){0};
    uint8_t *data;
    size_t   n;
    PL_TRY(pl_file_read(path, &data, &n, max_bytes, err));
    pl_status st = pl_json_parse_many(j, path, 0, data, n, (int64_t)(max_bytes / PL_JSON_SPARSE), flags, err);
    pl_free(data);
    return st;
}

void pl_json_close(pl_json *j) {
    cJSON_Delete(j->root);
    pl_free(j->where);
    *j = (pl_json){0};
}

// ---- messages ----

enum { PATH_ROOM = 256 };

// The path of `want` below `at` into buf behind len bytes; false if it is not there.
static bool path_to(const cJSON *at, const cJSON *want, char buf[PATH_ROOM], size_t len) {
    int i = 0;
    for (const cJSON *c = at->child; c; c = c->next, i++) {
        if (c != want && !c->child) continue;
        int    n = cJSON_IsArray(at) ? snprintf(buf + len, PATH_ROOM - len, "[%d]", i)
                                     : snprintf(buf + len, PATH_ROOM - len, "%s%s", len ? "." : "", c->string);
        size_t to = len + (n > 0 ? (size_t)n : 0);
        if (to >= PATH_ROOM) to = PATH_ROOM - 1;
        if (c == want || path_to(c, want, buf, to)) return true;
    }
    buf[len] = 0;
    return false;
}

pl_status pl_json_fail(const pl_json *j, const cJSON *node, pl_err *err, const char *fmt, ...) {
    char path[PATH_ROOM] = "", text[512];
    if (node && node != j->root) path_to(j->root, node, path, 0);
    va_list ap;
    va_start(ap, fmt);
    vsnprintf(text, sizeof text, fmt, ap);
    va_end(ap);
    return pl_fail(err, PL_E_INPUT, "%s: %s%s%s", j->where, path, *path ? ": " : "", text);
}

static pl_status fail_absent(const pl_json *j, const cJSON *obj, const char *key, const char *wanted, pl_err *err) {
    char path[PATH_ROOM] = "";
    if (obj && obj != j->root) path_to(j->root, obj, path, 0);
    return pl_fail(err, PL_E_INPUT, "%s: %s%s%s: missing; expected %s", j->where, path, *path ? "." : "", key, wanted);
}

static pl_status fail_value(const pl_json *j, const cJSON *node, const char *wanted, pl_err *err) {
    char found[96];
    if (cJSON_IsNumber(node))
        snprintf(found, sizeof found, "%.15g", node->valuedouble);
    else if (cJSON_IsString(node))
        snprintf(found, sizeof found, "\"%.60s%s\"", node->valuestring, strlen(node->valuestring) > 60 ? "..." : "");
    else
        snprintf(found, sizeof found, "%s",
                 cJSON_IsNull(node)     ? "null"
                 : cJSON_IsTrue(node)   ? "true"
                 : cJSON_IsFalse(node)  ? "false"
                 : cJSON_IsArray(node)  ? "an array"
                 : cJSON_IsObject(node) ? "an object"
                                        : "something else");
    return pl_json_fail(j, node, err, "expected %s, found %s", wanted, found);
}

// ---- values ----

const cJSON *pl_json_find(const pl_json *j, const cJSON *obj, const char *key) {
    const cJSON *at = obj ? obj : j->root;
    while (at) {
        const char *dot = strchr(key, '.');
        size_t      n = dot ? (size_t)(dot - key) : strlen(key);
        if (!cJSON_IsObject(at)) return NULL;
        const cJSON *c = at->child;
        while (c && (strncmp(c->string, key, n) != 0 || c->string[n]))
            c = c->next;
        at = c && !cJSON_IsNull(c) ? c : NULL;
        if (!dot) break;
        key = dot + 1;
    }
    return at;
}

static const char *int_text(char buf[96], double found, int64_t min, int64_t max) {
    if (min == 1 && !(found > (double)max))
        snprintf(buf, 96, "a positive integer");
    else if (min == 0 && !(found > (double)max))
        snprintf(buf, 96, "a non-negative integer");
    else
        snprintf(buf, 96, "an integer from %" PRId64 " to %" PRId64, min, max);
    return buf;
}

pl_status pl_json_int_of(const pl_json *j, const cJSON *node, int64_t min, int64_t max, int64_t *out, pl_err *err) {
    PL_CHECK(min >= -PL_JSON_INT_MAX && max <= PL_JSON_INT_MAX && min <= max, "min %" PRId64 " max %" PRId64, min, max);
    char   buf[96];
    double v = cJSON_IsNumber(node) ? node->valuedouble : 0;
    if (!cJSON_IsNumber(node) || !(v >= (double)min && v <= (double)max) || v != floor(v))
        return fail_value(j, node, int_text(buf, v, min, max), err);
    *out = (int64_t)v;
    return PL_OK;
}

pl_status pl_json_get_int(const pl_json *j, const cJSON *obj, const char *key, int64_t min, int64_t max, int64_t *out,
                          pl_err *err) {
    char         buf[96];
    const cJSON *node = pl_json_find(j, obj, key);
    if (!node) return fail_absent(j, obj, key, int_text(buf, 0, min, max), err);
    return pl_json_int_of(j, node, min, max, out, err);
}

pl_status pl_json_opt_int(const pl_json *j, const cJSON *obj, const char *key, int64_t min, int64_t max, int64_t def,
                          int64_t *out, pl_err *err) {
    const cJSON *node = pl_json_find(j, obj, key);
    if (node) return pl_json_int_of(j, node, min, max, out, err);
    *out = def;
    return PL_OK;
}

static const char *num_text(char buf[96], double min, double max) {
    if (min <= -DBL_MAX && max >= DBL_MAX)
        snprintf(buf, 96, "a number");
    else if (max >= DBL_MAX)
        snprintf(buf, 96, "a number of at least %.15g", min);
    else
        snprintf(buf, 96, "a number from %.15g to %.15g", min, max);
    return buf;
}

static pl_status num_of(const pl_json *j, const cJSON *node, double min, double max, double *out, pl_err *err) {
    char buf[96];
    if (!cJSON_IsNumber(node) || !isfinite(node->valuedouble) || node->valuedouble < min || node->valuedouble > max)
        return fail_value(j, node, num_text(buf, min, max), err);
    *out = node->valuedouble;
    return PL_OK;
}

pl_status pl_json_get_num(const pl_json *j, const cJSON *obj, const char *key, double min, double max, double *out,
                          pl_err *err) {
    char         buf[96];
    const cJSON *node = pl_json_find(j, obj, key);
    if (!node) return fail_absent(j, obj, key, num_text(buf, min, max), err);
    return num_of(j, node, min, max, out, err);
}

pl_status pl_json_opt_num(const pl_json *j, const cJSON *obj, const char *key, double min, double max, double def,
                          double *out, pl_err *err) {
    const cJSON *node = pl_json_find(j, obj, key);
    if (node) return num_of(j, node, min, max, out, err);
    *out = def;
    return PL_OK;
}

pl_status pl_json_get_bool(const pl_json *j, const cJSON *obj, const char *key, bool *out, pl_err *err) {
    const cJSON *node = pl_json_find(j, obj, key);
    if (!node) return fail_absent(j, obj, key, "true or false", err);
    if (!cJSON_IsBool(node)) return fail_value(j, node, "true or false", err);
    *out = cJSON_IsTrue(node);
    return PL_OK;
}

pl_status pl_json_opt_bool(const pl_json *j, const cJSON *obj, const char *key, bool def, bool *out, pl_err *err) {
    if (pl_json_find(j, obj, key)) return pl_json_get_bool(j, obj, key, out, err);
    *out = def;
    return PL_OK;
}

pl_status pl_json_str_of(const pl_json *j, const cJSON *node, const char **out, pl_err *err) {
    if (!cJSON_IsString(node)) return fail_value(j, node, "a string", err);
    *out = node->valuestring;
    return PL_OK;
}

pl_status pl_json_get_str(const pl_json *j, const cJSON *obj, const char *key, const char **out, pl_err *err) {
    const cJSON *node = pl_json_find(j, obj, key);
    return node ? pl_json_str_of(j, node, out, err) : fail_absent(j, obj, key, "a string", err);
}

pl_status pl_json_opt_str(const pl_json *j, const cJSON *obj, const char *key, const char *def, const char **out,
                          pl_err *err) {
    const cJSON *node = pl_json_find(j, obj, key);
    if (node) return pl_json_str_of(j, node, out, err);
    *out = def;
    return PL_OK;
}

static pl_status container(const pl_json *j, const cJSON *obj, const char *key, bool object, bool needed,
                           const cJSON **out, pl_err *err) {
    const char  *wanted = object ? "an object" : "an array";
    const cJSON *node = pl_json_find(j, obj, key);
    if (!node && needed) return fail_absent(j, obj, key, wanted, err);
    if (node && !(object ? cJSON_IsObject(node) : cJSON_IsArray(node))) return fail_value(j, node, wanted, err);
    *out = node;
    return PL_OK;
}

pl_status pl_json_get_object(const pl_json *j, const cJSON *obj, const char *key, const cJSON **out, pl_err *err) {
    return container(j, obj, key, true, true, out, err);
}

pl_status pl_json_opt_object(const pl_json *j, const cJSON *obj, const char *key, const cJSON **out, pl_err *err) {
    return container(j, obj, key, true, false, out, err);
}

pl_status pl_json_get_array(const pl_json *j, const cJSON *obj, const char *key, const cJSON **out, pl_err *err) {
    return container(j, obj, key, false, true, out, err);
}

pl_status pl_json_opt_array(const pl_json *j, const cJSON *obj, const char *key, const cJSON **out, pl_err *err) {
    return container(j, obj, key, false, false, out, err);
}
