// bench: times single ops with the shapes of decoding and training, and draft heads.
#include "infer/bench/bench.h"
#include "infer/head/dynaspec.h"
#include "infer/head/head.h"
#include "infer/model/target.h"
#include "kernels/base/json.h"
#include "kernels/base/rng.h"
#include "kernels/base/room.h"
#include "kernels/op/attention.h"
#include "kernels/op/draw.h"
#include "kernels/op/gatherdot.h"
#include "kernels/op/headtopk.h"
#include "kernels/op/linear.h"
#include "kernels/tape.h"

#include <math.h>
#include <stdio.h>
#include <string.h>

#define SMALLER "lower --vocab or --hidden, or --max-mb, above which a matrix is left out"
#define COUNT(x) ((int)(sizeof(x) / sizeof *(x)))

// ---- products with packed weights, as in decoding ----

// Copies of one weight; a device's steps read them in turn.
typedef struct weight {
    pl_tensor w[PL_BENCH_COPIES];
    size_t    bytes;
    int       n;
} weight;

typedef struct product {
    pl_tensor     x;
    const weight *w;
    int           turn;
} product;

static void linear_step(pl_ctx *ctx, void *arg) {
    product *p = arg;
    pl_linear(ctx, p->x, p->w->w[p->turn]);
    p->turn = (p->turn + 1) % p->w->n;
}

// Makes the copies of a weight; NULL: above max_bytes, or out of memory.
static weight *make_weight(pl_bench *b, int64_t n, int64_t k, pl_dtype t) {
    size_t  bytes = pl_panels_bytes(n, k, t);
    weight *w = (double)bytes > b->max_bytes ? NULL : pl_bench_alloc(b, sizeof *w);
    for (int most = pl_bench_copies(b, bytes); w && w->n < most; w->n++) {
        pl_tensor *to = &w->w[w->n];
        *to = pl_tensor_2d(pl_bench_block(b, bytes), t, n, k);
        to->layout = PL_PANELS;
        if (!to->data) break;
    }
    if (w) w->bytes = bytes;
    return w && w->n > 0 ? w : NULL;
}

static void add_product(pl_bench *b, const weight *w, int m) {
    const pl_tensor *of = &w->w[0];
    pl_cost          cost = pl_linear_cost(m, of);
    pl_bench_case   *c =
        pl_bench_add(b, "%dx%lldx%lld %s", m, (long long)of->dim[0], (long long)of->dim[1], pl_weights_name(of->dtype));
    product *p = c->arg = pl_bench_alloc(b, sizeof *p);
    pl_bench_int(c, "m", m);
    pl_bench_int(c, "n", of->dim[0]);
    pl_bench_int(c, "k", of->dim[1]);
    pl_bench_text(c, "weights", pl_weights_name(of->dtype));
    c->step = linear_step;
    c->bytes = cost.bytes;
    c->flops = cost.flops;
    c->factors = of->dtype;
    c->memory = of->data;
    c->memory_bytes = w->bytes;
    if (!p || !pl_bench_input(b, &p->x, m, of->dim[1])) return;
    p->w = w;
    pl_bench_ready(b, c);
}

pl_status pl_bench_put_linear(pl_json_out *o, pl_bench *b, int64_t vocab, int64_t width, pl_err *err) {
    static const pl_dtype type[] = {PL_F32, PL_BF16};
    static const int      rows[] = {1, 8, 16, 32, 60}; // a host runs the first two
    const int64_t         shape[][2] = {{4096, 4096}, {vocab, width}};
    double                bytes = 0;
    for (int i = 0; i < 4; i++)
        bytes += pl_bench_copied(b, pl_panels_bytes(shape[i / 2][0], shape[i / 2][1], type[i % 2]));
    PL_TRY(pl_bench_room(b, bytes, "linear: the weights", SMALLER, err));
    for (int i = 0; i < 4; i++) {
        const weight *w = make_weight(b, shape[i / 2][0], shape[i / 2][1], type[i % 2]);
        for (int r = 0; w && r < (b->copy_bytes ? COUNT(rows) : 2); r++)
            add_product(b, w, rows[r]);
    }
    pl_bench_put(o, b, "linear");
    return PL_OK;
}

