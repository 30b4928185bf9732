// drafter.kind lm: a language model that learns to draft from what the target says, and from what it says itself.
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "infer/decode/decode.h"
#include "infer/drafter/drafter.h"
#include "infer/generate/generate.h"
#include "infer/model/target.h"
#include "kernels/base/arena.h"
#include "kernels/base/files.h"
#include "tests/train/small.h"
#include "train/run/pipeline.h"
#include "train/run/run.h"
#include "train/task/distill.h"
#include <math.h>
#include <string.h>

// A student of the target's vocabulary that has seen little text, in BASE/student.
static const char student_lines[] =
    "kind=target\ndata.text=BASE/text.txt\ntarget.tokenizer=BASE/target/checkpoints/last\n"
    "target.new.hidden_size=16\ntarget.new.layers=1\ntarget.new.heads=2\n"
    "target.new.kv_heads=1\ntarget.new.intermediate=24\ntarget.new.positions=96\n"
    "train.steps=25\ntrain.batch=4\ntrain.seq_len=32\ntrain.lr=1e-2\nseed=5";

#define LM                                                                                                             \
    "target.path=BASE/target/checkpoints/last\ndata.prompts=BASE/prompts.jsonl\ndata.max_new_tokens=40\n"              \
    "data.samples=1\neval.holdout=5\ntrain.holdout=8\ntrain.slot_rows=200\ntrain.slots=2\ntrain.lr=5e-3\n"             \
    "train.warmup=5\ntrain.eval_every=20\ntrain.checkpoint_every=7\ntrain.log_every=1\ntrain.steps=40\n"               \
    "data.dataset=BASE/data/dataset\ndrafter.kind=lm\n"
#define STUDENT LM "drafter.start=BASE/student/checkpoints/last\n"
#define TARGET LM "drafter.start=BASE/target/checkpoints/last\n"
#define ON "train.on_policy.share=0.6\n"

static int setup(void **state) {
    pl_err err = {0};
    pl_env env = small_env(NULL);
    if (small_setup(state)) return -1;
    pl_recipe *r = small_recipe(student_lines);
    char      *dir = pl_path_join(small_base, "student");
    pl_status  st = pl_train_run(r, dir, &env, &err);
    if (st != PL_OK) print_error("%s\n", err.msg);
    pl_recipe_close(r);
    pl_free(dir);
    return st == PL_OK ? 0 : -1;
}

static pl_status run(const char *out, const char *lines, int64_t stop_after, pl_pool *pool, pl_err *err) {
    pl_recipe *r = small_recipe(lines);
    char      *dir = pl_path_join(small_base, out);
    pl_env     env = small_env(pool);
    pl_status  st = pl_train_check(r, err);
    if (st == PL_OK) st = pl_train_run_until(r, dir, &env, stop_after, err);
    pl_recipe_close(r);
    pl_free(dir);
    return st;
}

static void runs(const char *out, const char *lines, pl_pool *pool) {
    pl_err err = {0};
    if (run(out, lines, 0, pool, &err) != PL_OK) fail_msg("%s: %s", out, err.msg);
}

#define WEIGHTS "checkpoints/last/model.safetensors"

static void gains(const char *out, const char *lines) {
    double first, last, rows, unused;
    runs(out, lines, NULL);
    small_metric(out, "eval_acceptance", &first, &last);
    if (!(last > first && last > 0.09 && last <= 1)) fail_msg("%s: acceptance from %.3f to %.3f", out, first, last);
    small_metric(out, "eval_acceptance_length_sampled", &first, &last);
    if (!(last > first && last > 1 && last <= 5)) fail_msg("%s: length from %.3f to %.3f", out, first, last);
    small_metric(out, "rows_counted", &rows, &unused);
    assert_true(rows > 0);
}

static void learns(void **state) {
    (void)state;
    gains("kl", STUDENT);
    gains("label", STUDENT "train.objective=label\n");
    gains("tvdpp", STUDENT "train.objective=tvd++\n");
    gains("on-kl", STUDENT ON);
    gains("on-tvdpp", STUDENT ON "train.objective=tvd++\n");
    double first, last, all, unused;
    small_metric("on-kl", "rows_on_policy", &first, &last);
    small_metric("on-kl", "rows_counted", &all, &unused);
    assert_true(first > 0 && first < all); // some of both
}

