// Shared by the stages of `run`: stamps, which identify the inputs of a product, and names that become folders.
//
// OUT/.stamps/NAME holds the 16-digit hash of a product's inputs: the recipe keys that matter to it, its inputs'
// content, the stage before it. A product whose stamp agrees is kept.
#ifndef PL_TRAIN_STAGE_H
#define PL_TRAIN_STAGE_H

#include "data/dataset/dataset.h"
#include "recipes/recipe.h"

bool pl_stage_stamped(const char *out_dir, const char *name, const char *hash);
// The product of a stage.
typedef struct pl_stage_product {
    const char        *path;     // below OUT
    const char *const *holds;    // its files (pl_dir_spares); NULL: it is a file
    const char        *if_holds; // another recipe's product is kept if it contains this name; NULL: it is not kept
    const char *const *beside;   // files of OUT that belong to it and move with a kept one; ends with NULL
} pl_stage_product;

// Checks before the hash is known: PL_E_INPUT if the product exists without a stamp, as it may not be a run's.
pl_status pl_stage_spares(const char *out_dir, const char *name, const pl_stage_product *product, pl_err *err);
// Writes the stamp of a product that is about to be made. A product of other inputs is moved away first: deleted or, if
// it is one to keep, renamed to OUT/PRODUCT.HASH, replacing earlier kept ones; if OUT/PRODUCT.HASH holds the wanted
// product it is renamed back. Refuses what pl_stage_spares refuses, and a product to be deleted that holds other files.
// Removes leftovers of dead processes beside and in it.
pl_status pl_stage_begin(const char *out_dir, const char *name, const char *hash, const pl_stage_product *product,
                         pl_err *err);
// Writes a second stamp, NAME.done: the product is complete. Ended: both stamps agree, and the product exists.
pl_status pl_stage_end(const char *out_dir, const char *name, const char *hash, pl_err *err);
bool      pl_stage_ended(const char *out_dir, const char *name, const char *hash, const char *product);

// *yes: the folder `dir` holds a complete dataset; a run that ended between its last document and its stamp left only
// the stamp to do. want: as in pl_dataset_open_options; a dataset of other settings is refused with one line.
pl_status pl_stage_dataset(const char *dir, const pl_dataset_attrs *want, bool *yes, pl_err *err);

// Checks that every item of a recipe's list has its own name, valid for files and folders: letters, digits, '.', '_',
// '-'. items: n structs of `size` bytes, each of which begins with the item's name.
pl_status pl_stage_names(const pl_recipe *r, const void *items, int n, size_t size, pl_err *err);

#endif
