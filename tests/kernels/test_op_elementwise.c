#include "kernels/op/elementwise.h"
#include "kernels/op/linear.h"
#include "kernels/tape.h"
#include "tests/kernels/op_harness.h"
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

// ---- add ------------------------------------------------------------------------------------------------------------

typedef struct add_shape {
    int  rows, n;
    bool into;
} add_shape;

static const add_shape add_shapes[] = {{1, 1, false}, {3, 31, true}, {33, 65, false}, {65, 513, true}};
enum { ADD_SHAPES = sizeof add_shapes / sizeof add_shapes[0] };

// The sum used twice, so that gradients must accumulate.
static void build_add(op_run *r, const void *arg) {
    const add_shape *s = arg;
    pl_tensor        a = op_leaf(r, s->rows, s->n, 0, 1), b = op_leaf(r, s->rows, s->n, 0.5, 2);
    pl_tensor        y = s->into ? pl_ctx_tensor(op_ctx(r), s->rows, s->n) : (pl_tensor){0};
    y = pl_add(op_ctx(r), a, b, y);
    op_out(r, pl_add(op_ctx(r), y, a, (pl_tensor){0}));
}

static void sums(void **state) {
    (void)state;
    for (int i = 0; i < ADD_SHAPES; i++)
        op_check(build_add, &add_shapes[i], OP_EXACT, "add %dx%d", add_shapes[i].rows, add_shapes[i].n);
}

// A product with itself, so that both gradients are the same one's.
static void build_product(op_run *r, const void *arg) {
    const add_shape *s = arg;
    pl_tensor        a = op_leaf(r, s->rows, s->n, 0, 1), b = op_leaf(r, s->rows, s->n, 0.5, 2);
    pl_tensor        y = pl_mul(op_ctx(r), a, b);
    op_out(r, pl_mul(op_ctx(r), y, y));
}

static void products(void **state) {
    (void)state;
    for (int i = 0; i < ADD_SHAPES; i++)
        op_check(build_product, &add_shapes[i], 0, "mul %dx%d", add_shapes[i].rows, add_shapes[i].n);
}

static void build_bias(op_run *r, const void *arg) {
    const add_shape *s = arg;
    pl_tensor        x = op_leaf(r, s->rows, s->n, 0, 1), b = op_leaf_1d(r, s->n, 1, 1);
    op_out(r, pl_bias(op_ctx(r), x, b));
}

static void biases(void **state) {
    (void)state;
    for (int i = 0; i < ADD_SHAPES; i++)
        op_check(build_bias, &add_shapes[i], add_shapes[i].rows > 64 ? 0 : OP_EXACT, "bias %dx%d", add_shapes[i].rows,
                 add_shapes[i].n);
}

// By hand: y = a + b, then y + a; every row of a bias.
static void add_values_of(op_run *r, const void *arg) {
    const add_shape *s = arg;
    pl_tensor a = op_leaf(r, s->rows, s->n, 0, 1), b = op_leaf(r, s->rows, s->n, 0, 1), c = op_leaf_1d(r, s->n, 0, 1);
    op_out(r, a);
    op_out(r, b);
    op_out(r, pl_add(op_ctx(r), a, b, (pl_tensor){0}));
    op_out(r, pl_bias(op_ctx(r), a, c));
    op_out(r, pl_bias(op_ctx(r), b, c));
    op_out(r, pl_mul(op_ctx(r), a, b));
}

static void add_values(void **state) {
    (void)state;
    const add_shape   s = {5, 7, false};
    const pl_backend *be;
    for (int i = 0; (be = op_backend(i)); i++) {
        op_run *r = op_run_once(add_values_of, &s, be, 1, OP_NO_TAPE);
        for (int k = 0; k < 35; k++) {
            double a = op_value(r, 0, k), b = op_value(r, 1, k), c = op_value(r, 3, k) - a;
            double ulp = be->real == PL_F64 ? 0x1p-50 : 0x1p-21;
            assert_true(op_value(r, 2, k) - (a + b) <= ulp && (a + b) - op_value(r, 2, k) <= ulp);
            assert_true(op_value(r, 4, k) - (b + c) <= ulp && (b + c) - op_value(r, 4, k) <= ulp);
            assert_true(op_value(r, 5, k) - a * b <= ulp && a * b - op_value(r, 5, k) <= ulp);
            double same = c - (op_value(r, 3, k % 7) - op_value(r, 0, k % 7)); // one vector for all rows
            assert_true(same <= ulp && -same <= ulp && c != 0);
        }
        op_run_free(r);
    }
}

