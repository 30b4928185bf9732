#include "checkpoints/hf_family.h"
#include "kernels/base/check.h"
#include "kernels/base/json.h"

bool pl_hf_dense(const pl_hf_config *c, int layer) {
    PL_CHECK(layer >= 0 && layer < PL_HF_LAYERS_MAX, "layer %d", layer);
    return c->experts == 0 || (c->dense[layer / 8] >> layer % 8 & 1);
}

static void set_dense(pl_hf_config *c, int64_t layer) {
    c->dense[layer / 8] |= (uint8_t)(1 << layer % 8);
}

// Layers without experts: those that are listed, and of each `step` all but the last.
static pl_status read_dense(pl_hf_config *c, const pl_json *j, pl_err *err) {
    const cJSON *only;
    int64_t      step;
    PL_TRY(pl_json_opt_int(j, NULL, "decoder_sparse_step", 1, PL_HF_LAYERS_MAX, 1, &step, err));
    PL_TRY(pl_json_opt_array(j, NULL, "mlp_only_layers", &only, err));
    for (int l = 0; l < c->num_hidden_layers; l++)
        if ((l + 1) % step != 0) set_dense(c, l);
    for (const cJSON *id = only ? only->child : NULL; id; id = id->next) {
        int64_t layer;
        PL_TRY(pl_json_int_of(j, id, 0, PL_HF_LAYERS_MAX - 1, &layer, err));
        if (layer < c->num_hidden_layers) set_dense(c, layer);
    }
    return PL_OK;
}

pl_status pl_hf_experts_read(pl_hf_config *c, const pl_json *j, const pl_hf_family *f, pl_err *err) {
    // The one name in published files, the other in those that transformers 5 writes.
    const char  *key = pl_json_find(j, NULL, "num_local_experts") ? "num_local_experts" : "num_experts";
    const cJSON *stated = pl_json_find(j, NULL, key);
    int64_t      n;
    if (f->experts == 0)
        return stated && f->architecture
                   ? pl_json_fail(j, stated, err, "experts are not supported in this architecture")
                   : PL_OK;
    PL_TRY(pl_json_opt_int(j, NULL, key, f->delta ? 0 : 1, PL_HF_EXPERTS_MAX, f->experts, &n, err));
    c->experts = (int)n;
    if (n == 0) return PL_OK;
    PL_TRY(pl_json_opt_int(j, NULL, "num_experts_per_tok", 1, n, f->experts_per_token, &n, err));
    c->experts_per_token = (int)n;
    c->expert_size = c->intermediate_size;
    c->expert_norm = true;
    if (f->expert_size > 0) {
        PL_TRY(pl_json_opt_int(j, NULL, "moe_intermediate_size", 1, PL_HF_INTERMEDIATE_MAX, f->expert_size, &n, err));
        c->expert_size = (int)n;
        PL_TRY(read_dense(c, j, err));
    }
    if (f->shared_expert > 0) {
        PL_TRY(pl_json_opt_int(j, NULL, "shared_expert_intermediate_size", 1, PL_HF_INTERMEDIATE_MAX, f->shared_expert,
                               &n, err));
        c->shared_expert = (int)n;
    }
    return f->expert_norm ? PL_OK : pl_json_opt_bool(j, NULL, "norm_topk_prob", f->delta, &c->expert_norm, err);
}

pl_status pl_hf_experts_check(const pl_hf_config *c, const char *where, pl_err *err) {
    if (c->experts == 0) return PL_OK;
    if (c->experts < 0 || c->experts > PL_HF_EXPERTS_MAX)
        return pl_fail(err, PL_E_INPUT, "%s: %d experts, at most %d", where, c->experts, PL_HF_EXPERTS_MAX);
    if ((int64_t)c->experts * c->num_hidden_layers > PL_HF_MIXED_MAX)
        return pl_fail(err, PL_E_INPUT, "%s: %d experts in %d layers are more than %d", where, c->experts,
                       c->num_hidden_layers, PL_HF_MIXED_MAX);
    if (c->experts_per_token < 1 || c->experts_per_token > c->experts)
        return pl_fail(err, PL_E_INPUT, "%s: num_experts_per_tok: %d of %d experts", where, c->experts_per_token,
                       c->experts);
    if (c->expert_size < 1 || c->expert_size > PL_HF_INTERMEDIATE_MAX)
        return pl_fail(err, PL_E_INPUT, "%s: experts of width %d", where, c->expert_size);
    return PL_OK;
}

void pl_hf_experts_put(pl_json_out *o, const pl_hf_config *c, const pl_hf_family *f) {
    if (f->experts == 0) return;
    pl_put_int(o, f->expert_size > 0 ? "num_experts" : "num_local_experts", c->experts);
    if (c->experts == 0) return; // Qwen3-Next's silence means 512
    pl_put_int(o, "num_experts_per_tok", c->experts_per_token);
    if (f->shared_expert > 0) pl_put_int(o, "shared_expert_intermediate_size", c->shared_expert);
    if (f->expert_size == 0) return;
    pl_put_int(o, "moe_intermediate_size", c->expert_size);
    pl_put_bool(o, "norm_topk_prob", c->expert_norm);
    pl_put_array(o, "mlp_only_layers");
    for (int l = 0; l < c->num_hidden_layers; l++)
        if (pl_hf_dense(c, l)) pl_json_out_int(o, l);
    pl_json_out_close(o, ']');
}
