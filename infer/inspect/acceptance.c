#include "infer/inspect/acceptance.h"

#include "kernels/base/arena.h"
#include "kernels/base/check.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

// The quadrature over the clocks' time, exp(u) for u from -RANGE to RANGE.
#define RANGE 33.0
#define NODES 180

typedef struct token {
    double ratio, p, q;
} token;

pl_status pl_acceptance_init(pl_acceptance *a, int64_t v, pl_err *err) {
    size_t n = (size_t)v;
    *a = (pl_acceptance){.v = v,
                         .sorted = pl_calloc(n, sizeof(token)),
                         .w = pl_calloc(pl_size_mul(5, n, 1), sizeof *a->w),
                         .q = pl_calloc(n, sizeof *a->q),
                         .logits = pl_calloc(n, sizeof *a->logits)};
    pl_status st = pl_distribution_work_init(&a->dist, v, err);
    if (st == PL_OK && a->sorted && a->w && a->q && a->logits) return PL_OK;
    pl_acceptance_fini(a);
    return st != PL_OK ? st : pl_fail(err, PL_E_MEMORY, "acceptance over %lld tokens: out of memory", (long long)v);
}

void pl_acceptance_fini(pl_acceptance *a) {
    pl_distribution_work_fini(&a->dist);
    pl_free(a->sorted);
    pl_free(a->w);
    pl_free(a->q);
    pl_free(a->logits);
    *a = (pl_acceptance){0};
}

// ---- the bound ------------------------------------------------------------------------------------------------------

static int by_ratio(const void *x, const void *y) {
    const token *a = x, *b = y;
    return (a->ratio > b->ratio) - (a->ratio < b->ratio);
}

// Tokens that can be drawn, by p / q; the others only add to p(H). Returns how many.
static int64_t sort(token *t, const double *p, const double *q, int64_t v) {
    int64_t n = 0;
    for (int64_t i = 0; i < v; i++)
        if (q[i] > 0) t[n++] = (token){.ratio = p[i] / q[i], .p = p[i], .q = q[i]};
    qsort(t, (size_t)n, sizeof *t, by_ratio);
    return n;
}

static void bound_iid(const token *t, int64_t tokens, int n_max, double *bound) {
    double ph = 0, qh = 0;
    for (int64_t i = 0; i < tokens; i++) {
        double power = 1;
        ph += t[i].p;
        qh += t[i].q;
        for (int n = 0; n < n_max; n++)
            bound[n] = fmin(bound[n], 1 + ph - (power *= qh));
    }
}

// 1 - exp(-x), x >= 0
static double ringing(double x) {
    return x < 1e-8 ? x - x * x / 2 : x > 45 ? 1 : -expm1(-x);
}

// Without replacement the order of draws is that of exponential clocks with rates q: all n come from H unless fewer
// than n clocks of H ring before the first outside,
//   1 - Pr = integral of c exp(-c t) P(fewer than n of H ring before t) dt,   c = 1 - q(H),
// where the number that rings is a sum of independent indicators. With t = exp(u) the trapezoidal rule converges
// exponentially and covers every scale of c. Adding a token to H updates the first n probabilities of the number.
static void bound_wor(const token *t, int64_t tokens, int n_max, double *bound) {
    double time[NODES + 1], ring[NODES + 1][PL_ACCEPTANCE_CHILDREN] = {{0}};
    double ph = 0, outside = 0, h = 2 * RANGE / NODES;
    for (int g = 0; g <= NODES; g++) {
        time[g] = exp(-RANGE + h * g);
        ring[g][0] = 1;
    }
    for (int64_t i = 0; i < tokens; i++)
        outside += t[i].q;
    for (int64_t i = 0; i < tokens; i++) {
        double miss[PL_ACCEPTANCE_CHILDREN] = {0};
        ph += t[i].p;
        outside = i + 1 < tokens ? fmax(outside - t[i].q, 0) : 0;
        for (int g = 0; g <= NODES; g++) {
            double rings = ringing(t[i].q * time[g]), weight = h * outside * time[g];
            double end = weight * (1 - ringing(outside * time[g])), fewer = 0;
            for (int n = n_max - 1; n >= 0; n--)
                ring[g][n] = ring[g][n] * (1 - rings) + (n > 0 ? ring[g][n - 1] * rings : 0);
            for (int n = 0; n < n_max; n++)
                miss[n] += end * (fewer += ring[g][n]);
        }
        for (int n = 0; n < n_max; n++)
            bound[n] = fmin(bound[n], ph + miss[n]);
    }
}

