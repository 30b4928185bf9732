#include "tests/kernels/op_harness.h"
#include "kernels/base/rng.h"
#include "kernels/op/linear.h"
#include "kernels/op/rope.h"
#include "kernels/tape.h"
#include "tests/cuda/emulate/device_emulated.h"
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "tests/device.h"
#include "tests/ref64.h"
#include "tests/whole.h"

enum { MAX_INPUTS = 48, MAX_OUTPUTS = 32, GUARD = 64, PATTERN = 0x5c };

// One thing handed out: memory between guards, refilled before each run.
typedef struct input {
    uint8_t  *block, *data, *grad; // data and grad lie in block
    size_t    bytes, room;         // asked for; of block
    int64_t   n;
    double   *value;  // leaves, constants: the values, before the type's rounding
    uint8_t  *origin; // weights, integers: the bytes themselves; NULL with value NULL: filled with 0xff
    pl_tensor tensor;
    bool      leaf;
} input;

typedef struct output {
    double *value, *coeff; // coeff NULL: no part of the loss
    int64_t n;
    bool    whole; // integers
} output;

struct op_run {
    op_build_fn build;
    const void *shape;
    unsigned    flags;
    char        name[256];
    pl_pool    *pool;
    pl_ctx      ctx;
    pl_tape     tape;
    input       in[MAX_INPUTS];
    output      out[MAX_OUTPUTS];
    int         n_in, n_out, at_in, at_out;
    bool        backward;
    bool        narrow; // inputs are values of bf16: what a backend that computes in bf16 is compared on
};

static void *must(void *p) {
    assert_non_null(p);
    return p;
}

const pl_backend *op_backend(int i) {
    if (i == 0) return pl_backend_ref();
    if (i == 1) return pl_backend_ref64();
    i -= 2;
    bool        memcheck = getenv("PACELINE_TEST_MEMCHECK"), devices_alone = getenv("PACELINE_TEST_DEVICES_ALONE");
    const char *level;
    for (int k = 0; !devices_alone && (level = pl_backend_cpu_level(k)); k++) {
        const pl_backend *be = pl_backend_cpu_isa(level);
        if (be && (!memcheck || strcmp(level, "portable") == 0) && i-- == 0) return be;
    }
    const pl_backend *gpu = test_gpu();
    if (!memcheck && !gpu && i-- == 0) return pl_backend_cuda_emulated();
    return i == 0 ? gpu : NULL;
}

void *op_shared(const pl_backend *be, const void *from, size_t bytes) {
    void *p = must(pl_memory_create(be->memory, PL_SHARED, bytes, NULL));
    if (from) memcpy(p, from, bytes);
    return p;
}

void op_shared_free(const pl_backend *be, void *p, size_t bytes) {
    pl_memory_destroy(be->memory, PL_SHARED, p, bytes);
}

pl_ctx *op_ctx(op_run *r) {
    return &r->ctx;
}

static void put_real(const op_run *r, void *dst, int64_t i, double v) {
    if (r->ctx.be->real == PL_F64)
        ((double *)dst)[i] = v;
    else
        ((float *)dst)[i] = (float)v;
}

static double get_real(const op_run *r, const void *src, int64_t i) {
    return r->ctx.be->real == PL_F64 ? ((const double *)src)[i] : (double)((const float *)src)[i];
}

// Returns true if the next input has been drawn already.
static bool is_made(const op_run *r) {
    return r->at_in < r->n_in;
}

// The next input: made at the first run (in order of calls), the same one again at later runs.
static input *next_input(op_run *r, size_t bytes, bool grad, bool *fresh) {
    assert_true(r->at_in < MAX_INPUTS);
    input *in = &r->in[r->at_in++];
    *fresh = r->at_in > r->n_in;
    if (!*fresh) {
        assert_int_equal(in->bytes, bytes);
        return in;
    }
    r->n_in++;
    size_t room = (bytes + GUARD - 1) / GUARD * GUARD + 2 * GUARD;
    *in = (input){.bytes = bytes};
    in->block = op_shared(r->ctx.be, NULL, room * 2);
    in->room = room * 2;
    memset(in->block, PATTERN, room * 2);
    in->data = in->block + GUARD;
    if (grad) in->grad = in->block + room + GUARD;
    return in;
}

