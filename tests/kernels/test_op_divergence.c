#include "kernels/op/divergence.h"
#include "tests/kernels/op_harness.h"
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

typedef struct shape {
    pl_objective objective;
    int          n, rows_t; // student rows; teacher rows
    int          V, Vd, d, dt;
    bool         trimmed;
    pl_dtype     w, wt; // PL_F32 for w: trained; else frozen
    double       scale; // of the logits
    bool         unmasked;
    bool         working; // w is a working copy of bf16: trained, in bf16 products on a GPU
    double       cap;     // of the teacher's logits
} shape;

static const shape shapes[] = {
    {PL_OBJ_KL, 1, 1, 1, 1, 1, 1, false, PL_F32, PL_F32, 1, false, false, 0},
    {PL_OBJ_KL, 3, 2, 31, 31, 3, 5, false, PL_F32, PL_F32, 1, false, false, 0},
    {PL_OBJ_KL, 12, 4, 65, 33, 31, 33, true, PL_F32, PL_BF16, 3, false, false, 0},
    {PL_OBJ_KL, 9, 3, 2 * PL_DIV_TILE + 7, PL_DIV_TILE + 3, 8, 5, true, PL_F32, PL_F32, 2, false, false, 0},
    {PL_OBJ_KL, 6, 6, PL_DIV_TILE, PL_DIV_TILE, 7, 9, false, PL_F32, PL_F32, 8, false, false, 0},
    {PL_OBJ_KL, 5, 2, 100, 40, 16, 16, true, PL_BF16, PL_F32, 1, false, false, 0},
    {PL_OBJ_KL, 70, 33, 700, 600, 33, 40, true, PL_F32, PL_BF16, 2, false, false, 0},
    {PL_OBJ_KL, 70, 33, 700, 600, 33, 40, true, PL_F32, PL_BF16, 2, false, true, 0},
    {PL_OBJ_KL, 130, 5, 4 * PL_DIV_TILE + 9, 4 * PL_DIV_TILE + 2, 8, 5, true, PL_F32, PL_BF16, 2, false, true, 0},
    {PL_OBJ_LABEL, 1, 0, 3, 3, 3, 0, false, PL_F32, PL_F32, 1, false, false, 0},
    {PL_OBJ_LABEL, 13, 0, 65, 65, 31, 0, false, PL_F32, PL_F32, 2, false, false, 0},
    {PL_OBJ_LABEL, 33, 0, PL_DIV_TILE + 1, PL_DIV_TILE + 1, 17, 0, false, PL_F32, PL_F32, 1, false, false, 0},
    {PL_OBJ_LABEL, 7, 0, 33, 33, 9, 0, false, PL_BF16, PL_F32, 1, false, false, 0},
    {PL_OBJ_KL, 12, 4, 65, 33, 31, 33, true, PL_F32, PL_BF16, 3, false, false, 9},
    {PL_OBJ_KL, 9, 3, 2 * PL_DIV_TILE + 7, PL_DIV_TILE + 3, 8, 5, true, PL_F32, PL_F32, 2, false, false, 7},
    {PL_OBJ_KL, 70, 33, 700, 600, 33, 40, true, PL_F32, PL_BF16, 2, false, true, 3},
};
enum { SHAPES = sizeof shapes / sizeof shapes[0] };

// Which rows count: some have no weight, some no teacher row or label.
static float weight_of(const shape *s, int i) {
    return s->n > 1 && i % 4 == 1 ? 0 : 0.25f + 0.5f * (float)(i % 3);
}
static int teacher_of(const shape *s, int i) {
    return s->n > 2 && i % 5 == 2 ? -1 : i % s->rows_t;
}
static int label_of(const shape *s, int i) {
    return s->n > 2 && i % 5 == 2 ? -1 : (i * 7 + 2) % s->Vd;
}
static int target_of(const shape *s, int j) {
    return s->trimmed ? j * (s->V / s->Vd) + (j % 3 == 0) : j;
}
static bool counts(const shape *s, int i) {
    return weight_of(s, i) != 0 && (s->objective != PL_OBJ_LABEL ? teacher_of(s, i) : label_of(s, i)) >= 0;
}

enum { LOSS, ACCEPT, STUDENT, TEACHER, X, XT }; // outputs

static bool bare;    // nothing reads the teacher's distribution over all ids
static bool settled; // forward may leave the gradient

static pl_divergence_args arguments(pl_objective o, bool unmasked) {
    return (pl_divergence_args){.objective = o, .unmasked = unmasked, .js_beta = 0.3, .lk_decay = 3};
}

