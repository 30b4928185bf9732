// Expected acceptance and its bound: the bound against all subsets and against a maximum flow, verifiers below it,
// drawn estimates against enumeration.
#include "infer/inspect/acceptance.h"

#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <string.h>

#include <cmocka.h>

#define QUADRATURE 1e-9 // what infer/inspect/acceptance.h promises of draws without replacement

enum { V = 5, N = 3, MASKS = 1 << V };

// Two distributions over v tokens: any, with zeros, with ties, peaked, equal.
static void dists(int look, uint64_t seed, int64_t v, double *p, double *q) {
    pl_rng r = pl_rng_make(seed, PL_STREAM_TEST, (uint64_t)look);
    double sp = 0, sq = 0;
    for (int64_t i = 0; i < v; i++) {
        uint64_t at = 8 * (uint64_t)i;
        p[i] = exp((look == 3 ? 3 : 1) * (double)pl_rng_normal(r, at));
        q[i] = exp((look == 3 ? 3 : 1) * (double)pl_rng_normal(r, at + 1));
        if (look == 1 && i > 0 && pl_rng_below(r, at + 2, 3) == 0) p[i] = 0;
        if (look == 1 && i < v - 1 && pl_rng_below(r, at + 3, 3) == 0) q[i] = 0;
        if (look == 2) p[i] = 1 + (double)pl_rng_below(r, at + 4, 2), q[i] = 1 + (double)pl_rng_below(r, at + 5, 2);
        if (look == 4) q[i] = p[i];
        sp += p[i];
        sq += q[i];
    }
    for (int64_t i = 0; i < v; i++)
        p[i] /= sp, q[i] /= sq;
}

// Adds to set[mask] the probability that the children are these tokens, `n` more drawn from w (which sums to `left`).
static void draws(const double *w, double left, bool replace, int n, int mask, double weight, double *set) {
    if (n == 0 || !(left > 1e-15)) {
        set[mask] += weight;
        return;
    }
    for (int i = 0; i < V; i++) {
        if (!(w[i] > 0)) continue;
        double rest[V];
        memcpy(rest, w, sizeof rest);
        if (!replace) rest[i] = 0;
        double sum = 0;
        for (int j = 0; j < V; j++)
            sum += rest[j];
        draws(rest, sum, replace, n - 1, mask | 1 << i, weight * w[i] / left, set);
    }
}

// The distribution of the set of children.
static void children(pl_proposal kind, const double *q, int n, double *set) {
    double w[V];
    int    mask = 0, best = kind == PL_PROPOSE_TOP ? n : kind == PL_PROPOSE_TOP_ONE ? n - 1 : 0;
    double left = 0;
    memset(set, 0, MASKS * sizeof *set);
    memcpy(w, q, sizeof w);
    for (int i = 0; i < best; i++) {
        int64_t b = pl_propose_best(w, V);
        if (w[b] > 0) mask |= 1 << b;
        w[b] = 0;
    }
    for (int i = 0; i < V; i++)
        left += w[i];
    draws(w, left, kind == PL_PROPOSE_IID, n - best, mask, 1, set);
}

static double all_subsets(const double *p, const double *set) {
    double least = 1;
    for (int h = 0; h < MASKS; h++) {
        double value = 0;
        for (int i = 0; i < V; i++)
            value += h >> i & 1 ? p[i] : 0;
        for (int s = 0; s < MASKS; s++)
            value -= (s & ~h) == 0 ? set[s] : 0;
        least = fmin(least, 1 + value);
    }
    return least;
}

// The transport problem itself: source -> sets -> their tokens -> sink, by augmenting paths.
enum { SOURCE = 0, SETS = 1, TOKENS = SETS + MASKS, SINK = TOKENS + V, POINTS };
static double room[POINTS][POINTS];
static bool   seen[POINTS];

static double augment(int at, double flow) {
    if (at == SINK) return flow;
    seen[at] = true;
    for (int to = 0; to < POINTS; to++) {
        if (seen[to] || room[at][to] < 1e-14) continue;
        double pushed = augment(to, fmin(flow, room[at][to]));
        if (pushed > 0) {
            room[at][to] -= pushed;
            room[to][at] += pushed;
            return pushed;
        }
    }
    return 0;
}

static double max_flow(const double *p, const double *set) {
    double flow = 0, pushed;
    memset(room, 0, sizeof room);
    for (int s = 0; s < MASKS; s++) {
        room[SOURCE][SETS + s] = set[s];
        for (int i = 0; i < V; i++)
            room[SETS + s][TOKENS + i] = s >> i & 1 ? 2 : 0;
    }
    for (int i = 0; i < V; i++)
        room[TOKENS + i][SINK] = p[i];
    do {
        memset(seen, 0, sizeof seen);
        flow += pushed = augment(SOURCE, 2);
    } while (pushed > 0);
    return flow;
}

static pl_acceptance work;

static void bound_is_the_optimum(void **state) {
    (void)state;
    pl_err err = {0};
    double p[V], q[V], set[MASKS], bound[N], worst = 0;
    assert_int_equal(pl_acceptance_init(&work, V, &err), PL_OK);
    for (int look = 0; look < 5; look++)
        for (uint64_t seed = 0; seed < 200; seed++) {
            dists(look, seed, V, p, q);
            for (int kind = 0; kind <= PL_PROPOSE_TOP_ONE; kind++) {
                pl_acceptance_bound(&work, (pl_proposal)kind, p, q, N, bound);
                for (int n = 1; n <= N; n++) {
                    children((pl_proposal)kind, q, n, set);
                    double subsets = all_subsets(p, set);
                    worst = fmax(worst, fabs(bound[n - 1] - subsets));
                    if (!(fabs(bound[n - 1] - subsets) < (kind == PL_PROPOSE_WOR ? QUADRATURE : 1e-12)))
                        fail_msg("draft %d of %d, look %d, seed %d: %.15g, over all subsets %.15g", kind, n, look,
                                 (int)seed, bound[n - 1], subsets);
                    if (seed < 20) assert_true(fabs(max_flow(p, set) - subsets) < 1e-11);
                }
            }
        }
    pl_acceptance_fini(&work);
    print_message("off by %.2g at most\n", worst);
}

