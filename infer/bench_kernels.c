// bench: matrix products of decoding and of training, and draft heads.
#include "infer/bench_parts.h"
#include "infer/head.h"
#include "infer/put.h"
#include "infer/target.h"
#include "kernels/op/linear.h"
#include "kernels/tape.h"

#include <string.h>

// ---- products with packed weights, as decoding has them ----

typedef struct product {
    pl_tensor x, w;
    size_t    w_bytes, x_bytes;
} product;

static void linear_step(pl_ctx *ctx, void *arg) {
    product *p = arg;
    pl_linear(ctx, p->x, p->w);
}

static bool make_weight(pl_bench *b, pl_tensor *w, size_t *bytes, int64_t n, int64_t k, pl_dtype t) {
    *bytes = pl_panels_bytes(n, k, t);
    if ((double)*bytes > b->max_bytes) return false;
    *w = pl_tensor_2d(pl_bench_block(b, *bytes), t, n, k);
    w->layout = PL_PANELS;
    return w->data != NULL;
}

static bool make_input(pl_bench *b, pl_tensor *x, size_t *bytes, int64_t m, int64_t k) {
    *bytes = pl_size_mul((size_t)m, (size_t)k, sizeof(float));
    *x = pl_tensor_2d(pl_bench_block(b, *bytes), PL_F32, m, k);
    return x->data != NULL;
}

static void drop(pl_tensor *t, size_t bytes) {
    if (t->data) pl_block_destroy(t->data, bytes);
    t->data = NULL;
}

void pl_bench_put_linear(pl_json_out *o, pl_bench *b, int64_t vocab, int64_t width) {
    const int64_t    shape[][2] = {{4096, 4096}, {vocab, width}}; // N, K
    static const int rows[] = {1, 8};
    pl_bench_case    c[8] = {0};
    product          p[8] = {0};
    int              n = 0;
    for (int s = 0; s < 2; s++)
        for (int t = 0; t < 2; t++)
            for (int r = 0; r < 2; r++, n++) {
                pl_dtype type = t ? PL_BF16 : PL_F32;
                int64_t  m = rows[r];
                snprintf(c[n].name, sizeof c[n].name, "%lldx%lldx%lld %s", (long long)m, (long long)shape[s][0],
                         (long long)shape[s][1], pl_weights_name(type));
                c[n].step = linear_step;
                c[n].arg = &p[n];
                // Both numbers of rows read the same matrix.
                if (r == 0 && !make_weight(b, &p[n].w, &p[n].w_bytes, shape[s][0], shape[s][1], type)) continue;
                if (r > 0) p[n].w = p[n - 1].w;
                if (!p[n].w.data || !make_input(b, &p[n].x, &p[n].x_bytes, m, shape[s][1])) continue;
                pl_cost cost = pl_linear_cost(m, &p[n].w);
                c[n].bytes = cost.bytes;
                c[n].flops = cost.flops;
                c[n].memory = p[n].w.data;
                c[n].memory_bytes = pl_panels_bytes(shape[s][0], shape[s][1], type);
                pl_bench_ready(b, &c[n]);
            }
    pl_bench_time(b, c, n);
    pl_put_array(o, "linear");
    for (int i = 0; i < n; i++) {
        if (!c[i].ready) continue;
        pl_json_out_object(o);
        pl_put_str(o, "name", c[i].name);
        pl_put_int(o, "m", p[i].x.dim[0]);
        pl_put_int(o, "n", p[i].w.dim[0]);
        pl_put_int(o, "k", p[i].w.dim[1]);
        pl_put_str(o, "weights", pl_weights_name(p[i].w.dtype));
        pl_bench_write(o, &c[i]);
        pl_json_out_close(o, '}');
    }
    pl_json_out_close(o, ']');
    for (int i = 0; i < n; i++) {
        pl_bench_done(&c[i]);
        drop(&p[i].x, p[i].x_bytes);
        if (p[i].w_bytes) drop(&p[i].w, p[i].w_bytes);
    }
}

// ---- products with gradients, as training has them ----

typedef struct training {
    int64_t m;
    void   *weight, *grad;
    int64_t n, k;
    size_t  bytes;
} training;

static void train_step(pl_ctx *ctx, void *arg) {
    training *t = arg;
    pl_tensor w = pl_tensor_2d(t->weight, PL_F32, t->n, t->k);
    w.grad = t->grad;
    pl_tensor x = pl_ctx_tensor(ctx, t->m, t->k);
    if (!ctx->measuring) memset(x.data, 0x3c, (size_t)(t->m * t->k) * sizeof(float));
    pl_linear(ctx, x, w);
    pl_tape_backward(ctx);
}

