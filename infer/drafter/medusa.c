// Medusa-1 (Cai et al. 2024, arXiv 2401.10774, section 2.1): K heads on a frozen target, each of which drafts one token
// from the target's last hidden state, after its final norm, of the last position whose next token is known:
//
//   y_k = h_t + SiLU(W_k h_t + b_k),   logits_k = head_k(y_k): token t + 2 + k          k = 0 .. K - 1
//   blocks.K.layers.0.weight [d, d], .bias [d]     W and b, which start at 0: each head starts as the target's own
// head_k is any kind that reads y alone: a matrix of all tokens that starts as the target's, a trimmed or a low-rank
// one; its tensors are named heads.K.NAME, the first head's NAME. No head reads token t + 1 or a draft, so every node
// of a level has the same candidates and any tree is a product of the heads' best tokens (infer/drafter/block.c). Draft
// k of row t learns from the teacher's row t + 1 + k with the weight step_decay^k, the paper's lambda_k = 0.8^k
// (train/task/rows_blocks.c). There is no cache: a draft reads one row of features.
#include "infer/drafter/medusa.h"

#include "kernels/op/elementwise.h"
#include "kernels/op/linear.h"
#include "kernels/tape.h"

#include <stdio.h>
#include <string.h>

#define HEADS 5 // heads of a new drafter, the most that the paper finds useful

typedef struct medusa {
    pl_backbone base;
    pl_tensor   w[PL_MAX_UNROLL], b[PL_MAX_UNROLL]; // [d, d], [d]
} medusa;

static void configure(pl_hf_config *c, const pl_llama *target, const pl_backbone_options *o) {
    (void)target;
    c->block = (pl_hf_block){.size = o->block > 0 ? o->block : HEADS, .anchor_first = true};
    c->n_taps = o->n_taps; // refused by check
}

pl_status pl_medusa_check(pl_hf_config *c, const pl_llama *target, const char *where, pl_err *err) {
    const pl_head_kind *head = pl_head_find(*c->head.kind ? c->head.kind : "full", err);
    (void)target;
    if (!head) return PL_E_INPUT;
    if (c->block.size < 1 || c->block.size > PL_MAX_UNROLL)
        return pl_fail(err, PL_E_INPUT, "%s: %d heads, expected 1 to %d", where, c->block.size, PL_MAX_UNROLL);
    if (c->n_taps || pl_hf_norms(c))
        return pl_fail(err, PL_E_INPUT, "%s: taps and norms of EAGLE-3; a %s drafter reads the last hidden state",
                       where, c->backbone_name);
    if (head->routed || head->shortlisted || head->over_target)
        return pl_fail(err, PL_E_UNSUPPORTED, "%s: %s has no heads of kind \"%s\"; take full or lowrank", where,
                       c->backbone_name, head->name);
    if (c->selector.candidates > 0)
        return pl_fail(err, PL_E_UNSUPPORTED, "%s: a selector, which %s has none of", where, c->backbone_name);
    return PL_OK;
}

static void init(pl_backbone *b) {
    medusa *m = (medusa *)b;
    int64_t d = b->shape.d;
    b->layers = 0;
    b->n_taps = 1;
    b->tap[0] = PL_TAP_FINAL;
    for (int k = 0; k < b->drafts; k++) {
        char name[64];
        snprintf(name, sizeof name, "blocks.%d.layers.0.weight", k);
        pl_params_weight(&b->params, &m->w[k], PL_PARAM_MATRIX, name, d, d, 0);
        snprintf(name, sizeof name, "blocks.%d.layers.0.bias", k);
        pl_params_weight(&b->params, &m->b[k], PL_PARAM_BIAS, name, d, 0, 0);
    }
}

bool pl_medusa_ignores(const char *name) {
    return strcmp(name, "d2t") == 0 || strcmp(name, "t2d") == 0;
}

// One head's block as a stretch of the tape.
typedef struct block_run {
    const medusa *m;
    pl_tensor     x, y; // [n, d]
    int           k;
} block_run;

static void run_block(pl_ctx *ctx, const void *arg, pl_tensor *out) {
    const block_run *r = arg;
    pl_tensor        z = pl_bias(ctx, pl_linear(ctx, r->x, r->m->w[r->k]), r->m->b[r->k]);
    out[0] = pl_add(ctx, r->x, pl_silu(ctx, z), r->y);
}

static pl_tensor draft(pl_ctx *ctx, const pl_backbone *b, const pl_block_view *v) {
    int64_t n = v->m / b->block;
    if (n == 0) return (pl_tensor){0};
    pl_tensor x = pl_gather(ctx, v->features, v->anchor, n), y = pl_ctx_tensor(ctx, v->m, b->shape.d);
    int32_t  *row = pl_ctx_bytes(ctx, (size_t)v->m * sizeof *row);
    for (int k = 0; k < b->block; k++) {
        block_run r = {.m = (const medusa *)b, .x = x, .y = pl_tensor_slice(&y, k * n, n), .k = k};
        pl_tensor out[1] = {r.y};
        if (v->rerun)
            pl_tape_stretch(ctx, run_block, &r, sizeof r, out, 1);
        else
            run_block(ctx, &r, out);
        for (int64_t i = 0; i < n && !ctx->measuring; i++)
            row[i * b->block + k] = (int32_t)(k * n + i);
    }
    return pl_gather(ctx, y, row, v->m);
}

const pl_backbone_kind pl_backbone_medusa = {.name = "medusa",
                                             .which = PL_HF_OTHER,
                                             .size = sizeof(medusa),
                                             .own_heads = true,
                                             .configure = configure,
                                             .check = pl_medusa_check,
                                             .init = init,
                                             .draft = draft,
                                             .ignores = pl_medusa_ignores};
