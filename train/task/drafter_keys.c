// Checks the keys of a drafter's recipe: each is allowed only with the drafters, heads and losses that read it.
#include "infer/drafter/eagle3.h"
#include "kernels/op/divergence.h"
#include "train/keys.h"
#include "train/task/drafter.h"
#include "train/task/loss.h"

#include <string.h>

// Refuses the first of these keys that the recipe gives.
static pl_status refuse_keys(const pl_recipe *r, const void *const *key, size_t n, const char *why, pl_err *err) {
    for (size_t i = 0; i < n; i++)
        if (pl_recipe_differs(r, key[i]))
            return pl_recipe_fail(r, key[i], err, "%s %s", pl_train_backbone(r)->name, why);
    return PL_OK;
}

// Checks the keys of blocks, depths and steps, which different drafters read.
static pl_status check_blocks(const pl_recipe *r, pl_err *err) {
    const pl_train_recipe  *tr = pl_train_recipe_of(r);
    const pl_backbone_kind *kind = pl_train_backbone(r);
    const void *const       both[] = {&tr->drafter.block, &tr->drafter.mask_token};
    const void *const       depths[] = {&tr->train.depth_ratio, &tr->train.depth_floor};
    const void *const       steps[] = {&tr->train.unroll, &tr->train.eval_steps};
    const void *const       unrolled[] = {&tr->train.top_k, &tr->train.top_weight};
    const void *const       bound[] = {&tr->train.learn_rows};
    const void *const blocks[] = {&tr->drafter.conv.taps,      &tr->drafter.conv.group,  &tr->drafter.anchor_first,
                                  &tr->train.anchors,          &tr->train.draft_weights, &tr->train.pace_alpha,
                                  &tr->train.confidence_weight};
    const void *const masks[] = {&tr->drafter.mask_token,     &tr->drafter.conv.taps,    &tr->drafter.conv.group,
                                 &tr->drafter.anchor_first,   &tr->drafter.intermediate, &tr->drafter.taps,
                                 &tr->train.confidence_weight};
    bool              pace = tr->train.draft_weights == PL_WEIGHTS_PACE;
    int               most = kind->layers ? kind->layers : 1;
    if (tr->drafter.layers > most)
        return pl_recipe_fail(r, &tr->drafter.layers, err, "an %s drafter has at most %d", kind->name, most);
    if (!kind->draft) PL_TRY(refuse_keys(r, both, sizeof both / sizeof *both, "drafts no blocks", err));
    if (!kind->ahead) PL_TRY(refuse_keys(r, depths, 2, "has no depths; this is peagle's", err));
    if (kind->own_heads)
        PL_TRY(refuse_keys(r, masks, sizeof masks / sizeof *masks,
                           "has heads on the target's last hidden state, without masks or taps", err));
    if (kind->draft)
        PL_TRY(refuse_keys(r, steps, 2,
                           "drafts blocks and does not unroll; leave it out (train.unroll: null), drafter.block says "
                           "how many tokens it drafts",
                           err));
    if (kind->draft) PL_TRY(refuse_keys(r, bound, 1, "drafts blocks, whose number train.anchors bounds", err));
    if (tr->train.learn_rows > 0 && tr->train.rows == PL_ROWS_WHOLE)
        return pl_recipe_fail(r, &tr->train.learn_rows, err, "is of train.rows: supervised");
    if (tr->train.top_k == 0 && pl_recipe_differs(r, &tr->train.top_weight))
        return pl_recipe_fail(r, &tr->train.top_weight, err, "is of train.top_k");
    if (!pl_backbone_in_blocks(kind)) {
        PL_TRY(refuse_keys(r, blocks, sizeof blocks / sizeof *blocks, "drafts no blocks", err));
        if (pl_train_head_kind(r)->over_target)
            return pl_recipe_fail(r, &pl_head_recipe_of(r)->kind, err, "%s drafts no blocks; such a head is for those",
                                  kind->name);
        return PL_OK;
    }
    PL_TRY(refuse_keys(r, unrolled, 2, "learns from blocks, without HASS's top-K loss", err));
    if (!pace && pl_recipe_differs(r, &tr->train.pace_alpha))
        return pl_recipe_fail(r, &tr->train.pace_alpha, err, "is of train.draft_weights: d-pace");
    if (pace && tr->train.objective != PL_OBJ_HARD_CE && tr->train.objective != PL_OBJ_SOFT_CE)
        return pl_recipe_fail(r, &tr->train.draft_weights, err,
                              "d-pace weighs by cross-entropy; give train.objective: hard-ce");
    return PL_OK;
}

