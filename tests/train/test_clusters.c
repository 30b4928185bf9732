// Clusters of a head's rows: known clusters are found, every cluster has rows, bits do not depend on threads.
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "kernels/base/arena.h"
#include "kernels/base/rng.h"
#include "train/task/clusters.h"
#include <math.h>
#include <string.h>

enum { N = 5000, D = 32 };

static float w[N * D];

static float noise(int what, int64_t i) {
    return pl_rng_normal(pl_rng_make(5, PL_STREAM_TEST, (uint64_t)what), (uint64_t)i);
}

static void make(pl_clusters *c, const int32_t *id, int64_t n, int64_t m, pl_pool *pool) {
    pl_tensor t = pl_tensor_2d(w, PL_F32, N, D);
    pl_err    err = {0};
    if (pl_clusters_make(c, &t, id, n, m, 3, pl_backend_cpu(), pool, &err) != PL_OK) fail_msg("%s", err.msg);
}

// A partition: offsets ascend, every row once, rows of a cluster in their order, no cluster empty.
static void check_partition(const pl_clusters *c) {
    static uint8_t seen[N];
    memset(seen, 0, sizeof seen);
    assert_true(c->offset[0] == 0 && c->offset[c->m] == c->n);
    for (int64_t k = 0; k < c->m; k++) {
        assert_true(c->offset[k] < c->offset[k + 1]);
        for (int64_t i = c->offset[k]; i < c->offset[k + 1]; i++) {
            assert_true(c->order[i] >= 0 && c->order[i] < c->n && !seen[c->order[i]]);
            assert_true(i == c->offset[k] || c->order[i - 1] < c->order[i]);
            seen[c->order[i]] = 1;
        }
    }
}

static void gaussian(void) {
    for (int64_t i = 0; i < N * D; i++)
        w[i] = noise(0, i);
}

// Directions far apart with rows of any length around them: the clusters are the directions.
static void finds_directions(void **state) {
    (void)state;
    enum { TRUE = 8 };
    for (int64_t i = 0; i < N; i++)
        for (int j = 0; j < D; j++)
            w[i * D + j] = expf(noise(2, i)) * ((j == 3 * (i % TRUE) ? 1.0f : 0.0f) + 0.02f * noise(1, i * D + j));
    pl_clusters c;
    make(&c, NULL, N, 4 * TRUE, NULL); // more than there are: none holds rows of two directions
    check_partition(&c);
    for (int64_t k = 0; k < c.m; k++)
        for (int64_t i = c.offset[k]; i < c.offset[k + 1]; i++)
            assert_int_equal(c.order[i] % TRUE, c.order[c.offset[k]] % TRUE);
    assert_true(c.cosine > 0.99);
    pl_clusters_fini(&c);
}

// What k-means promises: each row is nearest to its own cluster's centre, up to the rows that still moved.
static void nearest(void **state) {
    (void)state;
    enum { M = 40 };
    gaussian();
    static int32_t id[N / 2];
    for (int i = 0; i < N / 2; i++)
        id[i] = N - 1 - 2 * i;
    pl_clusters c;
    make(&c, id, N / 2, M, NULL);
    check_partition(&c);
    static double centre[M][D];
    memset(centre, 0, sizeof centre);
    for (int pass = 0; pass < 2; pass++) {
        int64_t wrong = 0;
        for (int64_t k = 0; k < M; k++)
            for (int64_t i = c.offset[k]; i < c.offset[k + 1]; i++) {
                const float *u = w + (int64_t)id[c.order[i]] * D;
                double       norm = 0, best = -INFINITY, own = 0;
                for (int j = 0; j < D; j++)
                    norm += (double)u[j] * (double)u[j];
                for (int j = 0; j < D && pass == 0; j++)
                    centre[k][j] += (double)u[j] / sqrt(norm);
                for (int64_t o = 0; o < M && pass == 1; o++) {
                    double s = 0, size = 0;
                    for (int j = 0; j < D; j++) {
                        s += (double)u[j] * centre[o][j];
                        size += centre[o][j] * centre[o][j];
                    }
                    s /= sqrt(size);
                    if (o == k) own = s;
                    if (s > best) best = s;
                }
                wrong += own < best - 1e-6;
            }
        assert_true(wrong * 20 < N / 2);
    }
    assert_true(c.rounds > 2 && c.cosine > 0.4);
    pl_clusters_fini(&c);
}

static void threads_and_seed(void **state) {
    (void)state;
    gaussian();
    pl_clusters one, two;
    pl_pool    *pool;
    pl_err      err = {0};
    assert_int_equal(pl_pool_create(&pool, 2, &err), PL_OK);
    make(&one, NULL, N, 100, NULL);
    make(&two, NULL, N, 100, pool);
    assert_memory_equal(one.order, two.order, sizeof *one.order * N);
    assert_memory_equal(one.offset, two.offset, sizeof *one.offset * 101);
    assert_true(one.cosine == two.cosine);
    pl_clusters_fini(&two);
    pl_tensor t = pl_tensor_2d(w, PL_F32, N, D);
    assert_int_equal(pl_clusters_make(&two, &t, NULL, N, 100, 4, pl_backend_cpu(), pool, &err), PL_OK);
    assert_true(memcmp(one.order, two.order, sizeof *one.order * N) != 0);
    pl_clusters_fini(&one);
    pl_clusters_fini(&two);
    pl_pool_destroy(pool);
}

// One of everything, everything its own, rows that are all equal, rows of zeros.
static void edges(void **state) {
    (void)state;
    pl_clusters c;
    gaussian();
    make(&c, NULL, N, 1, NULL);
    check_partition(&c);
    for (int i = 0; i < N; i++)
        assert_int_equal(c.order[i], i);
    pl_clusters_fini(&c);
    make(&c, NULL, 300, 300, NULL);
    check_partition(&c);
    pl_clusters_fini(&c);
    for (int64_t i = 0; i < N * D; i++)
        w[i] = (float)(i % D);
    make(&c, NULL, 700, 50, NULL);
    check_partition(&c);
    pl_clusters_fini(&c);
    memset(w, 0, sizeof w);
    make(&c, NULL, 700, 50, NULL);
    check_partition(&c);
    pl_clusters_fini(&c);
}

static void refused(void **state) {
    (void)state;
    pl_tensor   t = pl_tensor_2d(w, PL_F32, N, D);
    pl_clusters c;
    pl_err      err = {0};
    gaussian();
    assert_int_equal(pl_clusters_make(&c, &t, NULL, 9, 10, 3, pl_backend_cpu(), NULL, &err), PL_E_INPUT);
    assert_string_equal(err.msg, "clusters: 10 of 9 rows; choose 1 to 9");
    assert_int_equal(pl_clusters_make(&c, &t, NULL, 9, 0, 3, pl_backend_cpu(), NULL, &err), PL_E_INPUT);
    w[5 * D + 7] = NAN;
    assert_int_equal(pl_clusters_make(&c, &t, NULL, 9, 3, 3, pl_backend_cpu(), NULL, &err), PL_E_INPUT);
    assert_string_equal(err.msg, "clusters: row 5 of the head is not finite; check the drafter's head");
    assert_null(c.order);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(finds_directions), cmocka_unit_test(nearest),
        cmocka_unit_test(threads_and_seed), cmocka_unit_test(edges),
        cmocka_unit_test(refused),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
