// The loss of a head's selector (train/task/selected.h), added to the divergence, over the same cells. When scoring,
// acceptance and choices are the selector's in place of the head's own.
#include "kernels/base/arena.h"
#include "train/task/selected.h"
#include "train/task/unroll.h"

typedef struct selector {
    pl_loss  base;
    int32_t *choice; // [cells] pl_selected.choice
    int32_t *t2d;    // [V] draft id of each target id, NULL: equal
} selector;

static double read_factor(const pl_unroll *u, const void *own) {
    (void)own;
    return u->model->head.selector.candidates > 0 ? u->opt.selector_weight : 0;
}

static pl_status create_lists(pl_loss *l, const pl_unroll *u, pl_err *err) {
    selector *s = (selector *)l;
    s->choice = pl_calloc((size_t)u->rows.kind->most(&u->rows), sizeof *s->choice);
    if (!s->choice) return pl_fail(err, PL_E_MEMORY, "training: out of memory");
    return pl_loss_draft_ids(&s->t2d, u, err);
}

static void destroy_lists(pl_loss *l) {
    pl_free(((selector *)l)->choice);
    pl_free(((selector *)l)->t2d);
}

// Sets each cell's choice; a cell without one gets weight 0.
static void set_choices(selector *s, const pl_unroll *u) {
    const pl_rows *r = &u->rows;
    for (int64_t c = 0; c < r->cells; c++) {
        int32_t id = r->weight[c] > 0 && r->teacher_row[c] >= 0 ? u->pack.argmax[r->teacher_row[c]] : -1;
        s->choice[c] = id >= 0 && s->t2d ? s->t2d[id] : id;
        s->base.weight[c] = s->choice[c] >= 0 ? r->weight[c] : 0;
    }
}

// Returns the overlap with the target of the distribution that the list is taken from: the head's, or its exact rows'.
static pl_tensor find_overlap(pl_ctx *ctx, pl_pass *p, const pl_selected *s) {
    const pl_head *h = s->head;
    if (!h->exact.data || h->selector.law != PL_HF_LAW_FULL) return p->accept;
    pl_divergence_args a = pl_loss_objective(p->u);
    a.x = s->read.x;
    a.w = h->exact;
    a.xt = s->last_hidden;
    a.teacher_row = s->teacher_row;
    a.weight = p->u->losses[0]->weight;
    a.accept = pl_ctx_const_1d(ctx, s->read.x.dim[0]);
    pl_divergence(ctx, &a);
    a.accept.data = pl_ctx_read(ctx, &a.accept);
    return a.accept;
}

// Scores the selector's choices and acceptance. taught: pl_selected_teach has run.
static void score_choices(pl_ctx *ctx, pl_pass *p, const pl_selected *s, bool taught) {
    pl_rows  *r = &p->u->rows;
    pl_tensor score = pl_selected_scores(ctx, s, s->own), whole = find_overlap(ctx, p, s);
    score.data = pl_ctx_read(ctx, &score);
    if (!p->accept.data || !whole.data || !score.data || !taught || ctx->measuring) return;
    for (int64_t c = 0; c < r->cells; c++)
        if (r->teacher_row[c] >= 0 && r->argmax[c] >= 0)
            r->accepted[c] = (float)pl_selected_accept(s, &score, c, pl_real_at(&whole, c), &r->argmax[c]);
}

static void build_loss(pl_ctx *ctx, pl_loss *l, pl_pass *p) {
    selector        *own = (selector *)l;
    const pl_unroll *u = p->u;
    const pl_rows   *r = &u->rows;
    pl_head_rows     read = {.x = p->x, .token = r->before, .levels = r->depths, .blocks = &p->blocks};
    read.embed = u->model->embed;
    pl_selected        s = {.head = &u->model->head,
                            .read = read,
                            .rows = p->out,
                            .choice = own->choice,
                            .last_hidden = p->last_hidden,
                            .wt = u->wt,
                            .stat = p->teacher_stat,
                            .teacher_row = r->teacher_row,
                            .cap = u->opt.teacher_cap,
                            .scored = !p->learn};
    pl_divergence_args d = pl_loss_objective(u);
    bool               taught = false;
    d.objective = u->opt.selector_objective;
    if (!ctx->measuring) set_choices(own, u);
    bool listed = pl_selected_list(ctx, &s);
    if (!p->learn || d.objective != PL_OBJ_HARD_CE) taught = pl_selected_teach(ctx, &s);
    if (!p->learn) score_choices(ctx, p, &s, taught);
    for (int64_t c = 0; c < r->cells && listed; c++)
        if (!pl_selected_counts(&s, c)) l->weight[c] = 0;
    pl_tensor loss = pl_selected_loss(ctx, &s, &d, l->weight);
    loss.data = pl_ctx_read(ctx, &loss);
    if (!loss.data || !listed) return;
    for (int64_t c = 0; c < r->cells; c++) {
        l->value[c] = pl_real_at(&loss, c);
        l->share[c] = own->choice[c] >= 0 && pl_selected_has(&s, c);
    }
    if (p->learn && u->opt.pace > 0) pl_rows_pace(r, l->weight, l->value, u->opt.pace);
    for (int64_t c = 0; c < r->cells; c++)
        l->weight[c] = (float)(l->factor * (double)l->weight[c]);
}

const pl_loss_kind pl_loss_selector = {.name = "selector_loss",
                                       .share = "candidate_recall",
                                       .reads = PL_LOSS_READS_X,
                                       .scored = true,
                                       .size = sizeof(selector),
                                       .factor = read_factor,
                                       .create = create_lists,
                                       .destroy = destroy_lists,
                                       .build = build_loss};
