#include "checkpoints/hf.h"
#include "checkpoints/hf_block.h"
#include "checkpoints/hf_family.h"
#include "checkpoints/hub.h"
#include "checkpoints/quant.h"
#include "kernels/base/arena.h"
#include "kernels/base/check.h"
#include "kernels/base/files.h"
#include "kernels/base/json.h"
#include "kernels/base/log.h"
#include <stdio.h>
#include <string.h>

#define CONFIG_MAX ((size_t)16 << 20)

static const char EAGLE3[] = "LlamaForCausalLMEagle3", PACELINE[] = PL_HF_PACELINE_EAGLE3;
static const char EAGLE1[] = "LlamaForCausalLMEagle", EAGLE1_VLLM[] = "EagleLlamaForCausalLM";
static const char PACELINE1[] = "PacelineEagle", PACELINE_OTHER[] = "PacelineDrafter";
static const char DFLASH[] = "DFlashDraftModel", DFLASH2[] = "DFlash2DraftModel", PACELINE_DFLASH[] = "PacelineDFlash";
static const char PEAGLE[] = "PEagleDraftModel", PACELINE_PEAGLE[] = "PacelinePEagle";
static const char LLAMA[] = "LlamaForCausalLM";

void pl_hf_config_init(pl_hf_config *cfg) {
    memset(cfg, 0, sizeof *cfg);
    cfg->rms_norm_eps = 1e-6;
    cfg->rope.theta = 10000;
    cfg->bos_token_id = cfg->pad_token_id = -1;
    cfg->dtype = PL_F32;
}

static bool is_drafter(const pl_hf_config *c) {
    return c->backbone != PL_HF_NO_BACKBONE || c->draft_vocab_size > 0 || c->n_taps > 0 ||
           strcmp(c->architecture, EAGLE3) == 0 || strcmp(c->architecture, PACELINE) == 0;
}

const char *pl_hf_backbone_name(const pl_hf_config *c) {
    static const char *const names[] = {[PL_HF_NO_BACKBONE] = "",
                                        [PL_HF_EAGLE3] = "eagle3",
                                        [PL_HF_EAGLE1] = "eagle1",
                                        [PL_HF_DFLASH] = "dflash",
                                        [PL_HF_PEAGLE] = "peagle"};
    return c->backbone == PL_HF_OTHER ? c->backbone_name : names[c->backbone];
}

const double *pl_hf_long_divisors(const pl_hf_config *c) {
    const pl_hf_rope *r = &c->rope;
    return c->max_position_embeddings > r->original_max_position_embeddings ? r->long_factor : r->short_factor;
}

const char *const pl_hf_norm_names[PL_HF_NORMS] = {"fc_norm", "norm_output", "norm_before_fc", "norm_before_residual"};

unsigned pl_hf_norms(const pl_hf_config *c) {
    return (c->fc_norm ? PL_HF_FC_NORM : 0U) | (c->norm_output ? PL_HF_NORM_OUTPUT : 0U) |
           (c->norm_before_fc ? PL_HF_NORM_BEFORE_FC : 0U) |
           (c->norm_before_residual ? PL_HF_NORM_BEFORE_RESIDUAL : 0U);
}

int pl_hf_rotary_dim(const pl_hf_config *c) {
    return c->rope.partial > 0 ? (int)(c->head_dim * c->rope.partial) : c->head_dim;
}

// ---- what must hold between the numbers ----

