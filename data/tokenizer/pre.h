// Pre-tokenizers by name, for vocabularies whose files name none, and vocabularies recognised by their hash. Only
// data/tokenizer*.c include this.
#ifndef PL_TOKENIZER_PRE_H
#define PL_TOKENIZER_PRE_H

#include "data/tokenizer/hf.h"

// A pre-tokenizer: each expression cuts the words of the one before, its matches being words of their own.
#define PL_PRE_SPLITS 6
typedef struct pl_pre_row {
    const char *name;
    const char *also; // further names, separated by spaces
    const char *split[PL_PRE_SPLITS];
    bool        nfc, add_bos, ignore_merges; // BOS unless the file says otherwise; a word that is a piece is not merged
    const char *refused;                     // why it is not supported; NULL: it is
} pl_pre_row;
// NULL: no such name.
const pl_pre_row *pl_pre_row_of(const char *name);

// Sets normaliser and pre-tokenizer of a byte-level model (h->model indexed, merges read): `pre` by name, or, NULL, by
// the fingerprint of the vocabulary. where: the file, for messages. Refuses others by name.
pl_status pl_pre_choose(pl_tokenizer *tok, const char *where, const char *pre, pl_err *err);

// Adds tokens that the vocabulary's files do not hold: those of tokenizer_config.json (added_tokens_decoder), else, for
// a vocabulary with a known fingerprint, its publisher's. Then sets the family's bos, eos and add_bos.
pl_status pl_pre_added(pl_tokenizer *tok, const pl_json *config, pl_err *err);

#endif
