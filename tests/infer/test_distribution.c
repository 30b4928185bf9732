// Sums and draws over a vocabulary beside the plain loops that they stand for.
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "infer/sample/coin.h"
#include "infer/sample/distribution.h"
#include "infer/verify/verify.h"
#include "kernels/cuda/emulate/device_emulated.h"
#include <math.h>
#include <string.h>

enum { MOST = 3000 };

static double w[MOST], q[MOST];

// Weights of which some, most or all but one are zero.
static void fill(double *x, int64_t n, pl_rng r, int kind) {
    for (int64_t i = 0; i < n; i++) {
        double u = pl_rng_uniform(r, (uint64_t)(2 * i));
        x[i] = kind == 0 ? u : kind == 1 ? (u < 0.98 ? 0 : u) : exp(-20 * u);
    }
    if (kind == 1) x[pl_rng_below(r, (uint64_t)(2 * n), (uint64_t)n)] = 0.5;
}

static void draws(void **state) {
    (void)state;
    static const int64_t sizes[] = {1, 3, 8, 255, 256, 257, 700, MOST};
    for (int c = 0; c < 8; c++)
        for (int kind = 0; kind < 3; kind++) {
            int64_t n = sizes[c], last = -1, first = -1;
            double  sum = 0;
            fill(w, n, pl_rng_make(3, PL_STREAM_TEST, (uint64_t)(c * 3 + kind)), kind);
            for (int64_t i = 0; i < n; i++) {
                sum += w[i];
                if (w[i] > 0) last = i;
                if (w[i] > 0 && first < 0) first = i;
            }
            assert_true(fabs(pl_sum(w, n) - sum) <= 1e-13 * sum);
            assert_int_equal(pl_draw_at(w, n, 0), first);
            assert_int_equal(pl_draw_at(w, n, 1), last); // past what a uniform can be: rounding's way out
            // In the middle of a token's share it is that token; the shares of all of them are tried.
            double before = 0;
            for (int64_t i = 0; i < n; before += w[i++])
                if (w[i] > 1e-9 * sum) assert_int_equal(pl_draw_at(w, n, (before + w[i] / 2) / sum), i);
        }
}

static void residuals(void **state) {
    (void)state;
    for (int64_t n = 1; n < 40; n++) {
        double want = 0, sum = 0, p[40];
        fill(w, n, pl_rng_make(4, PL_STREAM_TEST, (uint64_t)n), 0);
        fill(q, n, pl_rng_make(5, PL_STREAM_TEST, (uint64_t)n), 0);
        for (int64_t i = 0; i < n; i++)
            want += fmax(0.7 * w[i] - q[i], 0);
        assert_true(fabs(pl_surplus(w, q, n, 0.7) - want) <= 1e-13);
        memcpy(p, w, (size_t)n * sizeof *p);
        bool some = pl_residual(p, q, n);
        assert_int_equal(some, pl_surplus(w, q, n, 1) > 0);
        for (int64_t i = 0; i < n; i++) {
            assert_true(some ? (p[i] > 0) == (w[i] > q[i]) : p[i] == w[i]);
            sum += p[i];
        }
        if (some) assert_true(fabs(sum - 1) <= 1e-13);
    }
}

// The distribution without filters is the softmax; with temperature 0 the lowest of the best.
static void dists(void **state) {
    (void)state;
    enum { V = 1037 };
    static float         x[V];
    static double        p[V];
    pl_distribution_work k;
    pl_rng               r = pl_rng_make(6, PL_STREAM_TEST, 0);
    assert_int_equal(pl_distribution_work_init(&k, V, NULL), PL_OK);
    for (int i = 0; i < V; i++)
        x[i] = (float)(3 * pl_rng_normal(r, (uint64_t)i));
    x[800] = x[30] = 20;
    for (int t = 0; t < 3; t++) {
        pl_sampling s = {.temperature = t == 0 ? 0 : t == 1 ? 1 : 0.6, .top_p = 1};
        double      sum = 0, total = 0;
        assert_true(pl_distribution(p, x, V, &s, &(pl_history){0}, &k));
        for (int i = 0; i < V; i++) {
            sum += exp(((double)x[i] - 20) / (t == 0 ? 1 : s.temperature));
            total += p[i];
        }
        assert_true(fabs(total - 1) <= 1e-12);
        for (int i = 0; i < V; i++) {
            double want = exp(((double)x[i] - 20) / (t == 0 ? 1 : s.temperature)) / sum;
            if (t == 0)
                assert_true(p[i] == (i == 30));
            else
                assert_true(fabs(p[i] - want) <= 1e-5 * want);
        }
    }
    pl_distribution_work_fini(&k);
}

