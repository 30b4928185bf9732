// Keys of a GGUF file as the config of its model.
#include "checkpoints/ggml.h"
#include "checkpoints/gguf_model.h"
#include "checkpoints/hf_family.h"
#include <math.h>
#include <stdio.h>
#include <string.h>

static const pl_gguf_family families[] = {
    {.name = "llama",
     .architecture = "LlamaForCausalLM",
     .type = "llama",
     .mixed = "MixtralForCausalLM",
     .paired = true},
    {.name = "qwen2", .architecture = "Qwen2ForCausalLM", .type = "qwen2"},
    {.name = "qwen3", .architecture = "Qwen3ForCausalLM", .type = "qwen3"},
    {.name = "qwen3moe", .architecture = "Qwen3MoeForCausalLM", .type = "qwen3_moe"},
    {.name = "phi3", .architecture = "Phi3ForCausalLM", .type = "phi3"}, // llama.cpp ignores its windows
    {.name = "gemma2",
     .architecture = "Gemma2ForCausalLM",
     .type = "gemma2",
     .period = 2,
     .window = 4096,
     .narrow = 46},
    {.name = "gemma3",
     .architecture = "Gemma3ForCausalLM",
     .type = "gemma3_text",
     .period = 6,
     .window = -1,
     .local_theta = 10000,
     .narrow = 62},
    {.name = "gpt-oss", .architecture = "GptOssForCausalLM", .type = "gpt_oss", .period = 2},
    {.name = "qwen3next", .architecture = "Qwen3NextForCausalLM", .type = "qwen3_next"},
    {.name = "qwen35", .architecture = "Qwen3_5ForCausalLM", .type = "qwen3_5_text", .tiled = true},
    {.name = "qwen35moe", .architecture = "Qwen3_5MoeForCausalLM", .type = "qwen3_5_moe_text", .tiled = true},
};
enum { FAMILIES = sizeof families / sizeof *families };

typedef struct reading {
    const pl_gguf_parts  *parts;
    const pl_gguf        *g; // the first part, which has the keys
    const char           *path;
    const pl_gguf_family *f;
    const pl_hf_family   *hf;
    pl_hf_config         *c;
} reading;

// ---- values

static const char *key_of(const reading *r, const char *name, char key[128]) {
    snprintf(key, 128, "%s.%s", r->f->name, name);
    return key;
}

static pl_status fail_value(const reading *r, const char *name, const char *what, pl_err *err) {
    return pl_fail(err, PL_E_INPUT, "%s: %s.%s %s", r->path, r->f->name, name, what);
}

// A whole number; silent: the value of a file without the key, negative: it must be there.
static pl_status get_int(const reading *r, const char *name, int64_t least, int64_t most, int64_t silent, int *to,
                         pl_err *err) {
    char    key[128];
    int64_t v;
    if (!pl_gguf_find(r->g, key_of(r, name, key))) {
        if (silent < 0) return fail_value(r, name, "is missing", err);
        *to = (int)silent;
        return PL_OK;
    }
    if (!pl_gguf_int(r->g, key, &v)) return fail_value(r, name, "is no whole number for all layers", err);
    if (v < least || v > most)
        return pl_fail(err, PL_E_INPUT, "%s: %s is %lld, expected %lld to %lld", r->path, key, (long long)v,
                       (long long)least, (long long)most);
    *to = (int)v;
    return PL_OK;
}

// A number; silent likewise.
static pl_status get_num(const reading *r, const char *name, double least, double most, double silent, double *to,
                         pl_err *err) {
    char                 key[128];
    float                f;
    const pl_gguf_value *v = pl_gguf_find(r->g, key_of(r, name, key));
    *to = silent;
    if (!v) return silent < 0 ? fail_value(r, name, "is missing", err) : PL_OK;
    if (v->type == PL_GGUF_F32) {
        memcpy(&f, v->data, sizeof f);
        *to = (double)f;
    } else if (v->type == PL_GGUF_F64) {
        memcpy(to, v->data, sizeof *to);
    } else {
        return fail_value(r, name, "is no number", err);
    }
    if (*to >= least && *to <= most) return PL_OK;
    return pl_fail(err, PL_E_INPUT, "%s: %s is %g, expected %g to %g", r->path, key, *to, least, most);
}

