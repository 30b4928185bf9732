#include "checkpoints/hf.h"
#include "kernels/base/arena.h"
#include "kernels/base/check.h"
#include "kernels/base/files.h"
#include "kernels/base/json.h"
#include <limits.h>
#include <math.h>
#include <stdio.h>
#include <string.h>

#define CONFIG_MAX ((size_t)16 << 20)

static const char EAGLE3[] = "LlamaForCausalLMEagle3", PACELINE[] = "PacelineEagle3";
static const char EAGLE1[] = "LlamaForCausalLMEagle", EAGLE1_VLLM[] = "EagleLlamaForCausalLM";
static const char PACELINE1[] = "PacelineEagle", PACELINE_OTHER[] = "PacelineDrafter";
static const char LLAMA[] = "LlamaForCausalLM", MISTRAL[] = "MistralForCausalLM";

// Which layers a sliding_window is for, where layer_types does not say: none may have one; all; from max_window_layers
// on where use_sliding_window; all but each n-th.
typedef enum windows { NO_WINDOWS, WINDOWS_ALL, WINDOWS_SWITCHED, WINDOWS_PATTERN } windows;

// Targets, and what their layers have beside Llama's; what transformers takes where the file is silent.
static const struct family {
    const char *architecture;
    bool        qkv_bias, qk_norm, fused, gemma, wrapped; // wrapped: in text_config
    windows     windows;
    int         pattern;      // WINDOWS_PATTERN: n
    double      softcap[2];   // of attention, of the logits; 0: none unless stated, negative: refused
    double      theta, local; // of RoPE
    int         heads, kv_heads, head_dim, vocab, positions; // 0: must be stated, or follows
} families[] = {
    {.architecture = LLAMA, .softcap = {-1, -1}, .theta = 10000},
    {.architecture = MISTRAL, .windows = WINDOWS_ALL, .softcap = {-1, -1}, .theta = 10000},
    {.architecture = "Qwen2ForCausalLM",
     .qkv_bias = true,
     .windows = WINDOWS_SWITCHED,
     .softcap = {-1, -1},
     .theta = 10000},
    {.architecture = "Qwen3ForCausalLM",
     .qk_norm = true,
     .windows = WINDOWS_SWITCHED,
     .softcap = {-1, -1},
     .theta = 10000},
    {.architecture = "Phi3ForCausalLM",
     .fused = true,
     .windows = WINDOWS_ALL,
     .softcap = {-1, -1},
     .theta = 10000,
     .positions = 4096},
    {.architecture = "Gemma2ForCausalLM",
     .gemma = true,
     .windows = WINDOWS_PATTERN,
     .pattern = 2,
     .softcap = {50, 30},
     .theta = 10000,
     .heads = 8,
     .kv_heads = 4,
     .head_dim = 256,
     .vocab = 256000,
     .positions = 8192},
#define GEMMA3                                                                                                         \
    .qk_norm = true, .gemma = true, .windows = WINDOWS_PATTERN, .pattern = 6, .softcap = {-1, 0}, .theta = 1e6,        \
    .local = 10000, .heads = 8, .kv_heads = 4, .head_dim = 256, .vocab = 262208, .positions = 131072
    {.architecture = "Gemma3ForCausalLM", GEMMA3},
    {.architecture = "Gemma3ForConditionalGeneration", .wrapped = true, GEMMA3},
};
enum { FAMILIES = sizeof families / sizeof *families, KNOWN_WINDOW = 4096, GEMMA_QUERY_SCALAR = 256 };

// A draft head's: what it reads is Llama's alone.
static const struct family drafter_family = {.softcap = {-1, -1}, .theta = 10000};

void pl_hf_config_init(pl_hf_config *cfg) {
    memset(cfg, 0, sizeof *cfg);
    cfg->rms_norm_eps = 1e-6;
    cfg->rope.theta = 10000;
    cfg->bos_token_id = cfg->pad_token_id = -1;
    cfg->dtype = PL_F32;
}

bool pl_hf_windowed(const pl_hf_config *c, int layer) {
    PL_CHECK(layer >= 0 && layer < PL_HF_LAYERS_MAX, "layer %d", layer);
    return c->windowed[layer / 8] >> layer % 8 & 1;
}

void pl_hf_config_plain(pl_hf_config *c) {
    c->qkv_bias = c->qk_norm = c->fused = c->norm_plus_one = c->post_norms = c->embedding_scaled = false;
    c->activation = PL_HF_SILU;
    c->query_scalar = c->attention_softcap = c->final_softcap = c->local_theta = 0;
    c->sliding_window = 0;
    memset(c->windowed, 0, sizeof c->windowed);
    c->rope.partial = 0;
    if (c->rope.scaling == PL_HF_ROPE_LONG) c->rope = (pl_hf_rope){.theta = c->rope.theta};
}

static bool is_drafter(const pl_hf_config *c) {
    return c->backbone != PL_HF_NO_BACKBONE || c->draft_vocab_size > 0 || c->n_taps > 0 ||
           strcmp(c->architecture, EAGLE3) == 0 || strcmp(c->architecture, PACELINE) == 0;
}

