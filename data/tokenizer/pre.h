// Pre-tokenizers by name, for vocabularies whose files name none, and the vocabularies that are known without a name.
// Only data/tokenizer*.c include this.
#ifndef PL_TOKENIZER_PRE_H
#define PL_TOKENIZER_PRE_H

#include "data/tokenizer/hf.h"

// Sets normaliser and pre-tokenizer of a byte-level model (h->model indexed, merges read): `pre` by name, or, NULL, by
// the fingerprint of the vocabulary. where: the file, for messages. Anything else is refused by name.
pl_status pl_pre_choose(pl_tokenizer *tok, const char *where, const char *pre, pl_err *err);

// Added tokens that the vocabulary's files do not hold: those of tokenizer_config.json (added_tokens_decoder), else,
// for a vocabulary whose fingerprint is known, its publisher's. Then bos, eos and add_bos as the family has them.
pl_status pl_pre_added(pl_tokenizer *tok, const pl_json *config, pl_err *err);

#endif
