// A run's folder (--out of a command with a recipe): the names of commands' outputs in it, and the recipe stored there.
#ifndef PL_FOLDER_H
#define PL_FOLDER_H

#include "recipes/recipe.h"

// The recipe with which the folder's checkpoints were begun; only training writes it.
#define PL_TRAIN_BEGUN "checkpoints/recipe.yaml"

// Removes temporary files that dead processes left in the folder (pl_dir_sweep).
void      pl_folder_sweep(const char *dir);
// Returns PL_OK if a dump of a recipe may be written to `path`: there is no file, or a dump of this or an earlier
// build. A dump has all keys with a default that all builds have, and no comment. Else PL_E_INPUT, as pl_file_spares.
pl_status pl_recipe_spares(const char *path, const pl_key *const tables[], int n_tables, pl_err *err);
// Returns PL_E_INPUT with the place of the key if the file that it names (*field, may be NULL) is `product` or is in
// it: a command must not overwrite its input.
pl_status pl_recipe_spares_read(const pl_recipe *r, const char *const *field, const char *product, pl_err *err);

#endif
