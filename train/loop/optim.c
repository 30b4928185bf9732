#include "train/loop/optim.h"

#include "kernels/op/adamw.h"

#include <math.h>

static void norm(pl_ctx *ctx, const pl_param_block *b, double *sum) {
    pl_sumsq(ctx, &(pl_sumsq_args){.x = b->grad, .n = b->n, .out = sum});
}

static void update(pl_ctx *ctx, pl_param_block *b, int64_t from, int64_t to, pl_adamw_args a) {
    if (to <= from) return;
    size_t at = (size_t)from * pl_dtype_size(b->real);
    a.w = (uint8_t *)b->w + at;
    a.m = (uint8_t *)b->m + at;
    a.v = (uint8_t *)b->v + at;
    a.work = (uint8_t *)b->work + at;
    a.grad = (uint8_t *)b->grad + at;
    a.work16 = b->work16 ? b->work16 + from : NULL;
    a.n = to - from;
    pl_adamw(ctx, &a);
}

static void update_all(pl_ctx *ctx, pl_param_block *b, pl_adamw_args a) {
    update(ctx, b, 0, b->n_decayed, a);
    a.decay = 0;
    update(ctx, b, b->n_decayed, b->n, a);
}

static void measure(pl_ctx *ctx, void *arg) {
    pl_optim *op = arg;
    norm(ctx, op->block, pl_ctx_bytes(ctx, sizeof(double)));
    update_all(ctx, op->block, (pl_adamw_args){.step = 1, .round_to = op->block->round_to});
}

pl_status pl_optim_init(pl_optim *op, const pl_backend *be, pl_pool *pool, pl_param_block *block,
                        const pl_optim_options *o, pl_err *err) {
    *op = (pl_optim){.block = block, .o = *o};
    PL_TRY(pl_ctx_init(&op->ctx, be, pool));
    return pl_ctx_measure(&op->ctx, measure, op, err);
}

void pl_optim_fini(pl_optim *op) {
    pl_ctx_fini(&op->ctx);
}

pl_status pl_optim_step(pl_optim *op, double lr, double grad_scale, int64_t step, double *grad_norm, pl_err *err) {
    const pl_optim_options *o = &op->o;
    pl_ctx_begin(&op->ctx);
    double *sum = pl_ctx_bytes(&op->ctx, sizeof *sum);
    norm(&op->ctx, op->block, sum);
    PL_TRY(pl_ctx_sync(&op->ctx, err));
    double size = sqrt(*sum) * grad_scale;
    *grad_norm = size;
    if (!isfinite(size))
        return pl_fail(err, PL_E_INPUT, "step %lld: the gradient is not finite; lower train.lr or raise train.warmup",
                       (long long)step);
    double scale = o->clip > 0 && size > o->clip ? grad_scale * (o->clip / size) : grad_scale;
    update_all(&op->ctx, op->block,
               (pl_adamw_args){.lr = lr,
                               .beta1 = o->beta1,
                               .beta2 = o->beta2,
                               .eps = o->eps,
                               .decay = o->decay,
                               .grad_scale = scale,
                               .step = step,
                               .round_to = op->block->round_to});
    return pl_ctx_sync(&op->ctx, err);
}
