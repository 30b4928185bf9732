// bench: draft heads of every kind with random weights, hidden state to the most probable token, each through the
// interface that decoding uses and beside the seconds that reading its weights takes. One after another: heads of large
// shapes do not lie in memory side by side.
#include "infer/bench/parts.h"
#include "infer/head/head.h"
#include "infer/model/target.h"
#include "kernels/base/clock.h"
#include "kernels/base/json_put.h"
#include "kernels/base/room.h"

#include <math.h>
#include <string.h>

#define MOST 64
#define HEAD_PARAMS 12
#define SLACK 1.05 // packing, activations

// What host and device both see.
typedef struct head_rows {
    int32_t token[1], group[1], id[1];
} head_rows;

// One head, several times where a device reads its copies in turn.
typedef struct head_case {
    pl_head    head[PL_BENCH_COPIES];
    pl_params  params[PL_BENCH_COPIES];
    int        n, turn, level;
    pl_tensor  x, hidden, embed; // one row each
    void      *row;              // their memory
    size_t     row_bytes;
    head_rows *rows;
    // What is told of it when its weights are gone.
    pl_hf_head spec;
    int64_t    vocab, width;
    pl_dtype   dtype;
    bool       timed;
} head_case;

typedef struct head_list {
    pl_bench             *b;
    const pl_bench_heads *o;
    pl_bench_case         c[MOST];
    head_case             h[MOST];
    int                   n, full[2]; // full[t]: the case that others of its dtype are compared with
    // Counting: no head is made, the bytes of the largest one are found, and how they grow with the vocabulary.
    bool                  counting;
    double                largest;
} head_list;

static pl_head_rows rows_of(const head_case *h) {
    return (pl_head_rows){.x = h->x,
                          .level = h->level,
                          .hidden = h->hidden,
                          .embed = h->embed,
                          .token = h->rows->token,
                          .group = h->rows->group};
}

static void head_step(pl_ctx *ctx, void *arg) {
    head_case   *h = arg;
    pl_head_rows rows = rows_of(h);
    pl_head_topk(ctx, &h->head[h->turn], &rows, 1, h->rows->id, NULL, NULL);
    h->turn = (h->turn + 1) % h->n;
}

static bool make_rows(pl_bench *b, head_case *h, int64_t width) {
    pl_err err;
    float *x = pl_malloc((size_t)width * sizeof *x);
    for (int64_t i = 0; x && i < width; i++)
        x[i] = (float)(i * 7919 % 1009 - 504) / 504;
    bool ok = x && pl_bench_input(b, &h->x, &h->row_bytes, 1, width) &&
              pl_memory_write(b->env->backend->memory, h->x.data, x, h->row_bytes, &err) == PL_OK;
    h->row = h->x.data;
    h->hidden = h->embed = h->x;
    h->rows = pl_bench_shared(b, sizeof *h->rows);
    pl_free(x);
    return ok && h->rows;
}

// Bytes of what a routed head read for this very row: its clusters need not have the mean size.
static double routed_bytes(pl_bench_case *c, head_case *h, pl_dtype t) {
    const pl_params *ps = &h->params[0];
    const pl_head   *head = &h->head[0];
    pl_ctx_begin(&c->ctx);
    pl_head_rows    rows = rows_of(h);
    pl_head_support s = head->kind->support(&c->ctx, head, &rows);
    double          bytes = (double)pl_route_rows(&c->ctx, s.spans) * (double)head->rank; // of one row, so of one group
    for (int i = 0; i < ps->n; i++)
        if (ps->p[i].tensor != &head->out) bytes += (double)ps->p[i].spec.rows * fmax(1, (double)ps->p[i].spec.cols);
    return bytes * (double)pl_dtype_size(t);
}

// As much memory as the head reads, in one piece: the largest of its matrices has that, or all but some percent of it.
static void set_footprint(pl_bench_case *c, const head_case *h) {
    const pl_params *ps = &h->params[0];
    for (int i = 0; i < ps->n; i++)
        if (ps->p[i].owned_bytes > c->memory_bytes) {
            c->memory = ps->p[i].owned;
            c->memory_bytes = ps->p[i].owned_bytes;
        }
    if ((double)c->memory_bytes > c->bytes) c->memory_bytes = (size_t)c->bytes;
}

