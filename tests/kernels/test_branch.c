// Branches of a context: on a host ops one after another, on a device a way beside the other. The emulated device keeps
// a branch's launches until the join; PACELINE_TEST_DEVICE names a GPU.
#include "kernels/base/rng.h"
#include "kernels/cuda/state.h"
#include "kernels/op/elementwise.h"
#include "kernels/op/linear.h"
#include <math.h>
#include <setjmp.h>
#include <signal.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cmocka.h>

#include "tests/cuda/emulate/device_emulated.h"
#include "tests/device.h"

enum { M = 3, D = 1100, STEPS = 5 }; // two slices of K: products keep sums in scratch and count in tickets

typedef struct world {
    pl_ctx    ctx;
    float    *x;
    uint16_t *w;
    bool      branch, joins; // joins: before the result is used
    pl_tensor used, later;   // what comes of the branch's result before the join, and behind it
    float     out[2][M * D];
} world;

// y = x W + x, W y beside it; used = y + (W y) and later the same.
static void step(pl_ctx *ctx, void *arg) {
    world    *t = arg;
    pl_tensor x = pl_tensor_2d(t->x, PL_F32, M, D), w = pl_tensor_2d(t->w, PL_BF16, D, D);
    w.layout = PL_PANELS;
    pl_tensor y = pl_add(ctx, pl_linear(ctx, x, w), x, (pl_tensor){0});
    if (t->branch) pl_ctx_fork(ctx);
    pl_tensor z = pl_linear(ctx, y, w);
    if (t->branch) pl_ctx_back(ctx);
    pl_tensor v = pl_add(ctx, pl_linear(ctx, y, w), y, (pl_tensor){0});
    if (t->joins) pl_ctx_join(ctx);
    t->used = pl_add(ctx, v, z, (pl_tensor){0});
    pl_ctx_join(ctx);
    t->later = pl_add(ctx, v, z, (pl_tensor){0});
}

static void open_world(world *t, const pl_backend *be, bool branch, bool joins, bool repeats) {
    static float f[M * D];
    static float w[D * D];
    pl_rng       rng = pl_rng_make(3, PL_STREAM_TEST, 0);
    size_t       bytes = pl_panels_bytes(D, D, PL_BF16);
    *t = (world){.branch = branch, .joins = joins};
    for (int i = 0; i < D * D; i++)
        w[i] = pl_rng_normal(rng, (uint64_t)i) / 32;
    for (int i = 0; i < M * D; i++)
        f[i] = pl_bf16_to_f32(pl_f32_to_bf16(w[i] * 32));
    void *panels = calloc(1, bytes);
    assert_non_null(panels);
    pl_panels_pack(panels, PL_BF16, 0, D, D, D, w);
    t->x = pl_memory_create(be->memory, PL_LOCAL, sizeof f, NULL);
    t->w = pl_memory_create(be->memory, PL_LOCAL, bytes, NULL);
    assert_true(t->x && t->w);
    assert_int_equal(pl_memory_write(be->memory, t->x, f, sizeof f, NULL), PL_OK);
    assert_int_equal(pl_memory_write(be->memory, t->w, panels, bytes, NULL), PL_OK);
    free(panels);
    assert_int_equal(pl_ctx_init(&t->ctx, be, NULL), PL_OK);
    t->ctx.repeats = repeats;
    assert_int_equal(pl_ctx_measure(&t->ctx, step, t, NULL), PL_OK);
}

static void close_world(world *t) {
    const pl_memory *m = t->ctx.be->memory;
    pl_ctx_fini(&t->ctx);
    pl_memory_destroy(m, PL_LOCAL, t->x, M * D * sizeof *t->x);
    pl_memory_destroy(m, PL_LOCAL, t->w, pl_panels_bytes(D, D, PL_BF16));
}

static void run(world *t) {
    pl_ctx_begin(&t->ctx);
    step(&t->ctx, t);
    pl_ctx_download(&t->ctx, t->out[0], t->used.data, sizeof t->out[0]);
    pl_ctx_download(&t->ctx, t->out[1], t->later.data, sizeof t->out[1]);
    assert_int_equal(pl_ctx_sync(&t->ctx, NULL), PL_OK);
}

static bool all_nan(const float *x) {
    int n = 0;
    for (int i = 0; i < M * D; i++)
        n += isnan(x[i]) != 0;
    assert_true(n == 0 || n == M * D);
    return n > 0;
}

