#include "train/task/lm.h"

#include "infer/head/stopping.h"
#include "kernels/base/arena.h"
#include "kernels/base/check.h"
#include "train/task/acceptance.h"
#include "train/task/pack.h"

#include <string.h>

typedef struct lm_pass {
    pl_lm    *lm;
    int64_t   rows;
    bool      learn;
    pl_tensor accept;   // output in host memory
    pl_tensor foreseen; // losses of predicted acceptances, scale[i] of which count
    float    *scale;
} lm_pass;

static bool taught(const pl_lm *lm) {
    return lm->teacher.head.data;
}

// Sets the divergence's arguments: labels, or the teacher's hidden states.
static void ask_teacher(pl_ctx *ctx, lm_pass *p, pl_divergence_args *a) {
    pl_lm *lm = p->lm;
    if (!taught(lm) || (p->learn && lm->teacher.objective == PL_OBJ_LABEL)) return;
    a->objective = lm->teacher.objective == PL_OBJ_LABEL ? PL_OBJ_KL : lm->teacher.objective;
    a->js_beta = lm->teacher.js_beta;
    a->lk_decay = lm->teacher.lk_decay;
    a->xt = pl_ctx_write(ctx, lm->hidden, p->rows, lm->teacher.head.dim[1]);
    a->wt = lm->teacher.head;
    a->teacher_cap = lm->teacher.cap;
    a->teacher_row = lm->teacher_row;
    if (p->learn && !lm->stops.acceptance) return;
    p->accept = pl_ctx_const_1d(ctx, p->rows);
    a->accept = p->accept;
    if (!p->learn) a->teacher_argmax = lm->choice;
}

static bool counts(const pl_lm *lm, int64_t row) {
    return taught(lm) ? lm->teacher_row[row] >= 0 : lm->label[row] >= 0;
}

// Predicts the acceptance of the rows' drafts, which the divergence has computed.
static void foresee(pl_ctx *ctx, lm_pass *p, pl_tensor hidden) {
    pl_lm *lm = p->lm;
    p->accept.data = pl_ctx_read(ctx, &p->accept);
    for (int64_t i = 0; i < p->rows && p->accept.data && !ctx->measuring; i++)
        lm->accept[i] = counts(lm, i) ? (float)pl_real_at(&p->accept, i) : 0;
    p->foreseen = pl_acceptance_loss(ctx, &lm->stops, hidden, lm->accept, lm->weight, &p->scale);
}

// Records a step; a measuring context only sizes memory.
static pl_tensor pass(pl_ctx *ctx, lm_pass *p) {
    pl_lm       *lm = p->lm;
    pl_llama    *m = &lm->model;
    pl_view      view = {.pos = lm->pos, .cos = m->cos, .sin = m->sin, .lo = lm->lo, .rerun = lm->recompute};
    pl_llama_out out;
    view.lo_window = lm->lo_window;
    pl_llama_forward(ctx, m, lm->id, p->rows, &view, NULL, 0, &out);
    pl_divergence_args a = {.objective = PL_OBJ_LABEL,
                            .x = out.hidden,
                            .w = m->head,
                            .label = lm->label,
                            .weight = lm->weight,
                            .settled = true,
                            .keep = lm->recompute ? 0 : PL_DIV_KEEP,
                            .student_argmax = p->learn ? NULL : lm->argmax};
    ask_teacher(ctx, p, &a);
    pl_tensor loss = pl_divergence(ctx, &a);
    if (lm->stops.acceptance) foresee(ctx, p, out.hidden);
    if (p->learn) pl_tape_backward(ctx);
    loss.data = pl_ctx_read(ctx, &loss);
    if (lm->stops.acceptance)
        p->foreseen.data = pl_ctx_read(ctx, &p->foreseen);
    else if (p->accept.data)
        p->accept.data = pl_ctx_read(ctx, &p->accept);
    return loss;
}

// Measures the larger of scoring and learning.
static void measure(pl_ctx *ctx, void *arg) {
    lm_pass  p = *(lm_pass *)arg;
    pl_tape *tape = ctx->tape;
    ctx->tape = NULL;
    p.learn = false;
    pass(ctx, &p);
    ctx->tape = tape;
    pl_ctx_begin(ctx);
    p.learn = true;
    pass(ctx, &p);
}

