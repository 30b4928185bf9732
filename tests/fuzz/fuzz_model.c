// Whole model folders as `decode` opens them: a target's or a drafter's config.json (the input's first byte chooses),
// beside weights that are right. The config and the weights must agree before anything of their size is allocated.
#include "infer/drafter/backbone.h"
#include "kernels/base/files.h"
#include "tests/fuzz/fuzz.h"
#include "tests/infer/fixture.h"

#include <stdlib.h>
#include <string.h>

static pl_llama target;
static bool     there;

static void make(void) {
    pl_err err;
    if (there) return;
    there = true;
    pl_fuzz_must(pl_dir_make(pl_fuzz_path("target"), &err), &err);
    pl_fuzz_must(pl_dir_make(pl_fuzz_path("drafter"), &err), &err);
    pl_fuzz_must(pl_dir_make(pl_fuzz_path("eagle1"), &err), &err);
    test_target(&target, pl_fuzz_path("target"), 2, 1, PL_BF16);
    test_drafter_write(pl_fuzz_path("drafter"), &target, "lowrank", 8, 2);
    test_backbone_write(pl_fuzz_path("eagle1"), &target, &pl_backbone_eagle1, &(pl_backbone_options){0}, 3);
}

static void seed(const char *path, char kind) {
    pl_err   err;
    uint8_t *data, copy[8192];
    size_t   n;
    pl_fuzz_must(pl_file_read(path, &data, &n, sizeof copy - 1, &err), &err);
    copy[0] = (uint8_t)kind;
    memcpy(copy + 1, data, n);
    pl_fuzz_seed(copy, n + 1);
    pl_free(data);
}

static void seeds(void) {
    make();
    seed(pl_fuzz_path("target/config.json"), 't');
    seed(pl_fuzz_path("drafter/config.json"), 'd');
    seed(pl_fuzz_path("eagle1/config.json"), 'e');
}

static const char *const words[] = {"\"num_hidden_layers\": ",
                                    "\"vocab_size\": ",
                                    "\"head_dim\": ",
                                    "\"rank\": ",
                                    "\"kind\": \"full\"",
                                    "\"max_position_embeddings\": 268435456",
                                    "\"draft_vocab_size\": ",
                                    "\"tie_word_embeddings\": true",
                                    "\"intermediate_size\": ",
                                    "\"hidden_size\": ",
                                    "\"bias\": true",
                                    "MixtralForCausalLM",
                                    "GptOssForCausalLM",
                                    "Qwen3NextForCausalLM",
                                    "\"linear_key_head_dim\": ",
                                    "Qwen3MoeForCausalLM",
                                    "\"num_experts\": ",
                                    "LlamaForCausalLMEagle",
                                    "PacelineEagle",
                                    "[0, 1, 2]",
                                    NULL};

const pl_fuzz_target pl_fuzz = {.name = "model", .seeds = seeds, .words = words, .runs = 1500, .max_len = 1 << 13};

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t n) {
    pl_err err;
    if (n == 0) return 0;
    make();
    if (data[0] == 't') {
        pl_llama m;
        pl_fuzz_file("target/config.json", data + 1, n - 1);
        if (pl_fuzz_result(pl_llama_open(&m, pl_fuzz_path("target"), PL_BF16, pl_backend_cpu(), &err), &err, NULL))
            pl_llama_fini(&m);
    } else {
        pl_backbone *b;
        const char  *dir = data[0] == 'e' ? "eagle1" : "drafter";
        pl_fuzz_file(data[0] == 'e' ? "eagle1/config.json" : "drafter/config.json", data + 1, n - 1);
        if (pl_fuzz_result(pl_backbone_open(&b, pl_fuzz_path(dir), &target, PL_BF16, &err), &err, &b))
            pl_backbone_destroy(b);
    }
    return 0;
}
