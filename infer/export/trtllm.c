// TensorRT-LLM's Eagle3 (PyTorch backend, models/modeling_speculative.py): its map is int32, it takes embeddings from
// the target unless the draft has another width, and an option of the engine, eagle3_layers_to_capture, lists the
// layers by outputs. It is a set: the draft's features are in ascending order of layers. The option is in trtllm.yaml,
// and config.json has a copy of the list.
//
// Its DFlash and DSpark (1.3.0rc27 on: models/modeling_dflash.py, modeling_dspark.py) find the layers' code by
// model_type, take embeddings and head from the target, capture layers as a set, and silently ignore unknown
// tensors, such as DFlash 2's parts. TensorRT-LLM's own names of DSpark's options have precedence over the published
// ones, so trtllm.yaml has all of them.
#include "infer/export/rules.h"
#include "kernels/base/arena.h"
#include "kernels/base/strbuf.h"

#include <stdio.h>

static pl_check_verdict check_norm_place(pl_look *k) {
    if (!(k->s.norms & PL_HF_NORM_BEFORE_FC) || pl_look_member(k, NULL, "eagle_config.norm_before_fc"))
        return PL_CHECK_HOLDS;
    return pl_broken(k, "norm_before_fc: true, which the engine reads in eagle_config alone");
}

static const pl_check_rule rules[] = {
    {"norm-place", "norm_before_fc stands where the engine reads it", check_norm_place, PL_CHECK_STEP}, {0}};

// Returns the options of one decoding type, up to the list of layers.
static char *make_options(const pl_export *e) {
    const pl_hf_block *b = &e->config.block;
    if (!pl_export_is_block(e))
        return pl_sprintf("  decoding_type: Eagle3\n  max_draft_len: %d\n  eagle3_layers_to_capture: ", e->tokens);
    if (e->sort != PL_EXPORT_DSPARK)
        return pl_sprintf("  decoding_type: DFlash\n  max_draft_len: %d\n  mask_token_id: %d\n  target_layer_ids: ",
                          e->tokens, b->mask_token);
    return pl_sprintf("  decoding_type: DSpark\n  max_draft_len: %d\n  block_size: %d\n  mask_token_id: %d\n"
                      "  target_layer_ids: ",
                      e->tokens, b->size, b->mask_token);
}

static char *make_yaml(const pl_export *e, const char *dir) {
    pl_strbuf   b = {0};
    pl_json_out path; // a JSON string is also a YAML string
    char        number[32];
    pl_json_out_begin(&path, 0);
    pl_json_out_str(&path, dir);
    if (pl_json_out_end(&path, NULL) != PL_OK) return NULL;
    for (int i = 0; i < e->n_taps; i++) {
        snprintf(number, sizeof number, "%s%d", i ? ", " : "", e->tap[i] - 1);
        pl_strbuf_add(&b, number, strlen(number));
    }
    char *layers = pl_strbuf_take(&b), *options = make_options(e);
    char *text = layers && options
                     ? pl_sprintf("speculative_config:\n%s[%s]\n  speculative_model: %s\n", options, layers, path.text)
                     : NULL;
    pl_free(layers);
    pl_free(options);
    pl_free(path.text);
    return text;
}

static char *make_command(const pl_export *e, const char *dir) {
    return pl_sprintf("trtllm-serve %s --extra_llm_api_options %s/trtllm.yaml", e->served, dir);
}

// Features of one layer never pass through fc.
static bool skips_fc(int64_t layers, int64_t wide, int64_t width) {
    return layers < 2 || pl_export_skips_equal(layers, wide, width);
}

static const pl_export_map map = {.type = PL_I32};

const pl_export_engine pl_export_trtllm = {.name = "trtllm",
                                           .help = "TensorRT-LLM, decoding_type Eagle3, DFlash and DSpark",
                                           .classes = {[PL_EXPORT_EAGLE3] = "LlamaForCausalLMEagle3",
                                                       [PL_EXPORT_DFLASH] = "DFlashDraftModel",
                                                       [PL_EXPORT_DSPARK] = "Qwen3DSparkModel"},
                                           .rows = pl_rows_plain,
                                           .blocks = pl_rows_block,
                                           .layer = "midlayer.",
                                           .norms = PL_HF_FC_NORM | PL_HF_NORM_OUTPUT | PL_HF_NORM_BEFORE_FC,
                                           .own = PL_EXPORT_OWN_WIDTH,
                                           .markov = 1U << PL_HF_MARKOV_VANILLA | PL_EXPORT_NO_MARKOV,
                                           .strict = true,
                                           .rising = true,
                                           .skips_fc = skips_fc,
                                           .map = &map,
                                           .rules = rules,
                                           .more = "trtllm.yaml",
                                           .more_text = make_yaml,
                                           .serve = make_command};
