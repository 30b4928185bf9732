// The best of many scores against counting how many come before each.
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "kernels/base/rng.h"
#include "kernels/best.h"
#include <math.h>
#include <string.h>

enum { N = 70, FIRST = 3, AFTER = 2 };

// Elements around the n are better than all of them and NaN: they are not looked at.
static void fill(double *x, int64_t n, int trial) {
    pl_rng rng = pl_rng_make(2, PL_STREAM_TEST, (uint64_t)trial);
    for (int64_t i = 0; i < FIRST; i++)
        x[i] = i ? 1e9 : NAN;
    for (int64_t i = 0; i < n; i++) {
        x[FIRST + i] = (double)pl_rng_below(rng, (uint64_t)i, 9) - 4; // many equal ones
        if (i % 17 == 3) x[FIRST + i] = i % 2 ? INFINITY : -INFINITY;
    }
    for (int64_t i = 0; i < AFTER; i++)
        x[FIRST + n + i] = i ? NAN : 1e9;
}

static void check(const double *x, int64_t n, int64_t k, const int32_t *best) {
    int64_t held = k < n ? k : n, seen[N] = {0};
    for (int64_t i = 0; i < held; i++) {
        assert_in_range(best[i], 0, n - 1);
        seen[best[i]]++;
    }
    for (int64_t i = 0; i < n; i++) {
        int64_t before = 0;
        for (int64_t o = 0; o < n; o++)
            before += x[o] > x[i] || (x[o] == x[i] && o < i);
        assert_int_equal(seen[i], before < k);
    }
    for (int64_t i = held; i < N; i++)
        assert_int_equal(best[i], -7); // no more than that are written
}

static void the_best(void **state) {
    (void)state;
    for (int trial = 0; trial < 400; trial++) {
        double    x[FIRST + N + AFTER];
        float     single[FIRST + N + AFTER];
        int64_t   n = 1 + trial % N, k = (trial / 3) % (N + 3);
        pl_tensor wide = pl_tensor_1d(x, PL_F64, FIRST + n + AFTER);
        pl_tensor narrow = pl_tensor_1d(single, PL_F32, FIRST + n + AFTER);
        fill(x, n, trial);
        for (int64_t i = 0; i < FIRST + n + AFTER; i++)
            single[i] = (float)x[i];
        for (int t = 0; t < 2; t++) {
            int32_t best[N];
            for (int i = 0; i < N; i++)
                best[i] = -7;
            assert_true(pl_best_of(t ? &narrow : &wide, FIRST, n, k, best));
            check(x + FIRST, n, k, best);
        }
    }
}

// Scores that only double tells apart.
static void in_double(void **state) {
    (void)state;
    double    x[] = {1, 1 + 1e-12, 1 - 1e-12, 1};
    pl_tensor t = pl_tensor_1d(x, PL_F64, 4);
    int32_t   best[2];
    assert_true(pl_best_of(&t, 0, 4, 1, best));
    assert_int_equal(best[0], 1);
    assert_true(pl_best_of(&t, 0, 4, 2, best));
    assert_true((best[0] == 0 && best[1] == 1) || (best[0] == 1 && best[1] == 0));
}

static void nan_is_refused(void **state) {
    (void)state;
    for (int64_t k = 0; k < 6; k++)
        for (int64_t at = 0; at < 5; at++) {
            float     x[5] = {3, 1, 4, 1, 5};
            int32_t   best[5];
            pl_tensor t = pl_tensor_1d(x, PL_F32, 5);
            x[at] = NAN;
            assert_false(pl_best_of(&t, 0, 5, k, best));
        }
}

int main(void) {
    const struct CMUnitTest tests[] = {cmocka_unit_test(the_best), cmocka_unit_test(in_double),
                                       cmocka_unit_test(nan_is_refused)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
