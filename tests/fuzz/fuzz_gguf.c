// A GGUF file: what opens lies in the file, can be copied, and gets a verdict from each rule for served drafters.
#include "checkpoints/gguf.h"
#include "infer/export/export.h"
#include "kernels/base/arena.h"
#include "kernels/base/files.h"
#include "tests/fuzz/fuzz.h"

#include <string.h>

static void seeds(void) {
    static const float   row[8] = {1, 2, 3};
    static const int32_t list[] = {2, 8, 13};
    pl_err               err;
    pl_gguf_out         *o = pl_gguf_out_new();
    uint8_t             *data;
    size_t               n;
    pl_gguf_put_text(o, "general.architecture", "llama");
    pl_gguf_put_u32(o, "llama.block_count", 16);
    pl_gguf_put_u32(o, "eagle3.embedding_length", 2);
    pl_gguf_put_i32s(o, "eagle3.target_layers", list, 3);
    pl_gguf_put_i32s(o, "tokenizer.ggml.tokens", list, 3);
    pl_gguf_put_bool(o, "b", false);
    pl_gguf_put_f32(o, "f", 1e-5f);
    pl_gguf_put_tensor(o, "fc.weight", PL_F32, 2, (const int64_t[]){2, 4}, row);
    pl_gguf_put_tensor(o, "output.weight", PL_F32, 2, (const int64_t[]){3, 2}, row);
    pl_gguf_put_tensor(o, "d2t", PL_I64, 1, (const int64_t[]){3}, row);
    pl_fuzz_must(pl_gguf_write(o, pl_fuzz_path("seed.gguf"), &err), &err);
    pl_gguf_out_free(o);
    pl_fuzz_must(pl_file_read(pl_fuzz_path("seed.gguf"), &data, &n, 1 << 20, &err), &err);
    pl_fuzz_seed(data, n);
    pl_free(data);
}

static const char *const words[] = {
    "GGUF", "general.alignment", "\x09\x01", "tokenizer.ggml.tokens", "\xff\xff\xff\xff", NULL};

const pl_fuzz_target pl_fuzz = {.name = "gguf", .seeds = seeds, .words = words, .runs = 5000, .max_len = 1 << 12};

static void hear(void *arg, const char *rule, const char *help, pl_check_verdict v, const char *why) {
    (void)arg, (void)help;
    pl_fuzz_touch(why, strlen(why));
    if ((v == PL_CHECK_HOLDS) != !*why) pl_fuzz_finding("%s: a verdict without its reason", rule);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t n) {
    pl_err         err;
    pl_gguf       *g = NULL;
    pl_check_count count;
    int64_t        v;
    char           text[64];
    const char    *path = pl_fuzz_file("f.gguf", data, n);
    if (!pl_fuzz_result(pl_gguf_open(&g, path, &err), &err, &g)) return 0;
    const pl_export_engine *engine = pl_export_engine_find("gguf", &err);
    pl_check_folder(engine, path, path, hear, NULL, &count, &err); // without an architecture it is no target: refused
    pl_check_folder(engine, path, NULL, hear, NULL, &count, &err);
    pl_gguf_out *o = pl_gguf_out_new();
    for (int64_t i = 0; i < pl_gguf_values(g); i++) {
        const pl_gguf_value *k = pl_gguf_value_at(g, i);
        pl_fuzz_touch(k->key, k->n_key);
        pl_fuzz_touch(k->raw, k->n_raw);
        pl_gguf_put_value(o, k);
    }
    pl_gguf_int(g, "llama.block_count", &v);
    pl_gguf_text(g, "general.architecture", text, sizeof text);
    for (int64_t i = 0; i < pl_gguf_tensors(g); i++) {
        const pl_gguf_tensor *t = pl_gguf_tensor_at(g, i);
        size_t                bytes = t->type == 0 ? 4 : t->type == 27 ? 8 : 0;
        for (int r = 0; r < t->rank && bytes; r++)
            bytes *= (size_t)t->shape[r];
        pl_fuzz_touch(t->name, t->n_name);
        pl_fuzz_touch(t->data, bytes);
    }
    pl_fuzz_must(pl_gguf_write(o, pl_fuzz_path("again.gguf"), &err), &err);
    int64_t values = pl_gguf_values(g);
    pl_gguf_out_free(o);
    pl_gguf_close(g);
    pl_fuzz_must(pl_gguf_open(&g, pl_fuzz_path("again.gguf"), &err), &err);
    if (pl_gguf_values(g) != values) pl_fuzz_finding("a copy has %lld keys", (long long)pl_gguf_values(g));
    pl_gguf_close(g);
    return 0;
}