// A head without weights, and what they will take; PL_E_USAGE for one that --max-mb leaves out.
static pl_status list_copy(head_list *l, head_case *h, const pl_head_example *e, pl_dtype t, double *bytes,
                           pl_err *err) {
    pl_head   *head = &h->head[h->n];
    pl_params *ps = &h->params[h->n];
    PL_TRY(pl_head_init(head, &e->spec, l->o->width, e->rows, err));
    PL_TRY(pl_params_init(ps, HEAD_PARAMS, err));
    ps->memory = l->b->env->backend->memory;
    head->kind->params(head, ps);
    *bytes = 0;
    for (int i = 0; i < ps->n; i++)
        *bytes += (double)ps->p[i].spec.rows * (double)ps->p[i].spec.cols * (double)pl_dtype_size(t);
    return *bytes > l->b->max_bytes ? PL_E_USAGE : PL_OK;
}

// The next copy of a head.
static pl_status add_copy(head_list *l, head_case *h, const pl_head_example *e, pl_dtype t, pl_err *err) {
    pl_bench  *b = l->b;
    pl_head   *head = &h->head[h->n];
    pl_params *ps = &h->params[h->n];
    double     bytes;
    PL_TRY(list_copy(l, h, e, t, &bytes, err));
    if (head->kind->draw_table) PL_TRY(head->kind->draw_table(head, e->uneven, err));
    if (h->n == 0) return pl_params_tile(ps, t, (uint64_t)l->n, &b->ctx, err);
    PL_TRY(pl_params_hold(ps, t, err));
    pl_ctx_copy(&b->ctx, ps->block, h->params[0].block, ps->block_bytes);
    return pl_ctx_sync(&b->ctx, err);
}

// The copy after the last one may have been begun.
static void drop_head(pl_bench *b, head_case *h) {
    for (int i = 0; i < PL_BENCH_COPIES; i++) {
        pl_params_fini(&h->params[i]);
        pl_head_fini(&h->head[i]);
    }
    pl_bench_drop(b, h->row, h->row_bytes);
    pl_bench_drop_shared(b, h->rows, sizeof *h->rows);
    h->row = NULL;
    h->rows = NULL;
}

static void count_head(head_list *l, head_case *h, const pl_head_example *e, pl_dtype t) {
    pl_err err;
    double bytes;
    if (list_copy(l, h, e, t, &bytes, &err) == PL_OK)
        l->largest = fmax(l->largest, bytes * pl_bench_copies(l->b, (size_t)bytes));
    drop_head(l->b, h);
}

// Times one head and lets it go.
static void time_head(head_list *l, pl_bench_case *c, head_case *h, pl_dtype t) {
    const pl_head *head = &h->head[0];
    h->spec = head->spec;
    h->vocab = head->vocab;
    h->width = head->d;
    h->dtype = t;
    set_footprint(c, h);
    pl_bench_time(l->b, c, 1);
    h->timed = c->ready;
    pl_bench_done(c);
    drop_head(l->b, h);
}

// Larger than --max-mb: left out.
static void add_head(head_list *l, const pl_head_example *e, pl_dtype t) {
    pl_err    err = {0};
    pl_status st = PL_OK;
    if (l->n == MOST) return;
    pl_bench_case *c = &l->c[l->n];
    head_case     *h = &l->h[l->n];
    if (l->counting) {
        count_head(l, h, e, t);
        return;
    }
    snprintf(c->name, sizeof c->name, "%.47s-%s", e->name, pl_weights_name(t));
    l->n++;
    h->level = e->level;
    for (int most = 1; h->n < most && (st = add_copy(l, h, e, t, &err)) == PL_OK; h->n++)
        if (h->n == 0) most = pl_bench_copies(l->b, h->params[0].block_bytes);
    if (h->n == 0 && st != PL_E_USAGE) pl_bench_leave_out(l->b, c->name, &err);
    if (h->n == 0 || !make_rows(l->b, h, l->o->width)) {
        drop_head(l->b, h);
        return;
    }
    c->step = head_step;
    c->arg = h;
    c->bytes = pl_head_step_bytes(&h->head[0], e->level);
    pl_bench_ready(l->b, c);
    if (c->ready && h->head[0].kind->routed) c->bytes = routed_bytes(c, h, t);
    c->flops = 2 * c->bytes / (double)pl_dtype_size(t);
    c->factors = t;
    time_head(l, c, h, t);
}

