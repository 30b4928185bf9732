// D(p(. | x_0..x_{t+1+k}), q_k(. | row t)), D an objective of kernels/op/divergence.h: KL(p || q) unless another is
// chosen. With a trimmed head p is restricted to the draft ids and rows whose choice is one count (all_rows: all), or
// (unmasked) p is the target's own distribution and all rows count. One call takes all cells of a head, so each tile
// of the teacher is computed once for it and no [T, V] ever exists.
#include "train/task/unroll.h"

typedef struct divergence {
    pl_loss   base;
    int       parts;               // calls of the op: 1, or one for each draft that has a head of its own
    pl_tensor loss[PL_MAX_UNROLL]; // [cells of the part]; data NULL: its values are already read
} divergence;

static double read_factor(const pl_unroll *u, const void *own) {
    (void)own;
    return u->opt.token_weight;
}

static void read_parts(pl_ctx *ctx, divergence *d) {
    for (int i = 0; i < d->parts; i++) {
        int64_t n = d->loss[i].dim[0];
        if (d->loss[i].data) pl_loss_read(ctx, &d->base, d->loss[i], i * n, n);
        d->loss[i].data = NULL;
    }
}

// D-PACE: weights the cells by their losses, for every loss of the drafter.
static void pace_weights(pl_ctx *ctx, divergence *d, pl_unroll *u) {
    pl_rows *r = &u->rows;
    read_parts(ctx, d);
    if (ctx->measuring || ctx->err.status != PL_OK) return;
    pl_rows_pace(r, r->weight, d->base.value, u->opt.pace);
    for (int i = 0; i < u->n_losses; i++)
        pl_loss_weigh(u->losses[i], r);
}

// Adds part i, n cells, to the tape.
static void add_part(pl_ctx *ctx, divergence *d, pl_pass *p, int i, int64_t n) {
    const pl_unroll   *u = p->u;
    const pl_rows     *r = &u->rows;
    pl_divergence_args a = pl_loss_objective(u);
    a.x = pl_tensor_slice(&p->out, i * n, n);
    a.w = i > 0 ? pl_backbone_head(u->model, i)->out : p->w;
    a.xt = p->last_hidden;
    a.teacher_row = r->teacher_row + i * n;
    a.weight = d->base.weight + i * n;
    a.accept = p->accept;
    if (a.accept.data) a.accept = pl_tensor_slice(&p->accept, i * n, n);
    a.whole = u->model->head.selector.candidates > 0; // its own loss reads teacher_stat
    a.student_argmax = r->argmax + i * n;
    a.keep /= (size_t)d->parts;
    d->loss[i] = pl_divergence(ctx, &a);
    p->teacher_stat = a.teacher_stat;
}

static void build_loss(pl_ctx *ctx, pl_loss *l, pl_pass *p) {
    divergence *d = (divergence *)l;
    pl_unroll  *u = p->u;
    pl_rows    *r = &u->rows;
    if (!p->learn || pl_unroll_reads(u, PL_LOSS_READS_ACCEPT)) p->accept = pl_ctx_const_1d(ctx, r->cells);
    d->parts = u->model->more ? r->depths : 1;
    for (int i = 0; i < d->parts; i++)
        add_part(ctx, d, p, i, r->cells / d->parts);
    if (p->learn && u->opt.pace > 0) pace_weights(ctx, d, u);
    if (p->accept.data) p->accept.data = pl_ctx_read(ctx, &p->accept);
    for (int64_t c = 0; c < r->cells && p->accept.data; c++)
        r->accepted[c] = (float)pl_real_at(&p->accept, c);
}

static void read_values(pl_ctx *ctx, pl_loss *l, const pl_pass *p) {
    (void)p;
    read_parts(ctx, (divergence *)l);
}

const pl_loss_kind pl_loss_divergence = {.name = "loss",
                                         .scored = true,
                                         .size = sizeof(divergence),
                                         .factor = read_factor,
                                         .build = build_loss,
                                         .read = read_values};