// Checks that the drafter may have a window, in which each row sees the steps that are unrolled, or its block.
static pl_status check_window(const pl_recipe *r, pl_err *err) {
    const pl_train_recipe  *tr = pl_train_recipe_of(r);
    const pl_backbone_kind *kind = pl_train_backbone(r);
    int64_t                 steps = tr->train.unroll > tr->train.eval_steps ? tr->train.unroll : tr->train.eval_steps;
    if (tr->drafter.window == 0) return PL_OK;
    if (!kind->windows)
        return pl_recipe_fail(r, &tr->drafter.window, err, "%s has no window; it is for eagle3 and dflash", kind->name);
    if (kind->draft && tr->drafter.window < tr->drafter.block)
        return pl_recipe_fail(r, &tr->drafter.window, err, "smaller than drafter.block");
    if (!kind->draft && tr->drafter.window < steps)
        return pl_recipe_fail(r, &tr->drafter.window, err, "smaller than the %lld steps of train.unroll and eval_steps",
                              (long long)steps);
    return PL_OK;
}

// Checks the drafter's width and its own embeddings.
static pl_status check_width(const pl_recipe *r, pl_err *err) {
    const pl_train_recipe *tr = pl_train_recipe_of(r);
    const void *const      keys[] = {&tr->drafter.width, &tr->drafter.own_embeddings};
    if (pl_train_backbone(r)->embeds) return PL_OK;
    return refuse_keys(r, keys, sizeof keys / sizeof *keys, "has the target's width and embeddings", err);
}

// Checks the keys of EAGLE-3 and of drafters derived from it.
static pl_status check_norms(const pl_recipe *r, pl_err *err) {
    const pl_train_recipe *tr = pl_train_recipe_of(r);
    const void *const      norms[] = {&tr->drafter.fc_norm, &tr->drafter.norm_before_fc, &tr->drafter.norm_output,
                                      &tr->drafter.norm_before_residual};
    bool                   eagle3 = pl_train_backbone(r)->step == pl_eagle3_step;
    if (!eagle3) PL_TRY(refuse_keys(r, norms, sizeof norms / sizeof *norms, "has no norms of EAGLE-3.1", err));
    bool one = tr->drafter.layers <= 1 && tr->drafter.width == 0 && !tr->drafter.start;
    if (tr->drafter.layer == PL_LAYER_TARGET && (!eagle3 || pl_train_backbone(r)->ahead || !one))
        return pl_recipe_fail(r, &tr->drafter.layer, err,
                              "is of eagle3 with one layer of the target's width that starts from no other drafter");
    if (pl_train_backbone(r)->ahead && tr->drafter.norm_output)
        return pl_recipe_fail(r, &tr->drafter.norm_output, err, "peagle hands nothing on");
    if (tr->drafter.fc_norm && tr->drafter.norm_before_fc)
        return pl_recipe_fail(r, &tr->drafter.fc_norm, err,
                              "norms what fc reads, and so does norm_before_fc; one of them");
    return PL_OK;
}

