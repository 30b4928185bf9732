#include "infer/model/layer.h"

#include "infer/model/tp.h"
#include "kernels/base/check.h"
#include "kernels/op/elementwise.h"
#include "kernels/op/experts.h"
#include "kernels/op/linear.h"
#include "kernels/op/norm.h"
#include "kernels/op/rope.h"
#include "kernels/op/swiglu.h"

enum { QUERIES = 1, KEYS = 2 }; // keys: with values

// Returns queries, keys and values of rows at pos, rotated; or only some of them.
static pl_tensor project_heads(pl_ctx *ctx, const pl_layer_shape *s, const pl_layer *w, pl_tensor x,
                               const pl_view *view, const int32_t *pos, const pl_kvrow *row, unsigned which) {
    int       nq = which & QUERIES ? s->nh : 0, nk = which & KEYS ? s->nkv : 0;
    int64_t   first = which & QUERIES ? 0 : (int64_t)s->nh * s->hd, n = (int64_t)(nq + 2 * nk) * s->hd;
    pl_tensor weight = which == (QUERIES | KEYS) ? w->wqkv : pl_tensor_slice(&w->wqkv, first, n);
    pl_tensor heads = pl_linear(ctx, x, weight);
    if (w->bqkv.data) heads = pl_bias(ctx, heads, pl_tensor_slice(&w->bqkv, first, n));
    if (w->norm_q.data) heads = pl_headnorm(ctx, heads, w->norm_q, w->norm_k, nq, nk, s->eps);
    pl_rope(ctx, &(pl_rope_args){.qkv = heads,
                                 .cos = w->cos.data ? w->cos : view->cos,
                                 .sin = w->cos.data ? w->sin : view->sin,
                                 .pos = pos,
                                 .n_rot = nq + nk,
                                 .hd = s->hd,
                                 .offset = view->offset,
                                 .row = row});
    return heads;
}

// Returns true in the layer of block 0's forward from which only the rows that run continue.
static bool is_thinned(const pl_view *view, int layer) {
    return view->run && view->n_blocks == 0 && layer == view->run->last;
}

pl_tensor pl_layer_running(pl_ctx *ctx, const pl_view *view, int layer, pl_tensor h) {
    return is_thinned(view, layer) ? pl_gather(ctx, h, view->run->at, view->run->n) : h;
}

// Returns the first row of block 0 that each of n queries sees, in a layer with a window: of the positions up to its
// own, which is `offset` further than its row, the last so many. at: the queries' rows in block 0; NULL: all.
static const int32_t *first_rows(pl_ctx *ctx, const pl_view *view, int window, const int32_t *lo, const int32_t *at,
                                 int64_t n) {
    if (window == 0) return lo;
    PL_CHECK(window > view->offset, "a window of %d at step %d", window, view->offset);
    int32_t *first = pl_ctx_bytes(ctx, (size_t)n * sizeof *first);
    for (int64_t i = 0; i < n && !ctx->measuring; i++) {
        int64_t from = (at ? at[i] : i) + view->offset - window + 1;
        first[i] = lo[i] >= 0 && from > lo[i] ? (int32_t)from : lo[i];
    }
    return first;
}

// Attention over the blocks of an unroll; appends this forward's.
static pl_tensor attend_blocks(pl_ctx *ctx, const pl_layer_shape *s, const pl_layer *w, pl_tensor x, pl_view *view,
                               int layer, pl_dtype numbers) {
    pl_tensor        *block = view->block + (int64_t)layer * PL_MAX_UNROLL;
    const pl_running *run = view->run;
    int               n = view->n_blocks + 1;
    bool              thin = is_thinned(view, layer), some = thin || (run && n > 1);
    const int32_t    *lo = first_rows(ctx, view, w->rule.window, thin ? run->lo : view->lo, some ? run->at : NULL,
                                   some ? run->n : pl_tensor_rows(&x));
    pl_attention_part part = {0};
    PL_CHECK(n <= PL_MAX_UNROLL, "%d unroll steps, at most %d", n, PL_MAX_UNROLL);
    block[n - 1] = project_heads(ctx, s, w, x, view, view->pos, NULL, thin ? KEYS : QUERIES | KEYS);
    if (run) part = (pl_attention_part){block[n - 1], run->at, run->place};
    if (thin) part.q = project_heads(ctx, s, w, pl_gather(ctx, x, run->at, run->n), view, run->pos, NULL, QUERIES);
    return pl_attention_some(ctx, numbers, w->rule.scale, some ? &part : NULL, block, n, lo, s->nh, s->nkv, s->hd);
}

