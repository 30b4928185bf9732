#include "kernels/op/mul.h"
#include "kernels/ref.h"

void PL_REF(mul_fwd)(pl_ctx *ctx, const void *args) {
    const pl_mul_args *s = args;
    PL_OP_SKIP_IF_MEASURING(ctx);
    int64_t        n = pl_tensor_count(&s->y);
    const pl_real *a = s->a.data, *b = s->b.data;
    pl_real       *y = s->y.data;
    for (int64_t i = 0; i < n; i++)
        y[i] = a[i] * b[i];
}

void PL_REF(mul_bwd)(pl_ctx *ctx, const void *args) {
    const pl_mul_args *s = args;
    PL_OP_SKIP_IF_MEASURING(ctx);
    if (!s->y.grad) return;
    int64_t        n = pl_tensor_count(&s->y);
    const pl_real *a = s->a.data, *b = s->b.data, *dy = s->y.grad;
    pl_real       *da = s->a.grad, *db = s->b.grad;
    for (int64_t i = 0; i < n && da; i++)
        da[i] += dy[i] * b[i];
    for (int64_t i = 0; i < n && db; i++)
        db[i] += dy[i] * a[i];
}
