// One .safetensors file: header, entries, every byte of every tensor, metadata; the same as a model's weights, stacks of
// experts and MXFP4 among them.
#include "checkpoints/weights.h"
#include "kernels/base/arena.h"
#include "tests/fuzz/fuzz.h"

#include <string.h>

static void seed(const char *header, size_t bytes) {
    uint8_t  file[2048] = {0};
    uint64_t n = strlen(header);
    memcpy(file, &n, 8);
    memcpy(file + 8, header, n);
    for (size_t i = 0; i < bytes; i++)
        file[8 + n + i] = (uint8_t)i;
    pl_fuzz_seed(file, 8 + n + bytes);
}

static void seeds(void) {
    static const float        w[6] = {1, 2, 3, 4, 5, 6};
    static const int64_t      d2t[3] = {0, 4, 9};
    static const pl_st_source e[] = {{.name = "w", .dtype = PL_F32, .rank = 2, .shape = {2, 3}, .data = w},
                                     {.name = "d2t", .dtype = PL_I64, .rank = 1, .shape = {3}, .data = d2t},
                                     {.name = "m", .dtype = PL_U8, .rank = 1, .shape = {5}, .data = "abcde"}};
    static const pl_st_pair   meta[] = {{"format", "pt"}, {"paceline", "x"}};
    pl_err                    err;
    pl_fuzz_must(pl_st_write(pl_fuzz_path("seed"), e, 3, meta, 2, &err), &err);
    pl_fuzz_seed_file(pl_fuzz_path("seed"));
    static const pl_st_source moe[] = {
        {.name = "model.layers.0.mlp.experts.gate_up_proj_blocks",
         .dtype = PL_U8,
         .rank = 4,
         .shape = {2, 2, 1, 16},
         .data = "0123456789abcdef0123456789abcdef0123456789abcdef0123456789abcdef"},
        {.name = "model.layers.0.mlp.experts.gate_up_proj_scales",
         .dtype = PL_U8,
         .rank = 3,
         .shape = {2, 2, 1},
         .data = "wxyz"},
        {.name = "model.layers.0.mlp.experts.down_proj", .dtype = PL_F32, .rank = 3, .shape = {2, 1, 3}, .data = w},
        {.name = "model.layers.0.mlp.experts.gate_up_proj_bias",
         .dtype = PL_F32,
         .rank = 2,
         .shape = {1, 6},
         .data = w},
        {.name = "model.layers.0.block_sparse_moe.experts.1.w2.weight",
         .dtype = PL_F32,
         .rank = 2,
         .shape = {3, 2},
         .data = w}};
    pl_fuzz_must(pl_st_write(pl_fuzz_path("seed"), moe, 5, NULL, 0, &err), &err);
    pl_fuzz_seed_file(pl_fuzz_path("seed"));
    seed("{}", 0);
    seed("{\"a\":{\"dtype\":\"F32\",\"shape\":[],\"data_offsets\":[0,4]},\"n\":{\"dtype\":\"BF16\",\"shape\":[0,5],"
         "\"data_offsets\":[4,4]},\"b\":{\"dtype\":\"BOOL\",\"shape\":[1,1,1,1,1,1,1,1],\"data_offsets\":[4,5]}}   ",
         5);
}

static const char *const words[] = {"\"shape\":[",
                                    "\"data_offsets\":[",
                                    "\"dtype\":\"",
                                    "\"F16\"",
                                    "\"I64\"",
                                    "\"F8_E4M3\"",
                                    "\"__metadata__\":{",
                                    "9223372036854775807",
                                    "4294967296",
                                    "model.layers.0.mlp.experts.down_proj_blocks",
                                    NULL};

const pl_fuzz_target pl_fuzz = {
    .name = "safetensors", .seeds = seeds, .words = words, .runs = 4000, .max_len = 1 << 13};

// Every matrix and vector as a model would read it.
static void read_weights(void) {
    pl_err            err;
    pl_weight_source *src;
    if (!pl_fuzz_result(pl_weight_source_open(&src, pl_fuzz_path("m.safetensors"), &err), &err, &src)) return;
    for (int64_t i = 0; i < pl_weight_source_count(src); i++) {
        const pl_weight_entry *e = pl_weight_source_at(src, i);
        int64_t                cols = e->rank == 2 ? e->shape[1] : 1;
        if (e->rank < 1 || e->rank > 2 || cols < 1 || e->shape[0] > (1 << 16) || cols > (1 << 16)) continue;
        pl_weight_spec w = {.part = {{e->name, e->shape[0]}}, .n_parts = 1, .rows = e->shape[0]};
        w.cols = e->rank == 2 ? cols : 0;
        if (pl_weight_source_check(src, &w, 1, NULL) != PL_OK) continue;
        float *v = pl_calloc((size_t)(e->shape[0] * cols) + 1, sizeof *v);
        if (v) pl_fuzz_must(pl_weight_read_f32(src, &w, v, &err), &err);
        pl_free(v);
        pl_weight_drop(src, &w);
    }
    pl_weight_source_close(src);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t n) {
    pl_err err;
    pl_st *st = NULL;
    if (!pl_fuzz_result(pl_st_open(&st, pl_fuzz_file("m.safetensors", data, n), &err), &err, &st)) return 0;
    size_t total = 0;
    for (int64_t i = 0; i < pl_st_count(st); i++) {
        const pl_st_entry *e = pl_st_at(st, i);
        size_t             elements = 1;
        for (int k = 0; k < e->rank; k++)
            elements *= (size_t)e->shape[k];
        if (elements * pl_dtype_size(e->dtype) != e->bytes) pl_fuzz_finding("%s: shape and bytes differ", e->name);
        if (pl_st_find(st, e->name) != e) pl_fuzz_finding("%s is not found by its name", e->name);
        pl_fuzz_touch(e->data, e->bytes);
        total += e->bytes;
    }
    if (total > n) pl_fuzz_finding("%zu bytes of tensors in a file of %zu", total, n);
    const char *v = pl_st_metadata(st, "format");
    if (v) pl_fuzz_touch(v, strlen(v));
    pl_st_close(st);
    read_weights();
    return 0;
}
