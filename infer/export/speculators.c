// The format of vLLM's speculators library (Eagle3DraftModel), which vLLM serves by the folder alone. The layer's sizes
// stand in transformer_layer_config, every one of them, since what is absent is read as a default of the model_type;
// norm_before_residual has two defaults, so it is always written. Embeddings are a copy of the target's.
#include "infer/export/export.h"
#include "kernels/base/arena.h"
#include "kernels/base/json_put.h"

static void config(pl_json_out *o, const pl_export *e) {
    pl_put_array(o, "architectures");
    pl_json_out_str(o, "Eagle3DraftModel");
    pl_json_out_close(o, ']');
    pl_put_str(o, "speculators_model_type", "eagle3");
    pl_put_int(o, "draft_vocab_size", e->rows);
    pl_put_int(o, "target_hidden_size", e->config.target_hidden_size);
    pl_put_bool(o, "norm_before_residual", false);
    pl_put_bool(o, "norm_before_fc", false);
    pl_put_bool(o, "fc_norm", false);
    pl_put_bool(o, "norm_output", false);
    pl_put_bool(o, "embed_requires_grad", false);
    pl_export_put_taps(o, "eagle_aux_hidden_state_layer_ids", e, 0);
    pl_put_bool(o, "tie_word_embeddings", false);
    pl_export_put_dtype(o, e);
    pl_put_object(o, "transformer_layer_config");
    pl_export_put_layer(o, e);
    pl_json_out_close(o, '}');
    pl_put_object(o, "speculators_config");
    pl_put_str(o, "algorithm", "eagle3");
    pl_put_str(o, "default_proposal_method", "greedy");
    pl_put_array(o, "proposal_methods");
    pl_json_out_object(o);
    pl_put_str(o, "proposal_type", "greedy");
    pl_put_int(o, "speculative_tokens", PL_EXPORT_TOKENS);
    pl_put_int(o, "verifier_accept_k", 1);
    pl_put_num(o, "accept_tolerance", 0);
    pl_json_out_close(o, '}');
    pl_json_out_close(o, ']');
    pl_put_object(o, "verifier");
    pl_put_str(o, "name_or_path", e->target);
    pl_put_array(o, "architectures");
    pl_json_out_str(o, e->target_config.architecture);
    pl_json_out_close(o, ']');
    pl_json_out_close(o, '}');
    pl_json_out_close(o, '}');
}

static char *serve(const pl_export *e, const char *dir) {
    (void)e;
    return pl_sprintf("vllm serve %s", dir);
}

const pl_export_engine pl_export_speculators = {.name = "speculators",
                                                .help = "the speculators library, which vLLM serves by the folder",
                                                .layer = "layers.0.",
                                                .nested = true,
                                                .list = "eagle_aux_hidden_state_layer_ids",
                                                .strict = true,
                                                .reads_outputs = pl_export_reads_inputs,
                                                .embeddings = true,
                                                .config = config,
                                                .serve = serve};
