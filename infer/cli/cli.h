// Command lines: each command has a table of options, rows as keys of recipes have (kernels/base/key.h); parsing,
// checking, defaults and help derive from it.
//
//   --name VALUE, --name=VALUE, -x VALUE, flags without a value, -- ends the options. An argument that does not start
// with '-' (or is "-") is positional, before or after options. A value that looks like an option must be given with
// '='.
#ifndef PL_CLI_H
#define PL_CLI_H

#include "infer/cli/env.h"

// Rows of a table of options, and options that several commands have. name: without dashes; arg: the placeholder of the
// value in help. TEXTS may be repeated; of the others the last value counts.
#define PL_OPTION_FLAG(name) .path = (name), .type = PL_KEY_BOOL
#define PL_OPTION_INT(name, arg_) .path = (name), .type = PL_KEY_INT, .arg = (arg_)
#define PL_OPTION_REAL(name, arg_) .path = (name), .type = PL_KEY_REAL, .arg = (arg_)
#define PL_OPTION_TEXT(name, arg_) .path = (name), .type = PL_KEY_STRING, .arg = (arg_)
#define PL_OPTION_TEXTS(name, arg_) .path = (name), .type = PL_KEY_STRING_LIST, .arg = (arg_)
#define PL_OPTION_CHOICE(name, ...) .path = (name), .type = PL_KEY_ENUM, .choices = {__VA_ARGS__}
// Names a tokenizer's splitting rule (data/tokenizer/tokenizer.h).
#define PL_OPTION_PRE                                                                                                  \
    { PL_OPTION_TEXT("pre", "NAME"), .help = PL_TOK_PRE_HELP }
#define PL_OPTION_TEMPERATURE                                                                                          \
    { PL_OPTION_REAL("temperature", "T"), .deflt = "0", .min = 0, .max = 1000, .help = "0: greedy" }
// Sets the number of layers of a --shape, a model of random weights. more: appended to the help.
#define PL_OPTION_LAYERS(more)                                                                                         \
    { PL_OPTION_INT("layers", "N"), .min = 1, .max = 1024, .help = "of --shape [the model's]" more }
// Sets the type of cached keys and values (infer/model/kv.h). of: the beginning of the help, "decode: ".
#define PL_OPTION_KV(of)                                                                                               \
    { PL_OPTION_CHOICE("kv", PL_KV_CHOICES), .deflt = "fp32", .help = of PL_KV_HELP }

#define PL_CLI_TABLES 4

typedef struct pl_cli_given {
    const pl_key *option;
    const char   *value; // NULL: a flag
} pl_cli_given;

typedef struct pl_cli_args {
    const pl_key *table[PL_CLI_TABLES]; // borrowed; NULL: fewer tables
    pl_cli_given *given;
    const char  **positional;
    int           n_given, n_positional;
} pl_cli_args;

typedef struct pl_command {
    const char   *name, *summary;
    const char   *positional; // "RECIPE", "[RUN...]"; NULL: none
    int           min_positional, max_positional;
    const pl_key *options;  // NULL: none of its own
    const char   *about;    // a paragraph for --help
    void (*lists)(FILE *f); // prints the names that an option accepts, after the options; NULL: none
    const char *example;
    bool        recipe;  // accepts the options of recipes (--set, --out)
    bool        ranks;   // ranks share its work: accepts their options (--ranks, ...)
    bool        parts;   // tensor-parallel target: accepts the same options except --ranks
    bool        devices; // computes on any --device; else only on the CPU
    // Writes the path of the model that the command runs on the device, NULL if the arguments name none, and the type
    // of its weights if they set one. Returns false if these arguments run no model. A NULL function: not known
    // beforehand.
    bool (*runs)(const pl_cli_args *a, const char **model, pl_dtype *weights);
    bool verdict; // prints its result also on failure
    pl_status (*run)(const pl_env *env, const pl_cli_args *a, pl_err *err);
} pl_command;

// Parses argv[*at..argc) into *a and sets *at to the first argument that is not parsed; values point into argv. stop:
// stops before the first positional argument. PL_E_USAGE names the option, the expected value and, for an unknown
// option, the nearest known name.
pl_status pl_cli_parse(pl_cli_args *a, int argc, char **argv, int *at, bool stop, pl_err *err);
void      pl_cli_args_fini(pl_cli_args *a);

// Return the last given value, else the default. They abort if no table has the option.
bool        pl_cli_has(const pl_cli_args *a, const char *name);  // true if given, not by default
const char *pl_cli_text(const pl_cli_args *a, const char *name); // NULL: not given and no default
int64_t     pl_cli_int(const pl_cli_args *a, const char *name);
double      pl_cli_real(const pl_cli_args *a, const char *name);
int         pl_cli_choice(const pl_cli_args *a, const char *name); // index; -1: not given and no default
// Writes all values of a repeatable option in order to out[0..*n); `out` has room for n_given.
void        pl_cli_list(const pl_cli_args *a, const char *name, const char **out, int *n);

// Parses token ids "1,2 3", separated by commas or white space, each in 0..2^31-1. The caller owns *ids (pl_free).
pl_status pl_cli_ids(const char *text, int32_t **ids, int64_t *n, pl_err *err);

// Prints the text of `paceline COMMAND --help`.
void pl_cli_help(FILE *f, const pl_command *c, const pl_key *recipe, const pl_key *ranks, const pl_key *common);

#endif
