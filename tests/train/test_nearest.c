// Nearest rows against every cosine in double; ties; rows of zeros; whatever the chunks and threads.
#include "kernels/base/rng.h"
#include "train/start/nearest.h"

#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdlib.h>

#include <cmocka.h>

enum { D = 24 };

static double cosine(const float *a, const float *b) {
    double ab = 0, aa = 0, bb = 0;
    for (int k = 0; k < D; k++) {
        ab += (double)a[k] * (double)b[k];
        aa += (double)a[k] * (double)a[k];
        bb += (double)b[k] * (double)b[k];
    }
    return aa > 0 && bb > 0 ? ab / sqrt(aa * bb) : 0;
}

static void against_all(int64_t v, int64_t n, pl_pool *pool) {
    float   *w = malloc((size_t)(v * D) * sizeof *w);
    int32_t *id = malloc((size_t)n * sizeof *id), *on = malloc((size_t)v * sizeof *on);
    pl_err   err = {0};
    for (int64_t i = 0; i < v * D; i++)
        w[i] = (float)(1 + i / D % 5) * pl_rng_normal(pl_rng_make(3, PL_STREAM_TEST, (uint64_t)v), (uint64_t)i);
    for (int64_t j = 0; j < n; j++)
        id[j] = (int32_t)((7 * j + 2) % v);
    pl_tensor t = pl_tensor_2d(w, PL_F32, v, D);
    if (pl_nearest_rows(on, &t, id, n, pl_backend_cpu(), pool, &err) != PL_OK) fail_msg("%s", err.msg);
    for (int64_t j = 0; j < n; j++)
        assert_int_equal(on[id[j]], j);
    for (int64_t y = 0; y < v; y++) {
        double best = -2, got = cosine(w + y * D, w + id[on[y]] * (int64_t)D);
        for (int64_t j = 0; j < n; j++)
            best = fmax(best, cosine(w + y * D, w + id[j] * (int64_t)D));
        assert_true(got >= best - 1e-6);
    }
    free(w);
    free(id);
    free(on);
}

static void nearest(void **state) {
    (void)state;
    pl_pool *pool;
    assert_int_equal(pl_pool_create(&pool, 2, NULL), PL_OK);
    against_all(300, 40, NULL);
    against_all(700, 1, pool);
    against_all(613, 611, pool); // 613 is prime: 7 j + 2 meets every row once
    against_all(1201, 200, pool);
    pl_pool_destroy(pool);
}

static void edges(void **state) {
    (void)state;
    float         w[4][D] = {{0}, {0, 1}, {0, 2}, {0, 3}}; // zeros; three of one direction
    const int32_t id[2] = {3, 1};
    int32_t       on[4];
    pl_err        err = {0};
    pl_tensor     t = pl_tensor_2d(w, PL_F32, 4, D);
    assert_int_equal(pl_nearest_rows(on, &t, id, 2, pl_backend_cpu(), NULL, &err), PL_OK);
    assert_true(on[0] == 0 && on[1] == 1 && on[2] == 0 && on[3] == 0);
    w[2][5] = NAN;
    assert_int_equal(pl_nearest_rows(on, &t, id, 2, pl_backend_cpu(), NULL, &err), PL_E_INPUT);
    assert_string_equal(err.msg, "row 2 of the target's output matrix is not finite");
}

int main(void) {
    const struct CMUnitTest tests[] = {cmocka_unit_test(nearest), cmocka_unit_test(edges)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
