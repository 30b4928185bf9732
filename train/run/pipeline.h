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

extern const pl_recipe_key pl_pipeline_keys[];

pl_status pl_pipeline_run(const pl_recipe *r, const char *out_dir, const pl_env *env, pl_err *err);

#endif
