// `run` with several drafters: what a routed one takes from the shared keys, where its traces lie, what is refused
// before anything is made.
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "data/counts/tally.h"
#include "infer/eval/eval.h"
#include "infer/generate/generate.h"
#include "kernels/base/arena.h"
#include "kernels/base/files.h"
#include "kernels/base/hash.h"
#include "kernels/base/json.h"
#include "tests/train/small.h"
#include "train/keys.h"
#include "train/loop/checkpoint.h"
#include "train/run/pipeline.h"
#include "train/run/run.h"
#include "train/source/stamp.h"
#include <math.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

// Keys that all share may say what only some of them read; the recipe that a routed drafter keeps has none of it.
static void shared_keys(void **state) {
    (void)state;
    pl_err      err = {0};
    uint8_t    *text;
    size_t      n;
    const char *more =
        SMALL_TRAIN "drafter: {head: {init: random, rank: 4}, freeze: none}\n"
                    "drafters:\n  - {name: full}\n  - {name: routed, start: full, head: " SMALL_ROUTED "}\n";
    if (small_pipeline("shared", more, &err) != PL_OK) fail_msg("%s", err.msg);
    small_read("shared", "drafters/full/recipe.yaml", &text, &n);
    assert_non_null(strstr((char *)text, "unroll: 2"));
    assert_non_null(strstr((char *)text, "init: random"));
    pl_free(text);
    small_read("shared", "drafters/routed/recipe.yaml", &text, &n);
    assert_non_null(strstr((char *)text, "unroll: 0"));
    assert_non_null(strstr((char *)text, "init: auto"));
    assert_non_null(strstr((char *)text, "clusters: 8"));

    // Which is a recipe for the same run.
    pl_recipe *r;
    pl_env     env = small_env(NULL);
    char      *dir = pl_path_join(small_base, "shared/drafters/routed");
    env.keys = pl_stage_tables(&env.n_keys);
    assert_int_equal(pl_recipe_parse(&r, (char *)text, n, "recipe", env.keys, env.n_keys, NULL, 0, &err), PL_OK);
    if (pl_train_run(r, dir, &env, &err) != PL_OK) fail_msg("%s", err.msg);
    pl_recipe_close(r);
    pl_free(dir), pl_free(text);
}

// A list of tokens that all share, and a drafter that has no use for one: null undoes it.
static void shared_list_undone(void **state) {
    (void)state;
    pl_err      err = {0};
    uint8_t    *text;
    size_t      n;
    const char *list = SMALL_TRAIN "vocabularies: [{name: answers, dataset: true}]\ndrafter: {head: {vocab: answers}}\n"
                                   "drafters:\n  - {name: trimmed}\n  - {name: routed, start: trimmed, head: ";
    const char *head = "{kind: dynaspec, clusters: 8, width: 8, top: 2";
    char       *without = pl_sprintf("%s%s}}\n", list, head), *with = pl_sprintf("%s%s, vocab: null}}\n", list, head);
    assert_int_equal(small_pipeline("undone", without, &err), PL_E_INPUT);
    assert_non_null(strstr(err.msg, "drafter.head.vocab: a routed head has the rows of drafter.start's"));
    assert_non_null(strstr(err.msg, "head.vocab: null"));
    if (small_pipeline("undone", with, &err) != PL_OK) fail_msg("%s", err.msg);
    small_read("undone", "drafters/trimmed/recipe.yaml", &text, &n);
    assert_non_null(strstr((char *)text, "answers.json"));
    pl_free(text);
    small_read("undone", "drafters/routed/recipe.yaml", &text, &n);
    assert_null(strstr((char *)text, "answers.json"));
    pl_free(text);
    pl_free(without), pl_free(with);
}

