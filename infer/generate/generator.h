// Training data from the target itself: answers to prompts, greedy and sampled, many sequences per forward, with the
// features that drafters learn from.
//
// Documents come in a fixed order, whatever the batching: job j is round j / prompts of prompt j % prompts. In round 0
// answers are greedy where greedy answers are wanted; in the others they are sampled, each keyed by (seed, j). So a
// producer that was stopped goes on with the next job, and online training (rounds without end) sees the same text as
// offline training.
#ifndef PL_GENERATOR_H
#define PL_GENERATOR_H

#include "data/chat/prompts.h"
#include "data/dataset/columns.h"
#include "data/tokenizer/tokenizer.h"
#include "infer/cli/env.h"
#include "infer/model/llama.h"

typedef struct pl_generator_options {
    int      n_taps, tap[PL_MAX_TAPS];
    int      max_new;
    bool     greedy;      // round 0 is greedy
    int      samples;     // sampled rounds; < 0: without end
    double   temperature; // of sampled rounds
    double   top_p;
    int      sessions; // in flight
    bool     cut;      // prompts that are too long lose their beginning; false: they are left out
    uint64_t seed;
    int64_t  first_job; // documents already made
} pl_generator_options;

typedef struct pl_generator pl_generator;

// Borrows everything. Prompts that leave no room for an answer in the target's context are left out or cut, with a
// warning that counts them.
pl_status pl_generator_create(pl_generator **out, const pl_env *env, const pl_llama *target, const pl_tokenizer *tok,
                              const pl_prompts *prompts, const pl_generator_options *o, pl_err *err);
void      pl_generator_destroy(pl_generator *g);
int64_t   pl_generator_jobs(const pl_generator *g);                // documents in all; -1 without end
int64_t   pl_generator_prompt(const pl_generator *g, int64_t number); // whose document it is: an index of `prompts`
// The next document in order, with all columns of features, borrowed until the next call; n = 0 when there are no more.
// The last emitted token has no row, since the target never read it: it is the document's end.
pl_status pl_generator_next(pl_generator *g, pl_columns *doc, pl_err *err);

#endif
