// xPress's training beside the divergence, whose tokens before are the text's (arXiv 2608.02438; speculators 0.9,
// models/xpress): rounds in which the head reads its own best tokens instead, as its passes do while decoding, and a
// term that keeps the logits without the head good, from which the passes start.
//
//   L = weight mean over rounds i of D(p, q_i) + base D(p, q_0)      q_0: softmax(W h)
//   q_i: the tokens before each slot are the best of q_{i - 1}, constants in the gradient
// A slot whose best token is not known (its row does not count) gives the text's. The paper lowers `base` in the course
// of training; here it is constant.
#include "kernels/op/divergence.h"
#include "kernels/op/elementwise.h"
#include "train/task/unroll.h"

#include <string.h>

typedef struct settings {
    int64_t count;
    double  weight, base;
} settings;

static const pl_key keys[] = {
    {PL_KEY_AS_INT("train.rounds.count", settings, count), .each = true, .late = true, .deflt = "3", .min = 0,
     .max = 16, .help = "xpress: rounds in which the head reads its own best tokens; 0: none, nor train.rounds.base",
     .stages = PL_STAGE_DRAFTER},
    {PL_KEY_AS_REAL("train.rounds.weight", settings, weight), .each = true, .late = true, .deflt = "0.3", .min = 1e-6,
     .max = 1e6, .help = "xpress: their weight, all together, beside the drafts' behind the text",
     .stages = PL_STAGE_DRAFTER},
    {PL_KEY_AS_REAL("train.rounds.base", settings, base), .each = true, .late = true, .deflt = "0.6", .min = 1e-6,
     .max = 1e6, .help = "xpress: weight of the drafts without the head's logits", .stages = PL_STAGE_DRAFTER},
    PL_KEYS_END(settings)};

enum { ROUNDS = 17 }; // with the base

typedef struct rounds {
    pl_loss   base;
    settings  own;
    pl_tensor loss[ROUNDS]; // [cells] of the base, then of each round
} rounds;

static bool suits(const pl_head_kind *h) {
    return h->sequence && h->sequence->passes;
}

static double read_factor(const pl_unroll *u, const void *own) {
    return suits(u->model->head.kind) && ((const settings *)own)->count > 0 ? 1 : 0;
}

static pl_status take_settings(pl_loss *l, const pl_unroll *u, pl_err *err) {
    (void)err;
    for (int i = 0; pl_loss_at(i); i++)
        if (pl_loss_at(i) == l->kind) ((rounds *)l)->own = *(const settings *)u->opt.own[i];
    return PL_OK;
}

static double share_of(const rounds *l, int round) {
    return round == 0 ? l->own.base : l->own.weight / (double)l->own.count;
}

// Adds the divergence of one round to the tape and returns its best tokens [cells], -1 where a cell does not count.
static const int32_t *add_round(pl_ctx *ctx, rounds *l, pl_pass *p, int round, pl_tensor x, pl_tensor w) {
    const pl_rows     *r = &p->u->rows;
    size_t             cells = (size_t)r->cells;
    float             *weight = pl_ctx_bytes(ctx, cells * sizeof *weight);
    pl_divergence_args a = pl_loss_objective(p->u);
    for (size_t c = 0; c < cells && !ctx->measuring; c++)
        weight[c] = (float)(share_of(l, round) * (double)l->base.weight[c]);
    a.x = x;
    a.w = w;
    a.xt = p->last_hidden;
    a.teacher_row = r->teacher_row;
    a.weight = weight;
    a.student_argmax = pl_ctx_bytes(ctx, cells * sizeof *a.student_argmax);
    a.keep /= ROUNDS;
    l->loss[round] = pl_divergence(ctx, &a);
    return a.student_argmax;
}

// Sets the tokens before the slots: the anchors, then of each slot its best, or the text's token.
static void set_before(pl_ctx *ctx, const pl_rows *r, int32_t *before, const int32_t *best) {
    int64_t n = r->cells / r->depths;
    bool    there = pl_ctx_wait(ctx);
    for (int64_t c = 0; c < r->cells && there; c++)
        before[c] = c >= n && best[c - n] >= 0 ? best[c - n] : r->before[c];
}

static void build_loss(pl_ctx *ctx, pl_loss *base, pl_pass *p) {
    rounds        *l = (rounds *)base;
    const pl_head *h = &p->u->model->head;
    const pl_rows *r = &p->u->rows;
    const int32_t *best = add_round(ctx, l, p, 0, p->x, h->out);
    for (int i = 1; i <= l->own.count; i++) {
        int32_t *before = pl_ctx_bytes(ctx, (size_t)r->cells * sizeof *before);
        set_before(ctx, r, before, best);
        pl_head_rows read = {.x = p->x, .token = before, .levels = r->depths, .blocks = &p->blocks};
        best = add_round(ctx, l, p, i, pl_concat(ctx, p->x, h->kind->sequence->mix(ctx, h, &read)), p->w);
    }
}

static void read_values(pl_ctx *ctx, pl_loss *base, const pl_pass *p) {
    rounds *l = (rounds *)base;
    int64_t cells = p->u->rows.cells;
    memset(base->value, 0, (size_t)cells * sizeof *base->value);
    for (int i = 0; i <= l->own.count; i++) {
        pl_tensor z = l->loss[i];
        z.data = pl_ctx_read(ctx, &z);
        for (int64_t c = 0; c < cells && z.data; c++)
            base->value[c] += share_of(l, i) * pl_real_at(&z, c);
    }
}

const pl_loss_kind pl_loss_rounds = {.keys = keys,
                                     .suits = suits,
                                     .suits_what = "is of heads that are refined in passes (drafter.head.kind: xpress)",
                                     .reads = PL_LOSS_READS_X,
                                     .size = sizeof(rounds),
                                     .factor = read_factor,
                                     .create = take_settings,
                                     .build = build_loss,
                                     .read = read_values};
