#include "checkpoints/hf.h"
#include "kernels/base/json.h"
#include "kernels/base/log.h"
#include "scratch.h"

#include <math.h>

// A small valid target with further members in front, which take the place of those behind (a key twice is refused, so
// `drop` names one to leave out).
static const char *const MEMBERS[][2] = {
    {"architectures", "[\"LlamaForCausalLM\"]"},
    {"model_type", "\"llama\""},
    {"hidden_size", "64"},
    {"intermediate_size", "172"},
    {"num_hidden_layers", "2"},
    {"num_attention_heads", "8"},
    {"vocab_size", "512"},
};

static void put_config(const char *path, const char *drop, const char *more) {
    char text[4096] = "{", *p = text + 1;
    for (size_t i = 0; i < sizeof MEMBERS / sizeof *MEMBERS; i++)
        if (!drop || strcmp(drop, MEMBERS[i][0]) != 0) p += sprintf(p, "\"%s\":%s,", MEMBERS[i][0], MEMBERS[i][1]);
    sprintf(p, "%s%s\"end\":0}", more, *more ? "," : "");
    put_text(path, text);
}

static void test_defaults(void **state) {
    (void)state;
    pl_err       err;
    pl_hf_config c;
    put_config(at("config.json"), NULL, "");
    assert_ok(pl_hf_config_read(&c, at("config.json"), PL_HF_TARGET, &err));
    assert_string_equal(c.architecture, "LlamaForCausalLM");
    assert_string_equal(c.model_type, "llama");
    assert_int_equal(c.num_key_value_heads, 8);
    assert_int_equal(c.head_dim, 8);
    assert_int_equal(c.max_position_embeddings, 2048);
    assert_true(c.rms_norm_eps == 1e-6 && c.rope.theta == 10000);
    assert_int_equal(c.rope.scaling, PL_HF_ROPE_NONE);
    assert_false(c.tie_word_embeddings);
    assert_int_equal(c.bos_token_id, -1);
    assert_int_equal(c.pad_token_id, -1);
    assert_int_equal(c.n_eos, 0);
    assert_int_equal(c.dtype, PL_F32);
    assert_int_equal(c.draft_vocab_size, 0);
    assert_int_equal(c.tap_numbering, PL_HF_TAPS_UNSTATED);
}

static void test_fields(void **state) {
    (void)state;
    pl_err       err;
    pl_hf_config c;
    put_config(at("c.json"), NULL,
               "\"num_key_value_heads\":4,\"head_dim\":16,\"max_position_embeddings\":4096,\"rms_norm_eps\":1e-05,"
               "\"rope_theta\":500000,\"tie_word_embeddings\":true,\"bos_token_id\":1,\"pad_token_id\":-1,"
               "\"eos_token_id\":[2,3,2],\"torch_dtype\":\"bfloat16\",\"sliding_window\":null,\"rope_scaling\":{"
               "\"rope_type\":\"llama3\",\"factor\":8.0,\"low_freq_factor\":1.0,\"high_freq_factor\":4.0,"
               "\"original_max_position_embeddings\":8192}");
    assert_ok(pl_hf_config_read(&c, at("c.json"), PL_HF_TARGET, &err));
    assert_int_equal(c.num_key_value_heads, 4);
    assert_int_equal(c.head_dim, 16);
    assert_int_equal(c.max_position_embeddings, 4096);
    assert_true(c.rms_norm_eps == 1e-5 && c.rope.theta == 500000);
    assert_true(c.tie_word_embeddings);
    assert_int_equal(c.bos_token_id, 1);
    assert_int_equal(c.n_eos, 2);
    assert_int_equal(c.eos_token_id[1], 3);
    assert_int_equal(c.dtype, PL_BF16);
    assert_int_equal(c.rope.scaling, PL_HF_ROPE_LLAMA3);
    assert_true(c.rope.factor == 8 && c.rope.low_freq_factor == 1 && c.rope.high_freq_factor == 4);
    assert_int_equal(c.rope.original_max_position_embeddings, 8192);
    // The spelling of transformers 5.
    put_config(at("c.json"), NULL,
               "\"dtype\":\"float16\",\"rope_parameters\":{\"rope_theta\":1e6,\"rope_type\":\"linear\",\"factor\":2}");
    assert_ok(pl_hf_config_read(&c, at("c.json"), PL_HF_TARGET, &err));
    assert_int_equal(c.dtype, PL_F16);
    assert_int_equal(c.rope.scaling, PL_HF_ROPE_LINEAR);
    assert_true(c.rope.factor == 2 && c.rope.theta == 1e6);
    // YaRN, with what transformers derives where the file is silent.
    put_config(at("c.json"), NULL,
               "\"max_position_embeddings\":131072,\"rope_scaling\":{\"type\":\"yarn\",\"factor\":4,"
               "\"original_max_position_embeddings\":32768}");
    assert_ok(pl_hf_config_read(&c, at("c.json"), PL_HF_TARGET, &err));
    assert_int_equal(c.rope.scaling, PL_HF_ROPE_YARN);
    assert_true(c.rope.factor == 4 && c.rope.beta_fast == 32 && c.rope.beta_slow == 1 && c.rope.truncate);
    assert_true(fabs(c.rope.attention_factor - 1.138629436111989) < 1e-12);
    put_config(at("c.json"), NULL,
               "\"max_position_embeddings\":131072,\"rope_parameters\":{\"rope_type\":\"yarn\",\"mscale\":0.707,"
               "\"original_max_position_embeddings\":4096,\"mscale_all_dim\":1.0,\"truncate\":false}");
    assert_ok(pl_hf_config_read(&c, at("c.json"), PL_HF_TARGET, &err));
    assert_true(c.rope.factor == 32 && !c.rope.truncate); // the ratio of the positions
    assert_true(fabs(c.rope.attention_factor - (0.0707 * log(32) + 1) / (0.1 * log(32) + 1)) < 1e-12);
    // Windows that are switched off, and Mistral without one.
    put_config(at("c.json"), "architectures",
               "\"architectures\":[\"MistralForCausalLM\"],\"use_sliding_window\":false,\"sliding_window\":4096,"
               "\"rope_scaling\":{\"type\":\"default\"},\"layer_types\":[\"full_attention\",\"full_attention\"]");
    assert_ok(pl_hf_config_read(&c, at("c.json"), PL_HF_TARGET, &err));
    assert_string_equal(c.architecture, "MistralForCausalLM");
    assert_false(c.qkv_bias || c.qk_norm);
    // Qwen: biases or normed heads by the architecture's name.
    put_config(at("c.json"), "architectures",
               "\"architectures\":[\"Qwen2ForCausalLM\"],\"use_sliding_window\":false,"
               "\"sliding_window\":32768,\"max_window_layers\":28");
    assert_ok(pl_hf_config_read(&c, at("c.json"), PL_HF_TARGET, &err));
    assert_true(c.qkv_bias && !c.qk_norm);
    put_config(at("c.json"), "architectures",
               "\"architectures\":[\"Qwen3ForCausalLM\"],\"attention_bias\":false,\"sliding_window\":null");
    assert_ok(pl_hf_config_read(&c, at("c.json"), PL_HF_TARGET, &err));
    assert_true(!c.qkv_bias && c.qk_norm);
}

#define MISTRAL "\"architectures\":[\"MistralForCausalLM\"],"
#define PHI3 "\"architectures\":[\"Phi3ForCausalLM\"],"
#define MIXTRAL "\"architectures\":[\"MixtralForCausalLM\"],"
#define QWEN3_MOE "\"architectures\":[\"Qwen3MoeForCausalLM\"],"
#define GPT_OSS "\"architectures\":[\"GptOssForCausalLM\"],"
#define QWEN3_NEXT "\"architectures\":[\"Qwen3NextForCausalLM\"],"
#define QWEN3_5 "\"architectures\":[\"Qwen3_5ForCausalLM\"],"
#define GEMMA2 "\"architectures\":[\"Gemma2ForCausalLM\"],"
#define GEMMA3 "\"architectures\":[\"Gemma3ForCausalLM\"],"

static void read_as(pl_hf_config *c, const char *more) {
    pl_err err;
    put_config(at("f.json"), "architectures", more);
    pl_status st = pl_hf_config_read(c, at("f.json"), PL_HF_TARGET, &err);
    if (st != PL_OK) fail_msg("%s: %s", more, err.msg);
}

static void windows_are(const pl_hf_config *c, int window, const char *layers) {
    assert_int_equal(c->sliding_window, window);
    for (int l = 0; l < c->num_hidden_layers; l++)
        assert_int_equal(pl_hf_windowed(c, l), layers[l] == 's');
}

