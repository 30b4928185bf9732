// Block verification: Sun et al. 2024, "Block verification accelerates speculative decoding" (arXiv 2403.10444).
// Along a sampled chain d_1 .. d_g, with p_i, q_i the distributions of its i-th token:
//
//   pi_0 = 1,  pi_i = min(1, pi_{i-1} p_i(d_i) / q_i(d_i))
//   h_i = s / (s + 1 - pi_i),  s = sum_x max(pi_i p_{i+1}(x) - q_{i+1}(x), 0)   for i < g,  h_g = pi_g
//
// The longest i whose independent test of probability h_i succeeds (h_0 = 1) is accepted; then comes a draw from p
// after all g, else from max(pi_i p_{i+1} - q_{i+1}, 0). It never accepts fewer tokens on average than token by token.
#include "infer/verify/verify.h"
#include "kernels/base/check.h"

#include <math.h>

static void verify(const pl_verifier *v, const pl_verify_in *in, pl_verdict *out) {
    const pl_tree *t = in->tree;
    int32_t        token[PL_TREE_MAX];
    double        *p = in->p, *kept = in->r, pi = 1, pi_kept = 1;
    const double  *q_kept = NULL;
    int            node = 0, depth = 0;
    for (;; depth++) {
        const double *q = t->q[node];
        int           n = q && t->kind[node] == PL_PROPOSE_IID ? pl_tree_draws(t, node, token) : 0;
        out->path[depth] = node;
        // The block ends where no draw follows; also at logits that are not numbers, which matter only if reached.
        if (n == 0 || !in->dist(in->arg, node, p)) {
            if (in->coin->flip(in->coin, pi)) { // h_g; pi is 1 where nothing was drafted
                out->n = depth;
                pl_verify_walk(v, in, out);
                return;
            }
            break;
        }
        double ratio = token[0] >= 0 && q[token[0]] > 0 ? p[token[0]] / q[token[0]] : 0,
               s = pi < 1 ? pl_surplus(p, q, in->v, pi) : 0;
        if (depth == 0 || in->coin->flip(in->coin, pi < 1 ? s / (s + 1 - pi) : 1)) {
            double *swap = kept;
            kept = p;
            p = swap;
            q_kept = q;
            pi_kept = pi;
            out->n = depth;
        }
        pi *= ratio;
        if (!(pi > 0)) break; // nothing further down can be accepted
        if (pi > 1) pi = 1;
        node = pl_tree_child(t, node, token[0]);
    }
    PL_CHECK(q_kept, "a block ended at draw %d before its first test", depth);
    if (pl_surplus(kept, q_kept, in->v, pi_kept) > 0)
        for (int64_t i = 0; i < in->v; i++)
            kept[i] = fmax(pi_kept * kept[i] - q_kept[i], 0);
    out->bonus = (int32_t)in->coin->draw(in->coin, kept, in->v, -1);
}

static double acceptance(const double *p, const double *q, int64_t v, int n, double *w) {
    (void)w;
    return n == 1 ? pl_overlap(p, q, v) : NAN;
}

const pl_verifier pl_verify_block = {.name = "block",
                                     .help = "a sampled chain verified as a whole: on average no less than rejection",
                                     .proposal = PL_PROPOSE_IID,
                                     .lossless = true,
                                     .chain = true,
                                     .verify = verify,
                                     .acceptance = acceptance};
