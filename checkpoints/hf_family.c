#include "checkpoints/hf_family.h"
#include "kernels/base/check.h"
#include "kernels/base/json.h"
#include "kernels/op/swiglu.h"
#include <stdio.h>
#include <string.h>

static const char LLAMA[] = "LlamaForCausalLM", MISTRAL[] = "MistralForCausalLM";

static const pl_hf_family families[] = {
    {.architecture = LLAMA, .softcap = {-1, -1}, .theta = 10000},
    {.architecture = MISTRAL, .windows = PL_HF_WINDOWS_ALL, .softcap = {-1, -1}, .theta = 10000},
    {.architecture = "Qwen2ForCausalLM",
     .qkv_bias = true,
     .windows = PL_HF_WINDOWS_SWITCHED,
     .softcap = {-1, -1},
     .theta = 10000},
    {.architecture = "Qwen3ForCausalLM",
     .qk_norm = true,
     .windows = PL_HF_WINDOWS_SWITCHED,
     .softcap = {-1, -1},
     .theta = 10000},
    {.architecture = "Phi3ForCausalLM",
     .fused = true,
     .windows = PL_HF_WINDOWS_ALL,
     .softcap = {-1, -1},
     .theta = 10000,
     .positions = 4096},
    {.architecture = "MixtralForCausalLM",
     .windows = PL_HF_WINDOWS_ALL,
     .softcap = {-1, -1},
     .theta = 1e6,
     .kv_heads = 8,
     .positions = 131072,
     .eps = 1e-5,
     .experts = 8,
     .experts_per_token = 2,
     .expert_norm = true},
    {.architecture = "Qwen3MoeForCausalLM",
     .qk_norm = true,
     .windows = PL_HF_WINDOWS_SWITCHED_ALL,
     .softcap = {-1, -1},
     .theta = 10000,
     .kv_heads = 4,
     .positions = 32768,
     .experts = 128,
     .experts_per_token = 8,
     .expert_size = 768},
    {.architecture = "GptOssForCausalLM",
     .qkv_bias = true,
     .oss = true,
     .windows = PL_HF_WINDOWS_PATTERN,
     .pattern = 2,
     .window = 128,
     .softcap = {-1, -1},
     .theta = 150000,
     .heads = 64,
     .kv_heads = 8,
     .head_dim = 64,
     .vocab = 201088,
     .positions = 131072,
     .eps = 1e-5,
     .experts = 128,
     .experts_per_token = 4,
     .expert_norm = true},
    {.architecture = "Gemma2ForCausalLM",
     .gemma = true,
     .windows = PL_HF_WINDOWS_PATTERN,
     .pattern = 2,
     .softcap = {50, 30},
     .theta = 10000,
     .heads = 8,
     .kv_heads = 4,
     .head_dim = 256,
     .vocab = 256000,
     .positions = 8192},
#define GEMMA3                                                                                                         \
    .qk_norm = true, .gemma = true, .windows = PL_HF_WINDOWS_PATTERN, .pattern = 6, .softcap = {-1, 0}, .theta = 1e6,  \
    .local = 10000, .heads = 8, .kv_heads = 4, .head_dim = 256, .vocab = 262208, .positions = 131072
    {.architecture = "Gemma3ForCausalLM", GEMMA3},
    {.architecture = "Gemma3ForConditionalGeneration", .wrapped = true, GEMMA3},
#define DELTA                                                                                                          \
    .qk_norm = true, .delta = true, .softcap = {-1, -1}, .theta = 10000, .heads = 16, .head_dim = 256,                 \
    .positions = 32768
    {.architecture = "Qwen3NextForCausalLM",
     .by_key_head = true,
     .kv_heads = 2,
     .vocab = 151936,
     .experts = 512,
     .experts_per_token = 10,
     .expert_size = 512,
     .shared_expert = 512,
     DELTA},
    {.architecture = "Qwen3_5ForCausalLM", .kv_heads = 4, .vocab = 248320, DELTA},
    {.architecture = "Qwen3_5ForConditionalGeneration", .wrapped = true, .kv_heads = 4, .vocab = 248320, DELTA},
#define DELTA_MOE                                                                                                      \
    .kv_heads = 2, .vocab = 248320, .inter = 5632, .experts = 256, .experts_per_token = 8, .expert_size = 512,         \
    .shared_expert = 512, .expert_norm = true, DELTA
    {.architecture = "Qwen3_5MoeForCausalLM", DELTA_MOE},
    {.architecture = "Qwen3_5MoeForConditionalGeneration", .wrapped = true, DELTA_MOE},
};
enum { FAMILIES = sizeof families / sizeof *families, KNOWN_WINDOW = 4096, GEMMA_QUERY_SCALAR = 256 };

