// Hydra (Ankner et al. 2024, arXiv 2402.05109): Medusa's heads (medusa.c), each of which also reads the embeddings of
// the tokens before the one that it drafts.
//
//   u_0 = [h_t; E token_{t+1}],   u_k = [u_{k-1}; E token_{t+1+k}]                [(k + 2) d], E the target's
//   y_k = R_k u_k + r_k + SiLU(W_k0 u_k + b_k0),   then y_k += SiLU(W_kj y_k + b_kj),  j = 1 .. L - 1
//   logits_k = head_k(y_k): token t + 2 + k                                       k = 0 .. K - 1
//   blocks.K.residual.weight [d, (k + 2) d], .bias [d]   R and r; R starts as the identity on h, as Medusa's residual
//   blocks.K.layers.J.weight [d, (k + 2) d; d], .bias    W and b, which start at 0: a head starts as the target's own
// Heads and h_t are Medusa's. A draft depends on the tokens of its own path, so a tree is drafted level by level
// (infer/drafter/block.c): a node's state is u_k, to which each child adds its token.
// Hydra++ has four layers in place of one, and before all heads a decoder layer and a norm, prefix.layers.0.* and
// prefix.norm.weight, which read the last hidden states of all rows up to t through a cache:  h_t = norm(layer(h)_t).
// Its heads learn the target's distribution (train.objective), Hydra's the target's choice.
#include "infer/drafter/medusa.h"

#include "kernels/op/elementwise.h"
#include "kernels/op/linear.h"
#include "kernels/op/norm.h"
#include "kernels/tape.h"

#include <stdio.h>
#include <string.h>

enum { HEADS = 4, LAYERS = 8, PLUS_LAYERS = 4 }; // heads of a new drafter; layers at most; layers of a new hydra++

typedef struct affine {
    pl_tensor w, b; // [d, n], [d]
} affine;

typedef struct hydra {
    pl_backbone base;
    int         depth; // L
    affine      residual[PL_MAX_UNROLL], layer[PL_MAX_UNROLL][LAYERS];
    pl_layer    prefix; // hydra++
    pl_tensor   norm;
} hydra;

static bool has_prefix(const pl_hf_config *c) {
    return strcmp(c->backbone_name, "hydra++") == 0;
}

static void configure(pl_hf_config *c, const pl_llama *target, const pl_backbone_options *o) {
    (void)target;
    c->num_hidden_layers = o->layers > 0 ? o->layers : has_prefix(c) ? PLUS_LAYERS : 1;
    c->block = (pl_hf_block){.size = o->block > 0 ? o->block : HEADS, .anchor_first = true};
    c->n_taps = o->n_taps; // refused by check
}

static void add_affine(pl_params *ps, affine *a, const char *name, int64_t rows, int64_t cols, pl_param_start start) {
    char whole[64];
    snprintf(whole, sizeof whole, "%s.weight", name);
    pl_params_weight(ps, &a->w, PL_PARAM_MATRIX, whole, rows, cols, 0)->start = start;
    snprintf(whole, sizeof whole, "%s.bias", name);
    pl_params_weight(ps, &a->b, PL_PARAM_BIAS, whole, rows, 0, 0);
}

static void add_prefix(hydra *m) {
    pl_params *ps = &m->base.params;
    int64_t    d = m->base.shape.d;
    pl_params_norm(ps, &m->prefix.norm_attn, "prefix.layers.0.", "input_layernorm", d);
    pl_layer_params(ps, &m->prefix, &m->base.shape, "prefix.layers.0.", 1);
    pl_params_norm(ps, &m->prefix.norm_mlp, "prefix.layers.0.", "post_attention_layernorm", d);
    pl_params_norm(ps, &m->norm, "prefix.", "norm", d);
}

static void init(pl_backbone *b) {
    hydra  *m = (hydra *)b;
    int64_t d = b->shape.d;
    m->depth = b->config.num_hidden_layers;
    b->layers = has_prefix(&b->config);
    b->n_taps = 1;
    b->tap[0] = PL_TAP_FINAL;
    if (b->layers > 0) add_prefix(m);
    for (int k = 0; k < b->drafts; k++) {
        char name[48];
        snprintf(name, sizeof name, "blocks.%d.residual", k);
        add_affine(&b->params, &m->residual[k], name, d, (k + 2) * d, PL_START_IDENTITY);
        for (int j = 0; j < m->depth; j++) {
            snprintf(name, sizeof name, "blocks.%d.layers.%d", k, j);
            add_affine(&b->params, &m->layer[k][j], name, d, j ? d : (k + 2) * d, PL_START_DRAWN);
        }
    }
}

