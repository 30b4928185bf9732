// What is held out of a head that proposes from other logits than those it is trained on (SpecVocab,
// infer/head/specvocab.c): the distribution of exact logits over the candidates that the scorer lists,
//   q = softmax of z over C,  C the best `candidates` of the scorer,  accept = sum over C of min(p, q)
// with p the target's distribution over its whole vocabulary, and argmax q. Both are those of decoding to rounding
// (scores are summed in another order here, so that candidates at the edge of the list may differ).
#ifndef PL_TRAIN_RESCORED_H
#define PL_TRAIN_RESCORED_H

#include "infer/drafter/backbone.h"

typedef struct pl_rescored {
    const pl_backbone *model;       // borrowed
    pl_tensor          wt;          // the target's output matrix, row-major; borrowed
    double             teacher_cap; // of its logits, set by the caller; 0: none
    pl_ctx             ctx;
    pl_arena           arrays;                // of the four lists below
    int32_t           *row, *of, *id, *token; // [block], [block], [block, candidates] twice
    pl_tensor          x, last_hidden;        // of the call in hand
    int64_t            m;                     // rows of the block in hand
    pl_tensor          score, exact, teacher; // of that block
    double             lse_of[64];            // of the teacher rows
    float             *accept;
    int32_t           *argmax;
} pl_rescored;

// Whether a head's own distribution is another than the one that is trained.
bool      pl_rescored_wanted(const pl_head *h);
pl_status pl_rescored_create(pl_rescored *r, const pl_backbone *model, pl_tensor wt, const pl_backend *be,
                             pl_pool *pool, pl_err *err);
void      pl_rescored_destroy(pl_rescored *r);

// x [n, d]: what the head reads, row i predicts what row teacher_row[i] of last_hidden [T, d] does (< 0: does not
// count, nor does weight 0; such rows are left as they are). stat [T, 4]: pl_divergence's teacher_stat, where the host
// reads it. accept, argmax [n]. A score that is NaN has no place among the best: refused with one line.
pl_status pl_rescored_run(pl_rescored *r, pl_tensor x, pl_tensor last_hidden, pl_tensor stat,
                          const int32_t *teacher_row, const float *weight, int64_t n, float *accept, int32_t *argmax,
                          pl_err *err);

#endif