static void build(op_run *r, const void *arg) {
    const shape       *s = arg;
    bool               taught = s->objective != PL_OBJ_LABEL;
    pl_ctx            *ctx = op_ctx(r);
    float             *weight = op_bytes(r, (size_t)s->n * sizeof *weight), *coeff = op_bytes(r, (size_t)s->n * 4);
    int32_t           *teacher_row = op_bytes(r, (size_t)s->n * 4), *label = op_bytes(r, (size_t)s->n * 4);
    int32_t           *d2t = op_bytes(r, (size_t)s->Vd * 4);
    pl_divergence_args a = arguments(s->objective, s->unmasked);
    a.teacher_cap = s->cap;
    a.settled = settled;
    a.x = op_leaf(r, s->n, s->d, 0, s->scale);
    if (s->working)
        a.w = op_working(r, s->Vd, s->d, 1 / sqrt(s->d));
    else if (s->w == PL_F32)
        a.w = op_leaf(r, s->Vd, s->d, 0, 1 / sqrt(s->d));
    else
        a.w = op_weight(r, s->Vd, s->d, s->w, PL_ROWMAJOR, 1 / sqrt(s->d));
    if (taught) {
        a.xt = op_constant(r, s->rows_t, s->dt, s->scale);
        a.wt = op_weight(r, s->V, s->dt, s->wt, PL_ROWMAJOR, 1 / sqrt(s->dt));
        if (!bare) a.teacher_argmax = op_bytes(r, (size_t)s->rows_t * 4);
    }
    for (int i = 0; i < s->n; i++) {
        weight[i] = weight_of(s, i);
        coeff[i] = counts(s, i) ? weight[i] : 0;
        if (taught) teacher_row[i] = teacher_of(s, i);
        label[i] = label_of(s, i);
    }
    for (int j = 0; j < s->Vd; j++)
        d2t[j] = target_of(s, j);
    a.weight = weight;
    a.teacher_row = taught ? teacher_row : NULL;
    a.label = taught ? NULL : label;
    a.d2t = s->trimmed ? d2t : NULL;
    if (!bare) a.accept = op_place(r, s->n, 1);
    a.student_argmax = op_bytes(r, (size_t)s->n * 4);
    op_out_loss(r, pl_divergence(ctx, &a), coeff);
    if (bare) return;
    op_out(r, a.accept);
    op_out_i32(r, a.student_argmax, s->n);
    op_out_i32(r, taught ? a.teacher_argmax : a.student_argmax, taught ? s->rows_t : s->n);
    a.x.grad = NULL;
    op_out(r, a.x);
    op_out(r, taught ? a.xt : a.x);
}

// Not what a loss's differences show: their gradients hold a part of the loss constant (see values).
static unsigned differences(pl_objective o) {
    return o == PL_OBJ_TVDPP || o == PL_OBJ_LK_LAMBDA ? OP_NO_DIFFERENCES : 0;
}

static void check(const shape *s) {
    const char *name = pl_objective_name(s->objective), *mask = s->unmasked ? "unmasked" : "masked";
    unsigned    rounded = s->working ? OP_BF16_GRADS | OP_NO_DIFFERENCES : s->w == PL_BF16 ? OP_BF16_GRADS : 0;
    unsigned    narrow = s->working || s->w == PL_BF16 || s->wt == PL_BF16 ? OP_NARROW : 0;
    op_check(build, s, differences(s->objective) | rounded | narrow, "divergence %s %s n=%d V=%d Vd=%d d=%d", name,
             mask, s->n, s->V, s->Vd, s->d);
    op_check(build, s, OP_NO_TAPE | narrow, "divergence without a tape %s %s n=%d", name, mask, s->n);
}

static void all_backends(void **state) {
    (void)state;
    for (int i = 0; i < SHAPES; i++)
        check(&shapes[i]);
}