// What each family's file says, and what is taken where it is silent: transformers' defaults.
static void test_families(void **state) {
    (void)state;
    pl_hf_config c;
    read_as(&c, MISTRAL "\"sliding_window\":4096");
    windows_are(&c, 4096, "ss");
    assert_false(c.fused || c.post_norms || c.norm_plus_one || c.embedding_scaled);
    read_as(&c, MISTRAL "\"sliding_window\":null,\"rope_scaling\":{\"type\":\"linear\",\"factor\":2}");
    windows_are(&c, 0, "ff");
    assert_int_equal(c.rope.scaling, PL_HF_ROPE_LINEAR);
    read_as(&c, "\"architectures\":[\"Qwen2ForCausalLM\"],\"use_sliding_window\":true,\"sliding_window\":64,"
                "\"max_window_layers\":1,\"rope_scaling\":{\"type\":\"yarn\",\"factor\":4,"
                "\"original_max_position_embeddings\":32768}");
    windows_are(&c, 64, "fs");
    assert_true(c.qkv_bias && c.rope.scaling == PL_HF_ROPE_YARN);
    read_as(&c, "\"architectures\":[\"Qwen2ForCausalLM\"],\"use_sliding_window\":true,\"max_window_layers\":0");
    windows_are(&c, 4096, "ss");
    read_as(&c, "\"architectures\":[\"Qwen3ForCausalLM\"],\"use_sliding_window\":true,\"sliding_window\":64");
    windows_are(&c, 0, "ff"); // from layer 28 on
    read_as(&c, "\"architectures\":[\"Qwen2ForCausalLM\"],\"sliding_window\":64");
    windows_are(&c, 0, "ff"); // not switched on

    read_as(&c, PHI3 "\"sliding_window\":2047");
    windows_are(&c, 2047, "ss");
    assert_true(c.fused && !c.qkv_bias && c.rope.partial == 0 && c.max_position_embeddings == 4096);
    read_as(&c, PHI3 "\"max_position_embeddings\":131072,\"original_max_position_embeddings\":4096,"
                     "\"partial_rotary_factor\":0.75,\"rope_scaling\":{\"type\":\"su\",\"short_factor\":[1,1.5,2],"
                     "\"long_factor\":[1,4,8.5]}");
    assert_int_equal(c.rope.scaling, PL_HF_ROPE_LONG);
    assert_int_equal(pl_hf_rotary_dim(&c), 6);
    assert_true(c.rope.factor == 32 && c.rope.original_max_position_embeddings == 4096);
    assert_true(fabs(c.rope.attention_factor - sqrt(1 + log(32) / log(4096))) < 1e-12);
    assert_true(pl_hf_long_divisors(&c)[2] == 8.5);
    read_as(&c, PHI3 "\"max_position_embeddings\":4096,\"original_max_position_embeddings\":4096,"
                     "\"rope_parameters\":{\"rope_type\":\"longrope\",\"partial_rotary_factor\":0.75,\"factor\":16,"
                     "\"short_factor\":[1,1.5,2],\"long_factor\":[1,4,8.5],\"rope_theta\":500}");
    assert_true(pl_hf_long_divisors(&c)[2] == 2 && c.rope.theta == 500);
    assert_true(fabs(c.rope.attention_factor - sqrt(1 + log(16) / log(4096))) < 1e-12);

    read_as(&c, GEMMA2 "\"hidden_act\":\"gelu_pytorch_tanh\",\"head_dim\":16,\"sliding_window\":9");
    windows_are(&c, 9, "sf");
    assert_true(c.post_norms && c.norm_plus_one && c.embedding_scaled && c.tie_word_embeddings && !c.qk_norm);
    assert_true(c.activation == PL_HF_GELU_TANH && c.query_scalar == 256);
    assert_true(c.attention_softcap == 50 && c.final_softcap == 30 && c.local_theta == 0 && c.rope.theta == 10000);
    read_as(&c, GEMMA2 "\"attn_logit_softcapping\":null,\"final_logit_softcapping\":null,\"sliding_window\":null,"
                       "\"query_pre_attn_scalar\":144,\"tie_word_embeddings\":false");
    windows_are(&c, 0, "ff");
    assert_true(c.attention_softcap == 0 && c.final_softcap == 0 && c.query_scalar == 144 && !c.tie_word_embeddings);
    assert_int_equal(c.head_dim, 256);

    read_as(&c, GEMMA3 "\"sliding_window\":512,\"sliding_window_pattern\":2,\"rope_local_base_freq\":20000,"
                       "\"rope_scaling\":{\"rope_type\":\"linear\",\"factor\":8}");
    windows_are(&c, 512, "sf");
    assert_true(c.qk_norm && c.rope.theta == 1e6 && c.local_theta == 20000 && c.rope.factor == 8);
    assert_true(c.attention_softcap == 0 && c.final_softcap == 0);
    read_as(&c, GEMMA3 "\"rope_parameters\":{\"full_attention\":{\"rope_type\":\"linear\",\"factor\":4,"
                       "\"rope_theta\":5000},\"sliding_attention\":{\"rope_type\":\"default\",\"rope_theta\":100}}");
    windows_are(&c, 4096, "ss"); // every sixth is global
    assert_true(c.rope.scaling == PL_HF_ROPE_LINEAR && c.rope.theta == 5000 && c.local_theta == 100);
    read_as(&c, "\"architectures\":[\"Gemma3ForConditionalGeneration\"],\"dtype\":\"bfloat16\",\"text_config\":{"
                "\"hidden_size\":96,\"intermediate_size\":48,\"num_hidden_layers\":7,\"sliding_window\":1024,"
                "\"eos_token_id\":1}");
    windows_are(&c, 1024, "sssssfs");
    assert_int_equal(c.dtype, PL_BF16);
    assert_int_equal(c.hidden_size, 96);
    assert_int_equal(c.num_attention_heads, 8);
    assert_int_equal(c.num_key_value_heads, 4);
    assert_int_equal(c.vocab_size, 262208);
    assert_int_equal(c.max_position_embeddings, 131072);
    assert_true(c.tie_word_embeddings && c.n_eos == 1);
    read_as(&c, "\"architectures\":[\"Gemma3ForConditionalGeneration\"],\"tie_word_embeddings\":false,\"text_config\":{"
                "\"hidden_size\":96,\"intermediate_size\":48,\"num_hidden_layers\":7,\"tie_word_embeddings\":true}");
    assert_false(c.tie_word_embeddings); // as transformers, whose top-level config decides
}

static void test_families_of_experts(void **state) {
    (void)state;
    pl_hf_config c;
    pl_err       err;
    read_as(&c, MIXTRAL "\"sliding_window\":null,\"num_local_experts\":4");
    assert_true(c.experts == 4 && c.experts_per_token == 2 && c.expert_norm && c.rope.theta == 1e6);
    assert_true(c.expert_size == c.intermediate_size && !pl_hf_dense(&c, 0) && !pl_hf_dense(&c, 1));
    windows_are(&c, 0, "ff");
    read_as(&c, MIXTRAL "\"sliding_window\":7");
    windows_are(&c, 7, "ss");
    assert_int_equal(c.experts, 8);
    read_as(&c, QWEN3_MOE "\"num_experts\":16,\"num_experts_per_tok\":3,\"moe_intermediate_size\":20,"
                          "\"norm_topk_prob\":true,\"sliding_window\":64,\"use_sliding_window\":false");
    assert_true(c.experts == 16 && c.experts_per_token == 3 && c.expert_size == 20 && c.expert_norm && c.qk_norm);
    windows_are(&c, 0, "ff");
    read_as(&c, QWEN3_MOE "\"num_local_experts\":8,\"use_sliding_window\":true,\"mlp_only_layers\":[0,9]");
    assert_true(c.experts == 8 && c.experts_per_token == 8 && c.expert_size == 768 && !c.expert_norm);
    assert_true(pl_hf_dense(&c, 0) && !pl_hf_dense(&c, 1));
    windows_are(&c, 4096, "ss");
    read_as(&c, QWEN3_MOE "\"decoder_sparse_step\":2");
    assert_true(c.experts == 128 && pl_hf_dense(&c, 0) && !pl_hf_dense(&c, 1));

    read_as(&c, GPT_OSS "\"num_local_experts\":32,\"attention_bias\":true,\"swiglu_limit\":7.0,"
                        "\"quantization_config\":{\"quant_method\":\"mxfp4\",\"modules_to_not_convert\":[]}");
    assert_true(c.experts == 32 && c.experts_per_token == 4 && c.expert_norm && c.biased && c.sinks && c.qkv_bias);
    assert_true(c.activation == PL_HF_CLAMPED && c.rope.scaling == PL_HF_ROPE_YARN && !c.rope.truncate);
    assert_true(c.rope.factor == 32 && c.rope.theta == 150000 && c.rope.original_max_position_embeddings == 4096);
    windows_are(&c, 128, "sf");
    read_as(&c, GPT_OSS "\"layer_types\":[\"full_attention\",\"sliding_attention\"],\"sliding_window\":9,"
                        "\"rope_scaling\":{\"rope_type\":\"yarn\",\"factor\":2,\"truncate\":false,"
                        "\"original_max_position_embeddings\":64}");
    windows_are(&c, 9, "fs");
    assert_true(c.rope.factor == 2 && !c.rope.truncate);

    read_as(&c, QWEN3_MOE "\"decoder_sparse_step\":2");
    c.num_hidden_layers = 513;
    assert_says(pl_hf_config_check(&c, "here", &err), PL_E_INPUT, &err,
                "here: 128 experts in 513 layers are more than 65536");

    pl_hf_config_plain(&c);
    assert_true(c.experts == 0 && pl_hf_dense(&c, 1));
}

static void test_families_of_delta_nets(void **state) {
    (void)state;
    pl_hf_config c;
    read_as(&c, QWEN3_NEXT "\"layer_types\":[\"full_attention\",\"linear_attention\"]");
    assert_true(!pl_hf_recurrent(&c, 0) && pl_hf_recurrent(&c, 1) && c.delta.joined_qkvz && c.delta.joined_gates &&
                c.output_gate);
    assert_true(c.delta.key_heads == 16 && c.delta.value_heads == 32 && c.delta.key_dim == 128);
    assert_true(c.delta.value_dim == 128 && c.delta.taps == 4 && c.norm_plus_one && c.qk_norm && !c.post_norms);
    assert_true(c.experts == 512 && c.experts_per_token == 10 && c.expert_size == 512 && c.shared_expert == 512);
    assert_true(c.expert_norm && c.head_dim == 256 && pl_hf_rotary_dim(&c) == 64);
    read_as(&c, QWEN3_NEXT "\"full_attention_interval\":2,\"num_experts\":0,\"partial_rotary_factor\":1");
    assert_true(pl_hf_recurrent(&c, 0) && !pl_hf_recurrent(&c, 1) && c.experts == 0 && c.rope.partial == 0);
    read_as(&c, "\"architectures\":[\"Qwen3_5ForConditionalGeneration\"],\"text_config\":{"
                "\"hidden_size\":96,\"intermediate_size\":48,\"num_hidden_layers\":5,\"attn_output_gate\":true,"
                "\"linear_num_value_heads\":48,\"rope_parameters\":{\"rope_type\":\"default\",\"rope_theta\":1e7,"
                "\"mrope_interleaved\":true,\"mrope_section\":[11,11,10],\"partial_rotary_factor\":0.25}}");
    for (int l = 0; l < 5; l++)
        assert_int_equal(pl_hf_recurrent(&c, l), l != 3);
    assert_true(c.delta.value_heads == 48 && !c.delta.joined_qkvz && !c.delta.joined_gates && c.rope.theta == 1e7 &&
                c.rope.partial == 0.25);
    pl_hf_config_plain(&c);
    assert_true(c.delta.value_heads == 0 && !c.output_gate && !pl_hf_recurrent(&c, 0));
}

