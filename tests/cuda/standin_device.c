// device_cuda.c over a CUDA runtime that is none (standin.h): a step with index arrays of two blocks, a branch and a
// product in slices gives the emulated device's bits whatever order is drawn; each call of CUDA that fails, and each
// kernel, is one line, and nothing is held afterwards; a step of training has the emulated device's bits, and sends its
// rows as they are stored.
#include "tests/train/small.h"

#include "tests/cuda/standin.h"

#include "infer/bench/shapes.h"
#include "kernels/base/json.h"
#include "kernels/base/rng.h"
#include "kernels/cuda/state.h"
#include "kernels/op/elementwise.h"
#include "kernels/op/linear.h"
#include "kernels/profile.h"
#include "tests/cuda/emulate/device_emulated.h"
#include "train/run/bench_step.h"
#include <pthread.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "tests/device.h"

enum { SEQUENCE = 64 };
enum { M = 3, K = 1100, N = 32, V = 40, STEPS = 4, TURNS = 3 }; // two slices of K; ids differ from turn to turn
enum { OUT_OF_MEMORY = 2, ILLEGAL_ADDRESS = 700, UNKNOWN = 999 };

typedef struct world {
    const pl_memory *memory;
    pl_ctx           ctx;
    bool             open;
    float           *table;
    uint8_t         *w[2];
    int32_t         *id[2];
    pl_tensor        y;
    float            out[M * N];
} world;

static size_t panel_bytes(void) {
    return pl_panels_bytes(N, K, PL_BF16);
}

static pl_tensor weight(const world *t, int i) {
    pl_tensor w = pl_tensor_2d(t->w[i], PL_BF16, N, K);
    w.layout = PL_PANELS;
    return w;
}

// x = W[a] + W[b]; y = x U + x V, the second beside the first.
static void step(pl_ctx *ctx, void *arg) {
    world    *t = arg;
    pl_tensor table = pl_tensor_2d(t->table, PL_F32, V, K), none = {0};
    pl_tensor x = pl_add(ctx, pl_embed(ctx, table, t->id[0], M), pl_embed(ctx, table, t->id[1], M), none);
    pl_ctx_fork(ctx);
    pl_tensor beside = pl_linear(ctx, x, weight(t, 1));
    pl_ctx_back(ctx);
    pl_tensor y = pl_linear(ctx, x, weight(t, 0));
    pl_ctx_join(ctx);
    t->y = pl_add(ctx, y, beside, none);
}

static void *fill(const pl_memory *m, const void *from, size_t bytes, pl_err *err) {
    void *p = pl_memory_create(m, PL_LOCAL, bytes, err);
    if (p && pl_memory_write(m, p, from, bytes, err) != PL_OK) {
        pl_memory_destroy(m, PL_LOCAL, p, bytes);
        p = NULL;
    }
    return p;
}

static pl_status open_world(world *t, const pl_backend *be, bool repeats, pl_err *err) {
    static float v[V * K];
    uint8_t     *panels = calloc(1, panel_bytes());
    assert_non_null(panels);
    *t = (world){.memory = be->memory};
    for (int i = 0; i < V * K; i++)
        v[i] = pl_rng_normal(pl_rng_make(3, PL_STREAM_TEST, 0), (uint64_t)i) / 16;
    bool ok = (t->table = fill(t->memory, v, sizeof v, err)) != NULL;
    for (int i = 0; i < 2 && ok; i++) {
        pl_panels_pack(panels, PL_BF16, 0, N, N, K, v + i * K);
        ok = (t->w[i] = fill(t->memory, panels, panel_bytes(), err)) != NULL;
    }
    // Behind one another, their twins too: as far apart on the device as on the host.
    for (int i = 0; i < 2 && ok; i++)
        ok = (t->id[i] = pl_memory_create(t->memory, PL_SHARED, M * sizeof(int32_t), err)) != NULL;
    free(panels);
    ok = ok && (t->open = pl_ctx_init(&t->ctx, be, NULL) == PL_OK);
    if (!t->open) return err->status != PL_OK ? err->status : PL_E_DEVICE;
    t->ctx.repeats = repeats;
    return pl_ctx_measure(&t->ctx, step, t, err);
}

