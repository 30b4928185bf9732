// Concatenates columns that ranks hold parts of: each rank's part is exchanged as a whole, then arranged in rows by the
// backend's concat.
#include "kernels/base/check.h"
#include "kernels/comm/impl.h"
#include "kernels/op/elementwise.h"

typedef struct gathering {
    pl_tensor part[PL_RANKS_MAX]; // each rank's part, on ranks that receive it
    size_t    bytes[PL_RANKS_MAX];
    int       to;
} gathering;

static bool sends_to(const gathering *g, int from, int to) {
    return from != to && (g->to == PL_TO_ALL || g->to == to);
}

static pl_status exchange_parts(pl_comm *c, pl_ctx *ctx, const gathering *g, pl_err *err) {
    size_t most = PL_COMM_ROUND / (size_t)c->ranks, longest = 0;
    for (int r = 0; r < c->ranks; r++)
        if (g->bytes[r] > longest) longest = g->bytes[r];
    for (size_t at = 0; at < longest; at += most) {
        pl_comm_swap s = {0};
        for (int r = 0; r < c->ranks; r++) {
            if (sends_to(g, c->rank, r)) {
                s.out[r] = (const uint8_t *)g->part[c->rank].data + at;
                s.out_bytes[r] = pl_comm_cut(at, g->bytes[c->rank], most);
                c->sent += s.out_bytes[r];
            }
            if (sends_to(g, r, c->rank)) {
                s.in[r] = (uint8_t *)g->part[r].data + at;
                s.in_bytes[r] = pl_comm_cut(at, g->bytes[r], most);
            }
        }
        PL_TRY(pl_comm_travel(c, ctx, &s, err));
    }
    return PL_OK;
}

// Concatenates parts of columns; a single row needs no call, several parts are joined by halves.
static pl_tensor side_by_side(pl_ctx *ctx, const pl_tensor *part, int n) {
    if (n == 1) return part[0];
    return pl_concat(ctx, side_by_side(ctx, part, n / 2), side_by_side(ctx, part + n / 2, n - n / 2));
}

pl_tensor pl_comm_columns(pl_comm *c, pl_ctx *ctx, pl_tensor x, const int64_t *width, int to) {
    gathering g = {.to = to};
    int64_t   rows = x.dim[0], all = 0, at = 0;
    size_t    real = pl_dtype_size(ctx->be->real);
    for (int r = 0; r < c->ranks; r++) {
        g.bytes[r] = pl_size_mul((size_t)rows, (size_t)width[r], real);
        all += width[r];
    }
    PL_CHECK(c->transport && x.dim[1] == width[c->rank], "rank %d brings %lld columns of %lld", c->rank,
             (long long)x.dim[1], (long long)width[c->rank]);
    bool      mine = to == PL_TO_ALL || to == c->rank;
    pl_tensor y = mine && rows > 1 ? (pl_tensor){0} : pl_ctx_const(ctx, rows, all);
    for (int r = 0; r < c->ranks; r++) {
        if (r == c->rank)
            g.part[r] = x;
        else if (mine && rows > 1)
            g.part[r] = pl_ctx_const(ctx, rows, width[r]);
        else
            g.part[r] = pl_tensor_2d((uint8_t *)y.data + (size_t)at * real, ctx->be->real, rows, width[r]);
        if (r == c->rank && mine && rows == 1)
            pl_ctx_copy(ctx, (uint8_t *)y.data + (size_t)at * real, x.data, g.bytes[r]);
        at += width[r];
    }
    if (!ctx->measuring && ctx->err.status == PL_OK) {
        pl_err    err = {0};
        pl_status st = exchange_parts(c, ctx, &g, &err);
        if (st != PL_OK) pl_ctx_fail(ctx, st, "%s", err.msg);
    }
    return mine && rows > 1 ? side_by_side(ctx, g.part, c->ranks) : y;
}

uint64_t pl_comm_sent(const pl_comm *c) {
    return c ? c->sent : 0;
}
