#include "train/task/unroll.h"

#include "kernels/base/check.h"
#include "kernels/op/classify.h"
#include "kernels/op/gather.h"
#include "kernels/op/smoothl1.h"

#include <string.h>

enum { TOKEN, FEATURE }; // the two weights

typedef struct unroll_pass {
    pl_unroll   *u;
    int64_t      rows;
    bool         learn;
    // Out, where the host reads them: [steps * rows], and [rows] of each step.
    pl_tensor    loss, accept, feature_loss[PL_MAX_UNROLL];
    pl_tensor    x[PL_MAX_UNROLL];          // what the head read at each step (scoring)
    pl_tensor    last_hidden, teacher_stat; // the teacher's rows
    pl_topk_loss top;
} unroll_pass;

// One step as a stretch of the tape: what later steps need of it are its hidden states and its keys and values.
typedef struct unroll_step {
    unroll_pass     *p;
    int              k;
    pl_tensor        hidden, x, y; // what it consumes; where what the head reads goes (if anywhere), and its rows
    const int32_t   *token;        // [rows] that it consumes
    const pl_depths *depths;       // whose rows run; NULL: all
    const pl_tensor *block;        // [layers][PL_MAX_UNROLL], k of each layer: of the steps before
} unroll_step;

enum { HIDDEN, KEYS, STEP_OUT = KEYS + PL_STEP_LAYERS }; // keys and values of each layer
_Static_assert((int)STEP_OUT <= PL_STRETCH_OUT, "results of a step");

