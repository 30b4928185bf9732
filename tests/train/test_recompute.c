// train.recompute: the same weights, bit for bit, in less memory; switched on and off within a run.
#include "tests/cuda/emulate/device_emulated.h"
#include "tests/train/small.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "kernels/base/arena.h"
#include "train/run/run.h"
#include "train/source/teacher.h"
#include "train/task/drafter.h"
#include "train/task/lm.h"
#include "train/task/unroll.h"
#include <stdio.h>
#include <string.h>

#define DFLASH "drafter.kind=dflash\ndrafter.layers=2\ntrain.unroll=0\ntrain.anchors=12\n"
#define SHORT "train.steps=6\ntrain.warmup=2\ntrain.eval_every=3\n"

static pl_status drafter(const char *out, const char *extra, bool recompute, int64_t stop_after, pl_err *err) {
    char lines[1024];
    snprintf(lines, sizeof lines, SHORT "train.recompute=%s\n%s", recompute ? "true" : "false", extra);
    return small_run(out, lines, stop_after, NULL, err);
}

static void same_weights(const char *name, const char *extra) {
    pl_err err = {0};
    char   kept[64], again[64];
    snprintf(kept, sizeof kept, "%s-kept", name);
    snprintf(again, sizeof again, "%s-again", name);
    if (drafter(kept, extra, false, 0, &err) != PL_OK) fail_msg("%s: %s", kept, err.msg);
    if (drafter(again, extra, true, 0, &err) != PL_OK) fail_msg("%s: %s", again, err.msg);
    small_same(kept, again, "checkpoints/last/training_state");
    small_same(kept, again, "checkpoints/best/model.safetensors");
    double first[2], last[2];
    small_metric(kept, "grad_norm", &first[0], &last[0]);
    small_metric(again, "grad_norm", &first[1], &last[1]);
    assert_true(first[0] == first[1] && last[0] == last[1]);
}

// Hidden states that the head reads in place (EAGLE-1), that it projects, that are constants (a frozen backbone).
static void drafters(void **state) {
    (void)state;
    same_weights("eagle3", "");
    same_weights("lowrank", "drafter.head.kind=lowrank\ndrafter.head.rank=4\ntrain.unroll=4\n");
    same_weights("eagle1", "drafter.kind=eagle1\ntrain.unroll=3\n");
    same_weights("eagle1-lowrank", "drafter.kind=eagle1\ntrain.unroll=3\ndrafter.head.kind=lowrank\n"
                                   "drafter.head.rank=4\n");
    same_weights("dflash", DFLASH "drafter.block=4\n");
    same_weights("dspark", DFLASH "drafter.block=3\ndrafter.anchor_first=true\ndrafter.head.kind=markov\n"
                                  "drafter.head.rank=4\ndrafter.head.confidence=true\n");
    same_weights("dflash2", DFLASH "drafter.block=4\ndrafter.conv.taps=2\ndrafter.selector.candidates=9\n");
    same_weights("xpress", DFLASH "drafter.block=4\ndrafter.head.kind=xpress\ndrafter.head.rank=4\n");
    same_weights("lilicorr", DFLASH "drafter.block=4\ndrafter.selector.candidates=5\ndrafter.selector.kind=lattice\n");
    same_weights("acceptance", "drafter.head.acceptance=true\n");
    same_weights("deep-lowrank", "drafter.layers=2\ndrafter.norm_output=true\ndrafter.head.kind=lowrank\n"
                                 "drafter.head.rank=4\n");
    same_weights("medusa", "drafter.kind=medusa\ndrafter.block=4\ntrain.unroll=0\n");
    same_weights("hydra", "drafter.kind=hydra++\ndrafter.layers=2\ndrafter.block=3\ntrain.unroll=0\n");
    same_weights("peagle", "drafter.kind=peagle\ndrafter.block=4\ndrafter.layers=2\ntrain.unroll=0\n");
    same_weights("selected", "drafter.selector.candidates=9\ntrain.selector_objective=kl\n");
    same_weights("frozen", "drafter.start=BASE/eagle3-kept/checkpoints/best\ndrafter.freeze=backbone\n"
                           "drafter.head.kind=lowrank\ndrafter.head.rank=4\n");
}

static void target(void **state) {
    (void)state;
    for (int again = 0; again < 2; again++) {
        char   lines[1024];
        pl_err err = {0};
        snprintf(lines, sizeof lines,
                 "kind=target\ndata.text=BASE/text.txt\ndata.tokenizer.vocab_size=380\ntarget.new.hidden_size=32\n"
                 "target.new.layers=5\ntarget.new.heads=4\ntarget.new.kv_heads=2\ntarget.new.intermediate=48\n"
                 "target.new.positions=96\ntrain.batch=4\ntrain.slots=2\ntrain.seq_len=32\ntrain.log_every=1\n" SHORT
                 "train.recompute=%s\n",
                 again ? "true" : "false");
        pl_recipe *r = small_recipe(lines);
        pl_env     env = small_env(NULL);
        char       dir[128];
        snprintf(dir, sizeof dir, "%s/target-%d", small_base, again);
        if (pl_train_run(r, dir, &env, &err) != PL_OK) fail_msg("%s", err.msg);
        pl_recipe_close(r);
    }
    small_same("target-0", "target-1", "checkpoints/last/training_state");
}

