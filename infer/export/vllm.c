// vLLM, methods dflash and dspark as their authors publish drafters, and eagle3 with the plain config
// (model_executor/models/llama_eagle3.py): names it does not know are errors, embeddings are the target's where the
// file has none, layers are counted by their inputs.
#include "infer/drafter/backbone.h"
#include "infer/export/export.h"
#include "kernels/base/arena.h"
#include "kernels/base/json_put.h"

// P-EAGLE's class is EAGLE-3's. vLLM (0.33) puts "Eagle3" before names that have it at neither end, finds nothing by
// that one, and takes the next that it knows.
static void config(pl_json_out *o, const pl_export *e) {
    pl_put_array(o, "architectures");
    if (pl_export_is_parallel(e)) pl_json_out_str(o, "PEagleDraftModel");
    pl_json_out_str(o, "LlamaForCausalLMEagle3");
    pl_json_out_close(o, ']');
    pl_export_put_layer(o, e);
    pl_export_put_taps(o, "eagle_aux_hidden_state_layer_ids", e, 0); // read first; older versions read eagle_config's
    if (pl_export_is_parallel(e)) {
        pl_put_int(o, "mask_token_id", e->config.block.mask_token);
        pl_put_int(o, "pard_token", e->config.block.mask_token); // the same, by the name that older versions ask for
        pl_put_int(o, "num_depths", e->config.block.size);       // ours
    }
    pl_export_put_width(o, e);
    pl_export_put_eagle3(o, e, 0);
}

static char *serve_by(const pl_export *e, const char *dir, const char *method, int tokens) {
    const char *more = !pl_export_is_parallel(e) ? ""
                       : *dir == '\''            ? " --speculative-config.parallel_drafting true"
                                                 : ", \"parallel_drafting\": true";
    // JSON inside a quoted word: a path that needs quotes of its own stands behind an option instead.
    if (*dir == '\'')
        return pl_sprintf("vllm serve %s --speculative-config.method %s --speculative-config.model %s "
                          "--speculative-config.num_speculative_tokens %d%s",
                          e->served, method, dir, tokens, more);
    return pl_sprintf("vllm serve %s --speculative-config '{\"method\": \"%s\", \"model\": \"%s\", "
                      "\"num_speculative_tokens\": %d%s}'",
                      e->served, method, dir, tokens, more);
}

char *pl_export_serve_vllm(const pl_export *e, const char *dir) {
    if (!pl_export_is_block(e)) return serve_by(e, dir, "eagle3", pl_export_tokens(e));
    return serve_by(e, dir, pl_export_is_dspark(e) ? "dspark" : "dflash", pl_export_block_tokens(e));
}

static const pl_export_blocks blocks = {
    .vanilla = true, .check = pl_export_check_block, .config = pl_export_put_block, .serve = pl_export_serve_vllm};

const pl_export_engine pl_export_vllm = {.name = "vllm",
                                         .help = "vLLM, methods eagle3 (P-EAGLE too), dflash and dspark",
                                         .layer = "midlayer.",
                                         .layers = PL_STEP_LAYERS,
                                         .norms = ~0U,
                                         .parallel = true,
                                         .own = PL_EXPORT_OWN_SAME | PL_EXPORT_OWN_WIDTH,
                                         .list = "eagle_aux_hidden_state_layer_ids",
                                         .last = true,
                                         .rising = true,
                                         .config = config,
                                         .blocks = &blocks,
                                         .serve = pl_export_serve_vllm};
