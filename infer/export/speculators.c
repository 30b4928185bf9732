// The format of vLLM's speculators library (Eagle3DraftModel, DFlashDraftModel, XPressDraftModel ...), that vLLM serves
// too. The folder alone (`vllm serve DIR`) suffices only if the verifier is named as a Hugging Face repository and the
// working directory has no file of that name (0.33), so the command names both. transformer_layer_config has all of the
// layer's sizes, since a missing one gets a default of the model_type; norm_before_residual has two defaults, so it is
// always written. Embeddings are a copy of the target's if the drafter has none of its own, and so is a block drafter's
// head if it is the target's; the library supports only drafters of the target's width. vLLM's reader of this form
// (transformers_utils/configs/speculators/algos.py) passes fc_norm on for eagle3 and drops it for peagle.
#include "infer/drafter/backbone.h"
#include "infer/export/rules.h"
#include "kernels/base/json.h"

#include <string.h>

#define LAYER "transformer_layer_config"

static const char *const types[] = {"eagle3", "peagle", "dflash", "dflash2", "dspark", "xpress", "lilicorr"};

static void put_type(pl_json_out *o, const pl_export *e) {
    pl_put_str(o, "speculators_model_type", types[e->sort]);
}

static void put_proposal(pl_json_out *o, const pl_export *e) {
    pl_put_object(o, "speculators_config");
    pl_put_str(o, "algorithm", types[e->sort]);
    pl_put_str(o, "default_proposal_method", "greedy");
    pl_put_array(o, "proposal_methods");
    pl_json_out_object(o);
    pl_put_str(o, "proposal_type", "greedy");
    pl_put_int(o, "speculative_tokens", e->tokens);
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

static void put_direction(pl_json_out *o, const pl_export *e) {
    pl_put_bool(o, "sliding_window_non_causal", e->config.block.causal == PL_HF_CAUSAL_NONE);
}

static bool is_step(const pl_export *e) {
    return !pl_export_is_block(e);
}

static const pl_export_row refiner[] = {{PL_INT("xpress_rank", refiner_rank)},
                                        {PL_INT("xpress_mlp_ratio", refiner_ratio)},
                                        {PL_INT("num_jacobi_passes", passes)},
                                        {0}};
static const pl_export_row
    first[] = {{PL_ROWS(pl_rows_class)},
               {"speculators_model_type", PL_ROW_PUT, .put = put_type},
               {PL_INT("draft_vocab_size", rows), .need = PL_ROW_NEEDED},
               {PL_INT("target_hidden_size", config.target_hidden_size)},
               {0}},
    layer[] = {{PL_ROWS(pl_rows_layer)},
               {"layer_types", PL_ROW_PUT, .put = pl_export_put_layer_types, .when = pl_export_has_window},
               {PL_INT("num_aux_hidden_states", n_taps), .when = is_step}, // vLLM (0.33) assumes 3 if it is missing
               {0}},
    rest[] = {{"tie_word_embeddings", PL_ROW_BOOL, .rule = "untied"},
              {PL_ROWS(pl_rows_dtype)},
              {.key = LAYER, PL_ROWS(layer)},
              {"speculators_config", PL_ROW_PUT, .put = put_proposal},
              {0}},
    rows[] = {{PL_ROWS(first)},
              {PL_INT("mask_token_id", config.block.mask_token), .when = pl_export_is_parallel},
              {PL_ROWS(pl_rows_norms)},
              {PL_BOOL("embed_requires_grad", own_embed)},
              {.key = "eagle_aux_hidden_state_layer_ids", .type = PL_ROW_TAPS},
              {PL_ROWS(rest)},
              {0}},
    // Readers have different defaults for sample_from_anchor. sliding_window_non_causal refers to layers with a window,
    // but vLLM (0.33) applies it to all layers: false would make them causal.
    blocks[] = {{PL_ROWS(first)},
                {PL_INT("block_size", config.block.size)},
                {PL_INT("mask_token_id", config.block.mask_token)},
                {.key = "aux_hidden_state_layer_ids", .type = PL_ROW_TAPS},
                {PL_BOOL("sample_from_anchor", config.block.anchor_first), .need = PL_ROW_NEEDED},
                {"sliding_window_non_causal", PL_ROW_PUT, .put = put_direction},
                {PL_ROWS(pl_rows_markov), .when = pl_export_is_dspark},
                {PL_ROWS(pl_rows_second)},
                {PL_ROWS(refiner), .when = pl_export_is_xpress},
                {PL_ROWS(rest)},
                {0}};

// ---- rules ----

static pl_check_verdict check_kind(pl_look *k) {
    const char *type = pl_look_text(k, NULL, "speculators_model_type");
    if (strcmp(type, types[k->e.sort]) == 0) return PL_CHECK_HOLDS;
    return pl_broken(k, "speculators_model_type: %s; expected %s", *type ? type : "missing", types[k->e.sort]);
}

// Checks that norm_before_residual is stated: its default is true in vLLM, false in speculators.
static pl_check_verdict check_norms_stated(pl_look *k) {
    for (int i = 0; i < PL_HF_NORMS; i++)
        if (pl_look_flag(k, NULL, pl_hf_norm_names[i]) < 0)
            return pl_broken(k, "%s is missing, and defaults differ", pl_hf_norm_names[i]);
    return PL_CHECK_HOLDS;
}

static int64_t proposed(const pl_look *k) {
    const cJSON *list = pl_look_member(k, NULL, "speculators_config.proposal_methods");
    return list && cJSON_IsArray(list) && list->child ? pl_look_int(k, list->child, "speculative_tokens") : -1;
}

static pl_check_verdict check_proposal(pl_look *k) {
    if (proposed(k) < 1)
        return pl_broken(
            k, "speculators_config.proposal_methods[0].speculative_tokens is missing: how many are drafted by default");
    if (!*pl_look_text(k, NULL, "speculators_config.verifier.name_or_path"))
        return pl_broken(k, "speculators_config.verifier.name_or_path is missing: which target is served");
    return PL_CHECK_HOLDS;
}

static pl_check_verdict check_tokens(pl_look *k) {
    const pl_hf_block *b = &k->e.config.block;
    int64_t            n = proposed(k), drafted = b->size - !b->anchor_first;
    if (n == drafted || n < 1) return PL_CHECK_HOLDS; // proposal reports it
    return pl_broken(k, "speculative_tokens: %lld, a block drafts %lld", (long long)n, (long long)drafted);
}

static pl_check_verdict check_non_causal(pl_look *k) {
    int  both = pl_look_flag(k, NULL, "sliding_window_non_causal"), causal = pl_look_flag(k, k->layer, "is_causal");
    bool windows = pl_look_all_windows(k);
    if (windows && both >= 0 && causal == both)
        return pl_broken(k, "sliding_window_non_causal and is_causal: both %s", both ? "true" : "false");
    if (k->e.sort == PL_EXPORT_DSPARK || both == 1 || causal == 0 || (both == 0 && windows)) return PL_CHECK_HOLDS;
    return pl_broken(k, both < 0 ? "sliding_window_non_causal is missing, and defaults differ"
                                 : "sliding_window_non_causal: false, which vLLM takes for causal layers");
}

static pl_check_verdict check_served_heads(pl_look *k) {
    if (k->e.sort != PL_EXPORT_DSPARK || k->s.markov_form <= PL_HF_MARKOV_VANILLA) return PL_CHECK_HOLDS;
    return pl_unseen(k, "a %s Markov head, which speculators computes and vLLM (0.33) does not",
                     pl_hf_markov_name(k->s.markov_form));
}

static pl_check_verdict check_served_refiner(pl_look *k) {
    if (k->e.sort != PL_EXPORT_XPRESS) return PL_CHECK_HOLDS;
    return pl_unseen(k, "an xPress refiner, which speculators computes and vLLM (0.33) does not");
}

static const pl_check_rule rules[] = {
    {"kind", "speculators_model_type is the class's", check_kind, PL_CHECK_ALL},
    {"norms-stated", "EAGLE-3.1's switches are written, since defaults differ", check_norms_stated, PL_CHECK_STEP},
    {"proposal", "how many tokens are drafted, and for which target", check_proposal, PL_CHECK_ALL},
    {"tokens", "drafted are as many as a block drafts", check_tokens, PL_CHECK_BLOCK},
    {"non-causal", "layers that vLLM does not take for causal", check_non_causal, PL_CHECK_BLOCK},
    {"served-heads", "a Markov head that vLLM computes too", check_served_heads, PL_CHECK_BLOCK | PL_CHECK_WARNS},
    {"served-refiner", "no refiner, which vLLM does not compute", check_served_refiner,
     PL_CHECK_BLOCK | PL_CHECK_WARNS},
    {0}};

const pl_export_engine pl_export_speculators = {.name = "speculators",
                                                .help = "the speculators library, whose form vLLM serves",
                                                .classes = {"Eagle3DraftModel", "PEagleDraftModel", "DFlashDraftModel",
                                                            "DFlash2DraftModel", "DSparkDraftModel",
                                                            "XPressDraftModel"},
                                                .synonyms = {[PL_EXPORT_EAGLE3] = "Eagle3Speculator",
                                                             [PL_EXPORT_DFLASH] = "DFlashSpeculator",
                                                             [PL_EXPORT_DSPARK] = "DSparkSpeculator",
                                                             [PL_EXPORT_XPRESS] = "XPressSpeculator"},
                                                .rows = rows,
                                                .blocks = blocks,
                                                .inner = LAYER,
                                                .layer = "layers.0.",
                                                .layers = PL_STEP_LAYERS,
                                                .norms = ~0U,
                                                .parallel_norms = ~(unsigned)(PL_HF_FC_NORM | PL_HF_NORM_OUTPUT),
                                                .own = PL_EXPORT_OWN_SAME,
                                                .markov = ~0U,
                                                .windows = true,
                                                .block_heads = true,
                                                .copies = true,
                                                .strict = true,
                                                .last = true,
                                                .rising = true,
                                                .wants_target = "speculators wants a copy of its embeddings",
                                                .map = &pl_export_offsets,
                                                .rules = rules,
                                                .serve = pl_export_serve_vllm};
