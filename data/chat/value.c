#include "data/chat/value.h"
#include "data/tokenizer/unicode.h"
#include "kernels/base/utf8.h"
#include <errno.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>

// ---- making values

pl_chat_value pl_chat_undefined(const char *name) {
    return (pl_chat_value){.type = PL_CHAT_UNDEFINED, .s = name, .n = strlen(name)};
}

pl_chat_value pl_chat_none(void) {
    return (pl_chat_value){.type = PL_CHAT_NONE};
}

pl_chat_value pl_chat_bool(bool b) {
    return (pl_chat_value){.type = PL_CHAT_BOOL, .flag = b};
}

pl_chat_value pl_chat_int(int64_t i) {
    return (pl_chat_value){.type = PL_CHAT_INT, .i = i};
}

pl_chat_value pl_chat_float(double f) {
    return (pl_chat_value){.type = PL_CHAT_FLOAT, .f = f};
}

pl_chat_value pl_chat_strn(const char *s, size_t n) {
    return (pl_chat_value){.type = PL_CHAT_STR, .s = s, .n = n};
}

pl_chat_value pl_chat_str(const char *s) {
    return pl_chat_strn(s, strlen(s));
}

pl_chat_value pl_chat_list_new(pl_region *r, bool tuple) {
    return (pl_chat_value){.type = PL_CHAT_LIST, .flag = tuple, .list = pl_region_alloc(r, sizeof(pl_chat_list))};
}

pl_chat_value pl_chat_list_of_kind(pl_region *r, pl_chat_list_kind kind) {
    pl_chat_value v = pl_chat_list_new(r, false);
    v.list->kind = kind;
    return v;
}

pl_chat_value pl_chat_pair(pl_region *r, pl_chat_value a, pl_chat_value b) {
    pl_chat_value t = pl_chat_list_new(r, true);
    pl_chat_push(r, t, a);
    pl_chat_push(r, t, b);
    return t;
}

pl_chat_value pl_chat_dict_new(pl_region *r) {
    return (pl_chat_value){.type = PL_CHAT_DICT, .dict = pl_region_alloc(r, sizeof(pl_chat_dict))};
}

void pl_chat_push(pl_region *r, pl_chat_value list, pl_chat_value v) {
    pl_chat_list *l = list.list;
    l->v = pl_region_room(r, l->v, l->n, &l->cap, sizeof *l->v);
    l->v[l->n++] = v;
    pl_chat_step(r, 1);
}

pl_chat_value *pl_chat_find(pl_region *r, pl_chat_value dict, pl_chat_value key) {
    if (key.type == PL_CHAT_DICT || (key.type == PL_CHAT_LIST && !key.flag))
        pl_chat_raise(r, PL_E_INPUT, "unhashable type: '%s'", pl_chat_type_name(key));
    pl_chat_step(r, dict.dict->n / 16);
    for (int64_t i = 0; i < dict.dict->n; i++)
        if (pl_chat_equal(r, dict.dict->key[i], key)) return &dict.dict->value[i];
    return NULL;
}

pl_chat_value *pl_chat_member(pl_region *r, pl_chat_value dict, const char *key) {
    return pl_chat_find(r, dict, pl_chat_str(key));
}

void pl_chat_put(pl_region *r, pl_chat_value dict, pl_chat_value key, pl_chat_value v) {
    pl_chat_value *there = pl_chat_find(r, dict, key);
    if (there) {
        *there = v;
        return;
    }
    pl_chat_dict *d = dict.dict;
    int64_t       keys = d->cap; // as many as values
    d->key = pl_region_room(r, d->key, d->n, &keys, sizeof *d->key);
    d->value = pl_region_room(r, d->value, d->n, &d->cap, sizeof *d->value);
    d->key[d->n] = key;
    d->value[d->n++] = v;
}

// ---- types

bool pl_chat_is(pl_chat_value v, const char *s) {
    return v.type == PL_CHAT_STR && strlen(s) == v.n && memcmp(v.s, s, v.n) == 0;
}

