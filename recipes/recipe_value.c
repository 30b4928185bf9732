// Typed values: converts a scalar's text to a number, a name or a string, and makes the error messages.
#include "kernels/base/arena.h"
#include "kernels/base/check.h"
#include "kernels/base/utf8.h"
#include "recipes/recipe_impl.h"
#include "recipes/spell.h"

#include <ctype.h>
#include <errno.h>
#include <inttypes.h>
#include <math.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define QUOTE_BYTES 48
#define QUOTE_SIZE (4 * QUOTE_BYTES + 8)
#define SET_BYTES 100
#define NUMBER 64 // bytes of a number in canonical form

// Writes at most `limit` bytes of text; control characters and invalid bytes as \xNN, so that a message stays one line.
static void show(const char *text, size_t limit, char *buf, size_t size) {
    size_t n = strlen(text), used = 0, i = 0;
    while (i < n && i < limit && used + 12 < size) {
        uint32_t code = 0;
        int      len = pl_utf8_next(text + i, n - i, &code);
        if (len <= 0 || code < 0x20 || (code >= 0x7f && code < 0xa0) || code == 0x2028 || code == 0x2029) {
            used += (size_t)snprintf(buf + used, size - used, "\\x%02x", (unsigned)(unsigned char)text[i]);
            i++;
            continue;
        }
        memcpy(buf + used, text + i, (size_t)len);
        used += (size_t)len;
        i += (size_t)len;
    }
    snprintf(buf + used, size - used, "%s", i < n ? "..." : "");
}

const char *pl_recipe_quote(const char *text, char *buf, size_t size) {
    buf[0] = '"';
    show(text, QUOTE_BYTES, buf + 1, size - 2);
    size_t n = strlen(buf);
    buf[n] = '"';
    buf[n + 1] = 0;
    return buf;
}

pl_status pl_recipe_place_fail(const pl_recipe_place *p, pl_err *err, const char *fmt, ...) {
    char    why[sizeof err->msg], key[QUOTE_SIZE + PL_RECIPE_MAX_PATH];
    va_list args;
    va_start(args, fmt);
    vsnprintf(why, sizeof why, fmt, args);
    va_end(args);
    if (p->option) return pl_fail(err, PL_E_USAGE, "--%s: %s", p->option, why);
    if (p->set) {
        char set[4 * SET_BYTES + 16];
        show(p->set, SET_BYTES, set, sizeof set);
        return pl_fail(err, PL_E_INPUT, "--set %s: %s", set, why);
    }
    key[0] = 0;
    if (p->path) {
        char path[QUOTE_SIZE];
        show(p->path, PL_RECIPE_MAX_PATH, path, sizeof path);
        snprintf(key, sizeof key, "%s%s: ", p->at ? p->at : "", path);
    }
    if (!p->name) return pl_fail(err, PL_E_INPUT, "%s%s", key, why);
    if (p->line < 1) return pl_fail(err, PL_E_INPUT, "%s: %s%s", p->name, key, why);
    return pl_fail(err, PL_E_INPUT, "%s:%d:%d: %s%s", p->name, p->line, p->column, key, why);
}

// The nearest known key or section so far, and its distance.
typedef struct nearest {
    char best[PL_RECIPE_MAX_PATH];
    int  score;
} nearest;

static const char *last_part(const char *path) {
    const char *dot = strrchr(path, '.');
    return dot ? dot + 1 : path;
}

static void consider(nearest *found, const char *word, const char *candidate) {
    int score = pl_spell_distance(word, candidate);
    // A right name in the wrong section: `steps` at the top level is train.steps.
    int tail = 1 + pl_spell_distance(last_part(word), last_part(candidate));
    if (tail < score) score = tail;
    if (score >= found->score) return;
    found->score = score;
    snprintf(found->best, sizeof found->best, "%s", candidate);
}

