// Hidden states that another program took of the target make the dataset that the target's own would; layers that are
// not what the recipe says are refused with what they are, and every way in which files can be wrong has its line.
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "checkpoints/safetensors.h"
#include "data/dataset/dataset.h"
#include "data/tokenizer/tokenizer.h"
#include "infer/generate/generate.h"
#include "kernels/base/arena.h"
#include "kernels/base/files.h"
#include "tests/train/small.h"
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { D = 32, LAYERS = 3, FILES = 6, ROOM = 96 };

// A document of the target's own dataset, whose taps are the inputs of layers 1, 2 and 3 (what the last one gives).
typedef struct document {
    int64_t  n;
    int32_t  tokens[ROOM], argmax[ROOM];
    uint8_t  mask[ROOM];
    uint16_t features[ROOM * LAYERS * D], hidden[ROOM * D];
} document;

static document own[FILES];

static void read_documents(document *to, const char *name, int n) {
    char       *dir = pl_path_join(small_base, name);
    pl_err      err = {0};
    pl_dataset *ds;
    if (pl_dataset_open(&ds, dir, NULL, &err) != PL_OK) fail_msg("%s", err.msg);
    assert_true(pl_dataset_docs(ds) >= n);
    for (int i = 0; i < n; i++) {
        int64_t first;
        assert_int_equal(pl_dataset_doc(ds, i, &first, &to[i].n, &err), PL_OK);
        assert_true(to[i].n <= ROOM);
        pl_columns doc = {.tokens = to[i].tokens,
                          .argmax = to[i].argmax,
                          .loss_mask = to[i].mask,
                          .features = to[i].features,
                          .last_hidden = to[i].hidden};
        if (pl_dataset_read_doc(ds, i, &doc, &err) != PL_OK) fail_msg("%s", err.msg);
    }
    pl_dataset_close(ds);
    pl_free(dir);
}

typedef struct file {
    pl_dtype id, hidden;
    bool     mask;
    int64_t  layers, tokens; // other than those of the document, where not 0
    float    value;          // of one hidden state, where not 0
    int32_t  token;          // of one, where not 0
} file;

// BASE/DIR/NAME, of a document, as vLLM's extractor writes it but for what `as` says.
static void write_states(const char *dir, const char *name, const document *d, const file *as) {
    int64_t         n = d->n, ids[ROOM], mask[ROOM];
    int32_t         narrow[ROOM];
    static float    hidden[ROOM * LAYERS * D];
    char           *folder = pl_path_join(small_base, dir), *path = pl_path_join(folder, name);
    pl_err          err = {0};
    pl_st_source    e[3];
    bool            wide = as->id != PL_I32, full = as->hidden == PL_F32;
    static uint16_t half[ROOM * LAYERS * D];
    for (int64_t t = 0; t < n; t++) {
        ids[t] = narrow[t] = d->tokens[t];
        mask[t] = d->mask[t];
    }
    if (as->token) ids[1] = narrow[1] = as->token;
    for (int64_t i = 0; i < n * LAYERS * D; i++)
        hidden[i] = pl_bf16_to_f32(d->features[i]);
    memcpy(half, d->features, (size_t)(n * LAYERS * D) * 2);
    if (as->value != 0) hidden[40] = as->value;
    e[0] = (pl_st_source){.name = "hidden_states",
                          .dtype = full ? PL_F32 : PL_BF16,
                          .rank = 3,
                          .shape = {n, as->layers ? as->layers : LAYERS, D},
                          .data = full ? (const void *)hidden : half};
    e[1] = (pl_st_source){.name = "token_ids",
                          .dtype = wide ? PL_I64 : PL_I32,
                          .rank = 1,
                          .shape = {as->tokens ? as->tokens : n},
                          .data = wide ? (const void *)ids : narrow};
    e[2] = (pl_st_source){.name = "loss_mask", .dtype = PL_I64, .rank = 1, .shape = {n}, .data = mask};
    assert_int_equal(pl_dir_make(folder, &err), PL_OK);
    if (pl_st_write(path, e, as->mask ? 3 : 2, NULL, 0, &err) != PL_OK) fail_msg("%s", err.msg);
    pl_free(folder), pl_free(path);
}

