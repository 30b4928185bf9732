// The target's answers to a recipe's prompts, made during training: the inputs of their generator, and the held-out
// ones.
#ifndef PL_TRAIN_ANSWERS_H
#define PL_TRAIN_ANSWERS_H

#include "infer/cli/env.h"
#include "infer/generate/generator.h"
#include "infer/model/llama.h"
#include "train/source/source.h"

typedef struct pl_answers {
    const pl_env        *env; // borrowed, as is the target
    const pl_llama      *target;
    pl_tokenizer        *tok;
    pl_prompts          *prompts; // those to train on
    pl_prompt_form       form;
    pl_generator_options opt; // refers to the form: the struct must stay in its place
} pl_answers;

// Reads data.*, target.* and the prompts of a recipe. Close it even on failure.
pl_status pl_answers_open(pl_answers *a, const pl_recipe *r, const pl_env *env, const pl_llama *target, const int *taps,
                          int n_taps, pl_err *err);
void      pl_answers_close(pl_answers *a);
// Sets the widths and sampling of a source of these answers.
void      pl_answers_describe(pl_feature_source *s, const pl_answers *a);

// Creates a source of `docs` held-out answers, to the jobs number[docs], which it frees, also on failure; NULL: to all
// jobs. An answer is made on first use, stays in memory, and is rounded as a dataset of these attributes stores it
// (NULL: not at all). a outlives the source.
pl_status pl_answers_hold(pl_feature_source **out, const pl_answers *a, int64_t *number, int64_t docs,
                          const pl_dataset_attrs *stored, pl_err *err);

#endif