pl_status pl_hf_config_check(const pl_hf_config *c, const char *where, pl_err *err) {
    const struct {
        const char *key;
        int         value, max;
    } sizes[] = {
        {"hidden_size", c->hidden_size, PL_HF_HIDDEN_MAX},
        {"intermediate_size", c->intermediate_size, PL_HF_INTERMEDIATE_MAX},
        {"num_hidden_layers", c->num_hidden_layers, PL_HF_LAYERS_MAX},
        {"num_attention_heads", c->num_attention_heads, PL_HF_HEADS_MAX},
        {"num_key_value_heads", c->num_key_value_heads, PL_HF_HEADS_MAX},
        {"head_dim", c->head_dim, PL_HF_HEAD_DIM_MAX},
        {"vocab_size", c->vocab_size, PL_HF_VOCAB_MAX},
        {"max_position_embeddings", c->max_position_embeddings, PL_HF_POSITIONS_MAX},
    };
    for (size_t i = 0; i < sizeof sizes / sizeof *sizes; i++)
        if (sizes[i].value < 1 || sizes[i].value > sizes[i].max)
            return pl_fail(err, PL_E_INPUT, "%s: %s: expected an integer from 1 to %d, found %d", where, sizes[i].key,
                           sizes[i].max, sizes[i].value);
    if (c->num_attention_heads % c->num_key_value_heads != 0)
        return pl_fail(err, PL_E_INPUT, "%s: num_key_value_heads: %d does not divide num_attention_heads %d", where,
                       c->num_key_value_heads, c->num_attention_heads);
    if (c->head_dim % 2 != 0)
        return pl_fail(err, PL_E_INPUT, "%s: head_dim: %d is odd; rotary embedding needs pairs", where, c->head_dim);
    if (pl_hf_rotary_dim(c) < 2 || pl_hf_rotary_dim(c) % 2 != 0)
        return pl_fail(err, PL_E_INPUT, "%s: partial_rotary_factor: %g of head_dim %d is no whole number of pairs",
                       where, c->rope.partial, c->head_dim);
    if (c->rope.scaling == PL_HF_ROPE_LONG && c->rope.n_divisors != pl_hf_rotary_dim(c) / 2)
        return pl_fail(err, PL_E_INPUT, "%s: rope_scaling: %d factors for %d pairs", where, c->rope.n_divisors,
                       pl_hf_rotary_dim(c) / 2);
    if (!(c->rms_norm_eps > 0 && c->rms_norm_eps < 1))
        return pl_fail(err, PL_E_INPUT, "%s: rms_norm_eps: expected a number between 0 and 1, found %g", where,
                       c->rms_norm_eps);
    if (!(c->rope.theta >= 1 && c->rope.theta <= 1e12))
        return pl_fail(err, PL_E_INPUT, "%s: rope_theta: expected a number from 1 to 1e12, found %g", where,
                       c->rope.theta);
    if (c->rope.scaling == PL_HF_ROPE_LLAMA3 && !(c->rope.low_freq_factor < c->rope.high_freq_factor))
        return pl_fail(err, PL_E_INPUT, "%s: rope_scaling: low_freq_factor %g is not below high_freq_factor %g", where,
                       c->rope.low_freq_factor, c->rope.high_freq_factor);
    if (c->rope.scaling == PL_HF_ROPE_YARN && !(c->rope.theta > 1 && c->rope.beta_slow <= c->rope.beta_fast))
        return pl_fail(err, PL_E_INPUT, "%s: rope_scaling: yarn with rope_theta %g, beta_slow %g and beta_fast %g",
                       where, c->rope.theta, c->rope.beta_slow, c->rope.beta_fast);
    PL_TRY(pl_hf_experts_check(c, where, err));
    PL_TRY(pl_hf_delta_check(c, where, err));
    // Heads are published with their tool's ids; only a target's BOS is ever fed.
    if (!is_drafter(c) && c->bos_token_id >= c->vocab_size)
        return pl_fail(err, PL_E_INPUT, "%s: bos_token_id: %d is not below vocab_size %d", where, c->bos_token_id,
                       c->vocab_size);
    if (c->draft_vocab_size < 0 || c->draft_vocab_size > c->vocab_size)
        return pl_fail(err, PL_E_INPUT, "%s: draft_vocab_size: %d is not between 1 and vocab_size %d", where,
                       c->draft_vocab_size, c->vocab_size);
    bool own = strcmp(c->architecture, PACELINE) == 0 || strcmp(c->architecture, PACELINE1) == 0 ||
               strcmp(c->architecture, PACELINE_PEAGLE) == 0;
    if (own && !*c->head.kind)
        return pl_fail(err, PL_E_INPUT, "%s: paceline.head.kind: missing; %s says that it has a head of its own", where,
                       c->architecture);
    if (c->target_head && *c->head.kind)
        return pl_fail(err, PL_E_INPUT, "%s: paceline.head.kind: \"%s\", but %s has its target's head", where,
                       c->head.kind, c->architecture);
    return PL_OK;
}

// ---- reading ----

static pl_status get_size(const pl_json *j, const char *key, int max, int *out, pl_err *err) {
    int64_t v;
    PL_TRY(pl_json_get_int(j, NULL, key, 1, max, &v, err));
    *out = (int)v;
    return PL_OK;
}

static pl_status opt_size(const pl_json *j, const cJSON *obj, const char *key, int max, int def, int *out,
                          pl_err *err) {
    int64_t v;
    PL_TRY(pl_json_opt_int(j, obj, key, 1, max, def, &v, err));
    *out = (int)v;
    return PL_OK;
}

// A token id; null and negative numbers are in use for "none".
static pl_status opt_token(const pl_json *j, const char *key, int *out, pl_err *err) {
    int64_t v;
    PL_TRY(pl_json_opt_int(j, NULL, key, -PL_HF_VOCAB_MAX, PL_HF_VOCAB_MAX, -1, &v, err));
    *out = v < 0 ? -1 : (int)v;
    return PL_OK;
}

static pl_status copy_text(const pl_json *j, const cJSON *obj, const char *key, const char *def, char *out, size_t room,
                           pl_err *err) {
    const char *text;
    PL_TRY(pl_json_opt_str(j, obj, key, def, &text, err));
    if (strlen(text) >= room) return pl_json_fail(j, pl_json_find(j, obj, key), err, "longer than %zu bytes", room - 1);
    strcpy(out, text);
    return PL_OK;
}

