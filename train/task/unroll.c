#include "train/task/unroll.h"

#include "kernels/base/check.h"
#include "kernels/op/elementwise.h"

#include <string.h>

// ---- forward

// One step as a stretch of the tape. Later steps need its hidden states and its keys and values.
typedef struct unroll_step {
    pl_pass  *p;
    int       k;
    pl_tensor hidden, x, y; // input; destinations of the head's input (or empty) and of its output
} unroll_step;

enum { HIDDEN, QKV, STEP_OUT = QKV + PL_STEP_LAYERS }; // queries, keys and values of each layer
_Static_assert((int)STEP_OUT <= PL_STRETCH_OUT, "results of a step");

// Runs the backbone and the head for one depth. Backward may run it again.
static void run_step(pl_ctx *ctx, const void *arg, pl_tensor *out) {
    const unroll_step   *s = arg;
    pl_backbone         *b = s->p->u->model;
    const pl_rows       *r = &s->p->u->rows;
    const pl_depth_rows *d = &r->depth[s->k];
    bool                 identity = !b->head.kind->project; // step writes straight to y
    const int32_t       *place[PL_MAX_UNROLL] = {0};
    pl_running           run = {
                  .n = d->n, .at = d->taken, .pos = d->run_pos, .lo = d->run_lo, .place = place, .last = b->layers - 1};
    pl_tensor block[PL_STEP_LAYERS * PL_MAX_UNROLL];
    pl_view   view = {.pos = d->pos,
                      .cos = b->cos,
                      .sin = b->sin,
                      .lo = d->lo,
                      .block = block,
                      .n_blocks = s->k,
                      .offset = s->k,
                      .run = d->taken ? &run : NULL};
    for (int j = 1; j < s->k; j++)
        place[j] = r->depth[j].place;
    for (int l = 0; l < b->layers; l++)
        memcpy(block + l * PL_MAX_UNROLL, s->p->block + l * PL_MAX_UNROLL, (size_t)s->k * sizeof *block);
    pl_tensor x = b->kind->step(ctx, b, d->token, s->hidden, &view, &out[HIDDEN], identity ? s->y : s->x);
    if (!identity) pl_head_project(ctx, &b->head, x, s->y);
    for (int l = 0; l < b->layers; l++)
        out[QKV + l] = block[l * PL_MAX_UNROLL + s->k];
    s->p->step_x[s->k] = x;
}

// Returns true if scoring uses the head's own distribution instead of the learned one. A selector's drafts do not come
// from it.
static bool rescores(const pl_unroll *u) {
    return pl_rescored_wanted(&u->model->head) && u->model->head.selector.candidates == 0;
}

// Returns true if the loss takes part in this pass.
static bool is_built(const pl_loss *l, const pl_pass *p) {
    return p->learn || l->kind->scored;
}

// Projects the cells as their heads do, draft after draft.
static pl_tensor project_cells(pl_ctx *ctx, const pl_backbone *b, pl_tensor x, int drafts) {
    if (!b->more || !b->head.kind->project) return pl_head_project(ctx, &b->head, x, (pl_tensor){0});
    int64_t   n = pl_tensor_rows(&x) / drafts;
    pl_tensor y = pl_ctx_tensor(ctx, n * drafts, b->head.rank);
    for (int k = 0; k < drafts; k++)
        pl_head_project(ctx, pl_backbone_head(b, k), pl_tensor_slice(&x, k * n, n), pl_tensor_slice(&y, k * n, n));
    return y;
}

// Returns the heads' inputs of drafts that read the tokens before them, draft after draft, from one row of each block.
static pl_tensor follow_drafts(pl_ctx *ctx, const pl_backbone *b, const pl_rows *r, pl_tensor state, bool rerun) {
    int64_t   n = r->depth[0].n;
    pl_tensor x = pl_ctx_tensor(ctx, r->cells, b->shape.d);
    for (int k = 0; k < r->depths; k++) {
        pl_follow_view v = {.draft = k, .state = state, .token = r->before + k * n, .rerun = rerun};
        v.y = pl_tensor_slice(&x, k * n, n);
        b->kind->follow(ctx, b, &v, &state);
    }
    return x;
}

