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
// As the door does it: `stage` of a recipe's lines by `ranks` processes into BASE/out. Rank 0's status; the others have
// ended. Rank 1 dies after small_dies_after_ms (0: it does not). small_apart: rank R works in the folder BASE/hostR.
typedef pl_status (*small_stage)(const pl_recipe *r, const char *dir, const pl_env *env, int64_t stop_after,
                                 pl_err *err);
extern int  small_dies_after_ms;
extern bool small_apart;
pl_status   small_ranks(int ranks, const char *out, const char *lines, small_stage stage, int64_t stop_after,
                        pl_err *err);
// File `name` of a run; *data is the caller's.
void        small_read(const char *out, const char *name, uint8_t **data, size_t *n);
void        small_same(const char *a, const char *b, const char *name);
// A number of metrics.jsonl: where it stands first and last.
void        small_metric(const char *out, const char *key, double *first, double *last);

// Several drafters by one recipe ("kind: drafter"), as `run` makes them: BASE/out by the small target, a generation and
// evaluation of little work, and what `more` says.
#define SMALL_TRAIN "train: {steps: 2, slots: 1, slot_rows: 128, lr: 1e-3, warmup: 1, holdout: 4, unroll: 2}\n"
#define SMALL_ROUTED "{kind: dynaspec, clusters: 8, width: 8, top: 2}"
pl_status small_pipeline(const char *out, const char *more, pl_err *err);
bool      small_exists(const char *name); // BASE/name

// BASE/others.jsonl: as many prompts, the first of which begins otherwise.
void small_other_prompts(void);
// BASE/talks.jsonl, n conversations of one or three turns, and BASE/t.jinja, which puts their words in a row.
void small_conversations(int n);

#endif
