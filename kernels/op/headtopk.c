#include "kernels/op/headtopk.h"
#include "kernels/base/check.h"

int64_t pl_spans_rows(const pl_span *span, int n) {
    int64_t rows = 0;
    for (int i = 0; i < n; i++)
        rows += span[i].count;
    return rows;
}

void pl_headtopk(pl_ctx *ctx, const pl_headtopk_args *a) {
    PL_CHECK(a->x.rank == 2 && a->w.rank == 2 && a->x.dtype == ctx->be->real && a->x.dim[1] == a->w.dim[1],
             "headtopk: x %s [%lld, %lld], w [%lld, %lld]", pl_dtype_name(a->x.dtype), (long long)a->x.dim[0],
             (long long)a->x.dim[1], (long long)a->w.dim[0], (long long)a->w.dim[1]);
    PL_CHECK(a->k >= 1 && a->k <= PL_HEADTOPK_MAX && a->id, "headtopk: k %d", a->k);
    PL_CHECK(a->span || !a->held, "headtopk: no spans are held");
    int64_t end = 0;
    for (int i = 0; a->span && !a->held && i < a->n_spans; i++) {
        PL_CHECK(a->span[i].first >= end && a->span[i].count >= 0,
                 "headtopk: span %d begins at %d, the last ended at %lld", i, a->span[i].first, (long long)end);
        end = (int64_t)a->span[i].first + a->span[i].count;
    }
    PL_CHECK(end <= a->w.dim[0], "headtopk: spans end at row %lld of %lld", (long long)end, (long long)a->w.dim[0]);
    pl_run(ctx, PL_OP_HEADTOPK, a, sizeof *a);
}
