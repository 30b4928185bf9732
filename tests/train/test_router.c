// Routed heads from a recipe: traces of a trained drafter, clusters of its head, a router that learns where its best
// tokens lie.
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "data/dataset/dataset.h"
#include "infer/drafter/backbone.h"
#include "infer/head/dynaspec.h"
#include "kernels/base/arena.h"
#include "kernels/base/files.h"
#include "kernels/base/log.h"
#include "kernels/op/elementwise.h"
#include "kernels/op/topk.h"
#include "tests/train/small.h"
#include "train/keys.h"
#include "train/task/routed.h"
#include "train/task/traces.h"
#include <math.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { D = 32, V = 380, TOP = 6 };

#define ROUTED                                                                                                         \
    "drafter.start=BASE/full/checkpoints/best\ndrafter.head.kind=dynaspec\ndrafter.head.clusters=24\n"                 \
    "drafter.head.k0=6\ndrafter.head.width=24\ndrafter.head.top=4\ntraces.top=6\ntraces.tree=eagle2:8,2,4\n"           \
    "train.slots=2\ntrain.slot_rows=128\ntrain.holdout=4\ntrain.unroll=0\n"

static const pl_dataset_attrs any = {.top = -1, .A = -1};

static pl_dataset *open_traces(const char *name) {
    pl_err      err = {0};
    pl_dataset *ds;
    char       *dir = pl_path_join(small_base, name);
    if (pl_dataset_open(&ds, dir, &(pl_dataset_open_options){.want = &any}, &err) != PL_OK) fail_msg("%s", err.msg);
    pl_free(dir);
    return ds;
}

// The drafters to start from: a full head, one that is trimmed, EAGLE-1 with its target's.
static int setup(void **state) {
    pl_err err = {0};
    if (small_setup(state) != 0) return -1;
    pl_status st = small_run("full", "train.eval_steps=3", 0, NULL, &err);
    if (st == PL_OK) st = small_run("eagle1", "drafter.kind=eagle1\ntrain.unroll=1\ntrain.steps=20", 0, NULL, &err);
    if (st != PL_OK) print_error("%s\n", err.msg);
    return st == PL_OK ? 0 : -1;
}

static pl_status capture(const char *extra, const char *to, pl_pool *pool, pl_err *err) {
    char lines[4096];
    snprintf(lines, sizeof lines, "%s%s%s", small_data_lines, ROUTED, extra);
    pl_recipe *r = small_recipe(lines);
    char      *dir = pl_path_join(small_base, to);
    pl_env     env = small_env(pool);
    pl_status  st = pl_traces_capture(r, small_base, dir, &env, err);
    pl_recipe_close(r);
    pl_free(dir);
    return st;
}

static pl_columns read_rows(pl_dataset *ds) {
    pl_err           err = {0};
    pl_columns       r = {.n = pl_dataset_rows(ds)};
    pl_columns_shape shape = pl_dataset_shape(pl_dataset_get_attrs(ds));
    assert_int_equal(shape.d, D);
    assert_int_equal(shape.top, TOP);
    assert_int_equal(pl_columns_reserve(&r, &shape, r.n, &err), PL_OK);
    if (pl_dataset_read(ds, 0, r.n, &r, &err) != PL_OK) fail_msg("%s", err.msg);
    return r;
}

typedef struct dist {
    const pl_head *head;
    pl_tensor      x;
    int32_t        id[TOP];
    float          value[TOP], lse;
} dist;

static void best_of(pl_ctx *ctx, void *arg) {
    dist        *l = arg;
    pl_head_rows r = {.x = l->x};
    pl_head_topk(ctx, l->head, &r, TOP, l->id, l->value, &l->lse);
}

