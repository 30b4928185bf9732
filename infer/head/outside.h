// Redistribution of a list head's mass to tokens outside its list (Redistributing Drafter Kernels, arXiv 2506.03206: q'
// = q M with a row-stochastic M of affinities between tokens). Here M is sparse: each outside token y is attached to
// the list token x(y) whose row of the target's output matrix is most similar to its own (cosine; ties: the one further
// up the list), and
//
//   q'(x) = (1 - e) q(x)                 x in the list with attached tokens (else q(x))
//   q'(y) = e q(x(y)) / n(x(y))          n(x): tokens attached to x
//
// So every token can be drafted, and sampled verification, which takes any q', stays exact. It can gain at most the
// target's mass of outside tokens, and costs up to e of the previous acceptance. Greedy candidates are the head's own.
// It acts on the distribution after the session's temperature, top-k, top-p and min-p: list tokens that these remove,
// or that a position-aware head does not read, pass nothing on. Acceptance reported by training is without it.
#ifndef PL_OUTSIDE_H
#define PL_OUTSIDE_H

#include "checkpoints/weights.h"

enum { PL_OUTSIDE_WHOLE = 1000 };   // e comes in thousandths
#define PL_OUTSIDE_TENSOR "outside" // checkpoint tensor: int32 [v], the draft id that each token is attached to

typedef struct pl_outside {
    double   share; // e
    int64_t  v, vd; // number of target tokens and of list tokens
    int32_t *on;    // [v] the draft id that a token is attached to, its own for a list token
    int32_t *n;     // [vd] number of tokens attached to it
} pl_outside;

// on: [v], copied. d2t: [vd]. Returns PL_E_INPUT naming `where` for an id out of range or a list token that is attached
// to another token.
pl_status pl_outside_init(pl_outside *o, int thousandths, const int32_t *on, int64_t v, const int32_t *d2t, int64_t vd,
                          const char *where, pl_err *err);
void      pl_outside_fini(pl_outside *o); // zeroed is fine
// Reads it from a checkpoint, and returns the tensor to write (borrowed).
pl_status pl_outside_read(pl_outside *o, int thousandths, const pl_weight_source *src, int64_t v, const int32_t *d2t,
                          int64_t vd, pl_err *err);
pl_st_source pl_outside_tensor(const pl_outside *o);

// The tokens of a head's logits.
typedef struct pl_drafted {
    int64_t           n;
    const int32_t    *d2t;     // [n] target ids; NULL: the same ids
    const pl_outside *outside; // NULL: outside tokens are not drafted
} pl_drafted;

// Maps q_list [d->n], a distribution of draft ids, to q [v], the distribution of target tokens that candidates are
// drawn from. The arrays must differ. The sum is preserved, up to rounding.
void pl_drafted_distribution(const pl_drafted *d, double *q, int64_t v, const double *q_list);

#endif
