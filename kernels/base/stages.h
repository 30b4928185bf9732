// The products of a recipe's stages, a bit each: pl_key.stages says by them whose bytes depend on a key, pl_recipe_hash
// hashes the keys of one. A key without any matters to all of them: those of the target and of its answers. Bit 31 is
// PL_KEY_NO_STAGE.
#ifndef PL_STAGES_H
#define PL_STAGES_H

enum {
    PL_STAGE_TOKENIZER = 1 << 4,
    PL_STAGE_TOKENS = 1 << 5,   // text as ids
    PL_STAGE_TARGET = 1 << 6,   // a pretrained target
    PL_STAGE_DRAFTER = 1 << 7,  // a trained drafter
    PL_STAGE_GENERATE = 1 << 8, // a dataset: the target's answers; of no key alone
    PL_STAGE_TRACES = 1 << 9,   // what a drafter with a full head met
    PL_STAGE_EVAL = 1 << 16,    // results
};
_Static_assert(PL_STAGE_TOKENIZER + PL_STAGE_TOKENS + PL_STAGE_TARGET + PL_STAGE_DRAFTER + PL_STAGE_GENERATE +
                       PL_STAGE_TRACES + PL_STAGE_EVAL ==
                   (PL_STAGE_TOKENIZER | PL_STAGE_TOKENS | PL_STAGE_TARGET | PL_STAGE_DRAFTER | PL_STAGE_GENERATE |
                    PL_STAGE_TRACES | PL_STAGE_EVAL),
               "two products share a bit");

#endif
