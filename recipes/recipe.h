// Recipes: one YAML file drives every stage. This module knows YAML, types, lines and spelling; what a key means is
// known to the module that brings the table row. Nested mappings are dotted paths:
//
//     train:              # "train.steps", also written  train.steps: 300  or  --set train.steps=300
//       steps: 300
//     drafters:           # a PL_RECIPE_LIST_OF_MAPS: --set drafters.0.head.rank=32
//       - name: slim
//         head: {kind: lowrank, rank: 64}
//
// A module brings a table that ends with an empty row:
//
//     static const pl_recipe_key train_keys[] = {
//         {.path = "train.steps", .type = PL_RECIPE_INT, .deflt = "300", .min = 1, .max = INFINITY, .help = "steps"},
//         {.path = "train.decay", .type = PL_RECIPE_ENUM, .deflt = "cosine", .choices = {"cosine", "linear"}},
//         {0}};
//
// The tables say how a scalar is read, so nothing is guessed: `name: 123` is text for a STRING. Booleans are true and
// false. A quoted scalar is never a number or a boolean. Where a list is wanted a scalar is a list of one.
// Refused with file:line:column: unknown, duplicate and complex keys, wrong types, values out of range, null values
// (an empty section is fine), anchors, aliases, tags, tabs, bytes that are not UTF-8, a second document.
#ifndef PL_RECIPE_H
#define PL_RECIPE_H

#include "kernels/base/status.h"
#include <stdbool.h>
#include <stdint.h>

#define PL_RECIPE_MAX_CHOICES 32       // names of an ENUM, plus the NULL that ends them
#define PL_RECIPE_MAX_PATH 128         // bytes of a path in a table, with its end
#define PL_RECIPE_MAX_ITEMS 256        // items of a LIST_OF_MAPS
#define PL_RECIPE_MAX_BYTES (1u << 20) // bytes of a recipe file
#define PL_RECIPE_NO_STAGE (1u << 31)  // `stages` of a key that changes no product (log intervals and the like)

typedef enum pl_recipe_type {
    PL_RECIPE_INT,    // int64_t, decimal
    PL_RECIPE_REAL,   // finite double
    PL_RECIPE_BOOL,   // true | false
    PL_RECIPE_STRING, // UTF-8
    PL_RECIPE_ENUM,   // one of `choices`
    PL_RECIPE_PATH,   // a file or folder, not empty, kept as written (relative to the current directory)
    PL_RECIPE_STRING_LIST,
    PL_RECIPE_INT_LIST,    // the range holds for each element
    PL_RECIPE_REAL_LIST,   // the range holds for each element
    PL_RECIPE_LIST_OF_MAPS // each item is a mapping with the keys of `item`
} pl_recipe_type;

typedef struct pl_recipe_key {
    const char    *path; // "train.steps"; NULL ends a table
    pl_recipe_type type;
    const char    *deflt;    // as --set would write it ("300", "1e-4", "a,b", "[]"); NULL: none, see pl_recipe_require
    double         min, max; // inclusive; both 0: unlimited; -INFINITY or INFINITY: unlimited on that side
    const char    *choices[PL_RECIPE_MAX_CHOICES]; // ENUM; ends with NULL
    const char    *help;                           // one line, no full stop
    const struct pl_recipe_key *item;              // LIST_OF_MAPS: the items' own table, paths relative to the item
    unsigned stages; // bits of the stages whose product depends on the key; 0: every stage (the safe side)
    // A key that came after runs were made: its default, which there must be and which never changes, is left out of
    // hashes, so that they go on.
    bool     late;
} pl_recipe_key;

// A recipe, or one item of a LIST_OF_MAPS (a view, owned by its recipe, for every getter below).
typedef struct pl_recipe pl_recipe;