// Runs the forward of all blocks of r->blocks.
static void run_blocks(pl_ctx *ctx, pl_pass *p) {
    const pl_unroll   *u = p->u;
    const pl_backbone *b = u->model;
    const pl_head     *h = &b->head;
    const pl_rows     *r = &u->rows;
    p->view = (pl_block_view){.features = pl_pack_features(ctx, &u->pack, r->rows),
                              .context_pos = u->pack.pos,
                              .context_lo = u->pack.lo,
                              .anchor = r->blocks.row,
                              .token = r->blocks.token,
                              .pos = r->blocks.pos,
                              .m = r->depth[0].n * b->block,
                              .lo = r->blocks.lo,
                              .hi = r->blocks.hi,
                              .rerun = u->opt.recompute && p->learn};
    p->last_hidden = pl_pack_last_hidden(ctx, &u->pack, r->rows);
    p->blocks = (pl_head_blocks){.y = b->kind->draft(ctx, b, &p->view),
                                 .slots = b->block,
                                 .first = b->first,
                                 .before = r->blocks.before,
                                 .context = pl_backbone_context(ctx, b, &p->view, r->depth[0].n)};
    p->x = b->kind->follow ? follow_drafts(ctx, b, r, p->blocks.y, p->view.rerun)
                           : pl_gather(ctx, p->blocks.y, r->blocks.index, r->cells);
    pl_sequence_prepare(ctx, h, &p->blocks);
    pl_head_rows read = {.x = p->x, .token = r->before, .levels = r->depths, .blocks = &p->blocks};
    if (h->kind->sequence)
        pl_sequence_teach(ctx, h, &read, &p->out, &p->w);
    else
        p->out = project_cells(ctx, b, p->x, r->depths);
}

// Runs the steps in order of depth. A step consumes the hidden output of the step before, or for P-EAGLE the masks'
// state. The rows that run at a depth are among those of the depth before.
static void run_steps(pl_ctx *ctx, pl_pass *p) {
    const pl_unroll   *u = p->u;
    const pl_backbone *b = u->model;
    const pl_rows     *r = &u->rows;
    int64_t            at = 0, q = (int64_t)b->shape.nh * b->shape.hd, kv = 2 * (int64_t)b->shape.nkv * b->shape.hd;
    pl_tensor          masks = {0};
    pl_tensor          hidden = b->kind->fuse(ctx, b, pl_pack_features(ctx, &u->pack, r->rows));
    bool               apart = b->head.kind->project && pl_unroll_reads(u, PL_LOSS_READS_X);
    p->last_hidden = pl_pack_last_hidden(ctx, &u->pack, r->rows);
    p->x = p->out = pl_ctx_tensor(ctx, r->cells, b->head.rank);
    if (apart) p->x = pl_ctx_tensor(ctx, r->cells, b->head.d);
    if (b->kind->ahead && r->depths > 1 && r->depth[1].n > 0) masks = b->kind->ahead(ctx, b, r->depth[1].n);
    for (int k = 0; k < r->depths && r->depth[k].n > 0; k++) {
        int64_t     n = r->depth[k].n;
        unroll_step s = {.p = p, .k = k, .hidden = hidden, .y = pl_tensor_slice(&p->out, at, n)};
        if (k > 0 && b->kind->ahead) s.hidden = pl_tensor_slice(&masks, 0, n);
        if (apart) s.x = pl_tensor_slice(&p->x, at, n);
        pl_tensor made[STEP_OUT] = {[HIDDEN] = {.dim = {n, b->shape.d, 1, 1}}};
        for (int l = 0; l < b->layers; l++) {
            bool keys = k == 0 && r->depth[k].taken && l == b->layers - 1; // pl_running
            made[QKV + l] = (pl_tensor){.dim = {r->depth[k].keyed, keys ? kv : q + kv, 1, 1}};
        }
        if (u->opt.recompute)
            pl_tape_stretch(ctx, run_step, &s, sizeof s, made, QKV + b->layers);
        else
            run_step(ctx, &s, made);
        hidden = made[HIDDEN];
        for (int l = 0; l < b->layers; l++)
            p->block[l * PL_MAX_UNROLL + k] = made[QKV + l];
        for (int i = 0; i < u->n_losses; i++)
            if (is_built(u->losses[i], p) && u->losses[i]->kind->step)
                u->losses[i]->kind->step(ctx, u->losses[i], p, k, at, hidden);
        at += n;
    }
}

