#include "kernels/op/rowloss.h"
#include "kernels/base/check.h"

// Returns the losses of n rows, or their place.
static pl_tensor losses_of(pl_ctx *ctx, pl_op op, pl_tensor loss, int64_t n) {
    if (!loss.data) loss = pl_ctx_const_1d(ctx, n);
    PL_CHECK(loss.dim[0] == n, "%s: %lld losses for %lld rows", pl_op_name(op), (long long)loss.dim[0], (long long)n);
    return loss;
}

pl_tensor pl_smoothl1(pl_ctx *ctx, pl_smoothl1_args *a) {
    PL_CHECK(a->x.rank == 2 && a->t.rank == 2 && a->x.dim[1] == a->t.dim[1] && a->beta > 0,
             "smoothl1: x [%lld, %lld], t [%lld, %lld], beta %g", (long long)a->x.dim[0], (long long)a->x.dim[1],
             (long long)a->t.dim[0], (long long)a->t.dim[1], a->beta);
    PL_CHECK(a->x.dtype == ctx->be->real && a->t.dtype == ctx->be->real && a->row && a->weight,
             "smoothl1: x %s, t %s, rows or weights missing", pl_dtype_name(a->x.dtype), pl_dtype_name(a->t.dtype));
    a->loss = losses_of(ctx, PL_OP_SMOOTHL1, a->loss, a->x.dim[0]);
    pl_run(ctx, PL_OP_SMOOTHL1, a, sizeof *a);
    return a->loss;
}

pl_tensor pl_classify(pl_ctx *ctx, pl_classify_args *a) {
    PL_CHECK(a->z.rank == 2 && a->z.dtype == ctx->be->real && a->y && a->weight, "classify: z [%lld, %lld] %s",
             (long long)a->z.dim[0], (long long)a->z.dim[1], pl_dtype_name(a->z.dtype));
    a->loss = losses_of(ctx, PL_OP_CLASSIFY, a->loss, a->z.dim[0]);
    pl_run(ctx, PL_OP_CLASSIFY, a, sizeof *a);
    return a->loss;
}