void pl_bench_put_train(pl_json_out *o, pl_bench *b) {
    static const int64_t shape[][3] = {
        {1024, 768, 256}, {1024, 256, 704}, {1024, 4096, 256}, {512, 2048, 2048}}; // M, N, K
    enum { N = sizeof shape / sizeof *shape };
    pl_bench_case c[N] = {0};
    training      t[N] = {0};
    pl_tape       tape[N];
    for (int i = 0; i < N; i++) {
        t[i] = (training){.m = shape[i][0], .n = shape[i][1], .k = shape[i][2]};
        t[i].bytes = pl_size_mul((size_t)t[i].n, (size_t)t[i].k, sizeof(float));
        snprintf(c[i].name, sizeof c[i].name, "%lldx%lldx%lld forward and backward", (long long)t[i].m,
                 (long long)t[i].n, (long long)t[i].k);
        c[i].step = train_step;
        c[i].arg = &t[i];
        double mn = (double)t[i].m * (double)t[i].n, mk = (double)t[i].m * (double)t[i].k,
               nk = (double)t[i].n * (double)t[i].k;
        c[i].flops = 6 * mn * (double)t[i].k;
        c[i].bytes = 4 * (2 * mn + 2 * mk + 3 * nk);
        if ((double)t[i].bytes > b->max_bytes || pl_tape_init(&tape[i], 0, NULL) != PL_OK) continue;
        t[i].weight = pl_bench_block(b, t[i].bytes);
        t[i].grad = pl_bench_block(b, t[i].bytes);
        if (t[i].weight && t[i].grad && pl_ctx_init(&c[i].ctx, b->env->backend, b->env->pool) == PL_OK) {
            c[i].ctx.tape = &tape[i];
            c[i].ready = pl_ctx_measure(&c[i].ctx, train_step, &t[i], NULL) == PL_OK;
            if (!c[i].ready) pl_ctx_fini(&c[i].ctx);
        }
        if (!c[i].ready) pl_tape_fini(&tape[i]);
    }
    pl_bench_time(b, c, N);
    pl_put_array(o, "train");
    for (int i = 0; i < N; i++) {
        if (!c[i].ready) continue;
        pl_json_out_object(o);
        pl_put_str(o, "name", c[i].name);
        pl_put_int(o, "m", t[i].m);
        pl_put_int(o, "n", t[i].n);
        pl_put_int(o, "k", t[i].k);
        pl_bench_write(o, &c[i]);
        pl_json_out_close(o, '}');
    }
    pl_json_out_close(o, ']');
    for (int i = 0; i < N; i++) {
        if (c[i].ready) pl_tape_fini(&tape[i]);
        pl_bench_done(&c[i]);
        if (t[i].weight) pl_block_destroy(t[i].weight, t[i].bytes);
        if (t[i].grad) pl_block_destroy(t[i].grad, t[i].bytes);
    }
}

// ---- draft heads: hidden state to the most probable token ----

typedef struct head_case {
    pl_head   head;
    pl_tensor x;
    size_t    x_bytes, out_bytes, down_bytes;
    int32_t   id[1];
} head_case;

static void head_step(pl_ctx *ctx, void *arg) {
    head_case *h = arg;
    pl_head_topk(ctx, &h->head, &(pl_head_rows){.x = h->x}, 1, h->id, NULL, NULL);
}

static void make_head(pl_bench *b, pl_bench_case *c, head_case *h, const pl_bench_heads *o, int64_t rank, pl_dtype t) {
    pl_hf_head spec = pl_hf_head_make(rank ? "lowrank" : "full", (int)rank);
    if (rank)
        snprintf(c->name, sizeof c->name, "lowrank-%lld-%s", (long long)rank, pl_weights_name(t));
    else
        snprintf(c->name, sizeof c->name, "full-%s", pl_weights_name(t));
    c->step = head_step;
    c->arg = h;
    if (pl_head_init(&h->head, &spec, o->width, o->vocab, NULL) != PL_OK) return;
    if (!make_weight(b, &h->head.out, &h->out_bytes, o->vocab, h->head.rank, t)) return;
    if (rank && !make_weight(b, &h->head.down, &h->down_bytes, rank, o->width, t)) return;
    if (!make_input(b, &h->x, &h->x_bytes, 1, o->width)) return;
    pl_cost out = pl_linear_cost(1, &h->head.out), down = {0};
    if (rank) down = pl_linear_cost(1, &h->head.down);
    c->bytes = out.bytes + down.bytes;
    c->flops = out.flops + down.flops;
    c->memory = h->head.out.data; // `down` is some percent of it
    c->memory_bytes = h->out_bytes;
    pl_bench_ready(b, c);
}

void pl_bench_put_heads(pl_json_out *o, pl_bench *b, const pl_bench_heads *h) {
    enum { MOST = 2 * (1 + sizeof h->rank / sizeof *h->rank) };
    pl_bench_case c[MOST] = {0};
    head_case     heads[MOST] = {0};
    int           n = 0;
    for (int t = 0; t < 2; t++)
        for (int r = -1; r < h->n_ranks; r++, n++)
            make_head(b, &c[n], &heads[n], h, r < 0 ? 0 : h->rank[r], t ? PL_F32 : PL_BF16);
    pl_bench_time(b, c, n);
    pl_put_array(o, "heads");
    for (int i = 0; i < n; i++) {
        if (!c[i].ready) continue;
        pl_json_out_object(o);
        pl_put_str(o, "name", c[i].name);
        pl_put_str(o, "kind", heads[i].head.kind->name);
        pl_put_int(o, "rank", heads[i].head.kind == &pl_head_lowrank ? heads[i].head.rank : 0);
        pl_put_str(o, "weights", pl_weights_name(heads[i].head.out.dtype));
        pl_put_int(o, "vocab", heads[i].head.vocab);
        pl_put_int(o, "width", heads[i].head.d);
        pl_bench_write(o, &c[i]);
        pl_json_out_close(o, '}');
    }
    pl_json_out_close(o, ']');
    for (int i = 0; i < n; i++) {
        pl_bench_done(&c[i]);
        drop(&heads[i].head.out, heads[i].out_bytes);
        drop(&heads[i].head.down, heads[i].down_bytes);
        drop(&heads[i].x, heads[i].x_bytes);
        pl_head_fini(&heads[i].head);
    }
}
