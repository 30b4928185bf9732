// A backbone as a drafter: takes in final rows with the target's features, then drafts the trees level by level.
//
// On a device, levels are queued without synchronising between them. The host computes ahead how many rows a level has,
// or can have at most, and which cache positions they take; the op frontier derives everything that depends on the
// candidates (tokens, parents' rows, paths) on the device, for the next level's ops. After a single synchronisation the
// host grows the trees from all levels' candidates and checks that the device expanded the same nodes. If a level must
// be synchronised anyway (children are drawn on the host, a policy chooses on the host, an observer is attached), or
// the backend is the host's, a level's nodes grow before the next level is queued and are passed to frontier.
//
// Cache of a session: position t holds row t (hidden of position t, embedding of token t+1). After the rows up to t =
// n-2 are in (n tokens committed), the last row's output predicts token n: level 0. A node at depth j is row n-2+j of
// its path: it consumes its parent's output and its own token. Expanded nodes take positions n-1, n, ... in order of
// expansion and are overwritten by the next call's final rows. If all layers have a window, the last positions alone
// are in memory (infer/model/kv.h).
#include "infer/drafter/backbone.h"
#include "infer/drafter/drafter.h"
#include "infer/head/stopping.h"
#include "infer/model/kv.h"
#include "kernels/base/check.h"
#include "kernels/op/elementwise.h"
#include "kernels/op/frontier.h"

#include <string.h>

// Rows of one depth, of all trees, and their candidates.
typedef struct level {
    int              rows;
    int             *of;    // [sessions] rows of each item; an upper bound while levels are queued ahead: frontier
                            // marks the missing ones
    int32_t         *index; // [rows] their rows within the step; NULL: all, in order
    pl_frontier_rows at;    // frontier's output for them; level 0: all NULL
    const int32_t   *token; // [rows] their tokens, for heads and for the observer
    int32_t         *group; // [rows] their item indices
    int32_t         *id;    // [rows, k] candidates; target ids once read
    float           *value, *lse; // [rows, k], [rows]
} level;

typedef struct backbone_drafter {
    pl_drafter         base;
    pl_drafter_kind    kind; // with the backbone's name
    const pl_backbone *model;
    pl_backbone       *owned; // set if this drafter opened the model
    pl_kv             *kv;    // [max_sessions]
    const pl_memory   *memory;
    int32_t           *d2t;     // on a device: the head's list in memory that ops can read
    int                drafted; // most cache positions of drafted rows
    bool               ahead;   // the current draft is queued level after level
    level             *level;   // [depth_max]
    int               *of;      // [depth_max][sessions]
    // One step's rows, in the step's memory: ops read them later, so each step has its own.
    const int32_t     *token;
    int32_t           *pos;
    pl_kvrow          *row; // [layers][rows]
    // The trees as grown by the host so far.
    float             *logp;            // [sessions][width][k] log-probabilities of a level's candidates
    int               *frontier, *next; // [sessions][width]
    int               *n_frontier;      // [sessions]
    int               *used;            // [sessions] cache positions taken by drafted rows
    int               *place;           // [sessions][PL_TREE_GROWN]: index of a frontier node's row within its tree's
                                        // level
    float             *kept;            // [sessions][PL_TREE_GROWN]: predicted acceptance of a node's path and of a
                                        // draft behind it
    double            *share;           // [depth_max] share of each level in a draft's time
} backbone_drafter;

// ---- candidates -----------------------------------------------------------------------------------------------------

static void take_candidates(backbone_drafter *d, pl_ctx *ctx, level *l) {
    size_t m = (size_t)l->rows, k = (size_t)d->base.policy.k;
    l->id = pl_ctx_bytes(ctx, m * k * sizeof *l->id);
    l->value = pl_ctx_bytes(ctx, m * k * sizeof *l->value);
    l->lse = pl_ctx_bytes(ctx, m * sizeof *l->lse);
    l->group = pl_ctx_bytes(ctx, m * sizeof *l->group);
}

