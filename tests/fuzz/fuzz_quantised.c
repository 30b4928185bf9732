// Quantised folders: a config.json up to the input's first byte 0, model.safetensors after it. Every matrix is read as a
// model would read it, and copied.
#include "checkpoints/fingerprint.h"
#include "kernels/base/arena.h"
#include "kernels/base/files.h"
#include "tests/fuzz/fuzz.h"

#include <stdio.h>
#include <string.h>

enum { INPUT_MAX = 1 << 13, TENSORS = 8 };

// A case of the golden file as an input.
static void seed_case(const pl_st *golden, const char *name) {
    static uint8_t input[INPUT_MAX];
    pl_st_source   t[TENSORS];
    char           names[TENSORS][128];
    int            n = 0,
        text = snprintf((char *)input, sizeof input, "{\"quantization_config\":%s}", pl_st_metadata(golden, name)) + 1;
    size_t   cut = strlen(name), bytes;
    uint8_t *file;
    pl_err   err;
    for (int64_t i = 0; i < pl_st_count(golden) && n < TENSORS; i++) {
        const pl_st_entry *e = pl_st_at(golden, i);
        if (strncmp(e->name, name, cut) != 0 || e->name[cut] != '|') continue;
        snprintf(names[n], sizeof names[n], "model.layers.0.mlp.up_proj%s", e->name + cut + 1);
        t[n] = (pl_st_source){.name = names[n], .dtype = e->dtype, .rank = e->rank, .data = e->data};
        memcpy(t[n++].shape, e->shape, sizeof e->shape);
    }
    pl_fuzz_must(pl_st_write(pl_fuzz_path("seed"), t, n, NULL, 0, &err), &err);
    pl_fuzz_must(pl_file_read(pl_fuzz_path("seed"), &file, &bytes, sizeof input - (size_t)text, &err), &err);
    memcpy(input + text, file, bytes);
    pl_fuzz_seed(input, (size_t)text + bytes);
    pl_free(file);
}

static void seeds(void) {
    pl_err err;
    pl_st *golden;
    pl_fuzz_must(pl_st_open(&golden, PACELINE_SOURCE_DIR "/tests/checkpoints/golden_quant.safetensors", &err), &err);
    char *list = pl_strdup(pl_st_metadata(golden, "cases")), *next = list;
    for (char *name; (name = strsep(&next, "\n")) != NULL;)
        seed_case(golden, name);
    pl_free(list);
    pl_st_close(golden);
}

static const char *const words[] = {"\"quant_method\": \"",
                                    "\"group_size\": ",
                                    "\"bits\": ",
                                    "\"num_bits\": ",
                                    "\"block\"",
                                    "\"weight_block_size\": [",
                                    "\"channel\"",
                                    "\"symmetric\": ",
                                    "\"checkpoint_format\": \"gptq_v2\"",
                                    ".weight_scale",
                                    "\"shape\":[",
                                    "\"F8_E4M3\"",
                                    "\"I32\"",
                                    "\"data_offsets\":[",
                                    NULL};

const pl_fuzz_target pl_fuzz = {
    .name = "quantised", .seeds = seeds, .words = words, .runs = 4000, .max_len = INPUT_MAX};

static void read_matrix(const pl_weight_source *src, const pl_weight_entry *e) {
    pl_err         err;
    int64_t        cols = e->shape[1];
    pl_weight_spec w = {.part = {{e->name, e->shape[0]}}, .n_parts = 1, .rows = e->shape[0], .cols = cols};
    if (e->rank != 2 || cols < 1 || e->shape[0] < 1 || e->shape[0] > (1 << 16) || cols > (1 << 16) ||
        pl_weight_source_check(src, &w, 1, NULL) != PL_OK)
        return;
    float *v = pl_calloc((size_t)(e->shape[0] * cols), sizeof *v);
    if (v) pl_fuzz_must(pl_weight_read_f32(src, &w, v, &err), &err);
    if (v) pl_fuzz_must(pl_weight_read_rows(src, &w, e->shape[0] - 1, 1, v, &err), &err);
    pl_st_source copy;
    pl_weight_copy(&copy, e);
    if (v && copy.fill) pl_fuzz_must(copy.fill(copy.arg, 0, v, 2 * (size_t)(e->shape[0] * cols), &err), &err);
    pl_free(v);
    pl_weight_drop(src, &w);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t n) {
    pl_err            err;
    pl_weight_source *src;
    char              print[17];
    const uint8_t    *end = n > 0 ? memchr(data, 0, n) : NULL;
    if (!end) return 0;
    pl_fuzz_must(pl_dir_make(pl_fuzz_path("model"), &err), &err);
    pl_fuzz_file("model/config.json", data, (size_t)(end - data));
    pl_fuzz_file("model/model.safetensors", end + 1, n - (size_t)(end - data) - 1);
    if (!pl_fuzz_result(pl_weight_source_open(&src, pl_fuzz_path("model"), &err), &err, &src)) return 0;
    for (int64_t i = 0; i < pl_weight_source_count(src); i++)
        read_matrix(src, pl_weight_source_at(src, i));
    pl_fuzz_must(pl_fingerprint(print, src, NULL, true, &err), &err);
    pl_weight_source_close(src);
    return 0;
}