bool pl_chat_true(pl_chat_value v) {
    switch (v.type) {
    case PL_CHAT_UNDEFINED:
    case PL_CHAT_NONE: return false;
    case PL_CHAT_BOOL: return v.flag;
    case PL_CHAT_INT: return v.i != 0;
    case PL_CHAT_FLOAT: return v.f != 0;
    case PL_CHAT_STR: return v.n > 0;
    case PL_CHAT_LIST: return v.list->kind == PL_CHAT_GENERATOR || v.list->n > 0;
    case PL_CHAT_DICT: return v.flag || v.dict->n > 0; // a namespace is an object, and objects are true
    case PL_CHAT_CALL: return true;
    }
    return false;
}

const char *pl_chat_type_name(pl_chat_value v) {
    switch (v.type) {
    case PL_CHAT_UNDEFINED: return "Undefined";
    case PL_CHAT_NONE: return "NoneType";
    case PL_CHAT_BOOL: return "bool";
    case PL_CHAT_INT: return "int";
    case PL_CHAT_FLOAT: return "float";
    case PL_CHAT_STR: return "str";
    case PL_CHAT_LIST:
        return v.list->kind == PL_CHAT_GENERATOR ? "generator"
               : v.list->kind == PL_CHAT_VIEW    ? "dict view"
               : v.list->kind == PL_CHAT_RANGE   ? "range"
               : v.flag                          ? "tuple"
                                                 : "list";
    case PL_CHAT_DICT: return v.flag ? "Namespace" : "dict";
    case PL_CHAT_CALL: return "function";
    }
    return "object";
}

static bool is_number(pl_chat_value v) {
    return v.type == PL_CHAT_BOOL || v.type == PL_CHAT_INT || v.type == PL_CHAT_FLOAT;
}

static int64_t integer_of(pl_chat_value v) {
    return v.type == PL_CHAT_BOOL ? v.flag : v.i;
}

// Orders numbers; templates cannot make a NaN (from_json refuses it, division by 0 too).
static int order_numbers(pl_chat_value a, pl_chat_value b) {
    if (a.type == PL_CHAT_FLOAT || b.type == PL_CHAT_FLOAT) {
        double x = a.type == PL_CHAT_FLOAT ? a.f : (double)integer_of(a),
               y = b.type == PL_CHAT_FLOAT ? b.f : (double)integer_of(b);
        return (x > y) - (x < y);
    }
    return (integer_of(a) > integer_of(b)) - (integer_of(a) < integer_of(b));
}

bool pl_chat_equal(pl_region *r, pl_chat_value a, pl_chat_value b) {
    if (is_number(a) && is_number(b)) return order_numbers(a, b) == 0;
    if (a.type != b.type) return false;
    bool same = true;
    switch (a.type) {
    case PL_CHAT_STR:
        if (a.n != b.n) return false;
        pl_chat_move(r, a.n);
        return memcmp(a.s, b.s, a.n) == 0;
    case PL_CHAT_LIST:
        if (a.list->kind == PL_CHAT_GENERATOR) return a.list == b.list;
        if (a.flag != b.flag || a.list->kind != b.list->kind || a.list->n != b.list->n) return false;
        pl_chat_enter(r);
        pl_chat_step(r, a.list->n);
        for (int64_t i = 0; i < a.list->n && same; i++)
            same = pl_chat_equal(r, a.list->v[i], b.list->v[i]);
        pl_chat_leave(r);
        return same;
    case PL_CHAT_DICT:
        if (a.flag || b.flag) return a.dict == b.dict;
        if (a.dict->n != b.dict->n) return false;
        pl_chat_enter(r);
        pl_chat_step(r, a.dict->n);
        for (int64_t i = 0; i < a.dict->n && same; i++) {
            pl_chat_value *other = pl_chat_find(r, b, a.dict->key[i]);
            same = other && pl_chat_equal(r, a.dict->value[i], *other);
        }
        pl_chat_leave(r);
        return same;
    case PL_CHAT_CALL: return a.call == b.call;
    default: return true;
    }
}

