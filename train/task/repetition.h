// Sequence-level unlikelihood: lowers the probability of tokens that the model repeats in its own continuations
// (Welleck et al. 2020, arXiv 1908.04319, section 5.2, with n-grams of 4).
//
// Prefixes of text are continued greedily with the current weights. R is the set of tokens of a continuation y inside a
// 4-gram that occurred before in y (infer/eval/repeated.h). The step's cross-entropy gets the added term
//   L = weight sum over t in R of -log(1 - p(y_t | y_<t))        dz_k = weight p_c / (1 - p_c) ([k = c] - p_k), c = y_t
// That is cross-entropy's gradient times -p_c / (1 - p_c), so these are rows of negative weight (train/task/lm.h), for
// which p_c comes from a forward before. 1 - p_c is clamped to at least PL_UNLIKELY_MIN, the resolution of fp32; for
// tokens of higher probability the gradient is smaller than the equation's.
#ifndef PL_TRAIN_REPETITION_H
#define PL_TRAIN_REPETITION_H

#include "train/task/continuation.h"
#include "train/task/lm.h"

#define PL_UNLIKELY_MIN 1e-6

typedef struct pl_repetition_options {
    int    sequences; // per slot
    int    prefix;    // the most tokens of text
    int    length;    // the most tokens of a continuation; the model's end of text ends it earlier
    double weight;    // of a repeated token; a token of text has 1
} pl_repetition_options;

typedef struct pl_repetition {
    pl_repetition_options o;
    pl_lm                *lm; // borrowed: the model that writes and learns
    pl_engine            *engine;
    int32_t              *ids;               // [sequences, prefix + length]
    float                *weight;            // [sequences, prefix + length] weight of each row's label
    bool                 *again;             // [length]
    pl_continuation      *text;              // [sequences] of `ids`; prompt: tokens of text
    int64_t               written, repeated; // tokens of the last continuations; of these, tokens in R
} pl_repetition;

// Returns the rows of a slot that the sequences take in addition to those of text.
int64_t pl_repetition_rows(const pl_repetition_options *o);

// Allocates the buffers. lm must have room for these rows, the model positions for prefix + length. Call
// pl_repetition_fini even on failure.
pl_status pl_repetition_init(pl_repetition *r, const pl_repetition_options *o, pl_lm *lm, const pl_backend *be,
                             pl_pool *pool, pl_err *err);
void      pl_repetition_fini(pl_repetition *r);

// Continues prefix i, ids[i * (prefix + length)], of text[i].prompt >= 1 tokens each, which the caller has filled in,
// and sets the weights of repeated tokens. Clears the rows of lm: call this first, then add the rows of text, then call
// pl_repetition_add.
pl_status pl_repetition_write(pl_repetition *r, pl_err *err);
// Adds the sequences that have repeated tokens to the rows of lm.
void      pl_repetition_add(const pl_repetition *r);

#endif
