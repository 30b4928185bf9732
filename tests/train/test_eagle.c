// kind: drafter from a recipe: a small target, its answers, EAGLE-3 and EAGLE-1 drafters that learn to foresee them.
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "infer/backbone.h"
#include "infer/eval.h"
#include "infer/generate.h"
#include "kernels/base/arena.h"
#include "kernels/base/files.h"
#include "kernels/base/hash.h"
#include "kernels/base/json.h"
#include "kernels/base/rng.h"
#include "train/keys.h"
#include "train/run.h"
#include "train/source.h"
#include "train/teacher.h"
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static char base[64];

// A recipe from lines, each a key=value, with BASE for the folder.
static pl_recipe *recipe(const char *lines) {
    char        text[4096], *set[64];
    size_t      used = 0;
    int         n = 0;
    pl_recipe  *r;
    pl_err      err = {0};
    const char *at = lines;
    while (*at && n < 64) {
        size_t len = strcspn(at, "\n");
        set[n++] = text + used;
        for (size_t i = 0; i < len; i++) {
            if (strncmp(at + i, "BASE", 4) == 0) {
                used += (size_t)sprintf(text + used, "%s", base);
                i += 3;
            } else {
                text[used++] = at[i];
            }
        }
        text[used++] = 0;
        at += len + (at[len] == '\n');
    }
    const pl_recipe_key *tables[] = {pl_train_keys, pl_generate_keys, pl_eval_keys};
    if (pl_recipe_open(&r, NULL, tables, 3, (const char *const *)set, n, &err) != PL_OK) fail_msg("%s", err.msg);
    return r;
}

static const char target_lines[] = "kind=target\ndata.text=BASE/text.txt\ndata.tokenizer.vocab_size=380\n"
                                   "target.new.hidden_size=32\ntarget.new.layers=3\ntarget.new.heads=4\n"
                                   "target.new.kv_heads=2\ntarget.new.intermediate=48\ntarget.new.positions=96\n"
                                   "train.steps=120\ntrain.batch=8\ntrain.seq_len=64\ntrain.lr=1e-2\ntrain.warmup=10";
static const char data_lines[] = "target.path=BASE/target/checkpoints/last\ndata.prompts=BASE/prompts.jsonl\n"
                                 "data.max_new_tokens=40\ndata.samples=1\neval.holdout=5\ntrain.holdout=8\n"
                                 "train.slot_rows=200\ntrain.slots=3\ntrain.unroll=3\ntrain.lr=5e-3\n"
                                 "train.warmup=5\ntrain.eval_every=20\ntrain.checkpoint_every=15\ntrain.log_every=1\n"
                                 "data.dataset=BASE/data/dataset\ntrain.steps=60\ntrain.clip=0.5\n";

static void write_files(void) {
    static const char *who[] = {"The rider", "A sprinter", "The leader", "Her team", "Nobody", "The old coach"};
    static const char *does[] = {"follows", "drafts behind", "waits for", "overtakes", "watches", "calls"};
    static const char *what[] = {"the wheel in front", "the second group", "the train of riders", "the wind", "him"};
    static const char *when[] = {"before the climb", "in the last kilometre", "again", "without a word", "at noon"};
    pl_rng             rng = pl_rng_make(1, PL_STREAM_TEST, 0);
    char              *text = pl_path_join(base, "text.txt"), *prompts = pl_path_join(base, "prompts.jsonl");
    FILE              *f = fopen(text, "w"), *p = fopen(prompts, "w");
    assert_non_null(f);
    assert_non_null(p);
    for (int i = 0; i < 1500; i++) {
        uint64_t at = (uint64_t)i * 4;
        fprintf(f, "%s %s %s %s.%s", who[pl_rng_below(rng, at, 6)], does[pl_rng_below(rng, at + 1, 6)],
                what[pl_rng_below(rng, at + 2, 5)], when[pl_rng_below(rng, at + 3, 5)], i % 5 == 4 ? "\n\n" : " ");
    }
    for (int i = 0; i < 36; i++)
        fprintf(p, "{\"prompt\": \"%s %s\"}\n", who[i % 6], does[i / 6]);
    assert_int_equal(fclose(f), 0);
    assert_int_equal(fclose(p), 0);
    pl_free(text), pl_free(prompts);
}

