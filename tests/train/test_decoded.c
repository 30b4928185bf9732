// Held-out acceptance as the decoder has it: the same as the documents promise, and told where it is not.
#include "train/task/decoded.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "infer/generate/generate.h"
#include "kernels/base/arena.h"
#include "kernels/base/dtype.h"
#include "kernels/base/files.h"
#include "kernels/base/rng.h"
#include "tests/train/small.h"
#include "tests/whole.h"
#include "train/loop/block.h"
#include "train/run/run.h"
#include "train/source/teacher.h"
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define EVERY 2 // one prompt in so many is held out
#define MOST 24
#define NEW 40
#define STEPS 3
#define SHIFT 8  // of a mask: fewer of the prompt's tokens are what the target would say anyway
#define WIDTH 32 // of the target
#define TRAIN "train.steps=200\ntrain.holdout=2\ntrain.eval_every=100\ntrain.eval_steps=3\ntrain.checkpoint_every=0\n"

static char *base(const char *name) {
    char *path = pl_path_join(small_base, name);
    assert_non_null(path);
    return path;
}

#define must(call)                                                                                                     \
    do {                                                                                                               \
        if ((call) != PL_OK) fail_msg("%s", err.msg);                                                                  \
    } while (0)

// ---- a drafter in training form, its checkpoint, held-out documents

typedef struct rig {
    pl_target          target;
    pl_teacher         teacher;
    pl_backbone       *model;
    pl_param_block     block;
    pl_unroll          u;
    pl_feature_source *train, *held;
    pl_env             env;
    char              *folder; // BASE/good's checkpoint
} rig;

static void open_documents(rig *r, uint64_t seed) {
    pl_err           err = {0};
    pl_dataset_attrs want = {.A = r->model->n_taps};
    char            *data = base("data/dataset");
    for (int i = 0; i < want.A; i++)
        want.tap_layer_ids[i] = r->model->tap[i];
    must(pl_offline_sources(&r->train, &r->held, data, &want, seed, EVERY, 0, NULL, &err));
    assert_non_null(r->held);
    pl_free(data);
}

static void close_documents(rig *r) {
    r->train->destroy(r->train);
    r->held->destroy(r->held);
}

static void open_rig(rig *r) {
    pl_err              err = {0};
    char               *target = base("target/checkpoints/last");
    const pl_backend   *be = pl_backend_cpu();
    pl_weight_source   *src;
    pl_backbone_options o = {.n_taps = 0};
    pl_unroll_options   uo = {.capacity = 200, .steps = STEPS, .step_decay = 1, .token_weight = 1};
    *r = (rig){.env = small_env(NULL), .folder = base("good/checkpoints/last")};
    must(pl_target_open(&r->target, target, NULL, NULL, PL_WEIGHTS_BF16, be, &err));
    must(pl_teacher_open(&r->teacher, target, PL_BF16, be, false, NULL, &err));
    must(pl_backbone_create(&r->model, &pl_backbone_eagle3, &r->teacher.model, &o, be, &err));
    pl_param_block_options bo = {.backend = be, .round_to = PL_BF16};
    must(pl_param_block_create(&r->block, &r->model->params, &bo, &err));
    must(pl_weight_source_open(&src, r->folder, &err));
    must(pl_param_block_read(&r->block, src, &err));
    pl_weight_source_close(src);
    must(pl_unroll_create(&r->u, r->model, r->teacher.head, &uo, be, NULL, &err));
    open_documents(r, 1);
    pl_free(target);
}

static void close_rig(rig *r) {
    close_documents(r);
    pl_unroll_destroy(&r->u);
    pl_param_block_destroy(&r->block);
    pl_backbone_destroy(r->model);
    pl_teacher_close(&r->teacher);
    pl_target_close(&r->target);
    pl_free(r->folder);
}

// What held-out documents promise of the rig's drafter, beside what the checkpoint in `folder` does.
static pl_decoded_figures measure(rig *r, const char *folder) {
    pl_err             err = {0};
    pl_decoded         d;
    pl_decoded_figures f;
    must(pl_decoded_documents(&d, r->held, MOST, true, NEW, STEPS, r->u.opt.capacity, &err));
    assert_true(d.n >= 8);
    assert_true(d.sampling.temperature == 0);
    must(pl_decoded_promise(&d, &r->u, r->held, &err));
    must(pl_decoded_run(&d, &r->env, &r->target, folder, &err));
    pl_decoded_compare(&d, &f);
    pl_decoded_fini(&d);
    return f;
}