#define FORESEEN STUDENT "train.clip=0\ndrafter.head.acceptance=true\ndrafter.head.max_rejection=995\n"
#define PREDICTION "checkpoints/last/acceptance_head.safetensors"

// A prediction of acceptance, which changes nothing of what the model learns, is no constant, and goes on where a run
// was stopped or another starts from it.
static void learns_acceptance(void **state) {
    (void)state;
    pl_err err = {0};
    double accepted, loss, first, again, unused;
    runs("unforeseen", STUDENT "train.clip=0\n", NULL);
    runs("foreseen", FORESEEN, NULL);
    small_same("unforeseen", "foreseen", WEIGHTS);
    small_metric("foreseen", "eval_acceptance", &unused, &accepted);
    small_metric("foreseen", "eval_acceptance_loss", &first, &loss);
    // Beside a prediction of one half everywhere, of which rejections count six times.
    if (!(loss < 0.9 * log(2) * (6 - 5 * accepted))) fail_msg("%g of drafts accepted, loss %g", accepted, loss);
    assert_int_equal(run("halted", FORESEEN, 23, NULL, &err), PL_E_INTERRUPTED);
    runs("halted", FORESEEN, NULL);
    small_same("foreseen", "halted", PREDICTION);
    if (small_ranks(2, "foreseen-ranks", FORESEEN, pl_train_run_until, 0, &err) != PL_OK) fail_msg("%s", err.msg);
    small_same("foreseen", "foreseen-ranks", PREDICTION);
    runs("onward",
         LM "train.lr=1e-9\ntrain.steps=1\ntrain.warmup=0\ndrafter.head.acceptance=true\n"
            "drafter.start=BASE/foreseen/checkpoints/last\n",
         NULL);
    small_metric("onward", "eval_acceptance_loss", &again, &unused);
    assert_true(fabs(again - loss) < 0.05 * loss);
    assert_false(small_exists("unforeseen/" PREDICTION));
}

// The folder is a model, which drafts for the target, whose own text it leaves as it is.
static void drafts_as(const char *out, int64_t depth[3]) {
    char         *at = pl_path_join(small_base, "target/checkpoints/last");
    char         *name = pl_sprintf("lm:%s/%s/checkpoints/last", small_base, out);
    pl_target     t;
    pl_drafter   *d;
    pl_engine    *e[2];
    pl_session   *s[2];
    pl_err        err = {0};
    const int32_t prompt[] = {1, 40, 41, 42};
    if (pl_target_open(&t, at, NULL, NULL, PL_WEIGHTS_BF16, pl_backend_cpu(), &err) != PL_OK) fail_msg("%s", err.msg);
    pl_drafter_options o = {.target = &t.model,
                            .dtype = PL_BF16,
                            .tree = "chain:3",
                            .max_sessions = 1,
                            .max_rows = 64,
                            .slots = 96,
                            .tok = t.tok};
    if (pl_drafter_open(&d, name, &o, &err) != PL_OK) fail_msg("%s", err.msg);
    for (int i = 0; i < 2; i++) {
        pl_engine_options  eo = {.max_sessions = 1, .max_rows = 64};
        pl_session_options so = {.sampling = {.top_p = 1}, .max_new = 60};
        if (pl_engine_create(&e[i], pl_backend_cpu(), NULL, &t.model, i ? d : NULL, &eo, &err) != PL_OK)
            fail_msg("%s", err.msg);
        assert_int_equal(pl_engine_start(e[i], prompt, 4, &so, &s[i], &err), PL_OK);
        while (pl_session_finish(s[i]) == PL_RUNNING)
            if (pl_engine_step(e[i], &err) != PL_OK) fail_msg("%s", err.msg);
    }
    assert_int_equal(pl_session_length(s[0]), pl_session_length(s[1]));
    assert_memory_equal(pl_session_tokens(s[0]), pl_session_tokens(s[1]),
                        (size_t)pl_session_length(s[0]) * sizeof(int32_t));
    assert_true(pl_session_statistics(s[1])->accepted > 0);
    for (int i = 0; i < 3; i++)
        depth[i] = pl_session_statistics(s[1])->position_drafted[i];
    for (int i = 0; i < 2; i++) {
        pl_engine_end(e[i], s[i]);
        pl_engine_destroy(e[i]);
    }
    pl_drafter_destroy(d);
    pl_target_close(&t);
    pl_free(at);
    pl_free(name);
}

