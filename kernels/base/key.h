// Keys: named, typed settings. A row of a table has a setting's name, type, default, range and help: of a key of
// recipes, with the field of a struct that its value goes to (recipes/recipe.h), or of a command-line option
// (infer/cli/cli.h). Both are parsed and checked alike.
//
//     typedef struct pl_train_recipe {
//         struct { int64_t steps; double lr; int schedule; } train;
//     } pl_train_recipe;
//
//     const pl_key pl_train_keys[] = {
//         {PL_KEY_FIELD_INT(pl_train_recipe, train.steps), .deflt = "300", .min = 1, .max = INFINITY, .help = "steps"},
//         {PL_KEY_FIELD_REAL(pl_train_recipe, train.lr), .deflt = "1e-3", .min = 0, .max = 10},
//         {PL_KEY_FIELD_ENUM(pl_train_recipe, train.schedule), .deflt = "cosine", .names = pl_schedule_name},
//         PL_KEYS_END(pl_train_recipe)};
//
// The key is the field's own name, dots and all, so that neither can be misspelt: a field that the struct lacks, or one
// of another type, does not compile.
#ifndef PL_KEY_H
#define PL_KEY_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

// The products of a recipe's stages, a bit each: pl_key.stages has those whose bytes depend on a key, pl_recipe_hash
// hashes the keys of one. A key without any matters to all of them: those of the target and of its answers. Bit 31 is
// PL_KEY_NO_STAGE.
enum {
    PL_STAGE_TOKENIZER = 1 << 4,
    PL_STAGE_TOKENS = 1 << 5,   // text as ids
    PL_STAGE_TARGET = 1 << 6,   // a pretrained target
    PL_STAGE_DRAFTER = 1 << 7,  // a trained drafter
    PL_STAGE_GENERATE = 1 << 8, // a dataset: the target's answers; of no key alone
    PL_STAGE_TRACES = 1 << 9,   // what a drafter with a full head met
    PL_STAGE_EVAL = 1 << 16,    // results
};
_Static_assert(PL_STAGE_TOKENIZER + PL_STAGE_TOKENS + PL_STAGE_TARGET + PL_STAGE_DRAFTER + PL_STAGE_GENERATE +
                       PL_STAGE_TRACES + PL_STAGE_EVAL ==
                   (PL_STAGE_TOKENIZER | PL_STAGE_TOKENS | PL_STAGE_TARGET | PL_STAGE_DRAFTER | PL_STAGE_GENERATE |
                    PL_STAGE_TRACES | PL_STAGE_EVAL),
               "two products share a bit");

#define PL_KEY_MAX_CHOICES 32      // names of an ENUM, plus the NULL that ends them
#define PL_KEY_NO_STAGE (1u << 31) // `stages` of a key that changes no product (log intervals and the like)

typedef enum pl_key_type {
    PL_KEY_INT,    // decimal; field: int64_t or int
    PL_KEY_REAL,   // finite; double
    PL_KEY_BOOL,   // true | false; bool
    PL_KEY_STRING, // UTF-8; const char *, NULL without value and default
    PL_KEY_ENUM,   // one of some names; int, its index
    PL_KEY_PATH,   // a file or folder, not empty, kept as written (relative to the current directory); const char *
    PL_KEY_STRING_LIST,
    PL_KEY_INT_LIST,    // the range holds for each element
    PL_KEY_REAL_LIST,   // the range holds for each element
    PL_KEY_LIST_OF_MAPS // each item is a mapping with the keys of `item`; field: PL_KEY_ITEMS(item's struct)
} pl_key_type;

typedef struct pl_strings {
    int                n;
    const char *const *at;
} pl_strings;

typedef struct pl_ints {
    int            n;
    const int64_t *at;
} pl_ints;

typedef struct pl_reals {
    int           n;
    const double *at;
} pl_reals;

#define PL_KEY_ITEMS(S)                                                                                                \
    struct {                                                                                                           \
        int      n;                                                                                                    \
        const S *at;                                                                                                   \
    }

// Where a value goes. PL_FIELD_NONE: nowhere.
typedef enum pl_field_form {
    PL_FIELD_NONE,
    PL_FIELD_INT,
    PL_FIELD_INT64,
    PL_FIELD_REAL,
    PL_FIELD_BOOL,
    PL_FIELD_TEXT,
    PL_FIELD_STRINGS,
    PL_FIELD_INTS,
    PL_FIELD_REALS,
    PL_FIELD_ITEMS
} pl_field_form;

typedef struct pl_field {
    pl_field_form form;
    size_t        offset; // in the struct
} pl_field;