static void show(const char *what, const pl_decoded_figures *f) {
    print_message("%-28s %.3f promised, %.3f decoded, error %.3f, reproduced %.2f%s\n", what, f->promised_length,
                  f->decoded_length, f->error, f->reproduced, f->alarm ? "; alarm" : "");
}

// ---- no mistake

// Greedy documents are the cycles that decoding makes, one by one.
static void greedy_documents(void **state) {
    (void)state;
    rig r;
    open_rig(&r);
    pl_decoded_figures f = measure(&r, r.folder);
    show("greedy", &f);
    assert_false(f.alarm);
    assert_true(f.reproduced == 1);
    assert_true(f.decoded_length > 1.3 && f.decoded_length < STEPS + 1);
    assert_true(f.decoded.cycles == f.promised.cycles && f.decoded.emitted == f.promised.emitted);
    for (int k = 0; k < STEPS; k++)
        assert_true(f.decoded.accepted[k] == f.promised.accepted[k]);
    close_rig(&r);
}

// BASE/name/dataset, by this seed.
static void generate(const char *name, int seed, const pl_taps *taps) {
    pl_err err = {0};
    char   lines[512];
    pl_env env = small_env(NULL);
    char  *dir = base(name);
    snprintf(lines, sizeof lines, "%sseed=%d\n", small_data_lines, seed);
    pl_recipe *r = small_recipe(lines);
    must(pl_generate_run(r, taps, dir, &env, &err));
    pl_recipe_close(r);
    pl_free(dir);
}

// Draws of their own: by chance others than the documents', and seldom an alarm.
static void sampled_documents(void **state) {
    (void)state;
    const int seeds = test_whole() ? 20 : 10;
    int       alarms = 0, moved = 0;
    double    sum = 0, squares = 0;
    pl_err    err = {0};
    for (int seed = 1; seed <= seeds; seed++) {
        char   run[64], lines[512];
        double first, alarm, promised, decoded, error;
        snprintf(run, sizeof run, "seed-%d", seed);
        snprintf(
            lines, sizeof lines,
            TRAIN
            "train.steps=60\nseed=%d\neval.temperatures=[1]\ntrain.eval_every=0\ndata.dataset=BASE/seed-%d/dataset\n",
            seed, seed);
        generate(run, seed, NULL);
        must(small_run(run, lines, 0, NULL, &err));
        small_metric(run, "alarm", &first, &alarm);
        small_metric(run, "documents_promised_length", &first, &promised);
        small_metric(run, "documents_decoded_length", &first, &decoded);
        small_metric(run, "documents_difference_error", &first, &error);
        if (seed == 1) print_message("%.3f promised, %.3f decoded, error %.3f\n", promised, decoded, error);
        alarms += alarm > 0;
        moved += fabs(decoded - promised) > error;
        sum += (decoded - promised) / error;
        squares += pow((decoded - promised) / error, 2);
    }
    double mean = sum / seeds, deviation = sqrt(squares / seeds - mean * mean);
    print_message("%d held-out seeds: %d alarms; differences over their error: mean %.2f, deviation %.2f, %d above 1\n",
                  seeds, alarms, mean, deviation, moved);
    assert_true(20 * alarms <= seeds);
    assert_true(fabs(mean) < 4 / sqrt(seeds) && deviation > 0.5 && deviation < 2); // unbiased, and the error is right
}

// ---- what is served is not what was trained

static void replace(char *text, size_t room, const char *from, const char *to) {
    char *at = strstr(text, from);
    if (!at) fail_msg("no %s in %s", from, text);
    size_t tail = strlen(at + strlen(from)) + 1;
    assert_true((size_t)(at - text) + strlen(to) + tail <= room);
    memmove(at + strlen(to), at + strlen(from), tail);
    memcpy(at, to, strlen(to));
}

