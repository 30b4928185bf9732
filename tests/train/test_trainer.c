// The loop: resuming from any checkpoint is the uninterrupted run bit for bit; metrics; best; refusals.
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "kernels/base/arena.h"
#include "kernels/base/files.h"
#include "kernels/base/rng.h"
#include "train/loop/trainer.h"
#include <dirent.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

// A task that learns a vector by least squares from noisy samples: slot s of a step draws where its cursor stands.
enum { DIM = 50, STEPS = 23 };

typedef struct toy {
    pl_task        task;
    pl_params      params;
    pl_tensor      w;
    pl_param_block block;
    int64_t        cursor[2];
    int            evaluations;
} toy;

static pl_status toy_slot(pl_task *t, int64_t step, int slot, double *sums, pl_err *err) {
    toy    *y = (toy *)t;
    float  *w = y->w.data, *g = y->w.grad;
    pl_rng  rng = pl_rng_make(5, PL_STREAM_TEST, (uint64_t)slot);
    int64_t at = y->cursor[0]++;
    (void)err;
    y->cursor[1] += step;
    for (int i = 0; i < DIM; i++) {
        float want = (float)(i % 7) - 3 + 0.1f * pl_rng_normal(rng, (uint64_t)(at * DIM + i)), e = w[i] - want;
        g[i] += e;
        sums[PL_SUM_LOSS] += 0.5 * (double)e * (double)e;
    }
    sums[PL_SUM_WEIGHT] += DIM;
    sums[PL_SUM_TOKENS] += DIM;
    sums[PL_SUM_OWN] += 1;
    return PL_OK;
}

static void toy_report(pl_task *t, const double *sums, pl_metrics *m) {
    pl_metrics_num(m, "slots", sums[PL_SUM_OWN]);
    assert_true(sums[PL_SUM_OWN] == t->n_slots);
}

// Better until step 12, worse afterwards.
static pl_status toy_evaluate(pl_task *t, int64_t step, pl_metrics *m, double *score, pl_err *err) {
    (void)err;
    ((toy *)t)->evaluations++;
    *score = -fabs((double)step - 12);
    pl_metrics_num(m, "eval_score", *score);
    return PL_OK;
}

static pl_status toy_save(pl_task *t, const char *dir, pl_err *err) {
    toy      *y = (toy *)t;
    char     *path = pl_path_join(dir, "model.bin");
    pl_status st = pl_file_write_atomic(path, y->w.data, DIM * sizeof(float), err);
    pl_free(path);
    return st;
}

static void toy_create(toy *y, pl_pool *pool) {
    pl_err err = {0};
    *y = (toy){0};
    assert_int_equal(pl_params_init(&y->params, 1, &err), PL_OK);
    pl_params_add(&y->params,
                  &(pl_param_args){
                      .tensor = &y->w, .kind = PL_PARAM_MATRIX, .part = {{"w", 2}}, .cols = DIM / 2, .init_std = 0.5});
    pl_param_block_options bo = {.backend = pl_backend_cpu(), .round_to = PL_BF16};
    assert_int_equal(pl_param_block_create(&y->block, &y->params, &bo, &err), PL_OK);
    assert_int_equal(pl_param_block_init(&y->block, 11, NULL), PL_OK);
    y->task = (pl_task){.name = "toy",
                        .block = &y->block,
                        .backend = pl_backend_cpu(),
                        .pool = pool,
                        .n_slots = 3,
                        .identity = "toy 1",
                        .cursor = y->cursor,
                        .n_cursor = 2,
                        .slot = toy_slot,
                        .report = toy_report,
                        .evaluate = toy_evaluate,
                        .save_model = toy_save};
}

static void toy_destroy(toy *y) {
    pl_param_block_destroy(&y->block);
    pl_params_fini(&y->params);
}

static pl_trainer_options options(const char *dir) {
    return (pl_trainer_options){
        .out_dir = dir,
        .steps = STEPS,
        .checkpoint_every = 5,
        .eval_every = 4,
        .log_every = 1,
        .schedule = {.kind = PL_SCHEDULE_COSINE, .lr = 0.1, .min_ratio = 0.1, .warmup = 3, .steps = STEPS},
        .optim = {.beta1 = 0.9, .beta2 = 0.95, .eps = 1e-8, .decay = 0.01, .clip = 1},
    };
}

static char  base[64];
static char *in_base(const char *name) {
    return pl_path_join(base, name);
}

static int setup(void **state) {
    (void)state;
    snprintf(base, sizeof base, "/tmp/paceline-trainer-XXXXXX");
    return mkdtemp(base) ? 0 : -1;
}

static int teardown(void **state) {
    (void)state;
    return pl_tree_remove(base, NULL) == PL_OK ? 0 : -1;
}