// Losses have the same bits if the teacher is computed at the draft ids alone, and gradients are those of ref64.
static void at_the_draft_ids(void **state) {
    (void)state;
    static const pl_objective objectives[] = {PL_OBJ_KL, PL_OBJ_SOFT_CE, PL_OBJ_HARD_CE, PL_OBJ_REVERSE_KL};
    const pl_backend         *be;
    for (int i = 0; i < SHAPES; i++) {
        shape s = shapes[i];
        if (s.unmasked || s.objective == PL_OBJ_LABEL) continue;
        s.objective = objectives[i % 4];
        bare = true;
        unsigned narrow = s.working || s.w == PL_BF16 || s.wt == PL_BF16 ? OP_NARROW | OP_BF16_GRADS : 0;
        op_check(build, &s, narrow | (s.working ? OP_NO_DIFFERENCES : 0), "divergence at the draft ids, case %d", i);
        for (int b = 0; (be = op_backend(b)); b++) {
            bare = true;
            op_run *some = op_run_once(build, &s, be, 1, 0);
            bare = false;
            op_run *all = op_run_once(build, &s, be, 1, 0);
            for (int k = 0; k < s.n; k++)
                if (op_value(some, LOSS, k) != op_value(all, LOSS, k))
                    fail_msg("%s, case %d, row %d: %.9g, of the whole %.9g", be->name, i, k, op_value(some, LOSS, k),
                             op_value(all, LOSS, k));
            op_run_free(some);
            op_run_free(all);
        }
    }
    bare = false;
}

// Gradients of one leaf in two runs: equal, or nearly so.
static void assert_same_grads(const char *what, const op_run *a, const op_run *b, int leaf, int64_t n, double tol) {
    for (int64_t k = 0; k < n; k++) {
        double x = op_grad(a, leaf, k), y = op_grad(b, leaf, k);
        if (!(fabs(x - y) <= tol * (1 + fabs(x))))
            fail_msg("%s, leaf %d at %lld: %.9g, %.9g", what, leaf, (long long)k, x, y);
    }
}

// It does not matter whether forward or backward leaves the gradient. Of all ids a device's backward has the
// log-sum-exp alone, which is rounded.
static void settled_weights(void **state) {
    (void)state;
    const pl_backend *be;
    for (int i = 0; i < SHAPES; i++)
        for (int b = 0; (be = op_backend(b)); b++) {
            shape  s = shapes[i];
            double tol = (s.unmasked = i % 2) ? 1e-6 : 0;
            if (s.objective != PL_OBJ_LABEL) s.objective = (pl_objective)(i % PL_OBJ_LABEL);
            op_run *late = op_run_once(build, &s, be, 1, 0);
            settled = true;
            op_run *at_once = op_run_once(build, &s, be, 1, 0);
            settled = false;
            for (int k = 0; k < s.n; k++)
                assert_true(op_value(late, LOSS, k) == op_value(at_once, LOSS, k));
            assert_same_grads(be->name, late, at_once, 0, (int64_t)s.n * s.d, tol);
            if (s.w == PL_F32) assert_same_grads(be->name, late, at_once, 1, (int64_t)s.Vd * s.d, tol);
            op_run_free(late);
            op_run_free(at_once);
        }
}

// Every other objective, masked and not, over the shapes of one tile that KL has.
static void all_objectives(void **state) {
    (void)state;
    for (int o = 0; o < PL_OBJECTIVES; o++)
        for (int unmasked = 0; unmasked < 2; unmasked++)
            for (int i = 0; i < SHAPES; i++) {
                shape s = shapes[i];
                if (s.objective != PL_OBJ_KL || o == PL_OBJ_LABEL) continue;
                if (s.Vd > PL_DIV_TILE) continue; // differences over them take long; test_divergence_cpu has them
                s.objective = (pl_objective)o;
                s.unmasked = unmasked;
                if (unmasked || o != PL_OBJ_KL) check(&s);
            }
}

// Against the formulas, on identity weights, so that the rows are the logits themselves.
typedef struct direct {
    bool         trimmed;
    int          rows;
    pl_objective objective;
    bool         unmasked;
    double       cap; // of the teacher's logits
} direct;
enum { V = 6, VD = 4 };
static const int kept[VD] = {1, 2, 5, 4};

static void identity(op_run *r, const void *arg) {
    const direct      *s = arg;
    int                Vd = s->trimmed ? VD : V;
    float             *eye = op_bytes(r, V * V * sizeof *eye), *weight = op_bytes(r, (size_t)s->rows * 4);
    int32_t           *row = op_bytes(r, (size_t)s->rows * 4), *d2t = op_bytes(r, VD * 4);
    pl_divergence_args a = arguments(s->objective, s->unmasked);
    a.teacher_cap = s->cap;
    a.weight = weight;
    a.teacher_row = row;
    for (int i = 0; i < V * V; i++)
        eye[i] = i / V == i % V;
    for (int i = 0; i < s->rows; i++) {
        weight[i] = 1;
        row[i] = s->rows - 1 - i;
    }
    for (int j = 0; j < VD; j++)
        d2t[j] = kept[j];
    a.d2t = s->trimmed ? d2t : NULL;
    a.x = op_leaf(r, s->rows, V, 0, 2);
    a.w = pl_tensor_2d(eye, PL_F32, Vd, V); // student logits: the first Vd elements of x
    a.xt = op_constant(r, s->rows, V, 2);
    a.wt = pl_tensor_2d(eye, PL_F32, V, V);
    a.accept = op_place(r, s->rows, 1);
    a.student_argmax = op_bytes(r, (size_t)s->rows * 4);
    a.teacher_argmax = op_bytes(r, (size_t)s->rows * 4);
    op_out_loss(r, pl_divergence(op_ctx(r), &a), weight);
    op_out(r, a.accept);
    op_out_i32(r, a.student_argmax, s->rows);
    op_out_i32(r, a.teacher_argmax, s->rows);
    a.x.grad = NULL;
    op_out(r, a.x);
    op_out(r, a.xt);
}

