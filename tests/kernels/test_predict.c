// Counts of kernels and the model of their time (kernels/cuda/predict), on cases that can be worked out by hand.
#include "kernels/cuda/predict/predict.h"
#include "kernels/op/rmsnorm.h"

#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

#include <cmocka.h>

enum { ROWS = 3, WIDTH = 4096, THREADS = 256 };

static double gpu(int name) {
    return pl_gpu(name, PL_CENTRAL);
}

static void near_to(double got, double expected) {
    if (!(fabs(got - expected) <= 1e-9 * fabs(expected))) fail_msg("%.9g, expected %.9g", got, expected);
}

// Four blocks of 264 were seen, each of which read 1 MB of its own and 1 MB that all read.
static void bytes_in_common_count_once(void **state) {
    (void)state;
    pl_predicted_kernel k = {.blocks = 264, .threads = 256};
    k.c = (pl_counted){.sampled = 4, .far = 8e6, .distinct = 5e6, .most_far = 2e6};
    pl_predict_kernel(&k);
    near_to(k.bytes, 1e6 + 264e6);
    near_to(k.seconds[PL_CENTRAL], gpu(PL_GPU_GAP) + 265e6 / gpu(PL_GPU_COPY) + gpu(PL_GPU_FAR) / gpu(PL_GPU_CLOCK));
    assert_string_equal(k.limiter, "memory");
    assert_true(k.seconds[PL_PESSIMISTIC] > k.seconds[PL_CENTRAL]);
}

// A block of 200 KB of shared memory has its multiprocessor alone: three times as many blocks take three times as long.
static void blocks_wait_for_room(void **state) {
    (void)state;
    double              t[2];
    pl_predicted_kernel k = {.threads = 256, .room = 200 << 10};
    k.c = (pl_counted){.sampled = 1, .path = {1e-5, 1e-5}, .most_path = {1e-5, 1e-5}};
    for (int i = 0; i < 2; i++) {
        k.blocks = i ? 396 : 132;
        pl_predict_kernel(&k);
        t[i] = k.seconds[PL_CENTRAL] - gpu(PL_GPU_GAP);
    }
    near_to(t[0], 1e-5);
    near_to(t[1], 3e-5);
    assert_string_equal(k.limiter, "rounds");
}

static void norm(pl_ctx *ctx, void *arg) {
    const pl_tensor *in = arg;
    pl_rmsnorm(ctx, in[0], in[1], 1e-5);
}

// A block a row, 16 values a thread: sixteen loads of x, in batches of what a compiler unrolls, then x and g again with
// a store between, so one by one; all of them whole sectors.
static void a_norm_is_counted(void **state) {
    (void)state;
    const pl_backend *be = pl_backend_counted();
    if (!be) skip();
    pl_ctx               ctx;
    pl_err               err = {0};
    static pl_prediction p;
    void                *x = pl_memory_create(be->memory, PL_LOCAL, ROWS * WIDTH * sizeof(float), &err);
    void                *g = pl_memory_create(be->memory, PL_LOCAL, WIDTH * sizeof(float), &err);
    pl_tensor            in[2] = {pl_tensor_2d(x, PL_F32, ROWS, WIDTH), pl_tensor_1d(g, PL_F32, WIDTH)};
    assert_int_equal(pl_ctx_init(&ctx, be, NULL), PL_OK);
    assert_int_equal(pl_ctx_measure(&ctx, norm, in, &err), PL_OK);
    pl_predict_begin(&p);
    for (int i = 0; i < 2; i++) {
        pl_ctx_begin(&ctx);
        norm(&ctx, in);
    }
    assert_int_equal(pl_ctx_sync(&ctx, &err), PL_OK);
    pl_predict_end(&p);
    assert_int_equal(p.n, 1);
    assert_int_equal(p.k[0].launches, 2);
    assert_int_equal(p.k[0].blocks, ROWS);
    assert_int_equal(p.k[0].threads, THREADS);
    assert_string_equal(p.k[0].op, "rmsnorm");
    assert_int_equal(p.k[0].c.sampled, ROWS);
    const int each = WIDTH / THREADS;
    near_to(p.k[0].c.most_rounds, each / gpu(PL_GPU_UNROLL) + each);
    // x twice, g and y by 8 warps, each 128 bytes; one word of rstd.
    near_to(p.k[0].c.requests, ROWS * (8 * each * 4 + 1));
    near_to(p.k[0].c.sectors, ROWS * (8 * each * 4 * 4 + 1));
    near_to(p.k[0].bytes, 0); // all of it fits the L2
    near_to(p.seconds[PL_CENTRAL], 2 * p.k[0].seconds[PL_CENTRAL]);
    assert_string_equal(p.k[0].limiter, "rounds");
    pl_ctx_fini(&ctx);
    pl_memory_destroy(be->memory, PL_LOCAL, x, ROWS * WIDTH * sizeof(float));
    pl_memory_destroy(be->memory, PL_LOCAL, g, WIDTH * sizeof(float));
}

int main(void) {
    const struct CMUnitTest tests[] = {cmocka_unit_test(bytes_in_common_count_once),
                                       cmocka_unit_test(blocks_wait_for_room), cmocka_unit_test(a_norm_is_counted)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