// What a process that died left in any folder of a run goes when the run goes on, though nothing is left to do.
static void leftovers_go(void **state) {
    (void)state;
    static const struct {
        const char *at, *product;
    } place[] = {{".", "results.json"},
                 {".stamps", "dataset"},
                 {"dataset", "shard-00009.h5"},
                 {"vocab", "few.json"},
                 {"traces/.stamps", "full.1"},
                 {"traces/full.1", "manifest.json"},
                 {"drafters/full", "recipe.yaml"},
                 {"drafters/full/checkpoints", "step-7"},
                 {"drafters/routed/checkpoints", "best"},
                 {"drafters/full/.stamps", "checkpoints"}};
    enum { PLACES = sizeof place / sizeof *place };
    pl_err      err = {0};
    char        left[PLACES][256];
    const char *more =
        SMALL_TRAIN "drafters:\n  - {name: full, seed: 9}\n  - {name: routed, start: full, head: " SMALL_ROUTED "}\n"
                    "vocabularies:\n  - {name: few, dataset: true}\n";
    pid_t child = fork();
    assert_true(child >= 0);
    if (child == 0) _exit(0);
    assert_int_equal(waitpid(child, NULL, 0), child);
    if (small_pipeline("left", more, &err) != PL_OK) fail_msg("%s", err.msg);
    for (int i = 0; i < PLACES; i++) {
        snprintf(left[i], sizeof left[i], "%s/left/%s", small_base, place[i].at);
        if (!pl_path_is_dir(left[i])) fail_msg("%s is no folder of a run", place[i].at);
        snprintf(left[i], sizeof left[i], "%s/left/%s/.%s.tmp-%d", small_base, place[i].at, place[i].product,
                 (int)child);
        assert_int_equal(pl_dir_make(left[i], &err), PL_OK);
    }
    if (small_pipeline("left", more, &err) != PL_OK) fail_msg("%s", err.msg);
    for (int i = 0; i < PLACES; i++)
        if (pl_path_exists(left[i])) fail_msg("%s is still there", left[i]);
}

// The list of the run above knows no document that one of its drafters holds out, each by its own seed.
static void lists_know_training_alone(void **state) {
    (void)state;
    static const uint64_t seeds[] = {1, 9};
    pl_err                err = {0};
    pl_counts             few;
    pl_tally              both = {0}, one = {0};
    char *data = pl_path_join(small_base, "left/dataset"), *list = pl_path_join(small_base, "left/vocab/few.json");
    assert_int_equal(pl_counts_read(&few, list, &err), PL_OK);
    const pl_tally_held held[] = {{.every = 4, .seed = seeds, .n_seeds = 1}, {.every = 4, .seed = seeds, .n_seeds = 2}};
    assert_int_equal(pl_tally_dataset(&one, NULL, data, &held[0], &err), PL_OK);
    assert_int_equal(pl_tally_dataset(&both, NULL, data, &held[1], &err), PL_OK);
    assert_true(both.all.documents > 0 && both.all.documents < one.all.documents);
    assert_int_equal(few.documents, both.all.documents);
    assert_memory_equal(few.count, both.all.count, (size_t)few.vocab * sizeof *few.count);
    pl_counts_fini(&few);
    pl_tally_fini(&one), pl_tally_fini(&both);
    pl_free(data), pl_free(list);
}

static void refused_at_once(void **state) {
    (void)state;
    static const char *const bad[][2] = {
        {"unroll: 3, head: " SMALL_ROUTED, "drafter \"routed\": train.unroll: a routed head's run does not read it"},
        {"freeze: backbone, head: " SMALL_ROUTED,
         "drafter \"routed\": drafter.freeze: a routed head's run does not read it"},
        {"head: {kind: dynaspec, init: target}",
         "drafter \"routed\": drafter.head.init: a routed head's run does not read it"},
        {"head: {kind: dynaspec, fixed: true, k1: 4}",
         "drafter \"routed\": drafter.head.k1: a routed head's run does not read it"}};
    for (size_t i = 0; i < sizeof bad / sizeof *bad; i++) {
        pl_err err = {0};
        char   more[1024];
        snprintf(more, sizeof more, SMALL_TRAIN "drafters:\n  - {name: full}\n  - {name: routed, start: full, %s}\n",
                 bad[i][0]);
        assert_int_equal(small_pipeline("bad", more, &err), PL_E_INPUT);
        if (strstr(err.msg, bad[i][1]) != err.msg) fail_msg("%s", err.msg);
        assert_false(small_exists("bad/dataset"));
    }
    pl_err err = {0};
    assert_int_equal(
        small_pipeline("bad", SMALL_TRAIN "drafters:\n  - {name: full}\n  - {name: b, start: ful}\n", &err),
        PL_E_INPUT);
    assert_non_null(strstr(err.msg, "drafters.1.start: \"ful\" is neither a drafter of the list nor a checkpoint"));
    assert_false(small_exists("bad/dataset"));
    assert_int_equal(small_pipeline("bad",
                                    SMALL_TRAIN "drafter: {head: {position_aware: true}}\n"
                                                "drafters:\n  - {name: listed, head: {vocab: few}}\n  - {name: whole}\n"
                                                "vocabularies:\n  - {name: few, dataset: true}\n",
                                    &err),
                     PL_E_INPUT);
    assert_non_null(strstr(err.msg, "drafter \"whole\": drafter.head.position_aware: all tokens are drafted"));
    assert_false(small_exists("bad/dataset"));
    assert_int_equal(
        small_pipeline("one_bad", SMALL_TRAIN "drafter: {kind: eagle1, head: {position_aware: true}}\n", &err),
        PL_E_INPUT);
    assert_non_null(strstr(err.msg, "drafter.head.position_aware: the target's own matrix"));
    assert_false(small_exists("one_bad/dataset"));
    assert_int_equal(small_pipeline("one_bad", SMALL_TRAIN "drafter: {start: nothing, head: " SMALL_ROUTED "}\n", &err),
                     PL_E_INPUT);
    assert_non_null(strstr(err.msg, "train.unroll: a routed head's run does not read it"));
    assert_false(small_exists("one_bad/dataset"));
}

