// The fixed tree of slots, learning-rate schedules, one update.
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "kernels/base/arena.h"
#include "kernels/base/rng.h"
#include "tests/ref64.h"
#include "train/loop/optim.h"
#include "train/loop/schedule.h"
#include "train/loop/slots.h"
#include <math.h>
#include <string.h>

enum { N = 40001, MOST = 21 };

static float data[MOST][N];

static void fill(void) {
    for (int s = 0; s < MOST; s++)
        for (int i = 0; i < N; i++)
            data[s][i] = pl_rng_normal(pl_rng_make(3, PL_STREAM_TEST, (uint64_t)s), (uint64_t)i);
}

// The definition: halves at the largest power of two below n.
static float tree(int from, int n, int i) {
    if (n == 1) return data[from][i];
    int left = 1;
    while (2 * left < n)
        left *= 2;
    return tree(from, left, i) + tree(from + left, n - left, i);
}

static void sum_slots(float *out, double sums[PL_SLOT_SUMS], int from, int n, pl_pool *pool) {
    pl_slots s;
    pl_ctx   ctx;
    assert_int_equal(pl_ctx_init(&ctx, pl_backend_cpu(), pool), PL_OK);
    assert_int_equal(pl_slots_init(&s, n, N, ctx.be, NULL), PL_OK);
    for (int again = 0; again < 2; again++) { // a second step starts afresh
        pl_slots_begin(&s);
        for (int k = 0; k < n; k++) {
            memcpy(out, data[from + k], sizeof data[0]);
            memset(sums, 0, sizeof(double) * PL_SLOT_SUMS);
            sums[0] = data[from + k][0];
            sums[PL_SLOT_SUMS - 1] = 1;
            pl_slots_add(&s, &ctx, out, sums);
        }
    }
    pl_slots_fini(&s);
    pl_ctx_fini(&ctx);
}

static void tree_is_fixed(void **state) {
    (void)state;
    static float out[N], again[N];
    double       sums[PL_SLOT_SUMS];
    pl_pool     *pool;
    fill();
    assert_int_equal(pl_pool_create(&pool, 2, NULL), PL_OK);
    for (int n = 1; n <= MOST; n++) {
        sum_slots(out, sums, 0, n, NULL);
        for (int i = 0; i < N; i += 97)
            assert_true(out[i] == tree(0, n, i));
        assert_true(sums[PL_SLOT_SUMS - 1] == n);
        sum_slots(again, sums, 0, n, pool);
        assert_memory_equal(out, again, sizeof out);
    }
    pl_pool_destroy(pool);
}

// Two workers that take halves of a power of two, and one that takes all, arrive at the same bits.
static void split_does_not_matter(void **state) {
    (void)state;
    static float all[N], left[N], right[N];
    double       sums[PL_SLOT_SUMS];
    fill();
    sum_slots(all, sums, 0, 16, NULL);
    sum_slots(left, sums, 0, 8, NULL);
    sum_slots(right, sums, 8, 8, NULL);
    for (int i = 0; i < N; i++)
        assert_true(all[i] == left[i] + right[i]);
    float plain = 0; // the order does matter: it is the tree, not luck
    int   differ = 0;
    for (int i = 0; i < N; i++) {
        plain = 0;
        for (int s = 0; s < 16; s++)
            plain += data[s][i];
        differ += plain != all[i];
    }
    assert_true(differ > N / 10);
}

static void schedules(void **state) {
    (void)state;
    pl_schedule s = {.kind = PL_SCHEDULE_COSINE, .lr = 2, .min_ratio = 0.1, .warmup = 4, .steps = 12};
    assert_true(pl_schedule_at(&s, 1) == 0.5 && pl_schedule_at(&s, 4) == 2);
    assert_true(fabs(pl_schedule_at(&s, 8) - 1.1) < 1e-12);
    assert_true(fabs(pl_schedule_at(&s, 12) - 0.2) < 1e-12);
    for (int i = 5; i <= 12; i++)
        assert_true(pl_schedule_at(&s, i) < pl_schedule_at(&s, i - 1));
    s.kind = PL_SCHEDULE_LINEAR;
    assert_true(fabs(pl_schedule_at(&s, 10) - (0.2 + 1.8 * 0.25)) < 1e-12);
    s.kind = PL_SCHEDULE_CONSTANT;
    assert_true(pl_schedule_at(&s, 12) == 2);
    s.warmup = 12; // nothing but warm-up
    assert_true(pl_schedule_at(&s, 12) == 2);
}

// One decayed and one undecayed parameter against AdamW by hand; clipping; a bad gradient changes nothing.
static void update(void **state) {
    (void)state;
    pl_params      ps;
    pl_tensor      a, b;
    pl_param_block block;
    pl_optim       optim;
    pl_err         err = {0};
    assert_int_equal(pl_params_init(&ps, 2, &err), PL_OK);
    pl_params_add(&ps, &(pl_param_args){.tensor = &b, .kind = PL_PARAM_NORM, .part = {{"norm", 3}}});
    pl_params_add(&ps, &(pl_param_args){
                           .tensor = &a, .kind = PL_PARAM_MATRIX, .part = {{"matrix", 2}}, .cols = 2, .init_std = 1});
    pl_param_block_options bo = {.backend = pl_backend_ref64(), .round_to = PL_F32};
    assert_int_equal(pl_param_block_create(&block, &ps, &bo, &err), PL_OK);
    assert_int_equal(pl_param_block_init(&block, 1, NULL), PL_OK);
    assert_int_equal(block.n_decayed, PL_BLOCK_GRAIN);
    assert_int_equal(block.n, 2 * PL_BLOCK_GRAIN);
    assert_ptr_equal(a.data, block.work);

    double w0[32], g[32] = {0};
    memcpy(w0, block.w, sizeof w0);
    for (int i = 0; i < 4; i++)
        g[i] = 0.5 * (i + 1);
    for (int i = 16; i < 19; i++)
        g[i] = -1;
    memcpy(block.grad, g, sizeof g);
    double           norm, want = sqrt(0.25 * (1 + 4 + 9 + 16) + 3) / 2;
    pl_optim_options o = {.beta1 = 0.9, .beta2 = 0.99, .eps = 1e-8, .decay = 0.1, .clip = want / 2};
    assert_int_equal(pl_optim_init(&optim, pl_backend_ref64(), NULL, &block, &o, &err), PL_OK);
    assert_int_equal(pl_optim_norm(&optim, 0.5, &norm, &err), PL_OK);
    assert_true(fabs(norm - want) < 1e-12);
    assert_int_equal(pl_optim_update(&optim, 0.01, 0.5, norm, 1, &err), PL_OK);
    const double *w = block.w, *m = block.m;
    for (int i = 0; i < 32; i++) {
        double gi = g[i] * 0.25; // scaled by 1/2, clipped by 1/2
        double step = g[i] == 0 ? 0 : gi / (fabs(gi) + 1e-8), decay = i < 16 ? 0.1 * w0[i] : 0;
        assert_true(fabs(w[i] - (w0[i] - 0.01 * (step + decay))) < 1e-12);
        assert_true(fabs(m[i] - 0.1 * gi) < 1e-12);
    }
    ((double *)block.grad)[1] = NAN;
    assert_int_equal(pl_optim_norm(&optim, 0.5, &norm, &err), PL_OK);
    assert_false(isfinite(norm));
    pl_param_block_destroy(&block);
    pl_params_fini(&ps);
    pl_optim_fini(&optim);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(tree_is_fixed),
        cmocka_unit_test(split_does_not_matter),
        cmocka_unit_test(schedules),
        cmocka_unit_test(update),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
