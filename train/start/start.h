// What a new drafter's weights are before training: random (train/loop/block.h), except that
//   the head starts as the target's output matrix or its best low-rank factors (drafter.head.init); specvocab's exact
//   rows, which are never trained, are always the target's
//   EAGLE-3's final norm starts as the target's, whose output its head is made for, where it is as wide
//   embeddings of a drafter's own start as the target's, or as a random projection of them (train/start/embed.h)
//   fc starts at the scale of what it reads, measured on the first training document
// or those of a trained drafter (drafter.start, train/start/start_from.h).
#ifndef PL_TRAIN_START_H
#define PL_TRAIN_START_H

#include "infer/cli/env.h"
#include "infer/drafter/backbone.h"
#include "train/loop/block.h"
#include "train/source/source.h"
#include "train/source/teacher.h"

typedef struct pl_start {
    const pl_recipe   *r;
    pl_backbone       *model;
    pl_param_block    *block; // of the model
    const pl_teacher  *teacher;
    pl_feature_source *source; // training documents
} pl_start;

// Of the checkpoint that drafter.start names: what a product that depends on it must remember. "" without one.
pl_status pl_start_identity(char out[17], const pl_recipe *r, pl_err *err);

// The parameter of the head that starts so, NULL-like -1: it has none.
int pl_start_param(const pl_backbone *b, pl_param_start what, bool fixed);

pl_status pl_start_weights(pl_start *s, const pl_env *env, pl_err *err);

#endif
