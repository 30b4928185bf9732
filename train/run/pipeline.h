// `run`: the stages of a recipe in order, skipping what is up to date.
//
//   kind: target    train
//   kind: drafter   generate (offline data)  ->  vocabularies  ->  train, once per drafter  ->  eval
//                   before a routed head is trained: traces of the drafter that it starts from (train/task/traces.h)
// Each stage leaves a stamp (train/source/stamp.h). A product whose stamp agrees is kept (and an unfinished one gone on
// with); one whose stamp differs is made anew. With a list `drafters` every item is trained in OUT/drafters/NAME, else
// the one drafter in OUT itself.
#ifndef PL_TRAIN_PIPELINE_H
#define PL_TRAIN_PIPELINE_H

#include "infer/cli/env.h"
#include "recipes/recipe.h"

// The tables of every stage, in the order in which dumps show them.
const pl_key *const *pl_stage_tables(int *n);

// An item of `drafters`: beside its name it may give any key flagged `each` (kernels/base/key.h).
typedef struct pl_pipeline_drafter {
    const char *name;
} pl_pipeline_drafter;

typedef struct pl_pipeline_recipe {
    PL_KEY_ITEMS(pl_pipeline_drafter) drafters;
} pl_pipeline_recipe;
extern const pl_key                     pl_pipeline_keys[];
static inline const pl_pipeline_recipe *pl_pipeline_recipe_of(const pl_recipe *r) {
    return pl_recipe_struct(r, pl_pipeline_keys);
}

// Refuse with one line a recipe that lacks a key which a stage needs, or of which it can be seen that a later stage
// will refuse it. They read the recipe, the configs of the target and of what drafters start from, and the manifest of
// a dataset that is given. Refused too: what stands in out_dir under a name that the stage writes and no run has made.
pl_status pl_pipeline_generate_check(const pl_recipe *r, const char *out_dir, pl_err *err);
pl_status pl_pipeline_texts_check(const pl_recipe *r, const char *out_dir, pl_err *err); // generate --texts
pl_status pl_pipeline_eval_check(const pl_recipe *r, const char *out_dir, pl_err *err);
pl_status pl_pipeline_check(const pl_recipe *r, const char *out_dir, pl_err *err);
// Of `train` alone; also where out_dir holds the state of a run that was begun with other keys, by the recipe that is
// kept beside it.
pl_status pl_pipeline_train_check(const pl_recipe *r, const char *out_dir, pl_err *err);

// The stage `generate` (infer/generate/generate.h), with the layers that the recipe's drafters read.
pl_status pl_pipeline_generate(const pl_recipe *r, const char *out_dir, const pl_env *env, pl_err *err);
// The stage `eval`: this run's drafters, and what eval.drafters names. Collective (pl_ranks_eval).
pl_status pl_pipeline_eval(const pl_recipe *r, const char *out_dir, const pl_env *env, pl_err *err);
// Of the drafters in the recipe's list: how many there are, each with a name; the folder (the caller's; NULL: memory
// ran out) and the recipe (likewise) that `run` trains drafter i in and by.
pl_status pl_pipeline_drafters(int *n, const pl_recipe *r, pl_err *err);
char     *pl_pipeline_drafter_folder(const pl_recipe *r, int i, const char *out_dir);
pl_status pl_pipeline_drafter_recipe(pl_recipe **one, const pl_recipe *r, int i, const char *out_dir, pl_err *err);
// The path of the target that the recipe's commands lay over ranks: target.path or, where a recipe of kind: target
// evaluates, the target that it has trained in out_dir. The caller's; NULL where there is none.
pl_status pl_pipeline_target(char **path, const pl_recipe *r, const char *out_dir, bool evaluates, pl_err *err);
// Checks first, before anything is made.
pl_status pl_pipeline_run(const pl_recipe *r, const char *out_dir, const pl_env *env, pl_err *err);

#endif
