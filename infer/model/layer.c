#include "infer/model/layer.h"

#include "infer/model/tp.h"
#include "kernels/base/check.h"
#include "kernels/op/bias.h"
#include "kernels/op/combine.h"
#include "kernels/op/experts.h"
#include "kernels/op/gather.h"
#include "kernels/op/grouped.h"
#include "kernels/op/headnorm.h"
#include "kernels/op/linear.h"
#include "kernels/op/rope.h"
#include "kernels/op/swiglu.h"

pl_tensor pl_layer_attention(pl_ctx *ctx, const pl_layer_shape *s, const pl_layer *w, pl_tensor x, pl_view *view,
                             int layer) {
    pl_tensor qkv = pl_linear(ctx, x, w->wqkv);
    if (w->bqkv.data) qkv = pl_bias(ctx, qkv, w->bqkv);
    if (w->norm_q.data) qkv = pl_headnorm(ctx, qkv, w->norm_q, w->norm_k, s->nh, s->nkv, s->eps);
    const pl_kvrow *row = view->row ? view->row + (int64_t)layer * view->m : NULL;
    pl_rope(ctx, &(pl_rope_args){.qkv = qkv,
                                 .cos = w->cos.data ? w->cos : view->cos,
                                 .sin = w->cos.data ? w->sin : view->sin,
                                 .pos = view->pos,
                                 .n_rot = s->nh + s->nkv,
                                 .hd = s->hd,
                                 .offset = view->offset,
                                 .row = row});
    // Queries and keys are products of bf16 factors if the weight's values are bf16.
    pl_dtype       numbers = w->wqkv.bf16 || w->wqkv.dtype == PL_BF16 ? PL_BF16 : PL_F32;
    pl_tensor      o;
    const int32_t *lo = w->rule.window > 0 ? view->lo_window : view->lo;
    PL_CHECK(row || (lo && w->rule.cap == 0 && !w->rule.sink.data), "layer %d without a cache: cap %g, window %d",
             layer, w->rule.cap, w->rule.window);
    if (row) {
        o = pl_attention_ruled(ctx, qkv, row, s->nh, s->nkv, s->hd, &w->rule);
    } else if (view->block) {
        pl_tensor *block = view->block + (int64_t)layer * PL_MAX_UNROLL;
        int        n = view->n_blocks + 1;
        PL_CHECK(n <= PL_MAX_UNROLL, "%d unroll steps, at most %d", n, PL_MAX_UNROLL);
        block[n - 1] = view->taken ? pl_gather(ctx, qkv, view->spread, view->whole) : qkv;
        o = pl_attention_blocks_in(ctx, numbers, w->rule.scale, block, n, lo, s->nh, s->nkv, s->hd);
        if (view->taken) o = pl_gather(ctx, o, view->taken, x.dim[0]);
    } else {
        o = pl_attention_blocks_in(ctx, numbers, w->rule.scale, &qkv, 1, lo, s->nh, s->nkv, s->hd);
    }
    o = pl_linear(ctx, pl_tp_all(ctx, w->comm, o, w->wo.dim[1]), w->wo);
    return pl_tp_all(ctx, w->comm, w->bo.data ? pl_bias(ctx, o, w->bo) : o, s->d);
}

// Each row's products are those of the row alone (grouped), and are added in a fixed order.
static pl_tensor run_mixture(pl_ctx *ctx, const pl_mixture *w, pl_gate gate, pl_tensor x) {
    bool            biased = w->router_bias.data != NULL;
    pl_tensor       score = pl_linear(ctx, x, w->router);
    pl_expert_pairs p = pl_experts(ctx, biased ? pl_bias(ctx, score, w->router_bias) : score, w->k, w->normalised);
    pl_tensor       y = pl_gather(ctx, x, p.row, x.dim[0] * w->k);
    y = pl_gated(ctx, pl_grouped(ctx, y, w->wgu, biased ? w->bgu : NULL, p.first, w->n), gate);
    y = pl_grouped(ctx, y, w->wdown, biased ? w->bdown : NULL, p.first, w->n);
    return pl_combine(ctx, y, p.weight, p.slot);
}

pl_tensor pl_layer_mlp(pl_ctx *ctx, const pl_layer *w, pl_tensor x) {
    if (w->mixture.n > 0) return run_mixture(ctx, &w->mixture, w->gate, x);
    if (!w->comm) return pl_mlp(ctx, x, w->wgu, w->wdown, w->gate);
    pl_tensor inside = pl_linear_gated(ctx, x, w->wgu, w->gate);
    pl_tensor y = pl_linear(ctx, pl_tp_all(ctx, w->comm, inside, w->wdown.dim[1]), w->wdown);
    return pl_tp_all(ctx, w->comm, y, x.dim[1]);
}