// ---- products with gradients, as in training ----

typedef struct training {
    int64_t m, n, k;
    void   *weight, *half, *grad, *input; // half: the weight's bf16 copy for training in bf16
    pl_tape tape;
} training;

static void train_step(pl_ctx *ctx, void *arg) {
    training *t = arg;
    pl_tensor w = pl_tensor_2d(t->weight, PL_F32, t->n, t->k);
    w.grad = t->grad;
    w.bf16 = t->half;
    pl_tensor x = pl_ctx_tensor(ctx, t->m, t->k);
    pl_ctx_copy(ctx, x.data, t->input, (size_t)(t->m * t->k) * sizeof(float));
    pl_linear(ctx, x, w);
    pl_tape_backward(ctx);
}

static void drop_tape(void *arg) {
    pl_tape_fini(&((training *)arg)->tape);
}

static void add_training(pl_bench *b, const int64_t shape[3], bool bf16) {
    int64_t        m = shape[0], n = shape[1], k = shape[2];
    double         mn = (double)m * (double)n, mk = (double)m * (double)k, nk = (double)n * (double)k;
    size_t         bytes = pl_size_mul((size_t)n, (size_t)k, sizeof(float));
    pl_bench_case *c = pl_bench_add(b, "%lldx%lldx%lld %s forward and backward", (long long)m, (long long)n,
                                    (long long)k, bf16 ? "bf16" : "fp32");
    training      *t = c->arg = pl_bench_alloc(b, sizeof *t);
    pl_bench_int(c, "m", m);
    pl_bench_int(c, "n", n);
    pl_bench_int(c, "k", k);
    c->step = train_step;
    c->factors = bf16 ? PL_BF16 : PL_F32;
    c->flops = 6 * mn * (double)k;
    c->bytes = 4 * (2 * mn + 2 * mk + 3 * nk);
    c->memory_bytes = b->copy_bytes; // the host's floor counts flops alone
    c->rated = true;
    if (!t || (double)bytes > b->max_bytes || pl_tape_init(&t->tape, 0, NULL) != PL_OK) return;
    c->tape = &t->tape;
    c->drop = drop_tape;
    t->m = m, t->n = n, t->k = k;
    t->weight = pl_bench_block(b, bytes);
    t->grad = pl_bench_block(b, bytes);
    t->input = pl_bench_block(b, pl_size_mul((size_t)m, (size_t)k, sizeof(float)));
    if (bf16) t->half = pl_bench_block(b, bytes / 2);
    if (t->weight && t->grad && t->input && (t->half || !bf16)) pl_bench_ready(b, c);
}

pl_status pl_bench_put_train(pl_json_out *o, pl_bench *b, int64_t rows, int64_t vocab, int64_t width, pl_err *err) {
    enum { SHAPES = 4 };
    static const int64_t host[SHAPES][3] = {
        {1024, 768, 256}, {1024, 256, 704}, {1024, 4096, 256}, {512, 2048, 2048}}; // M, N, K
    // On a device, shapes of a large model: gate and up, down, attention's input of an EAGLE-3 layer, a trimmed head.
    const int64_t there[SHAPES][3] = {{rows, 7 * width, width},
                                      {rows, width, 7 * width / 2},
                                      {rows, 3 * width / 2, 2 * width},
                                      {rows, vocab / 4, width}};
    const int64_t(*shape)[3] = b->copy_bytes ? there : host;
    const int n = b->copy_bytes ? SHAPES : 2 * SHAPES; // on the host, each shape in fp32 and in bf16
    double    bytes = 0;                               // weight, input and output, each with its gradient
    for (int i = 0; i < n; i++) {
        const int64_t *of = shape[i % SHAPES];
        double         nk = 4.0 * (double)of[1] * (double)of[2];
        double         rest = 4.0 * (double)of[0] * (3 * (double)of[2] + 2 * (double)of[1]);
        bytes += nk > b->max_bytes ? 0 : (i < SHAPES ? 2 : 2.5) * nk + rest;
    }
    PL_TRY(pl_bench_room(b, bytes, "train: weights, gradients and rows", SMALLER, err));
    for (int i = 0; i < n; i++)
        add_training(b, shape[i % SHAPES], i >= SHAPES);
    pl_bench_put(o, b, "train");
    return PL_OK;
}