static bool guards_stand(const input *in) {
    size_t room = (in->bytes + GUARD - 1) / GUARD * GUARD + 2 * GUARD;
    for (size_t i = 0; i < 2 * room; i++) {
        const uint8_t *p = in->block + i;
        bool           own = p >= in->data && p < in->data + in->bytes;
        if (in->grad) own |= p >= in->grad && p < in->grad + in->bytes;
        if (!own && *p != PATTERN) return false;
    }
    return true;
}

static void refill(const op_run *r, input *in) {
    if (in->value)
        for (int64_t i = 0; i < in->n; i++)
            put_real(r, in->data, i, in->value[i]);
    else if (in->origin)
        memcpy(in->data, in->origin, in->bytes);
    else
        memset(in->data, 0xff, in->bytes);
    if (in->grad) memset(in->grad, 0, in->bytes);
}

// n values of N(0, 1) for the input in hand, a weight's or another's: drawn once, since every backend gets the same.
static const float *normals(const op_run *r, bool weight, size_t n) {
    static struct {
        float *v;
        size_t n;
    } drawn[2][MAX_INPUTS + 1];
    const pl_rng rng = pl_rng_make(weight ? 9 : 7, PL_STREAM_TEST, (uint64_t)r->at_in);
    float      **v = &drawn[weight][r->at_in].v;
    size_t      *known = &drawn[weight][r->at_in].n;
    if (n >= *known) *v = must(realloc(*v, (n + 1) * sizeof **v));
    for (; *known < n; ++*known)
        (*v)[*known] = pl_rng_normal(rng, *known);
    return *v;
}

static pl_tensor real_input(op_run *r, pl_tensor shape, double mean, double scale, bool leaf, bool rounded) {
    bool    fresh;
    int64_t n = pl_tensor_count(&shape);
    input  *in = next_input(r, (size_t)n * pl_dtype_size(r->ctx.be->real), leaf && r->ctx.tape, &fresh);
    if (fresh) {
        in->n = n;
        in->leaf = leaf;
        in->value = must(calloc((size_t)n + 1, sizeof(double)));
        const float *z = normals(r, false, (size_t)n);
        for (int64_t i = 0; i < n; i++)
            in->value[i] = (float)(mean + scale * (double)z[i]);
        for (int64_t i = 0; i < n && (r->narrow || rounded); i++)
            in->value[i] = (double)pl_round_bf16((float)in->value[i]);
        in->tensor = shape;
        in->tensor.dtype = r->ctx.be->real;
        in->tensor.data = in->data;
        in->tensor.grad = in->grad;
        refill(r, in);
    }
    return in->tensor;
}

pl_tensor op_leaf(op_run *r, int64_t rows, int64_t cols, double mean, double scale) {
    return real_input(r, pl_tensor_2d(NULL, PL_F32, rows, cols), mean, scale, true, false);
}

pl_tensor op_leaf_1d(op_run *r, int64_t n, double mean, double scale) {
    return real_input(r, pl_tensor_1d(NULL, PL_F32, n), mean, scale, true, false);
}

pl_tensor op_constant(op_run *r, int64_t rows, int64_t cols, double scale) {
    return real_input(r, pl_tensor_2d(NULL, PL_F32, rows, cols), 0, scale, false, false);
}

static void *raw_input(op_run *r, const void *from, size_t bytes) {
    bool   fresh;
    input *in = next_input(r, bytes, false, &fresh);
    if (fresh && from) {
        in->origin = must(malloc(bytes + 1));
        memcpy(in->origin, from, bytes);
    }
    if (fresh) refill(r, in);
    return in->data;
}

pl_tensor op_working(op_run *r, int64_t rows, int64_t cols, double scale) {
    pl_tensor    t = real_input(r, pl_tensor_2d(NULL, PL_F32, rows, cols), 0, scale, true, true);
    const input *in = &r->in[r->at_in - 1];
    uint16_t    *half = must(malloc((size_t)in->n * sizeof *half + 1));
    for (int64_t i = 0; i < in->n; i++)
        half[i] = pl_f32_to_bf16((float)in->value[i]);
    t.bf16 = raw_input(r, half, (size_t)in->n * sizeof *half);
    free(half);
    return t;
}

