#include "infer/head_dynaspec.h"

#include "kernels/base/check.h"
#include "kernels/op/embed.h"
#include "kernels/segments.h"

#include <string.h>

#define OFFSETS "head_cluster_offsets"

int64_t pl_routed_budget(const pl_hf_head *s, int level) {
    int64_t t = level, k = s->k0, least = s->kmin > 0 ? s->kmin : 1;
    if (t == 1 && !s->fixed) k = s->k1;
    if (t >= 2 && !s->fixed) {
        k = s->floored ? s->k1 / (2 * t) : (s->k1 + t) / (2 * t);
        if (k < least) k = least;
    }
    return k < s->clusters ? k : s->clusters;
}

// ---- the table of clusters

void pl_routed_set_offsets(pl_head *h, int64_t *offset) {
    struct pl_head_routed *r = h->routed;
    pl_free(r->offset);
    r->offset = offset;
    pl_segments_place(r->unit, offset, h->spec.clusters);
    r->segments = (pl_segments){.n = h->spec.clusters, .row = offset, .unit = r->unit};
}

pl_status pl_routed_read_offsets(int64_t **offset, const pl_weight_source *src, int64_t clusters, int64_t n,
                                 pl_err *err) {
    const char            *where = pl_weight_source_path(src);
    const pl_weight_entry *e = pl_weight_source_find(src, OFFSETS);
    *offset = NULL;
    if (!e) return pl_fail(err, PL_E_INPUT, "%s: no tensor \"" OFFSETS "\", which a routed head needs", where);
    if (e->dtype != PL_I64 || e->rank != 1 || e->shape[0] != clusters + 1)
        return pl_fail(err, PL_E_INPUT, "%s: tensor \"" OFFSETS "\": expected int64 [%lld]", where,
                       (long long)clusters + 1);
    int64_t *o = pl_malloc(pl_size_mul((size_t)clusters + 1, sizeof *o, 1));
    if (!o) return pl_fail(err, PL_E_MEMORY, "%s: out of memory", where);
    memcpy(o, e->data, ((size_t)clusters + 1) * sizeof *o);
    bool ok = o[0] == 0 && o[clusters] == n;
    for (int64_t c = 0; c < clusters && ok; c++)
        ok = o[c] <= o[c + 1];
    if (!ok) {
        pl_free(o);
        return pl_fail(err, PL_E_INPUT, "%s: tensor \"" OFFSETS "\": does not lead from 0 up to the head's %lld rows",
                       where, (long long)n);
    }
    *offset = o;
    return PL_OK;
}

