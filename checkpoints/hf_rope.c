#include "checkpoints/hf_rope.h"
#include <math.h>
#include <string.h>

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
static pl_status read_partial(pl_hf_rope *r, const pl_json *j, const cJSON *own, const pl_hf_family *f, pl_err *err) {
    double least = f->fused ? 1e-3 : 1, part;
    PL_TRY(pl_json_opt_num(j, NULL, "partial_rotary_factor", least, 1, 1, &part, err));
    if (own) PL_TRY(pl_json_opt_num(j, own, "partial_rotary_factor", least, 1, part, &part, err));
    r->partial = part < 1 ? part : 0;
    return PL_OK;
}

// RoPE of windowed layers where it is another: rope_local_base_freq, or (transformers 5) rope_parameters of their own.
static pl_status read_local(double *theta, const pl_json *j, const cJSON *own, const pl_hf_family *f, pl_err *err) {
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
pl_status pl_hf_rope_read(pl_hf_config *c, const pl_json *j, const pl_hf_family *f, pl_err *err) {
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
    if (!o && f->oss) { // transformers' default
        *r = (pl_hf_rope){.scaling = PL_HF_ROPE_YARN, .theta = r->theta, .factor = 32, .beta_fast = 32, .beta_slow = 1};
        r->original_max_position_embeddings = 4096;
        r->attention_factor = yarn_scale(32, 1);
    }
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
