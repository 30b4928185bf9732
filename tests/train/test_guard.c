// Steps that do not count: what is skipped and what is not, alike on all ranks and after a resume; what is written of
// them; when a run ends over them.
#include "tests/train/toy.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "kernels/base/arena.h"
#include "kernels/base/files.h"
#include "kernels/base/log.h"
#include <math.h>
#include <stdio.h>
#include <string.h>

// Slot 1 of these steps is not finite, or much larger than the others.
static double nan_at_1_and_7(int64_t step, int slot) {
    return (step == 1 || step == 7) && slot == 1 ? NAN : 1;
}

static double inf_at_7(int64_t step, int slot) {
    return step == 7 && slot == 1 ? INFINITY : 1;
}

static double spike_at_15(int64_t step, int slot) {
    return step == 15 && slot == 1 ? 1000 : 1;
}

static double nan_from_9(int64_t step, int slot) {
    return step >= 9 && slot == 2 ? NAN : 1;
}

// Steps that the toy's data are passed over in, by hand: the same cursor, no update.
static pl_status by_hand(const char *dir, const int64_t *bad, int n, pl_err *err) {
    pl_trainer_options o = toy_options(dir);
    toy                y;
    pl_slots           slots;
    pl_optim           optim;
    pl_step_result     r;
    int64_t            updates = 0;
    toy_create(&y, NULL, NULL);
    assert_int_equal(pl_slots_init(&slots, y.task.n_slots, y.block.n, y.task.backend, err), PL_OK);
    assert_int_equal(pl_optim_init(&optim, y.task.backend, NULL, &y.block, &o.optim, err), PL_OK);
    for (int64_t step = 1; step <= TOY_STEPS; step++) {
        bool skipped = false;
        for (int i = 0; i < n; i++)
            skipped |= bad[i] == step;
        for (int s = 0; s < y.task.n_slots && skipped; s++)
            (y.task.skip)(&y.task, step, s, err);
        if (skipped) continue;
        double *sums = r.sums, norm;
        pl_slots_begin(&slots);
        for (int s = 0; s < y.task.n_slots; s++) {
            memset(sums, 0, sizeof r.sums);
            pl_param_block_zero_grad(&y.block, NULL);
            y.task.slot(&y.task, step, s, sums, err);
            pl_slots_add(&slots, &optim.ctx, y.block.grad, sums);
        }
        double lr = pl_schedule_at(&o.schedule, step), scale = 1 / sums[PL_SUM_WEIGHT];
        assert_int_equal(pl_optim_norm(&optim, scale, &norm, err), PL_OK);
        assert_int_equal(pl_optim_update(&optim, lr, scale, norm, ++updates, err), PL_OK);
    }
    pl_status st = pl_dir_make(dir, err);
    if (st == PL_OK) st = y.task.save_model(&y.task, dir, err);
    pl_slots_fini(&slots);
    pl_optim_fini(&optim);
    toy_destroy(&y);
    return st;
}

static void like_by_hand(const char *dir, const char *hand, const int64_t *bad, int n) {
    pl_err err = {0};
    char  *last = pl_path_join(dir, "checkpoints/last"), *want = toy_path(hand);
    double (*factor)(int64_t, int) = toy_is.factor;
    toy_is.factor = NULL;
    assert_int_equal(by_hand(want, bad, n, &err), PL_OK);
    toy_is.factor = factor;
    toy_same_file(last, want, "model.safetensors");
    pl_free(last), pl_free(want);
}

// A run of `ranks` into dir, stopped `at` once (0: not) and gone on with.
static void run(const char *dir, int ranks, int64_t at, pl_guard_options g) {
    pl_err             err;
    pl_trainer_options o = toy_options(dir);
    o.guard = g;
    o.stop_after = at;
    if (at && toy_run(&o, ranks, NULL, &err) != PL_E_INTERRUPTED) fail_msg("%s: %s", dir, err.msg);
    o.stop_after = 0;
    if (toy_run(&o, ranks, NULL, &err) != PL_OK) fail_msg("%s: %s", dir, err.msg);
}

static const pl_guard_options plain = {.nonfinite = true, .in_a_row = 3};

// One process, several, and a run that is stopped between the two bad steps: the same weights and moments, and those
// of steps that are passed over by hand; their lines say why and where the data stood.
static void what_is_not_finite_is_skipped(void **state) {
    (void)state;
    int64_t steps[9];
    double  losses[9];
    char   *one = toy_path("nan-1"), *three = toy_path("nan-3"), *parts = toy_path("nan-parts"), *text;
    char   *path = pl_path_join(one, "skipped.jsonl"), *inf = toy_path("inf");
    toy_is.factor = nan_at_1_and_7;
    run(one, 1, 0, plain);
    run(three, 3, 0, plain);
    run(parts, 2, 4, plain);
    toy_same_run(one, three);
    toy_same_run(one, parts);
    toy_same_file(one, three, "skipped.jsonl");
    toy_same_file(one, parts, "skipped.jsonl");
    like_by_hand(one, "hand-nan", (const int64_t[]){1, 7}, 2);
    assert_int_equal(toy_lines(one, "skipped.jsonl", steps, losses, 9), 2);
    assert_true(steps[0] == 1 && steps[1] == 7);
    size_t n;
    assert_int_equal(pl_file_read(path, (uint8_t **)&text, &n, 1 << 20, NULL), PL_OK);
    assert_non_null(strstr(text, "\"why\":\"the loss is not finite\""));
    // Slot 1 of step 7 is the 20th that is drawn; the cursor adds up steps beside that.
    assert_non_null(strstr(text, "{\"slot\":1,\"loss\":null,\"from\":[19,70],\"to\":[20,77]}"));
    pl_free(text);
    toy_is.factor = inf_at_7;
    run(inf, 1, 0, plain);
    assert_int_equal(toy_lines(inf, "skipped.jsonl", steps, losses, 9), 1);
    like_by_hand(inf, "hand-inf", (const int64_t[]){7}, 1);
    toy_is.factor = NULL;
    pl_free(one), pl_free(three), pl_free(parts), pl_free(path), pl_free(inf);
}

