#include "kernels/op/classify.h"
#include "kernels/base/check.h"

pl_tensor pl_classify(pl_ctx *ctx, pl_classify_args *a) {
    PL_CHECK(a->z.rank == 2 && a->z.dtype == ctx->be->real && a->y && a->weight, "classify: z [%lld, %lld] %s",
             (long long)a->z.dim[0], (long long)a->z.dim[1], pl_dtype_name(a->z.dtype));
    if (!a->loss.data) a->loss = pl_ctx_const_1d(ctx, a->z.dim[0]);
    PL_CHECK(a->loss.dim[0] == a->z.dim[0], "classify: %lld losses for %lld rows", (long long)a->loss.dim[0],
             (long long)a->z.dim[0]);
    pl_run(ctx, PL_OP_CLASSIFY, a, sizeof *a);
    return a->loss;
}
