// The drafters of blocks and their losses against speculators' own: states of the blocks' rows, divergence and hard
// cross-entropy, gradients, D-PACE's weights; DSpark's confidence; DFlash 2's convolutions, and what its selector learns
// and drafts; sliding windows against make_golden_window.py's; then checkpoints of them, reopened, over a cache.
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
#include <string.h>

enum { B = 5, DRAFTS = B - 1, SPARKS = B, LAYERS = 2, MASK = 7, ANCHORS = 11 };
static const double ALPHA = 0.5;

static void must(pl_status st, const pl_err *err) {
    if (st != PL_OK) fail_msg("%s", err->msg);
}

// A form of DSpark's Markov head.
static bool is_spark(const char *head) {
    return pl_hf_markov_find(head) >= 0;
}

static bool is_second(const char *head) {
    return strcmp(head, "selector") == 0;
}

// Drafters whose first layer has a window, and (causal) slots that see those before them alone.
static bool is_windowed(const char *head) {
    return strcmp(head, "window") == 0 || strcmp(head, "causal") == 0;
}

static const pl_hf_config *windows_of(const char *head) {
    static pl_hf_config c[2];
    pl_hf_config       *one = &c[strcmp(head, "causal") == 0];
    *one = (pl_hf_config){.sliding_window = B, .windowed = {1}};
    one->block.causal = one == &c[1] ? PL_HF_CAUSAL_WINDOWS : PL_HF_CAUSAL_NONE;
    return is_windowed(head) ? one : NULL;
}

