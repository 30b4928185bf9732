// Targets from quantised folders are, bit for bit, those from folders of what their matrices hold; their types, prints
// and heads.
#include "checkpoints/quant.h"
#include "infer/drafter/backbone.h"
#include "infer/model/target.h"
#include "kernels/base/arena.h"
#include "kernels/base/files.h"
#include "kernels/panels.h"
#include "tests/infer/fixture.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

enum { TENSORS = 1024 };

// A folder in the making: tensors own their data.
typedef struct folder {
    pl_st_source tensor[TENSORS];
    char         name[TENSORS][128];
    int          n;
} folder;

static void must(pl_status st, const pl_err *err) {
    if (st != PL_OK) fail_msg("%s", err->msg);
}

static void *add(folder *f, const char *name, size_t cut, const char *then, pl_dtype t, int64_t rows, int64_t cols) {
    pl_st_source *s = &f->tensor[f->n];
    size_t        n = (size_t)(rows * (cols ? cols : 1)) * pl_dtype_size(t);
    uint8_t      *data = malloc(n);
    assert_true(f->n < TENSORS && data);
    snprintf(f->name[f->n], sizeof f->name[0], "%.*s%s", (int)(strlen(name) - cut), name, then);
    *s = (pl_st_source){.name = f->name[f->n++], .dtype = t, .rank = cols ? 2 : 1, .shape = {rows, cols}, .data = data};
    for (size_t i = 0; i < n; i++)
        data[i] = (uint8_t)((i * 2654435761U + (size_t)f->n * 40503U) >> 13);
    return data;
}

static void add_scales(folder *f, const char *name, const char *then, pl_dtype t, int64_t rows, int64_t cols,
                       float most) {
    size_t n = (size_t)(rows * (cols ? cols : 1));
    float *v = malloc(n * sizeof *v);
    void  *to = add(f, name, 7, then, t, rows, cols);
    assert_non_null(v);
    for (size_t i = 0; i < n; i++)
        v[i] = most * (float)(1 + i * 7 % 5) / 5;
    pl_from_f32(to, t, v, n);
    free(v);
}

// One function for each format: a matrix's tensors of arbitrary bits, scales that give it weights around 0.1.
static void put_fp8(folder *f, const char *name, int64_t rows, int64_t cols) {
    uint8_t *q = add(f, name, 0, "", PL_F8_E4M3, rows, cols);
    for (int64_t i = 0; i < rows * cols; i++)
        q[i] = (uint8_t)(q[i] & 0x80) | (q[i] & 0x7f) % 0x70;
    add_scales(f, name, ".weight_scale_inv", PL_F32, (rows + 31) / 32, (cols + 31) / 32, 0.002F);
}

static void put_packed(folder *f, const char *name, int64_t rows, int64_t cols) {
    add(f, name, 7, ".weight_packed", PL_I32, rows, cols / 8);
    add_scales(f, name, ".weight_scale", PL_BF16, rows, cols / 16, 0.04F);
    memcpy(add(f, name, 7, ".weight_shape", PL_I64, 2, 0), (int64_t[]){rows, cols}, 16);
}

static void put_nvfp4(folder *f, const char *name, int64_t rows, int64_t cols) {
    add(f, name, 0, "", PL_U8, rows, cols / 2);
    uint8_t *s = add(f, name, 7, ".weight_scale", PL_F8_E4M3, rows, cols / 16);
    for (int64_t i = 0; i < rows * (cols / 16); i++)
        s[i] = (uint8_t)(0x30 + s[i] % 16);
    add_scales(f, name, ".weight_scale_2", PL_F32, 1, 0, 0.05F);
    add_scales(f, name, ".input_scale", PL_F32, 1, 0, 1);
}

static void put_awq(folder *f, const char *name, int64_t rows, int64_t cols) {
    add(f, name, 7, ".qweight", PL_I32, cols, rows / 8);
    add(f, name, 7, ".qzeros", PL_I32, cols / 16, rows / 8);
    add_scales(f, name, ".scales", PL_F16, cols / 16, rows, 0.03F);
}

