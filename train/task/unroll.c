#include "train/task/unroll.h"

#include "kernels/base/check.h"
#include "kernels/op/classify.h"
#include "kernels/op/gather.h"
#include "kernels/op/smoothl1.h"

#include <string.h>

enum { TOKEN, FEATURE }; // the two weights

typedef struct unroll_pass {
    pl_unroll    *u;
    bool          learn;
    pl_tensor     x;                         // [cells, d] what the head reads
    pl_tensor     out, w;                    // [cells, width], [Vd, width]: their products are the logits
    pl_tensor     last_hidden, teacher_stat; // the teacher's rows
    pl_tensor     step_x[PL_MAX_UNROLL];     // what the head read at each step (scoring)
    // What a step or a layer reads that runs again in backward: queries, keys and values of steps, by layer; blocks.
    pl_tensor     block[PL_STEP_LAYERS * PL_MAX_UNROLL];
    pl_block_view view;
    // Results, where the host reads them: [cells], and [rows that run] of each step.
    pl_tensor     loss, accept, feature_loss[PL_MAX_UNROLL];
    pl_topk_loss  top;
} unroll_pass;

// One step as a stretch of the tape. Later steps need its hidden states and its keys and values.
typedef struct unroll_step {
    unroll_pass *p;
    int          k;
    pl_tensor    hidden, x, y; // what it consumes; where what the head reads goes (if anywhere), and its rows
} unroll_step;

enum { HIDDEN, KEYS, STEP_OUT = KEYS + PL_STEP_LAYERS }; // keys and values of each layer
_Static_assert((int)STEP_OUT <= PL_STRETCH_OUT, "results of a step");

static void run_step(pl_ctx *ctx, const void *arg, pl_tensor *out) {
    const unroll_step   *s = arg;
    pl_backbone         *b = s->p->u->model;
    const pl_rows       *r = &s->p->u->rows;
    const pl_depth_rows *d = &r->depth[s->k];
    bool                 identity = !b->head.kind->project; // step writes the head's rows themselves
    pl_tensor            block[PL_STEP_LAYERS * PL_MAX_UNROLL];
    pl_view              view = {.pos = d->pos,
                                 .cos = b->cos,
                                 .sin = b->sin,
                                 .lo = d->lo,
                                 .block = block,
                                 .n_blocks = s->k,
                                 .offset = s->k,
                                 .taken = d->taken,
                                 .spread = d->spread,
                                 .whole = r->depth[0].keyed};
    for (int l = 0; l < b->layers; l++)
        memcpy(block + l * PL_MAX_UNROLL, s->p->block + l * PL_MAX_UNROLL, (size_t)s->k * sizeof *block);
    pl_tensor x = b->kind->step(ctx, b, d->token, s->hidden, &view, &out[HIDDEN], identity ? s->y : s->x);
    if (!identity) pl_head_project(ctx, &b->head, x, s->y);
    for (int l = 0; l < b->layers; l++)
        out[KEYS + l] = block[l * PL_MAX_UNROLL + s->k];
    s->p->step_x[s->k] = x;
}

// A row's weight in one of the two losses, as the ops have it.
static float scaled(double weight, float row) {
    return (float)(weight * (double)row);
}

// The divergence but for its rows.
static pl_divergence_args objective(const pl_unroll *u) {
    return (pl_divergence_args){.objective = u->opt.objective,
                                .unmasked = u->opt.unmasked,
                                .js_beta = u->opt.js_beta,
                                .lk_decay = u->opt.lk_decay,
                                .w = u->model->head.out,
                                .wt = u->wt,
                                .teacher_cap = u->opt.teacher_cap,
                                .keep = u->opt.recompute ? 0 : PL_DIV_KEEP,
                                .d2t = u->d2t};
}

// ---- a selector behind the head

static bool selects(const pl_unroll *u) {
    return u->model->head.selector.candidates > 0;
}

// Whether scoring is of the head's own distribution instead of the one that it learns.
static bool rescores(const pl_unroll *u) {
    return pl_rescored_wanted(&u->model->head) && !selects(u);
}