static void add_heads(head_list *l, pl_dtype t) {
    pl_head_shape   shape = {.vocab = l->o->vocab, .d = l->o->width, .rank = l->o->rank, .n_ranks = l->o->n_ranks};
    pl_head_example e;
    l->full[t == PL_F32] = l->n; // the first of them
    for (int at = 0; pl_head_next_example(&e, &at, &shape, PL_EXAMPLE_HEADS);)
        add_head(l, &e, t);
}

static double median(const pl_bench_case *c) {
    return pl_stats(c->seconds, c->n).median;
}

// How much faster than the full head of the same dtype, by the medians of both.
static double over_full(const head_list *l, int i) {
    int full = l->full[l->h[i].dtype == PL_F32];
    return l->h[full].timed && l->c[full].n && l->c[i].n ? median(&l->c[full]) / median(&l->c[i]) : NAN;
}

static void write_head(pl_json_out *o, const head_list *l, int i) {
    const head_case *h = &l->h[i];
    pl_json_out_object(o);
    pl_put_str(o, "name", l->c[i].name);
    pl_put_str(o, "kind", h->spec.kind);
    pl_put_int(o, "rank", pl_hf_head_int(&h->spec, "rank"));
    pl_put_str(o, "weights", pl_weights_name(h->dtype));
    pl_put_int(o, "vocab", h->vocab);
    pl_put_int(o, "width", h->width);
    pl_bench_write(o, &l->c[i]);
    pl_put_num(o, "speedup_over_full", over_full(l, i));
    pl_json_out_close(o, '}');
}

static void walk(head_list *l, const pl_bench_heads *h) {
    for (int t = 0; t < 2; t++)
        if (h->dtype[t]) add_heads(l, t ? PL_F32 : PL_BF16);
}

// The largest head must fit; what would, of this width, is said in rows: a head's bytes grow with them.
static pl_status check_room(pl_bench *b, head_list *l, pl_err *err) {
    double have = 0;
    bool   lacks;
    char   what[64], mend[96];
    *l = (head_list){.b = b, .o = l->o, .counting = true};
    walk(l, l->o);
    if (!pl_backend_on_host(b->env->backend)) return PL_OK;
    PL_TRY(pl_memory_lacks(l->largest * SLACK, &lacks, &have, err));
    if (!lacks) return PL_OK;
    double rows = floor((double)l->o->vocab * have / (l->largest * SLACK) * 0.98);
    snprintf(what, sizeof what, "heads: the largest of %lld rows", (long long)l->o->vocab);
    snprintf(mend, sizeof mend, "--vocab %.0f would fit%s", rows,
             l->o->dtype[0] && l->o->dtype[1] ? ", or try --weights bf16" : "");
    return pl_memory_room(l->largest * SLACK, what, mend, err);
}

pl_status pl_bench_put_heads(pl_json_out *o, pl_bench *b, const pl_bench_heads *h, pl_err *err) {
    head_list *l = pl_calloc(1, sizeof *l);
    if (!l) return pl_fail(err, PL_E_MEMORY, "bench: out of memory");
    l->o = h;
    pl_status st = check_room(b, l, err);
    if (st == PL_OK) {
        *l = (head_list){.b = b, .o = h};
        pl_put_array(o, "heads");
        walk(l, h);
        for (int i = 0; i < l->n; i++)
            if (l->h[i].timed) write_head(o, l, i);
        pl_json_out_close(o, ']');
    }
    pl_free(l);
    return st;
}
