#include "infer/drafter/dflash.h"

#include "kernels/base/check.h"
#include "kernels/op/blockattention.h"
#include "kernels/op/blockconv.h"
#include "kernels/op/elementwise.h"
#include "kernels/op/linear.h"
#include "kernels/op/norm.h"
#include "kernels/op/rope.h"
#include "kernels/tape.h"

#include <math.h>
#include <stdio.h>
#include <string.h>

#define LAYERS 5 // layers of a new drafter, as in published ones
#define BLOCK 8

// ---- configuration --------------------------------------------------------------------------------------------------

// Spreads as many taps as there are draft layers from the second layer's output to the third last's; a single tap takes
// the middle. Duplicates of small targets are dropped.
static int default_taps(int layers, int n_layers, int tap[PL_MAX_TAPS]) {
    int n = 0, most = layers < PL_MAX_TAPS ? layers : PL_MAX_TAPS;
    for (int i = 0; i < most; i++) {
        double at = most == 1 ? n_layers / 2 : rint(1 + (double)i * (n_layers - 4) / (most - 1)); // half to even
        int    layer = at < 0 ? 0 : at > n_layers - 1 ? n_layers - 1 : (int)at;
        if (n == 0 || layer > tap[n - 1]) tap[n++] = layer;
    }
    return n;
}

static void configure(pl_hf_config *c, const pl_llama *target, const pl_backbone_options *o) {
    c->target_head = pl_head_find(c->head.kind, NULL)->published && !o->own_head;
    if (c->target_head) c->head = (pl_hf_head){0};
    bool second = o->conv_taps > 0 || (o->selector.candidates > 0 && !pl_hf_is_lattice(&o->selector));
    snprintf(c->architecture, sizeof c->architecture, "%s",
             !c->target_head ? "PacelineDFlash"
             : second        ? "DFlash2DraftModel"
                             : "DFlashDraftModel");
    snprintf(c->model_type, sizeof c->model_type, "qwen3");
    c->qk_norm = true;
    c->num_hidden_layers = o->layers > 0 ? o->layers : LAYERS;
    c->block = (pl_hf_block){.size = o->block > 0 ? o->block : BLOCK,
                             .mask_token = o->mask_token,
                             .anchor_first = o->anchor_first,
                             .target_layers = target->n_layers,
                             .taps = o->conv_taps,
                             .group = o->conv_taps > 0 ? o->conv_group : 0};
    pl_backbone_windows(c, o);
    c->n_taps = o->n_taps;
    for (int i = 0; i < o->n_taps; i++)
        c->tap[i] = o->tap[i] - 1; // the input of layer i is the output of layer i - 1
    if (c->n_taps == 0) c->n_taps = default_taps(c->num_hidden_layers, target->n_layers, c->tap);
}

static pl_status check(pl_hf_config *c, const pl_llama *target, const char *where, pl_err *err) {
    const pl_head_kind *head = pl_head_find(*c->head.kind ? c->head.kind : "full", err);
    if (!head) return PL_E_INPUT;
    int most = PL_MAX_UNROLL + !c->block.anchor_first;
    if (c->block.size < 2 || c->block.size > most)
        return pl_fail(err, PL_E_INPUT, "%s: blocks of %d, expected 2 to %d", where, c->block.size, most);
    if (c->block.mask_token < 0 || c->block.mask_token >= target->vocab)
        return pl_fail(err, PL_E_INPUT, "%s: mask token %d is none of the target's %lld", where, c->block.mask_token,
                       (long long)target->vocab);
    if (c->block.taps > c->block.size || (c->block.taps > 0 && (c->block.group < 1 || c->hidden_size % c->block.group)))
        return pl_fail(err, PL_E_INPUT, "%s: convolutions of %d taps, groups of %d, in blocks of %d slots of width %d",
                       where, c->block.taps, c->block.group, c->block.size, c->hidden_size);
    if (c->sliding_window > 0 && c->sliding_window < c->block.size)
        return pl_fail(err, PL_E_INPUT, "%s: a window of %d, smaller than a block of %d slots", where,
                       c->sliding_window, c->block.size);
    if (c->block.target_layers > 0 && c->block.target_layers != target->n_layers)
        return pl_fail(err, PL_E_INPUT, "%s: made for a target of %d layers, this one has %d; use the drafter's own",
                       where, c->block.target_layers, target->n_layers);
    if (head->routed || head->shortlisted)
        return pl_fail(err, PL_E_UNSUPPORTED,
                       "%s: a block drafter has no head of kind \"%s\"; take full, lowrank, markov or xpress", where,
                       head->name);
    if (head->over_target && pl_hf_markov_of(&c->head) == PL_HF_MARKOV_RNN && !c->block.anchor_first)
        return pl_fail(err, PL_E_UNSUPPORTED,
                       "%s: a recurrent Markov head in blocks that do not draft from their anchor; give "
                       "drafter.anchor_first, or drafter.head.form: gated",
                       where);
    for (int i = 0; i < c->n_taps; i++)
        if (c->tap[i] < 0)
            return pl_fail(err, PL_E_UNSUPPORTED, "%s: a block drafter reads layers' outputs; layer 0's input is none",
                           where);
    pl_taps t;
    pl_backbone_dflash.taps(&t, c, target->n_layers);
    return pl_backbone_check_taps(t.layer, t.n, target->n_layers, where, err);
}