static void softmax(double *p, const double *z, int n) {
    double max = z[0], sum = 0;
    for (int j = 1; j < n; j++)
        max = fmax(max, z[j]);
    for (int j = 0; j < n; j++)
        sum += p[j] = exp(z[j] - max);
    for (int j = 0; j < n; j++)
        p[j] /= sum;
}

static int largest(const double *z, int n) {
    int best = 0;
    for (int j = 1; j < n; j++)
        if (z[j] > z[best]) best = j;
    return best;
}

// The header's equations on p (of mass m) and q; `held`: the q that a gradient holds constant. tvd++ gives what its
// gradient is that of, which is not its value.
static double formula(const direct *s, const double *p, const double *q, const double *held, int n, int choice) {
    const pl_divergence_args a = arguments(s->objective, s->unmasked);
    double                   kl = 0, ce = 0, tv = 1, rkl = 0, mass = 0, over = 0, constant_alpha = 0;
    double                   js = 0, b = a.js_beta;
    for (int j = 0; j < n; j++) {
        double m = b * p[j] + (1 - b) * q[j];
        kl += p[j] * log(p[j] / q[j]);
        ce -= p[j] * log(q[j]);
        tv -= fmin(p[j], q[j]);
        rkl += q[j] * log(q[j] / p[j]);
        js += b * p[j] * log(p[j] / m) + (1 - b) * q[j] * log(q[j] / m);
        mass += p[j];
        if (p[j] > held[j]) over += q[j];
        constant_alpha += fmin(p[j], held[j]);
    }
    double lambda = exp(-a.lk_decay * constant_alpha);
    switch (s->objective) {
    case PL_OBJ_KL: return kl;
    case PL_OBJ_SOFT_CE: return ce;
    case PL_OBJ_HARD_CE: return choice < 0 ? 0 : -log(q[choice]);
    case PL_OBJ_TV: return tv;
    case PL_OBJ_TVDPP: return -2 * asin(sqrt(over));
    case PL_OBJ_REVERSE_KL: return rkl;
    case PL_OBJ_JS: return js - b * (1 - mass) * log(b);
    case PL_OBJ_LK_ALPHA: return -log(1 - tv);
    case PL_OBJ_LK_LAMBDA: return lambda * kl + (1 - lambda) * tv;
    default: return NAN;
    }
}

static void check_row(const direct *s, const op_run *r, int i, double tol) {
    int    Vd = s->trimmed ? VD : V, teacher = s->rows - 1 - i, choice;
    double z[V], t[V], draft[V], q[V], p[V], full[V], accept = 0;
    for (int j = 0; j < V; j++) {
        z[j] = op_value(r, X, i * V + j);
        t[j] = op_value(r, XT, teacher * V + j);
        if (s->cap > 0) t[j] = s->cap * tanh(t[j] / s->cap);
    }
    for (int j = 0; j < Vd; j++)
        draft[j] = t[s->trimmed ? kept[j] : j];
    softmax(q, z, Vd);
    softmax(p, draft, Vd);
    softmax(full, t, V);
    choice = largest(draft, Vd);
    if (s->unmasked && draft[choice] < t[largest(t, V)]) choice = -1;
    for (int j = 0; j < Vd; j++) {
        double of_all = full[s->trimmed ? kept[j] : j];
        accept += fmin(of_all, q[j]);
        if (s->unmasked) p[j] = of_all;
    }
    direct tv = *s;
    if (s->objective == PL_OBJ_TVDPP) tv.objective = PL_OBJ_TV;
    double loss = formula(&tv, p, q, q, Vd, choice), h = 1e-5;
    assert_true(fabs(op_value(r, LOSS, i) - loss) <= tol * (1 + fabs(loss)));
    assert_true(fabs(op_value(r, ACCEPT, i) - accept) <= tol);
    assert_true(op_value(r, STUDENT, i) == largest(z, Vd));
    assert_true(op_value(r, TEACHER, teacher) == largest(t, V));
    for (int j = 0; j < Vd; j++) {
        double up[V], down[V], at = z[j], want;
        z[j] = at + h;
        softmax(up, z, Vd);
        z[j] = at - h;
        softmax(down, z, Vd);
        z[j] = at;
        want = (formula(s, p, up, q, Vd, choice) - formula(s, p, down, q, Vd, choice)) / (2 * h);
        assert_true(fabs(op_grad(r, 0, i * V + j) - want) <= (tol + 1e-8) * (1 + fabs(want)));
    }
}