static pl_status train(const char *dir, int64_t stop_after, pl_pool *pool, pl_err *err) {
    toy                y;
    pl_trainer_options o = options(dir);
    o.stop_after = stop_after;
    toy_create(&y, pool);
    pl_status st = pl_trainer_run(&y.task, &o, err);
    toy_destroy(&y);
    return st;
}

static void same_file(const char *a, const char *b, const char *name) {
    char    *pa = pl_path_join(a, name), *pb = pl_path_join(b, name);
    uint8_t *da, *db;
    size_t   na, nb;
    assert_int_equal(pl_file_read(pa, &da, &na, 1 << 24, NULL), PL_OK);
    assert_int_equal(pl_file_read(pb, &db, &nb, 1 << 24, NULL), PL_OK);
    assert_int_equal(na, nb);
    assert_memory_equal(da, db, na);
    pl_free(pa), pl_free(pb), pl_free(da), pl_free(db);
}

static void same_run(const char *a, const char *b) {
    same_file(a, b, "checkpoints/last/training_state");
    same_file(a, b, "checkpoints/last/model.bin");
    same_file(a, b, "checkpoints/best/model.bin");
}

// The metrics' lines without the rate, which is never twice the same.
static int count_lines(const char *dir, int64_t steps[], double losses[], int most) {
    char  *path = pl_path_join(dir, "metrics.jsonl"), *data;
    size_t n;
    int    count = 0;
    assert_int_equal(pl_file_read(path, (uint8_t **)&data, &n, 1 << 24, NULL), PL_OK);
    for (char *line = data; *line; line = strchr(line, '\n') + 1) {
        pl_json j;
        assert_non_null(strchr(line, '\n'));
        assert_int_equal(pl_json_parse(&j, path, 1, line, (size_t)(strchr(line, '\n') - line), 0, NULL), PL_OK);
        assert_true(count < most);
        assert_int_equal(pl_json_get_int(&j, NULL, "step", 1, STEPS, &steps[count], NULL), PL_OK);
        assert_int_equal(pl_json_opt_num(&j, NULL, "loss", 0, 1e9, -1, &losses[count++], NULL), PL_OK);
        pl_json_close(&j);
    }
    pl_free(path), pl_free(data);
    return count;
}

static void same_metrics(const char *a, const char *b) {
    int64_t sa[99], sb[99];
    double  la[99], lb[99];
    int     n = count_lines(a, sa, la, 99);
    assert_int_equal(n, count_lines(b, sb, lb, 99));
    assert_int_equal(n, STEPS + STEPS / 4 + 1); // a line each step, every fourth one evaluated, and the last
    assert_memory_equal(sa, sb, (size_t)n * sizeof *sa);
    assert_memory_equal(la, lb, (size_t)n * sizeof *la);
}

static void resume_is_bit_for_bit(void **state) {
    (void)state;
    pl_err err = {0};
    char  *whole = in_base("whole"), *parts = in_base("parts");
    assert_int_equal(train(whole, 0, NULL, &err), PL_OK);
    for (int64_t at = 1; at < STEPS; at += 7) { // stopped again and again
        assert_int_equal(train(parts, at, NULL, &err), PL_E_INTERRUPTED);
        int64_t done;
        assert_int_equal(pl_trainer_done_steps(parts, &done, &err), PL_OK);
        assert_int_equal(done, at);
    }
    assert_int_equal(train(parts, 0, NULL, &err), PL_OK);
    same_run(whole, parts);
    same_metrics(whole, parts);
    assert_int_equal(train(parts, 0, NULL, &err), PL_OK); // nothing left to do
    same_metrics(whole, parts);
    pl_free(whole), pl_free(parts);
}

// A process that dies after a checkpoint leaves metrics and a best/ that are ahead of it, and a line cut short.
static void resume_after_a_kill(void **state) {
    (void)state;
    pl_err err = {0};
    char  *whole = in_base("whole2"), *killed = in_base("killed"), *kept = in_base("kept");
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
    same_run(whole, killed);
    same_metrics(whole, killed);
    pl_free(whole), pl_free(killed), pl_free(kept);
}

static int entries_of(const char *dir) {
    DIR *d = opendir(dir);
    int  n = 0;
    assert_non_null(d);
    while (readdir(d))
        n++;
    closedir(d);
    return n - 2;
}