// The drafter as the rig has it, in BASE/name; config.json changed, or a norm's gain.
static char *served(rig *r, const char *name, const char *from, const char *to, const char *norm) {
    pl_err        err = {0};
    pl_param_view view;
    float         gain[WIDTH];
    bool          found = false;
    char         *dir = base(name), *path = pl_path_join(dir, "config.json"), text[8192];
    uint8_t      *config;
    size_t        n;
    must(pl_dir_make(dir, &err));
    must(pl_param_view_init(&view, &r->block, &err));
    for (int i = 0; i < WIDTH; i++)
        gain[i] = 0.2f;
    for (int i = 0; norm && i < r->model->params.n; i++)
        if (strcmp(r->model->params.p[i].name[0], norm) == 0) {
            assert_int_equal(pl_param_block_count(&r->block, i), WIDTH);
            view.data[i] = gain;
            found = true;
        }
    assert_true(found || !norm);
    must(pl_backbone_write(r->model, dir, view.data, PL_BF16, &err));
    pl_param_view_fini(&view);
    must(pl_file_read(path, &config, &n, sizeof text - 256, &err));
    memcpy(text, config, n + 1);
    if (from) replace(text, sizeof text, from, to);
    must(pl_file_write_atomic(path, text, strlen(text), &err));
    pl_free(config), pl_free(path);
    return dir;
}

static void served_otherwise(void **state) {
    (void)state;
    rig r;
    open_rig(&r);
    const struct {
        const char *name, *from, *to, *norm;
    } of[] = {{"as it is", NULL, NULL, NULL},
              {"a layer off by one", "[\n      1,", "[\n      0,", NULL},
              {"another RoPE base", "\"rope_theta\": 10000.0", "\"rope_theta\": 100.0", NULL},
              {"a norm of another gain", NULL, NULL, "midlayer.hidden_norm.weight"}};
    for (size_t i = 0; i < sizeof of / sizeof *of; i++) {
        char              *dir = served(&r, of[i].name, of[i].from, of[i].to, of[i].norm);
        pl_decoded_figures f = measure(&r, dir);
        show(of[i].name, &f);
        assert_int_equal(f.alarm, i > 0);
        assert_true(f.reproduced == 1); // whatever is drafted, the text is the target's
        pl_free(dir);
    }
    close_rig(&r);
}

// ---- data that were made otherwise

typedef void (*spoil)(pl_columns *doc, const pl_columns_shape *s);

// BASE/name: the dataset of `from`, every document spoilt, with the attributes of BASE/data's.
static void copy_dataset(const char *from, const char *name, spoil fn) {
    pl_err             err = {0};
    pl_dataset        *src, *like;
    pl_dataset_writer *w;
    char              *in = base(from), *right = base("data/dataset"), *out = base(name);
    must(pl_dataset_open(&src, in, NULL, &err));
    must(pl_dataset_open(&like, right, NULL, &err));
    must(pl_dataset_writer_create(&w, out, pl_dataset_get_attrs(like), 1 << 20, &err));
    pl_columns_shape shape = pl_dataset_read_shape(src);
    for (int64_t i = 0; i < pl_dataset_docs(src); i++) {
        pl_columns   doc = {0};
        pl_doc_about about;
        int64_t      first, n;
        must(pl_dataset_doc(src, i, &first, &n, &err));
        must(pl_columns_reserve(&doc, &shape, n, &err));
        must(pl_dataset_read_doc(src, i, &doc, &err));
        must(pl_dataset_doc_about(src, i, &about, &err));
        doc.n = n;
        doc.about = &about;
        if (fn) fn(&doc, &shape);
        must(pl_dataset_append(w, &doc, &err));
        pl_columns_free(&doc);
    }
    must(pl_dataset_writer_close(w, &err));
    pl_dataset_close(src);
    pl_dataset_close(like);
    pl_free(in), pl_free(right), pl_free(out);
}

static void a_row_late(pl_columns *doc, const pl_columns_shape *s) {
    int64_t width = s->d * s->taps;
    memmove(doc->features + width, doc->features, (size_t)((doc->n - 1) * width) * sizeof *doc->features);
}

