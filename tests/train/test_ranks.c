// Training by several processes: whatever their number, the weights are those of one process, bit for bit; a run goes
// on with another number; a rank that dies ends it with one line and nothing half-made.
#include "tests/cuda/emulate/device_emulated.h"
#include "tests/train/small.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "infer/eval/eval.h"
#include "infer/generate/generate.h"
#include "kernels/base/arena.h"
#include "kernels/base/files.h"
#include "train/keys.h"
#include "train/loop/trainer.h"
#include "train/run/pipeline.h"
#include "train/run/run.h"
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

// A recipe by `ranks` processes into BASE/out.
static pl_status by_ranks(int ranks, const char *out, const char *lines, int64_t stop_after, pl_err *err) {
    return small_ranks(ranks, out, lines, pl_train_run_until, stop_after, err);
}

// A drafter over the small dataset; the recipe's lines continued by `extra`.
static pl_status drafter(int ranks, const char *out, const char *extra, int64_t stop_after, pl_err *err) {
    char lines[4096];
    snprintf(lines, sizeof lines, "%s%s", small_data_lines, extra);
    return by_ranks(ranks, out, lines, stop_after, err);
}

static void same(const char *a, const char *b) {
    small_same(a, b, "checkpoints/last/training_state");
    small_same(a, b, "checkpoints/last/model.safetensors");
    small_same(a, b, "checkpoints/best/model.safetensors");
    double first[2], last[2];
    small_metric(a, "loss", &first[0], &last[0]);
    small_metric(b, "loss", &first[1], &last[1]);
    assert_true(first[0] == first[1] && last[0] == last[1]);
}

// One process, and several.
static void like_one(const char *name, const char *extra, const int *ranks) {
    char   one[64], more[64];
    pl_err err;
    snprintf(one, sizeof one, "%s-1", name);
    if (drafter(1, one, extra, 0, &err) != PL_OK) fail_msg("%s: %s", one, err.msg);
    for (; *ranks; ranks++) {
        snprintf(more, sizeof more, "%s-%d", name, *ranks);
        if (drafter(*ranks, more, extra, 0, &err) != PL_OK) fail_msg("%s: %s", more, err.msg);
        same(one, more);
    }
}

#define SHORT "train.steps=8\ntrain.warmup=2\ntrain.eval_every=4\ntrain.checkpoint_every=3\n"

static void eagle3(void **state) {
    (void)state;
    like_one("eagle3", SHORT "train.slots=4\n", (const int[]){2, 4, 0});
}

// Slots that do not divide evenly; documents that are cut (slot_rows below their length), of which the cursor tells;
// slots that are learned from in several passes.
static void uneven_slots(void **state) {
    (void)state;
    like_one("uneven", SHORT "train.slots=5\ntrain.slot_rows=24\ntrain.learn_rows=9\n", (const int[]){2, 3, 5, 0});
}

// Noise is drawn by document, whoever trains on it.
static void eagle1(void **state) {
    (void)state;
    like_one("eagle1", SHORT "train.slots=3\ndrafter.kind=eagle1\ntrain.unroll=2\ntrain.noise=0.2\n",
             (const int[]){2, 3, 0});
}

// Anchors are drawn by what a slot holds, whoever runs it.
static void dflash(void **state) {
    (void)state;
    like_one("dflash",
             SHORT "train.slots=3\ndrafter.kind=dflash\ndrafter.layers=1\ndrafter.block=4\ntrain.unroll=0\n"
                   "train.anchors=10\n",
             (const int[]){2, 0});
}

static void online(void **state) {
    (void)state;
    like_one("online", "train.steps=6\ntrain.warmup=1\ntrain.slots=3\ndata.mode=online\n", (const int[]){2, 3, 0});
    // Documents that are cut belong to the slots of two ranks, and of two steps.
    like_one("pieces", "train.steps=6\ntrain.warmup=1\ntrain.slots=4\ntrain.slot_rows=40\ndata.mode=online\n",
             (const int[]){4, 0});
}

// Traces are captured and clusters made by rank 0 first.
static void router(void **state) {
    (void)state;
    pl_err err;
    if (drafter(1, "full", "train.steps=30\n", 0, &err) != PL_OK) fail_msg("%s", err.msg);
    like_one("router",
             SHORT "drafter.start=BASE/full/checkpoints/best\ndrafter.head.kind=dynaspec\ndrafter.head.clusters=24\n"
                   "drafter.head.k0=6\ndrafter.head.width=24\ndrafter.head.top=4\ntraces.top=6\n"
                   "traces.tree=eagle2:8,2,4\ntrain.unroll=0\ntrain.slots=2\ntrain.slot_rows=128\ntrain.holdout=4\n",
             (const int[]){2, 0});
}