// A drafter's layer is Llama's, whatever its target's is.
static void test_plain_layers(void **state) {
    (void)state;
    pl_hf_config c;
    read_as(&c, GEMMA2 "\"sliding_window\":9");
    pl_hf_config_plain(&c);
    windows_are(&c, 0, "ff");
    assert_false(c.post_norms || c.norm_plus_one || c.embedding_scaled || c.activation || c.query_scalar > 0);
    assert_false(c.attention_softcap > 0 || c.final_softcap > 0);
}

static void test_generation(void **state) {
    (void)state;
    pl_err       err;
    pl_hf_config c;
    assert_ok(pl_dir_make(at("gen"), &err));
    put_config(at("gen/config.json"), NULL, "\"eos_token_id\":7");
    assert_ok(pl_hf_config_read(&c, at("gen"), PL_HF_TARGET, &err));
    assert_int_equal(c.n_eos, 1);
    put_text(at("gen/generation_config.json"), "{\"eos_token_id\":[9,7]}");
    for (int file = 0; file < 2; file++) {
        assert_ok(pl_hf_config_read(&c, file ? at("gen/config.json") : at("gen"), PL_HF_TARGET, &err));
        assert_int_equal(c.n_eos, 2);
        assert_int_equal(c.eos_token_id[0], 7);
        assert_int_equal(c.eos_token_id[1], 9);
    }
    put_text(at("gen/generation_config.json"), "{\"eos_token_id\":null}");
    assert_ok(pl_hf_config_read(&c, at("gen"), PL_HF_TARGET, &err));
    assert_int_equal(c.n_eos, 1);
    put_text(at("gen/generation_config.json"), "{\"eos_token_id\":\"x\"}");
    assert_says(pl_hf_config_read(&c, at("gen"), PL_HF_TARGET, &err), PL_E_INPUT, &err,
                "generation_config.json: eos_token_id: expected an integer");
    char list[1024] = "{\"eos_token_id\":[-1,-100", *end = list + strlen(list);
    for (int id = 10; id < 10 + PL_HF_EOS; id++)
        end += sprintf(end, ",%d", id);
    strcpy(end, "]}");
    put_text(at("gen/generation_config.json"), list);
    assert_says(pl_hf_config_read(&c, at("gen"), PL_HF_TARGET, &err), PL_E_INPUT, &err,
                "more than 63 ids that end a text");
    put_config(at("gen/config.json"), NULL, "");
    assert_ok(pl_hf_config_read(&c, at("gen"), PL_HF_TARGET, &err));
    assert_int_equal(c.n_eos, PL_HF_EOS);
    assert_int_equal(c.eos_token_id[PL_HF_EOS - 1], 9 + PL_HF_EOS);
    put_text(at("gen/generation_config.json"), "nonsense");
    assert_says(pl_hf_config_read(&c, at("gen"), PL_HF_TARGET, &err), PL_E_INPUT, &err, "generation_config.json:1:1");
}

// ---- RoPE from every place, beside transformers (make_golden_config.py)

static const char *type_name(const pl_hf_rope *r) {
    static const char *const names[] = {[PL_HF_ROPE_NONE] = "default",
                                        [PL_HF_ROPE_LINEAR] = "linear",
                                        [PL_HF_ROPE_LLAMA3] = "llama3",
                                        [PL_HF_ROPE_YARN] = "yarn",
                                        [PL_HF_ROPE_LONG] = "longrope"};
    return names[r->scaling];
}

static double number(const pl_json *j, const char *key) {
    pl_err err;
    double v;
    assert_ok(pl_json_get_num(j, NULL, key, 0, 1e12, &v, &err));
    return v;
}

// Reads the line's config; returns what was said meanwhile, heap.
static char *read_golden(pl_hf_config *c, const pl_json *j) {
    pl_err err;
    char  *said = NULL, *text = cJSON_PrintUnformatted(cJSON_GetObjectItem(j->root, "config"));
    size_t n;
    FILE  *f = open_memstream(&said, &n);
    pl_log_to(f);
    pl_status st = pl_hf_config_parse(c, "config.json", text, strlen(text), PL_HF_TARGET, &err);
    pl_log_to(NULL);
    fclose(f);
    cJSON_free(text);
    assert_ok(st);
    return said;
}

static void test_rope_places(void **state) {
    (void)state;
    pl_err   err;
    uint8_t *file;
    size_t   n;
    int      lines = 0;
    assert_ok(pl_file_read(PACELINE_SOURCE_DIR "/tests/checkpoints/golden_config.jsonl", &file, &n, 1 << 20, &err));
    for (char *line = strtok((char *)file, "\n"); line; line = strtok(NULL, "\n"), lines++) {
        pl_json      j;
        pl_hf_config c;
        const char  *name, *type;
        bool         warns;
        assert_ok(pl_json_parse(&j, "golden", 0, line, strlen(line), 0, &err));
        assert_ok(pl_json_get_str(&j, NULL, "name", &name, &err));
        assert_ok(pl_json_get_str(&j, NULL, "type", &type, &err));
        assert_ok(pl_json_get_bool(&j, NULL, "warns", &warns, &err));
        char  *said = read_golden(&c, &j);
        double factor = number(&j, "factor"), part = c.rope.partial > 0 ? c.rope.partial : 1;
        if (c.rope.theta != number(&j, "theta") || strcmp(type_name(&c.rope), type) != 0 ||
            (factor > 0 && c.rope.factor != factor) ||
            c.rope.original_max_position_embeddings != (int)number(&j, "original") || part != number(&j, "partial") ||
            c.local_theta != number(&j, "local"))
            fail_msg("%s: base %g, %s, factor %g, original %d, part %g, local base %g", name, c.rope.theta,
                     type_name(&c.rope), c.rope.factor, c.rope.original_max_position_embeddings, part, c.local_theta);
        if ((*said != 0) != warns) fail_msg("%s: said \"%s\"", name, said);
        free(said);
        pl_json_close(&j);
    }
    assert_true(lines > 50);
    pl_free(file);
}

#define L3(rest) "\"rope_scaling\":{\"rope_type\":\"llama3\"" rest "}"

