// Drawing a token from logits. The processors (temperature, top-k, top-p) apply once, before verification, to every
// path alike; the draw is a pure function of (logits, settings, seed, session key, position), so that a token drawn
// while verifying a draft is the token plain decoding draws at that position.
#ifndef PL_SAMPLE_H
#define PL_SAMPLE_H

#include "kernels/base/status.h"
#include <stdint.h>

typedef struct pl_sampling {
    double   temperature; // 0: greedy, lowest id among equal maxima
    int      top_k;       // 0: off
    double   top_p;       // 1: off
    uint64_t seed;
} pl_sampling;

pl_status pl_sampling_check(const pl_sampling *s, pl_err *err); // ranges, one line

// work: v (index, value) pairs of scratch when top_k or top_p is on, else unused.
typedef struct pl_sample_work {
    float   p;
    int32_t id;
} pl_sample_work;
// The token at `position` (its own index in the session's text). NaN logits give -1.
int32_t pl_sample(const float *logits, int64_t v, const pl_sampling *s, uint64_t key, int64_t position,
                  pl_sample_work *work);

#endif
