// A target of each family, from its config.json: it answers, a drafter learns from the answers, and decoding with the
// drafter says what plain decoding says. Texts are longer than the windows.
#include "tests/train/small.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "infer/model/llama.h"
#include "kernels/base/arena.h"
#include "kernels/base/files.h"
#include "kernels/base/json.h"
#include "kernels/base/rng.h"
#include "train/run/pipeline.h"
#include <stdio.h>
#include <string.h>

#define SIZES                                                                                                          \
    "\"vocab_size\": 400, \"hidden_size\": 32, \"intermediate_size\": 48, \"num_hidden_layers\": 4,\n"                 \
    "\"num_attention_heads\": 4, \"num_key_value_heads\": 2, \"head_dim\": 16, \"max_position_embeddings\": 128,\n"    \
    "\"rms_norm_eps\": 1e-5, \"torch_dtype\": \"bfloat16\", \"tie_word_embeddings\": false"

static const struct {
    const char *name, *config;
} family[] = {
    {"llama", "\"architectures\": [\"LlamaForCausalLM\"], \"model_type\": \"llama\", \"rope_theta\": 10000.0"},
    {"mistral", "\"architectures\": [\"MistralForCausalLM\"], \"model_type\": \"mistral\", \"sliding_window\": 9"},
    {"qwen2", "\"architectures\": [\"Qwen2ForCausalLM\"], \"model_type\": \"qwen2\", \"use_sliding_window\": true,\n"
              "\"sliding_window\": 8, \"max_window_layers\": 2"},
    {"qwen3", "\"architectures\": [\"Qwen3ForCausalLM\"], \"model_type\": \"qwen3\", \"rope_theta\": 1000000"},
    {"phi3", "\"architectures\": [\"Phi3ForCausalLM\"], \"model_type\": \"phi3\", \"partial_rotary_factor\": 0.75,\n"
             "\"original_max_position_embeddings\": 64, \"sliding_window\": null, \"rope_scaling\": {\"type\": "
             "\"longrope\",\n\"short_factor\": [1, 1, 1, 1, 1, 1], \"long_factor\": [1, 1.5, 2, 3, 4, 6]}"},
    {"gemma2", "\"architectures\": [\"Gemma2ForCausalLM\"], \"model_type\": \"gemma2\", \"sliding_window\": 7,\n"
               "\"query_pre_attn_scalar\": 12, \"attn_logit_softcapping\": 3.0, \"final_logit_softcapping\": 6.0"},
    {"gemma3", "\"architectures\": [\"Gemma3ForCausalLM\"], \"model_type\": \"gemma3_text\", \"sliding_window\": 6,\n"
               "\"sliding_window_pattern\": 2, \"rope_theta\": 1000000, \"rope_local_base_freq\": 10000"},
    {"mixtral", "\"architectures\": [\"MixtralForCausalLM\"], \"model_type\": \"mixtral\", \"sliding_window\": 9,\n"
                "\"num_local_experts\": 5, \"num_experts_per_tok\": 2"},
    {"qwen3moe", "\"architectures\": [\"Qwen3MoeForCausalLM\"], \"model_type\": \"qwen3_moe\", \"num_experts\": 9,\n"
                 "\"num_experts_per_tok\": 3, \"moe_intermediate_size\": 24, \"mlp_only_layers\": [1]"},
    {"gptoss",
     "\"architectures\": [\"GptOssForCausalLM\"], \"model_type\": \"gpt_oss\", \"sliding_window\": 8,\n"
     "\"num_local_experts\": 5, \"num_experts_per_tok\": 2, \"rope_theta\": 150000, \"attention_bias\": true"}};
enum { FAMILIES = sizeof family / sizeof *family };

// ---- a random model in a folder

static float **random_values(const pl_params *ps, uint64_t seed) {
    float **data = pl_calloc((size_t)ps->n, sizeof *data);
    assert_non_null(data);
    for (int i = 0; i < ps->n; i++) {
        const pl_param *p = &ps->p[i];
        int64_t         n = p->spec.rows * (p->spec.cols ? p->spec.cols : 1);
        pl_rng          r = pl_rng_make(seed, PL_STREAM_TEST, (uint64_t)i);
        data[i] = pl_malloc((size_t)n * sizeof(float));
        assert_non_null(data[i]);
        for (int64_t k = 0; k < n; k++)
            data[i][k] = p->spec.cols ? 0.2f * pl_rng_normal(r, (uint64_t)k)
                                      : 1 - p->offset + 0.1f * pl_rng_normal(r, (uint64_t)k);
    }
    return data;
}