// Sets what each cell is to choose, and what it weighs.
static void set_choices(const pl_unroll *u) {
    const pl_rows *r = &u->rows;
    for (int64_t c = 0; c < r->cells; c++) {
        int32_t id = r->weight[c] > 0 && r->teacher_row[c] >= 0 ? u->pack.argmax[r->teacher_row[c]] : -1;
        u->choice[c] = id >= 0 && u->t2d ? u->t2d[id] : id;
        u->weight[FEATURE][c] = u->choice[c] >= 0 ? r->weight[c] : 0;
    }
}

// The overlap of the law that the list is taken from with the target's: the head's, or that of its exact rows.
static pl_tensor overlap(pl_ctx *ctx, unroll_pass *p, const pl_selected *s) {
    const pl_head *h = s->head;
    if (!h->exact.data || h->selector.law != PL_HF_LAW_FULL) return p->accept;
    pl_divergence_args a = objective(p->u);
    a.x = s->x;
    a.w = h->exact;
    a.xt = s->last_hidden;
    a.teacher_row = s->teacher_row;
    a.weight = p->u->weight[TOKEN];
    a.accept = pl_ctx_const_1d(ctx, s->x.dim[0]);
    pl_divergence(ctx, &a);
    a.accept.data = pl_ctx_read(ctx, &a.accept);
    return a.accept;
}

// Scoring: acceptance and choices of what is drafted, in place of the head's own. taught: pl_selected_teach has run.
static void score_selected(pl_ctx *ctx, unroll_pass *p, const pl_selected *s, bool taught) {
    pl_rows  *r = &p->u->rows;
    pl_tensor score = pl_selected_scores(ctx, s, s->own), whole = overlap(ctx, p, s);
    score.data = pl_ctx_read(ctx, &score);
    if (!p->accept.data || !whole.data || !score.data || !taught || ctx->measuring) return;
    for (int64_t c = 0; c < r->cells; c++)
        if (r->teacher_row[c] >= 0 && r->argmax[c] >= 0)
            r->accepted[c] = (float)pl_selected_accept(s, &score, c, pl_real_at(&whole, c), &r->argmax[c]);
}

static void learn_selector(pl_ctx *ctx, unroll_pass *p) {
    pl_unroll         *u = p->u;
    const pl_rows     *r = &u->rows;
    pl_selected        s = {.head = &u->model->head,
                            .x = p->x,
                            .rows = p->out,
                            .before = r->before,
                            .choice = u->choice,
                            .last_hidden = p->last_hidden,
                            .wt = u->wt,
                            .stat = p->teacher_stat,
                            .teacher_row = r->teacher_row,
                            .cap = u->opt.teacher_cap,
                            .scored = !p->learn};
    pl_divergence_args d = objective(u);
    d.objective = u->opt.selector_objective;
    bool there = pl_selected_list(ctx, &s), taught = false;
    if (!p->learn || d.objective != PL_OBJ_HARD_CE) taught = pl_selected_teach(ctx, &s);
    if (!p->learn) score_selected(ctx, p, &s, taught);
    pl_tensor loss = pl_selected_loss(ctx, &s, &d, u->weight[FEATURE]);
    loss.data = pl_ctx_read(ctx, &loss);
    p->feature_loss[0] = loss;
    if (!loss.data || !there) return;
    if (p->learn && u->opt.pace > 0) pl_rows_pace(r, u->weight[FEATURE], &loss, u->opt.pace);
    for (int64_t c = 0; c < r->cells; c++) {
        u->weight[FEATURE][c] = scaled(u->opt.feature_weight, u->weight[FEATURE][c]);
        if (u->choice[c] >= 0 && !pl_selected_has(&s, c)) u->choice[c] = -1; // what is left could be chosen
    }
}

// ---- the other losses

// Whether the head says how sure it is of a draft, and learns to.
static bool confides(const pl_unroll *u) {
    return u->opt.feature_weight > 0 && u->model->head.kind->confidence && !selects(u);
}

