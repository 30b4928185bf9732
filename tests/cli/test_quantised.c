// The built-in target, its matrices and its output matrix quantised to 4 bits, as a user has it: decoded, drafted for
// by heads that take the target's own output matrix, measured, exported, shown.
#include "program.h"

#include "checkpoints/weights.h"
#include "kernels/base/arena.h"
#include "kernels/base/files.h"

#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#define TINY PACELINE_SOURCE_DIR "/checkpoints/tiny"
enum { TENSORS = 1024, GROUP = 64, LAYERS = 2 };

static char base[64];

static void must(pl_status st, const pl_err *err) {
    if (st != PL_OK) fail_msg("%s", err->msg);
}

typedef struct folder {
    pl_st_source tensor[TENSORS];
    char         name[TENSORS][96];
    int          n;
} folder;

static void *add(folder *f, const char *name, const char *then, pl_dtype t, int64_t rows, int64_t cols) {
    pl_st_source *s = &f->tensor[f->n];
    assert_true(f->n < TENSORS);
    snprintf(f->name[f->n], sizeof f->name[0], "%s%s", name, then);
    *s = (pl_st_source){.name = f->name[f->n++], .dtype = t, .rank = cols ? 2 : 1, .shape = {rows, cols}};
    s->data = pl_calloc((size_t)(rows * (cols ? cols : 1)), pl_dtype_size(t));
    assert_non_null(s->data);
    return (void *)(uintptr_t)s->data;
}

// To nearest of -8 .. 7 times a scale for each 64 columns (compressed-tensors, pack-quantized).
static void quantise(folder *f, const char *module, const float *w, int64_t rows, int64_t cols) {
    uint32_t *q = add(f, module, ".weight_packed", PL_I32, rows, cols / 8);
    uint16_t *s = add(f, module, ".weight_scale", PL_BF16, rows, cols / GROUP);
    memcpy(add(f, module, ".weight_shape", PL_I64, 2, 0), (int64_t[]){rows, cols}, 16);
    for (int64_t g = 0; g < rows * cols / GROUP; g++) {
        float most = 1e-6F;
        for (int i = 0; i < GROUP; i++)
            most = fmaxf(most, fabsf(w[g * GROUP + i]));
        s[g] = pl_f32_to_bf16(most / 7.5F);
        for (int i = 0; i < GROUP; i++) {
            float x = fminf(7, fmaxf(-8, rintf(w[g * GROUP + i] / pl_bf16_to_f32(s[g]))));
            q[(g * GROUP + i) / 8] |= (uint32_t)((int)x + 8) << (i % 8 * 4);
        }
    }
}

static bool beyond(const char *name) {
    int layer;
    return sscanf(name, "model.layers.%d.", &layer) == 1 && layer >= LAYERS;
}

// A tensor of the built-in target; its embeddings are its output matrix as well, which is quantised.
static void take(folder *f, const pl_st_entry *e) {
    int64_t rows = e->shape[0], cols = e->rank == 2 ? e->shape[1] : 0;
    bool    embed = strstr(e->name, "embed_tokens") != NULL;
    char    module[96];
    if (beyond(e->name)) return;
    if (!cols || embed) memcpy(add(f, e->name, "", e->dtype, rows, cols), e->data, e->bytes);
    if (!cols) return;
    float *w = malloc((size_t)(rows * cols) * sizeof *w);
    assert_non_null(w);
    pl_to_f32(w, e->data, e->dtype, (size_t)(rows * cols));
    snprintf(module, sizeof module, "%.*s", embed ? 7 : (int)strlen(e->name) - 7, embed ? "lm_head" : e->name);
    quantise(f, module, w, rows, cols);
    free(w);
}

static void write_weights(const char *name, const folder *f) {
    char   path[128];
    pl_err err;
    snprintf(path, sizeof path, "%s/%s", base, name);
    must(pl_dir_make(path, &err), &err);
    snprintf(path, sizeof path, "%s/%s/model.safetensors", base, name);
    must(pl_st_write(path, f->tensor, f->n, NULL, 0, &err), &err);
}

