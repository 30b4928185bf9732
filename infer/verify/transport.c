// Optimal coupling for the drafter's best n-1 tokens T and one token x drawn from the rest of its distribution, q'
// (the "greedy" draft of Hu et al. 2025, "Towards optimal multi-draft speculative decoding", arXiv 2502.18779).
//
// It is speculative sampling with q': x is tested, and the residual's draw counts as accepted where it falls into T.
// q' is 0 on T, so the residual keeps all of p(T) and a node accepts with probability
//   p(T) + sum over the others of min(p, q'),
// which is the transport bound for this draft: no verifier accepts it more often.
#include "infer/verify/verify.h"

#include "infer/sample/propose.h"

#include <string.h>

static int32_t couple(const pl_verify_in *in, const pl_children *c, int64_t position) {
    (void)position;
    return pl_verify_drawn(in, c->q, c->token[0]);
}

static double acceptance(const double *p, const double *q, int64_t v, int n, double *w) {
    double held = 0, rest = 0;
    memcpy(w, q, (size_t)v * sizeof *w);
    for (int i = 1; i < n; i++) {
        int64_t b = pl_propose_best(w, v);
        if (w[b] > 0) held += p[b];
        w[b] = 0;
    }
    for (int64_t i = 0; i < v; i++)
        rest += w[i];
    if (!(rest > 0)) return held;
    for (int64_t i = 0; i < v; i++)
        w[i] /= rest;
    return held + pl_overlap(p, w, v);
}

const pl_verifier pl_verify_transport = {
    .name = "transport",
    .help = "the best tokens and one drawn from the rest, tested first: accepted as often as can be",
    .proposal = PL_PROPOSE_TOP_ONE,
    .lossless = true,
    .couple = couple,
    .acceptance = acceptance};
