#include "kernels/op/embed.h"
#include "kernels/base/check.h"

pl_tensor pl_embed(pl_ctx *ctx, pl_tensor w, const int32_t *id, int64_t rows) {
    return pl_embed_scaled(ctx, w, id, rows, 1);
}

pl_tensor pl_embed_scaled(pl_ctx *ctx, pl_tensor w, const int32_t *id, int64_t rows, double scale) {
    PL_CHECK(w.rank == 2 && w.layout == PL_ROWMAJOR, "embed: weight of rank %d, layout %d", w.rank, (int)w.layout);
    PL_CHECK(!w.grad || w.dtype == ctx->be->real, "embed: a gradient needs a weight in %s, not %s",
             pl_dtype_name(ctx->be->real), pl_dtype_name(w.dtype));
    pl_embed_args a = {.w = w, .id = id, .scale = scale, .y = pl_ctx_out(ctx, rows, w.dim[1], w.grad)};
    pl_run(ctx, PL_OP_EMBED, &a, sizeof a);
    return a.y;
}
