// Drafters of targets with gated delta nets: exports that keep the rules of the engines that serve them, and configs of
// published ones, which are read or refused by rule.
#include "tests/infer/served.h"

#include "checkpoints/gguf.h"
#include "infer/drafter/dflash.h"
#include "infer/import/import.h"
#include "kernels/base/arena.h"
#include "kernels/base/files.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <string.h>

#include <cmocka.h>

enum { EAGLE, FLASH, SPARK, LAST, DRAFTERS };

static served_world w;

static int setup(void **state) {
    (void)state;
    pl_hf_head markov = pl_hf_head_make("markov", 7);
    test_mkdir(w.base);
    snprintf(w.target, sizeof w.target, "%s/target", w.base);
    snprintf(w.out, sizeof w.out, "%s/out", w.base);
    assert_int_equal(pl_dir_make(w.target, NULL), PL_OK);
    test_target_family(&w.model, w.target, "Qwen3_5", SERVED_LAYERS, 41, PL_BF16);
    for (int i = 0; i < DRAFTERS; i++) {
        pl_backbone_options o = {.n_taps = 3, .tap = {2, 4, i == LAST ? SERVED_LAYERS : 5}};
        bool                block = i == FLASH || i == SPARK;
        if (block) o.layers = 2, o.block = 6, o.mask_token = 9;
        if (i == SPARK) o.anchor_first = true, o.head = markov;
        snprintf(w.checkpoint[i], sizeof w.checkpoint[i], "%s/drafter%d", w.base, i);
        assert_int_equal(pl_dir_make(w.checkpoint[i], NULL), PL_OK);
        test_backbone_write(w.checkpoint[i], &w.model, block ? &pl_backbone_dflash : &pl_backbone_eagle3, &o, 43);
    }
    return 0;
}

static int teardown(void **state) {
    (void)state;
    served_end(&w);
    return 0;
}

// config.json as Qwen3.5's are published: the decoder's members are in text_config.
static void wrap_config(char dir[96]) {
    pl_err err = {0};
    char  *text = served_text(w.target, "config.json"), path[128];
    snprintf(dir, 96, "%s/wrapped", w.base);
    pl_dir_make(dir, NULL);
    char *whole = pl_sprintf("{\"architectures\": [\"Qwen3_5ForConditionalGeneration\"], \"model_type\": \"qwen3_5\", "
                             "\"text_config\": %s}",
                             text);
    snprintf(path, sizeof path, "%s/config.json", dir);
    assert_int_equal(pl_file_write_atomic(path, whole, strlen(whole), &err), PL_OK);
    pl_free(whole);
    pl_free(text);
}

static void exports_hold(void **state) {
    (void)state;
    static const pl_export_sort sorts[] = {PL_EXPORT_EAGLE3, PL_EXPORT_DFLASH, PL_EXPORT_DSPARK};
    char                        wrapped[96];
    int                         n = 0;
    wrap_config(wrapped);
    for (int i = 0; pl_export_engine_at(i); i++)
        for (int which = EAGLE; which <= SPARK; which++) {
            const pl_export_engine *e = pl_export_engine_at(i);
            if (e->file || !e->classes[sorts[which]]) continue;
            served_export(&w, e->name, which, w.target, false);
            const char *const served[] = {w.target, wrapped};
            for (int k = 0; k < 2; k++) {
                served_told h = served_check(e->name, w.out, served[k]);
                if (*h.broken || *h.unseen) fail_msg("%s, drafter %d: %s", e->name, which, h.why);
            }
            n++;
        }
    assert_true(n > 8);
}

