// A small target that was trained a little, its answers as a dataset, and drafters trained on them by recipe.
#ifndef PL_TEST_TRAIN_SMALL_H
#define PL_TEST_TRAIN_SMALL_H

#include "infer/cli/env.h"

extern char small_base[64]; // the folder of all of it: target/, data/ and what small_run makes

// cmocka's group setup (trains the target, generates the dataset) and teardown.
int                      small_setup(void **state);
int                      small_teardown(void **state);
extern const char        small_data_lines[]; // what every run over the dataset begins with
// A recipe from lines, each a key=value, with BASE for the folder.
pl_recipe               *small_recipe(const char *lines);
pl_env                   small_env(pl_pool *pool); // on small_backend
extern const pl_backend *small_backend;            // NULL: the CPU
// A run over the dataset into BASE/out, the recipe's lines continued by `extra`. stop_after: see pl_train_run_until.
pl_status                small_run(const char *out, const char *extra, int64_t stop_after, pl_pool *pool, pl_err *err);
// File `name` of a run; *data is the caller's.
void                     small_read(const char *out, const char *name, uint8_t **data, size_t *n);
void                     small_same(const char *a, const char *b, const char *name);
// A number of metrics.jsonl: where it stands first and last.
void                     small_metric(const char *out, const char *key, double *first, double *last);

#endif
