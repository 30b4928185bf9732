#include "kernels/op/divergence.h"
#include "kernels/ref.h"
#include <tgmath.h>

// Rows one at a time, whole logit rows in scratch: z [Vd] of the student, t [V] of its teacher row (KL).
typedef struct rows {
    pl_real *z, *t;
} rows;

static rows take_rows(pl_ctx *ctx, const pl_divergence_args *a) {
    rows out = {.z = pl_arena_alloc(&ctx->scratch, (size_t)a->w.dim[0] * sizeof(pl_real))};
    if (a->objective == PL_OBJ_KL) out.t = pl_arena_alloc(&ctx->scratch, (size_t)a->wt.dim[0] * sizeof(pl_real));
    return out;
}

static bool takes_part(const pl_divergence_args *a, int64_t i) {
    return a->weight[i] != 0 && (a->objective == PL_OBJ_KL ? a->teacher_row[i] : a->label[i]) >= 0;
}

static int64_t target_id(const pl_divergence_args *a, int64_t j) {
    return a->d2t ? a->d2t[j] : j;
}

static void logits(pl_real *z, const pl_tensor *x, int64_t row, const pl_tensor *w) {
    const pl_real *v = (const pl_real *)x->data + row * x->dim[1];
    for (int64_t j = 0; j < w->dim[0]; j++) {
        z[j] = 0;
        for (int64_t k = 0; k < w->dim[1]; k++)
            z[j] += v[k] * pl_ref_weight(w, j, k);
    }
}

static int64_t argmax(const pl_real *z, int64_t n) {
    int64_t best = 0;
    for (int64_t j = 1; j < n; j++)
        if (z[j] > z[best]) best = j;
    return best;
}

// Max, log-sum-exp over all ids, log-sum-exp over the draft ids.
static void teacher_stats(const pl_divergence_args *a, const pl_real *t, pl_real *stat) {
    int64_t V = a->wt.dim[0], Vd = a->w.dim[0];
    pl_real max = t[argmax(t, V)], draft_max = t[target_id(a, 0)], sum = 0, draft_sum = 0;
    for (int64_t j = 1; j < Vd; j++)
        draft_max = fmax(draft_max, t[target_id(a, j)]);
    for (int64_t v = 0; v < V; v++)
        sum += exp(t[v] - max);
    for (int64_t j = 0; j < Vd; j++)
        draft_sum += exp(t[target_id(a, j)] - draft_max);
    stat[0] = max;
    stat[1] = max + log(sum);
    stat[2] = draft_max + log(draft_sum);
    stat[3] = 1; // this row has been computed
}

void PL_REF(divergence_fwd)(pl_ctx *ctx, const void *args) {
    const pl_divergence_args *a = args;
    size_t                    mark = pl_arena_mark(&ctx->scratch);
    rows                      r = take_rows(ctx, a);
    int64_t                   Vd = a->w.dim[0], kl = a->objective == PL_OBJ_KL;
    for (int64_t i = 0; i < a->xt.dim[0] && kl && !ctx->measuring; i++) {
        for (int s = 0; s < 4; s++)
            ((pl_real *)a->teacher_stat.data)[i * 4 + s] = 0;
        if (a->teacher_argmax) a->teacher_argmax[i] = -1;
    }
    for (int64_t i = 0; i < a->x.dim[0] && !ctx->measuring; i++) {
        pl_real *stat = (pl_real *)a->stat.data + i * 4, loss = 0, accept = 0;
        bool     active = takes_part(a, i);
        stat[0] = stat[1] = stat[2] = stat[3] = 0;
        if (active) {
            logits(r.z, &a->x, i, &a->w);
            pl_real sum = 0;
            stat[0] = r.z[argmax(r.z, Vd)];
            for (int64_t j = 0; j < Vd; j++)
                sum += exp(r.z[j] - stat[0]);
            stat[1] = stat[0] + log(sum);
        }
        if (active && kl) {
            pl_real *teacher = (pl_real *)a->teacher_stat.data + (int64_t)a->teacher_row[i] * 4;
            logits(r.t, &a->xt, a->teacher_row[i], &a->wt);
            if (teacher[3] == 0) {
                teacher_stats(a, r.t, teacher);
                if (a->teacher_argmax) a->teacher_argmax[a->teacher_row[i]] = (int32_t)argmax(r.t, a->wt.dim[0]);
            }
            for (int64_t j = 0; j < Vd; j++) {
                pl_real t = r.t[target_id(a, j)], log_p = t - teacher[2], log_q = r.z[j] - stat[1];
                loss += exp(log_p) * (log_p - log_q);
                accept += exp(fmin(t - teacher[1], log_q));
            }
        } else if (active) {
            loss = stat[1] - r.z[a->label[i]];
            accept = exp(-loss);
        }
        ((pl_real *)a->loss.data)[i] = loss;
        if (a->accept.data) ((pl_real *)a->accept.data)[i] = accept;
        if (a->student_argmax) a->student_argmax[i] = active ? (int32_t)argmax(r.z, Vd) : -1;
    }
    pl_arena_release(&ctx->scratch, mark);
}

void PL_REF(divergence_bwd)(pl_ctx *ctx, const void *args) {
    const pl_divergence_args *a = args;
    size_t                    mark = pl_arena_mark(&ctx->scratch);
    rows                      r = take_rows(ctx, a);
    int64_t                   Vd = a->w.dim[0], d = a->w.dim[1], kl = a->objective == PL_OBJ_KL;
    for (int64_t i = 0; i < a->x.dim[0] && !ctx->measuring; i++) {
        if (!takes_part(a, i)) continue;
        pl_real        lse = ((const pl_real *)a->stat.data)[i * 4 + 1], lse_t = 0;
        const pl_real *x = (const pl_real *)a->x.data + i * d;
        pl_real       *dx = a->x.grad ? (pl_real *)a->x.grad + i * d : NULL, *dw = a->w.grad;
        logits(r.z, &a->x, i, &a->w);
        if (kl) {
            logits(r.t, &a->xt, a->teacher_row[i], &a->wt);
            lse_t = ((const pl_real *)a->teacher_stat.data)[(int64_t)a->teacher_row[i] * 4 + 2];
        }
        for (int64_t j = 0; j < Vd; j++) {
            pl_real p = kl ? exp(r.t[target_id(a, j)] - lse_t) : (pl_real)(j == a->label[i]);
            pl_real dz = (pl_real)a->weight[i] * (exp(r.z[j] - lse) - p);
            for (int64_t k = 0; k < d; k++) {
                if (dx) dx[k] += dz * pl_ref_weight(&a->w, j, k);
                if (dw) dw[j * d + k] += dz * x[k];
            }
        }
    }
    pl_arena_release(&ctx->scratch, mark);
}
