#include "kernels/flops.h"
#include "kernels/op/attention.h"
#include "kernels/op/blockattention.h"
#include "kernels/op/divergence.h"
#include "kernels/op/elementwise.h"
#include "kernels/op/gatherdot.h"
#include "kernels/op/linear.h"
#include "kernels/op/norm.h"
#include "kernels/op/swiglu.h"
#include "kernels/op/topk.h"
#include "kernels/tape.h"
#include "tests/kernels/op_harness.h"
#include "tests/ref64.h"
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

// A step to measure and to run: `layers` times x = x W, then an optional backward.
typedef struct net {
    double    w[4], dw[4], x[2], dx[2];
    int       layers, frozen; // the first `frozen` layers run with no_grad
    bool      replay;
    pl_tensor y;
} net;

static void step(pl_ctx *ctx, void *arg) {
    net      *n = arg;
    pl_tensor x = pl_tensor_2d(n->x, PL_F64, 1, 2), w = pl_tensor_2d(n->w, PL_F64, 2, 2);
    x.grad = n->dx;
    w.grad = n->dw;
    for (int i = 0; i < n->layers; i++) {
        ctx->no_grad = i < n->frozen;
        x = pl_linear(ctx, x, w);
    }
    ctx->no_grad = false;
    n->y = x;
    if (!ctx->measuring && x.grad) ((double *)x.grad)[0] = 1; // loss = y[0]
    if (n->replay) pl_tape_backward(ctx);
}

static net make(int layers, int frozen) {
    return (net){.w = {2, 1, 0, 3}, .x = {5, 7}, .layers = layers, .frozen = frozen, .replay = true};
}

static void open_ctx(pl_ctx *ctx, pl_tape *tape, const pl_backend *be) {
    assert_int_equal(pl_ctx_init(ctx, be, NULL), PL_OK);
    assert_int_equal(pl_tape_init(tape, 0, NULL), PL_OK);
    ctx->tape = tape;
}

static void close_ctx(pl_ctx *ctx) {
    pl_tape_fini(ctx->tape);
    pl_ctx_fini(ctx);
}

// y = W W x with W = [2 1; 0 3], x = (5, 7): W x = (17, 21), y = (55, 63).
// d y0 / d W collects both uses: row 0 from the outer one (17, 21), and W^T e0 = (2, 1) times x from the inner one.
static void shared_weight(void **state) {
    (void)state;
    pl_ctx  ctx;
    pl_tape tape;
    net     n = make(2, 0);
    open_ctx(&ctx, &tape, pl_backend_ref64());
    assert_int_equal(pl_ctx_measure(&ctx, step, &n, NULL), PL_OK);
    assert_int_equal(tape.count, 0);
    assert_true(n.dw[0] == 0 && n.dx[0] == 0); // measuring touches nothing
    pl_ctx_begin(&ctx);
    step(&ctx, &n);
    assert_int_equal(pl_ctx_sync(&ctx, NULL), PL_OK);
    assert_int_equal(tape.count, 2);
    assert_true(pl_f64(&n.y)[0] == 55 && pl_f64(&n.y)[1] == 63);
    const double dw[4] = {17 + 2 * 5, 21 + 2 * 7, 1 * 5, 1 * 7}, dx[2] = {2 * 2 + 1 * 0, 2 * 1 + 1 * 3};
    assert_memory_equal(n.dw, dw, sizeof dw);
    assert_memory_equal(n.dx, dx, sizeof dx);

    // Again without zeroing the parameters' gradients: they accumulate; activations' gradients start from zero.
    pl_ctx_begin(&ctx);
    assert_int_equal(tape.count, 0);
    step(&ctx, &n);
    assert_int_equal(pl_ctx_sync(&ctx, NULL), PL_OK);
    for (int i = 0; i < 4; i++)
        assert_true(n.dw[i] == 2 * dw[i]);
    assert_true(n.dx[0] == 2 * dx[0] && n.dx[1] == 2 * dx[1]);
    close_ctx(&ctx);
}

