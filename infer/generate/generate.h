// `generate`: the stage that writes a dataset, and what it shares with online training.
#ifndef PL_GENERATE_H
#define PL_GENERATE_H

#include "infer/generate/generator.h"
#include "recipes/recipe.h"

extern const pl_recipe_key pl_generate_keys[];

// What `generate` and online training take from a recipe (data.*), ready for pl_generator_create.
void pl_generator_options_from(pl_generator_options *o, const pl_recipe *r, const int *taps, int n_taps);

// Prompts of a recipe, split: data.prompts without its held-out part (eval.holdout), or both given apart.
pl_status pl_recipe_prompts(const pl_recipe *r, pl_prompts **train, pl_prompts **held, pl_err *err);

// The stage: writes out_dir/dataset (resuming one that was stopped).
pl_status pl_generate_run(const pl_recipe *r, const char *out_dir, const pl_env *env, pl_err *err);

#endif
