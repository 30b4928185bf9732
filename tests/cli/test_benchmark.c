// eval.benchmark and eval.batches: from a benchmark's file to figures, samples and the table of examples.
#include "kernels/base/arena.h"
#include "kernels/base/files.h"
#include "program.h"

#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#define TARGET PACELINE_SOURCE_DIR "/checkpoints/tiny"

static char scratch[64];

static int setup(void **state) {
    (void)state;
    char recipe[800], path[160];
    test_scratch(scratch);
    snprintf(recipe, sizeof recipe,
             "target: {path: %s}\neval:\n  benchmark: gsm8k\n  benchmark_data: %s/data\n  max_new_tokens: 24\n"
             "  plain_fp32: false\n  drafters:\n    - {kind: lookup, tree: 'chain:3'}\n"
             "    - {kind: recycle, tree: 'chain:2'}\n",
             TARGET, scratch);
    test_put(scratch, "e.yaml", recipe);
    for (int i = 0; i < 3; i++) {
        static const char *const folders[] = {"data", "data/gsm8k", "data/humaneval"};
        snprintf(path, sizeof path, "%s/%s", scratch, folders[i]);
        assert_int_equal(pl_dir_make(path, NULL), PL_OK);
    }
    test_put(scratch, "data/gsm8k/test.jsonl",
             "{\"question\": \"One and one?\", \"answer\": \"#### 2\"}\n{\"question\": "
             "\"Nothing?\", \"answer\": \"#### 0\"}\n"
             "{\"question\": \"How many days?\", \"answer\": \"#### 7\"}\n"
             "{\"question\": \"And then, 5 times?\", \"answer\": \"#### 5\"}\n"
             "{\"question\": \"Who?\", \"answer\": \"#### 1\"}\n");
    test_put(scratch, "data/humaneval/HumanEval.jsonl",
             "{\"task_id\": \"HumanEval/3\", \"prompt\": \"def f():\\n\"}\n"
             "{\"task_id\": \"HumanEval/9\", \"prompt\": \"def g(x):\\n\"}\n");
    return 0;
}

static int teardown(void **state) {
    (void)state;
    test_scratch_remove(scratch);
    return 0;
}

static const cJSON *batch_of(const pl_json *j, const char *name, int sessions) {
    const cJSON *b;
    cJSON_ArrayForEach(b, test_array(j, NULL, "batched")) {
        if (strcmp(test_str(j, b, "name"), name) == 0 && (int)test_num(j, b, "batch") == sessions) return b;
    }
    fail_msg("no batch of %d by %s", sessions, name);
    return NULL;
}

// So many at a time, at both temperatures: the answers of one at a time, and figures that follow from each other.
static void batches(void **state) {
    (void)state;
    static const char *const names[] = {"plain", "lookup", "recycle", "plain@T=1", "lookup@T=1", "recycle@T=1"};
    pl_json                  j;
    test_run_json(&j,
                  "eval %s/e.yaml --out %s/run --json --quiet --threads 2 --set eval.batches=[2,3,8] "
                  "--set eval.temperatures=[0,1] --set eval.seeds=2 --set eval.repeats=2",
                  scratch, scratch);
    assert_int_equal(cJSON_GetArraySize(test_array(&j, NULL, "batched")), 18);
    for (int m = 0; m < 6; m++)
        for (int k = 0; k < 3; k++) {
            const cJSON *b = batch_of(&j, names[m], (int[]){2, 3, 8}[k]);
            const cJSON *plain = batch_of(&j, m < 3 ? "plain" : "plain@T=1", (int[]){2, 3, 8}[k]);
            double       speed = test_num(&j, b, "tokens_per_second");
            assert_true(cJSON_IsTrue(cJSON_GetObjectItem(b, "identical_outputs")));
            assert_true(test_num(&j, b, "different_outputs") == 0);
            assert_true(fabs(speed - test_num(&j, b, "tokens") / test_num(&j, b, "seconds")) <= 1e-9 * speed);
            assert_true(fabs(test_num(&j, b, "speedup") - speed / test_num(&j, plain, "tokens_per_second")) < 1e-9);
            assert_true(test_num(&j, b, "tokens") == test_num(&j, plain, "tokens"));
            assert_true(m % 3 == 0 ? test_num(&j, b, "acceptance_length") == 1
                                   : test_num(&j, b, "acceptance_length") >= 1);
            assert_true(test_num(&j, cJSON_GetObjectItem(b, "tpot_seconds"), "p50") > 0);
            assert_true(test_num(&j, cJSON_GetObjectItem(b, "ttft_seconds"), "p99") > 0);
        }
    pl_json_close(&j);
}

