#include "infer/head/selector.h"

#include "kernels/op/elementwise.h"
#include "kernels/op/gatherdot.h"
#include "kernels/op/topk.h"

#include <math.h>

int pl_selector_rank(int64_t vocab) {
    double wanted = 256 * sqrt((double)vocab / 151936);
    int    rank = 8;
    while (rank * M_SQRT2 < wanted && rank < 256)
        rank *= 2;
    return rank;
}

pl_status pl_selector_init(pl_selector *s, const pl_hf_selector *spec, int64_t d, int64_t draft_vocab, pl_err *err) {
    *s = (pl_selector){.rank = spec->rank, .candidates = spec->candidates, .law = spec->law};
    int64_t most = draft_vocab < PL_TOPK_MAX ? draft_vocab : PL_TOPK_MAX;
    if (s->candidates == 0) return PL_OK;
    if (s->candidates < 2 || s->candidates > most)
        return pl_fail(err, PL_E_INPUT, "selector: %d candidates must lie in 2..%lld", s->candidates, (long long)most);
    if (s->rank < 1 || s->rank > d)
        return pl_fail(err, PL_E_INPUT, "selector: rank %d must lie in 1..%lld, the drafter's width", s->rank,
                       (long long)d);
    return PL_OK;
}

void pl_selector_params(pl_selector *s, pl_params *ps, int64_t d, int64_t vocab, int64_t draft_vocab) {
    if (s->candidates == 0) return;
    int first = ps->n;
    pl_params_weight(ps, &s->before, PL_PARAM_EMBED, "candidate_selector.predecessor_codebook", vocab, s->rank, 0.02);
    pl_params_weight(ps, &s->after, PL_PARAM_EMBED, "candidate_selector.successor_codebook", draft_vocab, s->rank, 0);
    pl_params_weight(ps, &s->hidden, PL_PARAM_MATRIX, "candidate_selector.hidden_projection.weight", s->rank, d,
                     1 / sqrt((double)d));
    for (int i = first; i < ps->n; i++)
        ps->p[i].neutral = true;
}

pl_tensor pl_selector_adds(pl_ctx *ctx, const pl_selector *s, pl_tensor hidden, const int32_t *before,
                           const int32_t *id) {
    pl_tensor context = pl_mul(ctx, pl_embed(ctx, s->before, before, hidden.dim[0]), hidden);
    return pl_gatherdot(ctx, context, s->after, id, s->candidates);
}

double pl_selector_bytes(const pl_selector *s) {
    double one = (double)pl_dtype_size(s->after.dtype) * s->rank;
    return s->candidates == 0 ? 0 : one * (s->candidates + 1) + one * (double)s->hidden.dim[1];
}