static pl_status generate(const char *out, const char *dir, const char *more, pl_err *err) {
    char lines[1024], *to = pl_path_join(small_base, out);
    snprintf(lines, sizeof lines,
             "target.path=BASE/target/checkpoints/last\ndata.hidden_states.path=BASE/%s\ndata.rows_per_shard=100\n%s",
             dir, more);
    pl_recipe *r = small_recipe(lines);
    pl_env     env = small_env(NULL);
    pl_status  st = pl_generate_check(r, err);
    if (st == PL_OK) st = pl_generate_run(r, NULL, to, &env, err);
    pl_recipe_close(r);
    pl_free(to);
    return st;
}

#define IN_ORDER "data.hidden_states.layers=[1, 2, 3]\n"

static void assert_same_documents(const char *name) {
    static document got[FILES];
    int64_t         rows = 0, same = 0;
    read_documents(got, name, FILES);
    for (int i = 0; i < FILES; i++) {
        assert_int_equal(got[i].n, own[i].n);
        size_t n = (size_t)own[i].n;
        assert_memory_equal(got[i].tokens, own[i].tokens, n * sizeof *own[i].tokens);
        assert_memory_equal(got[i].mask, own[i].mask, n);
        assert_memory_equal(got[i].features, own[i].features, n * LAYERS * D * 2);
        // The last layer's output comes rounded to bf16: so much may its norm differ.
        for (size_t k = 0; k < n * D; k++) {
            double a = pl_bf16_to_f32(got[i].hidden[k]), b = pl_bf16_to_f32(own[i].hidden[k]);
            if (fabs(a - b) > 0.02 * fabs(b) + 0.02) fail_msg("document %d, value %zu: %g for %g", i, k, a, b);
        }
        for (size_t t = 0; t < n; t++)
            same += got[i].argmax[t] == own[i].argmax[t];
        rows += own[i].n;
    }
    if (same < 0.97 * (double)rows) fail_msg("%lld of %lld best tokens", (long long)same, (long long)rows);
}

static void states_become_documents(void **state) {
    (void)state;
    pl_err err = {0};
    char   name[32];
    for (int i = 0; i < FILES; i++) {
        snprintf(name, sizeof name, "req-%d.safetensors", i);
        write_states("files", name, &own[i],
                     &(file){.id = i % 2 ? PL_I64 : PL_I32, .hidden = i % 3 ? PL_F32 : PL_BF16, .mask = true});
    }
    document one = own[0];
    one.n = 1; // left out
    write_states("files", "req-00.safetensors", &one, &(file){.mask = true});
    if (generate("taken", "files", IN_ORDER, &err) != PL_OK) fail_msg("%s", err.msg);
    assert_same_documents("taken/dataset");
    // Of a whole pipeline: stages, training, evaluation on prompts of its own.
    char more[1024];
    snprintf(more, sizeof more,
             "data.hidden_states.path: %s/files\ndata.hidden_states.layers: [1, 2, 3]\n" SMALL_TRAIN
             "drafters:\n  - {name: a}\n",
             small_base);
    if (small_pipeline("whole", more, &err) != PL_OK) fail_msg("%s", err.msg);
    assert_true(small_exists("whole/results.json"));
    assert_same_documents("whole/dataset");
}

// A document's token from `from` on that its text alone gives; *text is the caller's.
static int64_t find_mark(char **text, const document *d, int64_t from) {
    pl_err        err = {0};
    pl_tokenizer *tok;
    char         *target = pl_path_join(small_base, "target/checkpoints/last");
    bool          found = false;
    int64_t       t = from, n_ids;
    int32_t      *ids;
    size_t        n;
    assert_int_equal(pl_tokenizer_open(&tok, target, &err), PL_OK);
    for (; t < d->n && !found; t += !found) {
        assert_int_equal(pl_tokenizer_decode(tok, &d->tokens[t], 1, text, &n, &err), PL_OK);
        assert_int_equal(pl_tokenizer_encode(tok, *text, n, 0, &ids, &n_ids, &err), PL_OK);
        found = n_ids == 1 && ids[0] == d->tokens[t];
        pl_free(ids);
        if (!found) pl_free(*text);
    }
    assert_true(found);
    pl_tokenizer_close(tok);
    pl_free(target);
    return t;
}

