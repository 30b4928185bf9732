// Unigram language models (Kudo, arXiv 1804.10959) of Hugging Face's `tokenizers`: of all segmentations of a text into
// pieces, the one with the largest sum of scores (log probabilities), found by Viterbi's algorithm. A character that is
// no piece by itself is unknown, at the lowest score less 10; adjacent unknown characters are one.
#ifndef PL_UNIGRAM_H
#define PL_UNIGRAM_H

#include "data/tokenizer/vocab.h"
#include "data/tokenizer/words.h"

typedef struct pl_unigram {
    const pl_vocab *vocab;   // borrowed; indexed
    double         *score;   // [vocab->n] owned
    double          unknown; // score of an unknown character
    int32_t         unk;
    const int32_t  *byte_id; // [256] borrowed: unknown characters are spelled in these if all exist; NULL: never
    size_t          longest; // bytes of a piece
} pl_unigram;

void      pl_unigram_fini(pl_unigram *u);
// Computes encoding's data from the scores; call it once they are set.
void      pl_unigram_index(pl_unigram *u);
// Appends the ids of s[0..n), valid UTF-8.
pl_status pl_unigram_encode(const pl_unigram *u, const char *s, size_t n, pl_ids *o, pl_err *err);

#endif