static void drafts(void **state) {
    (void)state;
    int64_t whole[3], ended[3];
    drafts_as("on-kl", whole);
    drafts_as("unforeseen", whole);
    drafts_as("foreseen", ended);
    // The same weights draft less deep.
    if (!(ended[0] > 0 && ended[2] * whole[0] < whole[2] * ended[0]))
        fail_msg("%lld of %lld, without %lld of %lld", (long long)ended[2], (long long)ended[0], (long long)whole[2],
                 (long long)whole[0]);
}

// A target that drafts for itself answers greedily what it has answered, and the two losses are of the same rows: at
// the first step, whose weights are the target's, they are the same number up to the order in which rows are added.
static void own_answers_are_the_targets(void **state) {
    (void)state;
    double     off, on, unused;
    pl_err     err = {0};
    char      *dir = pl_path_join(small_base, "greedy");
    pl_env     env = small_env(NULL);
    pl_recipe *d = small_recipe("target.path=BASE/target/checkpoints/last\ndata.prompts=BASE/prompts.jsonl\n"
                                "data.max_new_tokens=40\ndata.samples=0\neval.holdout=5\n");
    if (pl_generate_run(d, NULL, dir, &env, &err) != PL_OK) fail_msg("%s", err.msg);
    pl_recipe_close(d);
    pl_free(dir);
#define GREEDY TARGET "data.dataset=BASE/greedy/dataset\ntrain.objective=ce\ntrain.steps=1\ntrain.warmup=0\n"
    runs("ce", GREEDY, NULL);
    runs("own-ce", GREEDY "train.on_policy.share=1\ntrain.on_policy.temperature=0\n", NULL);
    small_metric("ce", "loss", &off, &unused);
    small_metric("own-ce", "loss", &on, &unused);
    assert_true(off > 0.01);
    if (!(fabs(on - off) <= 2e-3 * off)) fail_msg("%.9g of its own answers, %.9g of the target's", on, off);
    small_metric("own-ce", "rows_counted", &on, &unused);
    small_metric("own-ce", "rows_on_policy", &off, &unused);
    assert_true(on == off && on > 0);
    // A teacher that is read a row late would be another: what it says of its own text is what it said.
    runs("self", TARGET "train.on_policy.share=1\ntrain.steps=1\ntrain.warmup=0\ntrain.lr=0\n", NULL);
    small_metric("self", "loss", &on, &unused);
    assert_true(on >= 0 && on < 1e-3);
    small_metric("self", "eval_acceptance", &on, &unused);
    assert_true(on > 0.99);
}

static void stopped_and_continued(void **state) {
    (void)state;
    pl_err err = {0};
    assert_int_equal(run("stopped", STUDENT ON, 23, NULL, &err), PL_E_INTERRUPTED);
    runs("stopped", STUDENT ON, NULL);
    small_same("on-kl", "stopped", WEIGHTS);
}

static void threads_do_not_matter(void **state) {
    (void)state;
    pl_pool *pool;
    assert_int_equal(pl_pool_create(&pool, 2, NULL), PL_OK);
    runs("threads", STUDENT ON, pool);
    small_same("on-kl", "threads", WEIGHTS);
    pl_pool_destroy(pool);
}

static void ranks_do_not_matter(void **state) {
    (void)state;
    pl_err err;
    if (small_ranks(2, "ranks", STUDENT ON, pl_train_run_until, 0, &err) != PL_OK) fail_msg("%s", err.msg);
    small_same("on-kl", "ranks", WEIGHTS);
}

