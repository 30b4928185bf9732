// Rows for sampling on every instruction set, against double.
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "kernels/backend.h"
#include "kernels/base/rng.h"
#include "kernels/softmax.h"
#include <math.h>
#include <stdlib.h>
#include <string.h>

enum { MOST = 4099 };

// NULL where this machine lacks it.
static const pl_softmax *of(const char *isa) {
    if (!pl_backend_cpu_isa(isa)) return NULL;
    assert_int_equal(setenv("PACELINE_ISA", isa, 1), 0);
    const pl_softmax *s = pl_softmax_cpu();
    assert_int_equal(unsetenv("PACELINE_ISA"), 0);
    return s;
}

static void check_row(const pl_softmax *s, const float *x, int64_t n, float inv_t) {
    static float  w[MOST + 1];
    static double p[MOST + 1];
    float         top, most = -INFINITY;
    double        sum = 0;
    for (int64_t i = 0; i < n; i++)
        most = fmaxf(most, x[i]);
    assert_true(s->top(x, n, &top) && top == most);
    w[n] = -1;
    p[n] = -1;
    double total = s->weigh(w, x, n, top, inv_t);
    s->scale(p, w, n, 1 / total);
    for (int64_t i = 0; i < n; i++) {
        double exponent = (double)(x[i] - top) * (double)inv_t, want = exp(exponent);
        double bound = ldexp(1, -22) + ldexp(-exponent, -23);
        if (exponent < -87.0001)
            assert_true(w[i] == 0);
        else if (exponent > -86.9999)
            assert_true(fabs((double)w[i] - want) <= bound * want);
        assert_true(p[i] == (double)w[i] * (1 / total));
        sum += (double)w[i];
    }
    assert_true(fabs(total - sum) <= 1e-13 * sum);
    assert_true(w[n] == -1 && p[n] == -1); // nothing behind the row
}

static void rows(void **state) {
    (void)state;
    static const float   scales[] = {0.1f, 3, 40};
    static const int64_t sizes[] = {1, 2, 15, 16, 17, 100, 4096, MOST};
    static float         x[MOST];
    pl_rng               r = pl_rng_make(5, PL_STREAM_TEST, 0);
    const char          *level;
    for (int a = 0; (level = pl_backend_cpu_level(a)); a++) {
        const pl_softmax *s = of(level);
        for (int c = 0; s && c < 8 * 3; c++) {
            int64_t n = sizes[c / 3];
            for (int64_t i = 0; i < n; i++)
                x[i] = scales[c % 3] * (float)pl_rng_normal(r, (uint64_t)(c * MOST + i));
            if (n > 20) x[17] = -INFINITY; // a token that is forbidden
            check_row(s, x, n, 1);
            check_row(s, x, n, 1 / 0.7f);
            check_row(s, x, n, 1e-3f);
            check_row(s, x, n, 1e6f);
        }
    }
}

static void not_numbers(void **state) {
    (void)state;
    const char *level;
    float       x[40], top;
    for (int a = 0; (level = pl_backend_cpu_level(a)); a++) {
        const pl_softmax *s = of(level);
        for (int at = 0; s && at < 40; at++)
            for (int64_t n = 1; n <= 40; n++) {
                for (int i = 0; i < 40; i++)
                    x[i] = (float)-i;
                x[at] = NAN;
                assert_int_equal(s->top(x, n, &top), at >= n);
            }
    }
}

// AVX2 and AVX-512 agree to the bit.
static void same_bits(void **state) {
    (void)state;
    static float      x[MOST], w[2][MOST];
    const pl_softmax *s[2] = {of("avx2"), of("avx512")};
    pl_rng            r = pl_rng_make(6, PL_STREAM_TEST, 0);
    if (!s[0] || !s[1]) skip();
    for (int i = 0; i < MOST; i++)
        x[i] = (float)(4 * pl_rng_normal(r, (uint64_t)i));
    float top;
    assert_true(s[0]->top(x, MOST, &top));
    double sum[2];
    for (int k = 0; k < 2; k++)
        sum[k] = s[k]->weigh(w[k], x, MOST, top, 1.25f);
    assert_true(sum[0] == sum[1]);
    assert_memory_equal(w[0], w[1], sizeof w[0]);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(rows),
        cmocka_unit_test(not_numbers),
        cmocka_unit_test(same_bits),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
