// Row-wise and element-wise ops of the cpu backends: a row's bits do not depend on the rows beside it, ends of vectors,
// chunks and blocks, special values.
#include "kernels/op/adamw.h"
#include "kernels/op/norm.h"
#include "kernels/op/swiglu.h"
#include "kernels/op/topk.h"
#include "tests/kernels/op_harness.h"
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

// ---- rows alone and in company ----

typedef struct company {
    int rows, cols, row; // `row` is the one looked at
    int op;              // 0 norm, 1 norm with residual, 2 swiglu
} company;

static float value_at(int row, int i) {
    return 3.0f * sinf((float)(row * 57 + i * 13 + i * i % 29));
}

static pl_tensor filled(op_run *r, int rows, int cols, int first) {
    float *x = op_bytes(r, (size_t)rows * cols * sizeof *x);
    for (int m = 0; m < rows; m++)
        for (int i = 0; i < cols; i++)
            x[m * cols + i] = value_at(first + m, i);
    return pl_tensor_2d(x, PL_F32, rows, cols);
}

// The row looked at holds value_at(1000, ...), wherever it stands.
static void in_company(op_run *r, const void *arg) {
    const company *c = arg;
    pl_tensor      x = filled(r, c->rows, c->op == 2 ? 2 * c->cols : c->cols, 1000 - c->row), y;
    if (c->op == 2) {
        y = pl_gated(op_ctx(r), x, PL_GATE_SILU);
    } else {
        pl_tensor g = filled(r, 1, c->cols, 5);
        g = pl_tensor_1d(g.data, PL_F32, c->cols);
        y = c->op == 0 ? pl_rmsnorm(op_ctx(r), x, g, 1e-5)
                       : pl_rmsnorm_residual(op_ctx(r), &x, filled(r, c->rows, c->cols, 2000 - c->row), g, 1e-5);
    }
    op_out_f32(r, op_ctx(r)->measuring ? NULL : pl_f32(&y) + (int64_t)c->row * c->cols, c->cols);
}

static void rows_stand_alone(void **state) {
    (void)state;
    const int         cols[] = {1, 15, 16, 17, 63, 64, 65, 100, 288, 1030};
    const pl_backend *be;
    for (int b = 2; (be = op_backend(b)) && !be->device; b++)
        for (int i = 0; i < 10; i++)
            for (int op = 0; op < 3; op++) {
                company alone = {1, cols[i], 0, op}, first = {7, cols[i], 0, op}, last = {60, cols[i], 59, op};
                op_run *r[3] = {op_run_once(in_company, &alone, be, 1, OP_NO_TAPE),
                                op_run_once(in_company, &first, be, 1, OP_NO_TAPE),
                                op_run_once(in_company, &last, be, 2, OP_NO_TAPE)};
                for (int k = 1; k < 3; k++)
                    for (int c = 0; c < cols[i]; c++)
                        if (op_value(r[k], 0, c) != op_value(r[0], 0, c))
                            fail_msg("%s, op %d, %d columns: element %d depends on its company", be->name, op, cols[i],
                                     c);
                for (int k = 0; k < 3; k++)
                    op_run_free(r[k]);
            }
}

// ---- gradients where row and column splits meet ----

typedef struct grid {
    int rows, cols;
} grid;

static void norm_chain(op_run *r, const void *arg) {
    const grid *s = arg;
    pl_tensor   h = op_leaf(r, s->rows, s->cols, 0, 1), x = op_leaf(r, s->rows, s->cols, 0, 1);
    pl_tensor   g1 = op_leaf_1d(r, s->cols, 1, 0.1), g2 = op_leaf_1d(r, s->cols, 1, 0.1);
    op_out(r, pl_rmsnorm_residual(op_ctx(r), &h, x, g1, 1e-5));
    op_out(r, pl_rmsnorm(op_ctx(r), h, g2, 1e-5)); // a second reader: h has a gradient when the first goes back
}

static void swiglu(op_run *r, const void *arg) {
    const grid *s = arg;
    op_out(r, pl_gated(op_ctx(r), op_leaf(r, s->rows, 2 * s->cols, 0, 3), PL_GATE_SILU));
}

