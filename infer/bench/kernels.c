// bench: matrix products of decoding and of training.
#include "infer/bench/parts.h"
#include "infer/model/target.h"
#include "kernels/base/json_put.h"
#include "kernels/op/linear.h"
#include "kernels/tape.h"

#include <stdio.h>

// ---- products with packed weights, as decoding has them ----

// Copies of one weight, which a device's steps read in turn.
typedef struct weight {
    pl_tensor w[PL_BENCH_COPIES];
    size_t    bytes;
    int       n;
} weight;

typedef struct product {
    pl_tensor     x;
    const weight *w;
    size_t        x_bytes;
    int           turn;
} product;

static void linear_step(pl_ctx *ctx, void *arg) {
    product *p = arg;
    pl_linear(ctx, p->x, p->w->w[p->turn]);
    p->turn = (p->turn + 1) % p->w->n;
}

static bool make_weight(pl_bench *b, weight *w, int64_t n, int64_t k, pl_dtype t) {
    w->bytes = pl_panels_bytes(n, k, t);
    if ((double)w->bytes > b->max_bytes) return false;
    for (int most = pl_bench_copies(b, w->bytes); w->n < most; w->n++) {
        pl_tensor *to = &w->w[w->n];
        *to = pl_tensor_2d(pl_bench_block(b, w->bytes), t, n, k);
        to->layout = PL_PANELS;
        if (!to->data) break;
    }
    return w->n > 0;
}

#define SMALLER "lower --vocab or --hidden, or --max-mb, above which a matrix is left out"

static double weight_bytes(const pl_bench *b, int64_t n, int64_t k, pl_dtype t) {
    size_t bytes = pl_panels_bytes(n, k, t);
    return (double)bytes > b->max_bytes ? 0 : (double)bytes * pl_bench_copies(b, bytes);
}

pl_status pl_bench_put_linear(pl_json_out *o, pl_bench *b, int64_t vocab, int64_t width, pl_err *err) {
    enum { SHAPES = 2, TYPES = 2, ROWS = 5 };
    const int64_t    shape[SHAPES][2] = {{4096, 4096}, {vocab, width}}; // N, K
    static const int rows[ROWS] = {1, 8, 16, 32, 60};                   // on the host the first two
    product          p[SHAPES * TYPES * ROWS] = {0};
    weight           w[SHAPES * TYPES] = {0};
    int              n = 0, n_rows = b->copy_bytes ? ROWS : 2;
    double           bytes = 0;
    for (int s = 0; s < SHAPES; s++)
        bytes += weight_bytes(b, shape[s][0], shape[s][1], PL_F32) + weight_bytes(b, shape[s][0], shape[s][1], PL_BF16);
    PL_TRY(pl_bench_room(b, bytes, "linear: the weights", SMALLER, err));
    pl_bench_case *c = pl_bench_cases(SHAPES * TYPES * ROWS, err);
    if (!c) return PL_E_MEMORY;
    for (int s = 0; s < SHAPES; s++)
        for (int t = 0; t < TYPES; t++) {
            pl_dtype type = t ? PL_BF16 : PL_F32;
            weight  *of = &w[TYPES * s + t];
            bool     made = make_weight(b, of, shape[s][0], shape[s][1], type);
            for (int r = 0; r < n_rows && made; r++, n++) { // all numbers of rows read the same matrix
                int64_t m = rows[r];
                snprintf(c[n].name, sizeof c[n].name, "%lldx%lldx%lld %s", (long long)m, (long long)shape[s][0],
                         (long long)shape[s][1], pl_weights_name(type));
                c[n].step = linear_step;
                c[n].arg = &p[n];
                p[n].w = of;
                if (!pl_bench_input(b, &p[n].x, &p[n].x_bytes, m, shape[s][1])) continue;
                pl_cost cost = pl_linear_cost(m, &of->w[0]);
                c[n].bytes = cost.bytes;
                c[n].flops = cost.flops;
                c[n].factors = type;
                c[n].memory = of->w[0].data;
                c[n].memory_bytes = of->bytes;
                pl_bench_ready(b, &c[n]);
            }
        }
    pl_bench_time(b, c, n);
    pl_put_array(o, "linear");
    for (int i = 0; i < n; i++) {
        if (!c[i].ready) continue;
        const pl_tensor *of = &p[i].w->w[0];
        pl_json_out_object(o);
        pl_put_str(o, "name", c[i].name);
        pl_put_int(o, "m", p[i].x.dim[0]);
        pl_put_int(o, "n", of->dim[0]);
        pl_put_int(o, "k", of->dim[1]);
        pl_put_str(o, "weights", pl_weights_name(of->dtype));
        pl_bench_write(o, &c[i]);
        pl_json_out_close(o, '}');
    }
    pl_json_out_close(o, ']');
    for (int i = 0; i < n; i++) {
        pl_bench_done(&c[i]);
        pl_bench_drop(b, p[i].x.data, p[i].x_bytes);
    }
    for (int i = 0; i < SHAPES * TYPES; i++)
        for (int k = 0; k < w[i].n; k++)
            pl_bench_drop(b, w[i].w[k].data, w[i].bytes);
    pl_free(c);
    return PL_OK;
}

// ---- products with gradients, as training has them ----

typedef struct training {
    int64_t  m, n, k;
    pl_dtype factors; // BF16: the weight's copy that training in bf16 multiplies by
    void    *weight, *half, *grad, *input;
    size_t   bytes, input_bytes;
    pl_tape  tape;
} training;