const char *pl_hf_backbone_name(const pl_hf_config *c) {
    static const char *const names[] = {[PL_HF_NO_BACKBONE] = "", [PL_HF_EAGLE3] = "eagle3", [PL_HF_EAGLE1] = "eagle1"};
    return c->backbone == PL_HF_OTHER ? c->backbone_name : names[c->backbone];
}

const double *pl_hf_long_divisors(const pl_hf_config *c) {
    const pl_hf_rope *r = &c->rope;
    return c->max_position_embeddings > r->original_max_position_embeddings ? r->long_factor : r->short_factor;
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
    // Heads are published with their tool's ids; only a target's BOS is ever fed.
    if (!is_drafter(c) && c->bos_token_id >= c->vocab_size)
        return pl_fail(err, PL_E_INPUT, "%s: bos_token_id: %d is not below vocab_size %d", where, c->bos_token_id,
                       c->vocab_size);
    if (c->draft_vocab_size < 0 || c->draft_vocab_size > c->vocab_size)
        return pl_fail(err, PL_E_INPUT, "%s: draft_vocab_size: %d is not between 1 and vocab_size %d", where,
                       c->draft_vocab_size, c->vocab_size);
    bool own = strcmp(c->architecture, PACELINE) == 0 || strcmp(c->architecture, PACELINE1) == 0;
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

// A token id; -1 and null are both in use for "none".
static pl_status opt_token(const pl_json *j, const char *key, int *out, pl_err *err) {
    int64_t v;
    PL_TRY(pl_json_opt_int(j, NULL, key, -1, PL_HF_VOCAB_MAX, -1, &v, err));
    *out = (int)v;
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

static const struct family *family_of(const char *architecture) {
    for (int i = 0; i < FAMILIES; i++)
        if (strcmp(families[i].architecture, architecture) == 0) return &families[i];
    return NULL;
}

static pl_status fail_family(const pl_json *j, const cJSON *list, const char *name, pl_err *err) {
    char   known[512] = "";
    size_t n = 0;
    for (int i = 0; i < FAMILIES; i++)
        n += (size_t)snprintf(known + n, sizeof known - n, "%s%s",
                              i == 0             ? ""
                              : i + 1 < FAMILIES ? ", "
                                                 : " or ",
                              families[i].architecture);
    return pl_json_fail(j, list, err, "\"%.60s\" is not supported; targets are %s", name, known);
}

static pl_status read_architecture(pl_hf_config *c, const pl_json *j, pl_hf_role role, const struct family **of,
                                   pl_err *err) {
    const cJSON *list;
    const char  *name;
    PL_TRY(pl_json_get_array(j, NULL, "architectures", &list, err));
    if (!list->child) return pl_json_fail(j, list, err, "empty; expected one name");
    PL_TRY(pl_json_str_of(j, list->child, &name, err));
    bool    draft = pl_json_find(j, NULL, "draft_vocab_size") != NULL;
    bool    llama = strcmp(name, LLAMA) == 0, eagle3 = strcmp(name, EAGLE3) == 0 || strcmp(name, PACELINE) == 0;
    bool    eagle1 = strcmp(name, EAGLE1) == 0 || strcmp(name, EAGLE1_VLLM) == 0 || strcmp(name, PACELINE1) == 0;
    int64_t layers;
    PL_TRY(pl_json_opt_int(j, NULL, "num_hidden_layers", 1, PL_HF_LAYERS_MAX, PL_HF_LAYERS_MAX, &layers, err));
    if (role == PL_HF_DRAFTER && (eagle3 || (llama && draft)))
        c->backbone = PL_HF_EAGLE3;
    else if (role == PL_HF_DRAFTER && (eagle1 || (llama && layers == 1)))
        c->backbone = PL_HF_EAGLE1;
    else if (role == PL_HF_DRAFTER && strcmp(name, PACELINE_OTHER) == 0)
        c->backbone = PL_HF_OTHER;
    c->target_head = c->backbone == PL_HF_EAGLE1 && strcmp(name, PACELINE1) != 0;
    const struct family *family = family_of(name);
    bool                 known = role == PL_HF_TARGET ? !draft && family : c->backbone != PL_HF_NO_BACKBONE;
    if (!known && role == PL_HF_TARGET && (eagle3 || eagle1 || draft))
        return pl_json_fail(j, list, err, "%.60s here is a draft head, not a target; give it as the drafter", name);
    if (!known && role == PL_HF_TARGET) return fail_family(j, list, name, err);
    if (!known && family)
        return pl_json_fail(j, list, err, "%s without draft_vocab_size is a target, not a draft head", name);
    if (!known)
        return pl_json_fail(j, list, err, "\"%.60s\" is not supported; draft heads are %s, %s, or %s with %s; %s, %s",
                            name, EAGLE3, PACELINE, LLAMA, "draft_vocab_size", EAGLE1, PACELINE1);
    *of = role == PL_HF_TARGET ? family : &drafter_family;
    c->qkv_bias = (*of)->qkv_bias;
    c->qk_norm = (*of)->qk_norm;
    c->fused = (*of)->fused;
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

static pl_status read_activation(pl_hf_config *c, const pl_json *j, const struct family *f, pl_err *err) {
    // Gemma's files state both, and mean hidden_activation.
    const char *key = f->gemma ? "hidden_activation" : "hidden_act", *act;
    PL_TRY(pl_json_opt_str(j, NULL, key, f->gemma ? "gelu_pytorch_tanh" : "silu", &act, err));
    if (strcmp(act, "gelu_pytorch_tanh") == 0 && f->architecture)
        c->activation = PL_HF_GELU_TANH;
    else if (strcmp(act, "silu") != 0)
        return pl_json_fail(j, pl_json_find(j, NULL, key), err, "\"%.40s\" is not supported, only silu%s", act,
                            f->architecture ? " and gelu_pytorch_tanh" : "");
    return PL_OK;
}

static pl_status refuse_unknown_math(const pl_json *j, pl_err *err) {
    const cJSON *node;
    PL_TRY(must_be(j, NULL, "attention_bias", false, err));
    PL_TRY(must_be(j, NULL, "mlp_bias", false, err));
    PL_TRY(must_be(j, NULL, "use_qk_norm", false, err));
    PL_TRY(must_be(j, NULL, "use_bidirectional_attention", false, err));
    if ((node = pl_json_find(j, NULL, "quantization_config")) != NULL)
        return pl_json_fail(j, node, err, "quantised weights are not supported; use the F32, BF16 or F16 model");
    return PL_OK;
}

static pl_status read_softcap(double *out, const pl_json *j, const char *key, double def, pl_err *err) {
    const cJSON *stated = cJSON_GetObjectItemCaseSensitive(j->root, key);
    if (def < 0 && pl_json_find(j, NULL, key))
        return pl_json_fail(j, stated, err, "a soft cap is not supported in this architecture");
    *out = 0;
    if (def < 0 || (stated && cJSON_IsNull(stated))) return PL_OK; // null switches it off
    return pl_json_opt_num(j, NULL, key, 1e-3, 1e6, def, out, err);
}

static void set_windowed(pl_hf_config *c, int layer) {
    c->windowed[layer / 8] |= (uint8_t)(1 << layer % 8);
}

// layer_types, where they are stated.
static pl_status read_layer_types(pl_hf_config *c, const pl_json *j, const struct family *f, const cJSON *types,
                                  pl_err *err) {
    int n = 0;
    for (const cJSON *t = types->child; t; t = t->next, n++) {
        const char *type;
        PL_TRY(pl_json_str_of(j, t, &type, err));
        bool sliding = strcmp(type, "sliding_attention") == 0;
        if ((!sliding && strcmp(type, "full_attention") != 0) || (sliding && f->windows == NO_WINDOWS))
            return pl_json_fail(j, t, err, "\"%.40s\" is not supported, only full_attention%s", type,
                                f->windows == NO_WINDOWS ? "" : " and sliding_attention");
        if (sliding && c->sliding_window == 0)
            return pl_json_fail(j, t, err, "sliding_attention, but there is no sliding_window");
        if (!sliding && f->windows == WINDOWS_ALL && c->sliding_window > 0)
            return pl_json_fail(j, t, err, "full_attention, but %s gives each layer its sliding_window",
                                c->architecture);
        if (sliding && n < PL_HF_LAYERS_MAX) set_windowed(c, n);
    }
    if (n == c->num_hidden_layers || f->windows == NO_WINDOWS) return PL_OK;
    return pl_json_fail(j, types, err, "%d entries for %d layers", n, c->num_hidden_layers);
}

static pl_status read_windows(pl_hf_config *c, const pl_json *j, const struct family *f, pl_err *err) {
    const cJSON *node, *types;
    bool         on;
    int64_t      from, pattern;
    // Qwen-like files state a window and switch it off.
    PL_TRY(pl_json_opt_bool(j, NULL, "use_sliding_window", f->windows != WINDOWS_SWITCHED, &on, err));
    node = on ? cJSON_GetObjectItemCaseSensitive(j->root, "sliding_window") : NULL;
    bool none = node && cJSON_IsNull(node), known = f->windows == WINDOWS_SWITCHED || f->windows == WINDOWS_PATTERN;
    if (node && !none && f->windows == NO_WINDOWS)
        return pl_json_fail(j, node, err, "sliding-window attention is not supported in this architecture");
    if (on && !none && f->windows != NO_WINDOWS)
        PL_TRY(opt_size(j, NULL, "sliding_window", PL_HF_POSITIONS_MAX, known ? KNOWN_WINDOW : 0, &c->sliding_window,
                        err));
    PL_TRY(pl_json_opt_int(j, NULL, "max_window_layers", 0, PL_HF_LAYERS_MAX, 28, &from, err));
    PL_TRY(pl_json_opt_int(j, NULL, "sliding_window_pattern", 1, PL_HF_LAYERS_MAX, f->pattern, &pattern, err));
    if (f->windows != WINDOWS_PATTERN || f->pattern == 2) pattern = f->pattern;
    PL_TRY(pl_json_opt_array(j, NULL, "layer_types", &types, err));
    if (types) PL_TRY(read_layer_types(c, j, f, types, err));
    bool any = false;
    for (int l = 0; l < c->num_hidden_layers && c->sliding_window > 0; l++) {
        bool rule = f->windows == WINDOWS_SWITCHED  ? l >= from
                    : f->windows == WINDOWS_PATTERN ? (l + 1) % pattern != 0
                                                    : true;
        if (!types && rule) set_windowed(c, l);
        any |= pl_hf_windowed(c, l);
    }
    if (!any) c->sliding_window = 0;
    return PL_OK;
}

// What transformers derives where the file is silent: factor and original positions from each other and the model's
// positions, the attention factor from the factor (DeepSeek's from mscale and mscale_all_dim).
static double yarn_scale(double factor, double mscale) {
    return factor <= 1 ? 1 : 0.1 * mscale * log(factor) + 1;
}

static pl_status read_yarn(pl_hf_rope *r, const pl_json *j, const cJSON *o, int positions, pl_err *err) {
    int64_t original;
    double  mscale, all;
    PL_TRY(
        pl_json_opt_int(j, o, "original_max_position_embeddings", 1, PL_HF_POSITIONS_MAX, positions, &original, err));
    r->original_max_position_embeddings = (int)original;
    PL_TRY(pl_json_opt_num(j, o, "factor", 1, 1e6, (double)positions / (double)original, &r->factor, err));
    PL_TRY(pl_json_opt_num(j, o, "beta_fast", 1e-6, 1e6, 32, &r->beta_fast, err));
    PL_TRY(pl_json_opt_num(j, o, "beta_slow", 1e-6, 1e6, 1, &r->beta_slow, err));
    PL_TRY(pl_json_opt_bool(j, o, "truncate", true, &r->truncate, err));
    PL_TRY(pl_json_opt_num(j, o, "mscale", 0, 1e6, 0, &mscale, err));
    PL_TRY(pl_json_opt_num(j, o, "mscale_all_dim", 0, 1e6, 0, &all, err));
    double derived =
        mscale > 0 && all > 0 ? yarn_scale(r->factor, mscale) / yarn_scale(r->factor, all) : yarn_scale(r->factor, 1);
    return pl_json_opt_num(j, o, "attention_factor", 1e-6, 1e6, derived, &r->attention_factor, err);
}

static pl_status read_divisors(double *to, int *n, const pl_json *j, const cJSON *o, const char *key, pl_err *err) {
    const cJSON *list;
    PL_TRY(pl_json_get_array(j, o, key, &list, err));
    *n = 0;
    for (const cJSON *x = list->child; x; x = x->next) {
        if (*n == PL_HF_LONG_MAX) return pl_json_fail(j, list, err, "more than %d factors", PL_HF_LONG_MAX);
        if (!cJSON_IsNumber(x) || !(x->valuedouble >= 1e-3 && x->valuedouble <= 1e6))
            return pl_json_fail(j, x, err, "expected a number from 0.001 to 1000000");
        to[(*n)++] = x->valuedouble;
    }
    return PL_OK;
}

// The original length stands at the top in Phi-3's files, and counts before one beside the factors.
static pl_status read_longrope(pl_hf_rope *r, const pl_json *j, const cJSON *o, int positions, pl_err *err) {
    int64_t      original;
    int          n;
    const cJSON *of = pl_json_find(j, NULL, "original_max_position_embeddings") ? NULL : o;
    r->scaling = PL_HF_ROPE_LONG;
    PL_TRY(
        pl_json_opt_int(j, of, "original_max_position_embeddings", 2, PL_HF_POSITIONS_MAX, positions, &original, err));
    r->original_max_position_embeddings = (int)original;
    PL_TRY(read_divisors(r->short_factor, &n, j, o, "short_factor", err));
    PL_TRY(read_divisors(r->long_factor, &r->n_divisors, j, o, "long_factor", err));
    if (n != r->n_divisors)
        return pl_json_fail(j, o, err, "%d factors for short texts, %d for long ones", n, r->n_divisors);
    PL_TRY(pl_json_opt_num(j, o, "factor", 1e-6, 1e6, (double)positions / (double)original, &r->factor, err));
    double derived = r->factor <= 1 ? 1 : sqrt(1 + log(r->factor) / log((double)original));
    return pl_json_opt_num(j, o, "attention_factor", 1e-6, 1e6, derived, &r->attention_factor, err);
}

// The part of a head that is rotated; where it is not Phi-3's, all of it.
static pl_status read_partial(pl_hf_rope *r, const pl_json *j, const cJSON *own, const struct family *f, pl_err *err) {
    double least = f->fused ? 1e-3 : 1, part;
    PL_TRY(pl_json_opt_num(j, NULL, "partial_rotary_factor", least, 1, 1, &part, err));
    if (own) PL_TRY(pl_json_opt_num(j, own, "partial_rotary_factor", least, 1, part, &part, err));
    r->partial = part < 1 ? part : 0;
    return PL_OK;
}

// RoPE of windowed layers where it is another: rope_local_base_freq, or (transformers 5) rope_parameters of their own.
static pl_status read_local(double *theta, const pl_json *j, const cJSON *own, const struct family *f, pl_err *err) {
    const char *type;
    double      whole;
    if (f->local == 0) return own ? pl_json_fail(j, own, err, "RoPE by layer is not supported here") : PL_OK;
    PL_TRY(pl_json_opt_num(j, NULL, "rope_local_base_freq", 1, 1e12, f->local, theta, err));
    if (!own) return PL_OK;
    PL_TRY(pl_json_opt_str(j, own, "rope_type", "default", &type, err));
    if (strcmp(type, "default") != 0)
        return pl_json_fail(j, own, err, "\"%.40s\" is not supported in windowed layers, only default", type);
    PL_TRY(pl_json_opt_num(j, own, "partial_rotary_factor", 1, 1, 1, &whole, err));
    return pl_json_opt_num(j, own, "rope_theta", 1, 1e12, *theta, theta, err);
}

// rope_theta and rope_scaling at the top, or (transformers 5) both in rope_parameters, or by layer types in objects of
// it.
static pl_status read_rope(pl_hf_config *c, const pl_json *j, const struct family *f, pl_err *err) {
    const cJSON *o, *own, *full = NULL, *local = NULL;
    const char  *type;
    pl_hf_rope  *r = &c->rope;
    int          positions = c->max_position_embeddings;
    PL_TRY(pl_json_opt_object(j, NULL, "rope_parameters", &own, err));
    PL_TRY(pl_json_opt_object(j, NULL, "rope_scaling", &o, err));
    if (own) PL_TRY(pl_json_opt_object(j, own, "full_attention", &full, err));
    if (own) PL_TRY(pl_json_opt_object(j, own, "sliding_attention", &local, err));
    PL_TRY(read_local(&c->local_theta, j, local, f, err));
    if (full && f->local == 0) return pl_json_fail(j, full, err, "RoPE by layer is not supported here");
    if (full || local) own = full;
    PL_TRY(read_partial(r, j, own, f, err));
    PL_TRY(pl_json_opt_num(j, NULL, "rope_theta", 1, 1e12, f->theta, &r->theta, err));
    if (own) PL_TRY(pl_json_opt_num(j, own, "rope_theta", 1, 1e12, r->theta, &r->theta, err));
    if (own && !o) o = own;
    if (!o) return PL_OK;
    PL_TRY(pl_json_opt_str(j, o, "type", "default", &type, err));
    PL_TRY(pl_json_opt_str(j, o, "rope_type", type, &type, err));
    if (strcmp(type, "default") == 0) {
        const cJSON *sections = pl_json_find(j, o, "mrope_section");
        return sections ? pl_json_fail(j, sections, err, "multimodal RoPE is not supported") : PL_OK;
    }
    // Phi-3's older files say su, and some yarn, of what is longrope.
    bool phi = f->fused && strcmp(type, "yarn") == 0;
    if (f->architecture && (strcmp(type, "longrope") == 0 || strcmp(type, "su") == 0 || phi))
        return read_longrope(r, j, o, positions, err);
    if (strcmp(type, "yarn") == 0) {
        r->scaling = PL_HF_ROPE_YARN;
        return read_yarn(r, j, o, positions, err);
    }
    bool llama3 = strcmp(type, "llama3") == 0;
    if (!llama3 && strcmp(type, "linear") != 0)
        return pl_json_fail(j, o, err, "\"%.40s\" is not supported; known are default, linear, llama3%s", type,
                            f->architecture ? ", yarn and longrope" : " and yarn");
    PL_TRY(pl_json_get_num(j, o, "factor", 1, 1e6, &r->factor, err));
    r->scaling = llama3 ? PL_HF_ROPE_LLAMA3 : PL_HF_ROPE_LINEAR;
    if (!llama3) return PL_OK;
    int64_t original;
    PL_TRY(pl_json_get_num(j, o, "low_freq_factor", 1e-6, 1e6, &r->low_freq_factor, err));
    PL_TRY(pl_json_get_num(j, o, "high_freq_factor", 1e-6, 1e6, &r->high_freq_factor, err));
    PL_TRY(pl_json_get_int(j, o, "original_max_position_embeddings", 1, PL_HF_POSITIONS_MAX, &original, err));
    r->original_max_position_embeddings = (int)original;
    return PL_OK;
}

static pl_status read_dtype(pl_hf_config *c, const pl_json *j, pl_err *err) {
    static const struct {
        const char *name;
        pl_dtype    dtype;
    } known[] = {{"float32", PL_F32}, {"bfloat16", PL_BF16}, {"float16", PL_F16}};
    const char *key = pl_json_find(j, NULL, "dtype") ? "dtype" : "torch_dtype", *name;
    PL_TRY(pl_json_opt_str(j, NULL, key, "float32", &name, err));
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
    PL_TRY(pl_json_int_of(j, node, -1, PL_HF_VOCAB_MAX, &id, err));
    if (id < 0) return PL_OK;
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
            !(c->backbone == PL_HF_OTHER && strcmp(k->string, "backbone") == 0))
            return pl_json_fail(j, k, err, "unknown; written by a newer paceline?");
    const char *numbering;
    PL_TRY(pl_json_opt_str(j, own, "tap_numbering", "", &numbering, err));
    if (strcmp(numbering, "input") == 0)
        c->tap_numbering = PL_HF_TAPS_INPUT;
    else if (strcmp(numbering, "output") == 0)
        c->tap_numbering = PL_HF_TAPS_OUTPUT;
    else if (*numbering)
        return pl_json_fail(j, pl_json_find(j, own, "tap_numbering"), err, "expected \"input\" or \"output\"");
    PL_TRY(pl_json_opt_object(j, own, "head", &head, err));
    if (!head) return PL_OK;
    return pl_hf_head_read(&c->head, j, head, err);
}

static pl_status read_drafter(pl_hf_config *c, const pl_json *j, pl_err *err) {
    const cJSON *eagle, *taps;
    PL_TRY(opt_size(j, NULL, "draft_vocab_size", PL_HF_VOCAB_MAX, 0, &c->draft_vocab_size, err));
    PL_TRY(opt_size(j, NULL, "target_hidden_size", PL_HF_HIDDEN_MAX, 0, &c->target_hidden_size, err));
    PL_TRY(pl_json_opt_object(j, NULL, "eagle_config", &eagle, err));
    PL_TRY(read_switch(j, eagle, "fc_norm", &c->fc_norm, err));
    PL_TRY(read_switch(j, eagle, "norm_output", &c->norm_output, err));
    PL_TRY(read_switch(j, eagle, "norm_before_fc", &c->norm_before_fc, err));
    PL_TRY(read_switch(j, eagle, "norm_before_residual", &c->norm_before_residual, err));
    PL_TRY(read_own(c, j, err));
    if (!eagle) return PL_OK;
    PL_TRY(must_be(j, eagle, "use_aux_hidden_state", true, err));
    PL_TRY(must_be(j, eagle, "use_input_layernorm_in_first_layer", true, err));
    PL_TRY(must_be(j, eagle, "use_last_layernorm", true, err));
    PL_TRY(must_be(j, eagle, "use_mtp_layernorm", false, err));
    PL_TRY(pl_json_opt_array(j, eagle, "eagle_aux_hidden_state_layer_ids", &taps, err));
    for (const cJSON *id = taps ? taps->child : NULL; id; id = id->next) {
        int64_t layer;
        if (c->n_taps == PL_HF_TAPS) return pl_json_fail(j, taps, err, "more than %d layers", PL_HF_TAPS);
        PL_TRY(pl_json_int_of(j, id, 0, PL_HF_LAYERS_MAX, &layer, err));
        c->tap[c->n_taps++] = (int)layer;
    }
    return PL_OK;
}

// As get_size where def is 0.
static pl_status stated_size(const pl_json *j, const char *key, int max, int def, int *out, pl_err *err) {
    return def ? opt_size(j, NULL, key, max, def, out, err) : get_size(j, key, max, out, err);
}

static pl_status read_sizes(pl_hf_config *c, const pl_json *j, const struct family *f, pl_err *err) {
    PL_TRY(get_size(j, "hidden_size", PL_HF_HIDDEN_MAX, &c->hidden_size, err));
    PL_TRY(get_size(j, "intermediate_size", PL_HF_INTERMEDIATE_MAX, &c->intermediate_size, err));
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
    PL_TRY(pl_json_opt_num(j, NULL, "rms_norm_eps", 1e-30, 0.5, 1e-6, &c->rms_norm_eps, err));
    if (f->gemma)
        PL_TRY(pl_json_opt_num(j, NULL, "query_pre_attn_scalar", 1e-3, 1e6, GEMMA_QUERY_SCALAR, &c->query_scalar, err));
    return pl_json_opt_bool(j, NULL, "tie_word_embeddings", f->gemma, &c->tie_word_embeddings, err);
}

// The decoder's own: the whole file, or the text_config of one that wraps it.
static pl_status read_decoder(pl_hf_config *c, const pl_json *j, const struct family *f, pl_err *err) {
    PL_TRY(refuse_unknown_math(j, err));
    PL_TRY(read_activation(c, j, f, err));
    PL_TRY(read_sizes(c, j, f, err));
    PL_TRY(read_windows(c, j, f, err));
    PL_TRY(read_softcap(&c->attention_softcap, j, "attn_logit_softcapping", f->softcap[0], err));
    PL_TRY(read_softcap(&c->final_softcap, j, "final_logit_softcapping", f->softcap[1], err));
    PL_TRY(read_rope(c, j, f, err));
    return read_eos(c, j, err);
}

// Members at the top of a file that wraps a decoder count before the decoder's own.
static pl_status read_wrapped(pl_hf_config *c, const pl_json *j, const struct family *f, pl_err *err) {
    const cJSON *text;
    char         where[512];
    PL_TRY(pl_json_get_object(j, NULL, "text_config", &text, err));
    snprintf(where, sizeof where, "%s: text_config", j->where);
    pl_json inner = {.where = where, .root = (cJSON *)(uintptr_t)text};
    PL_TRY(refuse_unknown_math(j, err));
    PL_TRY(read_dtype(c, pl_json_find(j, NULL, "dtype") || pl_json_find(j, NULL, "torch_dtype") ? j : &inner, err));
    PL_TRY(opt_token(pl_json_find(j, NULL, "bos_token_id") ? j : &inner, "bos_token_id", &c->bos_token_id, err));
    PL_TRY(opt_token(pl_json_find(j, NULL, "pad_token_id") ? j : &inner, "pad_token_id", &c->pad_token_id, err));
    PL_TRY(read_eos(c, j, err));
    return read_decoder(c, &inner, f, err);
}

static pl_status read_config(pl_hf_config *c, const pl_json *j, pl_hf_role role, pl_err *err) {
    const struct family *f = NULL;
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
    return pl_hf_config_check(c, j->where, err);
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

static void put_int(pl_json_out *o, const char *key, int v) {
    pl_json_out_key(o, key);
    pl_json_out_int(o, v);
}

static void put_num(pl_json_out *o, const char *key, double v) {
    pl_json_out_key(o, key);
    pl_json_out_num(o, v);
}

static void put_bool(pl_json_out *o, const char *key, bool v) {
    pl_json_out_key(o, key);
    pl_json_out_bool(o, v);
}

static void put_str(pl_json_out *o, const char *key, const char *v) {
    pl_json_out_key(o, key);
    pl_json_out_str(o, v);
}

static void put_object(pl_json_out *o, const char *key) {
    pl_json_out_key(o, key);
    pl_json_out_object(o);
}

static void put_ints(pl_json_out *o, const char *key, const int *v, int n) {
    pl_json_out_key(o, key);
    pl_json_out_array(o);
    for (int i = 0; i < n; i++)
        pl_json_out_int(o, v[i]);
    pl_json_out_close(o, ']');
}

static void put_nums(pl_json_out *o, const char *key, const double *v, int n) {
    pl_json_out_key(o, key);
    pl_json_out_array(o);
    for (int i = 0; i < n; i++)
        pl_json_out_num(o, v[i]);
    pl_json_out_close(o, ']');
}

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
    put_str(o, "rope_type", none ? "default" : llama3 ? "llama3" : yarn ? "yarn" : longrope ? "longrope" : "linear");
    if (!none) put_num(o, "factor", r->factor);
    if (longrope) {
        put_nums(o, "short_factor", r->short_factor, r->n_divisors);
        put_nums(o, "long_factor", r->long_factor, r->n_divisors);
        put_num(o, "attention_factor", r->attention_factor);
        put_int(o, "original_max_position_embeddings", r->original_max_position_embeddings);
    }
    if (yarn) {
        put_num(o, "beta_fast", r->beta_fast);
        put_num(o, "beta_slow", r->beta_slow);
        put_num(o, "attention_factor", r->attention_factor);
        put_bool(o, "truncate", r->truncate);
        put_int(o, "original_max_position_embeddings", r->original_max_position_embeddings);
    }
    if (!llama3) return;
    put_num(o, "low_freq_factor", r->low_freq_factor);
    put_num(o, "high_freq_factor", r->high_freq_factor);
    put_int(o, "original_max_position_embeddings", r->original_max_position_embeddings);
}

void pl_hf_put_rope(pl_json_out *o, const pl_hf_rope *r) {
    put_num(o, "rope_theta", r->theta);
    if (r->scaling == PL_HF_ROPE_NONE) {
        put_str(o, "rope_scaling", NULL);
        return;
    }
    put_object(o, "rope_scaling");
    pl_hf_put_scaling(o, r);
    pl_json_out_close(o, '}');
}

static void put_drafter(pl_json_out *o, const pl_hf_config *c) {
    if (c->draft_vocab_size > 0) put_int(o, "draft_vocab_size", c->draft_vocab_size);
    if (c->target_hidden_size > 0) put_int(o, "target_hidden_size", c->target_hidden_size);
    if (c->backbone == PL_HF_EAGLE1) {
        if (c->fc_bias != PL_HF_BIAS_UNSTATED) put_bool(o, "bias", c->fc_bias == PL_HF_BIAS_YES);
    } else {
        put_bool(o, "fc_norm", c->fc_norm);
        put_bool(o, "norm_output", c->norm_output);
        put_bool(o, "norm_before_fc", c->norm_before_fc);
        put_bool(o, "norm_before_residual", c->norm_before_residual);
    }
    if (c->n_taps > 0) {
        put_object(o, "eagle_config");
        put_bool(o, "use_aux_hidden_state", true);
        put_ints(o, "eagle_aux_hidden_state_layer_ids", c->tap, c->n_taps);
        pl_json_out_close(o, '}');
    }
    if (!*c->head.kind && c->tap_numbering == PL_HF_TAPS_UNSTATED && c->backbone != PL_HF_OTHER) return;
    put_object(o, "paceline");
    if (c->backbone == PL_HF_OTHER) put_str(o, "backbone", c->backbone_name);
    if (*c->head.kind) {
        put_object(o, "head");
        pl_hf_head_put(o, &c->head);
        pl_json_out_close(o, '}');
    }
    if (c->tap_numbering != PL_HF_TAPS_UNSTATED)
        put_str(o, "tap_numbering", c->tap_numbering == PL_HF_TAPS_INPUT ? "input" : "output");
    pl_json_out_close(o, '}');
}

static void put_softcap(pl_json_out *o, const char *key, double cap) {
    if (cap > 0)
        put_num(o, key, cap);
    else
        put_str(o, key, NULL);
}

// What a target has beside Llama's members; nothing for most.
static void put_unlike_llama(pl_json_out *o, const pl_hf_config *c) {
    const struct family *f = is_drafter(c) ? NULL : family_of(c->architecture);
    if (!f) return;
    if (f->gemma) {
        put_str(o, "hidden_activation", c->activation == PL_HF_GELU_TANH ? "gelu_pytorch_tanh" : "silu");
        put_num(o, "query_pre_attn_scalar", c->query_scalar);
        if (f->softcap[0] >= 0) put_softcap(o, "attn_logit_softcapping", c->attention_softcap);
        put_softcap(o, "final_logit_softcapping", c->final_softcap);
    }
    if (c->local_theta > 0) put_num(o, "rope_local_base_freq", c->local_theta);
    if (c->rope.partial > 0) put_num(o, "partial_rotary_factor", c->rope.partial);
    if (c->sliding_window == 0 && f->windows == WINDOWS_PATTERN) put_str(o, "sliding_window", NULL);
    if (c->sliding_window == 0 && f->windows != WINDOWS_PATTERN) return;
    if (c->sliding_window > 0) put_int(o, "sliding_window", c->sliding_window);
    if (f->windows == WINDOWS_SWITCHED) put_bool(o, "use_sliding_window", true);
    pl_json_out_key(o, "layer_types");
    pl_json_out_array(o);
    for (int l = 0; l < c->num_hidden_layers; l++)
        pl_json_out_str(o, pl_hf_windowed(c, l) ? "sliding_attention" : "full_attention");
    pl_json_out_close(o, ']');
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
    pl_json_out_key(&o, "architectures");
    pl_json_out_array(&o);
    pl_json_out_str(&o, c->architecture);
    pl_json_out_close(&o, ']');
    put_str(&o, "model_type", *c->model_type ? c->model_type : "llama");
    put_int(&o, "hidden_size", c->hidden_size);
    put_int(&o, "intermediate_size", c->intermediate_size);
    put_int(&o, "num_hidden_layers", c->num_hidden_layers);
    put_int(&o, "num_attention_heads", c->num_attention_heads);
    put_int(&o, "num_key_value_heads", c->num_key_value_heads);
    put_int(&o, "head_dim", c->head_dim);
    put_int(&o, "vocab_size", c->vocab_size);
    put_int(&o, "max_position_embeddings", c->max_position_embeddings);
    put_str(&o, "hidden_act", c->activation == PL_HF_GELU_TANH ? "gelu_pytorch_tanh" : "silu");
    put_unlike_llama(&o, c);
    put_num(&o, "rms_norm_eps", c->rms_norm_eps);
    pl_hf_put_rope(&o, &c->rope);
    put_bool(&o, "attention_bias", false);
    put_bool(&o, "mlp_bias", false);
    put_bool(&o, "tie_word_embeddings", c->tie_word_embeddings);
    pl_hf_put_token(&o, "bos_token_id", c->bos_token_id);
    pl_hf_put_token(&o, "pad_token_id", c->pad_token_id);
    if (c->n_eos <= 1)
        pl_hf_put_token(&o, "eos_token_id", c->n_eos == 1 ? c->eos_token_id[0] : -1);
    else
        put_ints(&o, "eos_token_id", c->eos_token_id, c->n_eos);
    put_str(&o, "torch_dtype", pl_hf_dtype_name(c->dtype));
    if (is_drafter(c)) put_drafter(&o, c);
    pl_json_out_close(&o, '}');
    PL_TRY(pl_json_out_end(&o, err));
    pl_status st = pl_file_write_atomic(path, o.text, o.len, err);
    pl_free(o.text);
    return st;
}
