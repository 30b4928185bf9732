// Recipes: one YAML file drives every stage. This module handles YAML, types, line numbers and spelling; the module
// that defines a table row defines the key's meaning. Nested mappings are dotted paths:
//
//     train:              # "train.steps", also written  train.steps: 300  or  --set train.steps=300
//       steps: 300
//     drafters:           # a PL_KEY_LIST_OF_MAPS: --set drafters.0.head.rank=32
//       - name: slim
//         head: {kind: lowrank, rank: 64}
//
// A module defines a table of keys and the struct that they fill (kernels/base/key.h). Stages read the filled struct:
//
//     const pl_train_recipe *c = pl_recipe_struct(r, pl_train_keys);
//     if (c->train.warmup > c->train.steps)
//         return pl_recipe_fail(r, &c->train.warmup, err, "longer than train.steps");
//
// The tables determine a scalar's type, so nothing is guessed: `name: 123` is text for a STRING. Booleans are true and
// false. A quoted scalar is never a number or a boolean. A scalar in place of a list is a list of one.
//
// A key whose value is null (or ~; --set key=null) counts as not given: it has its default, or no value. In an item
// that overrides keys (pl_key.overrides) null removes the shared value: for that item the key is not given. The text
// null needs quotes, also with --set: 'key="null"'.
//
// Refused with file:line:column: unknown, duplicate and complex keys, wrong types, values out of range, keys
// without a value (an empty section is allowed), null in a list, anchors, aliases, tags, tabs, bytes that are not
// UTF-8, a second document.
#ifndef PL_RECIPE_H
#define PL_RECIPE_H

#include "kernels/base/key.h"
#include "kernels/base/status.h"

#define PL_RECIPE_MAX_PATH 128         // bytes of a path in a table, with its end
#define PL_RECIPE_MAX_ITEMS 256        // items of a LIST_OF_MAPS
#define PL_RECIPE_MAX_BYTES (1u << 20) // bytes of a recipe file

typedef struct pl_recipe pl_recipe;

// Reads the file (NULL: none, defaults only), then applies the `sets` "key.path=value" in order; the last one wins.
// A set's value is read verbatim; for lists it is `a,b` or YAML flow `[a, "b,c"]`, for a LIST_OF_MAPS YAML flow;
// an index one past the last item appends one. Tables are borrowed and must outlive the recipe; a path that is both key
// and section, or a default that does not fit its row, aborts (the tables are code). Several tables may have the same
// path, each with its own field, if the rows agree in type, default and range; the help is the first row's.
// PL_E_INPUT with one line, e.g.
//     recipes/x.yaml:7:10: train.steps: expected an integer, found "many"
//     recipes/x.yaml:7:3: train.stepz: unknown key; did you mean train.steps?
//     --set train.stepz=3: unknown key; did you mean train.steps?
// On failure *out is NULL.
pl_status pl_recipe_open(pl_recipe **out, const char *path, const pl_key *const tables[], int n_tables,
                         const char *const sets[], int n_sets, pl_err *err);
// Reads a recipe from bytes in memory (need not end with NUL); messages have `name` in place of the file's path.
pl_status pl_recipe_parse(pl_recipe **out, const char *text, size_t n, const char *name, const pl_key *const tables[],
                          int n_tables, const char *const sets[], int n_sets, pl_err *err);
void      pl_recipe_close(pl_recipe *r); // r may be NULL

// Parses the text of a command-line option, or of one of its values if it is a list, as a key's value is parsed: INT
// and ENUM (its index) into *i, INT and REAL into *f. Allocates nothing. PL_E_USAGE with one line that begins with the
// option.
pl_status pl_option_parse(const pl_key *row, const char *text, int64_t *i, double *f, pl_err *err);

// Returns the struct of a table's keys, borrowed until the recipe is closed; NULL: opened without that table.
const void *pl_recipe_struct(const pl_recipe *r, const pl_key *table);

