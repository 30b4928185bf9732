// The EAGLE repository's own program (eagle/model/cnets.py): it captures the inputs of layers 2, L/2 and L-3 of its
// target and no others. It reads the target's embeddings, and with a target_hidden_size in config.json the file's
// instead: so exports write that member only if the widths differ.
#include "infer/export/rules.h"
#include "kernels/base/arena.h"

#include <string.h>

static bool has_width(const pl_export *e) {
    return e->config.target_hidden_size != e->config.hidden_size;
}

static const pl_export_row rows[] = {{PL_INT("target_hidden_size", config.target_hidden_size), .when = has_width},
                                     {PL_ROWS(pl_rows_class)},
                                     {PL_ROWS(pl_rows_layer)},
                                     {PL_ROWS(pl_rows_inputs)},
                                     {0}};

// Checks the RoPE settings that EAGLE's EConfig reads.
static pl_check_verdict check_rope_read(pl_look *k) {
    const cJSON *o = pl_look_member(k, k->layer, "rope_scaling");
    if (!o || cJSON_IsNull(o)) return PL_CHECK_HOLDS;
    const char *type = cJSON_IsObject(o) ? pl_look_text(k, o, "type") : "";
    bool        known = strcmp(type, "linear") == 0 || strcmp(type, "dynamic") == 0;
    if (known && cJSON_GetArraySize(o) == 2 && pl_look_num(k, o, "factor") > 1) return PL_CHECK_HOLDS;
    return pl_broken(k,
                     "RoPE that is scaled, which eagle does not read but as {\"type\", \"factor\"}, linear or dynamic");
}

static pl_check_verdict check_layers_own(pl_look *k) {
    if (!k->target) return pl_unseen(k, "give --target");
    int depth = k->target->num_hidden_layers;
    if (k->e.n_taps == 3 && k->e.tap[0] == 2 && k->e.tap[1] == depth / 2 && k->e.tap[2] == depth - 3)
        return PL_CHECK_HOLDS;
    return pl_broken(
        k, "the program captures the inputs of layers 2, %d and %d and no others; train with drafter.taps of these",
        depth / 2, depth - 3);
}

static pl_check_verdict check_embeddings_read(pl_look *k) {
    if (pl_look_int(k, NULL, "target_hidden_size") < 0 || pl_look_find(&k->have, "embed_tokens.weight"))
        return PL_CHECK_HOLDS;
    return pl_broken(k, "embed_tokens.weight is missing, and with target_hidden_size there the target's are not read");
}

static const pl_check_rule rules[] = {
    {"rope-read", "no RoPE that the program does not read", check_rope_read, PL_CHECK_ALL},
    {"layers-own", "they are the ones that the program captures", check_layers_own, PL_CHECK_ALL},
    {"embeddings-read", "target_hidden_size stands beside embeddings alone", check_embeddings_read, PL_CHECK_ALL},
    {0}};

static char *make_command(const pl_export *e, const char *dir) {
    return pl_sprintf("python -m eagle.evaluation.gen_ea_answer_llama3chat --use_eagle3 --base-model-path %s "
                      "--ea-model-path %s",
                      e->served, dir);
}

const pl_export_engine pl_export_eagle = {.name = "eagle",
                                          .help = "the EAGLE repository's own program",
                                          .classes = {"LlamaForCausalLMEagle3"},
                                          .rows = rows,
                                          .layer = "midlayer.",
                                          .own = PL_EXPORT_OWN_SAME | PL_EXPORT_OWN_WIDTH,
                                          .skips_fc = pl_export_skips_equal,
                                          .wants_target = "eagle reads the layers that follow from its depth",
                                          .map = &pl_export_offsets,
                                          .rules = rules,
                                          .serve = make_command};
