#include "train/task/selected.h"

#include "kernels/op/elementwise.h"
#include "kernels/op/gatherdot.h"
#include "kernels/op/linear.h"
#include "kernels/op/rowloss.h"
#include "kernels/op/topk.h"

#include <math.h>
#include <string.h>

enum { ROWS = 64 };   // rows whose logits over the whole vocabulary are in memory at once
#define NOTHING 1e-12 // lower bound of p's mass outside the list, against rounding

static const pl_tensor *dense(const pl_head *h) {
    return h->exact.data ? &h->exact : &h->out;
}

static const pl_tensor *multiplied(const pl_selected *s) {
    return s->head->exact.data ? &s->read.x : &s->rows;
}

// Lists the head's best tokens, without recording on the tape.
static void list(pl_ctx *ctx, const pl_selected *s) {
    int     K = s->head->selector.candidates;
    int64_t n = s->read.x.dim[0];
    bool    before = ctx->no_grad;
    ctx->no_grad = true;
    for (int64_t at = 0; at < n; at += ROWS) {
        size_t    mark = pl_arena_mark(&ctx->frame);
        pl_tensor some = *multiplied(s), w = *dense(s->head);
        some.data = (uint8_t *)some.data + (size_t)(at * some.dim[1]) * pl_dtype_size(some.dtype);
        some.dim[0] = n - at < ROWS ? n - at : ROWS;
        some.grad = w.grad = NULL;
        pl_topk(ctx, &(pl_topk_args){.x = pl_linear(ctx, some, w),
                                     .k = K,
                                     .id = s->own + at * K,
                                     .value = s->value ? s->value + at * K : NULL,
                                     .lse = s->lse ? s->lse + at : NULL});
        pl_arena_release(&ctx->frame, mark);
    }
    ctx->no_grad = before;
}

// Sets the list with the choice in it and its labels.
static void set_labels(pl_selected *s, size_t n, size_t K) {
    bool stays = s->head->selector.kind->blocks; // the choice does not take another's place
    memcpy(s->id, s->own, n * sizeof *s->id);
    for (size_t i = 0; i < n; i += K) {
        int32_t choice = s->choice[i / K];
        size_t  at = 0;
        memset(s->label + i, 0, K * sizeof *s->label);
        if (choice < 0) continue;
        while (at + 1 < K && s->id[i + at] != choice)
            at++;
        if (stays && s->id[i + at] != choice) continue;
        s->id[i + at] = choice;
        s->label[i + at] = 1;
    }
}

bool pl_selected_list(pl_ctx *ctx, pl_selected *s) {
    size_t K = (size_t)s->head->selector.candidates, n = (size_t)s->read.x.dim[0] * K;
    s->own = pl_ctx_bytes(ctx, n * sizeof *s->own);
    s->id = pl_ctx_bytes(ctx, n * sizeof *s->id);
    s->label = pl_ctx_bytes(ctx, n * sizeof *s->label);
    bool blocks = s->head->selector.kind->blocks;
    s->value = s->scored || blocks ? pl_ctx_bytes(ctx, n * sizeof *s->value) : NULL;
    s->lse = s->scored || blocks ? pl_ctx_bytes(ctx, n / K * sizeof *s->lse) : NULL;
    list(ctx, s);
    bool there = pl_ctx_wait(ctx);
    if (there) set_labels(s, n, K);
    s->list = (pl_selector_list){.id = s->own, .value = s->value, .lse = s->lse, .all = s->own};
    if (there || ctx->measuring) s->head->selector.kind->prepare(ctx, s->head, &s->read, &s->list);
    return there;
}

pl_tensor pl_selected_scores(pl_ctx *ctx, const pl_selected *s, const int32_t *id) {
    const pl_selector *own = &s->head->selector;
    pl_tensor          unary = pl_gatherdot(ctx, *multiplied(s), *dense(s->head), id, own->candidates);
    pl_selector_ask    ask = {.list = &s->list, .before = s->read.token, .id = id, .own = unary};
    return own->kind->score(ctx, s->head, &ask);
}

bool pl_selected_has(const pl_selected *s, int64_t i) {
    int K = s->head->selector.candidates;
    for (int k = 0; k < K; k++)
        if (s->own[i * K + k] == s->choice[i]) return true;
    return false;
}

bool pl_selected_counts(const pl_selected *s, int64_t i) {
    const pl_head *h = s->head;
    int64_t        n = s->read.x.dim[0] / (s->read.levels > 0 ? s->read.levels : 1), K = h->selector.candidates;
    if (!h->selector.kind->blocks) return true;
    if (s->choice[i] < 0 || !pl_selected_has(s, i)) return false;
    for (int64_t k = 0; i >= n && k < K; k++) {
        int32_t id = s->own[(i - n) * K + k];
        if ((h->d2t ? h->d2t[id] : id) == s->read.token[i]) return true;
    }
    return i < n;
}

