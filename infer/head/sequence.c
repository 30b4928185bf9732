#include "infer/head/sequence.h"

#include "infer/head/head.h"
#include "kernels/op/elementwise.h"
#include "kernels/op/linear.h"
#include "kernels/op/topk.h"

double pl_sequence_least_confidence(const pl_head *h) {
    const pl_head_sequence *s = h->kind->sequence;
    return s && s->least_confidence ? s->least_confidence(h) : 0;
}

int pl_sequence_passes(const pl_head *h) {
    const pl_head_sequence *s = h->kind->sequence;
    return s && s->passes ? s->passes(h) : 0;
}

void pl_sequence_prepare(pl_ctx *ctx, const pl_head *h, pl_head_blocks *blocks) {
    const pl_head_sequence *s = h->kind->sequence;
    if (s && s->prepare) s->prepare(ctx, h, blocks);
}

void pl_sequence_teach(pl_ctx *ctx, const pl_head *h, const pl_head_rows *r, pl_tensor *x, pl_tensor *w) {
    const pl_head_sequence *s = h->kind->sequence;
    *x = pl_concat(ctx, r->x, s->mix(ctx, h, r));
    *w = pl_concat(ctx, h->out, *s->readout(h));
}

static pl_tensor all_logits(pl_ctx *ctx, const pl_head *h, const pl_head_rows *r) {
    const pl_head_sequence *s = h->kind->sequence;
    pl_tensor               base = r->base.data ? r->base : pl_linear(ctx, r->x, h->out);
    pl_tensor               more = r->mixed.data ? r->mixed : s->mix(ctx, h, r);
    return pl_add(ctx, base, pl_linear(ctx, more, *s->readout(h)), (pl_tensor){0});
}

void pl_sequence_topk(pl_ctx *ctx, const pl_head *h, const pl_head_rows *r, int k, int32_t *id, float *value,
                      float *lse) {
    pl_topk(ctx, &(pl_topk_args){.x = all_logits(ctx, h, r), .k = k, .id = id, .value = value, .lse = lse});
}

pl_tensor pl_sequence_logits(pl_ctx *ctx, const pl_head *h, const pl_head_rows *r) {
    pl_tensor z = all_logits(ctx, h, r);
    z.data = pl_ctx_read(ctx, &z);
    return z;
}
