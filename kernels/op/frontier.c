#include "kernels/op/frontier.h"
#include "kernels/base/check.h"

static void check(const pl_frontier_args *a) {
    int32_t to = 0;
    for (int g = 0; g < a->n_groups; g++) {
        const pl_frontier_group *of = &a->group[g];
        PL_CHECK(of->rows > 0 && of->width > 0 && of->to == to, "frontier: group %d: %d rows to %d rows from %d on", g,
                 of->rows, of->width, of->to);
        PL_CHECK(a->pick || (int64_t)of->rows * a->k <= PL_FRONTIER_MAX, "frontier: %d rows of %d candidates", of->rows,
                 a->k);
        to += of->width;
        for (int32_t i = of->to; a->pick && i < to; i++)
            PL_CHECK(a->pick[i] >= 0 && a->pick[i] < (int64_t)of->rows * a->k, "frontier: candidate %d of %d x %d",
                     a->pick[i], of->rows, a->k);
    }
    PL_CHECK(to == a->n, "frontier: %d rows of %d", to, a->n);
}

static void *of_frame(pl_ctx *ctx, int64_t n, int64_t each, size_t size) {
    return pl_arena_alloc(&ctx->frame, pl_size_mul((size_t)n, (size_t)each, size));
}

void pl_frontier(pl_ctx *ctx, pl_frontier_args *a) {
    PL_CHECK(a->k >= 1 && a->n >= 0 && a->depth >= 0 && a->id && !a->value == !a->lse && (a->at.path || a->depth == 0),
             "frontier: %d candidates each, %d rows, depth %d", a->k, a->n, a->depth);
    if (!ctx->measuring) check(a);
    a->next.token = of_frame(ctx, a->n, 1, sizeof *a->next.token);
    a->next.row = of_frame(ctx, a->n, 1, sizeof *a->next.row);
    a->next.score = of_frame(ctx, a->n, 1, sizeof *a->next.score);
    a->next.path = of_frame(ctx, a->n, a->depth + 1, sizeof *a->next.path);
    a->next.picked = pl_ctx_bytes(ctx, pl_size_mul((size_t)a->n, sizeof *a->next.picked, 1));
    pl_run(ctx, PL_OP_FRONTIER, a, sizeof *a);
}