// The op draw, which devices have, gives the token that a host finds from the whole distribution: under every
// processor, with tokens that occurred in the text and on the way through a tree.
static void op_draws_from_the_dist(void **state) {
    (void)state;
    enum { V = 203, N = 24, ROUNDS = 12, WORDS = (V + 31) / 32 };
    static const pl_backend *(*const backends[])(void) = {pl_backend_ref, pl_backend_cuda_emulated};
    static double        p[V];
    pl_distribution_work k;
    int                  checked = 0, others = 0;
    assert_int_equal(pl_distribution_work_init(&k, V, NULL), PL_OK);
    for (int b = 0; b < 2; b++) {
        const pl_backend *be = backends[b]();
        float            *x = pl_memory_create(be->memory, PL_SHARED, N * V * sizeof *x, NULL);
        pl_draw_row      *row = pl_memory_create(be->memory, PL_SHARED, N * sizeof *row, NULL);
        uint32_t         *said = pl_memory_create(be->memory, PL_SHARED, WORDS * sizeof *said, NULL);
        int32_t          *id = pl_memory_create(be->memory, PL_SHARED, N * sizeof *id, NULL), path[N];
        pl_ctx            ctx;
        assert_int_equal(pl_ctx_init(&ctx, be, NULL), PL_OK);
        assert_int_equal(pl_arena_reserve(&ctx.scratch, 1 << 16, NULL), PL_OK);
        for (int c = 0; c < ROUNDS; c++) {
            pl_rng      r = pl_rng_make(7, PL_STREAM_TEST, (uint64_t)c);
            pl_sampling s = {.temperature = c % 5 == 4 ? 0 : 0.4 + 0.3 * c,
                             .top_k = c % 3 == 1 ? 30 : 0,
                             .top_p = c % 2 ? 0.9 : 1,
                             .min_p = c % 4 == 3 ? 0.03 : 0,
                             .repetition_penalty = c % 4 == 0   ? 1
                                                   : c % 4 == 1 ? 0.7
                                                                : 1.4};
            for (int i = 0; i < N * V; i++)
                x[i] = 3 * pl_rng_normal(r, (uint64_t)i);
            for (int i = 0; i < V / 4; i++)
                pl_said_add(said, (int32_t)pl_rng_below(r, (uint64_t)(N * V + i), V));
            for (int i = 0; i < N; i++)
                row[i] = (pl_draw_row){.u = pl_rng_uniform(r, (uint64_t)(2 * N * V + i)),
                                       .temperature = s.temperature,
                                       .top_p = s.top_p,
                                       .min_p = s.min_p,
                                       .penalty = (float)s.repetition_penalty,
                                       .top_k = s.top_k,
                                       .at = i,
                                       .token = (7 * i + c) % V,
                                       .parent = (i + 1) / 2 - 1};
            pl_draw(&ctx,
                    &(pl_draw_args){
                        .x = pl_tensor_2d(x, PL_F32, N, V), .row = row, .n = N, .said = said, .texts = 1, .id = id});
            assert_int_equal(pl_ctx_sync(&ctx, NULL), PL_OK);
            for (int i = 0; i < N; i++) {
                pl_history h = {.said = said, .path = path};
                for (int at = i; row[at].parent >= 0; at = row[at].parent)
                    path[h.n_path++] = row[at].token;
                assert_true(pl_distribution(p, x + i * V, V, &s, &h, &k));
                int64_t want = pl_draw_at(p, V, row[i].u);
                if (id[i] != want)
                    fail_msg("%s, distribution %d, row %d: %d, not %d", be->name, c, i, id[i], (int)want);
                checked++;
                h = (pl_history){0};
                assert_true(pl_distribution(p, x + i * V, V, &s, &h, &k));
                others += pl_draw_at(p, V, row[i].u) != want; // what came before counts
            }
            memset(said, 0, WORDS * sizeof *said);
        }
        pl_ctx_fini(&ctx);
        pl_memory_destroy(be->memory, PL_SHARED, x, N * V * sizeof *x);
        pl_memory_destroy(be->memory, PL_SHARED, row, N * sizeof *row);
        pl_memory_destroy(be->memory, PL_SHARED, said, WORDS * sizeof *said);
        pl_memory_destroy(be->memory, PL_SHARED, id, N * sizeof *id);
    }
    assert_true(checked == 2 * N * ROUNDS && others > 50);
    pl_distribution_work_fini(&k);
}

// What is taken gives a distribution: the coldest and the hottest.
static void ranges(void **state) {
    (void)state;
    static const double  given[] = {0, PL_COLDEST, 1000}, refused[] = {-1, PL_COLDEST / 2, 3e-39, 1001, NAN};
    static const float   x[] = {-1e4f, 3, 20, -INFINITY, 20};
    pl_distribution_work work;
    pl_err               err = {0};
    assert_int_equal(pl_distribution_work_init(&work, 5, &err), PL_OK);
    for (size_t i = 0; i < sizeof given / sizeof *given; i++) {
        pl_sampling s = {.temperature = given[i], .top_p = 1};
        double      p[5];
        assert_int_equal(pl_sampling_check(&s, &err), PL_OK);
        assert_true(pl_distribution(p, x, 5, &s, &(pl_history){0}, &work));
        assert_true(fabs(p[0] + p[1] + p[2] + p[3] + p[4] - 1) < 1e-12 && p[2] >= p[4] && p[3] == 0);
    }
    for (size_t i = 0; i < sizeof refused / sizeof *refused; i++) {
        pl_sampling s = {.temperature = refused[i], .top_p = 1};
        assert_int_equal(pl_sampling_check(&s, &err), PL_E_USAGE);
        assert_non_null(strstr(err.msg, "--temperature: must be 0 (greedy) or lie in 1e-06..1000"));
    }
    pl_distribution_work_fini(&work);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(ranges),
        cmocka_unit_test(draws),
        cmocka_unit_test(residuals),
        cmocka_unit_test(dists),
        cmocka_unit_test(op_draws_from_the_dist),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
