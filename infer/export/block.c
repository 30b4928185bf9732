// Block drafters' config.json in the two plain forms: DFlash's and DFlash 2's, as z-lab publishes them, and LiLiCorr's,
// as ModelOpt does, with their own members in dflash_config, and DSpark's, as DeepSpec does, with all members at the
// top. Both number the target's layers by outputs and use the target's head; a DSpark block drafts from its anchor
// on. The rules of block drafters, which also apply to speculators' form, follow.
#include "infer/export/rules.h"
#include "kernels/base/json.h"

#include <string.h>

// ---- the table ----

static bool knows_target(const pl_export *e) {
    return e->target_layers > 0;
}

static bool is_flash(const pl_export *e) {
    return !pl_export_is_dspark(e);
}

const pl_export_row pl_rows_markov[] = {{PL_INT("markov_rank", markov_rank)},
                                        {PL_TEXT("markov_head_type", markov_form)},
                                        {PL_BOOL("enable_confidence_head", confidence)},
                                        {"confidence_head_with_markov", PL_ROW_BOOL, .text = "true"},
                                        {0}};
const pl_export_row pl_rows_second[] = {
    {PL_INT("conv_kernel_size", config.block.taps), .when = pl_export_is_second},
    {PL_INT("conv_group_size", config.block.group), .when = pl_export_is_second},
    {PL_INT("selector_rank", config.selector.rank), .when = pl_export_is_second},
    {PL_INT("selector_top_k", config.selector.candidates), .when = pl_export_is_second},
    {0}};

static bool is_convolved_lattice(const pl_export *e) {
    return pl_export_is_lilicorr(e) && e->config.block.taps > 0;
}

// No engine has defaults for these.
static const pl_export_row lattice[] = {{"projector_type", PL_ROW_TEXT, .text = "lilicorr"},
                                        {"lilicorr_enabled", PL_ROW_BOOL, .text = "true"},
                                        {PL_INT("lilicorr_candidate_topk", config.selector.candidates)},
                                        {PL_INT("lilicorr_hidden_size", config.selector.width)},
                                        {PL_INT("lilicorr_num_layers", config.selector.layers)},
                                        {PL_INT("lilicorr_num_heads", config.selector.heads)},
                                        {PL_NUM("lilicorr_mlp_ratio", config.selector.mlp_ratio)},
                                        {PL_INT("lilicorr_factor_dim", config.selector.rank)},
                                        {PL_NUM("lilicorr_vector_eps", config.selector.eps)},
                                        {PL_NUM("lilicorr_logit_scale", config.selector.scale)},
                                        {PL_INT("conv_kernel_size", config.block.taps), .when = is_convolved_lattice},
                                        {PL_INT("conv_group_size", config.block.group), .when = is_convolved_lattice},
                                        {0}};

static bool is_both_ways_second(const pl_export *e) {
    return pl_export_is_second(e) && e->config.block.causal == PL_HF_CAUSAL_NONE;
}

static const pl_export_row inner[] = {{PL_INT("mask_token_id", config.block.mask_token)},
                                      {"target_layer_ids", PL_ROW_TAPS, .shift = -1},
                                      {0}},
                           flash[] = {{PL_ROWS(inner)},
                                      {PL_ROWS(pl_rows_second)},
                                      {PL_ROWS(lattice), .when = pl_export_is_lilicorr},
                                      {"is_causal", PL_ROW_BOOL, .when = is_both_ways_second},
                                      {0}};

const pl_export_row pl_rows_block[] = {{PL_ROWS(pl_rows_class)},
                                       {PL_ROWS(pl_rows_layer)},
                                       {PL_INT("draft_vocab_size", rows), .need = PL_ROW_FOREIGN},
                                       {"layer_types", PL_ROW_PUT, .put = pl_export_put_layer_types},
                                       {PL_INT("block_size", config.block.size)},
                                       {PL_INT("num_target_layers", target_layers), .when = knows_target},
                                       {.key = "dflash_config", PL_ROWS(flash), .when = is_flash},
                                       {PL_ROWS(inner), .when = pl_export_is_dspark},
                                       {PL_ROWS(pl_rows_markov), .when = pl_export_is_dspark},
                                       {0}};

