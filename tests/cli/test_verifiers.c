// Verifiers on the command line: named, listed, marked where they are lossy; and what inspect says of their acceptance.
#include "infer/verify/verify.h"
#include "program.h"
#include "random_drafter.h"

#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <string.h>

#include <cmocka.h>

#define TARGET "checkpoints/tiny"

static void test_names(void **state) {
    (void)state;
    test_output o;
    test_run(&o, "decode --help");
    for (int i = 0; pl_verifier_at(i); i++) {
        char line[96];
        snprintf(line, sizeof line, "\n  %s%s ", pl_verifier_at(i)->name,
                 pl_verifier_at(i)->lossless ? " " : " (lossy)");
        assert_non_null(strstr(o.out, line));
    }
    test_run_fini(&o);
    test_run_fails(2, "typical (lossy)", "decode --target nowhere --drafter x --prompt a --verify nope");
    test_run_fails(2, "--verify: needs a --drafter", "decode --target nowhere --prompt a --verify match");
    test_run_fails(2, "--drafter: needs --acceptance or --ceilings", "inspect nowhere --drafter x");
    test_run_fails(2, "--children: needs --acceptance", "inspect nowhere --children 2");
    test_run_fails(2, "--acceptance: needs a --drafter", "inspect nowhere --acceptance");
    test_run_fails(2, "--children: expected an integer from 1 to 8, found 9",
                   "inspect nowhere --acceptance --drafter x --children 9");
    test_run_fails(2, "nowhere", "inspect nowhere --acceptance --drafter x --json");
}

static void test_decode(void **state) {
    (void)state;
    char        scratch[64], head[128];
    const char *name;
    bool        lossless;
    pl_json     j;
    test_output o;
    test_scratch(scratch);
    snprintf(head, sizeof head, "%s/head", scratch);
    test_random_drafter(head, TARGET, "lowrank", 8);
    for (int i = 0; pl_verifier_at(i); i++) {
        const pl_verifier *v = pl_verifier_at(i);
        test_run_json(&j,
                      "decode --json --target " TARGET " --drafter %s --tree chain:2 --verify %s --temperature 1 "
                      "--prompt Once -n 8",
                      head, v->name);
        assert_int_equal(pl_json_get_str(&j, NULL, "verify", &name, NULL), PL_OK);
        assert_int_equal(pl_json_get_bool(&j, NULL, "lossless", &lossless, NULL), PL_OK);
        assert_string_equal(name, v->name);
        assert_int_equal(lossless, v->lossless);
        pl_json_close(&j);
    }
    test_run(&o,
             "decode --target " TARGET " --drafter %s --tree chain:2 --verify typical --temperature 1 --prompt Once",
             head);
    assert_int_equal(o.code, 0);
    assert_non_null(strstr(o.err, "by typical (lossy)"));
    test_run_fini(&o);
    test_scratch_remove(scratch);
}

static double figure(const pl_json *j, const char *table, const char *key, const char *value, const char *column) {
    const cJSON *rows, *row;
    double       x = NAN;
    assert_int_equal(pl_json_get_array(j, NULL, table, &rows, NULL), PL_OK);
    cJSON_ArrayForEach(row, rows) {
        const char *name;
        assert_int_equal(pl_json_get_str(j, row, key, &name, NULL), PL_OK);
        if (strcmp(name, value) != 0) continue;
        if (cJSON_IsNull(cJSON_GetObjectItemCaseSensitive(row, column))) return NAN;
        assert_int_equal(pl_json_get_num(j, row, column, 0, 1, &x, NULL), PL_OK);
        return x;
    }
    fail_msg("no %s \"%s\"", key, value);
    return x;
}

static void test_acceptance(void **state) {
    (void)state;
    char        scratch[64], head[128];
    pl_json     j;
    test_output o;
    test_scratch(scratch);
    snprintf(head, sizeof head, "%s/head", scratch);
    test_random_drafter(head, TARGET, "lowrank", 8);
    test_run_json(&j, "inspect --json " TARGET " --acceptance --drafter %s --positions 5 --children 2", head);
    double                   one = figure(&j, "bound", "children", "drawn with replacement", "n=1");
    // One drawn child: all verifiers are one, and attain the bound.
    static const char *const drawn[] = {"rejection", "recursive-iid", "recursive-wor", "k-seq", "block", "transport"};
    for (size_t i = 0; i < sizeof drawn / sizeof *drawn; i++)
        assert_true(fabs(figure(&j, "acceptance", "verifier", drawn[i], "n=1") - one) < 1e-5);
    assert_true(fabs(figure(&j, "bound", "children", "drawn without replacement", "n=1") - one) < 1e-5);
    assert_true(isnan(figure(&j, "acceptance", "verifier", "rejection", "n=2")));
    double error = figure(&j, "acceptance", "verifier", "recursive-wor", "error");
    for (int i = 0; pl_verifier_at(i); i++) {
        static const char *const drafts[] = {"the best", "drawn with replacement", "drawn without replacement",
                                             "the best and one drawn"};
        const pl_verifier       *v = pl_verifier_at(i);
        if (!v->lossless || v->chain) continue;
        double a = figure(&j, "acceptance", "verifier", v->name, "n=2");
        assert_true(a <= figure(&j, "bound", "children", drafts[v->proposal], "n=2") + 1e-5 + 5 * error);
    }
    pl_json_close(&j);
    test_run(&o,
             "inspect " TARGET
             " --acceptance --drafter %s --positions 2 --children 1 --prompts data/prompts/heldout.jsonl",
             head);
    assert_int_equal(o.code, 0);
    assert_non_null(strstr(o.out, "recursive-wor"));
    test_run_fini(&o);
    test_scratch_remove(scratch);
}