int pl_routed_spans(const int64_t *offset, int64_t clusters, const uint8_t *chosen, pl_span *span) {
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

// ---- the kind

static pl_status init(pl_head *h, pl_err *err) {
    const pl_hf_head *s = &h->spec;
    pl_router_kind    router;
    if (!pl_router_find(&router, s->router))
        return pl_fail(err, PL_E_INPUT, "head of kind \"dynaspec\": router \"%s\" is not known; known are: mlp, coral",
                       s->router);
    if (s->clusters < 1 || s->clusters > h->vocab)
        return pl_fail(err, PL_E_INPUT, "head of kind \"dynaspec\": clusters %d must lie in 1..%lld, the head's rows",
                       s->clusters, (long long)h->vocab);
    if (s->k0 < 1 || (!s->fixed && s->k1 < 1))
        return pl_fail(err, PL_E_INPUT, "head of kind \"dynaspec\": %s %d: at least 1 cluster must be read",
                       s->k0 < 1 ? "k0" : "k1", s->k0 < 1 ? s->k0 : s->k1);
    if (router == PL_ROUTER_MLP && s->width < 1)
        return pl_fail(err, PL_E_INPUT, "head of kind \"dynaspec\": width %d of the router must be at least 1",
                       s->width);
    if (s->position_aware)
        return pl_fail(err, PL_E_INPUT,
                       "head of kind \"dynaspec\": position_aware is for heads whose rows lie in order of frequency; "
                       "k0, k1 and kmin say what is read at each depth");
    h->routed = pl_calloc(1, sizeof *h->routed);
    if (h->routed) h->routed->unit = pl_calloc((size_t)s->clusters + 1, sizeof *h->routed->unit);
    if (!h->routed || !h->routed->unit) return pl_fail(err, PL_E_MEMORY, "drafter: out of memory");
    h->routed->router = (pl_router){
        .kind = router, .d = h->d, .width = router == PL_ROUTER_MLP ? s->width : h->d, .clusters = s->clusters};
    return PL_OK;
}

static void fini(pl_head *h) {
    if (h->routed) {
        pl_free(h->routed->offset);
        pl_free(h->routed->unit);
    }
    pl_free(h->routed);
    h->routed = NULL;
}

static void params(pl_head *h, pl_params *ps) {
    pl_head_full.params(h, ps);
    ps->p[ps->n - 1].segments = &h->routed->segments;
    pl_router_params(&h->routed->router, ps);
}

static pl_status read_table(pl_head *h, const pl_weight_source *src, pl_err *err) {
    int64_t *offset;
    PL_TRY(pl_routed_read_offsets(&offset, src, h->spec.clusters, h->vocab, err));
    pl_routed_set_offsets(h, offset);
    return PL_OK;
}

static pl_st_source table(const pl_head *h) {
    PL_CHECK(h->routed->offset, "a routed head without clusters");
    return (pl_st_source){
        .name = OFFSETS, .dtype = PL_I64, .rank = 1, .shape = {h->spec.clusters + 1}, .data = h->routed->offset};
}

// ---- the support

typedef struct choice {
    int     *row, *at; // [groups + 1], at most rows + 1
    pl_span *span;     // at most one for each row and each of its clusters
    uint8_t *chosen;   // [clusters]
    int32_t *best;     // [k]
} choice;

static choice room_for(pl_ctx *ctx, int64_t rows, int64_t clusters, int64_t k) {
    size_t m = (size_t)rows, spans = m * (size_t)k;
    return (choice){.row = pl_ctx_bytes(ctx, (m + 1) * sizeof(int)),
                    .at = pl_ctx_bytes(ctx, (m + 1) * sizeof(int)),
                    .span = pl_ctx_bytes(ctx, spans * sizeof(pl_span)),
                    .chosen = pl_ctx_bytes(ctx, (size_t)clusters),
                    .best = pl_ctx_bytes(ctx, (size_t)k * sizeof(int32_t))};
}

static pl_head_support support(pl_ctx *ctx, const pl_head *h, const pl_head_rows *r) {
    const struct pl_head_routed *d = h->routed;
    int64_t                      m = pl_tensor_rows(&r->x), n = d->router.clusters;
    int64_t                      k = pl_routed_budget(&h->spec, r->level);
    pl_tensor                    embed = pl_embed(ctx, r->embed, r->token, m);
    pl_tensor                    score = pl_router_scores(ctx, &d->router, embed, r->hidden, r->x);
    choice                       c = room_for(ctx, m, n, k);
    const float                 *z = pl_ctx_read(ctx, &score);
    if (!z) return (pl_head_support){0};
    int groups = 0, spans = 0;
    c.row[0] = c.at[0] = 0;
    for (int64_t row = 0; row < m;) {
        int64_t end = row;
        memset(c.chosen, 0, (size_t)n);
        for (; end < m && (!r->group || r->group[end] == r->group[row]); end++)
            if (!pl_router_choose(z + end * n, n, k, c.best, c.chosen)) {
                pl_ctx_fail(ctx, PL_E_INPUT, "router: NaN at row %lld; check the drafter's weights", (long long)end);
                return (pl_head_support){0};
            }
        spans += pl_routed_spans(d->offset, n, c.chosen, c.span + spans);
        row = end;
        c.row[++groups] = (int)row;
        c.at[groups] = spans;
    }
    return (pl_head_support){.groups = groups, .row = c.row, .at = c.at, .span = c.span};
}

// One row's: its clusters at their mean size, and the router.
static double step_bytes(const pl_head *h, int level) {
    double share = (double)pl_routed_budget(&h->spec, level) / (double)h->spec.clusters;
    return (double)h->vocab * share * (double)h->d * (double)pl_dtype_size(h->out.dtype) +
           pl_router_bytes(&h->routed->router, h->out.dtype);
}

static pl_tensor project(pl_ctx *ctx, const pl_head *h, pl_tensor x, pl_tensor y) {
    return pl_head_full.project(ctx, h, x, y);
}

const pl_head_kind pl_head_dynaspec = {.name = "dynaspec",
                                       .reads_inputs = true,
                                       .init = init,
                                       .fini = fini,
                                       .params = params,
                                       .table_name = OFFSETS,
                                       .read_table = read_table,
                                       .table = table,
                                       .project = project,
                                       .support = support,
                                       .step_bytes = step_bytes};
