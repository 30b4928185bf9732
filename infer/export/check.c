#include "infer/export/check.h"
#include "infer/drafter/backbone.h"

#include "infer/export/look.h"

#include "infer/head/draft_vocab.h"
#include "kernels/base/arena.h"
#include "kernels/base/files.h"

#include <math.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>

#define CONFIG_MAX ((size_t)16 << 20)

// ---- reading ----

pl_check_verdict pl_check_say(char why[PL_CHECK_WHY], pl_check_verdict v, const char *fmt, ...) {
    va_list args;
    va_start(args, fmt);
    vsnprintf(why, PL_CHECK_WHY, fmt, args);
    va_end(args);
    return v;
}

void pl_check_told(pl_check_count *count, pl_check_tell tell, void *arg, const char *name, const char *help,
                   pl_check_verdict v, const char *why) {
    count->rules++;
    count->broken += v == PL_CHECK_BROKEN;
    count->unseen += v == PL_CHECK_UNSEEN;
    tell(arg, name, help, v, why);
}

const cJSON *pl_look_member(const pl_look *k, const cJSON *o, const char *key) {
    return pl_json_find(&k->j, o, key);
}

int64_t pl_look_int(const pl_look *k, const cJSON *o, const char *key) {
    int64_t v;
    return pl_json_get_int(&k->j, o, key, 0, INT32_MAX, &v, NULL) == PL_OK ? v : -1;
}

double pl_look_num(const pl_look *k, const cJSON *o, const char *key) {
    double v;
    return pl_json_get_num(&k->j, o, key, -HUGE_VAL, HUGE_VAL, &v, NULL) == PL_OK ? v : NAN;
}

const char *pl_look_text(const pl_look *k, const cJSON *o, const char *key) {
    const char *s;
    return pl_json_get_str(&k->j, o, key, &s, NULL) == PL_OK ? s : "";
}

int pl_look_flag(const pl_look *k, const cJSON *o, const char *key) {
    bool b;
    return pl_json_get_bool(&k->j, o, key, &b, NULL) == PL_OK ? b : -1;
}

int64_t pl_look_vocab(const pl_look *k) {
    return pl_look_int(k, k->layer, "vocab_size");
}

const char *pl_look_architecture(const pl_look *k) {
    const cJSON *list = pl_look_member(k, NULL, "architectures");
    return list && cJSON_IsArray(list) && list->child && cJSON_IsString(list->child) ? list->child->valuestring
                                                                                     : "missing";
}

static bool trimmed(const pl_look *k) {
    return k->rows >= 0 && k->rows != pl_look_vocab(k);
}

// ---- shapes ----

pl_check_verdict pl_look_sizes(pl_look *k, const char *name, const int64_t size[3]) {
    const pl_st_entry *e = pl_st_find(k->st, name);
    char               found[PL_ST_SHAPE_TEXT], expected[PL_ST_SHAPE_TEXT];
    int                rank = 0;
    bool               right = true;
    if (!e) return PL_CHECK_HOLDS; // told by names
    for (; rank < 3 && size[rank] > 0; rank++)
        right &= rank < e->rank && e->shape[rank] == size[rank];
    if (right && e->rank == rank) return PL_CHECK_HOLDS;
    return pl_broken(k, "%s is %s, config.json says %s", name, pl_st_shape_text(found, e->shape, e->rank),
                     pl_st_shape_text(expected, size, rank));
}

pl_check_verdict pl_look_shape(pl_look *k, const char *name, int64_t rows, int64_t cols) {
    return pl_look_sizes(k, name, (int64_t[3]){rows, cols});
}

// ---- rules: config.json ----

// P-EAGLE.
static bool parallel(const pl_look *k) {
    return strcmp(pl_look_architecture(k), "PEagleDraftModel") == 0;
}

// Whether one of the names is EAGLE-3's, which vLLM leaves as it is.
static bool named_eagle3(const pl_look *k) {
    const cJSON *list = pl_look_member(k, NULL, "architectures");
    for (const cJSON *e = list && cJSON_IsArray(list) ? list->child : NULL; e; e = e->next)
        if (cJSON_IsString(e) && strcmp(e->valuestring, "LlamaForCausalLMEagle3") == 0) return true;
    return false;
}

