// Decodes the prompts of an evaluation in batches and measures throughput and latency, as servers are measured. Answers
// do not depend on the batch (infer/decode/decode.h): methods that promise plain decoding's tokens give the same as one
// by one.
#ifndef PL_BATCH_H
#define PL_BATCH_H

#include "infer/eval/results.h"

// The prompts, and arrays for the results of their answers.
typedef struct pl_batch_work {
    int64_t      n;
    int64_t     *question; // [n] index in the evaluation
    int32_t    **prompt;   // [n] ids, borrowed
    int64_t     *prompt_n; // [n]
    pl_sampling *sampling; // [n]
    uint64_t    *hash;     // [n]
    double      *latency;  // [2 * n]
    int          max_new;
} pl_batch_work;

// Allocates room for `room` prompts, n being 0. fini may be called on a zeroed *w.
pl_status pl_batch_work_init(pl_batch_work *w, int64_t room, pl_err *err);
void      pl_batch_work_fini(pl_batch_work *w);

// Decodes all prompts in order, b->sessions at a time, and adds the figures to b. hash: [n], of each answer's tokens
// (pl_answer.hash), or NULL. latency: [2 * n], first the TTFT of each answer, then its TPOT (NaN: no later token), or
// NULL.
pl_status pl_batch_run(pl_runner *r, const pl_batch_work *w, pl_batched *b, uint64_t *hash, double *latency,
                       pl_err *err);
// Warms up: decodes the first `sessions` prompts, at most `most` tokens each.
pl_status pl_batch_warm_up(pl_runner *r, const pl_batch_work *w, int sessions, int most, pl_err *err);

// Returns plain decoding at the same batch and temperature, the base of b's speed-up; NULL: b is plain decoding.
const pl_batched *pl_batch_base(const pl_results *r, const pl_batched *b);
// Returns the tokens of all answers, first tokens included, over the time of all, prefill included.
double            pl_batch_speed(const pl_batched *b);

#endif