// Trees that take the best candidates: computes their log-probabilities and maps ids to the target's.
static void read_best(backbone_drafter *d, const level *l, const pl_draft_batch *b) {
    const int32_t *d2t = d->model->head.d2t;
    int            k = d->base.policy.k;
    bool           scored = d->base.policy.needs_logp;
    for (int i = 0, at = 0; i < b->n; at += l->of[i++] * k)
        for (int j = at; j < at + l->of[i] * k && !b->item[i].proposing; j++) {
            d->logp[j] = scored ? l->value[j] - l->lse[j / k] : 0;
            if (d2t && l->id[j] >= 0) l->id[j] = d2t[l->id[j]];
        }
}

// Trees that draw their children: draws them from the logits.
static void draw_children(backbone_drafter *d, pl_ctx *ctx, const level *l, const pl_head_rows *r, pl_draft_batch *b) {
    const pl_tree_policy *policy = &d->base.policy;
    pl_drafted            drafted = pl_head_drafted(&d->model->head);
    int                   k = policy->k;
    double                at = pl_now();
    pl_tensor             logits = pl_head_logits(ctx, &d->model->head, r);
    pl_draft_lap(&d->base.parts.head, &at);
    if (!logits.data) return;
    for (int i = 0, row = 0; i < b->n; row += l->of[i++])
        for (int j = 0; b->item[i].proposing && j < l->of[i]; j++) {
            pl_tree *t = b->item[i].tree;
            int      node = d->frontier[i * policy->width + j], wanted = pl_tree_wanted(policy, t, node);
            for (int i_k = wanted; i_k < k; i_k++)
                l->id[(row + j) * k + i_k] = -1;
            pl_propose_draw(b->item[i].proposing, t, node, pl_f32(&logits) + (row + j) * logits.dim[1], &drafted,
                            wanted, l->id + (row + j) * k, d->logp + (row + j) * k);
        }
    pl_draft_lap(&d->base.parts.draw, &at);
}

// Takes the candidates from nodes behind which a token would be rejected too likely (infer/head/stopping.h). z: the
// predictions' logits.
static void end_paths(backbone_drafter *d, const level *l, const float *z, const pl_draft_batch *b) {
    const pl_tree_policy *policy = &d->base.policy;
    for (int i = 0, row = 0; i < b->n; row += l->of[i++])
        for (int j = 0; j < l->of[i]; j++) {
            float *kept = d->kept + (size_t)i * PL_TREE_GROWN;
            int    node = d->frontier[i * policy->width + j], up = b->item[i].tree->parent[node];
            bool   ends = pl_stopping_ends(&d->model->head, kept, up, node, z[row + j]);
            for (int k = 0; ends && k < policy->k; k++)
                l->id[(row + j) * policy->k + k] = -1;
        }
}

// Prepares the head's rows before a step from `hidden`, some of whose rows are level `which`: sets everything but x.
static pl_head_rows begin_rows(backbone_drafter *d, pl_ctx *ctx, pl_tensor hidden, int which, pl_draft_batch *b) {
    level       *l = &d->level[which];
    pl_head_rows r = {.level = which};
    if (l->rows == 0) return r;
    take_candidates(d, ctx, l);
    if (pl_head_reads_inputs(&d->model->head) || d->base.watch) {
        r.hidden = l->index ? pl_gather(ctx, hidden, l->index, l->rows) : hidden;
        r.embed = d->model->embed;
        r.token = l->token;
        r.group = l->group;
    }
    for (int i = 0, row = 0; i < b->n; i++)
        for (int j = 0; j < l->of[i]; j++)
            l->group[row++] = i;
    if (d->base.watch) return r;
    if (d->base.by_level) pl_ctx_wait(ctx);
    double at = pl_now(), spent = 0;
    pl_head_begin(ctx, &d->model->head, &r);
    if (!r.foreseen) return r;
    if (d->base.by_level) pl_ctx_join(ctx); // else a branch runs beside the layer
    pl_draft_part(&d->base, ctx, &spent, &at);
    d->base.parts.router += spent;
    d->base.parts.head += spent; // moved to `head` from the part that the step is counted to
    *(which ? &d->base.parts.layer : &d->base.parts.take_in) -= spent;
    return r;
}

