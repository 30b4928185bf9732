#include "infer/cli/cli.h"

#include "kernels/base/arena.h"
#include "kernels/base/check.h"
#include "recipes/spell.h"

#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#define MAX_NAMES 96
#define ARG 64 // bytes of the placeholder of a value

// ---- finding ----

static const pl_key *find_name(const pl_cli_args *a, const char *name, size_t n) {
    for (int t = 0; t < PL_CLI_TABLES; t++)
        for (const pl_key *o = a->table[t]; o && o->path; o++)
            if (strlen(o->path) == n && memcmp(o->path, name, n) == 0) return o;
    return NULL;
}

static const pl_key *find_letter(const pl_cli_args *a, char letter) {
    for (int t = 0; t < PL_CLI_TABLES; t++)
        for (const pl_key *o = a->table[t]; o && o->path; o++)
            if (o->letter == letter) return o;
    return NULL;
}

static pl_status unknown(const pl_cli_args *a, const char *given, const char *name, pl_err *err) {
    const char *names[MAX_NAMES];
    int         n = 0;
    for (int t = 0; t < PL_CLI_TABLES; t++)
        for (const pl_key *o = a->table[t]; o && o->path && n < MAX_NAMES; o++)
            names[n++] = o->path;
    const char *near = pl_spell_nearest(name, names, n);
    if (near) return pl_fail(err, PL_E_USAGE, "%s: unknown option; did you mean --%s?", given, near);
    return pl_fail(err, PL_E_USAGE, "%s: unknown option; --help lists the known ones", given);
}

// ---- parsing ----

// Returns the placeholder of an option's value: "N", or its choices, "bf16|fp32".
static const char *name_value(const pl_key *o, char out[ARG]) {
    size_t n = 0;
    if (o->type != PL_KEY_ENUM) return o->arg;
    for (int i = 0; pl_key_choice(o, i) && n < ARG; i++)
        n += (size_t)snprintf(out + n, ARG - n, "%s%s", i ? "|" : "", pl_key_choice(o, i));
    return out;
}

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
    const char   *word = argv[(*at)++], *value = NULL;
    const pl_key *o;
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
    char arg[ARG];
    if (o->type == PL_KEY_BOOL) {
        if (value) return pl_fail(err, PL_E_USAGE, "%s: --%s takes no value", word, o->path);
    } else if (!value) {
        // "-5" may be meant as a number, "--threads" can only be a forgotten value.
        if (*at >= argc || (argv[*at][0] == '-' && argv[*at][1] == '-'))
            return pl_fail(err, PL_E_USAGE, "--%s: needs a value, %s", o->path, name_value(o, arg));
        value = argv[(*at)++];
    }
    a->given[a->n_given++] = (pl_cli_given){.option = o, .value = value};
    int64_t i;
    double  f;
    return value ? pl_option_parse(o, value, &i, &f, err) : PL_OK;
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

static const pl_key *known(const pl_cli_args *a, const char *name) {
    const pl_key *o = find_name(a, name, strlen(name));
    PL_CHECK(o, "no option --%s in this command's tables", name);
    return o;
}

bool pl_cli_has(const pl_cli_args *a, const char *name) {
    const pl_key *o = known(a, name);
    for (int i = 0; i < a->n_given; i++)
        if (a->given[i].option == o) return true;
    return false;
}

const char *pl_cli_text(const pl_cli_args *a, const char *name) {
    const pl_key *o = known(a, name);
    for (int i = a->n_given - 1; i >= 0; i--)
        if (a->given[i].option == o) return a->given[i].value;
    return o->deflt;
}

// Parses an option's value, as pl_cli_parse has checked it, or its default.
static int64_t parse_value(const pl_cli_args *a, const char *name, const char *text, double *f) {
    int64_t i;
    pl_err  err = {0};
    PL_CHECK(text && pl_option_parse(known(a, name), text, &i, f, &err) == PL_OK, "--%s has no value: %s", name,
             err.msg);
    return i;
}

int64_t pl_cli_int(const pl_cli_args *a, const char *name) {
    double f;
    return parse_value(a, name, pl_cli_text(a, name), &f);
}

double pl_cli_real(const pl_cli_args *a, const char *name) {
    double f;
    parse_value(a, name, pl_cli_text(a, name), &f);
    return f;
}

int pl_cli_choice(const pl_cli_args *a, const char *name) {
    const char *s = pl_cli_text(a, name);
    double      f;
    return s ? (int)parse_value(a, name, s, &f) : -1;
}

void pl_cli_list(const pl_cli_args *a, const char *name, const char **out, int *n) {
    const pl_key *o = known(a, name);
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

static void help_option(FILE *f, const pl_key *o) {
    char left[64], arg[ARG];
    int  n = o->letter ? snprintf(left, sizeof left, "-%c, --%s", o->letter, o->path)
                       : snprintf(left, sizeof left, "--%s", o->path);
    if (o->type != PL_KEY_BOOL && n > 0 && (size_t)n < sizeof left)
        snprintf(left + n, sizeof left - (size_t)n, " %s", name_value(o, arg));
    fprintf(f, "  %-27s %s%s", left, strlen(left) > 27 ? "\n                              " : "", o->help);
    if (o->deflt) fprintf(f, " [%s]", o->deflt);
    fprintf(f, "\n");
}

static void help_table(FILE *f, const char *title, const pl_key *table) {
    if (!table || !table->path) return;
    fprintf(f, "\n%s:\n", title);
    for (const pl_key *o = table; o->path; o++)
        help_option(f, o);
}

void pl_cli_help(FILE *f, const pl_command *c, const pl_key *recipe, const pl_key *ranks, const pl_key *common) {
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