static void write_model(const char *name, const char *config, uint64_t seed) {
    pl_err       err = {0};
    pl_hf_config c;
    pl_llama     m;
    char         path[160], from[160], text[1024];
    uint8_t     *tokenizer;
    size_t       n;
    snprintf(path, sizeof path, "%s/%s", small_base, name);
    assert_int_equal(pl_dir_make(path, &err), PL_OK);
    snprintf(path, sizeof path, "%s/%s/config.json", small_base, name);
    snprintf(text, sizeof text, "{" SIZES ",\n%s}\n", config);
    assert_int_equal(pl_file_write_atomic(path, text, strlen(text), &err), PL_OK);
    snprintf(from, sizeof from, "%s/target/checkpoints/last/tokenizer.model", small_base);
    if (pl_file_read(from, &tokenizer, &n, 1 << 24, &err) != PL_OK) fail_msg("%s", err.msg);
    snprintf(path, sizeof path, "%s/%s/tokenizer.model", small_base, name);
    assert_int_equal(pl_file_write_atomic(path, tokenizer, n, &err), PL_OK);
    pl_free(tokenizer);
    snprintf(path, sizeof path, "%s/%s", small_base, name);
    if (pl_llama_config(&c, path, &err) != PL_OK) fail_msg("%s", err.msg);
    if (pl_llama_init(&m, &c, pl_backend_cpu(), true, &err) != PL_OK) fail_msg("%s", err.msg);
    float **data = random_values(&m.params, seed);
    snprintf(path, sizeof path, "%s/%s/model.safetensors", small_base, name);
    if (pl_params_write(&m.params, path, (const float *const *)data, PL_BF16, NULL, 0, &err) != PL_OK)
        fail_msg("%s", err.msg);
    for (int i = 0; i < m.params.n; i++)
        pl_free(data[i]);
    pl_free(data);
    pl_llama_fini(&m);
}

// ---- the whole way

static void run(const char *name) {
    pl_err  err = {0};
    char    lines[1024], out[64], dir[160];
    pl_env  env = small_env(NULL);
    pl_json j;
    double  first, promised, decoded, alarm;
    snprintf(out, sizeof out, "run-%s", name);
    snprintf(dir, sizeof dir, "%s/%s", small_base, out);
    snprintf(lines, sizeof lines,
             "target.path=BASE/%s\ndata.prompts=BASE/prompts.jsonl\ndata.max_new_tokens=30\ndata.samples=0\n"
             "data.greedy=true\neval.holdout=5\ntrain.holdout=4\ntrain.steps=40\ntrain.slot_rows=150\ntrain.unroll=2\n"
             "train.lr=5e-3\ntrain.warmup=5\ntrain.clip=0.5\ntrain.eval_steps=3\ntrain.eval_every=20\n"
             "eval.max_new_tokens=40\neval.tree=eagle2:12,4,3\neval.temperatures=[0,1]\neval.seeds=1\n"
             "eval.plain_fp32=false",
             name);
    pl_recipe *r = small_recipe(lines);
    env.keys = pl_stage_tables(&env.n_keys);
    env.text = tmpfile();
    assert_non_null(env.text);
    if (pl_pipeline_run(r, dir, &env, &err) != PL_OK) fail_msg("%s", err.msg);
    fclose(env.text);
    pl_recipe_close(r);

    snprintf(dir, sizeof dir, "%s/%s/results.json", small_base, out);
    if (pl_json_open(&j, dir, 1 << 24, 0, &err) != PL_OK) fail_msg("%s", err.msg);
    const cJSON *methods, *m;
    int          drafted = 0;
    assert_int_equal(pl_json_get_array(&j, NULL, "methods", &methods, &err), PL_OK);
    cJSON_ArrayForEach(m, methods) {
        bool    same;
        int64_t n;
        assert_int_equal(pl_json_get_bool(&j, m, "identical_outputs", &same, &err), PL_OK);
        assert_int_equal(pl_json_get_int(&j, m, "drafted", 0, 1 << 30, &n, &err), PL_OK);
        assert_true(same);
        drafted += n > 0;
    }
    assert_int_equal(drafted, 2); // at either temperature
    pl_json_close(&j);

    // Data, trainer and decoder mean the same.
    small_metric(out, "documents_promised_length", &first, &promised);
    small_metric(out, "documents_decoded_length", &first, &decoded);
    small_metric(out, "alarm", &first, &alarm);
    print_message("%-8s acceptance length %.3f promised, %.3f decoded\n", name, promised, decoded);
    assert_true(alarm == 0 && promised == decoded);
}

static void families(void **state) {
    (void)state;
    for (int i = 0; i < FAMILIES; i++) {
        write_model(family[i].name, family[i].config, 10 + (uint64_t)i);
        run(family[i].name);
    }
}

int main(void) {
    const struct CMUnitTest tests[] = {cmocka_unit_test(families)};
    return cmocka_run_group_tests(tests, small_setup, small_teardown);
}
