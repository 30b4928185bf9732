// plan train against a small run: bytes over the network as the group counted them and a dataset's size within 5 %,
// memory within 30 %; time is told. The tables of train/SCALING.md.
#include "program.h"

#include "kernels/base/arena.h"
#include "kernels/base/files.h"

#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>

#include <cmocka.h>

#define MADE                                                                                                           \
    "recipes/any-target.yaml --set target.path=checkpoints/tiny --set data.prompts=data/prompts/heldout.jsonl "        \
    "--set data.max_new_tokens=48 --set eval.holdout=7 --threads 2 -q "
#define SLOTS "--slots 4 --slot-rows 256 --unroll 4 "

static char base[64];

static int setup(void **state) {
    (void)state;
    test_scratch(base);
    return 0;
}

static int teardown(void **state) {
    (void)state;
    test_scratch_remove(base);
    return 0;
}

static void runs(const char *args, ...) {
    char        text[1024];
    test_output o;
    va_list     ap;
    va_start(ap, args);
    vsnprintf(text, sizeof text, args, ap);
    va_end(ap);
    test_run(&o, "%s", text);
    if (o.code != 0) fail_msg("%s: exit code %d: %s", text, o.code, o.err);
    test_run_fini(&o);
}

static void near(const char *what, double predicted, double measured, double share) {
    if (fabs(predicted - measured) > share * measured)
        fail_msg("%s: predicted %.6g, measured %.6g", what, predicted, measured);
}

static const cJSON *entry(const pl_json *j, const char *list, int at) {
    return cJSON_GetArrayItem(test_array(j, NULL, list), at);
}

// A run of `ranks` over the dataset; the figures of its last step.
static void measure(pl_json *j, int ranks) {
    char name[16], path[128];
    runs("train " MADE "--set data.dataset=%s/made/dataset --set train.slots=4 --set train.slot_rows=256 "
         "--set train.steps=3 --set train.warmup=1 --set train.log_every=3 --set train.eval_prompts=0 "
         "--set train.eval_every=0 --ranks %d --out %s/r%d",
         base, ranks, base, ranks);
    snprintf(name, sizeof name, "r%d", ranks);
    snprintf(path, sizeof path, "%s/metrics.jsonl", name);
    char *text = test_get(base, path);
    assert_int_equal(pl_json_parse(j, path, 1, text, strcspn(text, "\n"), 0, NULL), PL_OK);
    pl_free(text);
}

static void a_small_run_is_as_planned(void **state) {
    pl_json manifest, one, two, step, plan;
    char    path[160];
    (void)state;
    runs("generate " MADE "--out %s/made", base);
    snprintf(path, sizeof path, "%s/made/dataset/manifest.json", base);
    assert_int_equal(pl_json_open(&manifest, path, 1 << 20, 0, NULL), PL_OK);
    double docs = test_num(&manifest, NULL, "docs"), rows = test_num(&manifest, NULL, "rows");
    measure(&one, 1);
    measure(&two, 2);
    double read = test_num(&one, NULL, "tokens"); // documents do not fill slots to the last row
    test_run_json(&step, "bench step --target checkpoints/tiny --batch 4 --seq-len 64 --unroll 4 --repeats 1 "
                         "--weights bf16 --threads 2 --json");
    double flops = test_num(&step, cJSON_GetArrayItem(test_array(&step, NULL, "step"), 1), "flops_per_second");
    test_run_json(&plan,
                  "plan train --target checkpoints/tiny --samples %.0f --tokens %.6f " SLOTS
                  "--ranks 1,2 --flops %.9f --mode offline --transport host --json",
                  docs, rows / docs, flops / 1e12);
    const cJSON *mode = entry(&plan, "modes", 0), *alone = entry(&plan, "steps", 0), *pair = entry(&plan, "steps", 1);
    double       bytes = test_num(&manifest, cJSON_GetArrayItem(test_array(&manifest, NULL, "shards"), 0), "bytes");
    near("disk", test_num(&plan, mode, "disk_bytes"), bytes, 0.05);
    near("bytes sent", test_num(&plan, pair, "sent_bytes"), test_num(&two, NULL, "sent_bytes"), 0.05);
    near("memory", test_num(&plan, mode, "device_bytes"), test_num(&one, NULL, "memory_bytes"), 0.3);
    assert_true(test_num(&plan, alone, "sent_bytes") == 0);
    double seconds = test_num(&plan, alone, "step_seconds") * read / 1024, took = test_num(&one, NULL, "step_seconds");
    print_message("a step: predicted %.3g s, took %.3g s\n", seconds, took); // which says nothing on a busy machine
    pl_json_close(&manifest), pl_json_close(&one), pl_json_close(&two), pl_json_close(&step), pl_json_close(&plan);
}