static void splits(void **state) {
    (void)state;
    const grid s[] = {{1, 1}, {3, 64}, {2, 63}, {65, 127}, {33, 128}, {40, 200}, {3, 3000}, {300, 65}};
    for (int i = 0; i < 8; i++) {
        op_check(norm_chain, &s[i], OP_NO_DIFFERENCES | OP_NO_DEVICE, "norms, %d x %d", s[i].rows, s[i].cols);
        op_check(swiglu, &s[i], OP_NO_DIFFERENCES | OP_NO_DEVICE, "swiglu, %d x %d", s[i].rows, s[i].cols);
    }
}

static void far_out(op_run *r, const void *arg) {
    (void)arg;
    static const float gate[] = {0.0f, -0.0f, 20.0f, -20.0f, 88.0f, -88.0f, 1e4f, -1e4f, 1e30f, -1e30f, 1e-40f};
    float              gu[22];
    for (int i = 0; i < 11; i++) {
        gu[i] = gate[i];
        gu[11 + i] = 2.0f;
    }
    pl_tensor y =
        pl_gated(op_ctx(r), pl_tensor_2d((void *)(uintptr_t)op_floats_from(r, gu, 22), PL_F32, 1, 22), PL_GATE_SILU);
    op_out_f32(r, pl_f32(&y), 11);
}

static void saturated_gates(void **state) {
    (void)state;
    const double      expected[] = {0, 0, 40, 0, 176, 0, 2e4, 0, 2e30, 0, 0};
    const pl_backend *be;
    for (int b = 2; (be = op_backend(b)) && !be->device; b++) {
        op_run *r = op_run_once(far_out, NULL, be, 1, OP_NO_TAPE);
        for (int i = 0; i < 11; i++)
            if (!(fabs(op_value(r, 0, i) - expected[i]) <= 1e-6 * (1 + fabs(expected[i]))))
                fail_msg("%s: gate %d gives %g, expected %g", be->name, i, op_value(r, 0, i), expected[i]);
        op_run_free(r);
    }
}

// ---- adamw and sumsq ----

// With lr 0 the weights stay: the working copy is their rounding.
// A NaN whose bits are all set must not round up into a zero.
#define FULL_NAN __builtin_nanf("0x3fffff")
static const float odd_values[] = {FULL_NAN, 0.0f,      -0.0f,    1.0f,      1.00390625f, 1.01171875f, 1.00390637f,
                                   3.4e38f,  -3.4e38f,  1e-40f,   -1e-45f,   65280.0f,    INFINITY,    -INFINITY,
                                   NAN,      0.333333f, 2.71828f, -123.456f, 1e-30f,      0x1.fep0f,   0x1.ffp0f};
enum { ODD = sizeof odd_values / sizeof odd_values[0], REPEATED = 3000 };

static void rounded(op_run *r, const void *arg) {
    const pl_dtype *to = arg;
    float          *w = op_bytes(r, REPEATED * 4), *m = op_bytes(r, REPEATED * 4), *v = op_bytes(r, REPEATED * 4);
    float          *work = op_bytes(r, REPEATED * 4), *grad = op_bytes(r, REPEATED * 4);
    for (int i = 0; i < REPEATED; i++) {
        w[i] = odd_values[i % ODD];
        m[i] = v[i] = grad[i] = 0;
    }
    pl_adamw(op_ctx(r), &(pl_adamw_args){w, m, v, work, NULL, grad, REPEATED, 0, 0.9, 0.999, 1e-8, 0.1, 1, 1, *to});
    op_out_f32(r, w, REPEATED);
    op_out_f32(r, work, REPEATED);
}

