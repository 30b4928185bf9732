#include "infer/head/dynaspec.h"

#include "kernels/base/check.h"
#include "kernels/op/embed.h"
#include "kernels/op/route.h"
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

// Rows of x that share a support, as route takes them.
static int take_groups(pl_ctx *ctx, const pl_head_rows *r, int m, int **row) {
    int groups = 0;
    *row = pl_ctx_bytes(ctx, ((size_t)m + 1) * sizeof **row);
    if (ctx->measuring) return m; // the most
    for (int i = 0; i < m; i++)
        if (i == 0 || (r->group && r->group[i] != r->group[i - 1])) (*row)[groups++] = i;
    (*row)[groups] = m;
    return groups;
}

static int64_t *take_offsets(pl_ctx *ctx, const struct pl_head_routed *d) {
    size_t   bytes = ((size_t)d->router.clusters + 1) * sizeof(int64_t);
    int64_t *offset = pl_ctx_bytes(ctx, bytes);
    if (!ctx->measuring) memcpy(offset, d->offset, bytes);
    return offset;
}

static pl_head_support support(pl_ctx *ctx, const pl_head *h, const pl_head_rows *r) {
    const struct pl_head_routed *d = h->routed;
    int64_t                      m = pl_tensor_rows(&r->hidden);
    pl_tensor                    embed = pl_embed(ctx, r->embed, r->token, m);
    pl_tensor                    score = pl_router_scores(ctx, &d->router, embed, r->hidden, r->x);
    int                         *row, groups = take_groups(ctx, r, (int)m, &row);
    int                          k = (int)pl_routed_budget(&h->spec, r->level);
    return (pl_head_support){.row = row, .spans = pl_route(ctx, score, take_offsets(ctx, d), row, groups, k)};
}

static bool foresees(const pl_head *h) {
    return h->routed->router.kind == PL_ROUTER_MLP;
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
                                       .foresees = foresees,
                                       .support = support,
                                       .step_bytes = step_bytes};
