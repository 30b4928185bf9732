// EAGLE-1's drafter and its loss against PyTorch: states and logits over the steps of an unroll, divergence,
// regression, the gradient of the authors' own loss; then a checkpoint of it, reopened, drafting ahead over a cache.
#include "tests/golden/documents.h"
#include "tests/golden/drafts.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "infer/model/kv.h"
#include "kernels/base/arena.h"
#include "train/task/unroll.h"
#include <stdio.h>
#include <string.h>

enum { K = 3 };

static void must(pl_status st, const pl_err *err) {
    if (st != PL_OK) fail_msg("%s", err->msg);
}

static pl_backbone_options options(const char *head) {
    bool lowrank = strcmp(head, "lowrank") == 0;
    return (pl_backbone_options){.head = pl_hf_head_make(lowrank ? "lowrank" : "full", RANK), .bias = true};
}

// ---- under training ----

typedef struct setup {
    golden            g;
    const pl_backend *be;
    pl_llama          target; // shapes, embedding and head only
    float             embed[V * D], head[V * D];
    pl_backbone      *model;
    pl_param_block    block;
    pl_unroll         u;
    golden_document   doc[DOCS];
} setup;

static void setup_init(setup *s, const pl_backend *be, const char *head) {
    pl_err              err;
    pl_hf_config        c;
    pl_backbone_options o = options(head);
    *s = (setup){.be = be};
    golden_open(&s->g, "eagle1");
    golden_config(&s->g, &c);
    must(pl_llama_init(&s->target, &c, be, false, &err), &err);
    golden_coarse(s->embed, V * D, 8, "target/model.embed_tokens.weight");
    golden_coarse(s->head, V * D, 10, "target/lm_head.weight");
    s->target.embed = pl_tensor_2d(s->embed, PL_F32, V, D);
    s->target.head = pl_tensor_2d(s->head, PL_F32, V, D);
    must(pl_backbone_create(&s->model, &pl_backbone_eagle1, &s->target, &o, be, &err), &err);
    pl_param_block_options bo = {.backend = be, .round_to = golden_held(be)};
    must(pl_param_block_create(&s->block, &s->model->params, &bo, &err), &err);
    golden_weights_set(&s->block, GOLDEN_COARSE, "eagle1");
    pl_unroll_options uo = {
        .capacity = ROWS + 3, .steps = K, .step_decay = 0.8, .token_weight = 0.1, .feature_weight = 1};
    must(pl_unroll_create(&s->u, s->model, s->target.head, &uo, be, NULL, &err), &err);
    pl_pack_clear(&s->u.pack);
    for (int i = 0; i < DOCS; i++) {
        golden_document_read(&s->g, i, &s->doc[i]);
        pl_columns doc = golden_document_rows(&s->doc[i]);
        doc.features = NULL; // the last hidden is all it needs
        pl_pack_add(&s->u.pack, &doc, 0, doc.n);
    }
    pl_pack_close(&s->u.pack);
    assert_int_equal(s->u.pack.rows, ROWS);
}

static void setup_fini(setup *s) {
    pl_unroll_destroy(&s->u);
    pl_param_block_destroy(&s->block);
    pl_backbone_destroy(s->model);
    pl_llama_fini(&s->target);
    golden_close(&s->g);
    golden_release();
}

typedef struct steps {
    setup    *s;
    pl_tensor hidden[K], logits[K];
} steps;

static void run_steps(pl_ctx *ctx, void *arg) {
    steps       *f = arg;
    pl_backbone *b = f->s->model;
    pl_pack     *p = &f->s->u.pack;
    pl_tensor    block[PL_MAX_UNROLL];
    pl_view      view = {.pos = p->pos, .cos = b->cos, .sin = b->sin, .lo = p->lo, .block = block};
    pl_tensor    hidden = b->kind->fuse(ctx, b, pl_tensor_2d(p->features, ctx->be->real, ROWS, D));
    for (int k = 0; k < K; k++) {
        view.offset = view.n_blocks = k;
        pl_tensor y = b->kind->step(ctx, b, p->token + k * ROWS, hidden, &view, &hidden, (pl_tensor){0});
        f->hidden[k] = hidden;
        f->logits[k] = pl_head_logits(ctx, &b->head, &(pl_head_rows){.x = y});
    }
}

// A loss is a sum of differences of logarithms near log V = 4.6, which are 5e-7 apart in fp32.
static void check_losses(setup *s, const char *head) {
    char name[64];
    snprintf(name, sizeof name, "%s/loss", head);
    golden_expect_slack(&s->g, s->be, pl_tensor_1d(s->u.loss, PL_F64, K * ROWS), 2e-6, name);
    golden_expect(&s->g, s->be, pl_tensor_1d(pl_unroll_figure(&s->u, "feature_loss")->value, PL_F64, K * ROWS),
                  "%s/feature_loss", head);
    const int32_t *best = golden_ints(&s->g, K * ROWS, "%s/student_argmax", head);
    for (int i = 0; i < K * ROWS; i++)
        assert_int_equal(s->u.student_argmax[i], best[i]);
}

