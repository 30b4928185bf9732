#include "kernels/op/topk.h"
#include "kernels/base/check.h"

void pl_topk(pl_ctx *ctx, const pl_topk_args *a) {
    PL_CHECK(a->x.rank == 2 && a->x.dtype == ctx->be->real, "topk: rank %d, %s", a->x.rank, pl_dtype_name(a->x.dtype));
    PL_CHECK(a->k >= 1 && a->k <= PL_TOPK_MAX && a->x.dim[1] >= 1 && a->id, "topk: %d of %lld", a->k,
             (long long)a->x.dim[1]);
    pl_run(ctx, PL_OP_TOPK, a, sizeof *a);
}