static pl_check_verdict architecture(pl_look *k) {
    const char *name = pl_look_architecture(k);
    if (k->engine->parallel && parallel(k)) {
        if (k->engine->nested || named_eagle3(k)) return PL_CHECK_HOLDS;
        return pl_broken(k,
                         "architectures: %s alone, by which vLLM looks for Eagle3%s; LlamaForCausalLMEagle3 must "
                         "stand behind it",
                         name, name);
    }
    if (k->engine->nested) {
        if (strcmp(name, "Eagle3DraftModel") == 0 || strcmp(name, "Eagle3Speculator") == 0) return PL_CHECK_HOLDS;
        return pl_broken(k, "architectures: %s; expected Eagle3DraftModel", name);
    }
    if (strcmp(name, "LlamaForCausalLMEagle3") == 0) return PL_CHECK_HOLDS;
    return pl_broken(k, "architectures: %s; expected LlamaForCausalLMEagle3", name);
}

static pl_check_verdict kind(pl_look *k) {
    const char *type = pl_look_text(k, NULL, "speculators_model_type"), *want = parallel(k) ? "peagle" : "eagle3";
    if (strcmp(type, want) == 0) return PL_CHECK_HOLDS;
    return pl_broken(k, "speculators_model_type: %s; expected %s", *type ? type : "missing", want);
}

static pl_check_verdict few_layers(pl_look *k) {
    int64_t n = pl_look_int(k, k->layer, "num_hidden_layers"), most = k->engine->layers ? k->engine->layers : 1;
    return n >= 1 && n <= most
               ? PL_CHECK_HOLDS
               : pl_broken(k, "num_hidden_layers: %lld; at most %lld served", (long long)n, (long long)most);
}

// Sizes that cannot be derived, and what readers fill in where it is missing.
static pl_check_verdict every_field(pl_look *k) {
    static const char *const        sizes[] = {"vocab_size", "hidden_size", "intermediate_size", "num_attention_heads"},
                             *const others[] = {"model_type", "num_key_value_heads", "head_dim",
                                                "hidden_act", "rms_norm_eps",        "max_position_embeddings",
                                                "rope_theta", "attention_bias",      "tie_word_embeddings"};
    for (size_t i = 0; i < sizeof sizes / sizeof *sizes; i++)
        if (!pl_look_member(k, k->layer, sizes[i])) return pl_broken(k, "%s is missing", sizes[i]);
    for (size_t i = 0; i < sizeof others / sizeof *others; i++) {
        if (pl_look_member(k, k->layer, others[i])) continue;
        if (k->engine->strict)
            return pl_broken(k, "%s is missing, and the engine's default is not the trainer's", others[i]);
        return pl_unseen(k, "%s is missing: right only if the engine's default is what was trained", others[i]);
    }
    return PL_CHECK_HOLDS;
}

// transformers 5 reads configs strictly.
static pl_check_verdict no_nulls(pl_look *k) {
    static const char *const switches[] = {
        "attention_bias", "mlp_bias", "tie_word_embeddings", "use_cache", "norm_before_residual",
        "norm_before_fc", "fc_norm",  "norm_output"};
    for (size_t i = 0; i < sizeof switches / sizeof *switches; i++)
        for (int top = 0; top < 2; top++) {
            const cJSON *e = cJSON_GetObjectItemCaseSensitive(top ? k->j.root : k->layer, switches[i]);
            if (e && cJSON_IsNull(e)) return pl_broken(k, "%s: null where a switch is expected", switches[i]);
        }
    return PL_CHECK_HOLDS;
}

static pl_check_verdict model_type(pl_look *k) {
    const char *type = pl_look_text(k, k->layer, "model_type");
    return strcmp(type, "llama") == 0 ? PL_CHECK_HOLDS : pl_broken(k, "model_type: %s; expected llama", type);
}

static pl_check_verdict activation(pl_look *k) {
    const char *act = pl_look_text(k, k->layer, "hidden_act");
    return strcmp(act, "silu") == 0 ? PL_CHECK_HOLDS : pl_broken(k, "hidden_act: %s; draft layers have silu", act);
}

static pl_check_verdict no_bias(pl_look *k) {
    static const char *const names[] = {"attention_bias", "mlp_bias", "bias"};
    for (int i = 0; i < 3; i++)
        if (pl_look_flag(k, k->layer, names[i]) == 1) return pl_broken(k, "%s: true, and the file has none", names[i]);
    return PL_CHECK_HOLDS;
}

static pl_check_verdict untied(pl_look *k) {
    if (pl_look_flag(k, k->layer, "tie_word_embeddings") == 1 || pl_look_flag(k, NULL, "tie_word_embeddings") == 1)
        return pl_broken(k, "tie_word_embeddings: true would put the embeddings in the head's place");
    return PL_CHECK_HOLDS;
}