// The target's file has one more block than the target has layers where it holds the layer for drafting.
static void write_served(const char *path, int blocks, int drafts) {
    pl_err       err = {0};
    pl_gguf_out *o = pl_gguf_out_new();
    int32_t      ids[TEST_VOCAB] = {0};
    pl_gguf_put_text(o, "general.architecture", "qwen35");
    pl_gguf_put_u32(o, "qwen35.block_count", (uint32_t)blocks);
    pl_gguf_put_u32(o, "qwen35.nextn_predict_layers", (uint32_t)drafts);
    pl_gguf_put_u32(o, "qwen35.embedding_length", 48);
    pl_gguf_put_u32(o, "qwen35.context_length", 256);
    pl_gguf_put_f32(o, "qwen35.rope.freq_base", 10000);
    pl_gguf_put_text(o, "tokenizer.ggml.model", "gpt2");
    pl_gguf_put_i32s(o, "tokenizer.ggml.tokens", ids, TEST_VOCAB);
    if (pl_gguf_write(o, path, &err) != PL_OK) fail_msg("%s", err.msg);
    pl_gguf_out_free(o);
}

static void files_hold(void **state) {
    (void)state;
    char served[96];
    snprintf(served, sizeof served, "%s/served.gguf", w.base);
    for (int drafts = 0; drafts < 2; drafts++) {
        write_served(served, SERVED_LAYERS + drafts, drafts);
        pl_err err = {0};
        char  *serve;
        if (pl_export_write(pl_export_engine_find("gguf", &err), w.checkpoint[LAST], served, w.out, false, &(pl_env){0},
                            &serve, &err) == PL_OK ||
            !strstr(err.msg, "last-layer: reads what leaves the last layer"))
            fail_msg("%d blocks for drafting: \"%s\"", drafts, err.msg);
        for (int which = EAGLE; which <= SPARK; which++) {
            served_export(&w, "gguf", which, served, false);
            served_told h = served_check("gguf", w.out, served);
            if (*h.broken || *h.unseen) fail_msg("%d: %s", which, h.why);
        }
    }
}

// ---- published configs

#define SIZES27                                                                                                        \
    "\"hidden_size\": 5120, \"intermediate_size\": 17408, \"num_attention_heads\": 32, \"num_key_value_heads\": 8, "   \
    "\"head_dim\": 128, \"num_hidden_layers\": 5, \"vocab_size\": 248320, \"max_position_embeddings\": 262144, "       \
    "\"rms_norm_eps\": 1e-06, \"hidden_act\": \"silu\", \"attention_bias\": false, \"num_target_layers\": 64, "        \
    "\"dtype\": \"bfloat16\", \"tie_word_embeddings\": false, \"model_type\": \"qwen3\", \"rope_theta\": 10000000"
#define SIZES4                                                                                                         \
    "\"hidden_size\": 2560, \"intermediate_size\": 9728, \"num_attention_heads\": 32, \"num_key_value_heads\": 8, "    \
    "\"head_dim\": 128, \"num_hidden_layers\": 5, \"vocab_size\": 248320, \"max_position_embeddings\": 262144, "       \
    "\"rms_norm_eps\": 1e-06, \"hidden_act\": \"silu\", \"num_target_layers\": 32, \"dtype\": \"bfloat16\", "          \
    "\"model_type\": \"qwen3\", \"rope_theta\": 10000000"
#define LLAMA4                                                                                                         \
    "\"hidden_size\": 2560, \"intermediate_size\": 9216, \"num_attention_heads\": 16, \"num_key_value_heads\": 4, "    \
    "\"head_dim\": 256, \"num_hidden_layers\": 1, \"vocab_size\": 248320, \"max_position_embeddings\": 32768, "        \
    "\"rms_norm_eps\": 1e-06, \"hidden_act\": \"silu\", \"tie_word_embeddings\": false, \"model_type\": \"llama\", "   \
    "\"rope_theta\": 10000000, \"rope_scaling\": null"
#define SLIDING "\"sliding_attention\", \"sliding_attention\", \"sliding_attention\", \"sliding_attention\""