static void take_rows(void *arg) {
    pl_lm *lm = arg;
    size_t n = (size_t)lm->capacity;
    lm->id = pl_arena_alloc(&lm->arrays, n * sizeof *lm->id);
    lm->pos = pl_arena_alloc(&lm->arrays, n * sizeof *lm->pos);
    lm->lo = pl_arena_alloc(&lm->arrays, n * sizeof *lm->lo);
    lm->lo_window = lm->lo;
    if (lm->model.config.sliding_window > 0) lm->lo_window = pl_arena_alloc(&lm->arrays, n * sizeof *lm->lo);
    lm->label = pl_arena_alloc(&lm->arrays, n * sizeof *lm->label);
    lm->argmax = pl_arena_alloc(&lm->arrays, n * sizeof *lm->argmax);
    lm->weight = pl_arena_alloc(&lm->arrays, n * sizeof *lm->weight);
    lm->loss = pl_arena_alloc(&lm->arrays, n * sizeof *lm->loss);
    if (!taught(lm)) return;
    size_t real = pl_dtype_size(lm->ctx.be->real);
    lm->hidden = pl_arena_alloc(&lm->arrays, pl_size_mul(n, (size_t)lm->teacher.head.dim[1], real));
    lm->teacher_row = pl_arena_alloc(&lm->arrays, n * sizeof *lm->teacher_row);
    lm->choice = pl_arena_alloc(&lm->arrays, n * sizeof *lm->choice);
    lm->accept = pl_arena_alloc(&lm->arrays, n * sizeof *lm->accept);
}

pl_status pl_lm_create(pl_lm *lm, const pl_hf_config *config, const pl_lm_options *o, pl_err *err) {
    PL_CHECK(o->capacity >= 1 && o->capacity <= INT32_MAX, "%lld rows", (long long)o->capacity);
    *lm = (pl_lm){.capacity = o->capacity, .recompute = o->recompute, .teacher = o->teacher};
    pl_param_block_options bo = {
        .backend = o->backend, .round_to = o->round_to, .shard = o->shard, .decay_embed = o->decay_embed};
    lm_pass   p = {.lm = lm, .rows = o->capacity};
    pl_status st;
    PL_TRY_GOTO(st, fail, pl_llama_trainable(config, "training", err));
    PL_TRY_GOTO(st, fail, pl_ctx_init(&lm->ctx, o->backend, o->pool));
    PL_TRY_GOTO(st, fail, pl_llama_init(&lm->model, config, o->backend, false, err));
    lm->stops = (pl_head){.d = config->hidden_size, .acceptance = o->acceptance, .max_rejection = o->max_rejection};
    PL_CHECK(!o->acceptance || (taught(lm) && lm->teacher.objective != PL_OBJ_LABEL), "acceptance by no teacher");
    pl_stopping_params(&lm->stops, &lm->model.params);
    PL_TRY_GOTO(st, fail, pl_param_block_create(&lm->block, &lm->model.params, &bo, err));
    if (config->tie_word_embeddings) lm->model.head = lm->model.embed; // one matrix, one gradient
    PL_TRY_GOTO(st, fail, pl_llama_reach(&lm->model, o->capacity, err));
    PL_TRY_GOTO(st, fail, pl_arena_init_shared(&lm->arrays, "training rows", o->backend->memory, take_rows, lm, err));
    PL_TRY_GOTO(st, fail, pl_tape_init(&lm->tape, 0, err));
    lm->ctx.tape = &lm->tape;
    PL_TRY_GOTO(st, fail, pl_ctx_measure(&lm->ctx, measure, &p, err));
    return PL_OK;
fail:
    pl_lm_destroy(lm);
    return st;
}

void pl_lm_destroy(pl_lm *lm) {
    pl_ctx_fini(&lm->ctx);
    pl_tape_fini(&lm->tape);
    pl_param_block_destroy(&lm->block);
    pl_llama_fini(&lm->model);
    pl_arena_fini(&lm->arrays);
    *lm = (pl_lm){0};
}