// What is left out of a good file and put in, and the refusal.
static const struct {
    const char *drop, *more, *says;
} bad_targets[] = {
    {"architectures", "", "config.json: architectures: missing; expected an array"},
    {"architectures", "\"architectures\":\"LlamaForCausalLM\"", "architectures: expected an array"},
    {"architectures", "\"architectures\":[]", "architectures: empty"},
    {"architectures", "\"architectures\":[5]", "architectures[0]: expected a string, found 5"},
    {"architectures", "\"architectures\":[\"GPT2LMHeadModel\"]",
     "rms_norm_eps: missing; \"GPT2LMHeadModel\" is not computed here"},
    {"architectures", "\"architectures\":[\"CohereForCausalLM\"],\"rms_norm_eps\":1e-5,\"logit_scale\":0.0625",
     "logit_scale: logits with a factor are not supported in an architecture that is not computed here"},
    {"architectures", "\"architectures\":[\"GPT2LMHeadModel\"],\"head_dim\":0",
     "\"GPT2LMHeadModel\" is not supported; targets are LlamaForCausalLM, MistralForCausalLM, Qwen2ForCausalLM, "
     "Qwen3ForCausalLM, Phi3ForCausalLM, MixtralForCausalLM, Qwen3MoeForCausalLM, GptOssForCausalLM, "
     "Gemma2ForCausalLM, Gemma3ForCausalLM, Gemma3ForConditionalGeneration, Qwen3NextForCausalLM, "
     "Qwen3_5ForCausalLM, Qwen3_5ForConditionalGeneration, Qwen3_5MoeForCausalLM or "
     "Qwen3_5MoeForConditionalGeneration"},
    {"architectures", "\"architectures\":[\"LlamaForCausalLMEagle3\"]", "is a draft head, not a target"},
    {NULL, "\"draft_vocab_size\":100", "is a draft head, not a target"},
    {"model_type", "\"model_type\":5", "model_type: expected a string"},
    {"model_type", "\"model_type\":\"0123456789012345678901234567890123456789\"", "model_type: longer than 31 bytes"},
    {"hidden_size", "", "hidden_size: missing; expected a positive integer"},
    {"hidden_size", "\"hidden_size\":-3", "config.json: hidden_size: expected a positive integer, found -3"},
    {"hidden_size", "\"hidden_size\":0", "hidden_size: expected a positive integer, found 0"},
    {"hidden_size", "\"hidden_size\":65537", "hidden_size: expected an integer from 1 to 65536, found 65537"},
    {"hidden_size", "\"hidden_size\":1e30", "hidden_size: expected an integer from 1 to 65536, found 1e+30"},
    {"hidden_size", "\"hidden_size\":64.5", "hidden_size: expected a positive integer, found 64.5"},
    {"hidden_size", "\"hidden_size\":\"64\"", "hidden_size: expected a positive integer, found \"64\""},
    {"hidden_size", "\"hidden_size\":65", "num_attention_heads: 8 does not divide hidden_size 65"},
    {"hidden_size", "\"hidden_size\":72", "head_dim: 9 is odd"},
    {"intermediate_size", "\"intermediate_size\":0", "intermediate_size: expected a positive integer"},
    {"intermediate_size", "\"intermediate_size\":2000000", "intermediate_size: expected an integer from 1 to"},
    {"num_hidden_layers", "\"num_hidden_layers\":0", "num_hidden_layers: expected a positive"},
    {"num_hidden_layers", "\"num_hidden_layers\":1025", "num_hidden_layers: expected an integer from 1 to 1024"},
    {"num_attention_heads", "\"num_attention_heads\":0", "num_attention_heads: expected a positive"},
    {NULL, "\"num_key_value_heads\":3", "num_key_value_heads: 3 does not divide num_attention_heads 8"},
    {NULL, "\"num_key_value_heads\":16", "num_key_value_heads: 16 does not divide num_attention_heads 8"},
    {NULL, "\"num_key_value_heads\":0", "num_key_value_heads: expected a positive integer"},
    {NULL, "\"head_dim\":7", "head_dim: 7 is odd; rotary embedding needs pairs"},
    {NULL, "\"head_dim\":100000", "head_dim: expected an integer from 1 to 4096"},
    {"vocab_size", "\"vocab_size\":5000000", "vocab_size: expected an integer from 1 to 4194304"},
    {"vocab_size", "\"vocab_size\":null", "vocab_size: missing"},
    {NULL, "\"max_position_embeddings\":0", "max_position_embeddings: expected a positive integer"},
    {NULL, "\"max_position_embeddings\":1e12", "max_position_embeddings: expected an integer from 1 to"},
    {NULL, "\"rms_norm_eps\":0", "rms_norm_eps: expected a number from 1e-30 to 0.5, found 0"},
    {NULL, "\"rms_norm_eps\":-1e-6", "rms_norm_eps: expected a number"},
    {NULL, "\"rms_norm_eps\":\"1e-6\"", "rms_norm_eps: expected a number"},
    {NULL, "\"rope_theta\":0", "rope_theta: expected a number from 1 to 1000000000000, found 0"},
    {NULL, "\"rope_theta\":1e999", "rope_theta: expected a number"},
    {NULL, "\"rope_scaling\":5", "rope_scaling: expected an object"},
    {NULL, "\"rope_scaling\":{\"type\":\"dynamic\"}",
     "rope_scaling: \"dynamic\" is not supported; known are default, linear, llama3, yarn and longrope"},
    {NULL, "\"rope_scaling\":{\"type\":\"longrope\"}", "rope_scaling.short_factor: missing"},
    {NULL, "\"rope_scaling\":{\"type\":\"su\",\"short_factor\":[1]}", "rope_scaling.long_factor: missing"},
    {NULL, "\"rope_scaling\":{\"type\":\"longrope\",\"short_factor\":[1],\"long_factor\":[1,2]}",
     "rope_scaling: 1 factors for short texts, 2 for long ones"},
    {NULL, "\"rope_scaling\":{\"type\":\"longrope\",\"short_factor\":[1,1,1],\"long_factor\":[1,2,3]}",
     "rope_scaling: 3 factors for 4 pairs"},
    {NULL, "\"rope_scaling\":{\"type\":\"longrope\",\"short_factor\":[0],\"long_factor\":[1]}",
     "rope_scaling.short_factor[0]: expected a number from 0.001"},
    {NULL, "\"rope_scaling\":{\"type\":\"longrope\",\"short_factor\":3,\"long_factor\":[1]}",
     "rope_scaling.short_factor: expected an array"},
    {NULL, "\"rope_parameters\":{\"full_attention\":{\"rope_theta\":1e6}}",
     "rope_parameters.full_attention: RoPE by layer is not supported here"},
    {NULL, "\"rope_parameters\":{\"sliding_attention\":{\"rope_theta\":1e6}}",
     "rope_parameters.sliding_attention: RoPE by layer is not supported here"},
    {NULL, "\"attn_logit_softcapping\":50", "attn_logit_softcapping: a soft cap is not supported in this"},
    {NULL, "\"final_logit_softcapping\":30", "final_logit_softcapping: a soft cap is not supported in this"},
    {NULL, "\"use_bidirectional_attention\":true", "use_bidirectional_attention: true is not supported"},
    {NULL, "\"rope_scaling\":{\"type\":\"yarn\",\"factor\":0.5}", "rope_scaling.factor: expected a number"},
    {NULL, "\"rope_scaling\":{\"type\":\"yarn\",\"factor\":2,\"beta_fast\":1,\"beta_slow\":2}",
     "yarn with rope_theta 10000, beta_slow 2 and beta_fast 1"},
    {NULL, "\"rope_scaling\":{\"type\":\"default\",\"mrope_section\":[1]}", "multimodal RoPE is not supported"},
    {NULL, "\"rope_parameters\":{\"rope_type\":\"default\",\"llama_4_scaling_beta\":0.1}",
     "llama_4_scaling_beta: scaled queries are not supported"},
    {NULL, "\"rope_scaling\":{\"type\":\"linear\"}", "rope_scaling.factor: missing"},
    {NULL, "\"rope_scaling\":{\"type\":\"linear\",\"factor\":0}", "rope_scaling.factor: expected a number"},
    {NULL, L3(",\"factor\":8"), "rope_scaling.low_freq_factor: missing"},
    {NULL, L3(",\"factor\":8,\"low_freq_factor\":1"), "rope_scaling.high_freq_factor: missing"},
    {NULL, L3(",\"factor\":8,\"low_freq_factor\":1,\"high_freq_factor\":4"),
     "rope_scaling.original_max_position_embeddings: missing"},
    {NULL, L3(",\"factor\":8,\"low_freq_factor\":4,\"high_freq_factor\":4,\"original_max_position_embeddings\":8192"),
     "low_freq_factor 4 is not below high_freq_factor 4"},
    {NULL, "\"rope_parameters\":{\"rope_type\":\"longrope\"}", "rope_parameters.short_factor: missing"},
    {NULL, "\"partial_rotary_factor\":0.5", "partial_rotary_factor: expected a number from 1 to 1, found 0.5"},
    {NULL, "\"tie_word_embeddings\":1", "tie_word_embeddings: expected true or false, found 1"},
    {NULL, "\"attention_bias\":true", "attention_bias: true is not supported"},
    {NULL, "\"mlp_bias\":true", "mlp_bias: true is not supported"},
    {NULL, "\"hidden_act\":\"gelu\"", "hidden_act: \"gelu\" is not supported, only silu"},
    {NULL, "\"sliding_window\":4096", "sliding_window: sliding-window attention is not supported"},
    {NULL, "\"layer_types\":[\"full_attention\",\"sliding_attention\"]",
     "layer_types[1]: \"sliding_attention\" is not supported"},
    {"architectures", MISTRAL "\"sliding_window\":0", "sliding_window: expected a positive integer"},
    {"architectures", MISTRAL "\"sliding_window\":8,\"layer_types\":[\"sliding_attention\",\"full_attention\"]",
     "layer_types[1]: full_attention, but MistralForCausalLM gives each layer its sliding_window"},
    {"architectures", MISTRAL "\"layer_types\":[\"sliding_attention\",\"sliding_attention\"]",
     "layer_types[0]: sliding_attention, but there is no sliding_window"},
    {"architectures", MISTRAL "\"layer_types\":[\"full_attention\",\"chunked_attention\"]",
     "layer_types[1]: \"chunked_attention\" is not supported, only full_attention and sliding_attention"},
    {"architectures", QWEN3_5 "\"layer_types\":[\"full_attention\",\"full_attention\"]",
     "layer_types: no layer is linear_attention in Qwen3_5ForCausalLM"},
    {"architectures", QWEN3_5 "\"layer_types\":[\"linear_attention\"]", "layer_types: 1 entries for 2 layers"},
    {"architectures", QWEN3_5 "\"layer_types\":[\"linear_attention\",\"sliding_attention\"]",
     "layer_types[1]: \"sliding_attention\" is not supported, only linear_attention and full_attention"},
    {"architectures", QWEN3_5 "\"linear_num_key_heads\":5",
     "linear_num_key_heads: 5 does not divide linear_num_value_heads 32"},
    {"architectures", QWEN3_5 "\"linear_conv_kernel_dim\":9",
     "linear_conv_kernel_dim: expected an integer from 1 to 8"},
    {"architectures", QWEN3_5 "\"linear_value_head_dim\":513",
     "linear_value_head_dim: expected an integer from 1 to 512"},
    {"architectures", QWEN3_5 "\"attn_output_gate\":false", "attn_output_gate: false is not supported"},
    {"architectures", QWEN3_5 "\"num_experts\":8", "num_experts: experts are not supported in this architecture"},
    {"architectures", QWEN3_5 "\"full_attention_interval\":0", "full_attention_interval: expected a positive integer"},
    {NULL, "\"num_local_experts\":8", "num_local_experts: experts are not supported in this architecture"},
    {"architectures", MIXTRAL "\"num_local_experts\":0", "num_local_experts: expected a positive integer, found 0"},
    {"architectures", MIXTRAL "\"num_local_experts\":1025", "num_local_experts: expected an integer from 1 to 1024"},
    {"architectures", MIXTRAL "\"num_experts_per_tok\":9", "num_experts_per_tok: expected an integer from 1 to 8"},
    {"architectures", MIXTRAL "\"num_local_experts\":1", "num_experts_per_tok: 2 of 1 experts"},
    {"architectures", MIXTRAL "\"num_local_experts\":\"8\"", "num_local_experts: expected a positive integer"},
    {"architectures", QWEN3_MOE "\"num_experts\":-1", "num_experts: expected a positive integer, found -1"},
    {"architectures", QWEN3_MOE "\"moe_intermediate_size\":0", "moe_intermediate_size: expected a positive integer"},
    {"architectures", QWEN3_MOE "\"decoder_sparse_step\":0", "decoder_sparse_step: expected a positive integer"},
    {"architectures", QWEN3_MOE "\"mlp_only_layers\":[-1]", "mlp_only_layers[0]: expected a non-negative integer"},
    {"architectures", QWEN3_MOE "\"mlp_only_layers\":1", "mlp_only_layers: expected an array"},
    {"architectures", QWEN3_MOE "\"norm_topk_prob\":1", "norm_topk_prob: expected true or false, found 1"},
    {"architectures", GPT_OSS "\"attention_bias\":false", "attention_bias: false is not supported"},
    {"architectures", GPT_OSS "\"swiglu_limit\":8", "swiglu_limit: 8 is not supported, only 7"},
    {"architectures", GPT_OSS "\"swiglu_alpha\":1", "swiglu_alpha: 1 is not supported, only 1.702"},
    {"architectures", GPT_OSS "\"hidden_act\":\"gelu_pytorch_tanh\"", "hidden_act: only silu is supported"},
    {"architectures", GPT_OSS "\"quantization_config\":{\"quant_method\":\"gptq\"}",
     "quantization_config: \"gptq\" is not supported, only mxfp4"},
    {"architectures", GPT_OSS "\"quantization_config\":7", "quantization_config: expected an object"},
    {"architectures", MIXTRAL "\"quantization_config\":{\"quant_method\":\"mxfp4\"}",
     "quantization_config: mxfp4 is supported for GPT-OSS alone"},
    {"architectures", GEMMA2 "\"layer_types\":[\"sliding_attention\"]", "layer_types: 1 entries for 2 layers"},
    {"architectures", GEMMA2 "\"hidden_activation\":\"gelu\"",
     "hidden_activation: \"gelu\" is not supported, only silu and gelu_pytorch_tanh"},
    {"architectures", GEMMA2 "\"attn_logit_softcapping\":0", "attn_logit_softcapping: expected a number from 0.001"},
    {"architectures", GEMMA2 "\"final_logit_softcapping\":true", "final_logit_softcapping: expected a number"},
    {"architectures", GEMMA2 "\"query_pre_attn_scalar\":0", "query_pre_attn_scalar: expected a number from 0.001"},
    {"architectures", GEMMA3 "\"attn_logit_softcapping\":50", "attn_logit_softcapping: a soft cap is not"},
    {"architectures", GEMMA3 "\"rope_local_base_freq\":0", "rope_local_base_freq: expected a number from 1"},
    {"architectures", GEMMA3 "\"rope_parameters\":{\"sliding_attention\":{\"rope_type\":\"linear\",\"factor\":2}}",
     "rope_parameters.sliding_attention: \"linear\" is not supported in windowed layers"},
    {"architectures", GEMMA3 "\"sliding_window_pattern\":0", "sliding_window_pattern: expected a positive integer"},
    {"architectures", PHI3 "\"partial_rotary_factor\":1.5", "partial_rotary_factor: expected a number from 0.001"},
    {"architectures", PHI3 "\"partial_rotary_factor\":0.4", "partial_rotary_factor: 0.4 of head_dim 8 is no whole"},
    {"architectures", "\"architectures\":[\"Gemma3ForConditionalGeneration\"]", "text_config: missing"},
    {"architectures", "\"architectures\":[\"Gemma3ForConditionalGeneration\"],\"text_config\":{}",
     "config.json: text_config: hidden_size: missing"},
    {NULL, "\"quantization_config\":{}", "quantization_config.quant_method: missing"},
    {NULL, "\"quantization_config\":{\"quant_method\":\"hqq\"}",
     "quantization_config.quant_method: \"hqq\" is not supported; load it with transformers"},
    {NULL, "\"torch_dtype\":\"float8_e4m3fn\"", "torch_dtype: \"float8_e4m3fn\" is not supported"},
    {NULL, "\"dtype\":\"int8\"", "dtype: \"int8\" is not supported"},
    {NULL, "\"eos_token_id\":\"</s>\"", "eos_token_id: expected an integer from -4194304"},
    {NULL, "\"eos_token_id\":[1,\"2\"]", "eos_token_id[1]: expected an integer"},
    {NULL, "\"hidden_size\":64", "hidden_size: the key is there twice"},
};