// Which file the manifest of the traces from a start is; traces that are made anew have another.
static ino_t manifest_of(const char *start, uint8_t **text, size_t *n) {
    char        hash[17], *path = pl_sprintf("%s/%s/checkpoints/best", small_base, start);
    struct stat s;
    pl_hash_hex(hash, pl_hash(path, strlen(path)));
    char *name = pl_sprintf("traces/start-%s.1/manifest.json", hash);
    small_read("starts", name, text, n);
    char *file = pl_sprintf("%s/starts/%s", small_base, name);
    assert_int_equal(stat(file, &s), 0);
    pl_free(path), pl_free(name), pl_free(file);
    return s.st_ino;
}

// Drafters that start from two checkpoints of other runs have traces of their own, which stay when the run goes on.
static void starts_of_other_runs(void **state) {
    (void)state;
    static const char *const start[] = {"one", "other"};
    pl_err                   err = {0};
    ino_t                    made[2];
    uint8_t                 *text[2], *again;
    size_t                   n[2];
    for (int i = 0; i < 2; i++) {
        char lines[128];
        snprintf(lines, sizeof lines, "train.steps=%d\ntrain.warmup=1\ntrain.eval_every=0", 2 + i);
        if (small_run(start[i], lines, 0, NULL, &err) != PL_OK) fail_msg("%s", err.msg);
    }
    // The second by the key that all share.
    char *more = pl_sprintf(SMALL_TRAIN "drafter: {start: %s/other/checkpoints/best}\ndrafters:\n"
                                        "  - {name: a, start: %s/one/checkpoints/best, head: " SMALL_ROUTED "}\n"
                                        "  - {name: b, head: " SMALL_ROUTED "}\n",
                            small_base, small_base);
    if (small_pipeline("starts", more, &err) != PL_OK) fail_msg("%s", err.msg);
    for (int i = 0; i < 2; i++)
        made[i] = manifest_of(start[i], &text[i], &n[i]);
    assert_true(n[0] != n[1] || memcmp(text[0], text[1], n[0]) != 0);
    if (small_pipeline("starts", more, &err) != PL_OK) fail_msg("%s", err.msg);
    for (int i = 0; i < 2; i++) {
        assert_true(manifest_of(start[i], &again, &n[i]) == made[i]);
        pl_free(again), pl_free(text[i]);
    }
    pl_free(more);
}

// ---- an evaluation that is killed

static pl_status evaluate(const char *positions, pl_err *err) {
    char lines[4096];
    snprintf(lines, sizeof lines,
             "%seval.limit=1\neval.max_new_tokens=4\neval.tree=chain:2\neval.plain_fp32=false\neval.ceilings=%s",
             small_data_lines, positions);
    pl_recipe *r = small_recipe(lines);
    char      *dir = pl_path_join(small_base, "killed");
    pl_env     env = small_env(NULL);
    env.text = tmpfile();
    pl_status st = env.text ? pl_pipeline_eval(r, dir, &env, err) : PL_E_IO;
    if (env.text) fclose(env.text);
    pl_recipe_close(r);
    pl_free(dir);
    return st;
}

