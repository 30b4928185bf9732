// --tensor-parallel through the program: a target over two processes gives the answers, datasets, drafters and
// measurements that it gives in one; refusals.
#include "kernels/base/arena.h"
#include "kernels/base/files.h"
#include "program.h"
#include "random_drafter.h"
#include "tests/port.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cmocka.h>

#define TARGET PACELINE_SOURCE_DIR "/checkpoints/tiny"
#define PROMPT "--prompt-ids 1,5460,730,262,584 --max-new-tokens 24 "
#define MOST 64

static char base[64];

static int setup(void **state) {
    (void)state;
    char recipe[1600], head[96];
    test_scratch(base);
    snprintf(head, sizeof head, "%s/head", base);
    test_random_drafter(head, TARGET, "lowrank", 8);
    snprintf(recipe, sizeof recipe,
             "target: {path: " TARGET "}\n"
             "data: {prompts: %s/p.jsonl, max_new_tokens: 16, samples: 1, sessions: 4}\n"
             "train: {steps: 3, slots: 1, slot_rows: 48, unroll: 2, eval_every: 3, warmup: 1, holdout: 2}\n"
             "eval: {prompts: %s/p.jsonl, max_new_tokens: 16, seeds: 1, temperatures: [0, 1], plain_fp32: false, "
             "drafters: [{name: head, path: %s, tree: 'chain:3'}, {kind: 'recycle:8', tree: 'chain:2'}]}\n",
             base, base, head);
    test_put(base, "r.yaml", recipe);
    test_put(base, "p.jsonl",
             "{\"prompt\":\"Once upon a time\"}\n{\"prompt\":\"The dog was sad because\"}\n{\"prompt\":\"One day\"}\n");
    test_put(base, "t.yaml", "kind: target\ndata: {text: /dev/null}\ntrain: {steps: 1}\n");
    return 0;
}

static int teardown(void **state) {
    (void)state;
    test_scratch_remove(base);
    return 0;
}

static int decoded(int32_t ids[MOST], const char *options) {
    pl_json j;
    test_run_json(&j, "decode --target " TARGET " " PROMPT " --json --quiet --threads 2 %s", options);
    int n = test_ids(&j, "tokens", ids, MOST);
    if (strstr(options, "--tensor-parallel")) {
        const cJSON *ranks = test_array(&j, NULL, "tensor_parallel"), *r;
        assert_int_equal(cJSON_GetArraySize(ranks), 2);
        cJSON_ArrayForEach(r, ranks) {
            assert_true(test_num(&j, r, "sent_bytes") > 0);
            assert_true(test_num(&j, r, "peak_memory_bytes") > 0);
        }
    }
    pl_json_close(&j);
    return n;
}

static void answers(void **state) {
    static const char *const ways[] = {"", "--temperature 1", "--drafter recycle:8",
                                       "--drafter %s/head --tree eagle2:4,3,12",
                                       "--drafter %s/head --temperature 0.7 --tree chain:3 --verify block"};
    (void)state;
    for (size_t i = 0; i < sizeof ways / sizeof *ways; i++) {
        char        options[200], two[240];
        int32_t     a[MOST], b[MOST];
        const char *head = strstr(ways[i], "%s");
        snprintf(options, sizeof options, "%.*s%s%s", head ? (int)(head - ways[i]) : (int)strlen(ways[i]), ways[i],
                 head ? base : "", head ? head + 2 : "");
        snprintf(two, sizeof two, "%s --tensor-parallel 2", options);
        int n = decoded(a, options);
        assert_int_equal(n, decoded(b, two));
        assert_memory_equal(a, b, (size_t)n * sizeof *a);
    }
}

// Rank 1 of two over TCP, with a target of its own.
static pid_t start_other(const char *target, int port) {
    char address[32];
    snprintf(address, sizeof address, "127.0.0.1:%d", port);
    fflush(NULL);
    pid_t other = fork();
    assert_true(other >= 0);
    if (other > 0) return other;
    if (!freopen("/dev/null", "w", stderr)) _exit(127);
    execl(PACELINE_PROGRAM, PACELINE_PROGRAM, "decode", "--target", target, "--prompt-ids", "1,5460,730,262,584",
          "--max-new-tokens", "24", "--device", "cpu", "--tensor-parallel", "2", "--rank", "1", "--world", "2",
          "--address", address, (char *)NULL);
    _exit(127);
}