// What runs under no_grad is a constant for what follows.
static void no_grad(void **state) {
    (void)state;
    pl_ctx  ctx;
    pl_tape tape;
    net     n = make(2, 1);
    open_ctx(&ctx, &tape, pl_backend_ref64());
    assert_int_equal(pl_ctx_measure(&ctx, step, &n, NULL), PL_OK);
    pl_ctx_begin(&ctx);
    step(&ctx, &n);
    assert_int_equal(pl_ctx_sync(&ctx, NULL), PL_OK);
    const double dw[4] = {17, 21, 0, 0};
    assert_int_equal(tape.count, 1);
    assert_memory_equal(n.dw, dw, sizeof dw);
    assert_true(n.dx[0] == 0 && n.dx[1] == 0);
    close_ctx(&ctx);
}

// Constants in, constant out: no gradient memory, nothing for backward to do.
static void constants_stay_constant(void **state) {
    (void)state;
    pl_ctx  ctx;
    pl_tape tape;
    float   table[4] = {1, 2, 3, 4}, gain[2] = {1, 1}, dgain[2] = {0};
    int32_t id[1] = {1};
    open_ctx(&ctx, &tape, pl_backend_ref());
    assert_int_equal(pl_arena_reserve(&ctx.frame, 1 << 16, NULL), PL_OK);
    pl_tape_fini(&tape);
    assert_int_equal(pl_tape_init(&tape, 8, NULL), PL_OK);
    pl_tensor g = pl_tensor_1d(gain, PL_F32, 2);
    pl_tensor e = pl_embed(&ctx, pl_tensor_2d(table, PL_F32, 2, 2), id, 1);
    assert_null(e.grad);
    pl_tensor s = pl_gated(&ctx, e, PL_GATE_SILU), h = e;
    assert_null(s.grad);
    pl_tensor n = pl_rmsnorm_residual(&ctx, &h, e, g, 1e-5);
    assert_null(n.grad);
    assert_null(h.grad);
    g.grad = dgain;
    h = e;
    n = pl_rmsnorm_residual(&ctx, &h, e, g, 1e-5);
    assert_non_null(n.grad);
    assert_null(h.grad);
    ((float *)n.grad)[0] = 1;
    pl_tape_backward(&ctx);
    assert_int_equal(pl_ctx_sync(&ctx, NULL), PL_OK);
    assert_true(dgain[0] == pl_f32(&n)[0] && dgain[1] == 0); // gain 1: d y / d g is y
    close_ctx(&ctx);
}

// ---- first contributions

// readers: a bit for each of h's readers: a norm and a gate, a product, a norm that also takes another gradient.
static void read_often(op_run *r, const void *arg) {
    enum { ROWS = 5, IN = 8, WIDTH = 12 };
    int       readers = *(const int *)arg;
    pl_ctx   *ctx = op_ctx(r);
    pl_tensor x = op_leaf(r, ROWS, IN, 0, 1), w = op_leaf(r, WIDTH, IN, 0, 1), v = op_leaf(r, 3, WIDTH, 0, 1);
    pl_tensor g = op_leaf_1d(r, WIDTH, 1, 0.1), h = pl_linear(ctx, x, w), other = pl_linear(ctx, x, w);
    op_out(r, pl_linear(ctx, other, v));
    if (readers & 1) op_out(r, pl_concat(ctx, pl_rmsnorm(ctx, h, g, 1e-5), pl_gated(ctx, h, PL_GATE_SILU)));
    if (readers & 2) op_out(r, pl_linear(ctx, h, v));
    if (readers & 4) op_out(r, pl_rmsnorm_residual(ctx, &h, other, g, 1e-5));
    if (readers & 4) op_out(r, h);
}

// A gradient's first contribution may take the place of its zeros, whichever op makes it; a gradient without any is
// zero.
static void first_contributions(void **state) {
    (void)state;
    for (int readers = 0; readers < 8; readers++)
        op_check(read_often, &readers, 0, "a gradient of readers %d", readers);
}

// ---- stretches

// Layers y = swiglu(x W), each a stretch whose result is the next one's input; the last one, y + x, goes into a slice
// of the caller's. nested: each stretch holds another one before it.
enum { ROWS = 3, WIDTH = 4, LAYERS = 3 };

typedef struct deep {
    bool      stretch, nested;
    double    w[2 * WIDTH * WIDTH], dw[2 * WIDTH * WIDTH], x[ROWS * WIDTH];
    pl_tensor y;
} deep;

typedef struct layer_run {
    deep     *d;
    pl_tensor x, y; // y: where the last one's result goes
    bool      inner;
} layer_run;

