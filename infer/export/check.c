#include "infer/drafter/backbone.h"
#include "infer/export/rules.h"
#include "infer/head/draft_vocab.h"
#include "infer/model/llama.h"
#include "kernels/base/arena.h"
#include "kernels/base/files.h"

#include <math.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>

#define CONFIG_MAX ((size_t)16 << 20)
#define LAYERS 64 // more than any drafter has

// ---- reading ----

pl_check_verdict pl_check_say(char why[PL_CHECK_WHY], pl_check_verdict v, const char *fmt, ...) {
    va_list args;
    va_start(args, fmt);
    vsnprintf(why, PL_CHECK_WHY, fmt, args);
    va_end(args);
    return v;
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

// Returns "missing" for a file without a class.
static const char *read_architecture(const pl_look *k) {
    const cJSON *list = pl_look_member(k, NULL, "architectures");
    return list && cJSON_IsArray(list) && list->child && cJSON_IsString(list->child) ? list->child->valuestring
                                                                                     : "missing";
}

static bool is_block(const pl_look *k) {
    return pl_export_is_block(&k->e);
}

const pl_look_tensor *pl_look_find(const pl_look_list *l, const char *name) {
    for (int64_t i = 0; i < l->n; i++)
        if (strcmp(l->t[i].name, name) == 0) return &l->t[i];
    return NULL;
}

pl_look_tensor *pl_look_add(pl_look_list *l) {
    if (l->n == l->cap && !l->failed) {
        int64_t         cap = 2 * l->cap + 64;
        pl_look_tensor *t = pl_realloc(l->t, pl_size_mul((size_t)cap, sizeof *t, 1));
        l->failed = !t;
        if (t) l->t = t;
        if (t) l->cap = cap;
    }
    if (l->failed) return NULL;
    l->t[l->n] = (pl_look_tensor){.rank = 0};
    return &l->t[l->n++];
}

static bool is_trimmed(const pl_look *k) {
    return k->rows >= 0 && k->rows != k->s.vocab;
}

// ---- rules: config.json ----

static pl_check_verdict check_architecture(pl_look *k) {
    const char *name = read_architecture(k), *want = k->engine->classes[k->e.sort];
    const char *synonym = k->engine->synonyms[k->e.sort];
    if ((want && strcmp(want, name) == 0) || (synonym && strcmp(synonym, name) == 0)) return PL_CHECK_HOLDS;
    if (!want) return pl_broken(k, "architectures: %s, which %s does not serve", name, k->engine->name);
    return pl_broken(k, "architectures: %s; expected %s", name, want);
}

static pl_check_verdict check_few_layers(pl_look *k) {
    int64_t most = is_block(k) ? INT32_MAX : k->engine->layers ? k->engine->layers : 1;
    if (k->s.layers >= 1 && k->s.layers <= most) return PL_CHECK_HOLDS;
    if (k->s.layers < 1) return pl_broken(k, "%lld layers; one is needed", (long long)k->s.layers);
    return pl_broken(k, "%lld layers, %s serves at most %lld", (long long)k->s.layers, k->engine->name,
                     (long long)most);
}

static pl_check_verdict check_model_type(pl_look *k) {
    const char *type = pl_look_text(k, k->layer, "model_type"), *want = is_block(k) ? "qwen3" : "llama";
    if (strcmp(type, want) == 0) return PL_CHECK_HOLDS;
    return pl_broken(k, "model_type: %s; expected %s", *type ? type : "missing", want);
}

static pl_check_verdict check_types_agree(pl_look *k) {
    const char *old = pl_look_text(k, NULL, "torch_dtype"), *now = pl_look_text(k, NULL, "dtype");
    if (!*old && (!*now || k->engine->strict)) return pl_broken(k, "torch_dtype is missing");
    if (*old && *now && strcmp(old, now) != 0) return pl_broken(k, "torch_dtype: %s, dtype: %s", old, now);
    if (!*old) old = now;
    for (int64_t i = 0; i < k->have.n; i++) {
        const pl_look_tensor *t = &k->have.t[i];
        bool                  real = t->dtype == PL_F32 || t->dtype == PL_BF16 || t->dtype == PL_F16;
        if (real && t->rank == 2 && strcmp(pl_hf_dtype_name(t->dtype), old) != 0)
            return pl_broken(k, "torch_dtype: %s, %.80s holds %s", old, t->name, pl_hf_dtype_name(t->dtype));
    }
    return PL_CHECK_HOLDS;
}

static pl_check_verdict check_rope_spelt_alike(pl_look *k) {
    const cJSON *now = pl_look_member(k, k->layer, "rope_parameters"),
                *old = pl_look_member(k, k->layer, "rope_scaling");
    double theta = pl_look_num(k, k->layer, "rope_theta");
    if (!now) return PL_CHECK_HOLDS;
    if (isnan(theta) || isnan(pl_look_num(k, now, "rope_theta"))) // transformers 5 writes only rope_parameters
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

static pl_check_verdict check_not_quantised(pl_look *k) {
    return pl_look_member(k, NULL, "quantization_config")
               ? pl_broken(k, "quantization_config: the weights are not quantised")
               : PL_CHECK_HOLDS;
}

const char *pl_export_lost_norm(const pl_export_engine *engine, pl_export_sort sort, unsigned norms) {
    unsigned lost = norms & ~(sort == PL_EXPORT_PEAGLE ? engine->parallel_norms : engine->norms);
    for (int i = 0; i < PL_HF_NORMS; i++)
        if (lost & 1U << i) return pl_hf_norm_names[i];
    return NULL;
}

static pl_check_verdict check_norms_computed(pl_look *k) {
    const char *lost = pl_export_lost_norm(k->engine, k->e.sort, k->s.norms);
    if (lost) return pl_broken(k, "trained with %s, which %s does not compute", lost, k->engine->name);
    if (k->s.norms & PL_HF_FC_NORM && k->s.norms & PL_HF_NORM_BEFORE_FC)
        return pl_broken(k, "fc_norm and norm_before_fc: engines differ in what both mean");
    return PL_CHECK_HOLDS;
}

// Checks the mask token of P-EAGLE and of blocks.
static pl_check_verdict check_mask_token(pl_look *k) {
    if (!is_block(k) && k->e.sort != PL_EXPORT_PEAGLE) return PL_CHECK_HOLDS;
    if (k->e.config.block.mask_token < 0) return pl_broken(k, "mask_token_id is missing");
    if (k->e.config.block.mask_token >= k->s.vocab)
        return pl_broken(k, "mask_token_id: %d, beyond the vocabulary", k->e.config.block.mask_token);
    return PL_CHECK_HOLDS;
}

// ---- rules: the target's layers ----

static pl_check_verdict check_layers_written(pl_look *k) {
    int exactly = is_block(k) ? 0 : k->engine->taps;
    if (k->e.n_taps < 1)
        return pl_broken(k, "%s is missing, or no list of layers: engines would take some of their own", k->list);
    if (!exactly || k->e.n_taps == exactly) return PL_CHECK_HOLDS;
    return pl_broken(k, "reads %d layers; %s reads exactly %d", k->e.n_taps, k->engine->name, exactly);
}

// Compares the layers that the engine reads with those of training.
static pl_check_verdict check_layers_meant(pl_look *k) {
    const char *said = pl_look_text(k, NULL, "paceline.tap_numbering");
    bool        output = strcmp(said, "output") == 0;
    if (k->e.n_taps < 0) return pl_broken(k, "there is no list");
    if (k->engine->inner) return PL_CHECK_HOLDS; // its list is always numbered by inputs
    if (!*said)
        return pl_unseen(k,
                         "the file does not say by what its trainer counted them; %s reads the input of layer %d first",
                         k->engine->name, k->e.tap[0]);
    for (int i = 0; i < k->e.n_taps; i++)
        if (k->e.tap[i] + k->shift + output != k->e.tap[i])
            return pl_broken(k, "layer %d counts %ss, %s reads the input of layer %d", k->e.tap[i] + k->shift, said,
                             k->engine->name, k->e.tap[i]);
    return PL_CHECK_HOLDS;
}

static pl_check_verdict check_layers_rise(pl_look *k) {
    for (int i = 1; i < k->e.n_taps && k->engine->rising; i++)
        if (k->e.tap[i] <= k->e.tap[i - 1])
            return pl_broken(k, "reads the input of layer %d after layer %d's, and %s captures a set in rising order",
                             k->e.tap[i], k->e.tap[i - 1], k->engine->name);
    return PL_CHECK_HOLDS;
}

// Checks that fc is applied: engines that distinguish features from drafts by width skip fc if its input is as wide as
// its output.
static pl_check_verdict check_layers_joined(pl_look *k) {
    if (k->e.n_taps < 0 || !k->engine->skips_fc || !k->engine->skips_fc(k->e.n_taps, k->s.target_width, k->s.width))
        return PL_CHECK_HOLDS;
    return pl_broken(k, "reads %d layer%s of width %lld, which %s takes in without fc", k->e.n_taps,
                     k->e.n_taps == 1 ? "" : "s", (long long)k->s.target_width, k->engine->name);
}

// Checks the stated number of layers, by which vLLM (0.33) sizes fc in speculators' form, and not by the list.
static pl_check_verdict check_layers_counted(pl_look *k) {
    int64_t stated = pl_look_int(k, k->layer, "num_aux_hidden_states");
    if (k->e.n_taps < 0 || stated == k->e.n_taps) return PL_CHECK_HOLDS; // layers-written reports a missing list
    if (stated >= 0) return pl_broken(k, "num_aux_hidden_states: %lld, of %d layers", (long long)stated, k->e.n_taps);
    if (!k->engine->inner || k->e.n_taps == 3) return PL_CHECK_HOLDS;
    return pl_broken(k, "num_aux_hidden_states is missing, and vLLM takes 3 for the %d layers", k->e.n_taps);
}

static pl_check_verdict check_layers_there(pl_look *k) {
    for (int i = 0; i < k->e.n_taps; i++)
        if (k->e.tap[i] < k->first)
            return pl_broken(k, "reads the embeddings, which %s does not capture", k->engine->name);
    if (!k->target) return pl_unseen(k, "give --target");
    for (int i = 0; i < k->e.n_taps; i++)
        if (k->e.tap[i] < 0 || k->e.tap[i] > k->target->num_hidden_layers)
            return pl_broken(k, "reads the input of layer %d, the target has %d layers", k->e.tap[i],
                             k->target->num_hidden_layers);
    return PL_CHECK_HOLDS;
}

static pl_check_verdict check_last_layer(pl_look *k) {
    for (int i = 0; i < k->e.n_taps && k->target && !k->engine->last; i++)
        if (k->e.tap[i] == k->target->num_hidden_layers)
            return pl_broken(k,
                             "reads what leaves the last layer, before the final norm, which %s is not known to "
                             "capture; if drafts fail there, train with other drafter.taps",
                             k->engine->name);
    return PL_CHECK_HOLDS;
}

// ---- rules: tensors ----

// Returns true if all sizes that determine names and shapes of tensors are stated.
static bool is_sized(const pl_look *k) {
    const pl_hf_sizes    *s = &k->s;
    bool                  parts = s->conv_taps > 0 ? s->conv_group > 0 : s->conv_taps == 0;
    const pl_hf_selector *l = &s->lattice;
    if (k->e.sort == PL_EXPORT_LILICORR)
        parts = parts && l->candidates > 0 && l->rank > 0 && l->width > 0 && l->layers > 0 && l->heads > 0 &&
                l->mlp_ratio * l->width >= 1 && l->mlp_ratio <= PL_HF_HIDDEN_MAX && s->slots > 1;
    return s->layers > 0 && s->width > 0 && s->heads > 0 && s->kv_heads > 0 && s->head_dim > 0 && s->intermediate > 0 &&
           s->taps > 0 && s->target_width > 0 && s->vocab > 0 && parts;
}

// Checks names: engines skip or refuse unknown tensors, and run without missing ones.
static pl_check_verdict check_names(pl_look *k) {
    if (!is_sized(k)) return pl_unseen(k, "sizes that determine the names are missing");
    for (int64_t i = 0; i < k->want.n; i++)
        if (k->want.t[i].needed && !pl_look_find(&k->have, k->want.t[i].name))
            return pl_broken(k, "%s is missing", k->want.t[i].name);
    for (int64_t i = 0; i < k->have.n; i++)
        if (!pl_look_find(&k->want, k->have.t[i].name))
            return pl_broken(k, "\"%.80s\" is none that the engine knows", k->have.t[i].name);
    return PL_CHECK_HOLDS;
}

static pl_check_verdict check_shapes(pl_look *k) {
    if (!is_sized(k)) return pl_unseen(k, "sizes that determine the shapes are missing");
    for (int64_t i = 0; i < k->want.n; i++) {
        const pl_look_tensor *w = &k->want.t[i], *h = pl_look_find(&k->have, w->name);
        char                  found[PL_ST_SHAPE_TEXT], expected[PL_ST_SHAPE_TEXT];
        if (!h || !w->rank || (h->rank == w->rank && memcmp(h->size, w->size, (size_t)w->rank * sizeof *w->size) == 0))
            continue;
        return pl_broken(k, "%s is %s, expected %s", w->name, pl_st_shape_text(found, h->size, h->rank),
                         pl_st_shape_text(expected, w->size, w->rank));
    }
    return PL_CHECK_HOLDS;
}

static pl_check_verdict check_embeddings(pl_look *k) {
    bool other = k->s.width != k->s.target_width;
    if (other && !(k->engine->own & PL_EXPORT_OWN_WIDTH))
        return pl_broken(k, "of width %lld for a target of %lld, where %s takes the target's width",
                         (long long)k->s.width, (long long)k->s.target_width, k->engine->name);
    if (other || k->engine->copies || k->engine->own & PL_EXPORT_OWN_SAME || !pl_look_find(&k->have, PL_BACKBONE_EMBED))
        return PL_CHECK_HOLDS;
    return pl_unseen(k, "embed_tokens.weight: the engine takes the target's, of which it must be a copy");
}

// ---- rules: the draft vocabulary ----

static pl_check_verdict check_draft_vocab(pl_look *k) {
    int64_t rows = k->rows > 0 ? k->rows : k->s.vocab;
    if (k->e.rows > k->s.vocab) return pl_broken(k, "draft_vocab_size: %d of %lld", k->e.rows, (long long)k->s.vocab);
    if (k->e.rows >= 0 && k->e.rows != rows)
        return pl_broken(k, "draft_vocab_size: %d, the head has %lld rows", k->e.rows, (long long)rows);
    if (is_block(k) && !k->engine->block_heads && rows != k->s.vocab)
        return pl_broken(k, "a head of %lld rows, where the engine takes the target's", (long long)rows);
    return PL_CHECK_HOLDS;
}

// Checks that the map is there. With a whole vocabulary it is redundant, and some loaders refuse it.
static pl_check_verdict check_map_there(pl_look *k) {
    const pl_export_map *m = k->engine->map;
    bool                 map = pl_look_find(&k->have, "d2t"), marks = pl_look_find(&k->have, "t2d");
    if (map && k->rows < 0) return pl_broken(k, "d2t without a head of its own");
    if (is_trimmed(k) && !map) return pl_broken(k, "d2t is missing, and the head has %lld rows", (long long)k->rows);
    if (!is_trimmed(k) && !m->ids && (map || marks))
        return pl_broken(k, "%s for a head that has a row for every token", map ? "d2t" : "t2d");
    if (is_trimmed(k) && m->marks && !marks) return pl_broken(k, "t2d is missing");
    return PL_CHECK_HOLDS;
}

// Returns the map, NULL if there is none that can be read, which map-there reports.
static const pl_look_tensor *find_map(const pl_look *k) {
    return is_trimmed(k) || (k->rows >= 0 && k->engine->map->ids) ? pl_look_find(&k->have, "d2t") : NULL;
}

static bool is_list(const pl_look_tensor *t) {
    return t && t->rank == 1 && (t->dtype == PL_I32 || t->dtype == PL_I64);
}

static pl_check_verdict check_map_type(pl_look *k) {
    const pl_look_tensor *t = find_map(k);
    if (!t || (t->dtype == k->engine->map->type && t->rank == 1 && t->size[0] == k->rows)) return PL_CHECK_HOLDS;
    return pl_broken(k, "d2t must be %lld integers of %d bits", (long long)k->rows,
                     (int)pl_dtype_size(k->engine->map->type) * 8);
}

// Returns the token that row i drafts, or -1 if it is outside the vocabulary.
static int64_t find_token(const pl_look *k, const pl_look_tensor *t, int64_t i) {
    int64_t v = pl_draft_vocab_entry(t->data, t->dtype, i), V = k->s.vocab;
    if (v > V || v < -V) return -1;
    if (!k->engine->map->ids) v += i;
    return v < 0 || v >= V ? -1 : v;
}

static pl_check_verdict check_map_tokens(pl_look *k) {
    const pl_look_tensor *t = find_map(k);
    const char           *other = k->engine->map->ids ? "offsets where ids" : "ids where offsets";
    if (!is_list(t) || k->s.vocab < 1) return PL_CHECK_HOLDS;
    int64_t          n = t->size[0];
    uint8_t         *seen = pl_calloc((size_t)k->s.vocab, 1);
    pl_check_verdict v = seen ? PL_CHECK_HOLDS : pl_unseen(k, "out of memory");
    for (int64_t i = 0; i < n && v == PL_CHECK_HOLDS; i++) {
        int64_t id = find_token(k, t, i);
        if (id < 0)
            v = pl_broken(k, "row %lld: %lld leads beyond the vocabulary: %s are meant?", (long long)i,
                          (long long)pl_draft_vocab_entry(t->data, t->dtype, i), other);
        else if (seen[id])
            v = pl_broken(k, "two rows for token %lld: %s are meant?", (long long)id, other);
        else
            seen[id] = 1;
    }
    pl_free(seen);
    return v;
}

static pl_check_verdict check_map_filled(pl_look *k) {
    const pl_look_tensor *t = find_map(k);
    if (!is_list(t) || k->engine->map->ids) return PL_CHECK_HOLDS;
    int64_t  n = t->size[0];
    int32_t *ids = pl_calloc((size_t)n + 1, sizeof *ids);
    if (!ids) return pl_unseen(k, "out of memory");
    for (int64_t i = 0; i < n; i++)
        ids[i] = (int32_t)find_token(k, t, i);
    int64_t unfilled = pl_draft_vocab_unfilled(ids, n);
    pl_free(ids);
    if (unfilled == 0) return PL_CHECK_HOLDS;
    return pl_broken(k, "zeros in the last %lld of %lld rows: a map that was never filled?", (long long)unfilled,
                     (long long)n);
}

static pl_check_verdict check_map_marks(pl_look *k) {
    const pl_look_tensor *map = find_map(k), *t = pl_look_find(&k->have, "t2d");
    int64_t               V = k->s.vocab, marked = 0;
    if (!t || !is_trimmed(k)) return PL_CHECK_HOLDS;
    if (t->rank != 1 || t->size[0] != V || pl_dtype_size(t->dtype) != 1)
        return pl_broken(k, "t2d must be %lld marks, as the vocabulary has tokens", (long long)V);
    for (int64_t i = 0; i < V; i++)
        marked += ((const uint8_t *)t->data)[i] != 0;
    if (marked != k->rows)
        return pl_broken(k, "t2d marks %lld tokens, the head has %lld rows", (long long)marked, (long long)k->rows);
    for (int64_t i = 0; is_list(map) && i < map->size[0]; i++) {
        int64_t id = find_token(k, map, i);
        if (id >= 0 && !((const uint8_t *)t->data)[id])
            return pl_broken(k, "row %lld drafts token %lld, which t2d does not mark", (long long)i, (long long)id);
    }
    return PL_CHECK_HOLDS;
}

// ---- rules: the target ----

static pl_check_verdict check_target_fits(pl_look *k) {
    if (!k->target) return pl_unseen(k, "give --target");
    if (!k->engine->file && k->s.vocab != k->target->vocab_size)
        return pl_broken(k, "vocabulary %lld, the target has %d; the drafter was made for another",
                         (long long)k->s.vocab, k->target->vocab_size);
    if (k->s.target_width != k->target->hidden_size)
        return pl_broken(k, "reads layers of width %lld, the target has %d", (long long)k->s.target_width,
                         k->target->hidden_size);
    return PL_CHECK_HOLDS;
}

// Checks positions: a table that is too short lowers acceptance or is read out of bounds.
static pl_check_verdict check_positions(pl_look *k) {
    if (!k->target) return pl_unseen(k, "give --target");
    if (k->e.positions >= k->target->max_position_embeddings) return PL_CHECK_HOLDS;
    if (k->e.positions < 0) return pl_unseen(k, "the number of positions is missing"); // every-field reports it
    return pl_broken(k, "%d positions, the target is served up to %d", k->e.positions,
                     k->target->max_position_embeddings);
}

static pl_check_verdict check_rope_target(pl_look *k) {
    if (!k->target) return pl_unseen(k, "give --target");
    if (isnan(k->e.config.rope.theta) || isnan(k->target->rope.theta))
        return pl_unseen(k, "RoPE's base is missing%s", isnan(k->e.config.rope.theta) ? "" : " in the target");
    if (k->e.config.rope.theta == k->target->rope.theta) return PL_CHECK_HOLDS;
    return pl_broken(k, "RoPE's base %g, the target's is %g: right only if it was trained so", k->e.config.rope.theta,
                     k->target->rope.theta);
}

static const pl_check_rule rules[] = {
    {"architecture", "the class by which the engine finds its code", check_architecture, PL_CHECK_FOLDER},
    {"few-layers", "no more draft layers than the engine serves", check_few_layers, PL_CHECK_ALL},
    {"every-field", "nothing is left to a default", pl_check_every_field, PL_CHECK_ALL},
    {"no-nulls", "no null where a switch is read", pl_check_no_nulls, PL_CHECK_FOLDER},
    {"model-type", "the draft layers are a Llama's, a block drafter's Qwen3's", check_model_type, PL_CHECK_FOLDER},
    {"activation", "silu", pl_check_constants, PL_CHECK_FOLDER},
    {"no-bias", "no biases", pl_check_constants, PL_CHECK_FOLDER},
    {"untied", "the head is not the embeddings", pl_check_constants, PL_CHECK_FOLDER},
    {"types-agree", "one type of weights, spelt both ways", check_types_agree, PL_CHECK_FOLDER | PL_CHECK_WARNS},
    {"rope-spellings", "both spellings of RoPE say the same", check_rope_spelt_alike, PL_CHECK_FOLDER},
    {"not-quantised", "plain weights", check_not_quantised, PL_CHECK_FOLDER},
    {"norms-computed", "the engine computes the switches of EAGLE-3.1", check_norms_computed, PL_CHECK_STEP},
    {"mask-token", "masks of P-EAGLE and of blocks have a token", check_mask_token, PL_CHECK_FOLDER},
    {"layers-written", "the target's layers are named", check_layers_written, PL_CHECK_ALL},
    {"layers-meant", "they count as the engine counts", check_layers_meant, PL_CHECK_STEP},
    {"layers-rise", "they come in rising order, where a set of them is captured", check_layers_rise, PL_CHECK_ALL},
    {"layers-joined", "the engine joins them by fc", check_layers_joined, PL_CHECK_STEP},
    {"layers-counted", "the engine's fc reads as many layers as are listed", check_layers_counted, PL_CHECK_STEP},
    {"layers-there", "the target has them, and embeddings are not read where they are not captured", check_layers_there,
     PL_CHECK_ALL},
    {"last-layer", "what leaves the last layer is not read where it is not captured", check_last_layer,
     PL_CHECK_FOLDER | PL_CHECK_WARNS},
    {"last-layer", "what leaves the last layer is not read where it is not captured", check_last_layer, PL_CHECK_FILE},
    {"target-fits", "vocabulary and width are the target's", check_target_fits, PL_CHECK_ALL},
    {"names", "exactly the tensors that the engine knows", check_names, PL_CHECK_ALL},
    {"shapes", "tensors of the sizes that are stated", check_shapes, PL_CHECK_ALL},
    {"embeddings", "embeddings where the engine reads them, and as wide as it takes", check_embeddings, PL_CHECK_STEP},
    {"draft-vocab", "draft_vocab_size is the number of the head's rows", check_draft_vocab, PL_CHECK_FOLDER},
    {"map-there", "d2t and t2d, where the head lacks rows, and only there", check_map_there, PL_CHECK_ALL},
    {"map-type", "d2t in the engine's type", check_map_type, PL_CHECK_ALL},
    {"map-tokens", "d2t names tokens as the engine counts, each once", check_map_tokens, PL_CHECK_ALL},
    {"map-filled", "d2t was filled to its end", check_map_filled, PL_CHECK_FOLDER | PL_CHECK_WARNS},
    {"map-marks", "t2d marks what d2t names", check_map_marks, PL_CHECK_FOLDER},
    {"positions", "as many positions as the target has", check_positions, PL_CHECK_ALL},
    {"rope-target", "the target's RoPE base", check_rope_target, PL_CHECK_ALL | PL_CHECK_WARNS},
    {0}};

// ---- a folder ----

static void copy_tensors(pl_look *k) {
    for (int64_t i = 0; i < pl_st_count(k->st); i++) {
        const pl_st_entry *e = pl_st_at(k->st, i);
        pl_look_tensor    *t = pl_look_add(&k->have);
        if (!t) return;
        *t = (pl_look_tensor){
            .rank = e->rank < PL_HF_PADDED ? e->rank : PL_HF_PADDED, .dtype = e->dtype, .data = e->data};
        snprintf(t->name, sizeof t->name, "%s", e->name);
        memcpy(t->size, e->shape, (size_t)t->rank * sizeof *t->size);
    }
}

static void find_sort(pl_look *k) {
    const char *name = read_architecture(k);
    bool        block = pl_json_find(&k->j, NULL, "block_size") || pl_json_find(&k->j, NULL, "dflash_config");
    k->e.config.backbone = block ? PL_HF_DFLASH : strstr(name, "PEagle") ? PL_HF_PEAGLE : PL_HF_EAGLE3;
    k->e.sort = !block                     ? strstr(name, "PEagle") ? PL_EXPORT_PEAGLE : PL_EXPORT_EAGLE3
                : strstr(name, "XPress")   ? PL_EXPORT_XPRESS
                : strstr(name, "LiLiCorr") ? PL_EXPORT_LILICORR
                : strstr(name, "DSpark")   ? PL_EXPORT_DSPARK
                : strstr(name, "DFlash2")  ? PL_EXPORT_DFLASH2
                                           : PL_EXPORT_DFLASH;
}

// Fills in the defaults of speculators' classes.
static void take_defaults(pl_look *k) {
    pl_hf_config    *c = &k->e.config;
    int *const       at[] = {&c->block.taps, &c->block.group, &c->selector.rank, &c->selector.candidates};
    static const int value[] = {2, 16, 256, 16};
    for (int i = 0; i < 4; i++)
        if (k->e.sort == PL_EXPORT_DFLASH2 && k->engine->inner && *at[i] < 0) *at[i] = value[i];
}

static void take_sizes(pl_look *k) {
    pl_hf_config *c = &k->e.config;
    const char   *key[] = {"confidence_head_with_markov", "dflash_config.confidence_head_with_markov"};
    bool          both = pl_look_flag(k, NULL, key[0]) != 0 && pl_look_flag(k, NULL, key[1]) != 0;
    bool          dspark = k->e.sort == PL_EXPORT_DSPARK;
    k->e.confidence = true; // default
    k->e.markov_form = "";
    pl_look_take_rows(k);
    take_defaults(k);
    c->rope.theta = pl_look_num(k, k->layer, "rope_theta");
    if (isnan(c->rope.theta)) c->rope.theta = pl_look_num(k, k->layer, "rope_scaling.rope_theta");
    if (isnan(c->rope.theta)) c->rope.theta = pl_look_num(k, k->layer, "rope_parameters.rope_theta");
    if (c->target_hidden_size <= 0) c->target_hidden_size = c->hidden_size; // the engines' default
    if (k->e.sort == PL_EXPORT_LILICORR) snprintf(c->selector.kind, sizeof c->selector.kind, PL_HF_LATTICE);
    if (c->selector.width == 0) c->selector.width = c->hidden_size; // as the published config means it
    k->s = pl_hf_sizes_of(c, c->target_hidden_size);
    k->s.markov_form = pl_hf_markov_find(k->e.markov_form);
    k->s.markov_rank = !dspark ? 0 : k->e.markov_rank < 0 ? 256 : k->e.markov_rank;
    if (dspark && k->e.confidence) k->s.confidence_inputs = k->s.width + (both ? k->s.markov_rank : 0);
    bool xpress = k->e.sort == PL_EXPORT_XPRESS;
    k->s.refiner_rank = !xpress ? 0 : k->e.refiner_rank < 0 ? PL_HF_REFINER_RANK : k->e.refiner_rank;
    k->s.refiner_ratio = k->e.refiner_ratio < 0 ? PL_HF_REFINER_RATIO : k->e.refiner_ratio;
    bool plain = k->e.sort == PL_EXPORT_LILICORR ? k->s.conv_taps < 0 : k->e.sort != PL_EXPORT_DFLASH2;
    if (is_block(k) && plain) k->s.conv_taps = k->s.conv_group = 0;
    if (is_block(k) && k->e.sort != PL_EXPORT_DFLASH2) k->s.selector_rank = 0;
}

static pl_status look_at_folder(pl_look *k, const char *dir, const char *target, pl_err *err) {
    char     *path = pl_path_join(dir, "config.json");
    pl_status st = path ? pl_json_open(&k->j, path, CONFIG_MAX, PL_JSON_UNIQUE, err)
                        : pl_fail(err, PL_E_MEMORY, "%s: out of memory", dir);
    pl_free(path);
    PL_TRY(st);
    if (!cJSON_IsObject(k->j.root)) return pl_json_fail(&k->j, k->j.root, err, "expected an object");
    const cJSON *layer = k->engine->inner ? pl_json_find(&k->j, NULL, k->engine->inner) : NULL;
    k->layer = layer && cJSON_IsObject(layer) ? layer : k->j.root;
    PL_TRY(pl_st_open(&k->st, dir, err));
    find_sort(k);
    if (is_block(k) && !k->engine->blocks)
        return pl_fail(err, PL_E_UNSUPPORTED, "%s: a block drafter, which is not known to be served by %s", dir,
                       k->engine->name);
    copy_tensors(k);
    take_sizes(k);
    return target ? pl_llama_config(&k->e.target_config, target, err) : PL_OK;
}

// ---- the tensors that the engine reads ----

// ours, size: name and shape as this program has them.
static pl_look_tensor *add_wanted(pl_look *k, const char *ours, const int64_t size[3]) {
    char name[96];
    if (!pl_export_name(k->engine, is_block(k), k->s.layers, ours, name, sizeof name)) return NULL;
    pl_look_tensor *t = pl_look_add(&k->want);
    if (!t) return NULL;
    snprintf(t->name, sizeof t->name, "%s", name);
    for (; t->rank < 3 && size[t->rank]; t->rank++)
        t->size[t->rank] = size[t->rank];
    t->rank = pl_hf_pad(ours, t->size, t->rank);
    return t;
}

static bool add_needed(void *arg, const char *name, const int64_t size[3]) {
    pl_look        *k = arg;
    pl_look_tensor *t = add_wanted(k, name, size);
    if (t) t->needed = true;
    return !k->want.failed;
}

static void list_wanted(pl_look *k) {
    pl_hf_sizes    *s = &k->s;
    bool            block = is_block(k);
    int64_t         none[3] = {0};
    pl_look_tensor *t;
    s->taps = k->e.n_taps;
    s->head_rows = k->rows > 0 ? k->rows : s->vocab;
    if (s->kv_heads < 0) s->kv_heads = s->heads;
    if (s->head_dim < 0 && s->heads > 0) s->head_dim = s->width / s->heads;
    if (!is_sized(k)) return;
    pl_hf_sizes few = *s;
    if (few.layers > LAYERS) few.layers = LAYERS;
    if (few.lattice.layers > LAYERS) few.lattice.layers = LAYERS;
    pl_hf_tensors(&few, add_needed, k);
    t = add_wanted(k, "lm_head.weight", (const int64_t[3]){s->head_rows, s->width});
    if (t) t->needed = !k->engine->file && (!block || (k->e.rows > 0 && k->e.rows < s->vocab));
    t = add_wanted(k, PL_BACKBONE_EMBED, (const int64_t[3]){s->vocab, s->width});
    if (t) t->needed = !block && (s->width != s->target_width || k->engine->copies);
    add_wanted(k, "d2t", none);
    add_wanted(k, "t2d", none);
}

static void find_rows(pl_look *k) {
    char name[96];
    k->rows = -1;
    if (!pl_export_name(k->engine, is_block(k), k->s.layers, "lm_head.weight", name, sizeof name)) return;
    const pl_look_tensor *head = pl_look_find(&k->have, name);
    if (head && head->rank == 2) k->rows = head->size[0];
}

static void follow_rules(pl_look *k, const pl_check_rule *list, unsigned of, pl_check_fn fn, void *arg) {
    for (const pl_check_rule *r = list; r && r->name; r++) {
        if (!(r->of & of)) continue;
        k->rule = r;
        k->why[0] = 0;
        fn(arg, r, r->holds(k), k->why);
    }
}

pl_status pl_check_each(const pl_export_engine *engine, const char *dir, const char *target, pl_check_fn fn, void *arg,
                        pl_err *err) {
    pl_look  *k = pl_calloc(1, sizeof *k);
    pl_status st = k ? PL_OK : pl_fail(err, PL_E_MEMORY, "%s: out of memory", dir);
    if (!k) return st;
    k->engine = engine;
    st = engine->file ? engine->file->look(k, dir, target, err) : look_at_folder(k, dir, target, err);
    if (st == PL_OK) {
        k->target = target ? &k->e.target_config : NULL;
        find_rows(k);
        list_wanted(k);
        if (k->have.failed || k->want.failed) st = pl_fail(err, PL_E_MEMORY, "%s: out of memory", dir);
    }
    if (st == PL_OK) {
        unsigned of = engine->file ? PL_CHECK_FILE : is_block(k) ? PL_CHECK_BLOCK : PL_CHECK_STEP;
        follow_rules(k, rules, of, fn, arg);
        if (of == PL_CHECK_BLOCK) follow_rules(k, pl_check_blocks, of, fn, arg);
        follow_rules(k, engine->rules, of, fn, arg);
    }
    if (engine->file) engine->file->close(k);
    pl_st_close(k->st);
    pl_json_close(&k->j);
    pl_free(k->have.t);
    pl_free(k->want.t);
    pl_free(k);
    return st;
}

typedef struct telling {
    pl_check_tell   tell;
    void           *arg;
    pl_check_count *count;
} telling;

static void count_verdict(void *arg, const pl_check_rule *r, pl_check_verdict v, const char *why) {
    telling *t = arg;
    t->count->rules++;
    t->count->broken += v == PL_CHECK_BROKEN;
    t->count->unseen += v == PL_CHECK_UNSEEN;
    t->tell(t->arg, r->name, r->help, v, why);
}

pl_status pl_check_folder(const pl_export_engine *engine, const char *dir, const char *target, pl_check_tell fn,
                          void *arg, pl_check_count *count, pl_err *err) {
    telling t = {.tell = fn, .arg = arg, .count = count};
    *count = (pl_check_count){0};
    return pl_check_each(engine, dir, target, count_verdict, &t, err);
}
