// llama.cpp's GBNF: rules `name ::= alternatives` of
//   "text"  [a-z_] [^"]  .   characters; escapes \n \r \t \\ \" \[ \] \xHH \uHHHH \UHHHHHHHH
//   name  ( ... )            another rule, a group
//   x* x+ x? x{m} x{m,} x{m,n}
// An alternative ends at the end of its line, but within a group or behind a "|" or "::=" it may go on in the next. "#"
// begins a comment. The text is matched by the rule `root`.
#include "infer/grammar/readers.h"

#include "kernels/base/arena.h"
#include "kernels/base/utf8.h"

#include <limits.h>
#include <string.h>

typedef struct name {
    const char *s; // in the text
    size_t      n;
    int32_t     rule;
    bool        defined;
} name;

typedef struct reader {
    pl_nodes   *g;
    const char *text;
    size_t      at, end;
    name       *names;
    int         n_names, cap_names, depth;
    pl_err     *err;
} reader;

static pl_status refuse(const reader *r, const char *why) {
    int line = 1;
    for (size_t i = 0; i < r->at && i < r->end; i++)
        line += r->text[i] == '\n';
    return pl_fail(r->err, PL_E_INPUT, "line %d: %s", line, why);
}

static char look(const reader *r) {
    return r->at < r->end ? r->text[r->at] : 0;
}

// Skips blanks and comments, with line ends where `lines`.
static void skip(reader *r, bool lines) {
    for (; r->at < r->end; r->at++) {
        char c = r->text[r->at];
        if (c == '#') {
            while (r->at < r->end && r->text[r->at] != '\n')
                r->at++;
            if (!lines || r->at == r->end) return;
        } else if (!(c == ' ' || c == '\t' || c == '\r' || (lines && c == '\n'))) {
            return;
        }
    }
}

static bool is_name(char c) {
    return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9') || c == '-' || c == '_';
}

static pl_status read_name(reader *r, name **out) {
    size_t from = r->at;
    while (r->at < r->end && is_name(r->text[r->at]))
        r->at++;
    if (r->at == from) return refuse(r, "expected a rule's name");
    for (int i = 0; i < r->n_names; i++)
        if (r->names[i].n == r->at - from && memcmp(r->names[i].s, r->text + from, r->at - from) == 0) {
            *out = &r->names[i];
            return PL_OK;
        }
    if (r->n_names == PL_GRAMMAR_RULES) return refuse(r, "has more than 4096 rules");
    if (r->n_names == r->cap_names) {
        int   cap = r->cap_names ? 2 * r->cap_names : 32;
        name *p = pl_realloc(r->names, (size_t)cap * sizeof *p);
        if (!p) return pl_fail(r->err, PL_E_MEMORY, "grammar: out of memory");
        r->names = p;
        r->cap_names = cap;
    }
    r->names[r->n_names] = (name){.s = r->text + from, .n = r->at - from, .rule = pl_node_rule(r->g)};
    *out = &r->names[r->n_names++];
    return PL_OK;
}

static pl_status read_hex(reader *r, int digits, uint32_t *out) {
    const char *why = pl_scan_hex(r->text, &r->at, r->end, digits, out);
    return why ? refuse(r, why) : PL_OK;
}

// Reads one character, an escape or itself.
static pl_status read_char(reader *r, uint32_t *out) {
    if (look(r) != '\\') {
        int n = r->at < r->end ? pl_utf8_next(r->text + r->at, r->end - r->at, out) : 0;
        if (n <= 0) return refuse(r, r->at < r->end ? "is not UTF-8" : "ends inside a text or a class");
        r->at += (size_t)n;
        return PL_OK;
    }
    static const char from[] = "nrt\\\"[]", to[] = "\n\r\t\\\"[]";
    r->at++;
    char        c = look(r);
    const char *known = c ? strchr(from, c) : NULL;
    r->at++;
    if (known) {
        *out = (uint8_t)to[known - from];
        return PL_OK;
    }
    if (c == 'x') return read_hex(r, 2, out);
    if (c == 'u') return read_hex(r, 4, out);
    if (c == 'U') return read_hex(r, 8, out);
    return refuse(r, "an unknown escape");
}

static pl_status read_text(reader *r, int32_t *out) {
    *out = pl_node_list(r->g, PL_NODE_SEQ);
    for (r->at++; look(r) != '"';) {
        uint32_t c;
        char     s[4];
        if (look(r) == '\n') return refuse(r, "a text ends before its line does");
        PL_TRY(read_char(r, &c));
        pl_node_add(r->g, *out, pl_node_text(r->g, s, (size_t)pl_utf8_put(s, c)));
    }
    r->at++;
    return PL_OK;
}