static void write_rest(const char *name, const char *quantised) {
    static const char *const files[] = {"tokenizer.model", "tokenizer_config.json", "generation_config.json"};
    char                    *config = test_get(TINY, "config.json"), path[128], text[2048];
    uint8_t                 *data;
    size_t                   n;
    pl_err                   err;
    snprintf(path, sizeof path, "%s/%s", base, name);
    snprintf(text, sizeof text, "{%s \"tie_word_embeddings\": false, \"num_hidden_layers\": %d, %s", quantised, LAYERS,
             strstr(config, "\"architectures\""));
    char *layers = strstr(text, "\"num_hidden_layers\": 16,"), *tied = strstr(text, "\"tie_word_embeddings\": true,");
    assert_true(layers && tied);
    memset(layers, ' ', strlen("\"num_hidden_layers\": 16,"));
    memset(tied, ' ', strlen("\"tie_word_embeddings\": true,"));
    test_put(path, "config.json", text);
    pl_free(config);
    for (int i = 0; i < 3; i++) {
        char from[256], to[256];
        snprintf(from, sizeof from, TINY "/%s", files[i]);
        snprintf(to, sizeof to, "%s/%s/%s", base, name, files[i]);
        must(pl_file_read(from, &data, &n, 1 << 24, &err), &err);
        must(pl_file_write_atomic(to, data, n, &err), &err);
        pl_free(data);
    }
}

static void write_quantised(void) {
    pl_st  *st;
    pl_err  err;
    folder *f = calloc(1, sizeof *f);
    assert_non_null(f);
    must(pl_st_open(&st, TINY, &err), &err);
    for (int64_t i = 0; i < pl_st_count(st); i++)
        take(f, pl_st_at(st, i));
    write_weights("quantised", f);
    write_rest("quantised", "\"quantization_config\": {\"quant_method\": \"compressed-tensors\", \"format\": "
                            "\"pack-quantized\", \"config_groups\": {\"group_0\": {\"targets\": [\"Linear\"], "
                            "\"input_activations\": {\"num_bits\": 8}, \"weights\": {\"num_bits\": 4, "
                            "\"strategy\": \"group\", \"group_size\": 64}}}},");
    for (int i = 0; i < f->n; i++)
        pl_free((void *)(uintptr_t)f->tensor[i].data);
    free(f);
    pl_st_close(st);
}

// What its matrices hold, in bf16.
static void write_plain(void) {
    pl_weight_source *src;
    pl_err            err;
    char              path[128];
    folder           *f = calloc(1, sizeof *f);
    assert_non_null(f);
    snprintf(path, sizeof path, "%s/quantised", base);
    must(pl_weight_source_open(&src, path, &err), &err);
    for (int64_t i = 0; i < pl_weight_source_count(src); i++) {
        const pl_weight_entry *e = pl_weight_source_at(src, i);
        f->tensor[f->n].name = e->name;
        pl_weight_copy(&f->tensor[f->n++], e);
    }
    write_weights("plain", f);
    write_rest("plain", "");
    pl_weight_source_close(src);
    free(f);
}

static int setup(void **state) {
    (void)state;
    char prompts[4096] = "";
    test_scratch(base);
    write_quantised();
    write_plain();
    for (int i = 0; i < 5; i++)
        snprintf(prompts + strlen(prompts), sizeof prompts - strlen(prompts),
                 "{\"prompt\": \"Once upon a time there was a little %s who had %d\"}\n", i % 2 ? "girl" : "boy", i);
    test_put(base, "prompts.jsonl", prompts);
    return 0;
}

static int teardown(void **state) {
    (void)state;
    test_scratch_remove(base);
    return 0;
}

static void same_answers(void **state) {
    (void)state;
    enum { MOST = 64 };
    static const char *const names[] = {"quantised", "plain"};
    int32_t                  ids[2][MOST];
    int                      n[2];
    for (int i = 0; i < 2; i++) {
        pl_json j;
        test_run_json(&j, "decode --json --target %s/%s --max-new-tokens 40 --prompt 'Once upon a time'", base,
                      names[i]);
        n[i] = test_ids(&j, "tokens", ids[i], MOST);
        pl_json_close(&j);
    }
    assert_int_equal(n[0], n[1]);
    assert_memory_equal(ids[0], ids[1], (size_t)n[0] * sizeof ids[0][0]);
}

