// Rules for block drafters: DFlash and DFlash 2 as z-lab publishes them, DSpark as DeepSpec does, all as speculators
// writes
// them.
#include "checkpoints/hf_tensors.h"
#include "infer/export/look.h"

#include <string.h>

static bool dspark(const pl_look *k) {
    return strstr(pl_look_architecture(k), "DSpark") ||
           strcmp(pl_look_text(k, NULL, "speculators_model_type"), "dspark") == 0;
}

static bool second(const pl_look *k) {
    return strcmp(pl_look_architecture(k), "DFlash2DraftModel") == 0 ||
           strcmp(pl_look_text(k, NULL, "speculators_model_type"), "dflash2") == 0;
}

// Where the engine looks for a member of its own: dflash_config comes first for DFlash's plain form.
static const cJSON *place(const pl_look *k, const char *key) {
    const cJSON *inner = pl_look_member(k, NULL, "dflash_config");
    return inner && cJSON_IsObject(inner) && cJSON_GetObjectItemCaseSensitive(inner, key) ? inner : NULL;
}

static int64_t whole(const pl_look *k, const char *key) {
    return pl_look_int(k, place(k, key), key);
}

static pl_check_verdict architecture(pl_look *k) {
    const char *name = pl_look_architecture(k), *other = k->engine->nested ? "DSparkDraftModel" : "Qwen3DSparkModel";
    if (k->engine->blocks->plain && second(k))
        return pl_broken(k, "architectures: %s, whose convolutions and selector the engine has not", name);
    if (strcmp(name, "DFlashDraftModel") == 0 || strcmp(name, "DFlash2DraftModel") == 0 || strcmp(name, other) == 0)
        return PL_CHECK_HOLDS;
    if (k->engine->nested && (strcmp(name, "DFlashSpeculator") == 0 || strcmp(name, "DSparkSpeculator") == 0))
        return PL_CHECK_HOLDS;
    return pl_broken(k, "architectures: %s; expected DFlashDraftModel, DFlash2DraftModel or %s", name, other);
}

static pl_check_verdict kind(pl_look *k) {
    const char *type = pl_look_text(k, NULL, "speculators_model_type");
    const char *name = pl_look_architecture(k);
    const char *of = strstr(name, "DSpark") ? "dspark" : strstr(name, "DFlash2") ? "dflash2" : "dflash";
    if (strcmp(type, of) == 0) return PL_CHECK_HOLDS;
    return pl_broken(k, "speculators_model_type: %s; the class is %s's", *type ? type : "missing", of);
}

static pl_check_verdict layers_of_qwen3(pl_look *k) {
    const char *type = pl_look_text(k, k->layer, "model_type");
    return strcmp(type, "qwen3") == 0 ? PL_CHECK_HOLDS : pl_broken(k, "model_type: %s; expected qwen3", type);
}

static pl_check_verdict block_size(pl_look *k) {
    int64_t top = pl_look_int(k, NULL, "block_size"), size = whole(k, "block_size");
    if (size < 2) return pl_broken(k, "block_size is missing, or no block");
    if (top >= 0 && top != size)
        return pl_broken(k, "block_size: %lld, in dflash_config %lld", (long long)top, (long long)size);
    return PL_CHECK_HOLDS;
}

static pl_check_verdict mask(pl_look *k) {
    int64_t id = whole(k, "mask_token_id");
    if (id < 0) return pl_broken(k, "mask_token_id is missing");
    if (id >= pl_look_vocab(k)) return pl_broken(k, "mask_token_id: %lld, beyond the vocabulary", (long long)id);
    return PL_CHECK_HOLDS;
}

// The layers' outputs; -1: there is no list of numbers under the name that the engine reads.
static int listed(const pl_look *k, int64_t *layer) {
    const char  *key = k->engine->nested ? "aux_hidden_state_layer_ids" : "target_layer_ids";
    const cJSON *list = pl_look_member(k, place(k, key), key);
    int          n = 0;
    if (!list || !cJSON_IsArray(list)) return -1;
    for (const cJSON *e = list->child; e; e = e->next) {
        if (n == PL_HF_TAPS || pl_json_int_of(&k->j, e, -1, PL_HF_LAYERS_MAX, &layer[n], NULL) != PL_OK) return -1;
        layer[n++] -= k->engine->nested; // counts inputs
    }
    return n > 0 ? n : -1;
}

static pl_check_verdict layers_written(pl_look *k) {
    int64_t layer[PL_HF_TAPS];
    if (listed(k, layer) > 0) return PL_CHECK_HOLDS;
    return pl_broken(k, "%s is missing, and readers would derive layers of their own",
                     k->engine->nested ? "aux_hidden_state_layer_ids" : "target_layer_ids");
}

