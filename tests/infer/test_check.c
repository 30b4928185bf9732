// Rules for served drafters: every export keeps all of its engine's, and each way to break one is told by its name.
#include "tests/infer/served.h"

#include "infer/drafter/backbone.h"
#include "infer/drafter/dflash.h"
#include "infer/import/import.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <string.h>

#include <cmocka.h>

static served_world w;

static int setup(void **state) {
    (void)state;
    served_make(&w);
    return 0;
}

static int teardown(void **state) {
    (void)state;
    served_end(&w);
    return 0;
}

static served_told check(const char *engine, const char *to) {
    return served_check(engine, w.out, to);
}

static void exports_hold(void **state) {
    (void)state;
    static const pl_export_sort sorts[] = {PL_EXPORT_EAGLE3,  PL_EXPORT_EAGLE3, PL_EXPORT_DFLASH, PL_EXPORT_DSPARK,
                                           PL_EXPORT_DFLASH2, PL_EXPORT_DSPARK, PL_EXPORT_EAGLE3, PL_EXPORT_PEAGLE};
    for (int i = 0; pl_export_engine_at(i); i++)
        for (int which = 0; which < SERVED_ALL; which++) {
            const pl_export_engine *e = pl_export_engine_at(i);
            bool                    block = served_is_block(which), rnn = which == SERVED_RECURRENT;
            if (e->file || !e->classes[sorts[which]]) continue;
            if (which == SERVED_WIDE && !(e->own & PL_EXPORT_OWN_WIDTH)) continue;
            if (rnn && !(e->markov & 1U << PL_HF_MARKOV_RNN)) continue;
            served_export(&w, e->name, which, w.target, false);
            served_told h = check(e->name, w.target);
            bool        unsure = rnn && strcmp(e->name, "speculators") == 0;
            if (*h.broken || strcmp(h.unseen, unsure ? "served-heads " : "") != 0) fail_msg("%s: %s", e->name, h.why);
            h = check(e->name, NULL);
            assert_true(!*h.broken);
            if (block) assert_non_null(strstr(h.unseen, "layers-there "));
            if (block) continue;
            assert_string_equal(h.unseen, strcmp(e->name, "eagle") == 0
                                              ? "layers-there target-fits positions rope-target layers-own "
                                              : "layers-there target-fits positions rope-target ");
        }
}

// ---- broken one at a time ----

enum how { EDIT, DROP, WITHOUT, RENAME, VECTOR, MATRIX, NARROW, COPY, MAP };

typedef struct breaking {
    const char *engine;
    int         trimmed;
    enum how    how;
    const char *from,
        *to; // EDIT: text; DROP: a member; WITHOUT: a tensor; RENAME: names; VECTOR, MATRIX, COPY, MAP: a tensor
    const char *rule; // "?rule": not broken, but nobody can tell
} breaking;