static void close_world(world *t) {
    if (t->open) pl_ctx_fini(&t->ctx);
    if (t->table) pl_memory_destroy(t->memory, PL_LOCAL, t->table, V * K * sizeof *t->table);
    for (int i = 0; i < 2; i++) {
        if (t->w[i]) pl_memory_destroy(t->memory, PL_LOCAL, t->w[i], panel_bytes());
        if (t->id[i]) pl_memory_destroy(t->memory, PL_SHARED, t->id[i], M * sizeof(int32_t));
    }
}

// wrong: an id out of range.
static pl_status run(world *t, int turn, bool wrong, pl_err *err) {
    for (int i = 0; i < 2 * M; i++)
        t->id[i / M][i % M] = wrong && i == 4 ? V : (turn % TURNS * 11 + i * 7) % V;
    pl_ctx_begin(&t->ctx);
    step(&t->ctx, t);
    pl_ctx_download(&t->ctx, t->out, t->y.data, sizeof t->out);
    return pl_ctx_sync(&t->ctx, err);
}

static float expected[TURNS][M * N];

static int compute_expected(void **state) {
    pl_err       err = {0};
    static world t;
    int          bad = small_setup(state);
    if (open_world(&t, pl_backend_emulated(), false, &err) != PL_OK) return -1;
    for (int i = 0; i < TURNS; i++) {
        bad |= run(&t, i, false, &err) != PL_OK;
        memcpy(expected[i], t.out, sizeof t.out);
    }
    close_world(&t);
    return bad ? -1 : 0;
}

static const pl_backend *device(int n) {
    pl_err            err = {0};
    const pl_backend *be = pl_backend_cuda(n, &err);
    if (!be) fail_msg("%s", err.msg);
    return be;
}

static void must(pl_status st, const pl_err *err) {
    if (st != PL_OK) fail_msg("%s", err->msg);
}

static void check_turn(world *t, int turn) {
    pl_err err = {0};
    must(run(t, turn, false, &err), &err);
    assert_memory_equal(t->out, expected[turn % TURNS], sizeof t->out);
}

// ---- opening, before any other test has opened device 0

static void *free_there(void *arg) {
    close_world(arg);
    return NULL;
}

static void *close_there(void *arg) {
    pl_ctx_fini(&((world *)arg)->ctx);
    ((world *)arg)->open = false;
    return NULL;
}

// After a turn on device 1, in a thread that has opened no device.
static void elsewhere(world *t, void *(*fn)(void *), bool finished) {
    pl_err    err = {0};
    pthread_t thread;
    must(open_world(t, device(1), true, &err), &err);
    check_turn(t, 0);
    if (finished) {
        pl_ctx_fini(&t->ctx);
        t->open = false;
    }
    assert_int_equal(standin_seen.opened, 2);
    assert_int_equal(pthread_create(&thread, NULL, fn, t), 0);
    assert_int_equal(pthread_join(thread, NULL), 0);
    assert_int_equal(standin_seen.opened, 2);
}

static void freeing_opens_no_other(void **state) {
    (void)state;
    static world t;
    elsewhere(&t, free_there, true);
    assert_int_equal(standin_seen.blocks, 0);
}

static void closing_opens_no_other(void **state) {
    (void)state;
    static world t;
    elsewhere(&t, close_there, false);
    close_world(&t);
}

// ---- steps

static void same_bits_in_any_order(void **state) {
    (void)state;
    for (int seed = 1; seed <= 12; seed++) {
        static world t;
        pl_err       err = {0};
        standin_seed((uint64_t)seed);
        must(open_world(&t, device(0), seed % 4 != 0, &err), &err);
        for (int i = 0; i < 2 * TURNS; i++)
            check_turn(&t, i);
        close_world(&t);
        assert_int_equal(standin_seen.blocks, 0);
    }
    print_message("%llu kernels, %llu of them early, %llu copies, %llu graphs\n",
                  (unsigned long long)standin_seen.kernels, (unsigned long long)standin_seen.early,
                  (unsigned long long)standin_seen.copies, (unsigned long long)standin_seen.graphs);
    assert_true(standin_seen.early > 0 && standin_seen.graphs > 0);
}

