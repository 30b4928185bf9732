#include "checkpoints/hf_family.h"
#include <string.h>

// Softcaps of attention do not matter: the layers are not run.
const pl_hf_family pl_hf_foreign_family = {.theta = 10000}, pl_hf_foreign_wrapped = {.theta = 10000, .wrapped = true};

// A factor of the logits or of what the output matrix reads, which is 1 where the file is silent.
static pl_status refuse_factors(const pl_hf_config *c, const pl_json *j, pl_err *err) {
    const struct {
        const char *key;
        double      neutral;
    } factors[] = {
        {"logit_scale", 1}, {"logits_scaling", 1}, {"lm_head_multiplier", 1}, {"dim_model_base", c->hidden_size}};
    for (size_t i = 0; i < sizeof factors / sizeof *factors; i++) {
        double v;
        PL_TRY(pl_json_opt_num(j, NULL, factors[i].key, -1e30, 1e30, factors[i].neutral, &v, err));
        if (v != factors[i].neutral)
            return pl_json_fail(j, pl_json_find(j, NULL, factors[i].key), err,
                                "logits with a factor are not supported in an architecture that is not computed here");
    }
    return PL_OK;
}

// The drafter's own layer rotates by the target's base, unscaled.
static pl_status read_theta(pl_hf_config *c, const pl_json *j, pl_err *err) {
    const cJSON *of;
    PL_TRY(pl_json_opt_num(j, NULL, "rope_theta", 1, 1e12, c->rope.theta, &c->rope.theta, err));
    PL_TRY(pl_json_opt_object(j, NULL, "rope_parameters", &of, err));
    if (!of || !pl_json_find(j, of, "rope_theta")) return PL_OK;
    return pl_json_get_num(j, of, "rope_theta", 1, 1e12, &c->rope.theta, err);
}

pl_status pl_hf_foreign_read(pl_hf_config *c, const pl_json *j, pl_err *err) {
    const cJSON *cap = pl_json_find(j, NULL, "final_logit_softcapping");
    if (!pl_json_find(j, NULL, "rms_norm_eps"))
        return pl_json_fail(
            j, NULL, err,
            "rms_norm_eps: missing; \"%s\" is not computed here, and drafters for such a target need an "
            "RMS norm before its output matrix",
            c->architecture);
    PL_TRY(refuse_factors(c, j, err));
    PL_TRY(read_theta(c, j, err));
    c->norm_plus_one = strcmp(c->model_type, "gemma") == 0; // whose norms hold their gain less 1
    if (!cap || cJSON_IsNull(cap)) return PL_OK;
    return pl_json_get_num(j, NULL, "final_logit_softcapping", 1e-3, 1e6, &c->final_softcap, err);
}