// An answer begins behind a text and ends with another, here of one token each.
static void answers_between(void **state) {
    (void)state;
    static document got[1];
    pl_err          err = {0};
    const document *d = &own[0];
    char            more[512], *text[2];
    write_states("bare", "a.safetensors", d, &(file){.mask = false});
    if (generate("all", "bare", IN_ORDER "data.hidden_states.answers=all\n", &err) != PL_OK) fail_msg("%s", err.msg);
    read_documents(got, "all/dataset", 1);
    for (int64_t t = 0; t < d->n; t++)
        assert_int_equal(got[0].mask[t], 1);
    int64_t at = find_mark(&text[0], d, 1), until = find_mark(&text[1], d, at + 1);
    int32_t mark[2] = {d->tokens[at], d->tokens[until]};
    while (mark[0] == mark[1]) {
        pl_free(text[1]);
        until = find_mark(&text[1], d, until + 1);
        mark[1] = d->tokens[until];
    }
    snprintf(more, sizeof more,
             IN_ORDER "data.hidden_states.answers=between\ndata.hidden_states.begin=%s\ndata.hidden_states.end=%s\n",
             text[0], text[1]);
    if (generate("marks", "bare", more, &err) != PL_OK) fail_msg("%s", err.msg);
    read_documents(got, "marks/dataset", 1);
    bool inside = false;
    for (int64_t t = 0; t < d->n; t++) {
        assert_int_equal(got[0].mask[t], inside);
        if (!inside && d->tokens[t] == mark[0])
            inside = true;
        else if (inside && d->tokens[t] == mark[1])
            inside = false;
    }
    pl_free(text[0]), pl_free(text[1]);
}

static void refused(const char *dir, const char *more, const char *says) {
    pl_err err = {0};
    if (generate("refused", dir, more, &err) == PL_OK) fail_msg("wanted: %s", says);
    if (!strstr(err.msg, says)) fail_msg("wanted '%s', got '%s'", says, err.msg);
    assert_null(strchr(err.msg, '\n'));
    char *out = pl_path_join(small_base, "refused");
    assert_int_equal(pl_tree_remove(out, NULL), PL_OK);
    pl_free(out);
}

static void refuses_files(void **state) {
    (void)state;
    const struct {
        const char *name;
        file        as;
        const char *says;
    } bad[] = {{"tokens", {.hidden = PL_BF16, .tokens = 5, .mask = true}, "for 5 tokens"},
               {"layers", {.hidden = PL_BF16, .layers = 2, .mask = true}, "2, 32]; for "},
               {"mask", {.mask = false}, "has no loss_mask"},
               {"token", {.mask = true, .token = 100000}, "token 1 is 100000, outside the target's vocabulary"},
               {"value", {.mask = true, .hidden = PL_F32, .value = INFINITY}, "are not all numbers"}};
    for (size_t i = 0; i < sizeof bad / sizeof *bad; i++) {
        write_states(bad[i].name, "a.safetensors", &own[0], &bad[i].as);
        refused(bad[i].name, IN_ORDER, bad[i].says);
    }
    document d = own[0];
    memset(d.mask, 1, sizeof d.mask);
    write_states("ones", "a.safetensors", &d, &(file){.mask = true});
    refused("ones", IN_ORDER, "every loss_mask is 1");
    memset(d.mask, 0, sizeof d.mask);
    write_states("zeros", "a.safetensors", &d, &(file){.mask = true});
    refused("zeros", IN_ORDER, "none of 1 files has an answer");
    char  *empty = pl_path_join(small_base, "empty");
    pl_err err;
    assert_int_equal(pl_dir_make(empty, &err), PL_OK);
    refused("empty", IN_ORDER, "no .safetensors file in");
    refused("nowhere", IN_ORDER, "No such file");
    pl_free(empty);
}

static void refuses_layers(void **state) {
    (void)state;
    static document other;
    write_states("good", "a.safetensors", &own[0], &(file){.mask = true});
    refused("good", "", "data.hidden_states.layers: is missing");
    refused("good", "data.hidden_states.layers=[1, 2]\n", "lacks 3, what the last layer gives");
    refused("good", "data.hidden_states.layers=[0, 2, 3]\n", "lacks 1, whose input the drafter reads");
    refused("good", "data.hidden_states.layers=[1, 2, 3, 4]\n", "layer 4 does not exist");
    refused("good", "data.hidden_states.layers=[1, 2, 2]\n", "layer 2 a second time");
    refused("good", "data.hidden_states.layers=[1, 2, 3, 0]\n", "would be");
    refused("good", "data.hidden_states.layers=[2, 1, 3]\n",
            "what is given as layer 2 is the input of the target's layer 1");
    refused("good", IN_ORDER "data.mode=online\n", "online answers prompts");
    refused("good", IN_ORDER "data.hidden_states.begin=a\n", "needs data.hidden_states.answers: between");
    refused("good", IN_ORDER "data.hidden_states.answers=between\n", "data.hidden_states.begin: is missing");
    // The last hidden after its norm, and states of no layer.
    other = own[0];
    for (int64_t t = 0; t < other.n; t++)
        memcpy(other.features + (t * LAYERS + 2) * D, other.hidden + t * D, D * 2);
    write_states("normed", "a.safetensors", &other, &(file){.mask = true});
    refused("normed", IN_ORDER, "is the last hidden after the final norm");
    for (int64_t t = 0; t < other.n; t++)
        for (int k = 0; k < D; k++)
            other.features[(t * LAYERS + 2) * D + k] = own[0].features[(t * LAYERS + 2) * D + (k + 1) % D];
    write_states("foreign-states", "a.safetensors", &other, &(file){.mask = true});
    refused("foreign-states", IN_ORDER, "the files are of another model");
}

