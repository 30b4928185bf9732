// k-SEQ: Sun et al. 2023, "SpecTr: fast speculative decoding via optimal transport" (arXiv 2310.15141).
//
//   Each of k draws from q is accepted with probability min(1, p / (rho q)). With b = sum min(q, p / rho) a node
//   accepts with probability a = 1 - (1 - b)^k, and x with probability min(q, p / rho)(x) a / b. That stays below p
//   wherever a <= rho b, so the residual p - min(q, p / rho) a / b makes the distribution exact for every such rho; the
//   smallest, where equality holds, accepts most.
#include "infer/verify/verify.h"

#include <math.h>

static double kept_mass(const double *p, const double *q, int64_t v, double rho) {
    double b = 0, scale = 1 / rho;
    for (int64_t i = 0; i < v; i++) {
        double share = p[i] * scale;
        b += share < q[i] ? share : q[i];
    }
    return b < 1 ? b : 1;
}

static double accepted_mass(double b, int k) {
    return b < 1 ? -expm1(k * log1p(-b)) : 1;
}

// Solves a = rho b: a - rho b falls in rho, from >= 0 at 1 to <= 0 at k. Regula falsi that halves the value at the
// retained end (Illinois); the result is on the side where the distribution is exact.
static double solve_rho(const double *p, const double *q, int64_t v, int k) {
    double lo = 1, hi = k, f_lo, f_hi, b = kept_mass(p, q, v, lo);
    f_lo = accepted_mass(b, k) - b;
    if (k == 1 || f_lo <= 0) return 1;
    b = kept_mass(p, q, v, hi);
    f_hi = accepted_mass(b, k) - hi * b;
    for (int i = 0, side = 0; i < 100 && f_hi < 0 && hi - lo > 1e-14 * hi; i++) {
        double at = (lo * f_hi - hi * f_lo) / (f_hi - f_lo);
        if (!(at > lo && at < hi)) at = lo + (hi - lo) / 2;
        b = kept_mass(p, q, v, at);
        double f = accepted_mass(b, k) - at * b;
        if (f <= 0) {
            hi = at;
            f_hi = f;
            if (side < 0) f_lo /= 2;
            side = -1;
        } else {
            lo = at;
            f_lo = f;
            if (side > 0) f_hi /= 2;
            side = 1;
        }
    }
    return hi;
}

static int32_t couple(const pl_verify_in *in, const pl_children *c, int64_t position) {
    double       *p = in->p;
    const double *q = c->q;
    double        rho = solve_rho(p, q, in->v, c->n), b = kept_mass(p, q, in->v, rho), sum = 0;
    (void)position;
    for (int i = 0; i < c->n; i++) {
        int32_t x = c->token[i];
        if (x >= 0 && q[x] > 0 && in->coin->flip(in->coin, p[x] / (rho * q[x]))) return x;
    }
    double scale = b > 0 ? accepted_mass(b, c->n) / b : 0;
    for (int64_t i = 0; i < in->v; i++) {
        double share = p[i] / rho, rest = p[i] - (share < q[i] ? share : q[i]) * scale;
        in->r[i] = rest > 0 ? rest : 0;
        sum += in->r[i];
    }
    return (int32_t)in->coin->draw(in->coin, sum > 0 ? in->r : p, in->v, -1);
}

static double acceptance(const double *p, const double *q, int64_t v, int n, double *w) {
    (void)w;
    return accepted_mass(kept_mass(p, q, v, solve_rho(p, q, v, n)), n);
}

const pl_verifier pl_verify_kseq = {.name = "k-seq",
                                    .help = "children drawn with replacement, each accepted by the same rule (SpecTr)",
                                    .proposal = PL_PROPOSE_IID,
                                    .lossless = true,
                                    .couple = couple,
                                    .acceptance = acceptance};
