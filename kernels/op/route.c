#include "kernels/op/route.h"
#include "kernels/base/check.h"

// Returns the most spans that the chosen clusters can form: adjacent clusters share a span, so at most every other one
// begins one.
static int most_spans(int64_t rows, int64_t clusters, int64_t k) {
    int64_t apart = (clusters + 1) / 2, chosen = rows * (k < clusters ? k : clusters);
    return (int)(chosen < apart ? chosen : apart);
}

static size_t bytes_of(int groups, int most) {
    size_t spans = pl_size_mul((size_t)groups, (size_t)most, sizeof(pl_span));
    return spans + (size_t)groups * sizeof(int32_t);
}

pl_spans pl_route(pl_ctx *ctx, pl_tensor score, const int64_t *offset, const int *row, int groups, int k) {
    PL_CHECK(score.rank == 2 && score.dtype == ctx->be->real && score.dim[1] > 0 && k >= 1 && groups >= 0,
             "route: score %s [%lld, %lld], k %d, %d groups", pl_dtype_name(score.dtype), (long long)score.dim[0],
             (long long)score.dim[1], k, groups);
    for (int g = 0; g < groups && !ctx->measuring; g++)
        PL_CHECK(row[g] < row[g + 1] && row[g + 1] <= score.dim[0], "route: group %d has rows %d to %d of %lld", g,
                 row[g], row[g + 1], (long long)score.dim[0]);
    pl_route_args a = {.score = score, .offset = offset, .row = row, .groups = groups, .k = k};
    a.most = most_spans(score.dim[0], score.dim[1], k);
    a.span = pl_arena_alloc(&ctx->frame, bytes_of(groups, a.most));
    a.held = (int32_t *)(a.span + (size_t)groups * (size_t)a.most);
    pl_run(ctx, PL_OP_ROUTE, &a, sizeof a);
    return (pl_spans){.span = a.span, .held = a.held, .groups = groups, .most = a.most};
}

// One copy: held lies directly after the spans.
static pl_spans read_into(pl_ctx *ctx, pl_spans s, pl_span *to) {
    pl_ctx_download(ctx, to, s.span, bytes_of(s.groups, s.most));
    s.span = to;
    s.held = (const int32_t *)(to + (size_t)s.groups * (size_t)s.most);
    return s;
}

pl_spans pl_route_read(pl_ctx *ctx, pl_spans s) {
    if (s.held && ctx->be->memory) s = read_into(ctx, s, pl_ctx_bytes(ctx, bytes_of(s.groups, s.most)));
    if (!pl_ctx_wait(ctx)) s.span = NULL;
    return s;
}

int64_t pl_route_rows(pl_ctx *ctx, pl_spans s) {
    pl_span *to = pl_malloc(bytes_of(s.groups, s.most));
    int64_t  rows = 0;
    if (to && s.held) s = read_into(ctx, s, to);
    if (to && s.groups > 0 && pl_ctx_wait(ctx)) rows = pl_spans_rows(s.span, s.held ? s.held[0] : s.most);
    pl_free(to);
    return rows;
}

int pl_route_spans(const int64_t *offset, int64_t clusters, const uint8_t *chosen, pl_span *span) {
    int n = 0;
    for (int64_t c = 0; c < clusters; c++) {
        int64_t rows = offset[c + 1] - offset[c];
        if (!chosen[c] || rows == 0) continue;
        if (n > 0 && span[n - 1].first + span[n - 1].count == offset[c])
            span[n - 1].count += (int32_t)rows;
        else
            span[n++] = (pl_span){.first = (int32_t)offset[c], .count = (int32_t)rows};
    }
    return n;
}
