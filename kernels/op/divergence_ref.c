#include "kernels/op/divergence.h"
#include "kernels/ref.h"
#include <tgmath.h>

// One row's two distributions, whole: every objective is a function of them that returns the loss and, if dz is
// requested, the gradient.
typedef struct dists {
    int64_t        n;             // draft ids
    const pl_real *log_p, *log_q; // label: log_p NULL
    pl_real        mass;          // of p
    int64_t        choice;        // draft id of the label or of the teacher's choice; -1: outside
    pl_real        beta, decay;
} dists;

typedef pl_real (*objective_fn)(const dists *r, pl_real *dz);

static void kl_gradient(const dists *r, pl_real *dz) {
    for (int64_t j = 0; j < r->n && dz; j++)
        dz[j] = r->mass * exp(r->log_q[j]) - exp(r->log_p[j]);
}

static pl_real kl(const dists *r, pl_real *dz) {
    pl_real loss = 0;
    for (int64_t j = 0; j < r->n; j++)
        loss += exp(r->log_p[j]) * (r->log_p[j] - r->log_q[j]);
    kl_gradient(r, dz);
    return loss;
}

static pl_real soft_ce(const dists *r, pl_real *dz) {
    pl_real loss = 0;
    for (int64_t j = 0; j < r->n; j++)
        loss -= exp(r->log_p[j]) * r->log_q[j];
    kl_gradient(r, dz);
    return loss;
}

static pl_real one_id(const dists *r, pl_real *dz) {
    for (int64_t j = 0; j < r->n && dz; j++)
        dz[j] = r->choice < 0 ? 0 : exp(r->log_q[j]) - (pl_real)(j == r->choice);
    return r->choice < 0 ? 0 : -r->log_q[r->choice];
}

// Overlap of p and q, and total variation's gradient times `scale`, added to dz times `keep`.
typedef struct overlap {
    pl_real alpha, tv, above, below; // above: q's mass where p > q; below: its rest
} overlap;

static overlap measure_overlap(const dists *r) {
    overlap o = {0};
    for (int64_t j = 0; j < r->n; j++) {
        pl_real p = exp(r->log_p[j]), q = exp(r->log_q[j]);
        o.alpha += fmin(p, q);
        o.tv += fmax(q - p, 0);
        *(p > q ? &o.above : &o.below) += q;
    }
    return o;
}

static void tv_gradient(const dists *r, const overlap *o, pl_real scale, pl_real keep, pl_real *dz) {
    for (int64_t j = 0; j < r->n && dz; j++) {
        pl_real q = exp(r->log_q[j]);
        dz[j] = (keep != 0 ? keep * dz[j] : 0) + scale * q * (exp(r->log_p[j]) > q ? -o->below : o->above);
    }
}

static pl_real tv(const dists *r, pl_real *dz) {
    overlap o = measure_overlap(r);
    tv_gradient(r, &o, 1, 0, dz);
    return o.tv;
}

static pl_real tvdpp(const dists *r, pl_real *dz) {
    overlap o = measure_overlap(r);
    tv_gradient(r, &o, 1 / sqrt(fmax(o.above * o.below, (pl_real)PL_DIV_MIN_VARIANCE)), 0, dz);
    return o.tv;
}

static pl_real lk_alpha(const dists *r, pl_real *dz) {
    overlap o = measure_overlap(r);
    pl_real alpha = fmax(o.alpha, (pl_real)PL_DIV_MIN_OVERLAP);
    tv_gradient(r, &o, 1 / alpha, 0, dz);
    return o.tv < 0.5 ? -log1p(-o.tv) : -log(alpha);
}

static pl_real lk_lambda(const dists *r, pl_real *dz) {
    overlap o = measure_overlap(r);
    pl_real lambda = exp(-r->decay * o.alpha), loss = lambda * kl(r, dz);
    tv_gradient(r, &o, 1 - lambda, lambda, dz);
    return loss + (1 - lambda) * o.tv;
}

static pl_real reverse_kl(const dists *r, pl_real *dz) {
    pl_real loss = 0;
    for (int64_t j = 0; j < r->n; j++)
        loss += exp(r->log_q[j]) * (r->log_q[j] - r->log_p[j]);
    for (int64_t j = 0; j < r->n && dz; j++)
        dz[j] = exp(r->log_q[j]) * (r->log_q[j] - r->log_p[j] - loss);
    return loss;
}

