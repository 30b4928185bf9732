#include "kernels/best.h"
#include "kernels/op/route.h"
#include "kernels/ref.h"
#include <string.h>

// Returns false if a score is NaN, and records the fault.
static bool choose_row(pl_ctx *ctx, const pl_route_args *a, int64_t m, int32_t *best, uint8_t *chosen) {
    int64_t clusters = a->score.dim[1], k = a->k < clusters ? a->k : clusters;
    if (!pl_best_of(&a->score, m * clusters, clusters, k, best)) {
        pl_ctx_fail(ctx, PL_E_INPUT, "router: NaN at row %lld; check the drafter's weights", (long long)m);
        return false;
    }
    for (int64_t i = 0; i < k; i++)
        chosen[best[i]] = 1;
    return true;
}

void PL_REF(route_fwd)(pl_ctx *ctx, const void *args) {
    const pl_route_args *a = args;
    size_t               clusters = (size_t)a->score.dim[1], mark = pl_arena_mark(&ctx->scratch);
    uint8_t             *chosen = pl_arena_alloc(&ctx->scratch, clusters);
    int32_t             *best = pl_arena_alloc(&ctx->scratch, clusters * sizeof *best);
    for (int g = 0; g < a->groups && !ctx->measuring && ctx->err.status == PL_OK; g++) {
        bool chose = true;
        memset(chosen, 0, clusters);
        for (int m = a->row[g]; m < a->row[g + 1] && chose; m++)
            chose = choose_row(ctx, a, m, best, chosen);
        a->held[g] = pl_route_spans(a->offset, (int64_t)clusters, chosen, a->span + (size_t)g * (size_t)a->most);
    }
    pl_arena_release(&ctx->scratch, mark);
}
