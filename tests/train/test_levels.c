// Every level of the CPU whose arithmetic has one name gives the same bits from end to end: the target's text and hidden
// states as a dataset, a run's weights and its state. A level with another arithmetic does not go on with what was begun.
#include "tests/train/small.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "infer/generate/generate.h"
#include "kernels/base/arena.h"
#include "kernels/base/files.h"
#include "train/run/pipeline.h"
#include "train/run/run.h"
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static const char drafter[] = "kind=drafter\ntrain.slot_rows=48\ntrain.slots=2\ntrain.unroll=2\ntrain.eval_steps=2\n"
                              "train.eval_tokens=60\ntrain.warmup=1\ntrain.steps=4\n";
static const char target[] =
    "kind=target\ndata.text=BASE/text.txt\ndata.tokenizer.vocab_size=380\ntarget.new.hidden_size=32\n"
    "target.new.layers=2\ntarget.new.heads=4\ntarget.new.kv_heads=2\ntarget.new.intermediate=48\n"
    "target.new.positions=96\ntrain.steps=3\ntrain.batch=4\ntrain.seq_len=32\ntrain.lr=1e-2\ntrain.warmup=2\n";

static pl_status train(const char *out, const char *lines, const char *more, int64_t stop_after, const pl_backend *be) {
    char   all[1024];
    pl_err err = {0};
    snprintf(all, sizeof all, "%s%s", lines, more);
    small_backend = be;
    pl_status st = small_run(out, all, stop_after, NULL, &err);
    small_backend = NULL;
    if (st != PL_OK && st != PL_E_INTERRUPTED) print_message("%s: %s\n", out, err.msg);
    return st;
}

static bool same_arithmetic(const pl_backend *a, const pl_backend *b) {
    return strcmp(a->arithmetic, b->arithmetic) == 0;
}

// A level that this machine runs, beside the best one; NULL past the last.
static const pl_backend *other(int *at) {
    const char *level;
    while ((level = pl_backend_cpu_level((*at)++))) {
        const pl_backend *be = pl_backend_cpu_isa(level);
        if (be && be != pl_backend_cpu()) return be;
    }
    return NULL;
}

static void resumed(void **state) {
    (void)state;
    const pl_backend *be, *best = pl_backend_cpu();
    char              out[64];
    int               same = 0;
    assert_int_equal(train("whole", drafter, "", 0, best), PL_OK);
    for (int at = 0; (be = other(&at));) {
        snprintf(out, sizeof out, "parts-%s", be->name);
        assert_int_equal(train(out, drafter, "", 2, best), PL_E_INTERRUPTED);
        if (!same_arithmetic(be, best)) {
            assert_int_equal(train(out, drafter, "", 0, be), PL_E_INPUT);
            assert_int_equal(train(out, drafter, "train.resume=any\n", 0, be), PL_OK);
            continue;
        }
        same++;
        assert_int_equal(train(out, drafter, "", 0, be), PL_OK);
        small_same("whole", out, "checkpoints/last/model.safetensors");
        small_same("whole", out, "checkpoints/last/training_state");
    }
    print_message("%s and %d levels more\n", best->name, same);
}

static void targets(void **state) {
    (void)state;
    const pl_backend *be = pl_backend_cpu(), *best = be;
    char              out[64], first[64] = "";
    pl_recipe        *r = small_recipe(target);
    pl_err            err = {0};
    for (int at = 0; be; be = other(&at)) {
        if (!same_arithmetic(be, best)) continue;
        snprintf(out, sizeof out, "target-%s", be->name);
        char *dir = pl_path_join(small_base, out);
        small_backend = be;
        pl_env env = small_env(NULL);
        if (pl_train_run(r, dir, &env, &err) != PL_OK) fail_msg("%s", err.msg);
        small_backend = NULL;
        pl_free(dir);
        if (!*first) snprintf(first, sizeof first, "%s", out);
        small_same(first, out, "checkpoints/last/training_state");
    }
    pl_recipe_close(r);
}