static pl_backbone_options options(const char *head) {
    pl_hf_head spec = pl_hf_head_make(strcmp(head, "lowrank") == 0 ? "lowrank" : "full", RANK);
    if (strcmp(head, "xpress") == 0) spec = pl_hf_head_make(head, 6);
    if (is_spark(head)) {
        spec = pl_hf_head_of("markov:rank=6,confidence");
        pl_hf_head_set_text(&spec, "form", head);
    }
    return (pl_backbone_options){
        .head = spec,
        .anchor_first = is_spark(head),
        .layers = LAYERS,
        .block = B,
        .mask_token = MASK,
        .n_taps = TAPS,
        .tap = {1, 2, 3},
        .like_windows = windows_of(head),
        .conv_taps = is_second(head) ? 2 : 0,
        .conv_group = 8,
        .selector = {.rank = 6, .candidates = is_second(head) ? 5 : 0, .law = PL_HF_LAW_LIST}}; // as theirs
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

// pace 0: forward KL with weights by place.
static void setup_init(setup *s, const pl_backend *be, const char *head, double pace) {
    pl_err              err;
    pl_hf_config        c;
    pl_backbone_options o = options(head);
    *s = (setup){.be = be};
    int  drafts = is_spark(head) ? SPARKS : DRAFTS;
    char name[32];
    snprintf(name, sizeof name, "%s-%s", is_spark(head) ? "dspark" : "dflash", head);
    golden_open(&s->g, is_spark(head) || is_windowed(head) ? name
                       : is_second(head)                   ? "dflash2"
                       : strcmp(head, "xpress") == 0       ? head
                                                           : "dflash");
    golden_config(&s->g, &c);
    must(pl_llama_init(&s->target, &c, be, false, &err), &err);
    golden_coarse(s->embed, V * D, 8, "target/model.embed_tokens.weight");
    golden_coarse(s->head, V * D, 10, "target/lm_head.weight");
    s->target.embed = pl_tensor_2d(s->embed, PL_F32, V, D);
    s->target.head = pl_tensor_2d(s->head, PL_F32, V, D);
    must(pl_backbone_create(&s->model, &pl_backbone_dflash, &s->target, &o, be, &err), &err);
    assert_int_equal(s->model->drafts, drafts);
    pl_param_block_options bo = {.backend = be, .round_to = golden_held(be)};
    must(pl_param_block_create(&s->block, &s->model->params, &bo, &err), &err);
    golden_weights_set(&s->block, GOLDEN_COARSE, "dflash");
    pl_unroll_options uo = {.capacity = ROWS + 3,
                            .steps = drafts,
                            .learn_steps = drafts,
                            .confidence_weight = 1,
                            .selector_weight = 0.5,
                            .step_decay = 0.8,
                            .token_weight = 1,
                            .objective = pace > 0 ? PL_OBJ_HARD_CE : PL_OBJ_KL,
                            .selector_objective = PL_OBJ_HARD_CE,
                            .anchors = ANCHORS,
                            .pace = pace};
    must(pl_unroll_create(&s->u, s->model, s->target.head, &uo, be, NULL, &err), &err);
    fill_pack(s);
}

static void setup_fini(setup *s) {
    pl_unroll_destroy(&s->u);
    pl_param_block_destroy(&s->block);
    pl_backbone_destroy(s->model);
    pl_llama_fini(&s->target);
    golden_close(&s->g);
    golden_release();
}

typedef struct states {
    setup    *s;
    pl_tensor hidden;
} states;

static void run_states(pl_ctx *ctx, void *arg) {
    states             *f = arg;
    const pl_rows      *r = &f->s->u.rows;
    const pl_pack      *p = &f->s->u.pack;
    const pl_block_view view = {.features = pl_pack_features(ctx, p, ROWS),
                                .context_pos = p->pos,
                                .token = r->blocks.token,
                                .pos = r->blocks.pos,
                                .m = r->depth[0].n * B,
                                .lo = r->blocks.lo,
                                .hi = r->blocks.hi};
    f->hidden = f->s->model->kind->draft(ctx, f->s->model, &view);
}

static void anchors_are(setup *s) {
    pl_rows       *r = &s->u.rows;
    const int32_t *want = golden_ints(&s->g, ANCHORS, "anchor_rows");
    pl_rows_begin(r, PL_ROWS_SCORE_ALL);
    assert_true(pl_rows_next(r));
    assert_int_equal(r->depth[0].n, ANCHORS);
    for (int i = 0; i < ANCHORS; i++)
        assert_int_equal(r->depth[0].taken[i], want[i]);
    assert_false(pl_rows_next(r));
}

static void check_states(setup *s) {
    pl_err err;
    pl_ctx ctx;
    states f = {.s = s};
    anchors_are(s);
    must(pl_ctx_init(&ctx, s->be, NULL), &err);
    must(pl_ctx_measure(&ctx, run_states, &f, &err), &err);
    pl_ctx_begin(&ctx);
    run_states(&ctx, &f);
    must(pl_ctx_sync(&ctx, &err), &err);
    golden_expect(&s->g, s->be, f.hidden, "hidden");
    pl_ctx_fini(&ctx);
}

static void check_losses(setup *s, const char *prefix) {
    char name[64];
    snprintf(name, sizeof name, "%s/loss", prefix);
    golden_expect_slack(&s->g, s->be, pl_tensor_1d(s->u.loss, PL_F64, DRAFTS * ROWS), 4e-6, name);
    const int32_t *best = golden_ints(&s->g, DRAFTS * ROWS, "%s/student_argmax", prefix);
    for (int i = 0; i < DRAFTS * ROWS; i++)
        assert_int_equal(s->u.student_argmax[i], best[i]);
}

// What rows weigh once they have been learned from: zero where no block ran.
static void check_pace(setup *s, const char *head) {
    const double *want = golden_reals(&s->g, DRAFTS * ROWS, "%s%space", head, *head ? "/" : "");
    for (int i = 0; i < DRAFTS * ROWS; i++)
        if (!(fabs((double)s->u.pack.weight[i] - want[i]) <= 1e-5))
            fail_msg("%s: weight %d is %.9g, not %.9g", head, i, (double)s->u.pack.weight[i], want[i]);
}

static void learn_on(const pl_backend *be, const char *head, double pace) {
    setup *s = golden_room(be, sizeof *s);
    pl_err err;
    char   prefix[48];
    setup_init(s, be, head, pace);
    golden_begin(&s->g);
    check_states(s);
    snprintf(prefix, sizeof prefix, "%s%s%s", is_windowed(head) ? "" : head, is_windowed(head) ? "" : "/",
             pace > 0 ? "hard-ce" : "kl");
    must(pl_unroll_score(&s->u, &err), &err);
    check_losses(s, prefix);
    fill_pack(s);
    must(pl_unroll_learn(&s->u, &err), &err);
    check_losses(s, prefix);
    if (pace > 0) check_pace(s, head);
    strcat(prefix, "/grad/");
    golden_expect_block(&s->g, be, &s->block, s->block.grad, 0, prefix);
    golden_all_asked(&s->g, prefix);
    setup_fini(s);
}

static pl_tensor values_of(const setup *s, const char *figure, int drafts) {
    return pl_tensor_1d(pl_unroll_figure(&s->u, figure)->value, PL_F64, drafts * ROWS);
}

// drafted: by what is drafted, or by the head alone, as a step of training reports it.
static void check_second(setup *s, const char *objective, const char *drafted) {
    char name[2][32];
    snprintf(name[0], sizeof name[0], "%s/loss", objective);
    snprintf(name[1], sizeof name[1], "%s/selector_loss", objective);
    golden_expect_slack(&s->g, s->be, pl_tensor_1d(s->u.loss, PL_F64, DRAFTS * ROWS), 4e-6, name[0]);
    golden_expect_slack(&s->g, s->be, values_of(s, "selector_loss", DRAFTS), 4e-6, name[1]);
    const int32_t *best = golden_ints(&s->g, DRAFTS * ROWS, "%s/%s", objective, drafted);
    for (int i = 0; i < DRAFTS * ROWS; i++)
        assert_int_equal(s->u.student_argmax[i], best[i]);
}

// Overlaps with the target, and whether its choice is on the list, which it is where the head's best is it.
static void check_accepts(setup *s, const char *objective) {
    const double  *accept = golden_reals(&s->g, DRAFTS * ROWS, "%s/accept", objective);
    const int32_t *best = golden_ints(&s->g, DRAFTS * ROWS, "%s/argmax", objective);
    const double  *recalled = pl_unroll_figure(&s->u, "candidate_recall")->value;
    int            listed = 0, counted = 0;
    for (int i = 0; i < DRAFTS * ROWS; i++) {
        int32_t row = s->u.pack.teacher_row[i];
        if (!(fabs((double)s->u.accept[i] - accept[i]) <= 1e-5 || s->u.pack.weight[i] == 0))
            fail_msg("overlap %d is %.9g, not %.9g", i, (double)s->u.accept[i], accept[i]);
        assert_true(recalled[i] == 0 || best[i] >= 0);
        if (best[i] >= 0 && best[i] == s->u.pack.argmax[row]) assert_true(recalled[i] == 1);
        listed += recalled[i] == 1;
        counted += best[i] >= 0;
    }
    assert_true(listed > 0 && listed < counted);
}

static void second_on(const pl_backend *be, double pace) {
    setup      *s = golden_room(be, sizeof *s);
    const char *objective = pace > 0 ? "hard-ce" : "kl";
    char        prefix[48];
    pl_err      err;
    setup_init(s, be, "selector", pace);
    golden_begin(&s->g);
    check_states(s);
    must(pl_unroll_score(&s->u, &err), &err);
    check_second(s, objective, "chosen");
    check_accepts(s, objective);
    fill_pack(s);
    must(pl_unroll_learn(&s->u, &err), &err);
    check_second(s, objective, "argmax");
    if (pace > 0) check_pace(s, "");
    snprintf(prefix, sizeof prefix, "%s/grad/", objective);
    golden_expect_block(&s->g, be, &s->block, s->block.grad, 0, prefix);
    golden_all_asked(&s->g, prefix);
    setup_fini(s);
}

static void second(void **state) {
    (void)state;
    const pl_backend *be[GOLDEN_BACKENDS];
    int               n = golden_backends(be);
    for (int i = 0; i < n; i++)
        for (int pace = 0; pace < 2; pace++)
            second_on(be[i], pace * ALPHA);
}

static void check_spark(setup *s) {
    golden_expect_slack(&s->g, s->be, pl_tensor_1d(s->u.loss, PL_F64, SPARKS * ROWS), 4e-6, "loss");
    golden_expect_slack(&s->g, s->be, values_of(s, "confidence_loss", SPARKS), 4e-6, "confidence_loss");
    const int32_t *best = golden_ints(&s->g, SPARKS * ROWS, "student_argmax");
    for (int i = 0; i < SPARKS * ROWS; i++)
        assert_int_equal(s->u.student_argmax[i], best[i]);
}

static void spark(void **state) {
    (void)state;
    const pl_backend *be[GOLDEN_BACKENDS];
    int               n = golden_backends(be);
    for (int i = 0; i < n * 3; i++) {
        const pl_backend *one = be[i / 3];
        setup            *s = golden_room(one, sizeof *s);
        pl_err            err;
        setup_init(s, one, pl_hf_markov_name(i % 3), 0);
        golden_begin(&s->g);
        check_states(s);
        must(pl_unroll_score(&s->u, &err), &err);
        check_spark(s);
        fill_pack(s);
        must(pl_unroll_learn(&s->u, &err), &err);
        check_spark(s);
        golden_expect_block(&s->g, one, &s->block, s->block.grad, 0, "grad/");
        golden_all_asked(&s->g, "grad/");
        setup_fini(s);
    }
}

static void learn_of(const char *head) {
    const pl_backend *be[GOLDEN_BACKENDS];
    int               n = golden_backends(be);
    for (int i = 0; i < n; i++)
        for (int pace = 0; pace < 2; pace++)
            learn_on(be[i], head, pace * ALPHA);
}

static void target_head(void **state) {
    (void)state;
    learn_of("target");
}

// xPress's refiner behind the text.
static void refined(void **state) {
    (void)state;
    const pl_backend *be[GOLDEN_BACKENDS];
    int               n = golden_backends(be);
    for (int i = 0; i < n; i++)
        learn_on(be[i], "xpress", 0);
}

static void windows(void **state) {
    (void)state;
    const pl_backend *be[GOLDEN_BACKENDS];
    int               n = golden_backends(be);
    for (int i = 0; i < n; i++) {
        learn_on(be[i], "window", 0);
        learn_on(be[i], "causal", 0);
    }
}

static void lowrank_head(void **state) {
    (void)state;
    learn_of("lowrank");
}

// ---- over a cache: what was trained is what drafts ----

typedef struct drafted {
    const pl_backbone *b;
    pl_kv              kv;
    golden_document    text;
    float              features[LONGEST * TAPS * D];
    int32_t            from, rows, token[B], pos[B], context_pos[LONGEST];
    pl_kvrow           context_row[LAYERS * LONGEST], row[LAYERS * B];
    pl_tensor          hidden;
} drafted;

// Context rows from .. rows - 1 come in, then the block behind them.
static void run_draft(pl_ctx *ctx, void *arg) {
    drafted *d = arg;
    int      n = d->rows - d->from;
    for (int i = 0; i < n; i++) {
        d->context_pos[i] = d->from + i;
        pl_kv_row(&d->kv, &d->context_row[i], n, d->from + i, NULL, 1, d->from + i);
    }
    for (int j = 0; j < B; j++) {
        d->token[j] = j ? MASK : d->text.tokens[d->rows];
        d->pos[j] = d->rows + j;
        pl_backbone_slot_row(d->b, &d->kv, &d->row[j], B, d->rows, d->rows + j);
    }
    const pl_block_view view = {.features = pl_tensor_2d(d->features + d->from * TAPS * D, ctx->be->real, n, TAPS * D),
                                .context_pos = d->context_pos,
                                .context_row = d->context_row,
                                .token = d->token,
                                .pos = d->pos,
                                .row = d->row,
                                .m = B};
    d->hidden = d->b->kind->draft(ctx, d->b, &view);
}

// Blocks behind rows 1, 2, 5, ... of document 0, whose features come in as they would while decoding.
static void draft_along(golden *g, const pl_backbone *b, const pl_backend *be, const char *head) {
    (void)head;
    assert_true(b->head.shared);
    static const int32_t row[] = {1, 2, 5, 6, 7}; // of document 0: the first, second, fifth ... anchor
    pl_err               err;
    pl_ctx               ctx;
    drafted             *d = golden_room(be, sizeof *d);
    golden_document_read(g, 0, &d->text);
    pl_to_f32(d->features, d->text.features, PL_BF16, (size_t)d->text.n * TAPS * D);
    d->b = b;
    d->rows = LONGEST;
    must(pl_kv_create(&d->kv, LAYERS, LONGEST + B, &b->shape, be, &err), &err);
    must(pl_ctx_init(&ctx, be, NULL), &err);
    must(pl_ctx_measure(&ctx, run_draft, d, &err), &err);
    d->from = 0;
    for (size_t i = 0; i < sizeof row / sizeof *row; i++) {
        d->rows = row[i] + 1;
        pl_ctx_begin(&ctx);
        run_draft(&ctx, d);
        must(pl_ctx_sync(&ctx, &err), &err);
        golden_expect_rows(g, be, d->hidden, (row[i] - 1) * B, "hidden");
        d->from = d->rows;
    }
    pl_ctx_fini(&ctx);
    pl_kv_destroy(&d->kv);
    golden_release();
}

static void draft_over_cache(void **state) {
    (void)state;
    pl_backbone_options o = options("full");
    golden_drafts("dflash", &pl_backbone_dflash, &o, "dflash", draft_along, NULL);
}

static void windows_over_cache(void **state) {
    (void)state;
    pl_backbone_options window = options("window"), causal = options("causal");
    golden_drafts("dflash-window", &pl_backbone_dflash, &window, "dflash", draft_along, NULL);
    golden_drafts("dflash-causal", &pl_backbone_dflash, &causal, "dflash", draft_along, NULL);
}

static void second_over_cache(void **state) {
    (void)state;
    pl_backbone_options o = options("selector");
    golden_drafts("dflash2", &pl_backbone_dflash, &o, "dflash", draft_along, NULL);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(target_head),       cmocka_unit_test(lowrank_head), cmocka_unit_test(spark),
        cmocka_unit_test(refined),           cmocka_unit_test(second),       cmocka_unit_test(draft_over_cache),
        cmocka_unit_test(second_over_cache), cmocka_unit_test(windows),      cmocka_unit_test(windows_over_cache),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
