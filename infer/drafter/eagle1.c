#include "infer/drafter/eagle1.h"

#include "kernels/base/files.h"
#include "kernels/op/elementwise.h"
#include "kernels/op/linear.h"
#include "kernels/op/norm.h"

#include <math.h>
#include <stdio.h>
#include <string.h>

static void configure(pl_hf_config *c, const pl_llama *target, const pl_backbone_options *o) {
    (void)target;
    c->target_head = pl_head_find(c->head.kind, NULL)->published && !o->own_head;
    if (c->target_head) c->head = (pl_hf_head){0};
    snprintf(c->architecture, sizeof c->architecture, "%s", c->target_head ? "LlamaForCausalLMEagle" : "PacelineEagle");
    c->fc_bias = o->bias ? PL_HF_BIAS_YES : PL_HF_BIAS_NO;
}

static pl_status check(pl_hf_config *c, const pl_llama *target, const char *where, pl_err *err) {
    (void)target;
    if (c->n_taps || c->fc_norm || c->norm_output || c->norm_before_fc || c->norm_before_residual)
        return pl_fail(err, PL_E_INPUT, "%s: taps and norm flags are EAGLE-3's, an EAGLE-1 drafter has none", where);
    return PL_OK;
}

static void init(pl_backbone *b) {
    pl_eagle1 *e = (pl_eagle1 *)b;
    pl_params *ps = &b->params;
    int64_t    d = b->shape.d;
    b->n_taps = 1;
    b->tap[0] = PL_TAP_FINAL;
    int first = ps->n;
    pl_params_weight(ps, &e->fc, PL_PARAM_MATRIX, "fc.weight", d, 2 * d, 0)->start = PL_START_FEATURES;
    pl_layer_params(ps, &e->layer, &b->shape, "layers.0.", 1);
    for (int i = first; i < ps->n; i++)
        ps->p[i].init_std = 1 / sqrt((double)ps->p[i].spec.cols);
    pl_params_norm(ps, &e->layer.norm_mlp, "layers.0.", "post_attention_layernorm", d);
    // If config.json does not state the bias (published files do not), the weights decide.
    if (b->config.fc_bias != PL_HF_BIAS_NO)
        pl_params_weight(ps, &e->fc_bias, PL_PARAM_BIAS, "fc.bias", d, 0, 0)->spec.optional =
            b->config.fc_bias == PL_HF_BIAS_UNSTATED;
}

static pl_tensor fuse(pl_ctx *ctx, const pl_backbone *b, pl_tensor features) {
    (void)ctx, (void)b;
    return features;
}

static pl_tensor step(pl_ctx *ctx, const pl_backbone *b, const int32_t *token, pl_tensor hidden, pl_view *view,
                      pl_tensor *hidden_out, pl_tensor y) {
    const pl_eagle1 *e = (const pl_eagle1 *)b;
    int64_t          m = pl_tensor_rows(&hidden);
    pl_tensor        h = pl_linear(ctx, pl_concat(ctx, pl_embed(ctx, b->embed, token, m), hidden), e->fc);
    if (e->fc_bias.data) h = pl_bias(ctx, h, e->fc_bias);
    pl_tensor delta = pl_layer_attention(ctx, &b->shape, &e->layer, h, view, 0);
    h = pl_layer_running(ctx, view, 0, h);
    pl_tensor z = pl_rmsnorm_residual(ctx, &h, delta, e->layer.norm_mlp, b->shape.eps);
    delta = pl_layer_mlp(ctx, &e->layer, z);
    *hidden_out = pl_add(ctx, h, delta, y);
    return *hidden_out;
}

// The output is compared with features, whose scale the target's final norm sets; embeddings are often far smaller.
// Both halves start with the features' variance.
static void gains(const pl_backbone *b, const pl_feature_rms *in, double *gain) {
    (void)b;
    gain[0] = in->embedding > 0 ? in->last_hidden / in->embedding : 1;
    gain[1] = 1;
}

// Ignores the copy of the target's embedding, and a buffer that old versions of transformers save.
static bool ignores(const char *name) {
    return strcmp(name, "embed_tokens.weight") == 0 || strcmp(name, "d2t") == 0 || strcmp(name, "t2d") == 0 ||
           pl_path_ends(name, "rotary_emb.inv_freq");
}

const pl_backbone_kind pl_backbone_eagle1 = {.name = "eagle1",
                                             .alias = "eagle2",
                                             .alias_tree = "eagle2:60,10,6",
                                             .which = PL_HF_EAGLE1,
                                             .size = sizeof(pl_eagle1),
                                             .predicts_features = true,
                                             .configure = configure,
                                             .check = check,
                                             .init = init,
                                             .fuse = fuse,
                                             .step = step,
                                             .gains = gains,
                                             .shares_head = true,
                                             .ignores = ignores};
