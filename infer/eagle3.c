#include "infer/eagle3.h"

#include "kernels/base/check.h"
#include "kernels/base/files.h"
#include "kernels/op/concat.h"
#include "kernels/op/embed.h"
#include "kernels/op/linear.h"
#include "kernels/op/rmsnorm.h"
#include "kernels/op/round.h"

#include <math.h>
#include <stdio.h>
#include <string.h>

static void list_params(pl_eagle3 *e) {
    pl_params *ps = &e->params;
    int64_t    d = e->shape.d;
    pl_params_add(ps, &e->fc, PL_PARAM_MATRIX, e->n_taps * e->d_target, "fc.weight", d, NULL, 0, NULL, 0)->init_std =
        1 / sqrt((double)e->n_taps * (double)e->d_target);
    // One layer has no depth to be shy of: every matrix starts at the scale that keeps its input's variance, since what
    // it adds must soon outweigh the fused features beside it.
    int first = ps->n;
    pl_layer_params(ps, &e->layer, &e->shape, "midlayer.", 1);
    for (int i = first; i < ps->n; i++)
        ps->p[i].init_std = 1 / sqrt((double)ps->p[i].spec.cols);
    pl_params_add(ps, &e->hidden_norm, PL_PARAM_NORM, 0, "midlayer.hidden_norm.weight", d, NULL, 0, NULL, 0);
    pl_params_add(ps, &e->layer.norm_attn, PL_PARAM_NORM, 0, "midlayer.input_layernorm.weight", d, NULL, 0, NULL, 0);
    pl_params_add(ps, &e->layer.norm_mlp, PL_PARAM_NORM, 0, "midlayer.post_attention_layernorm.weight", d, NULL, 0,
                  NULL, 0);
    pl_params_add(ps, &e->norm, PL_PARAM_NORM, 0, "norm.weight", d, NULL, 0, NULL, 0);
    e->head.kind->params(&e->head, ps);
}

// Everything but weights, from the drafter's own config.
static pl_status init_from_config(pl_eagle3 *e, const pl_hf_config *c, const pl_llama *target, pl_dtype real,
                                  pl_err *err) {
    *e = (pl_eagle3){.config = *c, .d_target = target->shape.d, .embed = target->embed, .n_taps = c->n_taps};
    e->embed.grad = NULL; // frozen
    pl_status st;
    PL_TRY_GOTO(st, fail, pl_layer_shape_from_config(&e->shape, c, err));
    e->shape.d_attn = 2 * e->shape.d;
    for (int i = 0; i < c->n_taps; i++)
        e->tap[i] = c->tap[i] + (c->tap_numbering == PL_HF_TAPS_OUTPUT ? 1 : 0); // output of i is input of i + 1
    const char *kind = c->head_kind[0] ? c->head_kind : "full";
    int64_t     vd = c->draft_vocab_size ? c->draft_vocab_size : c->vocab_size;
    PL_TRY_GOTO(st, fail, pl_head_init(&e->head, kind, e->shape.d, vd, c->head_rank, err));
    PL_TRY_GOTO(st, fail, pl_params_init(&e->params, 16, err));
    list_params(e);
    PL_TRY_GOTO(st, fail, pl_rope_tables(&e->cos, &e->sin, &e->rope, &e->rope_bytes, c, real, err));
    return PL_OK;
fail:
    pl_eagle3_fini(e);
    return st;
}

static pl_status check_taps(const int *tap, int n, const pl_llama *target, const char *where, pl_err *err) {
    if (n < 1) return pl_fail(err, PL_E_INPUT, "%s: no tap layers are given", where);
    for (int i = 0; i < n; i++)
        if (tap[i] < 0 || tap[i] > target->n_layers)
            return pl_fail(err, PL_E_INPUT, "%s: tap layer %d does not exist, the target has %d layers", where, tap[i],
                           target->n_layers);
    return PL_OK;
}

pl_status pl_eagle3_init(pl_eagle3 *e, const pl_llama *target, const pl_eagle3_options *o, pl_dtype real, pl_err *err) {
    *e = (pl_eagle3){0};
    pl_hf_config c = target->config;
    bool         full = !o->head_kind || strcmp(o->head_kind, "full") == 0;
    // Engines know the full head; any other is declared as ours, so that they refuse it instead of decoding wrongly.
    snprintf(c.architecture, sizeof c.architecture, "%s", full ? "LlamaForCausalLMEagle3" : "PacelineEagle3");
    snprintf(c.model_type, sizeof c.model_type, "llama");
    snprintf(c.head_kind, sizeof c.head_kind, "%s", full ? "full" : o->head_kind);
    c.head_rank = full ? 0 : (int)o->head_rank;
    c.num_hidden_layers = 1;
    if (o->inter) c.intermediate_size = o->inter;
    c.tie_word_embeddings = false;
    c.draft_vocab_size = (int)target->vocab;
    c.target_hidden_size = (int)target->shape.d;
    c.dtype = PL_BF16;
    c.n_taps = o->n_taps;
    memcpy(c.tap, o->tap, sizeof c.tap);
    if (!c.n_taps) c.n_taps = pl_llama_default_taps(target->n_layers, c.tap);
    c.tap_numbering = PL_HF_TAPS_INPUT;
    PL_TRY(check_taps(c.tap, c.n_taps, target, "drafter.taps", err));
    return init_from_config(e, &c, target, real, err);
}

