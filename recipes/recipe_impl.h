// Shared by recipe*.c. Private to recipes/.
#ifndef PL_RECIPE_IMPL_H
#define PL_RECIPE_IMPL_H

#include "kernels/base/status.h"
#include "recipes/recipe.h"

// The place of a value or an error: in an option, in a --set, in a file, or (none of them) in a table's default.
typedef struct pl_recipe_place {
    const char *option;       // the option's name; NULL: none
    const char *set;          // the --set argument; NULL: none
    const char *name;         // the file; NULL: a default
    int         line, column; // in the file, from 1; 0: the file as a whole
    const char *at;           // "" or the item the path is relative to, "drafters.0."
    const char *path;         // of the key; NULL: none
} pl_recipe_place;

typedef struct pl_recipe_value {
    bool        present, given;
    bool        undone; // an overriding item has null for the key
    const char *set;    // owned by the recipe
    int         line, column;
    int64_t     i; // INT; ENUM: index into choices
    double      f; // REAL, and INT as a double
    bool        b;
    char       *text; // scalars in canonical form, so that 1e-4 and 0.0001 dump and hash alike
    int         n;
    char      **texts; // lists of scalars, each as `text`
    int64_t    *ints;
    double     *reals;
    pl_recipe **items;   // LIST_OF_MAPS
    void       *structs; // array of their structs
} pl_recipe_value;

typedef struct pl_recipe_seen {
    char *path;
    int   line;
} pl_recipe_seen;

typedef struct pl_recipe_alias {
    int           row; // the row that has its value
    const pl_key *key;
    int           table;
} pl_recipe_alias;

struct pl_recipe {
    char            *name; // file, or NULL; the views share the root's
    char            *at;   // "" or "drafters.0."
    const pl_key   **tables;
    void           **structs; // one per table: the struct of its keys, NULL: none
    int              n_tables;
    const pl_key   **rows; // of all tables
    int             *table_of;
    int              n;
    pl_recipe_alias *alias; // additional fields of keys that are in several tables
    int              n_alias;
    pl_key          *each;         // of an item: rows of the keys that it overrides; owned
    bool             is_item;      // an item: its structs are in the list's array
    pl_recipe_value *values;       // one per row
    pl_recipe_value *defaults;     // likewise, the initial values
    int              line, column; // of an item in the file; 0: not from the file
    bool             composed;
    char           **sets; // root: copies of the --set arguments
    int              n_sets;
    pl_recipe_seen  *seen; // while reading: keys and sections so far, to detect duplicates
    int              n_seen;
};

// recipe_fields.c
// Allocates and fills the structs of r's tables from its final values.
pl_status pl_recipe_fill(pl_recipe *r, pl_err *err);
void      pl_recipe_drop_fields(pl_recipe *r);

// Returns "lr" for "train.lr": a key's name in items that override it.
const char *pl_recipe_short_path(const char *path);

// recipe.c
pl_recipe *pl_recipe_item_create(const pl_recipe *parent, const pl_key *row, int index, pl_err *err);
void       pl_recipe_destroy(pl_recipe *r); // a recipe or an item
// Resets the key to its default, as if it were not given.
pl_status  pl_recipe_unset(pl_recipe *r, int index, const pl_recipe_place *p, pl_err *err);
int        pl_recipe_find(const pl_recipe *r, const char *path); // index of the row or -1
// Returns the first row below the section `path`, or -1 if it is no section.
int        pl_recipe_section(const pl_recipe *r, const char *path);
// Returns true if the value of row i is its default; false for a LIST_OF_MAPS.
bool       pl_recipe_is_default(const pl_recipe *r, int i);

// recipe_value.c
pl_status   pl_recipe_place_fail(const pl_recipe_place *p, pl_err *err, const char *fmt, ...) PL_PRINTF(3, 4);
pl_status   pl_recipe_unknown(const pl_recipe *r, const pl_recipe_place *p, pl_err *err);
// Fails with "expected an integer, found WHAT".
pl_status   pl_recipe_mismatch(const pl_key *row, const pl_recipe_place *p, const char *what, pl_err *err);
// Set a scalar, or append an element to a list; v starts zeroed, and the caller clears it on failure.
pl_status   pl_recipe_value_scalar(pl_recipe_value *v, const pl_key *row, const char *text, bool quoted,
                                   const pl_recipe_place *p, pl_err *err);
pl_status   pl_recipe_value_append(pl_recipe_value *v, const pl_key *row, const char *text, bool quoted,
                                   const pl_recipe_place *p, pl_err *err);
pl_status   pl_recipe_value_append_item(pl_recipe_value *v, pl_recipe *item, const pl_recipe_place *p, pl_err *err);
void        pl_recipe_value_clear(pl_recipe_value *v);
void        pl_recipe_value_move(pl_recipe_value *dst, pl_recipe_value *src); // leaves src empty
bool        pl_recipe_type_is_list(pl_key_type t);
const char *pl_recipe_type_name(pl_key_type t); // "an integer", ...
// Writes the range of a row as words (" from 1 to 9", " of at least 1", or "") into buf.
const char *pl_recipe_range(const pl_key *row, char *buf, size_t size);
// Writes text in quotes into buf, control characters escaped, cut after about 48 bytes.
const char *pl_recipe_quote(const char *text, char *buf, size_t size);

// recipe_yaml.c
// Reads a whole document of keys into r.
pl_status pl_recipe_read_document(pl_recipe *r, const char *text, size_t n, pl_err *err);
// Reads one value in YAML flow style for a list row, from a --set or a default at place p.
pl_status pl_recipe_read_flow(pl_recipe_value *v, const pl_recipe *r, const pl_key *row, const char *text,
                              const pl_recipe_place *p, pl_err *err);

#endif
