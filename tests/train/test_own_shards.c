// Ranks with folders of their own, each with some of a dataset's shards: the weights are those of one process that has
// all of them, and a shard that nobody has is named.
#include "tests/train/small.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "infer/generate/generate.h"
#include "kernels/base/arena.h"
#include "kernels/base/files.h"
#include "train/run/run.h"
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

enum { HOSTS = 3 };

static int shards; // of the dataset, BASE/cut/dataset

// BASE/NAME, or of a host's folder.
static char *path_of(int host, const char *name) {
    static char path[256];
    if (host < 0)
        snprintf(path, sizeof path, "%s/cut/dataset/%s", small_base, name);
    else
        snprintf(path, sizeof path, "%s/host%d/shards/%s", small_base, host, name);
    return path;
}

static const char *shard(int k) {
    static char name[32];
    snprintf(name, sizeof name, "shard-%05d.h5", k);
    return name;
}

static void give(int host, const char *name) {
    char from[256];
    snprintf(from, sizeof from, "%s", path_of(-1, name));
    assert_int_equal(link(from, path_of(host, name)), 0);
}

// Shard k lies with host k mod HOSTS; the first one with all of them, too, which are not one kind of rank then.
static int setup(void **state) {
    pl_err    err;
    char      lines[4096];
    pl_status st;
    if (small_setup(state)) return -1;
    snprintf(lines, sizeof lines, "%sdata.rows_per_shard=300\n", small_data_lines);
    pl_recipe *r = small_recipe(lines);
    pl_env     env = small_env(NULL);
    char      *cut = pl_path_join(small_base, "cut");
    st = pl_generate_run(r, NULL, cut, &env, &err);
    if (st != PL_OK) print_error("%s\n", err.msg);
    pl_recipe_close(r);
    pl_free(cut);
    while (pl_path_exists(path_of(-1, shard(shards))))
        shards++;
    for (int h = 0; h < HOSTS && st == PL_OK; h++) {
        if (pl_dir_make(path_of(h, ""), &err) != PL_OK) return -1;
        give(h, "manifest.json");
        for (int k = 0; k < shards; k++)
            if (k == 0 || k % HOSTS == h) give(h, shard(k));
    }
    return st == PL_OK && shards > 2 * HOSTS ? 0 : -1;
}

static pl_status train(int ranks, const char *out, const char *extra, int64_t stop_after, pl_err *err) {
    char lines[4096];
    snprintf(lines, sizeof lines, "%sdata.dataset=%s\n%s", small_data_lines, ranks > 1 ? "shards" : "BASE/cut/dataset",
             extra);
    small_apart = ranks > 1;
    pl_status st = small_ranks(ranks, out, lines, pl_train_run_until, stop_after, err);
    small_apart = false;
    return st;
}

static void same(const char *a, const char *b) {
    small_same(a, b, "checkpoints/last/training_state");
    small_same(a, b, "checkpoints/last/model.safetensors");
    small_same(a, b, "checkpoints/best/model.safetensors");
    double            first[2], last[2];
    const char *const keys[] = {"loss", "eval_loss"};
    for (int i = 0; i < 2; i++) {
        small_metric(a, keys[i], &first[0], &last[0]);
        small_metric(b, keys[i], &first[1], &last[1]);
        assert_true(first[0] == first[1] && last[0] == last[1]);
    }
}

// More than an epoch, documents that are cut, evaluations of what lies elsewhere.
#define DRAFTER                                                                                                        \
    "train.steps=8\ntrain.warmup=2\ntrain.eval_every=4\ntrain.checkpoint_every=3\ntrain.slots=6\n"                     \
    "train.slot_rows=150\n"

static void like_one(const char *name, const char *extra) {
    char   one[64], more[64];
    pl_err err;
    snprintf(one, sizeof one, "%s-1", name);
    snprintf(more, sizeof more, "%s-3", name);
    if (train(1, one, extra, 0, &err) != PL_OK) fail_msg("%s", err.msg);
    if (train(HOSTS, more, extra, 0, &err) != PL_OK) fail_msg("%s", err.msg);
    same(one, more);
}