int pl_chat_order(pl_region *r, pl_chat_value a, pl_chat_value b) {
    if (is_number(a) && is_number(b)) return order_numbers(a, b);
    if (a.type == PL_CHAT_STR && b.type == PL_CHAT_STR) { // UTF-8's bytes sort as its characters do
        size_t n = a.n < b.n ? a.n : b.n;
        int    c = memcmp(a.s, b.s, n);
        pl_chat_move(r, n);
        return c ? c : (a.n > b.n) - (a.n < b.n);
    }
    bool whole = a.type == PL_CHAT_LIST && b.type == PL_CHAT_LIST && a.list->kind + b.list->kind == PL_CHAT_WHOLE;
    if (whole && a.flag == b.flag) {
        int c = 0;
        pl_chat_enter(r);
        pl_chat_step(r, a.list->n < b.list->n ? a.list->n : b.list->n);
        for (int64_t i = 0; i < a.list->n && i < b.list->n && c == 0; i++)
            if (!pl_chat_equal(r, a.list->v[i], b.list->v[i])) c = pl_chat_order(r, a.list->v[i], b.list->v[i]);
        pl_chat_leave(r);
        return c ? c : (a.list->n > b.list->n) - (a.list->n < b.list->n);
    }
    pl_chat_raise(r, PL_E_INPUT, "'<' not supported between instances of '%s' and '%s'", pl_chat_type_name(a),
                  pl_chat_type_name(b));
}

void pl_chat_sort(pl_region *r, pl_chat_value *v, pl_chat_value *key, int64_t n, bool reverse) {
    for (int64_t i = 1; i < n; i++)
        for (int64_t k = i; k > 0; k--) {
            int           c = pl_chat_order(r, key[k - 1], key[k]);
            pl_chat_value t;
            pl_chat_step(r, 1);
            if (reverse ? c >= 0 : c <= 0) break;
            t = v[k], v[k] = v[k - 1], v[k - 1] = t;
            t = key[k], key[k] = key[k - 1], key[k - 1] = t;
        }
}

int64_t pl_chat_length(pl_region *r, pl_chat_value v) {
    int64_t n = 0;
    switch (v.type) {
    case PL_CHAT_UNDEFINED: return 0;
    case PL_CHAT_STR:
        pl_chat_move(r, v.n);
        for (size_t i = 0; i < v.n; i++)
            n += ((uint8_t)v.s[i] & 0xc0) != 0x80;
        return n;
    case PL_CHAT_LIST:
        if (v.list->kind != PL_CHAT_GENERATOR) return v.list->n;
        break;
    case PL_CHAT_DICT:
        if (!v.flag) return v.dict->n;
        break;
    default: break;
    }
    pl_chat_raise(r, PL_E_INPUT, "object of type '%s' has no len()", pl_chat_type_name(v));
}

uint32_t pl_chat_char(pl_chat_value s, size_t at, size_t *next) {
    uint32_t cp = 0;
    int      n = pl_utf8_next(s.s + at, s.n - at, &cp);
    *next = at + (size_t)(n > 0 ? n : 1);
    return cp;
}

pl_chat_value pl_chat_chars(pl_region *r, pl_chat_value s, int64_t from, int64_t to) {
    size_t  at = 0, begin = 0;
    int64_t i = 0;
    pl_chat_read(r, (size_t)to < s.n ? (size_t)to : s.n);
    for (; i < to && at < s.n; i++) {
        if (i == from) begin = at;
        pl_chat_char(s, at, &at);
    }
    if (from >= i) begin = at;
    return pl_chat_strn(s.s + begin, at - begin);
}

// ---- printing

static void add_text(pl_region *r, const char *s) {
    pl_chat_add(r, s, strlen(s));
}

// Python's repr of a float: the shortest digits that read back, exponents below 1e-4 and from 1e16.
static void print_float(pl_region *r, double f) {
    char text[40], digits[32];
    int  p;
    pl_chat_step(r, 100); // for the search below
    if (isinf(f)) {
        add_text(r, f < 0 ? "-inf" : "inf");
        return;
    }
    for (p = 1; p <= 17; p++) {
        snprintf(text, sizeof text, "%.*e", p - 1, f);
        if (strtod(text, NULL) == f) break;
    }
    int e = atoi(strchr(text, 'e') + 1), n = 0;
    for (const char *s = text; *s != 'e'; s++)
        if (*s >= '0' && *s <= '9') digits[n++] = *s;
    if (signbit(f)) add_text(r, "-");
    if (e < -4 || e >= 16) {
        pl_chat_add(r, digits, 1);
        if (n > 1) {
            add_text(r, ".");
            pl_chat_add(r, digits + 1, (size_t)n - 1);
        }
        snprintf(text, sizeof text, "e%c%02d", e < 0 ? '-' : '+', abs(e));
        add_text(r, text);
        return;
    }
    for (int i = e < 0 ? e : 0; i < n || i <= e; i++) {
        if (i == e + 1) add_text(r, ".");
        pl_chat_add(r, i >= 0 && i < n ? &digits[i] : "0", 1);
    }
    if (e >= n - 1) add_text(r, ".0");
}