pl_status pl_eagle_check_alone(const pl_recipe *r, pl_err *err) {
    const pl_train_recipe *tr = pl_train_recipe_of(r);
    int                    objective = tr->train.objective;
    const struct {
        const void *key;
        bool        read;
        const char *why;
    } keys[] = {{&tr->drafter.bias, pl_train_backbone(r)->predicts_features, "is eagle1's"},
                {&tr->train.noise, pl_train_backbone(r)->predicts_features, "is eagle1's"},
                {&tr->train.token_weight, pl_train_backbone(r)->predicts_features, "is eagle1's"},
                {&tr->train.feature_weight, pl_train_backbone(r)->predicts_features, "is eagle1's"},
                {&tr->train.js_beta, objective == PL_OBJ_JS || tr->train.selector_objective == PL_OBJ_JS,
                 "is of train.objective: js"},
                {&tr->train.lk_decay, objective == PL_OBJ_LK_LAMBDA || tr->train.selector_objective == PL_OBJ_LK_LAMBDA,
                 "is of train.objective: lk-lambda"}};
    for (size_t i = 0; i < sizeof keys / sizeof *keys; i++)
        if (!keys[i].read && pl_recipe_differs(r, keys[i].key))
            return pl_recipe_fail(r, keys[i].key, err, "%s, which this drafter is not; leave it out", keys[i].why);
    if (tr->train.guard.spike == 0 && pl_recipe_differs(r, &tr->train.guard.window))
        return pl_recipe_fail(r, &tr->train.guard.window, err,
                              "is of train.guard.spike, which is 0; give both or none");
    return PL_OK;
}

static pl_status check_selector(const pl_recipe *r, pl_err *err) {
    const pl_train_recipe *tr = pl_train_recipe_of(r);
    bool                   on = tr->drafter.selector.candidates > 0;
    if (!on && tr->drafter.selector.rank > 0)
        return pl_recipe_fail(r, &tr->drafter.selector.rank, err,
                              "of no selector; give drafter.selector.candidates, 16 as published ones have");
    const void *const of_one[] = {&tr->drafter.selector.law, &tr->drafter.selector.kind, &tr->train.selector_weight,
                                  &tr->train.selector_objective};
    const void *const lattice[] = {&tr->drafter.selector.width, &tr->drafter.selector.layers,
                                   &tr->drafter.selector.heads, &tr->drafter.selector.scale};
    bool              blocks = tr->drafter.selector.kind > 0;
    for (size_t i = 0; i < sizeof of_one / sizeof *of_one && !on; i++)
        if (pl_recipe_differs(r, of_one[i]))
            return pl_recipe_fail(r, of_one[i], err, "is of a drafter with drafter.selector");
    for (size_t i = 0; i < sizeof lattice / sizeof *lattice && !blocks; i++)
        if (pl_recipe_differs(r, lattice[i]))
            return pl_recipe_fail(r, lattice[i], err, "is of drafter.selector.kind: " PL_HF_LATTICE);
    if (on && blocks && !pl_train_backbone(r)->context)
        return pl_recipe_fail(r, &tr->drafter.selector.kind, err, "scores the slots of blocks; it is for dflash");
    if (tr->train.selector_objective == PL_OBJ_LABEL)
        return pl_recipe_fail(r, &tr->train.selector_objective, err,
                              "a selector learns from the target; give hard-ce for its choice");
    if (tr->train.draft_weights == PL_WEIGHTS_PACE && tr->train.selector_objective != PL_OBJ_HARD_CE &&
        tr->train.selector_objective != PL_OBJ_SOFT_CE)
        return pl_recipe_fail(r, &tr->train.selector_objective, err,
                              "train.draft_weights: d-pace weighs by cross-entropy; give ce or hard-ce");
    if (on && pl_train_backbone(r)->predicts_features)
        return pl_recipe_fail(r, &tr->drafter.selector.candidates, err,
                              "%s learns features in a selector's place; a selector is for eagle3 and dflash",
                              pl_train_backbone(r)->name);
    if (on && pl_train_backbone(r)->ahead)
        return pl_recipe_fail(r, &tr->drafter.selector.candidates, err,
                              "%s drafts without; a selector is for eagle3 and dflash", pl_train_backbone(r)->name);
    if (on && pl_train_backbone(r)->own_heads)
        return pl_recipe_fail(r, &tr->drafter.selector.candidates, err,
                              "%s has heads of its own, without one; a selector is for eagle3 and dflash",
                              pl_train_backbone(r)->name);
    if (on && pl_train_head_kind(r)->over_target)
        return pl_recipe_fail(r, &tr->drafter.selector.candidates, err,
                              "a head of kind %s reads the token before itself; take another head",
                              pl_train_head_kind(r)->name);
    if (tr->drafter.conv.taps == 0 && pl_recipe_differs(r, &tr->drafter.conv.group))
        return pl_recipe_fail(r, &tr->drafter.conv.group, err,
                              "of no convolution; give drafter.conv.taps, 2 as published ones have");
    return PL_OK;
}