// Computes the candidates of level `which` from the normed states y, and reads them unless levels are queued ahead.
static void find_candidates(backbone_drafter *d, pl_ctx *ctx, pl_head_rows r, pl_tensor y, int which,
                            pl_draft_batch *b) {
    level *l = &d->level[which];
    bool   draws = ctx->measuring, chooses = ctx->measuring;
    r.x = l->index ? pl_gather(ctx, y, l->index, l->rows) : y;
    for (int i = 0; i < b->n; i++)
        if (l->of[i]) *(b->item[i].proposing ? &draws : &chooses) = true;
    if (d->base.watch) d->base.watch->see(d->base.watch, ctx, &d->model->head, &r);
    bool      ends = pl_stopping_least(&d->model->head) > 0;
    pl_tensor sure = ends ? pl_stopping_logits(ctx, &d->model->head, r.x) : (pl_tensor){0};
    double    at = pl_now();
    if (chooses) {
        pl_head_topk(ctx, &d->model->head, &r, d->base.policy.k, l->id, l->value,
                     d->base.policy.needs_logp ? l->lse : NULL);
        if (!d->ahead && pl_ctx_wait(ctx)) read_best(d, l, b);
        pl_draft_part(&d->base, ctx, &d->base.parts.head, &at);
    }
    if (draws) draw_children(d, ctx, l, &r, b);
    if (ends) sure.data = pl_ctx_read(ctx, &sure);
    if (sure.data && !ctx->measuring) end_paths(d, l, pl_f32(&sure), b);
    if (d->base.by_level) d->base.by_level[which] = d->base.parts;
}

// ---- rows -----------------------------------------------------------------------------------------------------------

static void take_rows(backbone_drafter *d, pl_ctx *ctx, int m) {
    d->pos = pl_ctx_bytes(ctx, (size_t)m * sizeof *d->pos);
    d->row = pl_ctx_bytes(ctx, (size_t)m * (size_t)d->model->layers * sizeof *d->row);
}

static pl_tensor run_step(backbone_drafter *d, pl_ctx *ctx, pl_tensor hidden, int m, pl_tensor *hidden_out) {
    pl_view view = {.pos = d->pos, .cos = d->model->cos, .sin = d->model->sin, .row = d->row, .m = m};
    return d->model->kind->step(ctx, d->model, d->token, hidden, &view, hidden_out, (pl_tensor){0});
}

// Returns the number of levels that an item's tree may have.
static int levels_of(const backbone_drafter *d, const pl_draft_item *it) {
    return it->depth < d->base.policy.depth ? it->depth : d->base.policy.depth;
}

// Takes in final rows: fuses the target's features, runs the layers, caches. Returns the rows' normed outputs. The last
// row of each session that requests a tree is its level 0.
static pl_tensor take_in(backbone_drafter *d, pl_ctx *ctx, pl_draft_batch *b, pl_head_rows *r, pl_tensor *hidden) {
    level *l = &d->level[0];
    int    m = ctx->measuring ? d->base.max_rows : 0;
    l->rows = ctx->measuring ? d->base.max_sessions : 0;
    for (int i = 0; i < b->n; i++) {
        m += b->item[i].count;
        l->of[i] = b->item[i].tree && levels_of(d, &b->item[i]) > 0;
        l->rows += l->of[i];
    }
    int32_t *token = pl_ctx_bytes(ctx, (size_t)m * sizeof *token);
    int32_t *feature = pl_ctx_bytes(ctx, (size_t)m * sizeof *feature);
    int32_t *last = pl_ctx_bytes(ctx, (size_t)l->rows * sizeof *last);
    take_rows(d, ctx, m);
    l->at = (pl_frontier_rows){0};
    l->index = pl_ctx_bytes(ctx, (size_t)l->rows * sizeof *l->index);
    l->token = last;
    d->token = token;
    for (int i = 0, row = 0, to = 0; i < b->n; i++) {
        pl_draft_item *it = &b->item[i];
        pl_kv_reach(ctx, &d->kv[it->slot], it->first, it->count, l->of[i] ? d->drafted : 0);
        for (int j = 0; j < it->count; j++, row++) {
            int32_t t = it->first + j;
            PL_CHECK(t + 1 < it->n_tokens, "row %d of %d tokens", t, it->n_tokens);
            token[row] = it->tokens[t + 1];
            d->pos[row] = t;
            feature[row] = it->feature_row[j];
            pl_kv_row(&d->kv[it->slot], &d->row[row], m, it->first, NULL, j + 1, t);
        }
        d->n_frontier[i] = l->of[i];
        d->used[i] = 0;
        if (!l->of[i]) continue;
        d->frontier[i * d->base.policy.width] = 0;
        l->index[to] = row - 1;
        last[to++] = token[row - 1];
    }
    pl_tensor fused = d->model->kind->fuse(ctx, d->model, pl_gather(ctx, b->features, feature, m));
    *r = begin_rows(d, ctx, fused, 0, b);
    return run_step(d, ctx, fused, m, hidden);
}

