#include "kernels/op/combine.h"
#include "kernels/ref.h"
#include <string.h>

void PL_REF(combine_fwd)(pl_ctx *ctx, const void *args) {
    const pl_combine_args *a = args;
    PL_OP_SKIP_IF_MEASURING(ctx);
    int64_t        rows = a->y.dim[0], d = a->y.dim[1], k = a->weight.dim[1];
    const pl_real *x = a->x.data, *weight = a->weight.data;
    pl_real       *y = a->y.data;
    memset(y, 0, (size_t)(rows * d) * sizeof *y);
    for (int64_t m = 0; m < rows; m++)
        for (int64_t j = 0; j < k; j++) {
            int64_t at = a->slot[m * k + j];
            PL_CHECK(at >= 0 && at < a->x.dim[0], "combine: row %lld of %lld", (long long)at, (long long)a->x.dim[0]);
            for (int64_t i = 0; i < d; i++)
                y[m * d + i] += weight[m * k + j] * x[at * d + i];
        }
}
