// EAGLE-1's regression (arXiv 2401.15077): SmoothL1(hidden_{k+1}, f_{t+1+k}), f the target's last hidden after its
// final norm. For backbones that predict hidden states.
#include "kernels/op/rowloss.h"
#include "train/task/unroll.h"

typedef struct feature {
    pl_loss   base;
    pl_tensor loss[PL_MAX_UNROLL]; // of each step
} feature;

static double read_factor(const pl_unroll *u, const void *own) {
    (void)own;
    return u->model->kind->predicts_features ? u->opt.feature_weight : 0;
}

static void build_step(pl_ctx *ctx, pl_loss *l, pl_pass *p, int k, int64_t at, pl_tensor hidden) {
    ((feature *)l)->loss[k] = pl_smoothl1(
        ctx,
        &(pl_smoothl1_args){
            .x = hidden, .t = p->last_hidden, .row = p->u->rows.teacher_row + at, .weight = l->weight + at, .beta = 1});
}

static void read_values(pl_ctx *ctx, pl_loss *l, const pl_pass *p) {
    const pl_rows *r = &p->u->rows;
    int64_t        at = 0;
    for (int k = 0; k < r->depths && r->depth[k].n > 0; at += r->depth[k].n, k++)
        pl_loss_read(ctx, l, ((feature *)l)->loss[k], at, r->depth[k].n);
}

const pl_loss_kind pl_loss_feature = {.name = "feature_loss",
                                      .scored = true,
                                      .size = sizeof(feature),
                                      .factor = read_factor,
                                      .step = build_step,
                                      .read = read_values};