// Recipes number layers by their inputs, checkpoints by their outputs.
static void taps(pl_taps *t, const pl_hf_config *c, int n_layers) {
    int layers = c->num_hidden_layers > 0 ? c->num_hidden_layers : LAYERS;
    *t = (pl_taps){.n = c->n_taps};
    memcpy(t->layer, c->tap, (size_t)t->n * sizeof *t->layer);
    if (t->n == 0) t->n = default_taps(layers, n_layers, t->layer);
    for (int i = 0; i < t->n && !(c->n_taps > 0 && c->tap_numbering == PL_HF_TAPS_INPUT); i++)
        t->layer[i]++;
}

// ---- weights --------------------------------------------------------------------------------------------------------

// Adds a matrix of rows[0] and rows[1] rows. It starts at the scale that keeps its input's variance, times `share`.
static void add_matrix(pl_params *ps, pl_tensor *t, const char *prefix, const char *const name[2],
                       const int64_t rows[2], int64_t cols, double share) {
    char          whole[2][96];
    pl_param_args a = {.tensor = t, .kind = PL_PARAM_MATRIX, .cols = cols, .init_std = share / sqrt((double)cols)};
    for (int i = 0; i < 2 && name[i]; i++) {
        snprintf(whole[i], sizeof whole[i], "%s%s.weight", prefix, name[i]);
        a.part[i] = (pl_weight_part){.name = whole[i], .rows = rows[i]};
    }
    pl_params_add(ps, &a);
}

// Adds a sublayer's convolution, which starts as the identity.
static void add_conv(pl_params *ps, pl_dflash_layer *l, int which, const pl_hf_block *k, int64_t d,
                     const char *prefix) {
    char base[96], kernel[96];
    if (k->taps == 0) return;
    snprintf(base, sizeof base, "%s%s.base_kernel", prefix, which ? "mlp_conv" : "attention_conv");
    snprintf(kernel, sizeof kernel, "%s%s.kernel_projection.weight", prefix, which ? "mlp_conv" : "attention_conv");
    pl_params_add(ps, &(pl_param_args){.tensor = &l->conv[which].base,
                                       .kind = PL_PARAM_TAPS,
                                       .part = {{base, 2 * k->taps * d}},
                                       .inner = {k->taps, d},
                                       .neutral = true});
    pl_params_weight(ps, &l->conv[which].kernel, PL_PARAM_MATRIX, kernel, 2 * k->taps * (d / k->group), d, 0)->neutral =
        true;
}

static void add_layer(pl_params *ps, pl_dflash_layer *l, const pl_hf_block *k, const pl_layer_shape *s, int number,
                      int layers) {
    char    prefix[32];
    int64_t q = (int64_t)s->nh * s->hd, kv = (int64_t)s->nkv * s->hd;
    double  out = 1 / sqrt(2.0 * layers); // all layers together add one layer's variance to the residual stream
    snprintf(prefix, sizeof prefix, "layers.%d.", number);
#define ONE(name) ((const char *const[2]){name, NULL})
#define TWO(a, b) ((const char *const[2]){a, b})
    pl_params_norm(ps, &l->base.norm_attn, prefix, "input_layernorm", s->d);
    add_matrix(ps, &l->wq, prefix, ONE("self_attn.q_proj"), (int64_t[2]){q, 0}, s->d, 1);
    add_matrix(ps, &l->wkv, prefix, TWO("self_attn.k_proj", "self_attn.v_proj"), (int64_t[2]){kv, kv}, s->d, 1);
    pl_params_norm(ps, &l->base.norm_q, prefix, "self_attn.q_norm", s->hd);
    pl_params_norm(ps, &l->base.norm_k, prefix, "self_attn.k_norm", s->hd);
    add_matrix(ps, &l->base.wo, prefix, ONE("self_attn.o_proj"), (int64_t[2]){s->d, 0}, q, out);
    pl_params_norm(ps, &l->base.norm_mlp, prefix, "post_attention_layernorm", s->d);
    add_matrix(ps, &l->base.wgu, prefix, TWO("mlp.gate_proj", "mlp.up_proj"), (int64_t[2]){s->inter, s->inter}, s->d,
               1);
    ps->p[pl_params_find(ps, &l->base.wgu)].gated = true;
    add_matrix(ps, &l->base.wdown, prefix, ONE("mlp.down_proj"), (int64_t[2]){s->d, 0}, s->inter, out);
#undef ONE
#undef TWO
    for (int which = 0; which < 2; which++)
        add_conv(ps, l, which, k, s->d, prefix);
}

