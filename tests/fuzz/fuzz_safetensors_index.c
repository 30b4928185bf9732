// model.safetensors.index.json over two fixed shards.
#include "checkpoints/weights.h"
#include "kernels/base/files.h"
#include "tests/fuzz/fuzz.h"

static void seeds(void) {
    pl_fuzz_seed_text("{\"metadata\":{\"total_size\":28},\"weight_map\":{\"a\":\"s1\",\"b\":\"s1\",\"c\":\"s2\"}}");
    pl_fuzz_seed_text("{\"weight_map\":{\"c\":\"s2\"}}");
    pl_fuzz_seed_text("{\"weight_map\":{\"a\":\"s1\",\"b\":\"s1\"}}");
}

static const char *const words[] = {"\"weight_map\":{",
                                    "\"a\":\"s1\"",
                                    "\"c\":\"s2\"",
                                    "\"s2\"",
                                    "../",
                                    "/",
                                    "..",
                                    ".",
                                    "model.safetensors.index.json",
                                    NULL};

const pl_fuzz_target pl_fuzz = {
    .name = "safetensors_index", .seeds = seeds, .words = words, .runs = 3000, .max_len = 1 << 12};

static void put_shards(void) {
    static const float        w[4] = {1, 2, 3, 4};
    static const pl_st_source one[] = {{.name = "a", .dtype = PL_F32, .rank = 1, .shape = {4}, .data = w},
                                       {.name = "b", .dtype = PL_F32, .rank = 1, .shape = {2}, .data = w}};
    static const pl_st_source two[] = {{.name = "c", .dtype = PL_F32, .rank = 1, .shape = {1}, .data = w}};
    static bool               there;
    pl_err                    err;
    if (there) return;
    pl_fuzz_must(pl_dir_make(pl_fuzz_path("set"), &err), &err);
    pl_fuzz_must(pl_st_write(pl_fuzz_path("set/s1"), one, 2, NULL, 0, &err), &err);
    pl_fuzz_must(pl_st_write(pl_fuzz_path("set/s2"), two, 1, NULL, 0, &err), &err);
    there = true;
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t n) {
    pl_err            err;
    pl_weight_source *src = NULL;
    put_shards();
    pl_fuzz_file("set/model.safetensors.index.json", data, n);
    if (!pl_fuzz_result(pl_weight_source_open(&src, pl_fuzz_path("set"), &err), &err, &src)) return 0;
    for (int64_t i = 0; i < pl_weight_source_count(src); i++) {
        const pl_weight_entry *e = pl_weight_source_at(src, i);
        pl_fuzz_touch(e->data, e->bytes);
    }
    pl_weight_source_close(src);
    return 0;
}
