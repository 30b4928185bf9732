#include "checkpoints/hf_block.h"

#include "checkpoints/hf.h"

#include <stdio.h>
#include <string.h>

// Published files have a member at the top or in dflash_config; the inner one counts.
static pl_status read_int(const pl_json *j, const cJSON *inner, const char *key, int64_t least, int64_t most, int *out,
                          pl_err *err) {
    const cJSON *from = cJSON_GetObjectItemCaseSensitive(inner, key) ? inner : NULL;
    int64_t      value;
    PL_TRY(pl_json_get_int(j, from, key, least, most, &value, err));
    *out = (int)value;
    return PL_OK;
}

#define LILICORR "lilicorr"

// What would have to be computed otherwise.
static pl_status refuse(const pl_json *j, const cJSON *inner, pl_err *err) {
    static const char *const unknown[] = {
        "projector_type", "markov_rank",    "shift_label",          "output_multiplier", "fc_norm",
        "norm_output",    "norm_before_fc", "norm_before_residual", "use_swa",           "attention_sink_bias"};
    static const struct {
        const char *key;
        double      neutral;
    } scales[] = {{"input_embedding_scale", 1}, {"attention_value_scale", 1}, {"final_logit_softcapping", 0}};
    for (size_t i = 0; i < sizeof unknown / sizeof *unknown; i++)
        for (int top = 0; top < 2; top++) {
            const cJSON *node = pl_json_find(j, top ? NULL : inner, unknown[i]);
            if (i == 0 && !top && cJSON_IsString(node) && strcmp(node->valuestring, LILICORR) == 0) continue;
            if (node && !cJSON_IsFalse(node) && !cJSON_IsNull(node))
                return pl_json_fail(j, node, err, "not supported; plain DFlash is, without it");
        }
    for (size_t i = 0; i < sizeof scales / sizeof *scales; i++) {
        const cJSON *node = pl_json_find(j, inner, scales[i].key);
        if (node && !cJSON_IsNull(node) && !(cJSON_IsNumber(node) && node->valuedouble == scales[i].neutral))
            return pl_json_fail(j, node, err, "not supported; plain DFlash is, without it");
    }
    return PL_OK;
}

// A number that is stated together with another, both or none.
static pl_status read_pair(const pl_json *j, const cJSON *inner, const char *const key[2], const int64_t most[2],
                           int *const out[2], pl_err *err) {
    bool there = false;
    for (int i = 0; i < 2; i++) {
        const cJSON *node = pl_json_find(j, cJSON_GetObjectItemCaseSensitive(inner, key[i]) ? inner : NULL, key[i]);
        there |= node && !cJSON_IsNull(node);
    }
    for (int i = 0; i < 2 && there; i++)
        PL_TRY(read_int(j, inner, key[i], 1, most[i], out[i], err));
    return PL_OK;
}

// LiLiCorr's selector.
static pl_status read_lattice(pl_hf_config *c, const pl_json *j, const cJSON *inner, pl_err *err) {
    pl_hf_selector *s = &c->selector;
    const struct {
        const char *key;
        int64_t     most;
        int        *to;
    } sizes[] = {{"lilicorr_candidate_topk", c->vocab_size, &s->candidates},
                 {"lilicorr_factor_dim", PL_HF_HIDDEN_MAX, &s->rank},
                 {"lilicorr_hidden_size", PL_HF_HIDDEN_MAX, &s->width},
                 {"lilicorr_num_layers", PL_HF_LATTICE_LAYERS, &s->layers},
                 {"lilicorr_num_heads", PL_HF_HIDDEN_MAX, &s->heads}};
    bool on;
    PL_TRY(pl_json_opt_bool(j, inner, "lilicorr_enabled", true, &on, err));
    if (!on)
        return pl_json_fail(j, cJSON_GetObjectItemCaseSensitive(inner, "lilicorr_enabled"), err,
                            "a selector that is switched off; leave out projector_type and its tensors");
    for (size_t i = 0; i < sizeof sizes / sizeof *sizes; i++) {
        int64_t value;
        bool    width = sizes[i].to == &s->width;
        if (width)
            PL_TRY(pl_json_opt_int(j, inner, sizes[i].key, 0, sizes[i].most, 0, &value, err));
        else
            PL_TRY(pl_json_get_int(j, inner, sizes[i].key, 1, sizes[i].most, &value, err));
        *sizes[i].to = width && value == 0 ? c->hidden_size : (int)value;
    }
    PL_TRY(pl_json_get_num(j, inner, "lilicorr_mlp_ratio", 1e-3, 1e3, &s->mlp_ratio, err));
    PL_TRY(pl_json_get_num(j, inner, "lilicorr_logit_scale", 1e-6, 1e6, &s->scale, err));
    PL_TRY(pl_json_get_num(j, inner, "lilicorr_vector_eps", 1e-12, 1e-2, &s->eps, err));
    snprintf(s->kind, sizeof s->kind, PL_HF_LATTICE);
    return PL_OK;
}