// Returns the index, among its tree's candidates of the parents' level, of a frontier node of item i.
static int32_t candidate_of(const backbone_drafter *d, const pl_tree *t, int i, int node) {
    return d->place[i * PL_TREE_GROWN + t->parent[node]] * d->base.policy.k + t->rank[node];
}

// Returns the number of rows of item i on the level after `which` and, unless chosen by score, their candidates: as the
// tree has grown or, when queued ahead, as it is going to grow. The deepest level is proposed but not expanded.
static int plan_rows(const backbone_drafter *d, const pl_draft_batch *b, int which, int i, int32_t *pick) {
    const pl_tree_policy *policy = &d->base.policy;
    int                   n = d->level[which].of[i];
    if (n == 0 || which + 1 >= levels_of(d, &b->item[i])) return 0;
    if (d->ahead && policy->kind->ahead) return policy->kind->ahead(policy, which, n, pick);
    if (d->ahead) return n * policy->k < policy->width ? n * policy->k : policy->width;
    for (int j = 0; j < d->n_frontier[i]; j++)
        pick[j] = candidate_of(d, b->item[i].tree, i, d->frontier[i * policy->width + j]);
    return d->n_frontier[i];
}

// Sets up the rows of the level after `which`, to be gathered from its step. Returns false if there are none.
static bool expand_level(backbone_drafter *d, pl_ctx *ctx, pl_draft_batch *b, int which) {
    const level *l = &d->level[which];
    level       *next = &d->level[which + 1];
    int          most = ctx->measuring ? d->base.max_sessions : b->n, w = d->base.policy.width, n = 0, groups = 0;
    bool         by_score = d->ahead && !d->base.policy.kind->ahead;
    if (which + 1 >= d->base.policy.depth_max) return false;
    pl_frontier_group *group = pl_ctx_bytes(ctx, (size_t)most * sizeof *group);
    int32_t           *pick = pl_ctx_bytes(ctx, (size_t)most * (size_t)w * sizeof *pick);
    for (int i = 0, first = 0; i < b->n; first += l->of[i++]) {
        next->of[i] = plan_rows(d, b, which, i, pick + n);
        if (!next->of[i]) continue;
        group[groups++] = (pl_frontier_group){.first = first,
                                              .rows = l->of[i],
                                              .to = n,
                                              .width = next->of[i],
                                              .slot = b->item[i].n_tokens - 1 + d->used[i]};
        n += next->of[i];
    }
    next->rows = ctx->measuring ? most * w : n;
    if (next->rows == 0) return false;
    take_rows(d, ctx, next->rows);
    pl_frontier_args a = {.group = group,
                          .index = l->index,
                          .pick = by_score ? NULL : pick,
                          .id = l->id,
                          .at = l->at,
                          .n_groups = groups,
                          .k = d->base.policy.k,
                          .n = next->rows,
                          .depth = which};
    if (d->ahead) a.d2t = d->d2t; // otherwise the ids are the target's already
    if (by_score && d->base.policy.needs_logp) a.value = l->value, a.lse = l->lse;
    pl_frontier(ctx, &a);
    next->index = NULL;
    next->at = a.next;
    next->token = d->token = a.next.token;
    int32_t *token = d->ahead && !ctx->measuring ? NULL : pl_ctx_bytes(ctx, (size_t)next->rows * sizeof *token);
    if (token) next->token = token; // the host has them
    for (int i = 0, row = 0; i < b->n; i++)
        for (int j = 0; j < next->of[i]; j++, row++) {
            if (token) token[row] = b->item[i].tree->token[d->frontier[i * w + j]];
            int32_t base = b->item[i].n_tokens - 1; // committed rows are 0..n-2; drafted ones take positions from n-1
            d->pos[row] = base + which;
            pl_kv_row(&d->kv[b->item[i].slot], &d->row[row], next->rows, base,
                      a.next.path + (size_t)row * (size_t)(which + 1), which + 1, base + d->used[i]++);
        }
    return true;
}