static pl_status read_architecture(pl_hf_config *c, const pl_json *j, pl_hf_role role, const pl_hf_family **of,
                                   pl_err *err) {
    const cJSON *list;
    const char  *name;
    PL_TRY(pl_json_get_array(j, NULL, "architectures", &list, err));
    if (!list->child) return pl_json_fail(j, list, err, "empty; expected one name");
    PL_TRY(pl_json_str_of(j, list->child, &name, err));
    bool    draft = pl_json_find(j, NULL, "draft_vocab_size") != NULL;
    bool    llama = strcmp(name, LLAMA) == 0, eagle3 = strcmp(name, EAGLE3) == 0 || strcmp(name, PACELINE) == 0;
    bool    eagle1 = strcmp(name, EAGLE1) == 0 || strcmp(name, EAGLE1_VLLM) == 0 || strcmp(name, PACELINE1) == 0;
    bool    dflash = strcmp(name, DFLASH) == 0 || strcmp(name, DFLASH2) == 0 || strcmp(name, PACELINE_DFLASH) == 0;
    bool    peagle = strcmp(name, PEAGLE) == 0 || strcmp(name, PACELINE_PEAGLE) == 0;
    int64_t layers;
    PL_TRY(pl_json_opt_int(j, NULL, "num_hidden_layers", 1, PL_HF_LAYERS_MAX, PL_HF_LAYERS_MAX, &layers, err));
    if (role == PL_HF_DRAFTER && (eagle3 || (llama && draft)))
        c->backbone = PL_HF_EAGLE3;
    else if (role == PL_HF_DRAFTER && (eagle1 || (llama && layers == 1)))
        c->backbone = PL_HF_EAGLE1;
    else if (role == PL_HF_DRAFTER && dflash)
        c->backbone = PL_HF_DFLASH;
    else if (role == PL_HF_DRAFTER && peagle)
        c->backbone = PL_HF_PEAGLE;
    else if (role == PL_HF_DRAFTER && strcmp(name, PACELINE_OTHER) == 0)
        c->backbone = PL_HF_OTHER;
    c->target_head = c->backbone == PL_HF_EAGLE1 && strcmp(name, PACELINE1) != 0;
    const pl_hf_family *family = pl_hf_family_of(name);
    bool                known = role == PL_HF_TARGET ? !draft && family : c->backbone != PL_HF_NO_BACKBONE;
    if (!known && role == PL_HF_TARGET && (eagle3 || eagle1 || dflash || peagle || draft))
        return pl_json_fail(j, list, err, "%.60s here is a draft head, not a target; give it as the drafter", name);
    if (!known && role == PL_HF_TARGET && strlen(name) < sizeof c->architecture) {
        family = pl_json_find(j, NULL, "text_config") ? &pl_hf_foreign_wrapped : &pl_hf_foreign_family;
        c->foreign = known = true;
    }
    if (!known && role == PL_HF_TARGET) return pl_hf_family_fail(j, list, name, err);
    if (!known && family)
        return pl_json_fail(j, list, err, "%s without draft_vocab_size is a target, not a draft head", name);
    if (!known)
        return pl_json_fail(
            j, list, err,
            "\"%.60s\" is not supported; draft heads are %s, %s, or %s with %s; %s, %s; %s, %s, %s; %s, %s", name,
            EAGLE3, PACELINE, LLAMA, "draft_vocab_size", EAGLE1, PACELINE1, DFLASH, DFLASH2, PACELINE_DFLASH, PEAGLE,
            PACELINE_PEAGLE);
    *of = role == PL_HF_TARGET ? family : &pl_hf_drafter_family;
    c->qkv_bias = (*of)->qkv_bias;
    c->qk_norm = (*of)->qk_norm || c->backbone == PL_HF_DFLASH;
    c->fused = (*of)->fused;
    c->biased = c->sinks = (*of)->oss;
    c->norm_plus_one = c->post_norms = c->embedding_scaled = (*of)->gemma;
    strcpy(c->architecture, name);
    return copy_text(j, NULL, "model_type", "llama", c->model_type, sizeof c->model_type, err);
}

// A switch that changes the model in a way that is not computed here.
static pl_status must_be(const pl_json *j, const cJSON *obj, const char *key, bool value, pl_err *err) {
    bool found;
    PL_TRY(pl_json_opt_bool(j, obj, key, value, &found, err));
    if (found == value) return PL_OK;
    return pl_json_fail(j, pl_json_find(j, obj, key), err, "%s is not supported", found ? "true" : "false");
}

static pl_status read_bias(pl_hf_config *c, const pl_json *j, pl_err *err) {
    if (c->backbone != PL_HF_EAGLE1) return must_be(j, NULL, "bias", false, err);
    bool bias;
    PL_TRY(pl_json_opt_bool(j, NULL, "bias", false, &bias, err));
    if (pl_json_find(j, NULL, "bias")) c->fc_bias = bias ? PL_HF_BIAS_YES : PL_HF_BIAS_NO;
    return PL_OK;
}

// GPT-OSS is quantised its own way; a target in ways that quant.h lists; a draft head in none.
static pl_status check_quantised(const pl_json *j, const pl_hf_family *f, pl_err *err) {
    const cJSON *config = pl_json_find(j, NULL, "quantization_config");
    const char  *method;
    pl_quant     q;
    if (!config) return PL_OK;
    if (f == &pl_hf_drafter_family)
        return pl_json_fail(j, config, err,
                            "draft heads with quantised weights are not supported; use the F32, BF16 "
                            "or F16 head");
    if (!cJSON_IsObject(config)) return pl_json_fail(j, config, err, "expected an object");
    PL_TRY(pl_json_opt_str(j, config, "quant_method", "", &method, err));
    bool mxfp4 = strcmp(method, "mxfp4") == 0;
    if (f->oss) return mxfp4 ? PL_OK : pl_json_fail(j, config, err, "\"%.40s\" is not supported, only mxfp4", method);
    if (mxfp4) return pl_json_fail(j, config, err, "mxfp4 is supported for GPT-OSS alone");
    return pl_quant_parse(&q, j, config, err);
}

static pl_status refuse_unknown_math(const pl_json *j, const pl_hf_family *f, pl_err *err) {
    PL_TRY(must_be(j, NULL, "attention_bias", f->oss, err));
    PL_TRY(must_be(j, NULL, "mlp_bias", false, err));
    PL_TRY(must_be(j, NULL, "use_qk_norm", false, err));
    PL_TRY(must_be(j, NULL, "use_bidirectional_attention", false, err));
    return check_quantised(j, f, err);
}

