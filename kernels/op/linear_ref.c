#include "kernels/op/linear.h"
#include "kernels/ref.h"

void PL_REF(linear_fwd)(pl_ctx *ctx, const void *args) {
    const pl_linear_args *a = args;
    PL_OP_SKIP_IF_MEASURING(ctx);
    int64_t        rows = a->x.dim[0], K = a->w.dim[1], N = a->w.dim[0];
    const pl_real *x = a->x.data;
    pl_real       *y = a->y.data;
    for (int64_t m = 0; m < rows; m++)
        for (int64_t n = 0; n < N; n++) {
            pl_real sum = 0;
            if (a->w.layout != PL_ROWMAJOR)
                sum = pl_ref_dot(&a->w, n, x + m * K);
            else
                for (int64_t k = 0; k < K; k++)
                    sum += x[m * K + k] * pl_ref_weight(&a->w, n, k);
            y[m * N + n] = sum;
        }
}

void PL_REF(linear_bwd)(pl_ctx *ctx, const void *args) {
    const pl_linear_args *a = args;
    PL_OP_SKIP_IF_MEASURING(ctx);
    if (!a->y.grad) return;
    int64_t        rows = a->x.dim[0], K = a->w.dim[1], N = a->w.dim[0];
    const pl_real *x = a->x.data, *dy = a->y.grad;
    pl_real       *dx = a->x.grad, *dw = a->w.grad;
    for (int64_t m = 0; m < rows && dx; m++)
        for (int64_t n = 0; n < N; n++)
            for (int64_t k = 0; k < K; k++)
                dx[m * K + k] += dy[m * N + n] * pl_ref_weight(&a->w, n, k);
    for (int64_t m = 0; m < rows && dw; m++)
        for (int64_t n = 0; n < N; n++)
            for (int64_t k = 0; k < K; k++)
                dw[n * K + k] += dy[m * N + n] * x[m * K + k];
}

void PL_REF(gatedlinear_fwd)(pl_ctx *ctx, const void *args) {
    pl_gatedlinear_by_parts(ctx, args);
}
