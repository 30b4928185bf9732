#include "data/tokenizer/regex.h"
#include "kernels/base/arena.h"
#include "kernels/base/strbuf.h"
#include "kernels/base/utf8.h"
#include <stdint.h>
#include <stdio.h>
#define PCRE2_CODE_UNIT_WIDTH 8
#include <pcre2.h>

enum {
    MAX_PATTERN = 1 << 16,
    // Steps on a text, of a nanosecond or two: backtracking, or bytes examined. A match may cover the whole text, at a
    // few steps a byte, a few times (see `try_harder`); more than 64 means repeated scanning of the same bytes. At any
    // length, runs of 10,000 characters from each of which an expression looks to the end pass.
    STEPS = 200000000,
    STEPS_PER_BYTE = 64,
    // Steps at each position of a text that are not counted: those of a word, half a microsecond.
    FREE_STEPS = 256,
    FREE_BYTES = 512,      // bytes examined from there on
    AHEAD = 256,           // positions tried by one call
    HEAP_LIMIT = 64 << 10, // KiB, without compiled code
    STACK_START = 32 << 10,
    STACK_MOST = 4 << 20
};

struct pl_regex {
    pcre2_code *code;
    char       *pattern; // the original, for messages
};

// PCRE2's memory is counted (and made to fail by tests) like all other.
static void *take_memory(size_t n, void *arg) {
    (void)arg;
    return pl_malloc(n);
}

static void give_memory(void *p, void *arg) {
    (void)arg;
    pl_free(p);
}

// ---- Oniguruma's syntax to PCRE2's

typedef struct translation {
    const char *p, *end;
    pl_strbuf   out;
    const char *why; // NULL: no error so far
    char        detail[16];
} translation;

#define SPACE "\\t-\\r\\x{20}\\x{85}\\p{Z}"
#define NOT_SPACE                                                                                                      \
    "\\x{0}-\\x{8}\\x{e}-\\x{1f}\\x{21}-\\x{84}\\x{86}-\\x{9f}\\x{a1}-\\x{167f}\\x{1681}-\\x{1fff}"                    \
    "\\x{200b}-\\x{2027}\\x{202a}-\\x{202e}\\x{2030}-\\x{205e}\\x{2060}-\\x{2fff}\\x{3001}-\\x{10ffff}"
#define WORD "\\p{Alphabetic}\\p{M}\\p{Nd}\\p{Pc}"
#define LATIN_WORD WORD "\\x{b2}\\x{b3}\\x{b9}\\x{bc}-\\x{be}" // outside of a class: raised 2, 3, 1 and fractions too

static void put_text(translation *t, const char *s) {
    pl_strbuf_add(&t->out, s, strlen(s));
}

static void refuse_part(translation *t, const char *why, const char *at, size_t n) {
    if (t->why) return;
    t->why = why;
    if (n >= sizeof t->detail) n = sizeof t->detail - 1;
    memcpy(t->detail, at, n);
    t->detail[n] = 0;
}

static bool is_hex(char c) {
    return (c >= '0' && c <= '9') || (c >= 'a' && c <= 'f') || (c >= 'A' && c <= 'F');
}

// Translates \xHH, \x{H...}, \uHHHH to \x{H...}. t->p is after the letter.
static void hex_escape(translation *t, char letter, const char *start) {
    char   digits[9];
    size_t n = 0;
    bool   braces = letter == 'x' && t->p < t->end && *t->p == '{';
    size_t most = braces ? 8 : letter == 'u' ? 4 : 2;
    if (braces) t->p++;
    while (t->p < t->end && n < most && is_hex(*t->p))
        digits[n++] = *t->p++;
    digits[n] = 0;
    bool closed = !braces || (t->p < t->end && *t->p++ == '}');
    if (n == 0 || !closed || (letter == 'u' && n != 4)) {
        refuse_part(t, "broken escape", start, (size_t)(t->p - start));
        return;
    }
    put_text(t, "\\x{");
    put_text(t, digits);
    put_text(t, "}");
}

static bool lacks_memory(int code) { // it has several codes
    return code == PCRE2_ERROR_HEAP_FAILED || code == PCRE2_ERROR_NOMEMORY || code == 121;
}