// Each started by itself, over TCP: rank 0 alone has an answer to give.
static void launched(void **state) {
    (void)state;
    char    more[160];
    int     port = test_free_port(), how;
    int32_t a[MOST], b[MOST];
    pid_t   other = start_other(TARGET, port);
    snprintf(more, sizeof more, "--tensor-parallel 2 --rank 0 --world 2 --address 127.0.0.1:%d", port);
    int n = decoded(b, more);
    assert_int_equal(waitpid(other, &how, 0), other);
    assert_true(WIFEXITED(how) && WEXITSTATUS(how) == 0);
    assert_int_equal(n, decoded(a, ""));
    assert_memory_equal(a, b, (size_t)n * sizeof *a);
}

// A follower opens its own target and no other, whatever rank 0 leads.
static void own_targets(void **state) {
    (void)state;
    char path[96];
    int  how, port = test_free_port();
    snprintf(path, sizeof path, "%s/p.jsonl", base); // no target
    pid_t other = start_other(path, port);
    test_run_fails(2, "/p.jsonl",
                   "decode --target " TARGET " " PROMPT "--quiet --threads 2 --tensor-parallel 2 --rank 0 --world 2 "
                   "--address 127.0.0.1:%d",
                   port);
    assert_int_equal(waitpid(other, &how, 0), other);
    assert_true(WIFEXITED(how) && WEXITSTATUS(how) == 2);
}

static void stage(const char *verb, const char *out, const char *options) {
    test_output o;
    test_run(&o, "%s %s/r.yaml --out %s/%s --quiet --threads 2 %s", verb, base, base, out, options);
    if (o.code != 0) fail_msg("%s %s: exit code %d: %s", verb, options, o.code, o.err);
    test_run_fini(&o);
}

static void same_file(const char *a, const char *b, const char *name) {
    char     path[200];
    uint8_t *data[2];
    size_t   n[2];
    for (int i = 0; i < 2; i++) {
        snprintf(path, sizeof path, "%s/%s/%s", base, i ? b : a, name);
        if (pl_file_read(path, &data[i], &n[i], 1 << 28, NULL) != PL_OK) fail_msg("%s is not there", path);
    }
    assert_int_equal(n[0], n[1]);
    assert_memory_equal(data[0], data[1], n[0]);
    pl_free(data[0]), pl_free(data[1]);
}

static void datasets_and_drafters(void **state) {
    (void)state;
    char command[256];
    stage("generate", "g1", "");
    stage("generate", "g2", "--tensor-parallel 2");
    snprintf(command, sizeof command, "diff -r %s/g1/dataset %s/g2/dataset", base, base);
    assert_int_equal(system(command), 0);
    stage("train", "t1", "--set data.mode=online");
    stage("train", "t2", "--set data.mode=online --tensor-parallel 2");
    same_file("t1", "t2", "checkpoints/last/training_state");
    same_file("t1", "t2", "checkpoints/last/model.safetensors");
}

// Two groups of two: ranks that share the work, each with a target over two processes; and a drafter that answers itself.
static void groups(void **state) {
    (void)state;
    char              command[256], own[320];
    const char *const cut = "--set data.rows_per_shard=40 --set train.slots=2 ";
    const char *const ways[] = {"--tensor-parallel 2", "--ranks 2 --tensor-parallel 2"};
    snprintf(command, sizeof command, "%s--set data.mode=online", cut);
    stage("generate", "h1", cut);
    stage("train", "s1", command);
    snprintf(own, sizeof own,
             "%s--set train.unroll=0 --set drafter.kind=lm --set drafter.start=" TARGET
             " --set train.on_policy.share=0.6 --set data.dataset=%s/h1/dataset ",
             cut, base);
    stage("train", "o1", own);
    for (int i = 0; i < 2; i++) {
        char name[3][8], options[400];
        for (int k = 0; k < 3; k++)
            snprintf(name[k], sizeof name[k], "%c%d", "hso"[k], i + 2);
        snprintf(options, sizeof options, "%s%s", cut, ways[i]);
        stage("generate", name[0], options);
        snprintf(options, sizeof options, "diff -r %s/h1/dataset %s/%s/dataset", base, base, name[0]);
        assert_int_equal(system(options), 0);
        snprintf(options, sizeof options, "%s %s", command, ways[i]);
        stage("train", name[1], options);
        same_file("s1", name[1], "checkpoints/last/training_state");
        snprintf(options, sizeof options, "%s%s", own, ways[i]);
        stage("train", name[2], options);
        same_file("o1", name[2], "checkpoints/last/training_state");
    }
}

