// eval.ceilings: of the evaluation that they stand beside, and no danger to it.
#include "kernels/base/arena.h"
#include "kernels/base/files.h"
#include "program.h"
#include "random_drafter.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>

#include <cmocka.h>

#define THREE                                                                                                          \
    "{\"prompt\":\"Once upon a time\"}\n{\"prompt\":\"The dog was sad because\"}\n"                                    \
    "{\"prompt\":\"Lily and her mother went to the park\"}\n"
#define FIRST "{\"prompt\":\"Once upon a time\"}\n"

static char scratch[64];

static bool there(const char *name) {
    char path[128];
    snprintf(path, sizeof path, "%s/%s", scratch, name);
    return pl_path_exists(path);
}

static bool report_shows(const char *part) {
    char path[128];
    snprintf(path, sizeof path, "%s/run/report.html", scratch);
    char *html = test_read_page(path);
    bool  shows = strstr(html, part) != NULL;
    pl_free(html);
    return shows;
}

// A target whose file is in fp32, a head for it, two files of prompts.
static void make(void) {
    char        model[512], tokenizer[512], head[128], recipe[1600];
    const char *target = test_data(model, "models/stories260K/stories260K.bin");
    test_data(tokenizer, "models/stories260K/tok512.bin");
    test_scratch(scratch);
    snprintf(head, sizeof head, "%s/head", scratch);
    test_random_drafter(head, target, "lowrank", 8);
    snprintf(recipe, sizeof recipe,
             "target: {path: %s, tokenizer: %s}\neval:\n  prompts: %s/three.jsonl\n  max_new_tokens: 8\n  seeds: 1\n"
             "  temperatures: [1]\n  plain_fp32: false\n  ceilings: 40\n  drafters: [{name: head, path: %s}]\n",
             target, tokenizer, scratch, head);
    test_put(scratch, "e.yaml", recipe);
    test_put(scratch, "three.jsonl", THREE);
    test_put(scratch, "first.jsonl", FIRST);
}

// The figures of an evaluation's ceilings, as JSON; the caller's.
static char *figures(const char *options) {
    pl_json j;
    char    path[128];
    test_run_json(&j, "eval %s/e.yaml --out %s/run --json --quiet --threads 1 %s", scratch, scratch, options);
    pl_json_close(&j);
    snprintf(path, sizeof path, "%s/run/ceilings/head.json", scratch);
    assert_int_equal(pl_json_open(&j, path, 1 << 20, PL_JSON_UNIQUE, NULL), PL_OK);
    assert_null(pl_json_find(&j, NULL, "greedy"));              // which was not evaluated
    assert_string_equal(test_str(&j, NULL, "weights"), "bf16"); // as the methods were timed, whatever the file stores
    char *text = cJSON_PrintUnformatted(pl_json_find(&j, NULL, "ceilings"));
    assert_non_null(text);
    pl_json_close(&j);
    return text;
}

// Draws follow the recipe's seed, prompts are those that eval.limit leaves.
static void of_this_evaluation(void **state) {
    (void)state;
    char first[160];
    make();
    snprintf(first, sizeof first, "--set eval.prompts=%s/first.jsonl", scratch);
    char *text[] = {figures("--set seed=1"), figures("--set seed=1"), figures("--set seed=2"),
                    figures("--set eval.limit=1"), figures(first)};
    assert_string_equal(text[1], text[0]);
    assert_string_not_equal(text[2], text[0]);
    assert_string_not_equal(text[3], text[0]);
    assert_string_equal(text[4], text[3]);
    for (int i = 0; i < 5; i++)
        cJSON_free(text[i]);
    test_scratch_remove(scratch);
}

// A text gives what it has room for, also where that is less than its share of the drafts asked for.
static void few_prompts(void **state) {
    (void)state;
    make();
    char   *text = figures("--set eval.limit=1 --set eval.ceilings=5000");
    pl_json j;
    assert_int_equal(pl_json_parse(&j, "ceilings", 0, text, strlen(text), 0, NULL), PL_OK);
    double rows = test_num(&j, j.root->child, "rows");
    assert_true(rows >= 50 && rows <= 511);
    pl_json_close(&j);
    cJSON_free(text);
    test_scratch_remove(scratch);
}

// What an earlier evaluation left is not shown beside the results of one that asks for none.
static void of_no_earlier_one(void **state) {
    (void)state;
    make();
    cJSON_free(figures(""));
    assert_true(report_shows("<h2>Ceilings of "));
    pl_json j;
    test_run_json(&j, "eval %s/e.yaml --out %s/run --json --quiet --set eval.ceilings=0", scratch, scratch);
    pl_json_close(&j);
    assert_false(there("run/ceilings"));
    assert_false(report_shows("<h2>Ceilings of "));
    test_scratch_remove(scratch);
}

// Texts that evaluation cuts to fit leave ceilings no place to look at: what was measured stays, and is reported.
static void failing(void **state) {
    (void)state;
    char    prompt[8192] = "{\"prompt\":\"", path[128];
    pl_json j;
    make();
    for (int i = 0; i < 200; i++)
        strcat(prompt, "Once upon a time there was ");
    strcat(prompt, "\"}\n");
    test_put(scratch, "long.jsonl", prompt);
    test_run_fails(2, "eval: results are kept in ",
                   "eval %s/e.yaml --out %s/lost --quiet --set eval.prompts=%s/long.jsonl", scratch, scratch, scratch);
    snprintf(path, sizeof path, "%s/lost/results.json", scratch);
    assert_int_equal(pl_json_open(&j, path, 1 << 20, PL_JSON_UNIQUE, NULL), PL_OK);
    assert_int_equal(cJSON_GetArraySize(test_array(&j, NULL, "methods")), 2);
    test_str(&j, NULL, "settings.target");
    pl_json_close(&j);
    assert_true(there("lost/report.html"));
    assert_false(there("lost/ceilings/head.json"));
    test_scratch_remove(scratch);
}

int main(void) {
    const struct CMUnitTest tests[] = {cmocka_unit_test(of_this_evaluation), cmocka_unit_test(few_prompts),
                                       cmocka_unit_test(of_no_earlier_one), cmocka_unit_test(failing)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
