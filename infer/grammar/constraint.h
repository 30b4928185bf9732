// A grammar as a constraint on one session's answer (infer/sample/distribution.h), over the model's vocabulary, which
// may have more rows than the tokenizer has tokens.
#ifndef PL_GRAMMAR_CONSTRAINT_H
#define PL_GRAMMAR_CONSTRAINT_H

#include "infer/grammar/grammar.h"
#include "infer/sample/distribution.h"

typedef struct pl_grammar_constraint {
    pl_constraint  base;
    pl_grammar    *grammar; // owned
    int64_t        n_said;  // tokens of the answer that `state` is behind
    int32_t        state;
    const int32_t *stop; // [n_stop] borrowed
    int            n_stop;
    int32_t        words, own; // of the mask, and of those the grammar's
    uint32_t      *mask;       // owned
} pl_grammar_constraint;

// Takes the grammar over, also on failure. stop: tokens that end the answer, at least one; they are allowed where the
// text may end. A grammar that failed allows them too, so that the answer ends: pl_grammar_failed says so.
pl_status pl_grammar_constraint_init(pl_grammar_constraint *c, pl_grammar *g, int64_t vocab, const int32_t *stop,
                                     int n_stop, pl_err *err);
void      pl_grammar_constraint_fini(pl_grammar_constraint *c); // zeroed is fine
// Returns true if the answer is a whole text of the grammar.
bool      pl_grammar_constraint_met(pl_grammar_constraint *c, const int32_t *answer, int64_t n);

#endif
