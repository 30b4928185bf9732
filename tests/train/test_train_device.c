// Training, generation and evaluation on a device, all of whose memory is out of the host's reach: the emulated one
// (tests/cuda/emulate/device_emulated.h), and a GPU where PACELINE_TEST_DEVICE names one.
#include "tests/train/small.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "data/dataset/dataset.h"
#include "infer/eval/eval.h"
#include "infer/generate/generate.h"
#include "kernels/base/arena.h"
#include "kernels/base/files.h"
#include "kernels/base/json.h"
#include "tests/device.h"
#include "train/run/pipeline.h"
#include "train/run/run.h"
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

// Small slots: the emulated device takes its time.
static const char size[] = "train.slot_rows=48\ntrain.slots=2\ntrain.unroll=2\ntrain.eval_steps=2\n"
                           "train.eval_tokens=60\ntrain.eval_prompts=1\ntrain.warmup=1\n";

static void train(const char *out, const char *extra, int64_t stop_after, const pl_backend *be, pl_status expected) {
    char   lines[1024];
    pl_err err = {0};
    snprintf(lines, sizeof lines, "%s%s", size, extra);
    small_backend = be;
    pl_status st = small_run(out, lines, stop_after, NULL, &err);
    small_backend = NULL;
    if (st != expected) fail_msg("%s: %s", out, err.msg);
}

static void near(const char *what, double device_value, double cpu_value, double budget) {
    double off = fabs(device_value - cpu_value) / fabs(cpu_value);
    print_message("%s: %.7g, the CPU's %.7g\n", what, device_value, cpu_value);
    if (!(off <= budget)) fail_msg("%s: %.2g of the CPU's away, budget %.2g", what, off, budget);
}

typedef struct budget {
    double loss, norm, last; // relative, of the first step's loss and gradient, of the last step's loss
} budget;

// One step from the same weights over the same rows.
// In fp32: products and sums in fp32 on both, in another order, along a few hundred operations: 2^-24 each, and a root
// mean square of them in loss and norm. In bf16 both round what enters a product to bf16, by 2^-9 at most, but the device
// alone attention's numbers, and a sum in another order may round the other way. Later steps start from what AdamW's division by sqrt(v) made of these differences, and are held to a looser
// figure.
static const budget in_fp32 = {1e-5, 1e-4, 1e-2}, in_bf16 = {0x1p-10, 0x1p-7, 2e-2};

static void like_the_cpu(const char *name, const char *extra, budget b) {
    double first[2], last[2], norm[2], unused;
    char   out[2][64], lines[512];
    snprintf(lines, sizeof lines, "%s\ntrain.steps=4\ntrain.eval_every=4\n", extra);
    for (int i = 0; i < 2; i++) {
        snprintf(out[i], sizeof out[i], "%s-%s", name, i ? "cpu" : "device");
        train(out[i], lines, 0, i ? NULL : test_device(), PL_OK);
        small_metric(out[i], "loss", &first[i], &last[i]);
        small_metric(out[i], "grad_norm", &norm[i], &unused);
    }
    near("loss of the first step", first[0], first[1], b.loss);
    near("norm of its gradient", norm[0], norm[1], b.norm);
    near("loss of the last step", last[0], last[1], b.last);
}

static void drafters(void **state) {
    (void)state;
    like_the_cpu("eagle3-f32", "kind=drafter\ntrain.dtype=f32\ntarget.dtype=fp32", in_fp32);
    like_the_cpu("eagle3", "kind=drafter", in_bf16);
    like_the_cpu("lowrank", "kind=drafter\ndrafter.head.kind=lowrank\ndrafter.head.rank=8", in_bf16);
    like_the_cpu("eagle1", "kind=drafter\ndrafter.kind=eagle1", in_bf16);
}

static void resume(void **state) {
    (void)state;
    const char *lines = "kind=drafter\ntrain.steps=6\ntrain.eval_every=3\n";
    train("whole", lines, 0, test_device(), PL_OK);
    train("parts", lines, 3, test_device(), PL_E_INTERRUPTED);
    train("parts", lines, 0, test_device(), PL_OK);
    small_same("whole", "parts", "checkpoints/last/model.safetensors");
    small_same("whole", "parts", "checkpoints/last/training_state");
}

// A state is fp32 numbers, whatever device they were computed on: who says so may go on elsewhere.
static void another_device(void **state) {
    (void)state;
    const char *lines = "kind=drafter\ntrain.steps=4\n";
    double      first, last;
    train("moved", lines, 2, NULL, PL_E_INTERRUPTED);
    train("moved", lines, 0, test_device(), PL_E_INPUT); // its bits would be neither's
    train("moved", "kind=drafter\ntrain.steps=4\ntrain.resume=any\n", 0, test_device(), PL_OK);
    small_metric("moved", "loss", &first, &last);
    assert_true(isfinite(last) && last < first);
}