// Runs the forward, adds every loss, goes backward when learning, then reads results.
static void run_pass(pl_ctx *ctx, pl_pass *p) {
    pl_unroll *u = p->u;
    p->w = u->model->head.out;
    if (pl_backbone_in_blocks(u->model->kind))
        run_blocks(ctx, p);
    else
        run_steps(ctx, p);
    for (int i = 0; i < u->n_losses; i++)
        if (is_built(u->losses[i], p) && u->losses[i]->kind->build) u->losses[i]->kind->build(ctx, u->losses[i], p);
    if (p->learn) pl_tape_backward(ctx);
    for (int i = 0; i < u->n_losses; i++)
        if (is_built(u->losses[i], p) && u->losses[i]->kind->read) u->losses[i]->kind->read(ctx, u->losses[i], p);
    if (rescores(u) && !p->learn) p->teacher_stat.data = pl_ctx_read(ctx, &p->teacher_stat);
}

// ---- memory

// Runs both passes, so that memory suffices for the larger one.
static void measure(pl_ctx *ctx, void *arg) {
    pl_unroll *u = arg;
    pl_tape   *tape = ctx->tape;
    pl_pass    score = {.u = u}, learn = {.u = u, .learn = true};
    ctx->tape = NULL;
    pl_rows_largest(&u->rows, PL_ROWS_SCORE);
    run_pass(ctx, &score);
    ctx->tape = tape;
    pl_ctx_begin(ctx);
    pl_rows_largest(&u->rows, PL_ROWS_LEARN);
    run_pass(ctx, &learn);
}

// Allocates what ops read; the first call measures.
static void take_arrays(void *arg) {
    pl_unroll     *u = arg;
    const pl_head *h = &u->model->head;
    for (int i = 0; i < u->n_losses; i++)
        u->losses[i]->weight =
            pl_arena_alloc(&u->arrays, (size_t)u->rows.kind->most(&u->rows) * sizeof *u->losses[i]->weight);
    if (h->d2t) u->d2t = pl_arena_alloc(&u->arrays, (size_t)h->vocab * sizeof *u->d2t);
}

static pl_status create_arrays(pl_unroll *u, pl_err *err) {
    const pl_head *h = &u->model->head;
    PL_TRY(pl_arena_init_shared(&u->arrays, "training rows", u->ctx.be->memory, take_arrays, u, err));
    if (h->d2t) memcpy(u->d2t, h->d2t, (size_t)h->vocab * sizeof *u->d2t);
    return PL_OK;
}

// Adds a metric of every row and depth; returns NULL out of memory.
static double *add_figure(pl_unroll *u, const char *name, const pl_loss *l) {
    PL_CHECK(!l || l->kind->scored, "%s: a figure is also of held-out rows; set `scored`", name);
    PL_CHECK(u->n_figures < PL_FIGURES, "%s: more than %d figures", name, PL_FIGURES);
    double *value = pl_calloc((size_t)u->opt.capacity * (size_t)u->opt.steps, sizeof *value);
    u->figure[u->n_figures++] = (pl_figure){name, l, value};
    return value;
}

// Adds a loss with its figures.
static pl_status create_loss(pl_unroll *u, const pl_loss_kind *kind, double factor, pl_err *err) {
    size_t   cells = (size_t)u->rows.kind->most(&u->rows);
    pl_loss *l = pl_calloc(1, kind->size > 0 ? kind->size : sizeof *l);
    if (!l) return pl_fail(err, PL_E_MEMORY, "training: out of memory");
    u->losses[u->n_losses++] = l;
    l->kind = kind;
    l->factor = factor;
    l->value = pl_calloc(cells, sizeof *l->value);
    l->share = kind->share ? pl_calloc(cells, sizeof *l->share) : NULL;
    if (!l->value || (kind->share && !l->share) || (kind->name && !add_figure(u, kind->name, l)) ||
        (kind->share && !add_figure(u, kind->share, NULL)))
        return pl_fail(err, PL_E_MEMORY, "training: out of memory for %lld rows", (long long)u->opt.capacity);
    return kind->create ? kind->create(l, u, err) : PL_OK;
}