static void layer(pl_ctx *ctx, const void *arg, pl_tensor *out) {
    const layer_run *p = arg;
    pl_tensor        w = pl_tensor_2d(p->d->w, PL_F64, 2 * WIDTH, WIDTH);
    w.grad = p->d->dw;
    if (p->inner) {
        layer_run in = {.d = p->d, .x = p->x};
        pl_tensor mid[1] = {{.dim = {ROWS, WIDTH, 1, 1}}};
        if (p->d->stretch)
            pl_tape_stretch(ctx, layer, &in, sizeof in, mid, 1);
        else
            layer(ctx, &in, mid);
        in.x = mid[0];
        in.y = p->y;
        layer(ctx, &in, out);
        return;
    }
    out[0] = pl_gated(ctx, pl_linear(ctx, p->x, w), PL_GATE_SILU);
    if (p->y.data) out[0] = pl_add(ctx, out[0], p->x, p->y);
}

static void deep_step(pl_ctx *ctx, void *arg) {
    deep     *d = arg;
    pl_tensor all = pl_ctx_tensor(ctx, 2 * ROWS, WIDTH), last = all;
    layer_run p = {.d = d, .x = pl_tensor_2d(d->x, PL_F64, ROWS, WIDTH), .inner = d->nested};
    size_t    half = ROWS * WIDTH * sizeof(double);
    last.dim[0] = ROWS;
    last.data = (uint8_t *)all.data + half;
    last.grad = (uint8_t *)all.grad + half;
    for (int i = 0; i < LAYERS; i++) {
        pl_tensor out[1] = {{.dim = {ROWS, WIDTH, 1, 1}}};
        if (i == LAYERS - 1) p.y = last;
        if (d->stretch)
            pl_tape_stretch(ctx, layer, &p, sizeof p, out, 1);
        else
            layer(ctx, &p, out);
        p.x = out[0];
    }
    d->y = p.x;
    if (!ctx->measuring)
        for (int i = 0; i < ROWS * WIDTH; i++)
            ((double *)d->y.grad)[i] += 1 + i % 3;
    pl_tape_backward(ctx);
}

static size_t run_deep(deep *d, bool stretch, bool nested) {
    pl_ctx  ctx;
    pl_tape tape;
    *d = (deep){.stretch = stretch, .nested = nested};
    for (int i = 0; i < 2 * WIDTH * WIDTH; i++)
        d->w[i] = 0.3 * sin(i + 1.0);
    for (int i = 0; i < ROWS * WIDTH; i++)
        d->x[i] = cos(i * 0.7);
    open_ctx(&ctx, &tape, pl_backend_ref64());
    assert_int_equal(pl_ctx_measure(&ctx, deep_step, d, NULL), PL_OK);
    for (int again = 0; again < 2; again++) { // a second step finds nothing of the first
        memset(d->dw, 0, sizeof d->dw);
        uint64_t before = pl_alloc_count();
        pl_ctx_begin(&ctx);
        deep_step(&ctx, d);
        assert_int_equal(pl_ctx_sync(&ctx, NULL), PL_OK);
        assert_int_equal(pl_alloc_count(), before);
    }
    size_t size = ctx.frame.size;
    close_ctx(&ctx);
    return size;
}

static void stretches(void **state) {
    (void)state;
    static deep kept, again;
    for (int nested = 0; nested < 2; nested++) {
        size_t whole = run_deep(&kept, false, nested), less = run_deep(&again, true, nested);
        assert_memory_equal(kept.dw, again.dw, sizeof kept.dw);
        assert_true(kept.dw[0] != 0);
        if (nested) assert_true(less < whole);
    }
}

// A tape sized by measuring does not allocate afterwards, and a longer step is an error, not a crash.
static void full_tape(void **state) {
    (void)state;
    pl_ctx  ctx;
    pl_tape tape;
    pl_err  err;
    net     n = make(200, 0), longer = make(1000, 0);
    open_ctx(&ctx, &tape, pl_backend_ref64());
    assert_int_equal(pl_ctx_measure(&ctx, step, &n, NULL), PL_OK);
    assert_true(tape.capacity >= 200 && tape.capacity < 1000);
    uint64_t before = pl_alloc_count();
    pl_ctx_begin(&ctx);
    step(&ctx, &n);
    assert_int_equal(pl_ctx_sync(&ctx, NULL), PL_OK);
    assert_int_equal(tape.count, 200);
    assert_int_equal(pl_alloc_count(), before);

    assert_int_equal(pl_arena_reserve(&ctx.frame, 1 << 20, NULL), PL_OK); // room in the frame, not on the tape
    memset(longer.dw, 0, sizeof longer.dw);
    pl_ctx_begin(&ctx);
    step(&ctx, &longer);
    assert_true(longer.dw[0] == 0); // no backward after the failure
    assert_int_equal(pl_ctx_sync(&ctx, &err), PL_E_MEMORY);
    assert_non_null(strstr(err.msg, "tape: full"));
    assert_int_equal(pl_ctx_sync(&ctx, &err), PL_OK); // asked once
    close_ctx(&ctx);
}