static bool regresses(const pl_unroll *u) {
    return u->opt.feature_weight > 0 && u->model->kind->predicts_features;
}

// Cross-entropy of the head's confidence with how likely verification is to accept, which is held constant.
static void learn_confidence(pl_ctx *ctx, unroll_pass *p) {
    const pl_head *h = &p->u->model->head;
    const pl_rows *r = &p->u->rows;
    pl_head_rows   read = {.x = p->x, .token = r->before, .levels = r->depths};
    for (int64_t c = 0; c < r->cells && !ctx->measuring; c++)
        p->u->weight[FEATURE][c] = scaled(p->u->opt.feature_weight, r->weight[c]);
    p->feature_loss[0] = pl_classify(ctx, &(pl_classify_args){.z = h->kind->confidence(ctx, h, &read),
                                                              .y = r->accepted,
                                                              .weight = p->u->weight[FEATURE],
                                                              .kind = PL_CLASSIFY_BCE});
}

// Regression of step k's hidden states, whose cells begin at `at`.
static void learn_feature(pl_ctx *ctx, unroll_pass *p, int k, int64_t at, pl_tensor hidden) {
    p->feature_loss[k] = pl_smoothl1(ctx, &(pl_smoothl1_args){.x = hidden,
                                                              .t = p->last_hidden,
                                                              .row = p->u->rows.teacher_row + at,
                                                              .weight = p->u->weight[FEATURE] + at,
                                                              .beta = 1});
}

static void learn_divergence(pl_ctx *ctx, unroll_pass *p) {
    pl_unroll         *u = p->u;
    pl_rows           *r = &u->rows;
    pl_divergence_args a = objective(u);
    if (!p->learn || confides(u)) p->accept = pl_ctx_const_1d(ctx, r->cells);
    a.x = p->out;
    a.w = p->w;
    a.xt = p->last_hidden;
    a.teacher_row = r->teacher_row;
    a.weight = u->weight[TOKEN];
    a.accept = p->accept;
    a.student_argmax = r->argmax;
    p->loss = pl_divergence(ctx, &a);
    p->teacher_stat = a.teacher_stat;
    if (p->learn && u->opt.pace > 0) {
        p->loss.data = pl_ctx_read(ctx, &p->loss);
        if (p->loss.data) pl_rows_pace(r, r->weight, &p->loss, u->opt.pace);
        for (int64_t c = 0; c < r->cells && p->loss.data; c++)
            u->weight[TOKEN][c] = scaled(u->opt.token_weight, r->weight[c]);
    }
    if (p->accept.data) p->accept.data = pl_ctx_read(ctx, &p->accept);
    for (int64_t c = 0; c < r->cells && p->accept.data; c++)
        r->accepted[c] = (float)pl_real_at(&p->accept, c);
}

static void learn_top_k(pl_ctx *ctx, unroll_pass *p) {
    const pl_unroll *u = p->u;
    p->top = (pl_topk_loss){.head = &u->model->head,
                            .wt = u->wt,
                            .cap = u->opt.teacher_cap,
                            .k = u->opt.top_k,
                            .weight = u->opt.top_weight,
                            .t2d = u->t2d,
                            .keep = objective(u).keep};
    pl_topk_loss_add(ctx, &p->top, p->out, p->last_hidden, u->rows.teacher_row, u->weight[TOKEN]);
}

// ---- forward

// The blocks of r->blocks: all their drafts at once.
static void run_blocks(pl_ctx *ctx, unroll_pass *p) {
    const pl_unroll   *u = p->u;
    const pl_backbone *b = u->model;
    const pl_head     *h = &b->head;
    const pl_rows     *r = &u->rows;
    p->view = (pl_block_view){.features = pl_ctx_write(ctx, u->pack.features, r->rows, u->pack.width),
                              .context_pos = u->pack.pos,
                              .token = r->blocks.token,
                              .pos = r->blocks.pos,
                              .m = r->depth[0].n * b->block,
                              .lo = r->blocks.lo,
                              .hi = r->blocks.hi,
                              .rerun = u->opt.recompute && p->learn};
    p->last_hidden = pl_ctx_write(ctx, u->pack.last_hidden, r->rows, u->pack.d);
    p->x = pl_gather(ctx, b->kind->draft(ctx, b, &p->view), r->blocks.index, r->cells);
    pl_head_rows read = {.x = p->x, .token = r->before, .levels = r->depths};
    if (h->kind->teach)
        h->kind->teach(ctx, h, &read, &p->out, &p->w);
    else
        p->out = pl_head_project(ctx, h, p->x, (pl_tensor){0});
}