static void print_string_repr(pl_region *r, pl_chat_value v) {
    pl_chat_read(r, v.n);
    char quote = memchr(v.s, '\'', v.n) && !memchr(v.s, '"', v.n) ? '"' : '\'', code[12];
    pl_chat_add(r, &quote, 1);
    for (size_t at = 0, next; at < v.n; at = next) {
        uint32_t c = pl_chat_char(v, at, &next);
        if (c == '\n')
            add_text(r, "\\n");
        else if (c == '\r')
            add_text(r, "\\r");
        else if (c == '\t')
            add_text(r, "\\t");
        else if (c == '\\' || c == (uint32_t)quote) {
            add_text(r, "\\");
            pl_chat_add(r, v.s + at, 1);
        } else if (c < 0x20 || c == 0x7f) {
            snprintf(code, sizeof code, "\\x%02x", (unsigned)c);
            add_text(r, code);
        } else if (!pl_unicode_is_printable(c)) {
            snprintf(code, sizeof code, c < 0x100 ? "\\x%02x" : c < 0x10000 ? "\\u%04x" : "\\U%08x", (unsigned)c);
            add_text(r, code);
        } else {
            pl_chat_add(r, v.s + at, next - at);
        }
    }
    pl_chat_add(r, &quote, 1);
}

void pl_chat_repr(pl_region *r, pl_chat_value v) {
    char number[32];
    pl_chat_step(r, 1);
    switch (v.type) {
    case PL_CHAT_UNDEFINED: add_text(r, "Undefined"); return;
    case PL_CHAT_NONE: add_text(r, "None"); return;
    case PL_CHAT_BOOL: add_text(r, v.flag ? "True" : "False"); return;
    case PL_CHAT_INT:
        snprintf(number, sizeof number, "%lld", (long long)v.i);
        add_text(r, number);
        return;
    case PL_CHAT_FLOAT: print_float(r, v.f); return;
    case PL_CHAT_STR: print_string_repr(r, v); return;
    case PL_CHAT_LIST:
        if (v.list->kind != PL_CHAT_WHOLE) break;
        r->listed |= v.list->parts;
        pl_chat_enter(r);
        add_text(r, v.flag ? "(" : "[");
        for (int64_t i = 0; i < v.list->n; i++) {
            if (i) add_text(r, ", ");
            pl_chat_repr(r, v.list->v[i]);
        }
        add_text(r, !v.flag ? "]" : v.list->n == 1 ? ",)" : ")");
        pl_chat_leave(r);
        return;
    case PL_CHAT_DICT:
        if (v.flag) break;
        pl_chat_enter(r);
        add_text(r, "{");
        for (int64_t i = 0; i < v.dict->n; i++) {
            if (i) add_text(r, ", ");
            pl_chat_repr(r, v.dict->key[i]);
            add_text(r, ": ");
            pl_chat_repr(r, v.dict->value[i]);
        }
        add_text(r, "}");
        pl_chat_leave(r);
        return;
    case PL_CHAT_CALL: break;
    }
    pl_chat_raise(r, PL_E_UNSUPPORTED, "printing a %s is not built", pl_chat_type_name(v));
}

void pl_chat_print(pl_region *r, pl_chat_value v) {
    if (v.type == PL_CHAT_UNDEFINED) return;
    if (v.type == PL_CHAT_STR)
        pl_chat_add(r, v.s, v.n);
    else
        pl_chat_repr(r, v);
}

// ---- JSON

