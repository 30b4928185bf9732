#include "checkpoints/hf.h"

#include "kernels/base/arena.h"
#include "kernels/base/files.h"
#include "kernels/base/log.h"

#include <stdio.h>
#include <string.h>

#define GENERATION_MAX ((size_t)4 << 20)

// Members that transformers' GenerationConfig (5.24) or vLLM's defaults apply to logits or to the end of an answer, and
// that this runtime does not apply, each with the value at which it has no effect. Temperature, top_k, top_p and min_p
// are left out: the caller sets them.
static const struct {
    const char *name;
    double      neutral;
} unapplied[] = {{"repetition_penalty", 1},
                 {"presence_penalty", 0},
                 {"frequency_penalty", 0},
                 {"no_repeat_ngram_size", 0},
                 {"bad_words_ids", 0},
                 {"force_words_ids", 0},
                 {"suppress_tokens", 0},
                 {"begin_suppress_tokens", 0},
                 {"forced_bos_token_id", -1},
                 {"forced_eos_token_id", -1},
                 {"sequence_bias", 0},
                 {"stop_strings", 0},
                 {"min_length", 0},
                 {"min_new_tokens", 0},
                 {"exponential_decay_length_penalty", 0},
                 {"num_beams", 1},
                 {"diversity_penalty", 0},
                 {"penalty_alpha", 0},
                 {"guidance_scale", 1},
                 {"typical_p", 1},
                 {"epsilon_cutoff", 0},
                 {"eta_cutoff", 0},
                 {"watermarking_config", 0}};

static bool does_nothing(const cJSON *node, double neutral) {
    if (!node || cJSON_IsNull(node) || cJSON_IsFalse(node)) return true;
    if (cJSON_IsNumber(node)) return node->valuedouble == neutral;
    return (cJSON_IsArray(node) || cJSON_IsObject(node)) && !node->child;
}

pl_status pl_hf_warn_generation(const char *dir, pl_err *err) {
    pl_json   j = {0};
    char      list[512] = "";
    char     *path = pl_path_join(dir, "generation_config.json");
    pl_status st = path ? PL_OK : pl_fail(err, PL_E_MEMORY, "%s: out of memory", dir);
    if (st == PL_OK && pl_path_is_dir(dir) && pl_path_exists(path))
        st = pl_json_open(&j, path, GENERATION_MAX, PL_JSON_UNIQUE, err);
    for (size_t i = 0; st == PL_OK && j.root && i < sizeof unapplied / sizeof *unapplied; i++) {
        const cJSON *node = pl_json_find(&j, NULL, unapplied[i].name);
        size_t       n = strlen(list);
        if (does_nothing(node, unapplied[i].neutral)) continue;
        n += (size_t)snprintf(list + n, sizeof list - n, "%s%s", n ? ", " : "", unapplied[i].name);
        if (cJSON_IsNumber(node)) snprintf(list + n, sizeof list - n, " %g", node->valuedouble);
    }
    if (*list)
        pl_log_warn_once("%s: %s: not applied here, so that engines which apply them answer otherwise; serve without "
                         "them%s",
                         path, list, strstr(list, "repetition_penalty") ? " (decode has --repetition-penalty)" : "");
    pl_json_close(&j);
    pl_free(path);
    return st;
}