static pl_check_verdict types_agree(pl_look *k) {
    const char *old = pl_look_text(k, NULL, "torch_dtype"), *now = pl_look_text(k, NULL, "dtype");
    if (!*old && (!*now || k->engine->strict)) return pl_broken(k, "torch_dtype is missing");
    if (*old && *now && strcmp(old, now) != 0) return pl_broken(k, "torch_dtype: %s, dtype: %s", old, now);
    if (!*old) old = now;
    for (int64_t i = 0; i < pl_st_count(k->st); i++) {
        const pl_st_entry *e = pl_st_at(k->st, i);
        bool               real = e->dtype == PL_F32 || e->dtype == PL_BF16 || e->dtype == PL_F16;
        if (real && e->rank == 2 && strcmp(pl_hf_dtype_name(e->dtype), old) != 0)
            return pl_broken(k, "torch_dtype: %s, %.80s holds %s", old, e->name, pl_hf_dtype_name(e->dtype));
    }
    return PL_CHECK_HOLDS;
}

static pl_check_verdict rope_spelt_alike(pl_look *k) {
    const cJSON *now = pl_look_member(k, k->layer, "rope_parameters"),
                *old = pl_look_member(k, k->layer, "rope_scaling");
    double theta = pl_look_num(k, k->layer, "rope_theta");
    if (!now) return PL_CHECK_HOLDS;
    if (isnan(theta) || isnan(pl_look_num(k, now, "rope_theta"))) // transformers 5 writes the second alone
        return isnan(theta) && isnan(pl_look_num(k, now, "rope_theta")) ? pl_broken(k, "rope_theta is missing")
                                                                        : PL_CHECK_HOLDS;
    if (pl_look_num(k, now, "rope_theta") != theta)
        return pl_broken(k, "rope_theta: %g, rope_parameters.rope_theta: %g", theta, pl_look_num(k, now, "rope_theta"));
    const char *type = pl_look_text(k, now, "rope_type"),
               *scaling = old ? pl_look_text(k, old, "rope_type") : "default";
    if (old && !*scaling) scaling = pl_look_text(k, old, "type");
    if (strcmp(*type ? type : "default", scaling) != 0)
        return pl_broken(k, "rope_scaling: %s, rope_parameters: %s", scaling, *type ? type : "default");
    static const char *const numbers[] = {"factor", "low_freq_factor", "high_freq_factor",
                                          "original_max_position_embeddings"};
    for (int i = 0; old && i < 4; i++) {
        double a = pl_look_num(k, old, numbers[i]), b = pl_look_num(k, now, numbers[i]);
        if (a != b && !(isnan(a) && isnan(b)))
            return pl_broken(k, "%s: %g in rope_scaling, %g in rope_parameters", numbers[i], a, b);
    }
    return PL_CHECK_HOLDS;
}

// EAGLE's EConfig.
static pl_check_verdict rope_read(pl_look *k) {
    const cJSON *o = pl_look_member(k, k->layer, "rope_scaling");
    if (!o || cJSON_IsNull(o)) return PL_CHECK_HOLDS;
    const char *type = cJSON_IsObject(o) ? pl_look_text(k, o, "type") : "";
    bool        known = strcmp(type, "linear") == 0 || strcmp(type, "dynamic") == 0;
    if (known && cJSON_GetArraySize(o) == 2 && pl_look_num(k, o, "factor") > 1) return PL_CHECK_HOLDS;
    return pl_broken(k, "rope_scaling: the program reads {\"type\", \"factor\"}, linear or dynamic, and nothing else");
}

static pl_check_verdict not_quantised(pl_look *k) {
    return pl_look_member(k, NULL, "quantization_config")
               ? pl_broken(k, "quantization_config: the weights are not quantised")
               : PL_CHECK_HOLDS;
}

// One of EAGLE-3.1's; norm_before_fc counts first where eagle_config has it.
static int norm_of(const pl_look *k, const char *name) {
    const cJSON *eagle = pl_look_member(k, NULL, "eagle_config");
    bool inner = strcmp(name, "norm_before_fc") == 0 && cJSON_GetObjectItemCaseSensitive(eagle, "norm_before_fc");
    return pl_look_flag(k, inner ? eagle : NULL, name);
}

