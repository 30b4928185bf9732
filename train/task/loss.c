#include "train/task/loss.h"

#include "kernels/base/arena.h"
#include "train/task/unroll.h"

#define PL_LOSS(name) extern const pl_loss_kind pl_loss_##name;
#include "train/task/losses.def"
#undef PL_LOSS
#define PL_LOSS(name) &pl_loss_##name,
static const pl_loss_kind *const kinds[] = {
#include "train/task/losses.def"
};
#undef PL_LOSS
enum { KINDS = sizeof kinds / sizeof *kinds };
_Static_assert((int)KINDS <= PL_LOSSES_MAX, "lines of losses.def");

const pl_loss_kind *pl_loss_at(int i) {
    return i < KINDS ? kinds[i] : NULL;
}

void pl_loss_weigh(pl_loss *l, const pl_rows *r) {
    for (int64_t c = 0; c < r->cells; c++)
        l->weight[c] = (float)(l->factor * (double)r->weight[c]);
}

void pl_loss_read(pl_ctx *ctx, pl_loss *l, pl_tensor t, int64_t c, int64_t n) {
    t.data = pl_ctx_read(ctx, &t);
    for (int64_t i = 0; i < n && t.data; i++)
        l->value[c + i] = pl_real_at(&t, i);
}

pl_divergence_args pl_loss_objective(const pl_unroll *u) {
    return (pl_divergence_args){.objective = u->opt.objective,
                                .unmasked = u->opt.unmasked,
                                .js_beta = u->opt.js_beta,
                                .lk_decay = u->opt.lk_decay,
                                .w = u->model->head.out,
                                .wt = u->wt,
                                .teacher_cap = u->opt.teacher_cap,
                                .settled = u->opt.pace == 0, // else the losses change the weights
                                .keep = u->opt.recompute ? 0 : PL_DIV_KEEP,
                                .d2t = u->d2t};
}

pl_status pl_loss_draft_ids(int32_t **t2d, const pl_unroll *u, pl_err *err) {
    const pl_head *h = &u->model->head;
    int64_t        vocab = u->wt.dim[0];
    *t2d = NULL;
    if (!h->d2t) return PL_OK;
    *t2d = pl_malloc((size_t)vocab * sizeof **t2d);
    if (!*t2d) return pl_fail(err, PL_E_MEMORY, "training: out of memory");
    for (int64_t v = 0; v < vocab; v++)
        (*t2d)[v] = -1;
    for (int64_t v = 0; v < h->vocab; v++)
        (*t2d)[h->d2t[v]] = (int32_t)v;
    return PL_OK;
}