// A drafter of another target fails at the first number that differs.
static pl_status check_fits(const pl_hf_config *c, const pl_llama *target, const char *dir, pl_err *err) {
    int64_t dt = c->target_hidden_size ? c->target_hidden_size : c->hidden_size;
    if (dt != target->shape.d)
        return pl_fail(err, PL_E_INPUT,
                       "%s: made for a target of width %lld, this one has %lld; use the drafter's own "
                       "target",
                       dir, (long long)dt, (long long)target->shape.d);
    if (c->vocab_size != target->vocab)
        return pl_fail(err, PL_E_INPUT,
                       "%s: made for a vocabulary of %d, the target has %lld; use the drafter's own "
                       "target",
                       dir, c->vocab_size, (long long)target->vocab);
    if (c->hidden_size != target->shape.d)
        return pl_fail(err, PL_E_UNSUPPORTED,
                       "%s: width %d differs from the target's %lld and needs an embedding of its "
                       "own",
                       dir, c->hidden_size, (long long)target->shape.d);
    if (c->fc_norm || c->norm_output || c->norm_before_fc || c->norm_before_residual)
        return pl_fail(err, PL_E_UNSUPPORTED,
                       "%s: norm_output, fc_norm, norm_before_fc and norm_before_residual "
                       "(EAGLE-3.1) are not supported",
                       dir);
    if (c->draft_vocab_size && c->draft_vocab_size != c->vocab_size)
        return pl_fail(err, PL_E_UNSUPPORTED, "%s: draft_vocab_size %d: trimmed vocabularies are not supported yet",
                       dir, c->draft_vocab_size);
    return check_taps(c->tap, c->n_taps, target, dir, err);
}

pl_status pl_eagle3_open(pl_eagle3 *e, const char *dir, const pl_llama *target, pl_dtype t, pl_err *err) {
    *e = (pl_eagle3){0};
    pl_hf_config      c;
    pl_weight_source *src = NULL;
    pl_status         st;
    PL_TRY(pl_hf_config_read(&c, dir, PL_HF_DRAFTER, err));
    if (c.n_taps == 0) c.n_taps = pl_llama_default_taps(target->n_layers, c.tap); // published heads that name none
    PL_TRY(check_fits(&c, target, dir, err));
    PL_TRY(pl_weight_source_open(&src, dir, err));
    PL_TRY_GOTO(st, fail, init_from_config(e, &c, target, PL_F32, err));
    st = pl_params_load(&e->params, src, t, err);
    if (st != PL_OK) pl_eagle3_fini(e);
    return st;
fail:
    pl_weight_source_close(src);
    return st;
}

void pl_eagle3_fini(pl_eagle3 *e) {
    pl_params_fini(&e->params);
    pl_head_fini(&e->head);
    if (e->rope) pl_block_destroy(e->rope, e->rope_bytes);
    *e = (pl_eagle3){0};
}

pl_tensor pl_eagle3_fuse(pl_ctx *ctx, const pl_eagle3 *e, pl_tensor features) {
    return pl_linear(ctx, features, e->fc);
}

pl_tensor pl_eagle3_step(pl_ctx *ctx, const pl_eagle3 *e, const int32_t *token, pl_tensor hidden, pl_view *view,
                         pl_tensor *hidden_out, pl_tensor y) {
    double    eps = e->shape.eps;
    int64_t   m = pl_tensor_rows(&hidden);
    pl_tensor emb = pl_rmsnorm(ctx, pl_embed(ctx, e->embed, token, m), e->layer.norm_attn, eps);
    pl_tensor x = pl_concat(ctx, emb, pl_rmsnorm(ctx, hidden, e->hidden_norm, eps));
    pl_tensor h = hidden;
    pl_tensor delta = pl_layer_attention(ctx, &e->shape, &e->layer, x, view, 0);
    x = pl_rmsnorm_residual(ctx, &h, delta, e->layer.norm_mlp, eps);
    delta = pl_layer_mlp(ctx, &e->layer, x);
    if (y.data)
        pl_rmsnorm_residual_into(ctx, y, &h, delta, e->norm, eps);
    else
        y = pl_rmsnorm_residual(ctx, &h, delta, e->norm, eps);
    *hidden_out = h;
    return y;
}

pl_status pl_eagle3_write(const pl_eagle3 *e, const char *dir, const float *const *data, pl_dtype t, pl_err *err) {
    char        *config = pl_path_join(dir, "config.json"), *model = pl_path_join(dir, "model.safetensors");
    pl_status    st = config && model ? PL_OK : pl_fail(err, PL_E_MEMORY, "%s: out of memory", dir);
    pl_hf_config c = e->config;
    c.dtype = t;
    if (st == PL_OK) st = pl_hf_config_write(config, &c, err);
    if (st == PL_OK) st = pl_params_write(&e->params, model, data, t, NULL, 0, err);
    pl_free(config);
    pl_free(model);
    return st;
}

pl_tensor pl_features(pl_ctx *ctx, const pl_llama_out *out, int n_taps) {
    pl_tensor f = out->tap[0];
    for (int i = 1; i < n_taps; i++)
        f = pl_concat(ctx, f, out->tap[i]);
    return pl_round(ctx, f);
}

double pl_eagle3_step_bytes(const pl_eagle3 *e) {
    double bytes = 0;
    for (int i = 0; i < e->params.n; i++)
        if (e->params.p[i].tensor != &e->fc) bytes += (double)e->params.p[i].owned_bytes;
    return bytes;
}