// ---- silu -----------------------------------------------------------------------------------------------------------

typedef struct silu_shape {
    int    rows, n;
    double scale;
} silu_shape;

static const silu_shape silu_shapes[] = {{1, 1, 1}, {3, 31, 1}, {33, 65, 3}, {31, 33, 30}};
enum { SILU_SHAPES = sizeof silu_shapes / sizeof silu_shapes[0] };

static void build_silu(op_run *r, const void *arg) {
    const silu_shape *s = arg;
    op_out(r, pl_silu(op_ctx(r), op_leaf(r, s->rows, s->n, 0, s->scale)));
}

static void silu_on_all_backends(void **state) {
    (void)state;
    for (int i = 0; i < SILU_SHAPES; i++)
        op_check(build_silu, &silu_shapes[i], OP_EXACT, "silu %dx%d scale %g", silu_shapes[i].rows, silu_shapes[i].n,
                 silu_shapes[i].scale);
}

static void silu_inputs_too(op_run *r, const void *arg) {
    const silu_shape *s = arg;
    pl_tensor         x = op_constant(r, s->rows, s->n, s->scale);
    op_out(r, x);
    op_out(r, pl_silu(op_ctx(r), x));
}

// Far tails included: large negative inputs must not become NaN.
static void silu_values(void **state) {
    (void)state;
    const silu_shape  s = {4, 50, 60};
    const pl_backend *be;
    for (int i = 0; (be = op_backend(i)); i++) {
        op_run *r = op_run_once(silu_inputs_too, &s, be, 1, OP_NO_TAPE);
        for (int k = 0; k < s.rows * s.n; k++) {
            double x = op_value(r, 0, k), y = x / (1 + exp(-x));
            assert_true(fabs(op_value(r, 1, k) - y) <= 0x1p-20 * fabs(y) + 1e-36); // exp overflows float near -88
        }
        op_run_free(r);
    }
}

// ---- squash ---------------------------------------------------------------------------------------------------------

typedef struct squash_shape {
    int    rows, from, n, all;
    double scale;
} squash_shape;

static const squash_shape squash_shapes[] = {
    {1, 0, 1, 1, 1}, {3, 0, 31, 31, 1}, {33, 7, 65, 90, 3}, {31, 33, 33, 66, 30}};
enum { SQUASH_SHAPES = sizeof squash_shapes / sizeof squash_shapes[0], SQUASH_KINDS = PL_SQUASH_TANH + 1 };

// All three, of overlapping columns.
static void build_squash(op_run *r, const void *arg) {
    const squash_shape *s = arg;
    pl_tensor           x = op_leaf(r, s->rows, s->all, 0, s->scale);
    for (int k = 0; k < SQUASH_KINDS; k++)
        op_out(r, pl_squash(op_ctx(r), (pl_squash_kind)k, x, s->from, s->n, (pl_tensor){0}));
}

// Rows that lie behind each other in a larger tensor, as a recurrence writes them.
static void squash_rows_of_one(op_run *r, const void *arg) {
    const squash_shape *s = arg;
    pl_tensor           all = pl_ctx_tensor(op_ctx(r), 2 * s->rows, s->n);
    for (int k = 0; k < 2; k++) {
        pl_tensor part = pl_tensor_slice(&all, k * s->rows, s->rows);
        pl_squash(op_ctx(r), PL_SQUASH_TANH, op_leaf(r, s->rows, s->all, 0, s->scale), s->from, s->n, part);
    }
    op_out(r, all);
}

