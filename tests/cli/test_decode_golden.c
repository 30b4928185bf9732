// `decode` against greedy continuations that independent programs computed, plain and with draft heads.
#include "kernels/base/arena.h"
#include "program.h"
#include "random_drafter.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>

#include <cmocka.h>

#define MOST 512

// The golden ids and text of a model's folder.
static int read_golden(const char *folder, int32_t ids[MOST], char *text, size_t room) {
    char        name[600];
    pl_json     j;
    pl_err      err;
    const char *s;
    snprintf(name, sizeof name, "%s/golden_greedy.json", folder);
    if (pl_json_open(&j, name, 1 << 20, 0, &err) != PL_OK) fail_msg("%s", err.msg);
    int n = test_ids(&j, "greedy_ids", ids, MOST);
    assert_int_equal(pl_json_get_str(&j, NULL, "text", &s, NULL), PL_OK);
    snprintf(text, room, "%s", s);
    pl_json_close(&j);
    return n;
}

// Runs `decode --json` with these options and compares with the golden answer.
static void expect_golden(const char *folder, const char *options, const char *finish) {
    int32_t     want[MOST], got[MOST];
    char        text[4096];
    pl_json     j;
    const char *s, *how;
    double      tokens, steps, seconds, rate, tau;
    int         n = read_golden(folder, want, text, sizeof text);
    test_run_json(&j, "decode --json --quiet --prompt-ids 1 --max-new-tokens %d %s",
                  strcmp(finish, "stop") == 0 ? n + 20 : n, options);
    int m = test_ids(&j, "tokens", got, MOST);
    assert_int_equal(m, n);
    for (int i = 0; i < n; i++)
        if (got[i] != want[i]) fail_msg("%s: token %d is %d, not %d", options, i, got[i], want[i]);
    assert_int_equal(pl_json_opt_str(&j, NULL, "text", NULL, &s, NULL), PL_OK);
    if (s && strcmp(s, text) != 0) fail_msg("%s: text is \"%s\"", options, s);
    assert_int_equal(pl_json_get_str(&j, NULL, "finish", &how, NULL), PL_OK);
    assert_string_equal(how, finish);
    assert_int_equal(test_ids(&j, "prompt_tokens", got, MOST), 1);
    // The token that prefill emits is left out; a stop token that ends the answer is counted.
    assert_int_equal(pl_json_get_num(&j, NULL, "stats.tokens", 0, 1e9, &tokens, NULL), PL_OK);
    assert_int_equal((int)tokens, strcmp(finish, "stop") == 0 ? n : n - 1);
    assert_int_equal(pl_json_get_num(&j, NULL, "stats.steps", 1, 1e9, &steps, NULL), PL_OK);
    assert_int_equal(pl_json_get_num(&j, NULL, "stats.seconds", 0, 1e9, &seconds, NULL), PL_OK);
    assert_int_equal(pl_json_get_num(&j, NULL, "stats.tokens_per_second", 0, 1e12, &rate, NULL), PL_OK);
    assert_int_equal(pl_json_get_num(&j, NULL, "stats.acceptance_length", 1, 1e3, &tau, NULL), PL_OK);
    assert_true(tau == tokens / steps);
    assert_true(rate == tokens / seconds);
    pl_json_close(&j);
}

static void test_stories260k(void **state) {
    (void)state;
    char        path[512], options[2048];
    const char *folder = test_data(path, "models/stories260K");
    const char *threads[] = {"1", "2"};
    for (int i = 0; i < 2; i++) {
        snprintf(options, sizeof options, "--target %s/stories260K.bin --tokenizer %s/tok512.bin --threads %s", folder,
                 folder, threads[i]);
        expect_golden(folder, options, "length");
    }
    // Without a tokenizer: ids alone, text null.
    snprintf(options, sizeof options, "--target %s/stories260K.bin --dtype fp32", folder);
    expect_golden(folder, options, "length");
}

static void test_tinystories(void **state) {
    (void)state;
    char                     path[512], options[2048];
    const char              *folder = test_data(path, "models/TinyStories-656K");
    static const char *const more[] = {"", "--dtype bf16", "--dtype fp32", "--dtype fp32 --threads 1"};
    for (int i = 0; i < 4; i++) {
        snprintf(options, sizeof options, "--target %s %s", folder, more[i]);
        expect_golden(folder, options, "stop");
    }
}

