// Log-probabilities of an answer's tokens: the model's own, before temperature, filters and penalties, as OpenAI's API
// has them.
#ifndef PL_LOGPROBS_H
#define PL_LOGPROBS_H

#include "kernels/base/status.h"
#include <stdint.h>

typedef struct pl_logprob {
    int32_t token;
    float   logprob;
} pl_logprob;

typedef struct pl_logprobs {
    pl_logprob *item; // [cap][1 + top]: the token itself, then the best ones in falling order; owned
    int         n, cap, top;
} pl_logprobs;

// Appends `token`, drawn from these v logits; top < v.
pl_status         pl_logprobs_add(pl_logprobs *l, const float *logits, int64_t v, int32_t token, pl_err *err);
void              pl_logprobs_fini(pl_logprobs *l);
// Returns the 1 + top items of token i.
const pl_logprob *pl_logprobs_at(const pl_logprobs *l, int i);

#endif