// Answers are scored alike for methods that answer alike; the count is that of a reference computation over the table.
static void figures(void **state) {
    (void)state;
    pl_json      j;
    const cJSON *m;
    char        *text, *line, *rest = NULL;
    int          n = 0;
    test_run_json(&j, "eval %s/e.yaml --out %s/run --json --quiet --threads 2", scratch, scratch);
    cJSON_ArrayForEach(m, test_array(&j, NULL, "methods")) {
        assert_true(test_num(&j, m, "scored") == 5);
        assert_true(test_num(&j, m, "correct") == test_num(&j, test_array(&j, NULL, "methods")->child, "correct"));
        assert_true(fabs(test_num(&j, m, "accuracy") - test_num(&j, m, "correct") / 5) < 1e-12);
    }
    assert_string_equal(test_str(&j, pl_json_find(&j, NULL, "settings"), "prompts"), "gsm8k");
    // A line an answer, in hf-bench's columns.
    double tokens[3] = {0}, seconds[3] = {0};
    text = test_get(scratch, "run/examples.csv");
    line = strtok_r(text, "\n", &rest);
    assert_string_equal(line, "target,dataset_path,dataset_name,dataset_split,num_of_examples,drafter,temperature,"
                              "example_id,new_toks,ttft_ms,tpot_ms,out_toks_per_sec");
    for (; (line = strtok_r(NULL, "\n", &rest)) != NULL; n++) {
        char   who[32];
        int    id, toks;
        double ttft, tpot, speed;
        assert_int_equal(sscanf(line, TARGET ",gsm8k,gsm8k,gsm8k,5,%31[^,],0,%d,%d,%lf,%lf,%lf", who, &id, &toks, &ttft,
                                &tpot, &speed),
                         6);
        assert_string_equal(who, n / 5 == 0 ? "None" : n / 5 == 1 ? "lookup" : "recycle");
        assert_int_equal(id, n % 5);
        assert_true(ttft > 0 && fabs(speed - 1000 / tpot) < 0.01 * speed);
        tokens[n / 5] += toks - 1;
        seconds[n / 5] += tpot * (toks - 1) / 1000;
    }
    pl_free(text);
    assert_int_equal(n, 15);
    n = 0;
    cJSON_ArrayForEach(m, test_array(&j, NULL, "methods")) {
        assert_true(tokens[n] == test_num(&j, m, "tokens"));
        assert_true(fabs(seconds[n] - test_num(&j, m, "seconds")) < 1e-3 * seconds[n]);
        n++;
    }
    pl_json_close(&j);
}

static void samples(void **state) {
    (void)state;
    pl_json j;
    char   *of[3];
    test_run_json(&j, "eval %s/e.yaml --out %s/run --json --quiet --threads 2 --set eval.benchmark=humaneval", scratch,
                  scratch);
    pl_json_close(&j);
    of[0] = test_get(scratch, "run/samples/plain.jsonl");
    of[1] = test_get(scratch, "run/samples/lookup.jsonl");
    of[2] = test_get(scratch, "run/samples/recycle.jsonl");
    assert_true(strncmp(of[0], "{\"task_id\":\"HumanEval/3\",\"completion\":\"", 39) == 0);
    assert_non_null(strstr(of[0], "\n{\"task_id\":\"HumanEval/9\",\"completion\":\""));
    for (int i = 1; i < 3; i++)
        assert_string_equal(of[i], of[0]);
    for (int i = 0; i < 3; i++)
        pl_free(of[i]);
    // The next evaluation into the same folder leaves none of them there.
    test_run_json(&j, "eval %s/e.yaml --out %s/run --json --quiet --threads 2 --set eval.limit=1", scratch, scratch);
    pl_json_close(&j);
    char path[160];
    snprintf(path, sizeof path, "%s/run/samples", scratch);
    assert_false(pl_path_exists(path));
}

static void printed(void **state) {
    (void)state;
    test_output o;
    test_run(&o, "eval %s/e.yaml --out %s/run --quiet --threads 2 --set eval.batches=[4]", scratch, scratch);
    if (o.code != 0) fail_msg("%s", o.err);
    assert_non_null(strstr(o.out, "acceptance length           total    steps  prompts    turns  accepted only"));
    assert_non_null(strstr(o.out, "answers                    scored    right  accuracy"));
    assert_non_null(strstr(o.out, "many at a time            batch   tokens/s speed-up"));
    test_run_fini(&o);
}

