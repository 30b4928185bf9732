#include "kernels/op/add.h"
#include "kernels/base/check.h"

static void check_like(const pl_ctx *ctx, const char *who, const pl_tensor *t, const pl_tensor *a) {
    PL_CHECK(t->rank == 2 && t->dim[0] == a->dim[0] && t->dim[1] == a->dim[1] && t->dtype == ctx->be->real,
             "add: %s [%lld, %lld] %s beside [%lld, %lld]", who, (long long)t->dim[0], (long long)t->dim[1],
             pl_dtype_name(t->dtype), (long long)a->dim[0], (long long)a->dim[1]);
}

pl_tensor pl_add(pl_ctx *ctx, pl_tensor a, pl_tensor b, pl_tensor y) {
    check_like(ctx, "a", &a, &a);
    check_like(ctx, "b", &b, &a);
    if (!y.data) y = pl_ctx_out(ctx, a.dim[0], a.dim[1], a.grad || b.grad);
    check_like(ctx, "y", &y, &a);
    pl_add_args args = {.y = y, .a = a, .b = b};
    pl_run(ctx, PL_OP_ADD, &args, sizeof args);
    return y;
}