// Rows are what they say: the head's own distribution of `output`; roots of trees are single rows of depth 0 that
// consume a token of the text; every level has at most the tree's width; both sides are there.
static void traces_hold(void **state) {
    (void)state;
    pl_err err = {0};
    if (capture("", "traces", NULL, &err) != PL_OK) fail_msg("%s", err.msg);
    pl_dataset  *ds = open_traces("traces");
    pl_columns   r = read_rows(ds);
    char        *target = pl_path_join(small_base, "target/checkpoints/last");
    char        *best = pl_path_join(small_base, "full/checkpoints/best");
    pl_llama     m;
    pl_backbone *b;
    pl_ctx       ctx;
    int64_t      depths[8] = {0}, held = 0;
    assert_int_equal(pl_llama_open(&m, target, PL_BF16, pl_backend_cpu(), &err), PL_OK);
    assert_int_equal(pl_backbone_open(&b, best, &m, PL_BF16, &err), PL_OK);
    float x[D];
    dist  l = {.head = &b->head, .x = pl_tensor_2d(x, PL_F32, 1, D)};
    assert_int_equal(pl_ctx_init(&ctx, pl_backend_cpu(), NULL), PL_OK);
    assert_int_equal(pl_ctx_measure(&ctx, best_of, &l, &err), PL_OK);
    assert_true(r.n > 1000);
    for (int64_t i = 0; i < r.n; i++) {
        assert_true(r.depth[i] < 4 && r.beam[i] < 2 && (r.depth[i] > 0 || r.beam[i] == 0));
        assert_true(i == 0 || r.depth[i] <= r.depth[i - 1] + 1);
        depths[r.depth[i]]++;
        held += r.held_out[i];
        if (i % 50) continue;
        pl_to_f32(x, r.output + i * D, PL_BF16, D); // rounded: near what the drafter computed from
        pl_ctx_begin(&ctx);
        best_of(&ctx, &l);
        assert_int_equal(pl_ctx_sync(&ctx, &err), PL_OK);
        double sum = 0;
        for (int k = 0; k < TOP; k++) {
            double p = (double)r.top_prob[i * TOP + k];
            sum += p;
            assert_true(k == 0 || r.top_prob[i * TOP + k] <= r.top_prob[i * TOP + k - 1]);
            assert_true(fabs(p - exp((double)l.value[k] - (double)l.lse)) < 0.05);
        }
        assert_true(sum <= 1.0001);
        if (r.top_prob[i * TOP] > r.top_prob[i * TOP + 1] + 0.1f) assert_int_equal(l.id[0], r.top_id[i * TOP]);
    }
    assert_true(depths[0] > 100 && depths[1] >= depths[0] && depths[3] > 0 && depths[4] == 0);
    assert_true(held > 0 && held < r.n / 2);
    pl_ctx_fini(&ctx);
    pl_backbone_destroy(b);
    pl_llama_fini(&m);
    pl_columns_free(&r);
    pl_dataset_close(ds);
    pl_free(target), pl_free(best);
}

