// Unigram language models (Kudo, arXiv 1804.10959) as Hugging Face's `tokenizers` has them: of all ways to cut a text
// into pieces, the one whose scores (log probabilities) add up to most, found by Viterbi's algorithm. A character that
// no piece begins with alone is unknown, at the lowest score less 10; neighbours that are unknown are one.
#ifndef PL_UNIGRAM_H
#define PL_UNIGRAM_H

#include "data/tokenizer/vocab.h"
#include "data/tokenizer/words.h"

typedef struct pl_unigram {
    const pl_vocab *vocab;   // borrowed; indexed
    double         *score;   // [vocab->n] owned
    double          unknown; // an unknown character's
    int32_t         unk;
    const int32_t  *byte_id; // [256] borrowed: unknown characters are spelt by these where all are there; NULL: never
    size_t          longest; // bytes of a piece
} pl_unigram;

void      pl_unigram_fini(pl_unigram *u);
// Once scores are there: what encoding needs to know of them.
void      pl_unigram_index(pl_unigram *u);
// Appends the ids of s[0..n), valid UTF-8.
pl_status pl_unigram_encode(const pl_unigram *u, const char *s, size_t n, pl_ids *o, pl_err *err);

#endif
