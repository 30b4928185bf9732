#include "tests/kernels/ranks.h"

#include "kernels/base/arena.h"
#include "kernels/base/rng.h"

float ranks_value(int rank, int64_t i) {
    uint64_t bits = pl_rng_u64(pl_rng_make(7, PL_STREAM_TEST, (uint64_t)rank), (uint64_t)i);
    return (float)((int64_t)bits >> 32) * 0x1p-30f;
}

float ranks_tree(int from, int n, int64_t i) {
    if (n == 1) return ranks_value(from, i);
    int left = 1;
    while (2 * left < n)
        left *= 2;
    return ranks_tree(from, left, i) + ranks_tree(from + left, n - left, i);
}

static pl_status sum(pl_comm *c, pl_ctx *ctx, float *host, void *x, int64_t n, pl_err *err) {
    size_t bytes = (size_t)n * sizeof *host;
    for (int64_t i = 0; i < n; i++)
        host[i] = ranks_value(pl_comm_rank(c), i);
    PL_TRY(pl_memory_write(ctx->be->memory, x, host, bytes, err));
    PL_TRY(pl_comm_sum(c, ctx, x, n, err));
    PL_TRY(pl_memory_read(ctx->be->memory, host, x, bytes, err));
    for (int64_t i = 0; i<n; i += n> 4000 ? 997 : 1)
        EXPECT(host[i] == ranks_tree(0, pl_comm_ranks(c), i));
    if (n > 0) EXPECT(host[n - 1] == ranks_tree(0, pl_comm_ranks(c), n - 1));
    return PL_OK;
}

pl_status ranks_sum(pl_comm *c, pl_ctx *ctx, int64_t n, pl_err *err) {
    size_t           bytes = (size_t)n * sizeof(float);
    const pl_memory *m = ctx->be->memory;
    float           *host = pl_malloc(bytes + sizeof *host);
    void            *x = pl_memory_create(m, PL_LOCAL, bytes + 1, err);
    EXPECT(host && x);
    pl_status st = sum(c, ctx, host, x, n, err);
    pl_memory_destroy(m, PL_LOCAL, x, bytes + 1);
    pl_free(host);
    return st;
}