static void shell(const char *line) {
    char command[1024];
    snprintf(command, sizeof command, "cd %s && %s", small_base, line);
    assert_int_equal(system(command), 0);
}

static pl_status generate_foreign(const char *out, const char *dir, pl_err *err) {
    return generate(out, dir, IN_ORDER "target.path=BASE/foreign\n", err);
}

// Of a target whose architecture is not computed here its ends are enough: the same dataset, the same drafter.
static void an_architecture_that_is_not_computed(void **state) {
    (void)state;
    static document got[2][FILES];
    pl_err          err = {0};
    shell("cp -r target/checkpoints/last foreign && chmod -R u+w foreign && "
          "sed -i s/LlamaForCausalLM/OtherForCausalLM/ foreign/config.json");
    if (generate_foreign("other", "files", &err) != PL_OK) fail_msg("%s", err.msg);
    read_documents(got[0], "taken/dataset", FILES);
    read_documents(got[1], "other/dataset", FILES);
    assert_memory_equal(got[0], got[1], sizeof got[0]);
    assert_int_equal(generate_foreign("bad", "foreign-states", &err), PL_E_INPUT);
    assert_non_null(strstr(err.msg, "% are the first choice of the target's output matrix on the last layer's states"));
    if (small_run("known", "data.dataset=BASE/taken/dataset\ntrain.steps=20\ntrain.eval_prompts=0\n", 0, NULL, &err) !=
        PL_OK)
        fail_msg("%s", err.msg);
    if (small_run("unknown",
                  "data.dataset=BASE/other/dataset\ntrain.steps=20\ntrain.eval_prompts=2\ntarget.path=BASE/foreign\n",
                  0, NULL, &err) != PL_OK)
        fail_msg("%s", err.msg);
    small_same("known", "unknown", "checkpoints/last/model.safetensors");
    small_same("known", "unknown", "checkpoints/last/config.json");
    assert_int_equal(small_run("online", "data.mode=online\ntarget.path=BASE/foreign\n", 0, NULL, &err),
                     PL_E_UNSUPPORTED);
    assert_non_null(
        strstr(err.msg, "OtherForCausalLM is not computed here; a drafter for it learns from hidden states"));
    // A whole pipeline ends with the drafter.
    char more[1024];
    snprintf(more, sizeof more,
             "data.hidden_states.path: %s/files\ndata.hidden_states.layers: [1, 2, 3]\n" SMALL_TRAIN
             "drafters:\n  - {name: a}\n",
             small_base);
    shell("mv target/checkpoints/last known-target && cp -r foreign target/checkpoints/last");
    if (small_pipeline("unevaluated", more, &err) != PL_OK) fail_msg("%s", err.msg);
    shell("rm -r target/checkpoints/last && mv known-target target/checkpoints/last");
    assert_true(small_exists("unevaluated/drafters/a/checkpoints/best/model.safetensors"));
    assert_false(small_exists("unevaluated/results.json"));
}

static int setup(void **state) {
    if (small_setup(state) != 0) return -1;
    read_documents(own, "data/dataset", FILES);
    return 0;
}

int main(void) {
    const struct CMUnitTest tests[] = {cmocka_unit_test(states_become_documents), cmocka_unit_test(answers_between),
                                       cmocka_unit_test(refuses_files), cmocka_unit_test(refuses_layers),
                                       cmocka_unit_test(an_architecture_that_is_not_computed)};
    return cmocka_run_group_tests(tests, setup, small_teardown);
}