static void squash_on_all_backends(void **state) {
    (void)state;
    for (int i = 0; i < SQUASH_SHAPES; i++) {
        const squash_shape *s = &squash_shapes[i];
        op_check(build_squash, s, OP_EXACT, "%d columns of %dx%d scale %g", s->n, s->rows, s->all, s->scale);
        op_check(squash_rows_of_one, s, OP_EXACT, "rows of one, %d of %dx%d", s->n, s->rows, s->all);
    }
}

static void squash_inputs_too(op_run *r, const void *arg) {
    const squash_shape *s = arg;
    pl_tensor           x = op_constant(r, s->rows, s->all, s->scale);
    op_out(r, x);
    for (int k = 0; k < SQUASH_KINDS; k++)
        op_out(r, pl_squash(op_ctx(r), (pl_squash_kind)k, x, s->from, s->n, (pl_tensor){0}));
}

// Far tails included: large inputs must not become NaN.
static void squash_values(void **state) {
    (void)state;
    const squash_shape s = {4, 3, 50, 60, 60};
    const pl_backend  *be;
    for (int i = 0; (be = op_backend(i)); i++) {
        op_run *r = op_run_once(squash_inputs_too, &s, be, 1, OP_NO_TAPE);
        for (int k = 0; k < s.rows * s.n; k++) {
            double x = op_value(r, 0, k / s.n * s.all + s.from + k % s.n);
            double want[SQUASH_KINDS] = {1 / (1 + exp(-x)), 1 / (1 + exp(x)), tanh(x)};
            for (int f = 0; f < SQUASH_KINDS; f++)
                assert_true(fabs(op_value(r, 1 + f, k) - want[f]) <= 0x1p-20 * fabs(want[f]) + 1e-36);
        }
        op_run_free(r);
    }
}

// ---- softcap --------------------------------------------------------------------------------------------------------

typedef struct softcap_shape {
    int    rows, n;
    double scale, cap;
} softcap_shape;

static const softcap_shape softcap_shapes[] = {
    {1, 1, 1, 30}, {3, 31, 20, 30}, {33, 65, 3, 1}, {5, 513, 40, 15}, {7, 33, 1e-3, 30}};
enum { SOFTCAP_SHAPES = sizeof softcap_shapes / sizeof softcap_shapes[0] };

// The producer of what is capped is a gather, as a linear layer is in a model.
static void build_softcap(op_run *r, const void *arg) {
    const softcap_shape *s = arg;
    pl_tensor            x = op_constant(r, s->rows, s->n, s->scale);
    const int32_t       *same = op_ids(r, s->rows, 0, s->rows);
    pl_tensor            y = pl_gather(op_ctx(r), x, same, s->rows);
    pl_softcap(op_ctx(r), y, s->cap);
    op_out(r, y);
}

static void softcap_on_all_backends(void **state) {
    (void)state;
    for (int i = 0; i < SOFTCAP_SHAPES; i++)
        op_check(build_softcap, &softcap_shapes[i], OP_NO_TAPE, "softcap %dx%d scale %g by %g", softcap_shapes[i].rows,
                 softcap_shapes[i].n, softcap_shapes[i].scale, softcap_shapes[i].cap);
}

static void softcap_before_and_after(op_run *r, const void *arg) {
    const softcap_shape *s = arg;
    pl_tensor            x = op_constant(r, s->rows, s->n, s->scale);
    op_out(r, x);
    const int32_t *own = op_ids_from(r, (const int32_t[]){0, 1, 2, 3}, 4);
    pl_tensor      y = pl_gather(op_ctx(r), x, own, 4);
    pl_softcap(op_ctx(r), y, s->cap);
    op_out(r, y);
}

// Relative error element by element: next to 0, about the seam of the polynomial, far out, where it is the cap.
static void softcap_values(void **state) {
    (void)state;
    static const double scale[] = {1e-4, 0.6, 4, 100};
    const pl_backend   *be;
    for (int b = 0; (be = op_backend(b)); b++)
        for (int i = 0; i < 4; i++) {
            const softcap_shape s = {4, 200, 7 * scale[i], 7};
            op_run             *r = op_run_once(softcap_before_and_after, &s, be, 1, OP_NO_TAPE);
            for (int k = 0; k < s.rows * s.n; k++) {
                double y = s.cap * tanh(op_value(r, 0, k) / s.cap);
                assert_true(fabs(op_value(r, 1, k) - y) <= 0x1p-21 * fabs(y));
            }
            op_run_free(r);
        }
}

