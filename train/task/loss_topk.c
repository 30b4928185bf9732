// HASS's top-K distillation (Zhang et al. 2024, arXiv 2408.15766, section 3.1), a part of the divergence's figure:
//
//   L_i = - sum over j in the K most probable tokens of row i's teacher of p_j log q_j
//
// p: the teacher's distribution over its whole vocabulary; q: the drafter's. A trimmed head takes those of the K that
// are in its vocabulary. The loss is composed of existing ops: with c the most probable token, P = sum p_j and z the
// drafter's logits
//   L_i = P (- log q_c) + sum_j p_j (z_c - z_j)
// a cross-entropy with c (kernels/op/divergence.h: label), which needs no teacher, and products with K listed rows.
// Cost: the head's products once more, and one of the teacher's.
#include "kernels/base/arena.h"
#include "kernels/op/divergence.h"
#include "kernels/op/elementwise.h"
#include "kernels/op/gatherdot.h"
#include "kernels/op/linear.h"
#include "kernels/op/rowloss.h"
#include "kernels/op/topk.h"
#include "train/task/unroll.h"

#include <math.h>
#include <string.h>

enum { ROWS = 64 }; // of the teacher whose logits over the whole vocabulary are in memory at once

typedef struct topk {
    pl_loss   base;
    int32_t  *t2d; // [V] draft id of each target id, -1: none; NULL: equal
    int       k;
    // For the current pass: the two parts of L_i, [cells], and their weights.
    pl_tensor one, rest;
    float    *one_weight, *rest_weight;
} topk;

static double read_factor(const pl_unroll *u, const void *own) {
    (void)own;
    return u->opt.top_k > 0 ? u->opt.token_weight : 0;
}

static pl_status create_lists(pl_loss *l, const pl_unroll *u, pl_err *err) {
    ((topk *)l)->k = u->opt.top_k;
    return pl_loss_draft_ids(&((topk *)l)->t2d, u, err);
}

static void destroy_lists(pl_loss *l) {
    pl_free(((topk *)l)->t2d);
}

// The most probable tokens of the teachers that cells refer to, and their logits [n, K], and the log-sum-exp of all
// logits [n].
typedef struct teacher_list {
    int32_t *number; // [T] each row's place, -1: not referred to
    int32_t *row;    // [n]
    int64_t  n;
    int32_t *id;
    float   *value, *lse;
} teacher_list;

// Lists the teachers of cells with a weight, in order; all rows on a measuring context.
static void list_rows(pl_ctx *ctx, const pl_loss *l, const pl_rows *r, teacher_list *t, int64_t T) {
    for (int64_t row = 0; row < T && !ctx->measuring; row++)
        t->number[row] = -1;
    for (int64_t c = 0; c < r->cells && !ctx->measuring; c++)
        if (l->weight[c] > 0 && r->teacher_row[c] >= 0) t->number[r->teacher_row[c]] = 0;
    if (ctx->measuring) t->n = T;
    for (int64_t row = 0; row < T && !ctx->measuring; row++) {
        if (t->number[row] < 0) continue;
        t->row[t->n] = (int32_t)row;
        t->number[row] = (int32_t)t->n++;
    }
}

static teacher_list list_teacher(pl_ctx *ctx, const topk *t, const pl_pass *p) {
    double       cap = p->u->opt.teacher_cap;
    int64_t      T = p->last_hidden.dim[0], K = t->k;
    bool         before = ctx->no_grad;
    teacher_list l = {.number = pl_ctx_bytes(ctx, (size_t)T * sizeof *l.number),
                      .row = pl_ctx_bytes(ctx, (size_t)T * sizeof *l.row),
                      .id = pl_ctx_bytes(ctx, (size_t)(T * K) * sizeof *l.id),
                      .value = pl_ctx_bytes(ctx, (size_t)(T * K) * sizeof *l.value),
                      .lse = pl_ctx_bytes(ctx, (size_t)T * sizeof *l.lse)};
    list_rows(ctx, &t->base, &p->u->rows, &l, T);
    ctx->no_grad = true;
    for (int64_t at = 0; at < l.n; at += ROWS) {
        size_t    mark = pl_arena_mark(&ctx->frame);
        pl_tensor some = pl_gather(ctx, p->last_hidden, l.row + at, l.n - at < ROWS ? l.n - at : ROWS);
        pl_tensor z = pl_linear(ctx, some, p->u->wt);
        if (cap > 0) pl_softcap(ctx, z, cap);
        pl_topk(ctx,
                &(pl_topk_args){.x = z, .k = t->k, .id = l.id + at * K, .value = l.value + at * K, .lse = l.lse + at});
        pl_arena_release(&ctx->frame, mark);
    }
    ctx->no_grad = before;
    return l;
}