// The same rows on two threads; a complete capture is left alone, and refused to a recipe that asks for another; a
// limit takes the first documents.
static void traces_again(void **state) {
    (void)state;
    pl_err   err = {0};
    pl_pool *pool;
    assert_int_equal(pl_pool_create(&pool, 2, &err), PL_OK);
    if (capture("", "again", pool, &err) != PL_OK) fail_msg("%s", err.msg);
    small_same("traces", "again", "manifest.json"); // with its shards' checksums
    assert_int_equal(capture("", "again", pool, &err), PL_OK);
    assert_int_equal(capture("traces.top=5", "again", pool, &err), PL_E_INPUT);
    assert_non_null(strstr(err.msg, "again: holds the 6 best ids, wanted are 5; capture the traces again"));
    assert_int_equal(capture("traces.tree=eagle2:8,2,3", "again", pool, &err), PL_E_INPUT);
    assert_non_null(strstr(err.msg, "again: made with tree eagle2:8,2,4, wanted is eagle2:8,2,3"));
    small_same("traces", "again", "manifest.json");
    assert_int_equal(capture("seed=5", "again", pool, &err), PL_E_INPUT); // other documents are held out
    assert_non_null(strstr(err.msg, "again: captured along other documents"));
    assert_int_equal(capture("train.holdout=5", "again", pool, &err), PL_E_INPUT);
    assert_int_equal(capture("traces.rows=500", "few", pool, &err), PL_OK);
    pl_dataset *all = open_traces("traces"), *few = open_traces("few");
    pl_columns  a = read_rows(all), f = read_rows(few);
    assert_true(f.n >= 500 && f.n < 1000 && pl_dataset_docs(few) < pl_dataset_docs(all));
    assert_memory_equal(a.tokens, f.tokens, (size_t)f.n * 4);
    assert_memory_equal(a.output, f.output, (size_t)f.n * D * 2);
    pl_columns_free(&f);
    pl_dataset_close(few);

    // Of as many rows as were asked for then, and no others, complete or not.
    char *manifest = pl_path_join(small_base, "few/manifest.json");
    assert_int_equal(capture("traces.rows=500", "few", pool, &err), PL_OK);
    for (int stopped = 0; stopped < 2; stopped++) {
        static const char *const other[][2] = {{"", "200000"}, {"traces.rows=499", "499"}, {"traces.rows=0", "0"}};
        for (int i = 0; i < 3; i++) {
            char says[64];
            assert_int_equal(capture(other[i][0], "few", pool, &err), PL_E_INPUT);
            snprintf(says, sizeof says, "few: captured with traces.rows 500, wanted is %s; ", other[i][1]);
            if (!strstr(err.msg, says)) fail_msg("%s", err.msg);
        }
        uint8_t *text;
        size_t   n;
        small_read("few", "manifest.json", &text, &n);
        char *at = strstr((char *)text, "\"complete\":"), *whole;
        assert_non_null(at);
        at = strstr(at, stopped ? "false" : "true");
        assert_non_null(at);
        memcpy(at, "null", 4); // as long as what it replaces, and then as it should be
        if (!stopped) {
            assert_int_equal(pl_file_write_atomic(manifest, text, n, &err), PL_OK);
            assert_int_equal(capture("", "few", pool, &err), PL_E_INPUT);
            whole = pl_sprintf("%.*sfalse%s", (int)(at - (char *)text), (char *)text, at + 4);
            assert_int_equal(pl_file_write_atomic(manifest, whole, strlen(whole), &err), PL_OK);
            pl_free(whole);
        }
        pl_free(text);
    }
    assert_int_equal(capture("traces.rows=500", "few", pool, &err), PL_OK);

    // One that was stopped after its first documents goes on to the same rows.
    pl_stop_install();
    pl_stop_hold();
    assert_int_equal(raise(SIGTERM), 0);
    assert_int_equal(capture("", "stopped", pool, &err), PL_E_INTERRUPTED);
    pl_stop_install(); // forgets it
    pl_stop_release();
    pl_dataset *part;
    char       *dir = pl_path_join(small_base, "stopped");
    assert_int_equal(pl_dataset_open(&part, dir, &(pl_dataset_open_options){.want = &any, .incomplete = true}, &err),
                     PL_OK);
    assert_true(pl_dataset_docs(part) > 0 && pl_dataset_docs(part) < pl_dataset_docs(all));
    pl_dataset_close(part);
    pl_free(dir);
    if (capture("", "stopped", pool, &err) != PL_OK) fail_msg("%s", err.msg);
    few = open_traces("stopped");
    f = read_rows(few);
    assert_int_equal(f.n, a.n);
    assert_memory_equal(a.tokens, f.tokens, (size_t)f.n * 4);
    assert_memory_equal(a.held_out, f.held_out, (size_t)f.n);
    assert_memory_equal(a.hidden, f.hidden, (size_t)f.n * D * 2);
    assert_memory_equal(a.output, f.output, (size_t)f.n * D * 2);
    assert_memory_equal(a.top_id, f.top_id, (size_t)f.n * TOP * 4);
    assert_memory_equal(a.top_prob, f.top_prob, (size_t)f.n * TOP * 4);
    pl_columns_free(&a), pl_columns_free(&f);
    pl_dataset_close(all), pl_dataset_close(few);
    pl_free(manifest);
    pl_pool_destroy(pool);
}