// ---- attention over a KV cache, as in decoding and verification ----

enum { HEAD_DIM = 128, QUERIES = 4 }; // queries that share a key head

typedef struct cached {
    pl_tensor qkv;
    pl_kvrow *row; // [copies][rows]
    int       copies, turn, rows, nh, nkv;
} cached;

static void attention_step(pl_ctx *ctx, void *arg) {
    cached *a = arg;
    pl_attention_cached(ctx, a->qkv, a->row + (size_t)a->turn * (size_t)a->rows, a->nh, a->nkv, HEAD_DIM);
    a->turn = (a->turn + 1) % a->copies;
}

static size_t cache_bytes(int keys, int64_t width, pl_dtype kv) {
    return 2 * (size_t)keys * (size_t)(width / HEAD_DIM / QUERIES * HEAD_DIM) * pl_dtype_size(kv);
}

// Adds attention of a chain of `rows` rows, whose last row attends to `keys` keys.
static void add_attention(pl_bench *b, int rows, int keys, int64_t width, pl_dtype kv) {
    int            nh = (int)(width / HEAD_DIM), nkv = nh / QUERIES;
    size_t         bytes = cache_bytes(keys, width, kv);
    pl_bench_case *c = pl_bench_add(b, "%d rows over %d keys", rows, keys);
    cached        *a = c->arg = pl_bench_alloc(b, sizeof *a);
    pl_bench_int(c, "rows", rows);
    pl_bench_int(c, "keys", keys);
    pl_bench_int(c, "heads", nh);
    pl_bench_int(c, "kv_heads", nkv);
    pl_bench_text(c, "kv", pl_weights_name(kv));
    if (!a || nkv < 1 || (double)bytes > b->max_bytes) return;
    *a = (cached){.copies = pl_bench_copies(b, bytes), .rows = rows, .nh = nh, .nkv = nkv};
    uint8_t *block = pl_bench_block(b, (size_t)a->copies * bytes);
    a->row = pl_bench_shared(b, (size_t)(a->copies * rows) * sizeof *a->row);
    if (!block || !a->row || !pl_bench_input(b, &a->qkv, rows, (nh + 2 * nkv) * HEAD_DIM)) return;
    for (int i = 0; i < a->copies * rows; i++) {
        uint8_t *k = block + (size_t)(i / rows) * bytes;
        int      m = i % rows;
        a->row[i] = (pl_kvrow){
            .k = k, .v = k + bytes / 2, .n_ctx = keys - rows, .n_path = m + 1, .slot = keys - rows + m, .dtype = kv};
    }
    c->step = attention_step;
    c->bytes = (double)bytes;
    c->flops = 4.0 * rows * keys * nh * HEAD_DIM;
    c->memory = block;
    c->memory_bytes = bytes;
    pl_bench_ready(b, c);
}

pl_status pl_bench_put_attention(pl_json_out *o, pl_bench *b, int64_t width, pl_dtype kv, pl_err *err) {
    static const int rows[] = {1, 8, 60}, keys[] = {128, 1024, 8192};
    double           bytes = 0;
    for (int i = 0; i < COUNT(keys); i++)
        bytes += COUNT(rows) * pl_bench_copied(b, cache_bytes(keys[i], width, kv));
    PL_TRY(pl_bench_room(b, bytes, "attention: the caches",
                         "lower --hidden, or --max-mb, above which a cache is left out", err));
    for (int i = 0; i < COUNT(keys) * COUNT(rows); i++)
        add_attention(b, rows[i % COUNT(rows)], keys[i / COUNT(rows)], width, kv);
    pl_bench_put(o, b, "attention");
    return PL_OK;
}

