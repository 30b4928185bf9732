// The driver of `paceline bench` (infer/bench/bench.h): it times cases, reports failing ones and checks free memory.
#include "infer/bench/bench.h"

#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

#include <cmocka.h>

#include "tests/cuda/emulate/device_emulated.h"
#include "tests/device.h"

enum { N = 2 };
typedef struct counted {
    int steps, fails_at, dropped; // fails_at 0: never
} counted;

static void step(pl_ctx *ctx, void *arg) {
    counted *s = arg;
    pl_ctx_bytes(ctx, 64);
    if (!ctx->measuring && ++s->steps == s->fails_at) pl_ctx_fail(ctx, PL_E_INPUT, "step %d", s->steps);
}

static void free_counted(void *arg) {
    ((counted *)arg)->dropped++;
}

// A case that fails is reported, and the others keep their figures.
static void timing(void **state) {
    (void)state;
    for (int device = 0; device < 2; device++) {
        pl_env         env = {.backend = device ? test_device() : pl_backend_cpu()};
        counted        s[N] = {{.fails_at = 3}, {0}};
        pl_bench       b;
        pl_bench_case *c[N];
        pl_err         err = {0};
        if (pl_bench_open(&b, &env, 1 << 20, &err) != PL_OK) fail_msg("%s", err.msg);
        b.rounds = 3;
        for (int i = 0; i < N; i++) {
            c[i] = pl_bench_add(&b, "%s", i ? "second" : "first");
            c[i]->step = step;
            c[i]->drop = free_counted;
            c[i]->arg = &s[i];
            pl_bench_ready(&b, c[i]);
            assert_true(c[i]->ready && s[i].steps == 0 && s[i].dropped == 0);
        }
        assert_non_null(pl_bench_block(&b, 100));
        pl_bench_run(&b);
        assert_null(b.held);
        assert_true(c[0]->n == 0 && isnan(pl_bench_seconds(c[0])) && s[0].dropped == 1);
        assert_true(c[1]->n == 3 && pl_bench_seconds(c[1]) > 0 && s[1].dropped == 1);
        int steps = s[1].steps;
        pl_bench_run(&b); // nothing is left to time
        assert_int_equal(s[1].steps, steps);
        assert_int_equal(b.n_left, 1);
        assert_string_equal(b.left[0].name, "first");
        assert_string_equal(b.left[0].why, "step 3");
        pl_bench_close(&b);
        assert_int_equal(s[1].dropped, 1);
    }
}

static void room(void **state) {
    (void)state;
    pl_err err = {0};
    assert_int_equal(pl_bench_shape_room(1000, pl_backend_cpu(), &err), PL_OK);
    assert_int_equal(pl_bench_shape_room((int64_t)1 << 50, pl_backend_cpu(), &err), PL_E_MEMORY);
    assert_non_null(strstr(err.msg, "give fewer --layers"));
    assert_int_equal(pl_bench_shape_room((int64_t)1 << 50, pl_backend_emulated(), &err), PL_E_MEMORY);
}

// Bytes over bandwidth or operations over peak, whichever takes longer; 0 stands for an unknown limit.
static void least_seconds(void **state) {
    (void)state;
    assert_true(pl_bench_floor(60, 10, 60, 20) == 6 && pl_bench_floor(60, 10, 240, 20) == 12);
    assert_true(pl_bench_floor(60, 0, 240, 20) == 12 && pl_bench_floor(60, 10, 240, 0) == 6);
}

int main(void) {
    const struct CMUnitTest tests[] = {cmocka_unit_test(timing), cmocka_unit_test(room),
                                       cmocka_unit_test(least_seconds)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