static const breaking cases[] = {
    {"vllm", 0, EDIT, "LlamaForCausalLMEagle3", "LlamaForCausalLM", "architecture"},
    {"speculators", 0, EDIT, "Eagle3DraftModel", "LlamaForCausalLMEagle3", "architecture"},
    {"speculators", 0, EDIT, "\"speculators_model_type\": \"eagle3\"", "\"speculators_model_type\": \"eagle\"", "kind"},
    {"speculators", 0, DROP, "speculators_model_type", NULL, "kind"},
    {"sglang", 0, EDIT, "\"num_hidden_layers\": 1", "\"num_hidden_layers\": 9", "few-layers"},
    {"speculators", 0, EDIT, "Eagle3DraftModel", "DSparkSpeculator", "architecture"},
    {"speculators", 2, EDIT, "DFlashDraftModel", "Eagle3Speculator", "architecture"},
    {"vllm", 0, DROP, "hidden_act", NULL, "?every-field"},
    {"vllm", 0, DROP, "hidden_act", NULL, "activation"},
    {"sglang", 2, DROP, "hidden_act", NULL, "activation"},
    {"eagle", 0, DROP, "model_type", NULL, "model-type"},
    {"sglang", 2, DROP, "model_type", NULL, "model-type"},
    {"sglang", 0, EDIT, "\"hidden_size\": 48", "\"hidden_size\": \"48\"", "every-field"},
    {"vllm", 1, EDIT, "\"draft_vocab_size\": 31", "\"draft_vocab_size\": \"512\"", "every-field"},
    {"vllm", 1, EDIT, "\"draft_vocab_size\": 31", "\"draft_vocab_size\": -5", "every-field"},
    {"vllm", 1, EDIT, "\"draft_vocab_size\": 31", "\"draft_vocab_size\": 0", "every-field"},
    {"speculators", 3, EDIT, "\"sample_from_anchor\": true", "\"sample_from_anchor\": \"yes\"", "every-field"},
    {"vllm", 0, DROP, "intermediate_size", NULL, "every-field"},
    {"trtllm", 0, DROP, "head_dim", NULL, "every-field"},
    {"speculators", 0, DROP, "transformer_layer_config.intermediate_size", NULL, "every-field"},
    {"sglang", 0, DROP, "attention_bias", NULL, "?every-field"},
    {"vllm", 0, EDIT, "\"mlp_bias\": false", "\"mlp_bias\": null", "no-nulls"},
    {"speculators", 0, EDIT, "\"tie_word_embeddings\": false", "\"tie_word_embeddings\": null", "no-nulls"},
    {"vllm", 0, EDIT, "\"model_type\": \"llama\"", "\"model_type\": \"phi3\"", "model-type"},
    {"speculators", 0, EDIT, "\"model_type\": \"llama\"", "\"model_type\": \"qwen2\"", "model-type"},
    {"sglang", 0, EDIT, "\"hidden_act\": \"silu\"", "\"hidden_act\": \"gelu\"", "activation"},
    {"trtllm", 0, EDIT, "\"attention_bias\": false", "\"attention_bias\": true", "no-bias"},
    {"sglang", 0, EDIT, "\"mlp_bias\": false", "\"mlp_bias\": false, \"bias\": true", "no-bias"},
    {"sglang", 0, EDIT, "\"tie_word_embeddings\": false", "\"tie_word_embeddings\": true", "untied"},
    {"vllm", 0, EDIT, "\"torch_dtype\": \"bfloat16\"", "\"torch_dtype\": \"float16\"", "types-agree"},
    {"vllm", 0, MATRIX, "fc.weight", NULL, "types-agree"},
    {"trtllm", 0, DROP, "torch_dtype", NULL, "types-agree"},
    {"vllm", 0, EDIT, "\"rope_theta\": 10000.0,\n    \"rope_type\"", "\"rope_theta\": 500000.0,\n    \"rope_type\"",
     "rope-spellings"},
    {"sglang", 0, EDIT, "\"rope_scaling\": null", "\"rope_scaling\": {\"rope_type\": \"linear\", \"factor\": 2}",
     "rope-spellings"},
    {"eagle", 0, EDIT, "\"rope_scaling\": null", "\"rope_scaling\": {\"rope_type\": \"default\"}", "rope-read"},
    {"vllm", 0, EDIT, "\"mlp_bias\": false", "\"mlp_bias\": false, \"quantization_config\": {}", "not-quantised"},
    {"speculators", 0, DROP, "norm_before_residual", NULL, "norms-stated"},
    {"trtllm", 0, EDIT, "\"norm_before_residual\": false", "\"norm_before_residual\": true", "norms-computed"},
    {"sglang", 0, EDIT, "\"norm_before_fc\": false", "\"norm_before_fc\": true", "names"},
    {"sglang", 0, EDIT, "\"norm_before_residual\": false", "\"norm_before_residual\": true", "norms-computed"},
    {"vllm", 0, EDIT, "\"LlamaForCausalLMEagle3\"", "\"PEagleDraftModel\", \"LlamaForCausalLMEagle3\"", "names"},
    {"vllm", 7, EDIT, "\"PEagleDraftModel\",\n    \"LlamaForCausalLMEagle3\"", "\"PEagleDraftModel\"", "second-class"},
    {"speculators", 7, DROP, "mask_token_id", NULL, "mask-token"},
    {"vllm", 7, WITHOUT, "mask_hidden", NULL, "names"},
    {"vllm", 0, EDIT, "\"fc_norm\": false", "\"fc_norm\": true", "names"},
    {"vllm", 0, EDIT, "\"num_hidden_layers\": 1", "\"num_hidden_layers\": 2", "names"},
    {"speculators", 0, DROP, "speculators_config.proposal_methods", NULL, "proposal"},
    {"speculators", 0, DROP, "speculators_config.verifier", NULL, "proposal"},
    {"speculators", 0, EDIT, "\"speculative_tokens\": 3", "\"speculative_tokens\": 0", "proposal"},
    {"vllm", 0, DROP, "eagle_aux_hidden_state_layer_ids", NULL, "layers-written"},
    {"sglang", 0, DROP, "eagle_config.eagle_aux_hidden_state_layer_ids", NULL, "layers-written"},
    {"sglang", 0, EDIT, "\"eagle_config\": {", "\"eagle_aux_hidden_state_layer_ids\": [1, 3, 4], \"other\": {",
     "layers-written"},
    {"trtllm", 0, EDIT, "\"eagle_config\": {", "\"eagle_aux_hidden_state_layer_ids\": [1, 3, 4], \"other\": {",
     "layers-written"},
    {"vllm", 0, EDIT, "\"num_hidden_layers\": 1", "\"num_hidden_layers\": 1, \"num_aux_hidden_states\": 2",
     "layers-counted"},
    {"vllm", 0, EDIT, "\"tap_numbering\": \"input\"", "\"tap_numbering\": \"output\"", "layers-meant"},
    {"sglang", 0, EDIT, "\"tap_numbering\": \"output\"", "\"tap_numbering\": \"input\"", "layers-meant"},
    {"sglang", 0, EDIT,
     "      1,\n      3,\n      4\n    ]\n  },\n  \"paceline\": {\n    \"tap_numbering\": \"output\"",
     "      2,\n      4,\n      5\n    ]\n  },\n  \"paceline\": {\n    \"tap_numbering\": \"input\"", "layers-meant"},
    {"trtllm", 0, DROP, "paceline", NULL, "?layers-meant"},
    {"trtllm", 0, EDIT, "      1,\n      3,\n", "      3,\n      1,\n", "layers-rise"},
    {"sglang", 0, EDIT, "      1,\n      3,\n", "      1,\n      1,\n", "layers-rise"},
    {"vllm", 0, EDIT, "    2,\n    4,\n", "    4,\n    2,\n", "layers-rise"},
    {"speculators", 0, EDIT, "    2,\n    4,\n", "    4,\n    2,\n", "layers-rise"},
    {"vllm", 0, EDIT, "    4,\n    5\n", "    4,\n    9\n", "layers-there"},
    {"sglang", 0, EDIT, "      3,\n      4\n", "      3,\n      7\n", "last-layer"},
    {"trtllm", 0, EDIT, "      1,\n      3,\n      4\n", "      3\n", "layers-joined"},
    {"sglang", 0, EDIT, "      1,\n      3,\n      4\n", "      3\n", "layers-joined"},
    {"speculators", 0, EDIT, "    4,\n    5\n", "    4,\n    9\n", "layers-there"},
    {"eagle", 0, EDIT, "      4,\n      5\n", "      4,\n      6\n", "layers-own"},
    {"vllm", 0, WITHOUT, "norm.weight", NULL, "names"},
    {"vllm", 0, RENAME, "midlayer.hidden_norm.weight", "layers.0.hidden_norm.weight", "names"},
    {"speculators", 0, RENAME, "layers.0.mlp.up_proj.weight", "midlayer.mlp.up_proj.weight", "names"},
    {"sglang", 0, VECTOR, "fc.bias", NULL, "names"},
    {"trtllm", 0, EDIT, "\"intermediate_size\": 80", "\"intermediate_size\": 96", "shapes"},
    {"vllm", 0, EDIT, "    4,\n    5\n  ],", "    4,\n    5,\n    6\n  ],", "shapes"},
    {"vllm", 0, NARROW, "lm_head.weight", NULL, "shapes"},
    {"speculators", 0, WITHOUT, "embed_tokens.weight", NULL, "names"},
    {"vllm", 0, DROP, "draft_vocab_size", NULL, "every-field"},
    {"vllm", 1, EDIT, "\"draft_vocab_size\": 31", "\"draft_vocab_size\": 32", "draft-vocab"},
    {"vllm", 1, WITHOUT, "d2t", NULL, "map-there"},
    {"sglang", 1, WITHOUT, "t2d", NULL, "map-there"},
    {"vllm", 0, MAP, "ids", NULL, "map-there"},
    {"vllm", 1, MAP, "narrow", NULL, "map-type"},
    {"trtllm", 1, MAP, "wide", NULL, "map-type"},
    {"vllm", 1, MAP, "ids", NULL, "map-tokens"},
    {"sglang", 1, MAP, "twice", NULL, "map-tokens"},
    {"vllm", 1, MAP, "zeros", NULL, "map-filled"},
    {"speculators", 1, MAP, "half", NULL, "map-filled"},
    {"vllm", 1, MAP, "others", NULL, "map-marks"},
    {"vllm", 1, EDIT, "\"vocab_size\": 97", "\"vocab_size\": 98", "target-fits"},
    {"sglang", 6, EDIT, "\"target_hidden_size\": 48", "\"target_hidden_size\": 64", "target-fits"},
    {"vllm", 6, WITHOUT, "embed_tokens.weight", NULL, "names"},
    {"eagle", 6, WITHOUT, "embed_tokens.weight", NULL, "embeddings-read"},
    {"eagle", 0, EDIT, "\"mlp_bias\": false", "\"mlp_bias\": false, \"target_hidden_size\": 48", "embeddings-read"},
    {"sglang", 0, COPY, PL_BACKBONE_EMBED, NULL, "?embeddings"},
    {"sglang", 0, EDIT, "\"max_position_embeddings\": 256", "\"max_position_embeddings\": 128", "positions"},
    {"vllm", 0, EDIT, "\"rope_theta\": 10000.0,\n  \"rope_scaling\"", "\"rope_theta\": 20000.0,\n  \"rope_scaling\"",
     "rope-target"},
    {"vllm", 2, EDIT, "DFlashDraftModel", "LlamaForCausalLMEagle3", "architecture"},
    {"trtllm", 2, EDIT, "DFlashDraftModel", "DFlash2DraftModel", "architecture"},
    {"trtllm", 2, EDIT, "      4\n", "      7\n", "last-layer"},
    {"trtllm", 3, EDIT, "\"markov_head_type\": \"vanilla\"", "\"markov_head_type\": \"gated\"", "heads"},
    {"trtllm", 3, WITHOUT, "markov_head.markov_w1.weight", NULL, "names"},
    {"speculators", 3, EDIT, "DSparkDraftModel", "Qwen3DSparkModel", "architecture"},
    {"speculators", 2, EDIT, "\"speculators_model_type\": \"dflash\"", "\"speculators_model_type\": \"dspark\"",
     "kind"},
    {"vllm", 3, EDIT, "\"model_type\": \"qwen3\"", "\"model_type\": \"llama\"", "model-type"},
    {"sglang", 2, EDIT, "\"mask_token_id\": 9", "\"block_size\": 5, \"mask_token_id\": 9", "block-size"},
    {"vllm", 3, EDIT, "\"block_size\": 6", "\"block_size\": 1", "block-size"},
    {"vllm", 2, EDIT, "\"mask_token_id\": 9", "\"mask_token_id\": 97", "mask-token"},
    {"vllm", 2, DROP, "dflash_config.mask_token_id", NULL, "mask-token"},
    {"sglang", 3, DROP, "target_layer_ids", NULL, "layers-written"},
    {"speculators", 2, DROP, "aux_hidden_state_layer_ids", NULL, "layers-written"},
    {"sglang", 2, EDIT, "      4\n", "      7\n", "last-layer"},
    {"vllm", 2, EDIT, "      4\n", "      8\n", "layers-there"},
    {"vllm", 3, EDIT, "    1,\n", "    -1,\n", "layers-there"},
    {"speculators", 3, EDIT, "    2,\n", "    0,\n", "layers-there"},
    {"vllm", 2, EDIT, "\"num_target_layers\": 8", "\"num_target_layers\": 9", "depth"},
    {"vllm", 2, DROP, "num_target_layers", NULL, "?depth"},
    {"speculators", 3, DROP, "sample_from_anchor", NULL, "every-field"},
    {"speculators", 2, EDIT, "\"speculative_tokens\": 5", "\"speculative_tokens\": 6", "tokens"},
    {"speculators", 3, EDIT, "\"speculative_tokens\": 6", "\"speculative_tokens\": 5", "tokens"},
    {"speculators", 2, EDIT, "\"speculative_tokens\": 5", "\"speculative_tokens\": 0", "proposal"},
    {"vllm", 4, DROP, "dflash_config.selector_rank", NULL, "parts"},
    {"sglang", 4, DROP, "dflash_config.conv_kernel_size", NULL, "parts"},
    {"sglang", 4, EDIT, "\"conv_kernel_size\": 2", "\"conv_kernel_size\": 7", "parts"},
    {"vllm", 4, EDIT, "\"conv_group_size\": 8", "\"conv_group_size\": 7", "parts"},
    {"speculators", 4, EDIT, "\"selector_top_k\": 6", "\"selector_top_k\": 98", "parts"},
    {"vllm", 4, EDIT, "DFlash2DraftModel", "DFlashDraftModel", "parts"},
    {"vllm", 2, EDIT, "\"mask_token_id\": 9", "\"selector_rank\": 4, \"mask_token_id\": 9", "parts"},
    {"vllm", 2, EDIT, "\"full_attention\"", "\"sliding_attention\"", "both-ways"},
    {"vllm", 2, EDIT, "\"is_causal\": false", "\"is_causal\": true", "both-ways"},
    {"sglang", 3, EDIT, "\"is_causal\": false", "\"is_causal\": true", "both-ways"},
    {"speculators", 2, EDIT, "\"is_causal\": false", "\"is_causal\": true", "both-ways"},
    {"vllm", 4, EDIT, "\"mask_token_id\": 9", "\"causal\": true, \"mask_token_id\": 9", "both-ways"},
    {"vllm", 2, WITHOUT, "layers.1.self_attn.k_norm.weight", NULL, "names"},
    {"vllm", 3, WITHOUT, "confidence_head.proj.bias", NULL, "names"},
    {"vllm", 4, WITHOUT, "layers.0.attention_conv.base_kernel", NULL, "names"},
    {"vllm", 3, EDIT, "\"markov_head_type\": \"vanilla\"", "\"markov_head_type\": \"gated\"", "names"},
    {"speculators", 5, EDIT, "\"markov_head_type\": \"rnn\"", "\"markov_head_type\": \"vanilla\"", "names"},
    {"sglang", 5, WITHOUT, "markov_head.joint_proj.bias", NULL, "names"},
    {"vllm", 3, EDIT, "\"markov_head_type\": \"vanilla\"", "\"markov_head_type\": \"gated\"", "heads"},
    {"speculators", 3, EDIT, "\"markov_head_type\": \"vanilla\"", "\"markov_head_type\": \"linear\"", "heads"},
    {"sglang", 3, DROP, "markov_rank", NULL, "heads"},
    {"sglang", 2, RENAME, "hidden_norm.weight", "context_norm.weight", "names"},
    {"sglang", 2, VECTOR, "fc.bias", NULL, "names"},
    {"vllm", 3, EDIT, "\"markov_rank\": 7", "\"markov_rank\": 8", "shapes"},
    {"speculators", 4, EDIT, "\"selector_rank\": 5", "\"selector_rank\": 6", "shapes"},
    {"vllm", 2, EDIT, "\"intermediate_size\": 80", "\"intermediate_size\": 96", "shapes"},
    {"speculators", 2, NARROW, "embed_tokens.weight", NULL, "shapes"},
    {"speculators", 2, EDIT, "\"draft_vocab_size\": 97", "\"draft_vocab_size\": 96", "draft-vocab"},
    {"vllm", 2, DROP, "intermediate_size", NULL, "every-field"},
    {"vllm", 3, EDIT, "\"torch_dtype\": \"bfloat16\"", "\"torch_dtype\": \"float16\"", "types-agree"},
    {"sglang", 2, EDIT, "\"max_position_embeddings\": 256", "\"max_position_embeddings\": 128", "positions"},
};

