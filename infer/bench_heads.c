// bench: draft heads of every kind with random weights, hidden state to the most probable token, each through the
// interface that decoding uses and beside the seconds that reading its weights takes.
#include "infer/bench_parts.h"
#include "infer/head_dynaspec.h"
#include "infer/put.h"
#include "infer/target.h"
#include "infer/typical_heads.h"
#include "kernels/base/clock.h"
#include "kernels/op/linear.h"

#include <math.h>
#include <string.h>

#define MOST 64
#define HEAD_PARAMS 12

typedef struct head_case {
    pl_head   head;
    pl_params params;
    int       level;
    pl_tensor x, hidden, embed; // one row each
    float    *row;              // their memory
    int32_t   token[1], group[1], id[1];
} head_case;

typedef struct head_list {
    pl_bench             *b;
    const pl_bench_heads *o;
    pl_bench_case         c[MOST];
    head_case             h[MOST];
    int                   n, full[2]; // full[t]: the case that others of its dtype are compared with
} head_list;

static void head_step(pl_ctx *ctx, void *arg) {
    head_case   *h = arg;
    pl_head_rows rows = {
        .x = h->x, .level = h->level, .hidden = h->hidden, .embed = h->embed, .token = h->token, .group = h->group};
    pl_head_topk(ctx, &h->head, &rows, 1, h->id, NULL, NULL);
}

static bool make_rows(head_case *h, int64_t width) {
    h->row = pl_malloc((size_t)width * sizeof *h->row);
    for (int64_t i = 0; h->row && i < width; i++)
        h->row[i] = (float)(i * 7919 % 1009 - 504) / 504;
    h->x = h->hidden = h->embed = pl_tensor_2d(h->row, PL_F32, 1, width);
    return h->row != NULL;
}

// Bytes of what a routed head read for this very row: its clusters need not have the mean size.
static double routed_bytes(pl_bench_case *c, head_case *h, pl_dtype t) {
    double bytes = 0;
    pl_ctx_begin(&c->ctx);
    pl_head_rows    rows = {.x = h->x, .level = h->level, .hidden = h->hidden, .embed = h->embed, .token = h->token};
    pl_head_support s = h->head.kind->support(&c->ctx, &h->head, &rows);
    if (s.groups == 1) bytes = (double)pl_spans_rows(s.span, s.at[1]) * (double)h->head.rank;
    for (int i = 0; i < h->params.n; i++)
        if (h->params.p[i].tensor != &h->head.out)
            bytes += (double)h->params.p[i].spec.rows * fmax(1, (double)h->params.p[i].spec.cols);
    return bytes * (double)pl_dtype_size(t);
}

// As much memory as the head reads, in one piece: the largest of its matrices has that, or all but some percent of it.
static void set_footprint(pl_bench_case *c, const head_case *h) {
    for (int i = 0; i < h->params.n; i++)
        if (h->params.p[i].owned_bytes > c->memory_bytes) {
            c->memory = h->params.p[i].owned;
            c->memory_bytes = h->params.p[i].owned_bytes;
        }
    if ((double)c->memory_bytes > c->bytes) c->memory_bytes = (size_t)c->bytes;
}

// One head of `rows` rows at a draft depth; larger than --max-mb: left out.
static void add_head(head_list *l, const char *name, pl_hf_head spec, int64_t rows, int level, bool equal, pl_dtype t) {
    if (l->n == MOST) return;
    pl_bench_case *c = &l->c[l->n];
    head_case     *h = &l->h[l->n];
    pl_err         err;
    snprintf(c->name, sizeof c->name, "%.50s-%s", name, pl_weights_name(t));
    l->n++;
    h->level = level;
    if (pl_head_init(&h->head, &spec, l->o->width, rows, &err) != PL_OK ||
        pl_params_init(&h->params, HEAD_PARAMS, &err) != PL_OK)
        return;
    h->head.kind->params(&h->head, &h->params);
    double bytes = 0;
    for (int i = 0; i < h->params.n; i++)
        bytes += (double)h->params.p[i].spec.rows * (double)h->params.p[i].spec.cols * (double)pl_dtype_size(t);
    if (bytes > l->b->max_bytes || !make_rows(h, l->o->width)) return;
    if (h->head.routed && pl_typical_clusters(&h->head, equal, &err) != PL_OK) return;
    if (pl_params_draw(&h->params, t, (uint64_t)l->n, l->b->env->pool, &err) != PL_OK) return;
    c->step = head_step;
    c->arg = h;
    c->bytes = pl_head_step_bytes(&h->head, level);
    pl_bench_ready(l->b, c);
    if (c->ready && h->head.routed) c->bytes = routed_bytes(c, h, t);
    c->flops = 2 * c->bytes / (double)pl_dtype_size(t);
    set_footprint(c, h);
}

