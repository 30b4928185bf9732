#include "train/loop/optim.h"

#include "kernels/base/arena.h"
#include "kernels/base/check.h"
#include "kernels/op/adamw.h"

#include <math.h>
#include <string.h>

enum { DOUBLES = 4096 }; // most doubles of a sum over ranks

static bool is_sharded(const pl_param_block *b) {
    return b->shard.ranks > 1;
}

static void *element(const pl_param_block *b, void *block, int64_t at) {
    return (uint8_t *)block + (size_t)at * pl_dtype_size(b->real);
}

// Updates the held part of [from, to).
static void update_range(pl_ctx *ctx, pl_param_block *b, int64_t from, int64_t to, pl_adamw_args a) {
    if (from < b->first) from = b->first;
    if (to > b->first + b->held) to = b->first + b->held;
    if (to <= from) return;
    a.w = element(b, b->w, from - b->first);
    a.m = element(b, b->m, from - b->first);
    a.v = element(b, b->v, from - b->first);
    a.work = element(b, b->work, from);
    a.grad = element(b, b->grad, from);
    a.work16 = b->work16 ? b->work16 + from : NULL;
    a.n = to - from;
    pl_adamw(ctx, &a);
}

static void update_all(pl_ctx *ctx, pl_param_block *b, pl_adamw_args a) {
    update_range(ctx, b, 0, b->n_decayed, a);
    a.decay = 0;
    update_range(ctx, b, b->n_decayed, b->n, a);
}

// Returns the sum of squares of a whole block; of a sharded one the sums of the chunks held here.
static double *sum_squares(pl_ctx *ctx, const pl_param_block *b) {
    double       *sum = pl_ctx_bytes(ctx, sizeof *sum * (size_t)(1 + (is_sharded(b) ? pl_sumsq_chunks(b->held) : 0)));
    pl_sumsq_args a = {.x = element(b, b->grad, b->first), .n = b->held, .out = sum};
    if (is_sharded(b)) a.chunks = sum;
    pl_sumsq(ctx, &a);
    return sum;
}

static void measure_step(pl_ctx *ctx, void *arg) {
    pl_optim *op = arg;
    sum_squares(ctx, op->block);
    update_all(ctx, op->block, (pl_adamw_args){.step = 1, .round_to = op->block->round_to});
}

pl_status pl_optim_init(pl_optim *op, const pl_backend *be, pl_pool *pool, pl_param_block *block,
                        const pl_optim_options *o, pl_err *err) {
    *op = (pl_optim){.block = block, .o = *o};
    PL_TRY(pl_ctx_init(&op->ctx, be, pool));
    if (is_sharded(block)) {
        op->chunks = pl_calloc((size_t)pl_sumsq_chunks(block->n), sizeof *op->chunks);
        if (!op->chunks) return pl_fail(err, PL_E_MEMORY, "training: out of memory");
    }
    return pl_ctx_measure(&op->ctx, measure_step, op, err);
}

void pl_optim_fini(pl_optim *op) {
    pl_ctx_fini(&op->ctx);
    pl_free(op->chunks);
    op->chunks = NULL;
}

// Sums all ranks' chunks; a rank adds 0 for chunks of others, which changes no bit of a sum of squares.
static pl_status sum_chunks(pl_optim *op, const double *mine, double *sum, pl_err *err) {
    const pl_param_block *b = op->block;
    int64_t               chunks = pl_sumsq_chunks(b->n);
    memset(op->chunks, 0, (size_t)chunks * sizeof *op->chunks);
    if (b->held > 0)
        memcpy(op->chunks + b->first / PL_SUMSQ_CHUNK, mine, (size_t)pl_sumsq_chunks(b->held) * sizeof *mine);
    for (int64_t at = 0; at < chunks; at += DOUBLES)
        PL_TRY(pl_comm_sum_doubles(op->o.comm, op->chunks + at, (int)(chunks - at < DOUBLES ? chunks - at : DOUBLES),
                                   err));
    *sum = pl_sumsq_tree(op->chunks, chunks);
    return PL_OK;
}

pl_status pl_optim_norm(pl_optim *op, double grad_scale, double *size, pl_err *err) {
    pl_ctx_begin(&op->ctx);
    double *mine = sum_squares(&op->ctx, op->block), sum;
    PL_TRY(pl_ctx_sync(&op->ctx, err));
    if (is_sharded(op->block))
        PL_TRY(sum_chunks(op, mine, &sum, err));
    else
        sum = *mine;
    *size = sqrt(sum) * grad_scale;
    return PL_OK;
}

// Sends each rank's updated piece to all.
static pl_status send_piece(pl_optim *op, pl_err *err) {
    pl_param_block *b = op->block;
    size_t          each = pl_dtype_size(b->real);
    if (!is_sharded(b)) return pl_ctx_sync(&op->ctx, err);
    PL_TRY(pl_comm_gather_pieces(op->o.comm, &op->ctx, b->work, (size_t)b->n * each, (size_t)b->piece * each, err));
    if (!b->work16) return PL_OK;
    each = sizeof *b->work16;
    return pl_comm_gather_pieces(op->o.comm, &op->ctx, b->work16, (size_t)b->n * each, (size_t)b->piece * each, err);
}

pl_status pl_optim_update(pl_optim *op, double lr, double grad_scale, double size, int64_t step, pl_err *err) {
    const pl_optim_options *o = &op->o;
    double                  scale = o->clip > 0 && size > o->clip ? grad_scale * (o->clip / size) : grad_scale;
    update_all(&op->ctx, op->block,
               (pl_adamw_args){.lr = lr,
                               .beta1 = o->beta1,
                               .beta2 = o->beta2,
                               .eps = o->eps,
                               .decay = o->decay,
                               .grad_scale = scale,
                               .step = step,
                               .round_to = op->block->round_to});
    return send_piece(op, err);
}
