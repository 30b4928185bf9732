#include "kernels/op/gather.h"
#include "kernels/ref.h"

void PL_REF(gather_fwd)(pl_ctx *ctx, const void *args) {
    const pl_gather_args *a = args;
    PL_OP_SKIP_IF_MEASURING(ctx);
    int64_t        n = a->y.dim[0], d = a->y.dim[1];
    const pl_real *x = a->x.data;
    pl_real       *y = a->y.data;
    for (int64_t i = 0; i < n; i++) {
        int64_t from = a->index[i];
        PL_CHECK(from < a->x.dim[0], "gather: row %lld of %lld", (long long)from, (long long)a->x.dim[0]);
        for (int64_t j = 0; j < d; j++)
            y[i * d + j] = from < 0 ? 0 : x[from * d + j];
    }
}

void PL_REF(gather_bwd)(pl_ctx *ctx, const void *args) {
    const pl_gather_args *a = args;
    PL_OP_SKIP_IF_MEASURING(ctx);
    if (!a->y.grad || !a->x.grad) return;
    int64_t        n = a->y.dim[0], d = a->y.dim[1];
    const pl_real *dy = a->y.grad;
    pl_real       *dx = a->x.grad;
    for (int64_t i = 0; i < n; i++)
        for (int64_t j = 0; j < d && a->index[i] >= 0; j++)
            dx[a->index[i] * d + j] += dy[i * d + j];
}
