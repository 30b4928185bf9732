// config.json of published drafters, brought into the one form that checkpoints/hf.h reads.
#include "infer/import/import.h"
#include "infer/import/parts.h"
#include "kernels/base/arena.h"
#include "kernels/base/files.h"
#include "kernels/base/log.h"

#include <string.h>

#define CONFIG_MAX ((size_t)16 << 20)

enum { PLAIN, SPECULATORS, EAGLE1, BLOCK, FORMATS };
static const pl_import_format formats[FORMATS] = {
    [PLAIN] = {"eagle3", "EAGLE-3 and P-EAGLE as EAGLE, SpecForge, ModelOpt, AngelSlim, SGLang and vLLM write them",
               PL_HF_TAPS_OUTPUT},
    [SPECULATORS] = {"speculators", "EAGLE-3 and P-EAGLE as speculators writes them", PL_HF_TAPS_INPUT},
    [EAGLE1] = {"eagle1", "EAGLE-1 and EAGLE-2 as EAGLE and HASS write them", PL_HF_TAPS_UNSTATED},
    [BLOCK] = {"dflash", "DFlash and DSpark as z-lab, DeepSpec, SpecForge and speculators write them",
               PL_HF_TAPS_OUTPUT}};

const pl_import_format *pl_import_format_at(int i) {
    return i >= 0 && i < FORMATS ? &formats[i] : NULL;
}

// Drafters of other kinds, by their architecture or speculators' name for them.
static const struct {
    const char *name, *kind;
} others[] = {{"DominoDraftModel", "Domino"},
              {"MTPDraftModel", "MTP"},
              {"MedusaModel", "Medusa"},
              {"Eagle3DeepseekV2ForCausalLM", "EAGLE-3 with multi-head latent attention"},
              {"CosyVoice3Eagle3LlamaForCausalLM", "EAGLE-3 for speech"},
              {"mtp", "MTP"},
              {"medusa", "Medusa"}};

static pl_status refuse_other(const pl_json *j, const cJSON *node, const char *name, pl_err *err) {
    for (size_t i = 0; i < sizeof others / sizeof *others; i++)
        if (strcmp(name, others[i].name) == 0) {
            pl_json_fail(j, node, err, "\"%s\": a %s drafter, which is not supported", name, others[i].kind);
            return PL_E_UNSUPPORTED;
        }
    return PL_OK;
}

// What transformers takes for a member that a config of this model_type leaves out: speculators leaves out what equals
// it.
typedef struct fallback {
    const char *key;
    double      number;
} fallback;
static const fallback llama[] = {{"vocab_size", 32000},        {"hidden_size", 4096},
                                 {"intermediate_size", 11008}, {"num_hidden_layers", 32},
                                 {"num_attention_heads", 32},  {"max_position_embeddings", 2048},
                                 {"rms_norm_eps", 1e-6},       {"bos_token_id", 1},
                                 {"eos_token_id", 2},          {NULL, 0}};
static const fallback qwen3[] = {{"vocab_size", 151936},
                                 {"hidden_size", 4096},
                                 {"intermediate_size", 22016},
                                 {"num_hidden_layers", 32},
                                 {"num_attention_heads", 32},
                                 {"num_key_value_heads", 32},
                                 {"head_dim", 128},
                                 {"max_position_embeddings", 32768},
                                 {"rms_norm_eps", 1e-6},
                                 {NULL, 0}};

// ---- a copy of the config, edited ----

bool pl_import_has(const cJSON *o, const char *key) {
    const cJSON *e = cJSON_GetObjectItemCaseSensitive(o, key);
    return e && !cJSON_IsNull(e);
}

void pl_import_put(pl_import_copy *e, cJSON *into, const char *key, cJSON *value) {
    cJSON_DeleteItemFromObjectCaseSensitive(into, key);
    bool there = value && cJSON_AddItemToObject(into, key, value);
    if (!there) cJSON_Delete(value);
    e->failed |= !there;
}

static void copy(pl_import_copy *e, cJSON *into, const char *key, const cJSON *from, const char *as) {
    pl_import_put(e, into, as, cJSON_Duplicate(cJSON_GetObjectItemCaseSensitive(from, key), true));
}

