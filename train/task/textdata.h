// The first stages of pretraining: text files to a tokenizer and token files, each skipped when it is up to date.
//
// In the run's directory: tokenizer.model; tokens/train.tokens and tokens/held.tokens (none without held-out text).
// Each product has a stamp, the hash of its inputs: the text's bytes, the settings, the tokenizer. The tokenizer is
// trained on the training text alone.
#ifndef PL_TRAIN_TEXTDATA_H
#define PL_TRAIN_TEXTDATA_H

#include "data/dataset/tokens.h"
#include "data/tokenizer/tokenizer.h"
#include "recipes/recipe.h"

typedef struct pl_textdata {
    pl_tokenizer *tok;
    char         *tokenizer_path; // as for pl_tokenizer_open
    pl_tokens    *train, *held;   // held NULL: no text is held out
    char          stamp[17];      // of the token files
} pl_textdata;

// Call it before they are made: refuses files of these names that no run has made.
pl_status pl_textdata_spares(const pl_recipe *r, const char *out_dir, pl_err *err);
pl_status pl_textdata_prepare(pl_textdata *d, const pl_recipe *r, const char *out_dir, pl_err *err);
void      pl_textdata_close(pl_textdata *d);

#endif