static pl_status read_class(reader *r, int32_t *out) {
    enum { MOST = 256 };
    pl_char_range range[MOST + 1];
    int           n = 0;
    r->at++;
    bool negate = look(r) == '^';
    r->at += negate;
    while (look(r) != ']') {
        if (n == MOST) return refuse(r, "a class of more than 256 ranges");
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
    *out = pl_node_chars(r->g, range, n);
    return PL_OK;
}

static pl_status read_times(reader *r, int32_t *item) {
    int32_t     min, max;
    const char *why = pl_scan_times(r->text, &r->at, r->end, &min, &max);
    if (why) return refuse(r, why);
    *item = pl_node_repeat(r->g, *item, min, max);
    return PL_OK;
}

static pl_status read_alternatives(reader *r, bool group, int32_t *out);

static pl_status read_group(reader *r, int32_t *out) {
    if (++r->depth > PL_GRAMMAR_DEPTH) return refuse(r, "groups are nested too deeply");
    r->at++;
    skip(r, true);
    PL_TRY(read_alternatives(r, true, out));
    if (look(r) != ')') return refuse(r, "expected )");
    r->at++;
    r->depth--;
    return PL_OK;
}

static pl_status read_item(reader *r, int32_t *out) {
    name *of;
    char  c = look(r);
    if (c == '"') return read_text(r, out);
    if (c == '[') return read_class(r, out);
    if (c == '(') return read_group(r, out);
    if (c == '.') {
        r->at++;
        *out = pl_node_chars(r->g, &(pl_char_range){0, 0x10FFFF}, 1);
        return PL_OK;
    }
    PL_TRY(read_name(r, &of));
    *out = of->rule;
    return PL_OK;
}

static bool begins_item(char c) {
    return c && (c == '"' || c == '[' || c == '(' || c == '.' || is_name(c));
}

static pl_status read_sequence(reader *r, bool group, int32_t *out) {
    *out = pl_node_list(r->g, PL_NODE_SEQ);
    while (begins_item(look(r)) && !r->g->failed) {
        int32_t item = 0;
        PL_TRY(read_item(r, &item));
        while (look(r) == '*' || look(r) == '+' || look(r) == '?' || look(r) == '{')
            PL_TRY(read_times(r, &item));
        pl_node_add(r->g, *out, item);
        skip(r, group);
    }
    return PL_OK;
}

static pl_status read_alternatives(reader *r, bool group, int32_t *out) {
    *out = pl_node_list(r->g, PL_NODE_ALT);
    for (;;) {
        int32_t one = 0;
        PL_TRY(read_sequence(r, group, &one));
        pl_node_add(r->g, *out, one);
        // An alternative may begin on a line of its own.
        reader ahead = *r;
        skip(&ahead, true);
        if (look(&ahead) != '|') return PL_OK;
        r->at = ahead.at + 1;
        skip(r, true);
    }
}

static pl_status read_rule(reader *r) {
    name   *of;
    int32_t body = 0;
    PL_TRY(read_name(r, &of));
    ptrdiff_t which = of - r->names; // the table may move
    skip(r, false);
    if (r->end - r->at < 3 || memcmp(r->text + r->at, "::=", 3) != 0) return refuse(r, "expected ::=");
    if (of->defined) return refuse(r, "a rule is defined twice");
    r->at += 3;
    skip(r, true);
    PL_TRY(read_alternatives(r, false, &body));
    skip(r, false);
    if (r->at < r->end && look(r) != '\n') return refuse(r, "expected an item, | or the end of the line");
    r->names[which].defined = true;
    pl_node_define(r->g, r->names[which].rule, body);
    return PL_OK;
}

static pl_status read_rules(reader *r) {
    bool root = false;
    for (skip(r, true); r->at < r->end; skip(r, true))
        PL_TRY(read_rule(r));
    for (int i = 0; i < r->n_names; i++) {
        const name *x = &r->names[i];
        if (!x->defined) return pl_fail(r->err, PL_E_INPUT, "the rule \"%.*s\" is not defined", (int)x->n, x->s);
        if (x->n == 4 && memcmp(x->s, "root", 4) == 0) {
            root = true;
            r->g->root = x->rule;
        }
    }
    return root ? PL_OK : pl_fail(r->err, PL_E_INPUT, "has no rule \"root\"");
}

pl_status pl_gbnf_read(pl_nodes *g, const char *text, size_t n, pl_err *err) {
    reader r = {.g = g, .text = text, .end = n, .err = err};
    if (n > INT_MAX) return pl_fail(err, PL_E_INPUT, "is too long");
    pl_status st = read_rules(&r);
    pl_free(r.names);
    return st;
}
