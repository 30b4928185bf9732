#include "kernels/op/experts.h"
#include "kernels/base/check.h"

pl_expert_pairs pl_experts(pl_ctx *ctx, pl_tensor score, int k, bool renormalised) {
    PL_CHECK(score.rank == 2 && score.dtype == ctx->be->real && k >= 1 && k <= score.dim[1],
             "experts: score %s [%lld, %lld], k %d", pl_dtype_name(score.dtype), (long long)score.dim[0],
             (long long)score.dim[1], k);
    size_t          pairs = pl_size_mul((size_t)score.dim[0], (size_t)k, sizeof(int32_t));
    pl_experts_args a = {.score = score,
                         .weight = pl_ctx_const(ctx, score.dim[0], k),
                         .renormalised = renormalised,
                         .row = pl_arena_alloc(&ctx->frame, pairs),
                         .slot = pl_arena_alloc(&ctx->frame, pairs),
                         .first = pl_arena_alloc(&ctx->frame, (size_t)(score.dim[1] + 1) * sizeof(int32_t))};
    pl_run(ctx, PL_OP_EXPERTS, &a, sizeof a);
    return (pl_expert_pairs){.weight = a.weight, .row = a.row, .slot = a.slot, .first = a.first};
}

pl_tensor pl_grouped(pl_ctx *ctx, pl_tensor x, const pl_tensor *w, const pl_tensor *b, const int32_t *first,
                     int64_t n) {
    PL_CHECK(n >= 1 && x.rank == 2 && x.dtype == ctx->be->real && x.layout == PL_ROWMAJOR,
             "grouped: %lld weights, x of rank %d, %s", (long long)n, x.rank, pl_dtype_name(x.dtype));
    for (int64_t e = 0; e < n; e++) {
        PL_CHECK(w[e].rank == 2 && w[e].layout == PL_PANELS && w[e].dtype == w->dtype && w[e].code == w->code &&
                     w[e].dim[0] == w->dim[0] && w[e].dim[1] == x.dim[1],
                 "grouped: weight %lld %s [%lld, %lld] for x [%lld, %lld]", (long long)e, pl_dtype_name(w[e].dtype),
                 (long long)w[e].dim[0], (long long)w[e].dim[1], (long long)x.dim[0], (long long)x.dim[1]);
        PL_CHECK(!b || (b[e].dim[0] == w->dim[0] && b[e].dtype == PL_F32), "grouped: bias %lld %s [%lld]", (long long)e,
                 pl_dtype_name(b[e].dtype), (long long)b[e].dim[0]);
    }
    pl_grouped_args a = {.x = x, .w = w, .b = b, .first = first, .n = n, .y = pl_ctx_const(ctx, x.dim[0], w->dim[0])};
    pl_run(ctx, PL_OP_GROUPED, &a, sizeof a);
    return a.y;
}
