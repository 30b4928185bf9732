// Tokens as bytes, inside infer/grammar.
#ifndef PL_TOKEN_TEXT_H
#define PL_TOKEN_TEXT_H

#include "data/tokenizer/lexicon.h"

#define PL_TOKEN_TEXT_BYTES 1024 // of a token at most; a longer one is never allowed

struct pl_token_text {
    pl_lexicon lexicon;
    int32_t   *shared;     // [lexicon.n] bytes that a string shares with the one before it
    bool       spelt[256]; // there is a token of this byte alone
    int32_t    vocab;
    int32_t   *string; // [vocab] of each token, an index of the lexicon; -1: a special token, or one without text
};

#endif
