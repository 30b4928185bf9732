#include "kernels/op/squash.h"
#include "kernels/ref.h"
#include <tgmath.h>

static pl_real squashed(pl_squash_kind kind, pl_real x) {
    if (kind == PL_SQUASH_TANH) return tanh(x);
    return 1 / (1 + exp(kind == PL_SQUASH_SIGMOID ? -x : x));
}

void PL_REF(squash_fwd)(pl_ctx *ctx, const void *args) {
    const pl_squash_args *a = args;
    PL_OP_SKIP_IF_MEASURING(ctx);
    int64_t        rows = a->y.dim[0], n = a->y.dim[1], all = a->x.dim[1];
    const pl_real *x = a->x.data;
    pl_real       *y = a->y.data;
    for (int64_t i = 0; i < rows * n; i++)
        y[i] = squashed(a->kind, x[i / n * all + a->from + i % n]);
}

void PL_REF(squash_bwd)(pl_ctx *ctx, const void *args) {
    const pl_squash_args *a = args;
    PL_OP_SKIP_IF_MEASURING(ctx);
    if (!a->y.grad || !a->x.grad) return;
    int64_t        rows = a->y.dim[0], n = a->y.dim[1], all = a->x.dim[1];
    const pl_real *y = a->y.data, *dy = a->y.grad;
    pl_real       *dx = a->x.grad;
    for (int64_t i = 0; i < rows * n; i++) {
        pl_real f = a->kind == PL_SQUASH_TANH ? 1 - y[i] * y[i] : y[i] * (1 - y[i]);
        dx[i / n * all + a->from + i % n] += a->kind == PL_SQUASH_REMAINDER ? -dy[i] * f : dy[i] * f;
    }
}
