// The program's own tables of recipe keys, as paceline.c has them.
#ifndef PL_FUZZ_RECIPE_TABLES_H
#define PL_FUZZ_RECIPE_TABLES_H

#include "infer/eval/eval.h"
#include "infer/generate/generate.h"
#include "train/keys.h"
#include "train/run/pipeline.h"

static const pl_recipe_key *const fuzz_tables[] = {pl_generate_keys, pl_train_keys, pl_pipeline_keys, pl_eval_keys};
enum { FUZZ_TABLES = sizeof fuzz_tables / sizeof *fuzz_tables };

#endif
