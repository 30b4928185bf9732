// D(p(. | x_0..x_{t+1+k}), q_k(. | row t)), D an objective of kernels/op/divergence.h: KL(p || q) unless another is
// chosen. With a trimmed head p is restricted to the draft ids and rows whose choice is a draft id count (all_rows: all),
// or (unmasked) p is the target's own distribution and all rows count. One call takes all cells, so each tile of the
// teacher is computed once and no [T, V] ever exists.
#include "train/task/unroll.h"

typedef struct divergence {
    pl_loss   base;
    pl_tensor loss; // [cells]; data NULL: its values are already read
} divergence;

static double read_factor(const pl_unroll *u, const void *own) {
    (void)own;
    return u->opt.token_weight;
}

// D-PACE: weights the cells by their losses, for every loss of the drafter.
static void pace_weights(pl_ctx *ctx, divergence *d, pl_unroll *u) {
    pl_rows  *r = &u->rows;
    pl_tensor loss = d->loss;
    loss.data = pl_ctx_read(ctx, &loss);
    d->loss.data = NULL;
    if (!loss.data) return;
    for (int64_t c = 0; c < r->cells; c++)
        d->base.value[c] = pl_real_at(&loss, c);
    pl_rows_pace(r, r->weight, d->base.value, u->opt.pace);
    for (int i = 0; i < u->n_losses; i++)
        pl_loss_weigh(u->losses[i], r);
}

static void build_loss(pl_ctx *ctx, pl_loss *l, pl_pass *p) {
    divergence        *d = (divergence *)l;
    pl_unroll         *u = p->u;
    pl_rows           *r = &u->rows;
    pl_divergence_args a = pl_loss_objective(u);
    if (!p->learn || pl_unroll_reads(u, PL_LOSS_READS_ACCEPT)) p->accept = pl_ctx_const_1d(ctx, r->cells);
    a.x = p->out;
    a.w = p->w;
    a.xt = p->last_hidden;
    a.teacher_row = r->teacher_row;
    a.weight = l->weight;
    a.accept = p->accept;
    a.whole = u->model->head.selector.candidates > 0; // its own loss reads teacher_stat
    a.student_argmax = r->argmax;
    d->loss = pl_divergence(ctx, &a);
    p->teacher_stat = a.teacher_stat;
    if (p->learn && u->opt.pace > 0) pace_weights(ctx, d, u);
    if (p->accept.data) p->accept.data = pl_ctx_read(ctx, &p->accept);
    for (int64_t c = 0; c < r->cells && p->accept.data; c++)
        r->accepted[c] = (float)pl_real_at(&p->accept, c);
}

static void read_values(pl_ctx *ctx, pl_loss *l, const pl_pass *p) {
    divergence *d = (divergence *)l;
    if (d->loss.data) pl_loss_read(ctx, l, d->loss, 0, p->u->rows.cells);
}

const pl_loss_kind pl_loss_divergence = {.name = "loss",
                                         .scored = true,
                                         .size = sizeof(divergence),
                                         .factor = read_factor,
                                         .build = build_loss,
                                         .read = read_values};