// Engines that read no block drafters say so; a drafter's folder is no puzzle of broken rules then.
static void no_blocks(void **state) {
    (void)state;
    pl_check_count n;
    pl_err         err = {0};
    served_export(&w, "vllm", SERVED_FLASH, w.target, false);
    assert_int_equal(pl_check_folder(pl_export_engine_find("eagle", &err), w.out, NULL, NULL, NULL, &n, &err),
                     PL_E_UNSUPPORTED);
    assert_non_null(strstr(err.msg, "a block drafter, which is not known to be served by eagle"));
}

// norm_before_fc counts where eagle_config has it, and for TensorRT-LLM there alone.
static void norm_of_fc(void **state) {
    (void)state;
    pl_backbone_options o = {.n_taps = 3, .tap = {2, 4, 5}, .norm_before_fc = true};
    served_other(&w, &pl_backbone_eagle3, &o);
    static const char *const engines[] = {"vllm", "sglang", "trtllm"};
    for (int i = 0; i < 3; i++) {
        const char *name = engines[i];
        served_export(&w, name, SERVED_OTHER, w.target, false);
        served_told h = check(name, w.target);
        if (*h.broken || *h.unseen) fail_msg("%s: %s", name, h.why);
        served_drop(w.out, "eagle_config.norm_before_fc");
        h = check(name, w.target);
        assert_string_equal(h.broken, i == 2 ? "norm-place " : "");
        served_export(&w, name, SERVED_OTHER, w.target, false);
        served_edit(w.out, "  \"norm_before_fc\": true", "  \"norm_before_fc\": false"); // of the two the top one
        h = check(name, w.target);
        assert_string_equal(h.broken, "");
        served_edit(w.out, "    \"norm_before_fc\": true", "    \"norm_before_fc\": false");
        h = check(name, w.target);
        assert_string_equal(h.broken, "names ");
    }
}