static pl_status read_dtype(pl_hf_config *c, const pl_json *j, pl_err *err) {
    static const struct {
        const char *name;
        pl_dtype    dtype;
    } known[] = {{"float32", PL_F32}, {"bfloat16", PL_BF16}, {"float16", PL_F16}};
    const char *key = pl_json_find(j, NULL, "dtype") ? "dtype" : "torch_dtype", *name, *other;
    PL_TRY(pl_json_opt_str(j, NULL, key, "float32", &name, err));
    PL_TRY(pl_json_opt_str(j, NULL, "torch_dtype", name, &other, err));
    if (strcmp(name, other) != 0)
        pl_log_warn_once("%s: dtype: \"%.40s\" counts, torch_dtype \"%.40s\" does not, as in transformers", j->where,
                         name, other);
    for (size_t i = 0; i < sizeof known / sizeof *known; i++)
        if (strcmp(known[i].name, name) == 0) {
            c->dtype = known[i].dtype;
            return PL_OK;
        }
    return pl_json_fail(j, pl_json_find(j, NULL, key), err,
                        "\"%.40s\" is not supported; known are float32, bfloat16 and float16", name);
}

static pl_status add_eos(pl_hf_config *c, const pl_json *j, const cJSON *node, pl_err *err) {
    int64_t id;
    PL_TRY(pl_json_int_of(j, node, -PL_HF_VOCAB_MAX, PL_HF_VOCAB_MAX, &id, err));
    if (id < 0) return PL_OK; // none
    for (int i = 0; i < c->n_eos; i++)
        if (c->eos_token_id[i] == id) return PL_OK;
    if (c->n_eos == PL_HF_EOS) return pl_json_fail(j, node, err, "more than %d ids that end a text", PL_HF_EOS);
    c->eos_token_id[c->n_eos++] = (int)id;
    return PL_OK;
}

// One id, a list of them, or nothing.
static pl_status read_eos(pl_hf_config *c, const pl_json *j, pl_err *err) {
    const cJSON *node = pl_json_find(j, NULL, "eos_token_id");
    if (!node) return PL_OK;
    if (!cJSON_IsArray(node)) return add_eos(c, j, node, err);
    for (const cJSON *id = node->child; id; id = id->next)
        PL_TRY(add_eos(c, j, id, err));
    return PL_OK;
}

// A switch that tools put at the top or into eagle_config.
static pl_status read_switch(const pl_json *j, const cJSON *eagle, const char *key, bool *out, pl_err *err) {
    PL_TRY(pl_json_opt_bool(j, NULL, key, false, out, err));
    return eagle ? pl_json_opt_bool(j, eagle, key, *out, out, err) : PL_OK;
}

static pl_status read_selector(pl_hf_config *c, const pl_json *j, const cJSON *own, pl_err *err) {
    const cJSON *selector;
    const char  *law;
    int          i = 0;
    int64_t      rank = 0, candidates = 0;
    PL_TRY(pl_json_opt_object(j, own, "selector", &selector, err));
    if (!selector) return PL_OK;
    PL_TRY(pl_json_opt_str(j, selector, "law", pl_hf_law_name(PL_HF_LAW_FULL), &law, err));
    while (pl_hf_law_name(i) && strcmp(pl_hf_law_name(i), law) != 0)
        i++;
    if (!pl_hf_law_name(i))
        return pl_json_fail(j, pl_json_find(j, selector, "law"), err, "expected \"full\" or \"list\"");
    if (c->backbone != PL_HF_DFLASH) { // whose dflash_config has them
        PL_TRY(pl_json_get_int(j, selector, "rank", 1, PL_HF_HIDDEN_MAX, &rank, err));
        PL_TRY(pl_json_get_int(j, selector, "candidates", 1, PL_HF_VOCAB_MAX, &candidates, err));
    }
    c->selector = (pl_hf_selector){.rank = (int)rank, .candidates = (int)candidates, .law = (pl_hf_law)i};
    return PL_OK;
}

static pl_status read_own(pl_hf_config *c, const pl_json *j, pl_err *err) {
    const cJSON *own, *head;
    PL_TRY(pl_json_opt_object(j, NULL, "paceline", &own, err));
    if (!own && c->backbone == PL_HF_OTHER)
        return pl_json_fail(j, NULL, err, "paceline: missing; %s says that it names a backbone", PACELINE_OTHER);
    if (!own) return PL_OK;
    if (c->backbone == PL_HF_OTHER) {
        PL_TRY(copy_text(j, own, "backbone", "", c->backbone_name, sizeof c->backbone_name, err));
        if (!*c->backbone_name)
            return pl_json_fail(j, own, err, "paceline.backbone: missing; %s says that it names one", PACELINE_OTHER);
    }
    for (const cJSON *k = own->child; k; k = k->next)
        if (strcmp(k->string, "head") != 0 && strcmp(k->string, "tap_numbering") != 0 &&
            strcmp(k->string, "selector") != 0 && !(c->backbone == PL_HF_OTHER && strcmp(k->string, "backbone") == 0))
            return pl_json_fail(j, k, err, "unknown; written by a newer paceline?");
    const char *numbering;
    PL_TRY(pl_json_opt_str(j, own, "tap_numbering", "", &numbering, err));
    if (strcmp(numbering, "input") == 0)
        c->tap_numbering = PL_HF_TAPS_INPUT;
    else if (strcmp(numbering, "output") == 0)
        c->tap_numbering = PL_HF_TAPS_OUTPUT;
    else if (*numbering)
        return pl_json_fail(j, pl_json_find(j, own, "tap_numbering"), err, "expected \"input\" or \"output\"");
    PL_TRY(read_selector(c, j, own, err));
    PL_TRY(pl_json_opt_object(j, own, "head", &head, err));
    if (!head) return PL_OK;
    return pl_hf_head_read(&c->head, j, head, err);
}