void pl_import_architecture(pl_import_copy *e, const char *name) {
    cJSON *list = cJSON_CreateArray();
    e->failed |= !list || !cJSON_AddItemToArray(list, cJSON_CreateString(name));
    pl_import_put(e, e->o, "architectures", list);
}

// A list of layers at the top, where vLLM and speculators look for it, to where ours is read.
static bool move_layers(pl_import_copy *e, const cJSON *from) {
    static const char *const names[] = {"eagle_aux_hidden_state_layer_ids", "aux_hidden_state_layer_ids"};
    for (int i = 0; i < 2; i++) {
        if (!pl_import_has(from, names[i])) continue;
        if (!cJSON_IsObject(cJSON_GetObjectItemCaseSensitive(e->o, "eagle_config")))
            pl_import_put(e, e->o, "eagle_config", cJSON_CreateObject());
        cJSON *eagle = cJSON_GetObjectItemCaseSensitive(e->o, "eagle_config");
        if (eagle) copy(e, eagle, names[i], from, "eagle_aux_hidden_state_layer_ids");
        return true;
    }
    return false;
}

// speculators: the layer in an object of its own, without what equals its class's defaults.
static pl_status flatten(pl_import_copy *e, const pl_json *j, pl_err *err) {
    static const char *const own[] = {"draft_vocab_size",
                                      "target_hidden_size",
                                      "norm_before_residual",
                                      "norm_before_fc",
                                      "fc_norm",
                                      "norm_output",
                                      "paceline",
                                      "dtype",
                                      "torch_dtype"};
    const cJSON             *layer;
    const char              *type;
    PL_TRY(pl_json_get_object(j, NULL, "transformer_layer_config", &layer, err));
    PL_TRY(pl_json_opt_str(j, layer, "model_type", "qwen3", &type, err));
    const fallback *f = strcmp(type, "llama") == 0 ? llama : strcmp(type, "qwen3") == 0 ? qwen3 : NULL;
    if (!f)
        return pl_json_fail(j, layer, err, "model_type \"%.40s\" is not supported; draft layers are llama or qwen3",
                            type);
    e->o = cJSON_Duplicate(layer, true);
    if (!e->o) return PL_OK; // told by the caller
    for (; f->key; f++)      // null is no default, but nothing
        if (!cJSON_GetObjectItemCaseSensitive(e->o, f->key))
            pl_import_put(e, e->o, f->key, cJSON_CreateNumber(f->number));
    // A draft layer is one whatever the class's default says; several would show among the tensors.
    if (!pl_import_has(layer, "num_hidden_layers")) pl_import_put(e, e->o, "num_hidden_layers", cJSON_CreateNumber(1));
    for (size_t i = 0; i < sizeof own / sizeof *own; i++)
        if (pl_import_has(j->root, own[i])) copy(e, e->o, own[i], j->root, own[i]);
    pl_import_architecture(e, "LlamaForCausalLMEagle3");
    return PL_OK;
}

static pl_status architecture_of(const pl_json *j, const char **name, pl_err *err) {
    const cJSON *list;
    *name = "";
    PL_TRY(pl_json_opt_array(j, NULL, "architectures", &list, err));
    if (!list || !list->child) return PL_OK;
    PL_TRY(pl_json_str_of(j, list->child, name, err));
    return refuse_other(j, list, *name, err);
}

// P-EAGLE: as many tokens as its file would have drafted, where it says so.
static pl_status import_parallel(pl_import_copy *e, const pl_json *j, pl_err *err) {
    const cJSON *own, *list = NULL;
    int64_t      tokens = 0;
    pl_import_architecture(e, "PEagleDraftModel");
    if (pl_import_has(j->root, "mask_token_id")) copy(e, e->o, "mask_token_id", j->root, "mask_token_id");
    PL_TRY(pl_json_opt_object(j, NULL, "speculators_config", &own, err));
    if (own) PL_TRY(pl_json_opt_array(j, own, "proposal_methods", &list, err));
    if (list && list->child)
        PL_TRY(pl_json_opt_int(j, list->child, "speculative_tokens", 1, PL_HF_BLOCK_MAX - 1, 0, &tokens, err));
    if (tokens > 1) pl_import_put(e, e->o, "num_depths", cJSON_CreateNumber((double)tokens));
    return PL_OK;
}

