#include "kernels/op/adamw.h"
#include "kernels/base/check.h"

void pl_adamw(pl_ctx *ctx, const pl_adamw_args *a) {
    PL_CHECK(a->n >= 0 && a->step >= 1, "adamw: n %lld step %lld", (long long)a->n, (long long)a->step);
    PL_CHECK(a->round_to == PL_BF16 || a->round_to == PL_F32, "adamw: working copy in %s", pl_dtype_name(a->round_to));
    PL_CHECK(!a->work16 || a->round_to == PL_BF16, "adamw: a copy in bf16 of values in %s", pl_dtype_name(a->round_to));
    pl_run(ctx, PL_OP_ADAMW, a, sizeof *a);
}

void pl_sumsq(pl_ctx *ctx, const pl_sumsq_args *a) {
    PL_CHECK(a->n >= 0 && (a->out || a->chunks), "sumsq: n %lld", (long long)a->n);
    pl_run(ctx, PL_OP_SUMSQ, a, sizeof *a);
}

// Neighbours first, then neighbours of neighbours: chunk i meets chunk i ^ 1, i ^ 2, i ^ 4, ...
double pl_sumsq_tree(double *sum, int64_t chunks) {
    for (int64_t step = 1; step < chunks; step *= 2)
        for (int64_t c = 0; c + step < chunks; c += 2 * step)
            sum[c] += sum[c + step];
    return chunks ? sum[0] : 0.0;
}