// speculators 0.9 writes no copies of the target's embeddings and head, but a head of fewer tokens.
static void no_copies(void **state) {
    (void)state;
    pl_backbone_options o = {.layers = 1, .n_taps = 3, .tap = {2, 4, 5}, .block = 4, .own_head = true};
    for (int few = 0; few < 2; few++) {
        o.d2t = few ? w.d2t : NULL;
        o.draft_vocab = few ? SERVED_ROWS : 0;
        served_other(&w, &pl_backbone_dflash, &o);
        served_export(&w, "speculators", SERVED_OTHER, w.target, false);
        served_replace(w.out, "embed_tokens.weight", &(pl_st_source){.name = "embed_tokens.weight"});
        served_told h = check("speculators", w.target);
        assert_string_equal(h.broken, "");
        served_replace(w.out, "lm_head.weight", &(pl_st_source){.name = "lm_head.weight"});
        h = check("speculators", w.target);
        if (few) assert_non_null(strstr(h.broken, "names "));
        if (!few) assert_string_equal(h.broken, "");
    }
}

// vLLM captures the last layer's output, and speculators takes its hidden states from vLLM; others do not capture it.
static void last_layer(void **state) {
    (void)state;
    static const char *const engines[] = {"vllm", "speculators", "sglang", "trtllm"};
    pl_backbone_options      o = {.layers = 1, .n_taps = 3, .tap = {2, 4, SERVED_LAYERS}, .block = 4};
    for (int block = 0; block < 2; block++) {
        served_other(&w, block ? &pl_backbone_dflash : &pl_backbone_eagle3, &o);
        for (int i = 0; i < 4; i++) {
            served_export(&w, engines[i], SERVED_OTHER, w.target, false);
            served_told h = check(engines[i], w.target);
            assert_string_equal(h.broken, i < 2 ? "" : "last-layer ");
        }
    }
}

