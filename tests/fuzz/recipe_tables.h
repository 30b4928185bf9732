// The program's own tables of recipe keys, as paceline.c has them.
#ifndef PL_FUZZ_RECIPE_TABLES_H
#define PL_FUZZ_RECIPE_TABLES_H

#include "train/run/pipeline.h"

static inline const pl_key *const *fuzz_tables(int *n) {
    return pl_stage_tables(n);
}

#endif