const pl_hf_family pl_hf_drafter_family = {.softcap = {-1, -1}, .theta = 10000};

const pl_hf_family *pl_hf_family_of(const char *architecture) {
    for (int i = 0; i < FAMILIES; i++)
        if (strcmp(families[i].architecture, architecture) == 0) return &families[i];
    return NULL;
}

pl_status pl_hf_family_fail(const pl_json *j, const cJSON *list, const char *name, pl_err *err) {
    char   known[640] = "";
    size_t n = 0;
    for (int i = 0; i < FAMILIES; i++)
        n += (size_t)snprintf(known + n, sizeof known - n, "%s%s",
                              i == 0             ? ""
                              : i + 1 < FAMILIES ? ", "
                                                 : " or ",
                              families[i].architecture);
    return pl_json_fail(j, list, err, "\"%.60s\" is not supported; targets are %s", name, known);
}

static void set_windowed(pl_hf_config *c, int layer) {
    c->windowed[layer / 8] |= (uint8_t)(1 << layer % 8);
}

bool pl_hf_windowed(const pl_hf_config *c, int layer) {
    PL_CHECK(layer >= 0 && layer < PL_HF_LAYERS_MAX, "layer %d", layer);
    return c->windowed[layer / 8] >> layer % 8 & 1;
}

void pl_hf_set_window(pl_hf_config *c, int window) {
    c->sliding_window = window;
    memset(c->windowed, 0, sizeof c->windowed);
    for (int l = 0; l < c->num_hidden_layers && window > 0; l++)
        set_windowed(c, l);
}

bool pl_hf_causal_in(const pl_hf_config *c, int layer) {
    return c->block.causal == PL_HF_CAUSAL_ALL || (c->block.causal == PL_HF_CAUSAL_WINDOWS && pl_hf_windowed(c, layer));
}

void pl_hf_config_plain(pl_hf_config *c) {
    c->foreign = c->qkv_bias = c->qk_norm = c->fused = c->norm_plus_one = c->post_norms = c->embedding_scaled = false;
    c->activation = PL_HF_SILU;
    c->query_scalar = c->attention_softcap = c->final_softcap = c->local_theta = 0;
    pl_hf_set_window(c, 0);
    c->rope.partial = 0;
    c->biased = c->sinks = c->output_gate = false;
    c->delta = (pl_hf_delta){0};
    c->experts = c->experts_per_token = c->expert_size = c->shared_expert = 0;
    c->expert_norm = false;
    memset(c->dense, 0, sizeof c->dense);
    if (c->rope.scaling == PL_HF_ROPE_LONG) c->rope = (pl_hf_rope){.theta = c->rope.theta};
}

// ---- reading ----

// GPT-OSS's gate, whose constants are the op's (kernels/op/swiglu.h).
static pl_status read_clamps(pl_hf_config *c, const pl_json *j, pl_err *err) {
    static const struct {
        const char *key;
        double      is;
    } constants[] = {{"swiglu_alpha", PL_CLAMPED_ALPHA}, {"swiglu_limit", PL_CLAMPED_LIMIT}};
    for (int i = 0; i < 2; i++) {
        double v;
        PL_TRY(pl_json_opt_num(j, NULL, constants[i].key, -1e6, 1e6, constants[i].is, &v, err));
        if (v != constants[i].is)
            return pl_json_fail(j, pl_json_find(j, NULL, constants[i].key), err, "%g is not supported, only %g", v,
                                constants[i].is);
    }
    if (c->activation != PL_HF_SILU)
        return pl_json_fail(j, pl_json_find(j, NULL, "hidden_act"), err, "only silu is supported in this architecture");
    c->activation = PL_HF_CLAMPED;
    return PL_OK;
}