static void working_copies(void **state) {
    (void)state;
    const pl_dtype    to[] = {PL_F32, PL_BF16};
    const pl_backend *be;
    for (int b = 2; (be = op_backend(b)) && !be->device; b++)
        for (int t = 0; t < 2; t++) {
            op_run *r = op_run_once(rounded, &to[t], be, 2, OP_NO_TAPE);
            for (int i = 0; i < REPEATED; i++) {
                float  w = odd_values[i % ODD];
                double expected = isfinite(w) ? (double)(t ? pl_round_bf16(w) : w) : NAN, got = op_value(r, 1, i);
                // An infinite weight times lr 0 is NaN; the copy follows the weight.
                bool   same = isnan(expected) ? isnan(got) : got == expected && signbit(got) == signbit(expected);
                if (!same) fail_msg("%s: copy of %g in %s is %g", be->name, (double)w, pl_dtype_name(to[t]), got);
            }
            op_run_free(r);
        }
}

static void update(op_run *r, const void *arg) {
    const int *n = arg;
    pl_tensor  t[5];
    double    *norm = op_bytes(r, sizeof *norm);
    for (int i = 0; i < 5; i++) {
        pl_tensor from = op_constant(r, 1, *n, i == 4 ? 100 : 1);
        t[i] = op_place(r, 1, *n);
        if (op_ctx(r)->measuring) continue;
        memcpy(t[i].data, from.data, (size_t)*n * pl_dtype_size(from.dtype));
        for (int k = 0; k < *n && i == 2; k++) { // second moments are not negative
            if (from.dtype == PL_F64)
                pl_f64(&t[i])[k] = fabs(pl_f64(&t[i])[k]);
            else
                pl_f32(&t[i])[k] = fabsf(pl_f32(&t[i])[k]);
        }
    }
    pl_adamw(op_ctx(r), &(pl_adamw_args){t[0].data, t[1].data, t[2].data, t[0].data, NULL, t[4].data, *n, 1e-3, 0.9,
                                         0.95, 1e-8, 0.1, 0.01, 7, PL_F32});
    pl_sumsq(op_ctx(r), &(pl_sumsq_args){.x = t[4].data, .n = *n, .out = norm});
    for (int i = 0; i < 3; i++)
        op_out(r, t[i]);
    op_out_f64(r, norm, 1);
}

static void updates(void **state) {
    (void)state;
    const int n[] = {1, 15, 16, 17, 1023, 1025, 5000, PL_SUMSQ_CHUNK + 1, 3 * PL_SUMSQ_CHUNK - 5};
    for (int i = 0; i < 9; i++)
        op_check(update, &n[i], OP_NO_TAPE | OP_NO_DEVICE, "update of %d", n[i]);
}

// ---- topk ----

typedef struct ranking {
    int rows, cols, k;
    int kind; // of values: 0 random, 1 few distinct ones, 2 mostly -inf, 3 ascending, 4 all equal, 5 descending
} ranking;

static float logit(const ranking *s, int row, int id) {
    uint32_t x = (uint32_t)(row * 1000003 + id) * 2654435761u;
    x ^= x >> 15;
    x *= 2246822519u;
    x ^= x >> 13;
    switch (s->kind) {
    case 0: return (float)(x >> 8) / (1 << 22) - 2;
    case 1: return (float)(x >> 8 & 3);
    case 2: return x % 97 == 0 ? (float)(x >> 16 & 15) : -INFINITY;
    case 3: return (float)id / 64;
    case 5: return (float)-id / 64;
    default: return 1.5f;
    }
}

static void top(op_run *r, const void *arg) {
    const ranking *s = arg;
    float         *x = op_bytes(r, (size_t)s->rows * s->cols * 4);
    for (int m = 0; m < s->rows; m++)
        for (int i = 0; i < s->cols; i++)
            x[m * s->cols + i] = logit(s, m, i);
    pl_topk_args a = {.x = pl_tensor_2d(x, PL_F32, s->rows, s->cols),
                      .id = op_bytes(r, (size_t)s->rows * s->k * 4),
                      .value = op_bytes(r, (size_t)s->rows * s->k * 4),
                      .lse = op_bytes(r, (size_t)s->rows * 4),
                      .k = s->k};
    pl_topk(op_ctx(r), &a);
    op_out_i32(r, a.id, (int64_t)s->rows * s->k);
    op_out_f32(r, a.value, (int64_t)s->rows * s->k);
    op_out_f32(r, a.lse, s->rows);
}