// ---- round ----------------------------------------------------------------------------------------------------------

typedef struct round_shape {
    int  rows, d;
    bool round;
} round_shape;

static void build_round(op_run *r, const void *arg) {
    const round_shape *s = arg;
    op_out(r, pl_round(op_ctx(r), op_leaf(r, s->rows, s->d, 0, 1)));
}

static void round_on_all_backends(void **state) {
    (void)state;
    const round_shape round_shapes[] = {{1, 1, true}, {3, 31, true}, {33, 65, true}, {65, 513, true}};
    for (int i = 0; i < 4; i++)
        op_check(build_round, &round_shapes[i], OP_EXACT | OP_NO_DIFFERENCES, "round %dx%d", round_shapes[i].rows,
                 round_shapes[i].d);
}

static void round_values_of(op_run *r, const void *arg) {
    const float *v = op_floats_from(r, arg, 6);
    pl_tensor    x = op_place(r, 1, 6);
    for (int i = 0; i < 6; i++)
        if (x.dtype == PL_F64)
            ((double *)x.data)[i] = (double)v[i];
        else
            ((float *)x.data)[i] = v[i];
    op_out(r, pl_round(op_ctx(r), x));
}

static void round_values(void **state) {
    (void)state;
    // Ties go to even; the step between bf16 numbers just above 1 is 2^-7.
    const float       in[6] = {1.0f, 1.0f + 0x1p-8f, 1.0f + 3 * 0x1p-8f, -1.0f - 0x1.1p-8f, 0x1p-130f, -0.0f};
    const double      out[6] = {1, 1, 1 + 0x1p-6, -1 - 0x1p-7, 0x1p-130, 0};
    const pl_backend *be;
    for (int i = 0; (be = op_backend(i)); i++) {
        op_run *r = op_run_once(round_values_of, in, be, 1, OP_NO_TAPE);
        for (int k = 0; k < 6; k++)
            assert_true(op_value(r, 0, k) == out[k]);
        op_run_free(r);
    }
}

// The gradient of sum c W round(x) in x, which must be that of sum c W x.
static void round_below_linear(op_run *r, const void *arg) {
    const round_shape *s = arg;
    pl_tensor          x = op_leaf(r, s->rows, s->d, 0, 1), w = op_constant(r, 7, s->d, 1);
    op_out(r, pl_linear(op_ctx(r), s->round ? pl_round(op_ctx(r), x) : x, w));
}

static void straight_through(void **state) {
    (void)state;
    const round_shape with = {5, 9, true}, without = {5, 9, false};
    const pl_backend *be;
    for (int i = 0; (be = op_backend(i)); i++) {
        op_run *a = op_run_once(round_below_linear, &with, be, 1, 0),
               *b = op_run_once(round_below_linear, &without, be, 1, 0);
        for (int k = 0; k < 45; k++)
            assert_true(op_grad(a, 0, k) == op_grad(b, 0, k) && op_grad(a, 0, k) != 0);
        assert_true(op_value(a, 0, 0) != op_value(b, 0, 0));
        op_run_free(a);
        op_run_free(b);
    }
}

// ---- concat ---------------------------------------------------------------------------------------------------------

typedef struct concat_shape {
    int rows, ca, cb;
} concat_shape;

static const concat_shape concat_shapes[] = {{1, 1, 1}, {3, 31, 33}, {33, 65, 3}, {31, 1, 65}, {65, 512, 513}};
enum { CONCAT_SHAPES = sizeof concat_shapes / sizeof concat_shapes[0] };

static void build_concat(op_run *r, const void *arg) {
    const concat_shape *s = arg;
    pl_tensor           a = op_leaf(r, s->rows, s->ca, 0, 1), b = op_leaf(r, s->rows, s->cb, 0, 1);
    op_out(r, pl_concat(op_ctx(r), a, b));
}

