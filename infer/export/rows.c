// Tables of config.json shared by several engines, the code that writes them, and the rules on their rows.
#include "checkpoints/hf_family.h"
#include "infer/drafter/backbone.h"
#include "infer/export/rules.h"
#include "kernels/base/json.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

// ---- writing ----

static void put_taps(pl_json_out *o, const pl_export *e, const pl_export_row *r) {
    pl_put_array(o, r->key);
    for (int i = 0; i < e->n_taps; i++)
        pl_json_out_int(o, e->tap[i] + r->shift);
    pl_json_out_close(o, ']');
}

static void put_row(pl_json_out *o, const pl_export *e, const pl_export_row *r) {
    const void *at = (const char *)e + r->at;
    switch (r->type) {
    case PL_ROW_INT: pl_put_int(o, r->key, *(const int *)at); break;
    case PL_ROW_NUM: pl_put_num(o, r->key, r->at ? *(const double *)at : strtod(r->text, NULL)); break;
    case PL_ROW_BOOL: pl_put_bool(o, r->key, r->at ? *(const bool *)at : r->text != NULL); break;
    case PL_ROW_TEXT: pl_put_str(o, r->key, r->at ? *(const char *const *)at : r->text); break;
    case PL_ROW_TAPS: put_taps(o, e, r); break;
    case PL_ROW_PUT: r->put(o, e); break;
    case PL_ROW_ROWS:
        if (r->key) pl_put_object(o, r->key);
        pl_export_put_rows(o, e, r->rows);
        if (r->key) pl_json_out_close(o, '}');
        break;
    }
}

static bool is_row(const pl_export_row *r) {
    return r->key || r->rows;
}

void pl_export_put_rows(pl_json_out *o, const pl_export *e, const pl_export_row *rows) {
    for (const pl_export_row *r = rows; is_row(r); r++)
        if (r->need != PL_ROW_FOREIGN && (!r->when || r->when(e))) put_row(o, e, r);
}

// ---- the tables ----

static void put_class(pl_json_out *o, const pl_export *e) {
    pl_put_array(o, "architectures");
    pl_json_out_str(o, e->engine->classes[e->sort]);
    pl_json_out_close(o, ']');
}

static void put_model_type(pl_json_out *o, const pl_export *e) {
    pl_put_str(o, "model_type", pl_export_is_block(e) ? "qwen3" : "llama"); // a block's layers norm queries and keys
}

static void put_rope(pl_json_out *o, const pl_export *e) {
    pl_hf_put_rope(o, &e->config.rope);
    pl_put_object(o, "rope_parameters"); // transformers 5's spelling
    pl_put_num(o, "rope_theta", e->config.rope.theta);
    pl_hf_put_scaling(o, &e->config.rope);
    pl_json_out_close(o, '}');
}

static void put_tokens(pl_json_out *o, const pl_export *e) {
    pl_hf_put_token(o, "bos_token_id", e->config.bos_token_id);
    pl_hf_put_token(o, "eos_token_id", e->config.n_eos ? e->config.eos_token_id[0] : -1);
    pl_hf_put_token(o, "pad_token_id", e->config.pad_token_id);
}

const pl_export_row pl_rows_class[] = {{"architectures", PL_ROW_PUT, .put = put_class}, {0}};

const pl_export_row pl_rows_dtype[] = {{PL_TEXT("torch_dtype", dtype)}, {PL_TEXT("dtype", dtype)}, {0}};

bool pl_export_has_window(const pl_export *e) {
    return e->config.sliding_window > 0;
}

// A drafter whose layers with a window alone are causal states neither: readers derive it from the layers' types.
static bool is_both_ways(const pl_export *e) {
    return pl_export_is_block(e) && e->config.block.causal == PL_HF_CAUSAL_NONE;
}
static bool is_causal(const pl_export *e) {
    return pl_export_is_block(e) && pl_export_is_causal(e);
}

void pl_export_put_layer_types(pl_json_out *o, const pl_export *e) {
    pl_hf_put_layer_types(o, &e->config);
}