pl_tensor op_weight(op_run *r, int64_t n, int64_t k, pl_dtype dtype, pl_layout layout, double scale) {
    size_t count = (size_t)(n * k);
    if (is_made(r)) return op_weight_from(r, n, k, dtype, layout, NULL);
    float       *v = must(malloc((count + 1) * sizeof(float)));
    const float *z = normals(r, true, count);
    for (size_t i = 0; i < count; i++)
        v[i] = (float)(scale * (double)z[i]);
    pl_tensor t = op_weight_from(r, n, k, dtype, layout, v);
    free(v);
    return t;
}

pl_tensor op_weight_from(op_run *r, int64_t n, int64_t k, pl_dtype dtype, pl_layout layout, const float *v) {
    size_t count = (size_t)(n * k);
    size_t bytes = layout == PL_ROWMAJOR ? count * pl_dtype_size(dtype) : pl_panels_bytes(n, k, dtype);
    void  *packed = is_made(r) ? NULL : must(calloc(bytes + 1, 1));
    if (packed && layout != PL_ROWMAJOR)
        pl_panels_pack_as(layout, packed, dtype, 0, n, n, k, v);
    else if (packed)
        pl_from_f32(packed, dtype, v, count);
    pl_tensor t = pl_tensor_2d(raw_input(r, packed, bytes), dtype, n, k);
    t.layout = layout;
    free(packed);
    return t;
}

const int32_t *op_ids_from(op_run *r, const int32_t *from, int64_t n) {
    return raw_input(r, from, (size_t)n * 4);
}

const float *op_floats_from(op_run *r, const float *from, int64_t n) {
    return raw_input(r, from, (size_t)n * 4);
}

const int32_t *op_ids(op_run *r, int64_t n, int32_t lo, int32_t hi) {
    int32_t *id = must(malloc((size_t)n * 4 + 1));
    pl_rng   rng = pl_rng_make(11, PL_STREAM_TEST, (uint64_t)r->at_in);
    for (int64_t i = 0; i < n; i++)
        id[i] = lo + (int32_t)pl_rng_below(rng, (uint64_t)i, (uint64_t)(hi - lo));
    const int32_t *out = op_ids_from(r, id, n);
    free(id);
    return out;
}

const void *op_bytes_from(op_run *r, const void *from, size_t bytes) {
    return raw_input(r, from, bytes);
}

void *op_bytes(op_run *r, size_t bytes) {
    return raw_input(r, NULL, bytes);
}

pl_tensor op_place(op_run *r, int64_t rows, int64_t cols) {
    pl_dtype t = r->ctx.be->real;
    return pl_tensor_2d(op_bytes(r, (size_t)(rows * cols) * pl_dtype_size(t)), t, rows, cols);
}

pl_tensor op_cache(op_run *r, int64_t slots, int64_t cols, pl_dtype t) {
    return t == PL_BF16 ? op_weight(r, slots, cols, PL_BF16, PL_ROWMAJOR, 1) : op_constant(r, slots, cols, 1);
}

void op_keep(op_run *r, pl_tensor qkv, const pl_kvrow *row, int nh, int nkv, int hd) {
    pl_tensor      none = op_place(r, 1, 0);
    const int32_t *pos = op_ids(r, qkv.dim[0], 0, 1);
    pl_rope(op_ctx(r),
            &(pl_rope_args){.qkv = qkv, .cos = none, .sin = none, .pos = pos, .n_rot = nh + nkv, .hd = hd, .row = row});
}

// The next output's values, to be filled by the caller; NULL while measuring.
static output *next_output(op_run *r, int64_t n) {
    assert_true(r->at_out < MAX_OUTPUTS);
    output *o = &r->out[r->at_out++];
    if (r->at_out > r->n_out) {
        r->n_out++;
        *o = (output){.n = n, .value = must(calloc((size_t)n + 1, sizeof(double)))};
    }
    assert_int_equal(o->n, n);
    return r->ctx.measuring || r->ctx.err.status != PL_OK ? NULL : o;
}

