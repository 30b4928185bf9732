#include "train/task/topk_loss.h"

#include "kernels/op/classify.h"
#include "kernels/op/divergence.h"
#include "kernels/op/gatherdot.h"
#include "kernels/op/linear.h"
#include "kernels/op/softcap.h"
#include "kernels/op/topk.h"

#include <math.h>
#include <string.h>

enum { ROWS = 64 }; // of the teacher, whose logits over the whole vocabulary are held at once

// What the teacher likes best, [T, K] and [T].
typedef struct liked {
    int32_t *id;
    float   *value, *lse;
} liked;

static liked teacher_list(pl_ctx *ctx, const pl_topk_loss *t, pl_tensor last) {
    int64_t T = last.dim[0], K = t->k;
    bool    before = ctx->no_grad;
    liked   l = {.id = pl_ctx_bytes(ctx, (size_t)(T * K) * sizeof *l.id),
                 .value = pl_ctx_bytes(ctx, (size_t)(T * K) * sizeof *l.value),
                 .lse = pl_ctx_bytes(ctx, (size_t)T * sizeof *l.lse)};
    ctx->no_grad = true;
    for (int64_t at = 0; at < T; at += ROWS) {
        size_t    mark = pl_arena_mark(&ctx->frame);
        pl_tensor some = last;
        some.data = (uint8_t *)some.data + (size_t)(at * some.dim[1]) * pl_dtype_size(some.dtype);
        some.dim[0] = T - at < ROWS ? T - at : ROWS;
        some.grad = NULL;
        pl_tensor z = pl_linear(ctx, some, t->wt);
        if (t->cap > 0) pl_softcap(ctx, z, t->cap);
        pl_topk(ctx,
                &(pl_topk_args){.x = z, .k = t->k, .id = l.id + at * K, .value = l.value + at * K, .lse = l.lse + at});
        pl_arena_release(&ctx->frame, mark);
    }
    ctx->no_grad = before;
    return l;
}

// A row's list in draft ids, the best first (what is not drafted stands for that one and counts nothing), what each
// entry's logit is taken times, and P. False: it has none.
static bool set_row(const pl_topk_loss *t, const liked *l, int64_t r, int32_t *id, float *y, float *share) {
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
    y[best] = (float)-others; // p_c - P: what is left of sum_j p_j (z_c - z_j) at c
    int32_t first = id[0];
    float   of = y[0];
    id[0] = id[best], y[0] = y[best];
    if (best > 0) id[best] = first, y[best] = of;
    return true;
}

void pl_topk_loss_add(pl_ctx *ctx, pl_topk_loss *t, pl_tensor rows, pl_tensor last, const int32_t *teacher_row,
                      const float *row_weight) {
    int64_t  n = rows.dim[0], K = t->k;
    size_t   cells = (size_t)(n * K), each = (size_t)n;
    int32_t *id = pl_ctx_bytes(ctx, cells * sizeof *id), *label = pl_ctx_bytes(ctx, each * sizeof *label);
    float   *y = pl_ctx_bytes(ctx, cells * sizeof *y);
    liked    l = teacher_list(ctx, t, last);
    bool     there = pl_ctx_wait(ctx);
    t->one_weight = pl_ctx_bytes(ctx, each * sizeof *t->one_weight);
    t->rest_weight = pl_ctx_bytes(ctx, each * sizeof *t->rest_weight);
    for (int64_t i = 0; i < n && there; i++) {
        float share = 0;
        bool  counts =
            row_weight[i] > 0 && teacher_row[i] >= 0 && set_row(t, &l, teacher_row[i], id + i * K, y + i * K, &share);
        if (!counts) {
            memset(id + i * K, 0, (size_t)K * sizeof *id);
            memset(y + i * K, 0, (size_t)K * sizeof *y);
        }
        label[i] = counts ? id[i * K] : -1;
        t->rest_weight[i] = counts ? (float)(t->weight * (double)row_weight[i]) : 0;
        t->one_weight[i] = counts ? (float)(t->weight * (double)row_weight[i] * (double)share) : 0;
    }
    t->rest = pl_classify(ctx, &(pl_classify_args){.z = pl_gatherdot(ctx, rows, t->head->out, id, K),
                                                   .y = y,
                                                   .weight = t->rest_weight,
                                                   .kind = PL_CLASSIFY_SOFTMAX});
    t->one = pl_divergence(ctx, &(pl_divergence_args){.objective = PL_OBJ_LABEL,
                                                      .x = rows,
                                                      .w = t->head->out,
                                                      .label = label,
                                                      .weight = t->one_weight,
                                                      .keep = t->keep});
    t->one.data = pl_ctx_read(ctx, &t->one);
    t->rest.data = pl_ctx_read(ctx, &t->rest);
}

double pl_topk_loss_of(const pl_topk_loss *t, int64_t i, float row_weight) {
    if (!(row_weight > 0)) return 0;
    double one = (double)t->one_weight[i] * pl_real_at(&t->one, i);
    return (one + (double)t->rest_weight[i] * pl_real_at(&t->rest, i)) / (double)row_weight;
}