// Writes the metrics of a run: evaluations each 10 steps of 200 rows, whose length is 0.5 ln(rows) - 1, every second one
// `off` more.
static void write_metrics(int evaluations, double off) {
    char text[8192];
    int  n = 0;
    n += snprintf(text + n, sizeof text - (size_t)n, "{\"step\":0,\"eval_acceptance_length\":1.0}\n");
    for (int i = 1; i <= evaluations; i++) {
        n += snprintf(text + n, sizeof text - (size_t)n, "{\"step\":%d,\"loss\":1.5,\"tokens\":200}\n", 10 * i);
        n += snprintf(text + n, sizeof text - (size_t)n, "{\"step\":%d,\"eval_acceptance_length\":%.12g}\n", 10 * i,
                      0.5 * log(2000.0 * i) - 1 + off * (i % 2));
    }
    snprintf(text + n, sizeof text - (size_t)n, "{\"step\":99,\"eval_acc"); // a kill cut it
    test_put(base, "metrics.jsonl", text);
}

static void acceptance_is_continued(void **state) {
    (void)state;
    for (int noisy = 0; noisy < 2; noisy++) {
        pl_json plan;
        write_metrics(12, 0.1 * noisy);
        test_run_json(
            &plan, "plan train --target checkpoints/tiny --samples 1000 --tokens 500 --ranks 1 --from %s --json", base);
        const cJSON *law = cJSON_GetObjectItemCaseSensitive(plan.root, "acceptance");
        double       error = test_num(&plan, law, "error_of_predictions");
        assert_true(test_num(&plan, law, "evaluations") == 12 && test_num(&plan, law, "rows_so_far") == 24000);
        assert_true(fabs(test_num(&plan, law, "length_planned") - (0.5 * log(500000) - 1 + 0.05 * noisy)) <
                    (noisy ? 0.15 : 1e-9));
        assert_true(noisy ? error > 0.03 && error < 0.3 : error < 1e-9);
        pl_json_close(&plan);
    }
    write_metrics(3, 0);
    test_run_fails(2, "metrics.jsonl: has 3 evaluations after steps, at least 4 are needed",
                   "plan train --target checkpoints/tiny --ranks 1 --from %s", base);
    test_put(base, "metrics.jsonl", "{\"step\": 1}\nno metrics\n");
    test_run_fails(2, "metrics.jsonl:2:", "plan train --target checkpoints/tiny --ranks 1 --from %s", base);
}

// In 8 bits, of each 32 elements 33 bytes.
static void a_small_dataset_is_as_planned(void **state) {
    pl_json manifest, plan;
    char    path[160];
    (void)state;
    runs("generate " MADE "--set data.feature_format=int8 --out %s/packed", base);
    snprintf(path, sizeof path, "%s/packed/dataset/manifest.json", base);
    assert_int_equal(pl_json_open(&manifest, path, 1 << 20, 0, NULL), PL_OK);
    double docs = test_num(&manifest, NULL, "docs"), rows = test_num(&manifest, NULL, "rows");
    double bytes = test_num(&manifest, cJSON_GetArrayItem(test_array(&manifest, NULL, "shards"), 0), "bytes");
    test_run_json(&plan,
                  "plan train --target checkpoints/tiny --samples %.0f --tokens %.6f --ranks 1 --mode offline "
                  "--feature-format int8 --json",
                  docs, rows / docs);
    near("disk", test_num(&plan, entry(&plan, "modes", 0), "disk_bytes"), bytes, 0.05);
    pl_json_close(&manifest), pl_json_close(&plan);
    test_run_json(&plan, "plan train --shape llama3-8b --ranks 8 --feature-format int8 --json");
    assert_true(test_num(&plan, NULL, "dataset_row_bytes") == 9 + 4 * 4096 / 32 * 33);
    pl_json_close(&plan);
}

