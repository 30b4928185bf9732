// A plain step of Llama-3-8B on the counted device (kernels/cuda/predict): what its launches come to, held to bounds. No
// model is needed, and no GPU; that the time is a prediction changes nothing about the counts.
#include "infer/bench/model.h"
#include "kernels/cuda/predict/predict.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

#include <cmocka.h>

enum { LAYERS = 32, CONTEXT = 1000 };
enum { LAUNCHES_A_LAYER = 10, LAUNCHES_BESIDE = 5 }; // embed, the last norm, the head, two of topk

static pl_prediction plain;
static double        least;

static int predict(void **state) {
    static pl_bench       b;
    static pl_bench_model m;
    const pl_bench_shape  shape = {.name = "llama3-8b", .context = CONTEXT, .steps = 1, .repeats = 1};
    pl_err                err = {0};
    pl_env                env = {.backend = pl_backend_counted(), .quiet = true};
    (void)state;
    if (!env.backend) return 0;
    pl_status st = pl_bench_open(&b, &env, 1 << 20, &err);
    if (st == PL_OK) st = pl_bench_model_make(&m, &b, &shape, &err);
    if (st == PL_OK) {
        pl_bench_case *c = m.verify.forward[0].c;
        pl_predict_begin(&plain);
        pl_ctx_begin(&c->ctx);
        c->step(&c->ctx, c->arg);
        st = pl_ctx_sync(&c->ctx, &err);
        pl_predict_end(&plain);
        least = c->bytes;
    }
    pl_bench_model_drop(&m, &b);
    pl_bench_close(&b);
    if (st != PL_OK) print_error("%s\n", err.msg);
    return st == PL_OK ? 0 : -1;
}

static void skip_uncounted(void) {
    if (!pl_backend_counted()) skip();
}

static void launches(void **state) {
    (void)state;
    skip_uncounted();
    assert_int_equal(plain.left, 0);
    assert_int_equal(plain.launched, LAYERS * LAUNCHES_A_LAYER + LAUNCHES_BESIDE);
    for (int i = 1; i < plain.launched; i++)
        if (!plain.k[plain.order[i]].early) fail_msg("%s waits for the launch before it", plain.k[plain.order[i]].op);
}

static void bytes(void **state) {
    (void)state;
    skip_uncounted();
    double sum = 0;
    for (int i = 0; i < plain.n; i++)
        sum += (double)plain.k[i].launches * plain.k[i].bytes;
    print_message("%.4f of the least bytes\n", sum / least);
    assert_true(sum >= least && sum <= 1.02 * least);
}

static void norms_wait_at_most_twice(void **state) {
    (void)state;
    skip_uncounted();
    int norms = 0;
    for (int i = 0; i < plain.n; i++) {
        if (strcmp(plain.k[i].op, "rmsnorm") != 0) continue;
        norms += (int)plain.k[i].launches;
        if (plain.k[i].c.most_rounds > 2) fail_msg("%g rounds of dependent loads", plain.k[i].c.most_rounds);
    }
    assert_int_equal(norms, 2 * LAYERS + 1);
}

// The sum of its launches is the step; as a device of sm_90 runs it, 85 % of the time that a copy of its bytes takes.
static void share_of_copy(void **state) {
    (void)state;
    skip_uncounted();
    double sum = 0, early = 0;
    for (int i = 0; i < plain.n; i++) {
        sum += (double)plain.k[i].launches * plain.k[i].seconds[PL_CENTRAL];
        early += plain.k[i].early_seconds[PL_CENTRAL];
    }
    assert_true(sum > 0.999999 * plain.seconds[PL_CENTRAL] && sum < 1.000001 * plain.seconds[PL_CENTRAL]);
    const double share = least / pl_gpu(PL_GPU_COPY, PL_CENTRAL) / early;
    print_message("predicted %.3f ms, %.1f %% of copy\n", 1e3 * early, 100 * share);
    assert_true(share >= 0.85 && share < 1);
}

int main(void) {
    const struct CMUnitTest tests[] = {cmocka_unit_test(launches), cmocka_unit_test(bytes),
                                       cmocka_unit_test(norms_wait_at_most_twice), cmocka_unit_test(share_of_copy)};
    return cmocka_run_group_tests(tests, predict, NULL);
}
