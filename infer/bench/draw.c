// bench: the target's tokens drawn beside its logits, as decoding on a device has them. A host draws node by node from
// distributions (infer/decode/verification.h): there is nothing to time there.
#include "kernels/op/draw.h"
#include "infer/bench/parts.h"
#include "kernels/base/json_put.h"
#include "kernels/base/rng.h"

#include <stdio.h>

typedef struct drawing {
    pl_tensor    x;
    size_t       x_bytes;
    pl_draw_row *row;
    int32_t     *id;
    int          n;
} drawing;

static void draw_step(pl_ctx *ctx, void *arg) {
    const drawing *d = arg;
    pl_draw(ctx, &(pl_draw_args){.x = d->x, .row = d->row, .n = d->n, .id = d->id});
}

// Logits as spread as a model's: how many tokens a filter looks at twice depends on them.
static bool fill(pl_bench *b, drawing *d, int64_t vocab) {
    size_t           bytes = d->x_bytes / (size_t)d->n;
    const pl_memory *m = b->env->backend->memory;
    float           *z = pl_malloc(bytes);
    bool             done = z != NULL;
    for (int64_t v = 0; done && v < vocab; v++)
        z[v] = 3 * pl_rng_normal(pl_rng_make(1, PL_STREAM_NOISE, 0), (uint64_t)v);
    for (int i = 0; done && i < d->n; i++)
        done = pl_memory_write(m, pl_f32(&d->x) + i * vocab, z, bytes, NULL) == PL_OK;
    pl_free(z);
    return done;
}

static bool make(pl_bench *b, drawing *d, int rows, int64_t vocab, bool filtered) {
    *d = (drawing){.n = rows};
    d->row = pl_bench_shared(b, (size_t)rows * sizeof *d->row);
    d->id = pl_bench_shared(b, (size_t)rows * sizeof *d->id);
    if (!d->row || !d->id || !pl_bench_input(b, &d->x, &d->x_bytes, rows, vocab) || !fill(b, d, vocab)) return false;
    for (int i = 0; i < rows; i++)
        d->row[i] = (pl_draw_row){.u = (i + 0.5) / rows,
                                  .temperature = 1,
                                  .top_p = filtered ? 0.95 : 1,
                                  .top_k = filtered ? 50 : 0,
                                  .penalty = 1,
                                  .at = i,
                                  .parent = -1};
    return true;
}

pl_status pl_bench_put_draw(pl_json_out *o, pl_bench *b, int64_t vocab, pl_err *err) {
    enum { N = 6 };
    static const int rows[] = {1, 8, 60};
    drawing          d[N] = {0};
    pl_bench_case   *c = pl_bench_cases(N, err);
    if (!c) return PL_E_MEMORY;
    for (int i = 0; i < N; i++) {
        bool filtered = i >= N / 2;
        if (!make(b, &d[i], rows[i % 3], vocab, filtered)) continue;
        snprintf(c[i].name, sizeof c[i].name, "%dx%lld%s", d[i].n, (long long)vocab, filtered ? " top-k top-p" : "");
        c[i].step = draw_step;
        c[i].arg = &d[i];
        c[i].bytes = (double)d[i].x_bytes;
        c[i].memory = d[i].x.data;
        c[i].memory_bytes = d[i].x_bytes;
        pl_bench_ready(b, &c[i]);
    }
    pl_bench_time(b, c, N);
    pl_put_array(o, "draw");
    for (int i = 0; i < N; i++) {
        if (!c[i].ready) continue;
        pl_json_out_object(o);
        pl_put_str(o, "name", c[i].name);
        pl_put_int(o, "rows", d[i].n);
        pl_put_bool(o, "filtered", i >= N / 2);
        pl_bench_write(o, &c[i]);
        pl_json_out_close(o, '}');
    }
    pl_json_out_close(o, ']');
    for (int i = 0; i < N; i++) {
        pl_bench_done(&c[i]);
        pl_bench_drop(b, d[i].x.data, d[i].x_bytes);
        pl_bench_drop_shared(b, d[i].row, (size_t)d[i].n * sizeof *d[i].row);
        pl_bench_drop_shared(b, d[i].id, (size_t)d[i].n * sizeof *d[i].id);
    }
    pl_free(c);
    return PL_OK;
}