// With a branch the same bits as without, as graphs and launch by launch, on the host too.
static void same_bits(void **state) {
    (void)state;
    const pl_backend *backends[] = {pl_backend_ref(), pl_backend_cpu(), test_device()};
    for (int b = 0; b < 3; b++)
        for (int repeats = 0; repeats < 2; repeats++) {
            static world plain, branched;
            open_world(&plain, backends[b], false, false, repeats);
            open_world(&branched, backends[b], true, true, repeats);
            for (int i = 0; i < STEPS; i++) {
                run(&plain);
                run(&branched);
                assert_memory_equal(plain.out, branched.out, sizeof plain.out);
                assert_memory_equal(plain.out[0], plain.out[1], sizeof plain.out[0]);
                assert_false(all_nan(plain.out[0]));
            }
            close_world(&plain);
            close_world(&branched);
        }
}

// What is used before the join is NaN, at the first step and when the place holds an earlier step's numbers.
static void early_use_shows(void **state) {
    (void)state;
    if (getenv("PACELINE_TEST_DEVICE")) skip(); // a GPU runs it when it likes
    for (int repeats = 0; repeats < 2; repeats++) {
        static world t;
        open_world(&t, pl_backend_emulated(), true, false, repeats);
        for (int i = 0; i < STEPS; i++) {
            run(&t);
            assert_true(all_nan(t.out[0]) && !all_nan(t.out[1]));
        }
        close_world(&t);
    }
}

// One sequence, captured when it comes the second time, whose two ways part and meet within it.
static void one_graph(void **state) {
    (void)state;
    static world t;
    open_world(&t, test_device(), true, true, true);
    const pl_cuda_state *s = t.ctx.state;
    uint64_t             pieces = 0;
    for (int i = 0; i < STEPS; i++) {
        run(&t);
        if (i == 1) pieces = s->captured;
        assert_true(s->captured == pieces && s->replayed == pieces * (uint64_t)i);
    }
    assert_true(pieces >= 1);
    close_world(&t);
}

// Scratch and tickets are a branch's own.
static void nothing_shared(void **state) {
    (void)state;
    static world t;
    open_world(&t, test_device(), true, true, false);
    const pl_cuda_state *s = t.ctx.state;
    const unsigned      *ticket = s->ticket;
    const uint8_t       *scratch = t.ctx.scratch.base;
    assert_non_null(scratch);
    pl_ctx_begin(&t.ctx);
    pl_ctx_fork(&t.ctx);
    assert_true(s->ticket != ticket && t.ctx.scratch.base != scratch && t.ctx.scratch.base);
    pl_ctx_back(&t.ctx);
    assert_true(s->ticket == ticket && t.ctx.scratch.base == scratch);
    pl_ctx_join(&t.ctx);
    assert_int_equal(pl_ctx_sync(&t.ctx, NULL), PL_OK);
    close_world(&t);
}

static void wait_first(pl_ctx *ctx) {
    pl_ctx_fork(ctx);
    pl_ctx_back(ctx);
    pl_ctx_wait(ctx);
}

static void fork_twice(pl_ctx *ctx) {
    pl_ctx_fork(ctx);
    pl_ctx_fork(ctx);
}

static void join_inside(pl_ctx *ctx) {
    pl_ctx_fork(ctx);
    pl_ctx_join(ctx);
}

static void copy_beside(pl_ctx *ctx) {
    uint32_t v[2] = {0};
    pl_ctx_fork(ctx);
    pl_ctx_back(ctx);
    pl_ctx_copy(ctx, v, v + 1, sizeof *v);
}

static void misuse(void **state) {
    (void)state;
    void (*const wrong[])(pl_ctx *) = {wait_first, fork_twice, join_inside, copy_beside};
    for (int i = 0; i < 4; i++) {
        pid_t child = fork();
        assert_true(child >= 0);
        if (child == 0) {
            pl_ctx ctx;
            if (!freopen("/dev/null", "w", stderr) || pl_ctx_init(&ctx, pl_backend_cpu(), NULL) != PL_OK) _exit(0);
            signal(SIGABRT, SIG_DFL);
            wrong[i](&ctx);
            _exit(0);
        }
        int status = 0;
        assert_int_equal(waitpid(child, &status, 0), child);
        if (!WIFSIGNALED(status)) fail_msg("misuse %d went through", i);
    }
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(same_bits),      cmocka_unit_test(early_use_shows), cmocka_unit_test(one_graph),
        cmocka_unit_test(nothing_shared), cmocka_unit_test(misuse),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