// Early launches and graphs are what a device gets; each can be left out, for the same bits.
static void settings_are_the_same(void **state) {
    (void)state;
    for (int with = 0; with < 4; with++) {
        static world         t;
        pl_err               err = {0};
        const standin_counts before = standin_seen;
        if (!(with & 1)) setenv("PACELINE_EARLY_LAUNCH", "0", 1);
        if (!(with & 2)) setenv("PACELINE_GRAPHS", "0", 1);
        must(open_world(&t, device(0), true, &err), &err);
        for (int i = 0; i < 3 * TURNS; i++)
            check_turn(&t, i);
        close_world(&t);
        unsetenv("PACELINE_EARLY_LAUNCH");
        unsetenv("PACELINE_GRAPHS");
        assert_int_equal(standin_seen.early > before.early, with & 1);
        assert_int_equal(standin_seen.graphs > before.graphs, with >> 1);
    }
}

// Told once: a step after one with a fault has none, whatever order is drawn.
static void faults_are_told_once(void **state) {
    (void)state;
    for (int seed = 1; seed <= 12; seed++) {
        static world t;
        pl_err       err = {0};
        standin_seed((uint64_t)seed);
        must(open_world(&t, device(0), true, &err), &err);
        for (int i = 0; i < TURNS; i++) {
            assert_int_equal(run(&t, i, true, &err), PL_E_DEVICE);
            if (!strstr(err.msg, "an index is out of range: row 1 has 40")) fail_msg("%s", err.msg);
            if (i != 1) check_turn(&t, i); // and one right behind another
        }
        close_world(&t);
    }
}

// ---- failures

static void one_line(const pl_err *err) {
    if (err->msg[0] == 0 || strchr(err->msg, '\n')) fail_msg("\"%s\" is not one line", err->msg);
}

static void whole_life(world *t, pl_err *err, pl_status *st) {
    *st = open_world(t, device(0), true, err);
    for (int i = 0; i < STEPS && *st == PL_OK; i++) {
        *st = run(t, i, false, err);
        if (*st == PL_OK) assert_memory_equal(t->out, expected[i % TURNS], sizeof t->out);
    }
}

// Of opening, four steps and closing the n-th call fails, for each n: it is told by one line, or does not matter; the
// context goes on, and nothing is held after its end.
static void each_call_fails(void **state) {
    (void)state;
    int told = 0, n = 0;
    device(0);
    for (bool reached = true; reached; n++) {
        static world t;
        pl_err       err = {0};
        pl_status    st;
        standin_seed((uint64_t)n);
        standin_fail((uint64_t)n + 1, n % 2 ? OUT_OF_MEMORY : UNKNOWN);
        whole_life(&t, &err, &st);
        reached = standin_seen.failed;
        if (st != PL_OK) {
            one_line(&err);
            told++;
            standin_fail(0, 0);
            if (t.open) must(pl_ctx_sync(&t.ctx, &err), &err);
            if (t.open && standin_pending()) fail_msg("call %d: work is left behind a wait", n + 1);
            for (int i = 0; i < 2 && t.open && t.ctx.frame.base; i++)
                check_turn(&t, i);
        }
        close_world(&t);
        standin_fail(0, 0);
        if (standin_seen.blocks) fail_msg("call %d: %d blocks are held", n + 1, (int)standin_seen.blocks);
    }
    print_message("%d calls, of which %d end what they are made for\n", n - 1, told);
    assert_true(told > 50);
}

// Each kernel in turn breaks the device: from then on every step is refused by one line; when it has been reset, all is
// as before.
static void each_kernel_breaks(void **state) {
    (void)state;
    int n = 1;
    for (pl_status st = PL_E_DEVICE; st != PL_OK; n++) {
        static world t;
        pl_err       err = {0};
        standin_seed((uint64_t)n);
        standin_fail_kernel((uint64_t)n, ILLEGAL_ADDRESS);
        whole_life(&t, &err, &st);
        if (st != PL_OK) {
            assert_int_equal(st, PL_E_DEVICE);
            one_line(&err);
            if (!strstr(err.msg, "op ") && !strstr(err.msg, "device: ")) fail_msg("no op in \"%s\"", err.msg);
            assert_int_equal(run(&t, 0, false, &err), PL_E_DEVICE);
            one_line(&err);
            assert_null(pl_memory_create(t.memory, PL_LOCAL, 64, &err));
            one_line(&err);
        }
        close_world(&t);
        assert_int_equal(standin_seen.blocks, 0);
        standin_fail(0, 0);
    }
    standin_fail_kernel(0, 0);
    print_message("%d kernels\n", n - 2);
    assert_true(n - 2 >= 5 * STEPS);
}

// ---- a trace

