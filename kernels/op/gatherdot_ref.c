#include "kernels/op/gatherdot.h"
#include "kernels/ref.h"

void PL_REF(gatherdot_fwd)(pl_ctx *ctx, const void *args) {
    const pl_gatherdot_args *a = args;
    PL_OP_SKIP_IF_MEASURING(ctx);
    int64_t        rows = a->x.dim[0], K = a->w.dim[1], n = a->y.dim[1];
    const pl_real *x = a->x.data;
    pl_real       *y = a->y.data;
    for (int64_t m = 0; m < rows; m++)
        for (int64_t i = 0; i < n; i++) {
            int32_t id = a->id[m * n + i];
            PL_CHECK(id >= -1 && id < a->w.dim[0], "gatherdot: row %d of %lld", id, (long long)a->w.dim[0]);
            y[m * n + i] = id < 0 ? -(pl_real)INFINITY : pl_ref_dot(&a->w, id, x + m * K);
        }
}

void PL_REF(gatherdot_bwd)(pl_ctx *ctx, const void *args) {
    const pl_gatherdot_args *a = args;
    PL_OP_SKIP_IF_MEASURING(ctx);
    if (!a->y.grad) return;
    int64_t        rows = a->x.dim[0], K = a->w.dim[1], n = a->y.dim[1];
    const pl_real *x = a->x.data, *dy = a->y.grad;
    for (int64_t m = 0; m < rows; m++)
        for (int64_t i = 0; i < n; i++) {
            int64_t id = a->id[m * n + i];
            if (id < 0) continue;
            pl_real  g = dy[m * n + i];
            pl_real *dx = a->x.grad ? (pl_real *)a->x.grad + m * K : NULL;
            pl_real *dw = a->w.grad ? (pl_real *)a->w.grad + id * K : NULL;
            for (int64_t k = 0; k < K; k++) {
                if (dx) dx[k] += g * pl_ref_load(a->w.data, a->w.dtype, id * K + k);
                if (dw) dw[k] += g * x[m * K + k];
            }
        }
}