static void refused(void **state) {
    (void)state;
    pl_json j;
#define RUN "eval %s/e.yaml --out %s/bad --quiet --set "
    test_run_fails(2, "known: spec-bench, mt-bench, humaneval", RUN "eval.benchmark=gsm9", scratch, scratch);
    test_run_fails(2, "mt_bench/question.jsonl: is missing; put it there from https://github.com/lm-sys/FastChat",
                   RUN "eval.benchmark=mt-bench", scratch, scratch);
    test_run_fails(2, "eval.max_new_tokens=1: 1 leaves nothing to time", RUN "eval.max_new_tokens=1", scratch, scratch);
    // 2,048 tokens, GSM8K's own, are all that the target's context holds.
    test_run_fails(2, "2048", RUN "eval.max_new_tokens=0", scratch, scratch);
    test_run_fails(2, "eval.batches", RUN "eval.batches=[1]", scratch, scratch);
    test_put(scratch, "no.yaml", "target: {path: " TARGET "}\neval: {benchmark: gsm8k}\n");
    unsetenv("PACELINE_BENCHMARKS");
    test_run_fails(2, "name that in eval.benchmark_data or PACELINE_BENCHMARKS", "eval %s/no.yaml --out %s/bad --quiet",
                   scratch, scratch);
    test_put(scratch, "no.yaml", "target: {path: " TARGET "}\neval: {prompts: p, benchmark_data: x}\n");
    test_run_fails(2, "needs eval.benchmark", "eval %s/no.yaml --out %s/bad --quiet", scratch, scratch);
    // A file of one's own is no benchmark's, and asked as it stands; and the variable names the folder.
    test_put(scratch, "own.jsonl", "{\"prompt\": \"The end of\"}\n");
    test_run_json(&j, RUN "eval.benchmark=%s/own.jsonl --json", scratch, scratch, scratch);
    assert_true(test_num(&j, pl_json_find(&j, NULL, "settings"), "n_prompts") == 1);
    assert_true(test_num(&j, test_array(&j, NULL, "methods")->child, "scored") == 0);
    pl_json_close(&j);
    test_put(scratch, "no.yaml", "target: {path: " TARGET "}\neval: {benchmark: gsm8k, limit: 1, max_new_tokens: 8}\n");
    char data[128];
    snprintf(data, sizeof data, "%s/data", scratch);
    setenv("PACELINE_BENCHMARKS", data, 1);
    test_run_json(&j, "eval %s/no.yaml --out %s/bad --quiet --json", scratch, scratch);
    pl_json_close(&j);
}

// What an evaluation will refuse is refused before anything is generated or trained for it.
static void checked_first(void **state) {
    (void)state;
    static const struct {
        const char *item, *set, *says;
    } cases[] = {
        {"{drafter: d, verify: rejection, tree: 'static:2x1'}", "eval.limit=1",
         "takes chains, not the tree \"static\""},
        {"{drafter: d, verify: recursive-wor, tree: 'eagle2:8,2,2'}", "eval.limit=1", "take a chain or a static tree"},
        {"{drafter: d, verify: rejection}", "eval.tree=eagle2:8,2,2",
         "verify: verifier \"rejection\" draws its children"},
        {"{kind: recycle, verify: rejection, tree: 'static:2x1'}", "eval.limit=1", "takes chains"},
        {"{drafter: d, verify: nobody}", "eval.limit=1", "nobody"},
        {"{drafter: d}", "eval.verify=nobody", "nobody"},
        {"{drafter: d, tree: 'static:2x1'}", "eval.verify=rejection", "takes chains"},
        {"{kind: recycle, verify: recursive-wor, tree: 'static:2x1'}", "eval.limit=1",
         "verify: drafter \"recycle\" drafts without probabilities, which \"recursive-wor\" needs: take match"},
        {"{kind: 'hybrid:suffix+lookup', verify: rejection}", "eval.limit=1", "drafts without probabilities"},
        {"{kind: 'hybrid:suffix', verify: rejection}", "eval.limit=1", "drafts without probabilities"},
        {"{kind: 'union:x', verify: transport, tree: 'chain:2'}", "eval.limit=1", "does not draw as verifier"},
        {"{kind: recycle, verify: rejection}", "eval.limit=1", "recycle"},
        {"{kind: lookup, tree: 'static:2x1'}", "eval.limit=1", "drafts chains, not the tree \"static:2x1\""},
        {"{drafter: d, tree: 'bush:3'}", "eval.limit=1", "bush"},
        {"{drafter: d}", "eval.temperatures=[0,1e-7]",
         "eval.temperatures=[0,1e-7]: 1e-07 is too cold; take 0 (greedy), or at least 1e-06"},
        {"{drafter: d}", "eval.temperatures=[0,1,0]", "0 stands twice"},
        {"{drafter: d}", "eval.temperatures=[]", "is empty"},
        {"{drafter: d, verify: rejection}", "eval.benchmark=mt-bench", "mt_bench/question.jsonl: is missing"},
    };
    char recipe[800], path[160];
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        snprintf(
            recipe, sizeof recipe,
            "kind: drafter\ntarget: {path: %s}\ndata: {prompts: %s/p.jsonl}\ndrafters:\n  - {name: d, head: {kind: "
            "full}}\neval:\n  prompts: %s/p.jsonl\n  benchmark: gsm8k\n  benchmark_data: %s/data\n  drafters:\n"
            "    - %s\n",
            TARGET, scratch, scratch, scratch, cases[i].item);
        test_put(scratch, "first.yaml", recipe);
        test_put(scratch, "p.jsonl", "{\"prompt\": \"The end of\"}\n");
        test_run_fails(2, cases[i].says, "run %s/first.yaml --out %s/first --quiet --set %s", scratch, scratch,
                       cases[i].set);
        snprintf(path, sizeof path, "%s/first/dataset", scratch);
        assert_false(pl_path_exists(path));
    }
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(batches), cmocka_unit_test(figures), cmocka_unit_test(samples),
        cmocka_unit_test(printed), cmocka_unit_test(refused), cmocka_unit_test(checked_first),
    };
    return cmocka_run_group_tests(tests, setup, teardown);
}
