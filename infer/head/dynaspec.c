#include "infer/head/dynaspec.h"

#include "data/dataset/dataset.h"
#include "infer/head/settings.h"
#include "kernels/base/check.h"
#include "kernels/op/elementwise.h"
#include "kernels/op/route.h"
#include "kernels/segments.h"

#include <math.h>
#include <stdio.h>
#include <string.h>

#define OFFSETS "head_cluster_offsets"

int64_t pl_routed_budget(const pl_dynaspec *s, int level) {
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
    pl_routed *r = pl_routed_of(h);
    pl_free(r->offset);
    r->offset = offset;
    pl_segments_place(r->unit, offset, r->own->clusters);
    r->segments = (pl_segments){.n = r->own->clusters, .row = offset, .unit = r->unit};
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

const pl_key pl_dynaspec_keys[] = {
    {PL_KEY_AS_INT("drafter.head.clusters", pl_dynaspec, clusters), .each = true, .deflt = "256", .min = 1,
     .max = 1 << 22, .help = "dynaspec: clusters of the head's rows", .stages = PL_STAGE_DRAFTER},
    {PL_KEY_AS_ENUM("drafter.head.router", pl_dynaspec, router), .each = true, .deflt = "mlp", .names = pl_router_name,
     .help = "dynaspec: what chooses the clusters: DynaSpec's MLP on the draft step's inputs, or CORAL's on the "
             "layer's output",
     .stages = PL_STAGE_DRAFTER},
    {PL_KEY_AS_INT("drafter.head.width", pl_dynaspec, width), .each = true, .deflt = "128", .min = 1, .max = 1 << 20,
     .help = "dynaspec: hidden units of the router mlp", .stages = PL_STAGE_DRAFTER},
    {PL_KEY_AS_INT("drafter.head.k0", pl_dynaspec, k0), .each = true, .deflt = "0", .min = 0, .max = 1 << 22,
     .help = "dynaspec: clusters read for the first drafted token; 0: a quarter of them, fixed an eighth",
     .stages = PL_STAGE_DRAFTER},
    {PL_KEY_AS_INT("drafter.head.k1", pl_dynaspec, k1), .each = true, .deflt = "0", .min = 0, .max = 1 << 22,
     .help = "dynaspec: clusters read for the second, floor((k1+t)/(2t)) at depth t; 0: half of k0",
     .stages = PL_STAGE_DRAFTER},
    {PL_KEY_AS_INT("drafter.head.kmin", pl_dynaspec, kmin), .each = true, .deflt = "0", .min = 0, .max = 1 << 22,
     .help = "dynaspec: least number of clusters read at any depth; 0: 1", .stages = PL_STAGE_DRAFTER},
    {PL_KEY_AS_BOOL("drafter.head.fixed", pl_dynaspec, fixed), .each = true, .deflt = "false",
     .help = "dynaspec: k0 clusters at every depth", .stages = PL_STAGE_DRAFTER},
    {PL_KEY_AS_BOOL("drafter.head.floored", pl_dynaspec, floored), .each = true, .deflt = "false",
     .help = "dynaspec: floor(k1/(2t)) instead, as the paper's Algorithm 1 has it", .stages = PL_STAGE_DRAFTER},
    {PL_KEY_AS_INT("drafter.head.top", pl_dynaspec, top), .each = true, .unstored = true, .deflt = "10", .min = 1,
     .max = PL_DATASET_MAX_TOP,
     .help = "dynaspec: the router learns to choose the clusters of so many of the full head's best tokens; at most "
             "traces.top",
     .stages = PL_STAGE_DRAFTER},
    PL_KEYS_END(pl_dynaspec)};

static int share_of(int n, int part) {
    return n > part ? n / part : 1;
}

// Fills in settings that a recipe leaves open: the paper's position-aware budget, k0 > k1 and down to 1 cluster, of the
// sizes of recipes/dynaspec-sweep.yaml. Settings that the other ones exclude stay unset.
static void settle(void *own) {
    pl_dynaspec *s = own;
    if (s->k0 == 0) s->k0 = share_of(s->clusters, s->fixed ? 8 : 4);
    if (s->router != PL_ROUTER_MLP) s->width = 0;
    if (s->fixed) {
        s->k1 = s->kmin = 0;
        s->floored = false;
        return;
    }
    if (s->k1 == 0) s->k1 = share_of(s->k0, 2);
    if (s->kmin == 0) s->kmin = 1;
}

static pl_status check_settings(const pl_head *h, const pl_dynaspec *s, pl_err *err) {
    if (s->clusters < 1 || s->clusters > h->vocab)
        return pl_fail(err, PL_E_INPUT, "head of kind \"dynaspec\": clusters %d must lie in 1..%lld, the head's rows",
                       s->clusters, (long long)h->vocab);
    if (s->k0 < 1 || (!s->fixed && s->k1 < 1))
        return pl_fail(err, PL_E_INPUT, "head of kind \"dynaspec\": %s %d: at least 1 cluster must be read",
                       s->k0 < 1 ? "k0" : "k1", s->k0 < 1 ? s->k0 : s->k1);
    if (s->router == PL_ROUTER_MLP && s->width < 1)
        return pl_fail(err, PL_E_INPUT, "head of kind \"dynaspec\": width %d of the router must be at least 1",
                       s->width);
    return PL_OK;
}

static pl_status init(pl_head *h, pl_err *err) {
    const pl_dynaspec *s = h->own;
    PL_TRY(check_settings(h, s, err));
    pl_routed *r = h->state = pl_calloc(1, sizeof *r);
    if (r) r->unit = pl_calloc((size_t)s->clusters + 1, sizeof *r->unit);
    if (!r || !r->unit) return pl_fail(err, PL_E_MEMORY, "drafter: out of memory");
    r->own = s;
    r->router = (pl_router){.kind = (pl_router_kind)s->router,
                            .d = h->d,
                            .width = s->router == PL_ROUTER_MLP ? s->width : h->d,
                            .clusters = s->clusters};
    return PL_OK;
}

static void fini(pl_head *h) {
    pl_routed *r = pl_routed_of(h);
    if (r) {
        pl_free(r->offset);
        pl_free(r->unit);
    }
    pl_free(r);
    h->state = NULL;
}

static void params(pl_head *h, pl_params *ps) {
    pl_routed *r = pl_routed_of(h);
    pl_head_full.params(h, ps);
    ps->p[ps->n - 1].segments = &r->segments;
    ps->p[ps->n - 1].fixed = true; // only the router is trained
    pl_router_params(&r->router, ps);
}

static pl_status read_table(pl_head *h, const pl_weight_source *src, pl_err *err) {
    int64_t *offset;
    PL_TRY(pl_routed_read_offsets(&offset, src, pl_routed_of(h)->own->clusters, h->vocab, err));
    pl_routed_set_offsets(h, offset);
    return PL_OK;
}

static pl_st_source table(const pl_head *h) {
    const pl_routed *r = pl_routed_of(h);
    PL_CHECK(r->offset, "a routed head without clusters");
    return (pl_st_source){
        .name = OFFSETS, .dtype = PL_I64, .rank = 1, .shape = {r->own->clusters + 1}, .data = r->offset};
}

// ---- the support

// Groups the rows of x that share a support, in the form that route takes.
static int take_groups(pl_ctx *ctx, const pl_head_rows *r, int m, int **row) {
    int groups = 0;
    *row = pl_ctx_bytes(ctx, ((size_t)m + 1) * sizeof **row);
    if (ctx->measuring) return m; // upper bound
    for (int i = 0; i < m; i++)
        if (i == 0 || (r->group && r->group[i] != r->group[i - 1])) (*row)[groups++] = i;
    (*row)[groups] = m;
    return groups;
}

static int64_t *take_offsets(pl_ctx *ctx, const pl_routed *d) {
    size_t   bytes = ((size_t)d->router.clusters + 1) * sizeof(int64_t);
    int64_t *offset = pl_ctx_bytes(ctx, bytes);
    if (!ctx->measuring) memcpy(offset, d->offset, bytes);
    return offset;
}

static pl_head_support support(pl_ctx *ctx, const pl_head *h, const pl_head_rows *r) {
    const pl_routed *d = pl_routed_of(h);
    int64_t          m = pl_tensor_rows(&r->hidden);
    pl_tensor        embed = pl_embed(ctx, r->embed, r->token, m);
    pl_tensor        score = pl_router_scores(ctx, &d->router, embed, r->hidden, r->x);
    int             *row, groups = take_groups(ctx, r, (int)m, &row);
    int              k = (int)pl_routed_budget(d->own, r->level);
    return (pl_head_support){.row = row, .spans = pl_route(ctx, score, take_offsets(ctx, d), row, groups, k)};
}

static bool foresees(const pl_head *h) {
    return pl_routed_of(h)->router.kind == PL_ROUTER_MLP;
}

// Counts one row's bytes: its clusters at their mean size, and the router.
static double step_bytes(const pl_head *h, int level) {
    const pl_routed *r = pl_routed_of(h);
    double           share = (double)pl_routed_budget(r->own, level) / (double)r->own->clusters;
    return (double)h->vocab * share * (double)h->d * (double)pl_dtype_size(h->out.dtype) +
           pl_router_bytes(&r->router, h->out.dtype);
}

// ---- examples

static double size_share(int64_t i, int64_t n, bool uneven) {
    const uint64_t stride = 7919;
    return uneven ? 1 / sqrt(1 + (double)(stride * (uint64_t)i % (uint64_t)n)) : 1;
}

// Draws clusters of equal sizes, or of sizes that fall as 1 / sqrt(i) in random order.
static pl_status draw_table(pl_head *h, bool uneven, pl_err *err) {
    int64_t n = pl_routed_of(h)->own->clusters, *offset = pl_malloc((size_t)(n + 1) * sizeof *offset);
    double  sum = 0, at = 0;
    if (!offset) return pl_fail(err, PL_E_MEMORY, "clusters: out of memory");
    for (int64_t i = 0; i < n; i++)
        sum += size_share(i, n, uneven);
    for (int64_t i = 0; i < n; i++) {
        offset[i] = (int64_t)((double)h->vocab * at / sum);
        at += size_share(i, n, uneven);
    }
    offset[n] = h->vocab;
    pl_routed_set_offsets(h, offset);
    return PL_OK;
}

// Examples: clusters of 128 rows, a quarter of them read at depths 0 and 1, a router of width d/8, measured at depths 0
// and 3, of equal and unequal sizes; then the paper's 27k of 128k rows, at every depth.
static bool example(pl_head_example *e, int i, const pl_head_shape *s) {
    pl_dynaspec own = {.clusters = (int)(s->vocab / 128), .width = (int)(s->d / 8), .kmin = 1};
    own.k0 = own.k1 = own.clusters / 4;
    if (i > 4) return false;
    if (own.k0 < 1 || own.width < 1) {
        e->rows = 0;
        return true;
    }
    e->in = PL_EXAMPLE_HEADS | (i == 0 ? PL_EXAMPLE_PLAN : 0);
    e->level = i / 2 * 3;
    e->uneven = i % 2;
    if (i == 4) {
        own.k0 = (int)(own.clusters * 27.0 / 128 + 0.5);
        own.fixed = true;
        e->in = PL_EXAMPLE_CYCLE;
        e->level = 0;
        e->uneven = false;
    }
    const char *sizes = i == 4 ? "fixed" : e->uneven ? "unequal" : "equal";
    snprintf(e->name, sizeof e->name, "dynaspec-%lld/%d-%s%s", (long long)pl_routed_budget(&own, e->level),
             own.clusters, sizes, e->level ? "@3" : "");
    e->spec = pl_hf_head_make("dynaspec", 0);
    pl_head_settings_state(&e->spec, pl_dynaspec_keys, &own);
    return true;
}

static const pl_head_table offsets_table = {.name = OFFSETS, .read = read_table, .stored = table, .draw = draw_table};

const pl_head_kind pl_head_dynaspec = {.name = "dynaspec",
                                       .keys = pl_dynaspec_keys,
                                       .settle = settle,
                                       .reads_inputs = true,
                                       .routed = true,
                                       .init = init,
                                       .fini = fini,
                                       .params = params,
                                       .table = &offsets_table,
                                       .foresees = foresees,
                                       .support = support,
                                       .example = example,
                                       .step_bytes = step_bytes};