// P-EAGLE's blocks: the last token known and masks, each of which drafts.
static pl_status read_depths(pl_hf_config *c, const pl_json *j, pl_err *err) {
    int64_t depths, mask;
    PL_TRY(pl_json_get_int(j, NULL, "mask_token_id", 0, c->vocab_size - 1, &mask, err));
    PL_TRY(pl_json_opt_int(j, NULL, "num_depths", 2, PL_HF_BLOCK_MAX - 1, 8, &depths, err));
    c->block = (pl_hf_block){.size = (int)depths, .mask_token = (int)mask, .anchor_first = true};
    return PL_OK;
}

// Drafts of a block of another drafter that drafts blocks.
static pl_status read_drafts(pl_hf_config *c, const pl_json *j, pl_err *err) {
    int64_t drafts;
    PL_TRY(pl_json_opt_int(j, NULL, "num_depths", 1, PL_HF_BLOCK_MAX - 1, 0, &drafts, err));
    if (drafts > 0) c->block = (pl_hf_block){.size = (int)drafts, .anchor_first = true};
    return PL_OK;
}

// What an engine would compute otherwise.
static pl_status refuse_drafter_math(const pl_json *j, pl_err *err) {
    double scale;
    PL_TRY(must_be(j, NULL, "is_neox_style", true, err));
    PL_TRY(must_be(j, NULL, "rope_is_neox_style", true, err));
    PL_TRY(must_be(j, NULL, "use_gemma_norm", false, err));
    PL_TRY(pl_json_opt_num(j, NULL, "logit_scale", -1e30, 1e30, 1, &scale, err));
    if (scale == 1) return PL_OK;
    return pl_json_fail(j, pl_json_find(j, NULL, "logit_scale"), err, "%g is not supported", scale);
}

static pl_status read_drafter(pl_hf_config *c, const pl_json *j, pl_err *err) {
    const cJSON *eagle, *taps;
    bool         post_norm;
    PL_TRY(refuse_drafter_math(j, err));
    PL_TRY(opt_size(j, NULL, "draft_vocab_size", PL_HF_VOCAB_MAX, 0, &c->draft_vocab_size, err));
    PL_TRY(opt_size(j, NULL, "target_hidden_size", PL_HF_HIDDEN_MAX, 0, &c->target_hidden_size, err));
    PL_TRY(pl_json_opt_object(j, NULL, "eagle_config", &eagle, err));
    PL_TRY(read_switch(j, eagle, "fc_norm", &c->fc_norm, err));
    PL_TRY(read_switch(j, eagle, "norm_output", &c->norm_output, err));
    PL_TRY(read_switch(j, eagle, "norm_before_fc", &c->norm_before_fc, err));
    PL_TRY(read_switch(j, eagle, "norm_before_residual", &c->norm_before_residual, err));
    PL_TRY(read_own(c, j, err));
    if (c->backbone == PL_HF_DFLASH) return pl_hf_block_read(c, j, err);
    if (c->backbone == PL_HF_PEAGLE) PL_TRY(read_depths(c, j, err));
    if (c->backbone == PL_HF_OTHER) PL_TRY(read_drafts(c, j, err));
    if (!eagle) return PL_OK;
    PL_TRY(pl_json_opt_bool(j, eagle, "return_hidden_post_norm", false, &post_norm, err));
    c->norm_output |= post_norm; // TensorRT-LLM's name
    PL_TRY(must_be(j, eagle, "eh_proj_before_attn", false, err));
    PL_TRY(must_be(j, eagle, "use_aux_hidden_state", true, err));
    PL_TRY(must_be(j, eagle, "use_input_layernorm_in_first_layer", true, err));
    PL_TRY(must_be(j, eagle, "use_last_layernorm", true, err));
    PL_TRY(must_be(j, eagle, "use_mtp_layernorm", false, err));
    PL_TRY(pl_json_opt_array(j, eagle, "eagle_aux_hidden_state_layer_ids", &taps, err));
    return taps ? pl_hf_taps_read(c, j, taps, err) : PL_OK;
}

// As get_size where def is 0.
static pl_status stated_size(const pl_json *j, const char *key, int max, int def, int *out, pl_err *err) {
    return def ? opt_size(j, NULL, key, max, def, out, err) : get_size(j, key, max, out, err);
}

static pl_status read_sizes(pl_hf_config *c, const pl_json *j, const pl_hf_family *f, pl_err *err) {
    PL_TRY(get_size(j, "hidden_size", PL_HF_HIDDEN_MAX, &c->hidden_size, err));
    PL_TRY(stated_size(j, "intermediate_size", PL_HF_INTERMEDIATE_MAX, f->inter, &c->intermediate_size, err));
    PL_TRY(get_size(j, "num_hidden_layers", PL_HF_LAYERS_MAX, &c->num_hidden_layers, err));
    PL_TRY(stated_size(j, "num_attention_heads", PL_HF_HEADS_MAX, f->heads, &c->num_attention_heads, err));
    PL_TRY(opt_size(j, NULL, "num_key_value_heads", PL_HF_HEADS_MAX, f->kv_heads ? f->kv_heads : c->num_attention_heads,
                    &c->num_key_value_heads, err));
    PL_TRY(opt_size(j, NULL, "head_dim", PL_HF_HEAD_DIM_MAX, f->head_dim, &c->head_dim, err));
    if (c->head_dim == 0) {
        if (c->hidden_size % c->num_attention_heads != 0)
            return pl_json_fail(j, pl_json_find(j, NULL, "num_attention_heads"), err,
                                "%d does not divide hidden_size %d, and there is no head_dim", c->num_attention_heads,
                                c->hidden_size);
        c->head_dim = c->hidden_size / c->num_attention_heads;
    }
    PL_TRY(stated_size(j, "vocab_size", PL_HF_VOCAB_MAX, f->vocab, &c->vocab_size, err));
    PL_TRY(opt_size(j, NULL, "max_position_embeddings", PL_HF_POSITIONS_MAX, f->positions ? f->positions : 2048,
                    &c->max_position_embeddings, err));
    PL_TRY(pl_json_opt_num(j, NULL, "rms_norm_eps", 1e-30, 0.5, f->eps > 0 ? f->eps : 1e-6, &c->rms_norm_eps, err));
    return pl_json_opt_bool(j, NULL, "tie_word_embeddings", f->gemma, &c->tie_word_embeddings, err);
}