static void normed(pl_columns *doc, const pl_columns_shape *s) {
    for (int64_t i = 0; i < doc->n * s->taps; i++) {
        uint16_t *x = doc->features + i * s->d;
        double    sum = 1e-6;
        for (int64_t k = 0; k < s->d; k++)
            sum += pow((double)pl_bf16_to_f32(x[k]), 2) / (double)s->d;
        for (int64_t k = 0; k < s->d; k++)
            x[k] = pl_f32_to_bf16((float)((double)pl_bf16_to_f32(x[k]) / sqrt(sum)));
    }
}

static void mask_early(pl_columns *doc, const pl_columns_shape *s) {
    (void)s;
    memmove(doc->loss_mask, doc->loss_mask + SHIFT, (size_t)doc->n - SHIFT);
}

static void mask_late(pl_columns *doc, const pl_columns_shape *s) {
    (void)s;
    memmove(doc->loss_mask + 1, doc->loss_mask, (size_t)doc->n - 1);
}

// A drafter trained on such data learns from them as well as another, and promises as much.
static void data_otherwise(void **state) {
    (void)state;
    pl_err err = {0};
    generate("layers", 1, &(pl_taps){.n = 3, .layer = {0, 1, 2}});
    const struct {
        const char *name, *from;
        spoil       fn;
        bool        alarm;
    } of[] = {{"copied", "data/dataset", NULL, false},
              {"layers-off", "layers/dataset", NULL, true},
              {"a-row-late", "data/dataset", a_row_late, true},
              {"normed", "data/dataset", normed, true},
              {"mask-early", "data/dataset", mask_early, true},
              {"mask-late", "data/dataset", mask_late, false}}; // the target says again what is left: no harm
    for (size_t i = 0; i < sizeof of / sizeof *of; i++) {
        char   run[64], lines[512];
        double first, alarm, promised, decoded;
        copy_dataset(of[i].from, of[i].name, of[i].fn);
        snprintf(run, sizeof run, "run-%s", of[i].name);
        snprintf(lines, sizeof lines, TRAIN "data.dataset=BASE/%s\n", of[i].name);
        must(small_run(run, lines, 0, NULL, &err));
        small_metric(run, "alarm", &first, &alarm);
        small_metric(run, "documents_promised_length", &first, &promised);
        small_metric(run, "documents_decoded_length", &first, &decoded);
        print_message("%-28s %.3f promised, %.3f decoded%s\n", of[i].name, promised, decoded,
                      alarm > 0 ? "; alarm" : "");
        assert_int_equal(alarm > 0, of[i].alarm);
        assert_true(of[i].alarm || decoded == promised);
    }
}

// ---- served in another mode than the data were made in

#define CHAT                                                                                                           \
    "target.path=BASE/chat/checkpoints/last\ndata.form=chat\ndata.chat.template=BASE/chat.jinja\n"                     \
    "data.prompts=BASE/said.jsonl\ndata.max_new_tokens=40\ndata.samples=0\ndata.greedy=true\neval.holdout=12\n"        \
    "data.chat.kwargs={\"enable_thinking\": false}\n"

// A language of two modes: a target that answers after "says:" about riders, and counts after "thinks:".
static void write_chats(void) {
    static const char *who[] = {"rider", "sprinter", "leader", "coach", "team", "train"};
    static const char *does[] = {"follows", "passes", "calls", "watches", "leaves", "drafts"};
    static const char *number[] = {"one", "two", "three", "four", "five", "six"};
    char              *text = base("chats.txt"), *said = base("said.jsonl"), *jinja = base("chat.jinja");
    FILE              *f = fopen(text, "w"), *p = fopen(said, "w"), *t = fopen(jinja, "w");
    pl_rng             rng = pl_rng_make(2, PL_STREAM_TEST, 0);
    uint64_t           at = 0;
    assert_true(f && p && t);
    fputs("{% for m in messages %}Who {{ m.content }}?\n{% endfor %}{% if enable_thinking %}thinks:{% else %}says:"
          "{% endif %}",
          t);
    for (int i = 0; i < 600; i++) {
        bool        thinks = i % 2;
        const char *first = does[pl_rng_below(rng, at++, 6)], *second = who[pl_rng_below(rng, at++, 6)];
        fprintf(f, "Who %s the %s?\n%s", first, second, thinks ? "thinks:" : "says:");
        for (int k = 0; k < 6; k++) {
            int a = (int)pl_rng_below(rng, at++, 6), b = (int)pl_rng_below(rng, at++, 6);
            if (thinks)
                fprintf(f, " %s and %s, not %s;", number[a], number[b], number[(a + b) % 6]);
            else
                fprintf(f, " the %s %s the %s.", who[a], does[b], who[(a + 2 * b + 1) % 6]);
        }
        fputs("\n\n", f);
    }
    for (int i = 0; i < 36; i++)
        fprintf(p, "{\"prompt\": \"%s the %s\"}\n", does[i % 6], who[i / 6]);
    assert_true(fclose(f) == 0 && fclose(p) == 0 && fclose(t) == 0);
    pl_free(text), pl_free(said), pl_free(jinja);
}

