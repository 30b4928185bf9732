// Rules for the layers of the target that EAGLE-3 and P-EAGLE read.
#include "infer/export/look.h"

#include <string.h>

int pl_look_layers(const pl_look *k, int *layer) {
    const cJSON *list = pl_look_member(k, NULL, k->engine->list);
    int          n = 0;
    if (!list || !cJSON_IsArray(list)) return -1;
    for (const cJSON *e = list->child; e; e = e->next) {
        int64_t v;
        if (n == PL_HF_TAPS || pl_json_int_of(&k->j, e, 0, PL_HF_LAYERS_MAX, &v, NULL) != PL_OK) return -1;
        layer[n++] = (int)v;
    }
    return n > 0 ? n : -1;
}

pl_check_verdict pl_check_layers_written(pl_look *k) {
    int layer[PL_HF_TAPS];
    return pl_look_layers(k, layer) > 0
               ? PL_CHECK_HOLDS
               : pl_broken(k, "%s is missing, and engines would take layers of their own", k->engine->list);
}

// The engine reads the layers that the drafter was trained on.
pl_check_verdict pl_check_layers_meant(pl_look *k) {
    int         layer[PL_HF_TAPS], n = pl_look_layers(k, layer);
    const char *said = pl_look_text(k, NULL, "paceline.tap_numbering");
    bool        output = strcmp(said, "output") == 0;
    if (n < 0) return pl_broken(k, "there is no list");
    if (k->engine->nested) return PL_CHECK_HOLDS; // whose list means inputs and nothing else
    if (!*said)
        return pl_unseen(k,
                         "the file does not say by what its trainer counted them; %s reads the input of layer %d first",
                         k->engine->name, layer[0] + k->engine->outputs);
    for (int i = 0; i < n; i++) {
        int meant = layer[i] + output, read = layer[i] + k->engine->outputs;
        if (read != meant)
            return pl_broken(k, "layer %d counts %ss, %s reads the input of layer %d", layer[i], said, k->engine->name,
                             read);
    }
    return PL_CHECK_HOLDS;
}

pl_check_verdict pl_check_layers_rise(pl_look *k) {
    int layer[PL_HF_TAPS], n = pl_look_layers(k, layer);
    for (int i = 1; i < n && k->engine->rising; i++)
        if (layer[i] <= layer[i - 1])
            return pl_broken(k, "layer %d after layer %d, and the engine captures a set in rising order", layer[i],
                             layer[i - 1]);
    return PL_CHECK_HOLDS;
}

// What fc reads is wider than what it gives, or engines that tell features from drafts by their width leave it out.
pl_check_verdict pl_check_layers_joined(pl_look *k) {
    int64_t d = pl_look_int(k, k->layer, "hidden_size"), wide = pl_look_int(k, NULL, "target_hidden_size");
    int     layer[PL_HF_TAPS], n = pl_look_layers(k, layer);
    if (wide < 0) wide = d;
    if (n < 0 || !pl_export_skips_fc(k->engine, n, wide, d)) return PL_CHECK_HOLDS;
    return pl_broken(k, "%d layers of width %lld for a drafter of %lld, which the engine takes in without fc", n,
                     (long long)wide, (long long)d);
}

// vLLM (0.33) does not count speculators' list for its fc.
pl_check_verdict pl_check_layers_counted(pl_look *k) {
    int64_t stated = pl_look_int(k, k->layer, "num_aux_hidden_states");
    int     layer[PL_HF_TAPS], n = pl_look_layers(k, layer);
    if (n < 0 || stated == n || (stated < 0 && (n == 3 || !k->engine->nested))) return PL_CHECK_HOLDS;
    return stated < 0 ? pl_broken(k, "num_aux_hidden_states is missing, and vLLM takes 3 for the %d layers", n)
                      : pl_broken(k, "num_aux_hidden_states: %lld, of %d layers", (long long)stated, n);
}

pl_check_verdict pl_check_layers_there(pl_look *k) {
    int layer[PL_HF_TAPS], n = pl_look_layers(k, layer);
    if (!k->has_target) return pl_unseen(k, "give --target");
    for (int i = 0; i < n; i++) {
        int in = layer[i] + k->engine->outputs;
        if (in > k->target.num_hidden_layers)
            return pl_broken(k, "reads the input of layer %d, the target has %d layers", in,
                             k->target.num_hidden_layers);
        if (in == k->target.num_hidden_layers && !k->engine->last)
            return pl_broken(
                k, "reads what leaves the last layer, before the final norm, which the engine does not capture");
    }
    return PL_CHECK_HOLDS;
}

pl_check_verdict pl_check_layers_own(pl_look *k) {
    int layer[PL_HF_TAPS], n = pl_look_layers(k, layer), depth = k->target.num_hidden_layers;
    if (!k->has_target) return pl_unseen(k, "give --target");
    if (n == 3 && layer[0] == 2 && layer[1] == depth / 2 && layer[2] == depth - 3) return PL_CHECK_HOLDS;
    return pl_broken(k, "the program captures the inputs of layers 2, %d and %d and no others", depth / 2, depth - 3);
}