const pl_export_row pl_rows_layer[] = {
    {"model_type", PL_ROW_PUT, PL_ROW_DEFAULT, .put = put_model_type},
    {PL_INT("vocab_size", config.vocab_size), .need = PL_ROW_NEEDED},
    {PL_INT("hidden_size", config.hidden_size), .need = PL_ROW_NEEDED},
    {PL_INT("intermediate_size", config.intermediate_size), .need = PL_ROW_NEEDED},
    {PL_INT("num_hidden_layers", config.num_hidden_layers), .need = PL_ROW_NEEDED},
    {PL_INT("num_attention_heads", config.num_attention_heads), .need = PL_ROW_NEEDED},
    {PL_INT("num_key_value_heads", config.num_key_value_heads), .need = PL_ROW_DEFAULT},
    {PL_INT("head_dim", config.head_dim), .need = PL_ROW_DEFAULT},
    {"hidden_act", PL_ROW_TEXT, PL_ROW_DEFAULT, .text = "silu", .rule = "activation"},
    {PL_NUM("rms_norm_eps", config.rms_norm_eps), .need = PL_ROW_DEFAULT},
    {PL_INT("max_position_embeddings", positions), .need = PL_ROW_DEFAULT}, // engines allocate RoPE tables of this size
    {"initializer_range", PL_ROW_NUM, .text = "0.02"},
    {"rope_theta", PL_ROW_PUT, PL_ROW_DEFAULT, .put = put_rope},
    {"is_causal", PL_ROW_BOOL, .when = is_both_ways}, // vLLM and SGLang read it first
    {"is_causal", PL_ROW_BOOL, .text = "true", .when = is_causal},
    {PL_INT("sliding_window", config.sliding_window), .when = pl_export_has_window},
    {"use_sliding_window", PL_ROW_BOOL, .text = "true", .when = pl_export_has_window},
    {"attention_bias", PL_ROW_BOOL, PL_ROW_DEFAULT, .rule = "no-bias"},
    {"mlp_bias", PL_ROW_BOOL, .rule = "no-bias"},
    {"bias", PL_ROW_BOOL, PL_ROW_FOREIGN, .rule = "no-bias"},
    {"tie_word_embeddings", PL_ROW_BOOL, PL_ROW_DEFAULT, .rule = "untied"},
    {.key = "use_cache", .type = PL_ROW_BOOL, .need = PL_ROW_FOREIGN},
    {"bos_token_id", PL_ROW_PUT, .put = put_tokens},
    {PL_ROWS(pl_rows_dtype)},
    {0}};

const pl_export_row pl_rows_norms[] = {{PL_BOOL("fc_norm", config.fc_norm)},
                                       {PL_BOOL("norm_output", config.norm_output)},
                                       {PL_BOOL("norm_before_fc", config.norm_before_fc)},
                                       {PL_BOOL("norm_before_residual", config.norm_before_residual)},
                                       {0}};

static bool norms_before_fc(const pl_export *e) {
    return e->config.norm_before_fc;
}

static const pl_export_row
    switches[] = {{"use_aux_hidden_state", PL_ROW_BOOL, .text = "true"},
                  {"use_input_layernorm_in_first_layer", PL_ROW_BOOL, .text = "true"},
                  {"use_last_layernorm", PL_ROW_BOOL, .text = "true"},
                  {.key = "use_mtp_layernorm", .type = PL_ROW_BOOL},
                  {PL_BOOL("norm_before_fc", config.norm_before_fc),
                   .when = norms_before_fc}, // readers prefer this member
                  {0}},
    inputs[] = {{PL_ROWS(switches)}, {.key = "eagle_aux_hidden_state_layer_ids", .type = PL_ROW_TAPS}, {0}},
    outputs[] = {{PL_ROWS(switches)}, {"eagle_aux_hidden_state_layer_ids", PL_ROW_TAPS, .shift = -1}, {0}},
    input[] = {{"tap_numbering", PL_ROW_TEXT, .text = "input"}, {0}},
    output[] = {{"tap_numbering", PL_ROW_TEXT, .text = "output"}, {0}},
    head[] = {{PL_INT("draft_vocab_size", rows), .need = PL_ROW_NEEDED}, {PL_ROWS(pl_rows_norms)}, {0}};
