// vLLM, method eagle3 with the plain config (model_executor/models/llama_eagle3.py): names it does not know are errors,
// embeddings are the target's where the file has none, layers are counted by their inputs.
#include "infer/export/export.h"
#include "kernels/base/arena.h"
#include "kernels/base/json_put.h"

static void config(pl_json_out *o, const pl_export *e) {
    pl_put_array(o, "architectures");
    pl_json_out_str(o, "LlamaForCausalLMEagle3");
    pl_json_out_close(o, ']');
    pl_export_put_layer(o, e);
    pl_export_put_taps(o, "eagle_aux_hidden_state_layer_ids", e, 0); // read first; older versions read eagle_config's
    pl_export_put_eagle3(o, e, 0);
}

static char *serve(const pl_export *e, const char *dir) {
    // JSON inside a quoted word: a path that needs quotes of its own stands behind an option instead.
    if (*dir == '\'')
        return pl_sprintf("vllm serve %s --speculative-config.method eagle3 --speculative-config.model %s "
                          "--speculative-config.num_speculative_tokens %d",
                          e->served, dir, PL_EXPORT_TOKENS);
    return pl_sprintf("vllm serve %s --speculative-config '{\"method\": \"eagle3\", \"model\": \"%s\", "
                      "\"num_speculative_tokens\": %d}'",
                      e->served, dir, PL_EXPORT_TOKENS);
}

const pl_export_engine pl_export_vllm = {.name = "vllm",
                                         .help = "vLLM, method eagle3",
                                         .layer = "midlayer.",
                                         .list = "eagle_aux_hidden_state_layer_ids",
                                         .reads_outputs = pl_export_reads_inputs,
                                         .config = config,
                                         .serve = serve};