// ---- training

// Backbone and head rows are the start's: each row by its target id.
static void same_rows(const char *out) {
    pl_err            err = {0};
    pl_weight_source *a, *b;
    char             *from = pl_path_join(small_base, "full/checkpoints/best"), *to = pl_path_join(small_base, out);
    char             *best = pl_path_join(to, "checkpoints/best");
    assert_int_equal(pl_weight_source_open(&a, from, &err), PL_OK);
    assert_int_equal(pl_weight_source_open(&b, best, &err), PL_OK);
    const char *same[] = {"fc.weight", "midlayer.mlp.down_proj.weight", "norm.weight"};
    for (int i = 0; i < 3; i++) {
        const pl_weight_entry *x = pl_weight_source_find(a, same[i]), *y = pl_weight_source_find(b, same[i]);
        assert_true(x && y && x->bytes == y->bytes);
        assert_memory_equal(x->data, y->data, x->bytes);
    }
    const uint16_t *x = pl_weight_source_find(a, "lm_head.weight")->data;
    const uint16_t *y = pl_weight_source_find(b, "lm_head.weight")->data;
    const char     *offset = pl_weight_source_find(b, "d2t")->data;
    int             moved = 0;
    for (int i = 0; i < V; i++) {
        int64_t d;
        memcpy(&d, offset + 8 * i, 8);
        assert_memory_equal(y + i * D, x + (i + d) * D, D * 2);
        moved += d != 0;
    }
    assert_true(moved > V / 2);
    pl_weight_source_close(a);
    pl_weight_source_close(b);
    pl_free(from), pl_free(to), pl_free(best);
}

static void opens(const char *out, pl_router_kind kind) {
    pl_err       err = {0};
    char        *dir = pl_path_join(small_base, out), *best = pl_path_join(dir, "checkpoints/best");
    char        *target = pl_path_join(small_base, "target/checkpoints/last");
    pl_llama     m;
    pl_backbone *b;
    assert_int_equal(pl_llama_open(&m, target, PL_BF16, pl_backend_cpu(), &err), PL_OK);
    if (pl_backbone_open(&b, best, &m, PL_BF16, &err) != PL_OK) fail_msg("%s", err.msg);
    assert_string_equal(b->head.kind->name, "dynaspec");
    assert_int_equal((int)pl_routed_of(&b->head)->router.kind, kind);
    assert_int_equal(pl_routed_of(&b->head)->own->clusters, 24);
    pl_backbone_destroy(b);
    pl_llama_fini(&m);
    pl_free(dir), pl_free(best), pl_free(target);
}

// A recipe without a budget has the paper's, k0 > k1 and down to 1 cluster; a setting that it names stays.
static void budgets_left_open(void **state) {
    (void)state;
    static const struct {
        const char *lines;
        int         k0, k1, kmin;
    } cases[] = {{"", 64, 32, 1},
                 {"drafter.head.clusters=7\n", 1, 1, 1},
                 {"drafter.head.k0=20\n", 20, 10, 1},
                 {"drafter.head.k0=64\ndrafter.head.k1=16\n", 64, 16, 1},
                 {"drafter.head.k1=1\n", 64, 1, 1},
                 {"drafter.head.kmin=4\n", 64, 32, 4},
                 {"drafter.head.fixed=true\n", 32, 0, 0}};
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        char lines[2048];
        snprintf(lines, sizeof lines, "%sdrafter.head.kind=dynaspec\n%s", small_data_lines, cases[i].lines);
        pl_recipe *r = small_recipe(lines);
        pl_hf_head h = pl_train_head_read(r);
        assert_int_equal(pl_hf_head_int(&h, "k0"), cases[i].k0);
        assert_int_equal(pl_hf_head_int(&h, "k1"), cases[i].k1);
        assert_int_equal(pl_hf_head_int(&h, "kmin"), cases[i].kmin);
        pl_recipe_close(r);
    }
}

