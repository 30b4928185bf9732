// Counts the launches of small steps on the emulated device: of a decode step, of a pass over a tree and of a training
// step. Launches of decoding may start early, and copies of weights read each byte once, in whole lines (an H100 reaches
// 0.62 of its bandwidth where copies read parts of lines).
#include "infer/bench/cycle.h"
#include "infer/bench/shapes.h"
#include "kernels/backend.h"
#include "kernels/base/json.h"
#include "kernels/op/linear.h"
#include "kernels/panels.h"
#include "tests/cuda/counter.h"
#include "tests/cuda/emulate/device_emulated.h"
#include "train/run/bench_step.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

enum { LAYERS = 2, CONTEXT = 40, ROWS = 60 };
// A layer launches two norms, products of q, k, v, of the output, of gate and up, of down, biases, rope, attention (one
// part for this few keys) and swiglu. A step adds embed, the last norm, the head, the sum of its slices and two of topk.
enum { A_LAYER = 10, BESIDE = 6 };
// Launches of a training step of one depth, and of each further depth.
enum { FIRST_DEPTH = 57, A_DEPTH = 41 };
// Pointers across the bus: the words for faults of embed and of rope, forward and backward; of a step also those of the
// two ops that widen its rows, and the norm. No index array.
enum { SHARED_A_DEPTH = 3, FIRST_SHARED = SHARED_A_DEPTH + 3 };
// None of them for rows that are sent.
enum { WAITS = 6 };
// Gradients that are not assigned: of queries, keys and values, which attention adds to.
enum { SEQUENCE = 16, ZEROS_A_DEPTH = SEQUENCE * 128 * sizeof(float) };

static const pl_env env = {.quiet = true};

static void must(pl_status st, const pl_err *err) {
    if (st != PL_OK) fail_msg("%s", err->msg);
}

static void decoding(void **state) {
    const pl_backend *be = pl_backend_emulated();
    pl_llama          target;
    pl_hf_config      config;
    pl_tree_policy    policy;
    pl_ctx            ctx;
    pl_cycles        *c;
    pl_cycle_sample   sample;
    pl_err            err = {0};
    (void)state;
    must(pl_bench_shape_find(&config, "tiny", LAYERS, 256, &err), &err);
    must(pl_llama_init(&target, &config, be, true, &err), &err);
    must(pl_ctx_init(&ctx, be, NULL), &err);
    must(pl_params_tile(&target.params, PL_BF16, 7, &ctx, &err), &err);
    pl_ctx_fini(&ctx);
    pl_cycle_options o = {.target = &target, .policy = &policy, .batch = 1, .context = CONTEXT};
    pl_cycle_policy(&policy, ROWS, ROWS - 1, 1, 1);
    must(pl_cycles_open(&c, be, NULL, &o, &err), &err);
    for (int rows = 1; rows <= ROWS; rows += ROWS - 1) {
        int32_t parent[ROWS] = {0};
        pl_tree_shape_set(&c->drafter->policy, rows, parent);
        must(pl_cycles_step(c, &sample, &err), &err); // drafts it
        count_end();
        must(pl_cycles_step(c, &sample, &err), &err);
        counted n = count_end();
        assert_int_equal(sample.rows, rows);
        print_message("%d rows: %lld launches, %lld of them not early\n", rows, (long long)n.launches,
                      (long long)n.late);
        assert_int_equal(n.launches, LAYERS * A_LAYER + BESIDE);
        assert_int_equal(n.late, LAYERS); // biases alone wait for the launch before them
    }
    pl_cycles_close(c);
    pl_llama_fini(&target);
}

typedef struct product {
    pl_tensor x, w;
} product;

static void multiply(pl_ctx *ctx, void *arg) {
    const product *p = arg;
    pl_linear(ctx, p->x, p->w);
}

