// Regular expressions that a text matches as a whole: characters, . [a-z] [^a] \d \w \s \D \W \S, escapes
// \n \r \t \f \v \0 \xHH \uHHHH and of punctuation, ( ) (?: ), |, * + ? {m} {m,} {m,n} (a lazy ? behind them changes
// nothing here), ^ and $ at the ends. Classes are ASCII's. Look-around, backreferences, flags and \b are refused.
//
// in_json: the expression is a JSON schema's pattern. It is searched for, so that an end without ^ or $ is open, and
// each character stands as it does inside a JSON string.
#include "infer/grammar/readers.h"

#include "kernels/base/utf8.h"

#include <string.h>

typedef struct reader {
    pl_nodes   *g;
    const char *text;
    size_t      at, end;
    int         depth;
    bool        in_json;
    pl_err     *err;
} reader;

enum { RANGES = 256 };

static const pl_char_range any = {0, 0x10FFFF};

static pl_status refuse(const reader *r, const char *why) {
    return pl_fail(r->err, PL_E_INPUT, "character %zu: %s", r->at + 1, why);
}

static pl_status refuse_feature(const reader *r, const char *what) {
    return pl_fail(r->err, PL_E_UNSUPPORTED, "character %zu: %s cannot constrain a text here; leave it out", r->at + 1,
                   what);
}

static char look(const reader *r) {
    return r->at < r->end ? r->text[r->at] : 0;
}

static int32_t chars(const reader *r, const pl_char_range *range, int n) {
    return r->in_json ? pl_json_chars(r->g, range, n) : pl_node_chars(r->g, range, n);
}

// Adds the ranges of \d, \w, \s or of their complements; returns false for another letter.
static bool add_class(char c, pl_char_range *range, int *n) {
    static const pl_char_range digit[] = {{'0', '9'}}, word[] = {{'0', '9'}, {'A', 'Z'}, {'_', '_'}, {'a', 'z'}};
    static const pl_char_range space[] = {{'\t', '\r'}, {' ', ' '}};
    const pl_char_range       *of = c == 'd' || c == 'D'   ? digit
                                    : c == 'w' || c == 'W' ? word
                                    : c == 's' || c == 'S' ? space
                                                           : NULL;
    int                        count = of == digit ? 1 : of == word ? 4 : 2;
    if (!of) return false;
    pl_char_range mine[8];
    memcpy(mine, of, (size_t)count * sizeof *mine);
    if (c < 'a') count = pl_char_ranges_merge(mine, count, true);
    memcpy(range + *n, mine, (size_t)count * sizeof *mine);
    *n += count;
    return true;
}

static pl_status read_hex(reader *r, int digits, uint32_t *out) {
    const char *why = pl_scan_hex(r->text, &r->at, r->end, digits, out);
    return why ? refuse(r, why) : PL_OK;
}

