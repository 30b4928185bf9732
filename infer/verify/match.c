#include "infer/verify/verify.h"

#include "infer/sample/propose.h"

#include <string.h>

// Returns the probability of the children under p.
static double acceptance(const double *p, const double *q, int64_t v, int n, double *w) {
    double held = 0;
    memcpy(w, q, (size_t)v * sizeof *w);
    for (int i = 0; i < n; i++) {
        int64_t b = pl_propose_best(w, v);
        if (w[b] > 0) held += p[b];
        w[b] = 0;
    }
    return held;
}

// pl_verify_walk matches every node: it draws from the target's distribution and looks the token up.
const pl_verifier pl_verify_match = {
    .name = "match",
    .help = "draws the target's tokens and keeps the drafts that agree: plain sampling's tokens",
    .proposal = PL_PROPOSE_TOP,
    .lossless = true,
    .acceptance = acceptance};