// Traces come from EAGLE-2's own beams unless a recipe names others.
static void traced_by_eagle2(void **state) {
    (void)state;
    const char *tree = NULL;
    for (int i = 0; pl_backbone_choice(i); i++)
        if (strcmp(pl_backbone_choice(i), "eagle2") == 0) tree = pl_backbone_tree(i);
    pl_recipe *r = small_recipe("drafter.head.kind=dynaspec\n");
    assert_non_null(tree);
    assert_string_equal(pl_train_recipe_of(r)->traces.tree, tree);
    pl_recipe_close(r);
}

// It beats the shares that clusters have of rows by far, and the losses fall.
static void learns(void **state) {
    (void)state;
    pl_err err = {0};
    double first, last, eval_first, eval_last, rows_first, rows_last;
    if (small_run("routed", ROUTED "train.steps=60", 0, NULL, &err) != PL_OK) fail_msg("%s", err.msg);
    small_metric("routed", "loss", &first, &last);
    small_metric("routed", "eval_loss", &eval_first, &eval_last);
    small_metric("routed", "eval_mean_shortlist", &rows_first, &rows_last);
    assert_true(last < 0.7 * first && eval_last < eval_first);
    assert_true(rows_last > 10 && rows_last < V / 2);
    same_rows("routed");
    opens("routed", PL_ROUTER_MLP);

    // Mass at depth 0 within a quarter of the clusters.
    uint8_t *data;
    size_t   n;
    double   mass = 0, top = 0;
    small_read("routed", "metrics.jsonl", &data, &n);
    for (const char *at = (const char *)data; (at = strstr(at, "\"eval_head_mass\":[")); at++)
        mass = strtod(at + strlen("\"eval_head_mass\":["), NULL);
    for (const char *at = (const char *)data; (at = strstr(at, "\"eval_recall_head_best\":[")); at++)
        top = strtod(at + strlen("\"eval_recall_head_best\":["), NULL);
    assert_true(mass > 0.8 && top > 0.8);
    pl_free(data);
}

static void learns_coral(void **state) {
    (void)state;
    pl_err err = {0};
    double first, last;
    if (small_run("coral",
                  ROUTED "drafter.head.router=coral\ndrafter.head.width=128\ndrafter.head.fixed=true\ntrain.steps=40",
                  0, NULL, &err) != PL_OK)
        fail_msg("%s", err.msg);
    small_metric("coral", "eval_loss", &first, &last);
    assert_true(last < first);
    opens("coral", PL_ROUTER_CORAL);
}

static void learns_eagle1(void **state) {
    (void)state;
    pl_err err = {0};
    if (small_run("routed1",
                  ROUTED "drafter.start=BASE/eagle1/checkpoints/best\ndrafter.kind=eagle1\n"
                         "train.steps=20\ntrain.eval_every=0",
                  0, NULL, &err) != PL_OK)
        fail_msg("%s", err.msg);
    opens("routed1", PL_ROUTER_MLP);
}

static void resume_is_bit_for_bit(void **state) {
    (void)state;
    pl_err   err = {0};
    pl_pool *pool;
    assert_int_equal(pl_pool_create(&pool, 2, &err), PL_OK);
    const char *extra = ROUTED "train.steps=60\ntraces.path=BASE/routed/traces";
    assert_int_equal(small_run("parts", extra, 7, NULL, &err), PL_E_INTERRUPTED);
    assert_int_equal(small_run("parts", extra, 41, pool, &err), PL_E_INTERRUPTED);
    if (small_run("parts", extra, 0, NULL, &err) != PL_OK) fail_msg("%s", err.msg);
    small_same("routed", "parts", "checkpoints/last/training_state");
    small_same("routed", "parts", "checkpoints/last/model.safetensors");
    small_same("routed", "parts", "checkpoints/best/model.safetensors");
    small_same("routed", "parts", "checkpoints/best/config.json");
    // A damaged last/ is passed over.
    static const char *const broken[] = {"model.safetensors", "training_state"};
    const char              *often = ROUTED "train.steps=60\ntrain.checkpoint_every=20\ntraces.path=BASE/routed/traces";
    assert_int_equal(small_run("damaged", often, 47, NULL, &err), PL_E_INTERRUPTED);
    for (int i = 0; i < 2; i++) {
        char *path = pl_sprintf("%s/damaged/checkpoints/last/%s", small_base, broken[i]);
        assert_int_equal(truncate(path, 1000), 0);
        pl_free(path);
    }
    if (small_run("damaged", often, 0, NULL, &err) != PL_OK) fail_msg("%s", err.msg);
    small_same("routed", "damaged", "checkpoints/last/training_state");
    small_same("routed", "damaged", "checkpoints/last/model.safetensors");
    pl_pool_destroy(pool);
}