// Reads one character; behind a backslash one that stands for itself or is known by a letter.
static pl_status read_char(reader *r, uint32_t *out) {
    static const char from[] = "nrtfv0", to[] = "\n\r\t\f\v";
    char              c = look(r);
    if (r->at >= r->end) return refuse(r, "ends too early");
    if (c != '\\') {
        int n = pl_utf8_next(r->text + r->at, r->end - r->at, out);
        if (n <= 0) return refuse(r, "is not UTF-8");
        r->at += (size_t)n;
        return PL_OK;
    }
    r->at++;
    c = look(r);
    const char *known = c ? strchr(from, c) : NULL;
    if (known) {
        *out = (uint8_t)to[known - from];
    } else if (c == 'x' || c == 'u') {
        r->at++;
        return read_hex(r, c == 'x' ? 2 : 4, out);
    } else if (c == 'b' || c == 'B') {
        return refuse_feature(r, "\\b");
    } else if (c >= '1' && c <= '9') {
        return refuse_feature(r, "a backreference");
    } else if ((c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || c == 0 || (c & 0x80)) {
        return refuse(r, "an unknown escape");
    } else {
        *out = (uint8_t)c;
    }
    r->at++;
    return PL_OK;
}

static pl_status read_set(reader *r, int32_t *out) {
    pl_char_range range[RANGES + 8];
    int           n = 0;
    r->at++;
    bool negate = look(r) == '^', first = true;
    r->at += negate;
    for (; look(r) != ']' || first; first = false) {
        if (n >= RANGES) return refuse(r, "a class of more than 256 ranges");
        if (r->at >= r->end) return refuse(r, "a class is not closed");
        if (look(r) == '[' && r->at + 1 < r->end && r->text[r->at + 1] == ':')
            return refuse_feature(r, "a named class");
        if (look(r) == '\\' && r->at + 1 < r->end && add_class(r->text[r->at + 1], range, &n)) {
            r->at += 2;
            continue;
        }
        if (look(r) == ']') return refuse(r, "an empty class");
        PL_TRY(read_char(r, &range[n].lo));
        range[n].hi = range[n].lo;
        if (look(r) == '-' && r->at + 1 < r->end && r->text[r->at + 1] != ']') {
            r->at++;
            PL_TRY(read_char(r, &range[n].hi));
        }
        if (range[n].hi < range[n].lo) return refuse(r, "a range that runs backwards");
        n++;
    }
    r->at++;
    n = pl_char_ranges_merge(range, n, negate);
    *out = chars(r, range, n);
    return PL_OK;
}

static pl_status read_alternatives(reader *r, int32_t *out);

static pl_status read_group(reader *r, int32_t *out) {
    if (++r->depth > PL_GRAMMAR_DEPTH) return refuse(r, "groups are nested too deeply");
    r->at++;
    if (look(r) == '?') {
        if (r->at + 1 >= r->end || r->text[r->at + 1] != ':') return refuse_feature(r, "(?...) other than (?:...)");
        r->at += 2;
    }
    PL_TRY(read_alternatives(r, out));
    if (look(r) != ')') return refuse(r, "expected )");
    r->at++;
    r->depth--;
    return PL_OK;
}

static pl_status read_item(reader *r, int32_t *out) {
    char c = look(r);
    if (c == '(') return read_group(r, out);
    if (c == '[') return read_set(r, out);
    if (c == '^' || c == '$') return refuse_feature(r, "an anchor inside the expression");
    if (c == '*' || c == '+' || c == '?' || c == '{') return refuse(r, "repeats nothing");
    pl_char_range range[8];
    int           n = 0;
    if (c == '.') { // any character but line ends, as in most dialects
        range[n++] = (pl_char_range){'\n', '\n'};
        range[n++] = (pl_char_range){'\r', '\r'};
        n = pl_char_ranges_merge(range, n, true);
        r->at++;
    } else if (c == '\\' && r->at + 1 < r->end && add_class(r->text[r->at + 1], range, &n)) {
        r->at += 2;
    } else {
        PL_TRY(read_char(r, &range[0].lo));
        range[0].hi = range[0].lo;
        n = 1;
    }
    *out = chars(r, range, n);
    return PL_OK;
}

static pl_status read_times(reader *r, int32_t *item) {
    int32_t     min, max;
    const char *why = pl_scan_times(r->text, &r->at, r->end, &min, &max);
    if (why) return refuse(r, why);
    if (look(r) == '+') return refuse_feature(r, "a possessive repeat");
    if (look(r) == '?') r->at++; // lazy: the same texts
    *item = pl_node_repeat(r->g, *item, min, max);
    return PL_OK;
}

static pl_status read_sequence(reader *r, int32_t *out) {
    *out = pl_node_list(r->g, PL_NODE_SEQ);
    while (r->at < r->end && look(r) != '|' && look(r) != ')' && !r->g->failed) {
        int32_t item = 0;
        if (look(r) == '$' && r->at + 1 == r->end && r->depth == 0) return PL_OK; // the end of the whole
        PL_TRY(read_item(r, &item));
        if (look(r) == '*' || look(r) == '+' || look(r) == '?' || look(r) == '{') PL_TRY(read_times(r, &item));
        pl_node_add(r->g, *out, item);
    }
    return PL_OK;
}

static pl_status read_alternatives(reader *r, int32_t *out) {
    *out = pl_node_list(r->g, PL_NODE_ALT);
    for (;;) {
        int32_t one = 0;
        PL_TRY(read_sequence(r, &one));
        pl_node_add(r->g, *out, one);
        if (look(r) != '|') return PL_OK;
        r->at++;
    }
}

// In "^a|b$" each anchor would be of one alternative; with a single alternative they are the whole's.
static pl_status check_anchors(const reader *r, bool anchored, int32_t body) {
    const pl_node *x = &r->g->node[body];
    bool           several = !r->g->failed && x->item != x->last;
    return several && anchored ? refuse_feature(r, "an anchor of one alternative (write ^(?:a|b)$)") : PL_OK;
}

pl_status pl_regex_node(int32_t *node, pl_nodes *g, const char *text, size_t n, bool in_json, pl_err *err) {
    reader  r = {.g = g, .text = text, .end = n, .in_json = in_json, .err = err};
    bool    begins = look(&r) == '^';
    int32_t body = 0;
    r.at += begins;
    PL_TRY(read_alternatives(&r, &body));
    bool ends = look(&r) == '$' && r.at + 1 == r.end;
    r.at += ends;
    if (r.at < r.end) return refuse(&r, "a ) that nothing opened");
    PL_TRY(check_anchors(&r, begins || ends, body));
    *node = body;
    if (!in_json || (begins && ends)) return PL_OK;
    int32_t open = pl_node_repeat(g, pl_json_chars(g, &any, 1), 0, PL_GRAMMAR_MANY);
    *node = pl_node_list(g, PL_NODE_SEQ);
    if (!begins) pl_node_add(g, *node, open);
    pl_node_add(g, *node, body);
    if (!ends) pl_node_add(g, *node, open);
    return PL_OK;
}
