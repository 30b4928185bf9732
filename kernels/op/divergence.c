#include "kernels/op/divergence.h"
#include "kernels/base/check.h"

static void check_logits(const pl_ctx *ctx, const char *who, const pl_tensor *x, const pl_tensor *w) {
    PL_CHECK(x->rank == 2 && w->rank == 2 && x->dim[1] == w->dim[1] && w->layout == PL_ROWMAJOR,
             "divergence: %s x [%lld, %lld], W [%lld, %lld], layout %d", who, (long long)x->dim[0],
             (long long)x->dim[1], (long long)w->dim[0], (long long)w->dim[1], (int)w->layout);
    PL_CHECK(x->dtype == ctx->be->real, "divergence: %s x is %s", who, pl_dtype_name(x->dtype));
}

pl_tensor pl_divergence(pl_ctx *ctx, pl_divergence_args *a) {
    int64_t n = a->x.dim[0], kl = a->objective == PL_OBJ_KL;
    check_logits(ctx, "student", &a->x, &a->w);
    PL_CHECK(!a->w.grad || a->w.dtype == ctx->be->real, "divergence: a gradient needs W in %s, not %s",
             pl_dtype_name(ctx->be->real), pl_dtype_name(a->w.dtype));
    PL_CHECK(a->weight && (kl ? a->teacher_row != NULL : a->label != NULL), "divergence: no %s",
             !a->weight ? "weights"
             : kl       ? "teacher rows"
                        : "labels");
    if (kl) {
        check_logits(ctx, "teacher", &a->xt, &a->wt);
        PL_CHECK(a->w.dim[0] <= a->wt.dim[0], "divergence: %lld draft ids of %lld", (long long)a->w.dim[0],
                 (long long)a->wt.dim[0]);
    }
    if (!a->loss.data) a->loss = pl_ctx_const_1d(ctx, n);
    if (!a->stat.data) a->stat = pl_ctx_const(ctx, n, 4);
    if (kl && !a->teacher_stat.data) a->teacher_stat = pl_ctx_const(ctx, a->xt.dim[0], 4);
    PL_CHECK(a->loss.dim[0] == n && a->stat.dim[0] == n && (!a->accept.data || a->accept.dim[0] == n),
             "divergence: outputs of %lld, %lld, %lld rows for %lld", (long long)a->loss.dim[0],
             (long long)a->stat.dim[0], (long long)a->accept.dim[0], (long long)n);
    pl_run(ctx, PL_OP_DIVERGENCE, a, sizeof *a);
    return a->loss;
}
