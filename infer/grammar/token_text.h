// Tokens as bytes, inside infer/grammar.
#ifndef PL_TOKEN_TEXT_H
#define PL_TOKEN_TEXT_H

#include "data/tokenizer/lexicon.h"
#include "infer/grammar/calls.h"

#define PL_NO_TEXT (-1)
#define PL_TOKEN_TEXT_BYTES 1024 // of a token at most; a longer one is never allowed

struct pl_token_text {
    pl_lexicon lexicon;
    int32_t   *shared;     // [lexicon.n] bytes that a string shares with the one before it
    bool       spelt[256]; // there is a token of this byte alone, or of this mark
    int32_t    vocab;
    // [vocab] of each token, an index of the lexicon; PL_NO_TEXT: a special token, or one without text; below: the
    // mark PL_NO_TEXT - 1 - string
    int32_t   *string;
    int32_t    mark[PL_MARKS]; // special tokens of marks; -1: there is none, so the mark is text
};

#endif
