#include "tests/train/small.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "infer/eval/eval.h"
#include "infer/generate/generate.h"
#include "kernels/base/arena.h"
#include "kernels/base/files.h"
#include "kernels/base/json.h"
#include "kernels/base/log.h"
#include "kernels/base/rng.h"
#include "train/keys.h"
#include "train/run/pipeline.h"
#include "train/run/run.h"
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/time.h>
#include <unistd.h>

char              small_base[64];
const pl_backend *small_backend;

pl_recipe *small_recipe(const char *lines) {
    char        text[4096], *set[64];
    size_t      used = 0;
    int         n = 0;
    pl_recipe  *r;
    pl_err      err = {0};
    const char *at = lines;
    while (*at && n < 64) {
        size_t len = strcspn(at, "\n");
        set[n++] = text + used;
        for (size_t i = 0; i < len; i++) {
            if (strncmp(at + i, "BASE", 4) == 0) {
                used += (size_t)sprintf(text + used, "%s", small_base);
                i += 3;
            } else {
                text[used++] = at[i];
            }
        }
        text[used++] = 0;
        at += len + (at[len] == '\n');
    }
    int                  n_tables;
    const pl_key *const *tables = pl_stage_tables(&n_tables);
    if (pl_recipe_open(&r, NULL, tables, n_tables, (const char *const *)set, n, &err) != PL_OK) fail_msg("%s", err.msg);
    return r;
}

static const char target_lines[] = "kind=target\ndata.text=BASE/text.txt\ndata.tokenizer.vocab_size=380\n"
                                   "target.new.hidden_size=32\ntarget.new.layers=3\ntarget.new.heads=4\n"
                                   "target.new.kv_heads=2\ntarget.new.intermediate=48\ntarget.new.positions=96\n"
                                   "train.steps=120\ntrain.batch=8\ntrain.seq_len=64\ntrain.lr=1e-2\ntrain.warmup=10";
const char        small_data_lines[] = "target.path=BASE/target/checkpoints/last\ndata.prompts=BASE/prompts.jsonl\n"
                                       "data.max_new_tokens=40\ndata.samples=1\neval.holdout=5\ntrain.holdout=8\n"
                                       "train.slot_rows=200\ntrain.slots=3\ntrain.unroll=3\ntrain.lr=5e-3\n"
                                       "train.warmup=5\ntrain.eval_every=20\ntrain.checkpoint_every=15\n"
                                       "train.log_every=1\n"
                                       "data.dataset=BASE/data/dataset\ntrain.steps=60\ntrain.clip=0.5\n";

static void write_files(void) {
    static const char *who[] = {"The rider", "A sprinter", "The leader", "Her team", "Nobody", "The old coach"};
    static const char *does[] = {"follows", "drafts behind", "waits for", "overtakes", "watches", "calls"};
    static const char *what[] = {"the wheel in front", "the second group", "the train of riders", "the wind", "him"};
    static const char *when[] = {"before the climb", "in the last kilometre", "again", "without a word", "at noon"};
    pl_rng             rng = pl_rng_make(1, PL_STREAM_TEST, 0);
    char *text = pl_path_join(small_base, "text.txt"), *prompts = pl_path_join(small_base, "prompts.jsonl");
    FILE *f = fopen(text, "w"), *p = fopen(prompts, "w");
    assert_non_null(f);
    assert_non_null(p);
    for (int i = 0; i < 1500; i++) {
        uint64_t at = (uint64_t)i * 4;
        fprintf(f, "%s %s %s %s.%s", who[pl_rng_below(rng, at, 6)], does[pl_rng_below(rng, at + 1, 6)],
                what[pl_rng_below(rng, at + 2, 5)], when[pl_rng_below(rng, at + 3, 5)], i % 5 == 4 ? "\n\n" : " ");
    }
    for (int i = 0; i < 36; i++)
        fprintf(p, "{\"prompt\": \"%s %s\"}\n", who[i % 6], does[i / 6]);
    assert_int_equal(fclose(f), 0);
    assert_int_equal(fclose(p), 0);
    pl_free(text), pl_free(prompts);
}

