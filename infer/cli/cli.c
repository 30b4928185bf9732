#include "infer/cli/cli.h"

#include "kernels/base/arena.h"
#include "kernels/base/check.h"
#include "recipes/spell.h"

#include <errno.h>
#include <limits.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

#define MAX_NAMES 96

// ---- finding ----

static const pl_cli_option *find_name(const pl_cli_args *a, const char *name, size_t n) {
    for (int t = 0; t < PL_CLI_TABLES; t++)
        for (const pl_cli_option *o = a->table[t]; o && o->name; o++)
            if (strlen(o->name) == n && memcmp(o->name, name, n) == 0) return o;
    return NULL;
}

static const pl_cli_option *find_letter(const pl_cli_args *a, char letter) {
    for (int t = 0; t < PL_CLI_TABLES; t++)
        for (const pl_cli_option *o = a->table[t]; o && o->name; o++)
            if (o->letter == letter) return o;
    return NULL;
}

const char *pl_cli_nearest(const char *word, const char *const *names, int n) {
    const char *best = NULL;
    int         least = INT_MAX;
    for (int i = 0; i < n; i++) {
        int d = pl_spell_distance(word, names[i]);
        if (d >= least) continue;
        least = d;
        best = names[i];
    }
    return best && pl_spell_close(word, least) ? best : NULL;
}

static pl_status unknown(const pl_cli_args *a, const char *given, const char *name, pl_err *err) {
    const char *names[MAX_NAMES];
    int         n = 0;
    for (int t = 0; t < PL_CLI_TABLES; t++)
        for (const pl_cli_option *o = a->table[t]; o && o->name && n < MAX_NAMES; o++)
            names[n++] = o->name;
    const char *near = pl_cli_nearest(name, names, n);
    if (near) return pl_fail(err, PL_E_USAGE, "%s: unknown option; did you mean --%s?", given, near);
    return pl_fail(err, PL_E_USAGE, "%s: unknown option; --help lists the known ones", given);
}

// ---- values ----

static bool parse_int(const char *s, int64_t *out) {
    char *end;
    errno = 0;
    long long v = strtoll(s, &end, 10);
    *out = v;
    return end != s && !*end && errno == 0;
}

static bool parse_real(const char *s, double *out) {
    char *end;
    *out = strtod(s, &end);
    return end != s && !*end && isfinite(*out);
}

static int find_choice(const char *choices, const char *value) {
    size_t n = strlen(value);
    for (int i = 0; choices; i++) {
        const char *bar = strchr(choices, '|');
        size_t      len = bar ? (size_t)(bar - choices) : strlen(choices);
        if (len == n && memcmp(choices, value, n) == 0) return i;
        choices = bar ? bar + 1 : NULL;
    }
    return -1;
}

static pl_status check_range(const pl_cli_option *o, const char *value, double v, pl_err *err) {
    if (v >= o->min && v <= o->max) return PL_OK;
    if (isinf(o->max)) return pl_fail(err, PL_E_USAGE, "--%s %s: must be at least %g", o->name, value, o->min);
    return pl_fail(err, PL_E_USAGE, "--%s %s: must be between %.15g and %.15g", o->name, value, o->min, o->max);
}

static pl_status check_value(const pl_cli_option *o, const char *value, pl_err *err) {
    int64_t i;
    double  r;
    switch (o->type) {
    case PL_CLI_FLAG:
    case PL_CLI_TEXT: return PL_OK;
    case PL_CLI_INT:
        if (!parse_int(value, &i)) return pl_fail(err, PL_E_USAGE, "--%s %s: expected an integer", o->name, value);
        return check_range(o, value, (double)i, err);
    case PL_CLI_REAL:
        if (!parse_real(value, &r)) return pl_fail(err, PL_E_USAGE, "--%s %s: expected a number", o->name, value);
        return check_range(o, value, r, err);
    case PL_CLI_CHOICE:
        if (find_choice(o->arg, value) >= 0) return PL_OK;
        return pl_fail(err, PL_E_USAGE, "--%s %s: expected one of %s", o->name, value, o->arg);
    }
    return PL_OK;
}

// ---- parsing ----

// Reserves room for `more` further options and positional arguments.
static pl_status reserve(pl_cli_args *a, int more, pl_err *err) {
    size_t        n = (size_t)more + 1;
    pl_cli_given *given = pl_realloc(a->given, pl_size_mul((size_t)a->n_given + n, sizeof *given, 1));
    if (given) a->given = given;
    const char **positional =
        pl_realloc(a->positional, pl_size_mul((size_t)a->n_positional + n, sizeof *positional, 1));
    if (positional) a->positional = positional;
    return given && positional ? PL_OK : pl_fail(err, PL_E_MEMORY, "arguments: out of memory");
}

// Parses the option argv[*at]; advances *at past it and its value.
static pl_status parse_option(pl_cli_args *a, int argc, char **argv, int *at, pl_err *err) {
    const char          *word = argv[(*at)++], *value = NULL;
    const pl_cli_option *o;
    if (word[1] == '-') {
        const char *equals = strchr(word, '=');
        size_t      n = equals ? (size_t)(equals - word) - 2 : strlen(word) - 2;
        o = find_name(a, word + 2, n);
        if (!o) {
            char name[64];
            snprintf(name, sizeof name, "%.*s", (int)(n < sizeof name ? n : sizeof name - 1), word + 2);
            return unknown(a, word, name, err);
        }
        if (equals) value = equals + 1;
    } else {
        o = find_letter(a, word[1]);
        if (!o) return unknown(a, word, word + 1, err);
        if (word[2]) value = word + 2;
    }
    if (o->type == PL_CLI_FLAG) {
        if (value) return pl_fail(err, PL_E_USAGE, "%s: --%s takes no value", word, o->name);
    } else if (!value) {
        // "-5" may be meant as a number, "--threads" can only be a forgotten value.
        if (*at >= argc || (argv[*at][0] == '-' && argv[*at][1] == '-'))
            return pl_fail(err, PL_E_USAGE, "--%s: needs a value, %s", o->name, o->arg);
        value = argv[(*at)++];
    }
    a->given[a->n_given++] = (pl_cli_given){.option = o, .value = value};
    return check_value(o, value, err);
}