static void a_drafter(void **state) {
    (void)state;
    like_one("eagle3", DRAFTER);
}

static void in_windows(void **state) {
    (void)state;
    like_one("windows", DRAFTER "data.window=12\ntrain.holdout=3\n");
}

static void a_language_model(void **state) {
    (void)state;
    like_one("lm", DRAFTER "drafter.kind=lm\ntrain.unroll=0\ntrain.objective=label\ntrain.eval_tokens=100\n"
                           "drafter.start=BASE/target/checkpoints/last\ntrain.eval_prompts=24\n");
}

static void going_on(void **state) {
    (void)state;
    pl_err err;
    assert_int_equal(train(HOSTS, "parts", DRAFTER, 3, &err), PL_E_INTERRUPTED);
    assert_int_equal(train(1, "parts", DRAFTER, 5, &err), PL_E_INTERRUPTED);
    if (train(HOSTS, "parts", DRAFTER, 0, &err) != PL_OK) fail_msg("%s", err.msg);
    same("eagle3-1", "parts");
}

static void a_shard_that_nobody_has(void **state) {
    (void)state;
    pl_err err;
    assert_int_equal(unlink(path_of(1, shard(4))), 0);
    assert_int_equal(train(HOSTS, "bad", DRAFTER, 0, &err), PL_E_INPUT);
    assert_non_null(strstr(err.msg, "shard-00004.h5: no rank has it; copy it here or generate the dataset again"));
    assert_null(strchr(err.msg, '\n'));
    give(1, shard(4));
}

// A copy that was cut is told before the first step, also where another rank would have read that shard.
static void a_cut_copy(void **state) {
    (void)state;
    pl_err err;
    assert_int_equal(unlink(path_of(1, shard(0))), 0);
    FILE *f = fopen(path_of(1, shard(0)), "wb");
    assert_non_null(f);
    assert_int_equal(fputs("cut", f) >= 0 && fclose(f) == 0, 1);
    assert_int_equal(train(HOSTS, "bad", DRAFTER, 0, &err), PL_E_INPUT);
    assert_non_null(strstr(err.msg, "shard-00000.h5: broken shard: 3 bytes, the manifest says "));
    char *begun = pl_path_join(small_base, "bad/metrics.jsonl");
    assert_false(pl_path_exists(begun));
    pl_free(begun);
    assert_int_equal(unlink(path_of(1, shard(0))), 0);
    give(1, shard(0));
}

static void another_manifest(void **state) {
    (void)state;
    pl_err err;
    assert_int_equal(unlink(path_of(2, "manifest.json")), 0);
    assert_int_equal(train(HOSTS, "bad", DRAFTER, 0, &err), PL_E_INPUT);
    assert_non_null(strstr(err.msg, "rank 2: shards: not a dataset (no manifest.json in it)"));
    char other[256];
    snprintf(other, sizeof other, "%s/data/dataset/manifest.json", small_base);
    assert_int_equal(link(other, path_of(2, "manifest.json")), 0);
    assert_int_equal(train(HOSTS, "bad", DRAFTER, 0, &err), PL_E_INPUT);
    assert_non_null(strstr(err.msg, "rank 2: shards/manifest.json: is another one than rank 0's; copy that one here"));
    assert_int_equal(unlink(path_of(2, "manifest.json")), 0);
    give(2, "manifest.json");
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_drafter),
        cmocka_unit_test(in_windows),
        cmocka_unit_test(a_language_model),
        cmocka_unit_test(going_on),
        cmocka_unit_test(a_shard_that_nobody_has),
        cmocka_unit_test(a_cut_copy),
        cmocka_unit_test(another_manifest),
    };
    return cmocka_run_group_tests(tests, setup, small_teardown);
}
