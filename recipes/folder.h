// A run's folder (--out of a command that takes a recipe): the names of what commands make in it, and the recipe that
// is kept there.
#ifndef PL_FOLDER_H
#define PL_FOLDER_H

#include "recipes/recipe.h"

// Where the recipe stands that the checkpoints in the folder were begun with; no other stage writes it.
#define PL_TRAIN_BEGUN "checkpoints/recipe.yaml"

// Removes what dead processes left of the files that commands write into the folder (pl_dir_sweep).
void      pl_folder_sweep(const char *dir);
// PL_OK where `path` is free for the dump of a recipe: nothing is there, or a dump of this or an earlier build. A dump
// has every key that has a default and was there in all of them, and no comment. Else PL_E_INPUT, as pl_file_spares.
pl_status pl_recipe_spares(const char *path, const pl_key *const tables[], int n_tables, pl_err *err);
// PL_E_INPUT with the place of the key where the path or file that it names (*field, may be NULL) is `product` or lies
// in it: what a command reads is not what it writes.
pl_status pl_recipe_spares_read(const pl_recipe *r, const char *const *field, const char *product, pl_err *err);

#endif
