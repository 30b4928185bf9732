#include "kernels/op/softcap.h"
#include "kernels/base/check.h"

void pl_softcap(pl_ctx *ctx, pl_tensor x, double cap) {
    PL_CHECK(x.rank == 2 && x.dtype == ctx->be->real && !x.grad, "softcap: [%lld, %lld] %s%s", (long long)x.dim[0],
             (long long)x.dim[1], pl_dtype_name(x.dtype), x.grad ? " with a gradient" : "");
    PL_CHECK(cap > 0, "softcap: %g", cap);
    pl_softcap_args a = {.x = x, .cap = cap};
    pl_run(ctx, PL_OP_SOFTCAP, &a, sizeof a);
}