static void add_to_loss(const op_run *r, output *o, const float *coeff) {
    if (o->coeff) return;
    o->coeff = must(calloc((size_t)o->n + 1, sizeof(double)));
    for (int64_t i = 0; i < o->n; i++)
        o->coeff[i] =
            (double)(coeff ? coeff[i]
                           : pl_rng_normal(pl_rng_make(13, PL_STREAM_TEST, (uint64_t)r->at_out), (uint64_t)i));
    for (int64_t i = 0; i < o->n && r->narrow && !coeff; i++)
        o->coeff[i] = (double)pl_round_bf16((float)o->coeff[i]);
}

void op_out(op_run *r, pl_tensor y) {
    output *o = next_output(r, pl_tensor_count(&y));
    for (int64_t i = 0; o && i < o->n; i++)
        o->value[i] = get_real(r, y.data, i);
    if (!o || !y.grad) return;
    pl_tape_settle(&r->ctx, y.grad, (size_t)pl_tensor_count(&y) * pl_dtype_size(y.dtype));
    add_to_loss(r, o, NULL);
    for (int64_t i = 0; i < o->n; i++)
        put_real(r, y.grad, i, get_real(r, y.grad, i) + o->coeff[i]);
}

void op_out_cache(op_run *r, pl_tensor cache) {
    if (cache.dtype != PL_BF16) {
        op_out(r, cache);
        return;
    }
    output *o = next_output(r, pl_tensor_count(&cache));
    for (int64_t i = 0; o && i < o->n; i++)
        o->value[i] = (double)pl_bf16_to_f32(((const uint16_t *)cache.data)[i]);
}

void op_out_loss(op_run *r, pl_tensor y, const float *coeff) {
    output *o = next_output(r, pl_tensor_count(&y));
    for (int64_t i = 0; o && i < o->n; i++)
        o->value[i] = get_real(r, y.data, i);
    if (o) add_to_loss(r, o, coeff);
}

void op_out_f32(op_run *r, const float *y, int64_t n) {
    output *o = next_output(r, n);
    for (int64_t i = 0; o && i < n; i++)
        o->value[i] = (double)y[i];
}

void op_out_f64(op_run *r, const double *y, int64_t n) {
    output *o = next_output(r, n);
    for (int64_t i = 0; o && i < n; i++)
        o->value[i] = y[i];
}

void op_out_i32(op_run *r, const int32_t *y, int64_t n) {
    output *o = next_output(r, n);
    for (int64_t i = 0; o && i < n; i++)
        o->value[i] = y[i];
    if (o) o->whole = true;
}

static void step(pl_ctx *ctx, void *arg) {
    op_run *r = arg;
    r->at_in = r->at_out = 0;
    r->build(r, r->shape);
    if (ctx->tape && r->backward) pl_tape_backward(ctx);
}

// One run on fresh inputs.
static void execute(op_run *r, bool backward) {
    for (int i = 0; i < r->n_in; i++)
        refill(r, &r->in[i]);
    r->backward = backward;
    pl_err   err;
    uint64_t before = pl_alloc_count();
    pl_ctx_begin(&r->ctx);
    step(&r->ctx, r);
    if (pl_ctx_sync(&r->ctx, &err) != PL_OK) fail_msg("%s on %s: %s", r->name, r->ctx.be->name, err.msg);
    if (pl_alloc_count() != before) fail_msg("%s on %s: a measured step allocates", r->name, r->ctx.be->name);
    bool whole = pl_arena_check(&r->ctx.frame) && pl_arena_check(&r->ctx.scratch) && r->ctx.scratch.used == 0;
    for (int i = 0; i < r->n_in; i++)
        whole &= guards_stand(&r->in[i]);
    if (!whole) fail_msg("%s on %s: guard bytes are damaged", r->name, r->ctx.be->name);
}

