// The loss of a head's prediction of acceptance (train/task/acceptance.h).
#include "train/task/acceptance.h"
#include "train/task/unroll.h"

typedef struct acceptance {
    pl_loss   base;
    pl_tensor loss;  // [cells]
    float    *scale; // [cells]
} acceptance;

static double read_factor(const pl_unroll *u, const void *own) {
    (void)own;
    return u->model->head.acceptance ? 1 : 0;
}

static void build_loss(pl_ctx *ctx, pl_loss *base, pl_pass *p) {
    acceptance *l = (acceptance *)base;
    l->loss = pl_acceptance_loss(ctx, &p->u->model->head, p->x, p->u->rows.accepted, base->weight, &l->scale);
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