static void measurements(void **state) {
    (void)state;
    char    path[160];
    pl_json j[2];
    pl_err  err = {0};
    stage("eval", "e1", "");
    stage("eval", "e2", "--tensor-parallel 2");
    for (int i = 0; i < 2; i++) {
        snprintf(path, sizeof path, "%s/e%d/results.json", base, i + 1);
        if (pl_json_open(&j[i], path, 1 << 24, 0, &err) != PL_OK) fail_msg("%s", err.msg);
    }
    static const char *const same[] = {"acceptance_length", "drafted", "accepted_over_drafted"};
    const cJSON             *m[2] = {test_array(&j[0], NULL, "methods"), test_array(&j[1], NULL, "methods")};
    int                      n = cJSON_GetArraySize(m[0]);
    assert_true(n == 6 && cJSON_GetArraySize(m[1]) == 6);
    for (int i = 0; i < n; i++)
        for (size_t k = 0; k < sizeof same / sizeof *same; k++) {
            const cJSON *a = cJSON_GetObjectItemCaseSensitive(cJSON_GetArrayItem(m[0], i), same[k]);
            const cJSON *b = cJSON_GetObjectItemCaseSensitive(cJSON_GetArrayItem(m[1], i), same[k]);
            if (!cJSON_Compare(a, b, true)) fail_msg("method %d: %s differs", i, same[k]);
        }
    const cJSON *machine = cJSON_GetObjectItemCaseSensitive(j[1].root, "machine");
    assert_int_equal((int)test_num(&j[1], machine, "tensor_parallel"), 2);
    pl_json_close(&j[0]);
    pl_json_close(&j[1]);
}

static void refusals(void **state) {
    (void)state;
#define DECODE "decode --target " TARGET " " PROMPT "--quiet "
    test_run_fails(2, "--tensor-parallel: expected an integer from 1 to 512, found 0", DECODE "--tensor-parallel 0");
    test_run_fails(2, "--tensor-parallel 4: the target's 2 key/value heads do not divide by it",
                   DECODE "--tensor-parallel 4");
    test_run_fails(2, "--transport: there is one process", DECODE "--transport host");
    test_run_fails(2, "decode: is one process's work, and options started 2",
                   DECODE "--rank 0 --world 2 --address 127.0.0.1:1");
    test_run_fails(2, "--tensor-parallel 2: options has started 3 processes",
                   DECODE "--tensor-parallel 2 --rank 0 --world 3 --address 127.0.0.1:1");
    test_run_fails(2, "one GPU for 2 ranks", DECODE "--tensor-parallel 2 --device cuda:0");
    test_run_fails(2, "over which the target is to lie; give --tensor-parallel 4",
                   "train %s/r.yaml --out %s/bad --quiet --ranks 2 --tensor-parallel 2 --rank 0 --world 4 "
                   "--address 127.0.0.1:1",
                   base, base);
    test_run_fails(1, "a target is trained whole", "train %s/t.yaml --out %s/bad --quiet --tensor-parallel 2", base,
                   base);
    test_run_fails(2, "--tensor-parallel: unknown option", "inspect " TARGET " --tensor-parallel 2");
#undef DECODE
}

int main(void) {
    const struct CMUnitTest tests[] = {cmocka_unit_test(answers),     cmocka_unit_test(launched),
                                       cmocka_unit_test(own_targets), cmocka_unit_test(datasets_and_drafters),
                                       cmocka_unit_test(groups),      cmocka_unit_test(measurements),
                                       cmocka_unit_test(refusals)};
    return cmocka_run_group_tests(tests, setup, teardown);
}