pl_status pl_recipe_unknown(const pl_recipe *r, const pl_recipe_place *p, pl_err *err) {
    nearest found = {.score = INT32_MAX};
    for (int i = 0; i < r->n; i++) {
        char        part[PL_RECIPE_MAX_PATH];
        const char *known = r->rows[i]->path;
        size_t      n = strlen(known);
        if (!strncmp(p->path, known, n) && p->path[n] == '.')
            return pl_recipe_place_fail(p, err, "unknown key; %s%s is %s and has no keys", p->at, known,
                                        pl_recipe_type_name(r->rows[i]->type));
        if (r->rows[i]->also && strcmp(r->rows[i]->also, last_part(p->path)) == 0)
            return pl_recipe_place_fail(p, err, "unknown key; here it is %s%s", p->at, known);
        consider(&found, p->path, known);
        for (const char *dot = strchr(known, '.'); dot; dot = strchr(dot + 1, '.')) {
            snprintf(part, sizeof part, "%.*s", (int)(dot - known), known);
            consider(&found, p->path, part);
        }
    }
    if (found.score == INT32_MAX) return pl_recipe_place_fail(p, err, "unknown key; none is known here");
    if (pl_spell_close(last_part(p->path), found.score))
        return pl_recipe_place_fail(p, err, "unknown key; did you mean %s%s?", p->at, found.best);
    return pl_recipe_place_fail(p, err, "unknown key; the nearest known one is %s%s", p->at, found.best);
}

bool pl_recipe_type_is_list(pl_key_type t) {
    return t >= PL_KEY_STRING_LIST;
}

const char *pl_recipe_type_name(pl_key_type t) {
    switch (t) {
    case PL_KEY_INT: return "an integer";
    case PL_KEY_REAL: return "a number";
    case PL_KEY_BOOL: return "true or false";
    case PL_KEY_STRING: return "a string";
    case PL_KEY_ENUM: return "a name";
    case PL_KEY_PATH: return "a path";
    case PL_KEY_STRING_LIST: return "a list of strings";
    case PL_KEY_INT_LIST: return "a list of integers";
    case PL_KEY_REAL_LIST: return "a list of numbers";
    case PL_KEY_LIST_OF_MAPS: return "a list of mappings";
    }
    PL_CHECK(false, "recipe type %d", (int)t);
    return "";
}

// Returns the type of a list's elements; a scalar's own type.
static pl_key_type element_type(pl_key_type t) {
    switch (t) {
    case PL_KEY_STRING_LIST: return PL_KEY_STRING;
    case PL_KEY_INT_LIST: return PL_KEY_INT;
    case PL_KEY_REAL_LIST: return PL_KEY_REAL;
    default: return t;
    }
}

// Writes whole numbers without a point, others as the shortest decimal that reads back to the same double.
static void format_number(double x, char *buf, size_t size) {
    if (floor(x) == x && fabs(x) < 1e16) {
        snprintf(buf, size, "%.0f", x);
        return;
    }
    for (int digits = 1; digits <= 17; digits++) {
        snprintf(buf, size, "%.*g", digits, x);
        if (strtod(buf, NULL) == x) return;
    }
}

const char *pl_recipe_range(const pl_key *row, char *buf, size_t size) {
    char lo[32], hi[32];
    bool limited = row->min != 0 || row->max != 0;
    bool below = limited && isfinite(row->min), above = limited && isfinite(row->max);
    format_number(row->min, lo, sizeof lo);
    format_number(row->max, hi, sizeof hi);
    if (below && above)
        snprintf(buf, size, " from %s to %s", lo, hi);
    else if (below)
        snprintf(buf, size, " of at least %s", lo);
    else if (above)
        snprintf(buf, size, " of at most %s", hi);
    else
        snprintf(buf, size, "%s", "");
    return buf;
}

static bool in_range(const pl_key *row, double x) {
    return (row->min == 0 && row->max == 0) || (x >= row->min && x <= row->max);
}

pl_status pl_recipe_mismatch(const pl_key *row, const pl_recipe_place *p, const char *what, pl_err *err) {
    char   names[512];
    size_t used = 0;
    if (row->type != PL_KEY_ENUM)
        return pl_recipe_place_fail(p, err, "expected %s, found %s", pl_recipe_type_name(row->type), what);
    names[0] = 0;
    for (int i = 0; pl_key_choice(row, i) && used < sizeof names; i++)
        used += (size_t)snprintf(names + used, sizeof names - used, "%s%s", i ? ", " : "", pl_key_choice(row, i));
    return pl_recipe_place_fail(p, err, "expected one of %s, found %s", names, what);
}

static pl_status scalar_mismatch(const pl_key *row, const pl_recipe_place *p, const char *text, bool quoted,
                                 pl_err *err) {
    char   what[QUOTE_SIZE];
    pl_key element = *row;
    element.type = element_type(row->type);
    pl_recipe_quote(text, what, sizeof what);
    if (quoted)
        return pl_recipe_place_fail(p, err, "expected %s, found the string %s; remove the quotes",
                                    pl_recipe_type_name(element.type), what);
    return pl_recipe_mismatch(&element, p, what, err);
}