// Numbers of rows, and widths that fill their units and that do not.
static void weights_by_whole_lines(void **state) {
    static const int rows[] = {1, 8, 60}, columns[] = {1024, 1600};
    enum { N = 512, MOST = 60 * 1600 };
    const pl_memory *memory = pl_backend_emulated()->memory;
    pl_err           err = {0};
    pl_ctx           ctx;
    (void)state;
    must(pl_ctx_init(&ctx, pl_backend_emulated(), NULL), &err);
    float *x = pl_memory_create(memory, PL_LOCAL, MOST * sizeof *x, &err);
    assert_non_null(x);
    for (int k = 0; k < 2; k++) {
        size_t  bytes = pl_panels_bytes(N, columns[k], PL_BF16);
        void   *w = pl_memory_create(memory, PL_LOCAL, bytes, &err);
        product p = {.w = pl_tensor_2d(w, PL_BF16, N, columns[k])};
        assert_non_null(w);
        p.w.layout = PL_PANELS;
        for (int i = 0; i < 3; i++) {
            p.x = pl_tensor_2d(x, PL_F32, rows[i], columns[k]);
            must(pl_ctx_measure(&ctx, multiply, &p, &err), &err);
            count_end();
            pl_ctx_begin(&ctx);
            multiply(&ctx, &p);
            must(pl_ctx_sync(&ctx, &err), &err);
            counted n = count_end();
            print_message("%d x %d, %d rows: %lld of %zu bytes copied, %lld split\n", N, columns[k], rows[i],
                          (long long)n.copied, bytes, (long long)n.split);
            assert_true(n.copied >= (int64_t)bytes && n.copied <= (int64_t)(1.02 * (double)bytes));
            assert_int_equal(n.split, 0);
        }
        pl_memory_destroy(memory, PL_LOCAL, w, bytes);
    }
    pl_memory_destroy(memory, PL_LOCAL, x, MOST * sizeof *x);
    pl_ctx_fini(&ctx);
}

// Counts launches and bytes of so many steps of EAGLE-3's training.
static counted count_steps(int unroll, int repeats) {
    pl_bench_step s = {.shape = "tiny",
                       .layers = LAYERS,
                       .head = "trimmed:150",
                       .batch = 1,
                       .seq_len = SEQUENCE,
                       .unroll = unroll,
                       .dtype = {true, false},
                       .repeats = repeats,
                       .supervised = 1};
    pl_env        own = env;
    pl_json_out   o = {0};
    pl_err        err = {0};
    own.backend = pl_backend_emulated();
    own.seed = 1;
    count_end();
    pl_json_out_begin(&o, 0);
    pl_json_out_object(&o);
    must(pl_bench_put_step(&o, &own, &s, &err), &err);
    pl_free(o.text);
    return count_end();
}

static void training(void **state) {
    (void)state;
    counted step[3]; // half of what two more repeats add
    for (int k = 0; k < 3; k++) {
        counted three = count_steps(k + 1, 3), one = count_steps(k + 1, 1);
        step[k].launches = (three.launches - one.launches) / 2;
        step[k].shared = (three.shared - one.shared) / 2;
        step[k].zeroed = (three.zeroed - one.zeroed) / 2;
        step[k].waits = (three.waits - one.waits) / 2;
        print_message("a step of depth %d: %lld launches with %lld pointers across the bus, %lld waits, %lld bytes of "
                      "zeros\n",
                      k + 1, (long long)step[k].launches, (long long)step[k].shared, (long long)step[k].waits,
                      (long long)step[k].zeroed);
    }
    for (int k = 0; k < 3; k++) {
        assert_int_equal(step[k].launches, FIRST_DEPTH + k * A_DEPTH);
        assert_int_equal(step[k].shared, FIRST_SHARED + k * SHARED_A_DEPTH);
        assert_int_equal(step[k].waits, WAITS);
        assert_int_equal(step[k].zeroed - step[0].zeroed, k * ZEROS_A_DEPTH);
    }
}

int main(void) {
    const struct CMUnitTest tests[] = {cmocka_unit_test(decoding), cmocka_unit_test(weights_by_whole_lines),
                                       cmocka_unit_test(training)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
