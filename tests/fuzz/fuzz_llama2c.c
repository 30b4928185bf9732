// llama2.c model files.
#include "checkpoints/llama2c.h"
#include "tests/fuzz/fuzz.h"

#include <stdlib.h>
#include <string.h>

static void seed(const int32_t h[7]) {
    size_t d = (size_t)h[0], f = (size_t)h[1], l = (size_t)h[2], hd = d / (size_t)h[3], kv = hd * (size_t)h[4];
    size_t v = (size_t)abs(h[5]);
    size_t n = v * d * (h[5] < 0 ? 2 : 1) + l * (2 * d * d + 2 * d * kv + 3 * d * f + 2 * d) + d + (size_t)h[6] * hd;
    float *file = calloc(n + 7, sizeof *file);
    if (!file) pl_fuzz_finding("no memory");
    memcpy(file, h, 28);
    for (size_t i = 0; i < n; i++)
        file[7 + i] = (float)i;
    pl_fuzz_seed(file, 28 + 4 * n);
    free(file);
}

static void seeds(void) {
    seed((int32_t[]){4, 6, 1, 2, 1, 8, 3});
    seed((int32_t[]){4, 4, 2, 2, 2, -5, 2});
}

const pl_fuzz_target pl_fuzz = {.name = "llama2c", .seeds = seeds, .runs = 4000, .max_len = 1 << 12};

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t n) {
    pl_err            err;
    pl_hf_config      c;
    pl_weight_source *src = NULL;
    if (!pl_fuzz_result(pl_llama2c_open(&src, &c, pl_fuzz_file("m.bin", data, n), &err), &err, &src)) return 0;
    pl_fuzz_must(pl_hf_config_check(&c, "m.bin", &err), &err);
    for (int64_t i = 0; i < pl_weight_source_count(src); i++) {
        const pl_weight_entry *e = pl_weight_source_at(src, i);
        pl_weight_spec         spec = {.part = {{e->name, e->shape[0]}},
                                       .n_parts = 1,
                                       .rows = e->shape[0],
                                       .cols = e->rank == 2 ? e->shape[1] : 0};
        float                 *to = malloc(e->bytes ? e->bytes : 1);
        if (!to) pl_fuzz_finding("no memory");
        pl_fuzz_must(pl_weight_source_check(src, &spec, 1, &err), &err);
        pl_fuzz_must(pl_weight_read_f32(src, &spec, to, &err), &err);
        pl_fuzz_touch(to, e->bytes);
        free(to);
    }
    pl_weight_source_close(src);
    return 0;
}
