#include "checkpoints/hf_family.h"
#include "kernels/base/log.h"
#include <math.h>
#include <string.h>

static void warn_other(const pl_json *j, const char *key, const char *place, double other, double taken) {
    pl_log_warn_once("%s: %s: %g %s does not count, %g does, as in transformers; let all places say the same", j->where,
                     key, other, place, taken);
}

// What transformers derives where the file is silent: factor and original positions from each other and the model's
// positions, the attention factor from the factor (DeepSeek's from mscale and mscale_all_dim).
static double yarn_scale(double factor, double mscale) {
    return factor <= 1 ? 1 : 0.1 * mscale * log(factor) + 1;
}

// The positions before scaling: beside the factors, but of Phi-3's files and of longrope at the top first.
static pl_status read_original(pl_hf_rope *r, const pl_json *j, const cJSON *o, int least, int silent, bool top_counts,
                               pl_err *err) {
    static const char key[] = "original_max_position_embeddings";
    bool              top = top_counts && pl_json_find(j, NULL, key);
    int64_t           original, other;
    PL_TRY(pl_json_opt_int(j, top ? NULL : o, key, least, PL_HF_POSITIONS_MAX, silent, &original, err));
    PL_TRY(pl_json_opt_int(j, top ? o : NULL, key, least, PL_HF_POSITIONS_MAX, original, &other, err));
    if (other != original)
        warn_other(j, key, top ? "beside the factors" : "at the top", (double)other, (double)original);
    r->original_max_position_embeddings = (int)original;
    return PL_OK;
}