// Killed at any of its last disk steps, a run that goes on ends with the same folders as one that was not, and no more.
static void nothing_is_left(void **state) {
    (void)state;
    enum { LAST_STEPS = 30 };
    pl_err   err = {0};
    char    *whole = in_base("whole3"), *killed = in_base("shot"), *folder = in_base("shot/checkpoints");
    int      left = 0;
    uint64_t before = pl_io_count();
    assert_int_equal(train(whole, 0, NULL, &err), PL_OK);
    uint64_t steps = pl_io_count() - before;
    for (uint64_t n = steps - LAST_STEPS; n <= steps; n++) {
        pid_t child = fork();
        assert_true(child >= 0);
        if (child == 0) {
            pl_io_kill_after(n);
            train(killed, 0, NULL, &err);
            _exit(0);
        }
        int how;
        assert_int_equal(waitpid(child, &how, 0), child);
        assert_true(WIFSIGNALED(how));
        left += entries_of(folder) > 2;
        assert_int_equal(train(killed, 0, NULL, &err), PL_OK);
        assert_int_equal(entries_of(folder), 2); // last and best
        same_run(whole, killed);
        assert_int_equal(pl_tree_remove(killed, &err), PL_OK);
    }
    assert_true(left > 5);
    pl_free(whole), pl_free(killed), pl_free(folder);
}

static void threads_do_not_matter(void **state) {
    (void)state;
    pl_err   err = {0};
    char    *one = in_base("one"), *two = in_base("two");
    pl_pool *pool;
    assert_int_equal(pl_pool_create(&pool, 2, &err), PL_OK);
    assert_int_equal(train(one, 0, NULL, &err), PL_OK);
    assert_int_equal(train(two, 0, pool, &err), PL_OK);
    same_run(one, two);
    pl_pool_destroy(pool);
    pl_free(one), pl_free(two);
}

// best/ is the model of step 12, where the score was highest.
static void best_is_kept(void **state) {
    (void)state;
    pl_err err = {0};
    char  *all = in_base("all"), *twelve = in_base("twelve");
    assert_int_equal(train(all, 0, NULL, &err), PL_OK);
    assert_int_equal(train(twelve, 12, NULL, &err), PL_E_INTERRUPTED);
    char *best = pl_path_join(all, "checkpoints/best"), *last = pl_path_join(twelve, "checkpoints/last");
    same_file(best, last, "model.bin");
    char *state_file = pl_path_join(best, "training_state");
    assert_false(pl_path_exists(state_file));
    pl_free(all), pl_free(twelve), pl_free(best), pl_free(last), pl_free(state_file);
}

static void other_runs_are_refused(void **state) {
    (void)state;
    pl_err             err = {0};
    char              *dir = in_base("other");
    toy                y;
    pl_trainer_options o = options(dir);
    assert_int_equal(train(dir, 5, NULL, &err), PL_E_INTERRUPTED);
    assert_non_null(strstr(err.msg, "step 5 of 23"));
    toy_create(&y, NULL);
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

static pl_status bad_slot(pl_task *t, int64_t step, int slot, double *sums, pl_err *err) {
    toy_slot(t, step, slot, sums, err);
    if (step == 7) sums[PL_SUM_LOSS] = NAN;
    return PL_OK;
}

// A loss that is not a number ends the run; what was saved before stays.
static void broken_loss_stops(void **state) {
    (void)state;
    pl_err             err = {0};
    char              *dir = in_base("nan");
    toy                y;
    pl_trainer_options o = options(dir);
    int64_t            done;
    toy_create(&y, NULL);
    y.task.slot = bad_slot;
    assert_int_equal(pl_trainer_run(&y.task, &o, &err), PL_E_INPUT);
    assert_non_null(strstr(err.msg, "step 7"));
    assert_int_equal(pl_trainer_done_steps(dir, &done, &err), PL_OK);
    assert_int_equal(done, 5);
    toy_destroy(&y);
    pl_free(dir);
}

// A full disk while a checkpoint is written: an error, and the checkpoint before it stands.
static void disk_failures_keep_the_last(void **state) {
    (void)state;
    pl_err             err = {0};
    char              *dir = in_base("disk");
    int                failed = 0;
    pl_trainer_options o = options(dir);
    for (uint64_t n = 1; n < 400; n += 9) {
        toy     y;
        int64_t done;
        assert_int_equal(pl_tree_remove(dir, &err), PL_OK);
        toy_create(&y, NULL);
        pl_io_fail_after(n);
        pl_status st = pl_trainer_run(&y.task, &o, &err);
        pl_io_fail_after(0);
        toy_destroy(&y);
        if (st == PL_OK) break;
        failed++;
        assert_int_equal(pl_trainer_done_steps(dir, &done, &err), PL_OK);
        assert_true(done % 5 == 0);
    }
    assert_true(failed > 3);
    pl_free(dir);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(resume_is_bit_for_bit), cmocka_unit_test(resume_after_a_kill),
        cmocka_unit_test(nothing_is_left),       cmocka_unit_test(threads_do_not_matter),
        cmocka_unit_test(best_is_kept),          cmocka_unit_test(other_runs_are_refused),
        cmocka_unit_test(broken_loss_stops),     cmocka_unit_test(disk_failures_keep_the_last),
    };
    return cmocka_run_group_tests(tests, setup, teardown);
}