static double number_of(const char *name, const char *key) {
    char   *path = pl_sprintf("%s/killed/%s", small_base, name);
    pl_json j;
    double  v = NAN;
    pl_err  err = {0};
    if (pl_json_open(&j, path, 1 << 20, 0, &err) != PL_OK) fail_msg("%s", err.msg);
    assert_int_equal(pl_json_get_num(&j, NULL, key, 0, 1e9, &v, &err), PL_OK);
    pl_json_close(&j);
    pl_free(path);
    return v;
}

// Ends at every step of the disk in turn: what stands beside results.json was made with it.
static void evaluation_killed(void **state) {
    (void)state;
    pl_err   err = {0};
    bool     done = false, mixed = false;
    uint8_t *old, *now, *old_report, *now_report;
    size_t   n_old, n_now, n_old_report, n_now_report;
    if (small_run("killed", "train.steps=2\ntrain.warmup=1\ntrain.eval_every=0", 0, NULL, &err) != PL_OK)
        fail_msg("%s", err.msg);
    for (uint64_t n = 1; !done; n++) {
        int status;
        assert_true(n < 200);
        if (evaluate("4", &err) != PL_OK) fail_msg("%s", err.msg);
        assert_true(number_of("ceilings/eagle3-full.json", "positions") == 4);
        small_read("killed", "results.json", &old, &n_old);
        small_read("killed", "report.html", &old_report, &n_old_report);
        pid_t child = fork();
        assert_true(child >= 0);
        if (child == 0) {
            pl_io_kill_after(n);
            _exit(evaluate("3", NULL) == PL_OK ? 0 : 1);
        }
        assert_int_equal(waitpid(child, &status, 0), child);
        done = WIFEXITED(status) && WEXITSTATUS(status) == 0;
        assert_true(done || (WIFSIGNALED(status) && WTERMSIG(status) == SIGKILL));
        small_read("killed", "results.json", &now, &n_now);
        bool same = n_now == n_old && memcmp(now, old, n_old) == 0;
        if (!same && small_exists("killed/ceilings/eagle3-full.json"))
            assert_true(number_of("ceilings/eagle3-full.json", "positions") == 3);
        if (!same && small_exists("killed/report.html")) {
            small_read("killed", "report.html", &now_report, &n_now_report);
            assert_false(n_now_report == n_old_report && memcmp(now_report, old_report, n_old_report) == 0);
            pl_free(now_report);
        }
        mixed |= !same && !done; // it was killed behind the results
        pl_free(old), pl_free(now), pl_free(old_report);
    }
    assert_true(mixed && number_of("ceilings/eagle3-full.json", "positions") == 3 &&
                small_exists("killed/report.html"));
}

// ---- what becomes of products of other recipes ----

#define ANOTHER "train: {steps: 3, slots: 1, slot_rows: 128, lr: 1e-3, warmup: 1, holdout: 4, unroll: 2}\n"

static void run_small(const char *out, const char *more) {
    pl_err err = {0};
    if (small_pipeline(out, more, &err) != PL_OK) fail_msg("%s: %s", out, err.msg);
}

static void remove_in(const char *out, const char *name) {
    pl_err err = {0};
    char  *path = pl_sprintf("%s/%s/%s", small_base, out, name);
    assert_true(pl_path_exists(path));
    assert_int_equal(pl_tree_remove(path, &err), PL_OK);
    pl_free(path);
}

static void same_model(const char *a, const char *of_a, const char *b) {
    uint8_t *x, *y;
    size_t   n, m;
    char     name[128];
    snprintf(name, sizeof name, "%s/last/model.safetensors", of_a);
    small_read(a, name, &x, &n);
    small_read(b, "checkpoints/last/model.safetensors", &y, &m);
    assert_int_equal(n, m);
    assert_memory_equal(x, y, n);
    pl_free(x), pl_free(y);
}

static ino_t inode(const char *name) {
    struct stat s;
    char        path[192];
    snprintf(path, sizeof path, "%s/%s", small_base, name);
    assert_int_equal(stat(path, &s), 0);
    return s.st_ino;
}

// The name under which a run's checkpoints of this stamp are kept.
static const char *kept_as(char name[64], const char *of) {
    uint8_t *text;
    size_t   n;
    small_read(of, ".stamps/checkpoints", &text, &n);
    snprintf(name, 64, "checkpoints.%.16s", (const char *)text);
    pl_free(text);
    return name;
}