const pl_export_row pl_rows_inputs[] = {{PL_ROWS(head)},
                                        {.key = "eagle_config", PL_ROWS(inputs)},
                                        {.key = "paceline", PL_ROWS(input)},
                                        {0}},
                    pl_rows_outputs[] = {{PL_ROWS(head)},
                                         {.key = "eagle_config", PL_ROWS(outputs)},
                                         {.key = "paceline", PL_ROWS(output)},
                                         {0}};

const pl_export_row pl_rows_plain[] = {{PL_INT("target_hidden_size", config.target_hidden_size)},
                                       {PL_ROWS(pl_rows_class)},
                                       {PL_ROWS(pl_rows_layer)},
                                       {PL_ROWS(pl_rows_outputs)},
                                       {0}};

// ---- reading, and rules ----

// Calls fn for each row with its member, NULL if there is none, until a verdict is not HOLDS. Members of block drafters
// are at the top or in dflash_config, which has precedence.
typedef pl_check_verdict (*row_fn)(pl_look *k, const pl_export_row *r, const cJSON *node);

static const cJSON *find_node(const pl_look *k, const char *key, const cJSON *within) {
    const cJSON *in = pl_export_is_block(&k->e) ? pl_look_member(k, NULL, "dflash_config") : NULL;
    const cJSON *node = in ? cJSON_GetObjectItemCaseSensitive(in, key) : NULL;
    return node ? node : cJSON_GetObjectItemCaseSensitive(within, key);
}

// Returns the object of nested rows, NULL if it is missing. Readers of the layers' sizes and of dflash_config then read
// the enclosing object.
static const cJSON *find_object(const pl_look *k, const pl_export_row *r, const cJSON *within) {
    if (!r->key) return within;
    const cJSON *o = cJSON_GetObjectItemCaseSensitive(within, r->key);
    if (o && cJSON_IsObject(o)) return o;
    bool optional = strcmp(r->key, "dflash_config") == 0 || (k->engine->inner && strcmp(r->key, k->engine->inner) == 0);
    return optional ? within : NULL;
}

static pl_check_verdict visit_rows(pl_look *k, const pl_export_row *rows, const cJSON *within, row_fn fn) {
    pl_check_verdict v = PL_CHECK_HOLDS;
    for (const pl_export_row *r = rows; is_row(r) && v == PL_CHECK_HOLDS; r++)
        v = r->type == PL_ROW_ROWS ? visit_rows(k, r->rows, find_object(k, r, within), fn)
                                   : fn(k, r, find_node(k, r->key, within));
    return v;
}

static pl_check_verdict visit_all(pl_look *k, row_fn fn) {
    return visit_rows(k, pl_export_is_block(&k->e) ? k->engine->blocks : k->engine->rows, k->j.root, fn);
}

static pl_check_verdict clear_field(pl_look *k, const pl_export_row *r, const cJSON *node) {
    (void)node;
    void *at = (char *)&k->e + r->at;
    if (r->at && r->type == PL_ROW_INT) *(int *)at = -1;
    if (r->at && r->type == PL_ROW_NUM) *(double *)at = NAN;
    return PL_CHECK_HOLDS;
}

// Reads the list of layers; the first of several lists has precedence.
static void take_layers(pl_look *k, const pl_export_row *r, const cJSON *list) {
    int n = 0;
    if (k->list) return;
    k->list = r->key;
    k->e.n_taps = -1;
    k->shift = r->shift;
    k->first = r->shift || (pl_export_is_block(&k->e) && !k->engine->file) ? 1 : 0;
    for (const cJSON *e = list && cJSON_IsArray(list) ? list->child : NULL; e; e = e->next) {
        int64_t v;
        if (n == PL_HF_TAPS || pl_json_int_of(&k->j, e, r->shift, PL_HF_LAYERS_MAX, &v, NULL) != PL_OK) return;
        k->e.tap[n++] = (int)v - r->shift;
    }
    if (n > 0) k->e.n_taps = n;
}

