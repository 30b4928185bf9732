// SGLang's EAGLE3 (models/llama_eagle3.py): unknown names are silently skipped. Its targets add one to each
// layer's number (set_eagle3_layers_to_capture in 0.5.23; DeepSeek's and GLM's lite take lists that do not begin with 1
// as inputs). With several draft layers, the input norm of layers after the first is hidden_norm.
// Embeddings of the target's width are always the target's (set_embed), those of another width the file's.
#include "infer/drafter/backbone.h"
#include "infer/export/export.h"
#include "kernels/base/arena.h"

// Returns the command. num-draft-tokens includes the root. Blocks have the checkpoint's length.
static char *make_command(const pl_export *e, const char *dir) {
    if (pl_export_is_block(e))
        return pl_sprintf("python -m sglang.launch_server --model-path %s --speculative-algorithm %s "
                          "--speculative-draft-model-path %s --speculative-num-draft-tokens %d",
                          e->served, e->sort == PL_EXPORT_DSPARK ? "DSPARK" : "DFLASH", dir, e->tokens + 1);
    return pl_sprintf("python -m sglang.launch_server --model-path %s --speculative-algorithm EAGLE3 "
                      "--speculative-draft-model-path %s --speculative-num-steps %d --speculative-eagle-topk 1 "
                      "--speculative-num-draft-tokens %d",
                      e->served, dir, e->tokens, e->tokens + 1);
}

const pl_export_engine pl_export_sglang = {
    .name = "sglang",
    .help = "SGLang, algorithms EAGLE3, DFLASH and DSPARK",
    .classes = {"LlamaForCausalLMEagle3", NULL, "DFlashDraftModel", "DFlash2DraftModel", "Qwen3DSparkModel", NULL,
                "LiLiCorrDraftModel"},
    .rows = pl_rows_plain,
    .blocks = pl_rows_block,
    .layer = "midlayer.",
    .layers = PL_STEP_LAYERS,
    .later_norm = "hidden_norm.weight",
    .norms = PL_HF_FC_NORM | PL_HF_NORM_OUTPUT | PL_HF_NORM_BEFORE_FC,
    .own = PL_EXPORT_OWN_WIDTH,
    .markov = 1U << PL_HF_MARKOV_VANILLA | 1U << PL_HF_MARKOV_GATED | 1U << PL_HF_MARKOV_RNN,
    .windows = true,
    .rising = true,
    .skips_fc = pl_export_skips_equal,
    .map = &pl_export_offsets,
    .serve = make_command};
