#include "train/task/rescored.h"

#include "kernels/base/arena.h"
#include "kernels/base/parallel.h"
#include "kernels/best.h"
#include "kernels/op/elementwise.h"
#include "kernels/op/gatherdot.h"
#include "kernels/op/linear.h"

#include <math.h>

enum { BLOCK = 64 }; // rows whose scores over the whole vocabulary are held at once
_Static_assert(BLOCK == sizeof(((pl_rescored *)0)->lse_of) / sizeof(double), "a block's rows");

bool pl_rescored_wanted(const pl_head *h) {
    return h->kind->shortlisted != NULL;
}

static int64_t shortlisted(const pl_rescored *r) {
    return r->model->head.kind->shortlisted(&r->model->head);
}

// ---- the best of a row ----

// Lists the best candidates of a row; a row with a NaN score gets no list: its first id is -1.
static void list_part(void *arg, int part, int parts) {
    pl_rescored   *r = arg;
    const pl_head *h = &r->model->head;
    int64_t        n = h->kind->shortlisted(h);
    int32_t       *id = r->id + part * n;
    (void)parts;
    if (!pl_best_of(&r->score, part * h->vocab, h->vocab, n, id)) {
        id[0] = -1;
        return;
    }
    for (int64_t i = 0; i < n; i++)
        r->token[part * n + i] = h->d2t ? h->d2t[id[i]] : id[i];
}

// ---- a block ----

static void put_scores(pl_ctx *ctx, pl_rescored *r) {
    const pl_head *h = &r->model->head;
    r->exact = pl_gather(ctx, r->x, r->row, r->m); // the gathered rows; the scores replace them below
    r->score = pl_linear(ctx, pl_head_project(ctx, h, r->exact, (pl_tensor){0}), h->out);
    r->score.data = pl_ctx_read(ctx, &r->score);
}

static void put_candidates(pl_ctx *ctx, pl_rescored *r) {
    const pl_head *h = &r->model->head;
    int64_t        n = h->kind->shortlisted(h);
    r->exact = pl_gatherdot(ctx, r->exact, h->exact, r->id, n);
    r->teacher = pl_gatherdot(ctx, pl_gather(ctx, r->last_hidden, r->of, r->m), r->wt, r->token, n);
    r->exact.data = pl_ctx_read(ctx, &r->exact);
    r->teacher.data = pl_ctx_read(ctx, &r->teacher);
}

static void measure(pl_ctx *ctx, void *arg) {
    pl_rescored *r = arg;
    put_scores(ctx, r);
    put_candidates(ctx, r);
}

static double teacher_logit(const pl_rescored *r, int64_t i) {
    double z = pl_real_at(&r->teacher, i), cap = r->teacher_cap;
    return cap > 0 ? cap * tanh(z / cap) : z;
}

// Computes accept and argmax of row `part` of the block. Of equal logits the lower id wins.
static void score_row(const pl_rescored *r, int part, int at) {
    int64_t n = shortlisted(r), first = part * n, best = first;
    double  sum = 0, accept = 0;
    for (int64_t i = first; i < first + n; i++) {
        double z = pl_real_at(&r->exact, i), most = pl_real_at(&r->exact, best);
        if (z > most || (z == most && r->id[i] < r->id[best])) best = i;
    }
    double max = pl_real_at(&r->exact, best);
    for (int64_t i = first; i < first + n; i++)
        sum += exp(pl_real_at(&r->exact, i) - max);
    for (int64_t i = first; i < first + n; i++)
        accept += fmin(exp(pl_real_at(&r->exact, i) - max) / sum, exp(teacher_logit(r, i) - r->lse_of[part]));
    r->accept[at] = (float)accept;
    r->argmax[at] = r->id[best];
}

static pl_status run_block(pl_rescored *r, const int32_t *at, pl_err *err) {
    pl_ctx_begin(&r->ctx);
    put_scores(&r->ctx, r);
    PL_TRY(pl_ctx_sync(&r->ctx, err));
    pl_parallel(r->ctx.pool, (int)r->m, list_part, r);
    for (int64_t i = 0; i < r->m; i++)
        if (r->id[i * shortlisted(r)] < 0)
            return pl_fail(err, PL_E_INPUT, "%s: a candidate's score is NaN; lower train.lr",
                           r->model->head.kind->name);
    put_candidates(&r->ctx, r);
    PL_TRY(pl_ctx_sync(&r->ctx, err));
    for (int i = 0; i < r->m; i++)
        score_row(r, i, at[i]);
    return PL_OK;
}

// ---- the whole ----

static void take_arrays(void *arg) {
    pl_rescored *r = arg;
    size_t       list = (size_t)BLOCK * (size_t)shortlisted(r);
    r->row = pl_arena_alloc(&r->arrays, BLOCK * sizeof *r->row);
    r->of = pl_arena_alloc(&r->arrays, BLOCK * sizeof *r->of);
    r->id = pl_arena_alloc(&r->arrays, list * sizeof *r->id);
    r->token = pl_arena_alloc(&r->arrays, list * sizeof *r->token);
}

pl_status pl_rescored_create(pl_rescored *r, const pl_backbone *model, pl_tensor wt, const pl_backend *be,
                             pl_pool *pool, pl_err *err) {
    pl_status st;
    *r = (pl_rescored){.model = model, .wt = wt, .m = BLOCK};
    // Shapes of a call's tensors; measuring reads no data.
    r->x = pl_tensor_2d(NULL, be->real, BLOCK, model->head.d);
    r->last_hidden = pl_tensor_2d(NULL, be->real, BLOCK, wt.dim[1]);
    PL_TRY_GOTO(st, fail, pl_ctx_init(&r->ctx, be, pool));
    PL_TRY_GOTO(st, fail, pl_arena_init_shared(&r->arrays, "candidates", be->memory, take_arrays, r, err));
    PL_TRY_GOTO(st, fail, pl_ctx_measure(&r->ctx, measure, r, err));
    return PL_OK;
fail:
    pl_rescored_destroy(r);
    return st;
}

void pl_rescored_destroy(pl_rescored *r) {
    pl_ctx_fini(&r->ctx);
    pl_arena_fini(&r->arrays);
    *r = (pl_rescored){0};
}

pl_status pl_rescored_run(pl_rescored *r, pl_tensor x, pl_tensor last_hidden, pl_tensor stat,
                          const int32_t *teacher_row, const float *weight, int64_t n, float *accept, int32_t *argmax,
                          pl_err *err) {
    int32_t at[BLOCK] = {0};
    r->x = x;
    r->last_hidden = last_hidden;
    r->accept = accept;
    r->argmax = argmax;
    r->m = 0;
    for (int64_t i = 0; i <= n; i++) {
        if (r->m == BLOCK || (i == n && r->m > 0)) {
            PL_TRY(run_block(r, at, err));
            r->m = 0;
        }
        if (i == n || teacher_row[i] < 0 || weight[i] == 0) continue;
        r->row[r->m] = at[r->m] = (int32_t)i;
        r->of[r->m] = teacher_row[i];
        r->lse_of[r->m++] = pl_real_at(&stat, (int64_t)teacher_row[i] * 4 + 1);
    }
    return PL_OK;
}