static void test_bad_targets(void **state) {
    (void)state;
    for (size_t i = 0; i < sizeof bad_targets / sizeof *bad_targets; i++) {
        pl_err       err = {0};
        pl_hf_config c = {.n_eos = 5};
        put_config(at("config.json"), bad_targets[i].drop, bad_targets[i].more);
        pl_status st = pl_hf_config_read(&c, at("config.json"), PL_HF_TARGET, &err);
        if (st == PL_OK) fail_msg("accepted: %s", bad_targets[i].more);
        assert_refused(st, &err, bad_targets[i].says);
        assert_non_null(strstr(err.msg, at("config.json")));
        assert_int_equal(c.n_eos, 0);
    }
    pl_err       err;
    pl_hf_config c;
    static const struct {
        const char *text, *says;
    } files[] = {{"", "config.json:1:1: not JSON"}, {"[]", "expected an object"}, {"{\"a\":1,}", "config.json:1:8"}};
    for (size_t i = 0; i < sizeof files / sizeof *files; i++) {
        put_text(at("config.json"), files[i].text);
        assert_refused(pl_hf_config_read(&c, at("config.json"), PL_HF_TARGET, &err), &err, files[i].says);
    }
    assert_says(pl_hf_config_read(&c, at("absent"), PL_HF_TARGET, &err), PL_E_INPUT, &err, "absent: cannot open");
    assert_says(pl_hf_config_read(&c, scratch, PL_HF_TARGET, &err), PL_E_INPUT, &err, "config.json:1:8");
}

#define EAGLE "\"architectures\":[\"LlamaForCausalLMEagle3\"],\"draft_vocab_size\":100"
#define OWN "\"architectures\":[\"PacelineEagle3\"],"
#define BLOCK "\"architectures\":[\"DFlashDraftModel\"],"
#define OTHER "\"architectures\":[\"PacelineDrafter\"],"

static void test_drafter(void **state) {
    (void)state;
    pl_err       err;
    pl_hf_config c;
    put_config(at("d.json"), "architectures",
               EAGLE
               ",\"target_hidden_size\":128,\"bos_token_id\":128000,\"eagle_config\":{\"use_aux_hidden_state\":true,"
               "\"eagle_aux_hidden_state_layer_ids\":[1,14,28],\"norm_before_residual\":true},\"fc_norm\":true,"
               "\"norm_output\":true,\"paceline\":{\"tap_numbering\":\"output\"}");
    assert_ok(pl_hf_config_read(&c, at("d.json"), PL_HF_DRAFTER, &err));
    assert_int_equal(c.draft_vocab_size, 100);
    assert_int_equal(c.target_hidden_size, 128);
    assert_int_equal(c.n_taps, 3);
    assert_int_equal(c.tap[1], 14);
    assert_int_equal(c.tap_numbering, PL_HF_TAPS_OUTPUT);
    assert_true(c.fc_norm && c.norm_output && c.norm_before_residual && !c.norm_before_fc);
    put_config(at("d.json"), "architectures",
               OWN "\"paceline\":{\"head\":{\"kind\":\"low_rank\",\"rank\":16},\"tap_numbering\":\"input\"}");
    assert_ok(pl_hf_config_read(&c, at("d.json"), PL_HF_DRAFTER, &err));
    assert_string_equal(c.head.kind, "low_rank");
    assert_int_equal(pl_hf_head_int(&c.head, "rank"), 16);
    assert_int_equal(c.tap_numbering, PL_HF_TAPS_INPUT);
    put_config(at("d.json"), NULL, "\"draft_vocab_size\":100"); // as some heads are published
    assert_ok(pl_hf_config_read(&c, at("d.json"), PL_HF_DRAFTER, &err));

    put_config(at("d.json"), "architectures",
               BLOCK
               "\"num_target_layers\":36,\"block_size\":16,\"dflash_config\":{\"block_size\":8,\"mask_token_id\":3,"
               "\"target_layer_ids\":[1,9],\"sample_from_anchor\":false}");
    assert_ok(pl_hf_config_read(&c, at("d.json"), PL_HF_DRAFTER, &err));
    assert_true(c.backbone == PL_HF_DFLASH && c.target_head && c.qk_norm && !c.block.anchor_first);
    assert_true(c.block.size == 8 && c.block.mask_token == 3 && c.block.target_layers == 36); // the inner one counts
    assert_true(c.n_taps == 2 && c.tap[0] == 1 && c.tap[1] == 9);
    c.target_head = false;
    c.block.anchor_first = true;
    c.head = pl_hf_head_make("lowrank", 4);
    c.selector = (pl_hf_selector){.rank = 4, .candidates = 9, .law = PL_HF_LAW_LIST};
    strcpy(c.architecture, "PacelineDFlash");
    pl_hf_config again;
    assert_ok(pl_hf_config_write(at("again.json"), &c, &err));
    assert_ok(pl_hf_config_read(&again, at("again.json"), PL_HF_DRAFTER, &err));
    assert_true(!again.target_head && again.n_taps == 2 && again.tap[1] == 9);
    assert_memory_equal(&again.block, &c.block, sizeof c.block);
    assert_true(again.selector.rank == 4 && again.selector.candidates == 9 && again.selector.law == PL_HF_LAW_LIST);
}

// Windows of block drafters, whose layers are Qwen3's: on, stated and off by the switch or by its default, or refused.
#define WINDOW "\"sliding_window\":64,\"use_sliding_window\":"
#define TYPES "\"layer_types\":[\"sliding_attention\",\"full_attention\"]"
static void test_drafter_windows(void **state) {
    (void)state;
    static const struct {
        const char  *more, *says; // NULL: read
        int          window;
        pl_hf_causal causal;
    } cases[] = {
        {"\"sliding_window\":64", NULL, 0, 0},
        {"\"sliding_window\":64,\"use_sliding_window\":false", NULL, 0, 0},
        {"\"sliding_window\":64,\"layer_types\":[\"full_attention\",\"full_attention\"]", NULL, 0, 0},
        {"\"sliding_window\":null,\"use_sliding_window\":true,\"max_window_layers\":2", NULL, 0, 0},
        {"\"sliding_window\":64,\"use_sliding_window\":true", NULL, 0, 0}, // max_window_layers is 28
        {WINDOW "true,\"max_window_layers\":0", NULL, 64, PL_HF_CAUSAL_WINDOWS},
        {WINDOW "true," TYPES, NULL, 64, PL_HF_CAUSAL_WINDOWS},
        {WINDOW "true,\"is_causal\":null," TYPES, NULL, 64, PL_HF_CAUSAL_WINDOWS},
        {WINDOW "true,\"is_causal\":false," TYPES, NULL, 64, PL_HF_CAUSAL_NONE},
        {WINDOW "true,\"is_causal\":true," TYPES, NULL, 64, PL_HF_CAUSAL_ALL},
        {"\"is_causal\":true", NULL, 0, PL_HF_CAUSAL_ALL},
        {"\"is_causal\":true,\"causal\":false", "causal: false, and another member says otherwise", 0, 0},
        {"\"is_causal\":1", "is_causal", 0, 0},
        {"\"sliding_window\":7,\"use_sliding_window\":true," TYPES, "sliding_window: 7, in blocks of 8", 0, 0},
        {"\"layer_types\":[\"full_attention\",\"sliding_attention\"]", "layer_types[1]: sliding_attention, but", 0, 0},
        {WINDOW "false," TYPES, "use_sliding_window is not true", 0, 0},
        {WINDOW "true,\"layer_types\":[\"sliding_attention\"]", "1 entries for 2 layers", 0, 0},
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        char         more[512];
        pl_err       err = {0};
        pl_hf_config c;
        snprintf(more, sizeof more,
                 BLOCK "\"block_size\":8,\"dflash_config\":{\"mask_token_id\":3,\"target_layer_ids\":[1]},%s",
                 cases[i].more);
        put_config(at("w.json"), "architectures", more);
        pl_status st = pl_hf_config_read(&c, at("w.json"), PL_HF_DRAFTER, &err);
        if (cases[i].says)
            assert_refused(st, &err, cases[i].says);
        else if (st != PL_OK)
            fail_msg("%s: %s", cases[i].more, err.msg);
        else if (c.sliding_window != cases[i].window || c.block.causal != cases[i].causal)
            fail_msg("%s: a window of %d, causal %d", cases[i].more, c.sliding_window, (int)c.block.causal);
        if (st != PL_OK) continue;
        pl_hf_config again;
        assert_ok(pl_hf_config_write(at("w.json"), &c, &err));
        assert_ok(pl_hf_config_read(&again, at("w.json"), PL_HF_DRAFTER, &err));
        assert_memory_equal(&again.block, &c.block, sizeof c.block);
        assert_memory_equal(again.windowed, c.windowed, sizeof c.windowed);
        assert_int_equal(again.sliding_window, c.sliding_window);
    }
}

