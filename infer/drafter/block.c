// A block drafter: takes in final rows, with the target's features as keys and values of its layers (P-EAGLE: as rows
// of them), and drafts all slots of a block in one forward (infer/drafter/backbone.h: `draft`). A head that reads y
// alone runs once over all requested slots, with one synchronisation; a head whose distribution depends on the previous
// token (infer/head/markov.c, a selector, Hydra's) runs level by level, one row per node and one synchronisation per
// level.
//
// Cache of a session, for each layer: position t holds the context row of token t. After the rows up to t = n-2 are in
// (n tokens committed) the anchor is token n-1; the block's own rows take positions n-1 .. n-2+B and are overwritten by
// the next call's final rows. If all layers have a window, the last positions alone are in memory (infer/model/kv.h).
// With a head that reads y alone, the distribution of a level does not depend on the tokens drafted before it, so every
// node of a level has the same candidates, whatever the tree; children are drawn from each node's distribution as for
// any drafter.
#include "infer/drafter/backbone.h"
#include "infer/drafter/drafter.h"
#include "infer/model/kv.h"
#include "kernels/base/check.h"
#include "kernels/op/elementwise.h"
#include "kernels/op/linear.h"
#include "kernels/op/topk.h"

#include <math.h>

#include <string.h>

typedef struct block_drafter {
    pl_drafter         base;
    pl_drafter_kind    kind; // with the backbone's name
    const pl_backbone *model;
    pl_backbone       *owned;     // set if this drafter opened the model
    pl_kv             *kv;        // [max_sessions]
    int               *which;     // [max_sessions] indices of the items that draft
    int                n, levels; // number of drafting items; levels of the deepest
    // Candidates, by level, then by drafting session.
    int32_t           *id; // [levels * n, k]
    float             *value, *lse;
    // One level of one tree: [width, k], [width].
    int32_t           *node_id;
    float             *node_logp;
    int               *next;
    int               *frontier, *n_frontier; // [max_sessions, width], [max_sessions], by drafting session
    int               *row;                   // [max_sessions, PL_TREE_GROWN] row of a node within its level
} block_drafter;

// ---- rows -----------------------------------------------------------------------------------------------------------

static int levels_of(const block_drafter *d, const pl_draft_item *it) {
    int depth = it->depth < d->base.policy.depth ? it->depth : d->base.policy.depth;
    return depth < d->model->drafts ? depth : d->model->drafts;
}

// Lists the items that draft, and sets their largest depth.
static void choose_items(block_drafter *d, const pl_ctx *ctx, const pl_draft_batch *b) {
    d->n = ctx->measuring ? d->base.max_sessions : 0;
    d->levels = ctx->measuring ? d->model->drafts : 0;
    for (int i = 0; i < b->n; i++) {
        int levels = b->item[i].tree ? levels_of(d, &b->item[i]) : 0;
        if (levels == 0) continue;
        d->which[d->n++] = i;
        if (levels > d->levels) d->levels = levels;
    }
}

// Clamps a position to the rotary tables; rows past them are never emitted.
static int32_t clamp_position(const block_drafter *d, int32_t pos) {
    int32_t last = (int32_t)d->model->cos.dim[0] - 1;
    return pos < last ? pos : last;
}

// Index arrays of rows; for kinds with `ahead` the blocks' rows follow the context's.
typedef struct row_arrays {
    int32_t  *token, *pos; // token NULL: context rows have none
    pl_kvrow *row;
    int       n, all; // number of context rows; total, which is the stride of `row`
} row_arrays;