// Refuses a setting that llama.cpp computes and that has no counterpart here, unless it is neutral.
static pl_status refuse_other(const reading *r, const char *name, double neutral, pl_err *err) {
    double v;
    PL_TRY(get_num(r, name, -1e30, 1e30, neutral, &v, err));
    if (v == neutral) return PL_OK;
    return pl_fail(err, PL_E_UNSUPPORTED, "%s: %s.%s %g is not supported, only %g", r->path, r->f->name, name, v,
                   neutral);
}

// ---- sizes

static pl_status read_vocabulary_size(const reading *r, pl_err *err) {
    const pl_gguf_tensor *t = pl_gguf_parts_find(r->parts, "token_embd.weight");
    const pl_gguf_value  *tokens = pl_gguf_find(r->g, "tokenizer.ggml.tokens");
    if (!t || t->rank != 2)
        return pl_fail(err, PL_E_INPUT, "%s: has no matrix token_embd.weight: it holds no whole model", r->path);
    if (t->shape[1] > PL_HF_VOCAB_MAX)
        return pl_fail(err, PL_E_INPUT, "%s: embeddings of %lld tokens", r->path, (long long)t->shape[1]);
    r->c->vocab_size = (int)t->shape[1];
    if (tokens && tokens->type == PL_GGUF_ARRAY && tokens->n != (uint64_t)t->shape[1])
        return pl_fail(err, PL_E_INPUT, "%s: %llu tokens, but embeddings of %lld", r->path,
                       (unsigned long long)tokens->n, (long long)t->shape[1]);
    return PL_OK;
}

// The last nextn_predict_layers blocks are layers for drafting, and the decoder has those before them.
static pl_status leave_out_drafter(const reading *r, pl_err *err) {
    int blocks = r->c->num_hidden_layers, drafts;
    PL_TRY(get_int(r, "nextn_predict_layers", 0, blocks - 1, 0, &drafts, err));
    r->c->num_hidden_layers = blocks - drafts;
    return PL_OK;
}

static pl_status read_sizes(const reading *r, pl_err *err) {
    pl_hf_config *c = r->c;
    int           value;
    PL_TRY(get_int(r, "embedding_length", 1, PL_HF_HIDDEN_MAX, -1, &c->hidden_size, err));
    PL_TRY(get_int(r, "block_count", 1, PL_HF_LAYERS_MAX, -1, &c->num_hidden_layers, err));
    if (r->hf->delta) PL_TRY(leave_out_drafter(r, err));
    PL_TRY(get_int(r, "context_length", 1, PL_HF_POSITIONS_MAX, -1, &c->max_position_embeddings, err));
    PL_TRY(get_int(r, "attention.head_count", 1, PL_HF_HEADS_MAX, -1, &c->num_attention_heads, err));
    PL_TRY(get_int(r, "attention.head_count_kv", 1, PL_HF_HEADS_MAX, c->num_attention_heads, &c->num_key_value_heads,
                   err));
    int dim = c->hidden_size / c->num_attention_heads;
    PL_TRY(get_int(r, "attention.key_length", 1, PL_HF_HEAD_DIM_MAX, dim, &c->head_dim, err));
    PL_TRY(get_int(r, "attention.value_length", 1, PL_HF_HEAD_DIM_MAX, dim, &value, err));
    if (value != c->head_dim)
        return pl_fail(err, PL_E_UNSUPPORTED, "%s: values of %d elements, keys of %d: not supported", r->path, value,
                       c->head_dim);
    PL_TRY(get_num(r, "attention.layer_norm_rms_epsilon", 1e-30, 0.5, -1, &c->rms_norm_eps, err));
    PL_TRY(read_vocabulary_size(r, err));
    return PL_OK;
}

