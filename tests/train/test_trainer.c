// The loop: resuming from any checkpoint is the uninterrupted run bit for bit; metrics; best; refusals.
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "kernels/base/arena.h"
#include "kernels/base/files.h"
#include "kernels/base/log.h"
#include "tests/train/toy.h"
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

static pl_status train(const char *dir, int64_t stop_after, pl_pool *pool, pl_err *err) {
    pl_trainer_options o = toy_options(dir);
    o.stop_after = stop_after;
    return toy_run(&o, 1, pool, err);
}

static void resume_is_bit_for_bit(void **state) {
    (void)state;
    pl_err err = {0};
    char  *whole = toy_path("whole"), *parts = toy_path("parts");
    assert_int_equal(train(whole, 0, NULL, &err), PL_OK);
    for (int64_t at = 1; at < TOY_STEPS; at += 7) { // stopped again and again
        assert_int_equal(train(parts, at, NULL, &err), PL_E_INTERRUPTED);
        int64_t done;
        assert_int_equal(pl_trainer_done_steps(parts, &done, &err), PL_OK);
        assert_int_equal(done, at);
    }
    assert_int_equal(train(parts, 0, NULL, &err), PL_OK);
    toy_same_run(whole, parts);
    toy_same_metrics(whole, parts);
    assert_int_equal(train(parts, 0, NULL, &err), PL_OK); // nothing left to do
    toy_same_metrics(whole, parts);
    pl_free(whole), pl_free(parts);
}

// A process that dies after a checkpoint leaves metrics and a best/ that are ahead of it, and a line cut short.
static void resume_after_a_kill(void **state) {
    (void)state;
    pl_err err = {0};
    char  *whole = toy_path("whole2"), *killed = toy_path("killed"), *kept = toy_path("kept");
    char   cmd[512];
    assert_int_equal(train(whole, 0, NULL, &err), PL_OK);
    assert_int_equal(train(killed, 10, NULL, &err), PL_E_INTERRUPTED);
    snprintf(cmd, sizeof cmd, "cp -r %s/checkpoints/last %s", killed, kept);
    assert_int_equal(system(cmd), 0);
    assert_int_equal(train(killed, 21, NULL, &err), PL_E_INTERRUPTED);
    snprintf(cmd, sizeof cmd,
             "rm -r %s/checkpoints/last && mv %s %s/checkpoints/last && printf '{\"sta' >> %s/metrics.jsonl", killed,
             kept, killed, killed);
    assert_int_equal(system(cmd), 0);
    assert_int_equal(train(killed, 0, NULL, &err), PL_OK);
    toy_same_run(whole, killed);
    toy_same_metrics(whole, killed);
    pl_free(whole), pl_free(killed), pl_free(kept);
}

// Killed at any of its disk steps, a run that goes on ends with the same folders as one that was not, and no more; what
// it goes on from is the last checkpoint that was put in place.
static void killed_anywhere(int64_t keep, uint64_t stride) {
    pl_err             err = {0};
    char              *whole = toy_path("whole3"), *killed = toy_path("shot"), *folder = toy_path("shot/checkpoints");
    pl_trainer_options o = toy_options(whole);
    int                left = 0, points = 0;
    o.keep = keep;
    assert_int_equal(pl_tree_remove(whole, &err), PL_OK);
    uint64_t before = pl_io_count();
    assert_int_equal(toy_run(&o, 1, NULL, &err), PL_OK);
    uint64_t steps = pl_io_count() - before;
    o.out_dir = killed;
    for (uint64_t n = 1; n <= steps; n += stride) {
        int64_t done[2];
        pid_t   child = fork();
        assert_true(child >= 0);
        if (child == 0) {
            pl_io_kill_after(n);
            toy_run(&o, 1, NULL, &err);
            _exit(0);
        }
        int how;
        assert_int_equal(waitpid(child, &how, 0), child);
        assert_true(WIFSIGNALED(how));
        left += pl_path_exists(folder) && toy_entries(folder) > 2;
        assert_int_equal(pl_trainer_done_steps(killed, &done[0], &err), PL_OK);
        assert_true(done[0] % 5 == 0 || done[0] == TOY_STEPS);
        assert_int_equal(toy_run(&o, 1, NULL, &err), PL_OK);
        int wanted = 2 + (int)(keep < 5 ? keep - 1 : 4); // steps 5, 10, 15, 20 before the last
        // What was cut off by the kill is not made again.
        assert_true(toy_entries(folder) <= wanted && toy_entries(folder) >= (keep > 1 ? 3 : 2));
        toy_same_run(whole, killed);
        assert_int_equal(pl_tree_remove(killed, &err), PL_OK);
        points++;
    }
    print_message("keep %d: killed at %d of %d disk steps\n", (int)keep, points, (int)steps);
    assert_true(left > 5);
    pl_free(whole), pl_free(killed), pl_free(folder);
}