// Another recipe keeps the old checkpoints and their curves, whether it comes to an end or not; the first one finds
// them again.
static void old_ones_are_kept(void **state) {
    (void)state;
    static const char *const beside[] = {"metrics.jsonl", "skipped.jsonl", NULL};
    const pl_stage_product   product = {"checkpoints", pl_checkpoint_kinds, "last", beside};
    pl_err                   err = {0};
    char                     a[64], b[64], *dir = pl_path_join(small_base, "kept");
    run_small("first", SMALL_TRAIN);
    run_small("second", ANOTHER);
    kept_as(a, "first"), kept_as(b, "second");
    run_small("kept", SMALL_TRAIN);
    ino_t model = inode("kept/checkpoints/last/model.safetensors"), curve = inode("kept/metrics.jsonl");
    run_small("kept", ANOTHER);
    same_model("kept", "checkpoints", "second");
    same_model("kept", a, "first");
    run_small("kept", SMALL_TRAIN);
    assert_int_equal(inode("kept/checkpoints/last/model.safetensors"), model); // not trained again
    assert_int_equal(inode("kept/metrics.jsonl"), curve);
    same_model("kept", b, "second");
    // One that made nothing before it was stopped, and one that was stopped at each of its steps.
    uint64_t begun = pl_io_count(), steps = 1;
    for (uint64_t step = 0; step <= steps; step++) {
        pl_io_fail_after(step);
        pl_stage_begin(dir, "checkpoints", "0123456789abcdef", &product, &err);
        pl_io_fail_after(0);
        if (step == 0) steps = pl_io_count() - begun;
        run_small("kept", SMALL_TRAIN);
        assert_int_equal(inode("kept/checkpoints/last/model.safetensors"), model);
        assert_int_equal(inode("kept/metrics.jsonl"), curve);
        same_model("kept", "checkpoints", "first");
    }
    assert_true(steps > 6);
    // Two that were stopped before their first checkpoint leave nothing that is kept, nor push out what is.
    for (int i = 0; i < 2; i++) {
        char *empty = pl_path_join(dir, "checkpoints");
        assert_int_equal(
            pl_stage_begin(dir, "checkpoints", i ? "0123456789abcdef" : "fedcba9876543210", &product, &err), PL_OK);
        assert_int_equal(pl_dir_make(empty, &err), PL_OK);
        pl_free(empty);
    }
    same_model("kept", a, "first");
    run_small("kept", SMALL_TRAIN);
    assert_int_equal(inode("kept/checkpoints/last/model.safetensors"), model);
    assert_int_equal(inode("kept/metrics.jsonl"), curve);
    pl_free(dir);
}

// What somebody has removed is not up to date.
static void removed_is_made_again(void **state) {
    (void)state;
    run_small("gone", SMALL_TRAIN);
    remove_in("gone", "checkpoints");
    run_small("gone", SMALL_TRAIN);
    same_model("gone", "checkpoints", "first");
    remove_in("gone", "checkpoints");
    remove_in("gone", "dataset");
    run_small("gone", SMALL_TRAIN);
    small_same("gone", "first", "dataset/manifest.json");
    same_model("gone", "checkpoints", "first");
    // A dataset of other answers, then none of it finished, then the first again.
    pl_err err = {0};
    char  *dir = pl_path_join(small_base, "gone");
    assert_int_equal(pl_stage_begin(dir, "dataset", "0123456789abcdef",
                                    &(pl_stage_product){.path = "dataset", .holds = pl_dataset_files}, &err),
                     PL_OK);
    assert_false(small_exists("gone/dataset"));
    run_small("gone", SMALL_TRAIN);
    small_same("gone", "first", "dataset/manifest.json");
    pl_free(dir);
}

// A product that no stamp speaks of may be anybody's.
static void others_are_refused(void **state) {
    (void)state;
    static const char *const product[] = {"dataset", "checkpoints"};
    pl_err                   err = {0};
    for (int i = 0; i < 2; i++) {
        char *dir = pl_sprintf("%s/theirs%d/%s", small_base, i, product[i]), *mine = pl_path_join(dir, "mine.bin"),
             *out = pl_sprintf("theirs%d", i), *left = pl_sprintf("theirs%d/%s/mine.bin", i, product[i]);
        assert_int_equal(pl_dir_make(dir, &err), PL_OK);
        assert_int_equal(pl_file_write_atomic(mine, "hours", 5, &err), PL_OK);
        assert_int_equal(small_pipeline(out, SMALL_TRAIN, &err), PL_E_INPUT);
        assert_non_null(strstr(err.msg, "nothing says that a run made it here"));
        assert_true(small_exists(left));
        pl_free(left), pl_free(out), pl_free(mine), pl_free(dir);
    }
}