static bool is_script(translation *t, const char *name, size_t n) {
    char       pattern[64];
    int        code = PCRE2_ERROR_NOMEMORY;
    PCRE2_SIZE where;
    if (n > 40) return false;
    snprintf(pattern, sizeof pattern, "\\p{sc:%.*s}", (int)n, name);
    pcre2_general_context *general = pcre2_general_context_create(take_memory, give_memory, NULL);
    pcre2_compile_context *c = general ? pcre2_compile_context_create(general) : NULL;
    pcre2_code *script = c ? pcre2_compile((PCRE2_SPTR)pattern, strlen(pattern), PCRE2_UTF, &code, &where, c) : NULL;
    t->out.failed = t->out.failed || (!script && lacks_memory(code));
    pcre2_code_free(script);
    pcre2_compile_context_free(c);
    pcre2_general_context_free(general);
    return script != NULL;
}

// From 10.40 on PCRE2 takes a script's name as its extensions: \p{Han} would include U+3001, an ideographic comma.
// "sc:" selects the script itself, and is unknown before 10.40, where the bare name does that.
static void property_escape(translation *t, const char *start) {
    const char *close = t->p < t->end && *t->p == '{' ? memchr(t->p, '}', (size_t)(t->end - t->p)) : NULL;
    const char *name = close ? t->p + 1 : t->p;
    if (!close || memchr(name, ':', (size_t)(close - name)) || memchr(name, '=', (size_t)(close - name))) {
        refuse_part(t, "broken property", start, (size_t)(t->p - start));
        return;
    }
    if (*name == '^') name++;
    pl_strbuf_add(&t->out, start, (size_t)(name - start));
    if (is_script(t, name, (size_t)(close - name))) put_text(t, "sc:");
    pl_strbuf_add(&t->out, name, (size_t)(close + 1 - name));
    t->p = close + 1;
}

// Translates at a backslash.
static void translate_escape(translation *t, bool in_class) {
    const char *start = t->p++;
    if (t->p == t->end) {
        refuse_part(t, "a backslash at the end", start, 1);
        return;
    }
    char c = *t->p++;
    switch (c) {
    case 's': put_text(t, in_class ? SPACE : "[" SPACE "]"); return;
    case 'S': put_text(t, in_class ? NOT_SPACE : "[^" SPACE "]"); return;
    case 'd': put_text(t, "\\p{Nd}"); return;
    case 'D': put_text(t, "\\P{Nd}"); return;
    case 'w': put_text(t, in_class ? WORD : "[" LATIN_WORD "]"); return;
    case 'W':
        if (in_class) break;
        put_text(t, "[^" LATIN_WORD "]");
        return;
    case 'p':
    case 'P': property_escape(t, start); return;
    case 'x':
    case 'u': hex_escape(t, c, start); return;
    case 'n': put_text(t, "\\n"); return;
    case 'r': put_text(t, "\\r"); return;
    case 't': put_text(t, "\\t"); return;
    case 'f': put_text(t, "\\f"); return;
    case 'v': put_text(t, "\\x{b}"); return; // one character in Oniguruma, a class in PCRE2
    case 'a': put_text(t, "\\a"); return;
    case 'e': put_text(t, "\\e"); return;
    default:
        // An escaped sign means itself; unknown letters and digits are refused.
        if ((uint8_t)c < 0x80 && !is_hex(c) && !(c >= 'a' && c <= 'z') && !(c >= 'A' && c <= 'Z')) {
            pl_strbuf_add(&t->out, start, 2);
            return;
        }
    }
    refuse_part(t, in_class ? "not supported in a class" : "not supported", start, (uint8_t)c < 0x80 ? 2 : 1);
}