// The decoder's own: the whole file, or the text_config of one that wraps it.
static pl_status read_decoder(pl_hf_config *c, const pl_json *j, const pl_hf_family *f, pl_err *err) {
    if (!c->foreign) PL_TRY(refuse_unknown_math(j, f, err));
    pl_status st = read_sizes(c, j, f, err);
    if (st == PL_E_INPUT && c->foreign)
        return pl_hf_family_fail(j, pl_json_find(j, NULL, "architectures"), c->architecture, err);
    PL_TRY(st);
    if (c->foreign) PL_TRY(pl_hf_foreign_read(c, j, err));
    if (!c->foreign) PL_TRY(pl_hf_family_read(c, j, f, err));
    if (!c->foreign) PL_TRY(pl_hf_rope_read(c, j, f, err));
    return read_eos(c, j, err);
}

// Members at the top of a file that wraps a decoder count before the decoder's own.
static pl_status read_wrapped(pl_hf_config *c, const pl_json *j, const pl_hf_family *f, pl_err *err) {
    const cJSON *text;
    char         where[512];
    PL_TRY(pl_json_get_object(j, NULL, "text_config", &text, err));
    snprintf(where, sizeof where, "%s: text_config", j->where);
    pl_json inner = {.where = where, .root = (cJSON *)(uintptr_t)text};
    if (!c->foreign) PL_TRY(refuse_unknown_math(j, f, err));
    PL_TRY(read_dtype(c, pl_json_find(j, NULL, "dtype") || pl_json_find(j, NULL, "torch_dtype") ? j : &inner, err));
    PL_TRY(opt_token(pl_json_find(j, NULL, "bos_token_id") ? j : &inner, "bos_token_id", &c->bos_token_id, err));
    PL_TRY(opt_token(pl_json_find(j, NULL, "pad_token_id") ? j : &inner, "pad_token_id", &c->pad_token_id, err));
    PL_TRY(read_eos(c, j, err));
    PL_TRY(read_decoder(c, &inner, f, err));
    bool inner_ties = c->tie_word_embeddings, stated = pl_json_find(&inner, NULL, "tie_word_embeddings") != NULL;
    PL_TRY(pl_json_opt_bool(j, NULL, "tie_word_embeddings", inner_ties, &c->tie_word_embeddings, err));
    if (stated && c->tie_word_embeddings != inner_ties)
        pl_log_warn_once("%s: tie_word_embeddings: the one at the top counts, text_config says otherwise", j->where);
    return PL_OK;
}

static pl_status read_config(pl_hf_config *c, const pl_json *j, pl_hf_role role, pl_err *err) {
    const pl_hf_family *f = &pl_hf_drafter_family;
    if (!cJSON_IsObject(j->root)) return pl_json_fail(j, j->root, err, "expected an object");
    PL_TRY(read_architecture(c, j, role, &f, err));
    PL_TRY(read_bias(c, j, err));
    if (f->wrapped) {
        PL_TRY(read_wrapped(c, j, f, err));
    } else {
        PL_TRY(read_dtype(c, j, err));
        PL_TRY(opt_token(j, "bos_token_id", &c->bos_token_id, err));
        PL_TRY(opt_token(j, "pad_token_id", &c->pad_token_id, err));
        PL_TRY(read_decoder(c, j, f, err));
    }
    if (role == PL_HF_DRAFTER) PL_TRY(read_drafter(c, j, err));
    if (role == PL_HF_TARGET && c->bos_token_id >= c->vocab_size) {
        pl_log_warn_once("%s: bos_token_id: %d is not below vocab_size %d and is taken for none", j->where,
                         c->bos_token_id, c->vocab_size);
        c->bos_token_id = -1;
    }
    return pl_hf_config_check(c, j->where, err);
}

// What people give in place of the folder that has the config.
static pl_status check_place(const char *dir, const char *config, pl_err *err) {
    static const char *const within[] = {"checkpoints/best", "checkpoints/last"};
    if (pl_path_ends(config, ".safetensors"))
        return pl_fail(err, PL_E_INPUT, "%s: holds weights alone; give the folder that it lies in", dir);
    bool is_folder = pl_path_is_dir(dir);
    if (!is_folder && pl_path_exists(dir) && !pl_path_ends(dir, ".json"))
        return pl_fail(err, PL_E_INPUT, "%s: no checkpoint; give the folder that holds its config.json and weights",
                       dir);
    if (pl_path_exists(config)) return PL_OK;
    for (size_t i = 0; i < sizeof within / sizeof *within; i++) {
        char *folder = pl_path_join(dir, within[i]);
        bool  there = folder && pl_path_is_dir(folder);
        pl_free(folder);
        if (there)
            return pl_fail(err, PL_E_INPUT, "%s: a run's folder; give its checkpoint, %s/%s", dir, dir, within[i]);
    }
    PL_TRY(pl_hub_refuse(dir, err));
    char *drafters = pl_path_join(dir, "drafters");
    bool  several = drafters && pl_path_is_dir(drafters);
    pl_free(drafters);
    if (several)
        return pl_fail(err, PL_E_INPUT, "%s: a run's folder; give a drafter of it, %s/drafters/NAME/checkpoints/best",
                       dir, dir);
    if (is_folder) return pl_fail(err, PL_E_INPUT, "%s: no checkpoint and no model: it holds no config.json", dir);
    return PL_OK; // the caller's open reports other faults
}

