// Recursive rejection: the children of a node are tested in the order in which they were drawn; each rejection replaces
// the target's distribution p by its residual, max(p - q, 0) normalised.
//   with replacement:    q stays; the second of two equal draws finds a residual of 0 there.
//                        Miao et al. 2023, SpecInfer (arXiv 2305.09781)
//   without replacement: q loses the rejected token and is normalised.
//                        Jeon et al. 2024, RSD (arXiv 2402.14160); Chen et al. 2024, Sequoia (arXiv 2402.12374)
#include "infer/verify/verify.h"

#include <math.h>
#include <string.h>

// Removes x from q and renormalises; false: nothing is left.
static bool remove_token(double *q, int64_t v, int32_t x) {
    q[x] = 0;
    double sum = pl_sum(q, v);
    if (!(sum > 0)) return false;
    for (int64_t i = 0; i < v; i++)
        q[i] /= sum;
    return true;
}

static int32_t couple(const pl_verify_in *in, const pl_children *c, int64_t position) {
    const double *q = c->q;
    (void)position;
    if (c->kind == PL_PROPOSE_WOR) q = memcpy(in->q, c->q, (size_t)in->v * sizeof *q);
    for (int i = 0; i < c->n; i++) {
        if (pl_ratio_test(in->coin, in->p, q, c->token[i])) return c->token[i];
        if (!pl_residual(in->p, q, in->v)) break;
        if (c->kind == PL_PROPOSE_WOR && !remove_token(in->q, in->v, c->token[i])) break;
    }
    return (int32_t)in->coin->draw(in->coin, in->p, in->v, -1);
}

// The residual does not depend on the rejected draw, so the tests are independent.
static double acceptance_iid(const double *p, const double *q, int64_t v, int n, double *w) {
    double miss = 1;
    memcpy(w, p, (size_t)v * sizeof *w);
    for (int i = 0; i < n; i++) {
        miss *= 1 - pl_overlap(w, q, v);
        if (!pl_residual(w, q, v)) break;
    }
    return 1 - miss;
}

// For n > 1 it would be a sum over all sequences of tokens.
static double acceptance_wor(const double *p, const double *q, int64_t v, int n, double *w) {
    (void)w;
    return n == 1 ? pl_overlap(p, q, v) : NAN;
}

const pl_verifier pl_verify_recursive_iid = {.name = "recursive-iid",
                                             .help = "children drawn with replacement, tested in turn (SpecInfer)",
                                             .proposal = PL_PROPOSE_IID,
                                             .lossless = true,
                                             .couple = couple,
                                             .acceptance = acceptance_iid};
const pl_verifier pl_verify_recursive_wor = {.name = "recursive-wor",
                                             .help =
                                                 "children drawn without replacement, tested in turn (RSD, Sequoia)",
                                             .proposal = PL_PROPOSE_WOR,
                                             .lossless = true,
                                             .couple = couple,
                                             .acceptance = acceptance_wor};