static void run_step(pl_ctx *ctx, const void *arg, pl_tensor *out) {
    const unroll_step *s = arg;
    pl_backbone       *b = s->p->u->model;
    const pl_pack     *rows = &s->p->u->pack;
    bool               identity = !b->head.kind->project; // step writes the head's rows themselves
    pl_tensor          block[PL_STEP_LAYERS * PL_MAX_UNROLL];
    pl_view            view = {.pos = rows->pos, .cos = b->cos, .sin = b->sin, .lo = rows->lo, .block = block};
    if (s->depths && s->k > 0) {
        view.pos = s->depths->pos[s->k];
        view.lo = s->depths->lo[s->k];
        view.taken = s->depths->taken[s->k];
        view.spread = s->depths->spread[s->k];
        view.whole = s->p->rows;
    }
    for (int l = 0; l < b->layers; l++)
        memcpy(block + l * PL_MAX_UNROLL, s->block + l * PL_MAX_UNROLL, (size_t)s->k * sizeof *block);
    view.n_blocks = view.offset = s->k;
    pl_tensor x = b->kind->step(ctx, b, s->token, s->hidden, &view, &out[HIDDEN], identity ? s->y : s->x);
    if (!identity) pl_head_project(ctx, &b->head, x, s->y);
    for (int l = 0; l < b->layers; l++)
        out[KEYS + l] = block[l * PL_MAX_UNROLL + s->k];
    s->p->x[s->k] = x;
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

// What rows of a run are to choose, and what they weigh; [n] cells of which teacher_row names the teacher's row.
static void set_choices(const pl_unroll *u, const int32_t *teacher_row, const float *weight, int64_t n) {
    for (int64_t i = 0; i < n; i++) {
        int32_t id = weight[i] > 0 && teacher_row[i] >= 0 ? u->pack.argmax[teacher_row[i]] : -1;
        u->choice[i] = id >= 0 && u->t2d ? u->t2d[id] : id;
        u->weight[FEATURE][i] = u->choice[i] >= 0 ? weight[i] : 0;
    }
}

// The overlap of the law that the list is taken from with the target's: the head's, or that of its exact rows.
static pl_tensor overlap(pl_ctx *ctx, unroll_pass *p, const pl_selected *s, const float *weight) {
    const pl_head *h = s->head;
    if (!h->exact.data || h->selector.law != PL_HF_LAW_FULL) return p->accept;
    pl_divergence_args a = objective(p->u);
    a.x = s->x;
    a.w = h->exact;
    a.xt = s->last_hidden;
    a.teacher_row = s->teacher_row;
    a.weight = weight;
    a.accept = pl_ctx_const_1d(ctx, s->x.dim[0]);
    pl_divergence(ctx, &a);
    a.accept.data = pl_ctx_read(ctx, &a.accept);
    return a.accept;
}

// Held out: acceptance and choices of what is drafted, in place of the head's own. taught: pl_selected_teach has been
// here.
static void score_selected(pl_ctx *ctx, unroll_pass *p, const pl_selected *s, const float *weight, bool taught,
                           int32_t *argmax) {
    pl_tensor score = pl_selected_scores(ctx, s, s->own), whole = overlap(ctx, p, s, weight);
    score.data = pl_ctx_read(ctx, &score);
    if (!p->accept.data || !whole.data || !score.data || !taught || ctx->measuring) return;
    for (int64_t i = 0; i < s->x.dim[0]; i++)
        if (s->teacher_row[i] >= 0 && argmax[i] >= 0)
            pl_real_put(&p->accept, i, pl_selected_accept(s, &score, i, pl_real_at(&whole, i), &argmax[i]));
}

// Of rows x, of which the head makes `rows`: set_choices has been called. accept has been read. weight: the head's
// loss's.
static void select_of(pl_ctx *ctx, unroll_pass *p, pl_tensor x, pl_tensor rows, const int32_t *before,
                      const int32_t *teacher_row, const float *weight, int32_t *argmax) {
    pl_unroll         *u = p->u;
    pl_selected        s = {.head = &u->model->head,
                            .x = x,
                            .rows = rows,
                            .before = before,
                            .choice = u->choice,
                            .last_hidden = p->last_hidden,
                            .wt = u->wt,
                            .stat = p->teacher_stat,
                            .teacher_row = teacher_row,
                            .cap = u->opt.teacher_cap,
                            .scored = !p->learn};
    pl_divergence_args d = objective(u);
    d.objective = u->opt.selector_objective;
    bool there = pl_selected_list(ctx, &s), taught = false;
    if (!p->learn || d.objective != PL_OBJ_HARD_CE) taught = pl_selected_teach(ctx, &s);
    if (!p->learn) score_selected(ctx, p, &s, weight, taught, argmax);
    pl_tensor loss = pl_selected_loss(ctx, &s, &d, u->weight[FEATURE]);
    loss.data = pl_ctx_read(ctx, &loss);
    p->feature_loss[0] = loss;
    if (!loss.data || !there) return;
    if (p->learn && u->opt.pace > 0) pl_blocks_pace(&u->blocks, u->weight[FEATURE], &loss, u->opt.pace);
    for (int64_t i = 0; i < x.dim[0]; i++) {
        u->weight[FEATURE][i] = scaled(u->opt.feature_weight, u->weight[FEATURE][i]);
        if (u->choice[i] >= 0 && !pl_selected_has(&s, i)) u->choice[i] = -1; // what is left could be chosen
    }
}

// Cross-entropy of the head's confidence with how likely verification is to accept, which is held constant.
static void learn_confidence(pl_ctx *ctx, unroll_pass *p, const pl_head_rows *r) {
    const pl_head *h = &p->u->model->head;
    pl_blocks     *s = &p->u->blocks;
    for (int64_t i = 0; i < s->n * s->drafts && p->accept.data && !ctx->measuring; i++) {
        s->accepted[i] = (float)pl_real_at(&p->accept, i);
        p->u->weight[FEATURE][i] = scaled(p->u->opt.feature_weight, s->weight[i]);
    }
    p->feature_loss[0] = pl_classify(ctx, &(pl_classify_args){.z = h->kind->confidence(ctx, h, r),
                                                              .y = s->accepted,
                                                              .weight = p->u->weight[FEATURE],
                                                              .kind = PL_CLASSIFY_BCE});
    p->feature_loss[0].data = pl_ctx_read(ctx, &p->feature_loss[0]);
}

// The blocks of u->blocks in place of steps: losses stand [drafts * blocks].
static void block_pass(pl_ctx *ctx, unroll_pass *p) {
    pl_unroll     *u = p->u;
    pl_backbone   *b = u->model;
    pl_blocks     *s = &u->blocks;
    const pl_pack *rows = &u->pack;
    const pl_head *h = &b->head;
    int64_t        n = s->n * s->drafts;
    pl_block_view  view = {.features = pl_ctx_write(ctx, rows->features, p->rows, rows->width),
                           .context_pos = rows->pos,
                           .token = s->token,
                           .pos = s->pos,
                           .m = s->n * b->block,
                           .lo = s->lo,
                           .hi = s->hi,
                           .rerun = u->opt.recompute && p->learn};
    pl_tensor      last_hidden = pl_ctx_write(ctx, rows->last_hidden, p->rows, rows->d);
    pl_tensor      x = pl_gather(ctx, b->kind->draft(ctx, b, &view), s->index, n);
    bool           confident = u->opt.feature_weight > 0 && !selects(u);
    if (selects(u) && !ctx->measuring) set_choices(u, s->teacher_row, s->weight, n);
    if (!p->learn || confident) p->accept = pl_ctx_const_1d(ctx, n);
    pl_head_rows       r = {.x = x, .token = s->before, .levels = s->drafts};
    pl_divergence_args a = objective(u);
    if (h->kind->teach)
        h->kind->teach(ctx, h, &r, &a.x, &a.w);
    else
        a.x = pl_head_project(ctx, h, x, (pl_tensor){0});
    a.xt = last_hidden;
    a.teacher_row = s->teacher_row;
    a.weight = s->weight;
    a.accept = p->accept;
    a.student_argmax = s->argmax;
    p->loss = pl_divergence(ctx, &a);
    p->loss.data = pl_ctx_read(ctx, &p->loss);
    p->last_hidden = last_hidden;
    p->teacher_stat = a.teacher_stat;
    if (p->learn && u->opt.pace > 0 && p->loss.data) pl_blocks_pace(s, s->weight, &p->loss, u->opt.pace);
    if (p->accept.data) p->accept.data = pl_ctx_read(ctx, &p->accept);
    if (confident) learn_confidence(ctx, p, &r);
    if (selects(u)) select_of(ctx, p, x, a.x, s->before, s->teacher_row, s->weight, s->argmax);
    if (p->learn) pl_tape_backward(ctx);
}

// What all steps but the first consume where none hands anything on: masks.
typedef struct ahead {
    const int32_t *token; // [rows]; NULL: each step consumes what the one before gave
    pl_tensor      hidden;
} ahead;

static ahead ahead_of(pl_ctx *ctx, const unroll_pass *p) {
    const pl_backbone *b = p->u->model;
    if (!b->kind->ahead) return (ahead){0};
    int32_t *token = pl_ctx_bytes(ctx, (size_t)p->rows * sizeof *token);
    for (int64_t i = 0; i < p->rows && !ctx->measuring; i++)
        token[i] = b->config.block.mask_token;
    return (ahead){.token = token, .hidden = b->kind->ahead(ctx, b, p->rows)};
}

static void pass(pl_ctx *ctx, unroll_pass *p) {
    if (pl_backbone_in_blocks(p->u->model->kind)) {
        block_pass(ctx, p);
        return;
    }
    pl_unroll   *u = p->u;
    pl_backbone *b = u->model;
    pl_pack     *k_rows = &u->pack;
    int          steps = p->learn ? u->opt.learn_steps : k_rows->steps;
    int64_t      rows = p->rows, at = 0;
    bool         thin = p->learn && u->depths.on;
    pl_tensor    block[PL_STEP_LAYERS * PL_MAX_UNROLL];
    pl_tensor    hidden = b->kind->fuse(ctx, b, pl_ctx_write(ctx, k_rows->features, rows, k_rows->width));
    pl_tensor    last_hidden = pl_ctx_write(ctx, k_rows->last_hidden, rows, k_rows->d);
    pl_tensor    out = pl_ctx_tensor(ctx, thin ? u->depths.cells : steps * rows, b->head.rank), seen = out;
    bool         apart = selects(u) && b->head.kind->project; // the selector reads what the head projects
    if (apart) seen = pl_ctx_tensor(ctx, steps * rows, b->head.d);
    ahead masks = ahead_of(ctx, p);
    for (int k = 0; k < steps; k++) {
        int64_t     n = thin ? u->depths.n[k] : rows;
        unroll_step s = {.p = p, .k = k, .hidden = hidden, .y = pl_tensor_slice(&out, at, n), .block = block};
        if (n == 0) break; // and deeper
        s.depths = thin ? &u->depths : NULL;
        s.token = k > 0 && masks.token ? masks.token : k_rows->token + k * rows;
        if (k > 0 && masks.token) s.hidden = pl_tensor_slice(&masks.hidden, 0, n);
        if (apart) s.x = pl_tensor_slice(&seen, k * rows, rows);
        at += n;
        pl_tensor made[STEP_OUT] = {[HIDDEN] = {.dim = {n, b->shape.d, 1, 1}}};
        for (int l = 0; l < b->layers; l++)
            made[KEYS + l] = (pl_tensor){.dim = {rows, (b->shape.nh + 2 * b->shape.nkv) * b->shape.hd, 1, 1}};
        if (u->opt.recompute)
            pl_tape_stretch(ctx, run_step, &s, sizeof s, made, KEYS + b->layers);
        else
            run_step(ctx, &s, made);
        hidden = made[HIDDEN];
        for (int l = 0; l < b->layers; l++)
            block[l * PL_MAX_UNROLL + k] = made[KEYS + l];
        if (u->opt.feature_weight > 0 && !selects(u))
            p->feature_loss[k] = pl_smoothl1(ctx, &(pl_smoothl1_args){.x = hidden,
                                                                      .t = last_hidden,
                                                                      .row = k_rows->teacher_row + k * rows,
                                                                      .weight = u->weight[FEATURE] + k * rows,
                                                                      .beta = 1});
    }
    if (!p->learn) p->accept = pl_ctx_const_1d(ctx, steps * rows);
    pl_divergence_args a = objective(u);
    a.x = out;
    a.xt = last_hidden;
    a.teacher_row = thin ? u->depths.teacher_row : k_rows->teacher_row;
    a.weight = u->weight[TOKEN];
    a.accept = p->accept;
    a.student_argmax = thin ? u->depths.argmax : u->student_argmax;
    p->loss = pl_divergence(ctx, &a);
    p->last_hidden = last_hidden;
    p->teacher_stat = a.teacher_stat;
    if (p->learn && u->opt.top_k > 0) {
        p->top = (pl_topk_loss){.head = &b->head,
                                .wt = u->wt,
                                .cap = u->opt.teacher_cap,
                                .k = u->opt.top_k,
                                .weight = u->opt.top_weight,
                                .t2d = u->t2d,
                                .keep = a.keep};
        pl_topk_loss_add(ctx, &p->top, out, last_hidden, a.teacher_row, u->weight[TOKEN]);
    }
    if (selects(u)) {
        if (p->accept.data) p->accept.data = pl_ctx_read(ctx, &p->accept);
        select_of(ctx, p, seen, out, k_rows->token, k_rows->teacher_row, u->weight[TOKEN], u->student_argmax);
    }
    if (p->learn) pl_tape_backward(ctx);
    p->loss.data = pl_ctx_read(ctx, &p->loss);
    if (selects(u)) return;
    if (!p->learn && pl_rescored_wanted(&b->head)) p->teacher_stat.data = pl_ctx_read(ctx, &p->teacher_stat);
    if (p->accept.data) p->accept.data = pl_ctx_read(ctx, &p->accept);
    for (int k = 0; k < steps && u->opt.feature_weight > 0; k++)
        p->feature_loss[k].data = pl_ctx_read(ctx, &p->feature_loss[k]);
}

// The larger of scoring and learning.
static void measure(pl_ctx *ctx, void *arg) {
    const unroll_pass *most = arg;
    unroll_pass        score = {.u = most->u, .rows = most->rows}, learn = score;
    pl_tape           *tape = ctx->tape;
    most->u->blocks.n = most->u->blocks.most;
    pl_depths_most(&most->u->depths, most->rows);
    learn.learn = true;
    ctx->tape = NULL;
    pass(ctx, &score);
    ctx->tape = tape;
    pl_ctx_begin(ctx);
    pass(ctx, &learn);
}

static void take_arrays(void *arg) {
    pl_unroll     *u = arg;
    size_t         n = (size_t)u->opt.capacity * (size_t)u->opt.steps;
    const pl_head *h = &u->model->head;
    u->weight[TOKEN] = pl_arena_alloc(&u->arrays, n * sizeof **u->weight);
    u->weight[FEATURE] = pl_arena_alloc(&u->arrays, n * sizeof **u->weight);
    u->student_argmax = pl_arena_alloc(&u->arrays, n * sizeof *u->student_argmax);
    if (h->d2t) u->d2t = pl_arena_alloc(&u->arrays, (size_t)h->vocab * sizeof *u->d2t);
}

static pl_status create_arrays(pl_unroll *u, pl_err *err) {
    const pl_head *h = &u->model->head;
    PL_TRY(pl_arena_init_shared(&u->arrays, "training rows", u->ctx.be->memory, take_arrays, u, err));
    if (h->d2t) memcpy(u->d2t, h->d2t, (size_t)h->vocab * sizeof *u->d2t);
    return PL_OK;
}

static pl_status create_blocks(pl_unroll *u, const pl_backend *be, pl_err *err) {
    PL_CHECK(u->opt.steps == u->model->drafts && u->opt.learn_steps == u->opt.steps && u->opt.anchors > 0,
             "%d steps of blocks with %d drafts, %lld anchors", u->opt.steps, u->model->drafts,
             (long long)u->opt.anchors);
    u->anchor = pl_calloc((size_t)u->opt.capacity, sizeof *u->anchor);
    if (!u->anchor) return pl_fail(err, PL_E_MEMORY, "training blocks: out of memory");
    return pl_blocks_init(&u->blocks, u->model, u->opt.anchors, be, err);
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
    unroll_pass most = {.u = u, .rows = o->capacity};
    pl_status   st;
    PL_TRY_GOTO(st, fail, pl_ctx_init(&u->ctx, be, pool));
    PL_TRY_GOTO(st, fail, pl_pack_init(&u->pack, model, o->capacity, o->steps, o->step_decay, be, err));
    PL_TRY_GOTO(st, fail, pl_backbone_reach(model, o->capacity + o->steps + model->block, err));
    u->pack.outside = o->unmasked;
    size_t n = (size_t)o->capacity * (size_t)o->steps;
    if (pl_backbone_in_blocks(model->kind)) PL_TRY_GOTO(st, fail, create_blocks(u, be, err));
    if (model->kind->ahead)
        PL_TRY_GOTO(
            st, fail,
            pl_depths_init(&u->depths, u->opt.learn_steps, o->capacity, o->depth_ratio, o->depth_floor, be, err));
    PL_TRY_GOTO(st, fail, create_arrays(u, err));
    if (selects(u) || o->top_k > 0) PL_TRY_GOTO(st, fail, create_choices(u, n, err));
    u->accept = pl_calloc(n, sizeof *u->accept);
    u->loss = pl_calloc(n, sizeof *u->loss);
    u->feature_loss = pl_calloc(n, sizeof *u->feature_loss);
    if (!u->accept || !u->loss || !u->feature_loss)
        PL_TRY_GOTO(st, fail,
                    pl_fail(err, PL_E_MEMORY, "training: out of memory for %lld rows", (long long)o->capacity));
    PL_TRY_GOTO(st, fail, pl_tape_init(&u->tape, 0, err));
    u->ctx.tape = &u->tape;
    PL_TRY_GOTO(st, fail, pl_ctx_measure(&u->ctx, measure, &most, err));
    if (pl_rescored_wanted(&model->head) && !selects(u))
        PL_TRY_GOTO(st, fail, pl_rescored_create(&u->own, model, wt, be, pool, err));
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
    pl_blocks_fini(&u->blocks);
    pl_depths_fini(&u->depths);
    pl_arena_fini(&u->arrays);
    void *owned[] = {u->accept, u->loss, u->feature_loss, u->anchor, u->choice, u->t2d, u->listed};
    for (size_t i = 0; i < sizeof owned / sizeof *owned; i++)
        pl_free(owned[i]);
    *u = (pl_unroll){0};
}

// The head's own distribution instead of the one it learns.
static pl_status score_own(pl_unroll *u, const unroll_pass *p, pl_err *err) {
    for (int k = 0; k < u->ran; k++) {
        int64_t at = k * p->rows;
        PL_TRY(pl_rescored_run(&u->own, p->x[k], p->last_hidden, p->teacher_stat, u->pack.teacher_row + at,
                               u->weight[TOKEN] + at, p->rows, u->accept + at, u->student_argmax + at, err));
    }
    return PL_OK;
}

static pl_status run_pass(pl_unroll *u, unroll_pass *p, pl_err *err) {
    u->ctx.tape = p->learn ? &u->tape : NULL;
    pl_ctx_begin(&u->ctx);
    pass(&u->ctx, p);
    u->ctx.tape = &u->tape;
    return pl_ctx_sync(&u->ctx, err);
}

// Results of the blocks that ran, to where an unroll's are; weights too, which D-PACE may have chosen.
static void keep_blocks(pl_unroll *u, const unroll_pass *p) {
    const pl_blocks *s = &u->blocks;
    for (int k = 0; k < s->drafts; k++)
        for (int64_t i = 0; i < s->n; i++) {
            int64_t from = k * s->n + i, to = k * p->rows + s->row[i];
            u->pack.weight[to] = s->weight[from];
            u->loss[to] = pl_real_at(&p->loss, from);
            if (u->opt.feature_weight > 0) u->feature_loss[to] = pl_real_at(&p->feature_loss[0], from);
            if (u->listed) u->listed[to] = u->choice[from] >= 0;
            u->student_argmax[to] = s->argmax[from];
            if (!p->learn) u->accept[to] = (float)pl_real_at(&p->accept, from);
        }
}

// The blocks of drawn rows, or of all, in runs of as many as there is room for.
static pl_status run_blocks(pl_unroll *u, bool learn, bool all, pl_err *err) {
    unroll_pass p = {.u = u, .rows = u->pack.rows, .learn = learn};
    int64_t     n = pl_blocks_eligible(&u->pack, u->anchor), cells = u->ran * p.rows, at = 0;
    if (!all) n = pl_blocks_draw(u->anchor, n, u->opt.anchors, u->opt.seed, u->pack.key);
    for (int64_t i = 0; i < cells; i++) {
        u->student_argmax[i] = -1;
        u->loss[i] = u->feature_loss[i] = 0;
        if (u->listed) u->listed[i] = false;
    }
    for (; at < n; at += u->blocks.n) {
        int64_t some = n - at < u->opt.anchors ? n - at : u->opt.anchors;
        pl_blocks_set(&u->blocks, u->model, &u->pack, u->anchor + at, some);
        PL_TRY(run_pass(u, &p, err));
        keep_blocks(u, &p);
    }
    // What did not run does not count.
    for (int64_t row = 0, i = 0; row < p.rows; row++) {
        if (i < n && u->anchor[i] == row) {
            i++;
            continue;
        }
        for (int k = 0; k < u->ran; k++)
            u->pack.weight[k * p.rows + row] = 0;
    }
    return PL_OK;
}

// P-EAGLE's rows that learn: results of what ran, to where an unroll's are.
static pl_status run_depths(pl_unroll *u, pl_err *err) {
    unroll_pass p = {.u = u, .rows = u->pack.rows, .learn = true};
    pl_depths  *d = &u->depths;
    pl_depths_draw(d, &u->pack, u->opt.seed);
    for (int64_t c = 0; c < d->cells; c++)
        u->weight[TOKEN][c] = scaled(u->opt.token_weight, u->pack.weight[pl_depths_place(d, p.rows, c)]);
    PL_TRY(run_pass(u, &p, err));
    for (int64_t i = 0; i < u->ran * p.rows; i++) {
        u->student_argmax[i] = -1;
        u->loss[i] = 0;
    }
    for (int64_t c = 0; c < d->cells; c++) {
        int64_t to = pl_depths_place(d, p.rows, c);
        u->loss[to] = pl_real_at(&p.loss, c);
        if (u->opt.top_k > 0) u->loss[to] += pl_topk_loss_of(&p.top, c, u->weight[TOKEN][c]);
        u->student_argmax[to] = d->argmax[c];
    }
    return PL_OK;
}

static pl_status run(pl_unroll *u, bool learn, bool all, pl_err *err) {
    unroll_pass p = {.u = u, .rows = u->pack.rows, .learn = learn};
    u->ran = learn ? u->opt.learn_steps : u->pack.steps;
    if (p.rows == 0) return PL_OK;
    if (pl_backbone_in_blocks(u->model->kind)) return run_blocks(u, learn, all, err);
    if (learn && u->depths.on) return run_depths(u, err);
    if (selects(u)) set_choices(u, u->pack.teacher_row, u->pack.weight, u->ran * p.rows);
    for (int64_t i = 0; i < u->ran * p.rows; i++) {
        u->weight[TOKEN][i] = scaled(u->opt.token_weight, u->pack.weight[i]);
        if (!selects(u)) u->weight[FEATURE][i] = scaled(u->opt.feature_weight, u->pack.weight[i]);
    }
    PL_TRY(run_pass(u, &p, err));
    for (int64_t i = 0; i < u->ran * p.rows; i++) {
        u->loss[i] = pl_real_at(&p.loss, i);
        if (learn && u->opt.top_k > 0) u->loss[i] += pl_topk_loss_of(&p.top, i, u->weight[TOKEN][i]);
        if (u->listed) u->listed[i] = u->choice[i] >= 0;
        if (selects(u))
            u->feature_loss[i] = pl_real_at(&p.feature_loss[0], i);
        else if (u->opt.feature_weight > 0)
            u->feature_loss[i] = pl_real_at(&p.feature_loss[i / p.rows], i % p.rows);
        if (!learn) u->accept[i] = (float)pl_real_at(&p.accept, i);
    }
    return learn || selects(u) || !pl_rescored_wanted(&u->model->head) ? PL_OK : score_own(u, &p, err);
}

pl_status pl_unroll_learn(pl_unroll *u, pl_err *err) {
    return run(u, true, false, err);
}

pl_status pl_unroll_score(pl_unroll *u, pl_err *err) {
    return run(u, false, false, err);
}

pl_status pl_unroll_score_all(pl_unroll *u, pl_err *err) {
    return run(u, false, true, err);
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