// ---- rules ----

static pl_check_verdict check_block_size(pl_look *k) {
    int top = (int)pl_look_int(k, NULL, "block_size"), size = k->e.config.block.size;
    if (size < 2) return pl_broken(k, "block_size is missing, or no block");
    if (top >= 0 && top != size) return pl_broken(k, "block_size: %d, in dflash_config %d", top, size);
    return PL_CHECK_HOLDS;
}

static pl_check_verdict check_depth(pl_look *k) {
    int n = k->e.target_layers;
    if (k->engine->inner) return PL_CHECK_HOLDS; // this form has no such member
    if (n < 0) return pl_unseen(k, "num_target_layers is missing");
    if (!k->target) return pl_unseen(k, "give --target");
    if (n == k->target->num_hidden_layers) return PL_CHECK_HOLDS;
    return pl_broken(k, "num_target_layers: %d, the target has %d", n, k->target->num_hidden_layers);
}

// Checks LiLiCorr's parts as engines demand them: no member is left out, and a power of two of candidates.
static pl_check_verdict check_lattice(pl_look *k) {
    const pl_hf_config      *c = &k->e.config;
    const pl_hf_selector    *l = &c->selector;
    const int                n[] = {l->candidates, l->width, l->layers, l->heads, l->rank};
    static const char *const key[] = {"candidate_topk", "hidden_size", "num_layers", "num_heads", "factor_dim"};
    for (int i = 0; i < 5; i++)
        if (n[i] < 1) return pl_broken(k, "lilicorr_%s is missing", key[i]);
    if (!(l->mlp_ratio > 0) || !(l->eps > 0) || !(l->scale > 0))
        return pl_broken(k, "lilicorr_mlp_ratio, _vector_eps and _logit_scale must be there, and above 0");
    if (l->candidates & (l->candidates - 1))
        return pl_broken(k, "lilicorr_candidate_topk: %d, engines take powers of two", l->candidates);
    if (l->width % l->heads != 0)
        return pl_broken(k, "lilicorr_num_heads: %d do not divide the width %d", l->heads, l->width);
    if ((c->block.taps < 1) != (c->block.group < 1))
        return pl_broken(k, "conv_kernel_size and conv_group_size: both or none");
    return PL_CHECK_HOLDS;
}

static pl_check_verdict check_parts(pl_look *k) {
    const pl_hf_config *c = &k->e.config;
    int                 taps = c->block.taps, group = c->block.group, top = c->selector.candidates;
    const int           n[] = {taps, group, c->selector.rank, top};
    bool                second = k->e.sort == PL_EXPORT_DFLASH2;
    if (k->e.sort == PL_EXPORT_LILICORR) return check_lattice(k);
    for (int i = 0; i < 4; i++) {
        if (second && n[i] < 1) return pl_broken(k, "%s is missing", pl_rows_second[i].key);
        if (!second && n[i] >= 0) return pl_broken(k, "%s: the class is not DFlash 2's", pl_rows_second[i].key);
    }
    if (!second) return PL_CHECK_HOLDS;
    if (taps > c->block.size) return pl_broken(k, "conv_kernel_size: %d, in blocks of %d", taps, c->block.size);
    if (c->hidden_size > 0 && c->hidden_size % group != 0)
        return pl_broken(k, "conv_group_size: %d does not divide the width %d", group, c->hidden_size);
    if (top > c->vocab_size) return pl_broken(k, "selector_top_k: %d, beyond the vocabulary", top);
    return PL_CHECK_HOLDS;
}