// ---- drawing the target's tokens from its logits, as in decoding on a device ----

// This runs on devices alone: a host draws node by node from distributions (infer/decode/verification.h).
typedef struct drawing {
    pl_tensor    x;
    pl_draw_row *row;
    int32_t     *id;
    int          n;
} drawing;

static void draw_step(pl_ctx *ctx, void *arg) {
    const drawing *d = arg;
    pl_draw(ctx, &(pl_draw_args){.x = d->x, .row = d->row, .n = d->n, .id = d->id});
}

// Fills logits with a spread like a model's, since the cost of the filters depends on it.
static bool fill_logits(pl_bench *b, const drawing *d, int64_t vocab) {
    float *z = pl_bench_alloc(b, (size_t)vocab * sizeof *z);
    for (int64_t v = 0; z && v < vocab; v++)
        z[v] = 3 * pl_rng_normal(pl_rng_make(1, PL_STREAM_NOISE, 0), (uint64_t)v);
    for (int i = 0; z && i < d->n; i++)
        if (pl_memory_write(b->env->backend->memory, pl_f32(&d->x) + i * vocab, z, (size_t)vocab * sizeof *z, NULL) !=
            PL_OK)
            return false;
    return z != NULL;
}

static void add_draw(pl_bench *b, int rows, int64_t vocab, bool filtered) {
    pl_bench_case *c = pl_bench_add(b, "%dx%lld%s", rows, (long long)vocab, filtered ? " top-k top-p" : "");
    drawing       *d = c->arg = pl_bench_alloc(b, sizeof *d);
    pl_bench_int(c, "rows", rows);
    pl_bench_flag(c, "filtered", filtered);
    if (!d) return;
    d->n = rows;
    d->row = pl_bench_shared(b, (size_t)rows * sizeof *d->row);
    d->id = pl_bench_shared(b, (size_t)rows * sizeof *d->id);
    if (!d->row || !d->id || !pl_bench_input(b, &d->x, rows, vocab) || !fill_logits(b, d, vocab)) return;
    for (int i = 0; i < rows; i++)
        d->row[i] = (pl_draw_row){.u = (i + 0.5) / rows,
                                  .temperature = 1,
                                  .top_p = filtered ? 0.95 : 1,
                                  .top_k = filtered ? 50 : 0,
                                  .penalty = 1,
                                  .at = i,
                                  .parent = -1};
    c->step = draw_step;
    c->bytes = (double)rows * (double)vocab * sizeof(float);
    c->memory = d->x.data;
    c->memory_bytes = (size_t)c->bytes;
    pl_bench_ready(b, c);
}

void pl_bench_put_draw(pl_json_out *o, pl_bench *b, int64_t vocab) {
    static const int rows[] = {1, 8, 60};
    for (int i = 0; i < 2 * COUNT(rows); i++)
        add_draw(b, rows[i % COUNT(rows)], vocab, i >= COUNT(rows));
    pl_bench_put(o, b, "draw");
}

// ---- draft heads of every kind with random weights ----

// A step goes from a hidden state to the most probable token, through the interface of decoding. One head is in memory
// at a time, since several of a large shape do not fit.

#define HEAD_PARAMS 12
#define SLACK 1.05 // packing, activations

// Token, group and result of the row, which host and device access.
typedef struct head_row {
    int32_t token[1], group[1], id[1];
} head_row;

// One head, or its copies, which a device reads in turn.
typedef struct head_case {
    pl_head   head[PL_BENCH_COPIES];
    pl_params params[PL_BENCH_COPIES];
    int       n, turn, level;
    pl_tensor x; // one row
    head_row *row;
} head_case;

static pl_head_rows rows_of(const head_case *h) {
    return (pl_head_rows){
        .x = h->x, .level = h->level, .hidden = h->x, .embed = h->x, .token = h->row->token, .group = h->row->group};
}

