// `paceline plan`: its figures agree with each other, it reads evaluations, and bad input is one line.
#include "program.h"
#include "random_drafter.h"

#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#define TARGET "checkpoints/tiny"

// The first of a list whose members are these; NULL: none.
static const cJSON *find(const pl_json *j, const char *key, const char *name, const char *tree) {
    const cJSON *x;
    cJSON_ArrayForEach(x, test_array(j, NULL, key)) if (strcmp(test_str(j, x, "name"), name) == 0 &&
                                                        (!tree || strcmp(test_str(j, x, "tree"), tree) == 0)) return x;
    return NULL;
}

static bool near(double a, double b) {
    return fabs(a - b) <= 1e-9 * fmax(fabs(a), fabs(b));
}

static void check_cycles(const pl_json *j, int batch) {
    static const char *const parts[] = {"target_seconds", "verify_seconds", "take_in_seconds",
                                        "layer_seconds",  "head_seconds",   "other_seconds"};
    const cJSON             *e, *plain = pl_json_find(j, NULL, "plain");
    double                   speed = test_num(j, plain, "tokens_per_second"), best = 0;
    assert_true(near(test_num(j, plain, "target_seconds") + test_num(j, plain, "verify_seconds") +
                         test_num(j, plain, "other_seconds"),
                     test_num(j, plain, "step_seconds")));
    assert_true(near(speed, batch / test_num(j, plain, "step_seconds")));
    cJSON_ArrayForEach(e, test_array(j, NULL, "plans")) {
        double sum = 0;
        for (size_t i = 0; i < sizeof parts / sizeof *parts; i++) {
            assert_true(test_num(j, e, parts[i]) >= 0);
            sum += test_num(j, e, parts[i]);
        }
        double rho = test_num(j, e, "rho"), lambda = test_num(j, e, "lambda"), kappa = test_num(j, e, "kappa");
        assert_true(near(sum, test_num(j, e, "cycle_seconds")));
        assert_true(near(test_num(j, e, "tokens_per_second"), batch * test_num(j, e, "tau") / sum));
        assert_true(near(test_num(j, e, "speedup"), test_num(j, e, "tokens_per_second") / speed));
        assert_true(near(test_num(j, e, "slimspec_speedup"), rho * (1 + kappa) / (1 + lambda * kappa)));
        assert_true(near(test_num(j, e, "least_rho"), (1 + lambda * kappa) / (1 + kappa)));
        if (strcmp(test_str(j, e, "name"), "full") == 0) assert_true(rho == 1 && lambda == 1);
        const cJSON *h = find(j, "heads", test_str(j, e, "name"), NULL);
        assert_non_null(h);
        if (strncmp(test_str(j, h, "acceptance_from"), "assumed as", 10) != 0 &&
            test_num(j, e, "tokens_per_second") > best)
            best = test_num(j, e, "tokens_per_second");
    }
    cJSON_ArrayForEach(e, test_array(j, NULL, "heads")) {
        double core = test_num(j, e, "core_seconds"), router = test_num(j, e, "router_seconds"),
               head = test_num(j, e, "head_seconds");
        assert_true(near(test_num(j, e, "draft_step_seconds"), core + router + head));
        assert_true((router > 0) == (strcmp(test_str(j, e, "kind"), "dynaspec") == 0));
    }
    cJSON_ArrayForEach(e, test_array(j, NULL, "chains")) {
        double alpha = test_num(j, e, "alpha"), gamma = test_num(j, e, "gamma");
        assert_true(near(test_num(j, e, "omega") * (1 - alpha), 1 - pow(alpha, gamma + 1)));
        assert_true(
            near(test_num(j, e, "tokens_per_second"), batch * test_num(j, e, "tau") / test_num(j, e, "cycle_seconds")));
    }
    // The recommended head is the fastest one of known acceptance.
    if (best <= speed) {
        assert_null(pl_json_find(j, NULL, "recommended_head"));
        return;
    }
    e = find(j, "plans", test_str(j, NULL, "recommended_head"), test_str(j, NULL, "recommended_tree"));
    assert_non_null(e);
    assert_true(test_num(j, e, "tokens_per_second") == best);
}