// With the target in the same process, on one rank and two.
static void online(void **state) {
    (void)state;
    pl_err err;
    runs("online", STUDENT ON "data.mode=online\ntrain.steps=12\n", NULL);
    if (small_ranks(2, "online-ranks", STUDENT ON "data.mode=online\ntrain.steps=12\n", pl_train_run_until, 0, &err) !=
        PL_OK)
        fail_msg("%s", err.msg);
    small_same("online", "online-ranks", WEIGHTS);
}

static void refused(const char *lines, const char *want) {
    pl_err err = {0};
    if (run("refused", lines, 0, NULL, &err) != PL_E_INPUT) fail_msg("\"%s\" is taken", want);
    if (!strstr(err.msg, want)) fail_msg("\"%s\" is not said: %s", want, err.msg);
}

static void bad_recipes(void **state) {
    (void)state;
    refused(LM, "name the model that learns to draft");
    refused(STUDENT "train.unroll=3\n", "train.unroll");
    refused(STUDENT "drafter.head.kind=lowrank\n", "has its own head");
    refused(STUDENT "drafter.head.max_rejection=500\n", "max_rejection=500: needs acceptance: true");
    refused(STUDENT "train.objective=label\ndrafter.head.acceptance=true\n", "take a divergence");
    refused(STUDENT "train.on_policy.temperature=0.5\n", "nothing is drawn; give train.on_policy.share");
    refused(STUDENT ON "train.objective=label\n", "learn its own answers");
    refused(STUDENT "drafter.kind=eagle3\ntrain.on_policy.share=0.5\n", "is of drafter.kind: lm");
    refused(LM "drafter.kind=eagle3\ntrain.objective=label\n", "label is of drafter.kind: lm");
    pl_recipe *r = small_recipe("kind=target\ndata.text=BASE/text.txt\ndata.tokenizer.vocab_size=320\n"
                                "target.new.hidden_size=16\ntarget.new.layers=1\ntarget.new.heads=2\n"
                                "target.new.kv_heads=1\ntarget.new.positions=96\ntrain.steps=1\ntrain.batch=1\n"
                                "train.seq_len=32");
    char      *dir = pl_path_join(small_base, "other");
    pl_env     env = small_env(NULL);
    pl_err     err = {0};
    if (pl_train_run(r, dir, &env, &err) != PL_OK) fail_msg("%s", err.msg);
    pl_recipe_close(r);
    pl_free(dir);
    refused(LM "drafter.start=BASE/other/checkpoints/last\n", "its vocabulary is not the target's");
}

// As `run` has it, from the answers to the table.
static void whole_pipeline(void **state) {
    (void)state;
    pl_err err = {0};
    char  *more = pl_sprintf("drafter: {kind: lm}\n"
                              "train: {steps: 4, slot_rows: 128, holdout: 4}\n"
                              "drafters:\n"
                              "  - {name: text, start: %s/student/checkpoints/last, steps: 0}\n"
                              "  - {name: both, start: text, on_policy: {share: 0.5}}\n",
                             small_base);
    if (small_pipeline("pipe", more, &err) != PL_OK) fail_msg("%s", err.msg);
    pl_free(more);
    assert_true(small_exists("pipe/drafters/both/checkpoints/best/config.json"));
    assert_true(small_exists("pipe/results.json"));
}

int main(void) {
    const struct CMUnitTest tests[] = {cmocka_unit_test(learns),
                                       cmocka_unit_test(learns_acceptance),
                                       cmocka_unit_test(drafts),
                                       cmocka_unit_test(own_answers_are_the_targets),
                                       cmocka_unit_test(stopped_and_continued),
                                       cmocka_unit_test(threads_do_not_matter),
                                       cmocka_unit_test(ranks_do_not_matter),
                                       cmocka_unit_test(online),
                                       cmocka_unit_test(bad_recipes),
                                       cmocka_unit_test(whole_pipeline)};
    return cmocka_run_group_tests(tests, setup, small_teardown);
}
