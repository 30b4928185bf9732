#include "kernels/op/divergence.h"
#include "kernels/base/check.h"

static const char *const names[PL_OBJECTIVES] = {
    [PL_OBJ_KL] = "kl",       [PL_OBJ_SOFT_CE] = "ce",        [PL_OBJ_HARD_CE] = "hard-ce",
    [PL_OBJ_TV] = "tv",       [PL_OBJ_TVDPP] = "tvd++",       [PL_OBJ_REVERSE_KL] = "reverse-kl",
    [PL_OBJ_JS] = "js",       [PL_OBJ_LK_ALPHA] = "lk-alpha", [PL_OBJ_LK_LAMBDA] = "lk-lambda",
    [PL_OBJ_LABEL] = "label",
};

const char *pl_objective_name(int objective) {
    return objective < PL_OBJECTIVES ? names[objective] : NULL;
}

static void check_logits(const pl_ctx *ctx, const char *who, const pl_tensor *x, const pl_tensor *w) {
    PL_CHECK(x->rank == 2 && w->rank == 2 && x->dim[1] == w->dim[1] && w->layout == PL_ROWMAJOR,
             "divergence: %s x [%lld, %lld], W [%lld, %lld], layout %d", who, (long long)x->dim[0],
             (long long)x->dim[1], (long long)w->dim[0], (long long)w->dim[1], (int)w->layout);
    PL_CHECK(x->dtype == ctx->be->real, "divergence: %s x is %s", who, pl_dtype_name(x->dtype));
}

// Monotone in the rows, so that the measured maximum has room for fewer.
static pl_tensor room_for_logits(pl_ctx *ctx, const pl_divergence_args *a, bool taught) {
    int64_t tiles = (a->w.dim[0] + PL_DIV_TILE - 1) / PL_DIV_TILE;
    int64_t rows = a->x.dim[0] + (taught ? a->xt.dim[0] : 0);
    int64_t most = (int64_t)(a->keep / pl_dtype_size(ctx->be->real)), all = tiles * rows * PL_DIV_TILE;
    return pl_ctx_const_1d(ctx, all < most ? all : most);
}

// Returns true if an output or the objective needs the teacher's distribution over all ids. An overlap is summed
// together with that of acceptance.
static bool needs_whole(const pl_divergence_args *a) {
    return a->whole || a->unmasked || a->accept.data || a->teacher_argmax || a->objective == PL_OBJ_TV ||
           a->objective == PL_OBJ_TVDPP || a->objective == PL_OBJ_JS || a->objective == PL_OBJ_LK_ALPHA ||
           a->objective == PL_OBJ_LK_LAMBDA;
}

pl_tensor pl_divergence(pl_ctx *ctx, pl_divergence_args *a) {
    int64_t n = a->x.dim[0];
    PL_CHECK(a->objective < PL_OBJECTIVES, "divergence: objective %d", (int)a->objective);
    bool taught = a->objective != PL_OBJ_LABEL;
    check_logits(ctx, "student", &a->x, &a->w);
    PL_CHECK(!a->w.grad || a->w.dtype == ctx->be->real, "divergence: a gradient needs W in %s, not %s",
             pl_dtype_name(ctx->be->real), pl_dtype_name(a->w.dtype));
    PL_CHECK(a->weight && (taught ? a->teacher_row != NULL : a->label != NULL), "divergence: no %s",
             !a->weight ? "weights"
             : taught   ? "teacher rows"
                        : "labels");
    PL_CHECK(a->objective != PL_OBJ_JS || (a->js_beta > 0 && a->js_beta < 1), "divergence: js_beta %g", a->js_beta);
    PL_CHECK(a->objective != PL_OBJ_LK_LAMBDA || a->lk_decay > 0, "divergence: lk_decay %g", a->lk_decay);
    if (taught) {
        check_logits(ctx, "teacher", &a->xt, &a->wt);
        // A float of teacher_stat holds an id exactly.
        PL_CHECK(a->w.dim[0] <= a->wt.dim[0] && a->w.dim[0] < 1 << 24, "divergence: %lld draft ids of %lld",
                 (long long)a->w.dim[0], (long long)a->wt.dim[0]);
    }
    a->whole = needs_whole(a);
    a->settled = a->settled && pl_ctx_recording(ctx) && (a->x.grad || a->w.grad);
    if (!a->loss.data) a->loss = pl_ctx_const_1d(ctx, n);
    if (!a->stat.data) a->stat = pl_ctx_const(ctx, n, 4);
    if (taught && !a->teacher_stat.data) a->teacher_stat = pl_ctx_const(ctx, a->xt.dim[0], 4);
    if (a->keep > 0 && ctx->be->keeps_logits && pl_ctx_recording(ctx) && (a->x.grad || a->w.grad))
        a->kept = room_for_logits(ctx, a, taught);
    PL_CHECK(a->loss.dim[0] == n && a->stat.dim[0] == n && (!a->accept.data || a->accept.dim[0] == n),
             "divergence: outputs of %lld, %lld, %lld rows for %lld", (long long)a->loss.dim[0],
             (long long)a->stat.dim[0], (long long)a->accept.dim[0], (long long)n);
    pl_run(ctx, PL_OP_DIVERGENCE, a, sizeof *a);
    return a->loss;
}
