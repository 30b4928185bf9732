// `paceline prompts`: what a target asks, the same whether a run was stopped or not, and only into a file of its own.
#include "program.h"

#include "kernels/base/arena.h"
#include "kernels/base/files.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include <cmocka.h>

#define ASK "prompts --target checkpoints/tiny --max-tokens 24 --sessions 4 --out %s/"

static char scratch[64];

static int setup(void **state) {
    (void)state;
    test_scratch(scratch);
    return 0;
}

static int teardown(void **state) {
    (void)state;
    test_scratch_remove(scratch);
    return 0;
}

static int lines_of(const char *text) {
    int n = 0;
    for (; (text = strchr(text, '\n')); text++)
        n++;
    return n;
}

// More prompts, and a line that was cut, end in the file that one run makes.
static void goes_on(void **state) {
    (void)state;
    pl_json j;
    char   *parts, *whole, path[128];
    test_run_json(&j, ASK "parts.jsonl --count 3 --json", scratch);
    assert_int_equal(test_num(&j, NULL, "prompts"), 3);
    pl_json_close(&j);
    parts = test_get(scratch, "parts.jsonl");
    assert_int_equal(lines_of(parts), 3);
    pl_free(parts);
    snprintf(path, sizeof path, "%s/parts.jsonl", scratch);
    FILE *f = fopen(path, "a");
    assert_non_null(f);
    fputs("{\"prompt\":\"Once upon", f);
    fclose(f);
    test_run_json(&j, ASK "parts.jsonl --count 8 --json", scratch);
    pl_json_close(&j);
    test_run_json(&j, ASK "whole.jsonl --count 8 --json", scratch);
    assert_true(test_num(&j, NULL, "sampled") >= 8);
    pl_json_close(&j);
    parts = test_get(scratch, "parts.jsonl");
    whole = test_get(scratch, "whole.jsonl");
    assert_string_equal(parts, whole);
    assert_int_equal(lines_of(whole), 8);
    pl_free(parts);
    pl_free(whole);
    test_run_json(&j, ASK "whole.jsonl --count 8 --json", scratch); // nothing to do
    assert_int_equal(test_num(&j, NULL, "prompts"), 8);
    pl_json_close(&j);
    // Another seed asks something else, and the file is one of prompts.
    test_run_json(&j, ASK "other.jsonl --count 8 --json --seed 2", scratch);
    pl_json_close(&j);
    parts = test_get(scratch, "other.jsonl");
    whole = test_get(scratch, "whole.jsonl");
    assert_string_not_equal(parts, whole);
    pl_free(parts);
    pl_free(whole);
    test_output o;
    test_run(&o,
             "generate recipes/quickstart.yaml --set drafters=null --set data.prompts=%s/other.jsonl --texts "
             "--set data.max_new_tokens=4 --set data.samples=0 --set eval.holdout=1 --out %s/answers",
             scratch, scratch);
    assert_int_equal(o.code, 0);
    test_run_fini(&o);
}

// A template's beginning of a user's message is what is continued.
static void template_is_opened(void **state) {
    (void)state;
    test_put(scratch, "chat.jinja", "{% for m in messages %}{{ m.role }}: {{ m.content }}\n{% endfor %}");
    pl_json j;
    char   *settings;
    test_run_json(&j,
                  ASK "chat.jsonl --count 1 --json --chat-template %s/chat.jinja --system 'Be kind.' --max-tokens 400",
                  scratch, scratch);
    pl_json_close(&j);
    settings = test_get(scratch, "chat.jsonl.settings");
    assert_non_null(strstr(settings, "\"before\": \"system: Be kind.\\nuser: \""));
    pl_free(settings);
}