static const struct {
    const char    *from, *text, *refused; // refused NULL: read
    pl_hf_backbone backbone;
    int            first_tap, block;
    const char    *head; // kind: rank
    int            rank;
    int            windows; // layers with one, of 2048
    pl_hf_causal   causal;
} published[] = {
    {"SpecForge, Qwen3.5-4B, EAGLE-3",
     "{\"architectures\": [\"LlamaForCausalLMEagle3\"], \"draft_vocab_size\": 32000, \"torch_dtype\": \"bfloat16\", "
     "\"use_sliding_window\": false, " LLAMA4 "}",
     .backbone = PL_HF_EAGLE3},
    {"speculators, Qwen3.5-4B, EAGLE-3",
     "{\"architectures\": [\"Eagle3DraftModel\"], \"speculators_model_type\": \"eagle3\", \"draft_vocab_size\": 32000, "
     "\"norm_before_residual\": true, \"dtype\": \"bfloat16\", \"eagle_aux_hidden_state_layer_ids\": [2, 16, 29], "
     "\"transformer_layer_config\": {" LLAMA4 "}}",
     .backbone = PL_HF_EAGLE3, .first_tap = 2},
    {"SpecForge, Qwen3.5-122B-A10B, EAGLE-3",
     "{\"architectures\": [\"Qwen3MoeForCausalLMEagle3\"], \"num_experts\": 256, \"num_experts_per_tok\": 8, "
     "\"moe_intermediate_size\": 1024, \"draft_vocab_size\": 64000, " LLAMA4 "}",
     .refused = "a EAGLE-3 with a mixture of experts drafter, which is not supported"},
    {"SpecForge, Qwen3.5-4B, MTP",
     "{\"architectures\": [\"Qwen3_5MTPDraftModel\"], \"mtp_config\": {\"share_lm_head\": true}, " LLAMA4 "}",
     .refused = "a MTP drafter, which is not supported"},
    {"z-lab, Qwen3.5-4B, DFlash",
     "{\"architectures\": [\"DFlashDraftModel\"], \"block_size\": 16, \"dflash_config\": {\"mask_token_id\": 248070, "
     "\"target_layer_ids\": [1, 8, 15, 22, 29]}, " SIZES4 "}",
     .backbone = PL_HF_DFLASH, .first_tap = 1, .block = 16},
    {"z-lab, Qwen3.6-27B, DFlash",
     "{\"architectures\": [\"DFlashDraftModel\"], \"block_size\": 16, \"sliding_window\": 2048, "
     "\"use_sliding_window\": true, \"max_window_layers\": 5, \"layer_types\": "
     "[" SLIDING ", \"full_attention\"], \"dflash_config\": {\"mask_token_id\": 248070, \"target_layer_ids\": "
     "[1, 16, 31, 46, 61]}, " SIZES27 "}",
     .backbone = PL_HF_DFLASH, .first_tap = 1, .block = 16, .windows = 4, .causal = PL_HF_CAUSAL_WINDOWS},
    {"z-lab, Qwen3.8-27B, DFlash 2",
     "{\"architectures\": [\"DFlash2DraftModel\"], \"is_causal\": false, \"use_sliding_window\": true, "
     "\"max_window_layers\": 5, \"sliding_window\": 2048, \"layer_types\": [" SLIDING ", \"sliding_attention\"], "
     "\"dflash_config\": {\"block_size\": 8, \"conv_group_size\": 16, \"conv_kernel_size\": 2, \"mask_token_id\": "
     "248070, "
     "\"selector_rank\": 256, \"selector_top_k\": 16, \"target_layer_ids\": [5, 19, 33, 47, 61]}, " SIZES27 "}",
     .backbone = PL_HF_DFLASH, .first_tap = 5, .block = 8, .windows = 5},
    {"SpecForge, Qwen3.5-27B, DFlash",
     "{\"architectures\": [\"DFlashDraftModel\"], \"block_size\": 16, \"dflash_config\": {\"mask_token_id\": null, "
     "\"target_layer_ids\": [3, 15, 31, 47, 59]}, " SIZES27 "}",
     .refused = "mask_token_id"},
    {"SpecForge, Qwen3.5-4B, DSpark",
     "{\"architectures\": [\"DSparkDraftModel\"], \"block_size\": 16, \"dflash_config\": {\"mask_token_id\": 248070, "
     "\"target_layer_ids\": [1, 8, 15, 22, 29], \"projector_type\": \"dspark\", \"markov_rank\": 256, "
     "\"markov_head_type\": \"vanilla\", \"confidence_head_alpha\": 1.0, \"enable_confidence_head\": true, "
     "\"confidence_head_with_markov\": true}, \"use_sliding_window\": false, \"sliding_window\": null, " SIZES4 "}",
     .backbone = PL_HF_DFLASH, .first_tap = 1, .block = 16, .head = "markov", .rank = 256},
    {"SpecForge, Qwen3.6-27B, DSpark with the head's members apart",
     "{\"architectures\": [\"DSparkDraftModel\"], \"block_size\": 16, \"dflash_config\": {\"attention_mode\": \"gqa\", "
     "\"mask_token_id\": 248070, \"projector_type\": \"dspark\", \"target_layer_ids\": [2, 17, 32, 47, 62]}, "
     "\"dspark_config\": {\"confidence_head_with_markov\": true, \"enable_confidence_head\": true, "
     "\"markov_head_type\": \"vanilla\", \"markov_rank\": 192}, \"target_hidden_size\": null, " SIZES27 "}",
     .backbone = PL_HF_DFLASH, .first_tap = 2, .block = 16, .head = "markov", .rank = 192},
    {"RadixArk, Qwen3.8-27B, DSpark",
     "{\"architectures\": [\"DSparkDraftModel\"], \"block_size\": 7, \"markov_rank\": 256, \"mask_token_id\": 248070, "
     "\"target_layer_ids\": [5, 19, 33, 47, 61], \"rope_scaling\": {\"rope_type\": \"yarn\", \"factor\": 32.0, "
     "\"beta_fast\": 32.0, \"beta_slow\": 1.0, \"original_max_position_embeddings\": 8192}, \"dspark_config\": "
     "{\"markov_rank\": 256, \"mask_token_id\": 248070, \"target_layer_ids\": [5, 19, 33, 47, 61]}, " SIZES27 "}",
     .backbone = PL_HF_DFLASH, .first_tap = 5, .block = 7, .head = "markov", .rank = 256},
    {"Qwen3.6-27B, Domino", "{\"architectures\": [\"DominoDraftModel\"], \"block_size\": 16, " SIZES27 "}",
     .refused = "a Domino drafter, which is not supported"},
};

