// `run`: the stages of a recipe in order, skipping those that are up to date.
//
//   kind: target    train
//   kind: drafter   generate (offline data)  ->  vocabularies  ->  train, once per drafter  ->  eval
//                   before training a routed head: traces of the drafter that it starts from (train/task/traces.h)
// Each stage leaves a stamp (train/source/stamp.h). A product whose stamp agrees is kept (an unfinished one is
// resumed); one whose stamp differs is made again. With a list `drafters` every item is trained in OUT/drafters/NAME,
// else the single drafter in OUT itself.
#ifndef PL_TRAIN_PIPELINE_H
#define PL_TRAIN_PIPELINE_H

#include "infer/cli/env.h"
#include "recipes/recipe.h"

// Returns the tables of all stages in the order of dumps; *n: their number.
const pl_key *const *pl_stage_tables(int *n);

// An item of `drafters`: it has a name and may give any key flagged `each` (kernels/base/key.h).
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

// Refuse with one line a recipe that lacks a key which a stage needs, or that a later stage is certain to refuse. They
// read the recipe, the configs of the target and of the models that drafters start from, and the manifest of a given
// dataset. They also refuse a file or folder in out_dir that has the name of a stage's output and is no run's product.
pl_status pl_pipeline_generate_check(const pl_recipe *r, const char *out_dir, pl_err *err);
pl_status pl_pipeline_texts_check(const pl_recipe *r, const char *out_dir, pl_err *err); // generate --texts
pl_status pl_pipeline_eval_check(const pl_recipe *r, const char *out_dir, pl_err *err);
pl_status pl_pipeline_check(const pl_recipe *r, const char *out_dir, pl_err *err);
// Checks for `train` alone; also refuses an out_dir with the state of a run that was begun with other keys, by the
// recipe stored with that state.
pl_status pl_pipeline_train_check(const pl_recipe *r, const char *out_dir, pl_err *err);

// Runs the stage `generate` (infer/generate/generate.h), with the layers that the recipe's drafters read.
pl_status pl_pipeline_generate(const pl_recipe *r, const char *out_dir, const pl_env *env, pl_err *err);
// Runs the stage `eval` on this run's drafters and those that eval.drafters names. Collective (pl_ranks_eval).
pl_status pl_pipeline_eval(const pl_recipe *r, const char *out_dir, const pl_env *env, pl_err *err);
// The drafters of the recipe's list: their number, after checking that each has a name; the folder in which `run`
// trains drafter i (owned by the caller; NULL: out of memory), and its recipe (owned by the caller).
pl_status pl_pipeline_drafters(int *n, const pl_recipe *r, pl_err *err);
char     *pl_pipeline_drafter_folder(const pl_recipe *r, int i, const char *out_dir);
pl_status pl_pipeline_drafter_recipe(pl_recipe **one, const pl_recipe *r, int i, const char *out_dir, pl_err *err);
// Writes the path of the target that the recipe's commands split over tensor-parallel ranks: target.path or, when a
// recipe of kind: target evaluates, the target that it has trained in out_dir. Owned by the caller; NULL if there is
// none.
pl_status pl_pipeline_target(char **path, const pl_recipe *r, const char *out_dir, bool evaluates, pl_err *err);
// Runs all stages; checks the recipe before it writes anything.
pl_status pl_pipeline_run(const pl_recipe *r, const char *out_dir, const pl_env *env, pl_err *err);

#endif