static void target(void **state) {
    (void)state;
    static const char lines[] =
        "kind=target\ndata.text=BASE/text.txt\ndata.tokenizer.vocab_size=380\ntarget.new.hidden_size=32\n"
        "target.new.layers=2\ntarget.new.heads=4\ntarget.new.kv_heads=2\ntarget.new.intermediate=48\n"
        "target.new.positions=96\ntrain.steps=3\ntrain.batch=4\ntrain.seq_len=32\ntrain.lr=1e-2\ntrain.warmup=2\n"
        "train.log_every=1";
    double first[2], last[2];
    for (int i = 0; i < 2; i++) {
        pl_err     err = {0};
        pl_recipe *r = small_recipe(lines);
        char      *dir = pl_path_join(small_base, i ? "target-cpu" : "target-device");
        small_backend = i ? NULL : test_device();
        pl_env env = small_env(NULL);
        if (pl_train_run(r, dir, &env, &err) != PL_OK) fail_msg("%s", err.msg);
        small_backend = NULL;
        pl_recipe_close(r);
        pl_free(dir);
        small_metric(i ? "target-cpu" : "target-device", "loss", &first[i], &last[i]);
    }
    near("target: loss of the first step", first[0], first[1], in_bf16.loss);
    near("target: loss of the last step", last[0], last[1], 1e-2);
}

// A dataset that the device made trains there, and evaluation finds every method's answers to be plain decoding's.
static void whole_way(void **state) {
    (void)state;
    static const char more[] = "kind=drafter\ndata.prompts=BASE/few.jsonl\ndata.dataset=BASE/there/dataset\n"
                               "data.max_new_tokens=8\ntrain.holdout=0\ntrain.steps=3\neval.prompts=BASE/few.jsonl\n"
                               "eval.max_new_tokens=8\neval.limit=3\neval.tree=chain:3\neval.plain_fp32=false\n";
    static const char prompts[] = "{\"prompt\": \"Her team waits\"}\n{\"prompt\": \"The rider\"}\n"
                                  "{\"prompt\": \"Nobody overtakes\"}\n";
    char              lines[4096], *few = pl_path_join(small_base, "few.jsonl");
    assert_int_equal(pl_file_write_atomic(few, prompts, strlen(prompts), NULL), PL_OK);
    pl_free(few);
    snprintf(lines, sizeof lines, "%s%s%s", small_data_lines, size, more);
    pl_err     err = {0};
    pl_recipe *r = small_recipe(lines);
    char      *dir = pl_path_join(small_base, "there");
    small_backend = test_device();
    pl_env env = small_env(NULL);
    env.text = stdout;
    if (pl_generate_run(r, NULL, dir, &env, &err) != PL_OK) fail_msg("%s", err.msg);
    if (pl_train_run(r, dir, &env, &err) != PL_OK) fail_msg("%s", err.msg);
    if (pl_pipeline_eval(r, dir, &env, &err) != PL_OK) fail_msg("%s", err.msg);
    small_backend = NULL;
    pl_recipe_close(r);
    pl_free(dir);
    uint8_t *data;
    size_t   n, same = 0;
    small_read("there", "results.json", &data, &n);
    for (const char *at = (const char *)data; (at = strstr(at, "\"identical_outputs\": true")); at++)
        same++;
    assert_null(strstr((const char *)data, "\"identical_outputs\": false"));
    assert_true(same >= 2);
    pl_free(data);
}

// A routed head: its traces captured there, its router trained there, and over the same traces as the CPU trains it.
static void routers(void **state) {
    (void)state;
    static const char routed[] = "kind=drafter\ndrafter.start=BASE/start/checkpoints/best\ndrafter.head.kind=dynaspec\n"
                                 "drafter.head.clusters=24\ndrafter.head.k0=6\ndrafter.head.top=4\ntraces.top=6\n"
                                 "traces.tree=eagle2:8,2,3\ntraces.rows=300\ntrain.unroll=0\ntrain.eval_steps=0\n";
    char              lines[1024];
    int64_t           rows[2];
    const pl_dataset_attrs any = {.top = -1, .A = -1};
    pl_dataset            *ds;
    pl_err                 err = {0};
    train("start", "kind=drafter\ntrain.steps=4\n", 0, NULL, PL_OK);
    snprintf(lines, sizeof lines, "%sdrafter.head.width=24\ntrain.steps=2\n", routed);
    for (int i = 0; i < 2; i++) {
        const char *out = i ? "traced-cpu" : "traced-device";
        char       *dir = pl_path_join(small_base, i ? "traced-cpu/traces" : "traced-device/traces");
        train(out, lines, 0, i ? NULL : test_device(), PL_OK);
        if (pl_dataset_open(&ds, dir, &(pl_dataset_open_options){.want = &any}, &err) != PL_OK) fail_msg("%s", err.msg);
        rows[i] = pl_dataset_rows(ds);
        pl_dataset_close(ds);
        pl_free(dir);
    }
    print_message("%lld rows traced, on the CPU %lld\n", (long long)rows[0], (long long)rows[1]);
    assert_true(rows[0] >= 300 && rows[1] >= 300);
    snprintf(lines, sizeof lines, "%straces.path=BASE/traced-cpu/traces\ndrafter.head.width=24", routed);
    like_the_cpu("router", lines, in_bf16);
    snprintf(lines, sizeof lines, "%straces.path=BASE/traced-cpu/traces\ndrafter.head.router=coral", routed);
    like_the_cpu("router-coral", lines, in_bf16);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(drafters), cmocka_unit_test(resume),    cmocka_unit_test(another_device),
        cmocka_unit_test(target),   cmocka_unit_test(whole_way), cmocka_unit_test(routers),
    };
    test_only();
    return cmocka_run_group_tests(tests, small_setup, small_teardown);
}