// vLLM does not count speculators' list: it assumes three layers if their number is missing.
static void other_than_three(void **state) {
    (void)state;
    for (int n = 2; n < 5; n++) {
        pl_backbone_options o = {.n_taps = n, .tap = {2, 4, 5, 6}};
        served_other(&w, &pl_backbone_eagle3, &o);
        served_export(&w, "speculators", SERVED_OTHER, w.target, false);
        served_told h = check("speculators", w.target);
        if (*h.broken || *h.unseen) fail_msg("%s", h.why);
        served_drop(w.out, "transformer_layer_config.num_aux_hidden_states");
        h = check("speculators", w.target);
        assert_string_equal(h.broken, n == 3 ? "" : "layers-counted ");
    }
}

// Without is_causal, sliding_window_non_causal must be true: otherwise vLLM takes layers for causal, except DSpark's.
static void causal_layers(void **state) {
    (void)state;
    for (int which = SERVED_FLASH; which <= SERVED_SPARK; which++)
        for (int missing = 0; missing < 2; missing++) {
            served_export(&w, "speculators", which, w.target, false);
            if (!missing) served_edit(w.out, "_non_causal\": true", "_non_causal\": false");
            served_told h = check("speculators", w.target);
            assert_string_equal(h.broken, "");
            served_drop(w.out, "transformer_layer_config.is_causal");
            if (missing) served_drop(w.out, "sliding_window_non_causal");
            h = check("speculators", w.target);
            assert_string_equal(h.broken, which == SERVED_FLASH ? "non-causal " : "");
        }
}

