#include "kernels/op/grouped.h"
#include "kernels/ref.h"

void PL_REF(grouped_fwd)(pl_ctx *ctx, const void *args) {
    const pl_grouped_args *a = args;
    PL_OP_SKIP_IF_MEASURING(ctx);
    int64_t        K = a->x.dim[1], N = a->y.dim[1];
    const pl_real *x = a->x.data;
    pl_real       *y = a->y.data;
    for (int64_t e = 0; e < a->n; e++)
        for (int64_t p = a->first[e]; p < a->first[e + 1]; p++)
            for (int64_t i = 0; i < N; i++)
                y[p * N + i] =
                    pl_ref_dot(&a->w[e], i, x + p * K) + (a->b ? pl_ref_load(a->b[e].data, PL_F32, i) : (pl_real)0);
}
