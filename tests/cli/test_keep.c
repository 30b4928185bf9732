// What drafters keep in a file, as a user has it: a second decode finds what the first one said, an evaluation reads the
// file and leaves it, and finds nothing that it said itself in an earlier round.
#include "program.h"

#include "kernels/base/arena.h"
#include "kernels/base/files.h"
#include "kernels/base/hash.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#define TARGET "checkpoints/tiny"
#define DECODE "decode --json --target " TARGET " -n 40 --prompt 'The old house stood' --drafter "

enum { MOST = 48 };

static char scratch[64];

static double decode(const char *drafter, int32_t *ids, int *n) {
    pl_json j;
    test_run_json(&j, DECODE "%s%s/kept", drafter, scratch);
    *n = test_ids(&j, "tokens", ids, MOST);
    double tau = test_num(&j, pl_json_find(&j, NULL, "stats"), "acceptance_length");
    pl_json_close(&j);
    return tau;
}

static void decodes_on(void **state) {
    (void)state;
    static const char *const drafters[] = {"suffix:8,keep=", "recycle:8,keep=", "hybrid:suffix:8,keep="};
    for (int k = 0; k < 3; k++) {
        int32_t first[MOST], second[MOST];
        int     n, m;
        test_scratch(scratch);
        double before = decode(drafters[k], first, &n), after = decode(drafters[k], second, &m);
        print_message("%s acceptance length %.2f, then %.2f\n", drafters[k], before, after);
        assert_true(n == m && memcmp(first, second, (size_t)n * sizeof *first) == 0);
        if (k < 2) assert_true(after > before + 0.3); // a hybrid drafts where it pays
        test_scratch_remove(scratch);
    }
}

static uint64_t hash_of_file(void) {
    char     path[128];
    uint8_t *bytes;
    size_t   n;
    pl_err   err = {0};
    snprintf(path, sizeof path, "%s/kept", scratch);
    assert_int_equal(pl_file_read(path, &bytes, &n, 1 << 20, &err), PL_OK);
    uint64_t hash = pl_hash(bytes, n);
    pl_free(bytes);
    return hash;
}

static double evaluate(const char *recipe, const char *more) {
    pl_json j;
    test_run_json(&j, "eval --json --quiet %s/%s.yaml --out %s/run-%s %s", scratch, recipe, scratch, recipe, more);
    const cJSON *plain = cJSON_GetArrayItem(test_array(&j, NULL, "methods"), 0), *kept = plain->next;
    assert_true(cJSON_IsTrue(cJSON_GetObjectItem(kept, "identical_outputs")));
    double tau = test_num(&j, kept, "acceptance_length");
    pl_json_close(&j);
    return tau;
}

static void evaluations_read(void **state) {
    (void)state;
    int32_t ids[MOST];
    int     n;
    char    path[128], recipe[512];
    test_scratch(scratch);
    const struct {
        const char *name, *drafter;
    } e[] = {{"none.yaml", "suffix:8"}, {"keep.yaml", "suffix:8,keep"}, {"file.yaml", "suffix:8,keep="}};
    test_put(scratch, "one.jsonl", "{\"prompt\": \"The old house stood\"}\n");
    for (int k = 0; k < 3; k++) {
        snprintf(path, sizeof path, "%s/kept", scratch);
        snprintf(recipe, sizeof recipe,
                 "target: {path: " TARGET "}\neval: {prompts: %s/one.jsonl, max_new_tokens: 40, plain_fp32: false, "
                 "drafters: [{kind: '%s%s'}]}\n",
                 scratch, e[k].drafter, k == 2 ? path : "");
        test_put(scratch, e[k].name, recipe);
    }
    decode("suffix:8,keep=", ids, &n);
    const uint64_t before = hash_of_file();
    double none = evaluate("none", ""), keep = evaluate("keep", "--set eval.repeats=3"), file = evaluate("file", "");
    assert_true(keep == none && file > none + 0.3);
    assert_true(hash_of_file() == before);
    test_put(scratch, "kept", "no datastore");
    test_run_fails(2, "kept", DECODE "suffix:8,keep=%s/kept", scratch);
    test_scratch_remove(scratch);
}

int main(void) {
    const struct CMUnitTest tests[] = {cmocka_unit_test(decodes_on), cmocka_unit_test(evaluations_read)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
