#include "kernels/base/rng.h"
#include "kernels/op/adamw.h"
#include "tests/kernels/op_harness.h"
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

typedef struct shape {
    int64_t  n;
    int64_t  step;
    pl_dtype round_to;
    bool     in_place; // work is w
} shape;

static const shape shapes[] = {
    {1, 1, PL_F32, false},  {3, 1, PL_BF16, false},      {31, 7, PL_F32, true},
    {33, 2, PL_F32, false}, {1000, 100, PL_BF16, false}, {70001, 3, PL_BF16, false},
};
enum { SHAPES = sizeof shapes / sizeof shapes[0] };
static const double LR = 0.01, B1 = 0.9, B2 = 0.999, EPS = 1e-8, DECAY = 0.1, SCALE = 0.5;

static void build(op_run *r, const void *arg) {
    const shape  *s = arg;
    pl_tensor     w = op_constant(r, 1, s->n, 1), m = op_constant(r, 1, s->n, 0.1);
    pl_tensor     grad = op_constant(r, 1, s->n, 1), work = op_place(r, 1, s->n), v = op_place(r, 1, s->n);
    pl_adamw_args a = {.w = w.data, .m = m.data, .v = v.data, .work = s->in_place ? w.data : work.data};
    for (int64_t i = 0; i < s->n; i++) // a second moment is not negative
        if (v.dtype == PL_F64)
            ((double *)v.data)[i] = (double)(float)(0.01 * (double)(i % 97));
        else
            ((float *)v.data)[i] = (float)(0.01 * (double)(i % 97));
    op_out(r, w);
    op_out(r, m);
    op_out(r, v);
    op_out(r, grad);
    a.grad = grad.data;
    a.n = s->n;
    a.lr = LR;
    a.beta1 = B1;
    a.beta2 = B2;
    a.eps = EPS;
    a.decay = DECAY;
    a.grad_scale = SCALE;
    a.step = s->step;
    a.round_to = s->round_to;
    if (s->round_to == PL_BF16) a.work16 = op_bytes(r, (size_t)s->n * sizeof *a.work16);
    pl_adamw(op_ctx(r), &a);
    op_out(r, w);
    op_out(r, m);
    op_out(r, v);
    if (s->round_to == PL_F32) op_out(r, s->in_place ? w : work); // bf16 may round the two sides of a budget apart
    if (s->round_to == PL_F32) return;
    for (int64_t i = 0; i < s->n && !op_ctx(r)->measuring; i++)
        if (a.work16[i] != pl_f32_to_bf16(w.dtype == PL_F64 ? (float)pl_f64(&w)[i] : pl_f32(&w)[i]))
            fail_msg("%s: element %lld in bf16", op_ctx(r)->be->name, (long long)i);
    pl_tensor off = op_place(r, 1, s->n); // how far the working copy is from w's own rounding: nothing
    for (int64_t i = 0; i < s->n && !op_ctx(r)->measuring; i++)
        if (w.dtype == PL_F64)
            ((double *)off.data)[i] = pl_f64(&work)[i] - (double)pl_round_bf16((float)pl_f64(&w)[i]);
        else
            ((float *)off.data)[i] = pl_f32(&work)[i] - pl_round_bf16(pl_f32(&w)[i]);
    op_out(r, off);
}

static void all_backends(void **state) {
    (void)state;
    for (int i = 0; i < SHAPES; i++)
        op_check(build, &shapes[i], OP_NO_TAPE, "adamw n=%lld step %lld", (long long)shapes[i].n,
                 (long long)shapes[i].step);
}