pl_status pl_cli_parse(pl_cli_args *a, int argc, char **argv, int *at, bool stop, pl_err *err) {
    PL_TRY(reserve(a, argc - *at, err));
    bool options = true;
    while (*at < argc) {
        const char *word = argv[*at];
        if (options && strcmp(word, "--") == 0) {
            options = false;
            ++*at;
        } else if (options && word[0] == '-' && word[1]) {
            PL_TRY(parse_option(a, argc, argv, at, err));
        } else {
            if (stop) return PL_OK;
            a->positional[a->n_positional++] = word;
            ++*at;
        }
    }
    return PL_OK;
}

void pl_cli_args_fini(pl_cli_args *a) {
    pl_free(a->given);
    pl_free(a->positional);
    *a = (pl_cli_args){0};
}

// ---- values of options ----

static const pl_cli_option *known(const pl_cli_args *a, const char *name) {
    const pl_cli_option *o = find_name(a, name, strlen(name));
    PL_CHECK(o, "no option --%s in this command's tables", name);
    return o;
}

bool pl_cli_has(const pl_cli_args *a, const char *name) {
    const pl_cli_option *o = known(a, name);
    for (int i = 0; i < a->n_given; i++)
        if (a->given[i].option == o) return true;
    return false;
}

const char *pl_cli_text(const pl_cli_args *a, const char *name) {
    const pl_cli_option *o = known(a, name);
    for (int i = a->n_given - 1; i >= 0; i--)
        if (a->given[i].option == o) return a->given[i].value;
    return o->deflt;
}

int64_t pl_cli_int(const pl_cli_args *a, const char *name) {
    int64_t     v = 0;
    const char *s = pl_cli_text(a, name);
    PL_CHECK(s && parse_int(s, &v), "--%s has no integer value", name);
    return v;
}

double pl_cli_real(const pl_cli_args *a, const char *name) {
    double      v = 0;
    const char *s = pl_cli_text(a, name);
    PL_CHECK(s && parse_real(s, &v), "--%s has no number", name);
    return v;
}

int pl_cli_choice(const pl_cli_args *a, const char *name) {
    const char *s = pl_cli_text(a, name);
    return s ? find_choice(known(a, name)->arg, s) : -1;
}

void pl_cli_list(const pl_cli_args *a, const char *name, const char **out, int *n) {
    const pl_cli_option *o = known(a, name);
    *n = 0;
    for (int i = 0; i < a->n_given; i++)
        if (a->given[i].option == o) out[(*n)++] = a->given[i].value;
}

pl_status pl_cli_ids(const char *text, int32_t **ids, int64_t *n, pl_err *err) {
    *n = 0;
    *ids = pl_malloc((strlen(text) / 2 + 1) * sizeof **ids); // an id takes a digit and a separator
    if (!*ids) return pl_fail(err, PL_E_MEMORY, "ids: out of memory");
    for (const char *s = text;;) {
        s += strspn(s, ", \t\r\n");
        if (!*s) return PL_OK;
        size_t    digits = strspn(s, "0123456789");
        long long v = digits > 0 && digits < 11 ? strtoll(s, NULL, 10) : -1;
        if (v < 0 || v > INT32_MAX || !strchr(", \t\r\n", s[digits])) {
            pl_status st = pl_fail(err, PL_E_USAGE, "\"%.*s\": expected a token id", (int)strcspn(s, ", \t\r\n"), s);
            pl_free(*ids);
            *ids = NULL;
            *n = 0;
            return st;
        }
        (*ids)[(*n)++] = (int32_t)v;
        s += digits;
    }
}

// ---- help ----

static void help_option(FILE *f, const pl_cli_option *o) {
    char left[64];
    int  n = o->letter ? snprintf(left, sizeof left, "-%c, --%s", o->letter, o->name)
                       : snprintf(left, sizeof left, "--%s", o->name);
    if (o->type != PL_CLI_FLAG && n > 0 && (size_t)n < sizeof left)
        snprintf(left + n, sizeof left - (size_t)n, " %s", o->arg);
    fprintf(f, "  %-27s %s%s", left, strlen(left) > 27 ? "\n                              " : "", o->help);
    if (o->deflt) fprintf(f, " [%s]", o->deflt);
    fprintf(f, "\n");
}

static void help_table(FILE *f, const char *title, const pl_cli_option *table) {
    if (!table || !table->name) return;
    fprintf(f, "\n%s:\n", title);
    for (const pl_cli_option *o = table; o->name; o++)
        help_option(f, o);
}

void pl_cli_help(FILE *f, const pl_command *c, const pl_cli_option *recipe, const pl_cli_option *ranks,
                 const pl_cli_option *common) {
    fprintf(f, "paceline %s: %s\n\nUsage: paceline %s%s%s [OPTIONS]\n", c->name, c->summary, c->name,
            c->positional ? " " : "", c->positional ? c->positional : "");
    if (c->about) fprintf(f, "\n%s\n", c->about);
    help_table(f, "Options", c->options);
    if (c->lists) c->lists(f);
    if (c->recipe) help_table(f, "Options of recipes", recipe);
    help_table(f, "Options of several processes", ranks);
    help_table(f, "Options of every command", common);
    fprintf(f, "\nExample:\n  %s\n", c->example);
}