// Stored features beside a trained input: the constant half takes no gradient.
static void concat_half_constant(op_run *r, const void *arg) {
    const concat_shape *s = arg;
    pl_tensor           a = op_constant(r, s->rows, s->ca, 1), b = op_leaf(r, s->rows, s->cb, 0, 1);
    op_out(r, pl_concat(op_ctx(r), a, b));
}

// A frozen weight in bf16 beside one that learns.
static void concat_narrow_half(op_run *r, const void *arg) {
    const concat_shape *s = arg;
    pl_tensor           a = op_weight(r, s->rows, s->ca, PL_BF16, PL_ROWMAJOR, 1), b = op_leaf(r, s->rows, s->cb, 0, 1);
    op_out(r, pl_concat(op_ctx(r), a, b));
}

static void concat_on_all_backends(void **state) {
    (void)state;
    for (int i = 0; i < CONCAT_SHAPES; i++) {
        const concat_shape *s = &concat_shapes[i];
        op_check(build_concat, s, OP_EXACT, "concat %d x %d+%d", s->rows, s->ca, s->cb);
        op_check(concat_half_constant, s, OP_EXACT, "concat %d x constant %d+%d", s->rows, s->ca, s->cb);
        op_check(concat_narrow_half, s, OP_EXACT, "concat %d x bf16 %d+%d", s->rows, s->ca, s->cb);
    }
}

static void concat_inputs_too(op_run *r, const void *arg) {
    const concat_shape *s = arg;
    pl_tensor           a = op_constant(r, s->rows, s->ca, 1), b = op_constant(r, s->rows, s->cb, 1);
    op_out(r, a);
    op_out(r, b);
    op_out(r, pl_concat(op_ctx(r), a, b));
}

static void concat_values(void **state) {
    (void)state;
    const concat_shape s = {3, 2, 4};
    const pl_backend  *be;
    for (int i = 0; (be = op_backend(i)); i++) {
        op_run *r = op_run_once(concat_inputs_too, &s, be, 1, OP_NO_TAPE);
        for (int m = 0; m < s.rows; m++)
            for (int k = 0; k < s.ca + s.cb; k++)
                assert_true(op_value(r, 2, m * (s.ca + s.cb) + k) ==
                            (k < s.ca ? op_value(r, 0, m * s.ca + k) : op_value(r, 1, m * s.cb + k - s.ca)));
        op_run_free(r);
    }
}

// ---- gather ---------------------------------------------------------------------------------------------------------

typedef struct gather_shape {
    int rows, d, n;
} gather_shape;

static const gather_shape gather_shapes[] = {{1, 1, 1}, {3, 31, 7}, {33, 65, 31}, {31, 33, 400}, {65, 512, 65}};
enum { GATHER_SHAPES = sizeof gather_shapes / sizeof gather_shapes[0] };

static void build_gather(op_run *r, const void *arg) {
    const gather_shape *s = arg;
    pl_tensor           x = op_leaf(r, s->rows, s->d, 0, 1);
    op_out(r, pl_gather(op_ctx(r), x, op_ids(r, s->n, -1, s->rows), s->n));
}

static void gather_on_all_backends(void **state) {
    (void)state;
    for (int i = 0; i < GATHER_SHAPES; i++)
        op_check(build_gather, &gather_shapes[i], OP_EXACT, "gather %d of %dx%d", gather_shapes[i].n,
                 gather_shapes[i].rows, gather_shapes[i].d);
}

static void gather_picked(op_run *r, const void *arg) {
    pl_tensor x = op_constant(r, 3, 5, 1);
    op_out(r, x);
    op_out(r, pl_gather(op_ctx(r), x, op_ids_from(r, arg, 4), 4));
}

static void gather_values(void **state) {
    (void)state;
    const int32_t     index[4] = {2, -1, 0, 2};
    const pl_backend *be;
    for (int b = 0; (be = op_backend(b)); b++) {
        op_run *r = op_run_once(gather_picked, index, be, 1, OP_NO_TAPE);
        for (int i = 0; i < 4; i++)
            for (int k = 0; k < 5; k++)
                assert_true(op_value(r, 1, i * 5 + k) == (index[i] < 0 ? 0 : op_value(r, 0, index[i] * 5 + k)));
        op_run_free(r);
    }
}

