// Command lines: each command brings a table of options; parsing, checking, defaults and help derive from it.
//
//   --name VALUE, --name=VALUE, -x VALUE, flags without a value, -- ends the options. What does not start with '-' (and
// a lone "-") is a positional argument, wherever it stands. A value that looks like an option must be given with '='.
#ifndef PL_CLI_H
#define PL_CLI_H

#include "infer/cli/env.h"

typedef enum pl_cli_type { PL_CLI_FLAG, PL_CLI_TEXT, PL_CLI_INT, PL_CLI_REAL, PL_CLI_CHOICE } pl_cli_type;

typedef struct pl_cli_option {
    const char *name;   // without dashes; NULL ends a table
    char        letter; // 0: none
    pl_cli_type type;
    const char *arg;      // what stands for the value in help; CHOICE: the choices, "bf16|fp32"
    const char *deflt;    // as it would be typed; NULL: none
    double      min, max; // INT, REAL: inclusive
    bool        many;     // may be given again; without it the last one counts
    const char *help;     // one line
} pl_cli_option;

#define PL_CLI_TABLES 4

typedef struct pl_cli_given {
    const pl_cli_option *option;
    const char          *value; // NULL: a flag
} pl_cli_given;

typedef struct pl_cli_args {
    const pl_cli_option *table[PL_CLI_TABLES]; // borrowed; NULL: fewer tables
    pl_cli_given        *given;
    const char         **positional;
    int                  n_given, n_positional;
} pl_cli_args;

typedef struct pl_command {
    const char          *name, *summary;
    const char          *positional; // "RECIPE", "[RUN...]"; NULL: none
    int                  min_positional, max_positional;
    const pl_cli_option *options; // NULL: none of its own
    const char          *about;   // a paragraph for --help
    void (*lists)(FILE *f);       // what names an option takes, after the options; NULL: nothing to list
    const char *example;
    bool        recipe;  // takes the options of recipes (--set, --out) too
    bool        ranks;   // several processes share its work: takes their options (--ranks, ...) too
    bool        parts;   // its target may lie over several processes: takes the same but for --ranks
    bool        devices; // computes on any --device; else on the CPU alone
    // The path of the model that the command runs on the device, NULL: the arguments name none. False: with these
    // arguments it runs nothing. NULL: nothing is known beforehand.
    bool (*runs)(const pl_cli_args *a, const char **model);
    bool verdict; // its result is told even where it is a failure
    pl_status (*run)(const pl_env *env, const pl_cli_args *a, pl_err *err);
} pl_command;

// Reads argv[*at..argc), adding to *a; values stay in argv. stop: ends before the first positional argument. *at is
// where reading ended. PL_E_USAGE names the option, what was expected and, for an unknown one, the nearest known name.
pl_status pl_cli_parse(pl_cli_args *a, int argc, char **argv, int *at, bool stop, pl_err *err);
void      pl_cli_args_fini(pl_cli_args *a);

// The value given last, else the default. Aborts when no table has the option.
bool        pl_cli_has(const pl_cli_args *a, const char *name);  // given, not by default; flags: set
const char *pl_cli_text(const pl_cli_args *a, const char *name); // NULL: neither given nor a default
int64_t     pl_cli_int(const pl_cli_args *a, const char *name);
double      pl_cli_real(const pl_cli_args *a, const char *name);
int         pl_cli_choice(const pl_cli_args *a, const char *name); // index; -1: neither given nor a default
// Everything given for an option that may be given again, in order: the first *n of `out`, which has room for n_given.
void        pl_cli_list(const pl_cli_args *a, const char *name, const char **out, int *n);

// Token ids "1,2 3": separated by commas or white space, each in 0..2^31-1. *ids is the caller's (pl_free).
pl_status pl_cli_ids(const char *text, int32_t **ids, int64_t *n, pl_err *err);

// `paceline COMMAND --help`.
void        pl_cli_help(FILE *f, const pl_command *c, const pl_cli_option *recipe, const pl_cli_option *ranks,
                        const pl_cli_option *common);
// The nearest of names[0..n) to a word if it is close enough, else NULL.
const char *pl_cli_nearest(const char *word, const char *const *names, int n);

#endif