// Every allocation of measuring may fail; the context says so and can be measured again.
static void out_of_memory(void **state) {
    (void)state;
    for (uint64_t fail = 1;; fail++) {
        pl_ctx  ctx;
        pl_tape tape;
        pl_err  err;
        net     n = make(80, 0);
        assert_true(fail < 20);
        open_ctx(&ctx, &tape, pl_backend_ref64());
        pl_alloc_fail_after(fail);
        pl_status st = pl_ctx_measure(&ctx, step, &n, &err);
        pl_alloc_fail_after(0);
        if (st == PL_OK) {
            assert_true(fail > 3); // tape entries, tape args, frame
            close_ctx(&ctx);
            break;
        }
        assert_int_equal(st, PL_E_MEMORY);
        assert_false(ctx.measuring);
        assert_int_equal(pl_ctx_measure(&ctx, step, &n, &err), PL_OK);
        pl_ctx_begin(&ctx);
        step(&ctx, &n);
        assert_int_equal(pl_ctx_sync(&ctx, &err), PL_OK);
        close_ctx(&ctx);
    }
    for (uint64_t fail = 1; fail <= 2; fail++) {
        pl_tape tape;
        pl_alloc_fail_after(fail);
        assert_int_equal(pl_tape_init(&tape, 10, NULL), PL_E_MEMORY);
        pl_alloc_fail_after(0);
        assert_null(tape.entry);
        assert_null(tape.args);
    }
}

// The first failure sticks, later ops do nothing, asking clears it.
static void sticky_error(void **state) {
    (void)state;
    pl_ctx ctx;
    pl_err err;
    float  x[2] = {1, 2}, w[4] = {1, 0, 0, 1};
    assert_int_equal(pl_ctx_init(&ctx, pl_backend_ref(), NULL), PL_OK);
    assert_int_equal(pl_arena_reserve(&ctx.frame, 4096, NULL), PL_OK);
    pl_ctx_fail(&ctx, PL_E_INPUT, "first %d", 1);
    pl_ctx_fail(&ctx, PL_E_IO, "second");
    float     out[2] = {-1, -1};
    pl_tensor y = pl_tensor_2d(out, PL_F32, 1, 2);
    pl_linear_into(&ctx, y, pl_tensor_2d(x, PL_F32, 1, 2), pl_tensor_2d(w, PL_F32, 2, 2));
    assert_true(out[0] == -1 && out[1] == -1);
    assert_int_equal(pl_ctx_sync(&ctx, &err), PL_E_INPUT);
    assert_string_equal(err.msg, "first 1");
    pl_linear_into(&ctx, y, pl_tensor_2d(x, PL_F32, 1, 2), pl_tensor_2d(w, PL_F32, 2, 2));
    assert_int_equal(pl_ctx_sync(&ctx, &err), PL_OK);
    assert_true(out[0] == 1 && out[1] == 2);
    pl_ctx_fini(&ctx);
}

// A backend without an op, or without its backward, says so: while measuring already.
static void missing_ops(void **state) {
    (void)state;
    for (int part = 0; part < 2; part++) {
        pl_backend lacking = *pl_backend_ref64();
        pl_ctx     ctx;
        pl_tape    tape;
        pl_err     err;
        net        n = make(1, 0);
        lacking.name = "poor";
        if (part == 0) lacking.fwd[PL_OP_LINEAR] = NULL;
        lacking.bwd[PL_OP_LINEAR] = NULL;
        open_ctx(&ctx, &tape, &lacking);
        assert_int_equal(pl_ctx_measure(&ctx, step, &n, &err), PL_E_UNSUPPORTED);
        assert_string_equal(err.msg, part == 0 ? "op linear is not available on backend poor"
                                               : "op linear has no backward on backend poor");
        n.replay = false;
        ctx.tape = NULL; // without a tape the backward is not needed
        assert_int_equal(pl_ctx_measure(&ctx, step, &n, &err), part == 0 ? PL_E_UNSUPPORTED : PL_OK);
        pl_tape_fini(&tape);
        pl_ctx_fini(&ctx);
    }
}