static op_run *start(op_build_fn build, const void *shape, const pl_backend *be, int threads, unsigned flags,
                     bool narrow, const char *name) {
    op_run *r = must(calloc(1, sizeof *r));
    pl_err  err = {0};
    *r = (op_run){.build = build, .shape = shape, .flags = flags, .backward = true};
    r->narrow = narrow;
    snprintf(r->name, sizeof r->name, "%s", name);
    if (threads > 1) assert_int_equal(pl_pool_create(&r->pool, threads, &err), PL_OK);
    assert_int_equal(pl_ctx_init(&r->ctx, be, r->pool), PL_OK);
    assert_int_equal(pl_tape_init(&r->tape, 0, &err), PL_OK);
    if (!(flags & OP_NO_TAPE)) r->ctx.tape = &r->tape;
    r->ctx.frame.guard = r->ctx.scratch.guard = true;
    if (pl_ctx_measure(&r->ctx, step, r, &err) != PL_OK) fail_msg("%s on %s: measuring: %s", name, be->name, err.msg);
    return r;
}

void op_run_free(op_run *r) {
    for (int i = 0; i < r->n_in; i++) {
        op_shared_free(r->ctx.be, r->in[i].block, r->in[i].room);
        free(r->in[i].value);
        free(r->in[i].origin);
    }
    for (int i = 0; i < r->n_out; i++) {
        free(r->out[i].value);
        free(r->out[i].coeff);
    }
    pl_ctx_fini(&r->ctx);
    pl_tape_fini(&r->tape);
    pl_pool_destroy(r->pool);
    free(r);
}

op_run *op_run_once(op_build_fn build, const void *shape, const pl_backend *be, int threads, unsigned flags) {
    op_run *r = start(build, shape, be, threads, flags, false, "single run");
    execute(r, true);
    return r;
}

double op_value(const op_run *r, int out, int64_t at) {
    assert_true(out < r->n_out && at < r->out[out].n);
    return r->out[out].value[at];
}

static const input *leaf_at(const op_run *r, int leaf) {
    for (int i = 0; i < r->n_in; i++)
        if (r->in[i].leaf && r->in[i].grad && leaf-- == 0) return &r->in[i];
    return NULL;
}

double op_grad(const op_run *r, int leaf, int64_t at) {
    const input *in = leaf_at(r, leaf);
    assert_true(in && at < in->n);
    return get_real(r, in->grad, at);
}

// Results side by side: outputs first, then the gradients of the leaves.
typedef struct series {
    int64_t n;
    bool    whole;
    double *v; // owned
} series;

static bool series_of(const op_run *r, int i, series *s) {
    *s = (series){0};
    const input *in = i < r->n_out ? NULL : leaf_at(r, i - r->n_out);
    if (i >= r->n_out && !in) return false;
    s->n = in ? in->n : r->out[i].n;
    s->whole = !in && r->out[i].whole;
    s->v = must(malloc(((size_t)s->n + 1) * sizeof(double)));
    for (int64_t k = 0; k < s->n; k++)
        s->v[k] = in ? get_real(r, in->grad, k) : r->out[i].value[k];
    return true;
}

static void describe(char *dst, size_t n, const op_run *r, int i) {
    snprintf(dst, n, "%s on %s: %s %d", r->name, r->ctx.be->name, i < r->n_out ? "output" : "gradient of leaf",
             i < r->n_out ? i : i - r->n_out);
}

static void expect_same_bits(const op_run *x, const op_run *y, const char *why) {
    series a, b;
    char   who[400];
    for (int i = 0; series_of(x, i, &a); i++) {
        assert_true(series_of(y, i, &b) && a.n == b.n);
        describe(who, sizeof who, x, i);
        for (int64_t k = 0; k < a.n; k++)
            if (memcmp(&a.v[k], &b.v[k], sizeof(double)) != 0)
                fail_msg("%s: element %lld is %.9g and %.9g: %s", who, (long long)k, a.v[k], b.v[k], why);
        free(a.v);
        free(b.v);
    }
}

static double largest_error(const series *x, const series *truth) {
    double worst = 0;
    for (int64_t k = 0; k < x->n; k++) {
        double e = fabs(x->v[k] - truth->v[k]);
        if (isnan(x->v[k]) != isnan(truth->v[k]) || (isnan(e) && x->v[k] != truth->v[k])) return INFINITY;
        if (e > worst) worst = e;
    }
    return worst;
}