static void head_step(pl_ctx *ctx, void *arg) {
    head_case   *h = arg;
    pl_head_rows rows = rows_of(h);
    pl_head_topk(ctx, &h->head[h->turn], &rows, 1, h->row->id, NULL, NULL);
    h->turn = (h->turn + 1) % h->n;
}

static bool make_row(pl_bench *b, head_case *h, int64_t width) {
    float *x = pl_bench_alloc(b, (size_t)width * sizeof *x);
    for (int64_t i = 0; x && i < width; i++)
        x[i] = (float)(i * 7919 % 1009 - 504) / 504;
    h->row = pl_bench_shared(b, sizeof *h->row);
    return x && h->row && pl_bench_input(b, &h->x, 1, width) &&
           pl_memory_write(b->env->backend->memory, h->x.data, x, (size_t)width * sizeof *x, NULL) == PL_OK;
}

// Returns the bytes that a routed head reads for this row, by the sizes of its chosen clusters.
static double routed_bytes(pl_bench_case *c, head_case *h) {
    const pl_params *ps = &h->params[0];
    const pl_head   *head = &h->head[0];
    pl_ctx_begin(&c->ctx);
    pl_head_rows    rows = rows_of(h);
    pl_head_support s = head->kind->support(&c->ctx, head, &rows);
    double          bytes = (double)pl_route_rows(&c->ctx, s.spans) * (double)head->rank; // of one row, so of one group
    for (int i = 0; i < ps->n; i++)
        if (ps->p[i].tensor != &head->out) bytes += (double)ps->p[i].spec.rows * fmax(1, (double)ps->p[i].spec.cols);
    return bytes * (double)pl_dtype_size(c->factors);
}

// Sets the memory where the bandwidth is probed: the head's largest matrix, nearly all of its bytes.
static void set_footprint(pl_bench_case *c, const pl_params *ps) {
    for (int i = 0; i < ps->n; i++)
        if (ps->p[i].owned_bytes > c->memory_bytes) {
            c->memory = ps->p[i].owned;
            c->memory_bytes = ps->p[i].owned_bytes;
        }
    if ((double)c->memory_bytes > c->bytes) c->memory_bytes = (size_t)c->bytes;
}

// Makes a head without weights and counts their bytes; PL_E_USAGE above max_bytes.
static pl_status list_copy(pl_bench *b, head_case *h, const pl_head_example *e, int64_t width, pl_dtype t,
                           double *bytes, pl_err *err) {
    pl_head   *head = &h->head[h->n];
    pl_params *ps = &h->params[h->n];
    PL_TRY(pl_head_init(head, &e->spec, width, e->rows, err));
    PL_TRY(pl_params_init(ps, HEAD_PARAMS, err));
    ps->memory = b->env->backend->memory;
    head->kind->params(head, ps);
    *bytes = 0;
    for (int i = 0; i < ps->n; i++)
        *bytes += (double)ps->p[i].spec.rows * (double)ps->p[i].spec.cols * (double)pl_dtype_size(t);
    return *bytes > b->max_bytes ? PL_E_USAGE : PL_OK;
}

// Fills the next copy: the first one with random values, later ones with the values of the first.
static pl_status fill_copy(pl_bench *b, pl_params *ps, const pl_params *first, uint64_t seed, pl_dtype t, pl_err *err) {
    if (ps == first) return pl_params_tile(ps, t, seed, &b->ctx, err);
    PL_TRY(pl_params_hold(ps, t, err));
    pl_ctx_copy(&b->ctx, ps->block, first->block, ps->block_bytes);
    return pl_ctx_sync(&b->ctx, err);
}

static pl_status add_copy(pl_bench *b, head_case *h, const pl_head_example *e, int64_t width, pl_dtype t, pl_err *err) {
    pl_head *head = &h->head[h->n];
    double   bytes;
    PL_TRY(list_copy(b, h, e, width, t, &bytes, err));
    if (head->kind->table) PL_TRY(head->kind->table->draw(head, e->uneven, err));
    return fill_copy(b, &h->params[h->n], h->params, (uint64_t)b->n, t, err);
}

