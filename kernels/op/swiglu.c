#include "kernels/op/swiglu.h"
#include "kernels/base/check.h"

pl_tensor pl_gated(pl_ctx *ctx, pl_tensor gu, pl_gate gate) {
    PL_CHECK(gu.rank == 2 && gu.dim[1] % 2 == 0 && gu.dtype == ctx->be->real, "swiglu: [%lld, %lld] %s",
             (long long)gu.dim[0], (long long)gu.dim[1], pl_dtype_name(gu.dtype));
    if (gate == PL_GATE_CLAMPED) {
        PL_CHECK(!gu.grad, "swiglu: the clamped gate has no gradient (%d)", (int)gate);
        if (ctx->be->memory) pl_ctx_fail(ctx, PL_E_UNSUPPORTED, "the clamped gate on backend %s", ctx->be->name);
    }
    pl_swiglu_args a = {.gu = gu, .gate = gate, .y = pl_ctx_out(ctx, gu.dim[0], gu.dim[1] / 2, gu.grad)};
    pl_run(ctx, PL_OP_SWIGLU, &a, sizeof a);
    return a.y;
}
