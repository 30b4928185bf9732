// bench: the two ways to read the rows that a routed head has chosen, from hidden states to the most probable token of
// each. `spans`: rows sorted by cluster in panels, the fused head over spans (kernels/op/headtopk.h). `listed`: rows as
// they lie in a row-major matrix, each by its number (kernels/op/gatherdot.h), then the best of what comes. Both read
// the same rows, 27 of 128 clusters of unequal sizes, and are timed in turn; a floor counts those rows once.
#include "infer/bench/parts.h"
#include "infer/head/dynaspec.h"
#include "infer/model/target.h"
#include "kernels/base/json_put.h"
#include "kernels/op/gatherdot.h"
#include "kernels/op/headtopk.h"

#include <math.h>
#include <string.h>

enum { SPANS, LISTED, WAYS };
enum { PART = 27, OF = 128 };
static const int   rows_each[] = {1, 10}; // a chain's level, a tree's
static const char *way_name[WAYS] = {"spans", "listed"};
enum { SIZES = sizeof rows_each / sizeof *rows_each, CASES = 2 * WAYS * SIZES };

// A matrix, several times where a device reads its copies in turn.
typedef struct matrix {
    pl_params params[PL_BENCH_COPIES];
    pl_tensor w[PL_BENCH_COPIES];
    int       n;
} matrix;

typedef struct reading {
    const struct reads *of;
    const matrix       *m;
    int                 way, rows, turn;
    pl_tensor           x;
    size_t              x_bytes;
    int32_t            *list, *id; // [rows, listed], [rows]; one block
} reading;

typedef struct reads {
    pl_bench     *b;
    int64_t       vocab, width, clusters, chosen, listed; // clusters chosen, and their rows
    pl_head       head;
    pl_span      *span; // shared
    matrix        matrix[2][WAYS];
    reading       r[CASES];
    pl_bench_case c[CASES];
} reads;

static void read_step(pl_ctx *ctx, void *arg) {
    reading     *r = arg;
    const reads *of = r->of;
    pl_tensor    w = r->m->w[r->turn];
    r->turn = (r->turn + 1) % r->m->n;
    if (r->way == SPANS) {
        pl_headtopk(ctx, &(pl_headtopk_args){
                             .x = r->x, .w = w, .span = of->span, .n_spans = (int)of->chosen, .k = 1, .id = r->id});
        return;
    }
    pl_tensor z = pl_gatherdot(ctx, r->x, w, r->list, of->listed);
    pl_topk(ctx, &(pl_topk_args){.x = z, .name = r->list, .k = 1, .id = r->id});
}

// A head without weights, for its clusters: of unequal sizes, so that they begin anywhere in a panel.
static bool choose(reads *a) {
    pl_head_shape   shape = {.vocab = a->vocab, .d = a->width};
    pl_head_example e;
    pl_err          err;
    int             at = 0;
    while (pl_head_next_example(&e, &at, &shape, PL_EXAMPLE_HEADS) &&
           !(pl_head_find(e.spec.kind, NULL)->routed && e.uneven))
        ;
    if (!pl_head_find(e.spec.kind, NULL)->routed) return false; // too few rows for clusters
    if (pl_head_init(&a->head, &e.spec, a->width, a->vocab, &err) != PL_OK ||
        a->head.kind->draw_table(&a->head, true, &err) != PL_OK) {
        pl_bench_leave_out(a->b, "routed_reads", &err);
        return false;
    }
    a->clusters = pl_routed_of(&a->head)->own->clusters;
    a->chosen = (a->clusters * PART + OF - 1) / OF;
    a->span = pl_bench_shared(a->b, (size_t)a->chosen * sizeof *a->span);
    for (int64_t i = 0; i < a->chosen && a->span; i++) {
        const int64_t *row = pl_routed_of(&a->head)->offset + i * a->clusters / a->chosen;
        a->span[i] = (pl_span){.first = (int32_t)row[0], .count = (int32_t)(row[1] - row[0])};
    }
    a->listed = a->span ? pl_spans_rows(a->span, (int)a->chosen) : 0;
    return a->listed > 0;
}

// The next copy of a matrix.
static pl_status add_copy(reads *a, matrix *m, int way, pl_dtype t, pl_err *err) {
    pl_params *ps = &m->params[m->n];
    PL_TRY(pl_params_init(ps, 1, err));
    ps->memory = a->b->env->backend->memory;
    pl_params_add(ps, &(pl_param_args){.tensor = &m->w[m->n],
                                       .kind = way == SPANS ? PL_PARAM_MATRIX : PL_PARAM_EMBED,
                                       .part = {{"lm_head.weight", a->vocab}},
                                       .cols = a->width,
                                       .init_std = 0.02,
                                       .segments = way == SPANS ? &pl_routed_of(&a->head)->segments : NULL});
    if (m->n == 0) return pl_params_tile(ps, t, 7, &a->b->ctx, err);
    PL_TRY(pl_params_hold(ps, t, err));
    pl_ctx_copy(&a->b->ctx, ps->block, m->params[0].block, ps->block_bytes);
    return pl_ctx_sync(&a->b->ctx, err);
}