static pl_status read_yarn(pl_hf_rope *r, const pl_json *j, const cJSON *o, const pl_hf_family *f, int positions,
                           pl_err *err) {
    double mscale, all;
    PL_TRY(read_original(r, j, o, 1, positions, f->fused, err));
    int original = r->original_max_position_embeddings;
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

static pl_status read_longrope(pl_hf_rope *r, const pl_json *j, const cJSON *o, int positions, pl_err *err) {
    int n;
    r->scaling = PL_HF_ROPE_LONG;
    PL_TRY(read_original(r, j, o, 2, positions, true, err));
    int original = r->original_max_position_embeddings;
    PL_TRY(read_divisors(r->short_factor, &n, j, o, "short_factor", err));
    PL_TRY(read_divisors(r->long_factor, &r->n_divisors, j, o, "long_factor", err));
    if (n != r->n_divisors)
        return pl_json_fail(j, o, err, "%d factors for short texts, %d for long ones", n, r->n_divisors);
    PL_TRY(pl_json_opt_num(j, o, "factor", 1e-6, 1e6, (double)positions / (double)original, &r->factor, err));
    double derived = r->factor <= 1 ? 1 : sqrt(1 + log(r->factor) / log((double)original));
    return pl_json_opt_num(j, o, "attention_factor", 1e-6, 1e6, derived, &r->attention_factor, err);
}

// Places of RoPE's members. transformers 5 takes them from one object, rope_scaling or, where that is missing or
// empty, rope_parameters (of which Gemma 3's is by layer types, and counts behind rope_scaling), and from the top what
// that object lacks. A place that does not count is looked at all the same, for the line that says so.
typedef struct places {
    const char  *name[3];
    const cJSON *at[3]; // NULL: the top
    int          n, counted;
} places;

static void add_place(places *p, const char *name, const cJSON *at) {
    p->name[p->n] = name;
    p->at[p->n++] = at;
}

static pl_status read_number(double *out, const pl_json *j, const places *p, const char *key, double least, double most,
                             double silent, pl_err *err) {
    bool   found = false;
    double taken = silent, v;
    for (int i = 0; i < p->counted && !found; i++) {
        found = pl_json_find(j, p->at[i], key) != NULL;
        if (found) PL_TRY(pl_json_get_num(j, p->at[i], key, least, most, &taken, err));
    }
    for (int i = 0; i < p->n; i++) {
        PL_TRY(pl_json_opt_num(j, p->at[i], key, least, most, taken, &v, err));
        if (v != taken) warn_other(j, key, p->name[i], v, taken);
    }
    *out = taken;
    return PL_OK;
}

static bool is_blank(const cJSON *o) {
    return !o || !o->child;
}

static const char *type_of(const pl_json *j, const cJSON *o) {
    const cJSON *type = pl_json_find(j, o, "rope_type");
    if (!type) type = pl_json_find(j, o, "type");
    return cJSON_IsString(type) ? type->valuestring : "default";
}

// Two objects that scale otherwise; their bases are compared where they are read.
static void warn_scaling(const pl_json *j, const cJSON *counts, const cJSON *other) {
    if (strcmp(type_of(j, counts), type_of(j, other)) != 0) {
        pl_log_warn_once("%s: rope_scaling is \"%.40s\" and counts, rope_parameters \"%.40s\" does not, as in "
                         "transformers; let both say the same",
                         j->where, type_of(j, counts), type_of(j, other));
        return;
    }
    for (const cJSON *m = other->child; m; m = m->next) {
        const cJSON *mine = cJSON_GetObjectItemCaseSensitive(counts, m->string);
        if (mine && strcmp(m->string, "rope_theta") != 0 && !cJSON_Compare(mine, m, true))
            pl_log_warn_once("%s: %.40s: rope_scaling and rope_parameters differ; rope_scaling counts, as in "
                             "transformers",
                             j->where, m->string);
    }
}

// RoPE of windowed layers where it is another: rope_local_base_freq, or (transformers 5) rope_parameters of their own.
static pl_status read_local(double *theta, const pl_json *j, const cJSON *own, const pl_hf_family *f, pl_err *err) {
    const char *type;
    double      whole, top;
    if (f->local == 0) return own ? pl_json_fail(j, own, err, "RoPE by layer is not supported here") : PL_OK;
    PL_TRY(pl_json_opt_num(j, NULL, "rope_local_base_freq", 1, 1e12, f->local, &top, err));
    *theta = top;
    if (!own) return PL_OK;
    PL_TRY(pl_json_opt_str(j, own, "rope_type", "default", &type, err));
    if (strcmp(type, "default") != 0)
        return pl_json_fail(j, own, err, "\"%.40s\" is not supported in windowed layers, only default", type);
    PL_TRY(pl_json_opt_num(j, own, "partial_rotary_factor", 1, 1, 1, &whole, err));
    PL_TRY(pl_json_opt_num(j, own, "rope_theta", 1, 1e12, *theta, theta, err));
    if (pl_json_find(j, NULL, "rope_local_base_freq") && top != *theta)
        warn_other(j, "rope_local_base_freq", "at the top", top, *theta);
    return PL_OK;
}

// The object by layer types that o may be: *full and *local, of which one at least is there then.
static pl_status split_layers(const pl_json *j, const cJSON *o, const cJSON **full, const cJSON **local, pl_err *err) {
    *full = *local = NULL;
    if (o) PL_TRY(pl_json_opt_object(j, o, "full_attention", full, err));
    return o ? pl_json_opt_object(j, o, "sliding_attention", local, err) : PL_OK;
}

// The places, and *scaling, the object that says how RoPE is scaled (NULL: none does).
static pl_status find_places(places *p, const cJSON **scaling, pl_hf_config *c, const pl_json *j, const pl_hf_family *f,
                             pl_err *err) {
    const cJSON *o, *own, *full, *local, *layered;
    *p = (places){0};
    PL_TRY(pl_json_opt_object(j, NULL, "rope_parameters", &own, err));
    PL_TRY(pl_json_opt_object(j, NULL, "rope_scaling", &o, err));
    if (is_blank(o)) o = NULL;
    PL_TRY(split_layers(j, o, &full, &layered, err));
    if (full || layered) return pl_json_fail(j, o, err, "RoPE by layer is read from rope_parameters alone");
    PL_TRY(split_layers(j, own, &full, &local, err));
    PL_TRY(read_local(&c->local_theta, j, local, f, err));
    if (full && f->local == 0) return pl_json_fail(j, full, err, "RoPE by layer is not supported here");
    if (full || local) own = full;
    if (is_blank(own)) own = NULL;
    *scaling = o ? o : own;
    if (o) add_place(p, "in rope_scaling", o);
    if (own && (!o || f->local > 0)) add_place(p, "in rope_parameters", own);
    add_place(p, "at the top", NULL);
    p->counted = p->n;
    if (own && o && f->local == 0) add_place(p, "in rope_parameters", own);
    if (own && o) warn_scaling(j, o, own);
    return PL_OK;
}

pl_status pl_hf_rope_read(pl_hf_config *c, const pl_json *j, const pl_hf_family *f, pl_err *err) {
    const cJSON *o = NULL;
    const char  *type;
    pl_hf_rope  *r = &c->rope;
    int          positions = c->max_position_embeddings;
    places       p;
    double       part;
    PL_TRY(find_places(&p, &o, c, j, f, err));
    // The part of a head that is rotated; where it is not Phi-3's or Qwen3.5's, all of it.
    bool partial = f->fused || f->delta;
    PL_TRY(read_number(&part, j, &p, "partial_rotary_factor", partial ? 1e-3 : 1, 1, f->delta ? 0.25 : 1, err));
    r->partial = part < 1 ? part : 0;
    PL_TRY(read_number(&r->theta, j, &p, "rope_theta", 1, 1e12, f->theta, err));
    if (!o && f->oss) { // transformers' default
        *r = (pl_hf_rope){.scaling = PL_HF_ROPE_YARN, .theta = r->theta, .factor = 32, .beta_fast = 32, .beta_slow = 1};
        r->original_max_position_embeddings = 4096;
        r->attention_factor = yarn_scale(32, 1);
    }
    if (!o) return PL_OK;
    double beta; // Ministral 3's, by which queries grow with their position
    PL_TRY(pl_json_opt_num(j, o, "llama_4_scaling_beta", -1e6, 1e6, 0, &beta, err));
    if (beta != 0)
        return pl_json_fail(j, pl_json_find(j, o, "llama_4_scaling_beta"), err, "scaled queries are not supported");
    PL_TRY(pl_json_opt_str(j, o, "type", "default", &type, err));
    PL_TRY(pl_json_opt_str(j, o, "rope_type", type, &type, err));
    if (strcmp(type, "default") == 0) {
        const cJSON *sections = pl_json_find(j, o, "mrope_section"); // of a text all sections have the same positions
        return sections && !f->delta ? pl_json_fail(j, sections, err, "multimodal RoPE is not supported") : PL_OK;
    }
    // Phi-3's older files say su, and some yarn, of what is longrope.
    bool phi = f->fused && strcmp(type, "yarn") == 0;
    if (f->architecture && (strcmp(type, "longrope") == 0 || strcmp(type, "su") == 0 || phi))
        return read_longrope(r, j, o, positions, err);
    if (strcmp(type, "yarn") == 0) {
        r->scaling = PL_HF_ROPE_YARN;
        return read_yarn(r, j, o, f, positions, err);
    }
    bool llama3 = strcmp(type, "llama3") == 0;
    if (!llama3 && strcmp(type, "linear") != 0)
        return pl_json_fail(j, o, err, "\"%.40s\" is not supported; known are default, linear, llama3%s", type,
                            f->architecture ? ", yarn and longrope" : " and yarn");
    PL_TRY(pl_json_get_num(j, o, "factor", 1, 1e6, &r->factor, err));
    r->scaling = llama3 ? PL_HF_ROPE_LLAMA3 : PL_HF_ROPE_LINEAR;
    if (!llama3) return PL_OK;
    PL_TRY(pl_json_get_num(j, o, "low_freq_factor", 1e-6, 1e6, &r->low_freq_factor, err));
    PL_TRY(pl_json_get_num(j, o, "high_freq_factor", 1e-6, 1e6, &r->high_freq_factor, err));
    int64_t original; // which has no default
    PL_TRY(pl_json_get_int(j, o, "original_max_position_embeddings", 1, PL_HF_POSITIONS_MAX, &original, err));
    return read_original(r, j, o, 1, positions, f->fused, err);
}