static pl_status out_of_range(const pl_key *row, const pl_recipe_place *p, const char *text, pl_err *err) {
    char range[96], what[QUOTE_SIZE];
    show(text, QUOTE_BYTES, what, sizeof what);
    return pl_recipe_place_fail(p, err, "expected %s%s, found %s", pl_recipe_type_name(element_type(row->type)),
                                pl_recipe_range(row, range, sizeof range), what);
}

static const char *skip_digits(const char *s) {
    while (isdigit((unsigned char)*s))
        s++;
    return s;
}

// Matches [+-] digits.
static bool is_integer(const char *s) {
    s += *s == '+' || *s == '-';
    const char *end = skip_digits(s);
    return end > s && !*end;
}

// Matches [+-] digits [. digits] [e [+-] digits], with a digit on at least one side of the point. strtod alone would
// also accept hex, inf and nan.
static bool is_real(const char *s) {
    s += *s == '+' || *s == '-';
    const char *whole = skip_digits(s), *end = whole;
    if (*whole == '.') end = skip_digits(whole + 1);
    if (whole == s && end <= whole + 1) return false;
    if (*end == 'e' || *end == 'E') {
        const char *power = end + 1;
        power += *power == '+' || *power == '-';
        end = skip_digits(power);
        if (end == power) return false;
    }
    return !*end;
}

static pl_status parse_int(pl_recipe_value *v, const pl_key *row, const char *text, const pl_recipe_place *p,
                           char *canon, size_t size, pl_err *err) {
    errno = 0;
    v->i = strtoll(text, NULL, 10);
    v->f = (double)v->i;
    if (errno == ERANGE) {
        char what[QUOTE_SIZE];
        show(text, QUOTE_BYTES, what, sizeof what);
        return pl_recipe_place_fail(p, err, "%s does not fit into 64 bits", what);
    }
    if (!in_range(row, v->f)) return out_of_range(row, p, text, err);
    snprintf(canon, size, "%" PRId64, v->i);
    return PL_OK;
}

static pl_status parse_real(pl_recipe_value *v, const pl_key *row, const char *text, const pl_recipe_place *p,
                            char *canon, size_t size, pl_err *err) {
    v->f = strtod(text, NULL);
    if (v->f == 0) v->f = 0; // -0 and 0 are one value and must hash alike
    if (!isfinite(v->f)) {
        char what[QUOTE_SIZE];
        show(text, QUOTE_BYTES, what, sizeof what);
        return pl_recipe_place_fail(p, err, "%s is too large for a number", what);
    }
    if (!in_range(row, v->f)) return out_of_range(row, p, text, err);
    format_number(v->f, canon, size);
    return PL_OK;
}

static pl_status parse_choice(pl_recipe_value *v, const pl_key *row, const char *text, const pl_recipe_place *p,
                              pl_err *err) {
    const char *names[PL_KEY_MAX_CHOICES];
    int         n = 0;
    for (; n < PL_KEY_MAX_CHOICES && pl_key_choice(row, n); n++) {
        names[n] = pl_key_choice(row, n);
        if (strcmp(names[n], text) != 0) continue;
        v->i = n;
        return PL_OK;
    }
    const char *near = pl_spell_nearest(text, names, n);
    char        what[QUOTE_SIZE], more[QUOTE_SIZE + 64];
    pl_recipe_quote(text, what, sizeof what);
    snprintf(more, sizeof more, "%s%s%s%s", what, near ? "; did you mean " : "", near ? near : "", near ? "?" : "");
    return pl_recipe_mismatch(row, p, more, err);
}

// Parses one scalar: the typed value into v->i/f/b; *canon: its canonical text, which is `text` or in `number`.
static pl_status parse_scalar(pl_recipe_value *v, const pl_key *row, const char *text, bool quoted,
                              const pl_recipe_place *p, char number[NUMBER], const char **canon, pl_err *err) {
    *canon = text;
    switch (element_type(row->type)) {
    case PL_KEY_INT:
        if (quoted || !is_integer(text)) return scalar_mismatch(row, p, text, quoted, err);
        PL_TRY(parse_int(v, row, text, p, number, NUMBER, err));
        *canon = number;
        break;
    case PL_KEY_REAL:
        if (quoted || !is_real(text)) return scalar_mismatch(row, p, text, quoted, err);
        PL_TRY(parse_real(v, row, text, p, number, NUMBER, err));
        *canon = number;
        break;
    case PL_KEY_BOOL:
        v->b = !strcmp(text, "true");
        if (quoted || (!v->b && strcmp(text, "false") != 0)) return scalar_mismatch(row, p, text, quoted, err);
        break;
    case PL_KEY_ENUM: PL_TRY(parse_choice(v, row, text, p, err)); break;
    case PL_KEY_PATH:
        if (!*text) return pl_recipe_place_fail(p, err, "expected a path, found an empty string");
        break;
    default: break;
    }
    return PL_OK;
}

