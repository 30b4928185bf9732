// Block drafters' config.json in the two plain forms: DFlash's and DFlash 2's, as z-lab publishes them, with their own
// members in dflash_config, and DSpark's, as DeepSpec does, with all at the top. Both count the target's layers by
// their outputs
// and have the target's head; a DSpark block drafts from its anchor on.
#include "infer/export/export.h"
#include "kernels/base/json_put.h"

#include <string.h>

bool pl_export_is_block(const pl_export *e) {
    return e->config.backbone == PL_HF_DFLASH;
}

static bool markov(const pl_export *e) {
    return strcmp(e->config.head.kind, "markov") == 0;
}

bool pl_export_is_dspark(const pl_export *e) {
    return pl_export_is_block(e) && (e->config.block.anchor_first || markov(e));
}

bool pl_export_is_second(const pl_export *e) {
    return pl_export_is_block(e) && (e->config.block.taps > 0 || e->config.selector.candidates > 0);
}

int pl_export_block_tokens(const pl_export *e) {
    return e->config.block.size - !e->config.block.anchor_first;
}

void pl_export_put_markov(pl_json_out *o, const pl_export *e) {
    pl_put_int(o, "markov_rank", markov(e) ? pl_hf_head_int(&e->config.head, "rank") : 0);
    pl_put_str(o, "markov_head_type", pl_hf_markov_name(pl_hf_markov_of(&e->config.head)));
    pl_put_bool(o, "enable_confidence_head", markov(e) && pl_hf_head_find(&e->config.head, "confidence"));
    pl_put_bool(o, "confidence_head_with_markov", true);
}

static void put_layer_types(pl_json_out *o, const pl_export *e) {
    pl_put_array(o, "layer_types");
    for (int i = 0; i < e->config.num_hidden_layers; i++)
        pl_json_out_str(o, "full_attention");
    pl_json_out_close(o, ']');
}

static int target_layers(const pl_export *e) {
    return e->config.block.target_layers ? e->config.block.target_layers : e->target_config.num_hidden_layers;
}

void pl_export_put_block(pl_json_out *o, const pl_export *e) {
    const pl_hf_block *b = &e->config.block;
    bool               dspark = pl_export_is_dspark(e);
    pl_put_array(o, "architectures");
    pl_json_out_str(o, dspark ? "Qwen3DSparkModel" : pl_export_is_second(e) ? "DFlash2DraftModel" : "DFlashDraftModel");
    pl_json_out_close(o, ']');
    pl_export_put_layer(o, e);
    put_layer_types(o, e);
    pl_put_int(o, "block_size", b->size);
    if (target_layers(e)) pl_put_int(o, "num_target_layers", target_layers(e));
    if (!dspark) pl_put_object(o, "dflash_config");
    pl_put_int(o, "mask_token_id", b->mask_token);
    pl_export_put_taps(o, "target_layer_ids", e, -1);
    if (dspark) {
        pl_export_put_markov(o, e);
        return;
    }
    pl_hf_block_put_second(o, &e->config);
    if (pl_export_is_second(e)) pl_put_bool(o, "is_causal", false);
    pl_json_out_close(o, '}');
}

// Engines' DFlash 2 has both of its parts and neither of DSpark's, and a head of all tokens.
pl_status pl_export_check_second(const pl_export *e, pl_err *err) {
    bool conv = e->config.block.taps > 0, selector = e->config.selector.candidates > 0;
    if (!pl_export_is_second(e)) return PL_OK;
    if (!conv || !selector)
        return pl_fail(err, PL_E_UNSUPPORTED, "%s: %s without %s; engines' DFlash 2 has both (drafter.%s)",
                       e->checkpoint, conv ? "convolutions" : "a selector", conv ? "a selector" : "convolutions",
                       conv ? "selector" : "conv");
    if (pl_export_is_dspark(e))
        return pl_fail(err, PL_E_UNSUPPORTED, "%s: %s, which engines' DFlash 2 has not", e->checkpoint,
                       markov(e) ? "a markov head" : "blocks that draft from their anchor");
    int rows = e->config.draft_vocab_size;
    if (rows == 0 || rows == e->config.vocab_size) return PL_OK;
    return pl_fail(err, PL_E_UNSUPPORTED, "%s: a head of %d tokens; engines' DFlash 2 has all %d", e->checkpoint, rows,
                   e->config.vocab_size);
}

pl_status pl_export_check_block(const pl_export *e, pl_err *err) {
    if (!pl_export_is_dspark(e) || e->config.block.anchor_first) return PL_OK;
    return pl_fail(err, PL_E_UNSUPPORTED,
                   "%s: a markov head whose blocks do not draft from their anchor, which DSpark's form cannot say; "
                   "export it to speculators, or train with drafter.anchor_first",
                   e->checkpoint);
}