// Frees all copies. One more than head_case.n may have been begun.
static void drop_head(void *arg) {
    head_case *h = arg;
    for (int i = 0; i < PL_BENCH_COPIES; i++) {
        pl_params_fini(&h->params[i]);
        pl_head_fini(&h->head[i]);
    }
}

// Times one head and frees it; a head above max_bytes is left out.
static pl_bench_case *time_head(pl_bench *b, const pl_head_example *e, int64_t width, pl_dtype t) {
    pl_err         err = {0};
    pl_status      st = PL_OK;
    pl_bench_case *c = pl_bench_add(b, "%.47s-%s", e->name, pl_weights_name(t));
    head_case     *h = c->arg = pl_bench_alloc(b, sizeof *h);
    if (!h) return c;
    c->drop = drop_head;
    h->level = e->level;
    for (int most = 1; h->n < most && (st = add_copy(b, h, e, width, t, &err)) == PL_OK; h->n++)
        if (h->n == 0) most = pl_bench_copies(b, h->params[0].block_bytes);
    if (h->n == 0 && st != PL_E_USAGE) pl_bench_leave_out(b, c->name, &err);
    if (h->n > 0 && make_row(b, h, width)) {
        const pl_head *head = &h->head[0];
        pl_bench_text(c, "kind", head->kind->name);
        pl_bench_int(c, "rank", pl_hf_head_int(&head->spec, "rank"));
        pl_bench_text(c, "weights", pl_weights_name(t));
        pl_bench_int(c, "vocab", head->vocab);
        pl_bench_int(c, "width", head->d);
        c->step = head_step;
        c->factors = t;
        c->bytes = pl_head_step_bytes(head, e->level);
        pl_bench_ready(b, c);
        if (c->ready && head->kind->routed) c->bytes = routed_bytes(c, h);
        c->flops = 2 * c->bytes / (double)pl_dtype_size(t);
        if (c->ready) set_footprint(c, h->params);
    }
    pl_bench_run(b);
    return c;
}

// Returns the bytes of a head and its copies.
static double head_bytes(pl_bench *b, const pl_head_example *e, int64_t width, pl_dtype t) {
    pl_err     err;
    double     bytes = 0;
    head_case *h = pl_calloc(1, sizeof *h);
    bool       made = h && list_copy(b, h, e, width, t, &bytes, &err) == PL_OK;
    if (h) drop_head(h);
    pl_free(h);
    return made ? bytes * pl_bench_copies(b, (size_t)bytes) : 0;
}

// Fails if the largest head does not fit; the message has the number of rows that would, as bytes grow with rows.
static pl_status check_room(pl_bench *b, const pl_bench_heads *o, double largest, pl_err *err) {
    double have = 0;
    bool   lacks;
    char   what[64], mend[96];
    if (!pl_backend_on_host(b->env->backend)) return PL_OK;
    PL_TRY(pl_memory_lacks(largest * SLACK, &lacks, &have, err));
    if (!lacks) return PL_OK;
    double rows = floor((double)o->vocab * have / (largest * SLACK) * 0.98);
    snprintf(what, sizeof what, "heads: the largest of %lld rows", (long long)o->vocab);
    snprintf(mend, sizeof mend, "--vocab %.0f would fit%s", rows,
             o->dtype[0] && o->dtype[1] ? ", or try --weights bf16" : "");
    return pl_memory_room(largest * SLACK, what, mend, err);
}

static void put_reads(pl_json_out *o, pl_bench *b, const pl_bench_heads *h);

