// P-EAGLE (arXiv 2602.01469): EAGLE-3 that drafts all depths in one forward. Depth 0 is EAGLE-3's row: the target's
// features of position t and the token after it. Each further depth is a row of a mask token at the next position, with
// learned features that all masks share (mask_hidden):
//
//   hidden_d = fc mask_hidden, token_d = mask                  d = 1 .. K - 1, position t + d
//   row (t, d) sees the rows (s, 0), s <= t, and (t, 1) .. (t, d);   logits_d = head(norm(h_d)): token t + 2 + d
// A depth's distribution does not depend on the other depths' drafts. Training runs the same rows as steps of an unroll
// (train/task/unroll.h). norm_output has no effect: no state is fed back. Published drafters train their own
// embeddings, in which the mask token's row serves masks alone.
#include "infer/drafter/eagle3.h"

#include "kernels/op/elementwise.h"

#include <stdio.h>

#define DEPTHS 8 // depths of a new drafter, as in published ones

typedef struct pl_peagle {
    pl_eagle3 base;
    pl_tensor mask_hidden; // [1, n_taps * d_target]
} pl_peagle;

static void configure(pl_hf_config *c, const pl_llama *target, const pl_backbone_options *o) {
    pl_eagle3_configure(c, target, o);
    bool published = pl_head_find(c->head.kind, NULL)->published;
    snprintf(c->architecture, sizeof c->architecture, "%s", published ? "PEagleDraftModel" : "PacelinePEagle");
    c->block =
        (pl_hf_block){.size = o->block > 0 ? o->block : DEPTHS, .mask_token = o->mask_token, .anchor_first = true};
}

static pl_status check(pl_hf_config *c, const pl_llama *target, const char *where, pl_err *err) {
    const pl_head_kind *head = pl_head_find(*c->head.kind ? c->head.kind : "full", err);
    if (!head) return PL_E_INPUT;
    if (c->block.size < 2 || c->block.size > PL_MAX_UNROLL)
        return pl_fail(err, PL_E_INPUT, "%s: %d depths, expected 2 to %d", where, c->block.size, PL_MAX_UNROLL);
    if (c->block.mask_token < 0 || c->block.mask_token >= target->vocab)
        return pl_fail(err, PL_E_INPUT, "%s: mask token %d is none of the target's %lld", where, c->block.mask_token,
                       (long long)target->vocab);
    if (c->norm_output) return pl_fail(err, PL_E_UNSUPPORTED, "%s: norm_output, but P-EAGLE hands nothing on", where);
    if (head->routed || head->shortlisted || head->over_target)
        return pl_fail(err, PL_E_UNSUPPORTED, "%s: P-EAGLE has no head of kind \"%s\"; take full or lowrank", where,
                       head->name);
    return pl_eagle3_check(c, target, where, err);
}

static void init(pl_backbone *b) {
    pl_eagle3_init(b);
    pl_params_weight(&b->params, &((pl_peagle *)b)->mask_hidden, PL_PARAM_EMBED, "mask_hidden", 1,
                     b->n_taps * b->d_target, 1);
}

// Returns the state [1, d] that all masks share.
static pl_tensor mask_state(pl_ctx *ctx, const pl_backbone *b) {
    int32_t *first = pl_ctx_bytes(ctx, sizeof *first);
    if (!ctx->measuring) *first = 0;
    return pl_eagle3_fuse(ctx, b, pl_embed(ctx, ((const pl_peagle *)b)->mask_hidden, first, 1));
}

static pl_tensor ahead(pl_ctx *ctx, const pl_backbone *b, int64_t m) {
    int32_t *row = pl_ctx_bytes(ctx, (size_t)m * sizeof *row);
    for (int64_t i = 0; i < m && !ctx->measuring; i++)
        row[i] = 0;
    return pl_gather(ctx, mask_state(ctx, b), row, m);
}

// Concatenates context rows and masks: the sum of both, each padded with zeros in the other's rows.
static pl_tensor join_states(pl_ctx *ctx, const pl_backbone *b, const pl_block_view *v) {
    int64_t   context = pl_tensor_rows(&v->features), n = context + v->m;
    pl_tensor fused = pl_eagle3_fuse(ctx, b, v->features);
    if (v->m == 0) return fused;
    int32_t *real = pl_ctx_bytes(ctx, (size_t)n * sizeof *real), *mask = pl_ctx_bytes(ctx, (size_t)n * sizeof *mask);
    for (int64_t i = 0; i < n && !ctx->measuring; i++) {
        real[i] = i < context ? (int32_t)i : -1;
        mask[i] = i < context ? -1 : 0;
    }
    return pl_add(ctx, pl_gather(ctx, fused, real, n), pl_gather(ctx, mask_state(ctx, b), mask, n), (pl_tensor){0});
}

static pl_tensor draft(pl_ctx *ctx, const pl_backbone *b, const pl_block_view *v) {
    int64_t   context = pl_tensor_rows(&v->features), blocks = b->masks > 0 ? v->m / b->masks : 0;
    pl_view   view = {.pos = v->context_pos, .cos = b->cos, .sin = b->sin, .row = v->context_row, .m = context + v->m};
    pl_tensor hidden,
        y = pl_eagle3_step(ctx, b, v->context_token, join_states(ctx, b, v), &view, &hidden, (pl_tensor){0});
    int32_t *row = pl_ctx_bytes(ctx, (size_t)(blocks * b->block) * sizeof *row);
    for (int64_t i = 0; i < blocks * b->block && !ctx->measuring; i++) {
        int64_t of = i / b->block, slot = i % b->block;
        row[i] = slot ? (int32_t)(context + of * b->masks + slot - 1) : v->anchor[of];
    }
    return v->m > 0 ? pl_gather(ctx, y, row, blocks * b->block) : (pl_tensor){0};
}

const pl_backbone_kind pl_backbone_peagle = {.name = "peagle",
                                             .which = PL_HF_PEAGLE,
                                             .size = sizeof(pl_peagle),
                                             .layers = PL_STEP_LAYERS,
                                             .embeds = true,
                                             .configure = configure,
                                             .check = check,
                                             .taps = pl_eagle3_taps,
                                             .init = init,
                                             .fuse = pl_eagle3_fuse,
                                             .step = pl_eagle3_step,
                                             .ahead = ahead,
                                             .draft = draft,
                                             .gains = pl_eagle3_gains,
                                             .fuse_only = pl_eagle3_fuse_only};
