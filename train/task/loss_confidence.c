// Trains the confidence of a head (infer/head/markov.c): cross-entropy of its confidence in a draft with the draft's
// probability of acceptance, a constant in the gradient.
#include "kernels/op/rowloss.h"
#include "train/task/unroll.h"

typedef struct confidence {
    pl_loss   base;
    pl_tensor loss; // [cells]
} confidence;

static double read_factor(const pl_unroll *u, const void *own) {
    const pl_head *h = &u->model->head;
    (void)own;
    return h->kind->sequence && pl_hf_head_find(&h->spec, "confidence") ? u->opt.confidence_weight : 0;
}

static void build_loss(pl_ctx *ctx, pl_loss *l, pl_pass *p) {
    const pl_head *h = &p->u->model->head;
    const pl_rows *r = &p->u->rows;
    pl_head_rows   read = {.x = p->x, .token = r->before, .levels = r->depths};
    ((confidence *)l)->loss = pl_classify(ctx, &(pl_classify_args){.z = h->kind->sequence->confidence(ctx, h, &read),
                                                                   .y = r->accepted,
                                                                   .weight = l->weight,
                                                                   .kind = PL_CLASSIFY_BCE});
}

static void read_values(pl_ctx *ctx, pl_loss *l, const pl_pass *p) {
    pl_loss_read(ctx, l, ((confidence *)l)->loss, 0, p->u->rows.cells);
}

const pl_loss_kind pl_loss_confidence = {.name = "confidence_loss",
                                         .reads = PL_LOSS_READS_X | PL_LOSS_READS_ACCEPT,
                                         .scored = true,
                                         .size = sizeof(confidence),
                                         .factor = read_factor,
                                         .build = build_loss,
                                         .read = read_values};