// Rank 0 makes tokenizer and tokens; windows are drawn by number.
static void target(void **state) {
    (void)state;
    static const char lines[] = "kind=target\ndata.text=BASE/text.txt\ndata.tokenizer.vocab_size=380\n"
                                "target.new.hidden_size=32\ntarget.new.layers=2\ntarget.new.heads=4\n"
                                "target.new.kv_heads=2\ntarget.new.intermediate=48\ntarget.new.positions=96\n"
                                "train.steps=8\ntrain.batch=8\ntrain.slots=4\ntrain.seq_len=32\ntrain.lr=1e-2\n"
                                "train.warmup=2\ntrain.log_every=1\ndata.holdout.every=7\ntrain.eval_every=3\n";
    pl_err            err;
    if (by_ranks(1, "target-1", lines, 0, &err) != PL_OK) fail_msg("%s", err.msg);
    if (by_ranks(4, "target-4", lines, 0, &err) != PL_OK) fail_msg("%s", err.msg);
    same("target-1", "target-4");
    small_same("target-1", "target-4", "tokenizer.model");
}

// Gradients that the host cannot reach.
static void on_a_device(void **state) {
    (void)state;
    pl_err            err;
    static const char extra[] = "train.slot_rows=48\ntrain.slots=2\ntrain.unroll=2\ntrain.eval_steps=2\n"
                                "train.eval_tokens=60\ntrain.warmup=1\ntrain.steps=3\ntrain.eval_every=0\n";
    small_backend = pl_backend_emulated();
    pl_status one = drafter(1, "device-1", extra, 0, &err);
    pl_status two = one == PL_OK ? drafter(2, "device-2", extra, 0, &err) : one;
    small_backend = NULL;
    if (two != PL_OK) fail_msg("%s", err.msg);
    same("device-1", "device-2");
}

// Masters and moments over ranks: a drafter whose MLP makes some pieces, with a head that is not trained and what of
// its weights is scaled to the target's features; on the host and on a device.
#define WIDE "train.slots=4\ndrafter.intermediate=2048\ntrain.unroll=2\ntrain.slot_rows=64\n"
static void sharded(void **state) {
    (void)state;
    pl_err            err;
    static const char whole[] = SHORT WIDE, cut[] = SHORT WIDE "train.shard=optimizer\n";
    if (drafter(1, "wide-1", whole, 0, &err) != PL_OK) fail_msg("%s", err.msg);
    if (drafter(2, "wide-2", cut, 0, &err) != PL_OK) fail_msg("%s", err.msg);
    same("wide-1", "wide-2");
    assert_int_equal(drafter(4, "wide-parts", cut, 2, &err), PL_E_INTERRUPTED);
    assert_int_equal(drafter(1, "wide-parts", cut, 3, &err), PL_E_INTERRUPTED);
    assert_int_equal(drafter(2, "wide-parts", whole, 5, &err), PL_E_INTERRUPTED);
    if (drafter(4, "wide-parts", cut, 0, &err) != PL_OK) fail_msg("%s", err.msg);
    same("wide-1", "wide-parts");
}

static void sharded_on_a_device(void **state) {
    (void)state;
    pl_err            err;
    static const char whole[] = "train.slot_rows=48\ntrain.slots=2\ntrain.unroll=2\ntrain.eval_steps=2\n"
                                "train.eval_tokens=60\ntrain.warmup=1\ntrain.steps=3\ntrain.eval_every=0\n"
                                "drafter.intermediate=1024\n";
    char              cut[512];
    snprintf(cut, sizeof cut, "%strain.shard=optimizer\n", whole);
    small_backend = pl_backend_emulated();
    pl_status one = drafter(1, "wide-device-1", whole, 0, &err);
    pl_status part = one == PL_OK ? drafter(2, "wide-device-2", cut, 2, &err) : one;
    pl_status rest = part == PL_E_INTERRUPTED ? drafter(2, "wide-device-2", cut, 0, &err) : part;
    small_backend = NULL;
    if (rest != PL_OK) fail_msg("%s", err.msg);
    same("wide-device-1", "wide-device-2");
}

static void resume_with_other_ranks(void **state) {
    (void)state;
    pl_err            err;
    static const char extra[] = SHORT "train.slots=4\n"; // "eagle3-1" is the whole run
    assert_int_equal(drafter(2, "parts", extra, 2, &err), PL_E_INTERRUPTED);
    assert_non_null(strstr(err.msg, "stopped after step 2 of 8; the same command goes on"));
    assert_int_equal(drafter(4, "parts", extra, 3, &err), PL_E_INTERRUPTED);
    assert_int_equal(drafter(1, "parts", extra, 5, &err), PL_E_INTERRUPTED);
    assert_int_equal(drafter(2, "parts", extra, 0, &err), PL_OK);
    same("eagle3-1", "parts");
    assert_int_equal(drafter(2, "parts", extra, 0, &err), PL_OK); // nothing left to do
    static const char answers[] = "train.steps=6\ntrain.warmup=1\ntrain.slots=3\ndata.mode=online\n"; // "online-1"
    assert_int_equal(drafter(3, "answers", answers, 2, &err), PL_E_INTERRUPTED);
    assert_int_equal(drafter(1, "answers", answers, 4, &err), PL_E_INTERRUPTED);
    assert_int_equal(drafter(2, "answers", answers, 0, &err), PL_OK);
    same("online-1", "answers");
}

