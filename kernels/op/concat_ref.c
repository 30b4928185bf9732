#include "kernels/op/concat.h"
#include "kernels/ref.h"

void PL_REF(concat_fwd)(pl_ctx *ctx, const void *args) {
    const pl_concat_args *a = args;
    PL_OP_SKIP_IF_MEASURING(ctx);
    int64_t        rows = a->y.dim[0], ca = a->a.dim[1], cb = a->b.dim[1];
    const pl_real *x = a->a.data, *z = a->b.data;
    bool           narrow = a->a.dtype != ctx->be->real;
    pl_real       *y = a->y.data;
    for (int64_t m = 0; m < rows; m++) {
        for (int64_t i = 0; i < ca; i++)
            y[m * (ca + cb) + i] = narrow ? pl_ref_weight(&a->a, m, i) : x[m * ca + i];
        for (int64_t i = 0; i < cb; i++)
            y[m * (ca + cb) + ca + i] = z[m * cb + i];
    }
}

void PL_REF(concat_bwd)(pl_ctx *ctx, const void *args) {
    const pl_concat_args *a = args;
    PL_OP_SKIP_IF_MEASURING(ctx);
    if (!a->y.grad) return;
    int64_t        rows = a->y.dim[0], ca = a->a.dim[1], cb = a->b.dim[1];
    const pl_real *dy = a->y.grad;
    pl_real       *dx = a->a.grad, *dz = a->b.grad;
    for (int64_t m = 0; m < rows; m++) {
        for (int64_t i = 0; i < ca && dx; i++)
            dx[m * ca + i] += dy[m * (ca + cb) + i];
        for (int64_t i = 0; i < cb && dz; i++)
            dz[m * cb + i] += dy[m * (ca + cb) + ca + i];
    }
}