// SpecVocab by scorers of rank d/8 and d/16.
static void add_listing(head_list *l, pl_dtype t) {
    for (int part = 8; part <= 16; part *= 2) {
        char       name[64];
        pl_hf_head spec;
        if (!pl_typical_specvocab(&spec, l->o->vocab, l->o->width, part)) return;
        snprintf(name, sizeof name, "specvocab-%d-%d", spec.rank, spec.candidates);
        add_head(l, name, spec, l->o->vocab, 0, true, t);
    }
}

// DynaSpec with equal and unequal clusters, at depth 0 and 3.
static void add_routed(head_list *l, pl_dtype t) {
    pl_hf_head spec;
    if (!pl_typical_dynaspec(&spec, l->o->vocab, l->o->width)) return;
    for (int i = 0; i < 4; i++) {
        char name[64];
        int  level = i / 2 * 3;
        snprintf(name, sizeof name, "dynaspec-%lld/%d-%s", (long long)pl_routed_budget(&spec, level), spec.clusters,
                 i % 2 ? "unequal" : "equal");
        add_head(l, name, spec, l->o->vocab, level, i % 2 == 0, t);
    }
}

static void add_heads(head_list *l, pl_dtype t) {
    const pl_bench_heads *o = l->o;
    char                  name[64];
    l->full[t == PL_F32] = l->n;
    add_head(l, "full", pl_hf_head_make("full", 0), o->vocab, 0, true, t);
    for (int part = 2; part <= 16 && o->vocab / part > 0; part *= 2) {
        snprintf(name, sizeof name, "trimmed-V/%d", part);
        add_head(l, name, pl_hf_head_make("full", 0), o->vocab / part, 0, true, t);
    }
    for (int i = 0; i < (o->n_ranks ? o->n_ranks : 4); i++) {
        int64_t rank = o->n_ranks ? o->rank[i] : o->width >> (i + 1);
        if (rank < 1) continue;
        snprintf(name, sizeof name, "lowrank-%lld", (long long)rank);
        add_head(l, name, pl_hf_head_make("lowrank", (int)rank), o->vocab, 0, true, t);
    }
    add_listing(l, t);
    add_routed(l, t);
}

// How much faster than the full head of the same dtype: the median over rounds.
static double over_full(const head_list *l, int i) {
    const pl_bench_case *full = &l->c[l->full[l->h[i].head.out.dtype == PL_F32]];
    double               ratio[PL_BENCH_TRIES];
    if (!full->ready) return NAN;
    for (int k = 0; k < PL_BENCH_TRIES; k++)
        ratio[k] = full->seconds[k] / l->c[i].seconds[k];
    return pl_stats(ratio, PL_BENCH_TRIES).median;
}

static void write_head(pl_json_out *o, const head_list *l, int i) {
    const pl_head *h = &l->h[i].head;
    pl_json_out_object(o);
    pl_put_str(o, "name", l->c[i].name);
    pl_put_str(o, "kind", h->kind->name);
    pl_put_int(o, "rank", h->spec.rank);
    pl_put_str(o, "weights", pl_weights_name(h->out.dtype));
    pl_put_int(o, "vocab", h->vocab);
    pl_put_int(o, "width", h->d);
    pl_bench_write(o, &l->c[i]);
    pl_put_num(o, "speedup_over_full", over_full(l, i));
    pl_json_out_close(o, '}');
}

void pl_bench_put_heads(pl_json_out *o, pl_bench *b, const pl_bench_heads *h) {
    head_list *l = pl_calloc(1, sizeof *l);
    pl_put_array(o, "heads");
    if (l) {
        *l = (head_list){.b = b, .o = h};
        for (int t = 0; t < 2; t++)
            if (h->dtype[t]) add_heads(l, t ? PL_F32 : PL_BF16);
        pl_bench_time(b, l->c, l->n);
    }
    for (int i = 0; l && i < l->n; i++)
        if (l->c[i].ready) write_head(o, l, i);
    for (int i = 0; l && i < l->n; i++) {
        pl_bench_done(&l->c[i]);
        pl_params_fini(&l->h[i].params);
        pl_head_fini(&l->h[i].head);
        pl_free(l->h[i].row);
    }
    pl_free(l);
    pl_json_out_close(o, ']');
}
