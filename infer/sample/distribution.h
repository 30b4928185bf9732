// The distribution of the next token: logits after the processors, as probabilities.
//
// The processors apply once, in this order, before verification and to every path alike:
//   constraint   tokens that may not follow have no probability (infer/grammar)
//   bias         added to the logits of listed tokens (OpenAI's logit_bias)
//   repetition   z / penalty where z > 0, else z * penalty, for tokens of the text (Keskar et al. 2019, CTRL)
//   counts       z - count * frequency - (count > 0) * presence, count: occurrences in the answer (OpenAI's)
//   temperature, top-k, top-p, min-p (as in Hugging Face's generate); after each the support is renormalised.
// All before the temperature hold for greedy decoding too. The drafted tokens on a node's path belong to its text and
// its answer.
// Plain decoding draws from this distribution and every verifier couples with it, so none of them can skip a processor.
// On a device the op draw (kernels/op/draw.h) draws from it, with its own implementation;
// tests/infer/test_distribution.c's device_and_host_sample_the_same_distribution compares the two. It has no
// constraint, bias or counts: such sessions draw on the host (pl_sampling_on_host).
#ifndef PL_DISTRIBUTION_H
#define PL_DISTRIBUTION_H

#include "kernels/base/status.h"
#include "kernels/op/draw.h"
#include "kernels/softmax.h"
#include <stdbool.h>
#include <stdint.h>

#define PL_COLDEST 1e-6  // 1 / temperature must be finite in fp32, and so must its products
#define PL_BIAS_MOST 100 // largest logit_bias, of either sign: -100 bans a token in effect

typedef struct pl_logit_bias {
    int32_t id;
    float   value;
} pl_logit_bias;

// A constraint on a session's answer; one per session, called by one thread at a time.
typedef struct pl_constraint pl_constraint;
struct pl_constraint {
    // Returns a bit for each token of the vocabulary that may stand behind the answer and then the path, bit i of word
    // i / 32, at least one; valid until the next call. Between calls the answer only grows. The path may hold tokens
    // that may not stand there.
    const uint32_t *(*allowed)(pl_constraint *c, const int32_t *answer, int64_t n_answer, const int32_t *path,
                               int64_t n_path);
};

typedef struct pl_sampling {
    double               temperature; // 0: greedy, the lowest id among equal maxima; else PL_COLDEST..1000
    int                  top_k;       // the k most probable tokens; 0: all
    double               top_p;       // the shortest prefix, best first, that holds this share, never empty; 1: all
    double               min_p;       // minimum share of the best token's probability; 0: all
    double               repetition_penalty;                  // 1: none; 0 means unset, which is 1
    double               presence_penalty, frequency_penalty; // -2..2; 0: none
    int                  n_bias;
    uint64_t             seed;
    // [n_bias] of the vocabulary's tokens, borrowed until the session ends. Values of an id that is listed twice are
    // added both.
    const pl_logit_bias *bias;
    pl_constraint       *constraint; // borrowed until the session ends; NULL: none
} pl_sampling;

pl_status   pl_sampling_check(const pl_sampling *s, pl_err *err); // Checks the ranges; fails with one line.
// Returns true if the distribution depends on earlier tokens, not on the logits alone.
bool        pl_sampling_has_history(const pl_sampling *s);
// Returns true if logits are processed before the temperature, so that the argmax is not that of the logits.
bool        pl_sampling_changes_logits(const pl_sampling *s);
// Returns true if a device's op draw lacks a processor.
bool        pl_sampling_on_host(const pl_sampling *s);
// Returns the same without constraint, bias and history, for a drafter's own distribution.
pl_sampling pl_sampling_bare(const pl_sampling *s);

// Scratch for distributions over v tokens, one per thread of use.
typedef struct pl_distribution_work {
    float            *w;  // [v]
    int32_t          *id; // [v]
    const pl_softmax *softmax;
} pl_distribution_work;
pl_status pl_distribution_work_init(pl_distribution_work *k, int64_t v, pl_err *err);
void      pl_distribution_work_fini(pl_distribution_work *k);

// The tokens before a token: the session's text as a set (pl_said_add), the part of it that was emitted and, in a tree,
// the drafted tokens on its path. Read only if pl_sampling_has_history.
typedef struct pl_history {
    const uint32_t *said; // [pl_said_words(v)]; NULL: nothing
    const int32_t  *answer, *path;
    int64_t         n_answer, n_path;
} pl_history;

// Computes p[v], which sums to 1 (one token of probability 1 at temperature 0). Returns false if a logit is not a
// number, or the largest is infinite.
bool pl_distribution(double *p, const float *logits, int64_t v, const pl_sampling *s, const pl_history *h,
                     pl_distribution_work *k);

#endif