pl_status pl_hf_config_read(pl_hf_config *cfg, const char *dir, pl_hf_role role, pl_err *err) {
    pl_hf_config_init(cfg);
    pl_json   j = {0}, generation = {0};
    bool      folder = pl_path_is_dir(dir);
    char     *config = folder ? pl_path_join(dir, "config.json") : pl_strdup(dir), *beside = NULL;
    pl_status st = PL_OK;
    if (config) beside = pl_sprintf("%.*sgeneration_config.json", (int)(pl_path_name(config) - config), config);
    if (!beside) {
        st = pl_fail(err, PL_E_MEMORY, "%s: out of memory", dir);
        goto done;
    }
    PL_TRY_GOTO(st, done, check_place(dir, config, err));
    PL_TRY_GOTO(st, done, pl_json_open(&j, config, CONFIG_MAX, PL_JSON_UNIQUE, err));
    PL_TRY_GOTO(st, done, read_config(cfg, &j, role, err));
    if (pl_path_exists(beside)) {
        PL_TRY_GOTO(st, done, pl_json_open(&generation, beside, CONFIG_MAX, PL_JSON_UNIQUE, err));
        PL_TRY_GOTO(st, done, read_eos(cfg, &generation, err));
    }
done:
    pl_json_close(&generation);
    pl_json_close(&j);
    pl_free(beside);
    pl_free(config);
    if (st != PL_OK) memset(cfg, 0, sizeof *cfg);
    return st;
}

pl_status pl_hf_config_parse(pl_hf_config *cfg, const char *where, const char *text, size_t n, pl_hf_role role,
                             pl_err *err) {
    pl_json j;
    pl_hf_config_init(cfg);
    pl_status st = pl_json_parse(&j, where, 0, text, n, PL_JSON_UNIQUE, err);
    if (st == PL_OK) {
        st = read_config(cfg, &j, role, err);
        pl_json_close(&j);
    }
    if (st != PL_OK) memset(cfg, 0, sizeof *cfg);
    return st;
}

// ---- writing ----

const char *pl_hf_dtype_name(pl_dtype t) {
    return t == PL_BF16 ? "bfloat16" : t == PL_F16 ? "float16" : "float32";
}

void pl_hf_put_token(pl_json_out *o, const char *key, int id) {
    pl_json_out_key(o, key);
    if (id >= 0)
        pl_json_out_int(o, id);
    else
        pl_json_out_null(o);
}

void pl_hf_put_scaling(pl_json_out *o, const pl_hf_rope *r) {
    bool llama3 = r->scaling == PL_HF_ROPE_LLAMA3, none = r->scaling == PL_HF_ROPE_NONE;
    bool yarn = r->scaling == PL_HF_ROPE_YARN;
    bool longrope = r->scaling == PL_HF_ROPE_LONG;
    pl_put_str(o, "rope_type", none ? "default" : llama3 ? "llama3" : yarn ? "yarn" : longrope ? "longrope" : "linear");
    if (!none) pl_put_num(o, "factor", r->factor);
    if (longrope) {
        pl_put_nums(o, "short_factor", r->short_factor, r->n_divisors);
        pl_put_nums(o, "long_factor", r->long_factor, r->n_divisors);
        pl_put_num(o, "attention_factor", r->attention_factor);
        pl_put_int(o, "original_max_position_embeddings", r->original_max_position_embeddings);
    }
    if (yarn) {
        pl_put_num(o, "beta_fast", r->beta_fast);
        pl_put_num(o, "beta_slow", r->beta_slow);
        pl_put_num(o, "attention_factor", r->attention_factor);
        pl_put_bool(o, "truncate", r->truncate);
        pl_put_int(o, "original_max_position_embeddings", r->original_max_position_embeddings);
    }
    if (!llama3) return;
    pl_put_num(o, "low_freq_factor", r->low_freq_factor);
    pl_put_num(o, "high_freq_factor", r->high_freq_factor);
    pl_put_int(o, "original_max_position_embeddings", r->original_max_position_embeddings);
}

void pl_hf_put_rope(pl_json_out *o, const pl_hf_rope *r) {
    pl_put_num(o, "rope_theta", r->theta);
    if (r->scaling == PL_HF_ROPE_NONE) {
        pl_put_str(o, "rope_scaling", NULL);
        return;
    }
    pl_put_object(o, "rope_scaling");
    pl_hf_put_scaling(o, r);
    pl_json_out_close(o, '}');
}