// flags: what a device may be off by, relative to the largest value.
static void expect_within_budget(const op_run *cpu, const op_run *ref, const op_run *truth, unsigned flags) {
    series a, b, t;
    char   who[400];
    for (int i = 0; series_of(cpu, i, &a); i++) {
        assert_true(series_of(ref, i, &b) && series_of(truth, i, &t) && a.n == b.n && a.n == t.n);
        describe(who, sizeof who, cpu, i);
        double scale = 1, largest = 0, mine = largest_error(&a, &t), budget = largest_error(&b, &t);
        for (int64_t k = 0; k < t.n; k++)
            largest = fmax(largest, fabs(t.v[k]));
        scale = fmax(scale, largest);
        if (a.whole && (mine != 0 || budget != 0)) fail_msg("%s: ids differ from ref's or ref64's", who);
        // The naive result must itself be near the truth, or the budget would allow anything.
        if (!(budget <= 2e-5 * scale)) fail_msg("%s: ref's own error is %g at scale %g", who, budget, scale);
        // Tensor cores that cut off (tests/cuda/emulate/mma.cc) come to 0.8 of this on sm_80 at worst.
        double allowed = 2 * budget + 4 * 0x1p-24 * scale;
        if ((flags & OP_BF16_PAIRS) && !a.whole) allowed = fmax(allowed, 0x1p-15 * largest);
        if ((flags & OP_BF16_INSIDE) && !a.whole) allowed = fmax(allowed, 0x1p-7 * largest);
        if ((flags & OP_BF16_GRADS) && i >= cpu->n_out) allowed = fmax(allowed, 0x1p-8 * largest);
        if (!(mine <= allowed)) fail_msg("%s: error %.3g, ref's %.3g, scale %.3g", who, mine, budget, scale);
        free(a.v);
        free(b.v);
        free(t.v);
    }
}

static double loss(op_run *r) {
    double sum = 0;
    execute(r, false);
    for (int i = 0; i < r->n_out; i++)
        for (int64_t k = 0; k < r->out[i].n && r->out[i].coeff; k++)
            sum += r->out[i].coeff[k] * r->out[i].value[k];
    return sum;
}

static void expect_differences(op_run *r) {
    const int64_t most = test_whole() ? 48 : 24; // elements of a leaf
    int           checked = 0;
    for (int i = 0; i < r->n_in; i++) {
        input *in = &r->in[i];
        if (!in->leaf || !in->grad) continue;
        double *grad = must(malloc(((size_t)in->n + 1) * sizeof(double)));
        execute(r, true); // again: every run of loss() cleared the gradients
        memcpy(grad, in->grad, (size_t)in->n * sizeof(double));
        pl_rng rng = pl_rng_make(17, PL_STREAM_TEST, (uint64_t)i);
        for (int64_t k = 0; k < in->n && k < most; k++) {
            int64_t at = in->n <= most ? k : (int64_t)pl_rng_below(rng, (uint64_t)k, (uint64_t)in->n);
            double  v = in->value[at], eps = 1e-5;
            in->value[at] = v + eps;
            double up = loss(r);
            in->value[at] = v - eps;
            double down = loss(r);
            in->value[at] = v;
            double slope = (up - down) / (2 * eps);
            if (!(fabs(slope - grad[at]) <= 2e-7 * (1 + fabs(slope))))
                fail_msg("%s: d loss / d leaf %d[%lld] is %.12g, central difference %.12g", r->name, i, (long long)at,
                         grad[at], slope);
            checked++;
        }
        free(grad);
    }
    if (checked == 0) fail_msg("%s: no leaf to differentiate", r->name);
}

static int drawn_orders(void) {
    const char *many = getenv("PACELINE_TEST_SEEDS");
    return many ? atoi(many) : 1;
}

int op_device_runs(void) {
    return test_gpu() ? 0 : 2 + (drawn_orders() > 0 ? drawn_orders() : 1); // two contexts, one of them again
}

