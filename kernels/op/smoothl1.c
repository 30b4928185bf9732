#include "kernels/op/smoothl1.h"
#include "kernels/base/check.h"

pl_tensor pl_smoothl1(pl_ctx *ctx, pl_smoothl1_args *a) {
    PL_CHECK(a->x.rank == 2 && a->t.rank == 2 && a->x.dim[1] == a->t.dim[1] && a->beta > 0,
             "smoothl1: x [%lld, %lld], t [%lld, %lld], beta %g", (long long)a->x.dim[0], (long long)a->x.dim[1],
             (long long)a->t.dim[0], (long long)a->t.dim[1], a->beta);
    PL_CHECK(a->x.dtype == ctx->be->real && a->t.dtype == ctx->be->real && a->row && a->weight,
             "smoothl1: x %s, t %s, rows or weights missing", pl_dtype_name(a->x.dtype), pl_dtype_name(a->t.dtype));
    if (!a->loss.data) a->loss = pl_ctx_const_1d(ctx, a->x.dim[0]);
    PL_CHECK(a->loss.dim[0] == a->x.dim[0], "smoothl1: %lld losses for %lld rows", (long long)a->loss.dim[0],
             (long long)a->x.dim[0]);
    pl_run(ctx, PL_OP_SMOOTHL1, a, sizeof *a);
    return a->loss;
}
