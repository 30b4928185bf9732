// The format of vLLM's speculators library (Eagle3DraftModel, DFlashDraftModel, DSparkDraftModel), which vLLM serves
// too: by the folder alone (`vllm serve DIR`) where the verifier is named as a repository of Hugging Face's and nothing
// of that name lies in the working directory (0.33), so the command names both. The layer's sizes stand in
// transformer_layer_config, every one of them, since what is absent is read as a default of the model_type;
// norm_before_residual has two defaults, so it is always written. Embeddings are a copy of the target's where the
// drafter has none of its own, and so is a block drafter's head where it is the target's; the library takes drafters of
// the target's width alone. vLLM's reader of this form (its transformers_utils/configs/speculators/algos.py) hands
// fc_norm on for eagle3 and drops it for peagle.
#include "infer/drafter/backbone.h"
#include "infer/export/export.h"
#include "kernels/base/json_put.h"
#include "kernels/base/log.h"

static void put_class(pl_json_out *o, const char *class, const char *type, const pl_export *e) {
    pl_put_array(o, "architectures");
    pl_json_out_str(o, class);
    pl_json_out_close(o, ']');
    pl_put_str(o, "speculators_model_type", type);
    pl_put_int(o, "draft_vocab_size", e->rows);
    pl_export_put_width(o, e);
}

static void put_rest(pl_json_out *o, const char *algorithm, int tokens, const pl_export *e) {
    pl_put_bool(o, "tie_word_embeddings", false);
    pl_export_put_dtype(o, e);
    pl_put_object(o, "transformer_layer_config");
    pl_export_put_layer(o, e);
    if (!pl_export_is_block(e)) pl_put_int(o, "num_aux_hidden_states", e->n_taps); // which vLLM (0.33) takes for three
    pl_json_out_close(o, '}');
    pl_put_object(o, "speculators_config");
    pl_put_str(o, "algorithm", algorithm);
    pl_put_str(o, "default_proposal_method", "greedy");
    pl_put_array(o, "proposal_methods");
    pl_json_out_object(o);
    pl_put_str(o, "proposal_type", "greedy");
    pl_put_int(o, "speculative_tokens", tokens);
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

static void config(pl_json_out *o, const pl_export *e) {
    bool        parallel = pl_export_is_parallel(e);
    const char *type = parallel ? "peagle" : "eagle3";
    put_class(o, parallel ? "PEagleDraftModel" : "Eagle3DraftModel", type, e);
    if (parallel) pl_put_int(o, "mask_token_id", e->config.block.mask_token);
    pl_export_put_norms(o, e);
    pl_put_bool(o, "embed_requires_grad", e->own_embed);
    pl_export_put_taps(o, "eagle_aux_hidden_state_layer_ids", e, 0);
    put_rest(o, type, pl_export_tokens(e), e);
}

// Readers disagree on what a missing sample_from_anchor means. sliding_window_non_causal is about layers with a window,
// of which there are none, but vLLM (0.33) applies it to all layers: false would make them causal.
static void config_block(pl_json_out *o, const pl_export *e) {
    bool        dspark = pl_export_is_dspark(e);
    bool        second = pl_export_is_second(e);
    const char *type = dspark ? "dspark" : second ? "dflash2" : "dflash";
    put_class(o, dspark ? "DSparkDraftModel" : second ? "DFlash2DraftModel" : "DFlashDraftModel", type, e);
    pl_put_int(o, "block_size", e->config.block.size);
    pl_put_int(o, "mask_token_id", e->config.block.mask_token);
    pl_export_put_taps(o, "aux_hidden_state_layer_ids", e, 0);
    pl_put_bool(o, "sample_from_anchor", e->config.block.anchor_first);
    pl_put_bool(o, "sliding_window_non_causal", true);
    if (dspark) pl_export_put_markov(o, e);
    if (second) pl_hf_block_put_second(o, &e->config);
    put_rest(o, type, pl_export_block_tokens(e), e);
}

static pl_status check_block(const pl_export *e, pl_err *err) {
    (void)err;
    int form = pl_hf_markov_of(&e->config.head);
    if (form != PL_HF_MARKOV_VANILLA)
        pl_log_warn("%s: a %s Markov head, which speculators computes and vLLM (0.33) does not", e->checkpoint,
                    pl_hf_markov_name(form));
    return PL_OK;
}

static const pl_export_blocks blocks = {
    .copies = true, .own_head = true, .check = check_block, .config = config_block, .serve = pl_export_serve_vllm};

const pl_export_engine pl_export_speculators = {.name = "speculators",
                                                .help = "the speculators library, whose form vLLM serves",
                                                .layer = "layers.0.",
                                                .layers = PL_STEP_LAYERS,
                                                .norms = ~0U,
                                                .parallel_norms = PL_HF_FC_NORM | PL_HF_NORM_OUTPUT,
                                                .parallel = true,
                                                .own = PL_EXPORT_OWN_SAME,
                                                .nested = true,
                                                .list = "eagle_aux_hidden_state_layer_ids",
                                                .last = true,
                                                .rising = true,
                                                .strict = true,
                                                .embeddings = true,
                                                .config = config,
                                                .blocks = &blocks,
                                                .serve = pl_export_serve_vllm};
