// What the stages of `run` share: stamps, which say what a product was made from, and names that become folders.
//
// OUT/.stamps/NAME holds the 16-digit hash that a product was made from: of the recipe keys that matter to it, of its
// inputs' content, of the stage before it. A product whose stamp agrees is kept.
#ifndef PL_TRAIN_STAGE_H
#define PL_TRAIN_STAGE_H

#include "data/dataset/dataset.h"
#include "recipes/recipe.h"

bool      pl_stage_stamped(const char *out_dir, const char *name, const char *hash);
pl_status pl_stage_stamp(const char *out_dir, const char *name, const char *hash, pl_err *err);
// How a product that another recipe made is kept.
typedef struct pl_stage_keep {
    const char        *if_holds; // only one with this name in it is worth keeping
    const char *const *beside;   // files of OUT that belong to it and go with it; ends with NULL
} pl_stage_keep;

// What is made.
typedef struct pl_stage_product {
    const char          *path;  // below OUT
    const char *const   *holds; // what it has in it (pl_dir_spares); NULL: it is a file
    const pl_stage_keep *keep;  // NULL: one of another recipe is not kept
} pl_stage_product;

// PL_E_INPUT where the product is there and no stamp speaks of it: then nothing says that a run made it. What can be
// said before the hash is known.
pl_status pl_stage_spares(const char *out_dir, const char *name, const pl_stage_product *product, pl_err *err);
// The stamp of a product whose making begins now. The product, made from something else, goes away first: for good
// or, where `keep` finds it worth keeping, to OUT/PRODUCT.HASH, in the place of those kept before; and where
// OUT/PRODUCT.HASH holds what is wanted it is back under its name. One that pl_stage_spares refuses is refused, and one
// that would go for good and holds another file than the product's. What dead processes left beside and in it goes too.
pl_status pl_stage_begin(const char *out_dir, const char *name, const char *hash, const pl_stage_product *product,
                         pl_err *err);
// A second stamp, NAME.done: the product is whole. Ended: both stamps agree, and the product is there.
pl_status pl_stage_end(const char *out_dir, const char *name, const char *hash, pl_err *err);
bool      pl_stage_ended(const char *out_dir, const char *name, const char *hash, const char *product);

// *yes: whether the folder `dir` holds a dataset that is whole already; a run that ended between its last document and
// its stamp left only the stamp to do. want: as in pl_dataset_open_options; a dataset made with something else is
// refused with one line.
pl_status pl_stage_dataset(const char *dir, const pl_dataset_attrs *want, bool *yes, pl_err *err);

// Every item of a list of a recipe has a name of its own that a file or folder can have: letters, digits, '.', '_',
// '-'. items: n structs of `size` bytes, each of which begins with the item's name.
pl_status pl_stage_names(const pl_recipe *r, const void *items, int n, size_t size, pl_err *err);

#endif
