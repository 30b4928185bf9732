// tokenizer_config.json beside a tokenizer.
#include "kernels/base/files.h"
#include "tests/fuzz/fuzz.h"

static void seeds(void) {
    pl_fuzz_seed_text("{\"add_bos_token\":false,\"add_eos_token\":false,\"bos_token\":\"<s>\",\"eos_token\":\"</s>\","
                      "\"unk_token\":{\"content\":\"<unk>\",\"lstrip\":false},\"model_max_length\":1e30}");
    pl_fuzz_seed_text("{\"add_bos_token\":true,\"added_tokens_decoder\":{\"2\":{\"content\":\"</s>\"}}}");
    pl_fuzz_seed_text("{}");
}

static const char *const words[] = {"\"add_bos_token\":",
                                    "\"add_eos_token\":",
                                    "\"bos_token\":",
                                    "\"eos_token\":",
                                    "true",
                                    "false",
                                    "null",
                                    "{\"content\":\"",
                                    "\"a\"",
                                    NULL};

const pl_fuzz_target pl_fuzz = {
    .name = "tokenizer_config", .seeds = seeds, .words = words, .runs = 2000, .max_len = 1 << 12};

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t n) {
    static const char tok[] =
        "{\"added_tokens\":[],\"normalizer\":null,\"pre_tokenizer\":null,\"decoder\":null,\"model\":{"
        "\"type\":\"BPE\",\"vocab\":{\"<s>\":0,\"</s>\":1,\"a\":2,\"b\":3},\"merges\":[]}}";
    static bool there;
    pl_err      err;
    if (!there) {
        pl_fuzz_must(pl_dir_make(pl_fuzz_path("tok"), &err), &err);
        pl_fuzz_file("tok/tokenizer.json", tok, sizeof tok - 1);
        there = true;
    }
    pl_fuzz_file("tok/tokenizer_config.json", data, n);
    pl_fuzz_tokenizer(pl_fuzz_path("tok"), NULL);
    return 0;
}