static void test_figures(void **state) {
    (void)state;
    pl_json j;
    test_run_json(&j, "plan --target " TARGET " --seconds 0 --acceptance 0.9,0.8 --json");
    check_cycles(&j, 1);
    assert_int_equal(cJSON_GetArraySize(test_array(&j, NULL, "heads")),
                     12);                                             // full, four trimmed, four low-rank, three others
    const cJSON *chain = test_array(&j, NULL, "chains")->child->next; // gamma 2
    assert_true(near(test_num(&j, chain, "tau"), 1 + 0.9 + 0.72) && near(test_num(&j, chain, "alpha"), 1.62 / 1.9));
    pl_json_close(&j);

    test_run_json(&j, "plan --target " TARGET " --seconds 0 --heads none --batch 2 --temperature 1 --context 32 "
                      "--tree static:2x2 --json");
    check_cycles(&j, 2);
    assert_int_equal(cJSON_GetArraySize(test_array(&j, NULL, "plans")), 1);
    assert_string_equal(test_str(&j, test_array(&j, NULL, "plans")->child, "tree"), "static:2x2");
    assert_true(test_num(&j, test_array(&j, NULL, "plans")->child, "nodes") == 7);
    assert_true(test_num(&j, test_array(&j, NULL, "plans")->child, "measured_cycle_seconds") > 0);
    pl_json_close(&j);

    test_output o;
    test_run(&o, "plan --target " TARGET " --seconds 0 --heads none --tree chain:2 --quiet");
    assert_int_equal(o.code, 0);
    char *last = strstr(o.out, "\nrecommended: ");
    assert_non_null(last);
    assert_ptr_equal(strchr(last + 1, '\n'), o.out + o.out_bytes - 1);
    test_run_fini(&o);
}

static void test_measured(void **state) {
    (void)state;
    char    scratch[64], dir[128], path[160], text[1024];
    pl_json j;
    test_scratch(scratch);
    snprintf(dir, sizeof dir, "%s/drafters/small/checkpoints/best", scratch);
    test_random_drafter(dir, TARGET, "lowrank", 8);
    snprintf(path, sizeof path, "%s/results.json", scratch);
    snprintf(
        text, sizeof text,
        "{\"methods\":[{\"name\":\"plain\",\"kind\":\"plain\",\"tokens_per_second\":100},"
        "{\"name\":\"small "
        "one\",\"kind\":\"eagle3-lowrank\",\"checkpoint\":\"elsewhere/drafters/small/checkpoints/best\","
        "\"tokens_per_second\":150,\"acceptance_length\":2.5,\"tree_used\":\"chain:3\","
        "\"offered_by_rank\":[[1000,1000],[600]],\"accepted_by_rank\":[[600,100],[300]]},"
        "{\"name\":\"again\",\"checkpoint\":\"elsewhere/drafters/small/checkpoints/best\",\"tokens_per_second\":120,"
        "\"offered_by_rank\":[[1000]],\"accepted_by_rank\":[[700]]},"
        "{\"name\":\"hot\",\"temperature\":1,\"checkpoint\":\"elsewhere/drafters/small/checkpoints/best\","
        "\"acceptance_by_position\":[0.5,0.2]}]}");
    test_write(path, text);
    test_run_json(&j, "plan --target " TARGET " --results %s --heads none --seconds 0 --json", scratch);
    check_cycles(&j, 1);
    const cJSON *h = find(&j, "heads", "small one", NULL), *e = find(&j, "plans", "small one", NULL), *depth;
    assert_true(h && e && find(&j, "heads", "full", NULL));
    assert_string_equal(test_str(&j, h, "acceptance_from"), "evaluation");
    assert_int_equal(pl_json_get_array(&j, h, "acceptance_by_depth", &depth, NULL), PL_OK);
    assert_true(fabs(depth->child->valuedouble - 0.65) < 1e-3); // both trees' counts
    assert_true(test_num(&j, e, "measured_tau") == 2.5 && near(test_num(&j, e, "measured_speedup"), 1.5));
    pl_json_close(&j);
    test_run_json(&j, "plan --target " TARGET " --results %s --temperature 1 --heads none --seconds 0 --json", path);
    h = find(&j, "heads", "hot", NULL);
    assert_int_equal(pl_json_get_array(&j, h, "acceptance_by_depth", &depth, NULL), PL_OK);
    assert_true(near(depth->child->valuedouble, 0.5) && near(depth->child->next->valuedouble, 0.4));
    pl_json_close(&j);
    test_run_fails(2, "has no drafter with a checkpoint", "plan --target " TARGET " --results %s --temperature 2",
                   path);

    // Without an evaluation, acceptance is read from the training's metrics.
    snprintf(path, sizeof path, "%s/drafters/small/metrics.jsonl", scratch);
    test_write(path, "{\"step\":1,\"eval_step_accuracy\":[0.1]}\n{\"step\":2,\"loss\":1}\n"
                     "{\"step\":3,\"eval_step_accuracy\":[0.5,0.25],\"eval_step_acceptance\":[0.6]}\n{\"step\":");
    test_run_json(&j, "plan --target " TARGET " --drafter %s --heads none --seconds 0 --json", dir);
    h = find(&j, "heads", "small", NULL);
    assert_string_equal(test_str(&j, h, "acceptance_from"), "training");
    assert_int_equal(pl_json_get_array(&j, h, "acceptance_by_depth", &depth, NULL), PL_OK);
    assert_true(depth->child->valuedouble == 0.5 && depth->child->next->valuedouble == 0.25);
    pl_json_close(&j);
    // --acceptance by name has precedence.
    test_run_json(&j, "plan --target " TARGET " --drafter %s --heads none --seconds 0 --acceptance small=0.75 --json",
                  dir);
    h = find(&j, "heads", "small", NULL);
    assert_string_equal(test_str(&j, h, "acceptance_from"), "given");
    pl_json_close(&j);
    test_write(path, "{\"step\":3,\"eval_step_accuracy\":[1.5]}\n");
    test_run_fails(2, "metrics.jsonl:1: eval_step_accuracy: a share of 1.5", "plan --target " TARGET " --drafter %s",
                   dir);

    static const char *const bad[][2] = {
        {"", "results.json:1:1: not JSON"},
        {"{}", "methods: missing; expected an array"},
        {"{\"methods\":[1]}", "methods[0]: expected an object"},
        {"{\"methods\":[{}]}", "methods[0].name: missing"},
        {"{\"methods\":[{\"name\":\"a\",\"checkpoint\":3}]}", "methods[0].checkpoint: expected a string"},
        {"{\"methods\":[{\"name\":\"a\",\"checkpoint\":\"x\",\"offered_by_rank\":[[2,1]],\"accepted_by_rank\":[[1]]}]}",
         "differ in length: 1 and 2"},
        {"{\"methods\":[{\"name\":\"a\",\"checkpoint\":\"x\",\"offered_by_rank\":[[2]],\"accepted_by_rank\":[[3]]}]}",
         "3 accepted of 2 offered"},
        {"{\"methods\":[{\"name\":\"a\",\"checkpoint\":\"x\",\"acceptance_by_position\":[2]}]}", "a share of 2"},
        {"{\"methods\":[{\"name\":\"a\",\"checkpoint\":\"x\",\"acceptance_by_position\":7}]}", "expected an array"},
        {"{\"methods\":[{\"name\":\"plain\",\"kind\":\"plain\"}]}", "has no drafter with a checkpoint"}};
    snprintf(path, sizeof path, "%s/results.json", scratch);
    for (size_t i = 0; i < sizeof bad / sizeof *bad; i++) {
        test_write(path, bad[i][0]);
        test_run_fails(2, bad[i][1], "plan --target " TARGET " --results %s", scratch);
    }
    test_scratch_remove(scratch);
}

