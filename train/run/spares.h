// What training finds in its folder and may write over.
#ifndef PL_TRAIN_SPARES_H
#define PL_TRAIN_SPARES_H

#include "recipes/recipe.h"

// Before the first byte. PL_OK: what stands in out_dir under the names that training writes is a run's, of this or an
// earlier build, and the recipe reads none of it. PL_E_INPUT names the first that is not.
pl_status pl_train_spares(const pl_recipe *r, const char *out_dir, pl_err *err);

#endif
