#include "kernels/op/silu.h"
#include "kernels/ref.h"
#include <tgmath.h>

void PL_REF(silu_fwd)(pl_ctx *ctx, const void *args) {
    const pl_silu_args *a = args;
    PL_OP_SKIP_IF_MEASURING(ctx);
    int64_t        n = pl_tensor_count(&a->x);
    const pl_real *x = a->x.data;
    pl_real       *y = a->y.data;
    for (int64_t i = 0; i < n; i++)
        y[i] = x[i] / (1 + exp(-x[i]));
}

void PL_REF(silu_bwd)(pl_ctx *ctx, const void *args) {
    const pl_silu_args *a = args;
    PL_OP_SKIP_IF_MEASURING(ctx);
    if (!a->y.grad || !a->x.grad) return;
    int64_t        n = pl_tensor_count(&a->x);
    const pl_real *x = a->x.data, *dy = a->y.grad;
    pl_real       *dx = a->x.grad;
    for (int64_t i = 0; i < n; i++) {
        pl_real s = 1 / (1 + exp(-x[i]));
        dx[i] += dy[i] * s * (1 + x[i] * (1 - s));
    }
}
