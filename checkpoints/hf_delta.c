// Layers with a gated delta net in place of attention: Qwen3-Next's and Qwen3.5's.
#include "checkpoints/hf_family.h"
#include "kernels/base/check.h"
#include "kernels/base/json.h"
#include <string.h>

bool pl_hf_recurrent(const pl_hf_config *c, int layer) {
    PL_CHECK(layer >= 0 && layer < PL_HF_LAYERS_MAX, "layer %d", layer);
    return c->delta.layer[layer / 8] >> layer % 8 & 1;
}

static void set_recurrent(pl_hf_config *c, int64_t layer) {
    c->delta.layer[layer / 8] |= (uint8_t)(1 << layer % 8);
}

// layer_types, or where they are not stated all but each full_attention_interval-th layer.
static pl_status read_layers(pl_hf_config *c, const pl_json *j, pl_err *err) {
    const cJSON *types;
    int64_t      interval;
    int          n = 0;
    PL_TRY(pl_json_opt_int(j, NULL, "full_attention_interval", 1, PL_HF_LAYERS_MAX, 4, &interval, err));
    PL_TRY(pl_json_opt_array(j, NULL, "layer_types", &types, err));
    for (int l = 0; l < c->num_hidden_layers && !types; l++)
        if ((l + 1) % interval != 0) set_recurrent(c, l);
    for (const cJSON *t = types ? types->child : NULL; t; t = t->next, n++) {
        const char *type;
        PL_TRY(pl_json_str_of(j, t, &type, err));
        bool linear = strcmp(type, "linear_attention") == 0;
        if (!linear && strcmp(type, "full_attention") != 0)
            return pl_json_fail(j, t, err, "\"%.40s\" is not supported, only linear_attention and full_attention",
                                type);
        if (linear && n < c->num_hidden_layers) set_recurrent(c, n);
    }
    if (!types || n == c->num_hidden_layers) return PL_OK;
    return pl_json_fail(j, types, err, "%d entries for %d layers", n, c->num_hidden_layers);
}

pl_status pl_hf_delta_read(pl_hf_config *c, const pl_json *j, const pl_hf_family *f, pl_err *err) {
    const struct {
        const char *key;
        int         most, silent, *to;
    } sizes[] = {{"linear_num_key_heads", PL_HF_HEADS_MAX, 16, &c->delta.key_heads},
                 {"linear_num_value_heads", PL_HF_HEADS_MAX, 32, &c->delta.value_heads},
                 {"linear_key_head_dim", PL_HF_DELTA_DIM_MAX, 128, &c->delta.key_dim},
                 {"linear_value_head_dim", PL_HF_DELTA_DIM_MAX, 128, &c->delta.value_dim},
                 {"linear_conv_kernel_dim", PL_HF_DELTA_TAPS_MAX, 4, &c->delta.taps}};
    bool gate;
    for (size_t i = 0; i < sizeof sizes / sizeof *sizes; i++) {
        int64_t v;
        PL_TRY(pl_json_opt_int(j, NULL, sizes[i].key, 1, sizes[i].most, sizes[i].silent, &v, err));
        *sizes[i].to = (int)v;
    }
    PL_TRY(pl_json_opt_bool(j, NULL, "attn_output_gate", true, &gate, err));
    if (!gate)
        return pl_json_fail(j, pl_json_find(j, NULL, "attn_output_gate"), err,
                            "false is not supported in this architecture");
    if (c->activation != PL_HF_SILU)
        return pl_json_fail(j, pl_json_find(j, NULL, "hidden_act"), err, "only silu is supported in this architecture");
    c->delta.joined_qkvz = c->delta.joined_gates = f->by_key_head;
    c->output_gate = c->norm_plus_one = true;
    return read_layers(c, j, err);
}

pl_status pl_hf_delta_check(const pl_hf_config *c, const char *where, pl_err *err) {
    const pl_hf_delta *d = &c->delta;
    if (d->value_heads == 0) return PL_OK;
    if (d->key_heads < 1 || d->value_heads % d->key_heads != 0)
        return pl_fail(err, PL_E_INPUT, "%s: linear_num_key_heads: %d does not divide linear_num_value_heads %d", where,
                       d->key_heads, d->value_heads);
    bool any = false;
    for (int l = 0; l < c->num_hidden_layers; l++)
        any |= pl_hf_recurrent(c, l);
    if (any) return PL_OK;
    return pl_fail(err, PL_E_INPUT, "%s: layer_types: no layer is linear_attention in %s", where, c->architecture);
}

void pl_hf_delta_put(pl_json_out *o, const pl_hf_config *c) {
    const pl_hf_delta *d = &c->delta;
    if (d->value_heads == 0) return;
    pl_put_int(o, "linear_num_key_heads", d->key_heads);
    pl_put_int(o, "linear_num_value_heads", d->value_heads);
    pl_put_int(o, "linear_key_head_dim", d->key_dim);
    pl_put_int(o, "linear_value_head_dim", d->value_dim);
    pl_put_int(o, "linear_conv_kernel_dim", d->taps);
    if (c->rope.partial == 0) pl_put_num(o, "partial_rotary_factor", 1); // silence means a quarter
    pl_put_array(o, "layer_types");
    for (int l = 0; l < c->num_hidden_layers; l++)
        pl_json_out_str(o, pl_hf_recurrent(c, l) ? "linear_attention" : "full_attention");
    pl_json_out_close(o, ']');
}
