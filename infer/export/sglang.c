// SGLang's EAGLE3 (models/llama_eagle3.py): names it does not know are skipped in silence. Its targets add one to each
// layer's number (set_eagle3_layers_to_capture in 0.5.23; DeepSeek's and GLM's lite take lists that do not begin with 1
// as inputs). Of several draft layers it norms the input of those behind the first by what it calls hidden_norm.
// Embeddings of the target's width are the target's, whatever the file holds (set_embed); of another the file's.
#include "infer/drafter/backbone.h"
#include "infer/export/export.h"
#include "kernels/base/arena.h"

static void config(pl_json_out *o, const pl_export *e) {
    pl_export_put_width(o, e);
    pl_export_put_plain(o, e, -1);
}

// num-draft-tokens counts the root too.
static char *serve(const pl_export *e, const char *dir) {
    return pl_sprintf("python -m sglang.launch_server --model-path %s --speculative-algorithm EAGLE3 "
                      "--speculative-draft-model-path %s --speculative-num-steps %d --speculative-eagle-topk 1 "
                      "--speculative-num-draft-tokens %d",
                      e->served, dir, PL_EXPORT_TOKENS, PL_EXPORT_TOKENS + 1);
}

// The algorithm drafts blocks as long as the checkpoint's.
static char *serve_block(const pl_export *e, const char *dir) {
    return pl_sprintf("python -m sglang.launch_server --model-path %s --speculative-algorithm %s "
                      "--speculative-draft-model-path %s --speculative-num-draft-tokens %d",
                      e->served, pl_export_is_dspark(e) ? "DSPARK" : "DFLASH", dir, pl_export_block_tokens(e) + 1);
}

static const pl_export_blocks blocks = {
    .markov = true, .check = pl_export_check_block, .config = pl_export_put_block, .serve = serve_block};

const pl_export_engine pl_export_sglang = {.name = "sglang",
                                           .help = "SGLang, algorithms EAGLE3, DFLASH and DSPARK",
                                           .layer = "midlayer.",
                                           .layers = PL_STEP_LAYERS,
                                           .later_norm = "hidden_norm.weight",
                                           .norms = PL_HF_FC_NORM | PL_HF_NORM_OUTPUT | PL_HF_NORM_BEFORE_FC,
                                           .own = PL_EXPORT_OWN_WIDTH,
                                           .list = PL_EXPORT_LIST,
                                           .outputs = true,
                                           .rising = true,
                                           .skips_fc = true,
                                           .config = config,
                                           .blocks = &blocks,
                                           .serve = serve};
