// The divergence engine's objectives against PyTorch's autograd: values, acceptance, gradients of rows and weights,
// over all ids and over a trimmed list, masked and not.
#include "tests/golden/golden.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "kernels/op/divergence.h"
#include "kernels/tape.h"
#include <stdio.h>
#include <string.h>

enum { N = 8, TEACHERS = 5, V = 40, VD = 17, WIDTH = 6, TEACHER_WIDTH = 5 };

typedef struct numbers {
    double  x[N * WIDTH], w[V * WIDTH], xt[TEACHERS * TEACHER_WIDTH], dx[N * WIDTH], dw[V * WIDTH], accept[N];
    float   wt[V * TEACHER_WIDTH], weight[N];
    int32_t teacher_row[N], d2t[VD];
} numbers;

// Rows of `from` as the backend's reals; ids NULL: all.
static pl_tensor reals(const pl_backend *be, double *to, const float *from, const int32_t *ids, int rows, int width) {
    for (int i = 0; i < rows; i++)
        for (int c = 0; c < width; c++) {
            float x = from[(ids ? ids[i] : i) * width + c];
            if (be->real == PL_F64)
                to[i * width + c] = (double)x;
            else
                ((float *)to)[i * width + c] = x;
        }
    return pl_tensor_2d(to, be->real, rows, width);
}

static void learn(pl_ctx *ctx, void *arg) {
    pl_divergence_args a = *(const pl_divergence_args *)arg;
    pl_divergence(ctx, &a);
    pl_tape_backward(ctx);
    ((pl_divergence_args *)arg)->loss = a.loss;
}

static void check(golden *g, const pl_backend *be, pl_objective o, const char *dists) {
    numbers    *m = golden_room(be, sizeof *m);
    float       x[N * WIDTH], w[V * WIDTH], xt[TEACHERS * TEACHER_WIDTH];
    int32_t    *d2t = strcmp(dists, "all") == 0 ? NULL : m->d2t;
    const char *name = pl_objective_name(o);
    int         vd = d2t ? VD : V;
    pl_err      err;
    pl_ctx      ctx;
    pl_tape     tape;
    golden_coarse(x, N * WIDTH, 7, "objectives/x");
    golden_coarse(w, V * WIDTH, 7, "objectives/w");
    golden_coarse(xt, TEACHERS * TEACHER_WIDTH, 7, "objectives/xt");
    golden_coarse(m->wt, V * TEACHER_WIDTH, 7, "objectives/wt");
    for (int i = 0; i < N; i++) {
        m->teacher_row[i] = i % TEACHERS;
        m->weight[i] = (float)(1 + i % 4) / 4;
    }
    memcpy(m->d2t, golden_ints(g, VD, "d2t"), sizeof m->d2t);
    pl_divergence_args a = {.objective = o,
                            .unmasked = strcmp(dists, "unmasked") == 0,
                            .js_beta = 0.3,
                            .lk_decay = 3,
                            .x = reals(be, m->x, x, NULL, N, WIDTH),
                            .w = reals(be, m->w, w, d2t, vd, WIDTH),
                            .xt = reals(be, m->xt, xt, NULL, TEACHERS, TEACHER_WIDTH),
                            .wt = pl_tensor_2d(m->wt, PL_F32, V, TEACHER_WIDTH),
                            .teacher_row = m->teacher_row,
                            .weight = m->weight,
                            .d2t = d2t,
                            .accept = pl_tensor_1d(m->accept, be->real, N)};
    a.x.grad = m->dx;
    a.w.grad = m->dw;
    assert_int_equal(pl_ctx_init(&ctx, be, NULL), PL_OK);
    assert_int_equal(pl_tape_init(&tape, 4, &err), PL_OK);
    ctx.tape = &tape;
    assert_int_equal(pl_ctx_measure(&ctx, learn, &a, &err), PL_OK);
    memset(m->dx, 0, sizeof m->dx);
    memset(m->dw, 0, sizeof m->dw);
    a.loss = (pl_tensor){0};
    pl_ctx_begin(&ctx);
    learn(&ctx, &a);
    assert_int_equal(pl_ctx_sync(&ctx, &err), PL_OK);

    // A loss is a sum of differences of logarithms near log V; gradients are differences of probabilities.
    char loss[64];
    snprintf(loss, sizeof loss, "%s/%s/loss", name, dists);
    golden_expect_slack(g, be, a.loss, 1e-6, loss);
    golden_expect(g, be, a.accept, "%s/accept", dists);
    snprintf(loss, sizeof loss, "%s/%s/dx", name, dists);
    golden_expect_slack(g, be, pl_tensor_2d(m->dx, be->real, N, WIDTH), 3e-6, loss);
    golden_expect_matrix(g, be, pl_tensor_2d(m->dw, be->real, vd, WIDTH), 3e-6, "%s/%s/dw", name, dists);
    pl_ctx_fini(&ctx);
    pl_tape_fini(&tape);
    golden_release();
}

static void objectives(void **state) {
    (void)state;
    static const char *const dists[] = {"all", "masked", "unmasked"};
    const pl_backend        *be[GOLDEN_BACKENDS];
    int                      n = golden_backends(be);
    golden                   g;
    golden_open(&g, "objectives");
    for (int b = 0; b < n; b++) {
        golden_begin(&g);
        for (int o = 0; o < PL_OBJ_LABEL; o++)
            for (int k = 0; k < 3; k++)
                check(&g, be[b], (pl_objective)o, dists[k]);
        golden_all_asked(&g, "");
    }
    golden_close(&g);
}

int main(void) {
    const struct CMUnitTest tests[] = {cmocka_unit_test(objectives)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