static void learn_on(const pl_backend *be, const char *head) {
    setup *s = golden_room(be, sizeof *s);
    pl_err err;
    pl_ctx ctx;
    char   prefix[32];
    setup_init(s, be, head);
    golden_begin(&s->g);
    steps f = {.s = s};
    must(pl_ctx_init(&ctx, be, NULL), &err);
    must(pl_ctx_measure(&ctx, run_steps, &f, &err), &err);
    pl_ctx_begin(&ctx);
    run_steps(&ctx, &f);
    must(pl_ctx_sync(&ctx, &err), &err);
    for (int k = 0; k < K; k++) {
        golden_expect(&s->g, be, f.hidden[k], "hidden/%d", k);
        golden_expect(&s->g, be, f.logits[k], "%s/logits/%d", head, k);
    }
    pl_ctx_fini(&ctx);
    must(pl_unroll_score(&s->u, &err), &err);
    check_losses(s, head);
    must(pl_unroll_learn(&s->u, &err), &err);
    check_losses(s, head);
    snprintf(prefix, sizeof prefix, "%s/grad/", head);
    golden_expect_block(&s->g, be, &s->block, s->block.grad, 0, prefix);
    golden_all_asked(&s->g, "hidden/");
    golden_all_asked(&s->g, head[0] == 't' ? "target/" : "lowrank/");
    setup_fini(s);
}

static void learn_of(const char *head) {
    const pl_backend *be[GOLDEN_BACKENDS];
    int               n = golden_backends(be);
    for (int i = 0; i < n; i++)
        learn_on(be[i], head);
}

static void target_head(void **state) {
    (void)state;
    learn_of("target");
}

static void lowrank_head(void **state) {
    (void)state;
    learn_of("lowrank");
}

// ---- over a cache: what was trained is what drafts ----

typedef struct draft {
    const pl_backbone *b;
    pl_kv              kv;
    golden_document    text;
    const int32_t     *token;
    float              values[LONGEST * D]; // features, then a hidden row
    pl_tensor          features, hidden;    // with features: rows 0...; without: one row more, from `hidden`
    int32_t            first, rows, pos[LONGEST];
    pl_kvrow           row[LONGEST];
    pl_tensor          logits;
} draft;

static void run_draft(pl_ctx *ctx, void *arg) {
    draft *d = arg;
    for (int32_t i = 0; i < d->rows; i++) {
        d->pos[i] = d->first + i;
        pl_kv_row(&d->kv, &d->row[i], d->rows, d->first, NULL, i + 1, d->first + i);
    }
    pl_view   view = {.pos = d->pos, .cos = d->b->cos, .sin = d->b->sin, .row = d->row, .m = d->rows};
    pl_tensor hidden = d->features.data ? d->b->kind->fuse(ctx, d->b, d->features) : d->hidden;
    pl_tensor y = d->b->kind->step(ctx, d->b, d->token, hidden, &view, &d->hidden, (pl_tensor){0});
    d->logits = pl_head_logits(ctx, &d->b->head, &(pl_head_rows){.x = y});
}

static pl_tensor last_row(pl_tensor t) {
    t.data = (float *)t.data + (t.dim[0] - 1) * t.dim[1];
    t.dim[0] = 1;
    return t;
}

// Row t of document 0: a prefill of the rows up to t, then ahead from its own states.
static void draft_from(golden *g, const pl_backbone *b, const pl_backend *be, const char *head, int32_t t) {
    pl_err err;
    pl_ctx ctx;
    draft *d = golden_room(be, sizeof *d);
    golden_document_read(g, 0, &d->text);
    assert_true(t + K < d->text.n);
    pl_to_f32(d->values, d->text.last_hidden, PL_BF16, (size_t)d->text.n * D);
    d->b = b;
    d->rows = t + 1;
    d->token = d->text.tokens + 1;
    d->features = pl_tensor_2d(d->values, PL_F32, d->rows, D);
    must(pl_kv_create(&d->kv, 1, LONGEST + K, &b->shape, be, &err), &err);
    must(pl_ctx_init(&ctx, be, NULL), &err);
    must(pl_ctx_measure(&ctx, run_draft, d, &err), &err);
    for (int k = 0; k < K; k++) {
        pl_ctx_begin(&ctx);
        run_draft(&ctx, d);
        must(pl_ctx_sync(&ctx, &err), &err);
        golden_expect_rows(g, be, last_row(d->hidden), t, "hidden/%d", k);
        golden_expect_rows(g, be, last_row(d->logits), t, "%s/logits/%d", head, k);
        memcpy(d->values, last_row(d->hidden).data, D * sizeof *d->values);
        d->hidden = pl_tensor_2d(d->values, PL_F32, 1, D);
        d->features = (pl_tensor){0};
        d->first += d->rows;
        d->rows = 1;
        d->token = d->text.tokens + 1 + d->first;
    }
    pl_ctx_fini(&ctx);
    pl_kv_destroy(&d->kv);
    golden_release();
}

static void draft_ahead(golden *g, const pl_backbone *b, const pl_backend *be, const char *head) {
    draft_from(g, b, be, head, 0);
    draft_from(g, b, be, head, 5);
}

static void draft_of(const char *head) {
    pl_backbone_options o = options(head);
    golden_drafts("eagle1", &pl_backbone_eagle1, &o, "eagle1", draft_ahead, head);
}

static void draft_target_head(void **state) {
    (void)state;
    draft_of("target");
}

static void draft_lowrank_head(void **state) {
    (void)state;
    draft_of("lowrank");
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(target_head),
        cmocka_unit_test(lowrank_head),
        cmocka_unit_test(draft_target_head),
        cmocka_unit_test(draft_lowrank_head),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
