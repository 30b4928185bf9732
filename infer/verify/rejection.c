// Speculative sampling: Leviathan et al. 2023, "Fast inference from transformers via speculative decoding" (arXiv
// 2211.17192, §2.3); Chen et al. 2023, "Accelerating large language model decoding with speculative sampling" (arXiv
// 2302.01318).
//
//   x ~ q is accepted with probability min(1, p(x) / q(x)); else the token is drawn from max(p - q, 0), normalised.
#include "infer/verify/verify.h"

#include "kernels/base/check.h"

#include <math.h>

static int32_t couple(const pl_verify_in *in, const pl_children *c, int64_t position) {
    (void)position;
    PL_CHECK(c->n == 1, "%d children of a node in a chain", c->n);
    return pl_verify_drawn(in, c->q, c->token[0]);
}

static double acceptance(const double *p, const double *q, int64_t v, int n, double *w) {
    (void)w;
    return n == 1 ? pl_overlap(p, q, v) : NAN;
}

const pl_verifier pl_verify_rejection = {.name = "rejection",
                                         .help = "a sampled chain, each token kept with probability min(1, p/q)",
                                         .proposal = PL_PROPOSE_IID,
                                         .lossless = true,
                                         .chain = true,
                                         .couple = couple,
                                         .acceptance = acceptance};