static void dump_string(pl_region *r, pl_chat_value v, bool ascii) {
    static const char plain[] = "\"\\\n\r\t\b\f", letter[] = "\"\\nrtbf";
    char              code[16];
    pl_chat_read(r, v.n);
    add_text(r, "\"");
    for (size_t at = 0, next; at < v.n; at = next) {
        uint32_t    c = pl_chat_char(v, at, &next);
        const char *short_form = c && c < 0x80 ? strchr(plain, (int)c) : NULL;
        if (short_form)
            snprintf(code, sizeof code, "\\%c", letter[short_form - plain]);
        else if (c < 0x20 || (ascii && c > 0x7e && c < 0x10000))
            snprintf(code, sizeof code, "\\u%04x", (unsigned)c);
        else if (ascii && c >= 0x10000)
            snprintf(code, sizeof code, "\\u%04x\\u%04x", (unsigned)(0xd800 + ((c - 0x10000) >> 10)),
                     (unsigned)(0xdc00 + (c & 0x3ff)));
        else {
            pl_chat_add(r, v.s + at, next - at);
            continue;
        }
        add_text(r, code);
    }
    add_text(r, "\"");
}

static void dump_break(pl_region *r, const pl_chat_json *how, int depth) {
    char blank[64];
    if (how->indent < 0) return;
    memset(blank, ' ', sizeof blank);
    add_text(r, "\n");
    for (int i = depth * how->indent; i > 0; i -= (int)sizeof blank)
        pl_chat_add(r, blank, i < (int)sizeof blank ? (size_t)i : sizeof blank);
}

// Returns the members in order of their keys.
static pl_chat_dict sort_members(pl_region *r, const pl_chat_dict *d) {
    pl_chat_dict to = {.n = d->n};
    to.key = (pl_chat_value *)pl_region_copy(r, (const char *)d->key, (size_t)d->n * sizeof *d->key);
    to.value = (pl_chat_value *)pl_region_copy(r, (const char *)d->value, (size_t)d->n * sizeof *d->value);
    pl_chat_sort(r, to.value, to.key, to.n, false);
    return to;
}

static void dump_json(pl_region *r, pl_chat_value v, const pl_chat_json *how, int depth) {
    pl_chat_dict members;
    pl_chat_step(r, 1);
    switch (v.type) {
    case PL_CHAT_NONE: add_text(r, "null"); return;
    case PL_CHAT_BOOL: add_text(r, v.flag ? "true" : "false"); return;
    case PL_CHAT_STR: dump_string(r, v, how->ascii); return;
    case PL_CHAT_FLOAT:
        if (isinf(v.f))
            add_text(r, v.f < 0 ? "-Infinity" : "Infinity");
        else
            print_float(r, v.f);
        return;
    case PL_CHAT_INT: pl_chat_repr(r, v); return;
    case PL_CHAT_LIST:
        if (v.list->kind != PL_CHAT_WHOLE) break;
        pl_chat_enter(r);
        add_text(r, "[");
        for (int64_t i = 0; i < v.list->n; i++) {
            if (i) add_text(r, how->item);
            dump_break(r, how, depth + 1);
            dump_json(r, v.list->v[i], how, depth + 1);
        }
        if (v.list->n) dump_break(r, how, depth);
        add_text(r, "]");
        pl_chat_leave(r);
        return;
    case PL_CHAT_DICT:
        if (v.flag) break;
        pl_chat_enter(r);
        add_text(r, "{");
        members = how->sorted ? sort_members(r, v.dict) : *v.dict;
        for (int64_t i = 0; i < members.n; i++) {
            pl_chat_value key = members.key[i];
            if (i) add_text(r, how->item);
            dump_break(r, how, depth + 1);
            if (key.type == PL_CHAT_STR) {
                dump_string(r, key, how->ascii);
            } else if (key.type <= PL_CHAT_FLOAT && key.type != PL_CHAT_UNDEFINED) {
                add_text(r, "\"");
                dump_json(r, key, how, depth);
                add_text(r, "\"");
            } else {
                pl_chat_raise(r, PL_E_INPUT, "tojson: a key that is a %s", pl_chat_type_name(key));
            }
            add_text(r, how->key);
            dump_json(r, members.value[i], how, depth + 1);
        }
        if (v.dict->n) dump_break(r, how, depth);
        add_text(r, "}");
        pl_chat_leave(r);
        return;
    default: break;
    }
    pl_chat_raise(r, PL_E_INPUT, "tojson: Object of type %s is not JSON serializable", pl_chat_type_name(v));
}

