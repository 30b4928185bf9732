#include "infer/drafter/mtp.h"

#include "infer/model/llama_params.h"
#include "kernels/op/elementwise.h"
#include "kernels/op/linear.h"
#include "kernels/op/norm.h"

#include <string.h>

// Its config is the target's, of one layer that has attention.
static void configure(pl_hf_config *c, const pl_llama *target, const pl_backbone_options *o) {
    (void)target, (void)o;
    c->backbone = PL_HF_OTHER;
    strcpy(c->backbone_name, "mtp");
    c->num_hidden_layers = 1;
    c->delta = (pl_hf_delta){0};
    c->target_head = true;
    memset(c->dense, 0, sizeof c->dense);
}

static pl_status check(pl_hf_config *c, const pl_llama *target, const char *where, pl_err *err) {
    if (target->config.delta.value_heads > 0) return PL_OK;
    return pl_fail(err, PL_E_UNSUPPORTED,
                   "%s: layers for drafting of %s are not supported, only Qwen3-Next's and Qwen3.5's; take another "
                   "drafter",
                   where, c->architecture);
}

static void init(pl_backbone *b) {
    pl_mtp    *e = (pl_mtp *)b;
    pl_params *ps = &b->params;
    int64_t    d = b->shape.d;
    float      offset = b->config.norm_plus_one ? 1 : 0;
    b->n_taps = 1;
    b->tap[0] = PL_TAP_FINAL;
    if (b->expert) e->layer.mixture = pl_mixture_over(b->expert, &b->config);
    pl_params_weight(ps, &e->fc, PL_PARAM_MATRIX, "mtp.fc.weight", d, 2 * d, 0);
    pl_params_norm(ps, &e->norm_embedding, "mtp.", "pre_fc_norm_embedding", d)->offset = offset;
    pl_params_norm(ps, &e->norm_hidden, "mtp.", "pre_fc_norm_hidden", d)->offset = offset;
    pl_llama_list_layer(ps, &e->layer, &b->shape, &b->config, "mtp.layers.0.", 1);
    pl_params_norm(ps, &e->norm, "mtp.", "norm", d)->offset = offset;
}

static pl_tensor fuse(pl_ctx *ctx, const pl_backbone *b, pl_tensor features) {
    (void)ctx, (void)b;
    return features;
}

static pl_tensor step(pl_ctx *ctx, const pl_backbone *b, const int32_t *token, pl_tensor hidden, pl_view *view,
                      pl_tensor *hidden_out, pl_tensor y) {
    const pl_mtp *e = (const pl_mtp *)b;
    double        eps = b->shape.eps;
    pl_tensor     emb = pl_embed(ctx, b->embed, token, pl_tensor_rows(&hidden));
    emb = pl_rmsnorm(ctx, emb, e->norm_embedding, eps);
    pl_tensor h = pl_linear(ctx, pl_concat(ctx, emb, pl_rmsnorm(ctx, hidden, e->norm_hidden, eps)), e->fc);
    pl_tensor delta =
        pl_layer_attention(ctx, &b->shape, &e->layer, pl_rmsnorm(ctx, h, e->layer.norm_attn, eps), view, 0);
    h = pl_layer_running(ctx, view, 0, h);
    delta = pl_layer_mlp(ctx, &e->layer, pl_rmsnorm_residual(ctx, &h, delta, e->layer.norm_mlp, eps));
    if (y.data)
        pl_rmsnorm_residual_into(ctx, y, &h, delta, e->norm, eps);
    else
        y = pl_rmsnorm_residual(ctx, &h, delta, e->norm, eps);
    *hidden_out = y;
    return y;
}

const pl_backbone_kind pl_backbone_mtp = {.name = "mtp",
                                          .which = PL_HF_OTHER,
                                          .size = sizeof(pl_mtp),
                                          .configure = configure,
                                          .check = check,
                                          .init = init,
                                          .fuse = fuse,
                                          .step = step,
                                          .shares_head = true};