// Translates at '['. Nested positive classes are a union: their brackets are dropped. depth: of brackets.
static void translate_class(translation *t, int depth) {
    const char *start = t->p++;
    bool        negated = t->p < t->end && *t->p == '^';
    if (depth == 1) put_text(t, "[");
    if (negated && depth > 1) refuse_part(t, "a negated class inside a class is not supported", start, 2);
    if (depth > 8) refuse_part(t, "classes too deep", start, 1);
    if (negated) {
        put_text(t, "^");
        t->p++;
    }
    for (bool first = true; t->p < t->end && !t->why; first = false) {
        char c = *t->p;
        if (c == ']' && !first) {
            t->p++;
            if (depth == 1) put_text(t, "]");
            return;
        }
        if (c == '\\') {
            translate_escape(t, true);
        } else if (c == '[' && t->end - t->p > 1 && t->p[1] == ':') {
            refuse_part(t, "not supported", t->p, 2);
        } else if (c == '[') {
            translate_class(t, depth + 1);
        } else if (c == '&' && t->end - t->p > 1 && t->p[1] == '&') {
            refuse_part(t, "not supported", t->p, 2);
        } else {
            if (c == ']') put_text(t, "\\");
            pl_strbuf_add(&t->out, t->p++, 1);
        }
    }
    refuse_part(t, "an unclosed class", start, 1);
}

// Translates at '('.
static void translate_group(translation *t) {
    static const char *const known[] = {"?:", "?=", "?!", "?<=", "?<!", "?>", "?i:", "?-i:", "?i)"};
    const char              *start = t->p++;
    put_text(t, "(");
    if (t->p == t->end || (*t->p != '?' && *t->p != '*')) return;
    for (size_t i = 0; i < sizeof known / sizeof *known; i++) {
        size_t n = strlen(known[i]);
        if ((size_t)(t->end - t->p) < n || memcmp(t->p, known[i], n) != 0) continue;
        // In other positions, Oniguruma extends the option to the alternatives after it.
        if (known[i][n - 1] == ')' && t->out.n > 1) break;
        put_text(t, known[i]);
        t->p += n;
        return;
    }
    refuse_part(t, "not supported", start, (size_t)(t->end - start) < 4 ? (size_t)(t->end - start) : 4);
}

// Translates at '{': an interval {n}, {n,}, {,m}, {n,m}, or a plain brace.
static void translate_interval(translation *t) {
    const char *start = t->p++, *a = t->p, *b, *c;
    while (t->p < t->end && *t->p >= '0' && *t->p <= '9')
        t->p++;
    b = t->p;
    bool comma = t->p < t->end && *t->p == ',';
    if (comma) t->p++;
    c = t->p;
    while (t->p < t->end && *t->p >= '0' && *t->p <= '9')
        t->p++;
    bool whole = t->p < t->end && *t->p == '}' && (b > a || t->p > c);
    if (!whole) {
        t->p = start + 1;
        put_text(t, "\\{");
        return;
    }
    if (b == a) put_text(t, "{0");
    pl_strbuf_add(&t->out, b == a ? a : start, (size_t)(t->p + 1 - (b == a ? a : start)));
    t->p++;
    if (t->p < t->end && (*t->p == '+' || *t->p == '?' || *t->p == '*'))
        refuse_part(t, "a quantifier behind an interval is not supported", start, (size_t)(t->p + 1 - start));
}

static void translate_pattern(translation *t) {
    while (t->p < t->end && !t->why) {
        switch (*t->p) {
        case '\\': translate_escape(t, false); break;
        case '[': translate_class(t, 1); break;
        case '(': translate_group(t); break;
        case '{': translate_interval(t); break;
        case '^':
        case '$': refuse_part(t, "not supported", t->p, 1); break;
        case '}': // plain
            put_text(t, "\\}");
            t->p++;
            break;
        default: pl_strbuf_add(&t->out, t->p++, 1);
        }
    }
}

// ---- PCRE2