static void init(pl_backbone *b) {
    pl_dflash *f = (pl_dflash *)b;
    pl_params *ps = &b->params;
    int64_t    d = b->shape.d;
    pl_taps    t;
    taps(&t, &b->config, 0);
    b->n_taps = t.n;
    memcpy(b->tap, t.layer, sizeof t.layer);
    int64_t in = b->n_taps * b->d_target;
    pl_params_weight(ps, &f->fc, PL_PARAM_MATRIX, "fc.weight", d, in, 1 / sqrt((double)in))->start = PL_START_FEATURES;
    pl_params_norm(ps, &f->hidden_norm, "", "hidden_norm", d);
    for (int l = 0; l < b->layers; l++) {
        add_layer(ps, &f->layer[l], &b->config.block, &b->shape, l, b->layers);
        f->layer[l].base.rule.window = pl_hf_windowed(&b->config, l) ? b->config.sliding_window : 0;
    }
    pl_params_norm(ps, &f->norm, "", "norm", d)->start = PL_START_FINAL_NORM;
}

// Taps are residual streams of very different sizes; each is scaled to unit variance (as in eagle3.c).
static void gains(const pl_backbone *b, const pl_feature_rms *in, double *gain) {
    for (int i = 0; i < b->n_taps; i++)
        gain[i] = in->tap[i] > 0 ? 1 / in->tap[i] : 1;
}

// Some files hold copies of the target's embeddings, or token lists.
static bool ignores(const char *name) {
    return strcmp(name, "embed_tokens.weight") == 0 || strcmp(name, "d2t") == 0 || strcmp(name, "t2d") == 0;
}

static const pl_tensor *fuse_only(const pl_backbone *b) {
    return &((const pl_dflash *)b)->fc;
}

// ---- forward --------------------------------------------------------------------------------------------------------

// One layer as a stretch of the tape; its only output is the blocks' stream.
typedef struct layer_run {
    const pl_dflash     *f;
    const pl_block_view *view;
    pl_tensor            context, x; // [T, d], [M, d]
    int                  layer;
} layer_run;

static void rotate_heads(pl_ctx *ctx, const pl_backbone *b, pl_tensor rows, const int32_t *pos, int heads,
                         const pl_kvrow *row) {
    pl_rope(ctx,
            &(pl_rope_args){
                .qkv = rows, .cos = b->cos, .sin = b->sin, .pos = pos, .n_rot = heads, .hd = b->shape.hd, .row = row});
}

// Computes keys and values of the context, and caches them if there is a cache.
static pl_tensor inject_context(pl_ctx *ctx, const layer_run *r) {
    const pl_backbone     *b = &r->f->base;
    const pl_dflash_layer *w = &r->f->layer[r->layer];
    const pl_layer_shape  *s = &b->shape;
    pl_tensor              kv = pl_linear(ctx, r->context, w->wkv);
    kv = pl_headnorm(ctx, kv, w->base.norm_q, w->base.norm_k, 0, s->nkv, s->eps);
    const pl_kvrow *row = r->view->context_row ? r->view->context_row + r->layer * kv.dim[0] : NULL;
    rotate_heads(ctx, b, kv, r->view->context_pos, s->nkv, row);
    return kv;
}