static void test_usage(void **state) {
    (void)state;
    static const char *const bad[][2] = {
        {"", "--target: is missing"},
        {"--target nowhere", "nowhere"},
        {"--target " TARGET " --drafter nowhere", "nowhere"},
        {"--target " TARGET " --drafter lookup", "has no head to plan"},
        {"--target " TARGET " --results nowhere", "nowhere"},
        {"--target " TARGET " --tree eagle2:60,10,6", "its shape depends on what is drafted"},
        {"--target " TARGET " --tree chain:40", "at most 64 nodes, 16 levels"},
        {"--target " TARGET " --tree bush:3", "bush"},
        {"--target " TARGET " --acceptance 0.5,1.5", "shares from 0 to 1"},
        {"--target " TARGET " --acceptance 0.5;0.4", "expected a comma"},
        {"--target " TARGET " --acceptance ''", "shares from 0 to 1"},
        {"--target " TARGET " --acceptance nobody=0.5", "no head of that name"},
        {"--target " TARGET " --assume nan", "shares from 0 to 1"},
        {"--target " TARGET " --batch 0", "from 1 to 64, found 0"},
        {"--target " TARGET " --context 100000", "positions"},
        {"--target " TARGET " --heads some", "one of all, none"},
        {"--target " TARGET " --temperature -1", "from 0 to 1000, found -1"}};
    for (size_t i = 0; i < sizeof bad / sizeof *bad; i++)
        test_run_fails(2, bad[i][1], "plan %s", bad[i][0]);
}

int main(void) {
    const struct CMUnitTest tests[] = {cmocka_unit_test(test_figures), cmocka_unit_test(test_measured),
                                       cmocka_unit_test(test_usage)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
