// The dense head: logits = lm_head . x, over the target's vocabulary or a trimmed draft vocabulary (d2t).
#include "infer/head/head.h"

#include "kernels/base/check.h"

static void params(pl_head *h, pl_params *ps) {
    if (h->shared) return;
    pl_params_add(ps, &(pl_param_args){.tensor = &h->out,
                                       .kind = PL_PARAM_MATRIX,
                                       .part = {{"lm_head.weight", h->vocab}},
                                       .cols = h->d,
                                       .init_std = 0.02});
}

// The identity. A caller that wants the result in a place of its own has put x there already.
static pl_tensor project(pl_ctx *ctx, const pl_head *h, pl_tensor x, pl_tensor y) {
    (void)ctx, (void)h;
    PL_CHECK(y.data == NULL || y.data == x.data, "a full head does not move rows");
    return x;
}

const pl_head_kind pl_head_full = {.name = "full", .params = params, .project = project};
