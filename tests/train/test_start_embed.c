// Where embeddings of a drafter's own start: the target's rows, or a projection that keeps what they tell apart.
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "kernels/base/rng.h"
#include "train/start/embed.h"
#include <math.h>
#include <string.h>

enum { N = 1300, D = 96, WIDTH = 64 };

static float     from[N * D], to[N * WIDTH], again[N * WIDTH], whole[N * D];
static pl_tensor table;

static void start(float *rows, int64_t width, uint64_t seed, pl_pool *pool) {
    pl_err err = {0};
    if (pl_start_embed(rows, &table, width, seed, pl_backend_cpu(), pool, &err) != PL_OK) fail_msg("%s", err.msg);
}

static int setup(void **state) {
    (void)state;
    for (int64_t i = 0; i < N * D; i++)
        from[i] = 0.02f * pl_rng_normal(pl_rng_make(2, PL_STREAM_TEST, 1), (uint64_t)i);
    table = pl_tensor_2d(from, PL_F32, N, D);
    return 0;
}

static double product(const float *x, int64_t d, int64_t i, int64_t j) {
    double s = 0;
    for (int64_t k = 0; k < d; k++)
        s += (double)x[i * d + k] * (double)x[j * d + k];
    return s;
}

static void as_wide_is_the_targets(void **state) {
    (void)state;
    start(whole, D, 5, NULL);
    assert_memory_equal(whole, from, sizeof from);
}

// Products of rows, per element, are the target's but for an error of their sizes over the root of the width.
static void products_are_kept(void **state) {
    (void)state;
    double square = 0, size = 0;
    start(to, WIDTH, 5, NULL);
    for (int64_t i = 0; i < N; i++) {
        double was = product(from, D, i, i) / D, is = product(to, WIDTH, i, i) / WIDTH;
        size += is / was / N;
        int64_t j = (i * 7 + 3) % N;
        double  error = product(to, WIDTH, i, j) / WIDTH - product(from, D, i, j) / D;
        square += error * error / (was * product(from, D, j, j) / D) / N;
    }
    assert_true(fabs(size - 1) < 0.05);
    assert_true(sqrt(square) < 1.2 / sqrt((double)WIDTH) && sqrt(square) > 0.5 / sqrt((double)WIDTH));
}

static void seed_alone_decides(void **state) {
    (void)state;
    pl_err   err = {0};
    pl_pool *pool;
    assert_int_equal(pl_pool_create(&pool, 2, &err), PL_OK);
    start(to, WIDTH, 5, NULL);
    start(again, WIDTH, 5, pool);
    assert_memory_equal(to, again, sizeof to);
    start(again, WIDTH, 6, pool);
    assert_memory_not_equal(to, again, sizeof to);
    pl_pool_destroy(pool);
}

int main(void) {
    const struct CMUnitTest tests[] = {cmocka_unit_test(as_wide_is_the_targets), cmocka_unit_test(products_are_kept),
                                       cmocka_unit_test(seed_alone_decides)};
    return cmocka_run_group_tests(tests, setup, NULL);
}