static void put_gptq(folder *f, const char *name, int64_t rows, int64_t cols) {
    add(f, name, 7, ".qweight", PL_I32, cols / 8, rows);
    add(f, name, 7, ".qzeros", PL_I32, cols / 16, rows / 8);
    add_scales(f, name, ".scales", PL_F16, cols / 16, rows, 0.03F);
    int32_t *g = add(f, name, 7, ".g_idx", PL_I32, cols, 0);
    for (int64_t c = 0; c < cols; c++)
        g[c] = (int32_t)(c * 5 % cols / 16);
}

static const struct format {
    const char *config;
    void (*put)(folder *f, const char *name, int64_t rows, int64_t cols);
    int eights; // rows are a multiple of it; others stay as they are
} formats[] = {
    {"\"quant_method\": \"fp8\", \"weight_block_size\": [32, 32], \"modules_to_not_convert\": [\"nothing\"]", put_fp8,
     1},
    {"\"quant_method\": \"compressed-tensors\", \"format\": \"pack-quantized\", \"config_groups\": {\"a\": "
     "{\"weights\": {\"num_bits\": 4, \"group_size\": 16}}}",
     put_packed, 1},
    {"\"quant_method\": \"modelopt\", \"quant_algo\": \"NVFP4\"", put_nvfp4, 1},
    {"\"quant_method\": \"awq\", \"group_size\": 16", put_awq, 8},
    {"\"quant_method\": \"gptq\", \"bits\": 4, \"group_size\": 16, \"desc_act\": true", put_gptq, 8},
};

static void write_folder(const char *dir, const folder *f) {
    char   path[128];
    pl_err err;
    snprintf(path, sizeof path, "%s/model.safetensors", dir);
    must(pl_st_write(path, f->tensor, f->n, NULL, 0, &err), &err);
}

static void free_folder(folder *f) {
    for (int i = 0; i < f->n; i++)
        free((void *)(uintptr_t)f->tensor[i].data);
    free(f);
}

static char *read_config(const char *dir) {
    char     path[128];
    uint8_t *text;
    size_t   n;
    pl_err   err;
    snprintf(path, sizeof path, "%s/config.json", dir);
    must(pl_file_read(path, &text, &n, 1 << 16, &err), &err);
    char *s = strndup((char *)text, n);
    pl_free(text);
    return s;
}

static void write_config(const char *dir, const char *text, const char *quant) {
    char  path[128];
    FILE *f;
    snprintf(path, sizeof path, "%s/config.json", dir);
    assert_non_null(f = fopen(path, "w"));
    fprintf(f, "{%s%s%s %s", quant ? "\"quantization_config\": {" : "", quant ? quant : "", quant ? "}," : "",
            strchr(text, '{') + 1);
    fclose(f);
}

// Replaces the matrices of a folder, but for embeddings and routers, by quantised ones.
static void quantise(const char *dir, const struct format *how) {
    pl_st  *st;
    pl_err  err;
    folder *f = calloc(1, sizeof *f);
    char   *config = read_config(dir);
    assert_non_null(f);
    must(pl_st_open(&st, dir, &err), &err);
    for (int64_t i = 0; i < pl_st_count(st); i++) {
        const pl_st_entry *e = pl_st_at(st, i);
        bool               plain = e->rank != 2 || strstr(e->name, "embed") || strstr(e->name, "mlp.gate.") ||
                     e->shape[0] % how->eights || e->shape[1] % 16;
        if (plain)
            memcpy(add(f, e->name, 0, "", e->dtype, e->shape[0], e->rank == 2 ? e->shape[1] : 0), e->data, e->bytes);
        else
            how->put(f, e->name, e->shape[0], e->shape[1]);
    }
    pl_st_close(st);
    write_folder(dir, f);
    write_config(dir, config, how->config);
    free_folder(f);
    free(config);
}