static row_arrays context_rows(block_drafter *d, pl_ctx *ctx, const pl_draft_batch *b, pl_block_view *v) {
    bool       ahead = d->model->kind->ahead != NULL;
    row_arrays a = {.n = ctx->measuring ? d->base.max_rows : 0};
    for (int i = 0; i < b->n; i++)
        a.n += b->item[i].count;
    a.all = a.n + (ahead ? d->n * d->model->masks : 0);
    size_t   all = (size_t)a.all;
    int32_t *feature = pl_ctx_bytes(ctx, (size_t)a.n * sizeof *feature);
    a.pos = pl_ctx_bytes(ctx, all * sizeof *a.pos);
    a.token = ahead ? pl_ctx_bytes(ctx, all * sizeof *a.token) : NULL;
    a.row = pl_ctx_bytes(ctx, all * (size_t)d->model->layers * sizeof *a.row);
    int32_t *last = pl_ctx_bytes(ctx, (size_t)d->n * sizeof *last);
    for (int i = 0, m = 0, s = 0; i < b->n; i++) {
        const pl_draft_item *it = &b->item[i];
        pl_kv_reach(ctx, &d->kv[it->slot], it->first, it->count, d->model->block);
        for (int j = 0; j < it->count; j++, m++) {
            feature[m] = it->feature_row[j];
            a.pos[m] = it->first + j;
            if (ahead) a.token[m] = it->tokens[a.pos[m] + 1];
            pl_kv_row(&d->kv[it->slot], a.row + m, a.all, it->first, NULL, j + 1, a.pos[m]);
        }
        if (!ctx->measuring && s < d->n && d->which[s] == i) last[s++] = m - 1;
    }
    v->features = pl_gather(ctx, b->features, feature, a.n);
    v->context_pos = a.pos;
    v->context_token = a.token;
    v->context_row = a.row;
    v->anchor = last;
    return a;
}

// Adds the masks of each drafting session, which attend to its rows up to the last known one and to earlier masks.
static void mask_rows(block_drafter *d, pl_ctx *ctx, const pl_draft_batch *b, const row_arrays *a) {
    int masks = d->model->masks;
    for (int s = 0; s < d->n && !ctx->measuring; s++) {
        const pl_draft_item *it = &b->item[d->which[s]];
        for (int j = 1; j <= masks; j++) {
            int     m = a->n + s * masks + j - 1;
            int32_t slot = it->n_tokens - 2 + j;
            a->token[m] = d->model->config.block.mask_token;
            a->pos[m] = clamp_position(d, slot);
            pl_kv_row(&d->kv[it->slot], a->row + m, a->all, it->first, NULL, it->count + j, slot);
        }
    }
}

static void block_rows(block_drafter *d, pl_ctx *ctx, const pl_draft_batch *b, pl_block_view *v) {
    int       block = d->model->block, rows = d->n * block;
    size_t    n = (size_t)rows;
    int32_t  *token = pl_ctx_bytes(ctx, n * sizeof *token), *pos = pl_ctx_bytes(ctx, n * sizeof *pos);
    pl_kvrow *row = pl_ctx_bytes(ctx, n * (size_t)d->model->layers * sizeof *row);
    for (int m = 0; m < rows && !ctx->measuring; m++) {
        const pl_draft_item *it = &b->item[d->which[m / block]];
        int32_t              anchor = it->n_tokens - 1, at = anchor + m % block;
        token[m] = at == anchor ? it->tokens[anchor] : d->model->config.block.mask_token;
        pos[m] = clamp_position(d, at);
        pl_backbone_slot_row(d->model, &d->kv[it->slot], row + m, rows, anchor, at);
    }
    v->token = token;
    v->pos = pos;
    v->row = row;
}

// ---- candidates -----------------------------------------------------------------------------------------------------

// Gathers the head's inputs at levels [from, to): one row of y for each drafting session.
static pl_head_rows rows_of_levels(block_drafter *d, pl_ctx *ctx, const pl_draft_batch *b, pl_tensor y, int from,
                                   int to) {
    int      rows = (to - from) * d->n;
    int32_t *index = pl_ctx_bytes(ctx, (size_t)rows * sizeof *index);
    int32_t *group = pl_ctx_bytes(ctx, (size_t)rows * sizeof *group);
    int32_t *token = pl_ctx_bytes(ctx, (size_t)rows * sizeof *token);
    for (int i = 0; i < rows && !ctx->measuring; i++) {
        const pl_draft_item *it = &b->item[d->which[i % d->n]];
        index[i] = i % d->n * d->model->block + d->model->first + from + i / d->n;
        group[i] = d->which[i % d->n];
        token[i] = it->tokens[it->n_tokens - 1];
    }
    return (pl_head_rows){.x = pl_gather(ctx, y, index, rows), .level = from, .token = token, .group = group};
}

