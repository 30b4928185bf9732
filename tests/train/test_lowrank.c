// Low-rank factors: exact where the rank suffices, the best of their rank where it does not.
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "kernels/base/rng.h"
#include "train/start/lowrank.h"
#include <math.h>
#include <string.h>

enum { N = 1300, D = 24, R = 5 };

static float noise(int what, int64_t i) {
    return pl_rng_normal(pl_rng_make(2, PL_STREAM_TEST, (uint64_t)what), (uint64_t)i);
}

static float w[N * D], up[N * D], down[D * D];

// What up down leaves of W without its mean row, squared and summed.
static double rest(const int32_t *id, int64_t n, int64_t r) {
    double mean[D] = {0}, sum = 0;
    for (int64_t i = 0; i < n; i++)
        for (int j = 0; j < D; j++)
            mean[j] += (double)w[(id ? id[i] : i) * D + j] / (double)n;
    for (int64_t i = 0; i < n; i++)
        for (int j = 0; j < D; j++) {
            double x = (double)w[(id ? id[i] : i) * D + j] - mean[j];
            for (int64_t k = 0; k < r; k++)
                x -= (double)up[i * r + k] * (double)down[k * D + j];
            sum += x * x;
        }
    return sum;
}

static void factors(const int32_t *id, int64_t n, int64_t r, pl_pool *pool) {
    pl_tensor t = pl_tensor_2d(w, PL_F32, N, D);
    pl_err    err = {0};
    if (pl_lowrank_factors(up, down, &t, id, n, r, 1, pl_backend_cpu(), pool, &err) != PL_OK) fail_msg("%s", err.msg);
}

// W = A B + a mean row, of rank R: nothing is left, the mean row costs no rank.
static void exact(void **state) {
    (void)state;
    static int32_t id[N / 3];
    for (int64_t i = 0; i < N; i++)
        for (int j = 0; j < D; j++) {
            w[i * D + j] = 30 * noise(3, j);
            for (int k = 0; k < R; k++)
                w[i * D + j] += noise(1, i * R + k) * noise(2, k * D + j) * (float)(k + 1);
        }
    factors(NULL, N, R, NULL);
    assert_true(rest(NULL, N, R) < 1e-4);
    factors(NULL, N, R - 1, NULL);
    assert_true(rest(NULL, N, R - 1) > 10);
    for (int i = 0; i < N / 3; i++)
        id[i] = 3 * i + 1;
    factors(id, N / 3, R, NULL);
    assert_true(rest(id, N / 3, R) < 1e-4);
}

// Columns of known sizes, mixed by nothing: the best rank keeps the largest, what is left is the others' sum.
static void best(void **state) {
    (void)state;
    double size[D] = {0}, mean[D] = {0}, left = 0;
    for (int64_t i = 0; i < N; i++)
        for (int j = 0; j < D; j++) {
            w[i * D + j] = noise(4, i * D + j) / (float)(1 + j);
            mean[j] += (double)w[i * D + j] / N;
        }
    // Made exactly orthogonal and centred, so that the sizes are the singular values.
    static double c[D][N];
    for (int j = 0; j < D; j++) {
        for (int64_t i = 0; i < N; i++)
            c[j][i] = (double)w[i * D + j] - mean[j];
        for (int p = 0; p < j; p++) {
            double s = 0;
            for (int64_t i = 0; i < N; i++)
                s += c[j][i] * c[p][i];
            for (int64_t i = 0; i < N; i++)
                c[j][i] -= s / size[p] * c[p][i];
        }
        for (int64_t i = 0; i < N; i++)
            size[j] += c[j][i] * c[j][i];
        for (int64_t i = 0; i < N; i++)
            w[i * D + j] = (float)c[j][i];
    }
    factors(NULL, N, R, NULL);
    for (int j = R; j < D; j++)
        left += size[j];
    double got = rest(NULL, N, R);
    assert_true(got > left * 0.9999 && got < left * 1.001);
    for (int a = 0; a < R; a++)
        for (int b = 0; b <= a; b++) {
            double s = 0;
            for (int j = 0; j < D; j++)
                s += (double)down[a * D + j] * (double)down[b * D + j];
            assert_true(fabs(s - (a == b)) < 1e-5);
        }
}

static void threads_do_not_matter(void **state) {
    (void)state;
    static float up1[N * R], down1[R * D];
    pl_pool     *pool;
    assert_int_equal(pl_pool_create(&pool, 2, NULL), PL_OK);
    factors(NULL, N, R, NULL);
    memcpy(up1, up, sizeof up1);
    memcpy(down1, down, sizeof down1);
    factors(NULL, N, R, pool);
    assert_memory_equal(up1, up, sizeof up1);
    assert_memory_equal(down1, down, sizeof down1);
    pl_pool_destroy(pool);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(exact),
        cmocka_unit_test(best),
        cmocka_unit_test(threads_do_not_matter),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