// The plain form of the config.
static pl_status edit(pl_import_copy *e, int *format, bool *stated, const pl_json *j, pl_err *err) {
    const char *architecture, *kind;
    if (!cJSON_IsObject(j->root)) return pl_json_fail(j, j->root, err, "expected an object");
    PL_TRY(architecture_of(j, &architecture, err));
    PL_TRY(pl_json_opt_str(j, NULL, "speculators_model_type", "", &kind, err));
    PL_TRY(refuse_other(j, pl_json_find(j, NULL, "speculators_model_type"), kind, err));
    bool block = pl_import_is_block(architecture, kind);
    bool parallel = strncmp(architecture, "PEagle", 6) == 0 || strcmp(kind, "peagle") == 0;
    if (*kind && strcmp(kind, "eagle3") != 0 && !parallel && !block)
        return pl_json_fail(j, pl_json_find(j, NULL, "speculators_model_type"), err,
                            "\"%.40s\" is not supported; eagle3, peagle, dflash, dflash2 and dspark are", kind);
    *format = *kind || pl_json_find(j, NULL, "transformer_layer_config") ? SPECULATORS : PLAIN;
    if (*format == SPECULATORS)
        PL_TRY(flatten(e, j, err));
    else
        e->o = cJSON_Duplicate(j->root, true);
    if (e->o && strcmp(architecture, "Eagle3LlamaForCausalLM") == 0) // AngelSlim's name for it
        pl_import_architecture(e, "LlamaForCausalLMEagle3");
    if (e->o && parallel) PL_TRY(import_parallel(e, j, err));
    if (e->o && block) {
        *format = BLOCK;
        PL_TRY(pl_import_block(e, j, architecture, kind, err));
    } else if (e->o) {
        if (*format == SPECULATORS && !pl_import_has(e->o, "norm_before_residual"))
            pl_log_warn("%s: norm_before_residual is missing; taken as false, as speculators does (vLLM takes true)",
                        j->where);
        *stated = move_layers(e, j->root);
    }
    return e->o && !e->failed ? PL_OK : pl_fail(err, PL_E_MEMORY, "%s: out of memory", j->where);
}

static pl_status read(pl_hf_config *c, int *format, bool *stated, const pl_json *j, pl_err *err) {
    pl_import_copy e = {0};
    pl_status      st = edit(&e, format, stated, j, err);
    char          *text = st == PL_OK ? cJSON_PrintUnformatted(e.o) : NULL;
    if (st == PL_OK && !text) st = pl_fail(err, PL_E_MEMORY, "%s: out of memory", j->where);
    if (st == PL_OK) st = pl_hf_config_parse(c, j->where, text, strlen(text), PL_HF_DRAFTER, err);
    if (st == PL_OK && c->backbone == PL_HF_EAGLE1) *format = EAGLE1;
    cJSON_free(text);
    cJSON_Delete(e.o);
    return st;
}

pl_status pl_import_config(pl_hf_config *c, const pl_import_format **format, bool *stated, const char *dir,
                           pl_err *err) {
    char     *path = pl_path_is_dir(dir) ? pl_path_join(dir, "config.json") : pl_strdup(dir);
    pl_json   j = {0};
    int       f = PLAIN;
    pl_status st = path ? pl_json_open(&j, path, CONFIG_MAX, PL_JSON_UNIQUE, err)
                        : pl_fail(err, PL_E_MEMORY, "%s: out of memory", dir);
    *stated = false;
    if (st == PL_OK) st = read(c, &f, stated, &j, err);
    *format = &formats[f];
    // A top-level list is vLLM's, which counts inputs. What the file says by itself comes first.
    *stated = *stated && st == PL_OK && c->tap_numbering == PL_HF_TAPS_UNSTATED;
    if (*stated && f == PLAIN) c->tap_numbering = PL_HF_TAPS_INPUT;
    pl_json_close(&j);
    pl_free(path);
    return st;
}