// Chooses the best candidates of levels [from, to) by head h.
static void choose_best(block_drafter *d, pl_ctx *ctx, const pl_head *h, const pl_head_rows *r, int from) {
    int k = d->base.policy.k, at = from * d->n;
    pl_head_topk(ctx, h, r, k, d->id + (size_t)at * (size_t)k, d->value + (size_t)at * (size_t)k,
                 d->base.policy.needs_logp ? d->lse + at : NULL);
}

// Returns true if any session draws its candidates (draws), or takes the best (not draws).
static bool any_item(const block_drafter *d, const pl_ctx *ctx, const pl_draft_batch *b, bool draws) {
    for (int i = 0; i < d->n && !ctx->measuring; i++)
        if ((b->item[d->which[i]].proposing != NULL) == draws) return true;
    return ctx->measuring;
}

// Computes the candidates of all levels, in as few head calls as heads and budgets allow; returns logits
// [levels * n, Vd] if children are drawn.
static const float *find_candidates(block_drafter *d, pl_ctx *ctx, const pl_draft_batch *b, pl_tensor y) {
    const pl_head *h = &d->model->head;
    size_t         rows = (size_t)(d->levels * d->n), k = (size_t)d->base.policy.k;
    int            step = h->position_aware || d->base.watch || d->model->more ? 1 : d->levels;
    float         *logits = NULL;
    bool           chooses = any_item(d, ctx, b, false), draws = any_item(d, ctx, b, true);
    d->id = pl_ctx_bytes(ctx, rows * k * sizeof *d->id);
    d->value = pl_ctx_bytes(ctx, rows * k * sizeof *d->value);
    d->lse = pl_ctx_bytes(ctx, rows * sizeof *d->lse);
    if (draws && step < d->levels) logits = pl_ctx_bytes(ctx, rows * (size_t)h->vocab * sizeof *logits);
    for (int level = 0; level < d->levels; level += step) {
        pl_head_rows r = rows_of_levels(d, ctx, b, y, level, level + step);
        h = pl_backbone_head(d->model, level);
        if (d->base.watch) d->base.watch->see(d->base.watch, ctx, h, &r);
        if (chooses) choose_best(d, ctx, h, &r, level);
        if (!draws) continue;
        pl_tensor z = pl_head_logits(ctx, h, &r);
        size_t    n = (size_t)(step * d->n) * (size_t)h->vocab;
        if (z.data && logits) memcpy(logits + (size_t)(level * d->n) * (size_t)h->vocab, z.data, n * sizeof *logits);
        if (!logits) logits = z.data ? pl_f32(&z) : NULL;
    }
    return logits;
}

// ---- trees ----------------------------------------------------------------------------------------------------------

// Offers the chosen candidates in `row` to the i-th node of a level.
static void offer_best(block_drafter *d, int row, int i) {
    const int32_t *d2t = d->model->head.d2t;
    int            k = d->base.policy.k;
    for (int j = 0; j < k; j++) {
        int32_t id = d->id[row * k + j];
        d->node_id[i * k + j] = d2t && id >= 0 ? d2t[id] : id;
        d->node_logp[i * k + j] = d->base.policy.needs_logp ? d->value[row * k + j] - d->lse[row] : 0;
    }
}

// Draws the children of the i-th node of a level from its distribution.
static void offer_drawn(block_drafter *d, pl_draft_item *it, int node, const float *logits, int i) {
    const pl_tree_policy *p = &d->base.policy;
    pl_drafted            drafted = pl_head_drafted(&d->model->head);
    int                   wanted = pl_tree_wanted(p, it->tree, node);
    for (int j = wanted; j < p->k; j++)
        d->node_id[i * p->k + j] = -1;
    pl_propose_draw(it->proposing, it->tree, node, logits, &drafted, wanted, d->node_id + i * p->k,
                    d->node_logp + i * p->k);
}