static pl_status read_experts(const reading *r, pl_err *err) {
    pl_hf_config *c = r->c;
    int           inter, width;
    bool          mixed = r->f->mixed || r->hf->experts > 0;
    PL_TRY(get_int(r, "expert_count", 0, PL_HF_EXPERTS_MAX, 0, &c->experts, err));
    PL_TRY(get_int(r, "expert_feed_forward_length", 0, PL_HF_INTERMEDIATE_MAX, 0, &width, err));
    PL_TRY(get_int(r, "feed_forward_length", 0, PL_HF_INTERMEDIATE_MAX, width > 0 ? width : -1, &inter, err));
    c->intermediate_size = inter > 0 ? inter : width;
    if (c->experts == 0 && r->hf->experts > 0) return fail_value(r, "expert_count", "is missing", err);
    if (c->experts == 0) return PL_OK;
    if (!mixed) return pl_fail(err, PL_E_UNSUPPORTED, "%s: experts are not supported in %s", r->path, r->f->name);
    PL_TRY(get_int(r, "expert_used_count", 1, c->experts, -1, &c->experts_per_token, err));
    PL_TRY(refuse_other(r, "expert_weights_scale", 1, err));
    c->expert_size = width > 0 ? width : c->intermediate_size;
    c->expert_norm = true;
    if (r->hf->shared_expert > 0)
        PL_TRY(get_int(r, "expert_shared_feed_forward_length", 1, PL_HF_INTERMEDIATE_MAX, c->intermediate_size,
                       &c->shared_expert, err));
    if (!r->f->mixed) return PL_OK;
    strcpy(c->architecture, r->f->mixed);
    strcpy(c->model_type, "mixtral");
    return PL_OK;
}

// ---- attention

static void set_windowed(pl_hf_config *c, int layer) {
    c->windowed[layer / 8] |= (uint8_t)(1 << layer % 8);
}

// Which layers have windows: one number, the period, or a flag for each layer.
static pl_status read_pattern(const reading *r, pl_err *err) {
    static const char    name[] = "attention.sliding_window_pattern";
    pl_hf_config        *c = r->c;
    char                 key[128];
    int                  period;
    const pl_gguf_value *v = pl_gguf_find(r->g, key_of(r, name, key));
    bool                 list = v && v->type == PL_GGUF_ARRAY;
    if (list && (v->item != PL_GGUF_BOOL || v->n != (uint64_t)c->num_hidden_layers))
        return fail_value(r, name, "has not one flag for each layer", err);
    if (list)
        period = 0;
    else
        PL_TRY(get_int(r, name, 0, PL_HF_LAYERS_MAX, r->f->period, &period, err));
    for (int l = 0; l < c->num_hidden_layers; l++)
        if (list ? v->data[l] != 0 : period == 0 || (l + 1) % period != 0) set_windowed(c, l);
    return PL_OK;
}

static pl_status read_windows(const reading *r, pl_err *err) {
    const pl_gguf_family *f = r->f;
    pl_hf_config         *c = r->c;
    double                theta;
    if (f->period == 0) return PL_OK;
    int silent = f->window == 0 ? -1 : f->window > 0 ? f->window : 0;
    PL_TRY(get_int(r, "attention.sliding_window", 0, PL_HF_POSITIONS_MAX, silent, &c->sliding_window, err));
    PL_TRY(get_num(r, "rope.freq_base_swa", 1, 1e12, f->local_theta > 0 ? f->local_theta : c->rope.theta, &theta, err));
    if (c->sliding_window == 0) return PL_OK;
    PL_TRY(read_pattern(r, err));
    if (f->local_theta > 0) c->local_theta = theta;
    if (f->local_theta > 0 || theta == c->rope.theta) return PL_OK;
    return pl_fail(err, PL_E_UNSUPPORTED, "%s: a RoPE base of its own in windowed layers is not supported in %s",
                   r->path, f->name);
}

static pl_status read_scores(const reading *r, pl_err *err) {
    pl_hf_config *c = r->c;
    if (!r->hf->gemma) return PL_OK;
    bool narrow = c->num_hidden_layers == r->f->narrow;
    c->query_scalar = narrow ? c->hidden_size / c->num_attention_heads : c->head_dim;
    double silent[2] = {r->hf->softcap[0] > 0 ? 50 : 0, r->hf->softcap[0] > 0 ? 30 : 0};
    PL_TRY(get_num(r, "attn_logit_softcapping", 0, 1e6, silent[0], &c->attention_softcap, err));
    return get_num(r, "final_logit_softcapping", 0, 1e6, silent[1], &c->final_softcap, err);
}

// ---- gated delta nets

static void set_recurrent(pl_hf_config *c, int layer) {
    c->delta.layer[layer / 8] |= (uint8_t)(1 << layer % 8);
}