// Absent, vLLM takes norm_before_residual of speculators' configs as true, speculators as false.
static pl_check_verdict norms_written(pl_look *k) {
    for (int i = 0; i < PL_HF_NORMS; i++) {
        const char *name = pl_hf_norm_names[i];
        int         v = norm_of(k, name);
        if (v < 0 && k->engine->nested) return pl_broken(k, "%s is missing, and defaults differ", name);
        unsigned lost = parallel(k) ? k->engine->parallel_norms : 0;
        if (v == 1 && (~k->engine->norms | lost) & 1U << i)
            return pl_broken(k, "%s: true, which the engine does not compute", name);
    }
    if (pl_look_flag(k, NULL, "fc_norm") == 1 && norm_of(k, "norm_before_fc") == 1)
        return pl_broken(k, "fc_norm and norm_before_fc: engines differ in what both mean");
    if (strcmp(k->engine->name, "trtllm") == 0 && norm_of(k, "norm_before_fc") == 1 &&
        !pl_look_member(k, NULL, "eagle_config.norm_before_fc"))
        return pl_broken(k, "norm_before_fc: true, which the engine reads in eagle_config alone");
    return PL_CHECK_HOLDS;
}

// P-EAGLE's masks are a token.
static pl_check_verdict mask_token(pl_look *k) {
    int64_t id = pl_look_int(k, NULL, "mask_token_id");
    if (!parallel(k) || (id >= 0 && id < pl_look_vocab(k))) return PL_CHECK_HOLDS;
    return pl_broken(k, "mask_token_id is missing, or none of the vocabulary");
}

static pl_check_verdict proposal(pl_look *k) {
    const cJSON *list = pl_look_member(k, NULL, "speculators_config.proposal_methods");
    if (!list || !cJSON_IsArray(list) || !list->child)
        return pl_broken(k, "speculators_config.proposal_methods is missing");
    if (pl_look_int(k, list->child, "speculative_tokens") < 1)
        return pl_broken(k, "proposal_methods[0].speculative_tokens is missing: how many are drafted by default");
    if (!*pl_look_text(k, NULL, "speculators_config.verifier.name_or_path"))
        return pl_broken(k, "speculators_config.verifier.name_or_path is missing: which target is served");
    return PL_CHECK_HOLDS;
}

// ---- rules: tensors ----

typedef struct shape {
    char    name[96];
    int64_t rows, cols; // cols 0: a vector
} shape;
enum { SHAPES = 8 + PL_HF_TAPS + 12 * PL_STEP_LAYERS };

typedef struct shape_list {
    shape s[SHAPES];
    int   n;
} shape_list;

static void put_shape(shape_list *l, const char *prefix, const char *name, int64_t rows, int64_t cols) {
    if (l->n == SHAPES) return; // of more layers than any engine serves, which another rule tells
    shape *s = &l->s[l->n++];
    snprintf(s->name, sizeof s->name, "%s%s", prefix, name);
    s->rows = rows;
    s->cols = cols;
}

static void put_layer(shape_list *l, const pl_look *k, int number, int of) {
    const pl_export_engine *engine = k->engine;
    int64_t                 d = pl_look_int(k, k->layer, "hidden_size"), dim = pl_look_int(k, k->layer, "head_dim");
    int64_t                 q = pl_look_int(k, k->layer, "num_attention_heads") * dim,
            kv = pl_look_int(k, k->layer, "num_key_value_heads") * dim;
    int64_t inter = pl_look_int(k, k->layer, "intermediate_size"), in = number ? d : 2 * d;
    char    prefix[32];
    bool    renamed = number > 0 && engine->later_norm;
    snprintf(prefix, sizeof prefix, "layers.%d.", number);
    if (of == 1) snprintf(prefix, sizeof prefix, "%s", engine->layer);
    if (number == 0) put_shape(l, prefix, "hidden_norm.weight", d, 0);
    put_shape(l, prefix, renamed ? engine->later_norm : "input_layernorm.weight", d, 0);
    put_shape(l, prefix, "post_attention_layernorm.weight", d, 0);
    put_shape(l, prefix, "self_attn.q_proj.weight", q, in);
    put_shape(l, prefix, "self_attn.k_proj.weight", kv, in);
    put_shape(l, prefix, "self_attn.v_proj.weight", kv, in);
    put_shape(l, prefix, "self_attn.o_proj.weight", d, q);
    put_shape(l, prefix, "mlp.gate_proj.weight", inter, d);
    put_shape(l, prefix, "mlp.up_proj.weight", inter, d);
    put_shape(l, prefix, "mlp.down_proj.weight", d, inter);
}

