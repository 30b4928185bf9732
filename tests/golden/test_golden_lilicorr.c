// LiLiCorr's network against PyTorch: the vectors by which candidates are entered and left and blocks begin, and the
// scores of each slot behind a candidate of the one before.
#include "tests/golden/documents.h"
#include "tests/golden/golden.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "infer/drafter/backbone.h"
#include <stdio.h>
#include <string.h>

enum { BLOCKS = 3, SLOTS = 4, K = 6, RANK_OF = 5, M = SLOTS * BLOCKS };

typedef struct run {
    golden         g;
    pl_llama       target; // shapes, embedding and head only
    float          embed[V * D], head[V * D];
    pl_backbone   *model;
    pl_param_block block;
    double         hidden[M * D], context[BLOCKS * D], own[M * K]; // in the backend's reals
    int32_t        id[M * K], before[M];
    float          value[M * K], lse[M];
    pl_tensor      kept[3], scores;
} run;

static void must(pl_status st, const pl_err *err) {
    if (st != PL_OK) fail_msg("%s", err->msg);
}

static pl_tensor reals(const pl_backend *be, double *at, int64_t rows, int64_t cols) {
    return pl_tensor_2d(at, be->real, rows, cols);
}

static void put_coarse(const pl_backend *be, double *at, int64_t rows, const char *name) {
    float     x[M * D];
    pl_tensor t = reals(be, at, rows, D);
    golden_coarse(x, rows * D, 7, name);
    for (int64_t i = 0; i < rows * D; i++)
        pl_real_put(&t, i, (double)x[i]);
}

static void create(run *r, const pl_backend *be) {
    pl_err              err;
    pl_hf_config        c;
    pl_backbone_options o = {.layers = 1, .block = SLOTS + 1, .mask_token = 7, .n_taps = TAPS, .tap = {1, 2, 3}};
    o.selector = (pl_hf_selector){.rank = RANK_OF,
                                  .candidates = K,
                                  .kind = PL_HF_LATTICE,
                                  .width = 16,
                                  .layers = 2,
                                  .heads = 2,
                                  .mlp_ratio = 1.5,
                                  .scale = 10,
                                  .eps = 1e-6};
    golden_open(&r->g, "lilicorr");
    golden_config(&r->g, &c);
    must(pl_llama_init(&r->target, &c, be, false, &err), &err);
    golden_coarse(r->embed, V * D, 8, "target/model.embed_tokens.weight");
    golden_coarse(r->head, V * D, 10, "target/lm_head.weight");
    r->target.embed = pl_tensor_2d(r->embed, PL_F32, V, D);
    r->target.head = pl_tensor_2d(r->head, PL_F32, V, D);
    must(pl_backbone_create(&r->model, &pl_backbone_dflash, &r->target, &o, be, &err), &err);
    pl_param_block_options bo = {.backend = be, .round_to = golden_held(be)};
    must(pl_param_block_create(&r->block, &r->model->params, &bo, &err), &err);
    golden_weights_set(&r->block, GOLDEN_COARSE, "dflash");
    put_coarse(be, r->hidden, M, "lilicorr/hidden");
    put_coarse(be, r->context, BLOCKS, "lilicorr/context");
    memcpy(r->id, golden_ints(&r->g, M * K, "ids"), sizeof r->id);
    for (int i = 0; i < M * K; i++)
        r->value[i] = (float)golden_reals(&r->g, M * K, "values")[i];
    for (int i = 0; i < M; i++) {
        int slot = i / BLOCKS, block = i % BLOCKS;
        r->lse[i] = (float)golden_reals(&r->g, M, "lse")[i];
        r->before[i] = slot > 0 ? r->id[(i - BLOCKS) * K + (slot + block) % K] : 0;
    }
}

static void run_selector(pl_ctx *ctx, void *arg) {
    run                    *r = arg;
    const pl_head          *h = &r->model->head;
    const pl_selector_kind *kind = h->selector.kind;
    pl_head_blocks          blocks = {.context = reals(ctx->be, r->context, BLOCKS, D)};
    pl_head_rows            rows = {.x = reals(ctx->be, r->hidden, M, D), .token = r->before, .blocks = &blocks};
    rows.embed = r->model->embed;
    pl_selector_list list = {.id = r->id, .value = r->value, .lse = r->lse, .all = r->id};
    kind->prepare(ctx, h, &rows, &list);
    pl_selector_ask ask = {.list = &list, .before = r->before, .id = r->id, .own = reals(ctx->be, r->own, M, K)};
    r->scores = kind->score(ctx, h, &ask);
    memcpy(r->kept, list.kept, sizeof r->kept);
}

static void lattice_on(const pl_backend *be) {
    static const char *const names[] = {"in", "out", "start"};
    run                     *r = golden_room(be, sizeof *r);
    pl_err                   err;
    pl_ctx                   ctx;
    create(r, be);
    must(pl_ctx_init(&ctx, be, NULL), &err);
    must(pl_ctx_measure(&ctx, run_selector, r, &err), &err);
    golden_begin(&r->g);
    pl_ctx_begin(&ctx);
    run_selector(&ctx, r);
    must(pl_ctx_sync(&ctx, &err), &err);
    for (int i = 0; i < 3; i++)
        golden_expect(&r->g, be, r->kept[i], "%s", names[i]);
    golden_expect(&r->g, be, r->scores, "scores");
    pl_ctx_fini(&ctx);
    pl_param_block_destroy(&r->block);
    pl_backbone_destroy(r->model);
    pl_llama_fini(&r->target);
    golden_close(&r->g);
    golden_release();
}

static void lattice(void **state) {
    (void)state;
    const pl_backend *be[GOLDEN_BACKENDS];
    int               n = golden_backends(be);
    for (int i = 0; i < n; i++)
        lattice_on(be[i]);
}

int main(void) {
    const struct CMUnitTest tests[] = {cmocka_unit_test(lattice)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