static pl_status compile_pattern(pl_regex *r, const char *pattern, const char *s, size_t n, pl_err *err) {
    pcre2_general_context *general = pcre2_general_context_create(take_memory, give_memory, NULL);
    pcre2_compile_context *c = general ? pcre2_compile_context_create(general) : NULL;
    int                    code = 0;
    PCRE2_SIZE             where = 0;
    pl_status              st = PL_OK;
    if (c) {
        pcre2_set_newline(c, PCRE2_NEWLINE_LF);
        pcre2_set_parens_nest_limit(c, 100);
        r->code =
            pcre2_compile((PCRE2_SPTR)s, n, PCRE2_UTF | PCRE2_UCP | PCRE2_NEVER_BACKSLASH_C | PCRE2_USE_OFFSET_LIMIT,
                          &code, &where, c);
    }
    if (!c || (!r->code && code == PCRE2_ERROR_HEAP_FAILED)) {
        st = pl_fail(err, PL_E_MEMORY, "regular expression '%.200s': out of memory", pattern);
    } else if (!r->code) {
        PCRE2_UCHAR why[128];
        pcre2_get_error_message(code, why, sizeof why);
        st = pl_fail(err, lacks_memory(code) ? PL_E_MEMORY : PL_E_INPUT, "regular expression '%.200s': %s", pattern,
                     (const char *)why);
    } else {
        (void)pcre2_jit_compile(r->code,
                                PCRE2_JIT_COMPLETE | PCRE2_JIT_PARTIAL_HARD); // if it fails, pcre2_match interprets
    }
    pcre2_compile_context_free(c);
    pcre2_general_context_free(general);
    return st;
}

pl_status pl_regex_compile(pl_regex **out, const char *pattern, pl_err *err) {
    size_t n = strlen(pattern);
    *out = NULL;
    if (n > MAX_PATTERN) return pl_fail(err, PL_E_INPUT, "regular expression of %zu bytes is too long", n);
    translation t = {.p = pattern, .end = pattern + n};
    pl_strbuf_add(&t.out, "", 0);
    translate_pattern(&t);
    pl_regex *r = pl_calloc(1, sizeof *r);
    if (r) r->pattern = pl_strdup(pattern);
    pl_status st = PL_OK;
    if (t.out.failed || !r || !r->pattern)
        st = pl_fail(err, PL_E_MEMORY, "regular expression '%.200s': out of memory", pattern);
    else if (t.why)
        st = pl_fail(err, PL_E_INPUT, "regular expression '%.200s': '%s': %s", pattern, t.detail, t.why);
    else
        st = compile_pattern(r, pattern, t.out.s, t.out.n, err);
    pl_strbuf_fini(&t.out);
    if (st != PL_OK) {
        pl_regex_free(r);
        r = NULL;
    }
    *out = r;
    return st;
}

void pl_regex_free(pl_regex *r) {
    if (!r) return;
    pcre2_code_free(r->code);
    pl_free(r->pattern);
    pl_free(r);
}

static bool matcher_ready(pl_matcher *m) {
    if (m->data) return true;
    pcre2_general_context *general = pcre2_general_context_create(take_memory, give_memory, NULL);
    if (!general) return false;
    m->context = pcre2_match_context_create(general);
    m->stack = pcre2_jit_stack_create(STACK_START, STACK_MOST, general);
    m->data = pcre2_match_data_create(1, general);
    pcre2_general_context_free(general);
    if (!m->context || !m->stack || !m->data) {
        pl_matcher_fini(m);
        return false;
    }
    m->left += STEPS;
    pcre2_set_heap_limit(m->context, HEAP_LIMIT);
    pcre2_jit_stack_assign(m->context, NULL, m->stack);
    return true;
}

void pl_matcher_fini(pl_matcher *m) {
    pcre2_match_data_free(m->data);
    pcre2_jit_stack_free(m->stack);
    pcre2_match_context_free(m->context);
    *m = (pl_matcher){0};
}

static pl_status gave_up(const pl_regex *r, int rc, size_t at, pl_err *err) {
    PCRE2_UCHAR why[128];
    if (rc == PCRE2_ERROR_NOMEMORY) return pl_fail(err, PL_E_MEMORY, "regular expression: out of memory");
    pcre2_get_error_message(rc, why, sizeof why);
    return pl_fail(
        err, PL_E_INPUT,
        "the tokenizer's regular expression '%.200s' gave up at byte %zu: %s; it backtracks too much on this "
        "text",
        r->pattern, at, (const char *)why);
}

// Returns the start of a character at or after `at`, and at or before it.
static size_t begin_behind(const char *s, size_t n, size_t at) {
    while (at < n && ((uint8_t)s[at] & 0xc0) == 0x80)
        at++;
    return at;
}

static size_t begin_before(const char *s, size_t at) {
    while (at > 0 && ((uint8_t)s[at] & 0xc0) == 0x80)
        at--;
    return at;
}