static void shapes_of(const pl_look *k, shape_list *l) {
    int64_t d = pl_look_int(k, k->layer, "hidden_size"), wide = pl_look_int(k, NULL, "target_hidden_size");
    int64_t layers = pl_look_int(k, k->layer, "num_hidden_layers");
    int     layer[PL_HF_TAPS], n = pl_look_layers(k, layer);
    if (wide < 0) wide = d;
    if (n < 0) n = 3;
    l->n = 0;
    put_shape(l, "", "fc.weight", d, n * wide);
    put_shape(l, "", "norm.weight", d, 0);
    put_shape(l, "", "lm_head.weight", pl_look_int(k, NULL, "draft_vocab_size"), d);
    if (norm_of(k, "norm_before_fc") == 1) put_shape(l, "", "input_norm.weight", n * wide, 0);
    for (int i = 0; i < n && pl_look_flag(k, NULL, "fc_norm") == 1; i++) {
        char name[32];
        snprintf(name, sizeof name, "fc_norm.%d.weight", i);
        put_shape(l, "", name, wide, 0);
    }
    int of = layers > PL_STEP_LAYERS ? PL_STEP_LAYERS : layers > 1 ? (int)layers : 1;
    for (int i = 0; i < of; i++)
        put_layer(l, k, i, of);
}

// Engines skip or refuse what they do not know, and run without what they miss.
static pl_check_verdict names(pl_look *k) {
    static const char *const more[] = {"d2t", "t2d", PL_BACKBONE_EMBED};
    shape_list               l;
    shapes_of(k, &l);
    if (parallel(k) && !pl_st_find(k->st, "mask_hidden")) return pl_broken(k, "mask_hidden is missing");
    for (int i = 0; i < l.n; i++)
        if (!pl_st_find(k->st, l.s[i].name)) return pl_broken(k, "%s is missing", l.s[i].name);
    for (int64_t i = 0; i < pl_st_count(k->st); i++) {
        const char *have = pl_st_at(k->st, i)->name;
        bool        known = parallel(k) && strcmp(have, "mask_hidden") == 0;
        for (int m = 0; m < l.n && !known; m++)
            known = strcmp(have, l.s[m].name) == 0;
        for (int m = 0; m < 3 && !known; m++)
            known = strcmp(have, more[m]) == 0;
        if (!known) return pl_broken(k, "\"%.80s\" is none that the engine knows", have);
    }
    return PL_CHECK_HOLDS;
}

static pl_check_verdict shapes(pl_look *k) {
    const pl_st_entry *head = pl_st_find(k->st, "lm_head.weight"); // its rows: draft-vocab
    shape_list         l;
    shapes_of(k, &l);
    if (head && (head->rank != 2 || head->shape[1] != pl_look_int(k, k->layer, "hidden_size")))
        return pl_broken(k, "lm_head.weight is no matrix of hidden_size columns");
    int64_t hidden[3] = {1, 1, l.s[0].cols}; // as many as fc reads
    if (parallel(k) && pl_look_sizes(k, "mask_hidden", hidden) == PL_CHECK_BROKEN) return PL_CHECK_BROKEN;
    for (int i = 0; i < l.n; i++) {
        if (strcmp(l.s[i].name, "lm_head.weight") == 0) continue;
        if (pl_look_shape(k, l.s[i].name, l.s[i].rows, l.s[i].cols) == PL_CHECK_BROKEN) return PL_CHECK_BROKEN;
    }
    return PL_CHECK_HOLDS;
}

static pl_check_verdict embeddings(pl_look *k) {
    const pl_st_entry *e = pl_st_find(k->st, PL_BACKBONE_EMBED);
    int64_t            d = pl_look_int(k, k->layer, "hidden_size"), wide = pl_look_int(k, NULL, "target_hidden_size");
    bool               other = wide >= 0 && wide != d, eagle = strcmp(k->engine->name, "eagle") == 0;
    if (other && !(k->engine->own & PL_EXPORT_OWN_WIDTH))
        return pl_broken(k, "hidden_size: %lld, target_hidden_size: %lld, and the engine takes the target's width",
                         (long long)d, (long long)wide);
    if (!e && (other || k->engine->embeddings)) return pl_broken(k, "embed_tokens.weight is missing");
    if (!e && eagle && wide >= 0)
        return pl_broken(k,
                         "embed_tokens.weight is missing, and with target_hidden_size there the target's are not read");
    if (!e) return PL_CHECK_HOLDS;
    if (e->rank != 2 || e->shape[0] != pl_look_vocab(k) || e->shape[1] != d)
        return pl_broken(k, "embed_tokens.weight is not [vocab_size, hidden_size]");
    if (!other && !k->engine->embeddings && !(k->engine->own & PL_EXPORT_OWN_SAME))
        return pl_unseen(k, "embed_tokens.weight: the engine takes the target's, of which it must be a copy");
    return PL_CHECK_HOLDS;
}

// ---- rules: the draft vocabulary ----