static void published_configs(void **state) {
    (void)state;
    char path[96];
    snprintf(path, sizeof path, "%s/published.json", w.base);
    for (size_t i = 0; i < sizeof published / sizeof *published; i++) {
        pl_err                  err = {0};
        pl_hf_config            c;
        const pl_import_format *f;
        bool                    stated;
        const char             *text = published[i].text, *from = published[i].from;
        assert_int_equal(pl_file_write_atomic(path, text, strlen(text), &err), PL_OK);
        pl_status st = pl_import_config(&c, &f, &stated, path, &err);
        if (published[i].refused) {
            if (st == PL_OK || !strstr(err.msg, published[i].refused) || strchr(err.msg, '\n'))
                fail_msg("%s: \"%s\"", from, err.msg);
            continue;
        }
        if (st != PL_OK) fail_msg("%s: %s", from, err.msg);
        const char *head = published[i].head ? published[i].head : "";
        for (int l = 0; l < c.num_hidden_layers; l++)
            if (pl_hf_windowed(&c, l) != (l < published[i].windows)) fail_msg("%s: layer %d", from, l);
        if (c.backbone != published[i].backbone || c.block.size != published[i].block ||
            strcmp(c.head.kind, head) != 0 || (*head && pl_hf_head_int(&c.head, "rank") != published[i].rank) ||
            (published[i].first_tap && c.tap[0] != published[i].first_tap) || c.vocab_size != 248320 ||
            c.sliding_window != (published[i].windows ? 2048 : 0) || c.block.causal != published[i].causal)
            fail_msg("%s: backbone %d, block %d, head %s, first tap %d", from, (int)c.backbone, c.block.size,
                     c.head.kind, c.tap[0]);
    }
}

int main(void) {
    const struct CMUnitTest tests[] = {cmocka_unit_test(exports_hold), cmocka_unit_test(files_hold),
                                       cmocka_unit_test(published_configs)};
    return cmocka_run_group_tests(tests, setup, teardown);
}