// Does the same; *canon is the caller's (pl_free).
static pl_status take_scalar(pl_recipe_value *v, const pl_key *row, const char *text, bool quoted,
                             const pl_recipe_place *p, char **canon, pl_err *err) {
    char        number[NUMBER];
    const char *from;
    PL_TRY(parse_scalar(v, row, text, quoted, p, number, &from, err));
    *canon = pl_strdup(from);
    return *canon ? PL_OK : pl_fail(err, PL_E_MEMORY, "out of memory while reading a recipe");
}

pl_status pl_option_parse(const pl_key *row, const char *text, int64_t *i, double *f, pl_err *err) {
    pl_recipe_value v = {0};
    char            number[NUMBER];
    const char     *canon;
    PL_TRY(parse_scalar(&v, row, text, false, &(pl_recipe_place){.option = row->path}, number, &canon, err));
    *i = v.i;
    *f = v.f;
    return PL_OK;
}

pl_status pl_recipe_value_scalar(pl_recipe_value *v, const pl_key *row, const char *text, bool quoted,
                                 const pl_recipe_place *p, pl_err *err) {
    PL_TRY(take_scalar(v, row, text, quoted, p, &v->text, err));
    v->present = true;
    return PL_OK;
}

// Makes room for one more element in *list. The capacity is the next power of two, so it is not stored.
static pl_status grow(void **list, int n, size_t size, pl_err *err) {
    if (n > 0 && (n & (n - 1)) != 0) return PL_OK;
    void *more = pl_realloc(*list, pl_size_mul((size_t)(n > 0 ? 2 * n : 1), size, 1));
    if (!more) return pl_fail(err, PL_E_MEMORY, "out of memory while reading a recipe");
    *list = more;
    return PL_OK;
}

pl_status pl_recipe_value_append(pl_recipe_value *v, const pl_key *row, const char *text, bool quoted,
                                 const pl_recipe_place *p, pl_err *err) {
    void *texts = v->texts, *ints = v->ints, *reals = v->reals;
    v->present = true;
    PL_TRY(grow(&texts, v->n, sizeof *v->texts, err));
    v->texts = (char **)texts;
    PL_TRY(grow(&ints, v->n, sizeof *v->ints, err));
    v->ints = (int64_t *)ints;
    PL_TRY(grow(&reals, v->n, sizeof *v->reals, err));
    v->reals = (double *)reals;
    PL_TRY(take_scalar(v, row, text, quoted, p, &v->texts[v->n], err));
    v->ints[v->n] = v->i;
    v->reals[v->n] = v->f;
    v->n++;
    return PL_OK;
}

pl_status pl_recipe_value_append_item(pl_recipe_value *v, pl_recipe *item, const pl_recipe_place *p, pl_err *err) {
    void     *items = v->items;
    pl_status st = PL_OK;
    v->present = true;
    if (v->n == PL_RECIPE_MAX_ITEMS)
        st = pl_recipe_place_fail(p, err, "more than %d items", PL_RECIPE_MAX_ITEMS);
    else
        st = grow(&items, v->n, sizeof *v->items, err);
    if (st != PL_OK) {
        pl_recipe_destroy(item);
        return st;
    }
    v->items = (pl_recipe **)items;
    v->items[v->n++] = item;
    return PL_OK;
}

void pl_recipe_value_clear(pl_recipe_value *v) {
    for (int i = 0; i < v->n; i++) {
        if (v->texts) pl_free(v->texts[i]);
        if (v->items) pl_recipe_destroy(v->items[i]);
    }
    pl_free(v->texts);
    pl_free(v->items);
    pl_free(v->structs);
    pl_free(v->ints);
    pl_free(v->reals);
    pl_free(v->text);
    memset(v, 0, sizeof *v);
}

void pl_recipe_value_move(pl_recipe_value *dst, pl_recipe_value *src) {
    pl_recipe_value_clear(dst);
    *dst = *src;
    memset(src, 0, sizeof *src);
}