// Returns the target's logits of the head's own list, [n, K].
static pl_tensor target_logits(pl_ctx *ctx, const pl_selected *s) {
    int64_t  n = s->read.x.dim[0], K = s->head->selector.candidates;
    int32_t *row = pl_ctx_bytes(ctx, (size_t)n * sizeof *row);
    int32_t *token = pl_ctx_bytes(ctx, (size_t)(n * K) * sizeof *token);
    for (int64_t i = 0; i < n * K && !ctx->measuring; i++) {
        row[i / K] = s->teacher_row[i / K] < 0 ? 0 : s->teacher_row[i / K];
        token[i] = s->head->d2t ? s->head->d2t[s->own[i]] : s->own[i];
    }
    return pl_gatherdot(ctx, pl_gather(ctx, s->last_hidden, row, n), s->wt, token, K);
}

bool pl_selected_teach(pl_ctx *ctx, pl_selected *s) {
    int64_t   n = s->read.x.dim[0], K = s->head->selector.candidates;
    size_t    bytes = (size_t)(n * (K + 1)) * pl_dtype_size(ctx->be->real);
    pl_tensor z = target_logits(ctx, s), stat = s->stat;
    s->law = pl_tensor_2d(pl_ctx_bytes(ctx, bytes), ctx->be->real, n, K + 1);
    z.data = pl_ctx_read(ctx, &z);
    stat.data = pl_ctx_read(ctx, &stat);
    if (!z.data || !stat.data || ctx->measuring) return false;
    for (int64_t i = 0; i < n; i++) {
        double lse = s->teacher_row[i] < 0 ? 0 : pl_real_at(&stat, (int64_t)s->teacher_row[i] * 4 + 1), rest = 1;
        for (int64_t k = 0; k < K; k++) {
            double t = pl_real_at(&z, i * K + k), log_p = (s->cap > 0 ? s->cap * tanh(t / s->cap) : t) - lse;
            pl_real_put(&s->law, i * (K + 1) + k, log_p);
            rest -= exp(log_p);
        }
        pl_real_put(&s->law, i * (K + 1) + K, log(fmax(rest, NOTHING)));
    }
    return true;
}

static pl_tensor unit_matrix(pl_ctx *ctx, int64_t n) {
    float *w = pl_ctx_bytes(ctx, (size_t)(n * n) * sizeof *w);
    for (int64_t i = 0; i < n * n && !ctx->measuring; i++)
        w[i] = i % (n + 1) == 0;
    return pl_tensor_2d(w, PL_F32, n, n);
}

// Runs the divergence op with the list's scores as student and the target's law, with one more id for the mass outside
// the list, as teacher; the output matrices are unit matrices.
static pl_tensor diverge(pl_ctx *ctx, const pl_selected *s, const pl_divergence_args *d, const float *weight) {
    int64_t            n = s->read.x.dim[0], K = s->head->selector.candidates;
    int32_t           *row = pl_ctx_bytes(ctx, (size_t)n * sizeof *row);
    pl_divergence_args a = {.objective = d->objective,
                            .unmasked = true,
                            .js_beta = d->js_beta,
                            .lk_decay = d->lk_decay,
                            .x = pl_selected_scores(ctx, s, s->own),
                            .w = unit_matrix(ctx, K),
                            .xt = pl_ctx_write(ctx, s->law.data, n, K + 1),
                            .wt = unit_matrix(ctx, K + 1),
                            .teacher_row = row,
                            .weight = weight};
    for (int64_t i = 0; i < n && !ctx->measuring; i++)
        row[i] = (int32_t)i;
    return pl_divergence(ctx, &a);
}

pl_tensor pl_selected_loss(pl_ctx *ctx, const pl_selected *s, const pl_divergence_args *d, const float *weight) {
    if (d->objective != PL_OBJ_HARD_CE) return diverge(ctx, s, d, weight);
    return pl_classify(
        ctx, &(pl_classify_args){
                 .z = pl_selected_scores(ctx, s, s->id), .y = s->label, .weight = weight, .kind = PL_CLASSIFY_SOFTMAX});
}

double pl_selected_accept(const pl_selected *s, const pl_tensor *score, int64_t i, double whole, int32_t *best) {
    bool    full = s->head->selector.law == PL_HF_LAW_FULL;
    int     K = s->head->selector.candidates, at = 0;
    int64_t first = i * K;
    double  sum = 0, share = 0, accept = full ? whole : 0, max;
    for (int k = 1; k < K; k++) // of equal scores the better place in the head's list wins
        if (pl_real_at(score, first + k) > pl_real_at(score, first + at)) at = k;
    max = pl_real_at(score, first + at);
    *best = s->own[first + at];
    for (int k = 0; k < K; k++) {
        sum += exp(pl_real_at(score, first + k) - max);
        share += exp((double)s->value[first + k] - (double)s->lse[i]);
    }
    for (int k = 0; k < K; k++) {
        double p = exp(pl_real_at(&s->law, first + i + k)), q = exp(pl_real_at(score, first + k) - max) / sum;
        accept += fmin(p, full ? share * q : q);
        if (full) accept -= fmin(p, exp((double)s->value[first + k] - (double)s->lse[i]));
    }
    return accept;
}