// Gives the i-th node no candidates: nothing is drafted after it.
static void offer_none(block_drafter *d, int i) {
    for (int j = 0; j < d->base.policy.k; j++)
        d->node_id[i * d->base.policy.k + j] = -1;
}

// Grows one level of one tree from the candidates offered to its frontier.
static void grow_level(block_drafter *d, pl_draft_item *it, int session, int level) {
    const pl_tree_policy *p = &d->base.policy;
    int                  *frontier = d->frontier + session * p->width;
    d->n_frontier[session] =
        p->kind->grow(p, it->tree, level, frontier, d->n_frontier[session], d->node_id, d->node_logp, d->next);
    memcpy(frontier, d->next, (size_t)p->width * sizeof *frontier);
}

static void begin_trees(block_drafter *d) {
    for (int i = 0; i < d->n; i++) {
        d->n_frontier[i] = 1;
        d->frontier[i * d->base.policy.width] = 0;
    }
}

// Returns true if a session's tree has nodes at this level that may get children.
static bool goes_on(const block_drafter *d, const pl_draft_item *it, int session, int level) {
    return d->n_frontier[session] > 0 && level < levels_of(d, it);
}

// Grows all levels of one tree; every node of a level has the same distribution.
static void grow_all(block_drafter *d, pl_draft_item *it, int session, const float *logits) {
    int64_t vocab = d->model->head.vocab;
    for (int level = 0; goes_on(d, it, session, level); level++) {
        int row = level * d->n + session;
        for (int i = 0; i < d->n_frontier[session]; i++)
            if (it->proposing)
                offer_drawn(d, it, d->frontier[session * d->base.policy.width + i], logits + row * vocab, i);
            else
                offer_best(d, row, i);
        grow_level(d, it, session, level);
    }
}

// ---- level by level -------------------------------------------------------------------------------------------------

// Gathers rows of a selector's list; call after a synchronisation.
static pl_selector_list list_of(const block_drafter *d, pl_ctx *ctx, const pl_selector_list *all, const int32_t *index,
                                int rows) {
    size_t   k = (size_t)d->model->head.selector.candidates, n = (size_t)rows * k;
    int32_t *id = pl_ctx_bytes(ctx, n * sizeof *id);
    float   *value = pl_ctx_bytes(ctx, n * sizeof *value);
    for (int i = 0; i < rows && !ctx->measuring; i++) {
        memcpy(id + (size_t)i * k, all->id + (size_t)index[i] * k, k * sizeof *id);
        memcpy(value + (size_t)i * k, all->value + (size_t)index[i] * k, k * sizeof *value);
    }
    pl_selector_list some = *all;
    some.id = id;
    some.value = value;
    some.row = index;
    return some;
}

