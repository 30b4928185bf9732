// Recipes: one YAML file drives every stage. This module knows YAML, types, lines and spelling; what a key means is
// known to the module that brings the table row. Nested mappings are dotted paths:
//
//     train:              # "train.steps", also written  train.steps: 300  or  --set train.steps=300
//       steps: 300
//     drafters:           # a PL_KEY_LIST_OF_MAPS: --set drafters.0.head.rank=32
//       - name: slim
//         head: {kind: lowrank, rank: 64}
//
// A module brings a table of keys and the struct that they fill (kernels/base/key.h). Stages take the filled struct:
//
//     const pl_train_recipe *c = pl_recipe_struct(r, pl_train_keys);
//     if (c->train.warmup > c->train.steps)
//         return pl_recipe_fail(r, &c->train.warmup, err, "longer than train.steps");
//
// The tables say how a scalar is read, so nothing is guessed: `name: 123` is text for a STRING. Booleans are true and
// false. A quoted scalar is never a number or a boolean. Where a list is wanted a scalar is a list of one.
//
// A key whose value is null (or ~; --set key=null) is as if it were not given: it has its default, or no value. In an
// item that overrides keys (pl_key.overrides) null undoes what all items share: for that item the key is not given. The
// text null is written in quotes, for --set as well: 'key="null"'.
//
// Refused with file:line:column: unknown, duplicate and complex keys, wrong types, values out of range, keys with
// nothing behind them (an empty section is fine), null in a list, anchors, aliases, tags, tabs, bytes that are not
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
// A set's value is taken as it stands; for lists it is `a,b` or YAML flow `[a, "b,c"]`, for a LIST_OF_MAPS YAML flow;
// an index one past the last item appends one. Tables are borrowed and must outlive the recipe; a path that is both key
// and section, or a default that does not fit its row, aborts (the tables are code). A path may stand in several
// tables, each with a field of its own, where the rows agree in type, default and range; the first one's help is shown.
// PL_E_INPUT with one line, e.g.
//     recipes/x.yaml:7:10: train.steps: expected an integer, found "many"
//     recipes/x.yaml:7:3: train.stepz: unknown key; did you mean train.steps?
//     --set train.stepz=3: unknown key; did you mean train.steps?
// On failure *out is NULL.
pl_status pl_recipe_open(pl_recipe **out, const char *path, const pl_key *const tables[], int n_tables,
                         const char *const sets[], int n_sets, pl_err *err);
// The same from bytes in memory (need not end with NUL); `name` stands in messages where the file's path would.
pl_status pl_recipe_parse(pl_recipe **out, const char *text, size_t n, const char *name, const pl_key *const tables[],
                          int n_tables, const char *const sets[], int n_sets, pl_err *err);
void      pl_recipe_close(pl_recipe *r); // NULL is fine

// The struct that a table's keys have filled, borrowed until the recipe is closed; NULL: opened without that table.
const void *pl_recipe_struct(const pl_recipe *r, const pl_key *table);

// Below, a key is named by the address of its field in such a struct, or in an item of one of its lists: aborts when it
// is none. r: the recipe, also for fields of items.
bool        pl_recipe_given(const pl_recipe *r, const void *field); // in the file or by --set, not by default
// Whether the value is another than the key's default. Unlike pl_recipe_given it says the same of a recipe and of its
// dump, where all keys stand.
bool        pl_recipe_differs(const pl_recipe *r, const void *field);
// The default as --set would write it; NULL: none.
const char *pl_recipe_default(const pl_recipe *r, const void *field);
// "train.steps", "name" of an item.
const char *pl_recipe_path(const pl_recipe *r, const void *field);

// PL_OK when the key has a value or a default, else PL_E_INPUT with the key, its help and how to give it.
pl_status pl_recipe_require(const pl_recipe *r, const void *field, pl_err *err);
// PL_E_INPUT with the place where the key's value came from, for what only the key's owner can judge:
//     recipes/x.yaml:7:10: train.warmup: longer than train.steps
pl_status pl_recipe_fail(const pl_recipe *r, const void *field, pl_err *err, const char *fmt, ...) PL_PRINTF(4, 5);

// Keys that nothing reads. PL_E_INPUT with the place of the first one that has another value than its default and
// matters to the stages in `stages` alone, or that stands in `table` and not in `but` (NULL: an empty one).
pl_status pl_recipe_refuse_stages(const pl_recipe *r, unsigned stages, const char *why, pl_err *err);
pl_status pl_recipe_refuse_table(const pl_recipe *r, const pl_key *table, const pl_key *but, const char *why,
                                 pl_err *err);

// Lists whose items override keys (pl_key.overrides): what item says instead of r's key, as text; NULL: nothing. Where
// it says null, the key's default, NULL where it has none.
const char *pl_recipe_override(const pl_recipe *r, const void *item, const void *field);
// Whether it says something; also of lists.
bool        pl_recipe_overrides(const pl_recipe *r, const void *item, const void *field);
// The item says null: for it r's key is not given.
bool        pl_recipe_undone(const pl_recipe *r, const void *item, const void *field);
// As pl_recipe_fail, of what the item says instead; it must say something.
pl_status pl_recipe_fail_override(const pl_recipe *r, const void *item, const void *field, pl_err *err, const char *fmt,
                                  ...) PL_PRINTF(5, 6);
// The recipe of one such item alone: r with the item's values instead and without the list, then the `sets`. Its
// complaints begin with `name`.
pl_status pl_recipe_of_item(pl_recipe **out, const pl_recipe *r, const void *item, const char *name,
                            const char *const sets[], int n_sets, pl_err *err);

// The effective recipe as canonical YAML: every key that has a value or a default, sections in order of first mention,
// keys in table order. Reads back to the same effective recipe. *text is freed with pl_free; NULL on failure.
pl_status pl_recipe_dump(const pl_recipe *r, char **text, pl_err *err);
// Content hash (kernels/base/hash.h, 16 hex digits) of the dump, of those keys only whose row matters to one of the
// `stages` (0: all keys), without the defaults of late keys. In the items of a LIST_OF_MAPS the items' rows are asked
// too.
pl_status pl_recipe_hash(const pl_recipe *r, unsigned stages, char out[17], pl_err *err);
// The first key of those that has another value in `is` than in `was`, for messages: "train.lr, which was 0.005, not
// 0.009"; "" where none has. Both were opened with the same tables.
pl_status pl_recipe_change(const pl_recipe *was, const pl_recipe *is, unsigned stages, char *out, size_t size,
                           pl_err *err);
// The same of one item of a list, all its keys.
pl_status pl_recipe_item_hash(const pl_recipe *r, const void *item, char out[17], pl_err *err);
// All keys with type, default, range and help, as text. *text is freed with pl_free; NULL on failure.
pl_status pl_recipe_help(const pl_key *const tables[], int n_tables, char **text, pl_err *err);

#endif
