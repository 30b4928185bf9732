// The vocabulary inside a GGUF file, of both kinds.
#include "kernels/base/arena.h"
#include "kernels/base/files.h"
#include "tests/fuzz/fuzz.h"
#include "tests/gguf_texts.h"

#include <stdio.h>

static void seed(const char *model) {
    static const char *const pieces[] = {"<unk>", "<s>", "a", "b", "ab", "\xE2\x96\x81", "<|end|>"};
    static const int32_t     kinds[] = {2, 3, 1, 1, 1, 1, 4};
    gguf_array               tokens = {0}, scores = {0}, types = {0}, merges = {0};
    pl_err                   err;
    uint8_t                 *data;
    size_t                   n;
    bool                     bytes = model[0] == 'g';
    pl_gguf_out             *o = pl_gguf_out_new();
    for (int i = bytes ? 2 : 0; i < 7; i++) {
        gguf_text(&tokens, pieces[i], strlen(pieces[i]));
        gguf_float(&scores, -(float)i);
        gguf_int(&types, kinds[i]);
    }
    gguf_text(&merges, "a b", 3);
    pl_gguf_put_text(o, "tokenizer.ggml.model", model);
    pl_gguf_put_text(o, "tokenizer.ggml.pre", "gpt-2");
    gguf_put_array(o, "tokenizer.ggml.tokens", &tokens);
    gguf_put_array(o, "tokenizer.ggml.scores", &scores);
    gguf_put_array(o, "tokenizer.ggml.token_type", &types);
    gguf_put_array(o, "tokenizer.ggml.merges", &merges);
    pl_gguf_put_u32(o, "tokenizer.ggml.bos_token_id", 1);
    pl_gguf_put_u32(o, "tokenizer.ggml.unknown_token_id", 0);
    pl_gguf_put_bool(o, "tokenizer.ggml.add_bos_token", true);
    pl_fuzz_must(pl_gguf_write(o, pl_fuzz_path("seed.gguf"), &err), &err);
    pl_gguf_out_free(o);
    pl_fuzz_must(pl_file_read(pl_fuzz_path("seed.gguf"), &data, &n, 1 << 20, &err), &err);
    pl_fuzz_seed(data, n);
    pl_free(data);
}

static void seeds(void) {
    seed("llama");
    seed("gpt2");
}

static const char *const words[] = {"llama", "gpt2", "qwen2", "llama-bpe", "\xff\xff\xff\xff", "\x06", NULL};

const pl_fuzz_target pl_fuzz = {
    .name = "tokenizer_gguf", .seeds = seeds, .words = words, .runs = 3000, .max_len = 1 << 12};

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t n) {
    pl_fuzz_tokenizer(pl_fuzz_file("tokenizer.gguf", data, n), NULL);
    return 0;
}