static pl_check_verdict layers_there(pl_look *k) {
    int64_t layer[PL_HF_TAPS];
    int     n = listed(k, layer);
    for (int i = 0; i < n; i++) {
        if (layer[i] < 0) return pl_broken(k, "reads the embeddings, which engines do not capture");
        if (i > 0 && layer[i] <= layer[i - 1]) return pl_broken(k, "layer %lld comes late", (long long)layer[i]);
    }
    if (!k->has_target) return pl_unseen(k, "give --target");
    int64_t last = n > 0 ? layer[n - 1] : 0, depth = k->target.num_hidden_layers;
    if (last < depth - 1 || (last == depth - 1 && k->engine->last)) return PL_CHECK_HOLDS;
    return pl_broken(k, "reads the output of layer %lld, the target has %lld%s", (long long)last, (long long)depth,
                     last == depth - 1 ? ", and what leaves the last the engine does not capture" : "");
}

static pl_check_verdict depth(pl_look *k) {
    int64_t n = whole(k, "num_target_layers");
    if (k->engine->nested && n < 0) return PL_CHECK_HOLDS; // its form has no such member
    if (n < 0) return pl_unseen(k, "num_target_layers is missing");
    if (!k->has_target) return pl_unseen(k, "give --target");
    if (n == k->target.num_hidden_layers) return PL_CHECK_HOLDS;
    return pl_broken(k, "num_target_layers: %lld, the target has %d", (long long)n, k->target.num_hidden_layers);
}

// -1: left to a default.
static int anchored(const pl_look *k) {
    int v = pl_look_flag(k, place(k, "sample_from_anchor"), "sample_from_anchor");
    return v < 0 && !k->engine->nested ? dspark(k) : v;
}

static pl_check_verdict anchor(pl_look *k) {
    if (anchored(k) < 0) return pl_broken(k, "sample_from_anchor is missing, and defaults differ");
    return PL_CHECK_HOLDS;
}

static pl_check_verdict tokens(pl_look *k) {
    const cJSON *list = pl_look_member(k, NULL, "speculators_config.proposal_methods");
    int64_t n = list && cJSON_IsArray(list) && list->child ? pl_look_int(k, list->child, "speculative_tokens") : -1;
    int64_t drafted = whole(k, "block_size") - !anchored(k);
    if (n == drafted || n < 1 || anchored(k) < 0) return PL_CHECK_HOLDS; // or told by proposal
    return pl_broken(k, "speculative_tokens: %lld, a block drafts %lld", (long long)n, (long long)drafted);
}

// Before the layers' types vLLM (0.33) asks is_causal beside them, then dflash_config.causal, which it makes of
// speculators' sliding_window_non_causal, but for DSpark; SGLang asks is_causal alone.
static pl_check_verdict full_attention(pl_look *k) {
    const cJSON *types = pl_look_member(k, k->layer, "layer_types");
    const cJSON *inner = pl_look_member(k, NULL, "dflash_config");
    if (pl_look_flag(k, k->layer, "is_causal") == 1 || (inner && pl_look_flag(k, inner, "is_causal") == 1))
        return pl_broken(k, "is_causal: true; a block sees itself in both directions");
    if (inner && pl_look_flag(k, inner, "causal") == 1)
        return pl_broken(k, "dflash_config.causal: true; a block sees itself in both directions");
    int both = pl_look_flag(k, NULL, "sliding_window_non_causal");
    if (k->engine->nested && !dspark(k) && both != 1 && pl_look_flag(k, k->layer, "is_causal") != 0)
        return pl_broken(k, both < 0 ? "sliding_window_non_causal is missing, and defaults differ"
                                     : "sliding_window_non_causal: false, which vLLM takes for causal layers");
    for (const cJSON *t = types && cJSON_IsArray(types) ? types->child : NULL; t; t = t->next)
        if (!cJSON_IsString(t) || strcmp(t->valuestring, "full_attention") != 0)
            return pl_broken(k, "layer_types: a window, which readers take for causal");
    return PL_CHECK_HOLDS;
}

// What DFlash 2's parts are made of: as its class has them where speculators' form is silent.
static int64_t part(const pl_look *k, const char *key, int64_t silent) {
    int64_t n = whole(k, key);
    return n < 0 && k->engine->nested ? silent : n;
}