// The start's selector, as it is, behind the routed head: its rows where the head's are. Traces are of what it proposes.
static void inherits_selector(void **state) {
    (void)state;
    pl_err            err = {0};
    double            first, last;
    pl_weight_source *a, *b;
    char             *from = pl_path_join(small_base, "picks/checkpoints/last"), *to;
    char              lines[2048];
    if (small_run("picks", "drafter.selector.candidates=8\ntrain.steps=20\ntrain.warmup=0", 0, NULL, &err) != PL_OK)
        fail_msg("%s", err.msg);
    snprintf(lines, sizeof lines, "%sdrafter.start=BASE/picks/checkpoints/last\ntrain.steps=60", ROUTED);
    if (small_run("picked", lines, 0, NULL, &err) != PL_OK) fail_msg("%s", err.msg);
    small_metric("picked", "eval_loss", &first, &last);
    assert_true(last < first);
    opens("picked", PL_ROUTER_MLP);
    to = pl_path_join(small_base, "picked/checkpoints/last");
    pl_hf_config c;
    assert_int_equal(pl_hf_config_read(&c, to, PL_HF_DRAFTER, &err), PL_OK);
    assert_true(c.selector.candidates == 8 && c.selector.rank > 0);
    assert_int_equal(pl_weight_source_open(&a, from, &err), PL_OK);
    assert_int_equal(pl_weight_source_open(&b, to, &err), PL_OK);
    static const char *const same[] = {"predecessor_codebook", "hidden_projection.weight", "successor_codebook"};
    const char              *offset = pl_weight_source_find(b, "d2t")->data;
    for (int i = 0; i < 3; i++) {
        char name[64];
        snprintf(name, sizeof name, "candidate_selector.%s", same[i]);
        const pl_weight_entry *x = pl_weight_source_find(a, name), *y = pl_weight_source_find(b, name);
        assert_true(x && y && x->bytes == y->bytes && x->bytes > 0);
        if (i < 2) {
            assert_memory_equal(x->data, y->data, x->bytes);
            continue;
        }
        size_t  row = x->bytes / V;
        int64_t d, moved = 0, zeros = 0;
        for (int k = 0; k < V; k++) {
            memcpy(&d, offset + 8 * k, 8);
            assert_memory_equal((const uint8_t *)y->data + (size_t)k * row,
                                (const uint8_t *)x->data + (size_t)(k + d) * row, row);
            moved += d != 0;
            zeros += ((const uint16_t *)x->data)[(size_t)k * row / 2] == 0;
        }
        assert_true(moved > V / 2 && zeros < V); // it has learned
    }
    pl_weight_source_close(a);
    pl_weight_source_close(b);
    pl_free(from), pl_free(to);
}

// Other clusters learn from the same traces.
static void other_clusters(void **state) {
    (void)state;
    pl_err      err = {0};
    const char *extra[] = {"drafter.head.clusters=1", "drafter.head.clusters=380", "drafter.head.clusters=7"};
    char        out[16], lines[1024];
    for (int i = 0; i < 3; i++) {
        snprintf(out, sizeof out, "other%d", i);
        snprintf(lines, sizeof lines, "%straces.path=BASE/routed/traces\ntrain.steps=5\ntrain.warmup=0\n%s", ROUTED,
                 extra[i]);
        if (small_run(out, lines, 0, NULL, &err) != PL_OK) fail_msg("%s", err.msg);
    }
}