typedef struct ranked {
    float value;
    int   id;
} ranked;

static int by_rank(const void *a, const void *b) {
    const ranked *x = a, *y = b;
    if (x->value != y->value) return x->value > y->value ? -1 : 1;
    return x->id - y->id;
}

static void expect_ranking(const op_run *r, const ranking *s, const pl_backend *be) {
    ranked *all = malloc((size_t)s->cols * sizeof *all);
    assert_non_null(all);
    for (int m = 0; m < s->rows; m++) {
        double sum = 0;
        for (int i = 0; i < s->cols; i++)
            all[i] = (ranked){logit(s, m, i), i};
        qsort(all, (size_t)s->cols, sizeof *all, by_rank);
        for (int i = 0; i < s->cols; i++)
            sum += exp((double)all[i].value - (double)all[0].value);
        for (int i = 0; i < s->k; i++)
            if ((int)op_value(r, 0, m * s->k + i) != all[i].id || op_value(r, 1, m * s->k + i) != (double)all[i].value)
                fail_msg("%s, %d x %d, kind %d: number %d of row %d is id %d, not %d", be->name, s->rows, s->cols,
                         s->kind, i, m, (int)op_value(r, 0, m * s->k + i), all[i].id);
        double lse = (double)all[0].value + log(sum), got = op_value(r, 2, m);
        if (!(fabs(got - lse) <= 1e-6 * (1 + fabs(lse)))) fail_msg("%s: lse %.9g, not %.9g", be->name, got, lse);
    }
    free(all);
}

static void rankings(void **state) {
    (void)state;
    const int         cols[] = {1, 15, 64, 127, 129, 1000, 16383, 16385, 40000};
    const pl_backend *be;
    for (int b = 2; (be = op_backend(b)) && !be->device; b++)
        for (int c = 0; c < 9; c++)
            for (int kind = 0; kind < 6; kind++)
                for (int j = 0; j < 3; j++) {
                    const int k[] = {1, 10, PL_TOPK_MAX};
                    ranking   s = {c < 6 ? 3 : 1, cols[c], k[j], kind};
                    if (s.k > s.cols || (kind == 2 && cols[c] < 1000)) continue;
                    op_run *r = op_run_once(top, &s, be, 2, OP_NO_TAPE);
                    expect_ranking(r, &s, be);
                    op_run_free(r);
                }
}

static void nan_is_found(void **state) {
    (void)state;
    enum { V = 17000 };
    const int         at[] = {0, 1, 15, 16, 127, 128, 5000, 16383, 16384, 16900, V - 1};
    const pl_backend *be;
    float            *x = calloc(V, sizeof *x);
    assert_non_null(x);
    for (int b = 2; (be = op_backend(b)) && !be->device; b++)
        for (int i = 0; i < 11; i++)
            for (int k = 1; k <= 5; k += 4) {
                pl_ctx ctx;
                pl_err err = {0};
                assert_int_equal(pl_ctx_init(&ctx, be, NULL), PL_OK);
                assert_int_equal(pl_arena_reserve(&ctx.scratch, 1 << 20, &err), PL_OK);
                int32_t      id[5];
                pl_topk_args a = {.x = pl_tensor_2d(x, PL_F32, 1, V), .id = id, .k = k};
                pl_topk(&ctx, &a);
                assert_int_equal(pl_ctx_sync(&ctx, &err), PL_OK);
                x[at[i]] = NAN;
                pl_topk(&ctx, &a);
                assert_int_equal(pl_ctx_sync(&ctx, &err), PL_E_INPUT);
                x[at[i]] = 0;
                pl_ctx_fini(&ctx);
            }
    free(x);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(rows_stand_alone), cmocka_unit_test(splits),  cmocka_unit_test(saturated_gates),
        cmocka_unit_test(working_copies),   cmocka_unit_test(updates), cmocka_unit_test(rankings),
        cmocka_unit_test(nan_is_found),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