// By the medians of the last 10 steps: the spike at 15 is one, before there are 10 nothing is; a resumed run has the
// same medians.
static void spikes_are_skipped(void **state) {
    (void)state;
    const pl_guard_options g = {.nonfinite = true, .spike = 20, .window = 10, .in_a_row = 3};
    int64_t                steps[9];
    double                 losses[9];
    char                  *one = toy_path("spike-1"), *parts = toy_path("spike-parts"), *off = toy_path("spike-off");
    char                  *late = toy_path("spike-late"), *none;
    toy_is.factor = spike_at_15;
    run(one, 1, 0, g);
    run(parts, 3, 11, g); // its medians are of steps on both sides of the stop
    toy_same_run(one, parts);
    toy_same_file(one, parts, "skipped.jsonl");
    assert_int_equal(toy_lines(one, "skipped.jsonl", steps, losses, 9), 1);
    assert_int_equal(steps[0], 15);
    like_by_hand(one, "hand-spike", (const int64_t[]){15}, 1);
    run(off, 1, 0, plain);
    none = pl_path_join(off, "skipped.jsonl");
    assert_false(pl_path_exists(none));
    pl_free(none);
    run(late, 1, 0, (pl_guard_options){.nonfinite = true, .spike = 20, .window = 15, .in_a_row = 3});
    none = pl_path_join(late, "skipped.jsonl");
    assert_false(pl_path_exists(none));
    toy_is.factor = NULL;
    pl_free(one), pl_free(parts), pl_free(off), pl_free(late), pl_free(none);
}

// Without a bad step a guard changes nothing: neither weights nor moments.
static void good_runs_are_the_same(void **state) {
    (void)state;
    const pl_guard_options g = {.nonfinite = true, .spike = 1000, .window = 5, .in_a_row = 1};
    char                  *off = toy_path("good-off"), *on = toy_path("good-on"), *a, *b;
    run(off, 1, 0, (pl_guard_options){.nonfinite = false});
    run(on, 2, 6, g);
    a = pl_path_join(off, "checkpoints"), b = pl_path_join(on, "checkpoints");
    toy_same_file(a, b, "last/model.safetensors");
    toy_same_file(a, b, "best/model.safetensors");
    toy_same_metrics(off, on);
    like_by_hand(on, "hand-good", NULL, 0);
    pl_free(off), pl_free(on), pl_free(a), pl_free(b);
}

// Three in a row end it on all ranks with one line; the checkpoint before stands; a run that goes on counts on.
static void too_many_in_a_row(void **state) {
    (void)state;
    pl_err  err;
    int64_t done, steps[9];
    double  losses[9];
    for (int ranks = 1; ranks <= 3; ranks += 2) {
        char              *dir = toy_path(ranks == 1 ? "row-1" : "row-3");
        pl_trainer_options o = toy_options(dir);
        o.guard = plain;
        o.checkpoint_every = 10; // between them
        toy_is.factor = nan_from_9;
        for (int again = 0; again < 2; again++) { // the second time from step 10, after two of them
            assert_int_equal(toy_run(&o, ranks, NULL, &err), PL_E_INPUT);
            assert_non_null(strstr(err.msg, "step 11: 3 steps in a row did not count, of this one the loss is not"));
            assert_non_null(strstr(err.msg, "skipped.jsonl"));
            assert_null(strchr(err.msg, '\n'));
            assert_int_equal(pl_trainer_done_steps(dir, &done, &err), PL_OK);
            assert_int_equal(done, 10);
            assert_int_equal(toy_lines(dir, "skipped.jsonl", steps, losses, 9), 3);
            assert_true(steps[0] == 9 && steps[1] == 10 && steps[2] == 11);
        }
        o.guard.in_a_row = 0; // never: to the end, with what it was before
        assert_int_equal(toy_run(&o, ranks, NULL, &err), PL_OK);
        toy_is.factor = NULL;
        pl_free(dir);
    }
}

int main(void) {
    pl_log_set(PL_LOG_MUTE);
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(what_is_not_finite_is_skipped),
        cmocka_unit_test(spikes_are_skipped),
        cmocka_unit_test(good_runs_are_the_same),
        cmocka_unit_test(too_many_in_a_row),
    };
    return cmocka_run_group_tests(tests, toy_setup_folder, toy_teardown_folder);
}
