// EAGLE-3's drafter and its training-time test against PyTorch, where it is written from the paper with whole attention
// masks: rows, states, logits, losses, gradients; packed and drafting ahead as well. Several layers and EAGLE-3.1's
// norms, and P-EAGLE, also with embeddings of its own and of another width than its target: against speculators' models.
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
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { VD = 41, K = 3 };

static void must(pl_status st, const pl_err *err) {
    if (st != PL_OK) fail_msg("%s", err->msg);
}

// ---- under training ----

typedef struct version {
    const char             *file;
    pl_backbone_options     o;
    const pl_backbone_kind *kind; // NULL: EAGLE-3's
} version;

static const version plain = {.file = "eagle3"}, deep = {.file = "eagle3_deep", .o = {.layers = 3}},
                     each = {.file = "eagle3_each", .o = {.layers = 2, .fc_norm = true, .norm_output = true}},
                     together = {.file = "eagle3_whole",
                                 .o = {.norm_before_fc = true, .norm_output = true, .norm_before_residual = true}},
                     parallel = {.file = "peagle",
                                 .o = {.layers = 2, .fc_norm = true, .block = K, .mask_token = 7},
                                 .kind = &pl_backbone_peagle},
                     narrow = {.file = "peagle_own",
                               .o = {.width = 36, .block = K, .mask_token = 7},
                               .kind = &pl_backbone_peagle};

static const pl_backbone_kind *kind_of(const version *v) {
    return v->kind ? v->kind : &pl_backbone_eagle3;
}

typedef struct setup {
    golden            g;
    const pl_backend *be;
    const char       *head, *vocab;
    pl_llama          target; // shapes and embedding only
    float             embed[V * D], teacher[V * D];
    pl_backbone      *model;
    pl_param_block    block;
    pl_unroll         u;
    golden_document   doc[DOCS];
} setup;

static bool trimmed(const setup *s) {
    return strcmp(s->vocab, "trimmed") == 0;
}

// Draft ids are the rows d2t of the whole head.
static void trim(setup *s) {
    pl_head       *h = &s->model->head;
    const int32_t *d2t = golden_ints(&s->g, VD, "d2t");
    h->d2t = pl_calloc(VD, sizeof *h->d2t);
    assert_non_null(h->d2t);
    memcpy(h->d2t, d2t, VD * sizeof *d2t);
    h->vocab = VD;
    for (int i = 0; i < s->model->params.n; i++) {
        pl_weight_spec *spec = &s->model->params.p[i].spec;
        if (s->model->params.p[i].tensor == &h->out) spec->rows = spec->part[0].rows = VD;
    }
}

static void trim_weights(setup *s) {
    for (int i = 0; i < s->model->params.n; i++) {
        pl_param all = s->model->params.p[i];
        if (all.tensor != &s->model->head.out) continue;
        float whole[V * D], part[VD * D];
        all.spec.rows = all.spec.part[0].rows = V;
        golden_weight(whole, &all, GOLDEN_COARSE, "drafter");
        for (int j = 0; j < VD; j++)
            memcpy(part + j * all.spec.cols, whole + s->model->head.d2t[j] * all.spec.cols,
                   (size_t)all.spec.cols * sizeof(float));
        assert_int_equal(pl_param_block_set(&s->block, i, part, NULL), PL_OK);
    }
}