// Depth after depth: a step consumes its row's output of the step before, or a mask's state where the backbone drafts
// ahead.
static void run_steps(pl_ctx *ctx, unroll_pass *p) {
    const pl_unroll   *u = p->u;
    const pl_backbone *b = u->model;
    const pl_rows     *r = &u->rows;
    int64_t            keyed = r->depth[0].keyed, at = 0;
    pl_tensor          masks = {0};
    pl_tensor          hidden = b->kind->fuse(ctx, b, pl_ctx_write(ctx, u->pack.features, keyed, u->pack.width));
    bool               apart = selects(u) && b->head.kind->project; // the selector reads what the head projects
    p->last_hidden = pl_ctx_write(ctx, u->pack.last_hidden, r->rows, u->pack.d);
    p->x = p->out = pl_ctx_tensor(ctx, r->cells, b->head.rank);
    if (apart) p->x = pl_ctx_tensor(ctx, r->cells, b->head.d);
    if (b->kind->ahead) masks = b->kind->ahead(ctx, b, keyed);
    for (int k = 0; k < r->depths && r->depth[k].n > 0; k++) {
        int64_t     n = r->depth[k].n;
        unroll_step s = {.p = p, .k = k, .hidden = hidden, .y = pl_tensor_slice(&p->out, at, n)};
        if (k > 0 && b->kind->ahead) s.hidden = pl_tensor_slice(&masks, 0, n);
        if (apart) s.x = pl_tensor_slice(&p->x, at, n);
        pl_tensor made[STEP_OUT] = {[HIDDEN] = {.dim = {n, b->shape.d, 1, 1}}};
        for (int l = 0; l < b->layers; l++)
            made[KEYS + l] = (pl_tensor){.dim = {keyed, (b->shape.nh + 2 * b->shape.nkv) * b->shape.hd, 1, 1}};
        if (u->opt.recompute)
            pl_tape_stretch(ctx, run_step, &s, sizeof s, made, KEYS + b->layers);
        else
            run_step(ctx, &s, made);
        hidden = made[HIDDEN];
        for (int l = 0; l < b->layers; l++)
            p->block[l * PL_MAX_UNROLL + k] = made[KEYS + l];
        if (regresses(u)) learn_feature(ctx, p, k, at, hidden);
        at += n;
    }
}

static void pass(pl_ctx *ctx, unroll_pass *p) {
    pl_unroll *u = p->u;
    p->w = u->model->head.out;
    if (pl_backbone_in_blocks(u->model->kind))
        run_blocks(ctx, p);
    else
        run_steps(ctx, p);
    learn_divergence(ctx, p);
    if (p->learn && u->opt.top_k > 0) learn_top_k(ctx, p);
    if (confides(u)) learn_confidence(ctx, p);
    if (selects(u)) learn_selector(ctx, p);
    if (p->learn) pl_tape_backward(ctx);
    if (!p->learn || u->opt.pace == 0) p->loss.data = pl_ctx_read(ctx, &p->loss);
    if (rescores(u) && !p->learn) p->teacher_stat.data = pl_ctx_read(ctx, &p->teacher_stat);
    if (confides(u)) p->feature_loss[0].data = pl_ctx_read(ctx, &p->feature_loss[0]);
    for (int k = 0; k < u->rows.depths && regresses(u); k++)
        p->feature_loss[k].data = pl_ctx_read(ctx, &p->feature_loss[k]);
}