// Ids behind the vocabulary, and negative ones, are none.
static void test_odd_ids(void **state) {
    (void)state;
    static const struct {
        const char *more;
        int         bos, pad;
    } cases[] = {{"\"bos_token_id\":512", -1, -1},
                 {"\"bos_token_id\":128000,\"pad_token_id\":600", -1, 600},
                 {"\"bos_token_id\":-2", -1, -1},
                 {"\"bos_token_id\":511,\"pad_token_id\":-100", 511, -1},
                 {"\"bos_token_id\":null", -1, -1}};
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        pl_hf_config c;
        pl_err       err = {0};
        put_config(at("i.json"), NULL, cases[i].more);
        if (pl_hf_config_read(&c, at("i.json"), PL_HF_TARGET, &err) != PL_OK)
            fail_msg("%s: %s", cases[i].more, err.msg);
        assert_int_equal(c.bos_token_id, cases[i].bos);
        assert_int_equal(c.pad_token_id, cases[i].pad);
    }
}

// Both names of the weights' type: the new one counts, and a line says so where they differ.
static void test_two_dtypes(void **state) {
    (void)state;
    static const struct {
        const char *more;
        pl_dtype    dtype;
        bool        warns;
    } cases[] = {{"\"dtype\":\"bfloat16\",\"torch_dtype\":\"float32\"", PL_BF16, true},
                 {"\"torch_dtype\":\"bfloat16\",\"dtype\":\"float16\"", PL_F16, true},
                 {"\"torch_dtype\":\"bfloat16\",\"dtype\":\"bfloat16\"", PL_BF16, false},
                 {"\"torch_dtype\":\"bfloat16\",\"dtype\":null", PL_BF16, false},
                 {"\"dtype\":\"float16\"", PL_F16, false}};
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        pl_hf_config c;
        pl_err       err = {0};
        char        *said = NULL;
        size_t       n;
        put_config(at("t.json"), NULL, cases[i].more);
        FILE *f = open_memstream(&said, &n);
        pl_log_to(f);
        pl_status st = pl_hf_config_read(&c, at("t.json"), PL_HF_TARGET, &err);
        pl_log_to(NULL);
        fclose(f);
        assert_ok(st);
        assert_int_equal(c.dtype, cases[i].dtype);
        if ((*said != 0) != cases[i].warns) fail_msg("%s: said \"%s\"", cases[i].more, said);
        free(said);
    }
}

// A hub's cache folder in place of a model's, and how a path begins that only a shell would expand.
static void test_hub_folder(void **state) {
    (void)state;
    pl_err       err = {0};
    pl_hf_config c;
    assert_ok(pl_dir_make(at("models--a--b/refs"), &err));
    assert_ok(pl_dir_make(at("models--a--b/snapshots/5d0f"), &err));
    assert_says(pl_hf_config_read(&c, at("models--a--b"), PL_HF_TARGET, &err), PL_E_INPUT, &err,
                "models--a--b/snapshots/5d0f");
    assert_ok(pl_dir_make(at("models--a--b/snapshots/77aa"), &err));
    assert_says(pl_hf_config_read(&c, at("models--a--b"), PL_HF_TARGET, &err), PL_E_INPUT, &err,
                "models--a--b: no checkpoint and no model: it holds no config.json");
    put_text(at("models--a--b/refs/main"), "77aa\n");
    assert_says(pl_hf_config_read(&c, at("models--a--b/"), PL_HF_TARGET, &err), PL_E_INPUT, &err,
                "a hub's cache folder; give the model's files in it");
    assert_non_null(strstr(err.msg, "models--a--b/snapshots/77aa"));
    assert_says(pl_hf_config_read(&c, "~/model/config.json", PL_HF_TARGET, &err), PL_E_INPUT, &err,
                "~ is expanded by shells alone");
    // Other files and folders in a drafter's place.
    assert_ok(pl_dir_make(at("many/drafters"), &err));
    assert_says(pl_hf_config_read(&c, at("many"), PL_HF_DRAFTER, &err), PL_E_INPUT, &err,
                "a run's folder; give a drafter of it, ");
    assert_non_null(strstr(err.msg, "many/drafters/NAME/checkpoints/best"));
    static const char *const files[] = {"head.gguf", "head.pt", "notes.txt", "drafter"};
    for (int i = 0; i < 4; i++) {
        put_text(at(files[i]), "GGUF");
        assert_says(pl_hf_config_read(&c, at(files[i]), PL_HF_DRAFTER, &err), PL_E_INPUT, &err,
                    "no checkpoint; give the folder that holds its config.json and weights");
    }
}

static void test_drafter_refused(void **state) {
    (void)state;
    pl_err       err;
    pl_hf_config c;
    static const struct {
        const char *drop, *more, *says;
    } bad[] = {
        {NULL, "", "LlamaForCausalLM without draft_vocab_size is a target, not a draft head"},
        {"architectures", "\"architectures\":[\"LlamaForCausalLMEagle\"],\"bias\":1", "bias: expected true or false"},
        {"architectures", "\"architectures\":[\"PacelineEagle\"]", "paceline.head.kind: missing; PacelineEagle says"},
        {"architectures", "\"architectures\":[\"LlamaForCausalLMEagle\"],\"paceline\":{\"head\":{\"kind\":\"full\"}}",
         "\"full\", but LlamaForCausalLMEagle has its target's head"},
        {"architectures", "\"architectures\":[\"DominoDraftModel\"]",
         "draft heads are LlamaForCausalLMEagle3, PacelineEagle3, or LlamaForCausalLM with draft_vocab_size"},
        {"architectures", BLOCK "\"block_size\":8", "dflash_config: missing"},
        {"architectures",
         BLOCK "\"block_size\":8,\"dflash_config\":{\"mask_token_id\":3,\"target_layer_ids\":[1]},"
               "\"paceline\":{\"selector\":{\"law\":\"list\"}}",
         "paceline.selector.law: there is no selector; selector_top_k is missing"},
        {"architectures", BLOCK "\"dflash_config\":{\"mask_token_id\":3,\"target_layer_ids\":[1]}",
         "block_size: missing"},
        {"architectures", BLOCK "\"block_size\":1,\"dflash_config\":{\"mask_token_id\":3,\"target_layer_ids\":[1]}",
         "block_size"},
        {"architectures", BLOCK "\"block_size\":8,\"dflash_config\":{\"target_layer_ids\":[1]}",
         "mask_token_id: missing"},
        {"architectures", BLOCK "\"block_size\":8,\"dflash_config\":{\"mask_token_id\":512,\"target_layer_ids\":[1]}",
         "mask_token_id"},
        {"architectures", BLOCK "\"block_size\":8,\"dflash_config\":{\"mask_token_id\":3,\"target_layer_ids\":[-1]}",
         "target_layer_ids[0]"},
        {"architectures", BLOCK "\"block_size\":8,\"dflash_config\":{\"mask_token_id\":3,\"target_layer_ids\":[]}",
         "target_layer_ids: expected at least one layer"},
        {"architectures",
         BLOCK "\"norm_before_fc\":true,\"block_size\":8,"
               "\"dflash_config\":{\"mask_token_id\":3,\"target_layer_ids\":[1]}",
         "norm_before_fc: not supported; plain DFlash is, without it"},
        {"architectures",
         BLOCK "\"block_size\":8,\"dflash_config\":{\"mask_token_id\":3,\"target_layer_ids\":[1],"
               "\"projector_type\":\"domino\"}",
         "projector_type: not supported; plain DFlash is, without it"},
        {"architectures",
         BLOCK "\"block_size\":8,\"markov_rank\":256,\"dflash_config\":{\"mask_token_id\":3,\"target_layer_ids\":[1]}",
         "markov_rank: not supported; plain DFlash is, without it"},
        {NULL, "\"draft_vocab_size\":513", "draft_vocab_size: 513 is not between 1 and vocab_size 512"},
        {NULL, "\"draft_vocab_size\":0", "draft_vocab_size: expected a positive integer"},
        {"architectures", EAGLE ",\"target_hidden_size\":-1", "target_hidden_size: expected a positive integer"},
        {"architectures", EAGLE ",\"eagle_config\":[]", "eagle_config: expected an object"},
        {"architectures", EAGLE ",\"eagle_config\":{\"eagle_aux_hidden_state_layer_ids\":[-1]}",
         "eagle_config.eagle_aux_hidden_state_layer_ids[0]: expected a non-negative integer"},
        {"architectures", EAGLE ",\"eagle_config\":{\"eagle_aux_hidden_state_layer_ids\":[1,2,3,4,5,6,7,8,9]}",
         "more than 8 layers"},
        {"architectures", EAGLE ",\"eagle_config\":{\"use_aux_hidden_state\":false}",
         "eagle_config.use_aux_hidden_state: false is not supported"},
        {"architectures", EAGLE ",\"eagle_config\":{\"use_mtp_layernorm\":true}", "true is not supported"},
        {"architectures", EAGLE ",\"fc_norm\":\"yes\"", "fc_norm: expected true or false, found \"yes\""},
        {"architectures", EAGLE ",\"bias\":true", "bias: true is not supported"},
        {"architectures", EAGLE ",\"paceline\":{\"tap_numbering\":\"both\"}", "expected \"input\" or \"output\""},
        {"architectures", EAGLE ",\"paceline\":{\"hd\":{}}", "paceline.hd: unknown; written by a newer paceline?"},
        {"architectures", EAGLE ",\"paceline\":{\"head\":{}}", "paceline.head.kind: missing"},
        {"architectures", OWN "\"paceline\":{}", "paceline.head.kind: missing"},
        {"architectures", OTHER "\"backbone\":\"x\"", ": paceline: missing; PacelineDrafter says"},
        {"architectures", OTHER "\"paceline\":{}", ": paceline.backbone: missing; PacelineDrafter says"},
        {"architectures", OTHER "\"paceline\":{\"backbone\":\"x\",\"layers\":1}", "paceline.layers: unknown"},
        {"architectures", OWN "\"paceline\":{\"head\":{\"kind\":\"low_rank\",\"rank\":[65]}}", "paceline.head.rank"},
        {"architectures", EAGLE ",\"paceline\":{\"selector\":{\"rank\":4,\"candidates\":9,\"law\":\"short\"}}",
         "paceline.selector.law: expected \"full\" or \"list\""},
        {"architectures", EAGLE ",\"paceline\":{\"selector\":{\"law\":\"list\"}}", "paceline.selector.rank: missing"},
    };
    for (size_t i = 0; i < sizeof bad / sizeof *bad; i++) {
        put_config(at("d.json"), bad[i].drop, bad[i].more);
        pl_status st = pl_hf_config_read(&c, at("d.json"), PL_HF_DRAFTER, &err);
        if (st == PL_OK) fail_msg("accepted: %s", bad[i].more);
        assert_refused(st, &err, bad[i].says);
    }
}