// Sets the list of the r-th teacher in draft ids, the most probable first (an id that is not drafted gives way to that
// one, with factor 0), the factor of each entry's logit, and P. Returns false if no entry is drafted.
static bool set_row(const topk *t, const teacher_list *l, int64_t r, int32_t *id, float *y, float *share) {
    double sum = 0, others = 0;
    int    best = -1;
    for (int k = 0; k < t->k; k++) {
        int32_t token = l->id[r * t->k + k];
        id[k] = token >= 0 && t->t2d ? t->t2d[token] : token;
        y[k] = id[k] >= 0 ? (float)exp((double)l->value[r * t->k + k] - (double)l->lse[r]) : 0;
        sum += (double)y[k];
        if (id[k] >= 0 && best < 0) best = k;
    }
    *share = (float)sum;
    if (best < 0) return false;
    for (int k = 0; k < t->k; k++) {
        if (id[k] < 0) id[k] = id[best];
        if (k != best) others += (double)y[k];
    }
    y[best] = (float)-others; // p_c - P, by sum_j p_j (z_c - z_j)
    int32_t first = id[0];
    float   of = y[0];
    id[0] = id[best], y[0] = y[best];
    if (best > 0) id[best] = first, y[best] = of;
    return true;
}

static void build_loss(pl_ctx *ctx, pl_loss *base, pl_pass *p) {
    topk            *t = (topk *)base;
    const pl_unroll *u = p->u;
    const pl_rows   *r = &u->rows;
    int64_t          n = r->cells, K = t->k;
    size_t           cells = (size_t)(n * K), each = (size_t)n;
    int32_t         *id = pl_ctx_bytes(ctx, cells * sizeof *id), *label = pl_ctx_bytes(ctx, each * sizeof *label);
    float           *y = pl_ctx_bytes(ctx, cells * sizeof *y);
    teacher_list     l = list_teacher(ctx, t, p);
    bool             there = pl_ctx_wait(ctx);
    t->one_weight = pl_ctx_bytes(ctx, each * sizeof *t->one_weight);
    t->rest_weight = pl_ctx_bytes(ctx, each * sizeof *t->rest_weight);
    for (int64_t i = 0; i < n && there; i++) {
        double weight = u->opt.top_weight * (double)base->weight[i];
        float  share = 0;
        bool   counts = base->weight[i] > 0 && r->teacher_row[i] >= 0 &&
                      set_row(t, &l, l.number[r->teacher_row[i]], id + i * K, y + i * K, &share);
        if (!counts) {
            memset(id + i * K, 0, (size_t)K * sizeof *id);
            memset(y + i * K, 0, (size_t)K * sizeof *y);
        }
        label[i] = counts ? id[i * K] : -1;
        t->rest_weight[i] = counts ? (float)weight : 0;
        t->one_weight[i] = counts ? (float)(weight * (double)share) : 0;
    }
    t->rest = pl_classify(ctx, &(pl_classify_args){.z = pl_gatherdot(ctx, p->out, p->w, id, K),
                                                   .y = y,
                                                   .weight = t->rest_weight,
                                                   .kind = PL_CLASSIFY_SOFTMAX});
    t->one = pl_divergence(ctx, &(pl_divergence_args){.objective = PL_OBJ_LABEL,
                                                      .x = p->out,
                                                      .w = p->w,
                                                      .label = label,
                                                      .weight = t->one_weight,
                                                      .settled = true,
                                                      .keep = pl_loss_objective(u).keep});
    t->one.data = pl_ctx_read(ctx, &t->one);
    t->rest.data = pl_ctx_read(ctx, &t->rest);
}

static void read_values(pl_ctx *ctx, pl_loss *l, const pl_pass *p) {
    const topk *t = (const topk *)l;
    (void)ctx;
    for (int64_t c = 0; c < p->u->rows.cells && t->one.data && t->rest.data; c++) {
        double one = (double)t->one_weight[c] * pl_real_at(&t->one, c);
        double sum = one + (double)t->rest_weight[c] * pl_real_at(&t->rest, c);
        l->value[c] = l->weight[c] > 0 ? sum / (double)l->weight[c] : 0;
    }
}

const pl_loss_kind pl_loss_topk = {.size = sizeof(topk),
                                   .factor = read_factor,
                                   .create = create_lists,
                                   .destroy = destroy_lists,
                                   .build = build_loss,
                                   .read = read_values};