void pl_chat_dump(pl_region *r, pl_chat_value v, const pl_chat_json *how) {
    dump_json(r, v, how, 0);
}

typedef struct json_reader {
    pl_region  *r;
    const char *p, *end;
} json_reader;

static void skip_blanks(json_reader *j) {
    while (j->p < j->end && strchr(" \t\r\n", *j->p))
        j->p++;
}

static uint32_t hex4(const char *s) {
    char code[5] = {s[0], s[1], s[2], s[3], 0};
    return (uint32_t)strtoul(code, NULL, 16);
}

static pl_chat_value read_string(json_reader *j) { // at the opening quote
    const char *from = ++j->p;
    while (*j->p != '"')
        j->p += *j->p == '\\' ? 2 : 1;
    pl_chat_move(j->r, (size_t)(j->p - from));
    char  *to = pl_region_alloc(j->r, (size_t)(j->p - from) + 1); // escapes only shrink
    size_t n = 0;
    for (const char *s = from; s < j->p; s++) {
        if (*s != '\\') {
            to[n++] = *s;
            continue;
        }
        const char *plain = strchr("\"\\/bfnrt", *++s);
        if (plain) {
            to[n++] = "\"\\/\b\f\n\r\t"[plain - "\"\\/bfnrt"];
            continue;
        }
        uint32_t c = hex4(s + 1);
        s += 4;
        if (c >= 0xd800 && c < 0xdc00) { // the second half has been checked by pl_json_parse
            c = 0x10000 + ((c - 0xd800) << 10) + (hex4(s + 3) - 0xdc00);
            s += 6;
        }
        n += (size_t)pl_utf8_put(to + n, c);
    }
    j->p++;
    return pl_chat_strn(to, n);
}

static pl_chat_value read_number(json_reader *j) {
    char   text[400];
    size_t n = 0;
    bool   whole = true;
    while (j->p < j->end && strchr("+-.eE0123456789", *j->p)) {
        whole = whole && !strchr(".eE", *j->p);
        if (n + 1 >= sizeof text) pl_chat_raise(j->r, PL_E_UNSUPPORTED, "a number of more than 398 digits");
        text[n++] = *j->p++;
    }
    text[n] = 0;
    errno = 0;
    if (!whole) return pl_chat_float(strtod(text, NULL));
    long long i = strtoll(text, NULL, 10);
    if (errno == ERANGE) pl_chat_raise(j->r, PL_E_UNSUPPORTED, "the integer %.40s, beyond 64 bits", text);
    return pl_chat_int(i);
}

static pl_chat_value read_value(json_reader *j) {
    pl_chat_value v, key;
    skip_blanks(j);
    switch (*j->p) {
    case '{':
        v = pl_chat_dict_new(j->r);
        for (j->p++, skip_blanks(j); *j->p != '}'; skip_blanks(j)) {
            if (*j->p == ',') j->p++;
            skip_blanks(j);
            key = read_string(j);
            skip_blanks(j);
            j->p++; // the colon
            pl_chat_put(j->r, v, key, read_value(j));
        }
        j->p++;
        return v;
    case '[':
        v = pl_chat_list_new(j->r, false);
        for (j->p++, skip_blanks(j); *j->p != ']'; skip_blanks(j)) {
            if (*j->p == ',') j->p++;
            pl_chat_push(j->r, v, read_value(j));
        }
        j->p++;
        return v;
    case '"': return read_string(j);
    case 't': j->p += 4; return pl_chat_bool(true);
    case 'f': j->p += 5; return pl_chat_bool(false);
    case 'n': j->p += 4; return pl_chat_none();
    default: return read_number(j);
    }
}

pl_chat_value pl_chat_from_json(pl_region *r, const char *text, size_t n) {
    json_reader j = {r, text, text + n};
    if (n >= 3 && memcmp(text, "\xEF\xBB\xBF", 3) == 0) j.p += 3;
    return read_value(&j);
}

void pl_chat_merge(pl_region *r, pl_chat_value to, const char *text, size_t n) {
    pl_chat_value more = pl_chat_from_json(r, text, n);
    for (int64_t i = 0; i < more.dict->n; i++)
        pl_chat_put(r, to, more.dict->key[i], more.dict->value[i]);
}
