// Hydra's heads and Hydra++'s against PyTorch: losses and gradients over a pack; then checkpoints of them, reopened:
// the heads' inputs along a text whose rows come in piece by piece.
#include "tests/golden/documents.h"
#include "tests/golden/drafts.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "infer/model/kv.h"
#include "train/task/unroll.h"
#include <stdio.h>
#include <string.h>

enum { K = 3 };

static void must(pl_status st, const pl_err *err) {
    if (st != PL_OK) fail_msg("%s", err->msg);
}

// ---- under training -------------------------------------------------------------------------------------------------

typedef struct setup {
    golden          g;
    pl_llama        target; // shapes, embedding and head only
    float           embed[V * D], head[V * D];
    pl_backbone    *model;
    pl_param_block  block;
    pl_unroll       u;
    golden_document doc[DOCS];
} setup;

static pl_backbone_options options(const pl_backbone_kind *kind) {
    bool plus = kind == &pl_backbone_hydrapp;
    return (pl_backbone_options){
        .head = pl_hf_head_make(plus ? "lowrank" : "full", RANK), .block = K, .layers = plus ? 2 : 1};
}

static void fill_pack(setup *s) {
    pl_pack_clear(&s->u.pack);
    for (int i = 0; i < DOCS; i++) {
        golden_document_read(&s->g, i, &s->doc[i]);
        pl_columns doc = golden_document_rows(&s->doc[i]);
        pl_pack_add(&s->u.pack, &doc, 0, doc.n);
    }
    pl_pack_close(&s->u.pack);
    assert_int_equal(s->u.pack.rows, ROWS);
}

static void setup_init(setup *s, const pl_backend *be, const pl_backbone_kind *kind) {
    pl_err              err;
    pl_hf_config        c;
    pl_backbone_options o = options(kind);
    golden_open(&s->g, "hydra");
    golden_config(&s->g, &c);
    must(pl_llama_init(&s->target, &c, be, false, &err), &err);
    golden_coarse(s->embed, V * D, 8, "target/model.embed_tokens.weight");
    golden_coarse(s->head, V * D, 10, "target/lm_head.weight");
    s->target.embed = pl_tensor_2d(s->embed, PL_F32, V, D);
    s->target.head = pl_tensor_2d(s->head, PL_F32, V, D);
    must(pl_backbone_create(&s->model, kind, &s->target, &o, be, &err), &err);
    pl_param_block_options bo = {.backend = be, .round_to = golden_held(be)};
    must(pl_param_block_create(&s->block, &s->model->params, &bo, &err), &err);
    golden_weights_set(&s->block, GOLDEN_COARSE, "hydra");
    pl_unroll_options uo = {.capacity = ROWS + 3,
                            .steps = K,
                            .learn_steps = K,
                            .step_decay = 0.8,
                            .token_weight = 1,
                            .objective = PL_OBJ_KL,
                            .anchors = ROWS};
    must(pl_unroll_create(&s->u, s->model, s->target.head, &uo, be, NULL, &err), &err);
    fill_pack(s);
}

static void check_losses(setup *s, const pl_backend *be) {
    char name[64];
    snprintf(name, sizeof name, "%s/loss", s->model->kind->name);
    golden_expect_slack(&s->g, be, pl_tensor_1d(s->u.loss, PL_F64, K * ROWS), 4e-6, name);
    const int32_t *best = golden_ints(&s->g, K * ROWS, "%s/student_argmax", s->model->kind->name);
    for (int i = 0; i < K * ROWS; i++)
        assert_int_equal(s->u.student_argmax[i], best[i]);
}

static void learn_on(const pl_backend *be, const pl_backbone_kind *kind) {
    setup *s = golden_room(be, sizeof *s);
    pl_err err;
    char   prefix[48];
    setup_init(s, be, kind);
    golden_begin(&s->g);
    must(pl_unroll_score(&s->u, &err), &err);
    check_losses(s, be);
    fill_pack(s);
    must(pl_unroll_learn(&s->u, &err), &err);
    check_losses(s, be);
    snprintf(prefix, sizeof prefix, "%s/grad/", kind->name);
    golden_expect_block(&s->g, be, &s->block, s->block.grad, 0, prefix);
    golden_all_asked(&s->g, prefix);
    pl_unroll_destroy(&s->u);
    pl_param_block_destroy(&s->block);
    pl_backbone_destroy(s->model);
    pl_llama_fini(&s->target);
    golden_close(&s->g);
    golden_release();
}

