#include "infer/drafter/eagle3.h"

#include "kernels/op/elementwise.h"
#include "kernels/op/linear.h"
#include "kernels/op/norm.h"

#include <math.h>
#include <stdio.h>
#include <string.h>

void pl_eagle3_configure(pl_hf_config *c, const pl_llama *target, const pl_backbone_options *o) {
    c->num_hidden_layers = o->layers > 0 ? o->layers : 1;
    pl_backbone_windows(c, o);
    // Engines implement the full head only, and no window; any other drafter gets our own architecture name, so that
    // they refuse it instead of decoding it wrongly.
    bool published = pl_head_find(c->head.kind, NULL)->published && c->sliding_window == 0;
    snprintf(c->architecture, sizeof c->architecture, "%s",
             published ? "LlamaForCausalLMEagle3" : PL_HF_PACELINE_EAGLE3);
    c->draft_vocab_size = (int)target->vocab;
    c->target_hidden_size = (int)target->shape.d;
    c->n_taps = o->n_taps;
    memcpy(c->tap, o->tap, sizeof c->tap);
    c->tap_numbering = PL_HF_TAPS_INPUT;
    c->fc_norm = o->fc_norm;
    c->norm_before_fc = o->norm_before_fc;
    c->norm_output = o->norm_output;
    c->norm_before_residual = o->norm_before_residual;
}

// Published heads that use the paper's layers do not list them.
static void fill_taps(pl_hf_config *c, int n_layers) {
    if (c->n_taps == 0) c->n_taps = pl_llama_default_taps(n_layers, c->tap);
}

pl_status pl_eagle3_check(pl_hf_config *c, const pl_llama *target, const char *where, pl_err *err) {
    if (c->fc_norm && c->norm_before_fc)
        return pl_fail(err, PL_E_UNSUPPORTED, "%s: fc_norm and norm_before_fc; one of them norms what fc reads", where);
    fill_taps(c, target->n_layers);
    return pl_backbone_check_taps(c->tap, c->n_taps, target->n_layers, where, err);
}

void pl_eagle3_taps(pl_taps *t, const pl_hf_config *c, int n_layers) {
    pl_hf_config filled = *c;
    fill_taps(&filled, n_layers);
    t->n = filled.n_taps;
    for (int i = 0; i < t->n; i++)
        t->layer[i] = filled.tap[i] + (c->tap_numbering == PL_HF_TAPS_OUTPUT ? 1 : 0); // output of layer i is input of
                                                                                       // layer i + 1
}

// Adds the norms before fc that the config has.
static void add_input_norms(pl_eagle3 *e) {
    const pl_backbone *b = &e->base;
    if (b->config.norm_before_fc)
        pl_params_norm(&e->base.params, &e->input_norm, "", "input_norm", b->n_taps * b->d_target);
    for (int i = 0; i < b->n_taps && b->config.fc_norm; i++) {
        char name[32];
        snprintf(name, sizeof name, "fc_norm.%d", i);
        pl_params_norm(&e->base.params, &e->tap_norm[i], "", name, b->d_target);
    }
}

// With a single layer every matrix starts at the scale that keeps its input's variance, since the layer's output must
// soon outweigh the fused features that it is added to. Several layers together add one layer's variance.
static void add_layer(pl_eagle3 *e, int number) {
    pl_params     *ps = &e->base.params;
    pl_layer      *l = &e->layer[number];
    pl_layer_shape shape = e->base.shape;
    int64_t        d = shape.d;
    int            first = ps->n;
    char           prefix[32] = "midlayer.";
    if (e->base.layers > 1) snprintf(prefix, sizeof prefix, "layers.%d.", number);
    if (number > 0) shape.d_attn = d;
    pl_layer_params(ps, l, &shape, prefix, 1);
    for (int i = first; i < ps->n; i++) {
        bool adds = ps->p[i].tensor == &l->wo || ps->p[i].tensor == &l->wdown;
        ps->p[i].init_std = 1 / sqrt((double)ps->p[i].spec.cols * (adds ? e->base.layers : 1));
    }
    if (number == 0) pl_params_norm(ps, &e->hidden_norm, prefix, "hidden_norm", d);
    pl_params_norm(ps, &l->norm_attn, prefix, "input_layernorm", d);
    pl_params_norm(ps, &l->norm_mlp, prefix, "post_attention_layernorm", d);
}

void pl_eagle3_init(pl_backbone *b) {
    pl_eagle3 *e = (pl_eagle3 *)b;
    pl_params *ps = &b->params;
    int64_t    d = b->shape.d;
    b->shape.d_attn = 2 * d;
    pl_taps t;
    pl_eagle3_taps(&t, &b->config, 0); // pl_eagle3_check has already filled in the taps
    b->n_taps = t.n;
    memcpy(b->tap, t.layer, sizeof t.layer);
    int64_t in = b->n_taps * b->d_target;
    pl_params_weight(ps, &e->fc, PL_PARAM_MATRIX, "fc.weight", d, in, 1 / sqrt((double)in))->start = PL_START_FEATURES;
    add_input_norms(e);
    for (int l = 0; l < b->layers; l++) {
        add_layer(e, l);
        e->layer[l].rule.window = pl_hf_windowed(&b->config, l) ? b->config.sliding_window : 0;
    }
    pl_params_norm(ps, &e->norm, "", "norm", d)->start = PL_START_FINAL_NORM;
    if (!b->own_embed) return;
    pl_params_weight(ps, &b->embed, PL_PARAM_EMBED, PL_BACKBONE_EMBED, b->config.vocab_size, d, 1)->start =
        PL_START_EMBED;
}