// A folder of what the matrices of another hold, in bf16.
static void dequantise(const char *to, const char *from, const char *config) {
    pl_weight_source *src;
    pl_err            err;
    folder           *f = calloc(1, sizeof *f);
    assert_non_null(f);
    must(pl_weight_source_open(&src, from, &err), &err);
    for (int64_t i = 0; i < pl_weight_source_count(src); i++) {
        const pl_weight_entry *e = pl_weight_source_at(src, i);
        f->tensor[i].name = e->name;
        pl_weight_copy(&f->tensor[i], e);
        f->n++;
    }
    write_folder(to, f);
    write_config(to, config, NULL);
    free(f);
    pl_weight_source_close(src);
}

static void same_model(const pl_llama *a, const pl_llama *b) {
    assert_int_equal(a->params.n, b->params.n);
    for (int i = 0; i < a->params.n; i++) {
        const pl_param *p = &a->params.p[i], *q = &b->params.p[i];
        assert_int_equal(!p->owned, !q->owned);
        if (p->owned) assert_int_equal(p->owned_bytes, q->owned_bytes);
        if (p->owned && memcmp(p->owned, q->owned, p->owned_bytes) != 0) fail_msg("%s differs", p->name[0]);
    }
    assert_string_not_equal(a->fingerprint, b->fingerprint);
}

static void check_family(const struct format *how, const char *family) {
    char      dir[64], copy[64];
    pl_llama  m;
    pl_target quantised, plain;
    pl_err    err;
    test_mkdir(dir);
    test_mkdir(copy);
    test_target_family(&m, dir, family, 2, 3, PL_BF16);
    pl_llama_fini(&m);
    char *config = read_config(dir);
    quantise(dir, how);
    dequantise(copy, dir, config);
    must(pl_target_open(&quantised, dir, NULL, NULL, PL_WEIGHTS_AUTO, pl_backend_cpu(), &err), &err);
    must(pl_target_open(&plain, copy, NULL, NULL, PL_WEIGHTS_AUTO, pl_backend_cpu(), &err), &err);
    assert_int_equal(quantised.dtype, PL_BF16);
    same_model(&quantised.model, &plain.model);
    pl_target_close(&quantised);
    pl_target_close(&plain);
    free(config);
    test_rmdir(dir);
    test_rmdir(copy);
}

static void same_as_copies(void **state) {
    (void)state;
    static const char *const families[] = {"Llama", "Phi3", "Mixtral", "Qwen3Moe"};
    for (size_t i = 0; i < sizeof formats / sizeof *formats; i++)
        for (size_t k = 0; k < sizeof families / sizeof *families; k++)
            check_family(&formats[i], families[k]);
}

// In fp32 a matrix is what the code gives; the folder's types say bf16.
static void exact_in_fp32(void **state) {
    (void)state;
    char              dir[64];
    pl_llama          m;
    pl_target         t;
    pl_weight_source *src;
    pl_err            err;
    test_mkdir(dir);
    test_target(&m, dir, 2, 3, PL_BF16);
    pl_llama_fini(&m);
    quantise(dir, &formats[1]);
    must(pl_weight_source_open(&src, dir, &err), &err);
    must(pl_target_open(&t, dir, NULL, NULL, PL_WEIGHTS_FP32, pl_backend_cpu(), &err), &err);
    assert_int_equal(t.dtype, PL_F32);
    pl_weight_spec spec = {.part = {{"lm_head.weight", TEST_VOCAB}}, .n_parts = 1, .rows = TEST_VOCAB, .cols = 48};
    float          v[TEST_VOCAB * 48], row[48];
    must(pl_weight_read_f32(src, &spec, v, &err), &err);
    int rounded = 0;
    for (int64_t r = 0; r < TEST_VOCAB; r++) {
        pl_panels_row(row, t.model.head.data, PL_F32, r, 48);
        assert_memory_equal(row, v + r * 48, sizeof row);
        for (int c = 0; c < 48; c++)
            rounded += pl_round_bf16(row[c]) != row[c];
    }
    assert_true(rounded > 0);
    pl_target_close(&t);
    pl_weight_source_close(src);
    test_rmdir(dir);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(same_as_copies),
        cmocka_unit_test(exact_in_fp32),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