void pl_lm_clear(pl_lm *lm) {
    lm->rows = 0;
}

// Appends a row of a document that begins at row `first`.
static void add_row(pl_lm *lm, int64_t first, int32_t id, int32_t label, float weight) {
    PL_CHECK(lm->rows < lm->capacity, "more than %lld rows", (long long)lm->capacity);
    int64_t row = lm->rows++, window = lm->model.config.sliding_window;
    lm->id[row] = id;
    lm->pos[row] = (int32_t)(row - first);
    lm->lo[row] = lm->lo_window[row] = (int32_t)first;
    if (window > 0 && row - first >= window) lm->lo_window[row] = (int32_t)(row - window + 1);
    lm->label[row] = weight != 0 ? label : -1;
    lm->weight[row] = weight;
}

void pl_lm_add(pl_lm *lm, const int32_t *ids, const int32_t *doc, int64_t n) {
    int64_t first = lm->rows; // the document's first row
    for (int64_t i = 0; i < n; i++) {
        if (i > 0 && doc && doc[i] != doc[i - 1]) first = lm->rows;
        add_row(lm, first, ids[i], ids[i + 1], !doc || doc[i + 1] == doc[i] ? 1 : 0);
    }
}

void pl_lm_add_weighted(pl_lm *lm, const int32_t *ids, const float *weight, int64_t n) {
    int64_t first = lm->rows;
    for (int64_t i = 0; i < n; i++)
        add_row(lm, first, ids[i], ids[i + 1], weight[i]);
}

void pl_lm_add_taught(pl_lm *lm, const int32_t *ids, const float *weight, const uint16_t *hidden, int64_t n) {
    int64_t first = lm->rows;
    bool    labels = lm->teacher.objective == PL_OBJ_LABEL;
    PL_CHECK(taught(lm), "a model without a teacher");
    for (int64_t i = 0; i < n; i++) {
        bool last = i + 1 == n;
        add_row(lm, first, ids[i], last ? -1 : ids[i + 1], last && labels ? 0 : weight[i]);
        lm->teacher_row[first + i] = lm->weight[first + i] != 0 ? (int32_t)(first + i) : -1;
    }
    pl_rows_widen(lm->hidden, lm->ctx.be->real, first, hidden, n, lm->teacher.head.dim[1]);
}

static pl_status run(pl_lm *lm, bool learn, pl_lm_sums *sums, pl_err *err) {
    lm_pass p = {.lm = lm, .rows = lm->rows, .learn = learn};
    *sums = (pl_lm_sums){0};
    if (lm->rows == 0) return PL_OK;
    lm->ctx.tape = learn ? &lm->tape : NULL;
    pl_ctx_begin(&lm->ctx);
    pl_tensor loss = pass(&lm->ctx, &p);
    lm->ctx.tape = &lm->tape;
    PL_TRY(pl_ctx_sync(&lm->ctx, err));
    for (int64_t i = 0; i < lm->rows; i++) {
        double of_row = counts(lm, i) ? pl_real_at(&loss, i) : 0;
        lm->loss[i] = of_row;
        if (taught(lm)) lm->accept[i] = p.accept.data && counts(lm, i) ? (float)pl_real_at(&p.accept, i) : 0;
        if (!counts(lm, i) || lm->weight[i] < 0) continue;
        sums->loss += of_row;
        sums->count++;
        if (!learn) sums->correct += lm->argmax[i] == (taught(lm) ? lm->choice[i] : lm->label[i]);
        if (taught(lm)) sums->accept += (double)lm->accept[i];
        if (lm->stops.acceptance) sums->foreseen += (double)p.scale[i] * pl_real_at(&p.foreseen, i);
    }
    return PL_OK;
}

pl_status pl_lm_learn(pl_lm *lm, pl_lm_sums *sums, pl_err *err) {
    return run(lm, true, sums, err);
}

pl_status pl_lm_score(pl_lm *lm, pl_lm_sums *sums, pl_err *err) {
    return run(lm, false, sums, err);
}