// For heads whose distribution depends on the previous token: gathers one row per node that the trees expand at this
// level. `all` holds the part that depends on slots alone, base [levels * n, Vd] or list, for every level (where drafts
// follow each other, x of the first level alone); state: the state after the previous level's rows.
static pl_head_rows rows_of_nodes(block_drafter *d, pl_ctx *ctx, const pl_draft_batch *b, const pl_head_rows *all,
                                  const pl_tensor *state, int level, int *rows) {
    size_t   most = (size_t)d->n * (size_t)d->base.policy.width;
    int32_t *index = pl_ctx_bytes(ctx, most * sizeof *index), *token = pl_ctx_bytes(ctx, most * sizeof *token);
    int32_t *group = pl_ctx_bytes(ctx, most * sizeof *group), *parent = pl_ctx_bytes(ctx, most * sizeof *parent);
    int32_t *block = pl_ctx_bytes(ctx, most * sizeof *block);
    *rows = ctx->measuring ? (int)most : 0;
    for (int i = 0; i < d->n && !ctx->measuring; i++) {
        const pl_draft_item *it = &b->item[d->which[i]];
        int                 *row = d->row + (ptrdiff_t)i * PL_TREE_GROWN;
        for (int f = 0; goes_on(d, it, i, level) && f < d->n_frontier[i]; f++, ++*rows) {
            int node = d->frontier[i * d->base.policy.width + f];
            index[*rows] = level * d->n + i;
            token[*rows] = it->tree->token[node];
            group[*rows] = d->which[i];
            block[*rows] = i;
            parent[*rows] = level > 0 ? row[it->tree->parent[node]] : 0;
            row[node] = *rows;
        }
    }
    if (*rows == 0) return (pl_head_rows){0};
    pl_head_rows r = {.level = level, .token = token, .group = group, .blocks = all->blocks, .block = block};
    if (level == 0 || !d->model->kind->follow) r.x = pl_gather(ctx, all->x, index, *rows);
    if (level > 0 && state->data) r.state = pl_gather(ctx, *state, parent, *rows);
    if (d->model->head.kind->over_target) r.base = pl_gather(ctx, all->base, index, *rows);
    if (pl_selector_listed(&all->list)) r.list = list_of(d, ctx, &all->list, index, *rows);
    return r;
}

// Computes what the rows of a level owe to the tokens before them: the state of the head, or of the backbone with the
// head's input.
static void carry_rows(const block_drafter *d, pl_ctx *ctx, const pl_head *h, pl_head_rows *r) {
    pl_follow_view v = {.draft = r->level, .state = r->level > 0 ? r->state : r->x, .token = r->token};
    if (d->model->kind->follow)
        r->x = d->model->kind->follow(ctx, d->model, &v, &r->after);
    else
        pl_head_carry(ctx, h, r);
}

// Returns [rows] logits of the head's confidence; NULL if drafts are not cut by it.
static const float *read_confidence(const block_drafter *d, pl_ctx *ctx, const pl_head_rows *r) {
    const pl_head *h = &d->model->head;
    if (pl_sequence_least_confidence(h) <= 0) return NULL;
    pl_tensor c = h->kind->sequence->confidence(ctx, h, r);
    c.data = pl_ctx_read(ctx, &c);
    return c.data ? pl_f32(&c) : NULL;
}

static void offer_level(block_drafter *d, pl_draft_batch *b, int level, const float *sure, const float *logits) {
    double least = pl_sequence_least_confidence(&d->model->head);
    for (int i = 0, row = 0; i < d->n; i++) {
        pl_draft_item *it = &b->item[d->which[i]];
        if (!goes_on(d, it, i, level)) continue;
        for (int f = 0; f < d->n_frontier[i]; f++, row++) {
            if (sure && 1 / (1 + exp(-(double)sure[row])) < least)
                offer_none(d, f);
            else if (it->proposing)
                offer_drawn(d, it, d->frontier[i * d->base.policy.width + f], logits + row * d->model->head.vocab, f);
            else
                offer_best(d, row, f);
        }
        grow_level(d, it, i, level);
    }
}

static pl_head_blocks blocks_of(const block_drafter *d, pl_ctx *ctx, const pl_draft_batch *b, pl_tensor y,
                                pl_tensor context) {
    int32_t *before = pl_ctx_bytes(ctx, (size_t)d->n * sizeof *before);
    for (int i = 0; i < d->n && !ctx->measuring; i++) {
        const pl_draft_item *it = &b->item[d->which[i]];
        before[i] = it->tokens[it->n_tokens > 1 ? it->n_tokens - 2 : 0];
    }
    return (pl_head_blocks){
        .y = y, .slots = d->model->block, .first = d->model->first, .before = before, .context = context};
}