// A key that a routed head does not read is refused, those of other heads among them.
static void unread_keys(void **state) {
    (void)state;
    static const char *const other[][2] = {
        {"train.decay_embeddings", "false"},
        {"train.recompute", "true"},
        {"drafter.taps", "0,1"},
        {"drafter.intermediate", "40"},
        {"drafter.width", "40"},
        {"drafter.own_embeddings", "true"},
        {"drafter.layers", "3"},
        {"drafter.window", "64"},
        {"drafter.layer", "target"},
        {"drafter.norm_output", "true"},
        {"drafter.fc_norm", "true"},
        {"drafter.norm_before_fc", "true"},
        {"drafter.norm_before_residual", "true"},
        {"drafter.block", "4"},
        {"drafter.mask_token", "5"},
        {"drafter.anchor_first", "true"},
        {"drafter.conv.taps", "2"},
        {"drafter.conv.group", "4"},
        {"drafter.selector.candidates", "8"},
        {"drafter.selector.rank", "8"},
        {"drafter.selector.kind", "lattice"},
        {"drafter.selector.width", "8"},
        {"drafter.selector.layers", "1"},
        {"drafter.selector.heads", "2"},
        {"drafter.selector.scale", "3"},
        {"drafter.selector.law", "list"},
        {"drafter.bias", "true"},
        {"drafter.freeze", "backbone"},
        {"train.rows", "all"},
        {"train.learn_rows", "40"},
        {"train.unroll", "3"},
        {"train.eval_steps", "3"},
        {"train.anchors", "7"},
        {"train.draft_weights", "d-pace"},
        {"train.top_k", "5"},
        {"train.top_weight", "3"},
        {"train.depth_ratio", "0.5"},
        {"train.depth_floor", "0.5"},
        {"train.pace_alpha", "0.3"},
        {"train.confidence_weight", "2"},
        {"train.selector_weight", "0.5"},
        {"train.selector_objective", "kl"},
        {"train.objective", "hard-ce"},
        {"train.masked_teacher", "false"},
        {"train.masked_rows", "all"},
        {"train.js_beta", "0.3"},
        {"train.lk_decay", "2.5"},
        {"train.token_weight", "1"},
        {"train.feature_weight", "0.5"},
        {"train.noise", "0.1"},
        {"train.step_decay", "0.9"},
        {"drafter.head.vocab_size", "100"},
        {"drafter.head.position_aware", "true"},
        {"drafter.head.redistribute", "50"},
        {"drafter.head.acceptance", "true"},
        {"drafter.head.max_rejection", "500"},
        {"drafter.head.init", "random"},
        {"drafter.head.frozen", "true"},
        {"drafter.head.rank", "8"},
        {"drafter.head.candidates", "8"},
        {"drafter.head.form", "gated"},
        {"drafter.head.confidence", "true"},
        {"drafter.head.min_confidence", "100"},
        {"drafter.head.mlp_ratio", "3"},
        {"drafter.head.passes", "3"},
        {"train.rounds.count", "2"},
        {"train.rounds.weight", "0.5"},
        {"train.rounds.base", "0.5"},
    };
    enum { OTHERS = sizeof other / sizeof *other };
    for (int i = 0;; i++) {
        pl_err      err = {0};
        char        lines[2048], line[200];
        pl_recipe  *defaults = small_recipe("");
        const char *why;
        const void *field = pl_router_unread(defaults, i, &why);
        int         at = 0;
        if (!field) {
            assert_true(i >= OTHERS);
            pl_recipe_close(defaults);
            break;
        }
        const char *path = pl_recipe_path(defaults, field);
        while (at < OTHERS && strcmp(other[at][0], path) != 0)
            at++;
        if (at == OTHERS) fail_msg("%s: give it a value here", path);
        snprintf(lines, sizeof lines, "%straces.path=BASE/routed/traces\n%s=%s", ROUTED, path, other[at][1]);
        snprintf(line, sizeof line, "%s=%s: a routed head's run does not read it: %s", path, other[at][1], why);
        pl_recipe_close(defaults);
        assert_int_equal(small_run("bad", lines, 0, NULL, &err), PL_E_INPUT);
        if (!strstr(err.msg, line)) fail_msg("%s", err.msg);
    }
}