// log M_j of the mixture, from the larger of its two parts.
static pl_real log_mixture(const dists *r, int64_t j) {
    pl_real a = log(r->beta) + r->log_p[j], b = log1p(-r->beta) + r->log_q[j];
    return fmax(a, b) + log1p(exp(-fabs(a - b)));
}

static pl_real js(const dists *r, pl_real *dz) {
    pl_real from_p = 0, from_q = 0;
    for (int64_t j = 0; j < r->n; j++) {
        pl_real m = log_mixture(r, j);
        from_p += exp(r->log_p[j]) * (r->log_p[j] - m);
        from_q += exp(r->log_q[j]) * (r->log_q[j] - m);
    }
    for (int64_t j = 0; j < r->n && dz; j++)
        dz[j] = (1 - r->beta) * exp(r->log_q[j]) * (r->log_q[j] - log_mixture(r, j) - from_q);
    return r->beta * (from_p - (1 - r->mass) * log(r->beta)) + (1 - r->beta) * from_q;
}

static const objective_fn objectives[PL_OBJECTIVES] = {
    [PL_OBJ_KL] = kl,        [PL_OBJ_SOFT_CE] = soft_ce,   [PL_OBJ_HARD_CE] = one_id,
    [PL_OBJ_TV] = tv,        [PL_OBJ_TVDPP] = tvdpp,       [PL_OBJ_REVERSE_KL] = reverse_kl,
    [PL_OBJ_JS] = js,        [PL_OBJ_LK_ALPHA] = lk_alpha, [PL_OBJ_LK_LAMBDA] = lk_lambda,
    [PL_OBJ_LABEL] = one_id,
};

// ---- rows, one at a time ----

// Logit rows in scratch: z [Vd] of the student, then log q; t [V] of its teacher, log_p [Vd].
typedef struct rows {
    pl_real *z, *t, *log_p, *dz;
} rows;

static bool taught(const pl_divergence_args *a) {
    return a->objective != PL_OBJ_LABEL;
}

static pl_real *take(pl_ctx *ctx, int64_t n) {
    return pl_arena_alloc(&ctx->scratch, (size_t)n * sizeof(pl_real));
}

static rows take_rows(pl_ctx *ctx, const pl_divergence_args *a) {
    rows out = {.z = take(ctx, a->w.dim[0]), .dz = take(ctx, a->w.dim[0])};
    if (taught(a)) {
        out.t = take(ctx, a->wt.dim[0]);
        out.log_p = take(ctx, a->w.dim[0]);
    }
    return out;
}

static bool takes_part(const pl_divergence_args *a, int64_t i) {
    return a->weight[i] != 0 && (taught(a) ? a->teacher_row[i] : a->label[i]) >= 0;
}

static int64_t target_id(const pl_divergence_args *a, int64_t j) {
    return a->d2t ? a->d2t[j] : j;
}

static pl_real logit(const pl_tensor *x, int64_t row, const pl_tensor *w, int64_t j) {
    const pl_real *v = (const pl_real *)x->data + row * x->dim[1];
    pl_real        z = 0;
    for (int64_t k = 0; k < w->dim[1]; k++)
        z += v[k] * pl_ref_weight(w, j, k);
    return z;
}

static void logits(pl_real *z, const pl_tensor *x, int64_t row, const pl_tensor *w) {
    for (int64_t j = 0; j < w->dim[0]; j++)
        z[j] = logit(x, row, w, j);
}

static int64_t argmax(const pl_real *z, int64_t n) {
    int64_t best = 0;
    for (int64_t j = 1; j < n; j++)
        if (z[j] > z[best]) best = j;
    return best;
}

static pl_real log_sum_exp(const pl_real *z, int64_t n) {
    pl_real max = z[argmax(z, n)], sum = 0;
    for (int64_t j = 0; j < n; j++)
        sum += exp(z[j] - max);
    return max + log(sum);
}