// ---- gradients that are complete

// y = A B A x, with a third weight that nothing uses; the two inner products a stretch, if asked for.
typedef struct told {
    double   w[12], dw[12], x[2];
    bool     stretched;
    char     order[8]; // which were told, in that order
    int      n, at[8]; // when
    pl_tape *tape;
} told;

static pl_tensor weight_of(const told *t, int i) {
    pl_tensor w = pl_tensor_2d((void *)(uintptr_t)(t->w + 4 * i), PL_F64, 2, 2);
    w.grad = (void *)(uintptr_t)(t->dw + 4 * i);
    return w;
}

static void inner(pl_ctx *ctx, const void *arg, pl_tensor *out) {
    const told *t = *(told *const *)arg;
    pl_tensor   x = pl_linear(ctx, pl_tensor_2d((void *)(uintptr_t)t->x, PL_F64, 1, 2), weight_of(t, 0));
    out[0] = pl_linear(ctx, x, weight_of(t, 1));
}

static void outer(pl_ctx *ctx, void *arg) {
    told     *t = arg;
    pl_tensor made = {.dim = {1, 2, 1, 1}};
    if (t->stretched)
        pl_tape_stretch(ctx, inner, &t, sizeof(told *), &made, 1);
    else
        inner(ctx, &t, &made);
    pl_tensor y = pl_linear(ctx, made, weight_of(t, 0));
    if (!ctx->measuring) ((double *)y.grad)[0] = 1;
    pl_tape_backward(ctx);
}

static void note(void *arg, size_t from, size_t to) {
    told *t = arg;
    assert_true(from % 32 == 0 && to == from + 32);
    t->at[t->n] = t->tape->at;
    t->order[t->n++] = (char)('A' + from / 32);
}

// A when the product that reads x is done, which is its second; B before it, or with it where a stretch has both; C
// never. A second backward would add to what was told: it is a mistake.
static void gradients_are_told_when_complete(void **state) {
    (void)state;
    for (int stretched = 0; stretched < 2; stretched++) {
        pl_ctx              ctx;
        pl_tape             tape;
        static const size_t at[] = {0, 32, 64, 96};
        struct pl_tape_part part[3];
        told                t = {.w = {2, 1, 0, 3, 1, 2, 1, 1}, .x = {5, 7}, .stretched = stretched, .tape = &tape};
        pl_tape_ready       r = {.grad = (uint8_t *)t.dw, .n = 3, .at = at, .part = part, .done = note, .arg = &t};
        open_ctx(&ctx, &tape, pl_backend_ref64());
        assert_int_equal(pl_ctx_measure(&ctx, outer, &t, NULL), PL_OK);
        tape.ready = &r;
        pl_ctx_begin(&ctx);
        outer(&ctx, &t);
        assert_int_equal(pl_ctx_sync(&ctx, NULL), PL_OK);
        assert_int_equal(t.n, 2);
        assert_string_equal(t.order, stretched ? "AB" : "BA");
        assert_int_equal(t.at[1], 0);
        assert_int_equal(t.at[0], stretched ? 0 : 1);
        assert_true(r.ran);
        // An op that is done with the front of a gradient, and one whose turn it is not.
        t.n = 0;
        tape.at = 0;
        pl_tape_done_to(&ctx, t.dw + 4, 16);
        assert_int_equal(t.n, 0);
        close_ctx(&ctx);
    }
}

// A product of 2 x 2 is 8 operations for a row, and 8 more for each side that learns.
static void flops_are_counted(void **state) {
    (void)state;
    static const struct {
        int    frozen;
        double flops;
    } of[] = {{0, 2 * 8 + 2 * 16}, {1, 2 * 8 + 8}, {2, 2 * 8}};
    for (size_t i = 0; i < sizeof of / sizeof *of; i++) {
        pl_ctx  ctx;
        pl_tape tape;
        net     n = make(2, of[i].frozen);
        open_ctx(&ctx, &tape, pl_backend_ref64());
        double before = pl_flops_counted();
        assert_int_equal(pl_ctx_measure(&ctx, step, &n, NULL), PL_OK);
        assert_true(pl_flops_counted() == before); // measuring computes nothing
        pl_ctx_begin(&ctx);
        step(&ctx, &n);
        assert_int_equal(pl_ctx_sync(&ctx, NULL), PL_OK);
        assert_true(pl_flops_counted() - before == of[i].flops);
        close_ctx(&ctx);
    }
}

