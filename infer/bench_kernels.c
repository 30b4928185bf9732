// bench: matrix products of decoding and of training.
#include "infer/bench_parts.h"
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