static void refused(void **state) {
    (void)state;
    static const char *const bad[][2] = {
        {"drafter.head.clusters=381", "clusters 381 must lie in 1..380"},
        {"drafter.head.top=7", "7, the traces hold 6 tokens of each row"},
        {"drafter.head.vocab=BASE/x.json", "a routed head has the rows of drafter.start's"},
        {"drafter.head.init=target", "its rows sorted by cluster; leave it out"},
        {"drafter.head.fixed=true\ndrafter.head.k1=3",
         "k1=3: a routed head's run does not read it: drafter.head.fixed"},
        {"drafter.head.fixed=true\ndrafter.head.kmin=3", "kmin=3: a routed head's run does not read it"},
        {"drafter.head.fixed=true\ndrafter.head.floored=true", "floored=true: a routed head's run does not read it"},
        {"drafter.head.router=coral", "width=24: a routed head's run does not read it"},
        {"drafter.kind=eagle1", "is an eagle3 drafter"},
        {"traces.top=5", "holds the 6 best ids, wanted are 5"},
        {"traces.tree=chain:3", "made with tree eagle2:8,2,4, wanted is chain:3"},
        {"drafter.start=BASE/eagle1/checkpoints/best", "made with drafter"},
        {"drafter.start=BASE/routed/checkpoints/best", "made with drafter"},
        {"traces.path=BASE/data/dataset", "holds features, wanted are traces"},
        {"drafter.start=BASE/nothing", "nothing"}};
    for (size_t i = 0; i < sizeof bad / sizeof *bad; i++) {
        pl_err err = {0};
        char   lines[2048];
        snprintf(lines, sizeof lines, "%straces.path=BASE/routed/traces\n%s", ROUTED, bad[i][0]);
        assert_int_not_equal(small_run("bad", lines, 0, NULL, &err), PL_OK);
        if (!strstr(err.msg, bad[i][1])) fail_msg("%s", err.msg);
    }
    static const char *const worse[][2] = {
        {"drafter.start=BASE/routed/checkpoints/best", "its head is of kind dynaspec; traces come from a full head"},
        {"traces.tree=auto", "changes with measured times"}};
    for (size_t i = 0; i < sizeof worse / sizeof *worse; i++) {
        pl_err err = {0};
        assert_int_not_equal(capture(worse[i][0], "worse", NULL, &err), PL_OK);
        if (!strstr(err.msg, worse[i][1])) fail_msg("%s", err.msg);
    }
    // A selector proposes its candidates alone.
    pl_err err = {0};
    assert_int_equal(capture("drafter.start=BASE/picks/checkpoints/last\ntraces.top=9", "worse", NULL, &err),
                     PL_E_INPUT);
    if (!strstr(err.msg, "9 best tokens are to be kept of a head of 8 candidates")) fail_msg("%s", err.msg);
    // A routed head is not what another drafter can start from.
    err = (pl_err){0};
    assert_int_equal(
        small_run("bad", "drafter.start=BASE/routed/checkpoints/best\ntrain.steps=1\ntrain.warmup=0", 0, NULL, &err),
        PL_E_INPUT);
    assert_non_null(strstr(err.msg, "its head is of kind dynaspec; start from a full head"));
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(traces_hold),
        cmocka_unit_test(traces_again),
        cmocka_unit_test(budgets_left_open),
        cmocka_unit_test(traced_by_eagle2),
        cmocka_unit_test(learns),
        cmocka_unit_test(learns_coral),
        cmocka_unit_test(learns_eagle1),
        cmocka_unit_test(resume_is_bit_for_bit),
        cmocka_unit_test(inherits_selector),
        cmocka_unit_test(other_clusters),
        cmocka_unit_test(unread_keys),
        cmocka_unit_test(refused),
    };
    return cmocka_run_group_tests(tests, setup, small_teardown);
}