// ---- embed ----------------------------------------------------------------------------------------------------------

typedef struct embed_shape {
    int    V, d, rows;
    double scale;
} embed_shape;

static const embed_shape embed_shapes[] = {{1, 1, 1, 1},     {3, 31, 5, 1},    {33, 65, 70, 1},
                                           {65, 33, 300, 1}, {7, 513, 129, 1}, {33, 65, 70, 6.928203105926514},
                                           {2500, 5, 700, 1}};
enum { EMBED_SHAPES = sizeof embed_shapes / sizeof embed_shapes[0] };

// Ids repeat (rows > V) and some are padding (-1).
static void embed_trained(op_run *r, const void *arg) {
    const embed_shape *s = arg;
    pl_tensor          w = op_leaf(r, s->V, s->d, 0, 1);
    op_out(r, pl_embed_scaled(op_ctx(r), w, op_ids(r, s->rows, -1, s->V), s->rows, s->scale));
}

static void embed_frozen_bf16(op_run *r, const void *arg) {
    const embed_shape *s = arg;
    pl_tensor          w = op_weight(r, s->V, s->d, PL_BF16, PL_ROWMAJOR, 1);
    op_out(r, pl_embed_scaled(op_ctx(r), w, op_ids(r, s->rows, -1, s->V), s->rows, s->scale));
}

static void embed_on_all_backends(void **state) {
    (void)state;
    for (int i = 0; i < EMBED_SHAPES; i++) {
        const embed_shape *s = &embed_shapes[i];
        op_check(embed_trained, s, s->scale == 1 ? OP_EXACT : 0, "embed %d of %dx%d by %g", s->rows, s->V, s->d,
                 s->scale);
        op_check(embed_frozen_bf16, s, OP_EXACT | OP_NO_TAPE, "embed %d of bf16 %dx%d by %g", s->rows, s->V, s->d,
                 s->scale);
    }
}

// An odd address, as tensors in a mapped file may have; in a GPU's memory all lie at multiples.
static void embed_unaligned(op_run *r, const void *arg) {
    const float *embed_values = arg;
    const int    off = op_ctx(r)->be->device ? 0 : 1;
    char        *p = op_bytes(r, 6 * sizeof(float) + 1);
    memcpy(p + off, embed_values, 6 * sizeof(float));
    const int32_t id[3] = {2, -1, 0};
    op_out(r, pl_embed(op_ctx(r), pl_tensor_2d(p + off, PL_F32, 3, 2), op_ids_from(r, id, 3), 3));
}

static void embed_values(void **state) {
    (void)state;
    const float       w[6] = {1, 2, 3, 4, 5, 6};
    const double      expected[6] = {5, 6, 0, 0, 1, 2};
    const pl_backend *be;
    for (int i = 0; (be = op_backend(i)); i++) {
        op_run *r = op_run_once(embed_unaligned, w, be, 1, OP_NO_TAPE);
        for (int k = 0; k < 6; k++)
            assert_true(op_value(r, 0, k) == expected[k]);
        op_run_free(r);
    }
}

// Rows 0, 1, 0 of W: its gradient is the sum over the uses, d loss / d y are the coefficients themselves.
static void embed_repeated(op_run *r, const void *arg) {
    (void)arg;
    const int32_t id[3] = {0, 1, 0};
    const float   coeff[3] = {2, 3, 5};
    pl_tensor     w = op_leaf(r, 2, 1, 0, 1), y = pl_embed(op_ctx(r), w, op_ids_from(r, id, 3), 3);
    pl_tape_settle(op_ctx(r), y.grad, 3 * pl_dtype_size(y.dtype));
    for (int i = 0; i < 3 && !op_ctx(r)->measuring; i++)
        if (op_ctx(r)->be->real == PL_F64)
            ((double *)y.grad)[i] = (double)coeff[i];
        else
            ((float *)y.grad)[i] = coeff[i];
    op_out_loss(r, y, coeff);
}

