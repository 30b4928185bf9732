// Trains a head's prediction of acceptance (infer/head/stopping.h) as SpecDec++ does (Huang et al. 2024, arXiv
// 2405.19715, section 3): a weighted cross-entropy with each draft's probability A of acceptance,
//
//   L = - A log a - 6 (1 - A) log (1 - a)
//
// since a rejection that was not foreseen costs more than a draft that ended early; a is that much too low. A is a
// constant, and so is what a reads: all other gradients are those of a drafter without it.
#include "infer/head/stopping.h"
#include "kernels/op/elementwise.h"
#include "kernels/op/rowloss.h"
#include "train/task/unroll.h"

#define REJECTED 6.0 // the paper's weight of rejections

typedef struct acceptance {
    pl_loss   base;
    pl_tensor loss;  // [cells] cross-entropy with y
    float    *scale; // [cells] L is so many times that
} acceptance;

static double read_factor(const pl_unroll *u, const void *own) {
    (void)own;
    return u->model->head.acceptance ? 1 : 0;
}

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

static void build_loss(pl_ctx *ctx, pl_loss *base, pl_pass *p) {
    acceptance    *l = (acceptance *)base;
    const pl_rows *r = &p->u->rows;
    size_t         cells = (size_t)r->cells;
    float         *y = pl_ctx_bytes(ctx, cells * sizeof *y), *weight = pl_ctx_bytes(ctx, cells * sizeof *weight);
    l->scale = pl_ctx_bytes(ctx, cells * sizeof *l->scale);
    for (size_t c = 0; c < cells && !ctx->measuring; c++) {
        double accepted = (double)r->accepted[c], scale = accepted + REJECTED * (1 - accepted);
        l->scale[c] = (float)scale;
        y[c] = (float)(accepted / scale);
        weight[c] = (float)((double)base->weight[c] * scale);
    }
    pl_tensor z = pl_stopping_logits(ctx, &p->u->model->head, copy_constant(ctx, p->x));
    l->loss = pl_classify(ctx, &(pl_classify_args){.z = z, .y = y, .weight = weight, .kind = PL_CLASSIFY_BCE});
}

static void read_values(pl_ctx *ctx, pl_loss *base, const pl_pass *p) {
    const acceptance *l = (const acceptance *)base;
    pl_loss_read(ctx, base, l->loss, 0, p->u->rows.cells);
    for (int64_t c = 0; c < p->u->rows.cells && !ctx->measuring; c++)
        base->value[c] *= (double)l->scale[c];
}

const pl_loss_kind pl_loss_acceptance = {.name = "acceptance_loss",
                                         .reads = PL_LOSS_READS_X | PL_LOSS_READS_ACCEPT,
                                         .scored = true,
                                         .size = sizeof(acceptance),
                                         .factor = read_factor,
                                         .build = build_loss,
                                         .read = read_values};