static pl_env env_of(pl_pool *pool) {
    return (pl_env){.backend = pl_backend_cpu(), .pool = pool};
}

static int setup(void **state) {
    (void)state;
    snprintf(base, sizeof base, "/tmp/paceline-eagle-XXXXXX");
    if (!mkdtemp(base)) return -1;
    write_files();
    pl_err     err = {0};
    pl_env     env = env_of(NULL);
    pl_recipe *r = recipe(target_lines), *d = recipe(data_lines);
    char      *target = pl_path_join(base, "target"), *data = pl_path_join(base, "data");
    pl_status  st = pl_train_run(r, target, &env, &err);
    if (st == PL_OK) st = pl_generate_run(d, data, &env, &err);
    if (st != PL_OK) print_error("%s\n", err.msg);
    pl_recipe_close(r), pl_recipe_close(d);
    pl_free(target), pl_free(data);
    return st == PL_OK ? 0 : -1;
}

static int teardown(void **state) {
    (void)state;
    return pl_tree_remove(base, NULL) == PL_OK ? 0 : -1;
}

static pl_status run(const char *out, const char *extra, int64_t stop_after, pl_pool *pool, pl_err *err) {
    char lines[4096];
    snprintf(lines, sizeof lines, "%s%s", data_lines, extra);
    pl_recipe *r = recipe(lines);
    char      *dir = pl_path_join(base, out);
    pl_env     env = env_of(pool);
    pl_status  st = pl_train_run_until(r, dir, &env, stop_after, err);
    pl_recipe_close(r);
    pl_free(dir);
    return st;
}

static void read_whole(const char *out, const char *name, uint8_t **data, size_t *n) {
    char  *dir = pl_path_join(base, out), *path = pl_path_join(dir, name);
    pl_err err = {0};
    if (pl_file_read(path, data, n, 1 << 26, &err) != PL_OK) fail_msg("%s", err.msg);
    pl_free(dir), pl_free(path);
}

static void same_file(const char *a, const char *b, const char *name) {
    uint8_t *da, *db;
    size_t   na, nb;
    read_whole(a, name, &da, &na);
    read_whole(b, name, &db, &nb);
    assert_int_equal(na, nb);
    assert_memory_equal(da, db, na);
    pl_free(da), pl_free(db);
}

static void metric(const char *out, const char *key, double *first, double *last) {
    uint8_t *data;
    size_t   n;
    int      seen = 0;
    read_whole(out, "metrics.jsonl", &data, &n);
    for (char *line = (char *)data; *line; line = strchr(line, '\n') + 1) {
        pl_json j;
        double  v;
        assert_int_equal(pl_json_parse(&j, out, 1, line, (size_t)(strchr(line, '\n') - line), 0, NULL), PL_OK);
        assert_int_equal(pl_json_opt_num(&j, NULL, key, -1e9, 1e9, NAN, &v, NULL), PL_OK);
        if (!isnan(v) && seen++ == 0) *first = v;
        if (!isnan(v)) *last = v;
        pl_json_close(&j);
    }
    assert_true(seen > 1);
    pl_free(data);
}

static void learns(const char *out, const char *extra, const pl_backbone_kind *kind, const char *head) {
    pl_err err = {0};
    double first, last, tau_first, tau_last, sampled_first, sampled_last;
    if (run(out, extra, 0, NULL, &err) != PL_OK) fail_msg("%s", err.msg);
    metric(out, "loss", &first, &last);
    metric(out, "eval_acceptance_length", &tau_first, &tau_last);
    metric(out, "eval_acceptance_length_sampled", &sampled_first, &sampled_last);
    assert_true(last < 0.6 * first);
    assert_true(tau_last > 1.5 && tau_last <= 4 && sampled_last > 1.5 && sampled_last <= 4);
    assert_true(tau_last > tau_first && sampled_last > sampled_first);

    // It opens beside its target for decoding.
    char        *dir = pl_path_join(base, out), *best = pl_path_join(dir, "checkpoints/best");
    char        *target = pl_path_join(base, "target/checkpoints/last");
    pl_llama     m;
    pl_backbone *e;
    assert_int_equal(pl_llama_open(&m, target, PL_BF16, &err), PL_OK);
    if (pl_backbone_open(&e, best, &m, PL_BF16, &err) != PL_OK) fail_msg("%s", err.msg);
    assert_ptr_equal(e->kind, kind);
    assert_string_equal(e->head.kind->name, head);
    pl_backbone_destroy(e);
    pl_llama_fini(&m);
    pl_free(dir), pl_free(best), pl_free(target);
}