static void put_drafter(pl_json_out *o, const pl_hf_config *c) {
    if (c->draft_vocab_size > 0) pl_put_int(o, "draft_vocab_size", c->draft_vocab_size);
    if (c->target_hidden_size > 0) pl_put_int(o, "target_hidden_size", c->target_hidden_size);
    if (c->backbone == PL_HF_EAGLE1) {
        if (c->fc_bias != PL_HF_BIAS_UNSTATED) pl_put_bool(o, "bias", c->fc_bias == PL_HF_BIAS_YES);
    } else if (c->backbone != PL_HF_DFLASH) {
        pl_put_bool(o, "fc_norm", c->fc_norm);
        pl_put_bool(o, "norm_output", c->norm_output);
        pl_put_bool(o, "norm_before_fc", c->norm_before_fc);
        pl_put_bool(o, "norm_before_residual", c->norm_before_residual);
    }
    if (c->backbone == PL_HF_PEAGLE) {
        pl_put_int(o, "mask_token_id", c->block.mask_token);
        pl_put_int(o, "num_depths", c->block.size);
    }
    if (c->backbone == PL_HF_OTHER && c->block.size > 0) pl_put_int(o, "num_depths", c->block.size);
    if (c->backbone == PL_HF_DFLASH) {
        pl_hf_block_put(o, c);
    } else if (c->n_taps > 0) {
        pl_put_object(o, "eagle_config");
        pl_put_bool(o, "use_aux_hidden_state", true);
        pl_put_ids(o, "eagle_aux_hidden_state_layer_ids", c->tap, c->n_taps);
        pl_json_out_close(o, '}');
    }
    bool listed = c->selector.law != PL_HF_LAW_FULL, sized = c->backbone != PL_HF_DFLASH;
    bool selects = c->selector.candidates > 0 && (sized || listed);
    if (!*c->head.kind && c->tap_numbering == PL_HF_TAPS_UNSTATED && c->backbone != PL_HF_OTHER && !selects) return;
    pl_put_object(o, "paceline");
    if (c->backbone == PL_HF_OTHER) pl_put_str(o, "backbone", c->backbone_name);
    if (*c->head.kind) {
        pl_put_object(o, "head");
        pl_hf_head_put(o, &c->head);
        pl_json_out_close(o, '}');
    }
    if (selects) {
        pl_put_object(o, "selector");
        if (sized) pl_put_int(o, "rank", c->selector.rank);
        if (sized) pl_put_int(o, "candidates", c->selector.candidates);
        if (listed) pl_put_str(o, "law", pl_hf_law_name(c->selector.law));
        pl_json_out_close(o, '}');
    }
    if (c->tap_numbering != PL_HF_TAPS_UNSTATED)
        pl_put_str(o, "tap_numbering", c->tap_numbering == PL_HF_TAPS_INPUT ? "input" : "output");
    pl_json_out_close(o, '}');
}

pl_status pl_hf_config_write(const char *path, const pl_hf_config *c, pl_err *err) {
    PL_CHECK(!strstr(c->architecture, "ConditionalGeneration"), "%s is read, not written", c->architecture);
    PL_CHECK(c->dtype == PL_F32 || c->dtype == PL_BF16 || c->dtype == PL_F16, "dtype %s", pl_dtype_name(c->dtype));
    pl_err    why = {0};
    pl_status checked = pl_hf_config_check(c, path, &why);
    PL_CHECK(checked == PL_OK, "%s", why.msg);
    pl_json_out o;
    pl_json_out_begin(&o, 2);
    pl_json_out_object(&o);
    pl_put_array(&o, "architectures");
    pl_json_out_str(&o, c->architecture);
    pl_json_out_close(&o, ']');
    pl_put_str(&o, "model_type", *c->model_type ? c->model_type : "llama");
    pl_put_int(&o, "hidden_size", c->hidden_size);
    pl_put_int(&o, "intermediate_size", c->intermediate_size);
    pl_put_int(&o, "num_hidden_layers", c->num_hidden_layers);
    pl_put_int(&o, "num_attention_heads", c->num_attention_heads);
    pl_put_int(&o, "num_key_value_heads", c->num_key_value_heads);
    pl_put_int(&o, "head_dim", c->head_dim);
    pl_put_int(&o, "vocab_size", c->vocab_size);
    pl_put_int(&o, "max_position_embeddings", c->max_position_embeddings);
    pl_put_str(&o, "hidden_act", c->activation == PL_HF_GELU_TANH ? "gelu_pytorch_tanh" : "silu");
    pl_hf_family_put(&o, c);
    pl_put_num(&o, "rms_norm_eps", c->rms_norm_eps);
    if (c->sinks && c->rope.scaling == PL_HF_ROPE_NONE) { // GPT-OSS's silence means YaRN
        pl_put_num(&o, "rope_theta", c->rope.theta);
        pl_put_object(&o, "rope_scaling");
        pl_hf_put_scaling(&o, &c->rope);
        pl_json_out_close(&o, '}');
    } else {
        pl_hf_put_rope(&o, &c->rope);
    }
    pl_put_bool(&o, "attention_bias", c->biased);
    pl_put_bool(&o, "mlp_bias", false);
    pl_put_bool(&o, "tie_word_embeddings", c->tie_word_embeddings);
    pl_hf_put_token(&o, "bos_token_id", c->bos_token_id);
    pl_hf_put_token(&o, "pad_token_id", c->pad_token_id);
    if (c->n_eos <= 1)
        pl_hf_put_token(&o, "eos_token_id", c->n_eos == 1 ? c->eos_token_id[0] : -1);
    else
        pl_put_ids(&o, "eos_token_id", c->eos_token_id, c->n_eos);
    pl_put_str(&o, "torch_dtype", pl_hf_dtype_name(c->dtype));
    if (is_drafter(c)) put_drafter(&o, c);
    pl_json_out_close(&o, '}');
    PL_TRY(pl_json_out_end(&o, err));
    pl_status st = pl_file_write_atomic(path, o.text, o.len, err);
    pl_free(o.text);
    return st;
}