// Refuses the keys of losses that are for other heads.
static pl_status check_losses(const pl_recipe *r, pl_err *err) {
    for (int i = 0; pl_loss_at(i); i++) {
        const pl_loss_kind *l = pl_loss_at(i);
        if (l->suits && !l->suits(pl_train_head_kind(r)))
            PL_TRY(pl_recipe_refuse_table(r, l->keys, NULL, l->suits_what, err));
    }
    return PL_OK;
}

// Checks the rows of a masked teacher, of which only a trimmed head has one.
static pl_status check_masked(const pl_recipe *r, pl_err *err) {
    const pl_train_recipe *tr = pl_train_recipe_of(r);
    if (tr->train.masked_rows == PL_MASKED_DRAFTED) return PL_OK;
    if (!tr->train.masked_teacher)
        return pl_recipe_fail(r, &tr->train.masked_rows, err, "is of train.masked_teacher: true; else all rows count");
    if (!pl_head_recipe_of(r)->vocab)
        return pl_recipe_fail(r, &tr->train.masked_rows, err,
                              "all tokens are drafted and all rows count; give drafter.head.vocab, or leave it out");
    return PL_OK;
}

pl_status pl_eagle_check(const pl_recipe *r, pl_err *err) {
    PL_TRY(check_blocks(r, err));
    PL_TRY(check_width(r, err));
    PL_TRY(check_window(r, err));
    PL_TRY(check_norms(r, err));
    PL_TRY(check_selector(r, err));
    PL_TRY(check_losses(r, err));
    return check_masked(r, err);
}

// Returns row k of a table of keys, of a head's kind or a loss, as a field; NULL past the last, with *k less its rows.
static const void *field_at(const pl_recipe *r, const pl_key *table, int *k) {
    for (const pl_key *row = table; row && row->path; row++)
        if ((*k)-- == 0) return (const char *)pl_recipe_struct(r, table) + row->field.offset;
    return NULL;
}

const void *pl_drafter_field(const pl_recipe *r, int k) {
    static const char *const every[] = {"data.window",     "drafter.kind",          "drafter.head.kind",
                                        "train.slot_rows", "train.on_policy.share", "train.on_policy.temperature"};
    const pl_key *const      tables[] = {pl_train_keys, pl_head_keys};
    const void              *field = NULL;
    for (int t = 0; t < 2; t++)
        for (const pl_key *row = tables[t]; row->path; row++) {
            bool own = row->stages == PL_STAGE_DRAFTER || strcmp(row->path, "train.rows") == 0;
            for (size_t i = 0; i < sizeof every / sizeof *every; i++)
                own = own && strcmp(row->path, every[i]) != 0;
            if (own && k-- == 0) return (const char *)pl_recipe_struct(r, tables[t]) + row->field.offset;
        }
    for (int i = 0; !field && pl_head_at(i); i++)
        if (!pl_head_at(i)->routed) field = field_at(r, pl_head_at(i)->keys, &k);
    for (int i = 0; !field && pl_loss_at(i); i++)
        field = field_at(r, pl_loss_at(i)->keys, &k);
    return field;
}