// Runs a stretch of the tape, whose only result is `out`, or (no rerun) its forward alone.
static pl_tensor run_stretch(pl_ctx *ctx, pl_stretch_fn fn, const void *arg, size_t size, bool rerun, pl_tensor out) {
    if (rerun)
        pl_tape_stretch(ctx, fn, arg, size, &out, 1);
    else
        fn(ctx, arg, &out);
    return out;
}

// ---- the prefix -----------------------------------------------------------------------------------------------------

typedef struct prefix_run {
    const hydra         *m;
    const pl_block_view *v;
} prefix_run;

static void run_prefix(pl_ctx *ctx, const void *arg, pl_tensor *out) {
    const hydra         *m = ((const prefix_run *)arg)->m;
    const pl_block_view *v = ((const prefix_run *)arg)->v;
    const pl_backbone   *b = &m->base;
    double               eps = b->shape.eps;
    pl_tensor            x = v->features;
    pl_view              view = {.pos = v->context_pos,
                                 .cos = b->cos,
                                 .sin = b->sin,
                                 .row = v->context_row,
                                 .m = pl_tensor_rows(&x),
                                 .lo = v->context_lo};
    pl_tensor            z = pl_rmsnorm(ctx, x, m->prefix.norm_attn, eps);
    pl_tensor            delta = pl_layer_attention(ctx, &b->shape, &m->prefix, z, &view, 0);
    z = pl_rmsnorm_residual(ctx, &x, delta, m->prefix.norm_mlp, eps);
    *out = pl_rmsnorm_residual(ctx, &x, pl_layer_mlp(ctx, &m->prefix, z), m->norm, eps);
}

static pl_tensor draft(pl_ctx *ctx, const pl_backbone *b, const pl_block_view *v) {
    prefix_run r = {(const hydra *)b, v};
    pl_tensor  h = v->features;
    int64_t    n = v->m / b->block;
    if (b->layers > 0)
        h = run_stretch(ctx, run_prefix, &r, sizeof r, v->rerun, (pl_tensor){.dim = {h.dim[0], b->shape.d, 1, 1}});
    return n > 0 ? pl_gather(ctx, h, v->anchor, n) : (pl_tensor){0};
}

// ---- the heads ------------------------------------------------------------------------------------------------------

typedef struct head_run {
    const hydra *m;
    pl_tensor    u, y;
    int          k;
} head_run;

static void run_head(pl_ctx *ctx, const void *arg, pl_tensor *out) {
    const head_run *r = arg;
    const hydra    *m = r->m;
    const affine   *a = &m->residual[r->k];
    pl_tensor       x = pl_bias(ctx, pl_linear(ctx, r->u, a->w), a->b), none = {0};
    for (int j = 0; j < m->depth; j++) {
        a = &m->layer[r->k][j];
        pl_tensor z = pl_bias(ctx, pl_linear(ctx, j ? x : r->u, a->w), a->b);
        x = pl_add(ctx, x, pl_silu(ctx, z), j + 1 < m->depth ? none : r->y);
    }
    *out = x;
}

static pl_tensor follow(pl_ctx *ctx, const pl_backbone *b, const pl_follow_view *v, pl_tensor *state) {
    int64_t  n = pl_tensor_rows(&v->state);
    head_run r = {.m = (const hydra *)b, .y = v->y, .k = v->draft};
    r.u = *state = pl_concat(ctx, v->state, pl_embed(ctx, b->embed, v->token, n));
    return run_stretch(ctx, run_head, &r, sizeof r, v->rerun, v->y);
}

#define HYDRA(NAME)                                                                                                    \
    {                                                                                                                  \
        .name = NAME, .which = PL_HF_OTHER, .size = sizeof(hydra), .layers = LAYERS, .own_heads = true,                \
        .configure = configure, .check = pl_medusa_check, .init = init, .draft = draft, .follow = follow,              \
        .ignores = pl_medusa_ignores                                                                                   \
    }
const pl_backbone_kind pl_backbone_hydra = HYDRA("hydra"), pl_backbone_hydrapp = HYDRA("hydra++");