// Many tokens: of one draw the bound is the overlap; of two without replacement a sum over pairs.
static void bound_of_many_tokens(void **state) {
    (void)state;
    enum { MANY = 400 };
    static double p[MANY], q[MANY];
    pl_err        err = {0};
    double        bound[PL_ACCEPTANCE_CHILDREN];
    assert_int_equal(pl_acceptance_init(&work, MANY, &err), PL_OK);
    for (int look = 0; look < 5; look++) {
        int order[MANY];
        dists(look, 7, MANY, p, q);
        int drawn = 0;
        for (int i = 0; i < MANY; i++) { // insertion sort by p / q of those that can be drawn
            if (!(q[i] > 0)) continue;
            int at = drawn++;
            for (; at > 0 && p[i] * q[order[at - 1]] < p[order[at - 1]] * q[i]; at--)
                order[at] = order[at - 1];
            order[at] = i;
        }
        double least = 1, ph = 0;
        for (int h = 0; h < drawn; h++) {
            double pairs = 0, qh = 0;
            ph += p[order[h]];
            for (int i = 0; i <= h; i++)
                qh += q[order[i]];
            for (int i = 0; i <= h; i++) {
                double x = q[order[i]];
                pairs += x * (qh - x) / (1 - x);
            }
            least = fmin(least, 1 + ph - pairs);
        }
        pl_acceptance_bound(&work, PL_PROPOSE_WOR, p, q, PL_ACCEPTANCE_CHILDREN, bound);
        assert_true(fabs(bound[0] - pl_overlap(p, q, MANY)) < QUADRATURE);
        assert_true(fabs(bound[1] - least) < QUADRATURE);
        for (int n = 1; n < PL_ACCEPTANCE_CHILDREN; n++)
            assert_true(bound[n] >= bound[n - 1] - QUADRATURE && bound[n] <= 1 + QUADRATURE);
        pl_acceptance_bound(&work, PL_PROPOSE_IID, p, q, 1, bound);
        assert_true(fabs(bound[0] - pl_overlap(p, q, MANY)) < 1e-12);
    }
    pl_acceptance_fini(&work);
}

// Recursive rejection without replacement, over all sequences of draws.
static double recursive_wor(const double *p, const double *q, int n) {
    double accepted = 0;
    if (n == 0) return 0;
    for (int x = 0; x < V; x++) {
        double p2[V], q2[V], sum = 0, keep = fmin(1, p[x] / q[x]);
        if (!(q[x] > 0)) continue;
        memcpy(p2, p, sizeof p2);
        memcpy(q2, q, sizeof q2);
        q2[x] = 0;
        for (int i = 0; i < V; i++)
            sum += q2[i];
        for (int i = 0; i < V && sum > 0; i++)
            q2[i] /= sum;
        double later = keep < 1 && sum > 0 && pl_residual(p2, q, V) ? recursive_wor(p2, q2, n - 1) : 0;
        accepted += q[x] * (keep + (1 - keep) * later);
    }
    return accepted;
}

static void verifiers_stay_below(void **state) {
    (void)state;
    pl_err      err = {0};
    double      p[V], q[V], bound[N], variance, off = 0, expected_off = 0;
    pl_rng_coin coin;
    assert_int_equal(pl_acceptance_init(&work, V, &err), PL_OK);
    for (int look = 0; look < 5; look++)
        for (uint64_t seed = 0; seed < 8; seed++) {
            dists(look, seed, V, p, q);
            for (int i = 0; pl_verifier_at(i); i++) {
                const pl_verifier *v = pl_verifier_at(i);
                if (!v->lossless) continue;
                pl_acceptance_bound(&work, v->proposal, p, q, N, bound);
                for (int n = 1; n <= (v->chain ? 1 : N); n++) {
                    pl_rng_coin_init(&coin, seed, PL_STREAM_TEST, (uint64_t)(look * 8 + i), n);
                    double a = pl_acceptance_expected(&work, v, p, q, n, 4000, &coin.base, &variance);
                    if (!(a <= bound[n - 1] + QUADRATURE + 5 * sqrt(variance)))
                        fail_msg("%s of %d: %.6f above the bound %.6f", v->name, n, a, bound[n - 1]);
                    if (v == &pl_verify_transport || v == &pl_verify_match) assert_true(fabs(a - bound[n - 1]) < 1e-12);
                    if (v != &pl_verify_recursive_wor) continue;
                    double exact = recursive_wor(p, q, n);
                    assert_true(fabs(a - exact) < 1e-12 + 5 * sqrt(variance) + 1e-3 * (variance == 0 && n > 1));
                    off += (a - exact) * (a - exact);
                    expected_off += variance;
                }
            }
        }
    pl_acceptance_fini(&work);
    assert_true(off < 2 * expected_off && off > expected_off / 2); // the stated error is the error
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(bound_is_the_optimum),
        cmocka_unit_test(bound_of_many_tokens),
        cmocka_unit_test(verifiers_stay_below),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
