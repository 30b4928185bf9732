#include "kernels/op/embed.h"
#include "kernels/ref.h"

void PL_REF(embed_fwd)(pl_ctx *ctx, const void *args) {
    const pl_embed_args *a = args;
    PL_OP_SKIP_IF_MEASURING(ctx);
    int64_t  rows = a->y.dim[0], d = a->y.dim[1];
    pl_real *y = a->y.data;
    for (int64_t t = 0; t < rows; t++) {
        int64_t id = a->id[t];
        PL_CHECK(id < a->w.dim[0], "embed: id %lld of %lld", (long long)id, (long long)a->w.dim[0]);
        for (int64_t i = 0; i < d; i++)
            y[t * d + i] = id < 0 ? 0 : (pl_real)a->scale * pl_ref_load(a->w.data, a->w.dtype, id * d + i);
    }
}

void PL_REF(embed_bwd)(pl_ctx *ctx, const void *args) {
    const pl_embed_args *a = args;
    PL_OP_SKIP_IF_MEASURING(ctx);
    if (!a->y.grad || !a->w.grad) return;
    int64_t        rows = a->y.dim[0], d = a->y.dim[1];
    const pl_real *dy = a->y.grad;
    pl_real       *dw = a->w.grad;
    for (int64_t t = 0; t < rows; t++)
        for (int64_t i = 0; i < d && a->id[t] >= 0; i++)
            dw[a->id[t] * d + i] += (pl_real)a->scale * dy[t * d + i];
}