static void learn(const pl_backbone_kind *kind) {
    const pl_backend *be[GOLDEN_BACKENDS];
    int               n = golden_backends(be);
    for (int i = 0; i < n; i++)
        learn_on(be[i], kind);
}

static void hydra(void **state) {
    (void)state;
    learn(&pl_backbone_hydra);
}

static void hydrapp(void **state) {
    (void)state;
    learn(&pl_backbone_hydrapp);
}

// ---- over a cache ---------------------------------------------------------------------------------------------------

typedef struct drafted {
    const pl_backbone *b;
    pl_kv              kv;
    golden_document    text;
    float              last[LONGEST * D];
    int32_t            from, rows, anchor, pos[LONGEST], token[K];
    pl_kvrow           row[LONGEST];
    pl_tensor          y[K];
} drafted;

// Rows from .. rows - 1 come in, then the drafts behind them, whose tokens are the text's.
static void run_drafts(pl_ctx *ctx, void *arg) {
    drafted  *d = arg;
    int       n = d->rows - d->from;
    pl_tensor state;
    for (int i = 0; i < n; i++) {
        d->pos[i] = d->from + i;
        if (d->b->layers > 0) pl_kv_row(&d->kv, &d->row[i], n, d->from, NULL, i + 1, d->from + i);
    }
    d->anchor = n - 1;
    const pl_block_view view = {.features = pl_tensor_2d(d->last + d->from * D, ctx->be->real, n, D),
                                .context_pos = d->pos,
                                .context_row = d->row,
                                .anchor = &d->anchor,
                                .m = K};
    state = d->b->kind->draft(ctx, d->b, &view);
    for (int k = 0; k < K; k++) {
        d->token[k] = d->rows + k < d->text.n ? d->text.tokens[d->rows + k] : -1;
        const pl_follow_view follow = {.draft = k, .state = state, .token = &d->token[k]};
        d->y[k] = d->b->kind->follow(ctx, d->b, &follow, &state);
    }
}

static void draft_along(golden *g, const pl_backbone *b, const pl_backend *be, const char *kind) {
    static const int32_t row[] = {1, 2, 5, 6, 8};
    pl_err               err;
    pl_ctx               ctx;
    drafted             *d = golden_room(be, sizeof *d);
    golden_document_read(g, 0, &d->text);
    pl_to_f32(d->last, d->text.last_hidden, PL_BF16, (size_t)d->text.n * D);
    d->b = b;
    d->rows = LONGEST;
    must(pl_kv_create(&d->kv, b->layers, LONGEST, &b->shape, be, &err), &err);
    must(pl_ctx_init(&ctx, be, NULL), &err);
    must(pl_ctx_measure(&ctx, run_drafts, d, &err), &err);
    for (size_t i = 0; i < sizeof row / sizeof *row; i++, d->from = d->rows) {
        d->rows = row[i] + 1;
        pl_ctx_begin(&ctx);
        run_drafts(&ctx, d);
        must(pl_ctx_sync(&ctx, &err), &err);
        for (int k = 0; k < K; k++)
            golden_expect_rows(g, be, d->y[k], row[i], "%s/hidden/%d", kind, k);
    }
    pl_ctx_fini(&ctx);
    pl_kv_destroy(&d->kv);
    golden_release();
}

static void drafts(void **state) {
    (void)state;
    static const pl_backbone_kind *const kinds[] = {&pl_backbone_hydra, &pl_backbone_hydrapp};
    for (int i = 0; i < 2; i++) {
        pl_backbone_options o = options(kinds[i]);
        golden_drafts("hydra", kinds[i], &o, "hydra", draft_along, kinds[i]->name);
    }
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(hydra),
        cmocka_unit_test(hydrapp),
        cmocka_unit_test(drafts),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