// Drafts that are nearly always wrong must not change a token, whatever the chain's length.
static void test_with_drafters(void **state) {
    (void)state;
    char                     path[512], options[2048], scratch[64], dir[128];
    const char              *folder = test_data(path, "models/TinyStories-656K");
    static const char *const trees[] = {"chain:1", "chain:5", "chain:auto", "auto", "static:3x2x1", "eagle2:60,10,6"};
    static const char *const heads[] = {"full", "lowrank"};
    test_scratch(scratch);
    for (int h = 0; h < 2; h++) {
        snprintf(dir, sizeof dir, "%s/%s", scratch, heads[h]);
        test_random_drafter(dir, folder, heads[h], h ? 16 : 0);
        for (int t = 0; t < 6; t++) {
            snprintf(options, sizeof options, "--target %s --drafter %s --tree %s", folder, dir, trees[t]);
            expect_golden(folder, options, "stop");
        }
    }
    snprintf(options, sizeof options, "--target %s --drafter %s --dtype fp32", folder, dir);
    expect_golden(folder, options, "stop");
    test_scratch_remove(scratch);
}

// A drawn answer is a function of the seed, and not of the drafter.
static void test_sampling(void **state) {
    (void)state;
    char        path[512], scratch[64], dir[128];
    const char *folder = test_data(path, "models/TinyStories-656K");
    int32_t     a[MOST], b[MOST], c[MOST];
    pl_json     j;
    test_scratch(scratch);
    snprintf(dir, sizeof dir, "%s/head", scratch);
    test_random_drafter(dir, folder, "full", 0);
    const char *common = "--quiet --prompt Once --max-new-tokens 60 --temperature 0.9 --top-k 50 --top-p 0.95";
    test_run_json(&j, "decode --json %s --target %s --seed 3", common, folder);
    int n = test_ids(&j, "tokens", a, MOST);
    pl_json_close(&j);
    test_run_json(&j, "decode --json %s --target %s --seed 3 --drafter %s --tree chain:4", common, folder, dir);
    assert_int_equal(test_ids(&j, "tokens", b, MOST), n);
    assert_memory_equal(a, b, (size_t)n * sizeof *a);
    pl_json_close(&j);
    // Without --tree measured costs choose: what they settled on is said beside what was asked for.
    test_run_json(&j, "decode --json %s --target %s --seed 3 --drafter %s", common, folder, dir);
    assert_int_equal(test_ids(&j, "tokens", b, MOST), n);
    assert_memory_equal(a, b, (size_t)n * sizeof *a);
    const char *asked, *used;
    assert_int_equal(pl_json_get_str(&j, j.root, "tree", &asked, NULL), PL_OK);
    assert_int_equal(pl_json_get_str(&j, j.root, "tree_used", &used, NULL), PL_OK);
    assert_string_equal(asked, "auto");
    if (strncmp(used, "chain:", 6) && strncmp(used, "static:", 7) && strcmp(used, "none"))
        fail_msg("tree in use: %s", used);
    pl_json_close(&j);
    test_run_json(&j, "decode --json %s --target %s --seed 4", common, folder);
    int m = test_ids(&j, "tokens", c, MOST);
    assert_true(m != n || memcmp(a, c, (size_t)n * sizeof *a) != 0);
    pl_json_close(&j);
    test_scratch_remove(scratch);
}

// What is streamed for people is the text of --json, and figures stay off standard output.
static void test_streamed_text(void **state) {
    (void)state;
    char        path[512];
    const char *folder = test_data(path, "models/TinyStories-656K"), *text;
    test_output o;
    pl_json     j;
    test_run_json(&j, "decode --json --target %s --prompt 'Once upon a time' -n 20", folder);
    assert_int_equal(pl_json_get_str(&j, NULL, "text", &text, NULL), PL_OK);
    test_run(&o, "decode --target %s --prompt 'Once upon a time' -n 20", folder);
    assert_int_equal(o.code, 0);
    assert_int_equal(o.out_bytes, strlen(text) + 1);
    assert_memory_equal(o.out, text, strlen(text));
    assert_non_null(strstr(o.err, "acceptance length 1.00"));
    test_run_fini(&o);
    test_run(&o, "decode --quiet --target %s --prompt 'Once upon a time' -n 20", folder);
    assert_int_equal(o.err_bytes, 0);
    test_run_fini(&o);
    pl_json_close(&j);
}

