// config.json as a target and as a drafter; what stands behind a 0 byte is generation_config.json beside it. What is
// accepted is within the bounds that the rest of the program counts on, and can be written and read again.
#include "checkpoints/hf.h"
#include "infer/import/import.h"
#include "kernels/base/files.h"
#include "tests/fuzz/fuzz.h"

#include <string.h>
#include <unistd.h>

#define TARGET                                                                                                         \
    "\"hidden_size\":64,\"intermediate_size\":172,\"num_hidden_layers\":2,\"num_attention_heads\":8,"                  \
    "\"num_key_value_heads\":4,\"vocab_size\":512"

static void seeds(void) {
    static const char both[] = "{\"architectures\":[\"LlamaForCausalLM\"],\"model_type\":\"llama\"," TARGET
                               ",\"eos_token_id\":[2,3]}\0{\"eos_token_id\":[4,5,2],\"bos_token_id\":1}";
    pl_fuzz_seed(both, sizeof both - 1);
    pl_fuzz_seed_text("{\"architectures\":[\"MistralForCausalLM\"],\"model_type\":\"mistral\"," TARGET
                      ",\"sliding_window\":null,\"rope_theta\":500000,\"torch_dtype\":\"bfloat16\",\"rope_scaling\":{"
                      "\"rope_type\":\"llama3\",\"factor\":8.0,\"low_freq_factor\":1.0,\"high_freq_factor\":4.0,"
                      "\"original_max_position_embeddings\":8192}}");
    pl_fuzz_seed_text("{\"architectures\":[\"LlamaForCausalLM\"],\"model_type\":\"llama\"," TARGET
                      ",\"head_dim\":16,\"dtype\":\"float16\",\"tie_word_embeddings\":true,\"rms_norm_eps\":1e-5,"
                      "\"max_position_embeddings\":4096,\"rope_parameters\":{\"rope_type\":\"linear\",\"factor\":2}}");
    pl_fuzz_seed_text("{\"architectures\":[\"Qwen3MoeForCausalLM\"],\"model_type\":\"qwen3_moe\"," TARGET
                      ",\"num_experts\":16,\"num_experts_per_tok\":4,\"moe_intermediate_size\":24,"
                      "\"norm_topk_prob\":true,\"decoder_sparse_step\":1,\"mlp_only_layers\":[0]}");
    pl_fuzz_seed_text("{\"architectures\":[\"LlamaForCausalLMEagle3\"],\"model_type\":\"llama\"," TARGET
                      ",\"draft_vocab_size\":128,\"target_hidden_size\":64,\"eagle_config\":{"
                      "\"eagle_aux_hidden_state_layer_ids\":[1,2],\"use_aux_hidden_state\":true},"
                      "\"paceline\":{\"tap_numbering\":\"input\",\"head\":{\"kind\":\"lowrank\",\"rank\":16}}}");
    pl_fuzz_seed_text("{\"architectures\":[\"Eagle3DraftModel\"],\"speculators_model_type\":\"eagle3\","
                      "\"draft_vocab_size\":128,\"norm_before_residual\":false,"
                      "\"eagle_aux_hidden_state_layer_ids\":[2,4,5],\"transformer_layer_config\":{\"model_type\":"
                      "\"llama\"," TARGET "}}");
    pl_fuzz_seed_text("{\"architectures\":[\"Eagle3LlamaForCausalLM\"]," TARGET ",\"draft_vocab_size\":64}");
}

static const char *const words[] = {"\"rope_scaling\":{",
                                    "\"rope_type\":\"yarn\"",
                                    "\"sliding_window\":",
                                    "\"attention_bias\":true",
                                    "\"hidden_act\":\"gelu\"",
                                    "\"eagle_config\":{",
                                    "\"layer_types\":[",
                                    "\"head_dim\":",
                                    "\"num_local_experts\":",
                                    "\"mlp_only_layers\":[",
                                    "MixtralForCausalLM",
                                    "GptOssForCausalLM",
                                    "Qwen3_5ForCausalLM",
                                    "\"linear_num_key_heads\":",
                                    "65537",
                                    "\"quantization_config\":{",
                                    "\"eos_token_id\":",
                                    "\"PacelineEagle3\"",
                                    "null",
                                    "\"transformer_layer_config\":{",
                                    "\"model_type\":\"qwen3\"",
                                    "\"speculators_model_type\":\"",
                                    "\"aux_hidden_state_layer_ids\":[",
                                    NULL};

const pl_fuzz_target pl_fuzz = {.name = "hf_config", .seeds = seeds, .words = words, .runs = 4000, .max_len = 1 << 13};

static void write_again(const pl_hf_config *c, pl_hf_role role) {
    pl_err       err;
    pl_hf_config back;
    pl_fuzz_must(pl_hf_config_check(c, "again", &err), &err);
    pl_fuzz_must(pl_dir_make(pl_fuzz_path("again"), &err), &err);
    pl_fuzz_must(pl_hf_config_write(pl_fuzz_path("again/config.json"), c, &err), &err);
    pl_fuzz_must(pl_hf_config_read(&back, pl_fuzz_path("again"), role, &err), &err);
    if (back.hidden_size != c->hidden_size || back.vocab_size != c->vocab_size || back.rope.theta != c->rope.theta ||
        back.n_eos != c->n_eos || back.n_taps != c->n_taps || back.rms_norm_eps != c->rms_norm_eps)
        pl_fuzz_finding("a config that was written reads back as another one");
}

// The same file as a drafter of somebody else's.
static void read_published(void) {
    pl_hf_config            c;
    const pl_import_format *format;
    bool                    stated;
    pl_err                  err;
    if (pl_fuzz_result(pl_import_config(&c, &format, &stated, pl_fuzz_path("model"), &err), &err, NULL))
        write_again(&c, PL_HF_DRAFTER);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t n) {
    static bool    there;
    const uint8_t *zero = memchr(data, 0, n);
    size_t         first = zero ? (size_t)(zero - data) : n;
    pl_err         err;
    if (!there) pl_fuzz_must(pl_dir_make(pl_fuzz_path("model"), &err), &err);
    there = true;
    pl_fuzz_file("model/config.json", data, first);
    if (zero)
        pl_fuzz_file("model/generation_config.json", zero + 1, n - first - 1);
    else
        unlink(pl_fuzz_path("model/generation_config.json"));
    for (int role = PL_HF_TARGET; role <= PL_HF_DRAFTER; role++) {
        pl_hf_config c;
        if (pl_fuzz_result(pl_hf_config_read(&c, pl_fuzz_path("model"), (pl_hf_role)role, &err), &err, NULL))
            write_again(&c, (pl_hf_role)role);
    }
    read_published();
    return 0;
}