static void export_refused(const char *engine, const char *says) {
    pl_err    err = {0};
    char     *serve = NULL;
    pl_status st = pl_export_write(pl_export_engine_find(engine, &err), w.checkpoint[SERVED_OTHER], w.target, w.out,
                                   false, &(pl_env){0}, &serve, &err);
    if (st == PL_OK || !strstr(err.msg, says)) fail_msg("%s: \"%s\"", says, err.msg);
}

// Windows: in all layers, in some, causal or in both directions. What is exported is read back as it was; engines that
// are not given a window, and forms that cannot say which layers are causal, are refused by name.
static void windows(void **state) {
    (void)state;
    static const struct {
        uint8_t      layers; // with a window, as bits
        pl_hf_causal causal;
    } of[] = {{3, PL_HF_CAUSAL_NONE}, {1, PL_HF_CAUSAL_NONE}, {3, PL_HF_CAUSAL_WINDOWS}, {1, PL_HF_CAUSAL_WINDOWS}};
    static const char *const engines[] = {"vllm", "sglang", "speculators"};
    for (int i = 0; i < 4; i++) {
        pl_hf_config like = {.sliding_window = 40, .windowed = {of[i].layers}, .block = {.causal = of[i].causal}};
        served_other(
            &w, &pl_backbone_dflash,
            &(pl_backbone_options){
                .layers = 2, .block = 6, .mask_token = 9, .n_taps = 3, .tap = {2, 4, 5}, .like_windows = &like});
        for (int k = 0; k < 3; k++) {
            pl_hf_config            c;
            const pl_import_format *f;
            bool                    stated;
            pl_err                  err = {0};
            if (k == 2 && i == 3) continue;
            served_export(&w, engines[k], SERVED_OTHER, w.target, false);
            served_told h = check(engines[k], w.target);
            if (*h.broken || *h.unseen) fail_msg("%s, %d: %s", engines[k], i, h.why);
            if (pl_import_config(&c, &f, &stated, w.out, &err) != PL_OK) fail_msg("%s, %d: %s", engines[k], i, err.msg);
            assert_int_equal(c.sliding_window, 40);
            like.num_hidden_layers = 2;
            for (int l = 0; l < 2; l++)
                if (pl_hf_windowed(&c, l) != pl_hf_windowed(&like, l) ||
                    pl_hf_causal_in(&c, l) != pl_hf_causal_in(&like, l))
                    fail_msg("%s, %d: layer %d", engines[k], i, l);
            served_drop(w.out, k == 2 ? "transformer_layer_config.use_sliding_window" : "use_sliding_window");
            h = check(engines[k], w.target);
            served_expect(&h, "both-ways", i);
        }
        export_refused("trtllm", "layers with a sliding window, which trtllm is not given");
        if (i == 3) export_refused("speculators", "causal layers beside others, which speculators' form cannot say");
    }
    pl_hf_config all = {.block = {.causal = PL_HF_CAUSAL_ALL}};
    served_other(&w, &pl_backbone_dflash,
                 &(pl_backbone_options){
                     .layers = 2, .block = 6, .mask_token = 9, .n_taps = 3, .tap = {2, 4, 5}, .like_windows = &all});
    export_refused("vllm", "causal blocks in a layer without a window");
    served_other(&w, &pl_backbone_eagle3, &(pl_backbone_options){.n_taps = 3, .tap = {2, 4, 5}, .window = 40});
    export_refused("sglang", "a sliding window in an EAGLE-3 head, which no engine knows");
}