// The functions below take a key as the address of its field in such a struct, or in an item of one of its lists; any
// other address aborts. r: the recipe, also for fields of items.
bool        pl_recipe_given(const pl_recipe *r, const void *field); // true if in the file or by --set, not by default
// Returns true if the value differs from the key's default. Unlike pl_recipe_given it has the same result for a recipe
// and for its dump, which has all keys.
bool        pl_recipe_differs(const pl_recipe *r, const void *field);
// Returns the default as text for --set; NULL: none.
const char *pl_recipe_default(const pl_recipe *r, const void *field);
// Returns the key's path: "train.steps", "name" of an item.
const char *pl_recipe_path(const pl_recipe *r, const void *field);

// Returns PL_OK if the key has a value or a default, else PL_E_INPUT with the key, its help and how to give it.
pl_status pl_recipe_require(const pl_recipe *r, const void *field, pl_err *err);
// Returns PL_E_INPUT with the place of the key's value, for errors that the key's owner detects:
//     recipes/x.yaml:7:10: train.warmup: longer than train.steps
pl_status pl_recipe_fail(const pl_recipe *r, const void *field, pl_err *err, const char *fmt, ...) PL_PRINTF(4, 5);

// Refuse keys that are not read: PL_E_INPUT with the place of the first key that differs from its default and matters
// only to the stages in `stages`, or is in `table` and not in `but` (NULL: an empty table).
pl_status pl_recipe_refuse_stages(const pl_recipe *r, unsigned stages, const char *why, pl_err *err);
pl_status pl_recipe_refuse_table(const pl_recipe *r, const pl_key *table, const pl_key *but, const char *why,
                                 pl_err *err);

// Returns, for lists whose items override keys (pl_key.overrides), the item's value of r's key as text; NULL: not
// overridden. For null in the item: the key's default, NULL if it has none.
const char *pl_recipe_override(const pl_recipe *r, const void *item, const void *field);
// Returns true if the item overrides the key; also for lists.
bool        pl_recipe_overrides(const pl_recipe *r, const void *item, const void *field);
// Returns true if the item has null: r's key is not given for it.
bool        pl_recipe_undone(const pl_recipe *r, const void *item, const void *field);
// As pl_recipe_fail, for the item's overriding value, which must exist.
pl_status pl_recipe_fail_override(const pl_recipe *r, const void *item, const void *field, pl_err *err, const char *fmt,
                                  ...) PL_PRINTF(5, 6);
// Opens the recipe of one such item alone: r with the item's values and without the list, then the `sets`. Its error
// messages begin with `name`.
pl_status pl_recipe_of_item(pl_recipe **out, const pl_recipe *r, const void *item, const char *name,
                            const char *const sets[], int n_sets, pl_err *err);

// Writes the effective recipe as canonical YAML: every key that has a value or a default, sections in order of first
// occurrence, keys in table order. It reads back to the same effective recipe. *text is freed with pl_free; NULL on
// failure.
pl_status pl_recipe_dump(const pl_recipe *r, char **text, pl_err *err);
// Computes the content hash (kernels/base/hash.h, 16 hex digits) of the dump, restricted to keys that matter to one of
// the `stages` (0: all keys), without the defaults of late keys. The restriction also applies to the keys of items of a
// LIST_OF_MAPS.
pl_status pl_recipe_hash(const pl_recipe *r, unsigned stages, char out[17], pl_err *err);
// Writes the first of these keys whose value differs between `was` and `is`, for messages: "train.lr, which was 0.005,
// not 0.009"; "" if none differs. Both must be opened with the same tables.
pl_status pl_recipe_change(const pl_recipe *was, const pl_recipe *is, unsigned stages, char *out, size_t size,
                           pl_err *err);
// Computes the hash of all keys of one item of a list.
pl_status pl_recipe_item_hash(const pl_recipe *r, const void *item, char out[17], pl_err *err);
// Writes all keys with type, default, range and help as text. *text is freed with pl_free; NULL on failure.
pl_status pl_recipe_help(const pl_key *const tables[], int n_tables, char **text, pl_err *err);

#endif
