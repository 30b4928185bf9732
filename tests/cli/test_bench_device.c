// `paceline bench` on a device (the emulated one: every case runs, its figures mean nothing) and of models by shape.
#include "program.h"

#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>
#include <unistd.h>

#include <cmocka.h>

// An array of so many rows, each of which took time and has a floor.
static const cJSON *rows(const pl_json *j, const char *key, int n) {
    const cJSON *a = test_array(j, NULL, key), *x;
    if (cJSON_GetArraySize(a) != n) fail_msg("%s: %d rows, not %d", key, cJSON_GetArraySize(a), n);
    cJSON_ArrayForEach(x, a) assert_true(test_num(j, x, "seconds") > 0 && test_num(j, x, "floor_seconds") > 0);
    return a;
}

static void whole(const pl_json *j) {
    assert_null(pl_json_find(j, NULL, "left_out"));
    assert_string_equal(test_str(j, pl_json_find(j, NULL, "machine"), "backend"), "emulated");
    assert_true(test_num(j, NULL, "copy_bytes_per_second") > 0);
}

static void kernels(void **state) {
    (void)state;
    pl_json      j;
    const cJSON *x;
    test_run_json(&j, "bench bandwidth linear train heads --json --quiet --device emulated --max-mb 1 --vocab 512 "
                      "--hidden 64 --ranks 8 --weights bf16 --seq-len 8");
    whole(&j);
    rows(&j, "linear", 10); // bf16, fp32 by 1, 8, 16, 32, 60 rows; 4096 x 4096 is above --max-mb
    cJSON_ArrayForEach(x, rows(&j, "train", 4)) assert_true(test_num(&j, x, "flops_per_second") > 0);
    cJSON_ArrayForEach(x, rows(&j, "heads", 12)) // full, 4 trimmed, low-rank, 2 specvocab, 4 dynaspec
        if (strcmp(test_str(&j, x, "kind"), "lowrank") == 0)
            assert_true(test_num(&j, x, "bytes") == 2 * 8 * (512 + 64));
    rows(&j, "routed_reads", 4); // spans and listed, 1 row and 10
    pl_json_close(&j);
    test_run_json(&j, "bench attention --json --quiet --device emulated --max-mb 2 --hidden 512");
    whole(&j);
    rows(&j, "attention", 6); // 1, 8, 60 rows over 128 and 1024 keys; 8192 keys are above --max-mb
    pl_json_close(&j);
    test_run_json(&j, "bench draw --json --quiet --device emulated --max-mb 1 --vocab 300");
    whole(&j);
    cJSON_ArrayForEach(x, rows(&j, "draw", 6)) // 1, 8, 60 rows, without and with filters
        assert_true(test_num(&j, x, "bytes") == 4 * 300 * test_num(&j, x, "rows"));
    pl_json_close(&j);
}

static void decoding(void **state) {
    (void)state;
    pl_json      j;
    const cJSON *x;
    test_run_json(&j, "bench decode --json --quiet --device emulated --max-mb 1 --target " PACELINE_SOURCE_DIR
                      "/checkpoints/tiny --context 3 --new-tokens 2 --repeats 1");
    whole(&j);
    const cJSON *a = pl_json_find(&j, NULL, "decode");
    assert_int_equal(cJSON_GetArraySize(a), 2);
    cJSON_ArrayForEach(x, a)
        assert_true(test_num(&j, x, "tokens_per_second") > 0 && test_num(&j, x, "share_of_floor") > 0);
    pl_json_close(&j);
    static const char *const held[] = {"bf16", "fp32"};
    for (int i = 0; i < 2; i++) {
        char args[512];
        snprintf(args, sizeof args,
                 "bench decode --json --quiet --target " PACELINE_SOURCE_DIR
                 "/checkpoints/tiny --context 3 --new-tokens 2 --repeats 1 --weights %s --drafter lookup --tree "
                 "chain:2",
                 held[i]);
        test_run_json(&j, args);
        a = pl_json_find(&j, NULL, "decode");
        assert_int_equal(cJSON_GetArraySize(a), 2);
        cJSON_ArrayForEach(x, a) // plain and the drafter
            assert_string_equal(test_str(&j, x, "weights"), held[i]);
        rows(&j, "verify", 7);
        pl_json_close(&j);
    }
}