// Which layers have one: a flag for each block, or all but each full_attention_interval-th.
static pl_status read_recurrent(const reading *r, pl_err *err) {
    static const char    name[] = "attention.recurrent_layers";
    pl_hf_config        *c = r->c;
    char                 key[128];
    int                  interval;
    const pl_gguf_value *v = pl_gguf_find(r->g, key_of(r, name, key));
    PL_TRY(get_int(r, "full_attention_interval", 1, PL_HF_LAYERS_MAX, 4, &interval, err));
    if (v && (v->type != PL_GGUF_ARRAY || v->item != PL_GGUF_BOOL || v->n < (uint64_t)c->num_hidden_layers))
        return fail_value(r, name, "has not one flag for each layer", err);
    for (int l = 0; l < c->num_hidden_layers; l++)
        if (v ? v->data[l] != 0 : (l + 1) % interval != 0) set_recurrent(c, l);
    return PL_OK;
}

static pl_status read_delta(const reading *r, pl_err *err) {
    pl_hf_delta *d = &r->c->delta;
    int          inner;
    if (!r->hf->delta) return PL_OK;
    PL_TRY(get_int(r, "ssm.group_count", 1, PL_HF_HEADS_MAX, -1, &d->key_heads, err));
    PL_TRY(get_int(r, "ssm.time_step_rank", 1, PL_HF_HEADS_MAX, -1, &d->value_heads, err));
    PL_TRY(get_int(r, "ssm.state_size", 1, PL_HF_DELTA_DIM_MAX, -1, &d->key_dim, err));
    PL_TRY(get_int(r, "ssm.conv_kernel", 1, PL_HF_DELTA_TAPS_MAX, -1, &d->taps, err));
    PL_TRY(get_int(r, "ssm.inner_size", d->value_heads, d->value_heads * PL_HF_DELTA_DIM_MAX, -1, &inner, err));
    if (inner % d->value_heads != 0)
        return pl_fail(err, PL_E_INPUT, "%s: %s.ssm.inner_size: %d is not %d heads of one size", r->path, r->f->name,
                       inner, d->value_heads);
    d->value_dim = inner / d->value_heads;
    d->joined_gates = r->hf->by_key_head;
    r->c->output_gate = true;
    PL_TRY(read_recurrent(r, err));
    // Files of the first converters hold in_proj_qkvz as it is.
    for (int l = 0; l < r->c->num_hidden_layers; l++) {
        char name[64];
        snprintf(name, sizeof name, "blk.%d.ssm_in.weight", l);
        d->joined_qkvz |= r->hf->by_key_head && pl_gguf_parts_find(r->parts, name) != NULL;
    }
    return PL_OK;
}

// The parts of RoPE's pairs that count images' rows and columns do not matter in a text, if no pair is left out.
static pl_status check_sections(const reading *r, int rotated, pl_err *err) {
    static const char    name[] = "rope.dimension_sections";
    char                 key[128];
    int32_t              part[4];
    int64_t              pairs = 0;
    const pl_gguf_value *v = pl_gguf_find(r->g, key_of(r, name, key));
    if (!v) return PL_OK;
    if (v->type != PL_GGUF_ARRAY || (v->item != PL_GGUF_I32 && v->item != PL_GGUF_U32) || v->n > 4)
        return fail_value(r, name, "is no list of up to four numbers of pairs", err);
    memcpy(part, v->data, (size_t)v->n * sizeof *part);
    for (uint64_t i = 0; i < v->n && i < 3; i++)
        pairs += part[i];
    if (pairs == rotated / 2) return PL_OK;
    return pl_fail(err, PL_E_UNSUPPORTED, "%s: %s has %lld pairs, and a head rotates %d", r->path, key,
                   (long long)pairs, rotated / 2);
}

// ---- RoPE

// Divisors of the frequencies from a tensor, times `by`.
static pl_status read_divisors(const reading *r, const char *name, double by, double *to, pl_err *err) {
    const pl_gguf_tensor *t = pl_gguf_parts_find(r->parts, name);
    int                   n = pl_hf_rotary_dim(r->c) / 2;
    if (!t) return pl_fail(err, PL_E_INPUT, "%s: %s is missing", r->path, name);
    if (t->type != 0 || t->rank != 1 || t->shape[0] != n || (size_t)n * sizeof(float) > t->room || n > PL_HF_LONG_MAX)
        return pl_fail(err, PL_E_INPUT, "%s: %s is no list of %d divisors in F32", r->path, name, n);
    r->c->rope.n_divisors = n;
    for (int i = 0; i < n; i++) {
        float f;
        memcpy(&f, t->data + (size_t)i * sizeof f, sizeof f);
        to[i] = (double)f * by;
        if (!(to[i] >= 1e-3 && to[i] <= 1e6))
            return pl_fail(err, PL_E_INPUT, "%s: %s: a divisor of %g", r->path, name, to[i]);
    }
    return PL_OK;
}

