#include "tests/train/toy.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "kernels/base/arena.h"
#include "kernels/base/files.h"
#include "kernels/base/log.h"
#include "kernels/base/rng.h"
#include <dirent.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

toy_setup toy_is = {.dim = 50};

// ---- the task

static float learn(pl_tensor *t, int64_t i, float want, float factor) {
    float e = ((float *)t->data)[i] - want;
    ((float *)t->grad)[i] += factor * e;
    return 0.5f * e * e;
}

static pl_status slot(pl_task *t, int64_t step, int number, double *sums, pl_err *err) {
    toy    *y = (toy *)t;
    double  factor = toy_is.factor ? toy_is.factor(step, number) : 1;
    pl_rng  rng = pl_rng_make(5, PL_STREAM_TEST, (uint64_t)number);
    int64_t at = y->cursor[0]++;
    (void)err;
    y->cursor[1] += step;
    for (int64_t i = 0; i < toy_is.dim; i++) {
        float want = (float)(i % 7) - 3 + 0.1f * pl_rng_normal(rng, (uint64_t)(at * toy_is.dim + i));
        sums[PL_SUM_LOSS] += factor * (double)learn(&y->w, i, want, (float)factor);
    }
    for (int64_t i = 0; i < toy_is.dim / 10; i++)
        sums[PL_SUM_LOSS] += factor * (double)learn(&y->bias, i, 0.5f, (float)factor);
    sums[PL_SUM_WEIGHT] += (double)toy_is.dim;
    sums[PL_SUM_TOKENS] += (double)toy_is.dim;
    sums[PL_SUM_OWN] += 1;
    return PL_OK;
}

static pl_status pass_over(pl_task *t, int64_t step, int number, pl_err *err) {
    toy *y = (toy *)t;
    (void)number, (void)err;
    y->cursor[0]++;
    y->cursor[1] += step;
    return PL_OK;
}

static void report(pl_task *t, const double *sums, pl_metrics *m) {
    pl_metrics_num(m, "slots", sums[PL_SUM_OWN]);
    assert_true(sums[PL_SUM_OWN] == t->n_slots);
}

static pl_status evaluate(pl_task *t, int64_t step, pl_metrics *m, double *score, pl_err *err) {
    (void)err;
    ((toy *)t)->evaluations++;
    *score = -fabs((double)step - 12);
    pl_metrics_num(m, "eval_score", *score);
    return PL_OK;
}

static pl_status save_model(pl_task *t, const char *dir, pl_err *err) {
    toy      *y = (toy *)t;
    char     *path = pl_path_join(dir, "model.safetensors");
    pl_status st = pl_file_write_atomic(path, y->w.data, (size_t)toy_is.dim * sizeof(float), err);
    pl_free(path);
    return st;
}

void toy_create(toy *y, pl_pool *pool, pl_comm *comm) {
    pl_err err = {0};
    *y = (toy){0};
    assert_int_equal(pl_params_init(&y->params, 2, &err), PL_OK);
    pl_params_add(
        &y->params,
        &(pl_param_args){
            .tensor = &y->w, .kind = PL_PARAM_MATRIX, .part = {{"w", 2}}, .cols = toy_is.dim / 2, .init_std = 0.5});
    pl_params_add(&y->params,
                  &(pl_param_args){.tensor = &y->bias, .kind = PL_PARAM_BIAS, .part = {{"bias", toy_is.dim / 10}}});
    pl_param_block_options bo = {.backend = pl_backend_cpu(), .round_to = PL_BF16};
    if (toy_is.sharded) bo.shard = (pl_shard){pl_comm_rank(comm), pl_comm_ranks(comm)};
    assert_int_equal(pl_param_block_create(&y->block, &y->params, &bo, &err), PL_OK);
    assert_int_equal(pl_param_block_init(&y->block, 11, NULL), PL_OK);
    y->task = (pl_task){.name = "toy",
                        .block = &y->block,
                        .backend = pl_backend_cpu(),
                        .pool = pool,
                        .comm = comm,
                        .n_slots = toy_is.slots ? toy_is.slots : TOY_SLOTS,
                        .identity = "toy 1",
                        .cursor = y->cursor,
                        .n_cursor = 2,
                        .slot = slot,
                        .skip = pass_over,
                        .report = report,
                        .evaluate = evaluate,
                        .save_model = save_model};
}

void toy_destroy(toy *y) {
    pl_param_block_destroy(&y->block);
    pl_params_fini(&y->params);
}

pl_trainer_options toy_options(const char *dir) {
    return (pl_trainer_options){
        .out_dir = dir,
        .steps = TOY_STEPS,
        .keep = 1,
        .checkpoint_every = 5,
        .eval_every = 4,
        .log_every = 1,
        .guard = {.nonfinite = true, .window = 1, .in_a_row = 10},
        .schedule = {.kind = PL_SCHEDULE_COSINE, .lr = 0.1, .min_ratio = 0.1, .warmup = 3, .steps = TOY_STEPS},
        .optim = {.beta1 = 0.9, .beta2 = 0.95, .eps = 1e-8, .decay = 0.01, .clip = 1},
    };
}