static void repeated_ids_add_up(void **state) {
    (void)state;
    const pl_backend *be;
    for (int i = 0; (be = op_backend(i)); i++) {
        op_run *r = op_run_once(embed_repeated, NULL, be, 1, 0);
        assert_true(op_grad(r, 0, 0) == 7 && op_grad(r, 0, 1) == 3);
        op_run_free(r);
    }
}

// ---- combine --------------------------------------------------------------------------------------------------------

typedef struct combine_shape {
    int rows, k, d;
} combine_shape;

static const combine_shape combine_shapes[] = {{1, 1, 1}, {3, 2, 17}, {1, 8, 64}, {12, 4, 33}};
enum { COMBINE_SHAPES = sizeof combine_shapes / sizeof *combine_shapes };

// Pairs in another order than rows have them.
static int combine_slot_at(const combine_shape *s, int i) {
    int pairs = s->rows * s->k;
    return (i * (pairs % 5 ? 5 : 7) + 3) % pairs;
}

static void build_combine(op_run *r, const void *arg) {
    const combine_shape *s = arg;
    int                  pairs = s->rows * s->k;
    int32_t             *slot = malloc((size_t)pairs * sizeof *slot);
    assert_non_null(slot);
    for (int i = 0; i < pairs; i++)
        slot[i] = combine_slot_at(s, i);
    pl_tensor x = op_constant(r, pairs, s->d, 1), weight = op_constant(r, s->rows, s->k, 1);
    op_out(r, pl_combine(op_ctx(r), x, weight, op_ids_from(r, slot, pairs)));
    op_out(r, x);
    op_out(r, weight);
    free(slot);
}

static void combine_on_all_backends(void **state) {
    (void)state;
    for (int i = 0; i < COMBINE_SHAPES; i++)
        op_check(build_combine, &combine_shapes[i], OP_NO_TAPE | OP_EXACT | OP_NO_DEVICE,
                 "combine %d of %d for %d rows", combine_shapes[i].k, combine_shapes[i].d, combine_shapes[i].rows);
}

static void combine_values(void **state) {
    (void)state;
    const pl_backend *be;
    for (int i = 0; i < COMBINE_SHAPES; i++)
        for (int b = 0; (be = op_backend(b)); b++) {
            const combine_shape *s = &combine_shapes[i];
            if (!be->fwd[PL_OP_COMBINE]) continue;
            op_run *r = op_run_once(build_combine, s, be, 1, OP_NO_TAPE);
            for (int m = 0; m < s->rows; m++)
                for (int c = 0; c < s->d; c++) {
                    double want = 0, size = 0;
                    for (int j = 0; j < s->k; j++) {
                        double v =
                            op_value(r, 2, m * s->k + j) * op_value(r, 1, combine_slot_at(s, m * s->k + j) * s->d + c);
                        want += v;
                        size += fabs(v);
                    }
                    assert_true(fabs(op_value(r, 0, m * s->d + c) - want) <= 0x1p-20 * size);
                }
            op_run_free(r);
        }
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(sums),
        cmocka_unit_test(products),
        cmocka_unit_test(biases),
        cmocka_unit_test(add_values),
        cmocka_unit_test(silu_on_all_backends),
        cmocka_unit_test(silu_values),
        cmocka_unit_test(squash_on_all_backends),
        cmocka_unit_test(squash_values),
        cmocka_unit_test(softcap_on_all_backends),
        cmocka_unit_test(softcap_values),
        cmocka_unit_test(round_on_all_backends),
        cmocka_unit_test(round_values),
        cmocka_unit_test(straight_through),
        cmocka_unit_test(concat_on_all_backends),
        cmocka_unit_test(concat_values),
        cmocka_unit_test(gather_on_all_backends),
        cmocka_unit_test(gather_values),
        cmocka_unit_test(embed_on_all_backends),
        cmocka_unit_test(embed_values),
        cmocka_unit_test(repeated_ids_add_up),
        cmocka_unit_test(combine_on_all_backends),
        cmocka_unit_test(combine_values),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