static pl_status read_activation(pl_hf_config *c, const pl_json *j, const pl_hf_family *f, pl_err *err) {
    // Gemma's files state both, and mean hidden_activation.
    const char *key = f->gemma ? "hidden_activation" : "hidden_act", *act;
    PL_TRY(pl_json_opt_str(j, NULL, key, f->gemma ? "gelu_pytorch_tanh" : "silu", &act, err));
    if (strcmp(act, "gelu_pytorch_tanh") == 0 && f->architecture)
        c->activation = PL_HF_GELU_TANH;
    else if (strcmp(act, "silu") != 0)
        return pl_json_fail(j, pl_json_find(j, NULL, key), err, "\"%.40s\" is not supported, only silu%s", act,
                            f->architecture ? " and gelu_pytorch_tanh" : "");
    return f->oss ? read_clamps(c, j, err) : PL_OK;
}

static pl_status read_softcap(double *out, const pl_json *j, const char *key, double def, pl_err *err) {
    const cJSON *stated = cJSON_GetObjectItemCaseSensitive(j->root, key);
    if (def < 0 && pl_json_find(j, NULL, key))
        return pl_json_fail(j, stated, err, "a soft cap is not supported in this architecture");
    *out = 0;
    if (def < 0 || (stated && cJSON_IsNull(stated))) return PL_OK; // null switches it off
    return pl_json_opt_num(j, NULL, key, 1e-3, 1e6, def, out, err);
}

// Returns which layers may have a window. Block drafters' are Qwen3's, and so are this program's own EAGLE-3's.
static pl_hf_windows windows_of(const pl_hf_config *c, const pl_hf_family *f) {
    return c->backbone == PL_HF_DFLASH || strcmp(c->architecture, PL_HF_PACELINE_EAGLE3) == 0 ? PL_HF_WINDOWS_SWITCHED
                                                                                              : f->windows;
}

static bool is_switched(pl_hf_windows w) {
    return w == PL_HF_WINDOWS_SWITCHED || w == PL_HF_WINDOWS_SWITCHED_ALL;
}

// layer_types, where they are stated.
static pl_status read_layer_types(pl_hf_config *c, const pl_json *j, pl_hf_windows windows, const cJSON *types,
                                  pl_err *err) {
    int n = 0;
    for (const cJSON *t = types->child; t; t = t->next, n++) {
        const char *type;
        PL_TRY(pl_json_str_of(j, t, &type, err));
        bool sliding = strcmp(type, "sliding_attention") == 0;
        if ((!sliding && strcmp(type, "full_attention") != 0) || (sliding && windows == PL_HF_WINDOWS_NONE))
            return pl_json_fail(j, t, err, "\"%.40s\" is not supported, only full_attention%s", type,
                                windows == PL_HF_WINDOWS_NONE ? "" : " and sliding_attention");
        if (sliding && c->sliding_window == 0)
            return pl_json_fail(j, t, err, "sliding_attention, but there is no sliding_window%s",
                                is_switched(windows) ? ", or use_sliding_window is not true" : "");
        if (!sliding && (windows == PL_HF_WINDOWS_ALL || windows == PL_HF_WINDOWS_SWITCHED_ALL) &&
            c->sliding_window > 0)
            return pl_json_fail(j, t, err, "full_attention, but %s gives each layer its sliding_window",
                                c->architecture);
        if (sliding && n < PL_HF_LAYERS_MAX) set_windowed(c, n);
    }
    if (n == c->num_hidden_layers || windows == PL_HF_WINDOWS_NONE) return PL_OK;
    return pl_json_fail(j, types, err, "%d entries for %d layers", n, c->num_hidden_layers);
}

static pl_status read_windows(pl_hf_config *c, const pl_json *j, const pl_hf_family *f, pl_err *err) {
    const cJSON  *node, *types;
    bool          on;
    int64_t       from, pattern;
    pl_hf_windows windows = windows_of(c, f);
    // Qwen-like files state a window and switch it off, or leave the switch out, which is off.
    bool          off = is_switched(windows);
    PL_TRY(pl_json_opt_bool(j, NULL, "use_sliding_window", !off, &on, err));
    node = on ? cJSON_GetObjectItemCaseSensitive(j->root, "sliding_window") : NULL;
    bool none = node && cJSON_IsNull(node), known = off || windows == PL_HF_WINDOWS_PATTERN;
    if (node && !none && windows == PL_HF_WINDOWS_NONE)
        return pl_json_fail(j, node, err, "sliding-window attention is not supported in this architecture");
    if (on && !none && windows != PL_HF_WINDOWS_NONE) {
        int64_t window;
        PL_TRY(pl_json_opt_int(j, NULL, "sliding_window", 1, PL_HF_POSITIONS_MAX,
                               known ? f->window > 0 ? f->window : KNOWN_WINDOW : 0, &window, err));
        c->sliding_window = (int)window;
    }
    PL_TRY(pl_json_opt_int(j, NULL, "max_window_layers", 0, PL_HF_LAYERS_MAX, 28, &from, err));
    PL_TRY(pl_json_opt_int(j, NULL, "sliding_window_pattern", 1, PL_HF_LAYERS_MAX, f->pattern, &pattern, err));
    if (windows != PL_HF_WINDOWS_PATTERN || f->pattern == 2) pattern = f->pattern;
    PL_TRY(pl_json_opt_array(j, NULL, "layer_types", &types, err));
    if (types) PL_TRY(read_layer_types(c, j, windows, types, err));
    bool any = false;
    for (int l = 0; l < c->num_hidden_layers && c->sliding_window > 0; l++) {
        bool rule = windows == PL_HF_WINDOWS_SWITCHED  ? l >= from
                    : windows == PL_HF_WINDOWS_PATTERN ? (l + 1) % pattern != 0
                                                       : true;
        if (!types && rule) set_windowed(c, l);
        any |= pl_hf_windowed(c, l);
    }
    if (!any) c->sliding_window = 0;
    return PL_OK;
}

