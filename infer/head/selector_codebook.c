// DFlash 2's candidate selector (inco.ai, "DFlash 2", 2026; its code is in z-lab/dflash and in speculators' dflash2):
//   S_t(a, b) = U_t(b) + sum_r A[a, r] (P h_t)[r] B[b, r]        a: a target id, b in C_t
//   candidate_selector.predecessor_codebook A [V, r], .successor_codebook B [Vd, r], .hidden_projection.weight P [r, d]
// B starts as zeros: S is U on the list, so greedy drafts, and by the full law drawn ones, are the head's own. By the
// full law the best of S_t has at least h(C_t) / K, and no other id has more: both laws have the same best id. C, U and
// P h do not depend on the previous token.
#include "infer/head/head.h"

#include "kernels/op/elementwise.h"
#include "kernels/op/gatherdot.h"
#include "kernels/op/linear.h"

#include <math.h>

static void params(pl_selector *s, pl_params *ps, int64_t d, int64_t vocab, int64_t draft_vocab) {
    int first = ps->n;
    pl_params_weight(ps, &s->before, PL_PARAM_EMBED, "candidate_selector.predecessor_codebook", vocab, s->rank, 0.02);
    pl_params_weight(ps, &s->after, PL_PARAM_EMBED, "candidate_selector.successor_codebook", draft_vocab, s->rank, 0);
    pl_params_weight(ps, &s->hidden, PL_PARAM_MATRIX, "candidate_selector.hidden_projection.weight", s->rank, d,
                     1 / sqrt((double)d));
    for (int i = first; i < ps->n; i++)
        ps->p[i].neutral = true;
}

static void prepare(pl_ctx *ctx, const pl_head *h, const pl_head_rows *r, pl_selector_list *l) {
    l->kept[0] = pl_linear(ctx, r->x, h->selector.hidden);
}

static pl_tensor score(pl_ctx *ctx, const pl_head *h, const pl_selector_ask *a) {
    const pl_selector *s = &h->selector;
    const int32_t     *row = a->list->row;
    int64_t            n = a->own.dim[0];
    pl_tensor          hidden = row ? pl_gather(ctx, a->list->kept[0], row, n) : a->list->kept[0];
    pl_tensor          context = pl_mul(ctx, pl_embed(ctx, s->before, a->before, n), hidden);
    return pl_add(ctx, a->own, pl_gatherdot(ctx, context, s->after, a->id, s->candidates), (pl_tensor){0});
}

static double bytes(const pl_selector *s) {
    double one = (double)pl_dtype_size(s->after.dtype) * s->rank;
    return one * (s->candidates + 1) + one * (double)s->hidden.dim[1];
}

const pl_selector_kind pl_selector_codebook = {
    .name = "codebook", .params = params, .prepare = prepare, .score = score, .bytes = bytes};