static void on_a_device(void **state) {
    (void)state;
    small_backend = pl_backend_emulated();
    same_weights("device", "train.steps=2\ntrain.slot_rows=48\ntrain.slots=1\ntrain.unroll=3\ntrain.eval_steps=3\n"
                           "train.eval_tokens=12\ntrain.eval_prompts=1\n");
    same_weights(
        "device-dspark", DFLASH
        "train.anchors=3\ndrafter.block=3\ndrafter.anchor_first=true\ndrafter.head.kind=markov\ndrafter.head.rank=4\n"
        "drafter.head.confidence=true\ntrain.steps=2\ntrain.slot_rows=48\ntrain.slots=1\n"
        "train.eval_tokens=12\ntrain.eval_prompts=1\n");
    same_weights("device-dflash2", DFLASH
                 "train.anchors=3\ndrafter.block=4\ndrafter.conv.taps=2\ndrafter.selector.candidates=9\ntrain.steps=2\n"
                 "train.selector_objective=lk-lambda\n"
                 "train.slot_rows=48\ntrain.slots=1\ntrain.eval_tokens=12\ntrain.eval_prompts=1\n");
    same_weights("device-xpress", DFLASH
                 "train.anchors=3\ndrafter.block=4\ndrafter.head.kind=xpress\ndrafter.head.rank=4\ntrain.steps=2\n"
                 "train.slot_rows=48\ntrain.slots=1\ntrain.eval_tokens=12\ntrain.eval_prompts=1\n");
    same_weights("device-lilicorr", DFLASH
                 "train.anchors=3\ndrafter.block=4\ndrafter.selector.candidates=5\ndrafter.selector.kind=lattice\n"
                 "train.steps=2\ntrain.slot_rows=48\ntrain.slots=1\ntrain.eval_tokens=12\n"
                 "train.eval_prompts=1\n");
    small_backend = NULL;
}

// It belongs to the machine, not to the run.
static void switched_within_a_run(void **state) {
    (void)state;
    pl_err err = {0};
    assert_int_equal(drafter("switched", "", true, 2, &err), PL_E_INTERRUPTED);
    assert_int_equal(drafter("switched", "", false, 4, &err), PL_E_INTERRUPTED);
    assert_int_equal(drafter("switched", "", true, 0, &err), PL_OK);
    small_same("eagle3-kept", "switched", "checkpoints/last/training_state");
}

// ---- memory

static size_t drafter_frame(const pl_backbone_kind *kind, pl_teacher *teacher, int steps, bool recompute) {
    pl_err              err = {0};
    pl_backbone        *model;
    pl_param_block      block;
    pl_unroll           u;
    const pl_backend   *be = pl_backend_cpu();
    pl_backbone_options o = {.own_head = true};
    pl_unroll_options   uo = {
          .capacity = 256, .steps = steps, .step_decay = 1, .token_weight = 1, .recompute = recompute};
    if (pl_backbone_create(&model, kind, &teacher->model, &o, be, &err) != PL_OK) fail_msg("%s", err.msg);
    pl_param_block_options bo = {.backend = be, .round_to = PL_BF16};
    assert_int_equal(pl_param_block_create(&block, &model->params, &bo, &err), PL_OK);
    if (pl_unroll_create(&u, model, teacher->head, &uo, be, NULL, &err) != PL_OK) fail_msg("%s", err.msg);
    size_t size = u.ctx.frame.size;
    pl_unroll_destroy(&u);
    pl_param_block_destroy(&block);
    pl_backbone_destroy(model);
    return size;
}

static size_t target_frame(const pl_llama *like, int layers, bool recompute) {
    pl_err        err = {0};
    pl_lm         lm;
    pl_hf_config  c = like->config;
    pl_lm_options o = {.backend = pl_backend_cpu(), .capacity = 256, .round_to = PL_BF16, .recompute = recompute};
    c.num_hidden_layers = layers;
    if (pl_lm_create(&lm, &c, &o, &err) != PL_OK) fail_msg("%s", err.msg);
    size_t size = lm.ctx.frame.size;
    pl_lm_destroy(&lm);
    return size;
}

// What one more step, or layer, takes: its results instead of everything within.
static void less_memory(void **state) {
    (void)state;
    pl_err     err = {0};
    pl_teacher teacher;
    char       path[128];
    snprintf(path, sizeof path, "%s/target/checkpoints/last", small_base);
    assert_int_equal(pl_teacher_open(&teacher, path, PL_F32, pl_backend_cpu(), false, NULL, &err), PL_OK);
    static const pl_backbone_kind *const kinds[] = {&pl_backbone_eagle3, &pl_backbone_eagle1};
    for (int i = 0; i < 3; i++) {
        size_t few[2], many[2];
        for (int again = 0; again < 2; again++) {
            few[again] = i < 2 ? drafter_frame(kinds[i], &teacher, 2, again) : target_frame(&teacher.model, 2, again);
            many[again] = i < 2 ? drafter_frame(kinds[i], &teacher, 7, again) : target_frame(&teacher.model, 12, again);
        }
        const char *what = i == 2 ? "target" : i ? "eagle1" : "eagle3";
        size_t      each = (many[0] - few[0]) / (i < 2 ? 5 : 10), rerun = (many[1] - few[1]) / (i < 2 ? 5 : 10);
        print_message("%s: frame of %zu KB, recomputed %zu; each step or layer %zu, recomputed %zu\n", what,
                      many[0] / 1024, many[1] / 1024, each / 1024, rerun / 1024);
        assert_true(many[1] < many[0]);
        assert_true(2 * rerun < each);
    }
    pl_teacher_close(&teacher);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(drafters),    cmocka_unit_test(target),
        cmocka_unit_test(on_a_device), cmocka_unit_test(switched_within_a_run),
        cmocka_unit_test(less_memory),
    };
    return cmocka_run_group_tests(tests, small_setup, small_teardown);
}