// Adds the losses by which this drafter learns. losses.def begins with the divergence, so figure 0 is its.
static pl_status create_losses(pl_unroll *u, pl_err *err) {
    for (int i = 0; pl_loss_at(i); i++) {
        const pl_loss_kind *kind = pl_loss_at(i);
        double              factor = kind->keys && !u->opt.own[i] ? 0 : kind->factor(u, u->opt.own[i]);
        if (factor > 0 && u->model->more && u->n_losses > 0)
            return pl_fail(err, PL_E_UNSUPPORTED, "%s learns by a divergence alone, not by %s besides",
                           pl_backbone_name(u->model), kind->name ? kind->name : "another loss");
        if (factor > 0) PL_TRY(create_loss(u, kind, factor, err));
    }
    u->loss = u->figure[0].value;
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
    pl_rows_options ro = {.learn_steps = u->opt.learn_steps,
                          .supervised = o->supervised,
                          .most = o->supervised ? o->learn_rows : 0,
                          .seed = o->seed,
                          .anchors = o->anchors,
                          .depth_ratio = o->depth_ratio,
                          .depth_floor = o->depth_floor};
    size_t          n = (size_t)o->capacity * (size_t)o->steps;
    pl_status       st;
    PL_TRY_GOTO(st, fail, pl_ctx_init(&u->ctx, be, pool));
    PL_TRY_GOTO(st, fail, pl_pack_init(&u->pack, model, o->capacity, o->steps, o->step_decay, be, err));
    PL_TRY_GOTO(st, fail, pl_backbone_reach(model, o->capacity + o->steps + model->block, err));
    u->pack.outside = o->unmasked || o->all_rows;
    PL_TRY_GOTO(st, fail, pl_rows_init(&u->rows, model, &u->pack, &ro, be, err));
    PL_TRY_GOTO(st, fail, create_losses(u, err));
    PL_TRY_GOTO(st, fail, create_arrays(u, err));
    u->student_argmax = pl_calloc(n, sizeof *u->student_argmax);
    u->accept = pl_calloc(n, sizeof *u->accept);
    if (!u->student_argmax || !u->accept)
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
    for (int i = 0; i < u->n_losses; i++) {
        if (u->losses[i]->kind->destroy) u->losses[i]->kind->destroy(u->losses[i]);
        pl_free(u->losses[i]->value);
        pl_free(u->losses[i]->share);
        pl_free(u->losses[i]);
    }
    for (int f = 0; f < u->n_figures; f++)
        pl_free(u->figure[f].value);
    pl_rescored_destroy(&u->own);
    pl_ctx_fini(&u->ctx);
    pl_tape_fini(&u->tape);
    pl_pack_fini(&u->pack);
    pl_rows_fini(&u->rows);
    pl_arena_fini(&u->arrays);
    pl_free(u->student_argmax);
    pl_free(u->accept);
    *u = (pl_unroll){0};
}

// ---- runs

// Replaces acceptance and argmax by those of the head's own distribution. Block drafters have none.
static pl_status score_own(pl_unroll *u, const pl_pass *p, pl_err *err) {
    pl_rows *r = &u->rows;
    int64_t  at = 0;
    for (int k = 0; k < r->depths; at += r->depth[k].n, k++)
        PL_TRY(pl_rescored_run(&u->own, p->step_x[k], p->last_hidden, p->teacher_stat, r->teacher_row + at,
                               u->losses[0]->weight + at, r->depth[k].n, r->accepted + at, r->argmax + at, err));
    return PL_OK;
}

