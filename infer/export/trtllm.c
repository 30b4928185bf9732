// TensorRT-LLM's Eagle3 (PyTorch backend, models/modeling_speculative.py): its map is int32, it takes embeddings from
// the target unless the draft has another width, and an option of the engine, eagle3_layers_to_capture, tells it the
// layers, by their outputs. That is a set: the draft's features come in rising order whatever the list says. The option
// stands in trtllm.yaml, and config.json has a copy of the list.
//
// Its DFlash and DSpark (1.3.0rc27 on: models/modeling_dflash.py, modeling_dspark.py) find the layers' code by
// model_type, take embeddings and head from the target, capture layers as a set, and drop without a word what they do
// not know, such as DFlash 2's parts. DSpark's options are looked for under names of its own before the published ones,
// so trtllm.yaml says them all.
#include "infer/export/export.h"
#include "kernels/base/arena.h"
#include "kernels/base/strbuf.h"

#include <stdio.h>

static void config(pl_json_out *o, const pl_export *e) {
    pl_export_put_width(o, e);
    pl_export_put_plain(o, e, -1);
}

// The options of one decoding type, up to the list of layers.
static char *options_of(const pl_export *e) {
    const pl_hf_block *b = &e->config.block;
    if (!pl_export_is_block(e))
        return pl_sprintf("  decoding_type: Eagle3\n  max_draft_len: %d\n  eagle3_layers_to_capture: ",
                          PL_EXPORT_TOKENS);
    if (!pl_export_is_dspark(e))
        return pl_sprintf("  decoding_type: DFlash\n  max_draft_len: %d\n  mask_token_id: %d\n  target_layer_ids: ",
                          pl_export_block_tokens(e), b->mask_token);
    return pl_sprintf("  decoding_type: DSpark\n  max_draft_len: %d\n  block_size: %d\n  mask_token_id: %d\n"
                      "  target_layer_ids: ",
                      pl_export_block_tokens(e), b->size, b->mask_token);
}

static char *yaml(const pl_export *e, const char *dir) {
    pl_strbuf   b = {0};
    pl_json_out path; // a JSON string is one of YAML
    char        number[32];
    pl_json_out_begin(&path, 0);
    pl_json_out_str(&path, dir);
    if (pl_json_out_end(&path, NULL) != PL_OK) return NULL;
    for (int i = 0; i < e->n_taps; i++) {
        snprintf(number, sizeof number, "%s%d", i ? ", " : "", e->tap[i] - 1);
        pl_strbuf_add(&b, number, strlen(number));
    }
    char *layers = pl_strbuf_take(&b), *options = options_of(e);
    char *text = layers && options
                     ? pl_sprintf("speculative_config:\n%s[%s]\n  speculative_model: %s\n", options, layers, path.text)
                     : NULL;
    pl_free(layers);
    pl_free(options);
    pl_free(path.text);
    return text;
}

static char *serve(const pl_export *e, const char *dir) {
    return pl_sprintf("trtllm-serve %s --extra_llm_api_options %s/trtllm.yaml", e->served, dir);
}

static const pl_export_blocks blocks = {
    .vanilla = true, .plain = true, .check = pl_export_check_block, .config = pl_export_put_block, .serve = serve};

const pl_export_engine pl_export_trtllm = {.name = "trtllm",
                                           .help = "TensorRT-LLM, decoding_type Eagle3, DFlash and DSpark",
                                           .layer = "midlayer.",
                                           .norms = PL_HF_FC_NORM | PL_HF_NORM_OUTPUT | PL_HF_NORM_BEFORE_FC,
                                           .list = PL_EXPORT_LIST,
                                           .strict = true,
                                           .outputs = true,
                                           .map32 = true,
                                           .own = PL_EXPORT_OWN_WIDTH,
                                           .rising = true,
                                           .skips_fc = true,
                                           .fc_layers = 2,
                                           .config = config,
                                           .blocks = &blocks,
                                           .more = "trtllm.yaml",
                                           .more_text = yaml,
                                           .serve = serve};