static pl_check_verdict parts(pl_look *k) {
    static const char *const key[] = {"conv_kernel_size", "conv_group_size", "selector_rank", "selector_top_k"};
    int64_t                  n[4], d = pl_look_int(k, k->layer, "hidden_size"), size = whole(k, "block_size");
    static const int64_t     silent[] = {2, 16, 256, 16};
    for (int i = 0; i < 4; i++) {
        bool there = whole(k, key[i]) >= 0;
        n[i] = part(k, key[i], silent[i]);
        if (second(k) && n[i] < 1) return pl_broken(k, "%s is missing", key[i]);
        if (!second(k) && there) return pl_broken(k, "%s: the class is not DFlash 2's", key[i]);
    }
    if (!second(k)) return PL_CHECK_HOLDS;
    if (n[0] > size) return pl_broken(k, "conv_kernel_size: %lld, in blocks of %lld", (long long)n[0], (long long)size);
    if (d > 0 && d % n[1] != 0)
        return pl_broken(k, "conv_group_size: %lld does not divide the width %lld", (long long)n[1], (long long)d);
    if (n[3] > pl_look_vocab(k)) return pl_broken(k, "selector_top_k: %lld, beyond the vocabulary", (long long)n[3]);
    return PL_CHECK_HOLDS;
}

// ---- tensors ----

// Of the Markov head; one that nobody knows has no tensors of its own either.
static int form(const pl_look *k) {
    return pl_hf_markov_find(pl_look_text(k, place(k, "markov_head_type"), "markov_head_type"));
}

static pl_check_verdict heads(pl_look *k) {
    const pl_export_blocks *b = k->engine->blocks;
    int64_t                 rank = whole(k, "markov_rank");
    if (!dspark(k)) return PL_CHECK_HOLDS;
    if (form(k) < 0 || (b->vanilla && form(k) != PL_HF_MARKOV_VANILLA))
        return pl_broken(k, "markov_head_type: %.40s, which the engine does not compute",
                         pl_look_text(k, place(k, "markov_head_type"), "markov_head_type"));
    if (b->markov && rank < 1) return pl_broken(k, "markov_rank is 0 or missing, and the engine wants a Markov head");
    return PL_CHECK_HOLDS;
}

static pl_hf_sizes sizes(const pl_look *k) {
    int64_t layer[PL_HF_TAPS], d = pl_look_int(k, k->layer, "hidden_size"), n = listed(k, layer);
    int64_t rank = dspark(k) ? whole(k, "markov_rank") : 0; // absent, as speculators' class has them: 256, true, true
    bool    sure = dspark(k) && pl_look_flag(k, place(k, "enable_confidence_head"), "enable_confidence_head") != 0;
    bool    both = pl_look_flag(k, place(k, "confidence_head_with_markov"), "confidence_head_with_markov") != 0;
    if (rank < 0) rank = 256;
    return (pl_hf_sizes){.backbone = PL_HF_DFLASH,
                         .layers = pl_look_int(k, k->layer, "num_hidden_layers"),
                         .width = d,
                         .heads = pl_look_int(k, k->layer, "num_attention_heads"),
                         .kv_heads = pl_look_int(k, k->layer, "num_key_value_heads"),
                         .head_dim = pl_look_int(k, k->layer, "head_dim"),
                         .intermediate = pl_look_int(k, k->layer, "intermediate_size"),
                         .taps = n > 0 ? n : 1,
                         .target_width = k->has_target ? k->target.hidden_size : d,
                         .vocab = pl_look_vocab(k),
                         .head_rows = k->rows > 0 ? k->rows : pl_look_vocab(k),
                         .markov_rank = rank,
                         .markov_form = form(k),
                         .confidence_inputs = sure ? d + (both && rank > 0 ? rank : 0) : 0,
                         .conv_taps = second(k) ? part(k, "conv_kernel_size", 2) : 0,
                         .conv_group = second(k) ? part(k, "conv_group_size", 16) : 0,
                         .selector_rank = second(k) ? part(k, "selector_rank", 256) : 0};
}

static bool is_there(pl_look *k, const char *name) {
    return pl_st_find(k->st, name) || pl_broken(k, "%s is missing", name) == PL_CHECK_HOLDS;
}

static bool there(void *arg, const char *name, const int64_t size[3]) {
    (void)size;
    return is_there(arg, name);
}

static bool other_than(void *arg, const char *name, const int64_t size[3]) {
    (void)size;
    return strcmp(arg, name) != 0;
}

static bool right_shape(void *arg, const char *name, const int64_t size[3]) {
    return pl_look_sizes(arg, name, size) == PL_CHECK_HOLDS;
}

static bool whole_parts(const pl_look *k) {
    return !second(k) || (part(k, "conv_kernel_size", 2) > 0 && part(k, "conv_group_size", 16) > 0);
}

