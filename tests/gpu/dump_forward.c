// What the model code computes on a device, for comparison with other programs (compare_decode.py):
//   dump_forward DEVICE TARGET DRAFTER IDS STEPS OUT
// TARGET and DRAFTER are folders (an EAGLE-3 head over the whole vocabulary), weights are held in bf16. IDS "1,2,..."
// are n + STEPS tokens. The target reads the first n; the drafter takes in rows 0..n-1 (row t: the features of position
// t, token t+1) and goes on from the last one by itself for STEPS - 1 steps, with the tokens that follow. OUT gets
// float32, row-major: the target's logits [n, V], the features [n, taps * d], the drafter's logits of the rows taken in
// [n, V] and of the steps after them [STEPS - 1, V]. The sizes go to standard output as one line of JSON.
#include "infer/cli/cli.h"
#include "infer/drafter/backbone.h"
#include "infer/model/kv.h"
#include "kernels/devices.h"
#include "kernels/op/elementwise.h"
#include "kernels/op/linear.h"

#include <stdio.h>
#include <stdlib.h>

enum { MOST_STEPS = 16 };

typedef struct dump {
    pl_llama     target;
    pl_backbone *drafter;
    pl_kv        kv, draft_kv;
    int32_t     *id;
    int          n, steps;
    // what came out, where the host reads it
    const float *logits, *features, *taken_in, *ahead[MOST_STEPS];
} dump;

static void leave(const pl_err *err) {
    fprintf(stderr, "dump_forward: %s\n", err->msg);
    exit(1);
}

static void expect(pl_status st, const pl_err *err) {
    if (st != PL_OK) leave(err);
}

// Rows first..first+n-1 of a session without branches.
typedef struct rows {
    int32_t  *id, *pos;
    pl_kvrow *row;
} rows;

static rows take(pl_ctx *ctx, const dump *d, const pl_kv *kv, int first, int n, int shift) {
    rows r = {pl_ctx_bytes(ctx, (size_t)n * sizeof *r.id), pl_ctx_bytes(ctx, (size_t)n * sizeof *r.pos),
              pl_ctx_bytes(ctx, (size_t)n * (size_t)kv->layers * sizeof *r.row)};
    for (int i = 0; i < n && !ctx->measuring; i++) {
        r.id[i] = d->id[first + i + shift];
        r.pos[i] = first + i;
        pl_kv_row(kv, &r.row[i], n, first, NULL, i + 1, first + i);
    }
    return r;
}

static pl_tensor step(pl_ctx *ctx, const dump *d, int first, int n, pl_tensor from, pl_tensor *hidden) {
    const pl_backbone *e = d->drafter;
    rows               r = take(ctx, d, &d->draft_kv, first, n, 1);
    pl_view            view = {.pos = r.pos, .cos = e->cos, .sin = e->sin, .row = r.row, .m = n};
    return e->kind->step(ctx, e, r.id, from, &view, hidden, (pl_tensor){0});
}

static const float *logits_of(pl_ctx *ctx, const dump *d, pl_tensor y) {
    pl_head_rows in = {.x = y};
    return pl_head_all_logits(ctx, &d->drafter->head, &in).data;
}

static void forward(pl_ctx *ctx, void *arg) {
    dump           *d = arg;
    const pl_llama *t = &d->target;
    rows            r = take(ctx, d, &d->kv, 0, d->n, 0);
    pl_view         view = {.pos = r.pos, .cos = t->cos, .sin = t->sin, .row = r.row, .m = d->n};
    pl_llama_out    out = {0};
    pl_tensor       hidden, y;
    pl_llama_forward(ctx, t, r.id, d->n, &view, d->drafter->tap, d->drafter->n_taps, &out);
    pl_tensor logits = pl_linear(ctx, out.hidden, t->head), features = pl_features(ctx, &out, d->drafter->n_taps);
    d->logits = pl_ctx_read(ctx, &logits);
    d->features = pl_ctx_read(ctx, &features);
    y = step(ctx, d, 0, d->n, d->drafter->kind->fuse(ctx, d->drafter, features), &hidden);
    d->taken_in = logits_of(ctx, d, y);
    int32_t *last = pl_ctx_bytes(ctx, sizeof *last);
    if (!ctx->measuring) *last = d->n - 1;
    hidden = pl_gather(ctx, hidden, last, 1);
    for (int k = 0; k + 1 < d->steps; k++) {
        y = step(ctx, d, d->n + k, 1, hidden, &hidden);
        d->ahead[k] = logits_of(ctx, d, y);
    }
}

static void put(FILE *f, const float *x, int64_t n) {
    if (!x || fwrite(x, sizeof *x, (size_t)n, f) != (size_t)n) {
        fprintf(stderr, "dump_forward: the output cannot be written\n");
        exit(1);
    }
}

int main(int argc, char **argv) {
    static dump       d;
    pl_err            err = {0};
    const pl_backend *be;
    int64_t           n_ids;
    pl_ctx            ctx;
    pl_pool          *pool;
    if (argc != 7) {
        fprintf(stderr, "dump_forward: expected DEVICE TARGET DRAFTER IDS STEPS OUT\n");
        return 2;
    }
    expect(pl_device_open(&be, argv[1], &err), &err);
    expect(pl_cli_ids(argv[4], &d.id, &n_ids, &err), &err);
    d.steps = atoi(argv[5]);
    d.n = (int)n_ids - d.steps;
    if (d.steps < 1 || d.steps > MOST_STEPS || d.n < 1) {
        fprintf(stderr, "dump_forward: %d steps of %d ids\n", d.steps, (int)n_ids);
        return 2;
    }
    expect(pl_pool_create(&pool, 0, &err), &err);
    expect(pl_llama_open(&d.target, argv[2], PL_BF16, be, &err), &err);
    expect(pl_backbone_open(&d.drafter, argv[3], &d.target, PL_BF16, &err), &err);
    expect(pl_kv_create(&d.kv, d.target.n_layers, (int)n_ids, &d.target.shape, be, &err), &err);
    expect(pl_kv_create(&d.draft_kv, 1, (int)n_ids, &d.drafter->shape, be, &err), &err);
    expect(pl_ctx_init(&ctx, be, pool), &err);
    expect(pl_ctx_measure(&ctx, forward, &d, &err), &err);
    pl_ctx_begin(&ctx);
    forward(&ctx, &d);
    expect(pl_ctx_sync(&ctx, &err), &err);
    int64_t v = d.target.vocab, width = d.drafter->n_taps * d.target.shape.d;
    FILE   *f = fopen(argv[6], "wb");
    if (!f) {
        fprintf(stderr, "dump_forward: %s: cannot be written\n", argv[6]);
        return 1;
    }
    put(f, d.logits, d.n * v);
    put(f, d.features, d.n * width);
    put(f, d.taken_in, d.n * v);
    for (int k = 0; k + 1 < d.steps; k++)
        put(f, d.ahead[k], v);
    if (fclose(f) != 0) return 1;
    printf("{\"rows\":%d,\"steps\":%d,\"vocab\":%lld,\"features\":%lld}\n", d.n, d.steps, (long long)v,
           (long long)width);
    pl_ctx_fini(&ctx);
    pl_kv_destroy(&d.kv);
    pl_kv_destroy(&d.draft_kv);
    pl_backbone_destroy(d.drafter);
    pl_llama_fini(&d.target);
    pl_pool_destroy(pool);
    pl_free(d.id);
    return 0;
}