pl_tensor pl_layer_attention(pl_ctx *ctx, const pl_layer_shape *s, const pl_layer *w, pl_tensor x, pl_view *view,
                             int layer) {
    const pl_kvrow *row = view->row ? view->row + (int64_t)layer * view->m : NULL;
    if (w->delta.shape.nv > 0) return pl_gdn_mix(ctx, &w->delta, w->comm, x, row, s->eps);
    // Queries and keys are products of bf16 factors if the weight's values are bf16.
    pl_dtype       numbers = w->wqkv.bf16 || w->wqkv.dtype == PL_BF16 ? PL_BF16 : PL_F32;
    pl_tensor      o;
    const int32_t *lo = w->rule.window > 0 && !view->block ? view->lo_window : view->lo;
    PL_CHECK(row || (lo && w->rule.cap == 0 && !w->rule.sink.data), "layer %d without a cache: cap %g, window %d",
             layer, w->rule.cap, w->rule.window);
    if (view->block && !row) {
        o = attend_blocks(ctx, s, w, x, view, layer, numbers);
    } else {
        pl_tensor qkv = project_heads(ctx, s, w, x, view, view->pos, row, QUERIES | KEYS);
        o = row ? pl_attention_ruled(ctx, qkv, row, s->nh, s->nkv, s->hd, &w->rule)
                : pl_attention_blocks_in(ctx, numbers, w->rule.scale, &qkv, 1, lo, s->nh, s->nkv, s->hd);
    }
    if (w->wgate.data) {
        pl_tensor gate = pl_linear(ctx, x, w->wgate);
        o = pl_mul(ctx, o, pl_squash(ctx, PL_SQUASH_SIGMOID, gate, 0, gate.dim[1], (pl_tensor){0}));
    }
    o = pl_linear(ctx, pl_tp_all(ctx, w->comm, o, w->wo.dim[1]), w->wo);
    return pl_tp_all(ctx, w->comm, w->bo.data ? pl_bias(ctx, o, w->bo) : o, s->d);
}

// Returns y plus the output of the expert that all rows have, times its gate.
static pl_tensor add_shared(pl_ctx *ctx, const pl_mixture *w, pl_gate gate, pl_tensor x, pl_tensor y) {
    int32_t  *slot = pl_ctx_bytes(ctx, (size_t)x.dim[0] * sizeof *slot);
    pl_tensor open = pl_linear(ctx, x, w->shared_gate);
    for (int64_t m = 0; m < x.dim[0] && !ctx->measuring; m++)
        slot[m] = (int32_t)m;
    open = pl_squash(ctx, PL_SQUASH_SIGMOID, open, 0, 1, (pl_tensor){0});
    pl_tensor shared = pl_mlp(ctx, x, w->shared_wgu, w->shared_wdown, gate);
    return pl_add(ctx, y, pl_combine(ctx, shared, open, slot), (pl_tensor){0});
}

// Each row's products are those of the row alone (grouped), and are added in a fixed order.
static pl_tensor run_mixture(pl_ctx *ctx, const pl_mixture *w, pl_gate gate, pl_tensor x) {
    bool            biased = w->router_bias.data != NULL;
    pl_tensor       score = pl_linear(ctx, x, w->router);
    pl_expert_pairs p = pl_experts(ctx, biased ? pl_bias(ctx, score, w->router_bias) : score, w->k, w->normalised);
    pl_tensor       y = pl_gather(ctx, x, p.row, x.dim[0] * w->k);
    y = pl_gated(ctx, pl_grouped(ctx, y, w->wgu, biased ? w->bgu : NULL, p.first, w->n), gate);
    y = pl_grouped(ctx, y, w->wdown, biased ? w->bdown : NULL, p.first, w->n);
    y = pl_combine(ctx, y, p.weight, p.slot);
    return w->shared_wgu.data ? add_shared(ctx, w, gate, x, y) : y;
}

pl_tensor pl_layer_mlp(pl_ctx *ctx, const pl_layer *w, pl_tensor x) {
    if (w->mixture.n > 0) return run_mixture(ctx, &w->mixture, w->gate, x);
    if (!w->comm) return pl_mlp(ctx, x, w->wgu, w->wdown, w->gate);
    pl_tensor inside = pl_linear_gated(ctx, x, w->wgu, w->gate);
    pl_tensor y = pl_linear(ctx, pl_tp_all(ctx, w->comm, inside, w->wdown.dim[1]), w->wdown);
    return pl_tp_all(ctx, w->comm, y, x.dim[1]);
}
