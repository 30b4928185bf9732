// Probability that a verifier accepts, and the upper bound over all lossless verifiers: a diagnostic of one node with
// the target's distribution p, the drafter's distribution q and n children drafted from q. It does not run in decoding.
#ifndef PL_ACCEPTANCE_H
#define PL_ACCEPTANCE_H

#include "infer/sample/propose.h"
#include "infer/verify/verify.h"

#define PL_ACCEPTANCE_CHILDREN 8

typedef struct pl_acceptance {
    int64_t              v;
    void                *sorted; // [v] tokens by p / q
    double              *w;      // [5][v] scratch
    double              *q;      // [v] the drafter's distribution of a trial
    float               *logits; // [v]
    pl_distribution_work dist;
    pl_tree              tree;
} pl_acceptance;

pl_status pl_acceptance_init(pl_acceptance *a, int64_t v, pl_err *err);
void      pl_acceptance_fini(pl_acceptance *a);

// Computes the optimal-transport bound of a draft for 1..n_max children into bound[n_max]:
//
//   alpha* = 1 + min over sets H of tokens ( p(H) - Pr[all children in H] )        (Hu et al. 2025, arXiv 2502.18779)
//
// No lossless verifier accepts more often. Deterministic children: p of them. The best and one drawn: p(best) + sum
// over the others of min(p, q'). Drawn ones: the minimum over the prefixes of the tokens sorted by p / q. With
// replacement it is exact: Pr = q(H)^n, a concave function of (p(H), q(H)) is minimised at a vertex of their convex
// hull, and the vertices are these prefixes. Without replacement it is exact in every case that tests compare with all
// subsets; Pr is computed as that of n exponential clocks of rates q in H ringing before the first one outside, by
// quadrature.
void pl_acceptance_bound(pl_acceptance *a, pl_proposal kind, const double *p, const double *q, int n_max,
                         double *bound);

// Returns the probability that verifier v accepts one of n children (n must be 1 for a verifier of chains): its closed
// form with *variance 0 if it has one; else the accepted share of `trials` runs of drafting and verification, and the
// variance of that share.
double pl_acceptance_expected(pl_acceptance *a, const pl_verifier *v, const double *p, const double *q, int n,
                              int trials, pl_coin *coin, double *variance);

#endif
