#include "kernels/op/draw.h"
#include "kernels/base/check.h"

static void check_row(const pl_draw_args *a, int i) {
    const pl_draw_row *r = &a->row[i];
    int                before = 0;
    PL_CHECK(r->at >= 0 && r->at < a->x.dim[0], "draw %d: row %d of %lld", i, r->at, (long long)a->x.dim[0]);
    PL_CHECK(r->u >= 0 && r->u < 1 && r->temperature >= 0 && r->penalty > 0 && (r->temperature == 0 || r->top_p > 0),
             "draw %d: u %g, temperature %g, penalty %g, top-p %g", i, r->u, r->temperature, (double)r->penalty,
             r->top_p);
    if (r->penalty == 1) return;
    PL_CHECK(a->said && r->text >= 0 && r->text < a->texts, "draw %d: text %d of %d", i, r->text, a->texts);
    for (int at = i; a->row[at].parent >= 0; at = a->row[at].parent, before++)
        PL_CHECK(
            a->row[at].parent < at && a->row[at].token >= 0 && a->row[at].token < a->x.dim[1] && before < PL_DRAW_PATH,
            "draw %d: row %d has parent %d, token %d, %d after it", i, at, a->row[at].parent, a->row[at].token, before);
}

void pl_draw(pl_ctx *ctx, const pl_draw_args *a) {
    PL_CHECK(a->x.rank == 2 && a->x.dtype == ctx->be->real && a->n >= 0 && a->row && a->id,
             "draw: rank %d, %s, %d rows", a->x.rank, pl_dtype_name(a->x.dtype), a->n);
    for (int i = 0; i < a->n && !ctx->measuring; i++)
        check_row(a, i);
    pl_run(ctx, PL_OP_DRAW, a, sizeof *a);
}