static void run_chat(const char *out, const char *extra) {
    pl_err err = {0};
    char   lines[2048];
    pl_env env = small_env(NULL);
    char  *dir = base(out);
    snprintf(lines, sizeof lines,
             CHAT "train.steps=200\ntrain.holdout=3\ntrain.slot_rows=200\ntrain.unroll=3\ntrain.lr=5e-3\n"
                  "train.warmup=5\ntrain.clip=0.5\ntrain.eval_steps=3\ndata.dataset=BASE/chat-data/dataset\n%s",
             extra);
    pl_recipe *r = small_recipe(lines);
    must(pl_train_run(r, dir, &env, &err));
    pl_recipe_close(r);
    pl_free(dir);
}

static void thinking(void **state) {
    (void)state;
    pl_err     err = {0};
    pl_env     env = small_env(NULL);
    char      *target = base("chat"), *data = base("chat-data");
    double     first, alarm, promised, served;
    pl_recipe *r, *g;
    write_chats();
    r = small_recipe("kind=target\ndata.text=BASE/chats.txt\ndata.tokenizer.vocab_size=380\n"
                     "target.new.hidden_size=32\ntarget.new.layers=3\ntarget.new.heads=4\ntarget.new.kv_heads=2\n"
                     "target.new.intermediate=48\ntarget.new.positions=96\ntrain.steps=250\ntrain.batch=8\n"
                     "train.seq_len=64\ntrain.lr=1e-2\ntrain.warmup=10");
    must(pl_train_run(r, target, &env, &err));
    g = small_recipe(CHAT);
    must(pl_generate_run(g, NULL, data, &env, &err));
    // As the data were made.
    run_chat("same", "");
    small_metric("same", "alarm", &first, &alarm);
    assert_true(alarm == 0);
    // Thinking.
    run_chat("thinks", "eval.chat.kwargs={\"enable_thinking\": true}\n");
    small_metric("thinks", "alarm", &first, &alarm);
    small_metric("thinks", "documents_promised_length", &first, &promised);
    small_metric("thinks", "served_decoded_length", &first, &served);
    print_message("%.3f promised by answers that do not think, %.3f served thinking\n", promised, served);
    assert_true(alarm == 1 && served < promised);
    // Said otherwise, but the same form: nothing else to decode.
    run_chat("said", "train.steps=40\neval.chat.kwargs={\"enable_thinking\": false}\n");
    small_metric("said", "alarm", &first, &alarm);
    assert_true(alarm == 0);
    uint8_t *lines;
    size_t   n;
    small_read("said", "metrics.jsonl", &lines, &n);
    assert_null(strstr((char *)lines, "served_decoded"));
    pl_free(lines);
    pl_recipe_close(r), pl_recipe_close(g);
    pl_free(target), pl_free(data);
}

static int setup(void **state) {
    pl_err err = {0};
    if (small_setup(state) != 0) return -1;
    if (small_run("good", TRAIN, 0, NULL, &err) == PL_OK) return 0;
    print_error("%s\n", err.msg);
    return -1;
}

int main(void) {
    const struct CMUnitTest tests[] = {cmocka_unit_test(greedy_documents), cmocka_unit_test(sampled_documents),
                                       cmocka_unit_test(served_otherwise), cmocka_unit_test(data_otherwise),
                                       cmocka_unit_test(thinking)};
    return cmocka_run_group_tests(tests, setup, small_teardown);
}