static void assert_flops(pl_op op, const void *args, double forward, double backward) {
    assert_true(pl_op_flops(op, args, false) == forward);
    assert_true(pl_op_flops(op, args, true) == backward);
}

// By hand: rows of 3 keys and padding, two heads of 4; students that count, of 5 ids; three entries of a list.
static void flops_of_ops(void **state) {
    (void)state;
    static const int32_t lo[] = {0, 0, 1, -1}, hi[] = {3, 2}, from[] = {1, -1}, row[] = {0, 0, 1, -1};
    static const float   weight[] = {1, 0, 0.5f, 1};
    double               g[64] = {0};
    pl_attention_args    a = {.o = pl_tensor_2d(g, PL_F64, 4, 8), .nh = 2, .hd = 4, .n_blocks = 3, .lo = lo};
    assert_flops(PL_OP_ATTENTION, &a, 4 * 8 * (3 + 4 + 4), 0); // nothing before it learns
    a.o.grad = g;
    assert_flops(PL_OP_ATTENTION, &a, 4 * 8 * (3 + 4 + 4), 8 * 8 * (3 + 4 + 4));
    // Queries at rows 1 and 3 of block 0, the second in a document that begins at row 2.
    static const int32_t at[] = {1, 3}, begins[] = {0, 2};
    pl_attention_args    some = {
           .o = pl_tensor_2d(g, PL_F64, 2, 8), .nh = 2, .hd = 4, .n_blocks = 2, .lo = begins, .at = at};
    assert_flops(PL_OP_ATTENTION, &some, 4 * 8 * (3 + 3), 0);
    pl_blockattention_args b = {.o = pl_tensor_2d(g, PL_F64, 4, 8), .lo = from, .hi = hi, .block = 2, .nh = 2, .hd = 4};
    assert_flops(PL_OP_BLOCKATTENTION, &b, 4 * 8 * 2 * (2 + 2), 0);
    b.o.grad = g;
    assert_flops(PL_OP_BLOCKATTENTION, &b, 4 * 8 * 2 * (2 + 2), 8 * 8 * 2 * (2 + 2));
    pl_divergence_args d = {.x = pl_tensor_2d(g, PL_F64, 4, 3),
                            .w = pl_tensor_2d(g, PL_F64, 5, 3),
                            .xt = pl_tensor_2d(g, PL_F64, 2, 4),
                            .wt = pl_tensor_2d(g, PL_F64, 6, 4),
                            .teacher_row = row,
                            .weight = weight};
    d.x.grad = g;
    assert_flops(PL_OP_DIVERGENCE, &d, 2 * 2 * 15 + 2 * 2 * 20, 2 * 2 * 15); // the head is frozen
    d.whole = true;
    assert_flops(PL_OP_DIVERGENCE, &d, 2 * 2 * 15 + 2 * 2 * 24, 2 * 2 * 15);
    pl_gatherdot_args l = {
        .y = pl_tensor_2d(g, PL_F64, 1, 3), .x = pl_tensor_2d(g, PL_F64, 1, 4), .w = pl_tensor_2d(g, PL_F64, 9, 4)};
    l.x.grad = l.w.grad = g;
    assert_flops(PL_OP_GATHERDOT, &l, 2 * 3 * 4, 2 * 2 * 3 * 4);
    assert_flops(PL_OP_RMSNORM, &l, 0, 0);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(gradients_are_told_when_complete),
        cmocka_unit_test(shared_weight),
        cmocka_unit_test(flops_are_counted),
        cmocka_unit_test(flops_of_ops),
        cmocka_unit_test(no_grad),
        cmocka_unit_test(constants_stay_constant),
        cmocka_unit_test(first_contributions),
        cmocka_unit_test(stretches),
        cmocka_unit_test(full_tape),
        cmocka_unit_test(out_of_memory),
        cmocka_unit_test(sticky_error),
        cmocka_unit_test(missing_ops),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
