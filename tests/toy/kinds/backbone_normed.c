// A backbone in one file: EAGLE-1's layer, with the target's final norm between it and the head.
#include "infer/drafter/backbone.h"
#include "kernels/op/elementwise.h"
#include "kernels/op/linear.h"
#include "kernels/op/norm.h"

#include <math.h>

typedef struct normed {
    pl_backbone base;
    pl_tensor   fc, norm; // [d, 2 d], [d]
    pl_layer    layer;
} normed;

static void configure(pl_hf_config *c, const pl_llama *target, const pl_backbone_options *o) {
    (void)c, (void)target, (void)o;
}

static pl_status check(pl_hf_config *c, const pl_llama *target, const char *where, pl_err *err) {
    (void)target;
    return c->n_taps ? pl_fail(err, PL_E_INPUT, "%s: a \"normed\" drafter has no taps", where) : PL_OK;
}

static void init(pl_backbone *b) {
    normed    *e = (normed *)b;
    pl_params *ps = &b->params;
    int64_t    d = b->shape.d;
    b->n_taps = 1;
    b->tap[0] = PL_TAP_FINAL;
    pl_params_weight(ps, &e->fc, PL_PARAM_MATRIX, "fc.weight", d, 2 * d, 0)->start = PL_START_FEATURES;
    pl_layer_params(ps, &e->layer, &b->shape, "layers.0.", 1);
    for (int i = 0; i < ps->n; i++)
        ps->p[i].init_std = 1 / sqrt((double)ps->p[i].spec.cols);
    pl_params_norm(ps, &e->layer.norm_mlp, "layers.0.", "norm_mlp", d);
    pl_params_norm(ps, &e->norm, "", "norm", d)->start = PL_START_FINAL_NORM;
}

static pl_tensor fuse(pl_ctx *ctx, const pl_backbone *b, pl_tensor features) {
    (void)ctx, (void)b;
    return features;
}

static pl_tensor step(pl_ctx *ctx, const pl_backbone *b, const int32_t *token, pl_tensor hidden, pl_view *view,
                      pl_tensor *hidden_out, pl_tensor y) {
    const normed *e = (const normed *)b;
    double        eps = b->shape.eps;
    int64_t       m = pl_tensor_rows(&hidden);
    pl_tensor     h = pl_linear(ctx, pl_concat(ctx, pl_embed(ctx, b->embed, token, m), hidden), e->fc);
    pl_tensor     delta = pl_layer_attention(ctx, &b->shape, &e->layer, h, view, 0);
    h = pl_layer_running(ctx, view, 0, h);
    pl_tensor z = pl_rmsnorm_residual(ctx, &h, delta, e->layer.norm_mlp, eps);
    delta = pl_layer_mlp(ctx, &e->layer, z);
    if (y.data)
        pl_rmsnorm_residual_into(ctx, y, &h, delta, e->norm, eps);
    else
        y = pl_rmsnorm_residual(ctx, &h, delta, e->norm, eps);
    *hidden_out = h;
    return y;
}

static void gains(const pl_backbone *b, const pl_feature_rms *in, double *gain) {
    (void)b;
    gain[0] = in->embedding > 0 ? in->last_hidden / in->embedding : 1;
    gain[1] = 1;
}

const pl_backbone_kind pl_backbone_normed = {.name = "normed",
                                             .which = PL_HF_OTHER,
                                             .size = sizeof(normed),
                                             .configure = configure,
                                             .check = check,
                                             .init = init,
                                             .fuse = fuse,
                                             .step = step,
                                             .gains = gains};