// A dataset that is given decides what is trained, and none is made beside it.
static void given_dataset_counts(void **state) {
    (void)state;
    char one[256], other[256], name[64];
    run_small("answers", SMALL_TRAIN "data.temperature: 0.5\n");
    snprintf(one, sizeof one, SMALL_TRAIN "data.dataset: %s/first/dataset\n", small_base);
    snprintf(other, sizeof other, SMALL_TRAIN "data.dataset: %s/answers/dataset\n", small_base);
    run_small("given", one);
    assert_false(small_exists("given/dataset"));
    same_model("given", "checkpoints", "first");
    kept_as(name, "given");
    run_small("given", other);
    same_model("given", name, "first");
    same_model("given", "checkpoints", "answers");
}

// What only evaluation reads, and how a path is written, make nothing anew.
static void only_what_counts(void **state) {
    (void)state;
    char  more[512];
    ino_t shard[2], model[2];
    for (int i = 0; i < 2; i++) {
        snprintf(more, sizeof more, SMALL_TRAIN "eval.prompts: %s/%sprompts.jsonl\n", small_base, i ? "./" : "");
        run_small("counts", more);
        shard[i] = inode("counts/dataset/shard-00000.h5");
        model[i] = inode("counts/checkpoints/last/model.safetensors");
    }
    assert_int_equal(shard[0], shard[1]);
    assert_int_equal(model[0], model[1]);
}

// `train` says which key differs from those that its folder was begun with.
static void train_names_the_key(void **state) {
    (void)state;
    pl_err     err = {0};
    pl_recipe *r;
    pl_env     env = small_env(NULL);
    uint8_t   *text;
    size_t     n;
    char      *dir = pl_path_join(small_base, "first");
    env.keys = pl_stage_tables(&env.n_keys);
    small_read("first", "recipe.yaml", &text, &n);
    for (int i = 0; i < 2; i++) {
        const char *const set[] = {i ? "train.lr=2e-3" : "train.keep=3"};
        assert_int_equal(pl_recipe_parse(&r, (char *)text, n, "recipe", env.keys, env.n_keys, set, 1, &err), PL_OK);
        assert_int_equal(pl_pipeline_train_check(r, dir, &err), i ? PL_E_INPUT : PL_OK);
        pl_recipe_close(r);
    }
    assert_non_null(strstr(err.msg, "a run begun with another train.lr, which was 0.001, not 0.002; restore that"));
    // Whatever another stage has said since.
    char *said = pl_path_join(dir, "recipe.yaml");
    char *other;
    assert_int_equal(pl_recipe_parse(&r, (char *)text, n, "recipe", env.keys, env.n_keys,
                                     (const char *const[]){"train.lr=0.5"}, 1, &err),
                     PL_OK);
    assert_int_equal(pl_recipe_dump(r, &other, &err), PL_OK);
    pl_recipe_close(r);
    assert_int_equal(pl_file_write_atomic(said, other, strlen(other), &err), PL_OK);
    pl_free(other);
    assert_int_equal(pl_recipe_parse(&r, (char *)text, n, "recipe", env.keys, env.n_keys, NULL, 0, &err), PL_OK);
    assert_int_equal(pl_pipeline_train_check(r, dir, &err), PL_OK);
    pl_recipe_close(r);
    pl_free(said);
    pl_free(dir), pl_free(text);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(shared_keys),           cmocka_unit_test(shared_list_undone),
        cmocka_unit_test(leftovers_go),          cmocka_unit_test(lists_know_training_alone),
        cmocka_unit_test(refused_at_once),       cmocka_unit_test(starts_of_other_runs),
        cmocka_unit_test(evaluation_killed),     cmocka_unit_test(old_ones_are_kept),
        cmocka_unit_test(removed_is_made_again), cmocka_unit_test(others_are_refused),
        cmocka_unit_test(given_dataset_counts),  cmocka_unit_test(train_names_the_key),
        cmocka_unit_test(only_what_counts)};
    return cmocka_run_group_tests(tests, small_setup, small_teardown);
}
