// Held-out scoring of a head that proposes from other logits than those it is trained on (SpecVocab,
// infer/head/specvocab.c): the softmax of exact logits over the candidates that the scorer lists,
//   q = softmax of z over C,  C the best `candidates` of the scorer,  accept = sum over C of min(p, q)
// with p the target's distribution over its whole vocabulary, and argmax q. Both equal decoding's up to rounding
// (scores are summed in another order here, so the last candidates of a list may differ).
#ifndef PL_TRAIN_RESCORED_H
#define PL_TRAIN_RESCORED_H

#include "infer/drafter/backbone.h"

typedef struct pl_rescored {
    const pl_backbone *model;       // borrowed
    pl_tensor          wt;          // the target's output matrix, row-major; borrowed
    double             teacher_cap; // soft cap of the target's logits, set by the caller; 0: none
    pl_ctx             ctx;
    pl_arena           arrays;                // memory of the four lists below
    int32_t           *row, *of, *id, *token; // [block], [block], [block, candidates] twice
    pl_tensor          x, last_hidden;        // inputs of the current call
    int64_t            m;                     // rows of the current block
    pl_tensor          score, exact, teacher; // logits of the current block
    double             lse_of[64];            // log-sum-exp of the teacher rows
    float             *accept;
    int32_t           *argmax;
} pl_rescored;

// Returns true if the head proposes from another distribution than the trained one.
bool      pl_rescored_wanted(const pl_head *h);
pl_status pl_rescored_create(pl_rescored *r, const pl_backbone *model, pl_tensor wt, const pl_backend *be,
                             pl_pool *pool, pl_err *err);
void      pl_rescored_destroy(pl_rescored *r);

// Fills accept and argmax [n]. x [n, d]: inputs of the head; row i predicts the same token as row teacher_row[i] of
// last_hidden [T, d]. Rows with teacher_row < 0 or weight 0 do not count and are not written. stat [T, 4]:
// pl_divergence's teacher_stat in host memory. A NaN score is refused with one line.
pl_status pl_rescored_run(pl_rescored *r, pl_tensor x, pl_tensor last_hidden, pl_tensor stat,
                          const int32_t *teacher_row, const float *weight, int64_t n, float *accept, int32_t *argmax,
                          pl_err *err);

#endif
