// Which device a command computes on.
//
// --device auto takes a GPU where the whole command runs there: where each rank has one, of which the target's
// operations and memory are within its reach. Else it takes the CPU, and says why. A run that goes on takes the device
// on which it began, whatever else there is.
#ifndef PL_TRAIN_DEVICE_H
#define PL_TRAIN_DEVICE_H

#include "infer/cli/cli.h"
#include "recipes/recipe.h"

#define PL_DEVICE_ARITHMETIC 32 // room for the name of one (pl_backend), its end included

// What decides.
typedef struct pl_device_wish {
    const char *name;                        // as --device takes it
    bool        needed;                      // the command computes on devices; else it runs on the CPU alone
    pl_comm    *comm;                        // ranks that share the work; NULL: one
    pl_comm    *tp;                          // ranks over which the target lies; NULL: it is whole
    const char *target;                      // its path; NULL: none is known beforehand
    pl_dtype    weights;                     // in which it is held; PL_I64: as the file stores it
    char        began[PL_DEVICE_ARITHMETIC]; // the arithmetic of the run that goes on; empty: none
} pl_device_wish;

// Opens the device; collective over both groups. why: auto's reason for the host, empty if it took a GPU or did not
// choose. PL_E_USAGE, PL_E_UNSUPPORTED, PL_E_DEVICE as pl_device_open.
pl_status pl_device_choose(const pl_backend **be, pl_err *why, const pl_device_wish *w, pl_err *err);

// Writes the arithmetic that a run's product in out_dir was begun in, empty where there is none: of a training state
// (trains), of the recipe's own drafter or one of its list, or else of the dataset (generates). What cannot be read is
// passed over, for the stage to tell.
void pl_device_began(char arithmetic[PL_DEVICE_ARITHMETIC], const pl_recipe *r, const char *out_dir, bool trains,
                     bool generates);

#endif
