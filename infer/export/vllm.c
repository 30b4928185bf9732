// vLLM: methods dflash and dspark in their authors' formats, and eagle3 with the plain config
// (model_executor/models/llama_eagle3.py). Unknown names are errors, embeddings are the target's if the file has none,
// layers are numbered by inputs.
#include "infer/drafter/backbone.h"
#include "infer/export/rules.h"
#include "kernels/base/arena.h"
#include "kernels/base/json.h"

#include <string.h>

#define EAGLE3 "LlamaForCausalLMEagle3"

// Writes the classes. P-EAGLE uses EAGLE-3's class: vLLM (0.33) prefixes "Eagle3" to names that neither begin nor end
// with it, does not find the result, and takes the next known name.
static void put_classes(pl_json_out *o, const pl_export *e) {
    pl_put_array(o, "architectures");
    if (pl_export_is_parallel(e)) pl_json_out_str(o, "PEagleDraftModel");
    pl_json_out_str(o, EAGLE3);
    pl_json_out_close(o, ']');
}

static const pl_export_row rows[] = {
    {"architectures", PL_ROW_PUT, .put = put_classes},
    {PL_ROWS(pl_rows_layer)},
    {.key = "eagle_aux_hidden_state_layer_ids", .type = PL_ROW_TAPS}, // read first; older versions read eagle_config's
    {PL_INT("mask_token_id", config.block.mask_token), .when = pl_export_is_parallel},
    {PL_INT("pard_token", config.block.mask_token), .when = pl_export_is_parallel}, // the name in older versions
    {PL_INT("num_depths", config.block.size), .when = pl_export_is_parallel},       // this program's member
    {PL_INT("target_hidden_size", config.target_hidden_size)},
    {PL_ROWS(pl_rows_inputs)},
    {0}};

static pl_check_verdict check_classes_known(pl_look *k) {
    const cJSON *list = pl_look_member(k, NULL, "architectures");
    for (const cJSON *e = k->e.sort == PL_EXPORT_PEAGLE ? list->child : NULL; e; e = e->next) {
        if (cJSON_IsString(e) && strcmp(e->valuestring, EAGLE3) == 0) break;
        if (!e->next)
            return pl_broken(k,
                             "architectures: PEagleDraftModel alone, by which vLLM looks for Eagle3PEagleDraftModel; "
                             "%s must stand behind it",
                             EAGLE3);
    }
    return PL_CHECK_HOLDS;
}

static const pl_check_rule rules[] = {
    {"second-class", "behind P-EAGLE's class stands EAGLE-3's", check_classes_known, PL_CHECK_STEP}, {0}};

char *pl_export_serve_vllm(const pl_export *e, const char *dir) {
    const char *method = !pl_export_is_block(e) ? "eagle3" : e->sort == PL_EXPORT_DSPARK ? "dspark" : "dflash";
    const char *more = !pl_export_is_parallel(e) ? ""
                       : *dir == '\''            ? " --speculative-config.parallel_drafting true"
                                                 : ", \"parallel_drafting\": true";
    // The path is in JSON inside a quoted word; a path that itself needs quotes is passed as an option instead.
    if (*dir == '\'')
        return pl_sprintf("vllm serve %s --speculative-config.method %s --speculative-config.model %s "
                          "--speculative-config.num_speculative_tokens %d%s",
                          e->served, method, dir, e->tokens, more);
    return pl_sprintf("vllm serve %s --speculative-config '{\"method\": \"%s\", \"model\": \"%s\", "
                      "\"num_speculative_tokens\": %d%s}'",
                      e->served, method, dir, e->tokens, more);
}

const pl_export_engine pl_export_vllm = {.name = "vllm",
                                         .help = "vLLM, methods eagle3 (P-EAGLE too), dflash and dspark",
                                         .classes = {EAGLE3, "PEagleDraftModel", "DFlashDraftModel",
                                                     "DFlash2DraftModel", "Qwen3DSparkModel", NULL,
                                                     "LiLiCorrDraftModel"},
                                         .rows = rows,
                                         .blocks = pl_rows_block,
                                         .layer = "midlayer.",
                                         .layers = PL_STEP_LAYERS,
                                         .norms = ~0U,
                                         .parallel_norms = ~0U,
                                         .own = PL_EXPORT_OWN_SAME | PL_EXPORT_OWN_WIDTH,
                                         .markov = 1U << PL_HF_MARKOV_VANILLA | PL_EXPORT_NO_MARKOV,
                                         .windows = true,
                                         .last = true,
                                         .rising = true,
                                         .map = &pl_export_offsets,
                                         .rules = rules,
                                         .serve = pl_export_serve_vllm};