static void assert_same(const pl_hf_config *a, const pl_hf_config *b) {
    assert_string_equal(a->architecture, b->architecture);
    assert_string_equal(a->model_type, b->model_type);
    assert_string_equal(a->head.kind, b->head.kind);
    const int pairs[][2] = {
        {a->hidden_size, b->hidden_size},
        {a->intermediate_size, b->intermediate_size},
        {a->num_hidden_layers, b->num_hidden_layers},
        {a->num_attention_heads, b->num_attention_heads},
        {a->num_key_value_heads, b->num_key_value_heads},
        {a->head_dim, b->head_dim},
        {a->vocab_size, b->vocab_size},
        {a->max_position_embeddings, b->max_position_embeddings},
        {(int)a->rope.scaling, (int)b->rope.scaling},
        {a->rope.original_max_position_embeddings, b->rope.original_max_position_embeddings},
        {a->tie_word_embeddings, b->tie_word_embeddings},
        {a->bos_token_id, b->bos_token_id},
        {a->pad_token_id, b->pad_token_id},
        {a->n_eos, b->n_eos},
        {(int)a->dtype, (int)b->dtype},
        {a->draft_vocab_size, b->draft_vocab_size},
        {a->target_hidden_size, b->target_hidden_size},
        {a->n_taps, b->n_taps},
        {(int)a->tap_numbering, (int)b->tap_numbering},
        {a->fc_norm, b->fc_norm},
        {a->norm_output, b->norm_output},
        {a->norm_before_fc, b->norm_before_fc},
        {a->norm_before_residual, b->norm_before_residual},
        {(int)pl_hf_head_int(&a->head, "rank"), (int)pl_hf_head_int(&b->head, "rank")},
        {a->selector.rank, b->selector.rank},
        {a->selector.candidates, b->selector.candidates},
        {(int)a->selector.law, (int)b->selector.law},
    };
    for (size_t i = 0; i < sizeof pairs / sizeof *pairs; i++)
        if (pairs[i][0] != pairs[i][1]) fail_msg("field %zu: %d and %d", i, pairs[i][0], pairs[i][1]);
    assert_memory_equal(a->eos_token_id, b->eos_token_id, sizeof a->eos_token_id);
    assert_memory_equal(a->tap, b->tap, sizeof a->tap);
    assert_true(a->rms_norm_eps == b->rms_norm_eps && a->rope.theta == b->rope.theta);
    assert_true(a->rope.factor == b->rope.factor && a->rope.low_freq_factor == b->rope.low_freq_factor);
    assert_true(a->rope.high_freq_factor == b->rope.high_freq_factor);
    assert_int_equal(a->activation, b->activation);
    assert_int_equal(a->sliding_window, b->sliding_window);
    assert_memory_equal(a->windowed, b->windowed, sizeof a->windowed);
    assert_true(a->query_scalar == b->query_scalar && a->attention_softcap == b->attention_softcap);
    assert_true(a->final_softcap == b->final_softcap && a->local_theta == b->local_theta);
    assert_true(a->rope.partial == b->rope.partial && a->rope.n_divisors == b->rope.n_divisors);
    assert_memory_equal(a->rope.short_factor, b->rope.short_factor, sizeof a->rope.short_factor);
    assert_memory_equal(a->rope.long_factor, b->rope.long_factor, sizeof a->rope.long_factor);
    assert_true(a->biased == b->biased && a->sinks == b->sinks && a->rope.truncate == b->rope.truncate);
    assert_true(a->experts == b->experts && a->experts_per_token == b->experts_per_token);
    assert_true(a->shared_expert == b->shared_expert && a->output_gate == b->output_gate);
    assert_memory_equal(&a->delta, &b->delta, sizeof a->delta);
    assert_true(a->expert_size == b->expert_size && a->expert_norm == b->expert_norm);
    assert_memory_equal(a->dense, b->dense, sizeof a->dense);
    assert_true(a->fused == b->fused && a->norm_plus_one == b->norm_plus_one && a->post_norms == b->post_norms);
    assert_true(a->embedding_scaled == b->embedding_scaled && a->qk_norm == b->qk_norm && a->qkv_bias == b->qkv_bias);
}

// What families have beside Llama's comes back from what is written.
static void test_family_round_trip(void **state) {
    (void)state;
    static const char *const files[] = {
        MISTRAL "\"sliding_window\":4096",
        "\"architectures\":[\"Qwen2ForCausalLM\"],\"use_sliding_window\":true,\"max_window_layers\":1",
        PHI3 "\"max_position_embeddings\":512,\"original_max_position_embeddings\":64,\"sliding_window\":99,"
             "\"partial_rotary_factor\":0.5,\"rope_scaling\":{\"type\":\"su\",\"short_factor\":[1,1.5],"
             "\"long_factor\":[1,4]}",
        MIXTRAL "\"sliding_window\":9,\"num_local_experts\":4,\"num_experts_per_tok\":3",
        QWEN3_MOE "\"num_experts\":16,\"moe_intermediate_size\":20,\"norm_topk_prob\":true,\"mlp_only_layers\":[1]",
        QWEN3_MOE "\"num_experts\":16,\"decoder_sparse_step\":2,\"use_sliding_window\":true",
        GPT_OSS "\"num_local_experts\":16,\"sliding_window\":9",
        QWEN3_NEXT "\"linear_key_head_dim\":24,\"shared_expert_intermediate_size\":33,\"partial_rotary_factor\":1",
        QWEN3_NEXT "\"num_experts\":0,\"linear_conv_kernel_dim\":2",
        "\"architectures\":[\"Qwen3_5MoeForCausalLM\"],\"num_experts\":7,\"num_experts_per_tok\":3",
        QWEN3_5 "\"linear_num_key_heads\":3,\"linear_num_value_heads\":9,\"linear_value_head_dim\":40",
        GEMMA2 "\"sliding_window\":9",
        GEMMA2 "\"attn_logit_softcapping\":null,\"final_logit_softcapping\":7.5,\"sliding_window\":null",
        GEMMA3 "\"sliding_window_pattern\":2,\"rope_local_base_freq\":77,\"query_pre_attn_scalar\":168",
    };
    for (size_t i = 0; i < sizeof files / sizeof *files; i++) {
        pl_err       err;
        pl_hf_config c, back;
        read_as(&c, files[i]);
        assert_ok(pl_hf_config_write(at("rt.json"), &c, &err));
        assert_ok(pl_hf_config_read(&back, at("rt.json"), PL_HF_TARGET, &err));
        assert_same(&c, &back);
    }
}

