// SlimSpec's low-rank head (arXiv 2605.10453): z = W_up (W_down h), no bias, no non-linearity. Tensor names as EAGLE-4
// has them: efficient_lm_head.weight [V, r], efficient_lm_head_down_proj.weight [r, d].
#include "infer/head/head.h"

#include "kernels/op/linear.h"

#include <math.h>

static pl_status init(pl_head *h, pl_err *err) {
    if (h->spec.rank < 1 || h->spec.rank > h->d)
        return pl_fail(err, PL_E_INPUT, "head of kind \"%s\": rank %d must lie in 1..%lld, the drafter's width",
                       h->kind->name, h->spec.rank, (long long)h->d);
    h->rank = h->spec.rank;
    return PL_OK;
}

static void params(pl_head *h, pl_params *ps) {
    pl_params_add(ps, &(pl_param_args){.tensor = &h->down,
                                       .kind = PL_PARAM_MATRIX,
                                       .part = {{"efficient_lm_head_down_proj.weight", h->rank}},
                                       .cols = h->d,
                                       .init_std = 1 / sqrt((double)h->d)});
    pl_params_add(ps, &(pl_param_args){.tensor = &h->out,
                                       .kind = PL_PARAM_MATRIX,
                                       .part = {{"efficient_lm_head.weight", h->vocab}},
                                       .cols = h->rank,
                                       .init_std = 0.02});
}

static pl_tensor project(pl_ctx *ctx, const pl_head *h, pl_tensor x, pl_tensor y) {
    if (!y.data) return pl_linear(ctx, x, h->down);
    pl_linear_into(ctx, y, x, h->down);
    return y;
}

const pl_head_kind pl_head_lowrank = {.name = "lowrank", .init = init, .params = params, .project = project};