static void train_step(pl_ctx *ctx, void *arg) {
    training *t = arg;
    pl_tensor w = pl_tensor_2d(t->weight, PL_F32, t->n, t->k);
    w.grad = t->grad;
    w.bf16 = t->half;
    pl_tensor x = pl_ctx_tensor(ctx, t->m, t->k);
    pl_ctx_copy(ctx, x.data, t->input, t->input_bytes);
    pl_linear(ctx, x, w);
    pl_tape_backward(ctx);
}

static void ready_to_train(pl_bench *b, pl_bench_case *c, training *t) {
    pl_err err = {0};
    t->bytes = pl_size_mul((size_t)t->n, (size_t)t->k, sizeof(float));
    t->input_bytes = pl_size_mul((size_t)t->m, (size_t)t->k, sizeof(float));
    if ((double)t->bytes > b->max_bytes || pl_tape_init(&t->tape, 0, NULL) != PL_OK) return;
    t->weight = pl_bench_block(b, t->bytes);
    t->grad = pl_bench_block(b, t->bytes);
    t->input = pl_bench_block(b, t->input_bytes);
    if (t->factors == PL_BF16 && !(t->half = pl_bench_block(b, t->bytes / 2))) return;
    if (!t->weight || !t->grad || !t->input || pl_ctx_init(&c->ctx, b->env->backend, b->env->pool) != PL_OK) return;
    c->ready = true;
    c->ctx.tape = &t->tape;
    if (pl_ctx_measure(&c->ctx, train_step, t, &err) == PL_OK) return;
    pl_bench_leave_out(b, c->name, &err);
    pl_bench_done(c);
}

pl_status pl_bench_put_train(pl_json_out *o, pl_bench *b, int64_t rows, int64_t vocab, int64_t width, pl_err *err) {
    enum { SHAPES = 4, N = 2 * SHAPES };
    static const int64_t host[SHAPES][3] = {
        {1024, 768, 256}, {1024, 256, 704}, {1024, 4096, 256}, {512, 2048, 2048}}; // M, N, K
    // On a device a large model's: gate and up, down, attention's input of an EAGLE-3 layer, a trimmed head.
    const int64_t there[SHAPES][3] = {{rows, 7 * width, width},
                                      {rows, width, 7 * width / 2},
                                      {rows, 3 * width / 2, 2 * width},
                                      {rows, vocab / 4, width}};
    const int64_t(*shape)[3] = b->copy_bytes ? there : host;
    const int n = b->copy_bytes ? SHAPES : N; // on the host each of them in fp32 and in bf16
    training  t[N] = {0};
    double    bytes = 0; // weight and gradient, input and output with theirs
    for (int i = 0; i < n; i++) {
        const int64_t *of = shape[i % SHAPES];
        double         nk = 4.0 * (double)of[1] * (double)of[2];
        double         rest = 4.0 * (double)of[0] * (3 * (double)of[2] + 2 * (double)of[1]);
        bytes += nk > b->max_bytes ? 0 : (i < SHAPES ? 2 : 2.5) * nk + rest;
    }
    PL_TRY(pl_bench_room(b, bytes, "train: weights, gradients and rows", SMALLER, err));
    pl_bench_case *c = pl_bench_cases(N, err);
    if (!c) return PL_E_MEMORY;
    for (int i = 0; i < n; i++) {
        const int64_t *of = shape[i % SHAPES];
        t[i] = (training){.m = of[0], .n = of[1], .k = of[2], .factors = i < SHAPES ? PL_F32 : PL_BF16};
        snprintf(c[i].name, sizeof c[i].name, "%lldx%lldx%lld %s forward and backward", (long long)t[i].m,
                 (long long)t[i].n, (long long)t[i].k, i < SHAPES ? "fp32" : "bf16");
        c[i].factors = t[i].factors;
        c[i].step = train_step;
        c[i].arg = &t[i];
        double mn = (double)t[i].m * (double)t[i].n, mk = (double)t[i].m * (double)t[i].k,
               nk = (double)t[i].n * (double)t[i].k;
        c[i].flops = 6 * mn * (double)t[i].k;
        c[i].bytes = 4 * (2 * mn + 2 * mk + 3 * nk);
        c[i].memory_bytes = b->copy_bytes; // the host's floor is that of flops alone
        ready_to_train(b, &c[i], &t[i]);
    }
    pl_bench_time(b, c, n);
    pl_put_array(o, "train");
    for (int i = 0; i < n; i++) {
        if (!c[i].ready) continue;
        pl_json_out_object(o);
        pl_put_str(o, "name", c[i].name);
        pl_put_int(o, "m", t[i].m);
        pl_put_int(o, "n", t[i].n);
        pl_put_int(o, "k", t[i].k);
        pl_bench_write(o, &c[i]);
        pl_put_num(o, "flops_per_second", c[i].flops / pl_bench_seconds(&c[i]));
        pl_json_out_close(o, '}');
    }
    pl_json_out_close(o, ']');
    for (int i = 0; i < n; i++) {
        pl_bench_done(&c[i]);
        pl_tape_fini(&t[i].tape);
        pl_bench_drop(b, t[i].weight, t[i].bytes);
        pl_bench_drop(b, t[i].half, t[i].bytes / 2);
        pl_bench_drop(b, t[i].grad, t[i].bytes);
        pl_bench_drop(b, t[i].input, t[i].input_bytes);
    }
    pl_free(c);
    return PL_OK;
}