// Llama 3's scaling is in files as its divisors: longrope with one list for texts of all lengths.
static pl_status read_frequencies(const reading *r, double factor, pl_err *err) {
    pl_hf_rope *o = &r->c->rope;
    PL_TRY(read_divisors(r, "rope_freqs.weight", factor, o->long_factor, err));
    memcpy(o->short_factor, o->long_factor, sizeof o->long_factor);
    o->scaling = PL_HF_ROPE_LONG;
    o->factor = o->attention_factor = 1;
    o->original_max_position_embeddings = r->c->max_position_embeddings;
    return PL_OK;
}

static pl_status read_longrope(const reading *r, double factor, double attention, pl_err *err) {
    pl_hf_rope *o = &r->c->rope;
    PL_TRY(read_divisors(r, "rope_factors_short.weight", factor, o->short_factor, err));
    PL_TRY(read_divisors(r, "rope_factors_long.weight", factor, o->long_factor, err));
    PL_TRY(get_int(r, "rope.scaling.original_context_length", 2, PL_HF_POSITIONS_MAX, r->c->max_position_embeddings,
                   &o->original_max_position_embeddings, err));
    o->scaling = PL_HF_ROPE_LONG;
    o->factor = (double)r->c->max_position_embeddings / o->original_max_position_embeddings;
    o->attention_factor = attention;
    return PL_OK;
}

// llama.cpp rounds the bounds of the ramp whatever the model's authors do, and derives the factor of cos and sin.
static pl_status read_yarn(const reading *r, double factor, double attention, pl_err *err) {
    pl_hf_rope *o = &r->c->rope;
    PL_TRY(get_int(r, "rope.scaling.original_context_length", 1, PL_HF_POSITIONS_MAX, r->c->max_position_embeddings,
                   &o->original_max_position_embeddings, err));
    PL_TRY(get_num(r, "rope.scaling.yarn_beta_fast", 1e-6, 1e6, 32, &o->beta_fast, err));
    PL_TRY(get_num(r, "rope.scaling.yarn_beta_slow", 1e-6, 1e6, 1, &o->beta_slow, err));
    PL_TRY(refuse_other(r, "rope.scaling.yarn_log_multiplier", 0, err));
    PL_TRY(refuse_other(r, "rope.scaling.yarn_ext_factor", 1, err));
    PL_TRY(refuse_other(r, "rope.scaling.yarn_attn_factor", 1, err));
    o->scaling = PL_HF_ROPE_YARN;
    o->factor = factor;
    o->truncate = true;
    o->attention_factor = (factor <= 1 ? 1 : 0.1 * log(factor) + 1) * attention;
    return PL_OK;
}

static pl_status read_scaling(const reading *r, pl_err *err) {
    pl_hf_rope *o = &r->c->rope;
    char        type[32] = "linear", key[128];
    double      factor, attention;
    key_of(r, "rope.scaling.type", key);
    if (pl_gguf_find(r->g, key) && !pl_gguf_text(r->g, key, type, sizeof type))
        return fail_value(r, "rope.scaling.type", "is no short text", err);
    PL_TRY(get_num(r, "rope.scale_linear", 0, 1e6, 0, &factor, err)); // its name in older files
    PL_TRY(get_num(r, "rope.scaling.factor", 0, 1e6, factor, &factor, err));
    PL_TRY(get_num(r, "rope.scaling.attn_factor", 1e-6, 1e6, 1, &attention, err));
    if (factor == 0 || strcmp(type, "none") == 0) factor = 1;
    bool freqs = pl_gguf_parts_find(r->parts, "rope_freqs.weight") != NULL;
    if (strcmp(type, "longrope") == 0 && pl_gguf_parts_find(r->parts, "rope_factors_long.weight"))
        return read_longrope(r, factor, attention, err);
    if (strcmp(type, "yarn") == 0 && !freqs) return read_yarn(r, factor, attention, err);
    if (strcmp(type, "yarn") == 0 || (strcmp(type, "none") != 0 && strcmp(type, "linear") != 0))
        return pl_fail(err, PL_E_UNSUPPORTED, "%s: RoPE scaled by %s%s is not supported", r->path, type,
                       freqs ? " with rope_freqs" : "");
    if (attention != 1) return fail_value(r, "rope.scaling.attn_factor", "belongs to yarn and longrope", err);
    if (freqs && r->f->paired) return read_frequencies(r, factor, err);
    o->scaling = factor != 1 ? PL_HF_ROPE_LINEAR : PL_HF_ROPE_NONE;
    o->factor = factor != 1 ? factor : 0;
    return PL_OK;
}