static void nothing_is_lost(void **state) {
    (void)state;
    pl_log_set(PL_LOG_QUIET);
    killed_anywhere(1, 7);
    killed_anywhere(3, 1);
    pl_io_no_exchange(true);
    killed_anywhere(2, 3);
    pl_io_no_exchange(false);
    pl_log_set(PL_LOG_NORMAL);
}

static void damage(const char *dir, const char *name, int how) {
    char *path = pl_sprintf("%s/checkpoints/%s/training_state", dir, name);
    FILE *f = fopen(path, "r+b");
    assert_non_null(f);
    if (how == 0) { // flipped
        fseek(f, -100, SEEK_END);
        int c = fgetc(f);
        fseek(f, -100, SEEK_END);
        fputc(c ^ 0x10, f);
    }
    if (how == 1) assert_int_equal(ftruncate(fileno(f), 300), 0); // torn
    fclose(f);
    if (how == 2) assert_int_equal(unlink(path), 0); // gone
    pl_free(path);
}

// A damaged checkpoint is passed over for the one before, again and again; the run ends as if nothing had been.
static void damaged_ones_are_passed_over(void **state) {
    (void)state;
    pl_err             err = {0};
    char              *whole = toy_path("whole4"), *bad = toy_path("bad");
    pl_trainer_options o = toy_options(whole);
    o.keep = 3;
    assert_int_equal(toy_run(&o, 1, NULL, &err), PL_OK);
    o.out_dir = bad;
    for (int how = 0; how < 3; how++)
        for (int many = 1; many <= 3; many++) {
            int64_t done;
            o.stop_after = 17;
            assert_int_equal(pl_tree_remove(bad, &err), PL_OK);
            assert_int_equal(toy_run(&o, 1, NULL, &err), PL_E_INTERRUPTED); // last is of 17, before it 15 and 10
            damage(bad, "last", how);
            if (many > 1) damage(bad, "step-15", how);
            if (many > 2) damage(bad, "step-10", how);
            o.stop_after = 0;
            if (many == 3) {
                assert_int_equal(toy_run(&o, 1, NULL, &err), PL_E_INPUT);
                assert_non_null(strstr(err.msg, "last/training_state: "));
                assert_non_null(strstr(err.msg, "no checkpoint in "));
                assert_non_null(strstr(err.msg, "is whole: remove that folder to begin anew"));
                assert_null(strchr(err.msg, '\n'));
                continue;
            }
            assert_int_equal(pl_trainer_done_steps(bad, &done, &err), PL_OK);
            assert_int_equal(done, many == 1 ? 15 : 10);
            assert_int_equal(toy_run(&o, 1, NULL, &err), PL_OK);
            toy_same_run(whole, bad);
            toy_same_metrics(whole, bad);
            toy_same_file(whole, bad, "checkpoints/step-20/training_state");
            assert_int_equal(pl_trainer_done_steps(bad, &done, &err), PL_OK);
            assert_int_equal(done, TOY_STEPS);
        }
    pl_free(whole), pl_free(bad);
}

// No steps: the model as it is, its checkpoint of step 0, from which more steps go on.
static void no_steps(void **state) {
    (void)state;
    pl_err             err = {0};
    char              *whole = toy_path("whole5"), *dir = toy_path("none");
    pl_trainer_options o = toy_options(dir);
    int64_t            done;
    o.keep = 2;
    o.steps = 0;
    assert_int_equal(toy_run(&o, 1, NULL, &err), PL_OK);
    toy_same_file(dir, dir, "checkpoints/best/model.safetensors");
    toy_same_file(dir, dir, "checkpoints/last/training_state");
    assert_int_equal(pl_trainer_done_steps(dir, &done, &err), PL_OK);
    assert_int_equal(done, 0);
    char *folder = toy_path("none/checkpoints");
    assert_int_equal(toy_entries(folder), 2);
    o.steps = TOY_STEPS;
    assert_int_equal(toy_run(&o, 1, NULL, &err), PL_OK);
    o.out_dir = whole;
    assert_int_equal(toy_run(&o, 1, NULL, &err), PL_OK);
    toy_same_file(whole, dir, "checkpoints/last/model.safetensors");
    pl_free(whole), pl_free(dir), pl_free(folder);
}