pl_env small_env(pl_pool *pool) {
    return (pl_env){.backend = small_backend ? small_backend : pl_backend_cpu(), .pool = pool};
}

int small_setup(void **state) {
    (void)state;
    snprintf(small_base, sizeof small_base, "/tmp/paceline-eagle-XXXXXX");
    if (!mkdtemp(small_base)) return -1;
    write_files();
    pl_err     err = {0};
    pl_env     env = small_env(NULL);
    pl_recipe *r = small_recipe(target_lines), *d = small_recipe(small_data_lines);
    char      *target = pl_path_join(small_base, "target"), *data = pl_path_join(small_base, "data");
    pl_status  st = pl_train_run(r, target, &env, &err);
    if (st == PL_OK) st = pl_generate_run(d, NULL, data, &env, &err);
    if (st != PL_OK) print_error("%s\n", err.msg);
    pl_recipe_close(r), pl_recipe_close(d);
    pl_free(target), pl_free(data);
    return st == PL_OK ? 0 : -1;
}

int small_teardown(void **state) {
    (void)state;
    return pl_tree_remove(small_base, NULL) == PL_OK ? 0 : -1;
}

pl_status small_run(const char *out, const char *extra, int64_t stop_after, pl_pool *pool, pl_err *err) {
    char lines[4096];
    snprintf(lines, sizeof lines, "%s%s", small_data_lines, extra);
    pl_recipe *r = small_recipe(lines);
    char      *dir = pl_path_join(small_base, out);
    pl_env     env = small_env(pool);
    pl_status  st = pl_train_run_until(r, dir, &env, stop_after, err);
    pl_recipe_close(r);
    pl_free(dir);
    return st;
}

int  small_dies_after_ms;
bool small_apart;

static void enter_folder(const char *base, int rank) {
    char path[96];
    if (rank < 0)
        snprintf(path, sizeof path, "%s", base);
    else
        snprintf(path, sizeof path, "%s/host%d", base, rank);
    assert_int_equal(chdir(path), 0);
}

pl_status small_ranks(int ranks, const char *out, const char *lines, small_stage stage, int64_t stop_after,
                      pl_err *err) {
    pl_comm *c = NULL;
    *err = (pl_err){0};
    char *from = getcwd(NULL, 0);
    if (ranks > 1) assert_int_equal(pl_comm_fork(&c, ranks, err), PL_OK);
    if (small_apart) enter_folder(small_base, pl_comm_rank(c));
    pl_recipe *r = small_recipe(lines);
    char      *dir = pl_path_join(small_base, out);
    pl_env     env = small_env(NULL);
    env.comm = c;
    env.keys = pl_stage_tables(&env.n_keys);
    pl_status st = pl_comm_open(c, "auto", env.backend, err);
    if (pl_comm_rank(c) > 0) {
        pl_log_set(PL_LOG_MUTE);
        if (small_dies_after_ms && pl_comm_rank(c) == 1)
            setitimer(ITIMER_REAL, &(struct itimerval){.it_value = {.tv_usec = small_dies_after_ms * 1000}}, NULL);
        pl_ranks_own own = {.works = PL_RANKS_TRAIN | PL_RANKS_GENERATE | PL_RANKS_EVAL,
                            .drafters = true,
                            .recipe = r,
                            .out_dir = dir,
                            .stop_after = stop_after};
        if (st == PL_OK) st = pl_ranks_serve(&env, &own, err);
        if (st != PL_OK) pl_comm_fail(c, err);
        pl_comm_close(c);
        _exit(0);
    }
    if (st == PL_OK) st = stage(r, dir, &env, stop_after, err);
    if (st == PL_OK) st = pl_ranks_end(&env, err);
    if (st != PL_OK) pl_comm_fail(c, err);
    pl_comm_close(c);
    pl_recipe_close(r);
    pl_free(dir);
    enter_folder(from, -1);
    free(from);
    return st;
}