typedef struct pl_key {
    const char *path; // "train.steps"; of an option its name without dashes; NULL ends a table
    pl_key_type type;
    const char *deflt;    // as --set would write it ("300", "1e-4", "a,b", "[]"); NULL: none
    double      min, max; // inclusive; both 0: unlimited; -INFINITY or INFINITY: unlimited on that side
    const char *choices[PL_KEY_MAX_CHOICES]; // ENUM; ends with NULL
    const char *(*names)(int i);             // ENUM, instead of choices: the owner's table; NULL past its last name
    const char          *help;               // one line, no full stop
    const char          *also;   // its name (without sections) in other programs, told to who gives that; NULL: none
    const struct pl_key *item;   // LIST_OF_MAPS: the items' own table, paths relative to the item
    unsigned             stages; // bits of the stages whose product depends on the key; 0: every stage (the safe side)
    // A key that came after runs were made: its default, which there must be and which never changes, is left out of
    // hashes, so that they go on.
    bool                 late;
    // LIST_OF_MAPS: an item may also give any key of the recipe that is flagged `each`, by its name without the first
    // section ("lr" for train.lr): the recipe of that item alone has this value instead.
    bool                 overrides;
    bool                 each;
    bool                 unstored; // of keys that a checkpoint states as well: how it is trained, which none states
    pl_field             field;
    size_t               size;   // of the struct, in the row that ends a table
    const char          *arg;    // of an option: its value's placeholder in help; an ENUM's are its choices
    char                 letter; // of an option: its short form; 0: none
} pl_key;

// The fields of a row. S: the struct; f: the field, which is also the key's path.
#define PL_KEY_FIELD_INT(S, f) PL_KEY_AS_INT(#f, S, f)
#define PL_KEY_FIELD_REAL(S, f) PL_KEY_AS_(#f, S, f, PL_KEY_REAL, double : PL_FIELD_REAL)
#define PL_KEY_FIELD_BOOL(S, f) PL_KEY_AS_(#f, S, f, PL_KEY_BOOL, bool : PL_FIELD_BOOL)
#define PL_KEY_FIELD_STRING(S, f) PL_KEY_AS_(#f, S, f, PL_KEY_STRING, const char * : PL_FIELD_TEXT)
#define PL_KEY_FIELD_PATH(S, f) PL_KEY_AS_(#f, S, f, PL_KEY_PATH, const char * : PL_FIELD_TEXT)
#define PL_KEY_FIELD_ENUM(S, f) PL_KEY_AS_(#f, S, f, PL_KEY_ENUM, int : PL_FIELD_INT)
#define PL_KEY_FIELD_STRINGS(S, f) PL_KEY_AS_(#f, S, f, PL_KEY_STRING_LIST, pl_strings : PL_FIELD_STRINGS)
#define PL_KEY_FIELD_INTS(S, f) PL_KEY_AS_(#f, S, f, PL_KEY_INT_LIST, pl_ints : PL_FIELD_INTS)
#define PL_KEY_FIELD_REALS(S, f) PL_KEY_AS_(#f, S, f, PL_KEY_REAL_LIST, pl_reals : PL_FIELD_REALS)
#define PL_KEY_FIELD_ITEMS(S, f, T)                                                                                    \
    .path = #f, .type = PL_KEY_LIST_OF_MAPS,                                                                           \
    .field = {_Generic(((S *)0)->f.at, const T * : PL_FIELD_ITEMS), offsetof(S, f)}
// The same for a struct that one section of keys fills: path is a literal, "drafter.head.rank" for the field rank.
#define PL_KEY_AS_INT(path, S, f) PL_KEY_AS_(path, S, f, PL_KEY_INT, int64_t : PL_FIELD_INT64, int : PL_FIELD_INT)
#define PL_KEY_AS_REAL(path, S, f) PL_KEY_AS_(path, S, f, PL_KEY_REAL, double : PL_FIELD_REAL)
#define PL_KEY_AS_BOOL(path, S, f) PL_KEY_AS_(path, S, f, PL_KEY_BOOL, bool : PL_FIELD_BOOL)
#define PL_KEY_AS_PATH(path, S, f) PL_KEY_AS_(path, S, f, PL_KEY_PATH, const char * : PL_FIELD_TEXT)
#define PL_KEY_AS_ENUM(path, S, f) PL_KEY_AS_(path, S, f, PL_KEY_ENUM, int : PL_FIELD_INT)
#define PL_KEY_AS_(name, S, f, t, ...)                                                                                 \
    .path = (name), .type = (t), .field = {_Generic(((S *)0)->f, __VA_ARGS__), offsetof(S, f)}
#define PL_KEYS_END(S)                                                                                                 \
    { .size = sizeof(S) }

// The i-th name of an ENUM's row; NULL past the last.
static inline const char *pl_key_choice(const pl_key *row, int i) {
    if (row->names) return row->names(i);
    return i < PL_KEY_MAX_CHOICES ? row->choices[i] : NULL;
}

#endif