// Adds a loss's values to its figure, or to the first if the loss has no name. A share's figure follows its loss's.
static void scatter_values(pl_unroll *u, const pl_loss *l) {
    const pl_rows *r = &u->rows;
    int            f = 0;
    for (int i = 0; i < u->n_figures && l->kind->name; i++)
        if (u->figure[i].loss == l) f = i;
    int64_t c = 0;
    for (int k = 0; k < r->depths; k++)
        for (int64_t i = 0; i < r->depth[k].n; i++, c++) {
            int64_t to = pl_rows_place(r, k, i);
            u->figure[f].value[to] += l->value[c];
            if (l->share) u->figure[f + 1].value[to] = l->share[c];
        }
}

// Copies results of cells to [k][row of the pack], with the weights, which D-PACE may have changed.
static void scatter_results(pl_unroll *u, const pl_pass *p) {
    const pl_rows *r = &u->rows;
    int64_t        c = 0;
    for (int k = 0; k < r->depths; k++)
        for (int64_t i = 0; i < r->depth[k].n; i++, c++) {
            int64_t to = pl_rows_place(r, k, i);
            u->pack.weight[to] = r->weight[c];
            u->student_argmax[to] = r->argmax[c];
            if (!p->learn) u->accept[to] = r->accepted[c];
        }
    for (int i = 0; i < u->n_losses; i++)
        if (is_built(u->losses[i], p)) scatter_values(u, u->losses[i]);
}

// Runs one forward over the rows that are set.
static pl_status run_rows(pl_unroll *u, bool learn, pl_err *err) {
    pl_pass p = {.u = u, .learn = learn};
    for (int i = 0; i < u->n_losses; i++)
        pl_loss_weigh(u->losses[i], &u->rows);
    u->ctx.tape = learn ? &u->tape : NULL;
    pl_ctx_begin(&u->ctx);
    run_pass(&u->ctx, &p);
    u->ctx.tape = &u->tape;
    PL_TRY(pl_ctx_sync(&u->ctx, err));
    if (!learn && rescores(u)) PL_TRY(score_own(u, &p, err));
    scatter_results(u, &p);
    return PL_OK;
}

// Runs all forwards of a use.
static pl_status run_forwards(pl_unroll *u, pl_rows_use use, pl_err *err) {
    pl_rows *r = &u->rows;
    pl_rows_begin(r, use);
    u->ran = r->depths;
    for (int64_t i = 0; i < r->depths * r->rows; i++) {
        u->student_argmax[i] = -1;
        for (int f = 0; f < u->n_figures; f++)
            u->figure[f].value[i] = 0;
    }
    while (pl_rows_next(r))
        PL_TRY(run_rows(u, use == PL_ROWS_LEARN, err));
    return PL_OK;
}

pl_status pl_unroll_learn(pl_unroll *u, pl_err *err) {
    return run_forwards(u, PL_ROWS_LEARN, err);
}

pl_status pl_unroll_score(pl_unroll *u, pl_err *err) {
    return run_forwards(u, PL_ROWS_SCORE, err);
}

pl_status pl_unroll_score_all(pl_unroll *u, pl_err *err) {
    return run_forwards(u, PL_ROWS_SCORE_ALL, err);
}

bool pl_unroll_reads(const pl_unroll *u, unsigned what) {
    for (int i = 0; i < u->n_losses; i++)
        if (u->losses[i]->kind->reads & what) return true;
    return false;
}

const pl_figure *pl_unroll_figure(const pl_unroll *u, const char *name) {
    for (int f = 0; f < u->n_figures; f++)
        if (strcmp(u->figure[f].name, name) == 0) return &u->figure[f];
    return NULL;
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
            double  accept = scored ? (double)u->accept[i] : 0, loss = 0;
            for (int f = 0; f < u->n_figures; f++) {
                const pl_figure *g = &u->figure[f];
                if (g->loss) loss += (double)(float)(g->loss->factor * (double)p->weight[i]) * g->value[i];
                s->figure[f][k] += g->value[i];
            }
            s->loss += loss;
            s->weight += (double)p->weight[i];
            s->count[k]++;
            s->agree[k] += agree;
            s->accept[k] += accept;
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