static pl_status read_rope(const reading *r, pl_err *err) {
    pl_hf_config *c = r->c;
    int           rotated;
    PL_TRY(get_num(r, "rope.freq_base", 1, 1e12, 10000, &c->rope.theta, err));
    PL_TRY(get_int(r, "rope.dimension_count", 2, c->head_dim, c->head_dim, &rotated, err));
    if (rotated % 2) return fail_value(r, "rope.dimension_count", "is odd; rotary embedding needs pairs", err);
    if (r->hf->delta) PL_TRY(check_sections(r, rotated, err));
    if (rotated < c->head_dim && !r->hf->fused && !r->hf->delta)
        return pl_fail(err, PL_E_UNSUPPORTED, "%s: RoPE of %d of %d elements is not supported in %s", r->path, rotated,
                       c->head_dim, r->f->name);
    c->rope.partial = rotated < c->head_dim ? (double)rotated / c->head_dim : 0;
    if (pl_hf_rotary_dim(c) != rotated) c->rope.partial = nextafter(c->rope.partial, 1); // a quotient rounded down
    return read_scaling(r, err);
}

// ---- tokens

// Tokens that end an answer in llama.cpp, whatever the keys say.
static const char *const endings[] = {"<|eot_id|>",
                                      "<|im_end|>",
                                      "<|end|>",
                                      "<|return|>",
                                      "<|call|>",
                                      "<|flush|>",
                                      "<|calls|>",
                                      "<end_of_turn>",
                                      "<|endoftext|>",
                                      "</s>",
                                      "<|eom_id|>",
                                      "<EOT>",
                                      "_<EOT>",
                                      "[EOT]",
                                      "[EOS]",
                                      "<|end_of_text|>",
                                      "<end_of_utterance>",
                                      "<eos>",
                                      "<turn|>",
                                      "<|tool_response>",
                                      "<｜end▁of▁sentence｜>",
                                      "[e~[",
                                      "<|fim_pad|>",
                                      "<fim-pad>",
                                      "<fim_pad>",
                                      "<PAD>",
                                      "[PAD]",
                                      "<|fim_repo|>",
                                      "<|repo_name|>",
                                      "<fim-repo>",
                                      "<REPO>",
                                      "<reponame>",
                                      "<|file_sep|>"};
enum { ENDINGS = sizeof endings / sizeof *endings };

static void add_eos(pl_hf_config *c, int64_t id) {
    if (id < 0 || id >= c->vocab_size || c->n_eos == PL_HF_EOS) return;
    for (int i = 0; i < c->n_eos; i++)
        if (c->eos_token_id[i] == id) return;
    c->eos_token_id[c->n_eos++] = (int)id;
}

static void find_endings(const pl_gguf_value *tokens, int64_t id[ENDINGS]) {
    const uint8_t *at = tokens->data;
    for (int i = 0; i < ENDINGS; i++)
        id[i] = -1;
    for (uint64_t k = 0; k < tokens->n; k++) {
        size_t      n;
        const char *s = pl_gguf_next_string(&at, &n);
        if (n == 0 || !strchr("<[_", *s)) continue; // as they all begin
        for (int i = 0; i < ENDINGS; i++)
            if (n == strlen(endings[i]) && memcmp(s, endings[i], n) == 0) id[i] = (int64_t)k;
    }
}

static int64_t id_of(const int64_t id[ENDINGS], const char *text) {
    for (int i = 0; i < ENDINGS; i++)
        if (strcmp(endings[i], text) == 0) return id[i];
    return -1;
}

// GPT-OSS's <|end|> ends a message of an answer, not the answer; of Gemma's newer vocabularies </s> is text.
static void drop_inner_endings(int64_t id[ENDINGS]) {
    bool calls = id_of(id, "<|call|>") >= 0 || id_of(id, "<|calls|>") >= 0;
    bool inner = calls && (id_of(id, "<|return|>") >= 0 || id_of(id, "<|flush|>") >= 0);
    bool tools = id_of(id, "<|tool_response>") >= 0;
    for (int i = 0; i < ENDINGS; i++)
        if ((inner && strcmp(endings[i], "<|end|>") == 0) || (tools && strcmp(endings[i], "</s>") == 0)) id[i] = -1;
}