static pl_check_verdict names(pl_look *k) {
    static const char *const more[] = {"d2t", "t2d", "embed_tokens.weight", "lm_head.weight"};
    if (!whole_parts(k)) return pl_unseen(k, "the sizes of DFlash 2's parts are missing");
    pl_hf_sizes s = sizes(k);
    if (!pl_hf_tensors(&s, there, k)) return PL_CHECK_BROKEN;
    for (int64_t i = 0; i < pl_st_count(k->st); i++) {
        const char *have = pl_st_at(k->st, i)->name;
        bool        known = !pl_hf_tensors(&s, other_than, (void *)(uintptr_t)have);
        for (int m = 0; m < 4 && !known; m++)
            known = strcmp(have, more[m]) == 0;
        if (!known) return pl_broken(k, "\"%.80s\" is none that the engine knows", have);
    }
    return PL_CHECK_HOLDS;
}

static pl_check_verdict shapes(pl_look *k) {
    if (!whole_parts(k)) return pl_unseen(k, "the sizes of DFlash 2's parts are missing");
    pl_hf_sizes s = sizes(k);
    return pl_hf_tensors(&s, right_shape, k) ? PL_CHECK_HOLDS : PL_CHECK_BROKEN;
}

// Embeddings and head are the target's where the file has none: speculators wrote copies until 0.9, which writes the
// head of a smaller vocabulary alone.
static pl_check_verdict copies(pl_look *k) {
    int64_t V = pl_look_vocab(k), d = pl_look_int(k, k->layer, "hidden_size"), rows = k->rows > 0 ? k->rows : V;
    int64_t stated = pl_look_int(k, NULL, "draft_vocab_size");
    if (stated > 0 && stated < V && !is_there(k, "lm_head.weight")) return PL_CHECK_BROKEN;
    pl_check_verdict v = pl_look_shape(k, "embed_tokens.weight", V, d);
    return v == PL_CHECK_HOLDS ? pl_look_shape(k, "lm_head.weight", rows, d) : v;
}

static pl_check_verdict draft_vocab(pl_look *k) {
    int64_t stated = pl_look_int(k, NULL, "draft_vocab_size"), V = pl_look_vocab(k);
    if (k->engine->nested && stated < 1) return pl_broken(k, "draft_vocab_size is missing, and the default is 32000");
    if (stated >= 0 && stated != (k->rows > 0 ? k->rows : V))
        return pl_broken(k, "draft_vocab_size: %lld, the head has %lld rows", (long long)stated,
                         (long long)(k->rows > 0 ? k->rows : V));
    if (!k->engine->blocks->own_head && k->rows > 0 && k->rows != V)
        return pl_broken(k, "a head of %lld rows, where the engine takes the target's", (long long)k->rows);
    return PL_CHECK_HOLDS;
}

const pl_check_rule pl_check_blocks[] = {
    {"architecture", "the class by which the engine finds its code", architecture, false, NULL, PL_CHECK_ALL},
    {"kind", "speculators_model_type is the class's", kind, false, "speculators", PL_CHECK_ALL},
    {"model-type", "the draft layers are Qwen3's", layers_of_qwen3, false, NULL, PL_CHECK_ALL},
    {"block-size", "slots of a block, the same wherever they stand", block_size, false, NULL, PL_CHECK_ALL},
    {"mask", "the token in the slots behind the anchor", mask, false, NULL, PL_CHECK_ALL},
    {"layers-written", "the target's layers are named", layers_written, false, NULL, PL_CHECK_ALL},
    {"layers-there", "the target has them, in rising order, and engines capture them", layers_there, false, NULL,
     PL_CHECK_ALL},
    {"depth", "made for a target of so many layers", depth, false, NULL, PL_CHECK_ALL},
    {"anchor", "whether the anchor's slot drafts is written", anchor, false, "speculators", PL_CHECK_ALL},
    {"tokens", "drafted are as many as a block drafts", tokens, false, "speculators", PL_CHECK_ALL},
    {"parts", "DFlash 2's convolutions and selector are stated, and fit block, width and vocabulary", parts, false,
     NULL, PL_CHECK_ALL},
    {"heads", "a Markov head of a form that the engine computes", heads, false, NULL, PL_CHECK_ALL},
    {"both-ways", "the block sees itself in both directions", full_attention, false, NULL, PL_CHECK_ALL},
    {"names", "exactly the tensors that the engine knows", names, false, NULL, PL_CHECK_ALL},
    {"shapes", "tensors of the sizes that config.json names", shapes, false, NULL, PL_CHECK_ALL},
    {"embeddings", "embeddings and head of the right sizes where they stand, and a head of fewer tokens there", copies,
     false, NULL, PL_CHECK_ALL},
    {"draft-vocab", "draft_vocab_size is the number of the head's rows", draft_vocab, false, NULL, PL_CHECK_ALL},
};
const size_t pl_check_n_blocks = sizeof pl_check_blocks / sizeof *pl_check_blocks;
