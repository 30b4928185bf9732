#include "tests/infer/enumerate.h"

#include "kernels/base/check.h"

#include <math.h>

// One of n outcomes with these weights.
static int64_t decide(test_every *e, const double *w, int64_t n) {
    double  sum = 0;
    int64_t from = 0, i;
    for (i = 0; i < n; i++) {
        PL_CHECK(w[i] >= 0 && isfinite(w[i]), "weight %lld is %g", (long long)i, w[i]);
        sum += w[i];
    }
    PL_CHECK(sum > 0 && e->at < TEST_DECISIONS, "decision %d, weights' sum %g", e->at, sum);
    bool replay = e->at < e->n - 1;
    if (e->at < e->n) from = e->chosen[e->at] + !replay; // the last decision of the last run moves on
    for (i = from; !(w[i] > 0); i++)
        PL_CHECK(i + 1 < n, "decision %d: a run was not repeated", e->at);
    if (!replay) {
        e->chosen[e->at] = i;
        e->more[e->at] = false;
        for (int64_t j = i + 1; j < n; j++)
            e->more[e->at] |= w[j] > 0;
        e->n = e->at + 1;
    }
    e->at++;
    e->probability *= w[i] / sum;
    return i;
}

static bool flip(pl_coin *c, double p) {
    PL_CHECK(!isnan(p), "a coin of probability NaN");
    p = fmin(fmax(p, 0), 1);
    return decide((test_every *)c, (double[]){p, 1 - p}, 2) == 0;
}

static int64_t draw(pl_coin *c, const double *w, int64_t n, int64_t position) {
    (void)position;
    return decide((test_every *)c, w, n);
}

static double uniform(pl_coin *c) {
    enum { NUMBERS = 2 };
    return ((double)decide((test_every *)c, (double[NUMBERS]){1, 1}, NUMBERS) + 0.5) / NUMBERS;
}

void test_every_begin(test_every *e) {
    *e = (test_every){.coin = {.flip = flip, .draw = draw, .uniform = uniform}};
}

bool test_every_next(test_every *e) {
    if (e->runs > 0) {
        while (e->n > 0 && !e->more[e->n - 1])
            e->n--;
        if (e->n == 0) return false;
    }
    e->runs++;
    e->at = 0;
    e->probability = 1;
    return true;
}
