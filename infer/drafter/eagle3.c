#include "infer/drafter/eagle3.h"

#include "kernels/op/concat.h"
#include "kernels/op/embed.h"
#include "kernels/op/linear.h"
#include "kernels/op/rmsnorm.h"

#include <math.h>
#include <stdio.h>
#include <string.h>

static void configure(pl_hf_config *c, const pl_llama *target, const pl_backbone_options *o) {
    // Engines know the full head; any other is declared as ours, so that they refuse it instead of decoding wrongly.
    bool published = pl_head_find(c->head.kind, NULL)->published;
    snprintf(c->architecture, sizeof c->architecture, "%s", published ? "LlamaForCausalLMEagle3" : "PacelineEagle3");
    c->draft_vocab_size = (int)target->vocab;
    c->target_hidden_size = (int)target->shape.d;
    c->n_taps = o->n_taps;
    memcpy(c->tap, o->tap, sizeof c->tap);
    c->tap_numbering = PL_HF_TAPS_INPUT;
}

// Published heads name no layers where they mean the paper's.
static void fill_taps(pl_hf_config *c, int n_layers) {
    if (c->n_taps == 0) c->n_taps = pl_llama_default_taps(n_layers, c->tap);
}

static pl_status check(pl_hf_config *c, const pl_llama *target, const char *where, pl_err *err) {
    if (c->fc_norm || c->norm_output || c->norm_before_fc || c->norm_before_residual)
        return pl_fail(err, PL_E_UNSUPPORTED,
                       "%s: norm_output, fc_norm, norm_before_fc and norm_before_residual "
                       "(EAGLE-3.1) are not supported",
                       where);
    fill_taps(c, target->n_layers);
    return pl_backbone_check_taps(c->tap, c->n_taps, target->n_layers, where, err);
}

static void taps(pl_taps *t, const pl_hf_config *c, int n_layers) {
    pl_hf_config filled = *c;
    fill_taps(&filled, n_layers);
    t->n = filled.n_taps;
    for (int i = 0; i < t->n; i++)
        t->layer[i] = filled.tap[i] + (c->tap_numbering == PL_HF_TAPS_OUTPUT ? 1 : 0); // output of i is input of i + 1
}

static void init(pl_backbone *b) {
    pl_eagle3          *e = (pl_eagle3 *)b;
    pl_params          *ps = &b->params;
    const pl_hf_config *c = &b->config;
    int64_t             d = b->shape.d;
    b->shape.d_attn = 2 * d;
    pl_taps t;
    taps(&t, c, 0); // check has filled them in
    b->n_taps = t.n;
    memcpy(b->tap, t.layer, sizeof t.layer);
    pl_params_add(ps, &(pl_param_args){.tensor = &e->fc,
                                       .kind = PL_PARAM_MATRIX,
                                       .part = {{"fc.weight", d}},
                                       .cols = b->n_taps * b->d_target,
                                       .init_std = 1 / sqrt((double)b->n_taps * (double)b->d_target),
                                       .start = PL_START_FEATURES});
    // One layer has no depth to be shy of: every matrix starts at the scale that keeps its input's variance, since what
    // it adds must soon outweigh the fused features beside it.
    int first = ps->n;
    pl_layer_params(ps, &e->layer, &b->shape, "midlayer.", 1);
    for (int i = first; i < ps->n; i++)
        ps->p[i].init_std = 1 / sqrt((double)ps->p[i].spec.cols);
    pl_params_add(ps, &(pl_param_args){.tensor = &e->hidden_norm,
                                       .kind = PL_PARAM_NORM,
                                       .part = {{"midlayer.hidden_norm.weight", d}}});
    pl_params_add(ps, &(pl_param_args){.tensor = &e->layer.norm_attn,
                                       .kind = PL_PARAM_NORM,
                                       .part = {{"midlayer.input_layernorm.weight", d}}});
    pl_params_add(ps, &(pl_param_args){.tensor = &e->layer.norm_mlp,
                                       .kind = PL_PARAM_NORM,
                                       .part = {{"midlayer.post_attention_layernorm.weight", d}}});
    pl_params_add(
        ps, &(pl_param_args){
                .tensor = &e->norm, .kind = PL_PARAM_NORM, .part = {{"norm.weight", d}}, .start = PL_START_FINAL_NORM});
}

static pl_tensor fuse(pl_ctx *ctx, const pl_backbone *b, pl_tensor features) {
    return pl_linear(ctx, features, ((const pl_eagle3 *)b)->fc);
}

static pl_tensor step(pl_ctx *ctx, const pl_backbone *b, const int32_t *token, pl_tensor hidden, pl_view *view,
                      pl_tensor *hidden_out, pl_tensor y) {
    const pl_eagle3 *e = (const pl_eagle3 *)b;
    double           eps = b->shape.eps;
    int64_t          m = pl_tensor_rows(&hidden);
    pl_tensor        emb = pl_rmsnorm(ctx, pl_embed(ctx, b->embed, token, m), e->layer.norm_attn, eps);
    pl_tensor        x = pl_concat(ctx, emb, pl_rmsnorm(ctx, hidden, e->hidden_norm, eps));
    pl_tensor        h = hidden;
    pl_tensor        delta = pl_layer_attention(ctx, &b->shape, &e->layer, x, view, 0);
    x = pl_rmsnorm_residual(ctx, &h, delta, e->layer.norm_mlp, eps);
    delta = pl_layer_mlp(ctx, &e->layer, x);
    if (y.data)
        pl_rmsnorm_residual_into(ctx, y, &h, delta, e->norm, eps);
    else
        y = pl_rmsnorm_residual(ctx, &h, delta, e->norm, eps);
    *hidden_out = h;
    return y;
}

// Taps are raw residual streams, whose size differs between layers and models by orders of magnitude (some grow past
// 30); the one layer adds to what fc makes of them. fc starts so that each tap arrives with unit variance, or the layer
// would spend its training outgrowing the features.
static void gains(const pl_backbone *b, const pl_feature_rms *in, double *gain) {
    for (int i = 0; i < b->n_taps; i++)
        gain[i] = in->tap[i] > 0 ? 1 / in->tap[i] : 1;
}

static const pl_tensor *fuse_only(const pl_backbone *b) {
    return &((const pl_eagle3 *)b)->fc;
}

const pl_backbone_kind pl_backbone_eagle3 = {.name = "eagle3",
                                             .which = PL_HF_EAGLE3,
                                             .size = sizeof(pl_eagle3),
                                             .configure = configure,
                                             .check = check,
                                             .taps = taps,
                                             .init = init,
                                             .fuse = fuse,
                                             .step = step,
                                             .gains = gains,
                                             .fuse_only = fuse_only};
