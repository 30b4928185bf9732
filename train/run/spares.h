// Checks that training may overwrite the files in its folder.
#ifndef PL_TRAIN_SPARES_H
#define PL_TRAIN_SPARES_H

#include "recipes/recipe.h"

// Returns PL_OK if all files in out_dir with names that training writes are a run's products, of this or an earlier
// build, and the recipe reads none of them. PL_E_INPUT names the first other one. Call it before training writes.
pl_status pl_train_spares(const pl_recipe *r, const char *out_dir, pl_err *err);

#endif