// ---- trees ----------------------------------------------------------------------------------------------------------

// Checks that the existing rows of level `l` from `row` on are the nodes of item i's frontier, and compacts their
// candidates. Returns false if they differ: a bug in the device's op or in the policy.
static bool match_rows(backbone_drafter *d, level *l, int row, const pl_tree *t, int i) {
    const int *frontier = d->frontier + i * d->base.policy.width;
    size_t     k = (size_t)d->base.policy.k, from = (size_t)row * k, to = from;
    int        n = 0;
    for (int f = 0; f < l->of[i]; f++, from += k) {
        int32_t picked = l->at.picked ? l->at.picked[row + f] : 0;
        if (picked < 0) continue;
        if (n == d->n_frontier[i] || (l->at.picked && picked != candidate_of(d, t, i, frontier[n]))) return false;
        if (to < from) {
            memcpy(l->id + to, l->id + from, k * sizeof *l->id);
            memcpy(d->logp + to, d->logp + from, k * sizeof *d->logp);
        }
        to += k;
        d->place[i * PL_TREE_GROWN + frontier[n++]] = f;
    }
    return n == d->n_frontier[i];
}

// Grows the trees by the candidates of a level that has been read.
static void grow_level(backbone_drafter *d, pl_ctx *ctx, pl_draft_batch *b, int which) {
    const pl_tree_policy *policy = &d->base.policy;
    level                *l = &d->level[which];
    size_t                w = (size_t)policy->width;
    for (int i = 0, row = 0; i < b->n; row += l->of[i++]) {
        pl_draft_item *it = &b->item[i];
        int           *frontier = d->frontier + (size_t)i * w;
        if (l->of[i] == 0) continue;
        if (!match_rows(d, l, row, it->tree, i)) {
            pl_ctx_fail(ctx, PL_E_DEVICE, "%s: level %d of a draft went on with other nodes than the tree's",
                        ctx->be->name, which);
            return;
        }
        if (d->n_frontier[i] == 0) continue;
        size_t at = (size_t)row * (size_t)policy->k;
        int    n =
            policy->kind->grow(policy, it->tree, which, frontier, d->n_frontier[i], l->id + at, d->logp + at, d->next);
        d->n_frontier[i] = which + 1 < levels_of(d, it) ? n : 0;
        memcpy(frontier, d->next, w * sizeof *frontier);
    }
}

// Synchronises once with a draft that was queued ahead, then grows the trees from its candidates.
static void grow_all(backbone_drafter *d, pl_ctx *ctx, pl_draft_batch *b, int levels, double began) {
    double at = pl_now();
    bool   there = pl_ctx_wait(ctx);
    pl_draft_lap(&d->base.parts.head, &at);
    for (int which = 0; there && which < levels && ctx->err.status == PL_OK; which++) {
        read_best(d, &d->level[which], b);
        grow_level(d, ctx, b, which);
    }
    for (int i = 0; i < b->n; i++)
        if (d->level[0].of[i]) pl_tree_notes_share(b->item[i].tree, began, at, d->share);
}

// Returns true if the draft's levels are queued without synchronising. An observer needs rows that have been read.
static bool goes_ahead(const backbone_drafter *d, const pl_ctx *ctx, const pl_draft_batch *b) {
    const pl_tree_policy *policy = &d->base.policy;
    bool                  chosen = policy->kind->by_score && policy->width * policy->k <= PL_FRONTIER_MAX;
    bool ahead = ctx->be->device && (policy->kind->ahead || chosen) && !policy->stops && !d->base.watch &&
                 pl_stopping_least(&d->model->head) == 0;
    for (int i = 0; i < b->n; i++)
        ahead &= !(b->item[i].tree && b->item[i].proposing);
    return ahead;
}

