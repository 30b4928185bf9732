// A plain step of Llama-3-8B and its pass over 60 nodes on the counted device (kernels/cuda/predict): what their launches
// come to, held to bounds. No model is needed, and no GPU; that the time is a prediction changes nothing about the
// counts.
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

static pl_prediction plain, nodes; // nodes: 60 of them
static double        least;
static size_t        frame; // of the nodes

static pl_status record(pl_prediction *p, pl_bench_case *c, pl_err *err) {
    pl_predict_begin(p);
    pl_ctx_begin(&c->ctx);
    c->step(&c->ctx, c->arg);
    pl_status st = pl_ctx_sync(&c->ctx, err);
    pl_predict_end(p);
    return st;
}

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
        least = m.verify.forward[0].c->bytes;
        st = record(&plain, m.verify.forward[0].c, &err);
    }
    if (st == PL_OK) st = record(&nodes, m.verify.forward[PL_BENCH_VERIFY - 1].c, &err);
    if (st == PL_OK) frame = m.verify.forward[PL_BENCH_VERIFY - 1].c->ctx.frame.size;
    pl_bench_model_drop(&m, &b);
    pl_bench_close(&b);
    if (st != PL_OK) print_error("%s\n", err.msg);
    return st == PL_OK ? 0 : -1;
}

static void skip_uncounted(void) {
    if (!pl_backend_counted()) skip();
}

// Of many rows as of one: slices are added where they are read.
static void launches(void **state) {
    (void)state;
    skip_uncounted();
    const pl_prediction *both[] = {&plain, &nodes};
    for (int b = 0; b < 2; b++) {
        const pl_prediction *p = both[b];
        assert_int_equal(p->left, 0);
        // Of one row the target's head is shared by slice, and a launch adds its slices.
        assert_int_equal(p->launched, LAYERS * LAUNCHES_A_LAYER + LAUNCHES_BESIDE + (p == &plain));
        for (int i = 1; i < p->launched; i++)
            if (!p->k[p->order[i]].early) fail_msg("%s waits for the launch before it", p->k[p->order[i]].op);
    }
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

// An H100's memory gives 0.62 of its rate to copies that take parts of lines.
static void copies_take_whole_lines(void **state) {
    (void)state;
    skip_uncounted();
    const pl_prediction *both[] = {&plain, &nodes};
    double               copied = 0;
    for (int b = 0; b < 2; b++)
        for (int i = 0; i < both[b]->n; i++) {
            copied += both[b]->k[i].c.copied;
            if (both[b]->k[i].c.split > 0) fail_msg("%s takes parts of lines", both[b]->k[i].op);
        }
    assert_true(copied > 0);
}

// Twice where what came before it left its row; four times where that left 14 slices, in two batches, for it to add.
static void norms_seldom_wait(void **state) {
    (void)state;
    skip_uncounted();
    int norms = 0;
    for (int i = 0; i < plain.n; i++) {
        if (strcmp(plain.k[i].op, "rmsnorm") != 0) continue;
        norms += (int)plain.k[i].launches;
        if (plain.k[i].c.most_rounds > (plain.k[i].launches == LAYERS ? 4 : 2))
            fail_msg("%g rounds of dependent loads", plain.k[i].c.most_rounds);
    }
    assert_int_equal(norms, 2 * LAYERS + 1);
}

static void is_sum(double sum, double all) {
    assert_true(sum > 0.999999 * all && sum < 1.000001 * all);
}

// The sum of its launches is the step, one after another and early. As a device of sm_90 runs it, 85 % of the time that
// a copy of its bytes takes.
static void share_of_copy(void **state) {
    (void)state;
    skip_uncounted();
    double turn = 0, early = 0;
    for (int i = 0; i < plain.n; i++) {
        turn += (double)plain.k[i].launches * plain.k[i].seconds[PL_CENTRAL];
        early += plain.k[i].early_seconds[PL_CENTRAL];
    }
    is_sum(turn, plain.seconds[PL_CENTRAL]);
    is_sum(early, plain.early_seconds[PL_CENTRAL]);
    assert_true(turn > early);
    const double share = least / pl_gpu(PL_GPU_COPY, PL_CENTRAL) / early;
    print_message("predicted %.3f ms, %.1f %% of copy\n", 1e3 * early, 100 * share);
    assert_true(share >= 0.85 && share < 1);
}

// What a layer makes is read from the second-level cache.
static void frame_is_cached(void **state) {
    (void)state;
    skip_uncounted();
    print_message("60 nodes have a frame of %.1f MB\n", 1e-6 * (double)frame);
    assert_true(frame > 0 && (double)frame < pl_gpu(PL_GPU_L2_BYTES, PL_CENTRAL));
}

static void nodes_beside_one_row(void **state) {
    (void)state;
    skip_uncounted();
    const double over = nodes.early_seconds[PL_CENTRAL] / plain.early_seconds[PL_CENTRAL];
    print_message("60 nodes predicted %.3f ms, %.3f of one row\n", 1e3 * nodes.early_seconds[PL_CENTRAL], over);
    assert_true(over >= 1 && over <= 1.16);
}

int main(void) {
    const struct CMUnitTest tests[] = {cmocka_unit_test(launches),
                                       cmocka_unit_test(bytes),
                                       cmocka_unit_test(norms_seldom_wait),
                                       cmocka_unit_test(copies_take_whole_lines),
                                       cmocka_unit_test(share_of_copy),
                                       cmocka_unit_test(frame_is_cached),
                                       cmocka_unit_test(nodes_beside_one_row)};
    return cmocka_run_group_tests(tests, predict, NULL);
}