static void learns_full(void **state) {
    (void)state;
    learns("full", "train.eval_steps=3", &pl_backbone_eagle3, "full");
}

static void learns_lowrank(void **state) {
    (void)state;
    learns("lowrank", "drafter.head.kind=lowrank\ndrafter.head.rank=16\ntrain.eval_steps=3", &pl_backbone_eagle3,
           "lowrank");
}

// The scorer learns onto a trained drafter; what it reads and the rows that rescore are the trained drafter's to the
// end.
static void learns_specvocab(void **state) {
    (void)state;
    pl_err err = {0};
    if (run("start", "drafter.head.kind=full\ntrain.steps=30", 0, NULL, &err) != PL_OK) fail_msg("%s", err.msg);
    learns("specvocab",
           "drafter.start=BASE/start/checkpoints/last\ndrafter.freeze=backbone\ndrafter.head.kind=specvocab\n"
           "drafter.head.rank=16\ndrafter.head.candidates=40\ndrafter.head.init=random\ntrain.eval_steps=3\n"
           "train.lr=3e-2",
           &pl_backbone_eagle3, "specvocab");
    char             *from = pl_path_join(base, "start/checkpoints/last");
    char             *to = pl_path_join(base, "specvocab/checkpoints/last");
    pl_weight_source *a, *b;
    int               same = 0, other = 0;
    assert_int_equal(pl_weight_source_open(&a, from, &err), PL_OK);
    assert_int_equal(pl_weight_source_open(&b, to, &err), PL_OK);
    for (int64_t i = 0; i < pl_weight_source_count(b); i++) {
        const pl_weight_entry *y = pl_weight_source_at(b, i), *x = pl_weight_source_find(a, y->name);
        if (strncmp(y->name, "efficient_lm_head", 17) == 0) {
            assert_null(x);
            other++;
            continue;
        }
        assert_non_null(x);
        assert_true(x->bytes == y->bytes && memcmp(x->data, y->data, x->bytes) == 0);
        same++;
    }
    assert_true(same > 10 && other == 2);
    pl_weight_source_close(a), pl_weight_source_close(b);
    pl_free(from), pl_free(to);
}

#define EAGLE1 "drafter.kind=eagle1\ntrain.unroll=0\ntrain.eval_steps=3\n"

static void learns_eagle1(void **state) {
    (void)state;
    learns("eagle1", EAGLE1, &pl_backbone_eagle1, "full");
    double first, last;
    metric("eagle1", "eval_loss", &first, &last);
    assert_true(last < first);
}

static void learns_eagle1_lowrank(void **state) {
    (void)state;
    learns("eagle1-lowrank",
           "drafter.kind=eagle2\ntrain.unroll=2\ntrain.eval_steps=3\ndrafter.bias=true\n"
           "drafter.head.kind=lowrank\ndrafter.head.rank=16",
           &pl_backbone_eagle1, "lowrank");
}

// The target answers while EAGLE-1 learns; a dataset without taps serves it as one with them does.
static void eagle1_sources(void **state) {
    (void)state;
    pl_err err = {0};
    pl_env env = env_of(NULL);
    char   lines[4096];
    char  *bare = pl_path_join(base, "bare");
    assert_int_equal(run("online1", EAGLE1 "data.mode=online", 3, NULL, &err), PL_E_INTERRUPTED);
    snprintf(lines, sizeof lines, "%sdata.taps=false", data_lines);
    pl_recipe *r = recipe(lines);
    if (pl_generate_run(r, bare, &env, &err) != PL_OK) fail_msg("%s", err.msg);
    pl_recipe_close(r);
    assert_int_equal(run("bare1", EAGLE1 "data.dataset=BASE/bare/dataset", 20, NULL, &err), PL_E_INTERRUPTED);
    assert_int_equal(run("taps1", EAGLE1, 20, NULL, &err), PL_E_INTERRUPTED);
    same_file("bare1", "taps1", "checkpoints/last/model.safetensors");
    assert_int_equal(run("bare3", "data.dataset=BASE/bare/dataset", 0, NULL, &err), PL_E_INPUT); // EAGLE-3 needs taps
    pl_free(bare);
}