// Generation with features (the target's decoding, its text and hidden states), and training on them.
static void whole_way(void **state) {
    (void)state;
    static const char more[] = "kind=drafter\ndata.prompts=BASE/few.jsonl\ndata.max_new_tokens=12\neval.prompts=BASE/"
                               "few.jsonl\ntrain.holdout=0\n"
                               "train.steps=2\ntrain.slot_rows=48\ntrain.warmup=1\n";
    static const char prompts[] = "{\"prompt\": \"Her team waits\"}\n{\"prompt\": \"The rider\"}\n";
    const pl_backend *be = pl_backend_cpu(), *best = be;
    char              lines[4096], *few = pl_path_join(small_base, "few.jsonl"), first[64] = "";
    pl_err            err = {0};
    assert_int_equal(pl_file_write_atomic(few, prompts, strlen(prompts), NULL), PL_OK);
    pl_free(few);
    for (int at = 0; be; be = other(&at)) {
        char out[64];
        snprintf(out, sizeof out, "way-%s", be->name);
        snprintf(lines, sizeof lines, "%s%sdata.dataset=BASE/%s/dataset\n", small_data_lines, more, out);
        if (!same_arithmetic(be, best)) continue;
        pl_recipe *r = small_recipe(lines);
        char      *dir = pl_path_join(small_base, out);
        small_backend = be;
        pl_env env = small_env(NULL);
        env.text = stdout;
        if (pl_generate_run(r, NULL, dir, &env, &err) != PL_OK) fail_msg("%s", err.msg);
        if (pl_train_run(r, dir, &env, &err) != PL_OK) fail_msg("%s", err.msg);
        small_backend = NULL;
        pl_recipe_close(r);
        pl_free(dir);
        if (!*first) snprintf(first, sizeof first, "%s", out);
        small_same(first, out, "dataset/manifest.json"); // the hashes of its shards
        small_same(first, out, "checkpoints/last/model.safetensors");
    }
}

// A dataset that was begun in one arithmetic is not finished in another.
static void mixed_dataset(void **state) {
    (void)state;
    const pl_backend *be, *best = pl_backend_cpu();
    pl_err            err = {0};
    for (int at = 0; (be = other(&at));) {
        char lines[2048];
        if (same_arithmetic(be, best)) continue;
        snprintf(lines, sizeof lines,
                 "%skind=drafter\ndata.prompts=BASE/few.jsonl\neval.prompts=BASE/few.jsonl\ndata.max_new_tokens=12\n",
                 small_data_lines);
        pl_recipe *r = small_recipe(lines);
        char      *there = pl_path_join(small_base, "mixed");
        pl_env     env;
        for (int i = 0; i < 2; i++) {
            small_backend = i ? be : best;
            env = small_env(NULL);
            env.text = stdout;
            pl_status st = pl_generate_run(r, NULL, there, &env, &err);
            assert_int_equal(st, i ? PL_E_INPUT : PL_OK);
        }
        small_backend = NULL;
        assert_non_null(strstr(err.msg, "arithmetic"));
        pl_recipe_close(r);
        pl_free(there);
    }
}

// Nor are answers gone on with by a target whose weights or caches are held in another dtype, either way round.
static void mixed_dtypes(void **state) {
    (void)state;
    static const char *const keys[][3] = {{"dtype", "fp32", "weights"}, {"kv", "bf16", "kv"}}; // and what is said
    pl_err                   err = {0};
    for (size_t k = 0; k < sizeof keys / sizeof *keys; k++)
        for (int first = 0; first < 2; first++) {
            char name[32], said[32];
            snprintf(name, sizeof name, "mixed-%s%d", keys[k][0], first);
            char *there = pl_path_join(small_base, name);
            for (int i = 0; i < 2; i++) {
                char lines[2048];
                snprintf(lines, sizeof lines,
                         "%skind=drafter\ndata.prompts=BASE/few.jsonl\neval.prompts=BASE/few.jsonl\n"
                         "data.max_new_tokens=12\ntarget.%s=%s\n",
                         small_data_lines, keys[k][0], i == first ? "fp32" : "bf16");
                pl_recipe *r = small_recipe(lines);
                pl_env     env = small_env(NULL);
                env.text = stdout;
                assert_int_equal(pl_generate_run(r, NULL, there, &env, &err), i ? PL_E_INPUT : PL_OK);
                pl_recipe_close(r);
            }
            snprintf(said, sizeof said, "\"%s\":\"%s\"", keys[k][2], keys[k][1]);
            assert_non_null(strstr(err.msg, said));
            assert_null(strchr(err.msg, '\n'));
            pl_free(there);
        }
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(resumed),       cmocka_unit_test(targets),      cmocka_unit_test(whole_way),
        cmocka_unit_test(mixed_dataset), cmocka_unit_test(mixed_dtypes),
    };
    return cmocka_run_group_tests(tests, small_setup, small_teardown);
}