static pl_check_verdict draft_vocab(pl_look *k) {
    int64_t stated = pl_look_int(k, NULL, "draft_vocab_size");
    if (stated < 1) return pl_broken(k, "draft_vocab_size is missing; null would mean the target's head");
    if (stated > pl_look_vocab(k))
        return pl_broken(k, "draft_vocab_size: %lld of %lld", (long long)stated, (long long)pl_look_vocab(k));
    if (k->rows >= 0 && k->rows != stated)
        return pl_broken(k, "draft_vocab_size: %lld, lm_head.weight has %lld rows", (long long)stated,
                         (long long)k->rows);
    return PL_CHECK_HOLDS;
}

// With a whole vocabulary the map has nothing to say, and some loaders refuse one.
static pl_check_verdict map_there(pl_look *k) {
    bool map = pl_st_find(k->st, "d2t"), marks = pl_st_find(k->st, "t2d");
    if (trimmed(k) && !map) return pl_broken(k, "d2t is missing, and the head has %lld rows", (long long)k->rows);
    if (!trimmed(k) && (map || marks))
        return pl_broken(k, "%s for a head that has a row for every token", map ? "d2t" : "t2d");
    if (trimmed(k) && !k->engine->map32 && !marks) return pl_broken(k, "t2d is missing");
    return PL_CHECK_HOLDS;
}

static pl_check_verdict map_type(pl_look *k) {
    const pl_st_entry *e = pl_st_find(k->st, "d2t");
    if (!e) return PL_CHECK_HOLDS; // told by map-there
    pl_dtype want = k->engine->map32 ? PL_I32 : PL_I64;
    if (e->dtype != want || e->rank != 1 || e->shape[0] != k->rows)
        return pl_broken(k, "d2t must be %lld integers of %d bits", (long long)k->rows, k->engine->map32 ? 32 : 64);
    return PL_CHECK_HOLDS;
}

static int64_t offset(const pl_st_entry *e, int64_t i) {
    return pl_draft_vocab_entry(e->data, e->dtype, i);
}

// The token that row i drafts: i + d2t[i]; -1: none of the vocabulary's.
static int64_t token_of(const pl_st_entry *e, int64_t i, int64_t V) {
    int64_t by = offset(e, i);
    return by > V || by < -V || i + by < 0 || i + by >= V ? -1 : i + by;
}

static pl_check_verdict map_offsets(pl_look *k) {
    const pl_st_entry *e = pl_st_find(k->st, "d2t");
    int64_t            V = pl_look_vocab(k);
    if (!e || V < 1 || (e->dtype != PL_I32 && e->dtype != PL_I64) || e->rank != 1) return PL_CHECK_HOLDS;
    int64_t          n = e->shape[0];
    uint8_t         *seen = pl_calloc((size_t)V, 1);
    int32_t         *ids = pl_calloc((size_t)n + 1, sizeof *ids);
    pl_check_verdict v = seen && ids ? PL_CHECK_HOLDS : pl_unseen(k, "out of memory");
    for (int64_t i = 0; i < n && v == PL_CHECK_HOLDS; i++) {
        int64_t id = token_of(e, i, V);
        if (id < 0)
            v = pl_broken(k, "row %lld: %lld tokens on, beyond the vocabulary: ids where offsets are meant?",
                          (long long)i, (long long)offset(e, i));
        else if (seen[id])
            v = pl_broken(k, "two rows for token %lld: ids where offsets are meant?", (long long)id);
        else
            seen[ids[i] = (int32_t)id] = 1;
    }
    int64_t unfilled = v == PL_CHECK_HOLDS ? pl_draft_vocab_unfilled(ids, n) : 0;
    if (unfilled > 0)
        v = pl_broken(k, "zeros in the last %lld of %lld rows: a map that was never filled?", (long long)unfilled,
                      (long long)n);
    pl_free(seen);
    pl_free(ids);
    return v;
}

static pl_check_verdict map_marks(pl_look *k) {
    const pl_st_entry *e = pl_st_find(k->st, "d2t"), *t = pl_st_find(k->st, "t2d");
    int64_t            V = pl_look_vocab(k), marked = 0;
    if (!t) return PL_CHECK_HOLDS;
    if (t->rank != 1 || t->shape[0] != V || t->bytes != (size_t)V)
        return pl_broken(k, "t2d must be %lld marks, as the vocabulary has tokens", (long long)V);
    for (int64_t i = 0; i < V; i++)
        marked += ((const uint8_t *)t->data)[i] != 0;
    if (marked != k->rows)
        return pl_broken(k, "t2d marks %lld tokens, the head has %lld rows", (long long)marked, (long long)k->rows);
    for (int64_t i = 0; e && e->rank == 1 && i < e->shape[0]; i++) {
        int64_t id = token_of(e, i, V);
        if (id >= 0 && !((const uint8_t *)t->data)[id])
            return pl_broken(k, "row %lld drafts token %lld, which t2d does not mark", (long long)i, (long long)id);
    }
    return PL_CHECK_HOLDS;
}