static void draft_stepwise(block_drafter *d, pl_ctx *ctx, pl_draft_batch *b, pl_head_rows all) {
    const pl_head *h = &d->model->head;
    bool           chooses = any_item(d, ctx, b, false), draws = any_item(d, ctx, b, true);
    size_t         most = (size_t)d->n * (size_t)d->base.policy.width, k = (size_t)d->base.policy.k;
    double         at = pl_now();
    pl_tensor      state = {0};
    if (h->selector.candidates > 0 && !h->position_aware) { // otherwise each level reads rows of its own
        all.list = pl_head_list(ctx, h, &all, draws);
        if (!pl_ctx_wait(ctx) && !ctx->measuring) return;
    }
    for (int level = 0; level < d->levels; level++) {
        int          rows;
        pl_head_rows r = rows_of_nodes(d, ctx, b, &all, &state, level, &rows);
        if (rows == 0) break;
        h = pl_backbone_head(d->model, level);
        carry_rows(d, ctx, h, &r);
        state = r.after;
        d->id = pl_ctx_bytes(ctx, most * k * sizeof *d->id);
        d->value = pl_ctx_bytes(ctx, most * k * sizeof *d->value);
        d->lse = pl_ctx_bytes(ctx, most * sizeof *d->lse);
        if (d->base.watch) d->base.watch->see(d->base.watch, ctx, h, &r);
        if (chooses) choose_best(d, ctx, h, &r, 0);
        pl_tensor    z = draws ? pl_head_logits(ctx, h, &r) : (pl_tensor){0};
        const float *sure = read_confidence(d, ctx, &r);
        bool         there = pl_ctx_wait(ctx);
        pl_draft_lap(&d->base.parts.head, &at);
        if (there) offer_level(d, b, level, sure, z.data ? pl_f32(&z) : NULL);
        if (!there && !ctx->measuring) return;
        pl_draft_lap(&d->base.parts.draw, &at);
    }
}

// Drafts all levels at once: one synchronisation, then the trees.
static void draft_at_once(block_drafter *d, pl_ctx *ctx, pl_draft_batch *b, pl_tensor y) {
    double       at = pl_now();
    const float *logits = find_candidates(d, ctx, b, y);
    bool         there = pl_ctx_wait(ctx);
    pl_draft_lap(&d->base.parts.head, &at);
    for (int i = 0; i < d->n && there; i++)
        grow_all(d, &b->item[d->which[i]], i, logits);
    pl_draft_lap(&d->base.parts.draw, &at);
}

// ---- all slots at once, pass by pass -------------------------------------------------------------------------------

// Returns true if every session takes a chain of best tokens, which a head refines in passes.
static bool refines(const block_drafter *d, const pl_ctx *ctx, const pl_draft_batch *b) {
    const pl_tree_policy *p = &d->base.policy;
    return pl_sequence_passes(&d->model->head) > 0 && p->width == 1 && p->k == 1 && !d->base.watch &&
           (ctx->measuring || !any_item(d, ctx, b, true));
}

// Returns an array of the anchors and, draft after draft, the best token of each slot: from its begin on, the tokens
// before the slots. d->id is where the latter go.
static const int32_t *begin_pass(block_drafter *d, pl_ctx *ctx, const int32_t *anchor, size_t rows) {
    int32_t *token = pl_ctx_bytes(ctx, (rows + (size_t)d->n) * sizeof *token);
    for (int i = 0; i < d->n && !ctx->measuring; i++)
        token[i] = anchor[i];
    d->id = token + d->n;
    return token;
}

// Drafts chains by Jacobi's iteration: each pass reads the best tokens of the one before as the tokens before its
// slots. The host waits after each: indices are read when an op is queued.
static void draft_in_passes(block_drafter *d, pl_ctx *ctx, pl_draft_batch *b, pl_head_rows all) {
    const pl_head *h = &d->model->head;
    size_t         rows = (size_t)(d->levels * d->n);
    double         at = pl_now();
    const int32_t *anchor = all.token;
    d->value = pl_ctx_bytes(ctx, rows * sizeof *d->value);
    d->lse = pl_ctx_bytes(ctx, rows * sizeof *d->lse);
    all.token = begin_pass(d, ctx, anchor, rows);
    all.levels = d->levels;
    pl_topk(ctx, &(pl_topk_args){.x = all.base, .k = 1, .id = d->id});
    for (int pass = pl_sequence_passes(h); pass > 0; pass--) {
        const int32_t *next = begin_pass(d, ctx, anchor, rows);
        if (!pl_ctx_wait(ctx) && !ctx->measuring) return;
        choose_best(d, ctx, h, &all, 0);
        all.token = next;
    }
    bool there = pl_ctx_wait(ctx);
    pl_draft_lap(&d->base.parts.head, &at);
    for (int i = 0; i < d->n && there; i++)
        grow_all(d, &b->item[d->which[i]], i, NULL);
    pl_draft_lap(&d->base.parts.draw, &at);
}