// Reads the row's logits into scratch, the student's as log q; returns the objective's inputs. stat: the teacher row's,
// all of it written.
static dists read_row(const pl_divergence_args *a, const rows *s, int64_t i, pl_real stat[4]) {
    int64_t Vd = a->w.dim[0];
    dists   r = {.n = Vd,
                 .log_q = s->z,
                 .log_p = s->log_p,
                 .mass = 1,
                 .choice = taught(a) ? 0 : a->label[i],
                 .beta = (pl_real)a->js_beta,
                 .decay = (pl_real)a->lk_decay};
    logits(s->z, &a->x, i, &a->w);
    pl_real lse = log_sum_exp(s->z, Vd);
    for (int64_t j = 0; j < Vd; j++)
        s->z[j] -= lse;
    if (!taught(a)) return r;
    for (int64_t j = 0; j < a->wt.dim[0]; j++)
        s->t[j] = -INFINITY;
    for (int64_t j = 0; j < (a->whole ? a->wt.dim[0] : Vd); j++) {
        int64_t id = a->whole ? j : target_id(a, j);
        s->t[id] = logit(&a->xt, a->teacher_row[i], &a->wt, id);
    }
    pl_real cap = (pl_real)a->teacher_cap;
    for (int64_t j = 0; j < a->wt.dim[0] && cap > 0; j++)
        if (s->t[j] > -INFINITY) s->t[j] = cap * tanh(s->t[j] / cap);
    for (int64_t j = 0; j < Vd; j++)
        s->log_p[j] = s->t[target_id(a, j)];
    int64_t best = argmax(s->t, a->wt.dim[0]), choice = argmax(s->log_p, Vd);
    bool    outside = target_id(a, choice) != best;
    stat[0] = s->t[best];
    stat[1] = log_sum_exp(s->t, a->wt.dim[0]);
    stat[2] = log_sum_exp(s->log_p, Vd);
    stat[3] = (pl_real)(outside ? -1 - choice : 1 + choice);
    r.choice = a->unmasked && outside ? -1 : choice;
    if (a->unmasked) r.mass = exp(stat[2] - stat[1]);
    for (int64_t j = 0; j < Vd; j++)
        s->log_p[j] -= stat[a->unmasked ? 1 : 2];
    return r;
}

void PL_REF(divergence_fwd)(pl_ctx *ctx, const void *args) {
    const pl_divergence_args *a = args;
    size_t                    mark = pl_arena_mark(&ctx->scratch);
    rows                      s = take_rows(ctx, a);
    for (int64_t i = 0; i < a->xt.dim[0] && taught(a) && !ctx->measuring; i++) {
        for (int k = 0; k < 4; k++)
            ((pl_real *)a->teacher_stat.data)[i * 4 + k] = 0;
        if (a->teacher_argmax) a->teacher_argmax[i] = -1;
    }
    for (int64_t i = 0; i < a->x.dim[0] && !ctx->measuring; i++) {
        pl_real loss = 0, accept = 0;
        int64_t best = -1;
        if (takes_part(a, i)) {
            int64_t teacher = taught(a) ? a->teacher_row[i] : 0;
            pl_real unused[4], *stat = taught(a) ? (pl_real *)a->teacher_stat.data + teacher * 4 : unused;
            dists   r = read_row(a, &s, i, stat);
            loss = objectives[a->objective](&r, NULL);
            best = argmax(s.z, r.n);
            if (taught(a) && a->teacher_argmax) a->teacher_argmax[teacher] = (int32_t)argmax(s.t, a->wt.dim[0]);
            for (int64_t j = 0; j < r.n && taught(a); j++)
                accept += exp(fmin(s.t[target_id(a, j)] - stat[1], s.z[j]));
            if (!taught(a)) accept = exp(-loss);
        }
        ((pl_real *)a->loss.data)[i] = loss;
        if (a->accept.data) ((pl_real *)a->accept.data)[i] = accept;
        if (a->student_argmax) a->student_argmax[i] = (int32_t)best;
    }
    pl_arena_release(&ctx->scratch, mark);
}

void PL_REF(divergence_bwd)(pl_ctx *ctx, const void *args) {
    const pl_divergence_args *a = args;
    size_t                    mark = pl_arena_mark(&ctx->scratch);
    rows                      s = take_rows(ctx, a);
    int64_t                   d = a->w.dim[1];
    for (int64_t i = 0; i < a->x.dim[0] && !ctx->measuring; i++) {
        if (!takes_part(a, i)) continue;
        pl_real        stat[4];
        dists          r = read_row(a, &s, i, stat);
        const pl_real *x = (const pl_real *)a->x.data + i * d;
        pl_real       *dx = a->x.grad ? (pl_real *)a->x.grad + i * d : NULL, *dw = a->w.grad;
        objectives[a->objective](&r, s.dz);
        for (int64_t j = 0; j < r.n; j++) {
            pl_real dz = (pl_real)a->weight[i] * s.dz[j];
            for (int64_t k = 0; k < d; k++) {
                if (dx) dx[k] += dz * pl_ref_weight(&a->w, j, k);
                if (dw) dw[j * d + k] += dz * x[k];
            }
        }
    }
    pl_arena_release(&ctx->scratch, mark);
}