// ---- rules: beside the target ----

static pl_check_verdict target_fits(pl_look *k) {
    if (!k->has_target) return pl_unseen(k, "give --target");
    int64_t wide = pl_look_int(k, NULL, "target_hidden_size");
    if (pl_look_vocab(k) != k->target.vocab_size)
        return pl_broken(k, "vocab_size: %lld, the target has %d", (long long)pl_look_vocab(k), k->target.vocab_size);
    if (wide < 0) wide = pl_look_int(k, k->layer, "hidden_size"); // as engines take it
    if (wide != k->target.hidden_size)
        return pl_broken(k, "target_hidden_size: %lld, the target has %d", (long long)wide, k->target.hidden_size);
    return PL_CHECK_HOLDS;
}

// A short table of positions gives low acceptance or reads beyond it.
static pl_check_verdict positions(pl_look *k) {
    int64_t n = pl_look_int(k, k->layer, "max_position_embeddings");
    if (!k->has_target) return pl_unseen(k, "give --target");
    if (n >= k->target.max_position_embeddings) return PL_CHECK_HOLDS;
    if (n < 0) return pl_unseen(k, "max_position_embeddings is missing"); // told by every-field
    return pl_broken(k, "max_position_embeddings: %lld, the target is served up to %d", (long long)n,
                     k->target.max_position_embeddings);
}

static pl_check_verdict rope_targets(pl_look *k) {
    double theta = pl_look_num(k, k->layer, "rope_theta");
    if (!k->has_target) return pl_unseen(k, "give --target");
    if (isnan(theta)) theta = pl_look_num(k, k->layer, "rope_scaling.rope_theta");
    if (isnan(theta)) theta = pl_look_num(k, k->layer, "rope_parameters.rope_theta");
    if (theta == k->target.rope.theta) return PL_CHECK_HOLDS;
    if (isnan(theta)) return pl_unseen(k, "rope_theta is missing");
    return pl_broken(k, "rope_theta: %g, the target's is %g: right only if it was trained so", theta,
                     k->target.rope.theta);
}

static const pl_check_rule rules[] = {
    {"architecture", "the class by which the engine finds its code", architecture, false, NULL, PL_CHECK_EAGLE3},
    {"kind", "speculators_model_type names EAGLE-3", kind, false, "speculators", PL_CHECK_EAGLE3},
    {"few-layers", "no more draft layers than the engine serves", few_layers, false, NULL, PL_CHECK_EAGLE3},
    {"every-field", "nothing is left to a default", every_field, false, NULL, PL_CHECK_ALL},
    {"no-nulls", "no null where a switch is read", no_nulls, false, NULL, PL_CHECK_ALL},
    {"model-type", "the draft layer is a Llama's", model_type, false, NULL, PL_CHECK_EAGLE3},
    {"activation", "silu", activation, false, NULL, PL_CHECK_ALL},
    {"no-bias", "no biases", no_bias, false, NULL, PL_CHECK_ALL},
    {"untied", "the head is not the embeddings", untied, false, NULL, PL_CHECK_ALL},
    {"types-agree", "one type of weights, spelt both ways", types_agree, false, NULL, PL_CHECK_ALL},
    {"rope-spellings", "both spellings of RoPE say the same", rope_spelt_alike, false, NULL, PL_CHECK_ALL},
    {"rope-read", "no RoPE that the program does not read", rope_read, false, "eagle", PL_CHECK_ALL},
    {"not-quantised", "plain weights", not_quantised, false, NULL, PL_CHECK_ALL},
    {"norms-written", "EAGLE-3.1's switches are the engine's too, and written where defaults differ", norms_written,
     false, NULL, PL_CHECK_EAGLE3},
    {"mask-token", "P-EAGLE's masks have a token", mask_token, false, NULL, PL_CHECK_EAGLE3},
    {"proposal", "how many tokens are drafted, and for which target", proposal, false, "speculators", PL_CHECK_ALL},
    {"layers-written", "the target's layers are named", pl_check_layers_written, false, NULL, PL_CHECK_EAGLE3},
    {"layers-meant", "they count as the engine counts", pl_check_layers_meant, false, NULL, PL_CHECK_EAGLE3},
    {"layers-rise", "they come in rising order, where a set of them is captured", pl_check_layers_rise, false, NULL,
     PL_CHECK_EAGLE3},
    {"layers-counted", "the engine's fc reads as many", pl_check_layers_counted, false, NULL, PL_CHECK_EAGLE3},
    {"layers-joined", "the engine joins them by fc", pl_check_layers_joined, false, NULL, PL_CHECK_EAGLE3},
    {"layers-there", "the target has them, and the engine captures them", pl_check_layers_there, false, NULL,
     PL_CHECK_EAGLE3},
    {"layers-own", "they are the ones that the program captures", pl_check_layers_own, false, "eagle", PL_CHECK_EAGLE3},
    {"names", "exactly the tensors that the engine knows", names, false, NULL, PL_CHECK_EAGLE3},
    {"shapes", "tensors of the sizes that config.json names", shapes, false, NULL, PL_CHECK_EAGLE3},
    {"embeddings", "embeddings where the engine reads them, and as wide as it takes", embeddings, false, NULL,
     PL_CHECK_EAGLE3},
    {"draft-vocab", "draft_vocab_size is the number of the head's rows", draft_vocab, false, NULL, PL_CHECK_EAGLE3},
    {"map-there", "d2t and t2d, where the head lacks rows, and only there", map_there, false, NULL, PL_CHECK_ALL},
    {"map-type", "d2t in the engine's type", map_type, true, NULL, PL_CHECK_ALL},
    {"map-offsets", "d2t holds offsets, each token once", map_offsets, true, NULL, PL_CHECK_ALL},
    {"map-marks", "t2d marks what d2t names", map_marks, true, NULL, PL_CHECK_ALL},
    {"target-fits", "vocabulary and width are the target's", target_fits, false, NULL, PL_CHECK_ALL},
    {"positions", "as many positions as the target has", positions, false, NULL, PL_CHECK_ALL},
    {"rope-target", "the target's RoPE base", rope_targets, false, NULL, PL_CHECK_ALL},
};

