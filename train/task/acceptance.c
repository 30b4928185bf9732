#include "train/task/acceptance.h"

#include "infer/head/stopping.h"
#include "kernels/op/elementwise.h"
#include "kernels/op/rowloss.h"

#define REJECTED 6.0 // the paper's weight of rejections

// Returns the rows as constants.
static pl_tensor copy_constant(pl_ctx *ctx, pl_tensor x) {
    int64_t  n = pl_tensor_rows(&x);
    int32_t *row = pl_ctx_bytes(ctx, (size_t)n * sizeof *row);
    bool     before = ctx->no_grad;
    for (int64_t i = 0; i < n && !ctx->measuring; i++)
        row[i] = (int32_t)i;
    ctx->no_grad = true;
    pl_tensor y = pl_gather(ctx, x, row, n);
    ctx->no_grad = before;
    return y;
}

pl_tensor pl_acceptance_loss(pl_ctx *ctx, const pl_head *h, pl_tensor x, const float *accepted, const float *weight,
                             float **scale) {
    size_t n = (size_t)pl_tensor_rows(&x);
    float *y = pl_ctx_bytes(ctx, n * sizeof *y), *scaled = pl_ctx_bytes(ctx, n * sizeof *scaled);
    *scale = pl_ctx_bytes(ctx, n * sizeof **scale);
    for (size_t i = 0; i < n && !ctx->measuring; i++) {
        double a = (double)accepted[i], s = a + REJECTED * (1 - a);
        (*scale)[i] = (float)s;
        y[i] = (float)(a / s);
        scaled[i] = (float)((double)weight[i] * s);
    }
    pl_tensor z = pl_stopping_logits(ctx, h, copy_constant(ctx, x));
    return pl_classify(ctx, &(pl_classify_args){.z = z, .y = y, .weight = scaled, .kind = PL_CLASSIFY_BCE});
}