static void resume_is_bit_for_bit(void **state) {
    (void)state;
    pl_err   err = {0};
    pl_pool *pool;
    assert_int_equal(pl_pool_create(&pool, 2, &err), PL_OK);
    static const char *const kinds[][3] = {{"full", "parts", "train.eval_steps=3"}, {"eagle1", "parts1", EAGLE1}};
    for (int i = 0; i < 2; i++) {
        const char *whole = kinds[i][0], *parts = kinds[i][1], *extra = kinds[i][2];
        assert_int_equal(run(parts, extra, 7, NULL, &err), PL_E_INTERRUPTED);
        assert_int_equal(run(parts, extra, 41, pool, &err), PL_E_INTERRUPTED);
        assert_int_equal(run(parts, extra, 0, NULL, &err), PL_OK);
        same_file(whole, parts, "checkpoints/last/training_state");
        same_file(whole, parts, "checkpoints/last/model.safetensors");
        same_file(whole, parts, "checkpoints/best/model.safetensors");
        same_file(whole, parts, "checkpoints/best/config.json");
    }
    pl_pool_destroy(pool);
}

// A frozen full head is the target's own output matrix, in the file that was written too.
static void frozen_head(void **state) {
    (void)state;
    pl_err err = {0};
    if (run("frozen", "drafter.head.frozen=true", 20, NULL, &err) != PL_E_INTERRUPTED) fail_msg("%s", err.msg);
    char *dir = pl_path_join(base, "frozen/checkpoints/last"), *from = pl_path_join(base, "target/checkpoints/last");
    pl_weight_source *src;
    pl_teacher        t;
    const void       *rows;
    pl_dtype          stored;
    assert_int_equal(pl_weight_source_open(&src, dir, &err), PL_OK);
    assert_int_equal(pl_teacher_open(&t, from, PL_BF16, &err), PL_OK);
    pl_weight_spec spec = {.part = {{.name = "lm_head.weight", .rows = 380}}, .n_parts = 1, .rows = 380, .cols = 32};
    assert_true(pl_weight_view(src, &spec, &rows, &stored));
    assert_int_equal(stored, PL_BF16);
    assert_memory_equal(rows, t.head.data, 380 * 32 * 2);
    pl_teacher_close(&t);
    pl_weight_source_close(src);
    pl_free(dir), pl_free(from);
}

static uint64_t prompt_hash(const pl_feature_doc *doc) {
    size_t n = 0;
    while ((int64_t)n < doc->n && !doc->mask[n])
        n++;
    assert_true(n > 2 && (int64_t)n < doc->n);
    return pl_hash(doc->tokens, n * sizeof *doc->tokens);
}

static uint64_t doc_hash(const pl_feature_doc *doc) {
    uint64_t h = pl_hash(doc->tokens, (size_t)doc->n * sizeof *doc->tokens);
    h = pl_hash_more(h, doc->features, (size_t)doc->n * 3 * 32 * sizeof *doc->features);
    return pl_hash_more(h, doc->last, (size_t)doc->n * 32 * sizeof *doc->last);
}

// Answers to a prompt stay on one side; an epoch gives every training document once, each epoch in another order, and
// any document can be asked for first.
static void sources(void **state) {
    (void)state;
    enum { MOST = 64 };
    pl_err             err = {0};
    char              *dir = pl_path_join(base, "data/dataset");
    pl_feature_source *train, *held;
    pl_feature_doc     doc;
    uint64_t           held_prompt[MOST], first[MOST], second[MOST];
    int                moved = 0;
    if (pl_offline_sources(&train, &held, dir, NULL, 3, 4, &err) != PL_OK) fail_msg("%s", err.msg);
    assert_non_null(held);
    assert_int_equal(train->docs + held->docs, 2 * (36 - 5));
    assert_true(held->docs >= 4 && held->docs % 2 == 0); // the greedy and the sampled answer to each
    assert_true(train->docs <= MOST && held->docs <= MOST);
    for (int64_t i = 0; i < held->docs; i++) {
        assert_int_equal(held->get(held, i, &doc, &err), PL_OK);
        held_prompt[i] = prompt_hash(&doc);
    }
    for (int64_t at = 0; at < 2 * train->docs; at++) {
        int64_t i = at % train->docs;
        assert_int_equal(train->get(train, at, &doc, &err), PL_OK);
        (at < train->docs ? first : second)[i] = doc_hash(&doc);
        for (int64_t k = 0; k < held->docs; k++)
            assert_true(held_prompt[k] != prompt_hash(&doc));
    }
    for (int64_t i = 0; i < train->docs; i++) {
        int found = 0;
        for (int64_t k = 0; k < train->docs; k++)
            found += first[k] == second[i];
        assert_int_equal(found, 1);
        moved += first[i] != second[i];
    }
    assert_true(moved > train->docs / 2);
    int64_t docs = train->docs;
    train->destroy(train);
    held->destroy(held);

    assert_int_equal(pl_offline_sources(&train, &held, dir, NULL, 3, 4, &err), PL_OK);
    assert_int_equal(train->get(train, docs + 5, &doc, &err), PL_OK); // as a resumed run asks
    assert_true(doc_hash(&doc) == second[5]);
    train->destroy(train);
    held->destroy(held);
    assert_int_equal(pl_offline_sources(&train, &held, dir, NULL, 3, 0, &err), PL_OK);
    assert_null(held);
    assert_int_equal(train->docs, 2 * (36 - 5));
    train->destroy(train);
    pl_free(dir);
}