pl_status pl_bench_put_heads(pl_json_out *o, pl_bench *b, const pl_bench_heads *h, pl_err *err) {
    static const pl_dtype type[] = {PL_BF16, PL_F32};
    pl_head_shape         shape = {.vocab = h->vocab, .d = h->width, .rank = h->rank, .n_ranks = h->n_ranks};
    pl_head_example       e;
    double                largest = 0;
    for (int t = 0; t < 2; t++)
        for (int at = 0; h->dtype[t] && pl_head_next_example(&e, &at, &shape, PL_EXAMPLE_HEADS);)
            largest = fmax(largest, head_bytes(b, &e, h->width, type[t]));
    PL_TRY(check_room(b, h, largest, err));
    for (int t = 0; t < 2; t++) {
        pl_bench_case *full = NULL; // the first head, the reference for others of its dtype
        for (int at = 0; h->dtype[t] && pl_head_next_example(&e, &at, &shape, PL_EXAMPLE_HEADS);) {
            pl_bench_case *c = time_head(b, &e, h->width, type[t]);
            c->full = full = full ? full : c;
        }
    }
    pl_bench_put(o, b, "heads");
    put_reads(o, b, h);
    return PL_OK;
}

// ---- two ways to read the rows that a routed head has chosen ----

// A step goes from hidden states to the most probable token of each. `spans` runs the fused head over spans of rows
// sorted by cluster in panels (kernels/op/headtopk.h). `listed` reads each row of a row-major matrix by its index
// (kernels/op/gatherdot.h) and takes the best of the results. Both read the same rows, 27 of 128 clusters of unequal
// sizes, and are timed in turn; a floor counts those rows once.
enum { SPANS, LISTED, WAYS };
enum { PART = 27, OF = 128 };
static const char *const way_name[WAYS] = {"spans", "listed"};

// The chosen clusters.
typedef struct reads {
    pl_head  head;
    int64_t  clusters, chosen, listed; // clusters chosen, and their rows
    pl_span *span;                     // shared
} reads;

// A matrix, or its copies, which a device reads in turn.
typedef struct matrix {
    pl_params params[PL_BENCH_COPIES];
    pl_tensor w[PL_BENCH_COPIES];
    int       n;
} matrix;

typedef struct reading {
    const reads  *of;
    const matrix *m;
    int           way, turn;
    pl_tensor     x;
    int32_t      *list, *id; // [rows, listed], [rows]; one block
} reading;

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

// Chooses clusters of a head without weights. Their sizes are unequal, so that they begin anywhere in a panel. Returns
// false where there are too few rows for clusters.
static bool choose_clusters(pl_bench *b, reads *a, const pl_bench_heads *h) {
    pl_head_shape   shape = {.vocab = h->vocab, .d = h->width};
    pl_head_example e;
    pl_err          err;
    int             at = 0;
    bool            found = false;
    while (!found && pl_head_next_example(&e, &at, &shape, PL_EXAMPLE_HEADS))
        found = pl_head_find(e.spec.kind, NULL)->routed && e.uneven;
    if (!found) return false;
    if (pl_head_init(&a->head, &e.spec, h->width, h->vocab, &err) != PL_OK ||
        a->head.kind->table->draw(&a->head, true, &err) != PL_OK) {
        pl_bench_leave_out(b, "routed_reads", &err);
        return false;
    }
    a->clusters = pl_routed_of(&a->head)->own->clusters;
    a->chosen = (a->clusters * PART + OF - 1) / OF;
    return true;
}

static bool place_spans(pl_bench *b, reads *a) {
    a->span = pl_bench_shared(b, (size_t)a->chosen * sizeof *a->span);
    for (int64_t i = 0; i < a->chosen && a->span; i++) {
        const int64_t *row = pl_routed_of(&a->head)->offset + i * a->clusters / a->chosen;
        a->span[i] = (pl_span){.first = (int32_t)row[0], .count = (int32_t)(row[1] - row[0])};
    }
    a->listed = a->span ? pl_spans_rows(a->span, (int)a->chosen) : 0;
    return a->listed > 0;
}

static pl_status add_matrix(pl_bench *b, const reads *a, matrix *m, int way, const pl_bench_heads *h, pl_dtype t,
                            pl_err *err) {
    pl_params *ps = &m->params[m->n];
    PL_TRY(pl_params_init(ps, 1, err));
    ps->memory = b->env->backend->memory;
    pl_params_add(ps, &(pl_param_args){.tensor = &m->w[m->n],
                                       .kind = way == SPANS ? PL_PARAM_MATRIX : PL_PARAM_EMBED,
                                       .part = {{"lm_head.weight", h->vocab}},
                                       .cols = h->width,
                                       .init_std = 0.02,
                                       .segments = way == SPANS ? &pl_routed_of(&a->head)->segments : NULL});
    return fill_copy(b, ps, m->params, 7, t, err);
}