static void add_reading(reads *a, int i, int way, int rows, pl_dtype t) {
    reading       *r = &a->r[i];
    pl_bench_case *c = &a->c[i];
    size_t         n = (size_t)rows * (size_t)(a->listed + 1);
    *r = (reading){.of = a, .m = &a->matrix[t == PL_F32][way], .way = way, .rows = rows};
    snprintf(c->name, sizeof c->name, "dynaspec-%lld/%lld-%s-%s (%d row%s)", (long long)a->chosen,
             (long long)a->clusters, way_name[way], pl_weights_name(t), rows, rows > 1 ? "s" : "");
    r->list = pl_bench_shared(a->b, n * sizeof *r->list);
    if (r->m->n == 0 || !r->list || !pl_bench_input(a->b, &r->x, &r->x_bytes, rows, a->width)) return;
    r->id = r->list + rows * a->listed;
    for (int64_t s = 0, at = 0; s < a->chosen; s++)
        for (int32_t v = 0; v < a->span[s].count; v++, at++)
            for (int m = 0; m < rows; m++)
                r->list[m * a->listed + at] = a->span[s].first + v;
    c->step = read_step;
    c->arg = r;
    c->bytes = (double)a->listed * (double)a->width * (double)pl_dtype_size(t);
    c->flops = 2.0 * rows * (double)a->listed * (double)a->width;
    c->factors = t;
    c->memory = r->m->params[0].block;
    c->memory_bytes = (size_t)fmin(c->bytes, (double)r->m->params[0].block_bytes);
    pl_bench_ready(a->b, c);
}

static void add_readings(reads *a, int i, pl_dtype t) {
    double bytes = (double)a->vocab * (double)a->width * (double)pl_dtype_size(t);
    int    copies = pl_bench_copies(a->b, (size_t)(bytes * PART / OF));
    pl_err room = {0};
    if (bytes > a->b->max_bytes) return;
    if (pl_bench_room(a->b, WAYS * copies * bytes, "two ways to read a head", "lower --vocab or --hidden", &room) !=
        PL_OK) {
        pl_bench_leave_out(a->b, "routed_reads", &room);
        return;
    }
    for (int way = 0; way < WAYS; way++) {
        matrix *m = &a->matrix[t == PL_F32][way];
        pl_err  err;
        while (m->n < copies && add_copy(a, m, way, t, &err) == PL_OK)
            m->n++;
        if (m->n == 0) pl_bench_leave_out(a->b, way_name[way], &err);
    }
    for (int size = 0; size < SIZES; size++)
        for (int way = 0; way < WAYS; way++)
            add_reading(a, i++, way, rows_each[size], t);
}

static void write_reading(pl_json_out *o, const reads *a, int i) {
    pl_json_out_object(o);
    pl_put_str(o, "name", a->c[i].name);
    pl_put_str(o, "way", way_name[a->r[i].way]);
    pl_put_str(o, "weights", pl_weights_name(i < WAYS * SIZES ? PL_BF16 : PL_F32));
    pl_put_int(o, "rows", a->r[i].rows);
    pl_put_int(o, "vocab", a->vocab);
    pl_put_int(o, "width", a->width);
    pl_put_int(o, "rows_read", a->listed);
    pl_bench_write(o, &a->c[i]);
    pl_json_out_close(o, '}');
}

static void drop_matrices(reads *a, pl_dtype t) {
    for (int i = 0; i < WAYS * PL_BENCH_COPIES; i++) // the one after the last may have been begun
        pl_params_fini(&a->matrix[t == PL_F32][i / PL_BENCH_COPIES].params[i % PL_BENCH_COPIES]);
}

static void drop(reads *a) {
    for (int i = 0; i < CASES; i++) {
        reading *r = &a->r[i];
        pl_bench_done(&a->c[i]);
        pl_bench_drop(a->b, r->x.data, r->x_bytes);
        pl_bench_drop_shared(a->b, r->list, (size_t)r->rows * (size_t)(a->listed + 1) * sizeof *r->list);
    }
    pl_bench_drop_shared(a->b, a->span, (size_t)a->chosen * sizeof *a->span);
    pl_head_fini(&a->head);
    pl_free(a);
}

void pl_bench_put_reads(pl_json_out *o, pl_bench *b, const pl_bench_heads *h) {
    reads *a = pl_calloc(1, sizeof *a);
    pl_put_array(o, "routed_reads");
    if (a) *a = (reads){.b = b, .vocab = h->vocab, .width = h->width};
    if (a && choose(a)) {
        for (int t = 0; t < 2; t++) { // the matrices of one dtype at a time
            if (!h->dtype[t]) continue;
            add_readings(a, t * WAYS * SIZES, t ? PL_F32 : PL_BF16);
            pl_bench_time(b, a->c + t * WAYS * SIZES, WAYS * SIZES);
            drop_matrices(a, t ? PL_F32 : PL_BF16);
        }
        for (int i = 0; i < CASES; i++)
            if (a->c[i].ready) write_reading(o, a, i);
    }
    if (a) drop(a);
    pl_json_out_close(o, ']');
}