// Drafts by a head or a selector that reads the tokens before.
static void draft_in_sequence(block_drafter *d, pl_ctx *ctx, pl_draft_batch *b, pl_tensor y, pl_tensor context) {
    const pl_head *h = &d->model->head;
    bool           whole = h->selector.candidates > 0 && h->selector.kind->blocks;
    pl_head_blocks blocks = blocks_of(d, ctx, b, y, context);
    pl_head_rows   all = rows_of_levels(d, ctx, b, y, 0, whole ? d->model->drafts : d->levels);
    all.blocks = &blocks;
    all.embed = d->model->embed;
    pl_sequence_prepare(ctx, h, &blocks);
    if (h->kind->over_target) all.base = pl_linear(ctx, all.x, h->out);
    if (!ctx->measuring && refines(d, ctx, b)) {
        draft_in_passes(d, ctx, b, all);
        return;
    }
    draft_stepwise(d, ctx, b, all);
    if (ctx->measuring && refines(d, ctx, b)) draft_in_passes(d, ctx, b, all);
}

// On a measuring context this is the largest call: max_rows rows taken in, and every session drafting all slots.
static void propose(pl_drafter *base, pl_ctx *ctx, pl_draft_batch *b) {
    static const double first_level[PL_TREE_MAX] = {1}; // drafting costs the same at any depth, so level 0 gets all of
                                                        // it
    block_drafter      *d = (block_drafter *)base;
    double              began = pl_now(), at = began;
    pl_block_view       v = {0};
    choose_items(d, ctx, b);
    row_arrays context = context_rows(d, ctx, b, &v);
    v.m = d->n * d->model->masks;
    if (d->n > 0 && d->model->kind->ahead)
        mask_rows(d, ctx, b, &context);
    else if (d->n > 0)
        block_rows(d, ctx, b, &v);
    pl_tensor y = d->model->kind->draft(ctx, d->model, &v);
    pl_draft_part(base, ctx, d->n > 0 ? &base->parts.layer : &base->parts.take_in, &at);
    if (d->n == 0) return;
    begin_trees(d);
    if (d->model->kind->follow)
        draft_stepwise(d, ctx, b, (pl_head_rows){.x = y});
    else if (d->model->head.kind->over_target || d->model->head.selector.candidates > 0)
        draft_in_sequence(d, ctx, b, y, pl_backbone_context(ctx, d->model, &v, d->n));
    else
        draft_at_once(d, ctx, b, y);
    at = pl_now();
    for (int i = 0; i < d->n && !ctx->measuring; i++) {
        pl_tree *t = b->item[d->which[i]].tree;
        if (t->notes.levels > 0) pl_tree_notes_share(t, began, at, first_level);
    }
}

// ---- create and destroy ---------------------------------------------------------------------------------------------

// A context row is its position's features alone, or (`ahead`) reads the token after it.
static int keep(pl_drafter *d, int slot, int n) {
    (void)slot;
    return ((const block_drafter *)d)->model->kind->ahead ? n - 1 : n;
}

static int from(const pl_drafter *d, int slot, int n, int n_prompt) {
    return pl_kv_from(&((const block_drafter *)d)->kv[slot], n, n_prompt);
}