pl_status pl_hf_family_read(pl_hf_config *c, const pl_json *j, const pl_hf_family *f, pl_err *err) {
    PL_TRY(read_activation(c, j, f, err));
    PL_TRY(f->delta ? pl_hf_delta_read(c, j, f, err) : read_windows(c, j, f, err));
    PL_TRY(read_softcap(&c->attention_softcap, j, "attn_logit_softcapping", f->softcap[0], err));
    PL_TRY(read_softcap(&c->final_softcap, j, "final_logit_softcapping", f->softcap[1], err));
    PL_TRY(pl_hf_experts_read(c, j, f, err));
    if (!f->gemma) return PL_OK;
    return pl_json_opt_num(j, NULL, "query_pre_attn_scalar", 1e-3, 1e6, GEMMA_QUERY_SCALAR, &c->query_scalar, err);
}

// ---- writing ----

static void put_softcap(pl_json_out *o, const char *key, double cap) {
    if (cap > 0)
        pl_put_num(o, key, cap);
    else
        pl_put_str(o, key, NULL);
}

void pl_hf_put_layer_types(pl_json_out *o, const pl_hf_config *c) {
    pl_put_array(o, "layer_types");
    for (int l = 0; l < c->num_hidden_layers; l++)
        pl_json_out_str(o, pl_hf_windowed(c, l) ? "sliding_attention" : "full_attention");
    pl_json_out_close(o, ']');
}

static void put_windows(pl_json_out *o, const pl_hf_config *c, bool has_switch) {
    if (c->sliding_window > 0) pl_put_int(o, "sliding_window", c->sliding_window);
    if (has_switch) pl_put_bool(o, "use_sliding_window", true);
    pl_hf_put_layer_types(o, c);
}

// Writes the members of a target that Llama's config has not, and the windows of a drafter.
void pl_hf_family_put(pl_json_out *o, const pl_hf_config *c) {
    const pl_hf_family *f = c->backbone != PL_HF_NO_BACKBONE ? NULL : pl_hf_family_of(c->architecture);
    if (!f && c->backbone != PL_HF_NO_BACKBONE && c->sliding_window > 0) put_windows(o, c, true);
    if (!f) return;
    pl_hf_experts_put(o, c, f);
    pl_hf_delta_put(o, c);
    if (f->gemma) {
        pl_put_str(o, "hidden_activation", c->activation == PL_HF_GELU_TANH ? "gelu_pytorch_tanh" : "silu");
        pl_put_num(o, "query_pre_attn_scalar", c->query_scalar);
        if (f->softcap[0] >= 0) put_softcap(o, "attn_logit_softcapping", c->attention_softcap);
        put_softcap(o, "final_logit_softcapping", c->final_softcap);
    }
    if (c->local_theta > 0) pl_put_num(o, "rope_local_base_freq", c->local_theta);
    if (c->rope.partial > 0) pl_put_num(o, "partial_rotary_factor", c->rope.partial);
    if (c->sliding_window == 0 && f->windows == PL_HF_WINDOWS_PATTERN) pl_put_str(o, "sliding_window", NULL);
    if (c->sliding_window == 0 && f->windows != PL_HF_WINDOWS_PATTERN) return;
    put_windows(o, c, is_switched(f->windows));
}
