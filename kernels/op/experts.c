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