// The larger of scoring and learning.
static void measure(pl_ctx *ctx, void *arg) {
    pl_unroll  *u = arg;
    pl_tape    *tape = ctx->tape;
    unroll_pass score = {.u = u}, learn = {.u = u, .learn = true};
    ctx->tape = NULL;
    pl_rows_largest(&u->rows, PL_ROWS_SCORE);
    pass(ctx, &score);
    ctx->tape = tape;
    pl_ctx_begin(ctx);
    pl_rows_largest(&u->rows, PL_ROWS_LEARN);
    pass(ctx, &learn);
}

static void take_arrays(void *arg) {
    pl_unroll     *u = arg;
    size_t         n = (size_t)u->rows.kind->most(&u->rows);
    const pl_head *h = &u->model->head;
    u->weight[TOKEN] = pl_arena_alloc(&u->arrays, n * sizeof **u->weight);
    u->weight[FEATURE] = pl_arena_alloc(&u->arrays, n * sizeof **u->weight);
    if (h->d2t) u->d2t = pl_arena_alloc(&u->arrays, (size_t)h->vocab * sizeof *u->d2t);
}

static pl_status create_arrays(pl_unroll *u, pl_err *err) {
    const pl_head *h = &u->model->head;
    PL_TRY(pl_arena_init_shared(&u->arrays, "training rows", u->ctx.be->memory, take_arrays, u, err));
    if (h->d2t) memcpy(u->d2t, h->d2t, (size_t)h->vocab * sizeof *u->d2t);
    return PL_OK;
}

static pl_status create_choices(pl_unroll *u, size_t n, pl_err *err) {
    const pl_head *h = &u->model->head;
    int64_t        vocab = u->wt.dim[0];
    u->choice = pl_calloc(n, sizeof *u->choice);
    u->listed = pl_calloc(n, sizeof *u->listed);
    if (h->d2t) u->t2d = pl_malloc((size_t)vocab * sizeof *u->t2d);
    if (!u->choice || !u->listed || (h->d2t && !u->t2d)) return pl_fail(err, PL_E_MEMORY, "training: out of memory");
    for (int64_t v = 0; v < vocab && h->d2t; v++)
        u->t2d[v] = -1;
    for (int64_t v = 0; v < h->vocab && h->d2t; v++)
        u->t2d[h->d2t[v]] = (int32_t)v;
    return PL_OK;
}

pl_status pl_unroll_create(pl_unroll *u, pl_backbone *model, pl_tensor wt, const pl_unroll_options *o,
                           const pl_backend *be, pl_pool *pool, pl_err *err) {
    *u = (pl_unroll){.model = model, .wt = wt, .opt = *o};
    if (u->opt.learn_steps == 0) u->opt.learn_steps = o->steps;
    PL_CHECK(u->opt.learn_steps <= o->steps && o->token_weight > 0, "%d steps of %d, token weight %g",
             u->opt.learn_steps, o->steps, o->token_weight);
    PL_CHECK(o->objective != PL_OBJ_LABEL && o->selector_objective != PL_OBJ_LABEL,
             "a drafter learns from a teacher, not from labels");
    PL_CHECK(o->feature_weight == 0 || model->kind->predicts_features || model->head.kind->confidence || selects(u),
             "regression of %s's hidden states", pl_backbone_name(model));
    PL_CHECK(!selects(u) || (o->feature_weight > 0 && !model->kind->predicts_features), "%s with a selector",
             pl_backbone_name(model));
    pl_status st;
    PL_TRY_GOTO(st, fail, pl_ctx_init(&u->ctx, be, pool));
    PL_TRY_GOTO(st, fail, pl_pack_init(&u->pack, model, o->capacity, o->steps, o->step_decay, be, err));
    PL_TRY_GOTO(st, fail, pl_backbone_reach(model, o->capacity + o->steps + model->block, err));
    u->pack.outside = o->unmasked;
    size_t          n = (size_t)o->capacity * (size_t)o->steps;
    pl_rows_options ro = {.learn_steps = u->opt.learn_steps,
                          .seed = o->seed,
                          .anchors = o->anchors,
                          .depth_ratio = o->depth_ratio,
                          .depth_floor = o->depth_floor};
    PL_TRY_GOTO(st, fail, pl_rows_init(&u->rows, model, &u->pack, &ro, be, err));
    PL_TRY_GOTO(st, fail, create_arrays(u, err));
    if (selects(u) || o->top_k > 0) PL_TRY_GOTO(st, fail, create_choices(u, n, err));
    u->student_argmax = pl_calloc(n, sizeof *u->student_argmax);
    u->accept = pl_calloc(n, sizeof *u->accept);
    u->loss = pl_calloc(n, sizeof *u->loss);
    u->feature_loss = pl_calloc(n, sizeof *u->feature_loss);
    if (!u->student_argmax || !u->accept || !u->loss || !u->feature_loss)
        PL_TRY_GOTO(st, fail,
                    pl_fail(err, PL_E_MEMORY, "training: out of memory for %lld rows", (long long)o->capacity));
    PL_TRY_GOTO(st, fail, pl_tape_init(&u->tape, 0, err));
    u->ctx.tape = &u->tape;
    PL_TRY_GOTO(st, fail, pl_ctx_measure(&u->ctx, measure, u, err));
    if (rescores(u)) PL_TRY_GOTO(st, fail, pl_rescored_create(&u->own, model, wt, be, pool, err));
    u->own.teacher_cap = o->teacher_cap;
    return PL_OK;
fail:
    pl_unroll_destroy(u);
    return st;
}