static void check_shape(const pl_json *j, int layers) {
    const cJSON *x, *model = pl_json_find(j, NULL, "model");
    int          n = 0;
    double       floor = 0;
    assert_null(pl_json_find(j, NULL, "left_out"));
    assert_true(test_num(j, model, "layers") == layers);
    // Embedding and output matrix; a layer of attention (64 x 128 and 64 x 64) and MLP (3 x 64 x 96) in bf16, norms and
    // biases in fp32.
    double head = 2 * 640 * 64, layer = 2 * (64 * 192 + 3 * 64 * 96) + 4 * (2 * 64 + 128);
    assert_true(test_num(j, model, "weights_bytes") == head + 2 * 600 * 64 + layers * layer + 4 * 64);
    double step = head + layers * layer + 4 * 64, kv = layers * 2.0 * 32 * test_num(j, model, "context");
    assert_true(test_num(j, model, "step_bytes") >= step + 2 * kv && test_num(j, model, "step_bytes") <= step + 4 * kv);
    x = rows(j, "plain", 1)->child;
    assert_true(fabs(test_num(j, x, "tokens_per_second") * test_num(j, x, "seconds") - 1) < 1e-9);
    assert_true(test_num(j, x, "goal") == 0.85 && test_num(j, x, "reached") > 0);
    cJSON_ArrayForEach(x, rows(j, "verify", 7)) {
        static const int verified[] = {1, 2, 4, 8, 16, 32, 60};
        double           least = test_num(j, x, "floor_seconds");
        assert_true(test_num(j, x, "rows") == verified[n++] && least >= floor);
        floor = least;
        if (n > 1) assert_true(test_num(j, x, "goal") == 1.15);
    }
    cJSON_ArrayForEach(x, rows(j, "draft", 8)) {
        assert_true(test_num(j, x, "goal") == 1.3);
        assert_true(test_num(j, x, "layer_seconds") > 0 && test_num(j, x, "head_seconds") > 0);
        if (strcmp(test_str(j, x, "head"), "frspec-150") == 0) head = 2 * 150 * 64;
        if (strcmp(test_str(j, x, "head"), "slimspec-d/8") == 0) head = 2 * 8 * (600 + 64);
        if (strncmp(test_str(j, x, "head"), "dynaspec", 8) != 0) assert_true(test_num(j, x, "bytes") > head);
    }
    cJSON_ArrayForEach(x, rows(j, "cycle", 8)) {
        double at = test_num(j, x, "at_tau");
        assert_true(at == (strcmp(test_str(j, x, "tree"), "chain:7") == 0 ? 3.91 : 3.89));
        assert_true(fabs(test_num(j, x, "tokens_per_second") * test_num(j, x, "seconds") / at - 1) < 1e-9);
        assert_true(test_num(j, x, "measured_tau") >= 1);
        assert_string_equal(test_str(j, x, "met"), "-"); // the goal is another model's
    }
    const cJSON *parts = pl_json_find(j, NULL, "parts");
    assert_int_equal(cJSON_GetArraySize(parts), 9); // the last row is FR-Spec's own
    cJSON_ArrayForEach(x, parts) {
        double sum = test_num(j, x, "layer") + test_num(j, x, "head_product") + test_num(j, x, "softmax_topk") +
                     test_num(j, x, "rest");
        assert_true(fabs(sum - 1) < 1e-9);
    }
}

static void shapes(void **state) {
    (void)state;
    pl_json j;
    test_run_json(&j, "bench decode --json --quiet --shape tiny --context 8 --new-tokens 2 --repeats 1 --threads 1");
    check_shape(&j, 2);
    pl_json_close(&j);
    test_run_json(&j, "bench decode --json --quiet --shape tiny --layers 1 --context 8 --new-tokens 2 --repeats 1 "
                      "--device emulated --max-mb 1");
    check_shape(&j, 1);
    whole(&j);
    pl_json_close(&j);
}

// A block drafter beside them, in the decode loop alone.
static void blocks(void **state) {
    (void)state;
    static const char *const names[] = {"dflash", "dspark", "dflash2"};
    pl_json                  j;
    for (int i = 0; i < 3; i++) {
        test_run_json(&j,
                      "bench decode --json --quiet --shape tiny --context 8 --new-tokens 2 --repeats 1 --threads 1 "
                      "--drafter %s",
                      names[i]);
        const cJSON *cycle = pl_json_find(&j, NULL, "cycle"), *last = cycle->child;
        while (last->next)
            last = last->next;
        assert_string_equal(test_str(&j, last, "head"), names[i]);
        assert_string_equal(test_str(&j, last, "tree"), "chain:7");
        assert_true(test_num(&j, last, "draft_seconds") > 0 && test_num(&j, last, "floor_seconds") > 0);
        assert_true(test_num(&j, last, "seconds") > test_num(&j, last, "target_seconds"));
        pl_json_close(&j);
    }
}