static void add_reading(pl_bench *b, const reads *a, const matrix *m, int way, int rows, const pl_bench_heads *h,
                        pl_dtype t) {
    size_t         n = (size_t)rows * (size_t)(a->listed + 1);
    pl_bench_case *c =
        pl_bench_add(b, "dynaspec-%lld/%lld-%s-%s (%d row%s)", (long long)a->chosen, (long long)a->clusters,
                     way_name[way], pl_weights_name(t), rows, rows > 1 ? "s" : "");
    reading *r = c->arg = pl_bench_alloc(b, sizeof *r);
    pl_bench_text(c, "way", way_name[way]);
    pl_bench_text(c, "weights", pl_weights_name(t));
    pl_bench_int(c, "rows", rows);
    pl_bench_int(c, "vocab", h->vocab);
    pl_bench_int(c, "width", h->width);
    pl_bench_int(c, "rows_read", a->listed);
    if (!r || m->n == 0) return;
    *r = (reading){.of = a, .m = m, .way = way, .list = pl_bench_shared(b, n * sizeof *r->list)};
    if (!r->list || !pl_bench_input(b, &r->x, rows, h->width)) return;
    r->id = r->list + rows * a->listed;
    for (int64_t s = 0, at = 0; s < a->chosen; s++)
        for (int32_t v = 0; v < a->span[s].count; v++, at++)
            for (int k = 0; k < rows; k++)
                r->list[k * a->listed + at] = a->span[s].first + v;
    c->step = read_step;
    c->bytes = (double)a->listed * (double)h->width * (double)pl_dtype_size(t);
    c->flops = 2.0 * rows * (double)a->listed * (double)h->width;
    c->factors = t;
    c->memory = m->params[0].block;
    c->memory_bytes = (size_t)fmin(c->bytes, (double)m->params[0].block_bytes);
    pl_bench_ready(b, c);
}

// Times both ways for one dtype; only its matrices are in memory.
static void time_reads(pl_bench *b, reads *a, const pl_bench_heads *h, pl_dtype t) {
    static const int rows[] = {1, 10}; // a chain's level, a tree's
    double           bytes = (double)h->vocab * (double)h->width * (double)pl_dtype_size(t);
    int              copies = pl_bench_copies(b, (size_t)(bytes * PART / OF));
    pl_err           err = {0};
    if (bytes > b->max_bytes) return;
    if (pl_bench_room(b, WAYS * copies * bytes, "two ways to read a head", "lower --vocab or --hidden", &err) !=
        PL_OK) {
        pl_bench_leave_out(b, "routed_reads", &err);
        return;
    }
    matrix m[WAYS] = {0};
    if (!place_spans(b, a)) return;
    for (int way = 0; way < WAYS; way++) {
        while (m[way].n < copies && add_matrix(b, a, &m[way], way, h, t, &err) == PL_OK)
            m[way].n++;
        if (m[way].n == 0) pl_bench_leave_out(b, way_name[way], &err);
    }
    for (int i = 0; i < WAYS * COUNT(rows); i++)
        add_reading(b, a, &m[i % WAYS], i % WAYS, rows[i / WAYS], h, t);
    pl_bench_run(b);
    for (int way = 0; way < WAYS; way++) // one more copy may have been begun
        for (int i = 0; i < PL_BENCH_COPIES; i++)
            pl_params_fini(&m[way].params[i]);
}

static void put_reads(pl_json_out *o, pl_bench *b, const pl_bench_heads *h) {
    reads a = {0};
    if (choose_clusters(b, &a, h))
        for (int t = 0; t < 2; t++)
            if (h->dtype[t]) time_reads(b, &a, h, t ? PL_F32 : PL_BF16);
    pl_bench_put(o, b, "routed_reads");
    pl_head_fini(&a.head);
}
