#include "kernels/op/bias.h"
#include "kernels/ref.h"

void PL_REF(bias_fwd)(pl_ctx *ctx, const void *args) {
    const pl_bias_args *a = args;
    PL_OP_SKIP_IF_MEASURING(ctx);
    int64_t        rows = a->y.dim[0], n = a->y.dim[1];
    const pl_real *b = a->b.data;
    for (int64_t m = 0; m < rows; m++) {
        const pl_real *x = (const pl_real *)a->x.data + m * n;
        pl_real       *y = (pl_real *)a->y.data + m * n;
        for (int64_t i = 0; i < n; i++)
            y[i] = x[i] + b[i];
    }
}

void PL_REF(bias_bwd)(pl_ctx *ctx, const void *args) {
    const pl_bias_args *a = args;
    PL_OP_SKIP_IF_MEASURING(ctx);
    if (!a->y.grad) return;
    int64_t rows = a->y.dim[0], n = a->y.dim[1];
    for (int64_t m = 0; m < rows; m++) {
        const pl_real *dy = (const pl_real *)a->y.grad + m * n;
        pl_real       *dx = a->x.grad ? (pl_real *)a->x.grad + m * n : NULL, *db = a->b.grad;
        for (int64_t i = 0; i < n; i++) {
            if (dx) dx[i] += dy[i];
            if (db) db[i] += dy[i];
        }
    }
}