static void test_prompts(void **state) {
    (void)state;
    char        path[512], scratch[64], file[128];
    const char *folder = test_data(path, "models/TinyStories-656K");
    int32_t     a[MOST], b[MOST];
    pl_json     j;
    test_scratch(scratch);
    snprintf(file, sizeof file, "%s/prompt.txt", scratch);
    FILE *f = fopen(file, "w");
    assert_non_null(f);
    fputs("Once upon a time\n", f);
    fclose(f);
    test_run_json(&j, "decode --json --target %s --prompt 'Once upon a time' -n 2", folder);
    int n = test_ids(&j, "prompt_tokens", a, MOST);
    assert_int_equal(a[0], 1); // BOS
    pl_json_close(&j);
    test_run_json(&j, "decode --json --target %s --prompt-file %s -n 2", folder, file);
    assert_int_equal(test_ids(&j, "prompt_tokens", b, MOST), n);
    assert_memory_equal(a, b, (size_t)n * sizeof *a);
    pl_json_close(&j);
    test_run_json(&j, "decode --json --target %s --prompt-ids 5,6 -n 1", folder); // as they are; nothing after prefill
    assert_int_equal(test_ids(&j, "prompt_tokens", b, MOST), 2);
    assert_int_equal(test_ids(&j, "tokens", b, MOST), 1);
    pl_json_close(&j);
    test_run_fails(2, "outside the vocabulary", "decode --json --target %s --prompt-ids 2048", folder);
    test_run_fails(2, "expected a token id", "decode --json --target %s --prompt-ids 1,a", folder);
    test_run_fails(2, "empty", "decode --json --target %s --prompt-ids ,", folder);
    f = fopen(file, "w");
    for (int i = 0; i < 600; i++)
        fputs("word ", f);
    fclose(f);
    test_run_fails(2, "the context holds 512", "decode --json --target %s --prompt-file %s", folder, file);
    f = fopen(file, "w");
    fputs("bad \xff byte", f);
    fclose(f);
    test_run_fails(2, "prompt.txt", "decode --target %s --prompt-file %s", folder, file);
    test_scratch_remove(scratch);
}

// A target that is broken, and a drafter of another target, are refused with one line.
static void test_bad_models(void **state) {
    (void)state;
    char        path[512], other[512], scratch[64], file[128];
    const char *folder = test_data(path, "models/TinyStories-656K");
    const char *stories = test_data(other, "models/stories260K/stories260K.bin");
    test_scratch(scratch);
    snprintf(file, sizeof file, "%s/head", scratch);
    test_random_drafter(file, folder, "full", 0);
    test_run_fails(2, "use the drafter's own target", "decode --json --target %s --prompt-ids 1 --drafter %s", stories,
                   file);
    test_run_fails(2, "has no tokenizer", "decode --target %s --prompt-ids 1", stories);
    test_run_fails(2, "another model's tokenizer", "decode --target %s --tokenizer %s --prompt a", stories, folder);
    snprintf(file, sizeof file, "%s/cut.bin", scratch);
    FILE *f = fopen(file, "w");
    assert_non_null(f);
    fputs("not a model", f);
    fclose(f);
    test_run_fails(2, "cut.bin", "decode --json --target %s --prompt-ids 1", file);
    test_run_fails(2, "cut.bin", "decode --json --target %s --tokenizer %s --prompt a", folder, file);
    test_scratch_remove(scratch);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_stories260k), cmocka_unit_test(test_tinystories),   cmocka_unit_test(test_with_drafters),
        cmocka_unit_test(test_sampling),    cmocka_unit_test(test_streamed_text), cmocka_unit_test(test_prompts),
        cmocka_unit_test(test_bad_models),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