// DFlash 2's parts.
static pl_status read_second(pl_hf_config *c, const pl_json *j, const cJSON *inner, pl_err *err) {
    PL_TRY(read_pair(j, inner, (const char *const[2]){"conv_kernel_size", "conv_group_size"},
                     (int64_t[2]){c->block.size, c->hidden_size}, (int *const[2]){&c->block.taps, &c->block.group},
                     err));
    if (c->block.taps > 0 && c->hidden_size % c->block.group != 0)
        return pl_json_fail(j, NULL, err, "conv_group_size %d does not divide the width %d", c->block.group,
                            c->hidden_size);
    if (pl_json_find(j, inner, "projector_type"))
        PL_TRY(read_lattice(c, j, inner, err));
    else
        PL_TRY(read_pair(j, inner, (const char *const[2]){"selector_rank", "selector_top_k"},
                         (int64_t[2]){PL_HF_HIDDEN_MAX, c->vocab_size},
                         (int *const[2]){&c->selector.rank, &c->selector.candidates}, err));
    if (c->selector.candidates == 0 && c->selector.law != PL_HF_LAW_FULL)
        return pl_json_fail(j, NULL, err, "paceline.selector.law: there is no selector; selector_top_k is missing");
    return PL_OK;
}

// Reads which layers are causal within a block. Readers differ in the members that they look at, so those must agree.
static pl_status read_causal(pl_hf_config *c, const pl_json *j, const cJSON *inner, pl_err *err) {
    const struct {
        const cJSON *in;
        const char  *key;
    } members[] = {{NULL, "is_causal"}, {inner, "is_causal"}, {inner, "causal"}, {NULL, "causal"}};
    int stated = -1;
    c->block.causal = c->sliding_window > 0 ? PL_HF_CAUSAL_WINDOWS : PL_HF_CAUSAL_NONE;
    for (size_t i = 0; i < sizeof members / sizeof *members; i++) {
        const cJSON *node = pl_json_find(j, members[i].in, members[i].key);
        bool         causal;
        if (!node) continue;
        PL_TRY(pl_json_get_bool(j, members[i].in, members[i].key, &causal, err));
        if (stated >= 0 && stated != causal)
            return pl_json_fail(j, node, err, "%s, and another member says otherwise", causal ? "true" : "false");
        stated = causal;
        c->block.causal = causal ? PL_HF_CAUSAL_ALL : PL_HF_CAUSAL_NONE;
    }
    if (c->sliding_window == 0 || c->sliding_window >= c->block.size) return PL_OK;
    return pl_json_fail(j, pl_json_find(j, NULL, "sliding_window"), err,
                        "%d, in blocks of %d; a block lies in its window", c->sliding_window, c->block.size);
}

pl_status pl_hf_block_read(pl_hf_config *c, const pl_json *j, pl_err *err) {
    const cJSON *inner, *layers;
    PL_TRY(pl_json_get_object(j, NULL, "dflash_config", &inner, err));
    PL_TRY(refuse(j, inner, err));
    PL_TRY(read_int(j, inner, "block_size", 2, PL_HF_BLOCK_MAX, &c->block.size, err));
    PL_TRY(read_int(j, inner, "mask_token_id", 0, c->vocab_size - 1, &c->block.mask_token, err));
    bool anchor = false;
    PL_TRY(pl_json_opt_bool(j, NULL, "sample_from_anchor", false, &anchor, err));
    PL_TRY(pl_json_opt_bool(j, inner, "sample_from_anchor", anchor, &c->block.anchor_first, err));
    PL_TRY(read_causal(c, j, inner, err));
    PL_TRY(read_second(c, j, inner, err));
    c->target_head = !*c->head.kind;
    int64_t target_layers;
    PL_TRY(pl_json_opt_int(j, NULL, "num_target_layers", 0, PL_HF_LAYERS_MAX, 0, &target_layers, err));
    c->block.target_layers = (int)target_layers;
    PL_TRY(pl_json_get_array(j, inner, "target_layer_ids", &layers, err));
    if (!layers->child) return pl_json_fail(j, layers, err, "expected at least one layer");
    return pl_hf_taps_read(c, j, layers, err);
}