static void shown(void **state) {
    (void)state;
    pl_json j;
    test_run_json(&j, "inspect --json %s/quantised", base);
    const cJSON *q = pl_json_find(&j, NULL, "quantised");
    assert_non_null(q);
    assert_string_equal(test_str(&j, q, "format"), "compressed-tensors pack-quantized");
    assert_int_equal((int)test_num(&j, q, "quantised_matrices"), 7 * LAYERS + 1);
    assert_int_equal((int)test_num(&j, q, "plain_matrices"), 1);
    const cJSON *e = cJSON_GetArrayItem(test_array(&j, q, "encodings"), 0);
    assert_string_equal(test_str(&j, e, "encoding"), "packed");
    assert_int_equal((int)test_num(&j, e, "bits"), 4);
    assert_int_equal((int)test_num(&j, e, "group_rows"), 1);
    assert_int_equal((int)test_num(&j, e, "group_columns"), GROUP);
    assert_non_null(strstr(test_str(&j, q, "engines"), "activations"));
    // bf16 scales times integers of 4 bits: at most 11 bits, of which 8 are kept.
    double error = test_num(&j, q, "bf16_relative_error");
    assert_true(error > 1e-4 && error < 0x1p-9);
    pl_json_close(&j);
    test_run_json(&j, "inspect --json %s/plain", base);
    assert_null(pl_json_find(&j, NULL, "quantised"));
    pl_json_close(&j);
}

// The file of an export has the target's output matrix, decoded.
static void has_output_matrix(const char *dir) {
    pl_st *of, *plain;
    pl_err err;
    char   path[128];
    must(pl_st_open(&of, dir, &err), &err);
    snprintf(path, sizeof path, "%s/plain", base);
    must(pl_st_open(&plain, path, &err), &err);
    const pl_st_entry *got = pl_st_find(of, "lm_head.weight"), *want = pl_st_find(plain, "lm_head.weight");
    assert_true(got && want && got->dtype == PL_BF16 && got->bytes == want->bytes);
    assert_memory_equal(got->data, want->data, want->bytes);
    pl_st_close(of);
    pl_st_close(plain);
}

// Answers, training, measurement and export without a word about the target's weights; heads are bf16.
static void drafted_for(void **state) {
    (void)state;
    static const char *const kinds[] = {"eagle1", "dflash --set train.unroll=null"};
    test_put(
        base, "recipe.yaml",
        "kind: drafter\nseed: 1\ndata: {max_new_tokens: 8, greedy: true}\ndrafter: {kind: eagle1}\ntrain: {steps: 1, "
        "slots: 1, slot_rows: 64, unroll: 1}\neval: {holdout: 2, max_new_tokens: 6}\n");
    for (int i = 0; i < 2; i++) {
        test_output o;
        pl_json     j;
        char        path[128], served[128];
        snprintf(path, sizeof path, "%s/run%d/checkpoints/best", base, i);
        snprintf(served, sizeof served, "%s/served", base);
        test_run(&o,
                 "run %s/recipe.yaml --quiet --set target.path=%s/quantised --set data.prompts=%s/prompts.jsonl --set "
                 "drafter.kind=%s --out %s/run%d",
                 base, base, base, kinds[i], base, i);
        if (o.code != 0) fail_msg("%s", o.err);
        assert_null(strstr(o.err, "of no part"));
        test_run_fini(&o);
        test_run_json(&j, "inspect --json %s", path);
        assert_string_equal(test_str(&j, NULL, "stored_as"), "BF16");
        pl_json_close(&j);
        if (i == 0) continue; // no engine's
        test_run(&o, "export %s --to speculators --target %s/quantised --out %s", path, base, served);
        if (o.code != 0) fail_msg("%s", o.err);
        test_run_fini(&o);
        has_output_matrix(served);
    }
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(same_answers),
        cmocka_unit_test(shown),
        cmocka_unit_test(drafted_for),
    };
    return cmocka_run_group_tests(tests, setup, teardown);
}