static pl_status open_look(pl_look *k, const pl_export_engine *engine, const char *dir, const char *target,
                           pl_err *err) {
    char *path = pl_path_join(dir, "config.json");
    k->engine = engine;
    pl_status st = path ? pl_json_open(&k->j, path, CONFIG_MAX, PL_JSON_UNIQUE, err)
                        : pl_fail(err, PL_E_MEMORY, "%s: out of memory", dir);
    pl_free(path);
    PL_TRY(st);
    if (!cJSON_IsObject(k->j.root)) return pl_json_fail(&k->j, k->j.root, err, "expected an object");
    const cJSON *layer = pl_json_find(&k->j, NULL, "transformer_layer_config");
    k->block = pl_json_find(&k->j, NULL, "block_size") || pl_json_find(&k->j, NULL, "dflash_config");
    k->layer = engine->nested && layer && cJSON_IsObject(layer) ? layer : k->j.root;
    PL_TRY(pl_st_open(&k->st, dir, err));
    const pl_st_entry *head = pl_st_find(k->st, "lm_head.weight");
    k->rows = head && head->rank == 2 ? head->shape[0] : -1;
    if (!target) return PL_OK;
    k->has_target = true;
    return pl_hf_config_read(&k->target, target, PL_HF_TARGET, err);
}

static void follow(pl_look *k, const pl_check_rule *list, size_t n, pl_check_tell tell, void *arg,
                   pl_check_count *count) {
    for (size_t i = 0; i < n; i++) {
        const pl_check_rule *r = &list[i];
        if (r->only && strcmp(r->only, k->engine->name) != 0) continue;
        if ((r->map && !trimmed(k)) || (r->of == PL_CHECK_EAGLE3 && k->block)) continue;
        k->why[0] = 0;
        pl_check_told(count, tell, arg, r->name, r->help, r->holds(k), k->why);
    }
}

pl_status pl_check_folder(const pl_export_engine *engine, const char *dir, const char *target, pl_check_tell tell,
                          void *arg, pl_check_count *count, pl_err *err) {
    pl_look k = {0};
    if (engine->rules) return engine->rules(dir, target, tell, arg, count, err);
    pl_status st = open_look(&k, engine, dir, target, err);
    *count = (pl_check_count){0};
    if (st == PL_OK && k.block && !engine->blocks)
        st = pl_fail(err, PL_E_UNSUPPORTED, "%s: a block drafter, which is not known to be served by %s", dir,
                     engine->name);
    if (st == PL_OK) follow(&k, rules, sizeof rules / sizeof *rules, tell, arg, count);
    if (st == PL_OK && k.block) follow(&k, pl_check_blocks, pl_check_n_blocks, tell, arg, count);
    pl_st_close(k.st);
    pl_json_close(&k.j);
    return st;
}
