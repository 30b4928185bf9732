// Converts config.json of published drafters to the form that checkpoints/hf.h reads.
#include "infer/import/import.h"
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
    [BLOCK] = {"dflash",
               "DFlash, DSpark, xPress and LiLiCorr as z-lab, DeepSpec, SpecForge, speculators and ModelOpt write them",
               PL_HF_TAPS_OUTPUT}};

const pl_import_format *pl_import_format_at(int i) {
    return i >= 0 && i < FORMATS ? &formats[i] : NULL;
}

// Unsupported kinds of drafters, by their architecture or speculators' name.
static const struct {
    const char *name, *kind;
} others[] = {{"DominoDraftModel", "Domino"},
              {"MTPDraftModel", "MTP"},
              {"Qwen3_5MTPDraftModel", "MTP"},
              {"Qwen3MoeForCausalLMEagle3", "EAGLE-3 with a mixture of experts"},
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

// Defaults of transformers for members that a config of this model_type leaves out, as speculators does.
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

// `failed` is sticky: a member missing for lack of memory must not become a default.
typedef struct config_copy {
    cJSON *o; // owned
    bool   failed;
} config_copy;

// Returns true if the member is there and not null.
static bool has_member(const cJSON *o, const char *key) {
    const cJSON *e = cJSON_GetObjectItemCaseSensitive(o, key);
    return e && !cJSON_IsNull(e);
}

static void put_member(config_copy *e, cJSON *into, const char *key, cJSON *value) {
    cJSON_DeleteItemFromObjectCaseSensitive(into, key);
    bool there = value && cJSON_AddItemToObject(into, key, value);
    if (!there) cJSON_Delete(value);
    e->failed |= !there;
}

static void copy_member(config_copy *e, cJSON *into, const char *key, const cJSON *from, const char *as) {
    put_member(e, into, as, cJSON_Duplicate(cJSON_GetObjectItemCaseSensitive(from, key), true));
}

static void put_architecture(config_copy *e, const char *name) {
    cJSON *list = cJSON_CreateArray();
    e->failed |= !list || !cJSON_AddItemToArray(list, cJSON_CreateString(name));
    put_member(e, e->o, "architectures", list);
}

// ---- block drafters: DFlash and DFlash 2 as z-lab, SpecForge and speculators write them, DSpark as DeepSpec (all at
// the top), SpecForge (in dflash_config) and speculators do ----

static const char *const flash[] = {"DFlashDraftModel", "DFlashSpeculator", "dflash", "DFlash2DraftModel", "dflash2",
                                    "XPressDraftModel", "XPressSpeculator", "xpress", "LiLiCorrDraftModel"},
                         *const spark[] = {"DSparkDraftModel", "DSparkSpeculator", "Qwen3DSparkModel", "dspark"};

enum { FLASH = sizeof flash / sizeof *flash };

static bool is_among(const char *const *list, size_t n, const char *name) {
    for (size_t i = 0; i < n; i++)
        if (strcmp(list[i], name) == 0) return true;
    return false;
}

static bool is_block(const char *architecture, const char *kind) {
    return is_among(flash, FLASH, architecture) || is_among(spark, 4, architecture) || is_among(flash, FLASH, kind) ||
           is_among(spark, 4, kind);
}

#define LILICORR "lilicorr" // projector_type

// A published config with its dflash_config and dspark_config, which may be missing; members of the first, then of the
// second have precedence.
typedef struct block_config {
    config_copy   *e;
    const pl_json *j;
    const cJSON   *inner, *spark;
    bool           dspark, lattice;
} block_config;

static const cJSON *find_place(const block_config *b, const char *key) {
    return has_member(b->inner, key) ? b->inner : has_member(b->spark, key) ? b->spark : NULL; // NULL: the top
}

static const cJSON *find_member(const block_config *b, const char *key) {
    return pl_json_find(b->j, find_place(b, key), key);
}

static pl_status put_layers(const block_config *b, cJSON *into, pl_err *err) {
    int shift = find_member(b, "aux_hidden_state_layer_ids") && !find_member(b, "target_layer_ids"); // by inputs
    const char  *key = shift ? "aux_hidden_state_layer_ids" : "target_layer_ids";
    const cJSON *list;
    cJSON       *outputs = cJSON_CreateArray();
    pl_status    st = pl_json_get_array(b->j, find_place(b, key), key, &list, err);
    for (const cJSON *k = st == PL_OK ? list->child : NULL; k && st == PL_OK; k = k->next) {
        int64_t layer;
        st = pl_json_int_of(b->j, k, -1, PL_HF_LAYERS_MAX, &layer, err);
        if (st == PL_OK && layer - shift < 0)
            st = pl_json_fail(b->j, k, err, "%s: the embeddings, which a block drafter is not given here", key);
        cJSON *output = cJSON_CreateNumber((double)(layer - shift));
        bool   there = output && cJSON_AddItemToArray(outputs, output);
        if (!there) cJSON_Delete(output);
        b->e->failed |= !there;
    }
    put_member(b->e, into, "target_layer_ids", outputs);
    return st;
}

// Makes the head's settings; NULL without a Markov head.
static pl_status make_head(const block_config *b, cJSON **head, pl_err *err) {
    const char *form;
    int64_t     rank;
    bool        sure, both;
    *head = NULL;
    PL_TRY(pl_json_opt_int(b->j, find_place(b, "markov_rank"), "markov_rank", 0, PL_HF_HIDDEN_MAX, b->dspark ? 256 : 0,
                           &rank, err));
    PL_TRY(pl_json_opt_str(b->j, find_place(b, "markov_head_type"), "markov_head_type", "vanilla", &form, err));
    PL_TRY(pl_json_opt_bool(b->j, find_place(b, "enable_confidence_head"), "enable_confidence_head", b->dspark, &sure,
                            err));
    PL_TRY(pl_json_opt_bool(b->j, find_place(b, "confidence_head_with_markov"), "confidence_head_with_markov", true,
                            &both, err));
    if (rank > 0 && pl_hf_markov_find(form) < 0) {
        pl_json_fail(b->j, find_member(b, "markov_head_type"), err,
                     "a %.20s Markov head of DSpark; vanilla, gated and rnn are supported", form);
        return PL_E_UNSUPPORTED;
    }
    if (sure && (rank == 0 || !both)) {
        pl_json_fail(b->j, find_member(b, rank == 0 ? "markov_rank" : "confidence_head_with_markov"), err,
                     "a DSpark confidence head without the token before, which is not supported");
        return PL_E_UNSUPPORTED;
    }
    if (rank == 0) return PL_OK;
    *head = cJSON_CreateObject();
    b->e->failed |= !*head || !cJSON_AddStringToObject(*head, "kind", "markov") ||
                    !cJSON_AddNumberToObject(*head, "rank", (double)rank) ||
                    (pl_hf_markov_find(form) > 0 && !cJSON_AddStringToObject(*head, "form", form)) ||
                    (sure && !cJSON_AddTrueToObject(*head, "confidence"));
    return PL_OK;
}

// Makes the settings of xPress's head.
static pl_status make_refiner(const block_config *b, cJSON **head, pl_err *err) {
    int64_t rank, ratio, passes;
    PL_TRY(pl_json_opt_int(b->j, NULL, "xpress_rank", 1, PL_HF_HIDDEN_MAX, PL_HF_REFINER_RANK, &rank, err));
    PL_TRY(pl_json_opt_int(b->j, NULL, "xpress_mlp_ratio", 1, 64, PL_HF_REFINER_RATIO, &ratio, err));
    PL_TRY(pl_json_opt_int(b->j, NULL, "num_jacobi_passes", 1, 64, 6, &passes, err));
    *head = cJSON_CreateObject();
    b->e->failed |= !*head || !cJSON_AddStringToObject(*head, "kind", "xpress") ||
                    !cJSON_AddNumberToObject(*head, "rank", (double)rank) ||
                    !cJSON_AddNumberToObject(*head, "mlp_ratio", (double)ratio) ||
                    !cJSON_AddNumberToObject(*head, "passes", (double)passes);
    return PL_OK;
}

// Drops members that are translated here; the others stay, and the reader refuses them.
static void drop_read(const block_config *b, cJSON *inner) {
    static const char *const read[] = {"mask_token_id",
                                       "target_layer_ids",
                                       "aux_hidden_state_layer_ids",
                                       "sample_from_anchor",
                                       "markov_rank",
                                       "markov_head_type",
                                       "enable_confidence_head",
                                       "confidence_head_with_markov",
                                       "confidence_head_alpha", // of the loss
                                       "attention_mode",
                                       "projector_type",
                                       "block_size"};
    for (size_t i = 0; i < sizeof read / sizeof *read; i++) {
        cJSON_DeleteItemFromObjectCaseSensitive(b->e->o, read[i]);
        cJSON_DeleteItemFromObjectCaseSensitive(inner, read[i]);
    }
}

static pl_status check_modes(const block_config *b, pl_err *err) {
    const char *mode, *type;
    int64_t     size, other;
    PL_TRY(pl_json_opt_str(b->j, find_place(b, "attention_mode"), "attention_mode", "gqa", &mode, err));
    if (strcmp(mode, "gqa") != 0) {
        pl_json_fail(b->j, find_member(b, "attention_mode"), err,
                     "a DSpark drafter with %.20s attention; gqa is supported", mode);
        return PL_E_UNSUPPORTED;
    }
    PL_TRY(pl_json_opt_str(b->j, find_place(b, "projector_type"), "projector_type", "dflash", &type, err));
    if (strcmp(type, "dspark") != 0 && strcmp(type, "dflash") != 0 && !(b->lattice && strcmp(type, LILICORR) == 0)) {
        pl_json_fail(b->j, find_member(b, "projector_type"), err, "a %.20s drafter, which is not supported", type);
        return PL_E_UNSUPPORTED;
    }
    PL_TRY(pl_json_opt_int(b->j, NULL, "block_size", 2, 1 << 20, 0, &size, err));
    PL_TRY(pl_json_opt_int(b->j, b->inner, "block_size", 2, 1 << 20, size, &other, err));
    if (size && other != size)
        return pl_json_fail(b->j, find_member(b, "block_size"), err, "%lld, and %lld at the top", (long long)other,
                            (long long)size);
    return PL_OK;
}

// Fills in members of DFlash 2 that speculators' form omits as class defaults.
static void fill_parts(const block_config *b, cJSON *inner) {
    static const struct {
        const char *key;
        int         silent;
    } part[] = {{"conv_kernel_size", 2}, {"conv_group_size", 16}, {"selector_rank", 256}, {"selector_top_k", 16}};
    for (size_t i = 0; i < sizeof part / sizeof *part; i++) {
        const cJSON *node = find_member(b, part[i].key);
        if (has_member(b->inner, part[i].key)) continue;
        put_member(b->e, inner, part[i].key, node ? cJSON_Duplicate(node, true) : cJSON_CreateNumber(part[i].silent));
    }
}

// Sets model_type, architecture and head. The layers are Qwen3's in all published files, whatever their model_type.
static void name_kind(const block_config *b, cJSON *head, bool second) {
    put_member(b->e, b->e->o, "model_type", cJSON_CreateString("qwen3"));
    put_architecture(b->e, head ? "PacelineDFlash" : second ? "DFlash2DraftModel" : "DFlashDraftModel");
    if (!head) return;
    cJSON *own = cJSON_CreateObject();
    put_member(b->e, own, "head", head);
    put_member(b->e, b->e->o, "paceline", own);
}

// Translates speculators' direction of layers with a window.
static pl_status put_direction(const block_config *b, pl_err *err) {
    static const char key[] = "sliding_window_non_causal";
    const cJSON      *on = cJSON_GetObjectItemCaseSensitive(b->e->o, "use_sliding_window");
    bool              both;
    PL_TRY(pl_json_opt_bool(b->j, NULL, key, false, &both, err));
    if (cJSON_IsTrue(on) && !pl_json_find(b->j, NULL, key))
        pl_log_warn("%s: %s is missing; taken as false, as speculators does (vLLM takes true)", b->j->where, key);
    if (both && !has_member(b->e->o, "is_causal")) put_member(b->e, b->e->o, "is_causal", cJSON_CreateFalse());
    return PL_OK;
}

// Brings e, a copy of j that has the layers' sizes at its top, into the form of checkpoints/hf_block.h: target layers
// by their outputs, DSpark's members as the settings of our head "markov". architecture, kind: the first of
// `architectures` and speculators_model_type, "" without one. PL_E_UNSUPPORTED for drafters that would be computed
// otherwise.
static pl_status import_block(config_copy *e, const pl_json *j, const char *architecture, const char *kind,
                              pl_err *err) {
    block_config b = {.e = e, .j = j, .dspark = is_among(spark, 4, architecture) || is_among(spark, 4, kind)};
    bool         second = strstr(architecture, "DFlash2") || strcmp(kind, "dflash2") == 0;
    const cJSON *mask, *size, *anchor;
    PL_TRY(pl_json_opt_object(j, NULL, "dflash_config", &b.inner, err));
    PL_TRY(pl_json_opt_object(j, NULL, "dspark_config", &b.spark, err));
    const cJSON *projector = find_member(&b, "projector_type");
    b.dspark |= cJSON_IsString(projector) && strcmp(projector->valuestring, "dspark") == 0;
    b.lattice = strcmp(architecture, "LiLiCorrDraftModel") == 0;
    PL_TRY(check_modes(&b, err));
    mask = find_member(&b, "mask_token_id");
    size = find_member(&b, "block_size");
    anchor = find_member(&b, "sample_from_anchor");
    if (!anchor && b.dspark && *kind)
        pl_log_warn("%s: sample_from_anchor is missing; taken as true, as speculators does (vLLM takes false)",
                    j->where);
    cJSON *inner = b.inner ? cJSON_Duplicate(b.inner, true) : cJSON_CreateObject(), *head = NULL;
    e->failed |= !inner;
    drop_read(&b, inner);
    put_member(e, e->o, "dflash_config", inner);
    if (b.lattice) put_member(e, inner, "projector_type", cJSON_CreateString(LILICORR));
    if (size) put_member(e, e->o, "block_size", cJSON_Duplicate(size, true));
    if (mask) put_member(e, inner, "mask_token_id", cJSON_Duplicate(mask, true));
    put_member(e, inner, "sample_from_anchor", anchor ? cJSON_Duplicate(anchor, true) : cJSON_CreateBool(b.dspark));
    PL_TRY(put_layers(&b, inner, err));
    if (*kind) PL_TRY(put_direction(&b, err));
    bool refined = strncmp(architecture, "XPress", 6) == 0 || strcmp(kind, "xpress") == 0;
    PL_TRY((refined ? make_refiner : make_head)(&b, &head, err));
    if (second && *kind) fill_parts(&b, inner);
    name_kind(&b, head, second || (b.lattice && has_member(inner, "conv_kernel_size")));
    return PL_OK;
}

// ---- EAGLE-3 and P-EAGLE ----

// Moves a list of layers from the top, where vLLM and speculators read it, to this program's member.
static bool move_layers(config_copy *e, const cJSON *from) {
    static const char *const names[] = {"eagle_aux_hidden_state_layer_ids", "aux_hidden_state_layer_ids"};
    for (int i = 0; i < 2; i++) {
        if (!has_member(from, names[i])) continue;
        if (!cJSON_IsObject(cJSON_GetObjectItemCaseSensitive(e->o, "eagle_config")))
            put_member(e, e->o, "eagle_config", cJSON_CreateObject());
        cJSON *eagle = cJSON_GetObjectItemCaseSensitive(e->o, "eagle_config");
        if (eagle) copy_member(e, eagle, names[i], from, "eagle_aux_hidden_state_layer_ids");
        return true;
    }
    return false;
}

// Flattens speculators' form: the layer's members are in a separate object, which omits its class's defaults.
static pl_status flatten_config(config_copy *e, const pl_json *j, pl_err *err) {
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
    if (!e->o) return PL_OK; // the caller reports it
    for (; f->key; f++)      // null means no value, not the default
        if (!cJSON_GetObjectItemCaseSensitive(e->o, f->key)) put_member(e, e->o, f->key, cJSON_CreateNumber(f->number));
    // Drafters have one layer, whatever the class's default; further layers would appear among the tensors.
    if (!has_member(layer, "num_hidden_layers")) put_member(e, e->o, "num_hidden_layers", cJSON_CreateNumber(1));
    for (size_t i = 0; i < sizeof own / sizeof *own; i++)
        if (has_member(j->root, own[i])) copy_member(e, e->o, own[i], j->root, own[i]);
    put_architecture(e, "LlamaForCausalLMEagle3");
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

// Converts P-EAGLE; it drafts the file's number of tokens if there is one.
static pl_status import_parallel(config_copy *e, const pl_json *j, pl_err *err) {
    const cJSON *own, *list = NULL;
    int64_t      tokens = 0;
    put_architecture(e, "PEagleDraftModel");
    if (has_member(j->root, "mask_token_id")) copy_member(e, e->o, "mask_token_id", j->root, "mask_token_id");
    PL_TRY(pl_json_opt_object(j, NULL, "speculators_config", &own, err));
    if (own) PL_TRY(pl_json_opt_array(j, own, "proposal_methods", &list, err));
    if (list && list->child)
        PL_TRY(pl_json_opt_int(j, list->child, "speculative_tokens", 1, PL_HF_BLOCK_MAX - 1, 0, &tokens, err));
    if (tokens > 1) put_member(e, e->o, "num_depths", cJSON_CreateNumber((double)tokens));
    return PL_OK;
}

// Refuses files of heads on the last hidden state as the papers' code writes them, by a member that they alone have.
// Hydra's hold hydra_mlp.K.*, hydra_lm_head.K.* with biases, which heads here do not have, and prefix_embeding_layer.*.
static pl_status refuse_heads(const pl_json *j, pl_err *err) {
    static const char *const own[][2] = {{"hydra_num_heads", "hydra"}, {"medusa_num_heads", "medusa"}};
    for (int i = 0; i < 2; i++) {
        const cJSON *node = pl_json_find(j, NULL, own[i][0]);
        if (!node) continue;
        pl_json_fail(j, node, err,
                     "%s_lm_head.pt as the paper's code writes it: heads with biases in PyTorch's own format, which "
                     "are not supported; train such heads with drafter.kind: %s",
                     own[i][1], own[i][1]);
        return PL_E_UNSUPPORTED;
    }
    return PL_OK;
}

// Converts the config to the plain form.
static pl_status edit_config(config_copy *e, int *format, bool *stated, const pl_json *j, pl_err *err) {
    const char *architecture, *kind;
    if (!cJSON_IsObject(j->root)) return pl_json_fail(j, j->root, err, "expected an object");
    PL_TRY(refuse_heads(j, err));
    PL_TRY(architecture_of(j, &architecture, err));
    PL_TRY(pl_json_opt_str(j, NULL, "speculators_model_type", "", &kind, err));
    PL_TRY(refuse_other(j, pl_json_find(j, NULL, "speculators_model_type"), kind, err));
    bool block = is_block(architecture, kind);
    bool parallel = strncmp(architecture, "PEagle", 6) == 0 || strcmp(kind, "peagle") == 0;
    if (*kind && strcmp(kind, "eagle3") != 0 && !parallel && !block)
        return pl_json_fail(j, pl_json_find(j, NULL, "speculators_model_type"), err,
                            "\"%.40s\" is not supported; eagle3, peagle, dflash, dflash2, dspark and xpress are", kind);
    *format = *kind || pl_json_find(j, NULL, "transformer_layer_config") ? SPECULATORS : PLAIN;
    if (*format == SPECULATORS)
        PL_TRY(flatten_config(e, j, err));
    else
        e->o = cJSON_Duplicate(j->root, true);
    if (e->o && strcmp(architecture, "Eagle3LlamaForCausalLM") == 0) // AngelSlim's name
        put_architecture(e, "LlamaForCausalLMEagle3");
    if (e->o && parallel) PL_TRY(import_parallel(e, j, err));
    if (e->o && block) {
        *format = BLOCK;
        PL_TRY(import_block(e, j, architecture, kind, err));
    } else if (e->o) {
        if (*format == SPECULATORS && !has_member(e->o, "norm_before_residual"))
            pl_log_warn("%s: norm_before_residual is missing; taken as false, as speculators does (vLLM takes true)",
                        j->where);
        *stated = move_layers(e, j->root);
    }
    return e->o && !e->failed ? PL_OK : pl_fail(err, PL_E_MEMORY, "%s: out of memory", j->where);
}

static pl_status read_copy(pl_hf_config *c, int *format, bool *stated, const pl_json *j, pl_err *err) {
    config_copy e = {0};
    pl_status   st = edit_config(&e, format, stated, j, err);
    char       *text = st == PL_OK ? cJSON_PrintUnformatted(e.o) : NULL;
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
    if (st == PL_OK) st = read_copy(c, &f, stated, &j, err);
    *format = &formats[f];
    // A top-level list is vLLM's, which counts inputs. An explicit numbering in the file has precedence.
    *stated = *stated && st == PL_OK && c->tap_numbering == PL_HF_TAPS_UNSTATED;
    if (*stated && f == PLAIN) c->tap_numbering = PL_HF_TAPS_INPUT;
    pl_json_close(&j);
    pl_free(path);
    return st;
}