// Rank 1 dies somewhere in a long run. What its last checkpoint holds is what one process had there, and goes on.
static void a_killed_rank(void **state) {
    (void)state;
    pl_err            err;
    int64_t           done;
    static const char extra[] = "train.slots=2\ntrain.steps=100000\ntrain.checkpoint_every=2\ntrain.eval_every=0\n";
    char             *dir = pl_path_join(small_base, "killed");
    small_dies_after_ms = 400;
    pl_status st = drafter(2, "killed", extra, 0, &err);
    small_dies_after_ms = 0;
    assert_int_equal(st, PL_E_IO);
    assert_non_null(strstr(err.msg, "rank 1: process "));
    assert_non_null(strstr(err.msg, "signal 14"));
    assert_null(strchr(err.msg, '\n'));
    assert_int_equal(pl_trainer_done_steps(dir, &done, &err), PL_OK);
    print_message("killed after step %lld\n", (long long)done);
    assert_int_equal(drafter(2, "killed", extra, done + 3, &err), PL_E_INTERRUPTED);
    assert_int_equal(drafter(1, "killed-1", extra, done + 3, &err), PL_E_INTERRUPTED);
    small_same("killed-1", "killed", "checkpoints/last/training_state");
    pl_free(dir);
}

// A disk that fails under rank 0 ends the others too; the last checkpoint stands.
static void a_full_disk(void **state) {
    (void)state;
    pl_err            err;
    int64_t           done;
    static const char extra[] = SHORT "train.slots=4\n";
    char             *dir = pl_path_join(small_base, "disk");
    assert_int_equal(drafter(2, "disk", extra, 3, &err), PL_E_INTERRUPTED);
    pl_io_fail_after(12);
    assert_int_equal(drafter(2, "disk", extra, 0, &err), PL_E_IO);
    pl_io_fail_after(0);
    assert_int_equal(pl_trainer_done_steps(dir, &done, &err), PL_OK);
    assert_true(done >= 3);
    assert_int_equal(drafter(4, "disk", extra, 0, &err), PL_OK);
    same("eagle3-1", "disk");
    pl_free(dir);
}

static void too_many_ranks(void **state) {
    (void)state;
    pl_err err;
    assert_int_equal(drafter(2, "bad", "train.slots=1\n", 0, &err), PL_E_USAGE);
    assert_non_null(strstr(err.msg, "--ranks 2: a step has 1 slot, shared"));
    assert_non_null(strstr(err.msg, "use --ranks 1 or train.slots: 2"));
    assert_int_equal(drafter(3, "bad", "train.slots=4\n", 0, &err), PL_E_USAGE);
    assert_non_null(strstr(err.msg, "2 to a rank, none for 1 of them; use --ranks 2 or train.slots: 6"));
    assert_int_equal(drafter(3, "bad6", SHORT "train.slots=6\n", 2, &err), PL_E_INTERRUPTED);
}

// A rank's own failure, here at reading what is not there, is told with its number or is rank 0's own.
static void a_rank_fails(void **state) {
    (void)state;
    pl_err err;
    assert_int_equal(drafter(2, "bad", "train.slots=2\ndata.dataset=BASE/nowhere\n", 0, &err), PL_E_INPUT);
    assert_null(strchr(err.msg, '\n'));
}

int main(void) {
    pl_comm_limit_rounds(16384); // so that parts of these models go while backward runs
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(eagle3),
        cmocka_unit_test(uneven_slots),
        cmocka_unit_test(eagle1),
        cmocka_unit_test(dflash),
        cmocka_unit_test(online),
        cmocka_unit_test(router),
        cmocka_unit_test(target),
        cmocka_unit_test(on_a_device),
        cmocka_unit_test(sharded),
        cmocka_unit_test(sharded_on_a_device),
        cmocka_unit_test(resume_with_other_ranks),
        cmocka_unit_test(a_killed_rank),
        cmocka_unit_test(a_full_disk),
        cmocka_unit_test(too_many_ranks),
        cmocka_unit_test(a_rank_fails),
    };
    return cmocka_run_group_tests(tests, small_setup, small_teardown);
}