static pl_status train(const pl_trainer_options *o, pl_pool *pool, pl_comm *comm, pl_err *err) {
    toy y;
    toy_create(&y, pool, comm);
    pl_status st = pl_trainer_run(&y.task, o, err);
    toy_destroy(&y);
    return st;
}

pl_status toy_run(const pl_trainer_options *o, int ranks, pl_pool *pool, pl_err *err) {
    pl_comm *c = NULL;
    *err = (pl_err){0};
    if (ranks == 1) return train(o, pool, NULL, err);
    assert_int_equal(pl_comm_fork(&c, ranks, err), PL_OK);
    bool first = pl_comm_rank(c) == 0;
    if (!first) pl_log_set(PL_LOG_MUTE);
    pl_status st = pl_comm_open(c, "auto", pl_backend_cpu(), err);
    if (st == PL_OK) st = train(o, NULL, c, err);
    if (st == PL_OK) st = pl_comm_barrier(c, err);
    if (st != PL_OK) pl_comm_fail(c, err);
    pl_comm_close(c);
    if (!first) _exit(0);
    return st;
}

// ---- files

static char base[64];

int toy_setup_folder(void **state) {
    (void)state;
    // Shared memory where there is some: hundreds of checkpoints are made durable.
    snprintf(base, sizeof base, "%s/paceline-trainer-XXXXXX", access("/dev/shm", W_OK) == 0 ? "/dev/shm" : "/tmp");
    return mkdtemp(base) ? 0 : -1;
}

int toy_teardown_folder(void **state) {
    (void)state;
    return pl_tree_remove(base, NULL) == PL_OK ? 0 : -1;
}

char *toy_path(const char *name) {
    return pl_path_join(base, name);
}

void toy_same_file(const char *a, const char *b, const char *name) {
    char    *pa = pl_path_join(a, name), *pb = pl_path_join(b, name);
    uint8_t *da, *db;
    size_t   na, nb;
    pl_err   err;
    if (pl_file_read(pa, &da, &na, 1 << 28, &err) != PL_OK) fail_msg("%s", err.msg);
    if (pl_file_read(pb, &db, &nb, 1 << 28, &err) != PL_OK) fail_msg("%s", err.msg);
    if (na != nb || memcmp(da, db, na) != 0) fail_msg("%s and %s differ", pa, pb);
    pl_free(pa), pl_free(pb), pl_free(da), pl_free(db);
}

void toy_same_run(const char *a, const char *b) {
    toy_same_file(a, b, "checkpoints/last/training_state");
    toy_same_file(a, b, "checkpoints/last/model.safetensors");
    toy_same_file(a, b, "checkpoints/best/model.safetensors");
}

int toy_lines(const char *dir, const char *file, int64_t steps[], double losses[], int most) {
    char  *path = pl_path_join(dir, file), *data;
    size_t n;
    int    count = 0;
    assert_int_equal(pl_file_read(path, (uint8_t **)&data, &n, 1 << 24, NULL), PL_OK);
    for (char *line = data; *line; line = strchr(line, '\n') + 1) {
        pl_json j;
        assert_non_null(strchr(line, '\n'));
        assert_int_equal(pl_json_parse(&j, path, 1, line, (size_t)(strchr(line, '\n') - line), 0, NULL), PL_OK);
        assert_true(count < most);
        assert_int_equal(pl_json_get_int(&j, NULL, "step", 1, TOY_STEPS, &steps[count], NULL), PL_OK);
        if (pl_json_opt_num(&j, NULL, "loss", 0, 1e30, -1, &losses[count], NULL) != PL_OK) losses[count] = -1;
        count++;
        pl_json_close(&j);
    }
    pl_free(path), pl_free(data);
    return count;
}

// The metrics' lines without the rate, which is never twice the same.
void toy_same_metrics(const char *a, const char *b) {
    int64_t sa[99], sb[99];
    double  la[99], lb[99];
    int     n = toy_lines(a, "metrics.jsonl", sa, la, 99);
    assert_int_equal(n, toy_lines(b, "metrics.jsonl", sb, lb, 99));
    assert_int_equal(n, TOY_STEPS + TOY_STEPS / 4 + 1); // a line each step, every fourth one evaluated, and the last
    assert_memory_equal(sa, sb, (size_t)n * sizeof *sa);
    assert_memory_equal(la, lb, (size_t)n * sizeof *la);
}

int toy_entries(const char *dir) {
    DIR *d = opendir(dir);
    int  n = 0;
    assert_non_null(d);
    while (readdir(d))
        n++;
    closedir(d);
    return n - 2;
}