// On a measuring context this is the largest call: max_rows rows taken in, then every session drafting to full depth
// and width.
static void propose(pl_drafter *base, pl_ctx *ctx, pl_draft_batch *b) {
    backbone_drafter *d = (backbone_drafter *)base;
    double            began = pl_now(), at = began;
    int               levels = 0;
    d->ahead = goes_ahead(d, ctx, b);
    pl_head_rows r;
    pl_tensor    hidden, y = take_in(d, ctx, b, &r, &hidden);
    pl_draft_part(base, ctx, &base->parts.take_in, &at);
    if (d->level[0].rows == 0) return;
    for (;;) {
        find_candidates(d, ctx, r, y, levels, b);
        if (!d->ahead && ctx->err.status == PL_OK) grow_level(d, ctx, b, levels);
        if (ctx->err.status != PL_OK || !expand_level(d, ctx, b, levels++)) break;
        at = pl_now();
        pl_tensor from = pl_gather(ctx, hidden, d->level[levels].at.row, d->level[levels].rows);
        r = begin_rows(d, ctx, from, levels, b);
        y = run_step(d, ctx, from, d->level[levels].rows, &hidden);
        pl_draft_part(base, ctx, &base->parts.layer, &at);
    }
    if (d->ahead) grow_all(d, ctx, b, levels, began);
}

// A row reads the token after it.
static int keep(pl_drafter *d, int slot, int n) {
    (void)d, (void)slot;
    return n - 1;
}

static int from(const pl_drafter *d, int slot, int n, int n_prompt) {
    return pl_kv_from(&((const backbone_drafter *)d)->kv[slot], n, n_prompt);
}

static double step_bytes(const pl_drafter *base) {
    return pl_backbone_step_bytes(((const backbone_drafter *)base)->model, base->policy.depth);
}

static void destroy(pl_drafter *base) {
    backbone_drafter *d = (backbone_drafter *)base;
    for (int i = 0; d->kv && i < base->max_sessions; i++)
        pl_kv_destroy(&d->kv[i]);
    if (d->d2t) pl_memory_destroy(d->memory, PL_LOCAL, d->d2t, (size_t)d->model->head.vocab * sizeof *d->d2t);
    void *owned[] = {d->kv,         d->level, d->of,    d->logp, d->frontier, d->next,
                     d->n_frontier, d->used,  d->place, d->kept, d->share};
    for (size_t i = 0; i < sizeof owned / sizeof *owned; i++)
        pl_free(owned[i]);
    pl_backbone_destroy(d->owned);
}

static pl_status retake(pl_drafter *base, const char *dir, const pl_llama *target, pl_dtype t, pl_err *err) {
    backbone_drafter *d = (backbone_drafter *)base;
    PL_CHECK(d->owned, "%s: the backbone is another's", dir);
    return pl_backbone_retake(d->owned, dir, target, t, err);
}

static const pl_drafter_kind kind = {.name = "backbone",
                                     .propose = propose,
                                     .keep = keep,
                                     .from = from,
                                     .step_bytes = step_bytes,
                                     .destroy = destroy,
                                     .retake = retake};

// Divides a draft's device time among its levels by the bytes that each must read.
static void share_by_bytes(backbone_drafter *d) {
    const pl_backbone *m = d->model;
    const pl_tensor   *fuse = m->kind->fuse_only ? m->kind->fuse_only(m) : NULL;
    double             layer = pl_backbone_step_bytes(m, 0);
    for (int l = 0; l < d->base.policy.depth_max; l++)
        d->share[l] = layer + pl_head_step_bytes(&m->head, l);
    if (fuse) d->share[0] += (double)pl_tensor_count(fuse) * (double)pl_dtype_size(fuse->dtype);
}

// Copies the head's list of target ids to memory that a device's ops can read.
static pl_status share_ids(backbone_drafter *d, const pl_backend *be, pl_err *err) {
    const pl_head *h = &d->model->head;
    size_t         bytes = (size_t)h->vocab * sizeof *h->d2t;
    if (!be->device || !h->d2t) return PL_OK;
    d->d2t = pl_memory_create(be->memory, PL_LOCAL, bytes, err);
    return d->d2t ? pl_memory_write(be->memory, d->d2t, h->d2t, bytes, err) : PL_E_MEMORY;
}

