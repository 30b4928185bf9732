// Routers against PyTorch: scores, losses, gradients of all weights; and the gradients against central differences.
#include "tests/golden/golden.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "infer/head/router.h"
#include "kernels/op/rowloss.h"
#include "kernels/tape.h"
#include <math.h>
#include <stdio.h>
#include <string.h>

enum { ROWS = 9, D = 12, WIDTH = 7, CLUSTERS = 11 };

typedef struct router_run {
    pl_router      router;
    pl_params      params;
    pl_param_block block;
    pl_ctx         ctx;
    pl_tape        tape;
    bool           learn;
    double         input[3][ROWS * D]; // embed, hidden, output
    float          y[ROWS * CLUSTERS], weight[ROWS];
    pl_tensor      scores, loss;
} router_run;

static void pass(pl_ctx *ctx, void *arg) {
    router_run *r = arg;
    pl_tensor   in[3];
    for (int i = 0; i < 3; i++)
        in[i] = pl_tensor_2d(r->input[i], ctx->be->real, ROWS, D);
    r->scores = pl_router_scores(ctx, &r->router, in[0], in[1], in[2]);
    pl_classify_args a = {.z = r->scores,
                          .y = r->y,
                          .weight = r->weight,
                          .kind = r->router.kind == PL_ROUTER_MLP ? PL_CLASSIFY_BCE : PL_CLASSIFY_SOFTMAX};
    r->loss = pl_classify(ctx, &a);
    if (r->learn) pl_tape_backward(ctx);
}

static void run_pass(router_run *r, bool learn) {
    pl_err err;
    r->learn = learn;
    r->ctx.tape = learn ? &r->tape : NULL;
    pl_ctx_begin(&r->ctx);
    pass(&r->ctx, r);
    r->ctx.tape = &r->tape;
    if (pl_ctx_sync(&r->ctx, &err) != PL_OK) fail_msg("%s", err.msg);
}

static void create(router_run *r, golden *g, const pl_backend *be, pl_router_kind kind) {
    static const struct {
        const char *name;
        int         log2;
    } input[3] = {{"router/embed", 12}, {"router/hidden", 6}, {"router/output", 7}};
    pl_err err;
    char   model[32];
    r->router.kind = kind;
    r->router.d = D;
    r->router.width = r->router.kind == PL_ROUTER_MLP ? WIDTH : D;
    r->router.clusters = CLUSTERS;
    assert_int_equal(pl_params_init(&r->params, 8, &err), PL_OK);
    pl_router_params(&r->router, &r->params);
    pl_param_block_options o = {.backend = be, .round_to = PL_F32};
    assert_int_equal(pl_param_block_create(&r->block, &r->params, &o, &err), PL_OK);
    snprintf(model, sizeof model, "router/%s", pl_router_name((int)kind));
    golden_weights_set(&r->block, GOLDEN_COARSE, model);
    for (int i = 0; i < 3; i++) {
        float x[ROWS * D];
        golden_coarse(x, ROWS * D, input[i].log2, input[i].name);
        for (int k = 0; k < ROWS * D; k++)
            if (be->real == PL_F64)
                r->input[i][k] = (double)x[k];
            else
                ((float *)r->input[i])[k] = x[k];
    }
    const int32_t *label = golden_ints(g, ROWS * CLUSTERS, "labels");
    for (int i = 0; i < ROWS * CLUSTERS; i++)
        r->y[i] = r->router.kind == PL_ROUTER_MLP ? (float)label[i] : (float)label[i] / 8;
    for (int i = 0; i < ROWS; i++)
        r->weight[i] = i == 4 ? 0 : (float)(1 + i % 4) / 4;
    assert_int_equal(pl_ctx_init(&r->ctx, be, NULL), PL_OK);
    assert_int_equal(pl_tape_init(&r->tape, 0, &err), PL_OK);
    r->ctx.tape = &r->tape;
    r->learn = true;
    assert_int_equal(pl_ctx_measure(&r->ctx, pass, r, &err), PL_OK);
}

static void destroy(router_run *r) {
    pl_ctx_fini(&r->ctx);
    pl_tape_fini(&r->tape);
    pl_param_block_destroy(&r->block);
    pl_params_fini(&r->params);
}

static double total(router_run *r) {
    double sum = 0;
    run_pass(r, false);
    for (int i = 0; i < ROWS; i++)
        sum += (double)r->weight[i] * pl_f64(&r->loss)[i];
    return sum;
}

// On ref64: every element of every weight.
static void differences(router_run *r) {
    const double *grad = r->block.grad;
    double       *w = r->block.work, step = 1e-6;
    for (int i = 0; i < r->params.n; i++)
        for (int64_t k = r->block.at[i]; k < r->block.at[i] + pl_param_block_count(&r->block, i); k++) {
            double was = w[k], up, down;
            w[k] = was + step, up = total(r);
            w[k] = was - step, down = total(r);
            w[k] = was;
            double got = (up - down) / (2 * step);
            if (!(fabs(got - grad[k]) <= 1e-7 * (1 + fabs(grad[k]))))
                fail_msg("%s[%lld]: gradient %.10g, central difference %.10g", r->params.p[i].name[0],
                         (long long)(k - r->block.at[i]), grad[k], got);
        }
}

static void check(pl_router_kind router) {
    const char       *kind = pl_router_name((int)router);
    const pl_backend *be[GOLDEN_BACKENDS];
    int               n = golden_backends(be);
    for (int i = 0; i < n; i++) {
        router_run *r = golden_room(be[i], sizeof *r);
        golden      g;
        char        prefix[32];
        golden_open(&g, "router");
        golden_begin(&g);
        create(r, &g, be[i], router);
        run_pass(r, true);
        golden_expect(&g, be[i], r->scores, "%s/scores", kind);
        golden_expect(&g, be[i], r->loss, "%s/loss", kind);
        snprintf(prefix, sizeof prefix, "%s/grad/", kind);
        golden_expect_block(&g, be[i], &r->block, r->block.grad, 0, prefix);
        golden_all_asked(&g, kind);
        if (be[i]->real == PL_F64) differences(r);
        destroy(r);
        golden_close(&g);
        golden_release();
    }
}

static void mlp(void **state) {
    (void)state;
    check(PL_ROUTER_MLP);
}

static void coral(void **state) {
    (void)state;
    check(PL_ROUTER_CORAL);
}

int main(void) {
    const struct CMUnitTest tests[] = {cmocka_unit_test(mlp), cmocka_unit_test(coral)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