static void values(void **state) {
    (void)state;
    const pl_backend *be;
    for (int b = 0; (be = op_backend(b)); b++)
        for (int k = 0; k < SHAPES; k++) {
            const shape *s = &shapes[k];
            op_run      *r = op_run_once(build, s, be, 1, OP_NO_TAPE);
            double       tol = be->real == PL_F64 ? 1e-14 : 1e-6;
            for (int64_t i = 0; i < s->n; i++) {
                double w = op_value(r, 0, i), m = op_value(r, 1, i), v = op_value(r, 2, i);
                double g = op_value(r, 3, i) * SCALE;
                m = B1 * m + (1 - B1) * g;
                v = B2 * v + (1 - B2) * g * g;
                double mean = m / (1 - pow(B1, (double)s->step)), var = v / (1 - pow(B2, (double)s->step));
                w -= LR * (mean / (sqrt(var) + EPS) + DECAY * w);
                assert_true(fabs(op_value(r, 4, i) - w) <= tol * (1 + fabs(w)));
                assert_true(fabs(op_value(r, 5, i) - m) <= tol && fabs(op_value(r, 6, i) - v) <= tol);
                assert_true(op_value(r, 7, i) == (s->round_to == PL_F32 ? op_value(r, 4, i) : 0));
            }
            op_run_free(r);
        }
}

typedef struct squares {
    int64_t n, from; // of a fixed array
    bool    chunks;  // their sums, then their tree on the host
} squares;

static void sum_squares(op_run *r, const void *arg) {
    const squares *s = arg;
    pl_tensor      x = op_constant(r, 1, s->from + s->n, 1);
    double        *out = op_bytes(r, sizeof *out);
    const char    *p = x.data;
    pl_sumsq_args  a = {.x = p + (size_t)s->from * pl_dtype_size(x.dtype), .n = s->n, .out = out};
    double        *chunks = s->chunks ? op_bytes(r, sizeof *chunks * (size_t)pl_sumsq_chunks(s->n)) : NULL;
    a.chunks = chunks;
    pl_sumsq(op_ctx(r), &a);
    if (chunks) {
        op_out_f64(r, chunks, pl_sumsq_chunks(s->n));
        return;
    }
    op_out_f64(r, out, 1);
    op_out(r, x);
}

static double sumsq(const pl_backend *be, int64_t from, int64_t n, int threads) {
    squares     s = {.n = n, .from = from};
    op_run     *r = op_run_once(sum_squares, &s, be, threads, OP_NO_TAPE);
    double      out = op_value(r, 0, 0);
    long double exact = 0;
    for (int64_t i = 0; i < n; i++)
        exact += (long double)op_value(r, 1, from + i) * (long double)op_value(r, 1, from + i);
    assert_true(fabsl((long double)out - exact) <= 1e-13L * exact);
    op_run_free(r);
    return out;
}

static void sums_of_squares(void **state) {
    (void)state;
    const int64_t     n[] = {0, 1, 3, 33, 1000, PL_SUMSQ_CHUNK - 1, PL_SUMSQ_CHUNK, PL_SUMSQ_CHUNK + 1, 400001};
    const pl_backend *be;
    for (int b = 0; (be = op_backend(b)); b++)
        for (int i = 0; i < 9; i++)
            assert_true(sumsq(be, 0, n[i], 1) == sumsq(be, 0, n[i], 2));
}

// Seven chunks: ((0 1) (2 3)) ((4 5) 6), whoever computes them.
static void sum_tree(void **state) {
    (void)state;
    const int64_t     C = PL_SUMSQ_CHUNK;
    const pl_backend *be;
    for (int b = 0; (be = op_backend(b)); b++) {
        double c[7];
        for (int i = 0; i < 7; i++)
            c[i] = sumsq(be, i * C, i < 6 ? C : 77, 1);
        double whole = ((c[0] + c[1]) + (c[2] + c[3])) + ((c[4] + c[5]) + c[6]);
        assert_true(sumsq(be, 0, 6 * C + 77, 2) == whole);
        squares s = {.n = 6 * C + 77, .chunks = true};
        op_run *r = op_run_once(sum_squares, &s, be, 2, OP_NO_TAPE);
        double  again[7];
        for (int i = 0; i < 7; i++) {
            again[i] = op_value(r, 0, i);
            assert_true(again[i] == c[i]);
        }
        assert_true(pl_sumsq_tree(again, 7) == whole);
        op_run_free(r);
    }
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(all_backends),
        cmocka_unit_test(values),
        cmocka_unit_test(sums_of_squares),
        cmocka_unit_test(sum_tree),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