static void refusals(void **state) {
    (void)state;
    static const struct {
        const char *extra, *says;
    } bad[] = {
        {"drafter.head.kind=routed", "routed"},
        {"drafter.head.kind=lowrank", "rank"},
        {"drafter.head.kind=specvocab\ndrafter.head.candidates=9", "rank 0"},
        {"drafter.head.kind=specvocab\ndrafter.head.rank=4", "candidates 0 must lie in 1.."},
        {"drafter.head.kind=specvocab\ndrafter.head.rank=4\ndrafter.head.candidates=4000", "candidates 4000 must"},
        {"drafter.head.kind=specvocab\ndrafter.head.rank=4\ndrafter.head.candidates=9\n"
         "drafter.head.position_aware=true",
         "position_aware"},
        {"drafter.taps=1,2", "layers [1,2,3]"}, // what the dataset has
        {"drafter.taps=9", "drafter.taps"},
        {"train.holdout=1", "train.holdout"},
        {"data.dataset=BASE/nowhere", "nowhere"},
        {"target.path=BASE/nowhere", "nowhere"},
    };
    for (size_t i = 0; i < sizeof bad / sizeof *bad; i++) {
        pl_err err = {0};
        assert_int_equal(run("bad", bad[i].extra, 0, NULL, &err), PL_E_INPUT);
        if (!strstr(err.msg, bad[i].says)) fail_msg("%s: %s", bad[i].says, err.msg);
        assert_null(strchr(err.msg, '\n'));
    }
    pl_err err = {0}; // the state of another recipe
    assert_int_equal(run("parts", "train.unroll=4", 0, NULL, &err), PL_E_INPUT);
    assert_non_null(strstr(err.msg, "another run"));
}

// EAGLE-2 is a model and a tree; a tree that the recipe names wins.
static void eagle2_brings_its_tree(void **state) {
    (void)state;
    static const char *const lines[][2] = {{"drafter.kind=eagle2", "eagle2:60,10,6"},
                                           {"drafter.kind=eagle2\neval.tree=chain:2", "chain:2"},
                                           {"drafter.kind=eagle1", "auto"}};
    for (int i = 0; i < 3; i++) {
        pl_recipe     *r = recipe(lines[i][0]);
        pl_tree_policy p;
        pl_err         err;
        assert_string_equal(pl_eval_own_tree(r, -1), lines[i][1]);
        assert_int_equal(pl_tree_policy_parse(&p, pl_eval_own_tree(r, -1), &err), PL_OK);
        pl_recipe_close(r);
    }
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(learns_full),
        cmocka_unit_test(learns_lowrank),
        cmocka_unit_test(learns_specvocab),
        cmocka_unit_test(learns_eagle1),
        cmocka_unit_test(learns_eagle1_lowrank),
        cmocka_unit_test(eagle1_sources),
        cmocka_unit_test(resume_is_bit_for_bit),
        cmocka_unit_test(frozen_head),
        cmocka_unit_test(sources),
        cmocka_unit_test(refusals),
        cmocka_unit_test(eagle2_brings_its_tree),
    };
    return cmocka_run_group_tests(tests, setup, teardown);
}
