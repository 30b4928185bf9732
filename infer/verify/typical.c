// Typical acceptance: Cai et al. 2024, "Medusa" (arXiv 2401.10774, §2.3.1). LOSSY: its output does not follow the
// target's distribution. A drafted token is accepted where the target finds it typical,
//   p(x) > min(eps, delta exp(-H(p))),  eps = 0.09, delta = 0.3,  H the entropy in nats,
// the longest path wins, the likeliest among equals; the token after it is drawn from the target's distribution.
#include "infer/verify/verify.h"

#include "infer/sample/propose.h"

#include <math.h>
#include <string.h>

#define EPSILON 0.09
#define DELTA 0.3

static double typical_threshold(const double *p, int64_t v) {
    double entropy = 0;
    for (int64_t i = 0; i < v; i++)
        if (p[i] > 0) entropy -= p[i] * log(p[i]);
    return fmin(EPSILON, DELTA * exp(-entropy));
}

static void verify(const pl_verifier *v, const pl_verify_in *in, pl_verdict *out) {
    const pl_tree *t = in->tree;
    double         score[PL_TREE_MAX]; // accepted nodes: log-probability of the path under the target
    int            best = 0;
    (void)v;
    score[0] = 0;
    for (int i = 1; i < t->n; i++)
        score[i] = -INFINITY;
    for (int i = 0; i < t->n; i++) {
        if (score[i] == -INFINITY) continue;
        if (t->depth[i] > t->depth[best] || (t->depth[i] == t->depth[best] && score[i] > score[best])) best = i;
        double least = -1;
        for (int c = i + 1; c < t->n; c++) {
            if (t->parent[c] != i) continue;
            if (least < 0) {
                if (!in->dist(in->arg, i, in->p)) break;
                least = typical_threshold(in->p, in->v);
            }
            double share = in->p[t->token[c]];
            if (share > least) score[c] = score[i] + log(share);
        }
    }
    out->n = pl_tree_path(t, best, out->path) - 1;
    bool ok = in->dist(in->arg, best, in->p);
    out->bonus = ok ? (int32_t)in->coin->draw(in->coin, in->p, in->v, in->position + t->depth[best] + 1) : -1;
}

static double acceptance(const double *p, const double *q, int64_t v, int n, double *w) {
    double least = typical_threshold(p, v);
    memcpy(w, q, (size_t)v * sizeof *w);
    for (int i = 0; i < n; i++) {
        int64_t b = pl_propose_best(w, v);
        if (w[b] > 0 && p[b] > least) return 1;
        w[b] = 0;
    }
    return 0;
}

const pl_verifier pl_verify_typical = {
    .name = "typical",
    .help = "tokens that the target finds typical (Medusa); changes the output's distribution",
    .proposal = PL_PROPOSE_TOP,
    .lossless = false,
    .verify = verify,
    .acceptance = acceptance};
