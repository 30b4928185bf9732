#include "kernels/op/round.h"
#include "kernels/ref.h"

void PL_REF(round_fwd)(pl_ctx *ctx, const void *args) {
    const pl_round_args *a = args;
    PL_OP_SKIP_IF_MEASURING(ctx);
    int64_t        n = pl_tensor_count(&a->x);
    const pl_real *x = a->x.data;
    pl_real       *y = a->y.data;
    for (int64_t i = 0; i < n; i++)
        y[i] = (pl_real)pl_round_bf16((float)x[i]);
}

void PL_REF(round_bwd)(pl_ctx *ctx, const void *args) {
    const pl_round_args *a = args;
    PL_OP_SKIP_IF_MEASURING(ctx);
    if (!a->y.grad || !a->x.grad) return;
    int64_t        n = pl_tensor_count(&a->x);
    const pl_real *dy = a->y.grad;
    pl_real       *dx = a->x.grad;
    for (int64_t i = 0; i < n; i++)
        dx[i] += dy[i];
}