void pl_acceptance_bound(pl_acceptance *a, pl_proposal kind, const double *p, const double *q, int n_max,
                         double *bound) {
    PL_CHECK(n_max >= 1 && n_max <= PL_ACCEPTANCE_CHILDREN, "%d children", n_max);
    const pl_verifier *best = kind == PL_PROPOSE_TOP ? &pl_verify_match : &pl_verify_transport;
    if (kind == PL_PROPOSE_TOP || kind == PL_PROPOSE_TOP_ONE) {
        for (int n = 0; n < n_max; n++)
            bound[n] = best->acceptance(p, q, a->v, n + 1, a->w);
        return;
    }
    for (int n = 0; n < n_max; n++)
        bound[n] = 1; // H empty
    int64_t tokens = sort(a->sorted, p, q, a->v);
    if (kind == PL_PROPOSE_IID)
        bound_iid(a->sorted, tokens, n_max, bound);
    else
        bound_wor(a->sorted, tokens, n_max, bound);
}

// ---- what a verifier does -------------------------------------------------------------------------------------------

typedef struct known_dist {
    const double *p;
    int64_t       v;
} known_dist;

static bool dist_of(void *arg, int node, double *p) {
    const known_dist *l = arg;
    (void)node;
    memcpy(p, l->p, (size_t)l->v * sizeof *p);
    return true;
}

// One node drafted and verified: was a child accepted?
static bool trial(pl_acceptance *a, const pl_verifier *v, const double *p, int n, pl_coin *coin) {
    static const pl_sampling all = {.temperature = 1, .top_p = 1};
    int64_t                  size = a->v;
    known_dist               dist = {.p = p, .v = size};
    int32_t                  id[PL_ACCEPTANCE_CHILDREN];
    float                    logp[PL_ACCEPTANCE_CHILDREN];
    pl_verdict               out;
    pl_proposing             o = {.kind = v->proposal,
                                  .sampling = &all,
                                  .coin = coin,
                                  .q = a->q,
                                  .q_rows = 1,
                                  .vocab = size,
                                  .work = &a->dist,
                                  .dist = a->w + 3 * size};
    pl_verify_in             in = {.tree = &a->tree,
                                   .dist = dist_of,
                                   .arg = &dist,
                                   .v = size,
                                   .coin = coin,
                                   .p = a->w,
                                   .q = a->w + size,
                                   .r = a->w + 2 * size};
    pl_tree_root(&a->tree, 0);
    pl_propose_draw(&o, &a->tree, 0, a->logits, &(pl_drafted){.n = size}, n, id, logp);
    for (int i = 0; i < n && id[i] >= 0; i++)
        pl_tree_add(&a->tree, 0, id[i], 0);
    pl_verify(v, &in, &out);
    return out.n > 0;
}

double pl_acceptance_expected(pl_acceptance *a, const pl_verifier *v, const double *p, const double *q, int n,
                              int trials, pl_coin *coin, double *variance) {
    PL_CHECK(n >= 1 && n <= PL_ACCEPTANCE_CHILDREN && trials > 1, "%d children, %d trials", n, trials);
    PL_CHECK(n == 1 || !v->chain, "%d children for the chain verifier \"%s\"", n, v->name);
    double exact = v->acceptance ? v->acceptance(p, q, a->v, n, a->w) : NAN;
    *variance = 0;
    if (!isnan(exact)) return exact;
    PL_CHECK(v->proposal != PL_PROPOSE_TOP, "verifier \"%s\" of chosen children states no acceptance", v->name);
    int accepted = 0;
    for (int64_t i = 0; i < a->v; i++)
        a->logits[i] = (float)log(q[i]);
    for (int i = 0; i < trials; i++)
        accepted += trial(a, v, p, n, coin);
    double share = (double)accepted / trials;
    *variance = share * (1 - share) / (trials - 1);
    return share;
}