static void test_round_trip(void **state) {
    (void)state;
    pl_err       err;
    pl_hf_config c, back;
    pl_hf_config_init(&c);
    strcpy(c.architecture, "LlamaForCausalLM");
    strcpy(c.model_type, "llama");
    c.hidden_size = 64;
    c.intermediate_size = 100;
    c.num_hidden_layers = 3;
    c.num_attention_heads = 4;
    c.num_key_value_heads = 2;
    c.head_dim = 32;
    c.vocab_size = 300;
    c.max_position_embeddings = 777;
    c.rms_norm_eps = 1e-5 / 3;
    c.dtype = PL_BF16;
    assert_ok(pl_hf_config_write(at("rt.json"), &c, &err));
    assert_ok(pl_hf_config_read(&back, at("rt.json"), PL_HF_TARGET, &err));
    assert_same(&c, &back);
    uint8_t *text;
    size_t   n;
    assert_ok(pl_file_read(at("rt.json"), &text, &n, 1 << 16, &err));
    // What engines would otherwise fill in with their own defaults is stated.
    assert_non_null(strstr((char *)text, "\"rope_theta\": 10000.0"));
    assert_non_null(strstr((char *)text, "\"bos_token_id\": null"));
    assert_non_null(strstr((char *)text, "\"eos_token_id\": null"));
    assert_non_null(strstr((char *)text, "\"torch_dtype\": \"bfloat16\""));
    assert_null(strstr((char *)text, "eagle_config"));
    assert_null(strstr((char *)text, "paceline"));
    pl_free(text);

    c.rope = (pl_hf_rope){.scaling = PL_HF_ROPE_LLAMA3,
                          .theta = 500000.5,
                          .factor = 32,
                          .low_freq_factor = 1,
                          .high_freq_factor = 4,
                          .original_max_position_embeddings = 8192};
    c.bos_token_id = 0;
    c.pad_token_id = 2;
    c.eos_token_id[0] = 5;
    c.n_eos = 1;
    c.tie_word_embeddings = true;
    assert_ok(pl_hf_config_write(at("rt.json"), &c, &err));
    assert_ok(pl_hf_config_read(&back, at("rt.json"), PL_HF_TARGET, &err));
    assert_same(&c, &back);

    c.rope = (pl_hf_rope){.scaling = PL_HF_ROPE_YARN,
                          .theta = 10000,
                          .factor = 2.5,
                          .beta_fast = 16,
                          .beta_slow = 2,
                          .attention_factor = 1.25,
                          .truncate = true,
                          .original_max_position_embeddings = 512};
    assert_ok(pl_hf_config_write(at("rt.json"), &c, &err));
    assert_ok(pl_hf_config_read(&back, at("rt.json"), PL_HF_TARGET, &err));
    assert_same(&c, &back);

    strcpy(c.architecture, "PacelineEagle3");
    c.rope = (pl_hf_rope){.scaling = PL_HF_ROPE_LINEAR, .theta = 10000, .factor = 2.5};
    c.eos_token_id[1] = 6;
    c.n_eos = 2;
    c.draft_vocab_size = 200;
    c.target_hidden_size = 128;
    c.n_taps = 3;
    c.tap[0] = 2;
    c.tap[1] = 16;
    c.tap[2] = 29;
    c.tap_numbering = PL_HF_TAPS_INPUT;
    c.fc_norm = c.norm_before_residual = true;
    strcpy(c.head.kind, "low_rank");
    pl_hf_head_set(&c.head, "rank", 16);
    assert_ok(pl_hf_config_write(at("rt.json"), &c, &err));
    assert_ok(pl_hf_config_read(&back, at("rt.json"), PL_HF_DRAFTER, &err));
    assert_same(&c, &back);
    strcpy(c.architecture, "LlamaForCausalLMEagle3");
    c.head.kind[0] = 0;
    pl_hf_head_set(&c.head, "rank", 0);
    c.tap_numbering = PL_HF_TAPS_UNSTATED;
    assert_ok(pl_hf_config_write(at("rt.json"), &c, &err));
    assert_ok(pl_hf_config_read(&back, at("rt.json"), PL_HF_DRAFTER, &err));
    assert_same(&c, &back);
    for (int law = 0; pl_hf_law_name(law); law++) {
        c.selector = (pl_hf_selector){.rank = 4, .candidates = 9, .law = (pl_hf_law)law};
        assert_ok(pl_hf_config_write(at("rt.json"), &c, &err));
        assert_ok(pl_hf_config_read(&back, at("rt.json"), PL_HF_DRAFTER, &err));
        assert_same(&c, &back);
    }
}

// EAGLE-1: as engines name it, as it is published (a Llama of one layer), and with a head of its own.
static void test_eagle1(void **state) {
    (void)state;
    pl_err       err;
    pl_hf_config c, back;
    static const struct {
        const char *name, *more;
        bool        target_head;
        pl_hf_bias  bias;
    } known[] = {
        {"LlamaForCausalLMEagle", "", true, PL_HF_BIAS_UNSTATED},
        {"EagleLlamaForCausalLM", ",\"bias\":false", true, PL_HF_BIAS_NO},
        {NULL, "\"bias\":true,\"num_hidden_layers\":1", true, PL_HF_BIAS_YES},
        {"PacelineEagle", ",\"paceline\":{\"head\":{\"kind\":\"lowrank\",\"rank\":8}}", false, PL_HF_BIAS_UNSTATED},
    };
    for (size_t i = 0; i < sizeof known / sizeof *known; i++) {
        char more[256];
        if (known[i].name)
            snprintf(more, sizeof more, "\"architectures\":[\"%s\"]%s", known[i].name, known[i].more);
        else
            snprintf(more, sizeof more, "%s", known[i].more);
        put_config(at("e.json"), known[i].name ? "architectures" : "num_hidden_layers", more);
        assert_ok(pl_hf_config_read(&c, at("e.json"), PL_HF_DRAFTER, &err));
        assert_int_equal(c.backbone, PL_HF_EAGLE1);
        assert_string_equal(pl_hf_backbone_name(&c), "eagle1");
        assert_int_equal(c.target_head, known[i].target_head);
        assert_int_equal(c.fc_bias, known[i].bias);
        assert_ok(pl_hf_config_write(at("e2.json"), &c, &err));
        assert_ok(pl_hf_config_read(&back, at("e2.json"), PL_HF_DRAFTER, &err));
        assert_same(&c, &back);
        assert_true(back.backbone == c.backbone && back.fc_bias == c.fc_bias && back.target_head == c.target_head);
        if (known[i].name) // a one-layer Llama may be a target
            assert_says(pl_hf_config_read(&back, at("e2.json"), PL_HF_TARGET, &err), PL_E_INPUT, &err,
                        "is a draft head, not a target");
    }
}

static void test_memory(void **state) {
    (void)state;
    pl_err err;
    bool   done = false;
    put_config(at("m.json"), NULL, "\"eos_token_id\":[1,2]");
    for (uint64_t n = 1; !done; n++) {
        pl_hf_config c;
        assert_true(n < 200);
        pl_alloc_fail_after(n);
        pl_status st = pl_hf_config_read(&c, at("m.json"), PL_HF_TARGET, &err);
        pl_alloc_fail_after(0);
        done = st == PL_OK;
        if (!done) assert_says(st, PL_E_MEMORY, &err, "out of memory");
        assert_int_equal(c.hidden_size, done ? 64 : 0);
    }
}

static void test_real(void **state) {
    (void)state;
    pl_err       err;
    pl_hf_config c;
    if (!outside("")) skip();
    assert_ok(pl_hf_config_read(&c, outside("models/TinyStories-656K"), PL_HF_TARGET, &err));
    assert_int_equal(c.hidden_size, 128);
    assert_int_equal(c.intermediate_size, 384);
    assert_int_equal(c.num_key_value_heads, 4);
    assert_int_equal(c.vocab_size, 2048);
    assert_true(c.tie_word_embeddings && c.rms_norm_eps == 1e-6);
    assert_int_equal(c.bos_token_id, 1);
    assert_int_equal(c.n_eos, 1);
    assert_int_equal(c.dtype, PL_BF16);
    assert_ok(pl_hf_config_read(&c, outside("configs/SpecForge/llama3-70B-ealge3.json"), PL_HF_DRAFTER, &err));
    assert_int_equal(c.rope.scaling, PL_HF_ROPE_LLAMA3);
    assert_int_equal(c.n_eos, 3);
    assert_int_equal(c.draft_vocab_size, 32000);
    // This published file states no rope_theta, and so means 10000 whatever its target has.
    assert_ok(pl_hf_config_read(&c, outside("configs/SpecForge/llama3-8B-eagle3.json"), PL_HF_DRAFTER, &err));
    assert_true(c.rope.theta == 10000);
    assert_ok(pl_hf_config_read(&c, outside("configs/SpecForge/qwen3-30B-A3B-eagle3.1.json"), PL_HF_DRAFTER, &err));
    assert_true(c.fc_norm && c.norm_output && c.head_dim == 128);
    static const char *const eagle1[] = {"vicuna_7B", "vicuna_33B", "llama_2_chat_70B", "Mixtral_8x7B"};
    for (size_t i = 0; i < sizeof eagle1 / sizeof *eagle1; i++) {
        char name[64];
        snprintf(name, sizeof name, "configs/EAGLE/%s_config.json", eagle1[i]);
        assert_ok(pl_hf_config_read(&c, outside(name), PL_HF_DRAFTER, &err));
        assert_true(c.backbone == PL_HF_EAGLE1 && c.target_head && c.fc_bias == PL_HF_BIAS_UNSTATED);
        assert_int_equal(c.num_hidden_layers, 1);
    }
    assert_ok(pl_hf_config_read(&c, outside("configs/TorchSpec/kimi_k25_eagle3.json"), PL_HF_DRAFTER, &err));
    assert_int_equal(c.rope.scaling, PL_HF_ROPE_YARN);
    assert_ok(pl_hf_config_read(&c, outside("configs/SpecForge/qwen3-4b-dflash.json"), PL_HF_DRAFTER, &err));
    assert_int_equal(c.block.size, 16);
    assert_int_equal(c.block.mask_token, 151669);
    assert_int_equal(c.block.target_layers, 36);
    assert_says(pl_hf_config_read(&c, outside("configs/SpecForge/llama3-8B-eagle3.json"), PL_HF_TARGET, &err),
                PL_E_INPUT, &err, "is a draft head, not a target");
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_defaults),
        cmocka_unit_test(test_fields),
        cmocka_unit_test(test_families),
        cmocka_unit_test(test_families_of_experts),
        cmocka_unit_test(test_families_of_delta_nets),
        cmocka_unit_test(test_plain_layers),
        cmocka_unit_test(test_family_round_trip),
        cmocka_unit_test(test_generation),
        cmocka_unit_test(test_rope_places),
        cmocka_unit_test(test_bad_targets),
        cmocka_unit_test(test_drafter),
        cmocka_unit_test(test_drafter_refused),
        cmocka_unit_test(test_drafter_windows),
        cmocka_unit_test(test_odd_ids),
        cmocka_unit_test(test_two_dtypes),
        cmocka_unit_test(test_hub_folder),
        cmocka_unit_test(test_eagle1),
        cmocka_unit_test(test_round_trip),
        cmocka_unit_test(test_memory),
        cmocka_unit_test(test_real),
    };
    return cmocka_run_group_tests(tests, scratch_setup, scratch_teardown);
}