// Norms each tap with its own weights and concatenates them again.
static pl_tensor norm_taps(pl_ctx *ctx, const pl_eagle3 *e, pl_tensor features) {
    int64_t   m = pl_tensor_rows(&features), n = e->base.n_taps;
    pl_tensor parts = features, all = {0};
    parts.dim[0] = m * n;
    parts.dim[1] = e->base.d_target;
    for (int64_t i = 0; i < n; i++) {
        int32_t *row = pl_ctx_bytes(ctx, (size_t)m * sizeof *row);
        for (int64_t j = 0; j < m && !ctx->measuring; j++)
            row[j] = (int32_t)(j * n + i);
        pl_tensor one = pl_rmsnorm(ctx, pl_gather(ctx, parts, row, m), e->tap_norm[i], e->base.shape.eps);
        all = i ? pl_concat(ctx, all, one) : one;
    }
    return all;
}

pl_tensor pl_eagle3_fuse(pl_ctx *ctx, const pl_backbone *b, pl_tensor features) {
    const pl_eagle3 *e = (const pl_eagle3 *)b;
    if (b->config.norm_before_fc) features = pl_rmsnorm(ctx, features, e->input_norm, b->shape.eps);
    if (b->config.fc_norm) features = norm_taps(ctx, e, features);
    return pl_linear(ctx, features, e->fc);
}

pl_tensor pl_eagle3_step(pl_ctx *ctx, const pl_backbone *b, const int32_t *token, pl_tensor hidden, pl_view *view,
                         pl_tensor *hidden_out, pl_tensor y) {
    const pl_eagle3 *e = (const pl_eagle3 *)b;
    double           eps = b->shape.eps;
    int64_t          m = pl_tensor_rows(&hidden);
    pl_tensor        emb = pl_rmsnorm(ctx, pl_embed(ctx, b->embed, token, m), e->layer[0].norm_attn, eps);
    pl_tensor        normed = pl_rmsnorm(ctx, hidden, e->hidden_norm, eps);
    pl_tensor        x = pl_concat(ctx, emb, normed), delta = {0};
    pl_tensor        h = b->config.norm_before_residual ? normed : hidden;
    for (int l = 0; l < b->layers; l++) {
        const pl_layer *w = &e->layer[l];
        if (l > 0) x = pl_rmsnorm_residual(ctx, &h, delta, w->norm_attn, eps);
        delta = pl_layer_attention(ctx, &b->shape, w, x, view, l);
        h = pl_layer_running(ctx, view, l, h);
        x = pl_rmsnorm_residual(ctx, &h, delta, w->norm_mlp, eps);
        delta = pl_layer_mlp(ctx, w, x);
    }
    if (y.data)
        pl_rmsnorm_residual_into(ctx, y, &h, delta, e->norm, eps);
    else
        y = pl_rmsnorm_residual(ctx, &h, delta, e->norm, eps);
    *hidden_out = b->config.norm_output ? y : h;
    return y;
}

// Taps are raw residual streams, whose sizes differ between layers and models by orders of magnitude (some exceed 30);
// the layers add to fc's output. fc starts so that each tap arrives with unit variance, or training would be spent on
// outgrowing the features. Norms before fc change the sizes that it reads.
void pl_eagle3_gains(const pl_backbone *b, const pl_feature_rms *in, double *gain) {
    double whole = 0;
    for (int i = 0; i < b->n_taps; i++)
        whole += in->tap[i] * in->tap[i] / b->n_taps;
    for (int i = 0; i < b->n_taps; i++) {
        gain[i] = in->tap[i] > 0 && !b->config.fc_norm ? 1 / in->tap[i] : 1;
        if (b->config.norm_before_fc && whole > 0) gain[i] *= sqrt(whole);
    }
}

const pl_tensor *pl_eagle3_fuse_only(const pl_backbone *b) {
    return &((const pl_eagle3 *)b)->fc;
}

const pl_backbone_kind pl_backbone_eagle3 = {.name = "eagle3",
                                             .which = PL_HF_EAGLE3,
                                             .size = sizeof(pl_eagle3),
                                             .layers = PL_STEP_LAYERS,
                                             .embeds = true,
                                             .windows = true,
                                             .configure = pl_eagle3_configure,
                                             .check = pl_eagle3_check,
                                             .taps = pl_eagle3_taps,
                                             .init = pl_eagle3_init,
                                             .fuse = pl_eagle3_fuse,
                                             .step = pl_eagle3_step,
                                             .gains = pl_eagle3_gains,
                                             .fuse_only = pl_eagle3_fuse_only};
