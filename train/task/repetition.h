// Sequence-level unlikelihood: what a model repeats when it goes on by itself is made less likely
// (Welleck et al. 2020, arXiv 1908.04319, section 5.2, with n-grams of 4).
//
// Prefixes of text are continued greedily with the weights as they stand. R are the tokens of a continuation y inside a
// 4-gram that it had before (infer/eval/repeated.h); beside the step's cross-entropy
//   L = weight sum over t in R of -log(1 - p(y_t | y_<t))        dz_k = weight p_c / (1 - p_c) ([k = c] - p_k), c = y_t
// That is cross-entropy's gradient times -p_c / (1 - p_c), so these are rows of negative weight (train/task/lm.h), for
// which p_c is taken from a forward before. 1 - p_c is held above PL_UNLIKELY_MIN, as fp32 knows no less: a token that
// is surer than that is pushed less than the equation says.
#ifndef PL_TRAIN_REPETITION_H
#define PL_TRAIN_REPETITION_H

#include "train/task/continuation.h"
#include "train/task/lm.h"

#define PL_UNLIKELY_MIN 1e-6

typedef struct pl_repetition_options {
    int    sequences; // of a slot
    int    prefix;    // tokens of text, at most
    int    length;    // tokens of a continuation, at most: the model's own end of text ends it
    double weight;    // of a repeated token beside a token of text
} pl_repetition_options;

typedef struct pl_repetition {
    pl_repetition_options o;
    pl_lm                *lm; // borrowed: what goes on and what learns
    pl_engine            *engine;
    int32_t              *ids;               // [sequences, prefix + length]
    int32_t              *n;                 // [sequences] tokens of each
    int32_t              *prompt;            // [sequences] of them, text
    float                *weight;            // [sequences, prefix + length] of the label of each row
    bool                 *again;             // [length]
    pl_continuation      *text;              // [sequences]
    int64_t               written, repeated; // tokens of the last continuations; of them, those in R
} pl_repetition;

// Rows of a slot that the sequences take, beside those of text.
int64_t pl_repetition_rows(const pl_repetition_options *o);

// lm has room for these rows, the model positions for prefix and length together. To be ended in any case.
pl_status pl_repetition_init(pl_repetition *r, const pl_repetition_options *o, pl_lm *lm, const pl_backend *be,
                             pl_pool *pool, pl_err *err);
void      pl_repetition_fini(pl_repetition *r);

// Continues prefix i, ids[i * (prefix + length)], of prompt[i] >= 1 tokens each, which the caller has filled in, and
// weighs what they repeat. Rows of lm are dropped: first this, then the rows of text, then pl_repetition_add.
pl_status pl_repetition_write(pl_repetition *r, pl_err *err);
// Adds the sequences that repeat anything to the rows of lm.
void      pl_repetition_add(const pl_repetition *r);

#endif