// Whole training steps of a drafter, by head.
static void training(void **state) {
    (void)state;
    static const char *const heads[] = {"full", "trimmed:150", "lowrank:8"};
    pl_json                  j;
    for (int i = 0; i < 3; i++) {
        const cJSON *a, *x;
        test_run_json(&j,
                      "bench step --json --quiet --shape tiny --batch 1 --seq-len 8 --unroll 2 --repeats 1 --head %s "
                      "%s",
                      heads[i], i ? "--device emulated --max-mb 1" : "--threads 1");
        a = pl_json_find(&j, NULL, "step");
        assert_int_equal(cJSON_GetArraySize(a), 1);
        x = a->child;
        assert_string_equal(test_str(&j, x, "name"), "eagle3");
        assert_true(test_num(&j, x, "tokens_per_second") > 0 && test_num(&j, x, "flops_per_second") > 0);
        // fc of two taps, attention that reads 128 values, MLP, four norms; the head.
        double head = i == 0 ? 600 * 64 : i == 1 ? 150 * 64 : 8 * (600 + 64);
        assert_true(test_num(&j, x, "parameters") == 128 * 64 + 128 * 128 + 64 * 64 + 3 * 64 * 96 + 4 * 64 + head);
        if (i) assert_null(pl_json_find(&j, x, "floor_seconds"));
        pl_json_close(&j);
    }
    // Where the time goes: ops by phase, which together are most of the step and no more than it.
    test_run_json(&j,
                  "bench step --json --quiet --shape tiny --batch 1 --seq-len 64 --unroll 2 --repeats 2 --threads 1 "
                  "--supervised 0.5 --launches");
    const cJSON *x = pl_json_find(&j, NULL, "step")->child, *line;
    double       step = test_num(&j, x, "profiled_seconds"), busy = 0;
    unsigned     phases = 0;
    assert_true(test_num(&j, x, "supervised") == 0.5 && test_num(&j, x, "lines_lost") == 0);
    assert_string_equal(test_str(&j, x, "rows"), "all");
    assert_string_equal(test_str(&j, x->next, "rows"), "supervised");
    assert_true(test_num(&j, x->next, "rise_of_operations") > 1.2);
    cJSON_ArrayForEach(line, test_array(&j, NULL, "launches")) {
        const char *phase = test_str(&j, line, "phase");
        if (strcmp(test_str(&j, line, "rows"), "all") != 0) continue;
        phases |= strcmp(phase, "forward") == 0 ? 1 : strcmp(phase, "backward") == 0 ? 2 : 4;
        if (strcmp(test_str(&j, line, "op"), "linear") == 0) assert_true(test_num(&j, line, "flops_per_second") > 0);
        busy += test_num(&j, line, "seconds");
    }
    assert_int_equal(phases, 7);
    assert_true(busy > 0.3 * step && busy <= step);
    pl_json_close(&j);
    test_run_fails(2, "--try: changes how a GPU runs; give --device cuda", "bench step --shape tiny --try early");
    test_run_fails(2, "--head trimmed:601: expected", "bench step --shape tiny --head trimmed:601");
    test_run_fails(2, "--head lowrank: head of kind \"lowrank\": rank 0", "bench step --shape tiny --head lowrank");
}

// The planner needs no model either.
static void planning(void **state) {
    (void)state;
    pl_json j;
    test_run_json(&j,
                  "plan --json --quiet --shape tiny --heads none --seconds 0 --context 16 --threads 1 --tree chain:2");
    assert_string_equal(test_str(&j, NULL, "target"), "tiny");
    assert_true(test_num(&j, pl_json_find(&j, NULL, "plain"), "tokens_per_second") > 0);
    pl_json_close(&j);
    test_run_fails(2, "give one of them", "plan --shape tiny --target nowhere");
    test_run_fails(2, "--layers: is for --shape", "plan --target nowhere --layers 1");
    test_run_fails(2, "known are llama3-8b", "plan --shape small");
}

static void refusals(void **state) {
    (void)state;
    test_run_fails(2, "known are llama3-8b", "bench decode --shape llama-9b");
    test_run_fails(2, "give one of them",
                   "bench decode --shape tiny --target " PACELINE_SOURCE_DIR "/checkpoints/tiny");
    test_run_fails(2, "--layers: is for bench decode, step", "bench linear --layers 2");
    test_run_fails(2, "times a GPU's draws; give --device", "bench draw");
    test_run_fails(2, "of its own", "bench decode --shape tiny --drafter lookup");
    test_run_fails(2, "decodes with weights in bf16", "bench decode --shape tiny --weights fp32");
    // 400 layers of the 8B model are 175 GiB.
    if ((double)sysconf(_SC_PHYS_PAGES) * (double)sysconf(_SC_PAGESIZE) > 150.0 * (1 << 30)) return;
    test_run_fails(1, "give fewer --layers", "bench decode --shape llama3-8b --layers 400 --context 1");
    test_run_fails(1, "give fewer --layers",
                   "bench decode --shape llama3-8b --layers 400 --context 1 --device emulated");
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(kernels),  cmocka_unit_test(decoding), cmocka_unit_test(shapes),  cmocka_unit_test(blocks),
        cmocka_unit_test(training), cmocka_unit_test(planning), cmocka_unit_test(refusals)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