// A kernel for each op, with the name that CUDA has for it; the device was idle between two turns; nothing is traced
// once the trace is closed.
static void launches_are_traced(void **state) {
    (void)state;
    static world      t;
    static pl_profile trace;
    pl_err            err = {0};
    int64_t           ops = 0, idle = 0, downloads = 0;
    must(open_world(&t, device(0), false, &err), &err);
    check_turn(&t, 0);
    pl_profile_begin(&trace);
    pl_profile_phase("first");
    check_turn(&t, 0);
    pl_profile_phase("second");
    check_turn(&t, 1);
    pl_profile_end();
    check_turn(&t, 2);
    close_world(&t);
    assert_int_equal(trace.lost, 0);
    for (int i = 0; i < trace.n; i++) {
        const pl_profile_line *x = &trace.line[i];
        assert_true(x->n > 0 && x->seconds >= 0);
        if (x->idle) {
            assert_string_equal(x->op, "idle");
            assert_non_null(strstr(x->what, "after "));
            idle += x->n;
        } else if (strcmp(x->op, "download") == 0) {
            assert_true(x->bytes == (double)(x->n * (int64_t)sizeof t.out));
            downloads += x->n;
        } else {
            assert_string_equal(x->what, "own_kernel");
            ops += x->n;
        }
    }
    assert_int_equal(downloads, 2);
    assert_true(idle >= 1);
    assert_true(ops >= 2 * 5 && ops % 2 == 0);
    assert_string_equal(trace.line[0].phase, "first");
    assert_string_equal(trace.line[trace.n - 1].phase, "second");
}

// ---- training

// Returns the bytes that so many steps of EAGLE-3's training send to the device.
static uint64_t sent_by(int repeats, int *width) {
    pl_bench_step  s = {.shape = "tiny",
                        .layers = 2,
                        .head = "trimmed:150",
                        .batch = 1,
                        .seq_len = SEQUENCE,
                        .unroll = 2,
                        .dtype = {true, false},
                        .repeats = repeats,
                        .supervised = 1};
    const pl_env   env = {.quiet = true, .backend = device(0), .seed = 1};
    const uint64_t before = standin_seen.sent;
    pl_hf_config   shape;
    pl_json_out    o = {0};
    pl_err         err = {0};
    must(pl_bench_shape_find(&shape, s.shape, s.layers, 256, &err), &err);
    *width = shape.hidden_size;
    pl_json_out_begin(&o, 0);
    pl_json_out_object(&o);
    must(pl_bench_put_step(&o, &env, &s, &err), &err);
    pl_free(o.text);
    return standin_seen.sent - before;
}

// Features of three layers and last hidden states cross the bus as they are stored, in bf16; the lists of a step are
// small beside them.
static void rows_go_as_stored(void **state) {
    (void)state;
    int            width;
    const uint64_t one = sent_by(1, &width), step = (sent_by(3, &width) - one) / 2;
    const uint64_t rows = (uint64_t)(SEQUENCE * (3 + 1) * width) * 2;
    print_message("a step sends %llu bytes, %llu of them rows\n", (unsigned long long)step, (unsigned long long)rows);
    assert_true(step > rows / 2 && step < rows + rows / 8); // rows that teach no other are left out
}

static void train(const char *out, const pl_backend *be) {
    pl_err err = {0};
    small_backend = be;
    pl_status st = small_run(out,
                             "kind=drafter\ntrain.slot_rows=48\ntrain.slots=2\ntrain.unroll=2\ntrain.eval_steps=1\n"
                             "train.eval_tokens=30\ntrain.eval_prompts=1\ntrain.warmup=1\ntrain.steps=2\n",
                             0, NULL, &err);
    small_backend = NULL;
    must(st, &err);
}

static void training_has_the_emulated_bits(void **state) {
    (void)state;
    train("emulated", pl_backend_emulated());
    train("cuda", device(0));
    small_same("emulated", "cuda", "checkpoints/last/model.safetensors");
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(freeing_opens_no_other), cmocka_unit_test(closing_opens_no_other),
        cmocka_unit_test(same_bits_in_any_order), cmocka_unit_test(settings_are_the_same),
        cmocka_unit_test(faults_are_told_once),   cmocka_unit_test(each_call_fails),
        cmocka_unit_test(each_kernel_breaks),     cmocka_unit_test(launches_are_traced),
        cmocka_unit_test(rows_go_as_stored),      cmocka_unit_test(training_has_the_emulated_bits),
    };
    return cmocka_run_group_tests(tests, compute_expected, small_teardown);
}