// Orders of blocks, threads and copies that are drawn (tests/cuda/emulate/device_emulated.h).
static void expect_same_in_any_order(const op_run *one, op_run *two) {
    const pl_emu_manner before = pl_emu_behave;
    for (int seed = 1; seed <= drawn_orders(); seed++) {
        pl_emu_behave.seed = before.seed + (uint64_t)seed;
        execute(two, true);
        expect_same_bits(one, two, "again, in another order of blocks and threads");
    }
    pl_emu_behave = before;
}

// A GPU, real or emulated, or a cpu's products in training. Weights in bf16 make them round their other factor to bf16,
// so the comparison is on inputs for which that changes nothing: then they are held to fp32's budget like the others.
static void check_narrow(op_build_fn build, const void *shape, const pl_backend *be, unsigned flags, const char *name) {
    op_run *truth = start(build, shape, pl_backend_ref64(), 1, flags, true, name);
    op_run *ref = start(build, shape, pl_backend_ref(), 1, flags, true, name);
    op_run *one = start(build, shape, be, 1, flags, true, name);
    op_run *two = start(build, shape, be, be->device ? 1 : 2, flags, true, name);
    op_run *all[] = {truth, ref, one, two};
    for (int i = 0; i < 4; i++)
        execute(all[i], true);
    expect_same_bits(one, two, be->device ? "in two contexts" : "with one thread and with two");
    if (be == pl_backend_cuda_emulated() && drawn_orders() > 0) {
        expect_same_in_any_order(one, two);
    } else {
        execute(two, true);
        expect_same_bits(one, two, "at the second run");
    }
    expect_within_budget(one, ref, truth, flags);
    // nvcc may fuse what ref does not.
    if ((flags & OP_EXACT) && be == pl_backend_cuda_emulated()) expect_same_bits(one, ref, "not ref's bits");
    for (int i = 0; i < 4; i++)
        op_run_free(all[i]);
}

void op_check(op_build_fn build, const void *shape, unsigned flags, const char *fmt, ...) {
    char    name[256];
    va_list ap;
    va_start(ap, fmt);
    vsnprintf(name, sizeof name, fmt, ap);
    va_end(ap);

    op_run *truth = start(build, shape, pl_backend_ref64(), 1, flags, false, name);
    op_run *ref = start(build, shape, pl_backend_ref(), 1, flags, false, name);
    execute(truth, true);
    execute(ref, true);
    expect_within_budget(ref, ref, truth, 0); // ref alone: near the truth
    const pl_backend *be;
    for (int i = 0; (be = op_backend(i)); i++) {
        if (be->device) {
            if (!(flags & OP_NO_DEVICE)) check_narrow(build, shape, be, flags, name);
            continue;
        }
        if (getenv("PACELINE_TEST_DEVICES_ALONE")) continue;
        if ((flags & OP_NARROW) && be != pl_backend_ref() && be != pl_backend_ref64()) {
            check_narrow(build, shape, be, flags, name);
            continue;
        }
        op_run *again = be == pl_backend_ref64() ? truth : be == pl_backend_ref() ? ref : NULL; // it has run
        op_run *one = again ? again : start(build, shape, be, 1, flags, false, name);
        op_run *two = start(build, shape, be, 2, flags, false, name);
        if (!again) execute(one, true);
        execute(two, true);
        expect_same_bits(one, two, "with one thread and with two");
        if (!again) {
            execute(two, true);
            expect_same_bits(one, two, "at the second run");
        }
        if (be->real == PL_F32) expect_within_budget(one, ref, truth, 0);
        bool exact =
            (flags & (OP_EXACT | OP_EXACT_LEVELS)) || ((flags & OP_EXACT_FMA) && be != pl_backend_cpu_isa("portable"));
        if (be->real == PL_F32 && exact) expect_same_bits(one, ref, "not ref's bits");
        if (!again) op_run_free(one);
        op_run_free(two);
    }
    if (!(flags & (OP_NO_TAPE | OP_NO_DIFFERENCES)) && !getenv("PACELINE_TEST_DEVICES_ALONE"))
        expect_differences(truth);
    op_run_free(ref);
    op_run_free(truth);
}