// By hand: Llama-3-8B has 8.03 billion parameters and rows of 4 + 1 + 4 + 2 * 4 * 4096 bytes; Qwen3-30B-A3B has 30.5
// billion, of which a token reads 3.35 (its model card: 30.5 and 3.3).
static void shapes_are_counted(void **state) {
    pl_json j;
    (void)state;
    test_run_json(&j,
                  "plan train --shape llama3-8b --samples 1000 --tokens 1000 --slots 8 --slot-rows 1000 --ranks 8,4 "
                  "--network 8 --latency 0 --json");
    near("parameters", test_num(&j, NULL, "target_parameters"), 8.03e9, 1e-3);
    assert_true(test_num(&j, NULL, "dataset_row_bytes") == 9 + 2 * 4 * 4096);
    const cJSON *eight = entry(&j, "steps", 0), *four = entry(&j, "steps", 1);
    double       trained = test_num(&j, NULL, "drafter_parameters");
    assert_true(test_num(&j, eight, "steps") == 125);
    near("sent", test_num(&j, eight, "sent_bytes"), 2 * 7 / 8.0 * 4 * trained, 1e-9);
    near("network", test_num(&j, four, "network_seconds"), 2 * 3 / 4.0 * 4 * trained / 1e9, 1e-9);
    near("compute", test_num(&j, four, "compute_seconds"), 2 * test_num(&j, eight, "compute_seconds"), 1e-9);
    assert_true(test_num(&j, four, "hidden_seconds") == 0);
    pl_json_close(&j);
    test_run_json(&j, "plan train --shape qwen3-30b-a3b --ranks 8 --json");
    near("parameters", test_num(&j, NULL, "target_parameters"), 30.5e9, 5e-3);
    near("of a token", test_num(&j, NULL, "target_parameters_of_a_token"), 3.35e9, 1e-2);
    pl_json_close(&j);
    // Ranks share the answers in every mode; those that answer while they train hold all of the target.
    test_run_json(&j, "plan train --shape llama3-8b --epochs 3 --ranks 4,8 --json");
    double hours[6], held[6];
    for (int i = 0; i < 6; i++) {
        hours[i] = test_num(&j, entry(&j, "modes", i), "answers_hours");
        held[i] = test_num(&j, entry(&j, "modes", i), "device_bytes");
    }
    for (int i = 0; i < 6; i += 2)
        near("answers of eight", hours[i + 1], hours[i] / 2, 1e-9);
    near("answers made three times", hours[2], 3 * hours[0], 1e-9);
    near("answers while training", hours[4], hours[2], 1e-9);
    near("bounded and online", held[2], held[4], 1e-9);
    near("the target's layers", held[2] - held[0], 2 * (8.03e9 - 2 * 128256 * 4096.0), 1e-2);
    pl_json_close(&j);
}