// Layers and a head for all drafts are read once for all levels.
static double step_bytes(const pl_drafter *base) {
    const pl_backbone *m = ((const block_drafter *)base)->model;
    int                levels = base->policy.depth < m->drafts ? base->policy.depth : m->drafts;
    double             head = m->more ? pl_head_step_bytes(&m->head, 0) : 0;
    return head + (pl_backbone_step_bytes(m, 1) - head) / (levels > 1 ? levels : 1);
}

static void destroy(pl_drafter *base) {
    block_drafter *d = (block_drafter *)base;
    for (int i = 0; d->kv && i < base->max_sessions; i++)
        pl_kv_destroy(&d->kv[i]);
    void *owned[] = {d->kv, d->which, d->node_id, d->node_logp, d->frontier, d->n_frontier, d->next, d->row};
    for (size_t i = 0; i < sizeof owned / sizeof *owned; i++)
        pl_free(owned[i]);
    pl_backbone_destroy(d->owned);
}

static pl_status retake(pl_drafter *base, const char *dir, const pl_llama *target, pl_dtype t, pl_err *err) {
    block_drafter *d = (block_drafter *)base;
    PL_CHECK(d->owned, "%s: the backbone is another's", dir);
    return pl_backbone_retake(d->owned, dir, target, t, err);
}

static const pl_drafter_kind kind = {.name = "block",
                                     .propose = propose,
                                     .keep = keep,
                                     .from = from,
                                     .step_bytes = step_bytes,
                                     .destroy = destroy,
                                     .retake = retake};

static pl_status init(pl_drafter *base, const char *dir, const pl_drafter_options *o, pl_err *err) {
    block_drafter        *d = (block_drafter *)base;
    const pl_tree_policy *policy = &base->policy;
    if (!o->model) PL_TRY(pl_backbone_open(&d->owned, dir, o->target, o->dtype, err));
    const pl_backbone *model = d->model = o->model ? o->model : d->owned;
    PL_CHECK(model->kind->draft, "%s: \"%s\" drafts token after token", dir, pl_backbone_name(model));
    if (policy->k > model->head.vocab)
        return pl_fail(err, PL_E_USAGE, "tree \"%s\" wants %d candidates a node, the draft vocabulary of %s has %lld",
                       policy->text, policy->k, dir, (long long)model->head.vocab);
    d->kind = kind;
    d->kind.name = pl_backbone_name(model);
    d->base.kind = &d->kind;
    d->base.n_taps = model->n_taps;
    memcpy(d->base.tap, model->tap, sizeof d->base.tap);
    size_t k = (size_t)policy->k, s = (size_t)o->max_sessions, w = (size_t)policy->width;
    d->kv = pl_calloc(s, sizeof *d->kv);
    d->which = pl_calloc(s, sizeof *d->which);
    d->node_id = pl_calloc(w * k, sizeof *d->node_id);
    d->node_logp = pl_calloc(w * k, sizeof *d->node_logp);
    d->frontier = pl_calloc(s * w, sizeof *d->frontier);
    d->n_frontier = pl_calloc(s, sizeof *d->n_frontier);
    d->next = pl_calloc(w, sizeof *d->next);
    d->row = pl_calloc(s, PL_TREE_GROWN * sizeof *d->row);
    if (!d->kv || !d->which || !d->node_id || !d->node_logp || !d->frontier || !d->n_frontier || !d->next || !d->row)
        return pl_fail(err, PL_E_MEMORY, "%s: out of memory", dir);
    PL_TRY(pl_backbone_reach(model, o->slots + model->block, err));
    pl_kv_window window = pl_backbone_window(model, pl_drafter_chunk(o) + model->block);
    for (int i = 0; i < o->max_sessions; i++) {
        PL_TRY(pl_kv_create_window(&d->kv[i], model->layers, o->slots + model->block, &window, &model->shape,
                                   o->target->be, err));
        base->cache_bytes += (double)d->kv[i].bytes;
    }
    return PL_OK;
}

static bool declared(const pl_hf_config *c) {
    return c->block.size > 0;
}

const pl_drafter_source pl_drafter_block = {
    .name = "block", .declared = declared, .kind = &kind, .size = sizeof(block_drafter), .init = init};