static pl_check_verdict check_heads(pl_look *k) {
    if (k->e.sort != PL_EXPORT_DSPARK) return PL_CHECK_HOLDS;
    if (k->s.markov_form < 0 || !(k->engine->markov & 1U << k->s.markov_form))
        return pl_broken(k, "markov_head_type: a %.40s Markov head, which %s does not compute", k->e.markov_form,
                         k->engine->name);
    if (!(k->engine->markov & PL_EXPORT_NO_MARKOV) && k->e.markov_rank < 1)
        return pl_broken(k,
                         "markov_rank is 0 or missing: blocks that draft from their anchor, which %s serves with a "
                         "Markov head alone",
                         k->engine->name);
    return PL_CHECK_HOLDS;
}

// Counts the layers with and without a window. Returns false if a type is neither.
static bool count_types(const pl_look *k, int *windows, int *full) {
    const cJSON *types = pl_look_member(k, k->layer, "layer_types");
    *windows = *full = 0;
    for (const cJSON *t = types && cJSON_IsArray(types) ? types->child : NULL; t; t = t->next) {
        if (!cJSON_IsString(t)) return false;
        bool is_full = strcmp(t->valuestring, "full_attention") == 0;
        if (!is_full && strcmp(t->valuestring, "sliding_attention") != 0) return false;
        ++*(is_full ? full : windows);
    }
    return true;
}

bool pl_look_all_windows(const pl_look *k) {
    int windows, full;
    return count_types(k, &windows, &full) && windows > 0 && full == 0;
}

// Checks a window as transformers' Qwen3Config hands it on: without the switch it has none, and vLLM fails.
static pl_check_verdict check_window(pl_look *k, const cJSON *in) {
    int64_t window = pl_look_int(k, k->layer, "sliding_window");
    if (!k->engine->windows) return pl_broken(k, "layer_types: a window, which %s is not given", k->engine->name);
    if (window < 1 || pl_look_flag(k, k->layer, "use_sliding_window") != 1)
        return pl_broken(k, "layer_types: a window, but no sliding_window with use_sliding_window: true");
    if (window < k->e.config.block.size)
        return pl_broken(k, "sliding_window: %d, in blocks of %d", (int)window, k->e.config.block.size);
    if (in && pl_look_flag(k, in, "causal") == 0 && pl_look_flag(k, k->layer, "is_causal") != 0)
        return pl_broken(k, "dflash_config.causal: false, which SGLang does not read; is_causal must say it too");
    return PL_CHECK_HOLDS;
}

// Checks that a block's slots are seen as in training. vLLM (0.33) reads is_causal, then dflash_config.causal, before
// the layers' types, of which those with a window are causal; it derives the latter from speculators'
// sliding_window_non_causal, except for DSpark. SGLang reads is_causal, then the types.
static pl_check_verdict check_sight(pl_look *k) {
    const cJSON *in = pl_look_member(k, NULL, "dflash_config");
    int          windows, full;
    bool         known = count_types(k, &windows, &full), all = known && windows > 0 && full == 0;
    if (!all && (pl_look_flag(k, k->layer, "is_causal") == 1 || (in && pl_look_flag(k, in, "is_causal") == 1)))
        return pl_broken(k, "is_causal: true; a block sees itself in both directions");
    if (!all && in && pl_look_flag(k, in, "causal") == 1)
        return pl_broken(k, "dflash_config.causal: true; a block sees itself in both directions");
    if (!known) return pl_broken(k, "layer_types: neither full_attention nor sliding_attention");
    return windows > 0 ? check_window(k, in) : PL_CHECK_HOLDS;
}

const pl_check_rule pl_check_blocks[] = {
    {"block-size", "slots of a block, the same wherever they stand", check_block_size, PL_CHECK_ALL},
    {"depth", "made for a target of so many layers", check_depth, PL_CHECK_ALL | PL_CHECK_WARNS},
    {"parts", "DFlash 2's convolutions and selector are stated, and fit block, width and vocabulary", check_parts,
     PL_CHECK_ALL},
    {"heads", "a Markov head of a form that the engine computes", check_heads, PL_CHECK_ALL},
    {"both-ways", "the block sees itself in both directions, or up to each slot in layers with a window", check_sight,
     PL_CHECK_ALL},
    {0}};