static pl_check_verdict take_field(pl_look *k, const pl_export_row *r, const cJSON *node) {
    void   *at = (char *)&k->e + r->at;
    int64_t v;
    if (r->type == PL_ROW_TAPS) take_layers(k, r, node);
    if (!r->at || !node) return PL_CHECK_HOLDS;
    if (r->type == PL_ROW_INT && pl_json_int_of(&k->j, node, 0, INT32_MAX, &v, NULL) == PL_OK) *(int *)at = (int)v;
    if (r->type == PL_ROW_NUM && cJSON_IsNumber(node)) *(double *)at = node->valuedouble;
    if (r->type == PL_ROW_BOOL && cJSON_IsBool(node)) *(bool *)at = cJSON_IsTrue(node);
    if (r->type == PL_ROW_TEXT && cJSON_IsString(node)) *(const char **)at = node->valuestring;
    return PL_CHECK_HOLDS;
}

void pl_look_take_rows(pl_look *k) {
    visit_all(k, clear_field);
    visit_all(k, take_field);
}

// Returns what the row's value must be, NULL if node is of its type. Sizes are at least 1.
static const char *find_wrong_type(const pl_look *k, const pl_export_row *r, const cJSON *node) {
    int64_t v;
    switch (r->type) {
    case PL_ROW_INT:
        return pl_json_int_of(&k->j, node, 1, INT32_MAX, &v, NULL) == PL_OK ? NULL : "a whole number of at least 1";
    case PL_ROW_NUM: return cJSON_IsNumber(node) ? NULL : "a number";
    case PL_ROW_BOOL: return cJSON_IsBool(node) ? NULL : "true or false";
    default: return NULL;
    }
}

static pl_check_verdict is_there(pl_look *k, const pl_export_row *r, const cJSON *node) {
    bool        there = node && !cJSON_IsNull(node);
    const char *want = there && r->need == PL_ROW_NEEDED ? find_wrong_type(k, r, node) : NULL;
    if (want) return pl_broken(k, "%s must be %s", r->key, want);
    if (there || r->when || r->need == PL_ROW_FREE || r->need == PL_ROW_FOREIGN) return PL_CHECK_HOLDS;
    if (r->need == PL_ROW_NEEDED) return pl_broken(k, "%s is missing", r->key);
    if (k->engine->strict) return pl_broken(k, "%s is missing, and the engine's default is not the trainer's", r->key);
    return pl_unseen(k, "%s is missing: right only if the engine's default is what was trained", r->key);
}

pl_check_verdict pl_check_every_field(pl_look *k) {
    return visit_all(k, is_there);
}

static pl_check_verdict is_switch(pl_look *k, const pl_export_row *r, const cJSON *node) {
    return r->type == PL_ROW_BOOL && node && cJSON_IsNull(node)
               ? pl_broken(k, "%s: null where a switch is expected", r->key)
               : PL_CHECK_HOLDS;
}

// Checks that no boolean is null: transformers 5 reads configs strictly.
pl_check_verdict pl_check_no_nulls(pl_look *k) {
    return visit_all(k, is_switch);
}

static pl_check_verdict is_constant(pl_look *k, const pl_export_row *r, const cJSON *node) {
    const char *found = node && cJSON_IsString(node) ? node->valuestring : node ? "no text" : "missing";
    if (!r->rule || strcmp(r->rule, k->rule->name) != 0) return PL_CHECK_HOLDS;
    if (r->type == PL_ROW_BOOL)
        return cJSON_IsTrue(node) ? pl_broken(k, "%s: true; expected false", r->key) : PL_CHECK_HOLDS;
    return strcmp(found, r->text) == 0 ? PL_CHECK_HOLDS
                                       : pl_broken(k, "%s: %.80s; expected %s", r->key, found, r->text);
}

pl_check_verdict pl_check_constants(pl_look *k) {
    return visit_all(k, is_constant);
}
