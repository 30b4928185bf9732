// Selects the device on which a command computes.
//
// --device auto takes a GPU if each rank has one that supports the target's operations and has memory for the target's
// weights and a quarter more; the memory of training is not estimated. Otherwise it takes the CPU and reports the
// reason. A resumed run takes the device on which the products in its folder began.
#ifndef PL_TRAIN_DEVICE_H
#define PL_TRAIN_DEVICE_H

#include "infer/cli/cli.h"
#include "recipes/recipe.h"
#include "train/loop/trainer.h"

// Inputs of the choice.
typedef struct pl_device_wish {
    const char *name;                      // the value of --device
    bool        needed;                    // the command computes on devices; else it runs on the CPU alone
    pl_comm    *comm;                      // ranks that share the work; NULL: one
    pl_comm    *tp;                        // tensor-parallel ranks of the target; NULL: one rank
    const char *target;                    // its path; NULL: not known beforehand
    pl_dtype    weights;                   // type of its weights in memory; PL_I64: as the file stores them
    char        began[PL_ARITHMETIC_ROOM]; // the arithmetic of the run that is resumed; empty: none
} pl_device_wish;

// Opens the device; collective over both groups. why: auto's reason for the host, empty if it took a GPU or did not
// choose. PL_E_USAGE, PL_E_UNSUPPORTED, PL_E_DEVICE as pl_device_open.
pl_status pl_device_choose(const pl_backend **be, pl_err *why, const pl_device_wish *w, pl_err *err);

// Writes the arithmetic in which a product in out_dir was begun, empty if there is none: from a training state (trains)
// of the recipe's own drafter or one of its list, or else from the dataset (generates). Skips files that cannot be
// read; the stage reports them. pl_device_choose takes rank 0's.
void pl_device_began(char arithmetic[PL_ARITHMETIC_ROOM], const pl_recipe *r, const char *out_dir, bool trains,
                     bool generates);

#endif