// Prepares a drafter whose model is set. dir: its folder, or its name.
static pl_status prepare(backbone_drafter *d, const char *dir, const pl_drafter_options *o, pl_err *err) {
    const pl_tree_policy *policy = &d->base.policy;
    const pl_backend     *be = o->target->be;
    PL_CHECK(d->model->kind->step, "%s: \"%s\" drafts blocks", dir, pl_backbone_name(d->model));
    if (policy->k > d->model->head.vocab)
        return pl_fail(err, PL_E_USAGE, "tree \"%s\" wants %d candidates a node, the draft vocabulary of %s has %lld",
                       policy->text, policy->k, dir, (long long)d->model->head.vocab);
    d->kind = kind;
    d->kind.name = pl_backbone_name(d->model);
    d->base.kind = &d->kind;
    d->base.n_taps = d->model->n_taps;
    memcpy(d->base.tap, d->model->tap, sizeof d->base.tap);
    d->memory = be->memory;
    size_t k = (size_t)policy->k, s = (size_t)o->max_sessions, w = (size_t)policy->width, l = (size_t)policy->depth_max;
    d->kv = pl_calloc(s, sizeof *d->kv);
    d->level = pl_calloc(l, sizeof *d->level);
    d->of = pl_calloc(l * s, sizeof *d->of);
    d->logp = pl_calloc(s * w * k, sizeof *d->logp);
    d->frontier = pl_calloc(s * w, sizeof *d->frontier);
    d->next = pl_calloc(w, sizeof *d->next);
    d->n_frontier = pl_calloc(s, sizeof *d->n_frontier);
    d->used = pl_calloc(s, sizeof *d->used);
    d->place = pl_calloc(s * PL_TREE_GROWN, sizeof *d->place);
    d->kept = pl_calloc(s * PL_TREE_GROWN, sizeof *d->kept);
    d->share = pl_calloc(l, sizeof *d->share);
    if (!d->kv || !d->level || !d->of || !d->logp || !d->frontier || !d->next || !d->n_frontier || !d->used ||
        !d->place || !d->kept || !d->share)
        return pl_fail(err, PL_E_MEMORY, "%s: out of memory", dir);
    for (size_t i = 0; i < l; i++)
        d->level[i].of = d->of + i * s;
    share_by_bytes(d);
    PL_TRY(share_ids(d, be, err));
    d->drafted = policy->width * policy->depth_max;
    pl_kv_window window = pl_backbone_window(d->model, pl_drafter_chunk(o) + d->drafted);
    PL_TRY(pl_backbone_reach(d->model, o->slots + d->drafted, err));
    for (int i = 0; i < o->max_sessions; i++) {
        PL_TRY(pl_kv_create_window(&d->kv[i], d->model->layers, o->slots + d->drafted, &window, &d->model->shape, be,
                                   err));
        d->base.cache_bytes += (double)d->kv[i].bytes;
    }
    return PL_OK;
}

static pl_status init(pl_drafter *base, const char *dir, const pl_drafter_options *o, pl_err *err) {
    backbone_drafter *d = (backbone_drafter *)base;
    if (!o->model) PL_TRY(pl_backbone_open(&d->owned, dir, o->target, o->dtype, err));
    d->model = o->model ? o->model : d->owned;
    return prepare(d, dir, o, err);
}

static pl_status init_within(pl_drafter *base, const char *from, const pl_drafter_options *o, pl_err *err) {
    backbone_drafter *d = (backbone_drafter *)base;
    if (*from)
        return pl_fail(err, PL_E_USAGE, "drafter \"mtp:%s\": it is in the target's files, and takes nothing", from);
    PL_TRY(pl_backbone_open_within(&d->owned, &pl_backbone_mtp, o->target, o->dtype, err));
    d->model = d->owned;
    return prepare(d, "mtp", o, err);
}

static bool declared(const pl_hf_config *c) {
    return c->backbone != PL_HF_NO_BACKBONE && c->block.size == 0;
}

const pl_drafter_source pl_drafter_rollout = {
    .name = "backbone", .declared = declared, .kind = &kind, .size = sizeof(backbone_drafter), .init = init};
const pl_drafter_source pl_drafter_mtp = {.name = "mtp",
                                          .syntax = "mtp",
                                          .help = "the target's own layer for drafting (Qwen3-Next, Qwen3.5)",
                                          .kind = &kind,
                                          .size = sizeof(backbone_drafter),
                                          .init = init_within};