static void threads_do_not_matter(void **state) {
    (void)state;
    pl_err   err = {0};
    char    *one = toy_path("one"), *two = toy_path("two");
    pl_pool *pool;
    assert_int_equal(pl_pool_create(&pool, 2, &err), PL_OK);
    assert_int_equal(train(one, 0, NULL, &err), PL_OK);
    assert_int_equal(train(two, 0, pool, &err), PL_OK);
    toy_same_run(one, two);
    pl_pool_destroy(pool);
    pl_free(one), pl_free(two);
}

// best/ is the model of step 12, where the score was highest.
static void best_is_kept(void **state) {
    (void)state;
    pl_err err = {0};
    char  *all = toy_path("all"), *twelve = toy_path("twelve");
    assert_int_equal(train(all, 0, NULL, &err), PL_OK);
    assert_int_equal(train(twelve, 12, NULL, &err), PL_E_INTERRUPTED);
    char *best = pl_path_join(all, "checkpoints/best"), *last = pl_path_join(twelve, "checkpoints/last");
    toy_same_file(best, last, "model.safetensors");
    char *state_file = pl_path_join(best, "training_state");
    assert_false(pl_path_exists(state_file));
    pl_free(all), pl_free(twelve), pl_free(best), pl_free(last), pl_free(state_file);
}

static void other_runs_are_refused(void **state) {
    (void)state;
    pl_err             err = {0};
    char              *dir = toy_path("other");
    toy                y;
    pl_trainer_options o = toy_options(dir);
    assert_int_equal(train(dir, 5, NULL, &err), PL_E_INTERRUPTED);
    assert_non_null(strstr(err.msg, "step 5 of 23"));
    toy_create(&y, NULL, NULL);
    snprintf(y.task.identity, sizeof y.task.identity, "toy 2");
    assert_int_equal(pl_trainer_run(&y.task, &o, &err), PL_E_INPUT);
    assert_non_null(strstr(err.msg, "toy 1"));
    assert_null(strchr(err.msg, '\n'));
    toy_destroy(&y);

    // a damaged state is refused too
    char *path = pl_path_join(dir, "checkpoints/last/training_state");
    FILE *f = fopen(path, "r+b");
    assert_non_null(f);
    fseek(f, -100, SEEK_END);
    fputc(0x5a, f);
    fclose(f);
    assert_int_equal(train(dir, 0, NULL, &err), PL_E_INPUT);
    pl_free(path), pl_free(dir);
}

static double nan_at_7(int64_t step, int slot) {
    return step == 7 && slot == 1 ? NAN : 1;
}

// Where nothing guards, a loss that is not a number ends the run; what was saved before stays.
static void broken_loss_stops(void **state) {
    (void)state;
    pl_err             err = {0};
    char              *dir = toy_path("nan");
    pl_trainer_options o = toy_options(dir);
    int64_t            done;
    o.guard.nonfinite = false;
    toy_is.factor = nan_at_7;
    assert_int_equal(toy_run(&o, 1, NULL, &err), PL_E_INPUT);
    toy_is.factor = NULL;
    assert_non_null(strstr(err.msg, "step 7: the loss is not finite"));
    assert_int_equal(pl_trainer_done_steps(dir, &done, &err), PL_OK);
    assert_int_equal(done, 5);
    pl_free(dir);
}

// A full disk while a checkpoint is written: an error, and the checkpoint before it stands.
static void disk_failures_keep_the_last(void **state) {
    (void)state;
    pl_err             err = {0};
    char              *dir = toy_path("disk");
    int                failed = 0;
    pl_trainer_options o = toy_options(dir);
    for (uint64_t n = 1; n < 400; n += 9) {
        toy     y;
        int64_t done;
        assert_int_equal(pl_tree_remove(dir, &err), PL_OK);
        toy_create(&y, NULL, NULL);
        pl_io_fail_after(n);
        pl_status st = pl_trainer_run(&y.task, &o, &err);
        pl_io_fail_after(0);
        toy_destroy(&y);
        if (st == PL_OK) break;
        failed++;
        assert_int_equal(pl_trainer_done_steps(dir, &done, &err), PL_OK);
        assert_true(done % 5 == 0 || done == TOY_STEPS);
    }
    assert_true(failed > 3);
    pl_free(dir);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(resume_is_bit_for_bit),
        cmocka_unit_test(resume_after_a_kill),
        cmocka_unit_test(nothing_is_lost),
        cmocka_unit_test(damaged_ones_are_passed_over),
        cmocka_unit_test(no_steps),
        cmocka_unit_test(threads_do_not_matter),
        cmocka_unit_test(best_is_kept),
        cmocka_unit_test(other_runs_are_refused),
        cmocka_unit_test(broken_loss_stops),
        cmocka_unit_test(disk_failures_keep_the_last),
    };
    return cmocka_run_group_tests(tests, toy_setup_folder, toy_teardown_folder);
}