static void setup_init(setup *s, const version *v, const pl_backend *be, const char *head, const char *vocab) {
    pl_err       err;
    pl_hf_config c;
    *s = (setup){.be = be, .head = head, .vocab = vocab};
    golden_open(&s->g, v->file);
    golden_config(&s->g, &c);
    must(pl_llama_init(&s->target, &c, be, false, &err), &err);
    golden_coarse(s->embed, V * D, 8, "target/model.embed_tokens.weight");
    golden_coarse(s->teacher, V * D, 10, "target/lm_head.weight");
    s->target.embed = pl_tensor_2d(s->embed, PL_F32, V, D);
    pl_backbone_options o = v->o;
    o.head = pl_hf_head_make(head, RANK);
    must(pl_backbone_create(&s->model, kind_of(v), &s->target, &o, be, &err), &err);
    assert_int_equal(s->model->n_taps, TAPS);
    if (trimmed(s)) trim(s);
    pl_param_block_options bo = {.backend = be, .round_to = golden_held(be)};
    must(pl_param_block_create(&s->block, &s->model->params, &bo, &err), &err);
    golden_weights_set(&s->block, GOLDEN_COARSE, "drafter");
    if (trimmed(s)) trim_weights(s);
    pl_tensor         wt = pl_tensor_2d(s->teacher, PL_F32, V, D);
    pl_unroll_options uo = {.capacity = ROWS + 3, .steps = K, .step_decay = 0.8, .token_weight = 1, .depth_ratio = 1};
    must(pl_unroll_create(&s->u, s->model, wt, &uo, be, NULL, &err), &err);
    pl_pack_clear(&s->u.pack);
    for (int i = 0; i < DOCS; i++) {
        golden_document *d = &s->doc[i];
        golden_document_read(&s->g, i, d);
        pl_columns doc = golden_document_rows(d);
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

static void rows_of(const char *vocab) {
    setup *s = golden_room(pl_backend_ref(), sizeof *s);
    setup_init(s, &plain, pl_backend_ref(), "full", vocab);
    const pl_pack *p = &s->u.pack;
    const int32_t *token = golden_ints(&s->g, K * ROWS, "token");
    const int32_t *teacher = golden_ints(&s->g, K * ROWS, "full/%s/teacher_row", vocab);
    const double  *weight = golden_reals(&s->g, K * ROWS, "full/%s/weight", vocab);
    int            counted = 0;
    for (int i = 0; i < K * ROWS; i++) {
        assert_int_equal(p->token[i], token[i]);
        assert_int_equal(p->teacher_row[i], teacher[i]);
        assert_true((double)p->weight[i] == weight[i]);
        counted += teacher[i] >= 0;
    }
    for (int row = 0; row < ROWS; row++) {
        assert_int_equal(p->lo[row], row < golden_doc_rows[0] ? 0 : golden_doc_rows[0]);
        assert_int_equal(p->pos[row], row - p->lo[row]);
    }
    assert_in_range(counted, 8, K * ROWS - 1);
    setup_fini(s);
}

static void rows_all(void **state) {
    (void)state;
    rows_of("all");
}

static void rows_trimmed(void **state) {
    (void)state;
    rows_of("trimmed");
}

typedef struct steps {
    setup    *s;
    pl_tensor fused, hidden[K], logits[K];
} steps;

static void run_steps(pl_ctx *ctx, void *arg) {
    steps       *f = arg;
    pl_backbone *e = f->s->model;
    pl_pack     *p = &f->s->u.pack;
    pl_tensor    block[PL_MAX_UNROLL];
    pl_view      view = {.pos = p->pos, .cos = e->cos, .sin = e->sin, .lo = p->lo, .block = block};
    f->fused = e->kind->fuse(ctx, e, pl_pack_features(ctx, p, ROWS));
    for (int k = 0; k < K; k++) {
        view.offset = view.n_blocks = k;
        pl_tensor y = e->kind->step(ctx, e, p->token + k * ROWS, k ? f->hidden[k - 1] : f->fused, &view, &f->hidden[k],
                                    (pl_tensor){0});
        f->logits[k] = pl_head_logits(ctx, &e->head, &(pl_head_rows){.x = y});
    }
}

static void steps_on(const pl_backend *be, const char *head) {
    setup *s = golden_room(be, sizeof *s);
    pl_err err;
    pl_ctx ctx;
    setup_init(s, &plain, be, head, "all");
    steps f = {.s = s};
    must(pl_ctx_init(&ctx, be, NULL), &err);
    must(pl_ctx_measure(&ctx, run_steps, &f, &err), &err);
    pl_ctx_begin(&ctx);
    run_steps(&ctx, &f);
    must(pl_ctx_sync(&ctx, &err), &err);
    golden_begin(&s->g);
    golden_expect(&s->g, be, f.fused, "fused");
    for (int k = 0; k < K; k++) {
        golden_expect(&s->g, be, f.hidden[k], "hidden/%d", k);
        golden_expect(&s->g, be, f.logits[k], "%s/logits/%d", head, k);
    }
    golden_all_asked(&s->g, "fused");
    golden_all_asked(&s->g, "hidden/");
    golden_all_asked(&s->g, head[0] == 'f' ? "full/logits/" : "lowrank/logits/");
    pl_ctx_fini(&ctx);
    setup_fini(s);
}

static void steps_of(const char *head) {
    const pl_backend *be[GOLDEN_BACKENDS];
    int               n = golden_backends(be);
    for (int i = 0; i < n; i++)
        steps_on(be[i], head);
}

static void steps_full(void **state) {
    (void)state;
    steps_of("full");
}

static void steps_lowrank(void **state) {
    (void)state;
    steps_of("lowrank");
}

// What a run says about its rows. A loss is a sum of differences of logarithms near log V = 4.6, which are 5e-7 apart
// in fp32: that is the grain of its error, whatever its own size.
static void check_rows(setup *s, bool scored) {
    const double   grain = 2e-6;
    char           at[32], name[64];
    pl_unroll_sums sums = {0};
    snprintf(at, sizeof at, "%s/%s", s->head, s->vocab);
    snprintf(name, sizeof name, "%s/loss", at);
    golden_expect_slack(&s->g, s->be, pl_tensor_1d(s->u.loss, PL_F64, K * ROWS), grain, name);
    pl_unroll_add(&s->u, scored, &sums);
    snprintf(name, sizeof name, "%s/total", at);
    golden_expect_slack(&s->g, s->be, pl_tensor_1d(&sums.loss, PL_F64, 1), grain, name);
    const int32_t *best = golden_ints(&s->g, K * ROWS, "%s/student_argmax", at);
    for (int i = 0; i < K * ROWS; i++)
        assert_int_equal(s->u.student_argmax[i], best[i]);
    if (!scored) return;
    const double *accept = golden_reals(&s->g, K * ROWS, "%s/accept", at);
    double        budget = golden_on_device(s->be) ? 1e-3 : 1e-6; // kept in fp32 on any backend
    for (int i = 0; i < K * ROWS; i++)
        assert_true(fabs((double)s->u.accept[i] - accept[i]) <= budget * accept[i]);
}

static void learn_on(const version *v, const pl_backend *be, const char *head, const char *vocab) {
    setup *s = golden_room(be, sizeof *s);
    pl_err err;
    char   prefix[32];
    setup_init(s, v, be, head, vocab);
    golden_begin(&s->g);
    must(pl_unroll_score(&s->u, &err), &err);
    check_rows(s, true);
    must(pl_unroll_learn(&s->u, &err), &err);
    check_rows(s, false);
    snprintf(prefix, sizeof prefix, "%s/%s/grad/", head, vocab);
    golden_expect_block(&s->g, be, &s->block, s->block.grad, 0, prefix);
    golden_all_asked(&s->g, prefix);
    setup_fini(s);
}

static void learn_of(const version *v, const char *head, const char *vocab) {
    const pl_backend *be[GOLDEN_BACKENDS];
    int               n = golden_backends(be);
    for (int i = 0; i < n; i++)
        learn_on(v, be[i], head, vocab);
}

static void learn_full(void **state) {
    (void)state;
    learn_of(&plain, "full", "all");
}

static void learn_full_trimmed(void **state) {
    (void)state;
    learn_of(&plain, "full", "trimmed");
}

static void learn_lowrank(void **state) {
    (void)state;
    learn_of(&plain, "lowrank", "all");
}

static void learn_lowrank_trimmed(void **state) {
    (void)state;
    learn_of(&plain, "lowrank", "trimmed");
}

static void learn_deep(void **state) {
    (void)state;
    learn_of(&deep, "full", "all");
}

static void learn_each(void **state) {
    (void)state;
    learn_of(&each, "full", "all");
}

static void learn_whole(void **state) {
    (void)state;
    learn_of(&together, "full", "all");
}

static void learn_parallel(void **state) {
    (void)state;
    learn_of(&parallel, "full", "all");
}

static void learn_narrow(void **state) {
    (void)state;
    learn_of(&narrow, "full", "all");
}

// ---- packed, over a cache: what was trained is what drafts ----

typedef struct draft {
    const pl_backbone *e;
    pl_kv              kv;
    golden_document    text;
    const int32_t     *token;
    float              values[LONGEST * TAPS * D]; // features, then a hidden row
    pl_tensor          features; // with them: rows 0... of a document; without: one row more, from `hidden`
    pl_tensor          hidden;
    int32_t            first, rows;
    int32_t            pos[LONGEST + K], ids[LONGEST + K];
    pl_kvrow           row[PL_STEP_LAYERS * (LONGEST + K)];
    pl_tensor          logits;
} draft;

static void run_draft(pl_ctx *ctx, void *arg) {
    draft *d = arg;
    for (int32_t i = 0; i < d->rows; i++) {
        d->pos[i] = d->first + i;
        pl_kv_row(&d->kv, &d->row[i], d->rows, d->first, NULL, i + 1, d->first + i);
    }
    pl_view   view = {.pos = d->pos, .cos = d->e->cos, .sin = d->e->sin, .row = d->row, .m = d->rows};
    pl_tensor hidden = d->features.data ? d->e->kind->fuse(ctx, d->e, d->features) : d->hidden;
    pl_tensor y = d->e->kind->step(ctx, d->e, d->token, hidden, &view, &d->hidden, (pl_tensor){0});
    d->logits = pl_head_logits(ctx, &d->e->head, &(pl_head_rows){.x = y});
}

static pl_tensor last_row(pl_tensor t) {
    t.data = (float *)t.data + (t.dim[0] - 1) * t.dim[1];
    t.dim[0] = 1;
    return t;
}

// A draft behind row t of a document, ready to be run.
static draft *draft_begin(pl_ctx *ctx, golden *g, const pl_backbone *e, const pl_backend *be, int doc, int32_t t,
                          void (*run)(pl_ctx *ctx, void *arg)) {
    pl_err err;
    draft *d = golden_room(be, sizeof *d);
    golden_document_read(g, doc, &d->text);
    assert_true(t + K < d->text.n);
    pl_to_f32(d->values, d->text.features, PL_BF16, (size_t)d->text.n * TAPS * D);
    d->e = e;
    d->rows = t + 1;
    d->token = d->text.tokens + 1;
    d->features = pl_tensor_2d(d->values, PL_F32, d->rows, TAPS * D);
    must(pl_kv_create(&d->kv, e->layers, LONGEST + K, &e->shape, be, &err), &err);
    must(pl_ctx_init(ctx, be, NULL), &err);
    must(pl_ctx_measure(ctx, run, d, &err), &err);
    return d;
}

// Row t of the unrolled steps: a prefill of the rows up to t, then ahead from its own states.
static void draft_from(golden *g, const pl_backbone *e, const pl_backend *be, const char *head, int doc, int32_t t) {
    pl_err  err;
    pl_ctx  ctx;
    int32_t row = (doc ? golden_doc_rows[0] : 0) + t;
    draft  *d = draft_begin(&ctx, g, e, be, doc, t, run_draft);
    for (int k = 0; k < K; k++) {
        pl_ctx_begin(&ctx);
        run_draft(&ctx, d);
        must(pl_ctx_sync(&ctx, &err), &err);
        pl_tensor newest = last_row(d->hidden);
        golden_expect_rows(g, be, newest, row, "hidden/%d", k);
        golden_expect_rows(g, be, last_row(d->logits), row, "%s/logits/%d", head, k);
        memcpy(d->values, newest.data, D * sizeof *d->values);
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
    draft_from(g, b, be, head, 0, 0);
    draft_from(g, b, be, head, 0, 5);
    draft_from(g, b, be, head, 1, 2);
}

// P-EAGLE: a prefill of the rows up to t and the masks behind the last one, in one forward.
static void run_at_once(pl_ctx *ctx, void *arg) {
    draft  *d = arg;
    int     rows = d->rows + K - 1;
    int32_t anchor = d->rows - 1;
    for (int32_t i = 0; i < rows; i++) {
        d->pos[i] = i;
        d->ids[i] = i < d->rows ? d->token[i] : d->e->config.block.mask_token;
        pl_kv_row(&d->kv, &d->row[i], rows, 0, NULL, i + 1, i);
    }
    pl_block_view view = {.features = d->features,
                          .context_pos = d->pos,
                          .context_token = d->ids,
                          .context_row = d->row,
                          .anchor = &anchor,
                          .m = K - 1};
    pl_tensor     y = d->e->kind->draft(ctx, d->e, &view);
    d->logits = pl_head_logits(ctx, &d->e->head, &(pl_head_rows){.x = y});
}

static void at_once_from(golden *g, const pl_backbone *e, const pl_backend *be, const char *head, int doc, int32_t t) {
    pl_err  err;
    pl_ctx  ctx;
    int32_t row = (doc ? golden_doc_rows[0] : 0) + t;
    draft  *d = draft_begin(&ctx, g, e, be, doc, t, run_at_once);
    pl_ctx_begin(&ctx);
    run_at_once(&ctx, d);
    must(pl_ctx_sync(&ctx, &err), &err);
    for (int k = 0; k < K; k++) {
        pl_tensor one = d->logits;
        one.data = (float *)one.data + k * V;
        one.dim[0] = 1;
        golden_expect_rows(g, be, one, row, "%s/logits/%d", head, k);
    }
    pl_ctx_fini(&ctx);
    pl_kv_destroy(&d->kv);
    golden_release();
}

static void draft_at_once(golden *g, const pl_backbone *b, const pl_backend *be, const char *head) {
    at_once_from(g, b, be, head, 0, 0);
    at_once_from(g, b, be, head, 0, 5);
    at_once_from(g, b, be, head, 1, 2);
}

static void draft_of(const version *v, const char *head) {
    pl_backbone_options o = v->o;
    o.head = pl_hf_head_make(head, RANK);
    golden_drafts(v->file, kind_of(v), &o, "drafter", v->kind ? draft_at_once : draft_ahead, head);
}

static void draft_full(void **state) {
    (void)state;
    draft_of(&plain, "full");
}

static void draft_lowrank(void **state) {
    (void)state;
    draft_of(&plain, "lowrank");
}

static void draft_deep(void **state) {
    (void)state;
    draft_of(&deep, "full");
}

static void draft_each(void **state) {
    (void)state;
    draft_of(&each, "full");
}

static void draft_whole(void **state) {
    (void)state;
    draft_of(&together, "full");
}

static void draft_parallel(void **state) {
    (void)state;
    draft_of(&parallel, "full");
}

static void draft_narrow(void **state) {
    (void)state;
    draft_of(&narrow, "full");
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(rows_all),       cmocka_unit_test(rows_trimmed),
        cmocka_unit_test(steps_full),     cmocka_unit_test(steps_lowrank),
        cmocka_unit_test(learn_full),     cmocka_unit_test(learn_full_trimmed),
        cmocka_unit_test(learn_lowrank),  cmocka_unit_test(learn_lowrank_trimmed),
        cmocka_unit_test(draft_full),     cmocka_unit_test(draft_lowrank),
        cmocka_unit_test(learn_deep),     cmocka_unit_test(learn_each),
        cmocka_unit_test(learn_whole),    cmocka_unit_test(draft_deep),
        cmocka_unit_test(draft_each),     cmocka_unit_test(draft_whole),
        cmocka_unit_test(learn_parallel), cmocka_unit_test(draft_parallel),
        cmocka_unit_test(learn_narrow),   cmocka_unit_test(draft_narrow),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