void small_read(const char *out, const char *name, uint8_t **data, size_t *n) {
    char  *dir = pl_path_join(small_base, out), *path = pl_path_join(dir, name);
    pl_err err = {0};
    if (pl_file_read(path, data, n, 1 << 26, &err) != PL_OK) fail_msg("%s", err.msg);
    pl_free(dir), pl_free(path);
}

void small_same(const char *a, const char *b, const char *name) {
    uint8_t *da, *db;
    size_t   na, nb;
    small_read(a, name, &da, &na);
    small_read(b, name, &db, &nb);
    assert_int_equal(na, nb);
    assert_memory_equal(da, db, na);
    pl_free(da), pl_free(db);
}

void small_metric(const char *out, const char *key, double *first, double *last) {
    uint8_t *data;
    size_t   n;
    int      seen = 0;
    small_read(out, "metrics.jsonl", &data, &n);
    for (char *line = (char *)data; *line; line = strchr(line, '\n') + 1) {
        pl_json j;
        double  v;
        assert_int_equal(pl_json_parse(&j, out, 1, line, (size_t)(strchr(line, '\n') - line), 0, NULL), PL_OK);
        assert_int_equal(pl_json_opt_num(&j, NULL, key, -1e9, 1e9, NAN, &v, NULL), PL_OK);
        if (!isnan(v) && seen++ == 0) *first = v;
        if (!isnan(v)) *last = v;
        pl_json_close(&j);
    }
    assert_true(seen > 0);
    pl_free(data);
}

pl_status small_pipeline(const char *out, const char *more, pl_err *err) {
    pl_recipe *r;
    char      *dir = pl_path_join(small_base, out);
    char      *text =
        pl_sprintf("seed: 1\ntarget: {path: %s/target/checkpoints/last}\n"
                   "data: {prompts: %s/prompts.jsonl, max_new_tokens: 40, samples: 1}\n"
                   "eval: {holdout: 5, limit: 1, max_new_tokens: 4, tree: 'chain:2', plain_fp32: false, repeats: 1}\n"
                   "traces: {tree: 'chain:2', top: 4, rows: 300}\n%s",
                   small_base, small_base, more);
    pl_env env = small_env(NULL);
    env.keys = pl_stage_tables(&env.n_keys);
    pl_status st = pl_recipe_parse(&r, text, strlen(text), "recipe", env.keys, env.n_keys, NULL, 0, err);
    env.text = tmpfile(); // the table of results
    assert_non_null(env.text);
    if (st == PL_OK) st = pl_pipeline_run(r, dir, &env, err);
    fclose(env.text);
    pl_recipe_close(r);
    pl_free(dir), pl_free(text);
    return st;
}

bool small_exists(const char *name) {
    char *path = pl_path_join(small_base, name);
    bool  yes = pl_path_exists(path);
    pl_free(path);
    return yes;
}

void small_other_prompts(void) {
    pl_err   err = {0};
    uint8_t *text;
    size_t   n;
    char    *path = pl_path_join(small_base, "others.jsonl");
    small_read(".", "prompts.jsonl", &text, &n);
    memcpy(strchr((char *)text, ':') + 3, "Some", 4);
    assert_int_equal(pl_file_write_atomic(path, text, n, &err), PL_OK);
    pl_free(path), pl_free(text);
}

void small_conversations(int n) {
    char  path[128];
    FILE *f;
    snprintf(path, sizeof path, "%s/talks.jsonl", small_base);
    assert_non_null(f = fopen(path, "w"));
    for (int i = 0; i < n; i++)
        fprintf(
            f, i % 3 ? "{\"turns\": [\"The rider %d\", \"waits\", \"for him\"]}\n" : "{\"turns\": [\"A leader %d\"]}\n",
            i);
    fclose(f);
    snprintf(path, sizeof path, "%s/t.jinja", small_base);
    assert_non_null(f = fopen(path, "w"));
    fprintf(f, "{%% for m in messages %%}{{ m.content }}. {%% endfor %%}");
    fclose(f);
}