pl_status pl_hf_taps_read(pl_hf_config *c, const pl_json *j, const cJSON *layers, pl_err *err) {
    for (const cJSON *id = layers->child; id; id = id->next) {
        int64_t layer;
        if (c->n_taps == PL_HF_TAPS) return pl_json_fail(j, layers, err, "more than %d layers", PL_HF_TAPS);
        PL_TRY(pl_json_int_of(j, id, 0, PL_HF_LAYERS_MAX, &layer, err));
        c->tap[c->n_taps++] = (int)layer;
    }
    return PL_OK;
}

static void put_second(pl_json_out *o, const pl_hf_config *c) {
    if (c->block.taps > 0) {
        pl_put_int(o, "conv_kernel_size", c->block.taps);
        pl_put_int(o, "conv_group_size", c->block.group);
    }
    if (c->selector.candidates == 0) return;
    if (pl_hf_is_lattice(&c->selector)) {
        pl_put_str(o, "projector_type", LILICORR);
        pl_put_bool(o, "lilicorr_enabled", true);
        pl_put_int(o, "lilicorr_candidate_topk", c->selector.candidates);
        pl_put_int(o, "lilicorr_factor_dim", c->selector.rank);
        pl_put_int(o, "lilicorr_hidden_size", c->selector.width);
        pl_put_int(o, "lilicorr_num_layers", c->selector.layers);
        pl_put_int(o, "lilicorr_num_heads", c->selector.heads);
        pl_put_num(o, "lilicorr_mlp_ratio", c->selector.mlp_ratio);
        pl_put_num(o, "lilicorr_logit_scale", c->selector.scale);
        pl_put_num(o, "lilicorr_vector_eps", c->selector.eps);
        return;
    }
    pl_put_int(o, "selector_rank", c->selector.rank);
    pl_put_int(o, "selector_top_k", c->selector.candidates);
}

void pl_hf_block_put(pl_json_out *o, const pl_hf_config *c) {
    pl_put_int(o, "block_size", c->block.size);
    if (c->block.target_layers > 0) pl_put_int(o, "num_target_layers", c->block.target_layers);
    bool silent =
        c->block.causal == PL_HF_CAUSAL_WINDOWS || (c->block.causal == PL_HF_CAUSAL_NONE && c->sliding_window == 0);
    if (!silent) pl_put_bool(o, "is_causal", c->block.causal == PL_HF_CAUSAL_ALL);
    pl_put_object(o, "dflash_config");
    pl_put_int(o, "mask_token_id", c->block.mask_token);
    if (c->block.anchor_first) pl_put_bool(o, "sample_from_anchor", true);
    pl_put_ids(o, "target_layer_ids", c->tap, c->n_taps);
    put_second(o, c);
    pl_json_out_close(o, '}');
}

const char *pl_hf_markov_name(int form) {
    static const char *const names[] = {
        [PL_HF_MARKOV_VANILLA] = "vanilla", [PL_HF_MARKOV_GATED] = "gated", [PL_HF_MARKOV_RNN] = "rnn"};
    return form < (int)(sizeof names / sizeof *names) ? names[form] : NULL;
}

int pl_hf_markov_find(const char *name) {
    int form = 0;
    while (*name && pl_hf_markov_name(form) && strcmp(pl_hf_markov_name(form), name) != 0)
        form++;
    return pl_hf_markov_name(form) ? form : -1;
}

int pl_hf_markov_of(const pl_hf_head *h) {
    const pl_hf_setting *form = pl_hf_head_find(h, "form");
    return pl_hf_markov_find(form ? form->text : "");
}