// Sums of CPUs go beside the last slot's backward: all of the head's where there is time, and what there is time for.
static void sums_beside_backward(void **state) {
    static const char slots[] =
        "plan train --target checkpoints/tiny --slots 4 --slot-rows 256 --tokens 256 --unroll 4 "
        "--ranks 2 --flops 0.1 --latency 0 --transport host --json --network ";
    double head = 16384.0 * 256, share[2] = {0};
    (void)state;
    for (int i = 0; i < 2; i++) {
        pl_json j;
        test_run_json(&j, "%s%s", slots, i ? "100" : "0.01");
        const cJSON *two = entry(&j, "steps", 0);
        double       network = test_num(&j, two, "network_seconds"), hidden = test_num(&j, two, "hidden_seconds");
        double       trained = test_num(&j, NULL, "drafter_parameters");
        near("of a link", network, 4 * trained * 1538 / 1448 / (i ? 12.5e9 : 1.25e6), 1e-9);
        near("a step", test_num(&j, two, "step_seconds"), test_num(&j, two, "compute_seconds") + network - hidden,
             1e-9);
        share[i] = hidden / (i ? network : test_num(&j, two, "compute_seconds"));
        if (i) near("the head's share", share[i], head / trained, 1e-9);
        pl_json_close(&j);
    }
    assert_true(share[0] > 0.2 &&
                share[0] < 0.35); // about two thirds of one of two slots, less a quarter of the head's
}

static void refusals(void **state) {
    (void)state;
    test_run_fails(2, "use --slots 16", "plan train --shape llama3-8b --slots 8 --ranks 16");
    test_run_fails(2, "--target: is missing", "plan train");
    test_run_fails(2, "--ranks 8,x: expected", "plan train --shape llama3-8b --ranks 8,x");
    test_run_fails(2, "is for `plan train` alone", "bench step --shape llama3-70b");
    test_put(base, "empty.json", "{\"step\":[{\"name\":\"target\",\"flops_per_second\":1}]}");
    test_run_fails(2, "has no step of a drafter", "plan train --shape llama3-8b --step %s/empty.json", base);
}

// Each command of the document prints the table that stands behind it.
static void the_document_is_what_is_printed(void **state) {
    static const char sh[] = "```sh\nbuild/paceline ", text[] = "```text\n";
    char             *document = test_read("train/SCALING.md"), *at = document;
    int               tables = 0;
    (void)state;
    while ((at = strstr(at, sh))) {
        char *command = at + strlen(sh), *end = strchr(command, '\n'), *table = strstr(end, text);
        assert_non_null(table);
        char *last = strstr(table + strlen(text), "```");
        assert_non_null(last);
        *end = *last = 0;
        test_output o;
        test_run(&o, "%s", command);
        assert_int_equal(o.code, 0);
        assert_string_equal(table + strlen(text), o.out);
        test_run_fini(&o);
        at = last + 1;
        tables++;
    }
    assert_true(tables >= 1);
    pl_free(document);
}

// `plan train` and `bench step` count the same operations where some rows are not learned from, but for attention:
// bench's answers are the last rows, which see more keys.
static void supervised(void **state) {
    (void)state;
    pl_json step, plan;
    test_run_json(&step,
                  "bench step --json --quiet --device cpu --target checkpoints/tiny --batch 1 --seq-len 384 --unroll 3 "
                  "--repeats 1 --supervised 0.25 --weights bf16");
    test_run_json(&plan,
                  "plan train --json --target checkpoints/tiny --slots 1 --slot-rows 384 --tokens 384 --unroll 3 "
                  "--ranks 1 --flops 1 --supervised 0.25");
    const cJSON *rows = test_array(&step, NULL, "step")->child;
    while (!cJSON_GetObjectItem(rows, "rows") || strcmp(test_str(&step, rows, "rows"), "supervised") != 0)
        rows = rows->next;
    near("operations", 1e12 * test_num(&plan, entry(&plan, "steps", 0), "compute_seconds"),
         test_num(&step, rows, "flops"), 0.05);
    pl_json_close(&step);
    pl_json_close(&plan);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_small_run_is_as_planned),
        cmocka_unit_test(supervised),
        cmocka_unit_test(a_small_dataset_is_as_planned),
        cmocka_unit_test(acceptance_is_continued),
        cmocka_unit_test(shapes_are_counted),
        cmocka_unit_test(sums_beside_backward),
        cmocka_unit_test(refusals),
        cmocka_unit_test(the_document_is_what_is_printed),
    };
    return cmocka_run_group_tests(tests, setup, teardown);
}