// Tries a match that begins at from .. from + places - 1, within so many steps, with the text visible up to `look`
// bytes after `from` (all if that is more). PCRE2_ERROR_PARTIAL: later bytes may matter.
static int try_match(const pl_regex *r, pl_matcher *m, const char *s, size_t n, size_t from, size_t places, size_t look,
                     uint32_t steps) {
    bool all = look >= n - from;
    pcre2_set_match_limit(m->context, steps);
    pcre2_set_offset_limit(m->context, from + places - 1);
    return pcre2_match(r->code, (PCRE2_SPTR)s, all ? n : begin_before(s, from + look), from,
                       PCRE2_NO_UTF_CHECK | (all ? 0 : PCRE2_PARTIAL_HARD), m->data, m->context);
}

// Tries a match at one position, with more steps or bytes as long as these are too few. Steps beyond the free ones are
// counted. *known: how far the text has been examined, from the previous position on entry, from this one on return.
static int try_harder(const pl_regex *r, pl_matcher *m, const char *s, size_t n, size_t from, size_t *known) {
    size_t  look = *known > from + FREE_BYTES ? *known - from : FREE_BYTES;
    int64_t steps = FREE_STEPS;
    for (;;) {
        int rc = try_match(r, m, s, n, from, 1, look, (uint32_t)steps);
        if (look > FREE_BYTES) m->left -= (int64_t)(look < n - from ? look : n - from);
        if (steps > FREE_STEPS) m->left -= steps;
        *known = from + look;
        if (rc == PCRE2_ERROR_PARTIAL)
            look *= 2;
        else if (rc == PCRE2_ERROR_MATCHLIMIT && steps < UINT32_MAX / 4)
            steps *= 4;
        else if (rc != PCRE2_ERROR_NOMATCH || m->left >= 0)
            return rc;
        if (m->left < 0) return PCRE2_ERROR_MATCHLIMIT;
    }
}

// PCRE2 counts the steps of a match from each position separately, and not those of a simple loop ("[ab]*"), so a match
// is searched in small ranges, with few steps and bytes; if these are too few, position by position.
static pl_status find_match(const pl_regex *r, pl_matcher *m, const char *s, size_t n, size_t from, bool *found,
                            size_t *start, size_t *end, pl_err *err) {
    size_t careful = from, known = from; // positions below `careful` are tried one by one
    *found = false;
    if (!matcher_ready(m)) return pl_fail(err, PL_E_MEMORY, "regular expression: out of memory");
    for (;;) {
        size_t places = from < careful ? 1 : AHEAD;
        int    rc = places == 1 ? try_harder(r, m, s, n, from, &known)
                                : try_match(r, m, s, n, from, places, FREE_BYTES, FREE_STEPS);
        if (places > 1 && (rc == PCRE2_ERROR_MATCHLIMIT || rc == PCRE2_ERROR_PARTIAL)) {
            careful = from + places;
        } else if (rc == PCRE2_ERROR_NOMATCH) {
            if (places > n - from) return PL_OK;
            from = begin_behind(s, n, from + places);
        } else if (rc < 0) {
            return gave_up(r, rc, from, err);
        } else {
            break;
        }
    }
    const PCRE2_SIZE *v = pcre2_get_ovector_pointer(m->data);
    *found = true;
    *start = v[0];
    *end = v[1];
    return PL_OK;
}

pl_status pl_regex_next(const pl_regex *r, pl_matcher *m, const char *s, size_t n, pl_regex_walk *w, bool *found,
                        size_t *start, size_t *end, pl_err *err) {
    if (w->from == 0 && w->last == 0) m->left += (int64_t)n * STEPS_PER_BYTE;
    for (*found = false; w->from <= n;) {
        PL_TRY(find_match(r, m, s, n, w->from, found, start, end, err));
        if (!*found) break;
        if (*start < *end || w->last != *end + 1) {
            w->from = *end;
            w->last = *end + 1;
            return PL_OK;
        }
        *found = false;
        if (*end == n) break;
        w->from = *end + (size_t)pl_utf8_next(s + *end, n - *end, NULL);
    }
    w->from = n + 1;
    return PL_OK;
}
