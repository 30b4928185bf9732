// config.json of published block drafters: DFlash and DFlash 2 as z-lab, SpecForge and speculators write them,
// DSpark as DeepSpec (all
// at the top), SpecForge (in dflash_config) and speculators do.
#include "checkpoints/hf.h"
#include "infer/import/parts.h"
#include "kernels/base/log.h"

#include <string.h>

static const char *const flash[] = {"DFlashDraftModel", "DFlashSpeculator", "dflash", "DFlash2DraftModel", "dflash2"},
                         *const spark[] = {"DSparkDraftModel", "DSparkSpeculator", "Qwen3DSparkModel", "dspark"};

enum { FLASH = sizeof flash / sizeof *flash };

static bool among(const char *const *list, size_t n, const char *name) {
    for (size_t i = 0; i < n; i++)
        if (strcmp(list[i], name) == 0) return true;
    return false;
}

bool pl_import_is_block(const char *architecture, const char *kind) {
    return among(flash, FLASH, architecture) || among(spark, 4, architecture) || among(flash, FLASH, kind) ||
           among(spark, 4, kind);
}

// A published config and its dflash_config, which may be missing: a member of the inner one counts.
typedef struct block {
    pl_import_copy *e;
    const pl_json  *j;
    const cJSON    *inner;
    bool            dspark;
} block;

static const cJSON *where(const block *b, const char *key) {
    return pl_import_has(b->inner, key) ? b->inner : NULL; // NULL: the top
}

static const cJSON *find(const block *b, const char *key) {
    return pl_json_find(b->j, where(b, key), key);
}

static pl_status layers(const block *b, cJSON *into, pl_err *err) {
    int          shift = find(b, "aux_hidden_state_layer_ids") && !find(b, "target_layer_ids"); // counted by inputs
    const char  *key = shift ? "aux_hidden_state_layer_ids" : "target_layer_ids";
    const cJSON *list;
    cJSON       *outputs = cJSON_CreateArray();
    pl_status    st = pl_json_get_array(b->j, where(b, key), key, &list, err);
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
    pl_import_put(b->e, into, "target_layer_ids", outputs);
    return st;
}

