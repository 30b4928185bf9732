// The recipe keys of this floor: what is trained, on what, how. The target's own and the seed are infer's
// (infer/generate/generator.h).
#ifndef PL_TRAIN_KEYS_H
#define PL_TRAIN_KEYS_H

#include "checkpoints/hf_head.h"
#include "infer/drafter/backbone.h"
#include "recipes/recipe.h"
#include "train/loop/trainer.h"

// Bits of pl_recipe_key.stages: the products whose bytes depend on a key.
enum {
    PL_STAGE_TOKENIZER = 1 << 4,
    PL_STAGE_TOKENS = 1 << 5,
    PL_STAGE_TARGET = 1 << 6,  // a pretrained target
    PL_STAGE_DRAFTER = 1 << 7, // a trained drafter
    PL_STAGE_TRACES = 1 << 9,  // what a drafter with a full head met (1 << 8: answers, infer/generate/generator.h)
};

extern const pl_recipe_key pl_train_keys[];

// drafter.kind: the model, which EAGLE-2 shares with EAGLE-1.
const pl_backbone_kind *pl_train_backbone(const pl_recipe *r);
// drafter.head.
pl_hf_head              pl_train_head_read(const pl_recipe *r);

// The parts of a recipe that every kind of training shares.
pl_status pl_train_options_read(pl_trainer_options *o, const pl_recipe *r, const char *out_dir, pl_err *err);

#endif