static void read_tokens(const reading *r) {
    static const char *const keys[] = {"eos", "eot", "eom", "fim_pad", "fim_rep", "fim_sep"};
    const pl_gguf_value     *tokens = pl_gguf_find(r->g, "tokenizer.ggml.tokens");
    int64_t                  id, ending[ENDINGS];
    if (pl_gguf_int(r->g, "tokenizer.ggml.bos_token_id", &id) && id >= 0 && id < r->c->vocab_size)
        r->c->bos_token_id = (int)id;
    if (pl_gguf_int(r->g, "tokenizer.ggml.padding_token_id", &id) && id >= 0 && id < r->c->vocab_size)
        r->c->pad_token_id = (int)id;
    for (size_t i = 0; i < sizeof keys / sizeof *keys; i++) {
        char key[64];
        snprintf(key, sizeof key, "tokenizer.ggml.%s_token_id", keys[i]);
        if (pl_gguf_int(r->g, key, &id)) add_eos(r->c, id);
    }
    if (!tokens || tokens->type != PL_GGUF_ARRAY || tokens->item != PL_GGUF_STRING) return;
    find_endings(tokens, ending);
    drop_inner_endings(ending);
    for (int i = 0; i < ENDINGS; i++)
        add_eos(r->c, ending[i]);
}

// ----

const pl_gguf_family *pl_gguf_family_of(const pl_gguf *g) {
    char name[64];
    for (int i = 0; pl_gguf_text(g, "general.architecture", name, sizeof name) && i < FAMILIES; i++)
        if (strcmp(families[i].name, name) == 0) return &families[i];
    return NULL;
}

static pl_status find_family(reading *r, pl_err *err) {
    char   name[64], known[160] = "";
    size_t n = 0;
    if (!pl_gguf_text(r->g, "general.architecture", name, sizeof name))
        return pl_fail(err, PL_E_INPUT, "%s: has no general.architecture: it holds no model", r->path);
    r->f = pl_gguf_family_of(r->g);
    for (int i = 0; i < FAMILIES; i++)
        n += (size_t)snprintf(known + n, sizeof known - n, "%s%s", i ? ", " : "", families[i].name);
    if (!r->f)
        return pl_fail(err, PL_E_UNSUPPORTED, "%s: the architecture %s is not supported; targets are %s", r->path, name,
                       known);
    r->hf = pl_hf_family_of(r->f->architecture);
    return PL_OK;
}

static void take_family(const reading *r) {
    pl_hf_config       *c = r->c;
    const pl_hf_family *hf = r->hf;
    strcpy(c->architecture, r->f->architecture);
    strcpy(c->model_type, r->f->type);
    c->qkv_bias =
        pl_gguf_parts_find(r->parts, "blk.0.attn_q.bias") || pl_gguf_parts_find(r->parts, "blk.0.attn_qkv.bias");
    c->qk_norm = hf->qk_norm;
    c->fused = hf->fused;
    c->biased = c->sinks = hf->oss;
    c->post_norms = c->embedding_scaled = hf->gemma;
    c->activation = hf->gemma ? PL_HF_GELU_TANH : hf->oss ? PL_HF_CLAMPED : PL_HF_SILU;
    c->tie_word_embeddings = hf->gemma || !pl_gguf_parts_find(r->parts, "output.weight");
    c->dtype = PL_BF16;
}

pl_status pl_gguf_config(pl_hf_config *c, const pl_gguf_family **family, const pl_gguf_parts *p, pl_err *err) {
    reading r = {.parts = p, .g = p->part[0], .path = p->path, .c = c};
    pl_hf_config_init(c);
    PL_TRY(find_family(&r, err));
    *family = r.f;
    take_family(&r);
    PL_TRY(read_sizes(&r, err));
    PL_TRY(read_delta(&r, err));
    PL_TRY(read_experts(&r, err));
    PL_TRY(read_rope(&r, err));
    PL_TRY(read_windows(&r, err));
    PL_TRY(read_scores(&r, err));
    read_tokens(&r);
    return pl_hf_config_check(c, p->path, err);
}