static void refusals(void **state) {
    (void)state;
    pl_json j;
    test_run_fails(2, "--target: is missing", "prompts --out %s/x.jsonl", scratch);
    test_run_fails(2, "--out: is missing", "prompts --target checkpoints/tiny");
    test_run_fails(2, "--system: needs a chat template", ASK "x.jsonl --system hello", scratch);
    test_put(scratch, "mine.jsonl", "{\"prompt\": \"mine\"}\n");
    test_run_fails(2, "not of this command", ASK "mine.jsonl --count 1", scratch);
    test_run_json(&j, ASK "warm.jsonl --count 1 --json", scratch);
    pl_json_close(&j);
    char        system[7001];
    test_output o;
    for (int i = 0; i < 7000; i++)
        system[i] = i % 4 == 3 ? ' ' : 'a';
    system[7000] = 0;
    test_put(scratch, "chat.jinja", "{% for m in messages %}{{ m.role }}: {{ m.content }}\n{% endfor %}");
    test_run(&o, ASK "long.jsonl --chat-template %s/chat.jinja --system '%s'", scratch, scratch, system);
    assert_int_equal(o.code, 2);
    assert_non_null(strstr(o.err, "the text before a message has "));
    test_run_fini(&o);
    test_run(&o, ASK "warm.jsonl --count 2 --temperature 0.5", scratch);
    assert_int_equal(o.code, 2);
    assert_non_null(strstr(o.err, "was made with other settings"));
    test_run_fini(&o);
}

#define OWN                                                                                                            \
    "recipes/quickstart.yaml --set drafters=null --set data.prompts=self:%d --set data.max_new_tokens=4 "              \
    "--set data.samples=0 --set data.own.max_tokens=24 --set data.sessions=4"

// A recipe's prompts that the target writes are those of the command with the same settings, and are kept.
static void of_a_recipe(void **state) {
    (void)state;
    pl_json     j;
    test_output o;
    test_run_json(&j, "generate " OWN " --out %s/own --json", 3, scratch);
    pl_json_close(&j);
    char *own = test_get(scratch, "own/prompts.jsonl");
    assert_int_equal(lines_of(own), 3);
    test_run_json(
        &j,
        "prompts --target checkpoints/tiny --base --max-tokens 24 --sessions 4 --count 3 --json --out %s/three.jsonl",
        scratch);
    pl_json_close(&j);
    char *three = test_get(scratch, "three.jsonl");
    assert_string_equal(own, three);
    pl_free(three);
    // More of them: other answers, so that a dataset begins anew, or is refused in a line.
    test_run(&o, "generate " OWN " --out %s/own", 5, scratch);
    test_run_fini(&o);
    char *more = test_get(scratch, "own/prompts.jsonl");
    assert_int_equal(lines_of(more), 5);
    assert_memory_equal(more, own, strlen(own));
    pl_free(more);
    pl_free(own);
    test_run(&o, "generate " OWN " --set data.own.temperature=0.5 --out %s/own", 5, scratch);
    assert_int_equal(o.code, 2);
    assert_non_null(strstr(o.err, "was made with other settings"));
    test_run_fini(&o);
    test_run(&o, "generate recipes/quickstart.yaml --set data.prompts=self:many --out %s/many", scratch);
    assert_int_equal(o.code, 2);
    assert_non_null(strstr(o.err, "\"self:many\": expected the number of prompts"));
    test_run_fini(&o);
}

// Two ranks share one file of the first.
static void of_ranks(void **state) {
    (void)state;
    pl_json j;
    test_run_json(&j, "generate " OWN " --ranks 2 --out %s/ranks --json", 3, scratch);
    pl_json_close(&j);
    char *own = test_get(scratch, "own/prompts.jsonl"), *ranks = test_get(scratch, "ranks/prompts.jsonl");
    assert_memory_equal(own, ranks, strlen(ranks));
    pl_free(own);
    pl_free(ranks);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(goes_on),  cmocka_unit_test(template_is_opened), cmocka_unit_test(of_a_recipe),
        cmocka_unit_test(of_ranks), cmocka_unit_test(refusals),
    };
    return cmocka_run_group_tests(tests, setup, teardown);
}
