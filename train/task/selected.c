#include "train/task/selected.h"

#include "kernels/op/add.h"
#include "kernels/op/gatherdot.h"
#include "kernels/op/linear.h"
#include "kernels/op/topk.h"

#include <math.h>
#include <string.h>

enum { ROWS = 64 }; // whose logits over the whole vocabulary are held at once

static const pl_tensor *dense(const pl_head *h) {
    return h->exact.data ? &h->exact : &h->out;
}

static const pl_tensor *multiplied(const pl_selected *s) {
    return s->head->exact.data ? &s->x : &s->rows;
}

// The head's best, without a trace on the tape.
static void list(pl_ctx *ctx, const pl_selected *s) {
    int     K = s->head->selector.candidates;
    int64_t n = s->x.dim[0];
    bool    before = ctx->no_grad;
    ctx->no_grad = true;
    for (int64_t at = 0; at < n; at += ROWS) {
        size_t    mark = pl_arena_mark(&ctx->frame);
        pl_tensor some = *multiplied(s), w = *dense(s->head);
        some.data = (uint8_t *)some.data + (size_t)(at * some.dim[1]) * pl_dtype_size(some.dtype);
        some.dim[0] = n - at < ROWS ? n - at : ROWS;
        some.grad = w.grad = NULL;
        pl_topk(ctx, &(pl_topk_args){.x = pl_linear(ctx, some, w), .k = K, .id = s->own + at * K});
        pl_arena_release(&ctx->frame, mark);
    }
    ctx->no_grad = before;
}

bool pl_selected_list(pl_ctx *ctx, pl_selected *s) {
    size_t K = (size_t)s->head->selector.candidates, n = (size_t)s->x.dim[0] * K;
    s->own = pl_ctx_bytes(ctx, n * sizeof *s->own);
    s->id = pl_ctx_bytes(ctx, n * sizeof *s->id);
    s->label = pl_ctx_bytes(ctx, n * sizeof *s->label);
    list(ctx, s);
    if (!pl_ctx_wait(ctx)) return false;
    memcpy(s->id, s->own, n * sizeof *s->id);
    for (size_t i = 0; i < n; i += K) {
        int32_t choice = s->choice[i / K];
        size_t  at = 0;
        memset(s->label + i, 0, K * sizeof *s->label);
        if (choice < 0) continue;
        while (at + 1 < K && s->id[i + at] != choice)
            at++;
        s->id[i + at] = choice;
        s->label[i + at] = 1;
    }
    return true;
}

pl_tensor pl_selected_scores(pl_ctx *ctx, const pl_selected *s, const int32_t *id) {
    const pl_selector *own = &s->head->selector;
    pl_tensor          hidden = pl_linear(ctx, s->x, own->hidden);
    pl_tensor          unary = pl_gatherdot(ctx, *multiplied(s), *dense(s->head), id, own->candidates);
    return pl_add(ctx, unary, pl_selector_adds(ctx, own, hidden, s->before, id), (pl_tensor){0});
}

bool pl_selected_has(const pl_selected *s, int64_t i) {
    int K = s->head->selector.candidates;
    for (int k = 0; k < K; k++)
        if (s->own[i * K + k] == s->choice[i]) return true;
    return false;
}

double pl_selected_accept(const pl_selected *s, const pl_tensor *score, const pl_tensor *t, int64_t i, double lse,
                          double cap, int32_t *best) {
    int     K = s->head->selector.candidates, at = 0;
    int64_t first = i * K;
    double  sum = 0, accept = 0, max;
    for (int k = 1; k < K; k++) // equal scores: the one that the head likes better
        if (pl_real_at(score, first + k) > pl_real_at(score, first + at)) at = k;
    max = pl_real_at(score, first + at);
    *best = s->own[first + at];
    for (int k = 0; k < K; k++)
        sum += exp(pl_real_at(score, first + k) - max);
    for (int k = 0; k < K; k++) {
        double z = pl_real_at(t, first + k);
        accept += fmin(exp(pl_real_at(score, first + k) - max) / sum, exp((cap > 0 ? cap * tanh(z / cap) : z) - lse));
    }
    return accept;
}