static void values(void **state) {
    (void)state;
    const pl_backend *be;
    for (int b = 0; (be = op_backend(b)); b++)
        for (int o = 0; o < PL_OBJ_LABEL; o++)
            for (int k = 0; k < 8; k++) {
                const direct s = {k & 1, 9, (pl_objective)o, k & 2, k & 4 ? 1.5 : 0};
                op_run      *r = op_run_once(identity, &s, be, 1, 0);
                for (int i = 0; i < s.rows; i++)
                    check_row(&s, r, i, be->real == PL_F64 ? 1e-13 : 3e-6);
                op_run_free(r);
            }
}

// Rows that do not count leave zeros, -1 and no gradient; hard labels give -log q.
static void skipped_and_labels(void **state) {
    (void)state;
    const pl_backend *be;
    for (int b = 0; (be = op_backend(b)); b++)
        for (int k = 0; k < SHAPES; k++) {
            const shape *s = &shapes[k];
            op_run      *r = op_run_once(build, s, be, 1, 0);
            for (int i = 0; i < s->n; i++) {
                double loss = op_value(r, LOSS, i), accept = op_value(r, ACCEPT, i);
                if (counts(s, i)) {
                    assert_true(op_value(r, STUDENT, i) >= 0 && accept >= 0 && accept <= 1 + 1e-5 && loss >= -1e-5);
                    if (s->objective == PL_OBJ_LABEL) assert_true(fabs(accept - exp(-loss)) <= 1e-5);
                    continue;
                }
                assert_true(loss == 0 && accept == 0 && op_value(r, STUDENT, i) == -1);
                for (int d = 0; d < s->d; d++)
                    assert_true(op_grad(r, 0, i * s->d + d) == 0);
            }
            for (int row = 0; row < s->rows_t; row++) {
                bool asked = false;
                for (int i = 0; i < s->n; i++)
                    asked |= counts(s, i) && teacher_of(s, i) == row;
                assert_true((op_value(r, TEACHER, row) >= 0) == asked);
            }
            op_run_free(r);
        }
}

// A student that is its teacher: no divergence, no gradient, certain acceptance.
static void itself(op_run *r, const void *arg) {
    static const float   weight[4] = {1, 1, 1, 1};
    static const int32_t row[4] = {0, 1, 2, 3};
    (void)arg;
    pl_divergence_args a = {.objective = PL_OBJ_KL};
    a.weight = op_floats_from(r, weight, 4);
    a.teacher_row = op_ids_from(r, row, 4);
    a.x = op_leaf(r, 4, 9, 0, 1);
    a.w = op_weight(r, 1000, 9, PL_BF16, PL_ROWMAJOR, 1);
    a.xt = a.x;
    a.xt.grad = NULL;
    a.wt = a.w;
    a.accept = op_place(r, 4, 1);
    op_out_loss(r, pl_divergence(op_ctx(r), &a), weight);
    op_out(r, a.accept);
}

static void own_teacher(void **state) {
    (void)state;
    const pl_backend *be;
    for (int b = 0; (be = op_backend(b)); b++) {
        op_run *r = op_run_once(itself, NULL, be, 2, 0);
        for (int i = 0; i < 4; i++)
            assert_true(fabs(op_value(r, LOSS, i)) <= 1e-5 && fabs(op_value(r, ACCEPT, i) - 1) <= 1e-5);
        for (int k = 0; k < 36; k++)
            assert_true(fabs(op_grad(r, 0, k)) <= 1e-5);
        op_run_free(r);
    }
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(all_backends),   cmocka_unit_test(at_the_draft_ids), cmocka_unit_test(settled_weights),
        cmocka_unit_test(all_objectives), cmocka_unit_test(values),           cmocka_unit_test(skipped_and_labels),
        cmocka_unit_test(own_teacher),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