// Reads the file (NULL: none, defaults only), then applies the `sets` "key.path=value" in order; the last one wins.
// A set's value is taken as it stands; for lists it is `a,b` or YAML flow `[a, "b,c"]`, for a LIST_OF_MAPS YAML flow;
// an index one past the last item appends one. Tables are borrowed and must outlive the recipe; a path that stands
// twice, or is both key and section, or a default that does not fit its row, aborts (the tables are code).
// PL_E_INPUT with one line, e.g.
//     recipes/x.yaml:7:10: train.steps: expected an integer, found "many"
//     recipes/x.yaml:7:3: train.stepz: unknown key; did you mean train.steps?
//     --set train.stepz=3: unknown key; did you mean train.steps?
// On failure *out is NULL.
pl_status pl_recipe_open(pl_recipe **out, const char *path, const pl_recipe_key *const tables[], int n_tables,
                         const char *const sets[], int n_sets, pl_err *err);
// The same from bytes in memory (need not end with NUL); `name` stands in messages where the file's path would.
pl_status pl_recipe_parse(pl_recipe **out, const char *text, size_t n, const char *name,
                          const pl_recipe_key *const tables[], int n_tables, const char *const sets[], int n_sets,
                          pl_err *err);
// For a recipe that the program made of others: neither a line of its text nor a --set of its is the user's, so that
// its complaints name keys alone, behind the name that it was parsed with.
void      pl_recipe_composed(pl_recipe *r);
void      pl_recipe_close(pl_recipe *r); // NULL is fine; not for views

// The value, or the default. Aborts when the path is not in the tables, has another type, or (numbers, booleans,
// choices) has neither value nor default: ask pl_recipe_require before. Pointers live as long as the recipe.
int64_t     pl_recipe_int(const pl_recipe *r, const char *path);
double      pl_recipe_real(const pl_recipe *r, const char *path); // also an INT
bool        pl_recipe_bool(const pl_recipe *r, const char *path);
const char *pl_recipe_str(const pl_recipe *r, const char *path);    // STRING, PATH, ENUM; NULL: no value, no default
int         pl_recipe_choice(const pl_recipe *r, const char *path); // ENUM: index into the row's choices
// Lists: *n elements; NULL and 0 when absent or empty.
const char *const *pl_recipe_list(const pl_recipe *r, const char *path, int *n);
const int64_t     *pl_recipe_ints(const pl_recipe *r, const char *path, int *n);
const double      *pl_recipe_reals(const pl_recipe *r, const char *path, int *n);
// LIST_OF_MAPS: the number of items, and item i of them (0 <= i < count, else it aborts).
int                pl_recipe_list_count(const pl_recipe *r, const char *path);
const pl_recipe   *pl_recipe_item(const pl_recipe *r, const char *path, int i);

bool        pl_recipe_knows(const pl_recipe *r, const char *path); // the path is a key of the tables
bool        pl_recipe_has(const pl_recipe *r, const char *path);   // given in the file or by --set, not by default
// Whether the value is another than the key's default. Unlike pl_recipe_has it says the same of a recipe and of its
// dump, where all keys stand.
bool        pl_recipe_differs(const pl_recipe *r, const char *path);
// The default as --set would write it; NULL: none.
const char *pl_recipe_default(const pl_recipe *r, const char *path);

// PL_OK when the key has a value or a default, else PL_E_INPUT with the key, its help and how to give it.
pl_status pl_recipe_require(const pl_recipe *r, const char *path, pl_err *err);
// PL_E_INPUT with the place where the key's value came from, for what only the key's owner can judge:
//     recipes/x.yaml:7:10: train.warmup: longer than train.steps
pl_status pl_recipe_fail(const pl_recipe *r, const char *path, pl_err *err, const char *fmt, ...) PL_PRINTF(4, 5);

// The effective recipe as canonical YAML: every key that has a value or a default, sections in order of first mention,
// keys in table order. Reads back to the same effective recipe. *text is freed with pl_free; NULL on failure.
pl_status pl_recipe_dump(const pl_recipe *r, char **text, pl_err *err);
// Content hash (kernels/base/hash.h, 16 hex digits) of the dump, of those keys only whose row matters to one of the
// `stages` (0: all keys), without the defaults of late keys. In the items of a LIST_OF_MAPS the items' rows are asked
// too.
pl_status pl_recipe_hash(const pl_recipe *r, unsigned stages, char out[17], pl_err *err);
// All keys with type, default, range and help, as text. *text is freed with pl_free; NULL on failure.
pl_status pl_recipe_help(const pl_recipe_key *const tables[], int n_tables, char **text, pl_err *err);

#endif