void pl_unroll_destroy(pl_unroll *u) {
    pl_rescored_destroy(&u->own);
    pl_ctx_fini(&u->ctx);
    pl_tape_fini(&u->tape);
    pl_pack_fini(&u->pack);
    pl_rows_fini(&u->rows);
    pl_arena_fini(&u->arrays);
    void *owned[] = {u->accept, u->loss, u->feature_loss, u->student_argmax, u->choice, u->t2d, u->listed};
    for (size_t i = 0; i < sizeof owned / sizeof *owned; i++)
        pl_free(owned[i]);
    *u = (pl_unroll){0};
}

// Scores the head's own distribution instead of the one that it learns.
static pl_status score_own(pl_unroll *u, const unroll_pass *p, pl_err *err) {
    pl_rows *r = &u->rows;
    int64_t  at = 0;
    for (int k = 0; k < r->depths; at += r->depth[k].n, k++)
        PL_TRY(pl_rescored_run(&u->own, p->step_x[k], p->last_hidden, p->teacher_stat, r->teacher_row + at,
                               u->weight[TOKEN] + at, r->depth[k].n, r->accepted + at, r->argmax + at, err));
    return PL_OK;
}

// The value of cell c, the i-th of depth k, in what the host reads of the regression or what stands in its place.
static double feature_loss_of(const pl_unroll *u, const unroll_pass *p, int k, int64_t i, int64_t c) {
    if (regresses(u)) return pl_real_at(&p->feature_loss[k], i);
    return selects(u) || confides(u) ? pl_real_at(&p->feature_loss[0], c) : 0;
}

// Results of cells go to [k][row of the pack]; weights too, which D-PACE may have chosen.
static void scatter(pl_unroll *u, const unroll_pass *p) {
    const pl_rows *r = &u->rows;
    int64_t        c = 0;
    for (int k = 0; k < r->depths; k++)
        for (int64_t i = 0; i < r->depth[k].n; i++, c++) {
            int64_t to = pl_rows_place(r, k, i);
            u->pack.weight[to] = r->weight[c];
            u->loss[to] = pl_real_at(&p->loss, c);
            if (p->learn && u->opt.top_k > 0) u->loss[to] += pl_topk_loss_of(&p->top, c, u->weight[TOKEN][c]);
            u->feature_loss[to] = feature_loss_of(u, p, k, i, c);
            if (u->listed) u->listed[to] = u->choice[c] >= 0;
            u->student_argmax[to] = r->argmax[c];
            if (!p->learn) u->accept[to] = r->accepted[c];
        }
}

