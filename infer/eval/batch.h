// The same prompts many at a time: throughput beside latency, as servers are measured. Answers do not depend on their
// company (infer/decode/decode.h), so they are those of one prompt at a time, wherever a method promises plain's.
#ifndef PL_BATCH_H
#define PL_BATCH_H

#include "infer/eval/results.h"

// The prompts, and room for what is noted of their answers.
typedef struct pl_batch_work {
    int64_t      n;
    int64_t     *question; // [n] which each is of the evaluation
    int32_t    **prompt;   // [n] ids, borrowed
    int64_t     *prompt_n; // [n]
    pl_sampling *sampling; // [n]
    uint64_t    *hash;     // [n]
    double      *latency;  // [2 * n]
    int          max_new;
} pl_batch_work;

// Room for `room` prompts, of which there are none yet. fini: of a zeroed one, too.
pl_status pl_batch_work_init(pl_batch_work *w, int64_t room, pl_err *err);
void      pl_batch_work_fini(pl_batch_work *w);

// All prompts in their order, as many at a time as the runner has sessions; adds to b. hash: [n], of each answer's
// tokens (pl_answer.hash), or NULL. latency: [2 * n], TTFT of each and, behind them, TPOT (NaN: no later token), or
// NULL.
pl_status pl_batch_run(pl_runner *r, const pl_batch_work *w, pl_batched *b, uint64_t *hash, double *latency,
                       pl_err *err);
// The first `sessions` prompts, `most` tokens of each, for nothing but warm caches.
pl_status pl_batch_warm_up(pl_runner *r, const pl_batch_work *w, int sessions, int most, pl_err *err);

// What it is measured against: plain decoding, as many at a time, at the same temperature; NULL: b is that.
const pl_batched *pl_batch_base(const pl_results *r, const pl_batched *b);
// Tokens of all answers, the first ones too, over the time that they took together, prefill included.
double            pl_batch_speed(const pl_batched *b);

#endif