// speculators' class has no width of the target's beside its own.
static void no_width(void **state) {
    (void)state;
    served_export(&w, "speculators", 0, w.target, false);
    served_edit(w.out, "\"target_hidden_size\": 48", "\"target_hidden_size\": 64");
    served_told h = check("speculators", NULL);
    assert_non_null(strstr(h.broken, "embeddings "));
    assert_non_null(strstr(h.why, "where speculators takes the target's width"));
}

// Class names of older versions of speculators.
static void older_classes(void **state) {
    (void)state;
    static const struct {
        int         which;
        const char *now, *older;
    } names[] = {{0, "Eagle3DraftModel", "Eagle3Speculator"},
                 {SERVED_FLASH, "DFlashDraftModel", "DFlashSpeculator"},
                 {SERVED_SPARK, "DSparkDraftModel", "DSparkSpeculator"}};
    for (size_t i = 0; i < sizeof names / sizeof *names; i++) {
        served_export(&w, "speculators", names[i].which, w.target, false);
        served_edit(w.out, names[i].now, names[i].older);
        served_told h = check("speculators", w.target);
        if (*h.broken || *h.unseen) fail_msg("%s: %s", names[i].older, h.why);
    }
}

static void replace_map(const char *what) {
    int64_t wide[SERVED_ROWS];
    int32_t narrow[SERVED_ROWS];
    bool    small = strcmp(what, "narrow") == 0;
    for (int i = 0; i < SERVED_ROWS; i++) {
        int32_t id = strcmp(what, "others") == 0 && i == 3 ? 96 : w.d2t[i]; // one that is not marked
        if (strcmp(what, "twice") == 0 && i == 3) id = w.d2t[4];
        if (strcmp(what, "zeros") == 0) id = i;
        if (strcmp(what, "half") == 0) id = i < 20 ? 40 + i : i;
        narrow[i] = strcmp(what, "ids") == 0 ? id : id - i;
        wide[i] = narrow[i];
    }
    served_replace(w.out, "d2t",
                   &(pl_st_source){.name = "d2t",
                                   .dtype = small ? PL_I32 : PL_I64,
                                   .rank = 1,
                                   .shape = {SERVED_ROWS},
                                   .data = small ? (const void *)narrow : wide});
}