// One forward over the rows that run, every loss, and backward.
static pl_status run_pass(pl_unroll *u, bool learn, pl_err *err) {
    unroll_pass    p = {.u = u, .learn = learn};
    const pl_rows *r = &u->rows;
    for (int64_t c = 0; c < r->cells; c++) {
        u->weight[TOKEN][c] = scaled(u->opt.token_weight, r->weight[c]);
        u->weight[FEATURE][c] = scaled(u->opt.feature_weight, r->weight[c]);
    }
    if (selects(u)) set_choices(u);
    u->ctx.tape = learn ? &u->tape : NULL;
    pl_ctx_begin(&u->ctx);
    pass(&u->ctx, &p);
    u->ctx.tape = &u->tape;
    PL_TRY(pl_ctx_sync(&u->ctx, err));
    if (!learn && rescores(u)) PL_TRY(score_own(u, &p, err));
    scatter(u, &p);
    return PL_OK;
}

static pl_status run(pl_unroll *u, pl_rows_use use, pl_err *err) {
    pl_rows *r = &u->rows;
    pl_rows_begin(r, use);
    u->ran = r->depths;
    for (int64_t i = 0; i < r->depths * r->rows; i++) {
        u->student_argmax[i] = -1;
        u->loss[i] = u->feature_loss[i] = 0;
        if (u->listed) u->listed[i] = false;
    }
    while (pl_rows_next(r))
        PL_TRY(run_pass(u, use == PL_ROWS_LEARN, err));
    return PL_OK;
}

pl_status pl_unroll_learn(pl_unroll *u, pl_err *err) {
    return run(u, PL_ROWS_LEARN, err);
}

pl_status pl_unroll_score(pl_unroll *u, pl_err *err) {
    return run(u, PL_ROWS_SCORE, err);
}

pl_status pl_unroll_score_all(pl_unroll *u, pl_err *err) {
    return run(u, PL_ROWS_SCORE_ALL, err);
}

void pl_unroll_add(const pl_unroll *u, bool scored, pl_unroll_sums *s) {
    const pl_pack *p = &u->pack;
    const int32_t *d2t = u->model->head.d2t;
    for (int64_t row = 0; row < p->rows; row++) {
        double agreed = 1, accepted = 1;
        bool   whole = true;
        for (int k = 0; k < u->ran; k++) {
            int64_t i = k * p->rows + row;
            whole = whole && p->weight[i] > 0;
            if (p->weight[i] <= 0) continue;
            int32_t id = u->student_argmax[i];
            double  agree = id >= 0 && (d2t ? d2t[id] : id) == p->argmax[p->teacher_row[i]];
            double  accept = scored ? (double)u->accept[i] : 0;
            s->loss += (double)scaled(u->opt.token_weight, p->weight[i]) * u->loss[i] +
                       (double)scaled(u->opt.feature_weight, p->weight[i]) * u->feature_loss[i];
            s->weight += (double)p->weight[i];
            s->count[k]++;
            s->step_loss[k] += u->loss[i];
            s->feature_loss[k] += u->feature_loss[i];
            s->agree[k] += agree;
            s->accept[k] += accept;
            if (u->listed) s->listed[k] += u->listed[i];
            if (!whole) continue;
            agreed *= agree;
            accepted *= accept;
            s->chain[k]++;
            s->chain_agree[k] += agreed;
            s->chain_accept[k] += accepted;
        }
    }
}

static double length(const double *chain, const double *sum, int steps) {
    double tau = 1;
    for (int k = 0; k < steps; k++)
        if (chain[k] > 0) tau += sum[k] / chain[k];
    return tau;
}

double pl_unroll_greedy_length(const pl_unroll_sums *s, int steps) {
    return length(s->chain, s->chain_agree, steps);
}

double pl_unroll_sampled_length(const pl_unroll_sums *s, int steps) {
    return length(s->chain, s->chain_accept, steps);
}
