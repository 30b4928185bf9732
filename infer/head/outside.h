// What a head over a list of tokens gives to those outside it: redistribution of the drafter's mass (Redistributing
// Drafter Kernels, arXiv 2506.03206: q' = q M with a row-stochastic M of affinities between tokens). Here M is sparse:
// each token y outside hangs on the one of the list, x(y), whose row of the target's output matrix is most like its own
// (cosine; equal: the one further up the list), and
//
//   q'(x) = (1 - e) q(x)                 x in the list, some token hangs on it (else q(x))
//   q'(y) = e q(x(y)) / n(x(y))          n(x): tokens that hang on x
//
// So every token can be drafted, and sampled verification, which takes any q', stays exact. What it can win is at most
// what the target gives to tokens outside; what it costs is up to e of what was accepted before. Greedy candidates are
// the head's own. It acts on the distribution after the session's temperature, top-k, top-p and min-p: a token of the
// list that these leave out, or that a position-aware head does not read, gives nothing. What training reports as
// acceptance is without it.
#ifndef PL_OUTSIDE_H
#define PL_OUTSIDE_H

#include "checkpoints/weights.h"

enum { PL_OUTSIDE_WHOLE = 1000 };   // e comes in thousandths
#define PL_OUTSIDE_TENSOR "outside" // of a checkpoint: int32 [v], the draft id that each token hangs on

typedef struct pl_outside {
    double   share; // e
    int64_t  v, vd; // target's tokens, the list's
    int32_t *on;    // [v] the draft id that a token hangs on, its own for one of the list
    int32_t *n;     // [vd] tokens that hang on it
} pl_outside;

// on: [v], copied. d2t: [vd]. PL_E_INPUT naming `where`: an id out of range, a token of the list that hangs on another.
pl_status pl_outside_init(pl_outside *o, int thousandths, const int32_t *on, int64_t v, const int32_t *d2t, int64_t vd,
                          const char *where, pl_err *err);
void      pl_outside_fini(pl_outside *o); // zeroed is fine
// From a checkpoint, and as it is written (borrowed).
pl_status pl_outside_read(pl_outside *o, int thousandths, const pl_weight_source *src, int64_t v, const int32_t *d2t,
                          int64_t vd, pl_err *err);
pl_st_source pl_outside_tensor(const pl_outside *o);

// The tokens that a row of a head's logits is over.
typedef struct pl_drafted {
    int64_t           n;
    const int32_t    *d2t;     // [n] the target's ids; NULL: the same
    const pl_outside *outside; // NULL: nothing outside is drafted
} pl_drafted;

// q [v]: the distribution of the target's tokens that candidates are drawn from, of the distribution of draft ids
// q_list [d->n], which is not q. The sum stays what it was, to rounding.
void pl_drafted_distribution(const pl_drafted *d, double *q, int64_t v, const double *q_list);

#endif