static void break_it(const breaking *b) {
    static const float zeros[48 * 144] = {0}; // of 2 bytes, more than the vocabulary has
    switch (b->how) {
    case EDIT: served_edit(w.out, b->from, b->to); break;
    case DROP: served_drop(w.out, b->from); break;
    case WITHOUT: served_replace(w.out, b->from, &(pl_st_source){.name = b->from}); break;
    case RENAME: served_rename(w.out, b->from, b->to); break;
    case VECTOR:
        served_replace(w.out, b->from,
                       &(pl_st_source){.name = b->from, .dtype = PL_BF16, .rank = 1, .shape = {48}, .data = zeros});
        break;
    case MATRIX:
        served_replace(w.out, b->from,
                       &(pl_st_source){.name = b->from, .dtype = PL_F32, .rank = 2, .shape = {48, 144}, .data = zeros});
        break;
    case NARROW:
        served_replace(
            w.out, b->from,
            &(pl_st_source){.name = b->from, .dtype = PL_BF16, .rank = 2, .shape = {TEST_VOCAB, 1}, .data = zeros});
        break;
    case COPY:
        served_replace(
            w.out, b->from,
            &(pl_st_source){.name = b->from, .dtype = PL_BF16, .rank = 2, .shape = {TEST_VOCAB, 48}, .data = zeros});
        break;
    case MAP: replace_map(b->from); break;
    }
}

static void broken_by_name(void **state) {
    (void)state;
    enum { CASES = sizeof cases / sizeof *cases };
    bool marked = false;
    for (int i = 0; i < SERVED_ROWS; i++)
        marked |= w.d2t[i] == 96;
    assert_false(marked);
    for (int i = 0; i < CASES; i++) {
        const breaking *b = &cases[i];
        served_export(&w, b->engine, b->trimmed, w.target, false);
        break_it(b);
        served_told h = check(b->engine, w.target);
        served_expect(&h, b->rule, i);
    }
    print_message("%d folders, each refused by the name of its rule\n", CASES);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(exports_hold),     cmocka_unit_test(broken_by_name), cmocka_unit_test(no_blocks),
        cmocka_unit_test(no_width),         cmocka_unit_test(causal_layers),  cmocka_unit_test(norm_of_fc),
        cmocka_unit_test(other_than_three), cmocka_unit_test(last_layer),     cmocka_unit_test(no_copies),
        cmocka_unit_test(older_classes),    cmocka_unit_test(windows)};
    return cmocka_run_group_tests(tests, setup, teardown);
}