// Our head's settings; none where there is neither a Markov head nor a guess of acceptance.
static pl_status markov(const block *b, cJSON **head, pl_err *err) {
    const char *form;
    int64_t     rank;
    bool        sure, both;
    *head = NULL;
    PL_TRY(pl_json_opt_int(b->j, where(b, "markov_rank"), "markov_rank", 0, PL_HF_HIDDEN_MAX, b->dspark ? 256 : 0,
                           &rank, err));
    PL_TRY(pl_json_opt_str(b->j, where(b, "markov_head_type"), "markov_head_type", "vanilla", &form, err));
    PL_TRY(pl_json_opt_bool(b->j, where(b, "enable_confidence_head"), "enable_confidence_head", b->dspark, &sure, err));
    PL_TRY(pl_json_opt_bool(b->j, where(b, "confidence_head_with_markov"), "confidence_head_with_markov", true, &both,
                            err));
    if (rank > 0 && pl_hf_markov_find(form) < 0) {
        pl_json_fail(b->j, find(b, "markov_head_type"), err,
                     "a %.20s Markov head of DSpark; vanilla, gated and rnn are supported", form);
        return PL_E_UNSUPPORTED;
    }
    if (sure && (rank == 0 || !both)) {
        pl_json_fail(b->j, find(b, rank == 0 ? "markov_rank" : "confidence_head_with_markov"), err,
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

// What is put into words of ours here. Whatever else a file says stays, and is refused where it is read.
static void drop_read(const block *b, cJSON *inner) {
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

static pl_status check_modes(const block *b, pl_err *err) {
    const char *mode, *type;
    int64_t     size, other;
    PL_TRY(pl_json_opt_str(b->j, where(b, "attention_mode"), "attention_mode", "gqa", &mode, err));
    if (strcmp(mode, "gqa") != 0) {
        pl_json_fail(b->j, find(b, "attention_mode"), err, "a DSpark drafter with %.20s attention; gqa is supported",
                     mode);
        return PL_E_UNSUPPORTED;
    }
    PL_TRY(pl_json_opt_str(b->j, where(b, "projector_type"), "projector_type", "dflash", &type, err));
    if (strcmp(type, "dspark") != 0 && strcmp(type, "dflash") != 0) {
        pl_json_fail(b->j, find(b, "projector_type"), err, "a %.20s drafter, which is not supported", type);
        return PL_E_UNSUPPORTED;
    }
    PL_TRY(pl_json_opt_int(b->j, NULL, "block_size", 2, 1 << 20, 0, &size, err));
    PL_TRY(pl_json_opt_int(b->j, b->inner, "block_size", 2, 1 << 20, size, &other, err));
    if (size && other != size)
        return pl_json_fail(b->j, find(b, "block_size"), err, "%lld, and %lld at the top", (long long)other,
                            (long long)size);
    return PL_OK;
}

// What speculators' form of DFlash 2 leaves out its class has.
static void fill_parts(const block *b, cJSON *inner) {
    static const struct {
        const char *key;
        int         silent;
    } part[] = {{"conv_kernel_size", 2}, {"conv_group_size", 16}, {"selector_rank", 256}, {"selector_top_k", 16}};
    for (size_t i = 0; i < sizeof part / sizeof *part; i++) {
        const cJSON *node = find(b, part[i].key);
        if (pl_import_has(b->inner, part[i].key)) continue;
        pl_import_put(b->e, inner, part[i].key,
                      node ? cJSON_Duplicate(node, true) : cJSON_CreateNumber(part[i].silent));
    }
}

// The layers are Qwen3's in all published files, whatever they call them.
static void name_kind(const block *b, cJSON *head, bool second) {
    pl_import_put(b->e, b->e->o, "model_type", cJSON_CreateString("qwen3"));
    pl_import_architecture(b->e, head ? "PacelineDFlash" : second ? "DFlash2DraftModel" : "DFlashDraftModel");
    if (!head) return;
    cJSON *own = cJSON_CreateObject();
    pl_import_put(b->e, own, "head", head);
    pl_import_put(b->e, b->e->o, "paceline", own);
}

pl_status pl_import_block(pl_import_copy *e, const pl_json *j, const char *architecture, const char *kind,
                          pl_err *err) {
    block        b = {.e = e, .j = j, .dspark = among(spark, 4, architecture) || among(spark, 4, kind)};
    bool         second = strstr(architecture, "DFlash2") || strcmp(kind, "dflash2") == 0;
    const cJSON *mask, *size, *anchor;
    PL_TRY(pl_json_opt_object(j, NULL, "dflash_config", &b.inner, err));
    const cJSON *projector = find(&b, "projector_type");
    b.dspark |= cJSON_IsString(projector) && strcmp(projector->valuestring, "dspark") == 0;
    PL_TRY(check_modes(&b, err));
    mask = find(&b, "mask_token_id");
    size = find(&b, "block_size");
    anchor = find(&b, "sample_from_anchor");
    if (!anchor && b.dspark && *kind)
        pl_log_warn("%s: sample_from_anchor is missing; taken as true, as speculators does (vLLM takes false)",
                    j->where);
    cJSON *inner = b.inner ? cJSON_Duplicate(b.inner, true) : cJSON_CreateObject(), *head = NULL;
    e->failed |= !inner;
    drop_read(&b, inner);
    pl_import_put(e, e->o, "dflash_config", inner);
    if (size) pl_import_put(e, e->o, "block_size", cJSON_Duplicate(size, true));
    if (mask) pl_import_put(e, inner, "mask_token_id", cJSON_Duplicate(mask, true));
    pl_import_put(e, inner, "sample_from_anchor", anchor ? cJSON_Duplicate(anchor, true) : cJSON_CreateBool(b.dspark));
    PL_TRY(layers(&b, inner, err));
    PL_TRY(markov(&b, &head, err));
    if (second && *kind) fill_parts(&b, inner);
    name_kind(&b, head, second);
    return PL_OK;
}