static pl_tensor attend_rows(pl_ctx *ctx, const layer_run *r, pl_tensor x, pl_tensor kv) {
    const pl_backbone     *b = &r->f->base;
    const pl_dflash_layer *w = &r->f->layer[r->layer];
    const pl_layer_shape  *s = &b->shape;
    const pl_block_view   *v = r->view;
    // One statement each: prefetching learns this order, and wkv must not be the weight that follows attention.
    pl_tensor kv_own = pl_linear(ctx, x, w->wkv), q = pl_linear(ctx, x, w->wq), qkv = pl_concat(ctx, q, kv_own), o;
    qkv = pl_headnorm(ctx, qkv, w->base.norm_q, w->base.norm_k, s->nh, s->nkv, s->eps);
    const pl_kvrow *row = v->row ? v->row + r->layer * v->m : NULL;
    rotate_heads(ctx, b, qkv, v->pos, s->nh + s->nkv, row);
    if (row) {
        o = pl_attention_ruled(ctx, qkv, row, s->nh, s->nkv, s->hd, &w->base.rule);
    } else {
        pl_block_rule rule = {w->base.rule.window, pl_hf_causal_in(&b->config, r->layer)};
        o = pl_blockattention_ruled(ctx, qkv, kv, v->lo, v->hi, b->block, rule, s->nh, s->nkv, s->hd);
    }
    return pl_linear(ctx, o, w->base.wo);
}

// Applies one side of a sublayer's convolution; kernels: its projection's output. Returns x if there is no convolution.
static pl_tensor filter_side(pl_ctx *ctx, const layer_run *r, int which, int side, pl_tensor x, pl_tensor kernels) {
    const pl_backbone *b = &r->f->base;
    if (b->config.block.taps == 0) return x;
    return pl_blockconv(ctx, x, kernels, r->f->layer[r->layer].conv[which].base, side, b->block, b->config.block.group);
}

static pl_tensor kernels_of(pl_ctx *ctx, const layer_run *r, int which, pl_tensor n) {
    if (r->f->base.config.block.taps == 0) return (pl_tensor){0};
    return pl_linear(ctx, n, r->f->layer[r->layer].conv[which].kernel);
}

static void run_layer(pl_ctx *ctx, const void *arg, pl_tensor *out) {
    const layer_run      *r = arg;
    const pl_layer       *w = &r->f->layer[r->layer].base;
    const pl_layer_shape *s = &r->f->base.shape;
    pl_tensor             kv = inject_context(ctx, r), h = r->x;
    if (r->view->m == 0) return;
    pl_tensor n = pl_rmsnorm(ctx, h, w->norm_attn, s->eps), k = kernels_of(ctx, r, 0, n);
    pl_tensor delta = filter_side(ctx, r, 0, 1, attend_rows(ctx, r, filter_side(ctx, r, 0, 0, n, k), kv), k);
    pl_tensor z = pl_rmsnorm_residual(ctx, &h, delta, w->norm_mlp, s->eps);
    k = kernels_of(ctx, r, 1, z);
    delta = filter_side(ctx, r, 1, 1, pl_layer_mlp(ctx, w, filter_side(ctx, r, 1, 0, z, k)), k);
    out[0] = pl_add(ctx, h, delta, (pl_tensor){0});
}

static pl_tensor fuse_context(pl_ctx *ctx, const pl_backbone *b, pl_tensor features) {
    const pl_dflash *f = (const pl_dflash *)b;
    return pl_rmsnorm(ctx, pl_linear(ctx, features, f->fc), f->hidden_norm, b->shape.eps);
}

static pl_tensor draft(pl_ctx *ctx, const pl_backbone *b, const pl_block_view *view) {
    const pl_dflash *f = (const pl_dflash *)b;
    layer_run        r = {.f = f, .view = view};
    PL_CHECK(!view->context_row != !view->lo, "blocks over a cache and over rows, or over neither");
    r.context = fuse_context(ctx, b, view->features);
    if (view->m > 0) r.x = pl_embed(ctx, b->embed, view->token, view->m);
    for (r.layer = 0; r.layer < b->layers; r.layer++) {
        pl_tensor out[1] = {{.dim = {view->m, b->shape.d, 1, 1}}};
        if (view->rerun)
            pl_tape_stretch(ctx, run_layer, &r, sizeof r, out, 1);
        else
            run_layer(ctx, &r, out);
        r.x = out[0];
    }
    return view->m > 0 ? pl_rmsnorm(ctx, r.x, f->norm, b->shape.eps) : (pl_tensor){0};
}

const pl_backbone_kind pl_backbone_dflash = {.name = "dflash",
                                             .which = PL_HF_DFLASH,
                                             .size = sizeof(pl_dflash),
                                             .layers = PL_DFLASH_LAYERS,
                                             .windows = true,
                                             .configure = configure,
                                             .check = check,
                                             .taps = taps,
                                             .init = init,
                                             .draft = draft,
                                             .context = fuse_context,
                                             .gains = gains,
                                             .shares_head = true,
                                             .ignores = ignores,
                                             .fuse_only = fuse_only};
