// Which layers of the target a dataset holds for the drafters of a recipe, what each learns from, what is refused before
// anything is made.
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "data/dataset/dataset.h"
#include "kernels/base/arena.h"
#include "kernels/base/files.h"
#include "tests/train/small.h"
#include "train/run/pipeline.h"
#include "train/run/taps.h"
#include <stdio.h>
#include <string.h>

// The layers whose inputs BASE/out's dataset holds.
static void assert_stored(const char *out, const char *list) {
    char       *dir = pl_sprintf("%s/%s/dataset", small_base, out), text[64];
    pl_err      err = {0};
    pl_dataset *ds;
    pl_taps     t = {0};
    if (pl_dataset_open(&ds, dir, NULL, &err) != PL_OK) fail_msg("%s", err.msg);
    const pl_dataset_attrs *a = pl_dataset_get_attrs(ds);
    for (t.n = 0; t.n < a->A; t.n++)
        t.layer[t.n] = a->tap_layer_ids[t.n];
    pl_taps_text(text, &t);
    assert_string_equal(text, list);
    pl_dataset_close(ds);
    pl_free(dir);
}

// The layers that a trained drafter says it reads.
static void assert_reads(const char *out, const char *name, const char *list) {
    char        *dir = pl_sprintf("%s/%s/drafters/%s/checkpoints/best", small_base, out, name), text[64];
    pl_err       err = {0};
    pl_hf_config c;
    pl_taps      t;
    if (pl_hf_config_read(&c, dir, PL_HF_DRAFTER, &err) != PL_OK) fail_msg("%s", err.msg);
    pl_backbone_taps(&t, &c, 3);
    pl_taps_text(text, &t);
    assert_string_equal(text, list);
    pl_free(dir);
}

// A dataset holds what the drafters of the list read together; each learns from its own part of that what it learns
// from a dataset that holds this part alone, and drafts with it.
static void taps_of_several(void **state) {
    (void)state;
    pl_err err = {0};
    if (small_pipeline("several",
                       SMALL_TRAIN
                       "drafters:\n  - {name: a, taps: [2, 0]}\n  - {name: b}\n  - {name: c, kind: eagle1, unroll: 1}\n"
                       "  - {name: d, start: a, head: " SMALL_ROUTED "}\n",
                       &err) != PL_OK)
        fail_msg("%s", err.msg);
    assert_stored("several", "0,1,2,3");
    assert_reads("several", "a", "2,0");
    assert_reads("several", "b", "1,2,3");
    assert_reads("several", "c", "");
    assert_reads("several", "d", "2,0");
    assert_true(small_exists("several/results.json"));

    if (small_pipeline("alone", SMALL_TRAIN "drafters:\n  - {name: a, taps: [2, 0]}\n", &err) != PL_OK)
        fail_msg("%s", err.msg);
    assert_stored("alone", "0,2");
    small_same("several", "alone", "drafters/a/checkpoints/best/model.safetensors");
    // Who names the layers that it would read anyway, or none of the list names any: the dataset that ever was.
    if (small_pipeline("usual", SMALL_TRAIN "drafters:\n  - {name: b}\n", &err) != PL_OK) fail_msg("%s", err.msg);
    assert_stored("usual", "1,2,3");
    small_same("several", "usual", "drafters/b/checkpoints/best/model.safetensors");
    if (small_pipeline("named", SMALL_TRAIN "drafter: {taps: [1, 2, 3]}\n", &err) != PL_OK) fail_msg("%s", err.msg);
    small_same("usual", "named", ".stamps/dataset");
    small_same("usual", "named", "dataset/manifest.json");
    if (small_pipeline("none", SMALL_TRAIN "drafters:\n  - {name: c, kind: eagle1, unroll: 1}\n", &err) != PL_OK)
        fail_msg("%s", err.msg);
    small_same("usual", "none", ".stamps/dataset");
    small_same("several", "none", "drafters/c/checkpoints/best/model.safetensors");
    // Other layers are another dataset, which is made anew.
    if (small_pipeline("usual", SMALL_TRAIN "drafters:\n  - {name: b, taps: [3]}\n", &err) != PL_OK)
        fail_msg("%s", err.msg);
    assert_stored("usual", "3");
}

// `generate` alone makes the dataset of the same recipe's `run`.
static void taps_of_generate(void **state) {
    (void)state;
    pl_err      err = {0};
    pl_recipe  *r;
    char        text[1024], *dir = pl_path_join(small_base, "generated");
    pl_env      env = small_env(NULL);
    const char *more = "drafters: [{name: a, taps: [2, 0]}, {name: b, kind: eagle1}]\n";
    snprintf(text, sizeof text,
             "target: {path: %s/target/checkpoints/last}\n"
             "data: {prompts: %s/prompts.jsonl, max_new_tokens: 4, samples: 0}\neval: {holdout: 5}\n%s",
             small_base, small_base, more);
    env.keys = pl_stage_tables(&env.n_keys);
    assert_int_equal(pl_recipe_parse(&r, text, strlen(text), "recipe", env.keys, env.n_keys, NULL, 0, &err), PL_OK);
    if (pl_pipeline_generate(r, dir, &env, &err) != PL_OK) fail_msg("%s", err.msg);
    assert_stored("generated", "0,2");
    pl_recipe_close(r);
    pl_free(dir);
}

static void taps_refused_at_once(void **state) {
    (void)state;
    char given[512], lacks[512];
    snprintf(given, sizeof given, "data.dataset: %s/data/dataset\n", small_base);
    snprintf(lacks, sizeof lacks,
             "drafter \"b\": %s/data/dataset: it holds the inputs of layers [1,2,3], wanted are [3,0], 0 is not among "
             "them",
             small_base);
    const char *const bad[][3] = {
        {"", "  - {name: b, taps: [0, 4]}\n",
         "drafter \"b\": drafter.taps: layer 4 does not exist, the target has 3 layers"},
        {"", "  - {name: b, taps: [0, 1, 2, 3, 0, 1, 2, 3, 0]}\n", "drafter \"b\": drafter.taps: 9 layers, at most 8"},
        {"data.taps: false\n", "  - {name: b, taps: [3, 0]}\n",
         "drafter \"b\": data.taps: false stores no layer's input, the eagle3 drafter reads those of [3,0]"},
        {given, "  - {name: b, taps: [3, 0]}\n", lacks}};
    for (size_t i = 0; i < sizeof bad / sizeof *bad; i++) {
        pl_err err = {0};
        char   more[2048];
        snprintf(more, sizeof more, "%s" SMALL_TRAIN "drafters:\n  - {name: a, kind: eagle1, unroll: 1}\n%s", bad[i][0],
                 bad[i][1]);
        assert_int_equal(small_pipeline("badtaps", more, &err), PL_E_INPUT);
        if (strstr(err.msg, bad[i][2]) != err.msg) fail_msg("%s", err.msg);
        assert_null(strchr(err.msg, '\n'));
        assert_false(small_exists("badtaps/dataset") || small_exists("badtaps/drafters"));
    }
}

int main(void) {
    const struct CMUnitTest tests[] = {cmocka_unit_test(taps_of_several), cmocka_unit_test(taps_of_generate),
                                       cmocka_unit_test(taps_refused_at_once)};
    return cmocka_run_group_tests(tests, small_setup, small_teardown);
}
