// The target's layers that drafters read (taps): a dataset must hold them besides the last hidden state.
#ifndef PL_TRAIN_TAPS_H
#define PL_TRAIN_TAPS_H

#include "infer/drafter/backbone.h"
#include "recipes/recipe.h"

// Sets the taps of the drafter that a recipe trains, for a target of n_layers; n 0: it reads the last hidden state
// alone. A drafter with a routed head has those of the checkpoint that it starts from. PL_E_INPUT: the target has no
// such layer.
pl_status pl_drafter_taps(pl_taps *t, const pl_recipe *r, int n_layers, pl_err *err);

// Adds missing taps, ascending. PL_E_INPUT: more than an engine gives in one pass.
pl_status pl_taps_add(pl_taps *all, const pl_taps *more, pl_err *err);
bool      pl_taps_same(const pl_taps *a, const pl_taps *b);
// Writes "2,5,8".
void      pl_taps_text(char to[64], const pl_taps *t);

#endif