static void test_ceilings(void **state) {
    (void)state;
    char         scratch[64], head[128];
    pl_json      j;
    const cJSON *rows;
    test_output  o;
    test_run_fails(2, "--ceilings: needs a --drafter", "inspect nowhere --ceilings");
    test_run_fails(2, "--depth: needs --ceilings", "inspect nowhere --acceptance --drafter x --depth 2");
    test_run_fails(2, "--children: needs --acceptance", "inspect nowhere --ceilings --drafter x --children 2");
    test_run_fails(2, "one at a time", "inspect nowhere --ceilings --acceptance --drafter x");
    test_run_fails(2, "lookup has no head", "inspect " TARGET " --ceilings --drafter lookup");
    test_scratch(scratch);
    snprintf(head, sizeof head, "%s/head", scratch);
    test_random_drafter(head, TARGET, "lowrank", 8);
    test_run_json(&j, "inspect --json " TARGET " --ceilings --drafter %s --positions 5 --depth 2", head);
    assert_int_equal(pl_json_get_array(&j, NULL, "ceilings", &rows, NULL), PL_OK);
    double achieved, ceiling, support;
    assert_int_equal(pl_json_get_num(&j, rows->child, "achieved", 0, 1, &achieved, NULL), PL_OK);
    assert_int_equal(pl_json_get_num(&j, rows->child, "ceiling", 0, 1.000001, &ceiling, NULL), PL_OK);
    assert_int_equal(pl_json_get_num(&j, rows->child, "support", 1, 1e9, &support, NULL), PL_OK);
    assert_true(achieved < ceiling && fabs(ceiling - 1) < 1e-6); // it may draft every token
    pl_json_close(&j);
    // Greedy decoding's: a share of drafts that are the target's best, of those whose support holds it, which is all.
    test_run_json(&j, "inspect --json " TARGET " --ceilings --drafter %s --positions 5 --depth 2 --temperature 0",
                  head);
    assert_int_equal(pl_json_get_array(&j, NULL, "ceilings", &rows, NULL), PL_OK);
    assert_string_equal(test_str(&j, NULL, "answers"), "greedy");
    assert_true(test_num(&j, NULL, "temperature") == 0 && test_num(&j, rows->child, "ceiling") == 1);
    assert_true(test_num(&j, rows->child, "achieved") * 5 == round(test_num(&j, rows->child, "achieved") * 5));
    pl_json_close(&j);
    test_run_fails(2, "--temperature 0.001: must be 0 (greedy) or at least 0.01",
                   "inspect " TARGET " --ceilings --drafter %s --temperature 0.001", head);
    test_run_fails(2, "--temperature 0: --acceptance needs at least 0.01",
                   "inspect " TARGET " --acceptance --drafter %s --temperature 0", head);
    test_run(&o, "inspect " TARGET " --ceilings --drafter %s --positions 4 --prompts data/prompts/heldout.jsonl", head);
    assert_int_equal(o.code, 0);
    assert_non_null(strstr(o.out, "oracle"));
    test_run_fini(&o);
    test_scratch_remove(scratch);
}

// A drafter whose weights are broken is told from a target whose are, in a hybrid too.
static void test_broken_drafter(void **state) {
    (void)state;
    uint8_t nan[64];
    char    scratch[64], head[128], file[160];
    memset(nan, 0xff, sizeof nan); // bf16's NaN, over and over
    test_scratch(scratch);
    snprintf(head, sizeof head, "%s/head", scratch);
    test_random_drafter(head, TARGET, "full", 0);
    snprintf(file, sizeof file, "%s/model.safetensors", head);
    FILE *f = fopen(file, "r+b");
    assert_non_null(f);
    assert_int_equal(fseek(f, -(long)sizeof nan, SEEK_END), 0);
    assert_int_equal(fwrite(nan, 1, sizeof nan, f), sizeof nan);
    assert_int_equal(fclose(f), 0);
#define BROKEN "decode --target " TARGET " --prompt Once -n 8 --quiet --json --drafter "
    test_run_fails(2, "decode: drafter \"eagle3\": logits: NaN at row", BROKEN "%s", head);
    test_run_fails(2, "decode: drafter \"hybrid\": logits: NaN at row", BROKEN "hybrid:suffix+%s", head);
#undef BROKEN
    test_scratch_remove(scratch);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_names),    cmocka_unit_test(test_decode),         cmocka_unit_test(test_acceptance),
        cmocka_unit_test(test_ceilings), cmocka_unit_test(test_broken_drafter),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
